"""Schedules, the decay mask and the 2018 optimizer, as optax transformations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

Array = Any
Schedule = Callable[[Array], Array]


def linear_2018(peak: float, warmup: int, total: int) -> Schedule:
    """The public script's schedule (optimization.py).

    Step t < warmup: peak * t / warmup, so the very first update has rate 0. After it:
    peak * (1 - t / total), a decay counted from step 0: the rate jumps down by
    warmup / total of the peak where warmup ends. 0 from ``total`` on.
    """

    def schedule(step: Array) -> Array:
        t = jnp.asarray(step).astype(jnp.float32)
        rising = peak * t / max(warmup, 1)
        falling = peak * (1.0 - jnp.minimum(t, total) / total)
        return jnp.where(t < warmup, rising, falling)

    return schedule


def linear_from_peak(peak: float, warmup: int, total: int) -> Schedule:
    """Warmup to the peak, then a straight line from the peak to 0 at ``total``."""

    def schedule(step: Array) -> Array:
        t = jnp.asarray(step).astype(jnp.float32)
        rising = peak * t / max(warmup, 1)
        left = (total - jnp.minimum(t, total)) / max(total - warmup, 1)
        return jnp.where(t < warmup, rising, peak * left)

    return schedule


def constant(peak: float, warmup: int, total: int) -> Schedule:
    """Warmup to the peak, then flat; 0 from ``total`` on."""

    def schedule(step: Array) -> Array:
        t = jnp.asarray(step).astype(jnp.float32)
        rate = peak * jnp.minimum(1.0, t / max(warmup, 1))
        return jnp.where(t < total, rate, 0.0)

    return schedule


SCHEDULES: dict[str, Callable[[float, int, int], Schedule]] = {
    "linear_2018": linear_2018,
    "linear_from_peak": linear_from_peak,
    "constant": constant,
}


def decayed(params: Any) -> Any:
    """Tree of bool: True where weight decay applies.

    The public script excludes by name: LayerNorm, layer_norm and bias, which takes in
    the MLM output bias; embeddings, pooler and head matrices are decayed.
    """

    def applies(path: tuple[Any, ...], _: Array) -> bool:
        names = [str(getattr(part, "key", part)) for part in path]
        return names[-1] != "bias" and "norm" not in names

    return jax.tree_util.tree_map_with_path(applies, params)


@dataclass(frozen=True)
class OptimizerSpec:
    """Everything the optimizer needs; see ``config.py`` for meanings and defaults."""

    learning_rate: float
    warmup_steps: int
    total_steps: int
    schedule: str = "linear_2018"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    bias_correction: bool = False

    def rate(self) -> Schedule:
        """Learning rate as a function of the step, which counts from 0."""
        make = SCHEDULES[self.schedule]
        return make(self.learning_rate, self.warmup_steps, self.total_steps)


def build(spec: OptimizerSpec) -> optax.GradientTransformation:
    """The 2018 optimizer (optimization.py), each deviation a field of ``spec``.

    m and v are running means of the gradient and its square; the update is
    -lr * (m / (sqrt(v) + eps) + decay * w). 2018 leaves out the bias correction that
    optax.adamw applies. The global norm of the mean gradient is clipped first
    (``clip_norm`` 0: not). The state is a plain dict {count, mean, square}, so that a
    checkpoint does not depend on classes.
    """
    rate, beta1, beta2 = spec.rate(), spec.beta1, spec.beta2
    clip = optax.clip_by_global_norm(spec.clip_norm or jnp.inf)

    def init(params: Any) -> dict[str, Any]:
        def zeros() -> Any:
            return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

        return {"count": jnp.zeros([], jnp.int32), "mean": zeros(), "square": zeros()}

    def update(grads: Any, state: dict[str, Any], params: Any = None) -> Any:
        grads, _ = clip.update(grads, optax.EmptyState())
        mean = jax.tree.map(
            lambda m, g: beta1 * m + (1 - beta1) * g, state["mean"], grads
        )
        square = jax.tree.map(
            lambda v, g: beta2 * v + (1 - beta2) * jnp.square(g), state["square"], grads
        )
        t = (state["count"] + 1).astype(jnp.float32)
        fix1 = 1 - beta1**t if spec.bias_correction else 1.0
        fix2 = 1 - beta2**t if spec.bias_correction else 1.0
        lr = rate(state["count"])

        def change(m: Array, v: Array, w: Array, decays: bool) -> Array:
            step = (m / fix1) / (jnp.sqrt(v / fix2) + spec.epsilon)
            return -lr * (step + spec.weight_decay * w if decays else step)

        updates = jax.tree.map(change, mean, square, params, decayed(params))
        new = {"count": state["count"] + 1, "mean": mean, "square": square}
        return updates, new

    return optax.GradientTransformation(init, update)
