"""What cannot work is refused here, before anything is compiled or written.

Each message says the value, the limit and the remedy.
"""

import glob
import os
from collections.abc import Mapping

from ml_collections import ConfigDict

from bert_jax import optim
from bert_jax.data.given import Layout
from bert_jax.data.piece_learning import RULES
from bert_jax.data.rows import FORMATS, PAIR_LABELS
from bert_jax.data.sentencepieces import MODEL_TYPES
from bert_jax.data.stream import SHUFFLES
from bert_jax.data.vocabularies import KINDS
from bert_jax.encoder.spec import DTYPES, GELUS
from bert_jax.rundir import Refusal

CHOICES = {
    "vocabulary.kind": KINDS,
    "vocabulary.model_type": MODEL_TYPES,
    "vocabulary.rule": RULES,
    "vocabulary.strip_accents": ("auto", "yes", "no"),
    "model.gelu": GELUS,
    "model.compute_dtype": DTYPES,
    "rows.shuffle": SHUFFLES,
    "rows.format": FORMATS,
    "rows.pair_label": PAIR_LABELS,
    "masks.kind": ("static", "dynamic", "given"),
    "masks.unit": ("token", "word", "span"),
    "masks.pool": ("vocabulary", "ordinary"),
    "masks.selection": ("exact", "independent"),
    "optimizer.schedule": tuple(optim.SCHEDULES),
}
SHARES = (
    "model.dropout", "model.attention_dropout", "rows.short_seq_prob",
    "rows.random_next_prob", "masks.rate", "masks.mask_share", "masks.random_share",
    "masks.final_rate", "masks.span_p", "model.generator",
)  # fmt: skip
POSITIVE = (
    "vocabulary.size", "model.layers", "model.width", "model.heads", "model.inner",
    "model.max_positions", "rows.plans", "rows.pack", "masks.copies",
    "masks.span_max", "eval.every", "eval.pairs",
    "checkpoint.every", "checkpoint.keep", "log.every", "machine.eval_batch",
    "machine.loader_threads",
)  # fmt: skip
SHORTEST = 8  # [CLS], two [SEP] and a few tokens


def check_config(config: ConfigDict, flat: Mapping[str, object], devices: int) -> None:
    """Refuses what the configuration alone shows to be impossible.

    Raises:
      Refusal: with the key, its value, the limit and the remedy.
    """
    for path, names in CHOICES.items():
        if flat[path] not in names:
            raise Refusal(
                f"{path}={flat[path]!r} is not one of {', '.join(map(str, names))}"
            )
    for path in SHARES:
        if not 0.0 <= float(flat[path]) <= 1.0:  # type: ignore[arg-type]
            raise Refusal(f"{path}={flat[path]} must lie between 0 and 1")
    for path in POSITIVE:
        if int(flat[path]) < 1:  # type: ignore[call-overload]
            raise Refusal(f"{path}={flat[path]} must be at least 1")
    for path in ("machine.micro_batch", "masks.max_predictions"):
        if int(flat[path]) < 0:  # type: ignore[call-overload]
            raise Refusal(f"{path}={flat[path]} must be 0 (chosen for you) or more")
    if config.model.width % config.model.heads:
        raise Refusal(
            f"model.width={config.model.width} does not split over model.heads="
            f"{config.model.heads}; use heads = width / 64 = {config.model.width // 64}"
        )
    _check_rows(config)
    _check_masks(config)
    _check_objectives(config)
    _check_phases(config, devices)
    total = sum(steps for _, steps, _ in config.phases)
    if config.optimizer.warmup_steps > total:
        raise Refusal(
            f"optimizer.warmup_steps={config.optimizer.warmup_steps} is longer than "
            f"the run of {total} steps; use about {max(1, total // 100)} (1 %), or "
            "more steps in phases"
        )
    _check_length("eval.sequence_length", config.eval.sequence_length, config)
    if config.machine.eval_batch % devices:
        raise Refusal(
            f"machine.eval_batch={config.machine.eval_batch} does not split over "
            f"{devices} devices; use a multiple, e.g. {devices * 8}"
        )


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


def _check_length(name: str, length: int, config: ConfigDict) -> None:
    if not SHORTEST <= length <= config.model.max_positions:
        raise Refusal(
            f"{name}: sequence length {length} is outside {SHORTEST} .. "
            f"{config.model.max_positions}, the rows of the position table; shorten "
            "it, or raise model.max_positions (JAX would silently reuse the last row)"
        )


def _check_phases(config: ConfigDict, devices: int) -> None:
    phases = config.phases
    shaped = isinstance(phases, tuple) and all(
        isinstance(phase, tuple)
        and len(phase) == 3
        and all(isinstance(n, int) and n > 0 for n in phase)
        for phase in phases
    )
    if not phases or not shaped:
        raise Refusal(
            f"phases={phases!r} must be a tuple of (sequence length, steps, batch "
            "size), e.g. ((128, 900000, 256), (512, 100000, 256))"
        )
    micro = config.machine.micro_batch
    for number, (length, _, batch) in enumerate(phases, 1):
        _check_length(f"phase {number}", length, config)
        if batch % devices:
            raise Refusal(
                f"phase {number}: batch size {batch} does not split over {devices} "
                f"devices; use a multiple, e.g. {-(-batch // devices) * devices}"
            )
        if micro and (batch % micro or micro % devices):
            raise Refusal(
                f"machine.micro_batch={micro} does not divide the batch of {batch} "
                f"rows of phase {number} over {devices} devices; use a divisor of the "
                f"batch that is a multiple of {devices}, or 0 to have one chosen"
            )


def check_accelerator(
    backend: str,
    processes: int,
    environ: Mapping[str, str] = os.environ,
    dev: str = "/dev",
) -> None:
    """Refuses a CPU run on a machine with an accelerator, and a pod half used.

    Args:
      backend: what JAX computes on, e.g. "cpu".
      processes: of this run.
      environ: environment variables; JAX_PLATFORMS=cpu counts as asking for the CPU.
      dev: directory of device files.

    Raises:
      Refusal: with what was found and how to use it.
    """
    asked = "cpu" in environ.get("JAX_PLATFORMS", "").split(",")
    if backend == "cpu" and not asked:
        for pattern, kind, extra in (
            ("accel[0-9]*", "TPU", "jax[tpu]"),
            ("vfio/[0-9]*", "TPU", "jax[tpu]"),
            ("nvidia[0-9]*", "NVIDIA GPU", "jax[cuda13]"),
        ):
            found = sorted(glob.glob(os.path.join(dev, pattern)))
            if found:
                raise Refusal(
                    f"this machine has an accelerator ({kind}: {found[0]}) but JAX "
                    f"runs on the CPU; pip install '{extra}', or pass --allow_cpu to "
                    "use the CPU all the same"
                )
    hosts = [h for h in environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if h]
    if len(hosts) > max(processes, 1) and not asked:
        raise Refusal(
            f"this is one of {len(hosts)} hosts (TPU_WORKER_HOSTNAMES) but the run has "
            f"{processes} process; start the same command on every host with --pod, "
            "or pass --allow_cpu to run on this one alone"
        )
