"""Directories on gs://, or any file system fsspec knows, as local ones.

A store is copied once to the local disk: rows are gathered from memory maps, so the
files must lie on a disk of this host. Parts of a store made by other machines are
written to, and read from, a place that all of them see.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec

from bert_jax.data import cache

MANIFEST = "manifest.json"


def fetch(url: str) -> Path:
    """Local copy of a store, verified against its manifest; a path stays as it is.

    Raises:
      ValueError: there is no store, it does not fit the disk, or a copy came damaged.
    """
    if "://" not in url:
        return Path(url)
    try:
        system, path = fsspec.core.url_to_fs(url.rstrip("/"))
        manifest = json.loads(system.cat_file(f"{path}/{MANIFEST}"))
    except FileNotFoundError:
        raise ValueError(f"{url} is no token store: it has no {MANIFEST}") from None
    except ImportError as error:
        raise ValueError(
            f"{url} cannot be opened: {error}; pip install 'bert_jax[gcs]'"
        ) from None

    def build(directory: Path) -> None:
        listed = {n: i for n, i in system.find(path, detail=True).items()}
        needed = sum(int(info["size"]) for info in listed.values())
        free = shutil.disk_usage(directory).free
        if needed > free:
            raise ValueError(
                f"store {url} needs {needed:,} bytes on the local disk, {free:,} are "
                f"free at {cache.root()}; set BERT_JAX_CACHE to a larger (attached) "
                "disk, or mount the bucket (gcsfuse) and give its path"
            )
        for name in listed:
            target = directory / name.removeprefix(path).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(name, str(target))
        for name, digest in manifest["files"].items():
            copied = directory / name
            if not copied.is_file() or cache.file_digest(copied) != digest:
                raise ValueError(
                    f"{url}/{name} is not what its manifest says; copy the store anew"
                )

    return cache.entry("remote-stores", cache.digest(manifest["content"]), build)


@contextmanager
def building(place: str, last: str) -> Iterator[Path]:
    """A local directory to fill, that appears at ``place`` when the block ends well.

    On a remote file system, which cannot rename a directory, the file ``last`` is
    copied after all others, so that where it is, everything is.
    """
    if "://" not in place:
        with cache.building(Path(place)) as directory:
            yield directory
        return
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        yield directory
        system, path = fsspec.core.url_to_fs(place)
        for file in sorted(directory.iterdir(), key=lambda f: f.name == last):
            system.put_file(str(file), f"{path}/{file.name}")


def whole(parent: str, last: str) -> set[str]:
    """Names of the directories under ``parent`` that ``building`` has finished."""
    if "://" not in parent:
        return {file.parent.name for file in Path(parent).glob(f"*/{last}")}
    system, path = fsspec.core.url_to_fs(parent)
    return {found.split("/")[-2] for found in system.glob(f"{path}/*/{last}")}


@contextmanager
def near(place: str, *names: str) -> Iterator[Path]:
    """A directory on the local disk while the block runs: itself, or a copy.

    Args:
      place: a path or URL.
      names: the files that are needed; all if none is named.
    """
    if "://" not in place:
        yield Path(place)
        return
    system, path = fsspec.core.url_to_fs(place)
    with tempfile.TemporaryDirectory() as made:
        wanted = [f"{path}/{name}" for name in names] or system.find(path)
        for name in wanted:
            system.get_file(name, str(Path(made, name.rsplit("/", 1)[1])))
        yield Path(made)


def remove(place: str) -> None:
    """Removes a directory and all in it, if it is there."""
    if "://" not in place:
        shutil.rmtree(place, ignore_errors=True)
        return
    system, path = fsspec.core.url_to_fs(place)
    if system.exists(path):
        system.rm(path, recursive=True)
