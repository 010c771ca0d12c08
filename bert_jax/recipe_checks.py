"""Rows, masks and objectives that cannot go together are refused here."""

from ml_collections import ConfigDict

from bert_jax.data.given import Layout
from bert_jax.rundir import Refusal


def check(config: ConfigDict) -> None:
    """Refuses what the keys of rows, masks and objectives show to be impossible.

    Raises:
      Refusal: with the key, its value, the limit and the remedy.
    """
    _check_rows(config)
    _check_masks(config)
    _check_objectives(config)


def _check_rows(config: ConfigDict) -> None:
    """Refuses labels that a format cannot have, and packing where rows are given."""
    r = config.rows
    if r.format in ("full_sentences", "doc_sentences") and r.pair_label != "none":
        raise Refusal(
            f"rows.format={r.format} has one segment a row and so no pair label; set "
            "rows.pair_label=none and objectives.nsp=0, or use segment_pair or "
            "sentence_pair"
        )
    if r.format == "given" and r.pack > 1:
        raise Refusal(
            f"rows.pack={r.pack}: given rows are read one in a row; set rows.pack=1"
        )
    if (config.masks.kind == "given") > (r.format == "given"):
        raise Refusal(
            f"masks.kind=given needs rows.format=given, which is {r.format}; masks "
            "come with the rows of --corpus 'tfrecord:GLOB'"
        )


def check_given(config: ConfigDict, layout: Layout | None) -> None:
    """Refuses to train on given rows as what they are not (case P13).

    Args:
      config: a checked configuration.
      layout: of the rows that came with the corpus, if any did.

    Raises:
      Refusal: with both values and the remedy.
    """
    wanted = config.rows.format == "given"
    if layout is None:
        if wanted:
            raise Refusal(
                "rows.format=given needs rows that another program made; give "
                "--corpus 'tfrecord:GLOB', or another rows.format"
            )
        return
    if not wanted:
        raise Refusal(
            f"{config.corpus} holds finished rows, rows.format is "
            f"{config.rows.format}; set --config.rows.format=given, and "
            "--config.masks.kind=given to keep their masks or dynamic to draw new ones"
        )
    for number, (length, _, _) in enumerate(config.phases, 1):
        if length != layout.max_seq_length:
            raise Refusal(
                f"phase {number} has sequence length {length}, the records were built "
                f"with max_seq_length={layout.max_seq_length}; set the lengths in "
                "phases to that, or build records anew"
            )
    cap, built = config.masks.max_predictions, layout.max_predictions_per_seq
    if config.masks.kind == "given" and cap not in (0, built):
        raise Refusal(
            f"masks.max_predictions={cap}, the records were built with "
            f"max_predictions_per_seq={built}; leave the key out, or build records anew"
        )


def _check_masks(config: ConfigDict) -> None:
    """Refuses shares and rates that cannot be."""
    m = config.masks
    if m.mask_share + m.random_share > 1 + 1e-9:
        raise Refusal(
            f"masks.mask_share={m.mask_share} and masks.random_share="
            f"{m.random_share} add to more than 1; the rest is kept as it is"
        )
    if m.rate == 0:
        raise Refusal("masks.rate=0 predicts nothing; the paper's rate is 0.15")
    if m.final_rate and m.kind != "dynamic":
        raise Refusal(
            f"masks.final_rate={m.final_rate} changes the rate at every step, and "
            f"{m.kind} masks do not change; set masks.kind=dynamic"
        )
    if m.unit == "span" and (m.selection != "exact" or not m.span_p):
        raise Refusal(
            "masks.unit=span needs masks.selection=exact and masks.span_p above 0, got "
            f"{m.selection} and {m.span_p}"
        )


def _check_objectives(config: ConfigDict) -> None:
    """Refuses objectives that cannot be learned together, or from these rows."""
    weights = config.objectives.to_dict()
    on = {name for name, weight in weights.items() if weight > 0}
    negative = [name for name, weight in weights.items() if weight < 0]
    if negative:
        raise Refusal(f"objectives.{negative[0]} is below 0; 0 leaves it out")
    mains = on & {"mlm", "ltr", "generator"}
    if len(mains) != 1:
        raise Refusal(
            f"objectives {', '.join(sorted(mains)) or 'that name a token: none'}: one "
            "of mlm, ltr and generator must have a weight, and one alone"
        )
    if ("rtd" in on) != ("generator" in on):
        raise Refusal(
            "objectives.rtd and objectives.generator go together (ELECTRA: 50 and 1); "
            f"got {weights['rtd']} and {weights['generator']}"
        )
    if "rtd" in on and not config.model.generator:
        raise Refusal("objectives.rtd needs model.generator above 0, e.g. 0.25")
    for name, label in (("nsp", "next_sentence"), ("sop", "sentence_order")):
        if name in on and config.rows.pair_label != label:
            raise Refusal(
                f"objectives.{name}={weights[name]} needs rows.pair_label={label}, "
                f"which is {config.rows.pair_label}; set that, or objectives.{name}=0"
            )
    if ("ltr" in on) != config.model.causal:
        raise Refusal(
            f"objectives.ltr={weights['ltr']} and model.causal={config.model.causal}: "
            "a left-to-right model needs both, any other neither"
        )
    if config.model.causal and on & {"nsp", "sop"}:
        raise Refusal(
            "under model.causal the first position sees nothing of the row, so no pair "
            "label can be read from it; set objectives.nsp=0 and objectives.sop=0"
        )
