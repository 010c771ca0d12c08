"""The encoder and its heads: the only package that knows Flax.

The rest of the project sees parameters as a plain nested dict of arrays and the
functions named here.
"""

from typing import TYPE_CHECKING, Any

from bert_jax.encoder.spec import SIZES, EncoderSpec

if TYPE_CHECKING:
    from bert_jax.encoder.model import (
        detection_logits,
        embedding_logits,
        encode,
        generator_logits,
        init,
        next_sentence_logits,
        parameter_shapes,
        pool,
    )

__all__ = [
    "SIZES",
    "EncoderSpec",
    "detection_logits",
    "embedding_logits",
    "encode",
    "generator_logits",
    "init",
    "next_sentence_logits",
    "parameter_shapes",
    "pool",
]


def __getattr__(name: str) -> Any:
    # Lazy: a configuration needs sizes alone, and jax and flax take a second and
    # 150 MB in every process that reads text.
    if name in __all__:
        from bert_jax.encoder import model

        return getattr(model, name)
    raise AttributeError(f"module 'bert_jax.encoder' has no attribute {name!r}")
