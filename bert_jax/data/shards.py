"""Sources cut into shards: pieces of work whose bounds depend on the bytes alone.

So the store is the same for any number of workers, and what a killed build finished is
found again. A shard yields its documents as runs of sentences, so that a document of
any size passes through in bounded memory.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import fsspec

from bert_jax.data import cache, clean, lines, sentences
from bert_jax.data.faults import Faults
from bert_jax.data.sources import File, Source, files

SHARD = 8 << 20  # bytes
RECORDS = 4096  # of a tfds source in a shard
FLUSH = 256  # sentences given on at a time, within a document


class Run(NamedTuple):
    """Some sentences of a document, in order, and whether it ends with them."""

    sentences: list[str]
    ends: bool


@dataclass(frozen=True)
class Shard:
    """A piece of a source: whole files, or whole documents of one file."""

    source: Source
    number: int  # of the source in the corpus
    files: tuple[File, ...]
    begin: int = 0  # byte, or record
    end: int = -1  # -1: to the end

    def identity(self) -> list[Any]:
        """What decides the text of the shard."""
        text = {k: v for k, v in asdict(self.source).items() if k != "weight"}
        return [text, [asdict(f) for f in self.files], self.begin, self.end]


def cut(source: Source, number: int) -> list[Shard]:
    """Shards of a source, in the order of its text.

    Raises:
      ValueError: files are missing, or cannot be read.
    """
    if source.kind == "builtin":
        return [Shard(source, number, (_extracted(),))]
    if source.kind == "tfds":
        from bert_jax.data import tfds

        version, records = tfds.measure(source)
        whole = (File("", 0, version),)
        starts = range(0, records, RECORDS)
        return [
            Shard(source, number, whole, b, min(b + RECORDS, records)) for b in starts
        ]
    found = files(source)
    out: list[Shard] = []
    if source.kind == "tfrecord":
        return [Shard(source, number, (file,)) for file in found]
    if source.kind == "text" and source.documents == "file":
        group: list[File] = []
        for file in found:
            if group and sum(f.size for f in group) + file.size > SHARD:
                out.append(Shard(source, number, tuple(group)))
                group = []
            group.append(file)
        return [*out, Shard(source, number, tuple(group))]
    for file in found:
        if lines.packed(file.path):
            out.append(Shard(source, number, (file,)))
        else:
            bounds = _bounds(file, source.kind == "jsonl")
            pairs = zip(bounds, bounds[1:], strict=False)
            out += [Shard(source, number, (file,), b, e) for b, e in pairs]
    return out


def _extracted() -> File:
    """The embedded corpus as a file of the cache; reading it out takes seconds."""
    from bert_jax.data import python_docs

    def build(directory: Path) -> None:
        with open(directory / "text.txt", "w", encoding="utf-8", newline="\n") as out:
            for document in python_docs.documents():
                for paragraph in document.paragraphs:
                    out.writelines(f"{s}\n" for s in sentences.split(paragraph))
                out.write("\n")

    key = python_docs.fingerprint()
    path = cache.entry("python-docs", key, build) / "text.txt"
    return File(str(path), path.stat().st_size, key)


def _bounds(file: File, by_line: bool) -> list[int]:
    """Offsets at which the documents of a file are parted, near multiples of SHARD."""
    bounds = [0]
    find = lines.next_line if by_line else lines.next_document
    try:
        with fsspec.open(file.path, "rb") as opened:
            while bounds[-1] + SHARD < file.size:
                bounds.append(find(opened, bounds[-1] + SHARD))
    except OSError as error:
        raise ValueError(f"{file.path} cannot be read: {error}") from None
    return (
        bounds if bounds[-1] >= file.size and len(bounds) > 1 else [*bounds, file.size]
    )


def runs(shard: Shard, faults: Faults) -> Iterator[Run]:
    """Sentences of the documents of a shard, each squeezed and not empty.

    Raises:
      ValueError: ``faults`` is strict and there is a serious one.
    """
    source = shard.source
    if source.kind == "tfds":
        from bert_jax.data import tfds

        for number, text in tfds.texts(source, shard.begin, shard.end):
            place = f"{source.name}[{number}]"
            yield from _prose(_Paragraphs(text, place), source.language, faults)
    else:
        for file in shard.files:
            reader = lines.Reader(file.path, shard.begin, shard.end, faults)
            some = False
            for run in _of_file(reader, source, faults):
                some = some or bool(run.sentences)
                yield run
            if not some and shard.begin == 0 and shard.end in (-1, file.size):
                faults.add("empty_files", file.path.removeprefix("file://"))


class _Paragraphs:
    """Lines of a text that is no file, with a place for faults."""

    def __init__(self, text: str, place: str):
        self._text, self._place = text, place

    def place(self) -> str:
        return self._place

    def __iter__(self) -> Iterator[str]:
        return iter(self._text.split("\n"))


def _of_file(reader: lines.Reader, source: Source, faults: Faults) -> Iterator[Run]:
    if source.kind == "jsonl":
        for line in reader:
            if line:
                text = _field(line, source.field, reader, faults)
                paragraphs = _Paragraphs(text, reader.place())
                yield from _prose(paragraphs, source.language, faults)
    elif source.kind != "text" or source.documents == "blank_line":
        yield from _by_blank_lines(reader, source, faults)
    else:
        yield from _prose(reader, source.language, faults)


def _field(line: str, name: str, reader: lines.Reader, faults: Faults) -> str:
    try:
        text = json.loads(line)[name]
        if isinstance(text, str):
            if clean.SURROGATE.search(text):
                faults.add("bad_bytes", reader.place(), "half a surrogate pair")
                text = clean.SURROGATE.sub("\ufffd", text)
            return text
        detail = f"field {name!r} is {type(text).__name__}"
    except (ValueError, RecursionError) as error:
        detail = str(error)
    except (KeyError, TypeError, IndexError):
        detail = f"no field {name!r}"
    faults.add("bad_records", reader.place(), detail)
    return ""


def _squeezed(texts: list[str], reader: Any, faults: Faults) -> list[str]:
    """Texts without what is no text; a line that held nothing else ends no document."""
    kept = [text for t in texts if (text := clean.squeeze(t))]
    if len(kept) < len(texts):
        faults.add("no_tokens", reader.place(), count=len(texts) - len(kept))
    return kept


def _by_blank_lines(
    reader: lines.Reader, source: Source, faults: Faults
) -> Iterator[Run]:
    """Documents parted by blank lines; a line is a sentence or a paragraph of them."""
    prose = source.kind == "text"
    held: list[str] = []
    size, inside = 0, False
    for line in reader:
        if line:
            inside = True
            size += len(line)
            if prose:
                held += _squeezed(
                    sentences.split(line, source.language), reader, faults
                )
            elif text := clean.squeeze(line):
                held.append(text)
            else:
                faults.add("no_tokens", reader.place())
            if len(held) >= FLUSH or size > lines.LONGEST:
                yield Run(held, False)
                held, size = [], 0
        elif inside:
            yield Run(held, True)
            held, size, inside = [], 0, False
    if inside:
        yield Run(held, True)


def _prose(reader: Any, language: str, faults: Faults) -> Iterator[Run]:
    """One document; lines of a paragraph were wrapped, so they are joined first."""
    held: list[str] = []
    size = 0

    def split() -> list[str]:
        texts = sentences.split(" ".join(held), language) if held else []
        return _squeezed(texts, reader, faults)

    for line in reader:
        line = line.strip()
        if line:
            held.append(line)
            size += len(line)
        if held and (not line or size > lines.LONGEST):
            yield Run(split(), False)
            held, size = [], 0
    yield Run(split(), True)
