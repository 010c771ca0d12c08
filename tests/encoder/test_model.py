"""The encoder against BERT written out in numpy, and its laws."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import draws, encoder
from bert_jax.batch import Batch
from bert_jax.encoder import SIZES, EncoderSpec

PUBLISHED = {  # encoder and pooler / with both heads, V = 30522
    "tiny": (4_385_920, 4_433_468),
    "mini": (11_170_560, 11_267_900),
    "small": (28_763_648, 29_058_876),
    "medium": (41_373_184, 41_668_412),
    "base": (109_482_240, 110_106_428),
    "large": (335_141_888, 336_226_108),
}
SPEC = EncoderSpec(50, 2, 32, 4, 48, max_positions=20)


def count(tree):
    return sum(math.prod(x.shape) for x in jax.tree.leaves(tree))


@pytest.mark.quick
@pytest.mark.parametrize("size", SIZES)
def test_parameter_counts(size):
    layers, width = SIZES[size]
    spec = EncoderSpec(30522, layers, width, width // 64, 4 * width)
    shapes = encoder.parameter_shapes(spec)
    body = {k: shapes[k] for k in ("embeddings", "layers", "pooler")}
    assert (count(body), count(shapes)) == PUBLISHED[size]
    parts = spec.parameters()
    assert {k: count(v) for k, v in shapes.items()} == parts


def batch(tokens, pairs=None, segments=None, positions=None):
    tokens = np.asarray(tokens, np.int32)
    B, T = tokens.shape
    zeros = np.zeros((B, 1), np.int32)
    segments = tokens * 0 if segments is None else np.asarray(segments, np.int32)
    at = np.broadcast_to(np.arange(T), (B, T))
    return Batch(
        tokens_BT=tokens,
        segments_BT=segments,
        pairs_BT=np.asarray(pairs if pairs is not None else tokens * 0 + 1, np.int32),
        positions_BT=np.asarray(positions if positions is not None else at, np.int32),
        maskable_BT=tokens > 0, words_BT=zeros,
        starts_BP=zeros, plans_BP=zeros, rows_BP=zeros, reads_BP=zeros, picks_BP=zeros,
        rate_BP=zeros.astype(np.float32), label_BP=zeros,
        weight_BP=np.ones((B, 1), np.float32),
        place_B=np.arange(B, dtype=np.int32),
    )  # fmt: skip


@pytest.fixture(scope="module")
def params():
    """Parameters away from their initial zeros and ones, so that each one matters."""
    params = encoder.init(jax.random.key(0), SPEC)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys)]  # noqa: B905
    return jax.tree.unflatten(tree, noisy)


def layer_norm(x, p):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-12) * p["scale"] + p["bias"]


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def bert_in_numpy(params, b, spec, gelu):
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    e = p["embeddings"]
    x = (e["word"]["table"][b.tokens_BT] + e["position"]["table"][b.positions_BT]
         + e["segment"]["table"][b.segments_BT])  # fmt: skip
    x = layer_norm(x, e["norm"])
    mask = np.where(
        b.pairs_BT[:, None, :, None] == b.pairs_BT[:, None, None, :], 0, -1e9
    )
    for n in range(spec.layers):
        layer = jax.tree.map(lambda x, n=n: x[n], p["layers"])
        a, f = layer["attention"], layer["ffn"]
        qkv = np.einsum("btd,dchk->cbthk", x, a["qkv"]["kernel"])
        q, k, v = qkv + a["qkv"]["bias"][:, None, None]
        scores = np.einsum("bqhk,bshk->bhqs", q, k) / np.sqrt(spec.width / spec.heads)
        scores = np.exp(scores + mask - (scores + mask).max(-1, keepdims=True))
        probs = scores / scores.sum(-1, keepdims=True)
        y = np.einsum("bhqs,bshk->bqhk", probs, v)
        y = np.einsum("bqhk,hkd->bqd", y, a["out"]["kernel"]) + a["out"]["bias"]
        x = layer_norm(x + y, a["norm"])
        y = gelu(x @ f["up"]["kernel"] + f["up"]["bias"])
        x = layer_norm(x + y @ f["down"]["kernel"] + f["down"]["bias"], f["norm"])
    h = layer_norm(gelu(x @ p["mlm"]["dense"]["kernel"] + p["mlm"]["dense"]["bias"]),
                   p["mlm"]["norm"])  # fmt: skip
    mlm = h @ e["word"]["table"].T + p["mlm"]["bias"]
    pooled = np.tanh(x[:, 0] @ p["pooler"]["kernel"] + p["pooler"]["bias"])
    return x, mlm, pooled @ p["nsp"]["kernel"] + p["nsp"]["bias"]


@pytest.mark.parametrize(("name", "gelu"), [("tanh", gelu_tanh), ("erf", gelu_erf)])
def test_against_numpy(params, name, gelu):
    spec = EncoderSpec(50, 2, 32, 4, 48, max_positions=20, gelu=name)
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, 50, (3, 12))
    pairs = np.array([[1] * 12, [1] * 8 + [0] * 4, [1] * 5 + [2] * 7])
    b = batch(tokens, pairs, draw.integers(0, 2, (3, 12)))
    x = encoder.encode(params, b, b.tokens_BT, spec)
    everywhere = np.broadcast_to(np.arange(12), (3, 12))
    mlm = encoder.embedding_logits(params, x, everywhere, spec)
    nsp = encoder.next_sentence_logits(
        params, encoder.pool(params, x, b.starts_BP, spec), spec
    )
    want_x, want_mlm, want_nsp = bert_in_numpy(params, b, spec, gelu)
    np.testing.assert_allclose(x, want_x, atol=2e-4)
    np.testing.assert_allclose(mlm, want_mlm, atol=2e-3)
    np.testing.assert_allclose(nsp[:, 0], want_nsp, atol=1e-3)
    assert np.abs(want_mlm).max() > 1  # the comparison has something to compare


def test_gelu_forms_differ(params):
    b = batch([[1, 2, 3]])
    a, c = (
        encoder.encode(
            params, b, b.tokens_BT, EncoderSpec(50, 2, 32, 4, 48, 20, gelu=g)
        )
        for g in ("tanh", "erf")
    )
    assert np.abs(a - c).max() > 1e-5


@pytest.mark.quick
def test_initial_values():
    spec = EncoderSpec(4000, 2, 128, 2, 512)
    params = encoder.init(jax.random.key(0), spec)
    for path, x in jax.tree_util.tree_leaves_with_path(params):
        name = path[-1].key
        x = np.asarray(x)
        if name == "bias":
            assert (x == 0).all()
        elif name == "scale":
            assert (x == 1).all()
        elif x.size > 5000:
            assert np.abs(x).max() <= 0.04 + 1e-7
            # Two-sigma cut of 0.02 leaves 0.02 * 0.8796.
            assert abs(x.std() - 0.01759) < 4 * 0.01759 / (2 * x.size) ** 0.5
            assert abs(x.mean()) < 4 * 0.0176 / x.size**0.5
    q = np.asarray(params["layers"]["attention"]["qkv"]["kernel"])
    assert (q[0] != q[1]).any()


def test_padding_and_packing_are_inert(params):
    draw = np.random.default_rng(3)
    one, two = draw.integers(1, 50, (1, 7)), draw.integers(1, 50, (1, 5))
    alone = [encoder.encode(params, batch(t), t, SPEC) for t in (one, two)]
    packed = np.concatenate([one, two, np.zeros((1, 4), int)], 1)
    b = batch(
        packed,
        pairs=[[1] * 7 + [2] * 5 + [0] * 4],
        positions=[[*range(7), *range(5), *[0] * 4]],
    )
    together = encoder.encode(params, b, b.tokens_BT, SPEC)
    np.testing.assert_allclose(together[:, :7], alone[0], atol=1e-5)
    np.testing.assert_allclose(together[:, 7:12], alone[1], atol=1e-5)
    assert np.isfinite(together).all()


def test_dropout_is_on_and_addressed(params):
    b = batch(np.arange(1, 25).reshape(2, 12))
    words = draws.dropout_words(0, 5, b.place_B)
    quiet = encoder.encode(params, b, b.tokens_BT, SPEC)
    loud = encoder.encode(params, b, b.tokens_BT, SPEC, words)
    again = encoder.encode(params, b, b.tokens_BT, SPEC, words)
    assert np.abs(quiet - loud).max() > 0.1
    np.testing.assert_array_equal(loud, again)
    jitted = jax.jit(lambda p, w: encoder.encode(p, b, b.tokens_BT, SPEC, w))
    np.testing.assert_allclose(jitted(params, words), loud, atol=1e-5)
    row = jax.tree.map(lambda x: x[1:], b)
    part = encoder.encode(params, row, row.tokens_BT, SPEC, words[1:])
    np.testing.assert_allclose(part, loud[1:], atol=1e-5)


def test_bfloat16_stays_near(params):
    spec = EncoderSpec(50, 2, 32, 4, 48, max_positions=20, compute_dtype="bfloat16")
    b = batch(np.arange(1, 25).reshape(2, 12))
    x = encoder.encode(params, b, b.tokens_BT, spec)
    assert x.dtype == jnp.bfloat16
    logits = encoder.embedding_logits(params, x, np.zeros((2, 1), int), spec)
    assert logits.dtype == jnp.float32
    exact = encoder.encode(params, b, b.tokens_BT, SPEC)
    assert np.abs(np.asarray(x, np.float32) - exact).mean() < 0.03


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match=r"model\.width=30"):
        encoder.init(jax.random.key(0), EncoderSpec(50, 1, 30, 4, 60))
