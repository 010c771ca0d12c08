"""Orbax behind one file: save in the background, keep the latest, verify on load."""

import os
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath
from orbax.checkpoint import v1 as ocp

from bert_jax import mesh

# What Orbax and its storage library raise for a file that is gone or cut short.
DAMAGED = (ValueError, OSError, KeyError, RuntimeError)


def _checksums(tree: Any) -> dict[str, int]:
    """crc32 of each array, by path. Orbax loads a flipped bit without a word."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path): zlib.crc32(np.ascontiguousarray(leaf).tobytes())
        for path, leaf in leaves
    }


def saved_steps(directory: Path) -> list[int]:
    """Steps of the complete checkpoints of a run; nothing is opened or made.

    Orbax writes under a temporary name and renames, so a bare number is a whole save.
    """
    if not directory.is_dir():
        return []
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdigit())


def load_parts(directory: Path, step: int, target: dict[str, Any]) -> dict[str, Any]:
    """Parts of a checkpoint, with the shapes and shardings of ``target``.

    Args:
      directory: that of all checkpoints of a run.
      step: which one.
      target: name of a part (params, optimizer, step) -> tree of ShapeDtypeStruct with
        shardings; what is not named is not read. A checkpoint opens on any devices
        because the shardings come from here.

    Raises:
      ValueError: an array does not have the checksum it was saved with.
    """
    path = epath.Path(os.path.abspath(directory)) / str(step)
    tree = ocp.load_checkpointables(path, target)
    metadata = ocp.checkpointables_metadata(path)
    stored = (metadata.custom_metadata or {}).get("checksums", {})
    for name, checksum in _checksums(mesh.fetch(tree)).items():
        if stored.get(name, checksum) != checksum:
            raise ValueError(
                f"checkpoint {path} is damaged: array {name} does not have the "
                "checksum it was saved with"
            )
    return tree


class Checkpoints:
    """The checkpoints of a run: ``<directory>/<step>/``."""

    def __init__(self, directory: str | Path, keep: int):
        self._checkpointer = ocp.training.Checkpointer(
            epath.Path(os.path.abspath(directory)),
            preservation_policy=ocp.training.preservation_policies.LatestN(keep),
            cleanup_tmp_directories=True,
        )

    def save(self, step: int, tree: dict[str, Any]) -> None:
        """Starts saving a dict of trees; waits first for the save before it.

        The arrays are copied before this returns, so the caller may donate them.
        """
        self.wait()
        host = mesh.fetch(tree)
        # `force`: when to save is the loop's decision, not a policy's.
        self._checkpointer.save_checkpointables_async(
            step, tree, force=True, custom_metadata={"checksums": _checksums(host)}
        )

    def wait(self) -> None:
        """Until what was started is on disk."""
        self._checkpointer.wait()

    def close(self) -> None:
        """Waits, and closes the checkpointer."""
        self._checkpointer.close()
