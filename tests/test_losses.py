"""Losses: sums and weights, and the best guess."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import losses


def test_best_guess_is_argmax():
    logits = np.random.default_rng(0).integers(0, 4, (50, 7)).astype(np.float32)
    np.testing.assert_array_equal(
        losses.best_guess(jnp.asarray(logits)), logits.argmax(-1)
    )


def test_cross_entropy_and_sums():
    logits = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 5, (3, 4))
    weights = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], np.float32)
    scores = losses.cross_entropy(jnp.asarray(logits), labels, weights)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(log_p, labels[..., None], -1)[..., 0]
    np.testing.assert_allclose(scores.nll, nll * weights, rtol=1e-5)
    total = losses.sums(scores)
    assert total["weight"] == 6
    right = ((logits.argmax(-1) == labels) * weights).sum()
    assert total["correct"] == right
    assert losses.ratio(total["nll"], total["weight"]) == total["nll"] / 6


def test_uncounted_infinities_do_not_spread():
    def loss(x):
        scores = losses.cross_entropy(x, np.array([0, 1]), np.array([1.0, 0.0]))
        return losses.ratio(scores.nll.sum(), scores.weight.sum())

    value, grad = jax.value_and_grad(loss)(jnp.array([[0.0, 1.0], [3e38, -3e38]]))
    assert np.isfinite(value) and np.isfinite(grad).all() and (grad[1] == 0).all()


def test_ratio_of_nothing_is_zero_with_a_finite_gradient():
    value, grad = jax.value_and_grad(lambda x: losses.ratio(x, 0.0 * x))(2.0)
    assert value == 0 and np.isfinite(grad)
