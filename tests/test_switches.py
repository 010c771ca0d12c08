"""One switch changes one thing: the rest of a run is the same bit for bit."""

import jax
import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax import specs, step
from bert_jax.data import batches

LENGTH = 64
# What a switch may change of a batch; all else of it must stay.
MASK_COUNTS = {"picks_BP", "rate_BP"}
SWITCHES = {
    ("masks.kind", "dynamic"): {"reads_BP"},
    ("masks.copies", 10): {"reads_BP"},
    ("masks.unit", "word"): set(),
    ("masks.unit", "span"): set(),
    ("masks.selection", "independent"): set(),
    ("masks.pool", "ordinary"): set(),
    ("masks.mask_share", 0.0): set(),
    ("masks.random_share", 0.2): set(),
    ("masks.rate", 0.3): MASK_COUNTS,
    ("masks.max_predictions", 5): {"picks_BP"},
    ("objectives.nsp", 0.0): set(),
    ("model.gelu", "erf"): set(),
    ("model.dropout", 0.0): set(),
    ("optimizer.bias_correction", True): set(),
}


def small():
    config = configs.default()
    configs.set_size(config, "tiny")
    config.model.max_positions = LENGTH
    config.rows.plans = 2
    config.phases = ((LENGTH, 10, 16),)
    return config


def batch_of(config, store):
    """A batch of the fourth pass, where static and dynamic masks part ways."""
    spec = specs.batch_spec(config, LENGTH)
    phase = batches.Phase(store, spec, 16)
    return phase.batch(3 * phase.stream.cycle, range(16))


def parameters_of(config, store):
    encoder = specs.encoder_spec(config, len(store.vocabulary))
    return step.init(encoder, specs.optimizer_spec(config), config.seed).params


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda s: f"{s[0]}={s[1]}")
def test_one_switch_changes_one_thing(toy_store, switch):
    usual, other = small(), small()
    path, value = switch
    group, name = path.split(".")
    assert other[group][name] != value
    other[group][name] = value
    before, after = batch_of(usual, toy_store), batch_of(other, toy_store)
    for field in set(before._fields) - {"given"}:
        equal = np.array_equal(getattr(before, field), getattr(after, field))
        assert equal == (field not in SWITCHES[switch]), field
    left, right = (parameters_of(c, toy_store) for c in (usual, other))
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for x, y in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "keys",
    [
        {"model.causal": True, "objectives.ltr": 1.0, "objectives.mlm": 0.0},
        {"objectives.generator": 1.0, "objectives.rtd": 50.0, "objectives.mlm": 0.0},
    ],
    ids=["ltr", "rtd"],
)
def test_objectives_share_the_encoder(toy_store, keys):
    """An objective with heads of its own leaves the parameters of the encoder alone."""
    usual, other = small(), small()
    for path, value in keys.items():
        group, name = path.split(".")
        other[group][name] = value
    left, right = (parameters_of(c, toy_store) for c in (usual, other))
    shared = set(left) & set(right)
    assert {"embeddings", "layers"} <= shared or shared == set(left)
    for part in shared:
        for x, y in zip(
            jax.tree.leaves(left[part]), jax.tree.leaves(right[part]), strict=True
        ):
            np.testing.assert_array_equal(x, y)
