"""Ids of much text fast: WordPiece is context-free between white space.

A table from chunk (what stands between two spaces) to its ids, filled by the tokenizer
library for chunks not seen before, gives its ids at many times its speed.
"""

from typing import Any

import numpy as np

from bert_jax.data import clean
from bert_jax.data.vocabulary import Vocabulary

LARGEST = 300_000  # chunks kept; some 60 MB


class _Numbers(dict[str, int]):
    """Chunk -> its number; a new chunk gets the next number and is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[str] = []

    def __missing__(self, chunk: str) -> int:
        number = self[chunk] = len(self)
        self.fresh.append(chunk)
        return number


class ChunkTable:
    """Encodes blocks of sentences through the table of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self._clear()

    def _clear(self) -> None:
        self._numbers = _Numbers()
        self._begins = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int64)
        self._ids = np.zeros(0, self.vocabulary.dtype())

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all sentences in a row, and how many each has (int64).

        Args:
          sentences: each squeezed (``clean.squeeze``) and not empty.
        """
        if len(self._numbers) > LARGEST:
            self._clear()
        text = " ".join(sentences)
        # Chinese is written without spaces: a sentence would be a chunk of its own.
        parted = clean.part_ideographs(text)
        if parted is not text:
            sentences = [
                " ".join(clean.part_ideographs(sentence).split())
                for sentence in sentences
            ]
            text = " ".join(sentences)
        spaces = [sentence.count(" ") for sentence in sentences]
        counts = np.array(spaces, np.int64) + 1
        lookup: Any = self._numbers.__getitem__
        total = int(counts.sum())
        numbers = np.fromiter(map(lookup, text.split(" ")), np.int64, total)
        self._learn()
        lengths = self._lengths[numbers]
        ends = np.cumsum(lengths)
        shift = np.repeat(self._begins[numbers] - (ends - lengths), lengths)
        ids = self._ids[shift + np.arange(len(shift))]
        before = np.concatenate([[0], ends])[np.concatenate([[0], np.cumsum(counts)])]
        return ids, np.diff(before)

    def _learn(self) -> None:
        """Adds the ids of the chunks noted."""
        fresh, self._numbers.fresh = self._numbers.fresh, []
        if not fresh:
            return
        encoded = self.vocabulary.encode(fresh)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        begins = np.cumsum(lengths) - lengths + len(self._ids)
        flat = [i for ids in encoded for i in ids]
        self._ids = np.concatenate([self._ids, np.array(flat, self._ids.dtype)])
        self._begins = np.concatenate([self._begins, begins])
        self._lengths = np.concatenate([self._lengths, lengths])
