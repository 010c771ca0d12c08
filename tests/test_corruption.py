"""The masking rule: the definition, its training form, and that they agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import corruption, draws, picks
from bert_jax.batch import Batch
from bert_jax.corruption import MaskSpec, corrupt_for_bert

VOCAB, MASK = 97, 4


def make_batch(lengths, T, picked, plans=0, rows=None, reads=0, offset=0):
    """Rows of random tokens with [CLS] (2) first and [SEP] (3) last."""
    B = len(lengths)
    lengths = np.asarray(lengths)
    tokens = np.random.default_rng(0).integers(5, VOCAB, (B, T)).astype(np.int32)
    at = np.arange(T)[None]
    inside = at < lengths[:, None]
    special = (at == 0) | (at == lengths[:, None] - 1)
    tokens = np.where(at == 0, 2, np.where(at == lengths[:, None] - 1, 3, tokens))
    column = lambda x: np.broadcast_to(np.asarray(x, np.int32), (B,))[:, None]  # noqa: E731
    return Batch(
        tokens_BT=np.where(inside, tokens, 0).astype(np.int32),
        segments_BT=np.zeros((B, T), np.int32),
        pairs_BT=inside.astype(np.int32),
        positions_BT=np.where(inside, at, 0).astype(np.int32),
        maskable_BT=inside & ~special,
        words_BT=np.where(inside & ~special, at, 0).astype(np.int32),
        starts_BP=column(0),
        plans_BP=column(plans),
        rows_BP=column(np.arange(B) if rows is None else rows),
        reads_BP=column(reads),
        picks_BP=column(picked),
        rate_BP=np.full((B, 1), 0.15, np.float32),
        label_BP=column(0),
        weight_BP=np.ones((B, 1), np.float32),
        place_B=(np.arange(B) + offset).astype(np.int32),
    )


def run(batch, spec, seed=0, length=128):
    keys = draws.mask_keys(
        seed, draws.Stream.MASKS, length, batch.plans_BP, batch.rows_BP, batch.reads_BP
    )
    return jax.jit(corruption.corrupt, static_argnums=2)(keys, batch, spec)


@pytest.mark.quick
def test_definition_statistics():
    tokens = np.random.default_rng(1).integers(5, VOCAB, (128, 128))
    special = np.zeros((128, 128), bool)
    special[:, 0] = True
    out = corrupt_for_bert(jax.random.key(0), tokens, special, VOCAB, MASK)
    chosen, masked, randomed = (np.asarray(x) for x in out[2:])
    assert 0.13 < chosen[:, 1:].mean() < 0.17 and not chosen[:, 0].any()
    share = chosen.sum()
    assert 0.76 < masked.sum() / share < 0.84
    assert 0.07 < randomed.sum() / share < 0.13
    assert (masked | randomed <= chosen).all() and not (masked & randomed).any()
    corrupted, labels = np.asarray(out.corrupted), np.asarray(out.labels)
    np.testing.assert_array_equal(
        corrupted[~masked & ~randomed], tokens[~masked & ~randomed]
    )
    assert (corrupted[masked] == MASK).all()
    np.testing.assert_array_equal(labels[chosen], tokens[chosen])
    assert (labels[~chosen] == corruption.IGNORED).all()
    # Kept tokens are in the loss: chosen, neither masked nor random.
    assert (chosen & ~masked & ~randomed).sum() > 0.05 * share
    # Random tokens come from the whole vocabulary, reserved ids and original included.
    drawn = corrupted[randomed]
    assert drawn.min() < 5 and drawn.max() >= VOCAB - 5


def test_definition_takes_the_dtype_of_a_store():
    tokens = np.full((4, 64), 9, np.uint16)
    out = corrupt_for_bert(jax.random.key(0), tokens, tokens == 0, VOCAB, MASK)
    assert out.labels.dtype == out.corrupted.dtype == np.int32
    assert set(np.unique(out.labels)) == {corruption.IGNORED, 9}


def test_definition_cross_entropy_is_finite():
    tokens = np.random.default_rng(1).integers(5, VOCAB, (8, 128))
    special = np.arange(128)[None] < np.array([1] * 7 + [128])[:, None]  # one row: none
    out = corrupt_for_bert(jax.random.key(3), tokens, special, VOCAB, MASK)

    def loss(table):
        logits = table[out.corrupted] @ table.T
        log_p = jax.nn.log_softmax(logits)
        nll = -jnp.take_along_axis(log_p, jnp.maximum(out.labels, 0)[..., None], -1)
        return jnp.where(out.chosen, nll[..., 0], 0).sum() / out.chosen.sum()

    value, grad = jax.value_and_grad(loss)(jnp.ones((VOCAB, 8)) * 0.1)
    assert np.isfinite(value) and np.isfinite(grad).all()


@pytest.mark.parametrize(
    ("tokens", "special", "word"),
    [
        (np.zeros((2, 3), int), np.zeros((2, 4), bool), "shape"),
        (np.zeros((2, 3), int), np.zeros((2, 3), int), "boolean"),
        (np.zeros((2, 3)), np.zeros((2, 3), bool), "integers"),
    ],
)
def test_definition_refuses(tokens, special, word):
    with pytest.raises(ValueError, match=word):
        corrupt_for_bert(jax.random.key(0), tokens, special, VOCAB, MASK)


def test_pick_counts_round_half_to_even():
    counts = picks.pick_counts(512, 0.15, 0)
    assert (counts[30], counts[90], counts[10], counts[1]) == (4, 14, 2, 1)
    assert counts[128] == 19 and counts[512] == 77
    assert picks.pick_counts(512, 0.15, 76)[512] == 76
    # Why the table is made by Python: float32 multiplication rounds some lengths off.
    single = np.round(np.arange(1, 513, dtype=np.float32) * np.float32(0.15))
    assert (single != counts[1:]).any()


def test_slots():
    assert picks.slots_for(128, 0.15, "exact", 20) == 19
    assert picks.slots_for(512, 0.15, "exact", 76) == 76
    slots = picks.slots_for(128, 0.15, "independent", 0)
    assert 19.2 + 5 * 4.03 < slots < 19.2 + 5 * 4.05 + 1


@pytest.mark.quick
def test_exact_selection_counts_and_shares():
    lengths = np.random.default_rng(2).integers(20, 129, 2000)
    wanted = np.array(picks.pick_counts(128, 0.15, 0))[lengths]
    batch = make_batch(lengths, 128, wanted)
    spec = MaskSpec(VOCAB, MASK, picks.slots_for(128, 0.15, "exact", 0))
    tokens, targets = jax.tree.map(np.asarray, run(batch, spec))
    used = targets.weights_BK > 0
    np.testing.assert_array_equal(used.sum(1), wanted)
    assert targets.surplus_B.sum() == 0
    kinds = targets.kinds_BK[used]
    for kind, share in ((0, 0.8), (1, 0.1), (2, 0.1)):
        sigma = (share * (1 - share) / len(kinds)) ** 0.5
        assert abs((kinds == kind).mean() - share) < 4 * sigma
    rows = np.broadcast_to(np.arange(len(lengths))[:, None], used.shape)[used]
    places = targets.positions_BK[used]
    assert batch.maskable_BT[rows, places].all()
    assert len(set(zip(rows.tolist(), places.tolist(), strict=True))) == used.sum()
    np.testing.assert_array_equal(
        targets.labels_BK[used], batch.tokens_BT[rows, places]
    )
    changed = tokens != batch.tokens_BT
    chosen = np.zeros_like(changed)
    chosen[rows, places] = True
    assert not (changed & ~chosen).any()
    assert (tokens[rows, places][kinds == 0] == MASK).all()
    kept = kinds == 2
    np.testing.assert_array_equal(
        tokens[rows, places][kept], batch.tokens_BT[rows, places][kept]
    )
    # Every candidate is as likely as any other: position of the choice in full rows.
    full = make_batch(np.full(4000, 128), 128, 19)
    _, t = jax.tree.map(np.asarray, run(full, spec, seed=5))
    hits = np.bincount(t.positions_BK.ravel(), minlength=128)[1:127]
    p = 19 / 126
    assert abs(hits - 4000 * p).max() < 4.5 * (4000 * p * (1 - p)) ** 0.5


def test_independent_selection_drops_surplus_at_random():
    batch = make_batch(np.full(3000, 128), 128, 0)
    roomy = MaskSpec(VOCAB, MASK, 60, selection="independent")
    _, t = jax.tree.map(np.asarray, run(batch, roomy))
    count = t.weights_BK.sum(1)
    mean = 0.15 * 126
    assert abs(count.mean() - mean) < 4 * (mean * 0.85 / 3000) ** 0.5
    assert t.surplus_B.sum() == 0 and count.std() > 3
    tight = MaskSpec(VOCAB, MASK, 19, selection="independent")
    _, s = jax.tree.map(np.asarray, run(batch, tight))
    np.testing.assert_array_equal(s.surplus_B, np.maximum(count - 19, 0))
    cut = s.surplus_B > 0
    # What is left of a cut row is spread over the row, not its beginning.
    assert abs(s.positions_BK[cut].mean() - 63.5) < 4 * 36.4 / (19 * cut.sum()) ** 0.5


def test_padding_is_inert():
    spec = MaskSpec(VOCAB, MASK, 19)
    lengths = np.array([40, 64, 17])
    wanted = np.array(picks.pick_counts(128, 0.15, 0))[lengths]
    short, long = (make_batch(lengths, T, wanted) for T in (64, 128))
    long = long._replace(tokens_BT=np.pad(short.tokens_BT, ((0, 0), (0, 64))))
    a_tokens, a = run(short, spec)
    b_tokens, b = run(long, spec)
    np.testing.assert_array_equal(a_tokens, b_tokens[:, :64])
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_packing_is_inert(unit):
    """Two rows packed into one get the masks they had alone."""
    spec = MaskSpec(VOCAB, MASK, 19, unit=unit)
    alone = make_batch([40, 24], 64, [6, 4], rows=[7, 9])
    alone = alone._replace(words_BT=(alone.words_BT + 1) // 2)  # two tokens a word

    def joined(field):
        if field is None or field.shape != (2, 64):
            return field
        return np.concatenate([field[0, :40], field[1, :24]])[None]

    packed = Batch(*(joined(field) for field in alone))
    packed = packed._replace(
        pairs_BT=np.repeat([1, 2], [40, 24])[None],
        **{
            name: getattr(alone, name).T
            for name in alone._fields
            if name.endswith("_BP")
        },
    )
    a, _ = run(alone, spec)
    b, targets = run(packed, spec)
    np.testing.assert_array_equal(np.concatenate([a[0, :40], a[1, :24]]), b[0])
    assert targets.weights_BK.sum() == 10 if unit == "token" else 6


def test_masks_are_addressed():
    """A mask follows its row: not its neighbours, its place or the batch size."""
    spec = MaskSpec(VOCAB, MASK, 19)
    rows = np.arange(6)
    whole, _ = run(make_batch(np.full(6, 64), 64, 9, rows=rows), spec)
    batch = make_batch(np.full(6, 64), 64, 9, rows=rows)
    back = batch.take(slice(None, None, -1))
    part, _ = run(back, spec)
    np.testing.assert_array_equal(whole, part[::-1])
    # Another read (dynamic), plan, seed or length of the phase is another mask.
    base = make_batch(np.full(6, 64), 64, 9)
    for other, options in (
        (base._replace(reads_BP=base.reads_BP + 1), {}),
        (base._replace(plans_BP=base.plans_BP + 1), {}),
        (base, {"seed": 1}),
        (base, {"length": 64}),
    ):
        assert (np.asarray(run(other, spec, **options)[0]) != whole).any()


def test_jit_equals_no_jit():
    spec = MaskSpec(VOCAB, MASK, 10)
    batch = make_batch([30, 64], 64, [4, 10])
    keys = draws.mask_keys(
        0, draws.Stream.MASKS, 128, batch.plans_BP, batch.rows_BP, batch.reads_BP
    )
    with jax.disable_jit():
        plain = corruption.corrupt(keys, batch, spec)
    for a, b in zip(
        jax.tree.leaves(plain), jax.tree.leaves(run(batch, spec)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
