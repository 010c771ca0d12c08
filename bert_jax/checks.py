"""What cannot work is refused here, before anything is compiled or written.

Each message says the value, the limit and the remedy.
"""

import glob
import math
import os
from collections.abc import Mapping

from ml_collections import ConfigDict

from bert_jax import optim, recipe_checks
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
SEEDS = 1 << 31  # what a seed stays below: it is part of 32-bit addresses
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
    for path in ("seed", "eval.seed"):
        if not 0 <= int(flat[path]) < SEEDS:  # type: ignore[call-overload]
            raise Refusal(f"{path}={flat[path]} is outside 0 .. {SEEDS - 1}")
    for path, value in flat.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Refusal(f"{path}={value} is no finite number")
    o = config.optimizer
    if o.learning_rate <= 0 or o.epsilon <= 0:
        raise Refusal(
            f"optimizer.learning_rate={o.learning_rate} and optimizer.epsilon="
            f"{o.epsilon} must be above 0; the paper has 1e-4 and 1e-6"
        )
    for path in ("warmup_steps", "weight_decay", "clip_norm"):
        if o[path] < 0:
            raise Refusal(f"optimizer.{path}={o[path]} is below 0; 0 is none")
    if not (0 <= o.beta1 < 1 and 0 <= o.beta2 < 1):
        raise Refusal(
            f"optimizer.beta1={o.beta1} and beta2={o.beta2} must lie in [0, 1)"
        )
    for path in ("machine.micro_batch", "masks.max_predictions"):
        if int(flat[path]) < 0:  # type: ignore[call-overload]
            raise Refusal(f"{path}={flat[path]} must be 0 (chosen for you) or more")
    if config.model.width % config.model.heads:
        raise Refusal(
            f"model.width={config.model.width} does not split over model.heads="
            f"{config.model.heads}; use heads = width / 64 = {config.model.width // 64}"
        )
    recipe_checks.check(config)
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
