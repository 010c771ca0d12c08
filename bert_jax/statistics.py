"""Ratios with standard errors, clustered by document."""

from typing import NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """A ratio and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4f}±{self.error:.4f}"


def ratio(sums: np.ndarray, weights: np.ndarray, clusters: np.ndarray) -> Estimate:
    """sum(sums) / sum(weights) with a cluster-robust standard error.

    Rows of one document are not independent draws, and one document gives rows to many
    plans; residuals are therefore added within documents before they are squared (the
    linearised ratio estimator of survey sampling).

    Args:
      sums: float [n], numerator of each row.
      weights: float [n], denominator of each row.
      clusters: int [n], the document of each row.
    """
    total = float(weights.sum())
    if total == 0:
        return Estimate(0.0, 0.0)
    value = float(sums.sum()) / total
    _, number = np.unique(clusters, return_inverse=True)
    residuals = np.bincount(number, sums - value * weights)
    count = len(residuals)
    if count < 2:
        return Estimate(value, float("inf"))
    variance = count / (count - 1) * float(np.square(residuals).sum())
    return Estimate(value, variance**0.5 / total)
