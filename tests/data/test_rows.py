"""Planning rows: the vectorised planner against the script's loop, and its laws."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.data import building, corpus, order, pairs, rows, vocabularies
from bert_jax.data.pairs import SPECIALS
from bert_jax.data.rows import ACTUAL, RANDOM, Draw, RowSpec


def pairs_of(plan):
    """Columns of a plan in which every row has two spans."""
    assert (np.diff(plan.first) == 2).all() and (plan.segment[1::2] == 1).all()
    return SimpleNamespace(
        start_a=plan.start[::2], length_a=plan.length[::2],
        start_b=plan.start[1::2], length_b=plan.length[1::2],
        label=plan.label, document=plan.document[::2], partner=plan.document[1::2],
        cut=plan.cut,
    )  # fmt: skip


def make_pairs(store, spec, plan):
    return pairs_of(rows.make_plan(store, spec, plan))


def one_by_one(tokens, spec, plan):
    """The 2018 builder, document by document and token by token.

    create_pretraining_data.py written out with the same addressed draws: what the
    planner computes on arrays, in the order the script does it.
    """
    documents = tokens.documents(spec.held_out)
    bounds, first = tokens.sentence_bounds, tokens.document_bounds
    room = spec.length - SPECIALS

    def size(sentence):
        return int(bounds[sentence + 1] - bounds[sentence])

    out = []
    for index, document in enumerate(documents.tolist()):
        address = (spec.seed, plan, spec.side, index)
        target = room
        if order.uniform(*address, Draw.SHORT) < spec.short_seq_prob:
            target = 2 + int(order.below(room - 1, *address, Draw.TARGET))
        chunk, i, end = [], int(first[document]), int(first[document + 1])
        while i < end:
            chunk.append(i)
            if i == end - 1 or sum(map(size, chunk)) >= target:
                where = (*address, chunk[0] - int(first[document]))
                a_end = 1
                if len(chunk) >= 2:
                    a_end = 1 + int(order.below(len(chunk) - 1, *where, Draw.SPLIT))
                a, label = chunk[:a_end], ACTUAL
                partner, b = document, chunk[a_end:]
                if (
                    len(chunk) == 1
                    or order.uniform(*where, Draw.RANDOM) < spec.random_next_prob
                ):
                    label, b = RANDOM, []
                    wanted = target - sum(map(size, a))
                    other = int(order.below(len(documents) - 1, *where, Draw.PARTNER))
                    partner = int(documents[other + (other >= index)])
                    low, high = int(first[partner]), int(first[partner + 1])
                    start = low + int(order.below(high - low, *where, Draw.START))
                    for s in range(start, high):
                        b.append(s)
                        if sum(map(size, b)) >= wanted:
                            break
                    i -= len(chunk) - a_end
                span_a = list(range(int(bounds[a[0]]), int(bounds[a[-1] + 1])))
                span_b = list(range(int(bounds[b[0]]), int(bounds[b[-1] + 1])))
                total = len(span_a) + len(span_b)
                heads = {}
                for name in ("A", "B"):
                    draw = Draw.FRONT_A if name == "A" else Draw.FRONT_B
                    heads[name] = lambda n, draw=draw: int(
                        order.coin_sum(np.array([n]), *where, draw)[0]  # noqa: B023
                    )
                lost = {"A": 0, "B": 0}
                while total - sum(lost.values()) > room:
                    longer = len(span_a) - lost["A"] > len(span_b) - lost["B"]
                    lost["A" if longer else "B"] += 1
                fa, fb = heads["A"](lost["A"]), heads["B"](lost["B"])
                span_a = span_a[fa : len(span_a) - lost["A"] + fa]
                span_b = span_b[fb : len(span_b) - lost["B"] + fb]
                out.append((span_a[0], len(span_a), span_b[0], len(span_b), label,
                            document, partner, max(total - room, 0)))  # fmt: skip
                chunk = []
            i += 1
    return out


@pytest.mark.quick
@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("length", [16, 64])
def test_against_the_script_loop(toy_store, length, held_out):
    spec = RowSpec(length, seed=11, short_seq_prob=0.3, held_out=held_out)
    for plan in (0, 3):
        got = make_pairs(toy_store, spec, plan)
        want = one_by_one(toy_store, spec, plan)
        assert len(want) == len(got.label) > 10
        np.testing.assert_array_equal(
            np.array(list(zip(*vars(got).values(), strict=True))), want
        )


def test_laws_of_every_row(toy_store):
    spec = RowSpec(64, seed=1)
    plan = make_pairs(toy_store, spec, 0)
    held = toy_store.held_out
    assert not held[plan.document].any() and not held[plan.partner].any()
    random = plan.label == RANDOM
    assert (plan.partner[random] != plan.document[random]).all()
    assert (plan.partner[~random] == plan.document[~random]).all()
    assert (plan.length_a >= 1).all() and (plan.length_b >= 1).all()
    assert (plan.length_a + plan.length_b <= 61).all()
    tokens_of = toy_store.sentence_bounds[toy_store.document_bounds]
    for start, length, document in (
        (plan.start_a, plan.length_a, plan.document),
        (plan.start_b, plan.length_b, plan.partner),
    ):
        assert (start >= tokens_of[document]).all()
        assert (start + length <= tokens_of[document + 1]).all()
    # An actual B lies behind its A; only truncation parts them.
    gap = plan.start_b - plan.start_a - plan.length_a
    assert (gap[~random & (plan.cut == 0)] == 0).all() and (gap[~random] >= 0).all()
    # Every training document begins some row, and rewinding loses no sentence.
    assert set(plan.document) == set(toy_store.documents(False))


def test_statistics(toy_store):
    spec = RowSpec(48, seed=2)
    plans = [make_pairs(toy_store, spec, p) for p in range(60)]
    label = np.concatenate([p.label for p in plans])
    size = np.diff(toy_store.document_bounds)
    lone = np.concatenate([size[p.document] == 1 for p in plans])
    assert (label[lone] == RANDOM).all()  # a lone sentence has nothing to follow it
    front = np.concatenate([p.cut for p in plans])
    assert front.max() > 0
    # Chunks that end with one sentence are random too, so more than half are.
    share = (label == RANDOM).mean()
    assert 0.5 < share < 0.8
    # Short targets: a document's rows share one; about a tenth of documents have it.
    ranks = np.arange(len(toy_store.documents(False)))
    draws = np.array(
        [order.uniform(2, p, 0, ranks, Draw.SHORT) < 0.1 for p in range(60)]
    )
    n = draws.size
    assert abs(draws.mean() - 0.1) < 4 * (0.09 / n) ** 0.5
    # Partners are uniform over the other documents.
    partner = np.concatenate([p.partner[p.label == RANDOM] for p in plans])
    hits = np.bincount(partner, minlength=len(size))[toy_store.documents(False)]
    mean = hits.mean()
    assert abs(hits - mean).max() < 5 * mean**0.5


@pytest.mark.parametrize("share", [0.5, 0.3, 0.0, 1.0])
def test_share_of_random_segments(toy_store, share):
    """Of the rows that have an actual next sentence; 4 sigma."""
    spec = RowSpec(64, 2, random_next_prob=share, format="sentence_pair")
    random = count = 0
    for number in range(40):
        plan = make_pairs(toy_store, spec, number)
        bounds = toy_store.sentence_bounds
        ends = bounds[toy_store.document_bounds[plan.document + 1] - 1]
        # Cut or not, A that begins before the last sentence has one behind it.
        follows = plan.start_a < ends
        random += int((plan.label[follows] == RANDOM).sum())
        count += int(follows.sum())
    assert count > 10_000
    assert abs(random / count - share) <= 4 * (share * (1 - share) / count) ** 0.5


def test_truncation_takes_from_either_end():
    """The closed form of token-by-token truncation, on many sizes."""
    draw = np.random.default_rng(0)
    a, b = draw.integers(1, 80, 4000), draw.integers(1, 80, 4000)
    columns = pairs._Columns(
        length_a=a, length_b=b, start_a=np.zeros(4000, np.int64),
        start_b=np.full(4000, 1000), label=np.zeros(4000, np.uint8),
        document=np.arange(4000), partner=np.arange(4000),
        rank=np.arange(4000), sentence=np.arange(4000),
    )  # fmt: skip
    cut = pairs_of(pairs.truncate(columns, 40, RowSpec(43, 0), 0))
    for n in range(4000):
        la, lb = a[n], b[n]
        while la + lb > 40:
            la, lb = (la - 1, lb) if la > lb else (la, lb - 1)
        assert (cut.length_a[n], cut.length_b[n]) == (la, lb)
    lost = a - cut.length_a
    front = cut.start_a[lost > 0] / lost[lost > 0]
    assert abs(front.mean() - 0.5) < 4 * 0.5 / (lost > 0).sum() ** 0.5
    assert (cut.start_a <= lost).all()


def test_plans_differ_and_repeat(toy_store):
    spec = RowSpec(64, seed=1)
    a, b = rows.make_plan(toy_store, spec, 0), rows.make_plan(toy_store, spec, 1)
    again = rows.load_plan(toy_store, spec, 0)
    for left, right in zip(a, again, strict=True):
        np.testing.assert_array_equal(left, right)
    assert len(a.label) != len(b.label) or (a.start != b.start).any()


def test_held_out_rows_do_not_follow_the_training_text(toy_store):
    """Law 10: other runs, whatever they train on, are scored on the same rows."""
    held = toy_store.documents(True)
    # The same held-out text behind more training text: every global number shifts.
    extra = 3
    bounds = np.asarray(toy_store.sentence_bounds)
    documents = np.asarray(toy_store.document_bounds)
    shift = int(bounds[documents[extra]])
    sides = np.concatenate([np.zeros(extra, bool), toy_store.held_out])
    longer = SimpleNamespace(
        sentence_bounds=np.concatenate([bounds[: documents[extra]], bounds + shift]),
        document_bounds=np.concatenate(
            [documents[:extra], documents + documents[extra]]
        ),
        held_out=sides,
        documents=lambda held_out, source: np.flatnonzero(sides == held_out),
    )
    spec = RowSpec(32, seed=5, held_out=True)
    one, two = rows.make_plan(toy_store, spec, 0), rows.make_plan(longer, spec, 0)
    assert len(held) >= 2 and len(one.label) > 10
    moved = {"start": shift, "document": extra}
    for name in rows.Plan._fields:
        expected = getattr(one, name) + moved.get(name, 0)
        np.testing.assert_array_equal(expected, getattr(two, name))


def tiny_store(tmp_path, text, size=60):
    path = tmp_path / "text.txt"
    path.write_text(text)
    loaded = corpus.load(f"sentences:{path}")
    spec = vocabularies.VocabularySpec(size=size)
    return building.store_of(loaded, vocabularies.make(loaded, spec))


def test_one_document_is_refused(cache, tmp_path):
    """Case P08: never mislabel, never loop."""
    only = tiny_store(tmp_path, "one two three .\nfour five .\nsix seven eight .\n")
    with pytest.raises(ValueError, match="two documents"):
        rows.make_plan(only, RowSpec(16, 0), 0)


def test_random_comes_wholly_from_the_other_document(cache, tmp_path):
    """Case P08: two documents without a common word, 1,000 rows."""
    texts = [
        "\n".join(
            " ".join(f"{letter}{(7 * i + j) % 20:02d}" for j in range(6))
            for i in range(20)
        )
        for letter in "ab"
    ]
    pair = tiny_store(tmp_path, "\n\n".join(texts), size=120)
    random = 0
    for number in range(200):
        plan = make_pairs(pair, RowSpec(24, 0), number)
        for r in np.flatnonzero(plan.label == RANDOM):
            span = pair.tokens[plan.start_b[r] : plan.start_b[r] + plan.length_b[r]]
            side = pair.tokens[plan.start_a[r] : plan.start_a[r] + plan.length_a[r]]
            assert not set(span) & set(side) - shared_tokens(pair)
            random += 1
    assert random > 1000


def shared_tokens(pair):
    """Pieces both documents contain: digits after the letter."""
    middle = pair.sentence_bounds[pair.document_bounds[1]]
    return set(pair.tokens[:middle]) & set(pair.tokens[middle:])
