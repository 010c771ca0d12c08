"""The order of training rows: position in the stream -> (plan, rows, earlier reads).

``rows.plans`` = N plans are cycled; pass t is the t-th traversal of the corpus and
reads plan t mod N. No state: the row at a position is arithmetic, in constant memory,
so resuming at a step costs nothing and any process can gather any part of a batch.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bert_jax.data import order, packing, rows
from bert_jax.data.rows import RowSpec
from bert_jax.data.store import Store

SHUFFLES = ("all_plans", "per_pass")


class Address(NamedTuple):
    """Where the rows packed into each row of a batch come from; int64 [n, P]."""

    plans: np.ndarray
    rows: np.ndarray  # -1 in an empty place
    reads: np.ndarray  # how often each row was read before


class RowStream:
    """An endless shuffled stream of the rows of N plans.

    ``all_plans``: one permutation over the rows of all N plans, again each cycle (the
    public script shuffles the instances of all its dupe_factor passes together).
    ``per_pass``: each traversal of the corpus is permuted by itself.
    """

    def __init__(
        self, store: Store, spec: RowSpec, plans: int, shuffle: str, pack: int = 1
    ):
        self.store, self.spec, self.shuffle, self.pack = store, spec, shuffle, pack
        self.plans = rows.load_plans(store, spec, plans)
        # Rows that lie in one row of the batch stay together in every cycle.
        self.bins = [
            packing.pack(
                plan.lengths(), spec.length, pack, spec.seed, spec.side, number
            )
            for number, plan in enumerate(self.plans)
            if pack > 1
        ]
        sizes = [len(each) for each in self.bins or (p.label for p in self.plans)]
        self.bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def cycle(self) -> int:
        """Rows of the batch that all N plans make."""
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
                size = int(self.bounds[plan + 1] - self.bounds[plan])
                places[here] = self._permute(places[here], traversals[here], size)
        found = np.empty((len(positions), self.pack), np.int64)
        if self.bins:
            for plan in np.unique(plans):
                here = plans == plan
                found[here] = self.bins[plan][places[here]]
        else:
            found[:, 0] = places
        shape = found.shape
        return Address(
            np.broadcast_to(plans[:, None], shape),
            found,
            np.broadcast_to(cycles[:, None], shape),
        )

    def _permute(self, places: np.ndarray, times: np.ndarray, size: int) -> np.ndarray:
        """Permutes places, each under the permutation of its own cycle or pass."""
        image = np.empty_like(places)
        for time in np.unique(times):
            here = times == time
            address = (self.spec.seed, self.spec.length, int(time))
            image[here] = order.permuted(places[here], size, *address)
        return image


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
        shape = (len(within), self.streams[0].pack)
        out = Address(*(np.empty(shape, np.int64) for _ in Address._fields))
        first = 0
        for number, stream in enumerate(self.streams):
            here = sources == number
            found = stream.locate(inner[here])
            out.plans[here] = found.plans + first
            out.rows[here], out.reads[here] = found.rows, found.reads
            first += len(stream.plans)
        return out


_MIX = 0x6D6978  # sets the draws of a mixture apart from those of a permutation


def make(
    store: Store, spec: RowSpec, plans: int, shuffle: str, pack: int = 1
) -> RowStream | MixedStream:
    """The stream of a store's training rows, mixed where it has several sources."""
    if len(store.weights) == 1:
        return RowStream(store, spec, plans, shuffle, pack)
    streams = [
        RowStream(store, replace(spec, source=number), plans, shuffle, pack)
        for number in range(len(store.weights))
    ]
    return MixedStream(streams, store.weights)
