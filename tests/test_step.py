"""The training step: global ratios, micro-batches, devices, and what is not finite."""

import functools
import pickle
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from bert_jax import picks, step
from bert_jax.corruption import MaskSpec
from bert_jax.data import batches
from bert_jax.data.rows import RowSpec
from bert_jax.encoder import EncoderSpec
from bert_jax.optim import OptimizerSpec
from bert_jax.step import StepSpec

LENGTH = 48


def make_spec(vocab, **changes):
    spec = StepSpec(
        encoder=EncoderSpec(len(vocab), 1, 32, 2, 64, max_positions=LENGTH),
        masks=MaskSpec(
            len(vocab), vocab.ids["[MASK]"], picks.slots_for(LENGTH, 0.15, "exact", 0)
        ),
        optimizer=OptimizerSpec(1e-2, 0, 100),
        objectives=(("mlm", 1.0), ("nsp", 1.0)),
        length=LENGTH,
        seed=3,
    )
    return replace(spec, **changes)


@pytest.fixture(scope="module")
def batch(toy_store):
    rows = RowSpec(LENGTH, seed=0)
    spec = batches.BatchSpec(rows, 2, "all_plans", 0.15, 0, 0)
    return batches.Phase(toy_store, spec, 16).batch(0, range(16))


def start(spec):
    return step.init(spec.encoder, spec.optimizer, spec.seed)


@functools.cache
def compiled(spec):
    """One program for each spec in this file."""
    return jax.jit(step.make_train_step(spec))


def take(spec, batch, steps=2):
    run, state = compiled(spec), start(spec)
    for _ in range(steps):
        state, metrics = run(state, batch)
    return state, metrics


@pytest.mark.quick
@pytest.mark.parametrize("parts", [2, 16])
def test_any_number_of_micro_batches(toy_store, batch, parts):
    """Law 1, dropout on: the loss, the gradient and the parameters agree."""
    whole = make_spec(toy_store.vocabulary)
    a, x = take(whole, batch)
    b, y = take(replace(whole, micro_batches=parts), batch)
    for name in ("loss", "gradient_norm"):
        np.testing.assert_allclose(x[name], y[name], rtol=2e-5)
    np.testing.assert_allclose(x["row_nll"], y["row_nll"], rtol=1e-4, atol=1e-4)
    assert x["sums"]["mlm"]["weight"] == y["sums"]["mlm"]["weight"]
    for p, q in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True):
        np.testing.assert_allclose(p, q, atol=2e-4)


@pytest.mark.parametrize("fewest", [1, 0])
def test_micro_batches_of_unequal_weight(toy_store, batch, fewest):
    """One normalisation: a row with many targets counts more than one with few.

    Case P18: of two parts one has no target at all; the loss is the other's mean.
    """
    vocab = toy_store.vocabulary
    few = batch._replace(
        picks_BP=np.where(batch.place_B[:, None] % 2, fewest, batch.picks_BP)
    )
    _, x = take(make_spec(vocab), few, steps=1)
    _, y = take(make_spec(vocab, micro_batches=2), few, steps=1)
    np.testing.assert_allclose(x["loss"], y["loss"], rtol=1e-5)
    np.testing.assert_allclose(x["gradient_norm"], y["gradient_norm"], rtol=1e-5)
    mlm = x["sums"]["mlm"]
    nsp = x["sums"]["nsp"]
    total = mlm["nll"] / mlm["weight"] + nsp["nll"] / nsp["weight"]
    np.testing.assert_allclose(x["loss"], total, rtol=1e-5)


def test_nothing_selected_is_zero(toy_store, batch):
    none = batch._replace(picks_BP=0 * batch.picks_BP, weight_BP=0 * batch.weight_BP)
    spec = make_spec(toy_store.vocabulary)
    state, metrics = take(spec, none, steps=1)
    assert metrics["loss"] == 0.0 and metrics["finite"]
    assert metrics["gradient_norm"] == 0.0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.params))


def test_nsp_weight_zero_keeps_the_batches(toy_store, batch):
    """bert_base_mlm: the same masks and MLM loss, no gradient from NSP."""
    vocab = toy_store.vocabulary
    both = make_spec(vocab)
    only = make_spec(vocab, objectives=(("mlm", 1.0), ("nsp", 0.0)))
    _, x = take(both, batch, steps=1)
    state, y = take(only, batch, steps=1)
    for name in ("nll", "weight", "correct"):
        np.testing.assert_allclose(
            x["sums"]["mlm"][name], y["sums"]["mlm"][name], rtol=1e-6
        )
    assert (np.asarray(state.optimizer["mean"]["nsp"]["kernel"]) == 0).all()


def test_padding_is_inert(toy_store):
    """Law 3: a longer row of the same pair has the same loss, dropout off."""
    vocab = toy_store.vocabulary
    spec = make_spec(vocab)
    quiet = replace(spec.encoder, dropout=0.0, attention_dropout=0.0, max_positions=64)
    spec = replace(spec, encoder=quiet)
    rows = RowSpec(LENGTH, seed=0)
    phase = batches.Phase(
        toy_store, batches.BatchSpec(rows, 1, "per_pass", 0.15, 0, 0), 8
    )
    short = phase.batch(0, range(8))
    wider = replace(phase.spec, rows=replace(rows, length=64))
    address = phase.stream.locate(np.arange(8))
    plans = phase.stream.plans
    long = batches.gather(toy_store, plans, address, np.arange(8), wider)
    assert long.tokens_BT.shape == (8, 64)
    _, x = take(spec, short, steps=1)
    _, y = take(spec, long, steps=1)
    np.testing.assert_allclose(x["row_nll"], y["row_nll"], atol=1e-4, rtol=1e-5)


def test_what_is_not_finite_changes_nothing(toy_store, batch):
    """Rows longer than a poisoned position are named; the parameters stay."""
    spec = make_spec(toy_store.vocabulary)
    state = start(spec)
    table = state.params["embeddings"]["position"]["table"]
    state.params["embeddings"]["position"]["table"] = table.at[40].set(np.inf)
    after, metrics = compiled(spec)(state, batch)
    assert not metrics["finite"]
    long = (batch.pairs_BT[:, 40] > 0) & True
    assert 0 < long.sum() < 16
    np.testing.assert_array_equal(~np.isfinite(metrics["row_nll"]), long)
    for old, new in zip(
        jax.tree.leaves((state.params, state.optimizer)),
        jax.tree.leaves((after.params, after.optimizer)),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)


def test_learns_a_batch(toy_store, batch):
    spec = make_spec(toy_store.vocabulary)
    _, first = take(spec, batch, steps=1)
    _, last = take(spec, batch, steps=90)
    assert last["loss"] < first["loss"] - 1.5


EIGHT = """
import os, pickle, sys
devices, given, wanted, shape = sys.argv[1:]
os.environ["JAX_NUM_CPU_DEVICES"] = devices
import jax, numpy as np
from bert_jax import mesh, step
spec, batch = pickle.load(open(given, "rb"))
m = mesh.make(tuple(map(int, shape.split(","))))
state = step.init(spec.encoder, spec.optimizer, spec.seed)
state = jax.device_put(state, mesh.replicated(m))
run = jax.jit(step.make_train_step(spec))
for _ in range(2):
    state, metrics = run(state, mesh.place(batch, m))
np.savez(
    wanted, loss=metrics["loss"], norm=metrics["gradient_norm"],
    rows=np.asarray(metrics["row_nll"]), n=jax.device_count(),
    word=np.asarray(state.params["embeddings"]["word"]["table"]),
)
"""


def test_one_device_equals_eight(toy_store, batch, tmp_path):
    """Law 1 in its own processes: the device count is fixed at start-up."""
    spec = make_spec(toy_store.vocabulary)
    given = tmp_path / "in.pkl"
    given.write_bytes(pickle.dumps((spec, batch)))
    results = []
    for devices, shape in (("1", "1,1,1"), ("8", "4,2,1")):
        out = tmp_path / f"{devices}.npz"
        arguments = [devices, str(given), str(out), shape]
        command = [sys.executable, "-c", EIGHT, *arguments]
        subprocess.run(command, check=True, timeout=300)
        results.append(np.load(out))
    one, eight = results
    assert (one["n"], eight["n"]) == (1, 8)
    for name in ("loss", "norm", "rows", "word"):
        np.testing.assert_allclose(one[name], eight[name], rtol=1e-4, atol=1e-4)
