"""A store on gs:// (or any file system fsspec knows), copied once to the local disk.

Rows are gathered from memory maps, so the files must lie on a disk of this host.
"""

import json
import shutil
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
