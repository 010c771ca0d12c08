"""Input formats over one store (Liu et al. 2019, section 4.2), and sentence order."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.data import batches, rows
from bert_jax.data.batches import BatchSpec
from bert_jax.data.rows import FORMATS, IN_ORDER, NO_LABEL, RANDOM, SWAPPED, RowSpec

UNPAIRED = ("full_sentences", "doc_sentences")


def spec_of(name, length=48, label=None, **more):
    label = label or ("none" if name in UNPAIRED else "next_sentence")
    return RowSpec(length, seed=3, format=name, pair_label=label, **more)


def every_token(store, held_out):
    """bool [tokens]: tokens of the documents of one side."""
    bounds = store.sentence_bounds[store.document_bounds]
    return np.repeat(store.held_out == held_out, np.diff(bounds))


def uses(store, plan):
    """int [tokens]: how many spans of a plan hold each token."""
    count = np.zeros(len(store.tokens) + 1, np.int64)
    np.add.at(count, plan.start, 1)
    np.add.at(count, plan.start + plan.length, -1)
    return np.cumsum(count)[:-1]


@pytest.mark.quick
@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("name", FORMATS[:-1])
def test_laws_of_every_format(toy_store, name, held_out):
    """Rows fit, stay on their side, and lie inside the documents they name."""
    spec = spec_of(name, held_out=held_out)
    plan = rows.make_plan(toy_store, spec, 0)
    assert (toy_store.held_out[plan.document] == held_out).all()
    assert plan.lengths().max() <= 48 and (plan.length > 0).all()
    assert plan.first[0] == 0 and plan.first[-1] == len(plan.start)
    assert (np.diff(plan.first) >= 1).all()
    bounds = toy_store.sentence_bounds[toy_store.document_bounds]
    assert (plan.start >= bounds[plan.document]).all()
    assert (plan.start + plan.length <= bounds[plan.document + 1]).all()
    again, other = (rows.make_plan(toy_store, spec, n) for n in (0, 1))
    for a, b in zip(plan, again, strict=True):
        np.testing.assert_array_equal(a, b)
    differs = len(plan.start) != len(other.start) or (plan.start != other.start).any()
    assert differs


@pytest.mark.parametrize("name", UNPAIRED)
@pytest.mark.parametrize("length", [12, 48])
def test_contiguous_rows_hold_every_token_once(toy_store, name, length):
    """Also where sentences are longer than rows: they are cut, nothing is lost."""
    plan = rows.make_plan(toy_store, spec_of(name, length), 0)
    np.testing.assert_array_equal(
        uses(toy_store, plan), every_token(toy_store, held_out=False)
    )
    assert (plan.label == NO_LABEL).all() and not plan.cut.any()


def greedy(store, documents, room, across):
    """Sentences one by one into rows, in plain Python; rows of (start, length)."""
    out, row, used = [], [], 0
    for document in documents:
        first, last = store.document_bounds[document : document + 2]
        new = True
        for s in range(first, last):
            at, end = int(store.sentence_bounds[s]), int(store.sentence_bounds[s + 1])
            while at < end:
                size = min(end - at, room)
                fits = used + size + (new and bool(row)) <= room
                if row and (not fits or (new and not across)):
                    out.append(row)
                    row, used = [], 0
                if row and not new:
                    row[-1] = (row[-1][0], row[-1][1] + size)
                else:
                    used += bool(row)
                    row.append((at, size))
                used, new, at = used + size, False, at + size
    return [*out, row]


@pytest.mark.parametrize("length", [14, 48, 100])
@pytest.mark.parametrize("name", UNPAIRED)
def test_against_a_plain_loop(toy_store, name, length):
    plan = rows.make_plan(toy_store, spec_of(name, length), 0)
    documents = plan.document[np.sort(np.unique(plan.document, return_index=True)[1])]
    want = greedy(toy_store, documents, length - 2, name == "full_sentences")
    got = [
        [(int(plan.start[s]), int(plan.length[s])) for s in range(a, b)]
        for a, b in zip(plan.first, plan.first[1:], strict=False)
    ]
    assert got == want


def test_full_rows_cross_documents_and_document_rows_do_not(toy_store):
    full = rows.make_plan(toy_store, spec_of("full_sentences"), 0)
    own = rows.make_plan(toy_store, spec_of("doc_sentences"), 0)
    assert (np.diff(own.first) == 1).all()
    assert (np.diff(full.first) > 1).mean() > 0.2
    # Rows of FULL-SENTENCES are nearly full, so there are fewer of them.
    assert full.lengths().mean() > 0.85 * 48 > own.lengths().mean()


def test_sentence_pairs_are_two_sentences(toy_store):
    plan = rows.make_plan(toy_store, spec_of("sentence_pair", 64), 0)
    assert (np.diff(plan.first) == 2).all()
    whole = plan.cut == 0
    assert whole.mean() > 0.9
    sentences = set(
        zip(
            toy_store.sentence_bounds[:-1].tolist(),
            np.diff(toy_store.sentence_bounds).tolist(),
            strict=True,
        )
    )
    for r in np.flatnonzero(whole):
        for s in (plan.first[r], plan.first[r] + 1):
            assert (int(plan.start[s]), int(plan.length[s])) in sentences
    a, b = plan.start[::2], plan.start[1::2]
    follows = b == a + plan.length[::2]
    assert (follows | (plan.label == RANDOM))[whole].all()
    random = plan.label == RANDOM
    assert (plan.document[::2][random] != plan.document[1::2][random]).all()


@pytest.mark.parametrize("name", ["segment_pair", "sentence_pair"])
def test_sentence_order(toy_store, name):
    """Segments of one place, half of them swapped; a lone sentence has no label."""
    spec = spec_of(name, 64, "sentence_order")
    plans = [rows.make_plan(toy_store, spec, number) for number in range(12)]
    total = swapped = 0
    for plan in plans:
        two = np.diff(plan.first) == 2
        assert (plan.label[~two] == NO_LABEL).all() and (~two).any()
        at = plan.first[:-1][two]
        assert (plan.document[at] == plan.document[at + 1]).all()
        later = plan.start[at] > plan.start[at + 1]
        np.testing.assert_array_equal(
            plan.label[two], np.where(later, SWAPPED, IN_ORDER)
        )
        total, swapped = total + len(later), swapped + int(later.sum())
    assert abs(swapped / total - 0.5) < 4 * 0.5 / total**0.5


def test_unlabelled_pairs_are_the_text_in_order(toy_store):
    """NSP left out altogether: what is read is the document, each sentence once."""
    plan = rows.make_plan(toy_store, spec_of("segment_pair", 64, "none"), 0)
    assert (plan.label == NO_LABEL).all()
    count = uses(toy_store, plan)
    whole = every_token(toy_store, held_out=False)
    assert count.max() == 1 and not count[~whole].any()
    assert count.sum() + plan.cut.sum() == whole.sum()


@pytest.mark.parametrize("name", FORMATS[:-1])
def test_planned_without_tokens(toy_store, name):
    """Lengths alone are looked at."""
    blind = SimpleNamespace(
        sentence_bounds=toy_store.sentence_bounds,
        document_bounds=toy_store.document_bounds,
        held_out=toy_store.held_out,
        documents=toy_store.documents,
    )
    plan = rows.make_plan(blind, spec_of(name), 0)
    for a, b in zip(plan, rows.make_plan(toy_store, spec_of(name), 0), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("pack", [1, 3])
@pytest.mark.parametrize("name", FORMATS[:-1])
def test_gathered_rows_of_every_format(toy_store, name, pack):
    """[CLS], then each span with its [SEP]; words are numbered inside a span."""
    spec = BatchSpec(spec_of(name), 2, "all_plans", 0.15, 0, 0, pack)
    phase = batches.Phase(toy_store, spec, 16)
    batch, address = phase.batch(5, range(16)), phase.stream.locate(5 + np.arange(16))
    ids, starts = toy_store.vocabulary.ids, toy_store.vocabulary.word_starts
    for r in range(16):
        tokens, segments, pairs, positions, words, maskable = ([] for _ in range(6))
        for p in range(pack):
            row = address.rows[r, p]
            if row < 0:
                assert batch.picks_BP[r, p] == 0 == batch.weight_BP[r, p]
                continue
            plan = phase.stream.plans[address.plans[r, p]]
            assert batch.starts_BP[r, p] == len(tokens)
            begin, word = len(tokens), 0
            tokens.append(ids["[CLS]"])
            segments.append(0)
            words.append(0)
            maskable.append(False)
            for s in range(plan.first[row], plan.first[row + 1]):
                span = toy_store.tokens[plan.start[s] :][: plan.length[s]].tolist()
                for n, token in enumerate(span):
                    word += n == 0 or bool(starts[token])
                    words.append(word)
                words.append(0)
                tokens += [*span, ids["[SEP]"]]
                segments += [int(plan.segment[s])] * (len(span) + 1)
                maskable += [True] * len(span) + [False]
            size = len(tokens) - begin
            pairs += [p + 1] * size
            positions += range(size)
            assert batch.picks_BP[r, p] == max(1, round(size * 0.15))
            labelled = plan.label[row] != NO_LABEL
            assert batch.weight_BP[r, p] == labelled
            assert batch.label_BP[r, p] == (plan.label[row] if labelled else 0)
        pad = [0] * (48 - len(tokens))
        for name_, want in (
            ("tokens_BT", tokens), ("segments_BT", segments), ("pairs_BT", pairs),
            ("positions_BT", positions), ("words_BT", words),
            ("maskable_BT", maskable),
        ):  # fmt: skip
            assert getattr(batch, name_)[r].tolist() == want + pad, name_
