"""The masking rule: which tokens a model must predict and what it sees instead.

Two forms of the same rule (Devlin et al. 2018, section 3.1; Appendix C.2 for shares):

* ``corrupt_for_bert`` is the definition, as short as the paper's sentence: every
  position alone decides whether it is chosen. Read it first.
* ``corrupt`` is what training runs: a fixed number of prediction slots per row, so that
  only predicted positions meet the vocabulary matmul, and draws addressed by row.

To change the masking rule change ``_replace`` (what a chosen token turns into) or
``_select`` (which tokens are chosen; whole words and spans: ``units``); nothing else in
the project knows either.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import draws, units
from bert_jax.batch import Batch

Array = Any

IGNORED = -100  # label of a position that is not predicted
MASKED, RANDOMED, KEPT = 0, 1, 2  # kinds of a predicted position


class Corrupted(NamedTuple):
    """Result of ``corrupt_for_bert``; every field is [B, T]."""

    corrupted: Array  # int32, what the model sees
    labels: Array  # int32, the original where chosen (kept ones too), else IGNORED
    chosen: Array  # bool, positions in the loss
    masked: Array  # bool, chosen and replaced by mask_id
    randomed: Array  # bool, chosen and replaced by a uniform draw from the vocabulary


@functools.partial(jax.jit, static_argnames=("vocab_size", "mask_id"))
def corrupt_for_bert(
    key: Array, tokens: Array, special: Array, vocab_size: int, mask_id: int
) -> Corrupted:
    """BERT's corruption, position by position.

    Each position with ``special`` False is chosen with probability 0.15. Of the chosen,
    80 % become ``mask_id``, 10 % a uniform draw from the whole vocabulary (which may
    equal the original), 10 % stay as they are and still count in the loss.

    Args:
      key: a JAX random key.
      tokens: int [B, T].
      special: bool [B, T], True where a token may never be chosen.
      vocab_size: V, the range of random replacements.
      mask_id: id of [MASK].

    Raises:
      ValueError: shapes differ, ``special`` is not boolean, tokens are not integers.
    """
    tokens, special = jnp.asarray(tokens), jnp.asarray(special)
    if special.dtype != jnp.bool_:
        raise ValueError(
            f"special must be boolean, got {special.dtype}; pass (tokens == cls_id) | "
            "(tokens == sep_id) | (tokens == pad_id)"
        )
    if tokens.shape != special.shape:
        raise ValueError(
            f"tokens {tokens.shape} and special {special.shape} differ in shape; both "
            "are [B, T]"
        )
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise ValueError(f"tokens must be integers, got {tokens.dtype}; pass ids")
    # Not the dtype of a token store: labels of -100 need a sign.
    tokens = tokens.astype(jnp.int32)
    key_choice, key_kind, key_token = jax.random.split(key, 3)
    chosen = (jax.random.uniform(key_choice, tokens.shape) < 0.15) & ~special
    share = jax.random.uniform(key_kind, tokens.shape)
    masked = chosen & (share < 0.8)
    randomed = chosen & (share >= 0.8) & (share < 0.9)
    drawn = jax.random.randint(key_token, tokens.shape, 0, vocab_size, tokens.dtype)
    corrupted = jnp.where(masked, mask_id, jnp.where(randomed, drawn, tokens))
    labels = jnp.where(chosen, tokens, IGNORED)
    return Corrupted(corrupted, labels, chosen, masked, randomed)


@dataclass(frozen=True)
class MaskSpec:
    """Static facts of the masking rule; hashable, so it can be closed over by jit.

    How much is chosen comes with the batch: ``picks_BP`` tokens of a pair where the
    selection is "exact", each unit with probability ``rate_BP`` where "independent".
    """

    vocab_size: int
    mask_id: int
    slots: int  # K, prediction slots of a row
    mask_share: float = 0.8
    random_share: float = 0.1
    selection: str = "exact"
    unit: str = "token"  # token | word | span
    pool: str = "vocabulary"  # random tokens: any (2018) | ordinary: none of `reserved`
    reserved: tuple[int, ...] = ()  # ids, sorted
    span_p: float = 0.2  # of the geometric length of a span, in words
    span_max: int = 10  # words


class Targets(NamedTuple):
    """What a row must predict."""

    positions_BK: Array  # int32, place in the row; 0 in an unused slot
    labels_BK: Array  # int32, the original token
    weights_BK: Array  # float32, 1 in a used slot, 0 in an unused one
    kinds_BK: Array  # int32, MASKED, RANDOMED or KEPT
    surplus_B: Array  # int32, chosen tokens dropped for want of a slot


def _replace(
    tokens: Array, bits_kind: Array, bits_token: Array, spec: MaskSpec
) -> tuple[Array, Array]:
    """What each chosen token turns into, and its kind."""
    share = (bits_kind >> 8).astype(jnp.float32) * jnp.float32(2**-24)
    kinds = jnp.where(
        share < spec.mask_share,
        MASKED,
        jnp.where(share < spec.mask_share + spec.random_share, RANDOMED, KEPT),
    )
    # Modulo bias is below V / 2**32: one part in 10**5 for V = 30522.
    left_out = spec.reserved if spec.pool == "ordinary" else ()
    drawn = (bits_token % jnp.uint32(spec.vocab_size - len(left_out))).astype(jnp.int32)
    if left_out:
        # The n-th ordinary id is n plus the reserved ids below it.
        gaps = jnp.asarray(left_out, jnp.int32) - jnp.arange(len(left_out))
        drawn += jnp.searchsorted(gaps, drawn, side="right").astype(jnp.int32)
    drawn = drawn.astype(tokens.dtype)
    mask_id = jnp.asarray(spec.mask_id, tokens.dtype)
    replaced = jnp.where(kinds == MASKED, mask_id, tokens)
    return jnp.where(kinds == RANDOMED, drawn, replaced), kinds.astype(jnp.int32)


def _select(scores_BT: Array, batch: Batch, spec: MaskSpec) -> Array:
    """bool [B, T]: tokens chosen one by one, before the limit of K slots.

    Scores are distinct-looking uniform integers, -1 where a position is no candidate.
    """
    if spec.selection == "independent":
        return (scores_BT >= 0) & (scores_BT < units.highest(batch))
    picks_BT = units.of_pair(batch.picks_BP, batch)
    # Rank of each candidate among the candidates of its own pair; equal scores (one
    # chance in 2**31) go to the earlier position.
    place = jnp.arange(scores_BT.shape[1])
    score_i, score_j = scores_BT[:, :, None], scores_BT[:, None, :]
    before = (score_j < score_i) | (
        (score_j == score_i) & (place[None, None, :] < place[None, :, None])
    )
    rivals = (score_j >= 0) & (batch.pairs_BT[:, :, None] == batch.pairs_BT[:, None, :])
    rank_BT = jnp.sum(before & rivals, axis=-1)
    return (scores_BT >= 0) & (rank_BT < picks_BT)


def corrupt(keys_BP: Array, batch: Batch, spec: MaskSpec) -> tuple[Array, Targets]:
    """Corrupts a batch and gathers what must be predicted.

    Args:
      keys_BP: one key per pair, from ``draws.mask_keys``.
      batch: uncorrupted rows.
      spec: the rule.

    Returns:
      tokens_BT as the model sees them, and the targets in K slots by position.
    """
    keys_BT = units.of_pair(keys_BP, batch)
    bits_BT3 = draws.position_bits(keys_BT, batch.positions_BT, 3)
    scores_BT = (bits_BT3[..., 0] >> 1).astype(jnp.int32)
    scores_BT = jnp.where(batch.maskable_BT, scores_BT, -1)
    kind_bits_BT = bits_BT3[..., 1]
    if spec.unit == "word":
        chosen_BT, surplus_B = units.select_words(
            scores_BT, batch, spec.selection, spec.slots
        )
    elif spec.unit == "span":
        chosen_BT, kind_bits_BT = units.select_spans(
            keys_BP, batch, spec.slots, spec.span_p, spec.span_max, kind_bits_BT
        )
        surplus_B = jnp.zeros(len(chosen_BT), jnp.int32)
    else:
        chosen_BT, surplus_B = _select(scores_BT, batch, spec), 0

    # Where more are chosen than there are slots, those of lowest score stay: scores
    # are uniform, so the surplus is dropped at random.
    rating_BT = jnp.where(chosen_BT, scores_BT, jnp.iinfo(jnp.int32).max)
    _, kept_BK = jax.lax.top_k(-rating_BT, spec.slots)
    used_BK = jnp.take_along_axis(chosen_BT, kept_BK, axis=1)
    end = scores_BT.shape[1]
    order_BK = jnp.sort(jnp.where(used_BK, kept_BK, end), axis=1)
    used_BK = order_BK < end
    positions_BK = jnp.where(used_BK, order_BK, 0).astype(jnp.int32)

    def at(x_BT: Array) -> Array:
        return jnp.take_along_axis(x_BT, positions_BK, axis=1)

    labels_BK = at(batch.tokens_BT)
    replaced_BK, kinds_BK = _replace(
        labels_BK, at(kind_bits_BT), at(bits_BT3[..., 2]), spec
    )
    rows = jnp.arange(batch.tokens_BT.shape[0])[:, None]
    # An unused slot writes past the end, which `drop` ignores.
    tokens_BT = (
        jnp.asarray(batch.tokens_BT).at[rows, order_BK].set(replaced_BK, mode="drop")
    )
    used = used_BK.astype(jnp.float32)
    surplus_B += chosen_BT.sum(axis=1) - used_BK.sum(axis=1)
    targets = Targets(positions_BK, labels_BK, used, kinds_BK, surplus_B)
    return tokens_BT, targets
