"""One shard of a corpus, tokenized: a part of the store, whole or not there."""

import functools
import hashlib
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data import cache, remote
from bert_jax.data import corpus as corpora
from bert_jax.data.chunks import ChunkTable
from bert_jax.data.faults import Faults
from bert_jax.data.shards import Run, Shard, runs
from bert_jax.data.vocabularies import AnyVocabulary, PieceTable
from bert_jax.data.vocabulary import Vocabulary

Table = ChunkTable | PieceTable

BLOCK = 1 << 20  # characters tokenized at a time
FACTS = "part.json"


class PartWriter:
    """Takes runs of sentences; leaves a part in a directory.

    tokens.bin              ids
    sentence_lengths.npy    uint32 [sentences], tokens
    document_sizes.npy      uint32 [documents], sentences
    document_hashes.npy     uint64 [documents], of the text
    token_counts.npy        int64 [V]
    part.json               totals, faults
    """

    def __init__(self, directory: Path, table: Table, faults: Faults):
        self.directory, self.table, self.faults = directory, table, faults
        vocabulary = table.vocabulary
        self._tokens = open(directory / "tokens.bin", "wb")
        self._counts = np.zeros(len(vocabulary), np.int64)
        self._lengths, self._sizes, self._hashes = array("I"), array("I"), array("Q")
        self._block: list[str] = []
        self._owners: list[int] = []  # document of each sentence of the block
        self._characters, self.text_bytes = 0, 0
        self._sha: Any = None

    def add(self, run: Run) -> None:
        """The next sentences of the shard, each squeezed."""
        if self._sha is None:
            self._sha = hashlib.sha256()
            self._sizes.append(0)
        data = corpora.hashed_bytes(run.sentences)
        self._sha.update(data)
        self.text_bytes += len(data)
        self._characters += sum(map(len, run.sentences))
        self._block += run.sentences
        self._owners += [len(self._sizes) - 1] * len(run.sentences)
        if run.ends:
            self._hashes.append(corpora.hash_bits(self._sha))
            self._sha = None
        if self._characters >= BLOCK:
            self._flush()

    def _flush(self) -> None:
        if not self._block:
            return
        ids, lengths = self.table.encode(self._block)
        ids.tofile(self._tokens)
        self._counts += np.bincount(ids, minlength=len(self._counts))
        owners, some = np.array(self._owners), lengths > 0
        empty = int((~some).sum())
        if empty:  # a lone accent, say, that lowercasing strips
            self.faults.add("no_tokens", str(self.directory.name), count=empty)
        first = owners[0]
        for number, count in enumerate(np.bincount(owners[some] - first).tolist()):
            self._sizes[first + number] += count
        self._lengths.frombytes(lengths[some].astype(np.uint32).tobytes())
        self._block, self._owners, self._characters = [], [], 0

    def finish(self, facts: dict[str, Any]) -> None:
        """Writes what was collected, and ``facts`` into part.json."""
        self._flush()
        self._tokens.close()
        sizes = np.frombuffer(self._sizes, np.uint32)
        hashes = np.frombuffer(self._hashes, np.uint64)
        some = sizes > 0
        np.save(self.directory / "sentence_lengths.npy", _array(self._lengths))
        np.save(self.directory / "document_sizes.npy", sizes[some])
        np.save(self.directory / "document_hashes.npy", hashes[some])
        np.save(self.directory / "token_counts.npy", self._counts)
        cache.write_json(
            self.directory / FACTS,
            {
                "documents": int(some.sum()),
                "sentences": len(self._lengths),
                "tokens": int(self._counts.sum()),
                "bytes": self.text_bytes,
                "faults": {"counts": self.faults.counts, "places": self.faults.places},
                **facts,
            },
        )


def _array(values: array) -> np.ndarray:
    return np.frombuffer(values, np.uint32) if values else np.zeros(0, np.uint32)


class Tokenize:
    """Tokenizes shards into directories that appear when they are whole.

    Called with (shard, place); the place may be of any file system fsspec knows. The
    table of chunks is made at the first call and serves all others.
    """

    def __init__(self, vocabulary: AnyVocabulary, strict: bool):
        self.vocabulary, self.strict = vocabulary, strict

    @functools.cached_property
    def _table(self) -> Table:
        if isinstance(self.vocabulary, Vocabulary):
            return ChunkTable(self.vocabulary)
        return PieceTable(self.vocabulary)

    def __call__(self, task: tuple[Shard, str]) -> None:
        """Makes one part.

        Raises:
          ValueError: ``strict`` and the shard has a serious fault.
        """
        shard, place = task
        with remote.building(place, last=FACTS) as directory:
            faults = Faults(self.strict)
            writer = PartWriter(directory, self._table, faults)
            for run in runs(shard, faults):
                writer.add(run)
            writer.finish({"source": shard.number})
