"""Which segments are of one text: those that share a run of tokens.

Rows that another program made do not name their documents, and the same text comes
again in each of its copies. Segments that share a run of ``RUN + WINDOW - 1`` tokens
are always found (the fingerprints of Schleimer, Wilkerson and Aiken 2003, "Winnowing");
shared runs of fewer than ``RUN`` tokens count for nothing.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

RUN = 16  # tokens of a run that is hashed
WINDOW = 16  # of so many runs in a row one is kept
CHUNK = 1 << 20  # tokens hashed at a time
_NONE = np.uint64(2**64 - 1)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def mixed(values: np.ndarray) -> np.ndarray:
    """uint64 values whose order says nothing of what went in (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def texts(tokens: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers the texts that segments are of.

    Args:
      tokens: all segments one after another.
      bounds: int64 [segments + 1], where each begins; none is empty.

    Returns:
      int64 [segments], text of each; uint64 [texts], a hash of the content of each.
    """
    segments = len(bounds) - 1
    owners, values = (
        np.concatenate(part)
        for part in zip(*_fingerprints(tokens, bounds), strict=True)
    )
    distinct, index = np.unique(values, return_inverse=True)
    count = segments + len(distinct)
    edges = (np.ones(len(owners), bool), (owners, segments + index))
    graph = sparse.coo_matrix(edges, (count, count))
    found, label = csgraph.connected_components(graph, directed=False)
    hashes = np.full(found, _NONE)
    np.minimum.at(hashes, label[segments:], distinct)
    return label[:segments].astype(np.int64), mixed(hashes)


def _fingerprints(
    tokens: np.ndarray, bounds: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Segment and value of each fingerprint; every segment has one at least."""
    first = 0
    while first < len(bounds) - 1:
        last = int(np.searchsorted(bounds, bounds[first] + CHUNK, "right")) - 1
        last = max(last, first + 1)
        inner = bounds[first : last + 1] - bounds[first]
        text = np.asarray(tokens[bounds[first] : bounds[last]]).astype(np.uint64)
        owner = np.repeat(np.arange(last - first), np.diff(inner))
        left = inner[owner + 1] - np.arange(len(text))  # tokens to the segment's end
        begins = np.zeros(len(text), bool)
        begins[inner[:-1]] = True

        hashes = np.zeros(len(text), np.uint64)
        for ahead in range(RUN):  # past the end of a short segment is nothing
            here = _ahead(text + np.uint64(1), ahead, np.uint64(0))
            hashes = hashes * _FACTOR + np.where(left > ahead, here, np.uint64(0))
        hashes = np.where((left >= RUN) | begins, mixed(hashes), _NONE)
        least = hashes
        for ahead in range(1, WINDOW):
            inside = np.where(left > ahead, _ahead(hashes, ahead, _NONE), _NONE)
            least = np.minimum(least, inside)
        kept = begins | (left >= RUN + WINDOW - 1)
        owner, least = owner[kept], least[kept]
        new = np.ones(len(least), bool)
        new[1:] = (least[1:] != least[:-1]) | (owner[1:] != owner[:-1])
        yield owner[new] + first, least[new]
        first = last


def _ahead(values: np.ndarray, by: int, fill: np.uint64) -> np.ndarray:
    return np.concatenate([values[by:], np.full(min(by, len(values)), fill)])
