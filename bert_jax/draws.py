"""Addressed random draws on the device: every draw is a pure function of its address.

Nothing here is a sequence. A mask belongs to (seed, length, plan, row, read), a
dropout bit to (seed, step, place in the global batch, layer, site, element), so the
same run gives the same numbers on any number of devices, hosts and micro-batches.
"""

from enum import IntEnum
from typing import Any

import jax
import jax.numpy as jnp

Array = Any


class Stream(IntEnum):
    """First word of every address; numbers are part of the file format of runs."""

    INIT = 0
    MASKS = 1
    DROPOUT = 2
    EVAL_MASKS = 3
    SAMPLES = 4


def stream_key(seed: Array, stream: Stream) -> Array:
    """Key of one stream.

    The generator is named rather than left to the default: threefry is the one whose
    bits do not depend on how the array is sharded or batched.
    """
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), int(stream))


def fold_each(keys: Array, words: Array) -> Array:
    """Folds an array of words into a key, or into an array of keys of that shape."""
    words = jnp.asarray(words).astype(jnp.uint32)
    if keys.ndim == 0:
        keys = jnp.broadcast_to(keys, words.shape)
    flat = jax.vmap(jax.random.fold_in)(keys.reshape(-1), words.reshape(-1))
    return flat.reshape(words.shape)


def mask_keys(
    seed: Array,
    stream: Stream,
    length: int,
    plans_BP: Array,
    rows_BP: Array,
    reads_BP: Array,
) -> Array:
    """One key per pair, [B, P].

    Static and dynamic masks differ in ``reads_BP`` alone: the count of earlier reads
    (dynamic), or that count modulo the number of copies (static; 1 copy is 0).
    ``length`` tells apart the rows of two phases, which share row numbers.
    """
    key = jax.random.fold_in(stream_key(seed, stream), length)
    keys = fold_each(key, plans_BP)
    keys = fold_each(keys, rows_BP)
    return fold_each(keys, reads_BP)


def position_bits(keys_BT: Array, offsets_BT: Array, words: int) -> Array:
    """uint32 [B, T, words]: bits of each position of a pair, by its offset in the pair.

    Addressed by offset, so that padding a row or packing it behind another pair moves
    no draw.
    """
    keys = fold_each(keys_BT, offsets_BT).reshape(-1)
    bits = jax.vmap(lambda key: jax.random.bits(key, (words,), jnp.uint32))(keys)
    return bits.reshape((*offsets_BT.shape, words))


def dropout_words(seed: Array, step: Array, place_B: Array) -> Array:
    """uint32 [B, 2]: the address of each row's dropout at this step."""
    key = jax.random.fold_in(stream_key(seed, Stream.DROPOUT), step)
    keys = fold_each(key, place_B)
    return jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(keys)


def _mix(x: Array) -> Array:
    """A 32-bit finaliser: two multiply-xorshift rounds, a bijection of uint32."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def dropout(
    x: Array, words_B2: Array | None, layer: Array | int, site: int, rate: float
) -> Array:
    """Inverted dropout on [B, ...]; ``words_B2=None`` or rate 0 returns x untouched.

    Args:
      x: activations; the leading axis is rows.
      words_B2: from ``dropout_words``.
      layer: index of the layer (may be traced, inside a scan over layers).
      site: index of the place inside the layer.
      rate: probability of zeroing; the rest is divided by 1 - rate.

    A counter hash of the element index costs a seventh of threefry here; dropout needs
    independent-looking bits at known addresses, not cryptographic ones.
    """
    if words_B2 is None or rate == 0.0:
        return x
    place = jnp.asarray(layer).astype(jnp.uint32) * jnp.uint32(64) + jnp.uint32(site)
    salt_B = _mix(words_B2[:, 0] ^ _mix(place + jnp.uint32(0x9E3779B9)))
    tail_B = words_B2[:, 1] + place * jnp.uint32(0x85EBCA6B)
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    size = 1
    for extent in x.shape[1:]:
        size *= extent
    index = jax.lax.iota(jnp.uint32, size).reshape((1, *x.shape[1:]))
    bits = _mix(_mix(index ^ salt_B.reshape(shape)) ^ tail_B.reshape(shape))
    keep = bits >= jnp.uint32(min(round(rate * 2**32), 2**32 - 1))
    return jnp.where(keep, x / (1.0 - rate), jnp.zeros_like(x))
