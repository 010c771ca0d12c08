"""Addressed draws and permutations on the host, in constant memory.

A counter hash (the splitmix64 finaliser) over the words of an address. numpy's own
``Generator`` methods may change their output between versions; this arithmetic cannot.
"""

from typing import Any

import numpy as np

U64 = np.uint64
Words = Any  # an int or an integer array


def _finalise(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
    return x ^ (x >> U64(31))


def bits(*address: Words) -> np.ndarray:
    """uint64 bits at an address; integer arrays among the words broadcast."""
    state = np.asarray(0x9E3779B97F4A7C15, U64)
    with np.errstate(over="ignore"):
        for word in address:
            word = np.asarray(word)
            word = word.astype(np.int64).astype(U64) if word.dtype.kind == "i" else word
            state = _finalise((state ^ word.astype(U64)) + U64(0x9E3779B97F4A7C15))
    return state


def uniform(*address: Words) -> np.ndarray:
    """float64 in [0, 1) at an address."""
    return (bits(*address) >> U64(11)).astype(np.float64) * 2.0**-53


def below(limit: Words, *address: Words) -> np.ndarray:
    """int64 in [0, limit) at an address; limits are positive and under 2**32.

    The high half of a product: bias under limit / 2**32.
    """
    high = bits(*address) >> U64(32)
    return ((high * np.asarray(limit).astype(U64)) >> U64(32)).astype(np.int64)


def coin_sum(count: np.ndarray, *address: Words) -> np.ndarray:
    """int64 [n]: how many of ``count`` [n] fair coins fall heads, each coin one bit."""
    count = np.asarray(count, np.int64)
    words = np.broadcast_arrays(count, *address)[1:]
    heads = np.zeros_like(count)
    live, word = np.flatnonzero(count), 0
    # Few pairs lose more than 64 tokens; the others are done after one word.
    while live.size:
        left = np.minimum(count[live] - 64 * word, 64)
        mask = np.where(
            left == 64, ~U64(0), (U64(1) << np.minimum(left, 63).astype(U64)) - U64(1)
        )
        drawn = bits(*(each[live] for each in words), word)
        heads[live] += np.bitwise_count(drawn & mask).astype(np.int64)
        word += 1
        live = live[count[live] > 64 * word]
    return heads


def permuted(index: np.ndarray, size: int, *address: Words) -> np.ndarray:
    """Image of ``index`` under a pseudo-random permutation of range(size).

    A four-round Feistel network over the next even number of bits, walked until it
    falls inside the range (at most four times the size, so a few steps on average).
    """
    index = np.asarray(index)
    if size < 1 or (index.size and (index.min() < 0 or index.max() >= size)):
        raise ValueError(f"index outside a permutation of {size} places")
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    mask, shift = U64((1 << half) - 1), U64(half)
    keys = [bits(*address, round_) for round_ in range(4)]

    def network(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & mask
        for key in keys:
            left, right = right, left ^ (bits(key, right) & mask)
        return (left << shift) | right

    image = network(index.astype(U64))
    while True:
        outside = image >= U64(size)
        if not outside.any():
            return image.astype(np.int64)
        image = np.where(outside, network(image), image)
