"""Bytes to lines of text, in bounded memory, whatever the bytes are.

UTF-8 always, whatever the machine's locale; LF ends a line and a CR before it goes with
it; a byte-order mark at the start of a file is no text.
"""

import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import fsspec

from bert_jax.data.faults import Faults

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".zst": zstd.open,
}
UNREADABLE = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstd.ZstdError)
BLOCK = 1 << 20  # bytes read at a time
LONGEST = 1 << 20  # bytes of a line; a longer one is cut at white space
_BOM = b"\xef\xbb\xbf"


def packed(path: str) -> bool:
    """Whether a file is compressed, by its name."""
    return path.endswith(tuple(PACKED))


class Reader:
    """Lines of a file or of a part of it.

    Args:
      path: local or of any file system fsspec knows.
      begin, end: bytes of the part; end -1 is the end of the file. A part begins at
        the start of a line. Of a compressed file only the whole can be read.
      faults: where to count what is wrong.
    """

    def __init__(self, path: str, begin: int, end: int, faults: Faults):
        self.path, self.begin, self.end = path, begin, end
        self.faults = faults
        self.number = 0  # of the line last given, from 1, within this part
        self._before: int | None = 0 if begin == 0 else None

    def place(self, ahead: int = 0) -> str:
        """File and line last given, for a person."""
        if self._before is None:
            # Faults are rare: lines before this part are counted at the first one.
            self._before = _count_lines(self.path, self.begin)
        return f"{_shown(self.path)}:{self._before + self.number + ahead}"

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks():
            try:
                texts = block.decode("utf-8").split("\n")
            except UnicodeDecodeError:
                texts = self._decode_each(block)
            if b"\0" in block:
                for ahead, text in enumerate(texts, 1):
                    if "\0" in text:
                        self.faults.add("nul", self.place(ahead))
            for text in texts:
                self.number += 1
                yield text.strip()

    def _decode_each(self, block: bytes) -> list[str]:
        texts = []
        for ahead, line in enumerate(block.split(b"\n"), 1):
            try:
                texts.append(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                self.faults.add("bad_bytes", self.place(ahead), error.reason)
                texts.append(line.decode("utf-8", "replace"))
        return texts

    def _blocks(self) -> Iterator[bytes]:
        """Runs of whole lines, without the last line's end."""
        rest, first = b"", self.begin == 0
        for data in self._raw():
            rest += data
            if first and len(rest) >= len(_BOM):
                rest, first = rest.removeprefix(_BOM), False
            end = rest.rfind(b"\n")
            if end >= 0:
                yield from self._cut(rest[:end])
                rest = rest[end + 1 :]
            while len(rest) > LONGEST:
                at = _cut_place(rest)
                self.faults.add("long_lines", self.place(1))
                yield rest[:at]
                rest = rest[at:]
        if rest:
            yield from self._cut(rest.removeprefix(_BOM) if first else rest)

    def _cut(self, block: bytes) -> Iterator[bytes]:
        """A block as it is, unless a line of it is too long."""
        if len(block) <= LONGEST:
            yield block
            return
        for line in block.split(b"\n"):
            while len(line) > LONGEST:
                at = _cut_place(line)
                self.faults.add("long_lines", self.place(1))
                yield line[:at]
                line = line[at:]
            yield line

    def _raw(self) -> Iterator[bytes]:
        suffix = next((s for s in PACKED if self.path.endswith(s)), None)
        with fsspec.open(self.path, "rb") as file:
            if suffix is None:
                file.seek(self.begin)
                left = self.end - self.begin if self.end >= 0 else None
                while data := file.read(BLOCK if left is None else min(BLOCK, left)):
                    yield data
                    left = None if left is None else left - len(data)
                return
            try:
                with PACKED[suffix](file) as unpacked:
                    # read1: what came before the end of a cut file is not lost.
                    while data := unpacked.read1(BLOCK):
                        yield data
            except UNREADABLE as error:
                self.faults.add("cut_off", _shown(self.path), str(error))


def _cut_place(line: bytes) -> int:
    """Where a line too long is cut: at a space, else between two characters."""
    space = line.rfind(b" ", LONGEST // 2, LONGEST)
    if space >= 0:
        return space
    at = LONGEST
    while at > LONGEST - 4 and line[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _shown(path: str) -> str:
    return path.removeprefix("file://")


def _count_lines(path: str, end: int) -> int:
    with fsspec.open(path, "rb") as file:
        total = 0
        while end > 0 and (data := file.read(min(BLOCK, end))):
            total += data.count(b"\n")
            end -= len(data)
        return total


def next_line(file: IO[bytes], offset: int) -> int:
    """Offset of the first line that begins at or after ``offset``."""
    if offset == 0:
        return 0
    file.seek(offset - 1)
    at = offset - 1
    while data := file.read(1 << 16):
        found = data.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(data)
    return at


def next_document(file: IO[bytes], offset: int) -> int:
    """Offset behind the first blank line that begins at or after ``offset``."""
    at = next_line(file, offset)
    file.seek(at)
    rest = b""
    while data := file.read(1 << 16):
        rest += data
        lines = rest.split(b"\n")
        rest = lines.pop()
        for line in lines:
            at += len(line) + 1
            if not line.strip():
                return at
    return at + len(rest)
