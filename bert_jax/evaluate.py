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


@dataclass(frozen=True)
class Evaluation:
    """Everything one evaluation measured; names are those of metrics.jsonl."""

    estimates: dict[str, Estimate]
    pairs: int
    documents: int

    def line(self, name: str = "held-out") -> str:
        """The one line people read: scores | baselines on the same rows."""
        e = self.estimates
        return (
            f"{name} mlm_loss={e['mlm_loss']} mlm_accuracy={e['mlm_accuracy']} "
            f"nsp_accuracy={e['nsp_accuracy']} | unigram={e['unigram_loss']} "
            f"majority={e['majority_accuracy']} overlap={e['overlap_accuracy']}"
        )

    def table(self) -> str:
        """Baselines and splits, a line each."""
        e = self.estimates
        rows = [
            f"  on {self.pairs:,} pairs of {self.documents:,} held-out documents; ± is "
            "one standard error over documents",
            f"  unigram model      mlm_loss={e['unigram_loss']} "
            f"mlm_accuracy={e['unigram_accuracy']}  (gain {e['mlm_gain']} nat)",
            f"  majority label     nsp_accuracy={e['majority_accuracy']}  "
            f"(gain {e['nsp_gain']})",
            f"  word overlap       nsp_accuracy={e['overlap_accuracy']}  "
            f"(gain {e['overlap_gain']})",
            "  mlm_loss by input  "
            + "  ".join(f"{kind}={e[f'mlm_loss_{kind}']}" for kind in KINDS)
            + f"  uncorrupted={e['mlm_loss_uncorrupted']}",
        ]
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
    params: Any,
    rows: EvalSet,
    baselines: Baselines,
    batch_size: int,
    device_mesh: Any,
) -> Evaluation:
    """Scores parameters on a set of held-out rows.

    Args:
      eval_step: jitted ``step.make_eval_step``.
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
    return _summarise(scores, rows, baselines)


def _summarise(
    scores: dict[str, Any], rows: EvalSet, baselines: Baselines
) -> Evaluation:
    mlm, nsp, plain = scores["mlm"], scores["nsp"], scores["uncorrupted"]
    weight = mlm.weight
    labels = scores["labels"].astype(np.int64)
    unigram = baselines.unigram_V[labels] * weight
    unigram_correct = (labels == baselines.best_token) * weight
    label = rows.batch.nsp_BP[:, 0]
    majority = (label == baselines.majority_label).astype(float)

    def over(sums: np.ndarray, weights: np.ndarray) -> Estimate:
        # Per row first: rows of one document are one cluster.
        return statistics.ratio(sums.sum(1), weights.sum(1), rows.document)

    pairs = nsp.weight
    estimates = {
        "mlm_loss": over(mlm.nll, weight),
        "mlm_accuracy": over(mlm.correct, weight),
        "nsp_loss": over(nsp.nll, pairs),
        "nsp_accuracy": over(nsp.correct, pairs),
        "unigram_loss": over(unigram, weight),
        "unigram_accuracy": over(unigram_correct, weight),
        "majority_accuracy": baselines.majority,
        "overlap_accuracy": baselines.overlap,
        # Differences on the same rows, with the error of the difference.
        "mlm_gain": over(unigram - mlm.nll, weight),
        "nsp_gain": over(nsp.correct - majority[:, None], pairs),
        "overlap_gain": over(nsp.correct - baselines.overlap_correct[:, None], pairs),
        "mlm_loss_uncorrupted": over(plain.nll, weight),
        "mlm_accuracy_uncorrupted": over(plain.correct, weight),
    }
    for name, kind in KINDS.items():
        here = weight * (scores["kinds"] == kind)
        estimates[f"mlm_loss_{name}"] = over(mlm.nll * (here > 0), here)
        estimates[f"mlm_accuracy_{name}"] = over(mlm.correct * (here > 0), here)
    return Evaluation(estimates, len(rows), len(np.unique(rows.document)))
