"""Records of 2018 to a store: rows as they were made, over their original tokens.

The masks are undone, so that the same rows can be read with the masks they came with or
with masks drawn anew. Records do not name their documents; here a segment is a
sentence, a pair that belongs together is a document of two, and each segment of a
random pair is a document of one. Which of those are of one text is found by what they
share (``overlap``), so that a text of which there are ten copies lies on one side of
the split with all of them.
"""

import itertools
import shutil
from array import array
from pathlib import Path

import numpy as np

from bert_jax.data import cache, given, joining, overlap, parts, tf_examples
from bert_jax.data.corpus import Corpus
from bert_jax.data.given import Layout
from bert_jax.data.rows import RANDOM, Plan
from bert_jax.data.tf_examples import Record
from bert_jax.data.vocabularies import AnyVocabulary

BLOCK = 1024  # records taken in at a time


def join(
    corpus: Corpus, vocabulary: AnyVocabulary, digests: dict[str, str], directory: Path
) -> None:
    """Writes a store and its given rows to ``directory``.

    Args:
      corpus: of one source, ``tfrecord:GLOB``.
      vocabulary: whose ids the records hold.
      digests: sha256 of every file, by path.
      directory: where the files go; it exists and is empty.

    Raises:
      ValueError: a file is damaged, or a record is not of the 2018 format, not of this
        vocabulary or not built like the one before it; file and record are named.
    """
    part = directory / "part"
    part.mkdir()
    made = _Rows(vocabulary, part)
    for shard in corpus.shards:
        for file in shard.files:
            found = tf_examples.read(file.path)
            while block := list(itertools.islice(found, BLOCK)):
                made.add(block)
    if made.layout is None:
        raise ValueError(f"the corpus {corpus.spec} is empty: it holds no record")
    given.write(directory, made.layout, *made.finish())
    joining.join(corpus, vocabulary, [str(part)], digests, directory, False)
    shutil.rmtree(part)


class _Rows:
    """Takes records; leaves a part of a store, and the rows over it."""

    def __init__(self, vocabulary: AnyVocabulary, part: Path):
        self.vocabulary, self.part = vocabulary, part
        self.layout: Layout | None = None
        self._tokens = open(part / "tokens.bin", "wb")
        self._lengths, self._labels, self._masks = array("I"), array("B"), array("I")
        self._places, self._seen = array("i"), array("i")

    def add(self, records: list[Record]) -> None:
        """Checks some records and takes them in."""
        for record in records:
            self._check_layout(record)
        # Arrays of the block have a leading axis N; T tokens and K masks a record.
        block = [np.stack(values) for values in list(zip(*records, strict=True))[1:]]
        ids_NT, mask_NT, segments_NT, places_NK, labels_NK, next_N1, weights_NK = block
        length_N, used_NK = mask_NT.sum(1), weights_NK > 0
        first_N = ((segments_NT == 0) & (mask_NT == 1)).sum(1)  # where B begins
        wrong = self._wrong(block, length_N, first_N, used_NK)
        if wrong is not None:
            number, what = wrong
            raise ValueError(f"{records[number].place} {what}")
        rows = np.arange(len(ids_NT))[:, None]
        self._places.extend(places_NK[used_NK].tolist())
        self._seen.extend(ids_NT[rows, places_NK][used_NK].tolist())
        self._masks.extend(used_NK.sum(1).tolist())
        row, slot = np.nonzero(used_NK)
        ids_NT[row, places_NK[row, slot]] = labels_NK[row, slot]
        place = np.arange(ids_NT.shape[1])
        inside = (place > 0) & (place < length_N[:, None] - 1)
        inside &= place != first_N[:, None] - 1
        ids_NT[inside].astype(self.vocabulary.dtype()).tofile(self._tokens)
        self._lengths.extend(
            np.stack([first_N - 2, length_N - first_N - 1], 1).ravel().tolist()
        )
        self._labels.extend(next_N1[:, 0].tolist())

    def _check_layout(self, record: Record) -> None:
        layout = Layout(len(record.input_ids), len(record.masked_lm_positions))
        self.layout = self.layout or layout
        if self.layout != layout:
            raise ValueError(
                f"{record.place} was built for {_words(layout)}, those before it for "
                f"{_words(self.layout)}; give files of one kind"
            )
        T, K = layout
        sizes = [len(values) for values in record[1:]]
        if sizes != [T, T, T, K, K, 1, K]:
            raise ValueError(
                f"{record.place} is no record of the 2018 format: its features have "
                f"lengths {', '.join(map(str, sizes))}"
            )

    def _wrong(
        self,
        block: list[np.ndarray],
        length_N: np.ndarray,
        first_N: np.ndarray,
        used_NK: np.ndarray,
    ) -> tuple[int, str] | None:
        """Number of the first record that will not do, and why."""
        ids_NT, mask_NT, segments_NT, places_NK, labels_NK, next_N1, _ = block
        special = self.vocabulary.ids
        cls, sep, size = special["[CLS]"], special["[SEP]"], len(self.vocabulary)
        rows, T = np.arange(len(ids_NT)), ids_NT.shape[1]
        filled_NT = np.arange(T) < length_N[:, None]
        later_NT = filled_NT & (np.arange(T) >= first_N[:, None])
        slots = np.arange(places_NK.shape[1])
        # Each unused slot gets a place of its own, so that a repeated one is a fault.
        places = np.sort(np.where(used_NK, places_NK, T + slots), axis=1)
        ends = np.stack([first_N - 1, length_N - 1], 1)
        outside = (places_NK < 1) | (places_NK >= length_N[:, None] - 1)
        on_sep = places_NK == ends[:, :1]
        corners = ids_NT[rows[:, None], np.maximum(np.insert(ends, 0, 0, 1), 0)]
        ids = np.concatenate([ids_NT, labels_NK], 1)
        form = "is no record of the 2018 format: "
        vocab = "; give the vocab.txt it was built with (--vocab)"
        tests = (
            ((ids < 0) | (ids >= size), "has a token id outside this vocabulary of "
             f"{size:,} tokens{vocab}"),
            (mask_NT != filled_NT, f"{form}input_mask is not ones, then zeros"),
            (filled_NT & (segments_NT != later_NT),
             f"{form}segment_ids are not zeros, then ones"),
            ((first_N < 3) | (first_N > length_N - 2),
             f"{form}it is no pair of two segments"),
            ((next_N1 < 0) | (next_N1 > 1),
             f"{form}next_sentence_labels is neither 0 nor 1"),
            (used_NK & (outside | on_sep),
             f"{form}masked_lm_positions lie on [CLS], [SEP] or padding"),
            (np.diff(places, axis=1) == 0, f"{form}masked_lm_positions repeat"),
            (corners != [cls, sep, sep], "is not of this vocabulary: where [CLS] and "
             f"[SEP] belong are other ids than {cls} and {sep}{vocab}"),
        )  # fmt: skip
        for bad, what in tests:
            if bad.any():
                return int(np.flatnonzero(bad.reshape(len(bad), -1).any(1))[0]), what
        return None

    def finish(self) -> tuple[Plan, given.Masks]:
        """Writes the part and returns the rows over it."""
        self._tokens.close()
        lengths = np.frombuffer(self._lengths, np.uint32).copy()
        labels = np.frombuffer(self._labels, np.uint8).copy()
        dtype = self.vocabulary.dtype()
        tokens = np.memmap(self.part / "tokens.bin", dtype, "r")
        begins = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        # Segments 2r and 2r + 1 are those of row r; each is a document or both are.
        apart = labels == RANDOM
        sizes = np.where(apart[:, None], [1, 1], [2, 0]).reshape(-1)
        opens = sizes > 0
        document = np.cumsum(opens) - 1
        bounds = np.append(begins[:-1][opens], begins[-1])
        text, content = overlap.texts(tokens, bounds)
        hashes = _hold_back(content, np.bincount(text, minlength=len(content)))
        np.save(self.part / "sentence_lengths.npy", lengths)
        np.save(self.part / "document_sizes.npy", sizes[opens].astype(np.uint32))
        np.save(self.part / "document_hashes.npy", hashes[text])
        counts = np.zeros(len(self.vocabulary), np.int64)
        for begin in range(0, len(tokens), overlap.CHUNK):
            chunk = tokens[begin : begin + overlap.CHUNK]
            counts += np.bincount(chunk, minlength=len(counts))
        np.save(self.part / "token_counts.npy", counts)
        size = (self.part / "tokens.bin").stat().st_size
        facts = {"documents": int(opens.sum()), "source": 0, "bytes": size}
        none: dict[str, dict[str, int]] = {"counts": {}, "places": {}}
        cache.write_json(self.part / parts.FACTS, {**facts, "faults": none})
        rows = len(labels)
        plan = Plan(
            first=np.arange(rows + 1, dtype=np.int64) * 2,
            label=labels,
            cut=np.zeros(rows, np.int32),
            start=begins[:-1],
            length=lengths.astype(np.int32),
            segment=np.tile(np.array([0, 1], np.uint8), rows),
            document=document,
        )
        masks = np.frombuffer(self._masks, np.uint32)
        return plan, given.Masks(
            np.concatenate([[0], np.cumsum(masks, dtype=np.int64)]),
            np.frombuffer(self._places, np.int32).copy(),
            np.frombuffer(self._seen, np.int32).copy(),
        )


def _words(layout: Layout) -> str:
    return (
        f"max_seq_length {layout.max_seq_length} and max_predictions_per_seq "
        f"{layout.max_predictions_per_seq}"
    )


def _hold_back(content: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Hashes by which texts are held out, those that are too large for it last.

    Held out are the lowest hashes, up to a tenth of the documents.
    """
    large = documents * 20 > documents.sum()
    return content >> np.uint64(1) | large.astype(np.uint64) << np.uint64(63)
