"""Objectives: packed = unpacked, causal models, replaced tokens, and a new one."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import draws, encoder, losses, objectives, picks, step
from bert_jax.corruption import MaskSpec
from bert_jax.data import batches
from bert_jax.data.batches import BatchSpec
from bert_jax.data.rows import RowSpec
from bert_jax.data.stream import Address
from bert_jax.encoder import EncoderSpec
from bert_jax.objectives import OBJECTIVES, Forward, Objective
from bert_jax.optim import OptimizerSpec
from bert_jax.step import StepSpec

LENGTH = 64
WAYS = {
    "mlm+nsp": (("mlm", 1.0), ("nsp", 1.0)),
    "mlm+sop": (("mlm", 1.0), ("sop", 1.0)),
    "ltr": (("ltr", 1.0),),
    "generator+rtd": (("generator", 1.0), ("rtd", 50.0)),
}


def make_spec(vocab, names, pack=1, dropout=0.0):
    ltr, rtd = names[0][0] == "ltr", names[-1][0] == "rtd"
    sizes = EncoderSpec(
        len(vocab), 1, 32, 2, 64, max_positions=LENGTH, dropout=dropout,
        attention_dropout=dropout, causal=ltr, generator=0.5 if rtd else 0.0,
    )  # fmt: skip
    slots = LENGTH - 1 if ltr else picks.slots_for(LENGTH, 0.15, "exact", 0) + pack
    masks = MaskSpec(len(vocab), vocab.ids["[MASK]"], slots)
    return StepSpec(sizes, masks, OptimizerSpec(3e-3, 0, 1000), names, LENGTH, 3)


def phase_of(store, names, pack):
    label = "sentence_order" if ("sop", 1.0) in names else "next_sentence"
    rows = RowSpec(LENGTH, 0, format="sentence_pair", pair_label=label)
    return batches.Phase(store, BatchSpec(rows, 2, "all_plans", 0.15, 0, 0, pack), 8)


@functools.cache
def compiled(spec):
    return jax.jit(step.make_train_step(spec))


def one_step(spec, batch, state=None):
    state = state or step.init(spec.encoder, spec.optimizer, spec.seed)
    return compiled(spec)(state, batch)


@pytest.mark.quick
@pytest.mark.parametrize("names", WAYS.values(), ids=WAYS)
def test_packed_equals_unpacked(toy_store, names):
    """Law 3: every loss and gradient norm, masks and samples included, within 1e-5."""
    packed = phase_of(toy_store, names, 4)
    batch = packed.batch(0, range(8))
    address = packed.stream.locate(np.arange(8))
    there = address.rows >= 0
    assert there.sum() > 16  # more than two in a row
    alone = Address(*(field[there][:, None] for field in address))
    count = int(there.sum())
    spec = replace(packed.spec, pack=1)
    single = batches.gather(
        toy_store, packed.stream.plans, alone, np.arange(count), spec
    )
    _, x = one_step(make_spec(toy_store.vocabulary, names, 4), batch)
    _, y = one_step(make_spec(toy_store.vocabulary, names, 4), single)
    for name, _ in names:
        for part in ("nll", "weight", "correct"):
            a, b = x["sums"][name][part], y["sums"][name][part]
            np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=f"{name} {part}")
        assert x["sums"][name]["weight"] > 0
    np.testing.assert_allclose(x["loss"], y["loss"], rtol=1e-5)
    np.testing.assert_allclose(x["gradient_norm"], y["gradient_norm"], rtol=1e-4)
    for name in ("tokens", "masked", "random", "kept", "pairs", "labelled", "label_1"):
        assert x["counts"][name] == y["counts"][name], name
    assert x["counts"]["pairs"] == count


@pytest.mark.parametrize("names", WAYS.values(), ids=WAYS)
def test_every_objective_is_learned(toy_store, names):
    """The loss of a few rows falls when they are read again and again."""
    spec = make_spec(toy_store.vocabulary, names)
    batch = phase_of(toy_store, names, 1).batch(0, range(8))
    state, first = one_step(spec, batch)
    for _ in range(30):
        state, last = one_step(spec, batch, state)
    assert last["finite"] and last["loss"] < 0.9 * first["loss"]


def forward_of(store, names, tokens=None, seed=0, batch=None):
    spec = make_spec(store.vocabulary, names)
    if batch is None:
        batch = phase_of(store, names, 1).batch(0, range(8))
    params = encoder.init(jax.random.key(seed), spec.encoder)
    seen, targets = step.corrupt(
        batch, spec.masks, LENGTH, 3, draws.Stream.MASKS,
        objectives.rule_of(name for name, _ in names),
    )  # fmt: skip
    seen = seen if tokens is None else tokens
    return Forward(params, batch, seen, targets, spec.encoder, (3, LENGTH)), params


def test_left_to_right_sees_nothing_of_what_comes(toy_store):
    """A change at a place moves no prediction before it, and every one from it on."""
    forward, _ = forward_of(toy_store, WAYS["ltr"])
    tokens = np.array(forward.batch.tokens_BT)
    place = 9
    tokens[:, place] = 5 + (tokens[:, place] + 1) % 40
    other, _ = forward_of(toy_store, WAYS["ltr"], tokens)
    difference = np.abs(np.asarray(forward.logits_BKV - other.logits_BKV)).max(-1)
    length = (forward.batch.pairs_BT > 0).sum(axis=1)
    row = int(np.argmax(length))
    assert difference[:, :place].max() == 0.0
    assert (difference[row, place : length[row] - 1] > 0).all()


def test_left_to_right_predicts_every_word_once(toy_store):
    forward, _ = forward_of(toy_store, WAYS["ltr"])
    batch, targets = forward.batch, forward.targets
    np.testing.assert_array_equal(forward.tokens_BT, batch.tokens_BT)
    np.testing.assert_array_equal(targets.weights_BK > 0, batch.maskable_BT[:, 1:])
    np.testing.assert_array_equal(targets.labels_BK, batch.tokens_BT[:, 1:])


def test_replaced_tokens(toy_store):
    """Draws stand at predicted places alone, and replace what they differ from."""
    forward, _ = forward_of(toy_store, WAYS["generator+rtd"])
    batch, targets = forward.batch, forward.targets
    changed = np.asarray(forward.filled_BT != batch.tokens_BT)
    used = np.asarray(targets.weights_BK) > 0
    predicted = np.zeros_like(changed)
    rows = np.broadcast_to(np.arange(len(used))[:, None], used.shape)
    predicted[rows[used], np.asarray(targets.positions_BK)[used]] = True
    assert changed.any() and not (changed & ~predicted).any()
    scores = objectives.replaced_tokens(forward)
    np.testing.assert_array_equal(scores.weight, batch.pairs_BT > 0)
    mask = toy_store.vocabulary.ids["[MASK]"]
    assert (np.asarray(forward.filled_BT) == mask).sum() <= 2  # no masks are left


def test_samples_follow_the_generator(toy_store):
    """Frequencies of many draws at one place are the generator's probabilities."""
    names = WAYS["generator+rtd"]
    one = phase_of(toy_store, names, 1).batch(0, range(1))
    count = 4000
    many = one.take(np.zeros(count, int))
    forward, params = forward_of(toy_store, names, batch=one)
    # The same masked row read again and again: only the draw differs.
    targets = jax.tree.map(
        lambda x: np.repeat(np.asarray(x), count, 0), forward.targets
    )
    tokens = np.repeat(np.asarray(forward.tokens_BT), count, 0)
    many = many._replace(reads_BP=np.arange(count, dtype=np.int32)[:, None])
    sharp = jax.tree.map(lambda x: 4 * x, params["generator"]["mlm"])
    params = {**params, "generator": {**params["generator"], "mlm": sharp}}
    spec = forward.spec

    @jax.jit
    def draw(params):
        f = Forward(params, many, tokens, targets, spec, (3, LENGTH))
        return f.filled_BT, f.generator_BKV[:1]

    filled, logits = draw(params)
    place = int(targets.positions_BK[0, 0])
    shares = np.asarray(jax.nn.softmax(logits[0, 0]), np.float64)
    counts = np.bincount(np.asarray(filled)[:, place], minlength=len(shares))
    sigma = np.sqrt(count * shares * (1 - shares)) + 1
    assert (np.abs(counts - count * shares) < 4.5 * sigma).all()
    assert counts.max() > 10


def test_no_gradient_from_detection_to_the_generator(toy_store):
    spec = make_spec(toy_store.vocabulary, (("generator", 0.0), ("rtd", 1.0)))
    batch = phase_of(toy_store, WAYS["generator+rtd"], 1).batch(0, range(8))
    state, _ = one_step(spec, batch)
    moved = jax.tree.leaves(state.optimizer["mean"]["generator"])
    assert all((np.asarray(x) == 0).all() for x in moved)
    assert (np.asarray(state.optimizer["mean"]["rtd"]["out"]["kernel"]) != 0).any()


def test_parameters_of_a_generator():
    """Counted as they are; those of the encoder stay what they are without one."""
    plain = EncoderSpec(500, 2, 64, 4, 128, max_positions=32)
    both = replace(plain, generator=0.25)
    shapes = encoder.parameter_shapes(both)
    sizes = {
        name: sum(x.size for x in jax.tree.leaves(part))
        for name, part in shapes.items()
    }
    assert sizes == both.parameters()
    assert both.generator_spec().width == 16
    a, b = (encoder.init(jax.random.key(0), spec) for spec in (plain, both))
    jax.tree.map(np.testing.assert_array_equal, a, {name: b[name] for name in a})


@pytest.mark.parametrize("names", [("mlm", "ltr"), ("nsp",)])
def test_one_rule(names):
    with pytest.raises(ValueError, match="rules of corruption"):
        objectives.rule_of(names)


def test_a_new_objective(toy_store, monkeypatch):
    """What docs/new_objective.md adds."""

    def denoise(forward):
        tokens = forward.batch.tokens_BT
        places = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        logits = encoder.embedding_logits(
            forward.params, forward.hidden_BTD, places, forward.spec
        )
        weights = objectives.real_tokens(forward.batch, forward.targets)
        return losses.cross_entropy(logits, tokens, weights)

    entry = Objective("masked", denoise, objectives.real_tokens)
    monkeypatch.setitem(OBJECTIVES, "denoise", entry)
    spec = make_spec(toy_store.vocabulary, (("mlm", 1.0), ("denoise", 0.5)))
    batch = phase_of(toy_store, WAYS["mlm+nsp"], 1).batch(0, range(8))
    state, first = one_step(spec, batch)
    for _ in range(20):
        state, last = one_step(spec, batch, state)
    sums = last["sums"]["denoise"]
    assert sums["weight"] == (batch.pairs_BT > 0).sum()
    before = first["sums"]["denoise"]["nll"] / first["sums"]["denoise"]["weight"]
    assert sums["nll"] / sums["weight"] < 0.8 * before
