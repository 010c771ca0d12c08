"""Corpus specs to documents of sentences, and the corpus as it lies in the cache.

    builtin:python-docs       prose that ships with every CPython
    sentences:GLOB            one sentence a line, blank line between documents (2018)
    text:GLOB                 prose; a document a file, blank lines between paragraphs
    text:GLOB?documents=blank_line    a paragraph a line, blank line between documents

Several globs are joined by commas; ``.gz``, ``.xz`` and ``.zst`` are read as they are.
"""

import glob
import gzip
import hashlib
import importlib.metadata
import io
import json
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl

import numpy as np

from bert_jax.data import cache

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMAT_VERSION = 1
UNREADABLE = (EOFError, OSError, lzma.LZMAError, zlib.error, zstd.ZstdError)
KINDS = ("builtin", "sentences", "text")
BUILTINS = ("python-docs",)


@dataclass(frozen=True)
class Source:
    """A parsed corpus spec."""

    kind: str
    place: str
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Corpus:
    """A corpus in the cache: sentences, document hashes and the split.

    ``sentences.txt`` holds a sentence a line and a blank line after each document.
    """

    directory: Path
    manifest: dict[str, Any]

    def documents(self, held_out: bool | None = None) -> Iterator[list[str]]:
        """Documents in corpus order; of one side of the split, or all (None)."""
        sides = self.held_out()
        number, sentences = 0, []
        path = self.directory / "sentences.txt"
        with open(path, encoding="utf-8", newline="\n") as f:
            for line in f:
                if line != "\n":
                    sentences.append(line[:-1])
                    continue
                if held_out is None or bool(sides[number]) == held_out:
                    yield sentences
                number, sentences = number + 1, []

    def held_out(self) -> np.ndarray:
        """bool [documents]: True where a document is held out of training."""
        hashes = np.load(self.directory / "document_hashes.npy")
        return hashes <= np.uint64(self.manifest["held_out_threshold"])


def parse(spec: str) -> Source:
    """Reads a corpus spec.

    Raises:
      ValueError: unknown kind, builtin or option, with those there are.
    """
    kind, colon, rest = spec.partition(":")
    if not colon or kind not in KINDS:
        raise ValueError(
            f"corpus {spec!r} has no kind this version reads; use builtin:python-docs, "
            "sentences:GLOB (a sentence a line, blank line between documents) or "
            "text:GLOB (prose)"
        )
    place, _, query = rest.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ValueError(
            f"corpus {spec!r}: {query!r} after the question mark is no option like "
            "documents=blank_line; a question mark cannot be part of a pattern"
        ) from None
    options = tuple(sorted(pairs))
    if kind == "builtin" and place not in BUILTINS:
        raise ValueError(f"corpus {spec!r}: the builtin corpora are {BUILTINS}")
    for name, value in options:
        if kind != "text" or name != "documents" or value not in ("file", "blank_line"):
            raise ValueError(
                f"corpus {spec!r}: unknown option {name}={value}; text: takes "
                "documents=file or documents=blank_line"
            )
    return Source(kind, place, options)


def files(source: Source) -> list[Path]:
    """Files of a file corpus, in name order.

    Raises:
      ValueError: a pattern matches nothing.
    """
    found: set[Path] = set()
    for pattern in source.place.split(","):
        matches = [Path(p) for p in glob.glob(os.path.expanduser(pattern))]
        matches = [p for p in matches if p.is_file()]
        if not matches:
            raise ValueError(
                f"corpus {source.kind}:{source.place} is missing: no file matches "
                f"{pattern!r}; quote the pattern and check the path"
            )
        found.update(matches)
    return sorted(found)


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    if path.suffix == ".zst":
        return io.BufferedReader(zstd.open(path, "rb"))
    return open(path, "rb")


def _lines(path: Path) -> Iterator[str]:
    """Stripped lines; only a newline ends a line, as in the 2018 reader."""
    try:
        with _open(path) as f, io.TextIOWrapper(f, "utf-8", newline="\n") as text:
            for line in text:
                yield line.strip()
    except UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read to its end ({error}); it is cut off or not "
            f"what {path.suffix or 'its name'} says"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 near byte {error.start} of a block "
            f"({error.reason}); convert it, e.g. with iconv -t UTF-8"
        ) from None


def documents(source: Source) -> Iterator[list[str]]:
    """Documents of a source as lists of sentences; empty documents are dropped."""
    if source.kind == "sentences":
        for path in files(source):
            yield from _groups(_lines(path))
        return
    from bert_jax.data import sentences

    if source.kind == "builtin":
        from bert_jax.data import python_docs

        for document in python_docs.documents():
            yield [s for text in document.paragraphs for s in sentences.split(text)]
        return
    by_file = dict(source.options).get("documents", "file") == "file"
    for path in files(source):
        blocks = _groups(_lines(path))
        if by_file:
            # Lines of a paragraph were wrapped, so they are joined before splitting.
            split = [s for group in blocks for s in sentences.split(" ".join(group))]
            if split:
                yield split
        else:
            for group in blocks:
                yield [s for line in group for s in sentences.split(line)]


def _groups(lines: Iterator[str]) -> Iterator[list[str]]:
    """Runs of lines that are not blank."""
    group: list[str] = []
    for line in lines:
        if line:
            group.append(line)
        elif group:
            yield group
            group = []
    if group:
        yield group


def _fingerprint(source: Source) -> list[Any]:
    """What must be unchanged for an earlier reading of the source to hold."""
    if source.kind == "builtin":
        from bert_jax.data import python_docs

        return [python_docs.fingerprint()]
    stats = [(path, path.stat()) for path in files(source)]
    return [[str(p.absolute()), s.st_size, s.st_mtime_ns] for p, s in stats]


def held_out_threshold(hashes: np.ndarray) -> int:
    """Largest content hash of a held-out document.

    Held out are the lowest hashes: the larger of 2 % and 32 documents, at most 10 %.
    Equal copies share a hash and so a side; where copies would carry the side over
    10 %, it stops before them.
    """
    count = len(hashes)
    wanted = min(max(-(-count // 50), 32), count // 10)
    if wanted == 0:
        return 0
    ordered = np.sort(hashes)
    threshold = ordered[wanted - 1]
    if np.searchsorted(ordered, threshold, "right") > count // 10:
        lower = np.searchsorted(ordered, threshold, "left")
        threshold = ordered[lower - 1] if lower else np.uint64(0)
    return int(threshold)


def _read(source: Source, spec: str, directory: Path) -> None:
    """Writes the corpus into a cache entry."""
    hashes, counts, content = [], {"sentences": 0, "bytes": 0}, hashlib.sha256()
    with open(directory / "sentences.txt", "wb") as out:
        for document in documents(source):
            block = "".join(f"{' '.join(s.split())}\n" for s in document).encode()
            out.write(block + b"\n")
            content.update(block + b"\n")
            hashes.append(int.from_bytes(hashlib.sha256(block).digest()[:8], "big"))
            counts["sentences"] += len(document)
            counts["bytes"] += len(block)
    if not hashes:
        raise ValueError(f"corpus {spec} is empty: it holds no document with text")
    array = np.array(hashes, np.uint64)
    np.save(directory / "document_hashes.npy", array)
    threshold = held_out_threshold(array)
    cache.write_json(
        directory / "manifest.json",
        {
            "format_version": FORMAT_VERSION,
            "spec": spec,
            "content": content.hexdigest(),
            "documents": len(hashes),
            "held_out_documents": int((array <= np.uint64(threshold)).sum()),
            "held_out_threshold": threshold,
            **counts,
            "files": [
                {
                    "name": path.name,
                    "bytes": path.stat().st_size,
                    "sha256": cache.file_digest(path),
                }
                for path in (files(source) if source.kind != "builtin" else [])
            ],
        },
    )


def load(spec: str) -> Corpus:
    """The corpus of a spec, read into the cache unless an earlier reading holds.

    Raises:
      ValueError: the spec is wrong, files are missing, or there is no text in them.
    """
    source = parse(spec)
    splitter = importlib.metadata.version("sentencex")
    key = cache.digest(FORMAT_VERSION, splitter, spec, _fingerprint(source))
    place = cache.entry("corpora", key, lambda path: _read(source, spec, path))
    return Corpus(place, json.loads((place / "manifest.json").read_text()))
