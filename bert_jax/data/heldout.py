"""The fixed evaluation set: rows that depend on the held-out text alone.

Rows come from plans of the held-out side with the evaluation's own seed, as many plans
as give the wanted pairs; masks are addressed by the same seed. Nothing of the training
recipe enters, so two runs over one text and tokenizer are scored on the same thing.
"""

from dataclasses import replace

import numpy as np

from bert_jax.batch import Batch
from bert_jax.data import batches, order, rows
from bert_jax.data.batches import BatchSpec
from bert_jax.data.rows import RowSpec
from bert_jax.data.store import Store
from bert_jax.data.stream import Address

MOST_PLANS = 200  # a tiny held-out side repeats itself long before


def spec(length: int, seed: int) -> BatchSpec:
    """SEGMENT-PAIR rows, 15 % exact selection: the evaluation every run shares."""
    row_spec = RowSpec(length=length, seed=seed, held_out=True)
    return BatchSpec(row_spec, 0, "all_plans", 0.15, 0, 0)


def own_format(training: BatchSpec, seed: int) -> BatchSpec:
    """The run's own row format on held-out text."""
    row_spec = replace(training.rows, seed=seed, held_out=True)
    # How training orders and repeats its rows says nothing about held-out ones.
    return replace(training, rows=row_spec, plans=0, shuffle="all_plans", mask_copies=0,
                   pack=1)  # fmt: skip


class EvalSet:
    """Held-out rows: a Batch of all of them, and the document of each."""

    def __init__(self, store: Store, spec: BatchSpec, pairs: int):
        plans: list[rows.Plan] = []
        total = 0
        while total < pairs and len(plans) < MOST_PLANS:
            plans.append(rows.load_plan(store, spec.rows, len(plans)))
            total += len(plans[-1].label)
        sizes = [len(plan.label) for plan in plans]
        plan_of = np.repeat(np.arange(len(plans)), sizes)
        row_of = np.concatenate([np.arange(size) for size in sizes])
        # A permuted choice, so that a cut-off last plan is not its first documents.
        count = min(pairs, total)
        chosen = np.sort(order.permuted(np.arange(count), total, spec.rows.seed))
        address = Address(
            plan_of[chosen, None],
            row_of[chosen, None],
            np.zeros((count, 1), np.int64),
        )
        self.spec = spec
        picked = rows.take(plans, plan_of[chosen], row_of[chosen])
        self.document = picked.document[picked.first[:-1]]
        self.batch = batches.gather(store, plans, address, np.arange(count), spec)

    def __len__(self) -> int:
        return len(self.document)

    def blocks(self, size: int) -> list[tuple[Batch, int]]:
        """Batches of ``size`` rows with the number of real ones; the last is filled up.

        The filler repeats the first row of the block; the caller drops it.
        """
        out = []
        for begin in range(0, len(self), size):
            index = np.arange(begin, begin + size)
            real = min(size, len(self) - begin)
            index[real:] = begin
            out.append((self.batch.take(index), real))
        return out
