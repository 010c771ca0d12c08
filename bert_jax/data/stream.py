"""The order of training rows: position in the stream -> (plan, row, earlier reads).

``rows.plans`` = N plans are cycled; pass t is the t-th traversal of the corpus and
reads plan t mod N. No state: the row at a position is arithmetic, in constant memory,
so resuming at a step costs nothing and any process can gather any part of a batch.
"""

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
        self.plans = [rows.load_plan(store, spec, plan) for plan in range(plans)]
        sizes = [len(plan.label) for plan in self.plans]
        self.bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def cycle(self) -> int:
        """Rows of all N plans together."""
        return int(self.bounds[-1])

    def passes(self, count: int) -> float:
        """Traversals of the corpus that ``count`` rows make."""
        return count / (self.cycle / len(self.plans))

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
        out = [np.empty(len(address.rows), c.dtype) for c in self.plans[0]]
        for plan in np.unique(address.plans):
            here = address.plans == plan
            for column, source in zip(out, self.plans[plan], strict=True):
                column[here] = source[address.rows[here]]
        return Plan(*out)
