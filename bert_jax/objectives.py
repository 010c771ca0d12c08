"""One literal table: name -> (head, loss).

Corruption comes before all of them, on the whole global batch, because the weights of
every ratio must be known before the first micro-batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax import encoder, losses
from bert_jax.batch import Batch
from bert_jax.corruption import Targets
from bert_jax.encoder import EncoderSpec

Array = Any


def masked_language_model(
    params: Any, x_BTD: Array, batch: Batch, targets: Targets, spec: EncoderSpec
) -> losses.Scores:
    """Scores [B, K] of the masked tokens (Devlin et al. 2018, task 1)."""
    logits = encoder.embedding_logits(params, x_BTD, targets.positions_BK, spec)
    return losses.cross_entropy(logits, targets.labels_BK, targets.weights_BK)


def next_sentence(
    params: Any, x_BTD: Array, batch: Batch, targets: Targets, spec: EncoderSpec
) -> losses.Scores:
    """Scores [B, P] of the next-sentence label (Devlin et al. 2018, task 2)."""
    del targets
    pooled = encoder.pool(params, x_BTD, batch.starts_BP, spec)
    logits = encoder.next_sentence_logits(params, pooled, spec)
    return losses.cross_entropy(logits, batch.nsp_BP, batch.weight_BP)


class Objective(NamedTuple):
    """How an objective is scored, and the weights its ratio divides by."""

    score: Callable[..., losses.Scores]
    weights: Callable[[Batch, Targets], Array]


OBJECTIVES: dict[str, Objective] = {
    "mlm": Objective(masked_language_model, lambda batch, targets: targets.weights_BK),
    "nsp": Objective(next_sentence, lambda batch, targets: batch.weight_BP),
}
