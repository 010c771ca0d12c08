"""Packing: several short rows in one row of the batch.

Best-fit decreasing over the histogram of lengths (Krell et al. 2021, "Efficient
Sequence Packing without Cross-contamination"): rows of equal length are alike, so the
work is that of the lengths there are, whatever the number of rows. Attention and
positions stay inside each row that was packed, so no loss changes.
"""

import numpy as np

from bert_jax.data import order

_SHUFFLE = 0x7061636B  # sets the draws of packing apart from those of other orders


def pack(lengths: np.ndarray, room: int, most: int, *address: int) -> np.ndarray:
    """Which rows lie together: int32 [bins, most], -1 in an empty place.

    Args:
      lengths: int [rows], tokens of each row, at most ``room``.
      room: T, tokens of a row of the batch.
      most: rows in one at most.
      address: of the order in which rows of equal length are taken, so that rows of
        one document do not meet.
    """
    count = len(lengths)
    if most == 1 or not count:
        return np.arange(count, dtype=np.int32)[:, None]
    shuffled = order.permuted(np.arange(count), count, *address, _SHUFFLE)
    by_length = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    ends = np.cumsum(np.bincount(lengths, minlength=room + 1))
    groups = _fill(lengths, room, most)
    bins = np.full((sum(number for _, number in groups), most), -1, np.int32)
    taken, at = ends.copy(), 0  # rows of a length are taken from the end
    for content, number in groups:
        for place, length in enumerate(content):
            end = taken[length]
            bins[at : at + number, place] = by_length[end - number : end]
            taken[length] -= number
        at += number
    return bins


def _fill(
    lengths: np.ndarray, room: int, most: int
) -> list[tuple[tuple[int, ...], int]]:
    """Contents of bins, as lengths, and how many bins have them."""
    counts = np.bincount(lengths, minlength=room + 1)
    # Bins that may take more, by the room left: [content, number].
    by_left: list[list[tuple[tuple[int, ...], int]]] = [[] for _ in range(room + 1)]
    full: list[tuple[tuple[int, ...], int]] = []

    def put(content: tuple[int, ...], number: int, left: int) -> None:
        if number and len(content) == most:
            full.append((content, number))
        elif number:
            by_left[left].append((content, number))

    for length in range(room, 0, -1):
        count = int(counts[length])
        left = length  # the tightest bins first
        while count and left <= room:
            if not by_left[left]:
                left += 1
                continue
            content, number = by_left[left].pop()
            each = min(left // length, most - len(content))
            used = min(number, count // each)
            put(content + (length,) * each, used, left - each * length)
            count -= used * each
            if used < number and count < each:  # the last ones share a bin
                put(content, number - used - bool(count), left)
                put(content + (length,) * count, int(count > 0), left - count * length)
                count = 0
        each = min(room // length, most)
        put((length,) * each, count // each, room - each * length)
        rest = count % each
        put((length,) * rest, int(rest > 0), room - rest * length)
    return full + [group for groups in by_left for group in groups]
