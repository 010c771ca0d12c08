"""The store: what it holds, found again, refused, verified."""

import shutil

import numpy as np
import pytest

from bert_jax.data import (
    building,
    corpus,
    joining,
    learning,
    rows,
    store,
    vocabulary,
    workers,
)
from bert_jax.data.rows import RowSpec
from bert_jax.data.vocabulary import TokenizerSpec


def test_split_size_and_copies():
    draw = np.random.default_rng(0)
    for count, wanted in (
        (5, 0),
        (19, 1),
        (100, 10),
        (320, 32),
        (1600, 32),
        (5000, 100),
    ):
        hashes = draw.integers(1, 2**63, count).astype(np.uint64)
        assert (hashes <= np.uint64(corpus.held_out_threshold(hashes))).sum() == wanted
    # Ninety copies of the lowest document cannot all be held out of a hundred.
    hashes = np.array([5] * 90 + list(range(100, 110)), np.uint64)
    assert (hashes <= np.uint64(corpus.held_out_threshold(hashes))).sum() == 0
    hashes = np.array([50] * 5 + list(range(100, 200)), np.uint64)
    side = hashes <= np.uint64(corpus.held_out_threshold(hashes))
    assert side[:5].all() and side.sum() == 10


def test_store_holds_the_text(toy_store, toy_text):
    """Decoding the flat array gives every sentence back, in order."""
    blocks = toy_text.read_text().strip().split("\n\n")
    sentences = [line for block in blocks for line in block.split("\n")]
    bounds, tokens = toy_store.sentence_bounds, toy_store.vocabulary.tokens
    assert len(bounds) == len(sentences) + 1
    for n, sentence in enumerate(sentences):
        pieces = [tokens[i] for i in toy_store.tokens[bounds[n] : bounds[n + 1]]]
        assert " ".join(pieces).replace(" ##", "") == sentence
    sizes = np.diff(toy_store.document_bounds)
    assert sizes.tolist() == [block.count("\n") + 1 for block in blocks]
    assert toy_store.tokens.dtype == np.uint16
    assert toy_store.held_out.sum() == 12 and toy_store.manifest["unknown_tokens"] == 0
    counts = toy_store.token_counts(False) + toy_store.token_counts(True)
    np.testing.assert_array_equal(
        counts, np.bincount(toy_store.tokens, minlength=len(tokens))
    )


def test_cache_is_used_and_survives_a_move(toy_store, toy_text, tmp_path, monkeypatch):
    """A second run prepares nothing; text under another name is the same store."""
    plan = rows.load_plan(toy_store, RowSpec(32, 0), 0)
    monkeypatch.setattr(rows, "make_plan", None)
    joined = joining.join
    monkeypatch.setattr(joining, "join", None)
    text = corpus.load(f"sentences:{toy_text}")
    assert building.store_of(text, toy_store.vocabulary).content == toy_store.content
    again = rows.load_plan(toy_store, RowSpec(32, 0), 0)
    np.testing.assert_array_equal(plan.start, again.start)
    monkeypatch.setattr(joining, "join", joined)
    moved = shutil.copy(toy_text, tmp_path / "moved.txt")
    text = corpus.load(f"sentences:{moved}")
    assert building.store_of(text, toy_store.vocabulary).content == toy_store.content


def test_newer_format_is_refused(toy_store, tmp_path):
    copy = tmp_path / "store"
    shutil.copytree(toy_store.directory, copy)
    manifest = (copy / "manifest.json").read_text()
    newer = manifest.replace(
        f'"format_version": {store.FORMAT_VERSION}', '"format_version": 99'
    )
    (copy / "manifest.json").write_text(newer)
    with pytest.raises(ValueError, match="format 99"):
        store.open_store(copy)


def test_learned_vocabulary_sees_training_documents_only(toy_store, toy_text):
    text = corpus.load(f"sentences:{toy_text}")
    training = list(learning.training_sentences(text, workers.over(1)))
    assert (
        len(training) == np.diff(toy_store.document_bounds)[~toy_store.held_out].sum()
    )
    counts = vocabulary.count_words(training, TokenizerSpec())
    again = vocabulary.learn(counts, 150, TokenizerSpec())
    assert again.tokens == toy_store.vocabulary.tokens
