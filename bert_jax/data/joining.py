"""Parts to one flat store, in the order of the shards, whoever made them.

Memory holds a part at a time and, for each document of the corpus, 8 bytes of hash and
a few of its side and source; all else goes through files front to back.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from bert_jax.data import cache, parts, remote
from bert_jax.data.corpus import Corpus, held_out_threshold
from bert_jax.data.faults import Faults
from bert_jax.data.store import FORMAT_VERSION, MANIFEST
from bert_jax.data.vocabularies import AnyVocabulary

COPY = 1 << 18  # bytes copied at a time
# What the lengths of sentences and documents are counted into.
EDGES = {
    "tokens in a sentence": [1, 8, 16, 32, 64, 128, 256, 512],
    "tokens in a document": [1, 32, 64, 128, 256, 512, 2048, 8192],
}


def join(
    corpus: Corpus,
    vocabulary: AnyVocabulary,
    done: list[str],
    digests: dict[str, str],
    directory: Path,
    drop_duplicates: bool,
) -> None:
    """Writes the store to ``directory``.

    Args:
      corpus, vocabulary: what the parts were made of.
      done: paths or URLs of the parts, in the order of the corpus's shards.
      digests: sha256 of every file of the corpus, by path.
      directory: where the files go; it exists and is empty.
      drop_duplicates: of equal documents keep the first.

    Raises:
      ValueError: no document has a token.
    """
    facts = []
    for place in done:
        with remote.near(place, parts.FACTS) as part:
            facts.append(cache.read_json(part / parts.FACTS))
    hashes = np.empty(sum(fact["documents"] for fact in facts), np.uint64)
    if not len(hashes):
        found = "; ".join(_faults(facts).lines())
        raise ValueError(
            f"the corpus {corpus.spec} is empty: it holds no document with text"
            + (f" ({found})" if found else "")
        )
    begin = 0
    for place, fact in zip(done, facts, strict=True):
        end = begin + fact["documents"]
        with remote.near(place, "document_hashes.npy") as part:
            hashes[begin:end] = np.load(part / "document_hashes.npy")
        begin = end
    keep, hashes_kept = np.ones(len(hashes), bool), hashes
    if drop_duplicates:
        _, firsts = np.unique(hashes, return_index=True)
        keep[:] = False
        keep[firsts] = True
        hashes_kept = hashes[keep]
    threshold = held_out_threshold(hashes_kept)
    sides = hashes_kept <= np.uint64(threshold)

    joined = _Joined(directory, vocabulary, len(hashes_kept))
    begin = 0
    for place, fact in zip(done, facts, strict=True):
        end = begin + fact["documents"]
        held = hashes[begin:end] <= np.uint64(threshold)
        with remote.near(place) as part:
            joined.add(part, fact["source"], keep[begin:end], held)
        begin = end
    np.save(directory / "held_out.npy", sides)
    np.save(directory / "sources.npy", np.concatenate(joined.sources))
    np.save(directory / "document_hashes.npy", hashes_kept)
    joined.finish()
    vocabulary.write(directory / "tokenizer")

    faults = _faults(facts)
    files = {p.name: cache.file_digest(p) for p in sorted(directory.glob("*.*"))}
    named = [files[n] for n in sorted(files) if n != "document_hashes.npy"]
    counts = np.load(directory / "token_counts.npy")
    manifest = {
        "format_version": FORMAT_VERSION,
        "content": cache.digest(vocabulary.digest(), named),
        "files": files,
        "identity": corpus.identity,
        "dtype": vocabulary.dtype().name,
        "documents": len(hashes_kept),
        "held_out_documents": int(sides.sum()),
        "duplicate_documents": len(hashes) - len(hashes_kept),
        "sentences": joined.sentences,
        "tokens": joined.tokens,
        "unknown_tokens": int(counts[:, vocabulary.ids["[UNK]"]].sum()),
        "one_sentence_documents": joined.lone,
        "lengths": joined.lengths(),
        "vocabulary": vocabulary.digest(),
        "vocabulary_size": len(vocabulary),
        "corpus": {
            **corpus.facts(digests),
            "content": hashlib.sha256(hashes_kept.data).hexdigest(),
            "bytes": sum(fact["bytes"] for fact in facts),
            "faults": {"counts": faults.counts, "places": faults.places},
        },
    }
    cache.write_json(directory / MANIFEST, manifest)


def _faults(facts: list[Any]) -> Faults:
    """What was wrong with the text of all parts."""
    faults = Faults()
    for fact in facts:
        faults.merge(Faults(False, fact["faults"]["counts"], fact["faults"]["places"]))
    return faults


class _Joined:
    """The arrays of a store, appended part by part."""

    def __init__(self, directory: Path, vocabulary: AnyVocabulary, documents: int):
        self.directory, self.dtype = directory, vocabulary.dtype()
        self.sentences = self.tokens = self.documents = self.lone = 0
        self.sources: list[np.ndarray] = []
        self._tokens = open(directory / "tokens.bin", "wb")
        self._lengths = open(directory / "lengths.tmp", "wb")
        self._counts = np.zeros((2, len(vocabulary)), np.int64)
        self._histograms = {title: np.zeros(len(EDGES[title]), int) for title in EDGES}
        self._documents = _bounds_file(directory / "document_bounds.npy", documents)

    def add(self, part: Path, source: int, keep: np.ndarray, held: np.ndarray) -> None:
        """Appends the documents of a part that are kept."""
        lengths = np.load(part / "sentence_lengths.npy")
        sizes = np.load(part / "document_sizes.npy").astype(np.int64)
        sentence_ends, ends = np.cumsum(lengths, dtype=np.int64), np.cumsum(sizes)
        token_ends = sentence_ends[ends - 1] if len(ends) else ends
        begins = np.concatenate([[0], token_ends])
        tokens = np.memmap(part / "tokens.bin", self.dtype, "r") if len(ends) else None
        counts = np.load(part / "token_counts.npy")
        sizes_in_tokens = np.diff(begins)
        for side, chosen in ((1, keep & held), (None, ~keep)):
            if chosen.any():
                where = np.repeat(chosen, sizes_in_tokens)
                few = np.bincount(tokens[where], minlength=len(counts))  # type: ignore[index]
                counts = counts - few
                if side is not None:
                    self._counts[side] += few
        self._counts[0] += counts

        if keep.all():
            with open(part / "tokens.bin", "rb") as file:
                shutil.copyfileobj(file, self._tokens, COPY)
        else:
            for number in np.flatnonzero(keep).tolist():
                span = tokens[begins[number] : begins[number + 1]]  # type: ignore[index]
                span.tofile(self._tokens)
            lengths = lengths[np.repeat(keep, sizes)]
            sizes = sizes[keep]
        lengths.tofile(self._lengths)
        for title, values in zip(EDGES, (lengths, sizes_in_tokens[keep]), strict=True):
            bins = [*EDGES[title], np.iinfo(np.int64).max]
            self._histograms[title] += np.histogram(values, bins=bins)[0]
        (self.sentences + np.cumsum(sizes, dtype=np.int64)).tofile(self._documents)
        self.documents += len(sizes)
        self.sentences += len(lengths)
        self.tokens += int(lengths.sum(dtype=np.int64))
        self.lone += int((sizes == 1).sum())
        self.sources.append(np.full(len(sizes), source, np.uint16))

    def lengths(self) -> dict[str, dict[str, list[int]]]:
        """Histograms by title: how many lengths lie from each edge to the next."""
        return {
            title: {"edges": EDGES[title], "counts": counts.tolist()}
            for title, counts in self._histograms.items()
        }

    def finish(self) -> None:
        """Sentence lengths to bounds, and everything to disk."""
        self._tokens.close()
        self._lengths.close()
        self._documents.close()
        name, total = self.directory / "lengths.tmp", 0
        bounds = _bounds_file(self.directory / "sentence_bounds.npy", self.sentences)
        with open(name, "rb") as file, bounds:
            while data := file.read(COPY):
                ends = np.cumsum(np.frombuffer(data, np.uint32), dtype=np.int64) + total
                ends.tofile(bounds)
                total = int(ends[-1])
        name.unlink()
        np.save(self.directory / "token_counts.npy", self._counts)


def _bounds_file(path: Path, count: int) -> BinaryIO:
    """A .npy of ``count`` + 1 int64 bounds, written front to back: its first is there.

    A writable memory map would hold all pages it wrote in this process's memory.
    """
    file = open(path, "wb")
    header = {"descr": "<i8", "fortran_order": False, "shape": (count + 1,)}
    npy.write_array_header_1_0(file, header)
    np.zeros(1, np.int64).tofile(file)
    return file
