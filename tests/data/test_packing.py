"""Packing: every row once, none too long, near the bound."""

import numpy as np
import pytest

from bert_jax.data import packing
from bert_jax.data.batches import BatchSpec, Phase
from bert_jax.data.rows import RowSpec
from bert_jax.data.stream import RowStream


def wikipedia_like(count, draw):
    """Lengths at 512 shaped like those of Krell et al. 2021, figure 1: a fifth of the
    rows full, half the tokens padding, a long tail of short ones."""
    tail = np.clip(draw.lognormal(5.0, 0.8, count), 5, 512)
    return np.where(draw.random(count) < 0.22, 512, tail).astype(np.int64)


@pytest.mark.quick
def test_near_the_bound_on_a_wikipedia_like_histogram():
    lengths = wikipedia_like(100_000, np.random.default_rng(0))
    assert 0.45 < lengths.mean() / 512 < 0.55  # half of it would be padding
    bound = -(-lengths.sum() // 512)
    assert bound / len(packing.pack(lengths, 512, 3, 0)) >= 0.90
    assert bound / len(packing.pack(lengths, 512, 8, 0)) >= 0.98
    assert len(packing.pack(lengths, 512, 1, 0)) == len(lengths)


@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_every_row_once_and_none_too_long(most):
    draw = np.random.default_rng(most)
    for number in range(150):
        lengths = draw.integers(3, 41, int(draw.integers(1, 80)))
        bins = packing.pack(lengths, 40, most, 1, number)
        held = bins[bins >= 0]
        assert sorted(held) == list(range(len(lengths)))
        total = np.where(bins >= 0, lengths[bins], 0).sum(axis=1)
        assert total.max() <= 40 and bins.shape[1] == most
        assert (bins[:, 0] >= 0).all()
        # Places are filled from the front.
        assert ((bins[:, :-1] >= 0) | (bins[:, 1:] < 0)).all()


def first_rows_by_plain_best_fit(lengths, room, most):
    """Number of bins of best-fit decreasing, row by row."""
    bins = []
    for length in sorted(lengths, reverse=True):
        fits = [b for b in bins if b[0] >= length and b[1] < most]
        if fits:
            best = min(fits, key=lambda b: b[0])
            best[0] -= length
            best[1] += 1
        else:
            bins.append([room - length, 1])
    return len(bins)


def test_as_good_as_row_by_row():
    draw = np.random.default_rng(5)
    for _ in range(60):
        lengths = draw.integers(3, 60, 120)
        ours = len(packing.pack(lengths, 64, 4, 0))
        plain = first_rows_by_plain_best_fit(lengths.tolist(), 64, 4)
        assert ours <= plain + 1


def test_rows_of_a_document_part_ways():
    """Equal lengths are taken in a shuffled order that the address decides."""
    lengths = np.full(4000, 16)
    one, two = (packing.pack(lengths, 64, 4, seed) for seed in (1, 2))
    assert (one != two).any()
    neighbours = np.abs(np.diff(one, axis=1)) == 1
    assert neighbours.mean() < 0.01
    np.testing.assert_array_equal(one, packing.pack(lengths, 64, 4, 1))


@pytest.mark.parametrize("shuffle", ["all_plans", "per_pass"])
def test_packed_stream_reads_every_row_once_a_cycle(toy_store, shuffle):
    spec = RowSpec(64, 0, format="sentence_pair")
    stream = RowStream(toy_store, spec, 2, shuffle, pack=4)
    plain = RowStream(toy_store, spec, 2, shuffle)
    assert stream.cycle < plain.cycle / 2
    seen = stream.locate(np.arange(2 * stream.cycle))
    for cycle in range(2):
        part = slice(cycle * stream.cycle, (cycle + 1) * stream.cycle)
        there = seen.rows[part] >= 0
        assert (seen.reads[part] == cycle).all()
        names = zip(
            seen.plans[part][there].tolist(),
            seen.rows[part][there].tolist(),
            strict=True,
        )
        assert sorted(names) == [
            (p, r) for p, plan in enumerate(plain.plans) for r in range(len(plan.label))
        ]


def test_document_rows_with_matched_tokens(toy_store):
    """DOC-SENTENCES end with their document; packed, a batch holds as many tokens as
    one of FULL-SENTENCES (Liu et al. 2019 raise the batch size for that)."""

    def tokens_a_row(name, pack):
        spec = RowSpec(128, 0, format=name, pair_label="none")
        phase = Phase(toy_store, BatchSpec(spec, 1, "per_pass", 0.15, 0, 0, pack), 16)
        batch = phase.batch(0, range(phase.stream.cycle))
        return (batch.pairs_BT > 0).sum() / phase.stream.cycle

    full = tokens_a_row("full_sentences", 1)
    assert tokens_a_row("doc_sentences", 1) < 0.85 * full
    assert abs(tokens_a_row("doc_sentences", 8) / full - 1) < 0.05
