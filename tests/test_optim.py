"""The 2018 optimizer against its arithmetic written out in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax import encoder, optim
from bert_jax.optim import OptimizerSpec


def test_schedule_of_the_script():
    rate = optim.linear_2018(1e-4, 10_000, 1_000_000)
    assert rate(0) == 0.0  # the very first update does nothing
    assert np.isclose(rate(9_999), 1e-4 * 0.9999)
    assert np.isclose(rate(10_000), 1e-4 * 0.99)  # the 1 % step down
    assert np.isclose(rate(500_000), 5e-5)
    assert rate(1_000_000) == 0.0 and rate(2_000_000) == 0.0


def test_schedule_from_peak_is_continuous():
    rate = optim.linear_from_peak(1.0, 10, 110)
    assert np.isclose(rate(9), 0.9) and rate(10) == 1.0 and np.isclose(rate(60), 0.5)
    assert rate(110) == 0.0 and rate(500) == 0.0


def tree():
    draw = np.random.default_rng(0)
    return {
        "dense": {"kernel": draw.normal(size=(3, 4)), "bias": draw.normal(size=4)},
        "norm": {"scale": draw.normal(size=4), "bias": draw.normal(size=4)},
    }


@pytest.mark.quick
@pytest.mark.parametrize("corrected", [False, True])
def test_against_numpy(corrected):
    spec = OptimizerSpec(0.1, 2, 10, clip_norm=1.0, bias_correction=corrected)
    tx = optim.build(spec)
    params = jax.tree.map(jnp.asarray, tree())
    state = tx.init(params)
    w = {k: np.asarray(v) for k, v in flat(params).items()}
    m = {k: np.zeros_like(v) for k, v in w.items()}
    v = {k: np.zeros_like(x) for k, x in w.items()}
    draw = np.random.default_rng(1)
    for t in range(5):
        grads = jax.tree.map(lambda p: 3 * draw.normal(size=p.shape), params)
        updates, state = tx.update(jax.tree.map(jnp.asarray, grads), state, params)
        params = optax.apply_updates(params, updates)
        g = flat(grads)
        norm = np.sqrt(sum((x**2).sum() for x in g.values()))
        lr = 0.1 * t / 2 if t < 2 else 0.1 * (1 - t / 10)
        for k in w:
            clipped = g[k] / max(norm, 1.0)
            m[k] = 0.9 * m[k] + 0.1 * clipped
            v[k] = 0.999 * v[k] + 0.001 * clipped**2
            fix1, fix2 = (
                (1 - 0.9 ** (t + 1), 1 - 0.999 ** (t + 1)) if corrected else (1, 1)
            )
            step = m[k] / fix1 / (np.sqrt(v[k] / fix2) + 1e-6)
            if k == "dense/kernel":
                step = step + 0.01 * w[k]
            w[k] = w[k] - lr * step
        for k, x in flat(params).items():
            np.testing.assert_allclose(x, w[k], rtol=2e-5, atol=1e-6)
    assert state["count"] == 5


def flat(params):
    paths = jax.tree_util.tree_leaves_with_path(params)
    return {"/".join(p.key for p in path): np.asarray(x) for path, x in paths}


def test_decay_leaves_out_norms_and_biases():
    spec = encoder.EncoderSpec(100, 2, 64, 1, 128)
    mask = optim.decayed(encoder.parameter_shapes(spec))
    off = {path for path, on in flat(mask).items() if not on}
    assert off == {
        path
        for path in flat(mask)
        if path.endswith("/bias") or "/norm/" in path or path == "mlm/bias"
    }
    assert "mlm/bias" in off and "embeddings/norm/scale" in off
    for path in ("embeddings/word/table", "embeddings/position/table", "pooler/kernel",
                 "nsp/kernel", "layers/attention/qkv/kernel"):  # fmt: skip
        assert path not in off


def test_clip_off():
    spec = OptimizerSpec(1.0, 0, 10, clip_norm=0.0)
    tx = optim.build(spec)
    params = {"kernel": jnp.zeros(3)}
    _, state = tx.update({"kernel": jnp.full(3, 1e3)}, tx.init(params), params)
    np.testing.assert_allclose(state["mean"]["kernel"], 100.0, rtol=1e-6)
