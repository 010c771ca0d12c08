"""Corpus and vocabulary to a token store: parts by many workers, then one flat store.

    PLACE.parts/NNNNNN-KEY/    finished parts; a build that was killed finds them again
    PLACE/                     the store, there when it is whole

Workers are processes of this machine or, with Apache Beam, of any others. The bytes of
the store depend on the text and the vocabulary alone: parts are joined in the order of
the shards, whoever made them.
"""

import errno
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
from numpy.lib.format import open_memmap

from bert_jax.data import cache, parts, remote, workers
from bert_jax.data.corpus import Corpus, held_out_threshold
from bert_jax.data.faults import Faults
from bert_jax.data.store import FORMAT_VERSION, MANIFEST, Store, open_store
from bert_jax.data.vocabularies import AnyVocabulary
from bert_jax.data.workers import Run

COPY = 4 << 20  # bytes copied at a time


def build(
    corpus: Corpus,
    vocabulary: AnyVocabulary,
    place: Path,
    run: Run,
    strict: bool = False,
    drop_duplicates: bool = False,
    parts_at: str = "",
) -> None:
    """Makes the store at ``place`` unless it is there; waits for another builder.

    Args:
      corpus, vocabulary: what to tokenize, and how.
      place: directory of the store; it appears when the store is whole.
      run: who works on the shards.
      strict: a line that cannot be read as it stands ends the build.
      drop_duplicates: of equal documents keep the first.
      parts_at: where the workers leave parts, a path or URL that each of them sees;
        beside ``place`` by default.

    Raises:
      ValueError: no document has a token; ``strict`` and the text has a serious fault;
        the disk is full (what is done is kept and found by the next build).
    """
    beside = place.with_name(place.name + ".parts")
    work = (parts_at or str(beside)).rstrip("/")
    with _told_when_full(place), cache.only_one(beside / ".lock"):
        if (place / MANIFEST).is_file():
            _check_same(corpus, vocabulary, place)
            shutil.rmtree(beside, ignore_errors=True)
            return
        done = _parts(corpus, vocabulary, work, run, strict)
        with cache.building(place) as directory:
            digests = _digests(corpus, run)
            _join(corpus, vocabulary, done, digests, directory, drop_duplicates)
    for part in done:
        remote.remove(part)
    shutil.rmtree(beside, ignore_errors=True)


def store_of(
    corpus: Corpus, vocabulary: AnyVocabulary, run: Run | None = None
) -> Store:
    """The token store of a corpus under a vocabulary, made unless it is in the cache.

    Raises:
      ValueError: see ``build``.
    """
    key = cache.digest(FORMAT_VERSION, corpus.identity, vocabulary.digest())
    place = cache.root() / "stores" / key
    build(corpus, vocabulary, place, run or workers.over())
    # The entry names the spec its first builder was given; another may have led here,
    # and with other weights: they are no part of the text.
    opened = open_store(place)
    total = sum(source.weight for source in corpus.sources)
    weights = tuple(source.weight / total for source in corpus.sources)
    before = opened.manifest["corpus"]
    sources = [
        {**listed, "weight": source.weight}
        for listed, source in zip(before["sources"], corpus.sources, strict=True)
    ]
    named = {**before, "spec": corpus.spec, "sources": sources}
    manifest = {**opened.manifest, "corpus": named}
    return replace(opened, manifest=manifest, weights=weights)


def _check_same(corpus: Corpus, vocabulary: AnyVocabulary, place: Path) -> None:
    """Refuses to take a store of something else for the one that was asked for."""
    manifest = cache.read_json(place / MANIFEST)
    made_from = (manifest["identity"], manifest["vocabulary"])
    if made_from != (corpus.identity, vocabulary.digest()):
        raise ValueError(
            f"{place} holds a store of other text or another vocabulary (of "
            f"{manifest['corpus']['spec']}); give another place, or delete it"
        )


@contextmanager
def _told_when_full(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        near = next(p for p in place.absolute().parents if p.is_dir())
        free = shutil.disk_usage(near).free
        raise ValueError(
            f"the disk is full while {place} is made ({free / 1e6:,.0f} MB free there; "
            "a store takes about half the bytes of its text, and as much again while "
            "it is made). Finished parts are kept: free some space, or give another "
            "place, and start again"
        ) from error


def _parts(
    corpus: Corpus, vocabulary: AnyVocabulary, work: str, run: Run, strict: bool
) -> list[str]:
    """Directories of all parts, those missing made first."""
    names = []
    for number, shard in enumerate(corpus.shards):
        key = cache.digest(
            FORMAT_VERSION, corpus.identity, shard.identity(), vocabulary.digest()
        )
        names.append(f"{number:06d}-{key[:16]}")
    there = remote.whole(work, parts.FACTS)
    tasks = [
        (shard, f"{work}/{name}")
        for shard, name in zip(corpus.shards, names, strict=True)
        if name not in there
    ]
    for _ in run(parts.Tokenize(vocabulary, strict), tasks):
        pass
    return [f"{work}/{name}" for name in names]


def _digests(corpus: Corpus, run: Run) -> dict[str, str]:
    """sha256 of every file of a corpus, by path."""
    paths = sorted({f.path for s in corpus.shards for f in s.files if f.path})
    return dict(zip(paths, run(_digest, paths), strict=True))


def _digest(path: str) -> str:
    sha = hashlib.sha256()
    with fsspec.open(path, "rb") as file:
        while data := file.read(COPY):
            sha.update(data)
    return sha.hexdigest()


def _join(
    corpus: Corpus,
    vocabulary: AnyVocabulary,
    done: list[str],
    digests: dict[str, str],
    directory: Path,
    drop_duplicates: bool,
) -> None:
    """Parts to one store."""
    facts, found = [], []
    for place in done:
        with remote.near(place, parts.FACTS, "document_hashes.npy") as part:
            facts.append(cache.read_json(part / parts.FACTS))
            found.append(np.load(part / "document_hashes.npy"))
    hashes = np.concatenate(found)
    if not len(hashes):
        raise ValueError(
            f"the corpus {corpus.spec} is empty: it holds no document with text"
        )
    keep = np.ones(len(hashes), bool)
    if drop_duplicates:
        _, firsts = np.unique(hashes, return_index=True)
        keep[:] = False
        keep[firsts] = True
    threshold = held_out_threshold(hashes[keep])
    sides = hashes[keep] <= np.uint64(threshold)

    joined = _Joined(directory, vocabulary, int(keep.sum()))
    begin = 0
    for place, fact in zip(done, facts, strict=True):
        end = begin + fact["documents"]
        held = hashes[begin:end] <= np.uint64(threshold)
        with remote.near(place) as part:
            joined.add(part, fact["source"], keep[begin:end], held)
        begin = end
    np.save(directory / "held_out.npy", sides)
    np.save(directory / "sources.npy", np.array(joined.sources, np.uint16))
    hashes_kept = hashes[keep]
    np.save(directory / "document_hashes.npy", hashes_kept)
    joined.finish()
    vocabulary.write(directory / "tokenizer")

    faults = Faults()
    for fact in facts:
        faults.merge(Faults(False, fact["faults"]["counts"], fact["faults"]["places"]))
    files = {p.name: cache.file_digest(p) for p in sorted(directory.glob("*.*"))}
    named = [files[n] for n in sorted(files) if n != "document_hashes.npy"]
    counts = np.load(directory / "token_counts.npy")
    manifest = {
        "format_version": FORMAT_VERSION,
        "content": cache.digest(vocabulary.digest(), named),
        "files": files,
        "identity": corpus.identity,
        "dtype": vocabulary.dtype().name,
        "documents": int(keep.sum()),
        "held_out_documents": int(sides.sum()),
        "duplicate_documents": int((~keep).sum()),
        "sentences": joined.sentences,
        "tokens": joined.tokens,
        "unknown_tokens": int(counts[:, vocabulary.ids["[UNK]"]].sum()),
        "one_sentence_documents": joined.lone,
        "vocabulary": vocabulary.digest(),
        "vocabulary_size": len(vocabulary),
        "corpus": {
            **corpus.facts(digests),
            "content": hashlib.sha256(hashes_kept.tobytes()).hexdigest(),
            "bytes": sum(fact["bytes"] for fact in facts),
            "faults": {"counts": faults.counts, "places": faults.places},
        },
    }
    cache.write_json(directory / MANIFEST, manifest)


class _Joined:
    """The arrays of a store, appended part by part."""

    def __init__(self, directory: Path, vocabulary: AnyVocabulary, documents: int):
        self.directory, self.dtype = directory, vocabulary.dtype()
        self.sentences = self.tokens = self.documents = self.lone = 0
        self.sources: list[int] = []
        self._tokens = open(directory / "tokens.bin", "wb")
        self._lengths = open(directory / "lengths.tmp", "wb")
        self._counts = np.zeros((2, len(vocabulary)), np.int64)
        self._documents = open_memmap(
            directory / "document_bounds.npy", "w+", np.int64, (documents + 1,)
        )

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
        at = self.documents + 1
        self._documents[at : at + len(sizes)] = self.sentences + np.cumsum(sizes)
        self.documents += len(sizes)
        self.sentences += len(lengths)
        self.tokens += int(lengths.sum(dtype=np.int64))
        self.lone += int((sizes == 1).sum())
        self.sources += [source] * len(sizes)

    def finish(self) -> None:
        """Sentence lengths to bounds, and everything to disk."""
        self._tokens.close()
        self._lengths.close()
        self._documents.flush()
        name = self.directory / "lengths.tmp"
        bounds = open_memmap(
            self.directory / "sentence_bounds.npy",
            "w+", np.int64, (self.sentences + 1,),
        )  # fmt: skip
        at, total = 1, 0
        with open(name, "rb") as file:
            while data := file.read(COPY):
                ends = np.cumsum(np.frombuffer(data, np.uint32), dtype=np.int64) + total
                bounds[at : at + len(ends)] = ends
                at, total = at + len(ends), int(ends[-1])
        bounds.flush()
        name.unlink()
        np.save(self.directory / "token_counts.npy", self._counts)
