"""Dropout: rates, scaling, and that its bits belong to an address."""

import jax
import numpy as np
import pytest

from bert_jax import draws


def words(step=0, rows=64, seed=0, first=0):
    return draws.dropout_words(seed, step, np.arange(first, first + rows))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_rate_and_scale(rate):
    x = np.ones((64, 100, 32), np.float32)
    y = np.asarray(draws.dropout(x, words(), 3, 1, rate))
    kept = y != 0
    assert abs(kept.mean() - (1 - rate)) < 4 * (rate * (1 - rate) / y.size) ** 0.5
    np.testing.assert_allclose(y[kept], 1 / (1 - rate), rtol=1e-6)
    # No row, column or cell is favoured: means over each axis stay within 5 sigma.
    for axes in ((1, 2), (0, 2), (0, 1)):
        means = kept.mean(axes)
        n = y.size / means.size
        assert abs(means - (1 - rate)).max() < 5 * (rate * (1 - rate) / n) ** 0.5


def test_neighbours_are_uncorrelated():
    x = np.ones((64, 4096), np.float32)
    bits = np.asarray(draws.dropout(x, words(), 0, 0, 0.5)) != 0
    other = np.asarray(draws.dropout(x, words(), 1, 0, 0.5)) != 0
    step = np.asarray(draws.dropout(x, words(step=1), 0, 0, 0.5)) != 0
    limit = 4.5 / bits.size**0.5

    def correlation(a, b):
        return abs(((2.0 * a - 1) * (2.0 * b - 1)).mean())

    for lag in (1, 2, 32, 64, 1024):
        assert correlation(bits[:, lag:], bits[:, :-lag]) < limit * 1.2
    assert correlation(bits[1:], bits[:-1]) < limit * 1.2
    assert correlation(bits, other) < limit
    assert correlation(bits, step) < limit


def test_addressed_by_place():
    x = np.ones((8, 50), np.float32)
    whole = draws.dropout(x, words(rows=8), 2, 1, 0.3)
    half = draws.dropout(x[:4], words(rows=4, first=4), 2, 1, 0.3)
    np.testing.assert_array_equal(whole[4:], half)
    for layer, site in ((2, 2), (3, 1)):
        assert (
            np.asarray(draws.dropout(x, words(rows=8), layer, site, 0.3)) != whole
        ).any()


def test_off_is_untouched():
    x = np.ones((2, 3), np.float32)
    assert draws.dropout(x, None, 0, 0, 0.5) is x
    assert draws.dropout(x, words(rows=2), 0, 0, 0.0) is x


def test_traced_layer_equals_constant():
    x, w = np.ones((2, 64), np.float32), words(rows=2)
    scanned = jax.jit(lambda layer: draws.dropout(x, w, layer, 1, 0.5))(2)
    np.testing.assert_array_equal(scanned, draws.dropout(x, w, 2, 1, 0.5))
