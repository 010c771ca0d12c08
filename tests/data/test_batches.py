"""Order and gathering: every row once a cycle, the very tokens of its spans."""

import numpy as np
import pytest

from bert_jax.data import batches, rows
from bert_jax.data.batches import BatchSpec
from bert_jax.data.rows import RowSpec
from bert_jax.data.stream import RowStream


@pytest.mark.quick
@pytest.mark.parametrize("shuffle", ["all_plans", "per_pass"])
def test_every_row_once_a_cycle(toy_store, shuffle):
    stream = RowStream(toy_store, RowSpec(32, 0), 3, shuffle)
    sizes = [len(plan.label) for plan in stream.plans]
    assert stream.cycle == sum(sizes)
    seen = stream.locate(np.arange(3 * stream.cycle))
    for cycle in range(3):
        part = slice(cycle * stream.cycle, (cycle + 1) * stream.cycle)
        assert (seen.reads[part] == cycle).all()
        places = zip(seen.plans[part, 0], seen.rows[part, 0], strict=True)
        rows_seen = sorted(places)
        assert rows_seen == [
            (p, r) for p, size in enumerate(sizes) for r in range(size)
        ]
    first = seen.plans[: sizes[0], 0]
    if shuffle == "per_pass":
        assert (first == 0).all()
    else:
        assert set(first) == {0, 1, 2}
    # Another cycle, another order.
    assert (
        seen.rows[: stream.cycle] != seen.rows[stream.cycle : 2 * stream.cycle]
    ).any()


def test_any_part_of_any_batch(toy_store):
    """Law 1: what two processes gather is what one gathers; any step, in any order."""
    spec = BatchSpec(RowSpec(32, 0), 2, "all_plans", 0.15, 0, 0)
    plan = batches.curriculum(toy_store, [(spec, 50, 8), (spec, 50, 16)])
    whole = plan.batch(70, range(16))
    halves = [plan.batch(70, part) for part in (range(8), range(8, 16))]
    for field, (a, b) in zip(whole, zip(*halves, strict=True), strict=True):
        if field is not None:
            np.testing.assert_array_equal(field, np.concatenate([a, b]))


def test_a_phase_over_the_same_rows_reads_on(toy_store):
    """A second phase of the same rows begins where the first stopped; another at 0."""
    spec = BatchSpec(RowSpec(32, 0), 2, "all_plans", 0.15, 0, 0)
    longer = BatchSpec(RowSpec(48, 0), 2, "all_plans", 0.15, 0, 0)
    plan = batches.curriculum(toy_store, [(spec, 5, 8), (longer, 5, 8), (spec, 5, 4)])
    assert plan.starts == (0, 0, 40) and plan.ends == (5, 10, 15)
    assert [plan.phase_of(n) for n in (0, 4, 5, 9, 10, 14)] == [0, 0, 1, 1, 2, 2]
    assert [plan.position(n) for n in (0, 4, 5, 10, 11)] == [0, 32, 0, 40, 44]


def test_gathered_rows(toy_store):
    spec = BatchSpec(RowSpec(40, 0), 2, "all_plans", 0.15, 0, 2)
    phase = batches.Phase(toy_store, spec, 32)
    batch = phase.batch(0, range(32))
    address = phase.stream.locate(np.arange(32))
    picked = rows.take(phase.stream.plans, address.plans[:, 0], address.rows[:, 0])
    ids = toy_store.vocabulary.ids
    for r in range(32):
        a, b = (
            toy_store.tokens[picked.start[s] :][: picked.length[s]].tolist()
            for s in range(picked.first[r], picked.first[r + 1])
        )
        want = [ids["[CLS]"], *a, ids["[SEP]"], *b, ids["[SEP]"]]
        n = len(want)
        pad = [0] * (40 - n)
        assert batch.tokens_BT[r].tolist() == want + pad
        assert (
            batch.segments_BT[r].tolist()
            == [0] * (len(a) + 2) + [1] * (len(b) + 1) + pad
        )
        assert batch.pairs_BT[r].tolist() == [1] * n + pad
        assert batch.positions_BT[r].tolist() == [*range(n), *pad]
        candidates = [0, *[1] * len(a), 0, *[1] * len(b), 0, *pad]
        assert batch.maskable_BT[r].tolist() == [bool(c) for c in candidates]
        assert batch.picks_BP[r, 0] == max(1, round(n * 0.15))
        assert batch.label_BP[r, 0] == picked.label[r]


def test_static_and_dynamic_differ_in_the_key_alone(toy_store):
    def fields(copies, position):
        spec = BatchSpec(RowSpec(32, 0), 1, "all_plans", 0.15, 0, copies)
        phase = batches.Phase(toy_store, spec, 8)
        batch = phase.batch(position * phase.stream.cycle, range(8))
        return batch

    dynamic, one, three = (fields(copies, 4) for copies in (0, 1, 3))
    assert (dynamic.reads_BP == 4).all() and (one.reads_BP == 0).all()
    assert (three.reads_BP == 4 % 3).all()
    for name in dynamic._fields:
        if name != "reads_BP":
            np.testing.assert_array_equal(getattr(dynamic, name), getattr(one, name))


def test_plans_come_from_lengths_alone(toy_store, monkeypatch):
    """Planning never looks at a token."""
    from bert_jax.data.store import Store

    monkeypatch.setattr(Store, "tokens", property(lambda self: 1 / 0))
    assert len(rows.make_plan(toy_store, RowSpec(32, 0), 0).label) > 50
