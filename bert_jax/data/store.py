"""The token store: a corpus tokenized once, as flat arrays on disk.

    manifest.json          counts, lengths, hashes, format_version
    tokenizer/             vocab.txt and settings
    tokens.bin             token ids, uint16 where the vocabulary fits, else uint32
    sentence_bounds.npy    int64, where sentences begin in tokens, and the end
    document_bounds.npy    int64, where documents begin in sentences, and the end
    held_out.npy           bool, side of each document
    token_counts.npy       int64 [2, V], occurrences in training and held-out text
    sources.npy            uint16, source of each document
    document_hashes.npy    uint64, content hash of each document

Rows are spans of ``tokens``; planning them needs the bounds alone.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data import cache, vocabularies
from bert_jax.data.vocabularies import AnyVocabulary

FORMAT_VERSION = 4
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Store:
    """A token store on disk; arrays are memory maps."""

    directory: Path
    manifest: dict[str, Any]
    vocabulary: AnyVocabulary
    weights: tuple[float, ...] = (1.0,)  # share of training rows of each source

    @property
    def content(self) -> str:
        """Names the data of a run: tokens, ends, split, tokenizer, and the mixture."""
        content = self.manifest["content"]
        mixed = len(self.weights) > 1
        return cache.digest(content, self.weights) if mixed else content

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

    @cached_property
    def sources(self) -> np.ndarray:
        """uint16 [documents]: source each document is of."""
        return np.load(self.directory / "sources.npy")

    def documents(self, held_out: bool, source: int = -1) -> np.ndarray:
        """int64: numbers of the documents on one side of the split.

        Args:
          held_out: which side.
          source: of a mixed corpus; -1 is every source.
        """
        chosen = self.held_out == held_out
        return np.flatnonzero(
            chosen if source < 0 else chosen & (self.sources == source)
        )

    def token_counts(self, held_out: bool) -> np.ndarray:
        """int64 [V]: how often each token occurs on one side of the split."""
        return np.load(self.directory / "token_counts.npy")[int(held_out)]


def open_store(directory: Path) -> Store:
    """Opens a store.

    Raises:
      ValueError: there is none, or it was written by a newer version of this project.
    """
    if not (directory / MANIFEST).is_file():
        raise ValueError(f"{directory} is no token store: it has no {MANIFEST}")
    manifest = cache.read_json(directory / MANIFEST)
    if manifest["format_version"] > FORMAT_VERSION:
        raise ValueError(
            f"store {directory} has format {manifest['format_version']}, this version "
            f"reads up to {FORMAT_VERSION}; update bert_jax"
        )
    vocabulary = vocabularies.open_directory(directory / "tokenizer")
    weights = [source["weight"] for source in manifest["corpus"]["sources"]]
    total = sum(weights)
    return Store(directory, manifest, vocabulary, tuple(w / total for w in weights))


def verify(directory: Path) -> list[str]:
    """Names of the files of a store that are missing or not what was written."""
    files = cache.read_json(directory / MANIFEST)["files"]
    return [
        name
        for name, digest in files.items()
        if not (directory / name).is_file()
        or cache.file_digest(directory / name) != digest
    ]
