"""Corpus specs: where text lies and how it is laid out.

    builtin:python-docs                prose that ships with every CPython
    sentences:GLOB                     a sentence a line, blank line between documents
    text:GLOB                          prose; a document a file, blank lines between
                                       paragraphs
    text:GLOB?documents=blank_line     a paragraph a line, blank line between documents
    jsonl:GLOB?field=text              a document a line
    tfds:NAME[/CONFIG][:SPLIT]?field=text
    tfrecord:GLOB                      rows and masks in the records of 2018

Several globs are joined by commas; ``.gz``, ``.xz`` and ``.zst`` are read as they are;
paths may be local or of any file system fsspec knows (gs://). ``?language=zh`` sets the
sentence splitter. Several specs are mixed as ``0.7*SPEC + 0.3*SPEC``: the weights are
shares of training rows.
"""

import math
import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import fsspec

from bert_jax.data import sentences

BUILTINS = ("python-docs",)
# Options of each kind, with the values each may take (empty: any).
OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "builtin": {},
    "sentences": {},
    "text": {"documents": ("file", "blank_line"), "language": ()},
    "jsonl": {"field": (), "language": ()},
    "tfds": {"field": (), "language": (), "data_dir": ()},
    "tfrecord": {},
}
_WEIGHTED = re.compile(r"\s*(\d*\.?\d+(?:e-?\d+)?)\s*\*\s*(.*)", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """A parsed corpus spec."""

    kind: str
    place: str
    documents: str = "file"
    field: str = "text"
    language: str = "en"
    data_dir: str = ""
    weight: float = 1.0

    @property
    def name(self) -> str:
        """The spec without its weight."""
        return f"{self.kind}:{self.place}"


@dataclass(frozen=True)
class File:
    """A file of a source: what must be unchanged for an earlier reading to hold."""

    path: str
    size: int
    version: str  # changes with the content: time of change, or the store's generation


def parse(spec: str) -> tuple[Source, ...]:
    """Reads a corpus spec; several are joined by `` + ``.

    Raises:
      ValueError: unknown kind, builtin, option or language, with those there are.
    """
    parts = [part.strip() for part in spec.split(" + ")]
    if len(parts) == 1:
        return (_parse_one(spec.strip(), 1.0),)
    found = []
    for part in parts:
        weighted = _WEIGHTED.fullmatch(part)
        if weighted is None or not 0 < float(weighted[1]) < math.inf:
            raise ValueError(
                f"corpus {spec!r}: {part!r} has no weight; write a mixture as "
                "0.7*SPEC + 0.3*SPEC, each weight above 0"
            )
        found.append(_parse_one(weighted[2].strip(), float(weighted[1])))
    if any(source.kind == "tfrecord" for source in found):
        raise ValueError(
            f"corpus {spec!r}: tfrecord: holds finished rows, which cannot be mixed "
            "with others; give all files in one tfrecord:GLOB,GLOB"
        )
    return tuple(found)


def _parse_one(spec: str, weight: float) -> Source:
    kind, colon, rest = spec.partition(":")
    if not colon or kind not in OPTIONS:
        raise ValueError(
            f"corpus {spec!r} has no kind this version reads; use builtin:python-docs, "
            "sentences:GLOB (a sentence a line, blank line between documents), "
            "text:GLOB (prose), jsonl:GLOB?field=text, tfds:NAME or tfrecord:GLOB"
        )
    place, _, query = rest.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ValueError(
            f"corpus {spec!r}: {query!r} after the question mark is no option like "
            "documents=blank_line; a question mark cannot be part of a pattern"
        ) from None
    if not place:
        raise ValueError(f"corpus {spec!r} names nothing after {kind}:")
    if kind == "builtin" and place not in BUILTINS:
        raise ValueError(f"corpus {spec!r}: the builtin corpora are {BUILTINS}")
    known = OPTIONS[kind]
    for name, value in pairs:
        if name not in known or (known[name] and value not in known[name]):
            takes = ", ".join(
                f"{key}={'|'.join(values) or '...'}" for key, values in known.items()
            )
            raise ValueError(
                f"corpus {spec!r}: unknown option {name}={value}; {kind}: takes "
                f"{takes or 'none'} (a question mark cannot be part of a pattern)"
            )
    source = Source(kind, place, weight=weight, **dict(pairs))
    if "language" in known:
        sentences.check(source.language)
    return source


def files(source: Source) -> list[File]:
    """Files of a source, in order of their full paths.

    Raises:
      ValueError: a pattern matches nothing, or the file system is not installed.
    """
    found: dict[str, File] = {}
    for pattern in source.place.split(","):
        try:
            system, path = fsspec.core.url_to_fs(pattern)
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"corpus {source.name}: {pattern!r} cannot be opened: {error}; for "
                "gs:// install the extra: pip install 'bert_jax[gcs]'"
            ) from None
        matches = system.glob(path, detail=True)
        folders = [p for p, info in matches.items() if info["type"] == "directory"]
        matches = {p: i for p, i in matches.items() if i["type"] != "directory"}
        if not matches and folders:
            raise ValueError(
                f"corpus {source.name}: {folders[0]} is a directory; give its files, "
                f"e.g. '{pattern.rstrip('/')}/*'"
            )
        if not matches:
            raise ValueError(
                f"corpus {source.name} is missing: no file matches {pattern!r}; quote "
                "the pattern and check the path"
            )
        for name, info in matches.items():
            if "://" not in pattern and not os.path.exists(name):
                raise ValueError(f"{name} cannot be read: it links to nothing")
            if "://" not in pattern and not os.access(name, os.R_OK):
                raise ValueError(f"{name} cannot be read: no permission")
            url = system.unstrip_protocol(name)
            found[url] = File(url, int(info["size"]), _version(info))
    return [found[url] for url in sorted(found)]


def _version(info: dict[str, Any]) -> str:
    for key in ("generation", "etag", "ETag", "md5Hash", "mtime"):
        if info.get(key):
            return f"{key}={info[key]}"
    return ""
