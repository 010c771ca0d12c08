"""The token store: a corpus tokenized once, as flat arrays on disk.

    manifest.json          counts, hashes, format_version
    tokenizer/             vocab.txt and settings
    tokens.bin             token ids, uint16 where the vocabulary fits, else uint32
    sentence_bounds.npy    int64, where sentences begin in tokens, and the end
    document_bounds.npy    int64, where documents begin in sentences, and the end
    held_out.npy           bool, side of each document
    token_counts.npy       int64 [2, V], occurrences in training and held-out text

Rows are spans of ``tokens``; planning them needs the bounds alone.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data import cache
from bert_jax.data import vocabulary as vocabularies
from bert_jax.data.corpus import Corpus
from bert_jax.data.vocabulary import TokenizerSpec, Vocabulary

FORMAT_VERSION = 2
BLOCK = 512  # documents tokenized at a time


@dataclass(frozen=True)
class Store:
    """A token store on disk; arrays are memory maps."""

    directory: Path
    manifest: dict[str, Any]
    vocabulary: Vocabulary

    @property
    def content(self) -> str:
        """Content hash: tokens, ends, split and tokenizer. Names the data of a run."""
        return self.manifest["content"]

    @cached_property
    def tokens(self) -> np.ndarray:
        """Token ids, [tokens]."""
        dtype = np.dtype(self.manifest["dtype"])
        return np.memmap(self.directory / "tokens.bin", dtype, "r")

    @cached_property
    def sentence_bounds(self) -> np.ndarray:
        """int64 [sentences + 1]: sentence s is tokens[bounds[s] : bounds[s + 1]]."""
        return np.load(self.directory / "sentence_bounds.npy", mmap_mode="r")

    @cached_property
    def document_bounds(self) -> np.ndarray:
        """int64 [documents + 1]: document d is sentences bounds[d] .. bounds[d + 1]."""
        return np.load(self.directory / "document_bounds.npy", mmap_mode="r")

    @cached_property
    def held_out(self) -> np.ndarray:
        """bool [documents]: True where a document never trains."""
        return np.load(self.directory / "held_out.npy")

    def documents(self, held_out: bool) -> np.ndarray:
        """int64: numbers of the documents on one side of the split."""
        return np.flatnonzero(self.held_out == held_out)

    def token_counts(self, held_out: bool) -> np.ndarray:
        """int64 [V]: how often each token occurs on one side of the split."""
        return np.load(self.directory / "token_counts.npy")[int(held_out)]


def make_vocabulary(
    corpus: Corpus, path: str, size: int, spec: TokenizerSpec
) -> Vocabulary:
    """The vocabulary of a run: read from ``path``, or learned from training documents.

    Raises:
      ValueError: see ``vocabulary.read`` and ``vocabulary.learn``.
    """
    if path:
        return vocabularies.read(Path(path), spec)

    def build(directory: Path) -> None:
        training = corpus.documents(held_out=False)
        texts = (sentence for document in training for sentence in document)
        vocabularies.learn(texts, size, spec).write(directory)

    key = cache.digest(
        corpus.manifest["content"],
        corpus.manifest["held_out_threshold"],
        size,
        [spec.lowercase, spec.strip_accents],
        vocabularies.tokenizers.__version__,
    )
    place = cache.entry("vocabularies", key, build)
    return vocabularies.read(place / "vocab.txt", spec)


def _write(corpus: Corpus, vocabulary: Vocabulary, directory: Path) -> None:
    """Tokenizes a corpus into a cache entry."""
    dtype = vocabulary.dtype()
    lengths: list[int] = []
    sentences: list[int] = []
    sides: list[bool] = []
    counts = np.zeros((2, len(vocabulary)), np.int64)
    numbered = zip(corpus.documents(), corpus.held_out().tolist(), strict=True)
    with open(directory / "tokens.bin", "wb") as out:
        for block in _blocks(numbered, BLOCK):
            flat = [sentence for document, _ in block for sentence in document]
            encoded = iter(vocabulary.encode(flat))
            for document, side in block:
                ids = [next(encoded) for _ in document]
                ids = [sentence for sentence in ids if sentence]
                if not ids:
                    continue  # control characters only: the 2018 reader drops it too
                lengths.extend(len(sentence) for sentence in ids)
                sentences.append(len(ids))
                sides.append(side)
                array = np.fromiter((i for s in ids for i in s), dtype)
                counts[int(side)] += np.bincount(array, minlength=len(vocabulary))
                array.tofile(out)
    if not sentences:
        raise ValueError("the corpus is empty: no document has a token")
    _save_arrays(directory, lengths, sentences, sides)
    np.save(directory / "token_counts.npy", counts)
    vocabulary.write(directory / "tokenizer")
    names = ("tokens.bin", "sentence_bounds.npy", "document_bounds.npy", "held_out.npy")
    content = cache.digest(
        vocabulary.digest(), [cache.file_digest(directory / n) for n in names]
    )
    manifest = {
        "format_version": FORMAT_VERSION,
        "content": content,
        "dtype": dtype.name,
        "documents": len(sentences),
        "held_out_documents": sum(sides),
        "sentences": len(lengths),
        "tokens": sum(lengths),
        "unknown_tokens": int(counts[:, vocabulary.ids["[UNK]"]].sum()),
        "one_sentence_documents": sum(count == 1 for count in sentences),
        "vocabulary": vocabulary.digest(),
        "vocabulary_size": len(vocabulary),
        "corpus": corpus.manifest,
    }
    cache.write_json(directory / "manifest.json", manifest)


def _save_arrays(
    directory: Path, lengths: list[int], sentences: list[int], sides: list[bool]
) -> None:
    for name, counts in (("sentence_bounds", lengths), ("document_bounds", sentences)):
        bounds = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(np.array(counts, np.int64), out=bounds[1:])
        np.save(directory / f"{name}.npy", bounds)
    np.save(directory / "held_out.npy", np.array(sides, bool))


def _blocks(items: Any, size: int) -> Any:
    block = []
    for item in items:
        block.append(item)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def build(corpus: Corpus, vocabulary: Vocabulary) -> Store:
    """The token store of a corpus under a vocabulary, made unless it is in the cache.

    Raises:
      ValueError: no document has a token.
    """
    key = cache.digest(
        FORMAT_VERSION,
        corpus.manifest["content"],
        corpus.manifest["held_out_threshold"],
        vocabulary.digest(),
        vocabularies.tokenizers.__version__,
    )
    place = cache.entry("stores", key, lambda path: _write(corpus, vocabulary, path))
    store = open_store(place, vocabulary.spec)
    # The entry names the files its first builder read; this run may have read others.
    return replace(store, manifest={**store.manifest, "corpus": corpus.manifest})


def open_store(directory: Path, spec: TokenizerSpec) -> Store:
    """Opens a store.

    Raises:
      ValueError: it was written by a newer version of this project.
    """
    manifest = json.loads((directory / "manifest.json").read_text("utf-8"))
    if manifest["format_version"] > FORMAT_VERSION:
        raise ValueError(
            f"store {directory} has format {manifest['format_version']}, this version "
            f"reads up to {FORMAT_VERSION}; update bert_jax"
        )
    vocabulary = vocabularies.read(directory / "tokenizer" / "vocab.txt", spec)
    return Store(directory, manifest, vocabulary)
