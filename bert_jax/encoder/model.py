"""``init`` and ``encode``: parameters are a plain dict, layers are scanned.

Tree of parameters, with L layers stacked on the leading axis of everything under
``layers`` (scanning compiles one layer instead of L):

    embeddings   word.table [V,D]  position.table [512,D]  segment.table [2,D]  norm
    layers       attention: qkv [L,D,3,H,d]  out [L,H,d,D]  norm
                 ffn: up [L,D,F]  down [L,F,D]  norm
    pooler       kernel [D,D]  bias [D]
    mlm          dense  norm  bias [V]
    nsp          kernel [D,2]  bias [2]

With a generator of width G (replaced-token detection) there are also

    generator    project [D,G]  layers as above, of width G  mlm
    rtd          dense [D,D]  out [D,1]
"""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from bert_jax.batch import Batch
from bert_jax.encoder import modules
from bert_jax.encoder.spec import EncoderSpec

Array = Any
Params = dict[str, Any]

UNROLLED = 4  # layers up to which the scan is unrolled


def _parts(spec: EncoderSpec) -> dict[str, Any]:
    """Constructors of the unstacked parts, in the order their keys are drawn."""
    D = spec.width
    parts = {
        "embeddings": lambda rngs: modules.Embeddings(spec, rngs),
        "layers": lambda rngs: modules.Layer(spec, rngs),
        "pooler": lambda rngs: modules.Dense((D,), (D,), spec, rngs),
        "mlm": lambda rngs: modules.VocabularyHead(spec, rngs),
        # Two numbers a pair: nothing is saved by rounding them.
        "nsp": lambda rngs: modules.Dense(
            (D,), (2,), replace(spec, compute_dtype="float32"), rngs
        ),
    }
    if spec.generator:
        small = spec.generator_spec()
        G = small.width
        # New parts come last, so that the others keep their keys.
        parts |= {
            "generator.project": lambda rngs: modules.Dense((D,), (G,), spec, rngs),
            "generator.layers": lambda rngs: modules.Layer(small, rngs),
            "generator.mlm": lambda rngs: modules.VocabularyHead(spec, rngs, G),
            "rtd": lambda rngs: modules.DetectionHead(spec, rngs),
        }
    return parts


@functools.cache
def _structure(spec: EncoderSpec, part: str) -> Any:
    """The module without its arrays."""
    make = _parts(spec)[part]
    return nnx.graphdef(nnx.eval_shape(lambda: make(nnx.Rngs(0))))


def _module(spec: EncoderSpec, part: str, params: Params) -> Any:
    return nnx.merge(_structure(spec, part), params)


def init(key: Array, spec: EncoderSpec) -> Params:
    """Fresh parameters in float32: truncated normal matrices, zero biases.

    Raises:
      ValueError: the width does not split over the heads.
    """
    if spec.width % spec.heads:
        raise ValueError(
            f"model.width={spec.width} does not split over model.heads={spec.heads}; "
            "use a width that is a multiple of the heads, e.g. 64 times their number"
        )

    def make(part: str, key: Array) -> Params:
        module = _parts(spec)[part](nnx.Rngs(params=key))
        return nnx.to_pure_dict(nnx.state(module, nnx.Param))

    params: Params = {}
    for number, part in enumerate(_parts(spec)):
        part_key = jax.random.fold_in(key, number)
        *group, name = part.split(".")
        place = params.setdefault(group[0], {}) if group else params
        if name == "layers":
            each = jax.random.split(part_key, spec.layers)
            place[name] = jax.vmap(functools.partial(make, part))(each)
        else:
            place[name] = make(part, part_key)
    return params


def parameter_shapes(spec: EncoderSpec) -> Params:
    """The tree of ``init`` as shapes and dtypes, nothing computed."""
    return jax.eval_shape(lambda: init(jax.random.key(0), spec))


def encode(
    params: Params,
    batch: Batch,
    tokens_BT: Array,
    spec: EncoderSpec,
    words_B2: Array | None = None,
) -> Array:
    """Hidden states of the last layer, [B, T, D].

    Args:
      params: the tree described above.
      batch: for segments, positions and pair numbers.
      tokens_BT: int32, what the model sees (corrupted or not).
      spec: sizes.
      words_B2: address of this step's dropout (``draws.dropout_words``); None turns
        dropout off.
    """
    x_BTD = _module(spec, "embeddings", params["embeddings"])(
        tokens_BT, batch.segments_BT, batch.positions_BT, words_B2
    )

    return _stack(params["layers"], x_BTD, batch, spec, "layers", words_B2, 0)


def _stack(
    layers: Params,
    x_BTD: Array,
    batch: Batch,
    spec: EncoderSpec,
    part: str,
    words_B2: Array | None,
    first: int,
) -> Array:
    """Runs a stack of layers; ``first`` is the address of its dropout."""

    def layer(x_BTD: Array, stacked: tuple[Params, Array]) -> tuple[Array, None]:
        layer_params, index = stacked
        block = _module(spec, part, layer_params)
        return block(x_BTD, batch.pairs_BT, words_B2, index), None

    indices = first + jnp.arange(spec.layers)
    # A loop of few layers costs a fifth of the step on a CPU and saves no compile time.
    unroll = spec.layers if spec.layers <= UNROLLED else 1
    x_BTD, _ = jax.lax.scan(layer, x_BTD, (layers, indices), unroll=unroll)
    return x_BTD


def generator_logits(
    params: Params,
    batch: Batch,
    tokens_BT: Array,
    positions_BK: Array,
    spec: EncoderSpec,
    words_B2: Array | None = None,
) -> Array:
    """MLM logits [B, K, V] of the generator, on the encoder's own embeddings.

    Clark et al. 2020 (ELECTRA), section 3.2: token and position embeddings are shared.
    """
    x_BTD = _module(spec, "embeddings", params["embeddings"])(
        tokens_BT,
        batch.segments_BT,
        batch.positions_BT,
        words_B2,
        modules.GENERATOR_EMBEDDINGS,
    )
    own = params["generator"]
    x_BTG = _module(spec, "generator.project", own["project"])(x_BTD)
    x_BTG = _stack(
        own["layers"], x_BTG, batch, spec, "generator.layers", words_B2, spec.layers
    )
    x_BKG = jnp.take_along_axis(x_BTG, positions_BK[..., None], axis=1)
    table_VD = params["embeddings"]["word"]["table"]
    return _module(spec, "generator.mlm", own["mlm"])(x_BKG, table_VD)


def detection_logits(params: Params, x_BTD: Array, spec: EncoderSpec) -> Array:
    """Logits [B, T] in float32 that a token was replaced."""
    return _module(spec, "rtd", params["rtd"])(x_BTD)


def embedding_logits(
    params: Params, x_BTD: Array, positions_BK: Array, spec: EncoderSpec
) -> Array:
    """MLM logits [B, K, V] in float32 at the given positions only."""
    x_BKD = jnp.take_along_axis(x_BTD, positions_BK[..., None], axis=1)
    table_VD = params["embeddings"]["word"]["table"]
    return _module(spec, "mlm", params["mlm"])(x_BKD, table_VD)


def pool(params: Params, x_BTD: Array, starts_BP: Array, spec: EncoderSpec) -> Array:
    """tanh(dense([CLS])) of each pair, [B, P, D]."""
    x_BPD = jnp.take_along_axis(x_BTD, starts_BP[..., None], axis=1)
    return jnp.tanh(_module(spec, "pooler", params["pooler"])(x_BPD))


def next_sentence_logits(params: Params, pooled_BPD: Array, spec: EncoderSpec) -> Array:
    """Next-sentence logits [B, P, 2] in float32: 0 = actual next, 1 = random."""
    return _module(spec, "nsp", params["nsp"])(pooled_BPD)
