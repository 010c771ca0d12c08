"""Standard errors, baselines, memory: small arithmetic with large consequences."""

import numpy as np
import pytest

from bert_jax import baselines, memory, statistics
from bert_jax.data import heldout
from bert_jax.data.heldout import EvalSet
from bert_jax.encoder import SIZES, EncoderSpec


def test_standard_errors_are_those_of_repetition():
    """Clustered data drawn again and again: the error says how far results scatter."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(400):
        cluster = np.repeat(np.arange(60), draw.integers(1, 12, 60))
        weight = draw.integers(1, 5, len(cluster)).astype(float)
        level = draw.normal(size=60)[cluster]  # rows of a document are alike
        found.append(statistics.ratio((2 + level) * weight, weight, cluster))
    scatter = np.std([e.value for e in found])
    assert np.mean([e.error for e in found]) == pytest.approx(scatter, rel=0.12)
    # Taking rows for independent would claim far too much.
    rows = statistics.ratio((2 + level) * weight, weight, np.arange(len(cluster)))
    assert rows.error < 0.75 * found[-1].error


def test_ratio_of_nothing_and_of_one_cluster():
    empty = statistics.ratio(np.zeros(3), np.zeros(3), np.arange(3))
    assert empty == (0.0, 0.0)
    one = statistics.ratio(np.ones(3), np.ones(3), np.zeros(3))
    assert one.value == 1 and one.error == float("inf")


def test_unigram_is_add_one(toy_store):
    nats = baselines.unigram(toy_store)
    counts = toy_store.token_counts(held_out=False)
    np.testing.assert_allclose(
        np.exp(-nats), (counts + 1) / (counts.sum() + len(counts))
    )
    assert np.exp(-nats).sum() == pytest.approx(1)


def test_overlap_threshold_is_the_best_cut():
    draw = np.random.default_rng(1)
    scores = draw.normal(size=300)
    random = scores + draw.normal(size=300) < 0
    cut = baselines._threshold(scores, random)
    best = max(((scores < c) == random).mean() for c in np.linspace(-4, 4, 4001))
    assert ((scores < cut) == random).mean() >= best
    assert baselines._threshold(scores, np.ones(300, bool)) > scores.max()
    assert baselines._threshold(scores, np.zeros(300, bool)) < scores.min()


def test_overlap_finds_topics(toy_store):
    """The toy documents have three topics, so shared words tell the label often."""
    rows = EvalSet(toy_store, heldout.spec(48, 0), 300)
    found = baselines.measure(toy_store, rows, seed=0)
    assert found.overlap.value > found.majority.value + 0.05
    label = rows.batch.label_BP[:, 0]
    assert found.majority.value == pytest.approx(max(label.mean(), 1 - label.mean()))


def test_eval_set_is_fixed(toy_store):
    """Law 10: only held-out text, length and eval seed decide it."""
    rows = EvalSet(toy_store, heldout.spec(48, 0), 300)
    again = EvalSet(toy_store, heldout.spec(48, 0), 300)
    other = EvalSet(toy_store, heldout.spec(48, 1), 300)
    assert len(rows) == 300 and toy_store.held_out[rows.document].all()
    for a, b in zip(rows.batch, again.batch, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (rows.batch.tokens_BT != other.batch.tokens_BT).any()
    blocks = rows.blocks(128)
    assert [real for _, real in blocks] == [128, 128, 44]
    back = np.concatenate([b.tokens_BT[:real] for b, real in blocks])
    np.testing.assert_array_equal(back, rows.batch.tokens_BT)


@pytest.mark.parametrize("size", SIZES)
def test_micro_batch_fits(size):
    layers, width = SIZES[size]
    spec = EncoderSpec(30522, layers, width, width // 64, 4 * width)
    for gibibytes in (16, 64):
        rows = memory.micro_batch(spec, 128, 19, 256, gibibytes * 2**30)
        assert 256 % rows == 0
        state = memory.STATE_BYTES * sum(spec.parameters().values())
        used = state + rows * spec.activation_bytes(128, 19)
        assert used < gibibytes * 2**30
    assert memory.micro_batch(spec, 128, 19, 96, 2**50) == 96


def test_micro_batch_refuses_what_cannot_fit():
    spec = EncoderSpec(30522, 24, 1024, 16, 4096)
    with pytest.raises(ValueError, match="GiB"):
        memory.micro_batch(spec, 512, 77, 8, 2**32)
