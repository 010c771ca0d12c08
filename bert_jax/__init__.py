"""BERT research in JAX: the 2018 recipe exactly, each later correction as one switch.

``bert_jax.load(RUN)`` opens a checkpoint. Importing this package imports nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.pretrained import Pretrained, load

__version__ = "0.1.0"
__all__ = ["Pretrained", "load"]


def __getattr__(name: str) -> Any:
    # Lazy: reading a vocabulary or planning rows must not cost an import of jax.
    if name in __all__:
        from bert_jax import pretrained

        return getattr(pretrained, name)
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
