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

from bert_jax.data import cache, joining, parts, remote, workers
from bert_jax.data.corpus import Corpus
from bert_jax.data.store import FORMAT_VERSION, MANIFEST, Store, open_store
from bert_jax.data.vocabularies import AnyVocabulary
from bert_jax.data.workers import Run

COPY = 1 << 18  # bytes copied at a time


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
    with (
        _nothing_left(beside),
        _told_when_full(place),
        cache.only_one(beside / ".lock"),
    ):
        if (place / MANIFEST).is_file():
            _check_same(corpus, vocabulary, place)
            shutil.rmtree(beside, ignore_errors=True)
            return
        if place.is_dir() and any(place.iterdir()):
            raise ValueError(
                f"{place} holds other files and no store; give another place"
            )
        if corpus.sources[0].kind == "tfrecord":
            from bert_jax.data import records  # brings scipy, 30 MB in every worker

            if drop_duplicates:
                raise ValueError("rows of tfrecord: are read as they are; drop none")
            with cache.building(place) as directory:
                records.join(corpus, vocabulary, _digests(corpus, run), directory)
            return
        done = _parts(corpus, vocabulary, work, run, strict)
        with cache.building(place) as directory:
            digests = _digests(corpus, run)
            joining.join(corpus, vocabulary, done, digests, directory, drop_duplicates)
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
def _nothing_left(beside: Path) -> Iterator[None]:
    """After a failure keeps finished parts, and nothing where there are none."""
    try:
        yield
    except BaseException:
        if beside.is_dir() and not any(p.is_dir() for p in beside.iterdir()):
            shutil.rmtree(beside, ignore_errors=True)
        raise


@contextmanager
def _told_when_full(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # numpy.tofile says "N requested and M written" and no errno.
        short = error.errno is None and "written" in str(error)
        if not short and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
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
