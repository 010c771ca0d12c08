"""A corpus: sources cut into shards, and which of its documents are held out."""

import hashlib
import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bert_jax.data import cache, shards, sources
from bert_jax.data.faults import Faults
from bert_jax.data.shards import Shard
from bert_jax.data.sources import Source

FORMAT_VERSION = 2
HELD_OUT_LEAST = 32  # documents
_NONE = 0  # no content hash is this small


@dataclass(frozen=True)
class Corpus:
    """What a corpus spec names; nothing of the text is kept."""

    spec: str
    sources: tuple[Source, ...]
    shards: tuple[Shard, ...]

    @cached_property
    def identity(self) -> str:
        """Hash of what decides the text: files as they stand, options, splitter."""
        return cache.digest(
            FORMAT_VERSION,
            importlib.metadata.version("sentencex"),
            [shard.identity() for shard in self.shards],
        )

    def facts(self, digests: dict[str, str]) -> dict[str, Any]:
        """Spec, sources and files, for the manifest; no directory is named.

        Args:
          digests: sha256 of each file, by path.
        """
        listed = []
        for number, source in enumerate(self.sources):
            files = {
                (f.path, f.size)
                for shard in self.shards
                if shard.number == number
                for f in shard.files
                if f.path
            }
            listed.append(
                {
                    "kind": source.kind,
                    "language": source.language,
                    "weight": source.weight,
                    "files": [
                        {
                            "name": path.rsplit("/", 1)[-1],
                            "bytes": size,
                            "sha256": digests[path],
                        }
                        for path, size in sorted(files)
                    ],
                }
            )
        return {"spec": self.spec, "sources": listed}


def load(spec: str) -> Corpus:
    """The corpus of a spec (``sources.parse``); lists files, reads no text.

    Raises:
      ValueError: the spec is wrong, or files are missing.
    """
    parsed = sources.parse(spec)
    cut = [s for n, source in enumerate(parsed) for s in shards.cut(source, n)]
    return Corpus(spec, parsed, tuple(cut))


def documents(corpus: Corpus, faults: Faults | None = None) -> Iterator[list[str]]:
    """Documents as lists of sentences, one after another; empty ones are left out."""
    for shard in corpus.shards:
        sentences: list[str] = []
        for run in shards.runs(shard, faults or Faults()):
            sentences += run.sentences
            if run.ends:
                if sentences:
                    yield sentences
                sentences = []


def document_hash(sentences: list[str]) -> int:
    """64 bits of a document's sha256, one squeezed sentence a line."""
    return hash_bits(hashlib.sha256(hashed_bytes(sentences)))


def hashed_bytes(sentences: list[str]) -> bytes:
    """Sentences as they enter the hash of their document, one after another."""
    return "".join([f"{s}\n" for s in sentences]).encode("utf-8", "replace")


def hash_bits(sha: Any) -> int:
    """The leading 64 bits of a hash."""
    return int.from_bytes(sha.digest()[:8], "big")


def held_out_threshold(hashes: np.ndarray) -> int:
    """Largest content hash of a held-out document.

    Held out are the lowest hashes: the larger of 2 % and 32 documents, at most 10 %.
    Equal copies share a hash and so a side; where copies would carry the side over
    10 %, it stops before them.

    Args:
      hashes: uint64 [documents].
    """
    count = len(hashes)
    wanted = min(max(-(-count // 50), HELD_OUT_LEAST), count // 10)
    if wanted == 0:
        return _NONE
    # Only the lowest tenth matters, found without a second copy of the whole.
    lowest, most = hashes[:0], count // 10 + 1
    for begin in range(0, count, most):
        lowest = np.concatenate([lowest, hashes[begin : begin + most]])
        if len(lowest) > most:
            lowest = np.partition(lowest, most - 1)[:most]
    lowest = np.sort(lowest)
    threshold = lowest[wanted - 1]
    if np.searchsorted(lowest, threshold, "right") > count // 10:
        lower = np.searchsorted(lowest, threshold, "left")
        threshold = lowest[lower - 1] if lower else np.uint64(_NONE)
    return int(threshold)
