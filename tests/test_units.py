"""Whole words, spans, and the pool of random tokens (cases P14 and P16)."""

import jax
import numpy as np
import pytest

from bert_jax import corruption, draws, units
from bert_jax.batch import Batch
from bert_jax.corruption import KEPT, MASKED, RANDOMED, MaskSpec

VOCAB, MASK = 25, 4
SPECIAL = -1


def rows_of(words, picks, count=1, rate=0.15, vocab=VOCAB):
    """``count`` rows of a pair; ``words`` numbers each position, SPECIAL is none."""
    words = np.broadcast_to(np.asarray(words, np.int32), (count, len(words)))
    maskable = words != SPECIAL
    tokens = np.random.default_rng(0).integers(5, vocab, words.shape)
    at = np.broadcast_to(np.arange(words.shape[1], dtype=np.int32), words.shape)
    zeros = np.zeros((count, 1), np.int32)
    return Batch(
        tokens_BT=np.where(maskable, tokens, 2).astype(np.int32),
        segments_BT=0 * at, pairs_BT=np.ones_like(words), positions_BT=at,
        maskable_BT=maskable, words_BT=np.where(maskable, words, 0).astype(np.int32),
        starts_BP=zeros, plans_BP=zeros,
        rows_BP=np.arange(count, dtype=np.int32)[:, None], reads_BP=zeros,
        picks_BP=zeros + np.int32(picks), rate_BP=np.full((count, 1), rate, np.float32),
        label_BP=zeros, weight_BP=np.ones((count, 1), np.float32),
        place_B=np.arange(count, dtype=np.int32),
    )  # fmt: skip


def keys_of(batch, seed=0):
    return draws.mask_keys(
        seed, draws.Stream.MASKS, 1, batch.plans_BP, batch.rows_BP, batch.reads_BP
    )


def run(batch, spec, seed=0):
    corrupt = jax.jit(corruption.corrupt, static_argnums=2)
    return jax.tree.map(np.asarray, corrupt(keys_of(batch, seed), batch, spec))


def chosen_of(batch, spec, seed=0):
    """bool [B, T]."""
    _, targets = run(batch, spec, seed)
    chosen = np.zeros(batch.tokens_BT.shape, bool)
    used = targets.weights_BK > 0
    rows = np.broadcast_to(np.arange(len(used))[:, None], used.shape)
    chosen[rows[used], targets.positions_BK[used]] = True
    return chosen


def near(share, expected, count):
    return abs(share - expected) < 4 * (expected * (1 - expected) / count) ** 0.5


@pytest.mark.quick
@pytest.mark.parametrize("unit", ["word", "span"])
def test_a_word_falls_together_or_not_at_all(unit):
    """Case P16: phil ##am ##mon walks, 10,000 draws."""
    batch = rows_of([SPECIAL, 1, 1, 1, 2, SPECIAL], 3, count=10_000)
    chosen = chosen_of(batch, MaskSpec(VOCAB, MASK, 3, unit=unit))
    together = chosen[:, 1:4].sum(axis=1)
    assert set(together) == {0, 3}
    assert not chosen[:, [0, 5]].any()
    # The name first: nothing is left for the verb. The verb first: the name is long.
    assert (chosen[:, 4] == (together == 0)).all()
    assert near((together == 3).mean(), 0.5, 10_000)


def test_a_long_word_is_passed_over():
    """Case P16: a word of 30 pieces, five tokens to predict; the cap holds."""
    words = [SPECIAL, *[1] * 30, *range(2, 12), SPECIAL]
    batch = rows_of(words, 5, count=500)
    chosen = chosen_of(batch, MaskSpec(VOCAB, MASK, 5, unit="word"))
    assert not chosen[:, 1:31].any()
    assert (chosen.sum(axis=1) == 5).all()
    only = rows_of([SPECIAL, *[1] * 30, SPECIAL], 5, count=20)
    assert not chosen_of(only, MaskSpec(VOCAB, MASK, 5, unit="word")).any()


def greedy(words, scores, budget):
    """The script's loop over words in the order of their draws."""
    groups = {}
    for place, word in enumerate(words):
        if word != SPECIAL:
            groups.setdefault(word, []).append(place)
    chosen = []
    for places in sorted(groups.values(), key=lambda places: scores[places[0]]):
        if len(chosen) >= budget:
            break
        if len(chosen) + len(places) > budget:
            continue
        chosen += places
    return sorted(chosen)


def test_whole_words_against_the_scripts_loop():
    draw = np.random.default_rng(3)
    for number in range(12):
        sizes = draw.integers(1, 6, 12)
        inner = np.repeat(np.arange(1, 13), sizes)[:38]
        cut = int(draw.integers(5, 30))
        # A [SEP] in between parts a word in two: the host gives the rest a new number.
        inner = np.concatenate([inner[:cut], [SPECIAL], inner[cut:] + 20])
        words = [SPECIAL, *inner, SPECIAL]
        words += [SPECIAL] * (42 - len(words))
        budget = int(draw.integers(1, 9))
        batch = rows_of(words, budget, count=40)
        chosen = chosen_of(batch, MaskSpec(VOCAB, MASK, 9, unit="word"), number)
        keys = units.of_pair(keys_of(batch, number), batch)
        bits = draws.position_bits(keys, batch.positions_BT, 3)
        scores = np.asarray(bits[..., 0] >> 1)
        for row in range(40):
            want = greedy(words, scores[row], budget)
            assert np.flatnonzero(chosen[row]).tolist() == want


def test_independent_words_are_dropped_whole():
    words = [SPECIAL, *np.repeat(np.arange(1, 21), 3), SPECIAL]
    batch = rows_of(words, 0, count=2000, rate=0.3)
    roomy = MaskSpec(VOCAB, MASK, 60, selection="independent", unit="word")
    free = chosen_of(batch, roomy)
    assert near(free[:, 1:61:3].mean(), 0.3, 40_000)
    _, targets = run(batch, roomy)
    assert targets.surplus_B.sum() == 0
    tight = MaskSpec(VOCAB, MASK, 13, selection="independent", unit="word")
    kept, (_, targets) = chosen_of(batch, tight), run(batch, tight)
    whole = kept[:, 1:61].reshape(2000, 20, 3).sum(axis=2)
    assert set(np.unique(whole)) == {0, 3}  # never half a word
    assert not (kept & ~free).any()
    np.testing.assert_array_equal(
        targets.surplus_B, free.sum(axis=1) - kept.sum(axis=1)
    )
    assert (kept.sum(axis=1) == np.minimum(free.sum(axis=1), 12)).all()
    # Which of them stay does not depend on the place: the first no oftener than others.
    cut = free.sum(axis=1) > 12
    share = kept[cut, 1:61:3].mean(axis=0)
    assert abs(share - share.mean()).max() < 4.5 * (0.25 * 0.75 / cut.sum()) ** 0.5


def test_span_lengths(monkeypatch):
    """A truncated geometric distribution with mean 3.8 (SpanBERT), whole words."""
    shares = units.span_lengths(0.2, 10)
    assert abs(sum(shares) - 1) < 1e-12
    assert 3.75 < sum(n * share for n, share in enumerate(shares, 1)) < 3.85
    # One try of one span in long rows.
    words = [SPECIAL, *range(1, 255), SPECIAL]
    batch = rows_of(words, 10, count=6000)
    monkeypatch.setattr(units, "TRIES", 1)
    bits = np.zeros(batch.tokens_BT.shape, np.uint32)
    chosen, _ = units.select_spans(keys_of(batch), batch, 1, 0.2, 10, bits)
    lengths = np.asarray(chosen).sum(axis=1)
    counts = np.bincount(lengths, minlength=11)[1:]
    expected = 6000 * np.array(shares)
    inner = 245 / 254  # spans that begin near the end are cut by it
    assert (np.abs(counts - expected) < 4.5 * expected**0.5 + 6000 * (1 - inner)).all()
    assert lengths.min() >= 1 and lengths.max() == 10


def test_spans_fill_the_picks_and_stay_apart_from_separators():
    words = [SPECIAL, *range(1, 31), SPECIAL, *range(31, 61), SPECIAL]
    batch = rows_of(words, 9, count=400)
    spec = MaskSpec(VOCAB, MASK, 9, unit="span")
    chosen = chosen_of(batch, spec)
    assert (chosen.sum(axis=1) == 9).mean() > 0.98 and chosen.sum(axis=1).max() == 9
    assert not chosen[:, [0, 31, 62]].any()
    # Tokens lie together far more often than single draws would.
    runs = (np.diff(chosen.astype(int), axis=1) == 1).sum(axis=1)
    assert runs.mean() < 5


def test_a_span_turns_into_one_kind():
    words = [SPECIAL, *range(1, 251), SPECIAL]
    batch = rows_of(words, 4, count=3000)
    _, targets = run(batch, MaskSpec(VOCAB, MASK, 4, unit="span"))
    used = targets.weights_BK > 0
    kinds = [set(k[u]) for k, u in zip(targets.kinds_BK, used, strict=True)]
    together = [
        len(kind) == 1
        for kind, u, p in zip(kinds, used, targets.positions_BK, strict=True)
        if u.all() and p[3] - p[0] == 3  # four side by side: one span, nearly always
    ]
    assert len(together) > 500 and np.mean(together) > 0.97
    first = targets.kinds_BK[used[:, 0], 0]
    for kind, share in ((MASKED, 0.8), (RANDOMED, 0.1), (KEPT, 0.1)):
        assert near((first == kind).mean(), share, len(first))


@pytest.mark.parametrize("pool", ["vocabulary", "ordinary"])
def test_pool_of_random_tokens(pool):
    """Case P14: five reserved ids and twenty words, 200,000 selected positions."""
    batch = rows_of([SPECIAL, *range(1, 101), SPECIAL], 100, count=2000)
    reserved = (0, 1, 2, 3, 4)
    spec = MaskSpec(VOCAB, MASK, 100, pool=pool, reserved=reserved)
    tokens, targets = run(batch, spec)
    kinds = targets.kinds_BK
    assert kinds.size == 200_000 and (targets.weights_BK == 1).all()
    for kind, share in ((MASKED, 0.8), (RANDOMED, 0.1), (KEPT, 0.1)):
        assert abs((kinds == kind).mean() - share) < 0.005
    seen = np.take_along_axis(tokens, targets.positions_BK, axis=1)[kinds == RANDOMED]
    counts = np.bincount(seen, minlength=VOCAB)
    if pool == "ordinary":
        assert counts[:5].sum() == 0
        np.testing.assert_allclose(counts[5:] / counts.sum(), 1 / 20, atol=0.007)
    else:
        assert near(counts[:5].sum() / counts.sum(), 5 / 25, counts.sum())


def test_ordinary_pool_with_scattered_reserved_ids():
    batch = rows_of([SPECIAL, *range(1, 101), SPECIAL], 100, count=300)
    reserved = (0, 3, 4, 11, 24)
    spec = MaskSpec(VOCAB, MASK, 100, 0.0, 1.0, pool="ordinary", reserved=reserved)
    tokens, _ = run(batch, spec)
    assert set(np.unique(tokens[:, 1:-1])) == set(range(VOCAB)) - set(reserved)


@pytest.mark.parametrize(
    ("mask", "random"), [(1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.8), (0.0, 1.0)]
)
def test_shares_of_table_8(mask, random):
    """Devlin et al. 2018, table 8: 100/0/0, 80/0/20, 80/20/0, 0/20/80 and 0/0/100."""
    batch = rows_of([SPECIAL, *range(1, 101), SPECIAL], 15, count=1000)
    _, targets = run(batch, MaskSpec(VOCAB, MASK, 15, mask, random))
    kinds = targets.kinds_BK
    for kind, share in (
        (MASKED, mask),
        (RANDOMED, random),
        (KEPT, round(1 - mask - random, 9)),
    ):
        found = (kinds == kind).mean()
        assert near(found, share, kinds.size) if 0 < share < 1 else found == share


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_nothing_to_choose(unit):
    none = rows_of([SPECIAL] * 8, 3, count=2)
    assert not chosen_of(none, MaskSpec(VOCAB, MASK, 3, unit=unit)).any()
    batch = rows_of([SPECIAL, 1, 2, 3, SPECIAL], 0, count=2)
    assert not chosen_of(batch, MaskSpec(VOCAB, MASK, 3, unit=unit)).any()


def test_token_masks_are_pinned():
    """Masks of a run must stay what they were: they are part of its record."""
    batch = rows_of([SPECIAL, *range(1, 31), SPECIAL], 5, count=3)
    _, targets = run(batch, MaskSpec(VOCAB, MASK, 5))
    assert targets.positions_BK.tolist() == PINNED


PINNED = [[4, 5, 6, 14, 28], [1, 4, 12, 18, 30], [10, 13, 19, 21, 29]]
