"""One training step and one evaluation step: pure functions of (state, batch)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax import draws, encoder, losses, optim
from bert_jax.batch import Batch
from bert_jax.corruption import KEPT, MASKED, RANDOMED, MaskSpec, Targets
from bert_jax.encoder import EncoderSpec
from bert_jax.objectives import OBJECTIVES, Forward, rule_of
from bert_jax.optim import OptimizerSpec
from bert_jax.rules import RULES

Array = Any


class State(NamedTuple):
    """Everything that changes while training."""

    step: Array  # int32, updates done
    params: Any
    optimizer: Any


@dataclass(frozen=True)
class StepSpec:
    """Static facts of a step; one compiled program per phase."""

    encoder: EncoderSpec
    masks: MaskSpec
    optimizer: OptimizerSpec
    objectives: tuple[tuple[str, float], ...]  # name, weight in the total
    length: int  # T of the phase; addresses the masks
    seed: int
    micro_batches: int = 1


def init(spec: EncoderSpec, optimizer: OptimizerSpec, seed: int) -> State:
    """State before the first step."""
    params = encoder.init(draws.stream_key(seed, draws.Stream.INIT), spec)
    return State(jnp.zeros([], jnp.int32), params, optim.build(optimizer).init(params))


def corrupt(
    batch: Batch,
    spec: MaskSpec,
    length: int,
    seed: int,
    stream: draws.Stream,
    rule: str = "masked",
) -> tuple[Array, Targets]:
    """The tokens of a batch that the model sees, and its targets."""
    keys_BP = draws.mask_keys(
        seed, stream, length, batch.plans_BP, batch.rows_BP, batch.reads_BP
    )
    return RULES[rule](keys_BP, batch, spec)


def _split(tree: Any, parts: int) -> Any:
    """[B, ...] -> [parts, B / parts, ...]; each part takes every parts-th row.

    Strided, so that the rows a device holds stay on it when B lies over devices.
    """
    return jax.tree.map(
        lambda x: x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1),
        tree,
    )


def _join(x: Array) -> Array:
    """Inverse of ``_split`` for one array."""
    x = x.swapaxes(0, 1)
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _counts(batch: Batch, targets: Targets) -> dict[str, Array]:
    """What a step trained on, as ``tally.NAMES`` says; int32 sums."""
    used = targets.weights_BK > 0
    kinds = {"masked": MASKED, "random": RANDOMED, "kept": KEPT}
    labelled = batch.weight_BP > 0
    return {
        "rows": jnp.int32(len(batch.place_B)),
        "tokens": (batch.pairs_BT > 0).sum(),
        "places": jnp.int32(batch.pairs_BT.size),
        **{name: (used & (targets.kinds_BK == k)).sum() for name, k in kinds.items()},
        "surplus": targets.surplus_B.sum(),
        "pairs": batch.pairs_BT.max(axis=1).sum(),
        "labelled": labelled.sum(),
        "label_1": (labelled & (batch.label_BP == 1)).sum(),
        "without_target": 1 - used.any().astype(jnp.int32),
    }


def make_train_step(
    spec: StepSpec,
) -> Callable[[State, Batch], tuple[State, dict[str, Any]]]:
    """``train_step(state, batch) -> (state, metrics)``, to be jitted by the caller.

    The whole batch is corrupted first, so the denominators of the loss are known; then
    micro-batches add up gradients of sum / (global weight). Any number of micro-batches
    gives the same loss and gradient, to float tolerance.

    A loss or gradient that is not finite changes nothing: the returned state is the
    one before the step, with the step count advanced, and ``metrics["finite"]`` says
    so. Metrics hold global sums, and ``row_nll`` [B], each row's summed MLM and NSP
    loss, for naming rows.
    """
    rule = rule_of(name for name, _ in spec.objectives)
    optimizer, rate = optim.build(spec.optimizer), spec.optimizer.rate()

    def loss(
        params: Any,
        batch: Batch,
        tokens_BT: Array,
        targets: Targets,
        words_B2: Array,
        totals: dict[str, Array],
    ) -> tuple[Array, dict[str, Any]]:
        address = (spec.seed, spec.length)
        forward = Forward(
            params, batch, tokens_BT, targets, spec.encoder, address, words_B2
        )
        total, aux, row_nll = jnp.float32(0), {}, jnp.zeros(tokens_BT.shape[0])
        for name, weight in spec.objectives:
            scores = OBJECTIVES[name].score(forward)
            aux[name] = losses.sums(scores)
            total += weight * losses.ratio(aux[name]["nll"], totals[name])
            row_nll += scores.nll.sum(axis=1)
        return total, {"sums": aux, "row_nll": row_nll}

    def train_step(state: State, batch: Batch) -> tuple[State, dict[str, Any]]:
        tokens_BT, targets = corrupt(
            batch, spec.masks, spec.length, spec.seed, draws.Stream.MASKS, rule
        )
        words_B2 = draws.dropout_words(spec.seed, state.step, batch.place_B)
        totals = {
            name: OBJECTIVES[name].weights(batch, targets).sum()
            for name, _ in spec.objectives
        }
        gradient = jax.value_and_grad(loss, has_aux=True)
        inputs = (batch, tokens_BT, targets, words_B2)
        if spec.micro_batches == 1:
            (total, aux), grads = gradient(state.params, *inputs, totals)
        else:

            def add(carry: Any, part: Any) -> tuple[Any, Array]:
                (total, aux), grads = gradient(state.params, *part, totals)
                new = (total, aux["sums"], grads)
                return jax.tree.map(jnp.add, carry, new), aux["row_nll"]

            parts = _split(inputs, spec.micro_batches)
            first = jax.tree.map(lambda x: x[0], parts)
            shapes = jax.eval_shape(gradient, state.params, *first, totals)
            (total_shape, aux_shape), grads_shape = shapes
            zeros = jax.tree.map(
                lambda s: jnp.zeros(s.shape, s.dtype),
                (total_shape, aux_shape["sums"], grads_shape),
            )
            (total, sums, grads), row_nll = jax.lax.scan(add, zeros, parts)
            aux = {"sums": sums, "row_nll": _join(row_nll)}

        norm = optax.global_norm(grads)
        finite = jnp.isfinite(total) & jnp.isfinite(norm)
        updates, moments = optimizer.update(grads, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        params, moments = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old),
            (params, moments),
            (state.params, state.optimizer),
        )
        metrics = {
            "loss": total,
            "finite": finite,
            "gradient_norm": norm,
            "learning_rate": rate(state.step),
            "counts": _counts(batch, targets),
            **aux,
        }
        return State(state.step + 1, params, moments), metrics

    return train_step


def make_eval_step(
    spec: EncoderSpec, masks: MaskSpec, length: int, seed: int, names: tuple[str, ...]
) -> Callable[[Any, Batch], dict[str, Any]]:
    """``eval_step(params, batch)`` -> scores of every prediction, dropout off.

    Scores by objective. Where masked tokens are predicted by the encoder itself,
    ``uncorrupted`` are scores of the same positions with nothing hidden. ``kinds`` and
    ``labels`` int [B, K] are those of the targets, ``replaced`` bool [B, T] where a
    generator changed a token.
    """
    rule = rule_of(names)

    def eval_step(params: Any, batch: Batch) -> dict[str, Any]:
        tokens_BT, targets = corrupt(
            batch, masks, length, seed, draws.Stream.EVAL_MASKS, rule
        )
        seen = Forward(params, batch, tokens_BT, targets, spec, (seed, length))
        out = {name: OBJECTIVES[name].score(seen) for name in names}
        if "mlm" in names:
            plain = Forward(
                params, batch, batch.tokens_BT, targets, spec, (seed, length)
            )
            out["uncorrupted"] = OBJECTIVES["mlm"].score(plain)
        if "rtd" in names:
            out["replaced"] = seen.filled_BT != batch.tokens_BT
        return {**out, "kinds": targets.kinds_BK, "labels": targets.labels_BK}

    return eval_step
