"""The order of training rows: position in the stream -> (plan, row, earlier reads).

``rows.plans`` = N plans are cycled; pass t is the t-th traversal of the corpus and
reads plan t mod N. No state: the row at a position is arithmetic, in constant memory,
so resuming at a step costs nothing and any process can gather any part of a batch.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bert_jax.data import order, rows
from bert_jax.data.rows import Plan, RowSpec
from bert_jax.data.store import Store

SHUFFLES = ("all_plans", "per_pass")


class Address(NamedTuple):
    """Where rows come from; every field is int64 [n]."""

    plans: np.ndarray
    rows: np.ndarray
    reads: np.ndarray  # how often each row was read before


class RowStream:
    """An endless shuffled stream of the rows of N plans.

    ``all_plans``: one permutation over the rows of all N plans, again each cycle (the
    public script shuffles the instances of all its dupe_factor passes together).
    ``per_pass``: each traversal of the corpus is permuted by itself.
    """

    def __init__(self, store: Store, spec: RowSpec, plans: int, shuffle: str):
        self.store, self.spec, self.shuffle = store, spec, shuffle
        self.plans = rows.load_plans(store, spec, plans)
        sizes = [len(plan.label) for plan in self.plans]
        self.bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def cycle(self) -> int:
        """Rows of all N plans together."""
        return int(self.bounds[-1])

    def passes(self, count: int) -> float:
        """Traversals of the corpus that ``count`` rows make."""
        return count / (self.cycle / len(self.plans))

    def source_passes(self, count: int) -> list[float]:
        """Traversals of each source; here there is one."""
        return [self.passes(count)]

    def locate(self, positions: np.ndarray) -> Address:
        """Address of each position of the stream."""
        positions = np.asarray(positions, np.int64)
        cycles, within = np.divmod(positions, self.cycle)
        if self.shuffle == "all_plans":
            within = self._permute(within, cycles, self.cycle)
        plans = np.searchsorted(self.bounds, within, "right") - 1
        places = within - self.bounds[plans]
        if self.shuffle == "per_pass":
            traversals = cycles * len(self.plans) + plans
            for plan in np.unique(plans):
                here = plans == plan
                size = len(self.plans[plan].label)
                places[here] = self._permute(places[here], traversals[here], size)
        return Address(plans, places, cycles)

    def _permute(self, places: np.ndarray, times: np.ndarray, size: int) -> np.ndarray:
        """Permutes places, each under the permutation of its own cycle or pass."""
        image = np.empty_like(places)
        for time in np.unique(times):
            here = times == time
            address = (self.spec.seed, self.spec.length, int(time))
            image[here] = order.permuted(places[here], size, *address)
        return image

    def columns(self, address: Address) -> Plan:
        """Plan columns of the rows at an address."""
        return _columns(self.plans, address)


def _columns(plans: list[Plan], address: Address) -> Plan:
    out = [np.empty(len(address.rows), c.dtype) for c in plans[0]]
    for plan in np.unique(address.plans):
        here = address.plans == plan
        for column, source in zip(out, plans[plan], strict=True):
            column[here] = source[address.rows[here]]
    return Plan(*out)


BLOCK = 1000  # rows in which every source has its exact share


class MixedStream:
    """Streams of several sources as one, each with its share of every block of rows.

    Place -> source is arithmetic too: within a block the sources' places are permuted,
    and source s has read ``block * quota[s]`` rows before. The plans of all sources
    stand in one list, so that (plan, row) still names a row.
    """

    def __init__(self, streams: list[RowStream], weights: tuple[float, ...]):
        self.streams, self.weights = streams, weights
        self.spec = streams[0].spec
        self.plans = [plan for stream in streams for plan in stream.plans]
        exact = np.array(weights) / sum(weights) * BLOCK
        quotas = np.floor(exact).astype(np.int64)
        # Largest remainders get the places left over.
        rest = np.argsort(quotas - exact, kind="stable")[: BLOCK - quotas.sum()]
        quotas[rest] += 1
        self.quotas = quotas
        self._bounds = np.concatenate([[0], np.cumsum(quotas)])

    @property
    def cycle(self) -> int:
        """Rows of all plans of all sources."""
        return sum(stream.cycle for stream in self.streams)

    def source_passes(self, count: int) -> list[float]:
        """Traversals of each source that ``count`` rows make."""
        shares = self.quotas / BLOCK * count
        return [
            stream.passes(round(share))
            for stream, share in zip(self.streams, shares, strict=True)
        ]

    def passes(self, count: int) -> float:
        """Traversals of the sources, weighted by their share of the rows."""
        return float(np.average(self.source_passes(count), weights=self.quotas))

    def locate(self, positions: np.ndarray) -> Address:
        """Address of each position of the stream."""
        blocks, within = np.divmod(np.asarray(positions, np.int64), BLOCK)
        for block in np.unique(blocks):
            here = blocks == block
            address = (self.spec.seed, self.spec.length, int(block), _MIX)
            within[here] = order.permuted(within[here], BLOCK, *address)
        sources = np.searchsorted(self._bounds, within, "right") - 1
        inner = blocks * self.quotas[sources] + within - self._bounds[sources]
        out = Address(*(np.empty(len(within), np.int64) for _ in Address._fields))
        first = 0
        for number, stream in enumerate(self.streams):
            here = sources == number
            found = stream.locate(inner[here])
            out.plans[here] = found.plans + first
            out.rows[here], out.reads[here] = found.rows, found.reads
            first += len(stream.plans)
        return out

    def columns(self, address: Address) -> Plan:
        """Plan columns of the rows at an address."""
        return _columns(self.plans, address)


_MIX = 0x6D6978  # sets the draws of a mixture apart from those of a permutation


def make(
    store: Store, spec: RowSpec, plans: int, shuffle: str
) -> RowStream | MixedStream:
    """The stream of a store's training rows, mixed where it has several sources."""
    if len(store.weights) == 1:
        return RowStream(store, spec, plans, shuffle)
    streams = [
        RowStream(store, replace(spec, source=number), plans, shuffle)
        for number in range(len(store.weights))
    ]
    return MixedStream(streams, store.weights)
