"""One literal table of objectives: name -> (rule, score, weights).

The rule corrupts the whole global batch first, because the weights of every ratio must
be known before the first micro-batch. ``docs/new_objective.md`` adds one.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import draws, encoder, losses
from bert_jax.batch import Batch
from bert_jax.corruption import Targets
from bert_jax.encoder import EncoderSpec

Array = Any


class Forward:
    """One forward pass over a micro-batch; each part is computed when asked for.

    Args:
      params: of the encoder and its heads.
      batch: uncorrupted rows.
      tokens_BT: what the rule left of them.
      targets: what must be predicted.
      spec: sizes.
      address: (seed, length) of what is sampled on the way.
      words_B2: address of dropout; None turns it off.
    """

    def __init__(
        self,
        params: Any,
        batch: Batch,
        tokens_BT: Array,
        targets: Targets,
        spec: EncoderSpec,
        address: tuple[int, int],
        words_B2: Array | None = None,
    ):
        self.params, self.batch, self.tokens_BT = params, batch, tokens_BT
        self.targets, self.spec, self.address = targets, spec, address
        self.words_B2 = words_B2

    @cached_property
    def hidden_BTD(self) -> Array:
        """Last hidden states; behind a generator, of the text it filled in."""
        seen = self.filled_BT if self.spec.generator else self.tokens_BT
        return encoder.encode(self.params, self.batch, seen, self.spec, self.words_B2)

    @cached_property
    def logits_BKV(self) -> Array:
        """Logits of the vocabulary head at the predicted positions."""
        positions = self.targets.positions_BK
        return encoder.embedding_logits(
            self.params, self.hidden_BTD, positions, self.spec
        )

    @cached_property
    def generator_BKV(self) -> Array:
        """Logits of the generator at the predicted positions."""
        return encoder.generator_logits(
            self.params,
            self.batch,
            self.tokens_BT,
            self.targets.positions_BK,
            self.spec,
            self.words_B2,
        )

    @cached_property
    def filled_BT(self) -> Array:
        """The rows with a draw from the generator at every predicted position.

        One uniform draw a slot, through the cumulative distribution; no gradient
        passes (Clark et al. 2020, section 2).
        """
        batch, targets = self.batch, self.targets
        seed, length = self.address
        keys_BP = draws.mask_keys(
            seed, draws.Stream.SAMPLES, length,
            batch.plans_BP, batch.rows_BP, batch.reads_BP,
        )  # fmt: skip

        def at(x_BT: Array) -> Array:
            return jnp.take_along_axis(x_BT, targets.positions_BK, axis=1)

        pair_BK = jnp.maximum(at(batch.pairs_BT) - 1, 0)
        keys_BK = jnp.take_along_axis(keys_BP, pair_BK, axis=1)
        bits_BK1 = draws.position_bits(keys_BK, at(batch.positions_BT), 1)
        uniform_BK1 = (bits_BK1 >> 8).astype(jnp.float32) * jnp.float32(2**-24)
        shares_BKV = jax.nn.softmax(jax.lax.stop_gradient(self.generator_BKV), axis=-1)
        below_BKV = jnp.cumsum(shares_BKV, axis=-1) <= uniform_BK1
        drawn_BK = jnp.minimum(below_BKV.sum(axis=-1), shares_BKV.shape[-1] - 1)
        rows, end = jnp.arange(len(drawn_BK))[:, None], batch.tokens_BT.shape[1]
        places = jnp.where(targets.weights_BK > 0, targets.positions_BK, end)
        tokens = jnp.asarray(batch.tokens_BT)
        return tokens.at[rows, places].set(drawn_BK.astype(tokens.dtype), mode="drop")


def vocabulary_loss(forward: Forward) -> losses.Scores:
    """Scores [B, K] of the predicted tokens (Devlin et al. 2018, task 1)."""
    targets = forward.targets
    return losses.cross_entropy(
        forward.logits_BKV, targets.labels_BK, targets.weights_BK
    )


def generator_loss(forward: Forward) -> losses.Scores:
    """The same of the generator (Clark et al. 2020)."""
    targets = forward.targets
    return losses.cross_entropy(
        forward.generator_BKV, targets.labels_BK, targets.weights_BK
    )


def pair_label(forward: Forward) -> losses.Scores:
    """Scores [B, P] of the label of a pair (Devlin et al. 2018, task 2).

    Next sentence: 1 is a random second segment. Sentence order (Lan et al. 2020,
    ALBERT): 1 is a swapped pair.
    """
    params, batch, spec = forward.params, forward.batch, forward.spec
    pooled = encoder.pool(params, forward.hidden_BTD, batch.starts_BP, spec)
    logits = encoder.next_sentence_logits(params, pooled, spec)
    return losses.cross_entropy(logits, batch.label_BP, batch.weight_BP)


def replaced_tokens(forward: Forward) -> losses.Scores:
    """Scores [B, T] of "was this token replaced?" at every position of a pair.

    A draw that happens to be the original counts as original (Clark et al. 2020).
    """
    logits = encoder.detection_logits(forward.params, forward.hidden_BTD, forward.spec)
    replaced = forward.filled_BT != forward.batch.tokens_BT
    return losses.binary(logits, replaced, real_tokens(forward.batch, forward.targets))


def predicted(batch: Batch, targets: Targets) -> Array:
    """float32 [B, K]: slots in use."""
    del batch
    return targets.weights_BK


def labelled_pairs(batch: Batch, targets: Targets) -> Array:
    """float32 [B, P]: pairs with a label."""
    del targets
    return batch.weight_BP


def real_tokens(batch: Batch, targets: Targets) -> Array:
    """float32 [B, T]: positions of a pair, [CLS] and [SEP] among them."""
    del targets
    return (batch.pairs_BT > 0).astype(jnp.float32)


class Objective(NamedTuple):
    """How an objective is made and scored."""

    rule: str | None  # of ``rules.RULES``; None where any will do
    score: Callable[[Forward], losses.Scores]
    weights: Callable[[Batch, Targets], Array]  # what its ratio divides by


OBJECTIVES: dict[str, Objective] = {
    "mlm": Objective("masked", vocabulary_loss, predicted),
    "nsp": Objective(None, pair_label, labelled_pairs),
    "sop": Objective(None, pair_label, labelled_pairs),
    "ltr": Objective("left_to_right", vocabulary_loss, predicted),
    "generator": Objective("masked", generator_loss, predicted),
    "rtd": Objective("masked", replaced_tokens, real_tokens),
}


def rule_of(names: Iterable[str]) -> str:
    """The one rule of some objectives.

    Raises:
      ValueError: they need two, or none has one.
    """
    named = list(names)
    rules = {OBJECTIVES[name].rule for name in named} - {None}
    if len(rules) != 1:
        raise ValueError(
            f"objectives {', '.join(named)} need {len(rules)} rules of corruption, one "
            "is possible: use mlm, ltr, or generator and rtd"
        )
    return str(rules.pop())
