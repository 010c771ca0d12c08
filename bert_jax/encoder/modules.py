"""Flax NNX modules of BERT: post-LN blocks, embeddings, heads.

Modules hold parameters and say what one block computes. Randomness comes in as an
address (``draws``), never as module state, so no generator ends up in a checkpoint.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax import draws
from bert_jax.attention import attention
from bert_jax.encoder.spec import EncoderSpec

Array = Any

# Sites of dropout inside a layer: part of every draw's address.
PROBABILITIES, ATTENTION_OUT, FFN_OUT, EMBEDDINGS, GENERATOR_EMBEDDINGS = range(5)


def gelu(x: Array, form: str) -> Array:
    """ "tanh": x * Phi approximated with tanh (0.044715); "erf": exact."""
    return jax.nn.gelu(x, approximate=form == "tanh")


def _matrix(spec: EncoderSpec) -> Any:
    # 0.02 is the deviation before the cut at two sigma; what remains has 0.0176.
    return nnx.initializers.truncated_normal(spec.initializer_range)


def _dtype(spec: EncoderSpec) -> Any:
    return jnp.dtype(spec.compute_dtype)


class Dense(nnx.Module):
    """``x @ kernel + bias`` over the last axes of x; kernel [*inputs, *outputs]."""

    def __init__(
        self,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        spec: EncoderSpec,
        rngs: nnx.Rngs,
    ):
        self.kernel = nnx.Param(_matrix(spec)(rngs.params(), (*inputs, *outputs)))
        self.bias = nnx.Param(jnp.zeros(outputs))
        self.axes = len(inputs)
        self.dtype = _dtype(spec)

    def __call__(self, x: Array) -> Array:
        # One plain matrix product: XLA's CPU backend takes more than twice the time
        # for the gradient of the same contraction over several row axes.
        inputs, outputs = self.kernel.shape[: self.axes], self.kernel.shape[self.axes :]
        rows = x.shape[: x.ndim - self.axes]
        kernel = self.kernel[...].astype(self.dtype)
        kernel = kernel.reshape(math.prod(inputs), math.prod(outputs))
        x = x.astype(self.dtype).reshape(math.prod(rows), math.prod(inputs))
        y = (x @ kernel).reshape(*rows, *outputs)
        return y + self.bias[...].astype(self.dtype)


class Norm(nnx.Module):
    """LayerNorm over the last axis, statistics in float32."""

    def __init__(self, width: int, spec: EncoderSpec):
        self.scale = nnx.Param(jnp.ones((width,)))
        self.bias = nnx.Param(jnp.zeros((width,)))
        self.epsilon = spec.layer_norm_epsilon
        self.dtype = _dtype(spec)

    def __call__(self, x: Array) -> Array:
        x = x.astype(jnp.float32)
        centred = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        y = centred * jax.lax.rsqrt(variance + self.epsilon)
        return (y * self.scale[...] + self.bias[...]).astype(self.dtype)


class Table(nnx.Module):
    """An embedding table [rows, width]."""

    def __init__(self, rows: int, width: int, spec: EncoderSpec, rngs: nnx.Rngs):
        self.table = nnx.Param(_matrix(spec)(rngs.params(), (rows, width)))
        self.dtype = _dtype(spec)

    def __call__(self, ids: Array) -> Array:
        return self.table[...][ids].astype(self.dtype)


class Embeddings(nnx.Module):
    """Word + position + segment, LayerNorm, dropout."""

    def __init__(self, spec: EncoderSpec, rngs: nnx.Rngs):
        self.word = Table(spec.vocab_size, spec.width, spec, rngs)
        self.position = Table(spec.max_positions, spec.width, spec, rngs)
        self.segment = Table(spec.segment_types, spec.width, spec, rngs)
        self.norm = Norm(spec.width, spec)
        self.rate = spec.dropout

    def __call__(
        self,
        tokens_BT: Array,
        segments_BT: Array,
        positions_BT: Array,
        words_B2: Array | None,
        site: int = EMBEDDINGS,
    ) -> Array:
        x_BTD = (
            self.word(tokens_BT)
            + self.position(positions_BT)
            + self.segment(segments_BT)
        )
        return draws.dropout(self.norm(x_BTD), words_B2, 0, site, self.rate)


class Attention(nnx.Module):
    """Self-attention with biases, output projection, dropout, add, LayerNorm."""

    def __init__(self, spec: EncoderSpec, rngs: nnx.Rngs):
        head = spec.width // spec.heads
        self.qkv = Dense((spec.width,), (3, spec.heads, head), spec, rngs)
        self.out = Dense((spec.heads, head), (spec.width,), spec, rngs)
        self.norm = Norm(spec.width, spec)
        self.rate, self.probability_rate = spec.dropout, spec.attention_dropout
        self.causal = spec.causal

    def __call__(
        self, x_BTD: Array, pairs_BT: Array, words_B2: Array | None, layer: Array
    ) -> Array:
        qkv_BT3Hd = self.qkv(x_BTD)
        q, k, v = (qkv_BT3Hd[:, :, which] for which in range(3))
        y_BTHd = attention(
            q,
            k,
            v,
            pairs_BT,
            words_B2,
            layer,
            PROBABILITIES,
            self.probability_rate,
            self.causal,
        )
        y_BTD = self.out(y_BTHd)
        y_BTD = draws.dropout(y_BTD, words_B2, layer, ATTENTION_OUT, self.rate)
        return self.norm(x_BTD + y_BTD)


class FeedForward(nnx.Module):
    """Dense, gelu, dense, dropout, add, LayerNorm."""

    def __init__(self, spec: EncoderSpec, rngs: nnx.Rngs):
        self.up = Dense((spec.width,), (spec.inner,), spec, rngs)
        self.down = Dense((spec.inner,), (spec.width,), spec, rngs)
        self.norm = Norm(spec.width, spec)
        self.rate, self.gelu = spec.dropout, spec.gelu

    def __call__(self, x_BTD: Array, words_B2: Array | None, layer: Array) -> Array:
        y_BTD = self.down(gelu(self.up(x_BTD), self.gelu))
        y_BTD = draws.dropout(y_BTD, words_B2, layer, FFN_OUT, self.rate)
        return self.norm(x_BTD + y_BTD)


class Layer(nnx.Module):
    """One transformer layer of the 2018 code."""

    def __init__(self, spec: EncoderSpec, rngs: nnx.Rngs):
        self.attention = Attention(spec, rngs)
        self.ffn = FeedForward(spec, rngs)

    def __call__(
        self, x_BTD: Array, pairs_BT: Array, words_B2: Array | None, layer: Array
    ) -> Array:
        x_BTD = self.attention(x_BTD, pairs_BT, words_B2, layer)
        return self.ffn(x_BTD, words_B2, layer)


class VocabularyHead(nnx.Module):
    """Dense, gelu, LayerNorm; then the word table, transposed, and its own bias.

    ``inputs`` is the width of what it reads, that of the word table by default.
    """

    def __init__(self, spec: EncoderSpec, rngs: nnx.Rngs, inputs: int = 0):
        self.dense = Dense((inputs or spec.width,), (spec.width,), spec, rngs)
        self.norm = Norm(spec.width, spec)
        self.bias = nnx.Param(jnp.zeros((spec.vocab_size,)))
        self.gelu, self.dtype = spec.gelu, _dtype(spec)

    def __call__(self, x_BKD: Array, table_VD: Array) -> Array:
        y_BKD = self.norm(gelu(self.dense(x_BKD), self.gelu))
        B, K, D = y_BKD.shape
        # Rounded to bfloat16, logits would decide the loss by steps of 1/128.
        logits = jnp.matmul(
            y_BKD.reshape(B * K, D),
            table_VD.astype(self.dtype).T,
            preferred_element_type=jnp.float32,
        )
        return logits.reshape(B, K, -1) + self.bias[...]


class DetectionHead(nnx.Module):
    """One logit a position: dense, gelu, dense (Clark et al. 2020, ELECTRA)."""

    def __init__(self, spec: EncoderSpec, rngs: nnx.Rngs):
        self.dense = Dense((spec.width,), (spec.width,), spec, rngs)
        self.out = Dense(
            (spec.width,), (1,), replace(spec, compute_dtype="float32"), rngs
        )
        self.gelu = spec.gelu

    def __call__(self, x_BTD: Array) -> Array:
        return self.out(gelu(self.dense(x_BTD), self.gelu))[..., 0]
