"""Choosing whole words and spans of words, where the unit of masking is no token.

Words are those the tokenizer made (``Batch.words_BT``), so that SentencePiece has them
too, and none goes on across a [SEP]. Every draw is addressed by the pair's key and the
place in the pair: packing and padding move nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp

from bert_jax import draws
from bert_jax.batch import Batch

Array = Any

TRIES = 4  # spans tried for each slot; most rows are full after one
_SPANS = 1 << 20  # sets the draws of spans apart from those of positions


def of_pair(x_BP: Array, batch: Batch) -> Array:
    """The value of each position's pair, [B, T]."""
    return jnp.take_along_axis(x_BP, jnp.maximum(batch.pairs_BT - 1, 0), axis=1)


def highest(batch: Batch) -> Array:
    """int32 [B, T]: scores (31 bits) below it are chosen with the rate of the pair."""
    rate_BP = jnp.minimum(jnp.asarray(batch.rate_BP), 1 - 2**-24)
    return of_pair((rate_BP * 2.0**31).astype(jnp.int32), batch)


def _bounds(batch: Batch) -> tuple[Array, Array, Array]:
    """Of each position: does it begin a word, where its word begins and where it ends.

    bool, int32 and int32 [B, T]; of maskable positions alone.
    """
    name_BT = jnp.where(batch.maskable_BT, batch.words_BT, 0)
    T = name_BT.shape[1]
    same = (name_BT[:, 1:] == name_BT[:, :-1]) & (
        batch.pairs_BT[:, 1:] == batch.pairs_BT[:, :-1]
    )
    edge = jnp.ones((len(name_BT), 1), bool)
    begins = jnp.concatenate([edge, ~same], axis=1)
    ends = jnp.concatenate([~same, edge], axis=1)
    place = jnp.arange(T, dtype=jnp.int32)
    first_BT = jax.lax.cummax(jnp.where(begins, place, 0), axis=1)
    last_BT = jax.lax.cummin(jnp.where(ends, place, T - 1), axis=1, reverse=True)
    return begins & batch.maskable_BT, first_BT, last_BT


def select_words(
    scores_BT: Array, batch: Batch, selection: str, slots: int
) -> tuple[Array, Array]:
    """Whole words (create_pretraining_data.py, ``do_whole_word_mask``).

    exact: the words of a pair in random order; one that would exceed the pair's picks
    is passed over and later ones are tried. independent: each word with the pair's
    rate; those that find no slots are dropped, whole.

    Args:
      scores_BT: int32, uniform, -1 where a position is no candidate; a word's is that
        of its first token.
      batch: uncorrupted rows.
      selection: exact | independent.
      slots: K, prediction slots of a row.

    Returns:
      bool [B, T], chosen positions; int32 [B], tokens dropped for want of slots.
    """
    begins_BT, first_BT, last_BT = _bounds(batch)
    size_BT = last_BT - first_BT + 1
    pair_BT = jnp.maximum(batch.pairs_BT - 1, 0)
    wanted_BT = begins_BT
    if selection == "independent":
        wanted_BT = begins_BT & (scores_BT < highest(batch))
        budget_BP = jnp.full((len(pair_BT), 1), slots, jnp.int32)
        pair_BT = jnp.zeros_like(pair_BT)  # one budget a row
    else:
        budget_BP = jnp.asarray(batch.picks_BP)
    last = jnp.iinfo(jnp.int32).max
    order_BT = jnp.argsort(jnp.where(wanted_BT, scores_BT, last), axis=1, stable=True)
    rows = jnp.arange(len(order_BT))

    def try_word(left_BP: Array, place_B: Array) -> tuple[Array, Array]:
        pair_B, size_B = pair_BT[rows, place_B], size_BT[rows, place_B]
        taken_B = wanted_BT[rows, place_B] & (size_B <= left_BP[rows, pair_B])
        return left_BP.at[rows, pair_B].add(-size_B * taken_B), taken_B

    _, taken_TB = jax.lax.scan(try_word, budget_BP, order_BT.T)
    taken_BT = jnp.zeros_like(begins_BT).at[rows[:, None], order_BT].set(taken_TB.T)
    chosen_BT = jnp.take_along_axis(taken_BT, first_BT, axis=1) & batch.maskable_BT
    if selection == "exact":  # what was passed over was never chosen
        return chosen_BT, jnp.zeros(len(chosen_BT), jnp.int32)
    dropped_BT = jnp.take_along_axis(wanted_BT, first_BT, axis=1) & batch.maskable_BT
    return chosen_BT, dropped_BT.sum(axis=1) - chosen_BT.sum(axis=1)


def span_lengths(p: float, most: int) -> list[float]:
    """Probability of a span of 1 .. most words: geometric, renormalised."""
    shares = [p * (1 - p) ** (n - 1) for n in range(1, most + 1)]
    return [share / sum(shares) for share in shares]


def select_spans(
    keys_BP: Array, batch: Batch, slots: int, p: float, most: int, kind_bits_BT: Array
) -> tuple[Array, Array]:
    """Spans of whole words (Joshi et al. 2020, SpanBERT, section 3.1).

    A length is drawn from a truncated geometric distribution, a first word uniformly;
    the span stops before a [SEP], before what is chosen already, and before the pair's
    picks are exceeded. What the tokens of a span turn into is drawn once for the span.

    Args:
      keys_BP: one key per pair.
      batch: uncorrupted rows.
      slots: K, prediction slots of a row; ``TRIES`` spans are tried for each.
      p, most: of the lengths, in words.
      kind_bits_BT: uint32, what decides the kind of each position.

    Returns:
      bool [B, T], chosen positions; ``kind_bits_BT`` with those of a span alike.
    """
    _, first_BT, last_BT = _bounds(batch)
    maskable_BT, words_BT = batch.maskable_BT, jnp.asarray(batch.words_BT)
    run_BT = jnp.cumsum(~maskable_BT, axis=1)  # stretches between special tokens
    P = keys_BP.shape[1]
    mine_BTP = (batch.pairs_BT[..., None] == jnp.arange(1, P + 1)) & maskable_BT[
        ..., None
    ]

    def per_pair(x_BT: Array, empty: int) -> Array:
        """Maximum over the positions of each pair where x is set, [B, P]."""
        return jnp.where(mine_BTP, x_BT[..., None], empty).max(axis=1)

    count_BP = per_pair(words_BT, 0)
    ends = jnp.cumsum(jnp.asarray(span_lengths(p, most), jnp.float32))[:-1]

    def one(number: Array, carry: Any) -> Any:
        chosen_BT, left_BP, bits_BT = carry
        at_BP = jnp.full(keys_BP.shape, number) + _SPANS
        bits_BP3 = draws.position_bits(keys_BP, at_BP, 3)
        uniform_BP = (bits_BP3[..., 0] >> 8).astype(jnp.float32) * jnp.float32(2**-24)
        length_BP = 1 + (uniform_BP[..., None] >= ends).sum(axis=-1)
        word_BP = 1 + (
            bits_BP3[..., 1] % jnp.maximum(count_BP, 1).astype(jnp.uint32)
        ).astype(jnp.int32)
        word_BT, length_BT = of_pair(word_BP, batch), of_pair(length_BP, batch)
        start_BT = maskable_BT & (words_BT == word_BT)
        run_BP = per_pair(jnp.where(start_BT, run_BT, -1), -1)
        span_BT = maskable_BT & (words_BT >= word_BT) & (words_BT < word_BT + length_BT)
        stop_BT = span_BT & (chosen_BT | (run_BT != of_pair(run_BP, batch)))
        far = jnp.iinfo(jnp.int32).max
        stop_BP = -per_pair(jnp.where(stop_BT, -words_BT, -far), -far)
        span_BT &= words_BT < of_pair(stop_BP, batch)
        # Tokens of the span up to the end of each word must fit what is left.
        sofar_BT = jnp.cumsum(span_BT, axis=1)
        before_BP = jnp.cumsum((span_BT[..., None] & mine_BTP).sum(axis=1), axis=1)
        before_BP -= (span_BT[..., None] & mine_BTP).sum(axis=1)
        upto_BT = jnp.take_along_axis(sofar_BT, last_BT, axis=1)
        span_BT &= upto_BT - of_pair(before_BP, batch) <= of_pair(left_BP, batch)
        left_BP -= (span_BT[..., None] & mine_BTP).sum(axis=1)
        bits_BT = jnp.where(span_BT, of_pair(bits_BP3[..., 2], batch), bits_BT)
        return chosen_BT | span_BT, left_BP, bits_BT

    begin = (jnp.zeros_like(maskable_BT), jnp.asarray(batch.picks_BP), kind_bits_BT)
    chosen_BT, _, bits_BT = jax.lax.fori_loop(0, TRIES * slots, one, begin)
    return chosen_BT, bits_BT
