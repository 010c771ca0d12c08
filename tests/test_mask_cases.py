"""Cases P15 to P18: what may be predicted, when a mask repeats, rows without one."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import draws, notices, picks, step
from bert_jax.attention import attention
from bert_jax.corruption import MaskSpec
from bert_jax.data import batches
from bert_jax.data.rows import RowSpec
from bert_jax.encoder import EncoderSpec
from bert_jax.optim import OptimizerSpec
from bert_jax.step import StepSpec


def phase_of(store, length, copies, **changes):
    """A phase over a store, and its masking spec."""
    spec = batches.BatchSpec(
        RowSpec(length, 0), changes.pop("plans", 1), "per_pass", 0.15, 0, copies
    )
    vocab, slots = store.vocabulary, picks.slots_for(length, 0.15, "exact", 0)
    masks = MaskSpec(len(vocab), vocab.ids["[MASK]"], slots, **changes)
    return batches.Phase(store, spec, 16), masks


def masks_of(phase, masks, passes, seed=0):
    """(plan, row) -> its masks in the order they are read; a mask is a frozenset."""
    corrupt = jax.jit(step.corrupt, static_argnums=(1, 2, 3, 4))
    out = {}
    length, size = phase.spec.rows.length, phase.stream.cycle
    for number in range(passes):
        batch = phase.batch(number * size, range(size))
        seen, targets = corrupt(batch, masks, length, seed, draws.Stream.MASKS)
        seen, places, used = map(
            np.asarray, (seen, targets.positions_BK, targets.weights_BK > 0)
        )
        for row in range(size):
            name = int(batch.plans_BP[row, 0]), int(batch.rows_BP[row, 0])
            at = places[row, used[row]]
            mask = frozenset(zip(at.tolist(), seen[row, at].tolist(), strict=True))
            out.setdefault(name, []).append(mask)
    return out


def test_static_masks_repeat_exactly(toy_store):
    """Case P17: ten copies, 40 passes: ten maskings of a row, each seen four times."""
    phase, masks = phase_of(toy_store, 128, copies=10)
    found = masks_of(phase, masks, passes=40)
    assert len(found) == phase.stream.cycle
    for seen in found.values():
        if len(seen[0]) > 4:  # a short row may draw one mask twice
            assert sorted(Counter(seen).values()) == [4] * 10
        assert seen[:10] * 4 == seen  # copies come in turn


def test_the_copies_of_2018_are_plans(toy_store):
    """dupe_factor: as many plans, one masking each, the same in every pass."""
    phase, masks = phase_of(toy_store, 64, copies=1, plans=3)
    found = masks_of(phase, masks, passes=4)
    assert {plan for plan, _ in found} == {0, 1, 2}
    assert all(len(set(seen)) == 1 and len(seen) == 4 for seen in found.values())


def test_dynamic_masks_differ(toy_store):
    """Case P17: at least 99 % of the rows, and the same after a restart."""
    phase, masks = phase_of(toy_store, 128, copies=0, plans=8)
    found = masks_of(phase, masks, passes=2)
    assert len(found) >= 1000
    full = [seen for seen in found.values() if len(seen[0]) > 4]
    places = [[{p for p, _ in mask} for mask in seen] for seen in full]
    assert np.mean([one != two for one, two in places]) >= 0.99
    again, masks = phase_of(toy_store, 128, copies=0, plans=8)
    assert masks_of(again, masks, passes=2) == found
    assert masks_of(again, masks, passes=2, seed=1) != found


def test_reserved_tokens_and_padding_are_never_predicted(toy_store):
    """Case P15: 100,000 draws on rows of 22 tokens in 64; id 0 is a word like others.

    Attention reaches all 22 and no more: with equal scores, each is 1 / 22.
    """
    phase, masks = phase_of(toy_store, 64, copies=0)
    source = phase.batch(0, range(16))
    lengths = (source.pairs_BT > 0).sum(1)
    row = source.take(np.flatnonzero(lengths >= 22)[:1])
    counts = picks.pick_counts(64, 0.15, 0)
    inside = np.arange(64) < 22
    specials = np.isin(np.arange(64), (0, 10, 21))
    draw = np.random.default_rng(0)
    words = draw.integers(5, 60, 64)
    words[5] = 0  # an ordinary word here
    sep = toy_store.vocabulary.ids["[SEP]"]
    tokens = np.where(inside, np.where(specials, sep, words), 0).astype(np.int32)
    many = 100_000 // counts[22] + 1

    def repeat(values):
        return np.repeat(np.asarray(values)[None], many, 0)

    batch = row.take(np.zeros(many, int))._replace(
        tokens_BT=repeat(tokens),
        pairs_BT=repeat(inside.astype(np.int32)),
        maskable_BT=repeat(inside & ~specials),
        words_BT=repeat(np.where(inside & ~specials, np.arange(64), 0).astype("i4")),
        rows_BP=np.arange(many, dtype=np.int32)[:, None],
        picks_BP=np.full((many, 1), counts[22], np.int32),
    )
    corrupt = jax.jit(step.corrupt, static_argnums=(1, 2, 3, 4))
    _, targets = corrupt(batch, masks, 64, 0, draws.Stream.MASKS)
    used = np.asarray(targets.weights_BK) > 0
    places = np.asarray(targets.positions_BK)[used]
    assert len(places) >= 100_000
    assert set(places.tolist()) == set(np.flatnonzero(inside & ~specials).tolist())
    labels = np.asarray(targets.labels_BK)[used]
    expected, count = 1 / 19, len(places)
    zero = (labels == 0).mean()
    assert abs(zero - expected) < 4 * (expected * (1 - expected) / count) ** 0.5
    # The word of id 0 is attended to, padding of the same id is not.
    q = jnp.zeros((1, 64, 1, 4))
    v = jnp.broadcast_to(jnp.eye(64)[None, :, None, :], (1, 64, 1, 64))
    shares = attention(q, q, v, jnp.asarray(batch.pairs_BT[:1]))[0, :, 0]
    np.testing.assert_allclose(shares[:22, :22], 1 / 22, rtol=1e-6)
    assert (np.asarray(shares[:22, 22:]) == 0).all()


def test_a_word_of_id_0_is_a_target_like_others(toy_store):
    """Case P15: predicting it adds one to the count and its own term to the loss."""
    phase, masks = phase_of(toy_store, 48, copies=0)
    batch = phase.batch(0, range(16))
    spec = step_spec(toy_store, masks)
    state = step.init(spec.encoder, spec.optimizer, 0)
    place = int(np.flatnonzero(batch.maskable_BT[0])[0])
    tokens = batch.tokens_BT.copy()
    tokens[0, place] = 0
    none = batch._replace(tokens_BT=tokens, picks_BP=0 * batch.picks_BP)
    given = (np.full((16, 1), place, "i4"), np.full((16, 1), masks.mask_id, "i4"))
    one = none._replace(given=(*given, np.arange(16)[:, None] == 0))
    run = jax.jit(step.make_train_step(spec))
    _, before = run(state, none._replace(given=(*given, np.zeros((16, 1), bool))))
    _, after = run(state, one)
    assert after["sums"]["mlm"]["weight"] == before["sums"]["mlm"]["weight"] + 1 == 1
    assert before["sums"]["mlm"]["nll"] == 0 < after["sums"]["mlm"]["nll"]


def step_spec(store, masks, **changes):
    spec = StepSpec(
        encoder=EncoderSpec(len(store.vocabulary), 1, 32, 2, 64, max_positions=48),
        masks=masks,
        optimizer=OptimizerSpec(1e-2, 0, 100, weight_decay=0.0),
        objectives=(("mlm", 1.0),),
        length=48,
        seed=3,
    )
    return replace(spec, **changes)


@pytest.mark.parametrize("name", ["mlm", "mlm+sop", "generator+rtd"])
def test_nothing_to_predict(toy_store, name):
    """Case P18: loss 0, every gradient 0 and finite, parameters as they were."""
    phase, masks = phase_of(toy_store, 48, copies=0)
    batch = phase.batch(0, range(16))
    none = batch._replace(
        picks_BP=0 * batch.picks_BP,
        weight_BP=0 * batch.weight_BP,
        # Replaced-token detection asks of every token: here there is none.
        pairs_BT=0 * batch.pairs_BT if "rtd" in name else batch.pairs_BT,
        maskable_BT=batch.maskable_BT & ("rtd" not in name),
    )
    weights = tuple((part, 1.0) for part in name.split("+"))
    spec = step_spec(toy_store, masks, objectives=weights)
    if "rtd" in name:
        spec = replace(spec, encoder=replace(spec.encoder, generator=0.5))
    state = step.init(spec.encoder, spec.optimizer, 0)
    after, metrics = jax.jit(step.make_train_step(spec))(state, none)
    assert metrics["loss"] == 0.0 and metrics["finite"]
    assert metrics["gradient_norm"] == 0.0
    assert metrics["counts"]["without_target"] == 1
    for old, new in zip(
        jax.tree.leaves(state.params), jax.tree.leaves(after.params), strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_the_rate_moves_by_step(toy_store):
    """30 % to 15 % in a line: counts of a step follow its own rate, slots the largest.

    Only the counts change: rows, their order and every key stay.
    """
    spec = batches.BatchSpec(RowSpec(64, 0), 1, "per_pass", 0.30, 0, 0)
    moving = batches.curriculum(toy_store, [(spec, 31, 16)], final_rate=0.15)
    fixed = batches.curriculum(toy_store, [(spec, 31, 16)])
    rates = [moving.rate(number) for number in range(31)]
    np.testing.assert_allclose(rates, np.linspace(0.30, 0.15, 31))
    for number in (0, 15, 30):
        batch, plain = (c.batch(number, range(16)) for c in (moving, fixed))
        lengths = (batch.pairs_BT > 0).sum(1)
        expected = [max(1, round(int(n) * rates[number])) for n in lengths]
        assert batch.picks_BP[:, 0].tolist() == expected
        np.testing.assert_allclose(batch.rate_BP, rates[number], rtol=1e-6)
        for name in set(batch._fields) - {"picks_BP", "rate_BP", "given"}:
            np.testing.assert_array_equal(getattr(batch, name), getattr(plain, name))


def test_ideographs_and_whole_words():
    """Case P16: a warning that each ideograph counts as a word."""
    vocab = SimpleNamespace(
        tokens=("[PAD]", "\u4e2d", "\u6587", "word", "##\u4e2d"), ids={}
    )

    def of(counts, unit):
        store = SimpleNamespace(
            vocabulary=vocab, token_counts=lambda held_out: np.array(counts),
            manifest={"one_sentence_documents": 0, "documents": 1,
                      "corpus": {"faults": {"counts": {}, "places": {}}}},
        )  # fmt: skip
        masks = SimpleNamespace(
            kind="dynamic", max_predictions=0, unit=unit, selection="exact", rate=0.15
        )
        config = SimpleNamespace(masks=masks, phases=((128, 1, 1),))
        return list(notices.warnings(config, SimpleNamespace(store=store)))

    chinese, english = [0, 50, 30, 20, 1], [0, 1, 1, 1000, 0]
    assert "80% of the tokens are ideographs" in of(chinese, "word")[0]
    assert "counts as a word" in of(chinese, "span")[0]
    assert of(chinese, "token") == [] == of(english, "word")
