"""One attention function, so that a faster kernel has one place to go."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax import draws

Array = Any


def attention(
    q_BTHd: Array,
    k_BTHd: Array,
    v_BTHd: Array,
    pairs_BT: Array,
    words_B2: Array | None = None,
    layer: Array | int = 0,
    site: int = 0,
    rate: float = 0.0,
    causal: bool = False,
) -> Array:
    """Scaled dot-product attention inside each packed pair, [B, T, H, head width].

    Args:
      q_BTHd, k_BTHd, v_BTHd: queries, keys, values.
      pairs_BT: int, pair number of each position, 0 = padding. A position attends to
        positions of equal number; padding attends to padding, so that no row of the
        softmax is empty and no result of a real position depends on padding.
      words_B2, layer, site, rate: dropout of the probabilities (``draws.dropout``).
      causal: a position attends to itself and to those before it alone.

    The 2018 code adds -10000 to masked scores; a masked probability is exactly 0 in
    float32 either way.
    """
    scale = 1.0 / math.sqrt(q_BTHd.shape[-1])
    scores_BHTT = jnp.einsum(
        "bqhd,bkhd->bhqk", q_BTHd * scale, k_BTHd, preferred_element_type=jnp.float32
    )
    together = pairs_BT[:, None, :, None] == pairs_BT[:, None, None, :]
    if causal:
        place = jnp.arange(pairs_BT.shape[1])
        together &= (place[:, None] >= place[None, :])[None, None]
    scores_BHTT = jnp.where(together, scores_BHTT, -1e30)
    probs_BHTT = jax.nn.softmax(scores_BHTT, axis=-1)
    probs_BHTT = draws.dropout(probs_BHTT, words_B2, layer, site, rate)
    return jnp.einsum("bhqk,bkhd->bqhd", probs_BHTT.astype(v_BTHd.dtype), v_BTHd)
