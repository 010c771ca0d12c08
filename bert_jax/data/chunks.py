"""Ids of much text fast: WordPiece is context-free between white space.

A table from chunk (what stands between two spaces) to its ids, filled by the tokenizer
library for chunks not seen before, gives its ids at many times its speed.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_jax.data import clean
from bert_jax.data.vocabulary import Vocabulary

LARGEST = 120_000  # chunks in the table; some 25 MB
KEPT = LARGEST // 2  # of these, the most used, when it is full
TOGETHER = 50  # chunks the library is given as one text
_SPACE, _LETTER, _SIGN = 0, 1, 2
_KINDS = np.array(
    [_SPACE if n == 32 else _LETTER if chr(n).isalnum() else _SIGN for n in range(128)],
    np.uint8,
)


class _Numbers(dict[str, int]):
    """Chunk -> its number; a new chunk gets the next number and is noted."""

    def __init__(self, known: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(known)
        self.fresh: list[str] = []

    def __missing__(self, chunk: str) -> int:
        number = self[chunk] = len(self)
        self.fresh.append(chunk)
        return number


class ChunkTable:
    """Encodes blocks of sentences through the table of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self._numbers = _Numbers()
        self._begins = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int64)
        self._ids = np.zeros(0, vocabulary.dtype())
        self._uses = np.zeros(0, np.int64)

    def _forget(self) -> None:
        """Keeps the chunks most used; the others would come to fill all memory."""
        kept = np.sort(np.argsort(-self._uses, kind="stable")[:KEPT])
        lengths = self._lengths[kept]
        begins = np.cumsum(lengths) - lengths
        shift = np.repeat(self._begins[kept] - begins, lengths)
        self._ids = self._ids[shift + np.arange(len(shift))]
        self._begins, self._lengths = begins, lengths
        self._uses = self._uses[kept] // 2  # what was common long ago fades
        stays = np.zeros(len(self._numbers), bool)
        stays[kept] = True
        chunks = list(itertools.compress(self._numbers, stays.tolist()))
        self._numbers = _Numbers(zip(chunks, range(len(chunks)), strict=True))

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all sentences in a row, and how many each has (int64).

        Args:
          sentences: each squeezed (``clean.squeeze``) and not empty.
        """
        if len(self._numbers) > LARGEST:
            self._forget()
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
        self._uses += np.bincount(numbers, minlength=len(self._uses))
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
        plain = np.array([chunk.isascii() for chunk in fresh])
        begins = np.empty(len(fresh), np.int64)
        lengths = np.empty(len(fresh), np.int64)
        at = len(self._ids)
        for where, encode in ((plain, self._plain), (~plain, self._each)):
            places = np.flatnonzero(where)
            if not len(places):
                continue
            ids, lengths[places] = encode([fresh[place] for place in places.tolist()])
            begins[places] = at + np.cumsum(lengths[places]) - lengths[places]
            at += len(ids)
            self._ids = np.concatenate([self._ids, ids])
        self._begins = np.concatenate([self._begins, begins])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._uses = np.concatenate([self._uses, np.zeros(len(fresh), np.int64)])

    def _each(self, chunks: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all chunks, and how many each has."""
        encoded = self.vocabulary.encode(chunks)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        flat = [i for ids in encoded for i in ids]
        return np.array(flat, self._ids.dtype), lengths

    def _plain(self, chunks: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The same for ASCII chunks: many to a text, which is twice as fast.

        What the library gives for a text does not say where its chunks end. But each
        word gives one piece that begins a word, and in ASCII every run of letters and
        digits is a word, and every other character.
        """
        texts = [
            " ".join(chunks[n : n + TOGETHER]) for n in range(0, len(chunks), TOGETHER)
        ]
        ids, _ = self._each(texts)
        kinds = _KINDS[np.frombuffer(f" {' '.join(texts)} ".encode(), np.uint8)]
        word = (kinds == _SIGN) | ((kinds == _LETTER) & (np.roll(kinds, 1) != _LETTER))
        words = np.cumsum(word)[kinds == _SPACE]  # before each space
        first = np.flatnonzero(self.vocabulary.word_starts[ids])
        assert len(first) == words[-1], "a word that is not one beginning of a word"
        bounds = np.concatenate([first, [len(ids)]])[words]
        return ids, np.diff(bounds)
