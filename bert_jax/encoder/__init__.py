"""The encoder and its heads: the only package that knows Flax.

The rest of the project sees parameters as a plain nested dict of arrays and the
functions named here.
"""

from bert_jax.encoder.model import (
    embedding_logits,
    encode,
    init,
    next_sentence_logits,
    parameter_shapes,
    pool,
)
from bert_jax.encoder.spec import SIZES, EncoderSpec

__all__ = [
    "SIZES",
    "EncoderSpec",
    "embedding_logits",
    "encode",
    "init",
    "next_sentence_logits",
    "parameter_shapes",
    "pool",
]
