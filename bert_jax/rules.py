"""What the model sees and what it must predict, by rule: pure functions on the device.

``masked`` is the masking rule itself (``corruption``). The other two draw nothing.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from bert_jax import corruption
from bert_jax.batch import Batch
from bert_jax.corruption import KEPT, MASKED, RANDOMED, MaskSpec, Targets

Array = Any


def masked(keys_BP: Array, batch: Batch, spec: MaskSpec) -> tuple[Array, Targets]:
    """BERT's rule, or the masks that came with the rows."""
    if batch.given is not None:
        return given(keys_BP, batch, spec)
    return corruption.corrupt(keys_BP, batch, spec)


def given(keys_BP: Array, batch: Batch, spec: MaskSpec) -> tuple[Array, Targets]:
    """Masks that another program drew (the public script, or its records).

    A position that holds what it held before counts as kept; the records do not say
    whether a random token was drawn that happens to be the same.
    """
    del keys_BP
    positions_BK, tokens_BK, used_BK = batch.given
    tokens_BT = jnp.asarray(batch.tokens_BT)
    labels_BK = jnp.take_along_axis(tokens_BT, positions_BK, axis=1)
    kinds_BK = jnp.where(
        tokens_BK == spec.mask_id,
        MASKED,
        jnp.where(tokens_BK == labels_BK, KEPT, RANDOMED),
    )
    rows, end = jnp.arange(len(tokens_BT))[:, None], tokens_BT.shape[1]
    # An unused slot writes past the end, which `drop` ignores.
    places_BK = jnp.where(used_BK, positions_BK, end)
    seen_BT = tokens_BT.at[rows, places_BK].set(tokens_BK, mode="drop")
    return seen_BT, Targets(
        positions_BK,
        labels_BK,
        used_BK.astype(jnp.float32),
        kinds_BK.astype(jnp.int32),
        jnp.zeros(len(tokens_BT), jnp.int32),
    )


def left_to_right(
    keys_BP: Array, batch: Batch, spec: MaskSpec
) -> tuple[Array, Targets]:
    """Every token from those before it; nothing is hidden but by causal attention.

    Devlin et al. 2018, section 5.1 ("LTR & No NSP"). Predicted are the tokens a mask
    could fall on: no [CLS], [SEP] or padding; the first is predicted from [CLS].
    """
    del keys_BP, spec
    tokens_BT = jnp.asarray(batch.tokens_BT)
    B, T = tokens_BT.shape
    together = batch.pairs_BT[:, 1:] == batch.pairs_BT[:, :-1]
    predicted_BK = batch.maskable_BT[:, 1:] & together
    return tokens_BT, Targets(
        jnp.broadcast_to(jnp.arange(T - 1, dtype=jnp.int32), (B, T - 1)),
        tokens_BT[:, 1:],
        predicted_BK.astype(jnp.float32),
        jnp.full((B, T - 1), KEPT, jnp.int32),
        jnp.zeros(B, jnp.int32),
    )


RULES: dict[str, Callable[..., tuple[Array, Targets]]] = {
    "masked": masked,
    "left_to_right": left_to_right,
}
