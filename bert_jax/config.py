"""The configuration: every key, its default, its kind and its meaning, in one table.

Kinds (what may change when a run is continued):

* RECIPE: decides the result; must match.
* MACHINE: decides where and how fast; may change at any restart, and is logged.
* EXTENSION: how long; changes only with ``--extend``.
"""

import json
from difflib import get_close_matches
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.encoder.spec import SIZES

FORMAT_VERSION = 1
RECIPE, MACHINE, EXTENSION = "recipe", "machine", "extension"


class Key(NamedTuple):
    """One key of the configuration."""

    path: str
    default: Any
    kind: str
    meaning: str


KEYS = (
    Key("experiment", "", MACHINE, "name of the experiment file"),
    Key("seed", 0, RECIPE, "of parameters, rows, masks and dropout"),
    # Text
    Key("corpus", "builtin:python-docs", MACHINE, "corpus spec; --corpus sets it"),
    Key("vocabulary.kind", "wordpiece", RECIPE, "wordpiece | sentencepiece"),
    Key("vocabulary.path", "", MACHINE, "a vocab.txt, or empty to learn one"),
    Key("vocabulary.size", 30522, RECIPE, "tokens of a learned vocabulary"),
    Key("vocabulary.lowercase", True, RECIPE, "uncased"),
    Key("vocabulary.strip_accents", "auto", RECIPE, "auto = with lowercasing|yes|no"),
    Key("vocabulary.model_type", "unigram", RECIPE, "sentencepiece: unigram | bpe"),
    Key("vocabulary.rule", "nmt_nfkc", RECIPE, "sentencepiece: normalisation"),
    # Model
    Key("model.layers", 12, RECIPE, "L"),
    Key("model.width", 768, RECIPE, "H of the paper, D here"),
    Key("model.heads", 12, RECIPE, "A of the paper; width / 64"),
    Key("model.inner", 3072, RECIPE, "width of the feed-forward layer; 4 * width"),
    Key("model.max_positions", 512, RECIPE, "rows of the position table"),
    Key("model.gelu", "tanh", RECIPE, "tanh (2018 code) | erf"),
    Key("model.dropout", 0.1, RECIPE, "of embeddings and both sub-layer outputs"),
    Key("model.attention_dropout", 0.1, RECIPE, "of attention probabilities"),
    Key("model.initializer_range", 0.02, RECIPE, "truncated normal, before the cut"),
    Key("model.compute_dtype", "float32", RECIPE, "float32 | bfloat16, activations"),
    Key("model.causal", False, RECIPE, "attend to the left alone; for ltr"),
    Key("model.generator", 0.25, RECIPE, "rtd: width of the generator as a share"),
    # Rows
    Key("rows.format", "segment_pair", RECIPE, "|sentence_pair|full_sentences|..."),
    Key("rows.pair_label", "next_sentence", RECIPE, "|sentence_order|none"),
    Key("rows.pack", 1, RECIPE, "rows in one row of the batch, at most; 1 = none"),
    Key("rows.plans", 10, RECIPE, "N plans cycled; the script's dupe_factor"),
    Key("rows.shuffle", "all_plans", RECIPE, "all_plans (2018) | per_pass"),
    Key("rows.short_seq_prob", 0.1, RECIPE, "documents with a short target length"),
    Key("rows.random_next_prob", 0.5, RECIPE, "share of random second segments"),
    # Masks
    Key("masks.kind", "static", RECIPE, "static (2018) | dynamic | given"),
    Key("masks.copies", 1, RECIPE, "static: mask patterns a row has; 10 in RoBERTa"),
    Key("masks.unit", "token", RECIPE, "token (2018) | word (whole words) | span"),
    Key("masks.rate", 0.15, RECIPE, "share of tokens predicted"),
    Key("masks.final_rate", 0.0, RECIPE, "rate of the last step, in a line; 0 = rate"),
    Key("masks.pool", "vocabulary", RECIPE, "random tokens: vocabulary | ordinary"),
    Key("masks.span_p", 0.2, RECIPE, "span: of the geometric length, in words"),
    Key("masks.span_max", 10, RECIPE, "span: longest, in words"),
    Key("masks.mask_share", 0.8, RECIPE, "of those, replaced by [MASK]"),
    Key("masks.random_share", 0.1, RECIPE, "of those, replaced by any token"),
    Key("masks.selection", "exact", RECIPE, "exact count a row (2018) | independent"),
    Key("masks.max_predictions", 0, RECIPE, "cap per row; 0 = none (script: 20, 77)"),
    # Objectives: weight of each in the total
    Key("objectives.mlm", 1.0, RECIPE, "masked language model"),
    Key("objectives.nsp", 1.0, RECIPE, "next sentence; 0 = same batches, no loss"),
    Key("objectives.sop", 0.0, RECIPE, "sentence order (ALBERT)"),
    Key("objectives.ltr", 0.0, RECIPE, "left-to-right language model (table 5)"),
    Key("objectives.generator", 0.0, RECIPE, "masked language model of a generator"),
    Key("objectives.rtd", 0.0, RECIPE, "replaced-token detection (ELECTRA: 50)"),
    # Length curriculum
    Key(
        "phases",
        ((128, 900_000, 256), (512, 100_000, 256)),
        EXTENSION,
        "(sequence length, steps, batch size) of each phase",
    ),
    # Optimizer (optimization.py of the 2018 code)
    Key("optimizer.learning_rate", 1e-4, RECIPE, "peak"),
    Key("optimizer.warmup_steps", 10_000, RECIPE, "steps of linear warmup"),
    Key("optimizer.schedule", "linear_2018", RECIPE, "|linear_from_peak|constant"),
    Key("optimizer.beta1", 0.9, RECIPE, "decay of the mean"),
    Key("optimizer.beta2", 0.999, RECIPE, "decay of the square"),
    Key("optimizer.epsilon", 1e-6, RECIPE, "added outside the root"),
    Key("optimizer.weight_decay", 0.01, RECIPE, "not on LayerNorm and biases"),
    Key("optimizer.clip_norm", 1.0, RECIPE, "global norm; 0 = no clip"),
    Key("optimizer.bias_correction", False, RECIPE, "2018 has none"),
    # Evaluation: law 10, equal for every run that is to be compared
    Key("eval.every", 10_000, MACHINE, "steps between held-out evaluations"),
    Key("eval.pairs", 1000, RECIPE, "held-out pairs scored"),
    Key("eval.sequence_length", 128, RECIPE, "of the evaluation rows"),
    Key("eval.seed", 0, RECIPE, "of evaluation rows and masks"),
    # Machine
    Key("checkpoint.every", 10_000, MACHINE, "steps between saves"),
    Key("checkpoint.keep", 3, MACHINE, "latest saves kept"),
    Key("log.every", 100, MACHINE, "steps between records in metrics.jsonl"),
    Key("machine.micro_batch", 0, MACHINE, "rows at once; 0 = by memory"),
    Key("machine.eval_batch", 64, MACHINE, "rows at once in evaluation"),
    Key("machine.mesh", (), MACHINE, "(data, fsdp, tensor); () = all on data"),
    Key("machine.loader_threads", 2, MACHINE, "threads that gather batches ahead"),
)
KIND = {key.path: key.kind for key in KEYS}


def default() -> ConfigDict:
    """A configuration with every key at its default: the BERT-base recipe."""
    config = ConfigDict()
    for key in KEYS:
        *groups, name = key.path.split(".")
        place = config
        for group in groups:
            if group not in place:
                place[group] = ConfigDict()
            place = place[group]
        place[name] = key.default
    return config


def flatten(config: Any) -> dict[str, Any]:
    """Dotted path -> value."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict | dict):
            inner = flatten(value)
            flat.update({f"{name}.{path}": v for path, v in inner.items()})
        else:
            flat[name] = value
    return flat


def as_json(config: ConfigDict) -> dict[str, Any]:
    """Nested plain values, for config.json."""
    return {"format_version": FORMAT_VERSION, **json.loads(config.to_json())}


def from_json(value: dict[str, Any]) -> ConfigDict:
    """The configuration of a config.json; keys it lacks take their defaults.

    Raises:
      ValueError: it was written by a newer version of this project.
    """
    version = value.get("format_version", 0)
    if version > FORMAT_VERSION:
        raise ValueError(
            f"config.json has format {version}, this version reads up to "
            f"{FORMAT_VERSION}; update bert_jax"
        )
    config = default()
    known = flatten(config)
    for path, stored in flatten(value).items():
        if path not in known:
            continue
        *groups, name = path.split(".")
        place = config
        for group in groups:
            place = place[group]
        place[name] = _tuples(stored)
    return config


def _tuples(value: Any) -> Any:
    """JSON lists back to the tuples they were."""
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


SHORT = {"lr": "learning_rate", "wd": "weight_decay", "batch_size": "phases",
         "max_seq_length": "phases", "num_train_steps": "phases"}  # fmt: skip


def suggest(name: str, known: list[str]) -> str:
    """``; did you mean X?`` for a mistyped name, or nothing."""
    *groups, last = name.split(".")
    name = ".".join([*groups, SHORT.get(last, last)])
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if not close:
        # A right last word under a wrong group is a common slip.
        last = name.split(".")[-1]
        close = [path for path in known if path.split(".")[-1] == last][:1]
    return f"; did you mean {close[0]}?" if close else ""


def differences(old: ConfigDict, new: ConfigDict) -> dict[str, list[str]]:
    """Keys that differ, by kind, as readable lines."""
    before, after = flatten(old), flatten(new)
    lines: dict[str, list[str]] = {RECIPE: [], MACHINE: [], EXTENSION: []}
    for path, kind in KIND.items():
        if before[path] != after[path]:
            lines[kind].append(f"{path}: {before[path]!r} -> {after[path]!r}")
    return lines


def set_size(config: ConfigDict, name: str) -> None:
    """Sets the model keys to one of the published sizes (``encoder.SIZES``)."""
    layers, width = SIZES[name]
    config.model.layers = layers
    config.model.width = width
    config.model.heads = width // 64
    config.model.inner = 4 * width
