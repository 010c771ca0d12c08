"""A content-addressed cache on local disk: what is prepared once is found again."""

import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

YOUNG = 60  # seconds a half-built entry is left alone


def root() -> Path:
    """The cache directory: $BERT_JAX_CACHE, else ~/.cache/bert_jax."""
    named = os.environ.get("BERT_JAX_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "bert_jax"


def digest(*parts: Any) -> str:
    """Hex sha256 of values that JSON can hold."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Hex sha256 of a file."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _discard_dead(directory: Path) -> None:
    """Removes what killed processes left half built: nobody holds its lock.

    A lock and not a process id, which means nothing in another container.
    """
    for left in directory.glob(".building-*"):
        try:
            if time.time() - left.stat().st_mtime < YOUNG:
                continue  # perhaps made this moment, and not locked yet
            held = os.open(left, os.O_RDONLY)
        except OSError:
            continue  # gone meanwhile
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            pass  # being built
        finally:
            os.close(held)


@contextmanager
def building(place: Path) -> Iterator[Path]:
    """A directory to fill that appears as ``place`` when the block ends well.

    Built beside its place and renamed, so a killed process leaves no half entry and
    two processes at work on the same entry end with one of two equal ones.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    _discard_dead(place.parent)
    name = f".building-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    temporary = place.parent / name
    temporary.mkdir()
    held = os.open(temporary, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield temporary
        try:
            temporary.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    finally:
        os.close(held)
        shutil.rmtree(temporary, ignore_errors=True)


def entry(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """Directory ``kind/key`` of the cache; made by ``build(directory)`` if need be."""
    place = root() / kind / key
    if not place.is_dir():
        with building(place) as directory:
            build(directory)
    return place


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Waits for a lock file, so that one process at a time is inside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8", newline="\n")
    temporary.replace(path)


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
      ValueError: it is damaged; the file is named.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged ({error}); restore it from a copy, or delete "
            f"{path.parent} and make it again"
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Writes JSON whole or not at all."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    write_text(path, text + "\n")
