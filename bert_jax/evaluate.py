"""Held-out evaluation: scores with standard errors, beside the baselines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bert_jax import corruption, mesh, statistics
from bert_jax.baselines import Baselines
from bert_jax.data.heldout import EvalSet
from bert_jax.statistics import Estimate

KINDS = {"masked": corruption.MASKED, "random": corruption.RANDOMED,
         "kept": corruption.KEPT}  # fmt: skip
# Objectives that name a token out of the vocabulary, and those that label a pair.
WORDS, PAIRS = ("mlm", "ltr", "generator"), ("nsp", "sop")


@dataclass(frozen=True)
class Evaluation:
    """Everything one evaluation measured; names are those of metrics.jsonl."""

    names: tuple[str, ...]  # objectives scored
    estimates: dict[str, Estimate]
    pairs: int
    documents: int

    def line(self, name: str = "held-out") -> str:
        """The one line people read: scores | baselines on the same rows."""
        e = self.estimates
        scores, baselines = [], []
        for objective in self.names:
            if objective in WORDS:
                scores.append(f"{objective}_loss={e[f'{objective}_loss']}")
                baselines.append(f"unigram={e['unigram_loss']}")
            scores.append(f"{objective}_accuracy={e[f'{objective}_accuracy']}")
            if objective in PAIRS:
                baselines.append(f"majority={e['majority_accuracy']}")
                baselines.append(f"overlap={e['overlap_accuracy']}")
            elif objective == "rtd":
                baselines.append(f"original={e['original_accuracy']}")
        return f"{name} {' '.join(scores)} | {' '.join(baselines)}"

    def table(self) -> str:
        """Baselines and splits, a line each."""
        e = self.estimates
        rows = [
            f"  on {self.pairs:,} pairs of {self.documents:,} held-out documents; ± is "
            "one standard error over documents"
        ]
        for objective in self.names:
            if objective in WORDS:
                rows.append(
                    f"  unigram model      {objective}_loss={e['unigram_loss']} "
                    f"{objective}_accuracy={e['unigram_accuracy']}  "
                    f"(gain {e[f'{objective}_gain']} nat)"
                )
            elif objective in PAIRS:
                rows.append(
                    f"  majority label     {objective}_accuracy="
                    f"{e['majority_accuracy']}  (gain {e[f'{objective}_gain']})"
                )
                rows.append(
                    f"  word overlap       {objective}_accuracy="
                    f"{e['overlap_accuracy']}  (gain {e['overlap_gain']})"
                )
            else:
                rows.append(
                    f"  all original       rtd_accuracy={e['original_accuracy']}  "
                    f"(gain {e['rtd_gain']})"
                )
        if "mlm" in self.names:
            rows.append(
                "  mlm_loss by input  "
                + "  ".join(f"{kind}={e[f'mlm_loss_{kind}']}" for kind in KINDS)
                + f"  uncorrupted={e['mlm_loss_uncorrupted']}"
            )
        return "\n".join(rows)

    def record(self) -> dict[str, float]:
        """Flat numbers for metrics.jsonl: each estimate and its ``_se``."""
        record: dict[str, float] = {}
        for name, estimate in self.estimates.items():
            record[name] = estimate.value
            record[f"{name}_se"] = estimate.error
        return record


def evaluate(
    eval_step: Callable[..., dict[str, Any]],
    names: tuple[str, ...],
    params: Any,
    rows: EvalSet,
    baselines: Baselines,
    batch_size: int,
    device_mesh: Any,
) -> Evaluation:
    """Scores parameters on a set of held-out rows.

    Args:
      eval_step: jitted ``step.make_eval_step``.
      names: of the objectives it scores.
      params: parameters on devices.
      rows: the evaluation set.
      baselines: measured on the same rows.
      batch_size: rows at once over all devices.
      device_mesh: where the rows go.
    """
    parts = []
    local = mesh.local_rows(batch_size)
    for batch, real in rows.blocks(batch_size):
        mine = jax.tree.map(lambda x: x[local.start : local.stop], batch)
        scores = mesh.fetch(eval_step(params, mesh.place(mine, device_mesh)))
        parts.append(jax.tree.map(lambda x, real=real: np.asarray(x)[:real], scores))
    scores = jax.tree.map(lambda *x: np.concatenate(x).astype(np.float64), *parts)
    return _summarise(names, scores, rows, baselines)


def _summarise(
    names: tuple[str, ...], scores: dict[str, Any], rows: EvalSet, baselines: Baselines
) -> Evaluation:
    def over(sums: np.ndarray, weights: np.ndarray) -> Estimate:
        # Per row first: rows of one document are one cluster.
        return statistics.ratio(sums.sum(1), weights.sum(1), rows.document)

    estimates = {}
    for name in names:
        score, weight = scores[name], scores[name].weight
        estimates[f"{name}_loss"] = over(score.nll, weight)
        estimates[f"{name}_accuracy"] = over(score.correct, weight)
        # Gains are differences on the same rows, with the error of the difference.
        if name in WORDS:
            labels = scores["labels"].astype(np.int64)
            unigram = baselines.unigram_V[labels] * weight
            correct = (labels == baselines.best_token) * weight
            estimates["unigram_loss"] = over(unigram, weight)
            estimates["unigram_accuracy"] = over(correct, weight)
            estimates[f"{name}_gain"] = over(unigram - score.nll, weight)
        elif name in PAIRS:
            label = rows.batch.label_BP[:, :1]
            majority = (label == baselines.majority_label) * weight
            overlap = baselines.overlap_correct[:, None] * weight
            estimates["majority_accuracy"] = baselines.majority
            estimates["overlap_accuracy"] = baselines.overlap
            estimates[f"{name}_gain"] = over(score.correct - majority, weight)
            estimates["overlap_gain"] = over(score.correct - overlap, weight)
        else:
            original = weight * (1 - scores["replaced"])
            estimates["original_accuracy"] = over(original, weight)
            estimates[f"{name}_gain"] = over(score.correct - original, weight)
    if "mlm" in names:
        mlm, plain = scores["mlm"], scores["uncorrupted"]
        estimates["mlm_loss_uncorrupted"] = over(plain.nll, plain.weight)
        estimates["mlm_accuracy_uncorrupted"] = over(plain.correct, plain.weight)
        for name, kind in KINDS.items():
            here = mlm.weight * (scores["kinds"] == kind)
            estimates[f"mlm_loss_{name}"] = over(mlm.nll * (here > 0), here)
            estimates[f"mlm_accuracy_{name}"] = over(mlm.correct * (here > 0), here)
    documents = len(np.unique(rows.document))
    return Evaluation(names, estimates, len(rows), documents)
