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


class Checkpoints:
    """The checkpoints of a run: ``<directory>/<step>/``."""

    def __init__(self, directory: str | Path, keep: int | None = None):
        policy = ocp.training.preservation_policies.LatestN(keep) if keep else None
        self._checkpointer = ocp.training.Checkpointer(
            epath.Path(os.path.abspath(directory)),
            preservation_policy=policy,
            cleanup_tmp_directories=keep is not None,
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

    def load(self, step: int, target: dict[str, Any]) -> dict[str, Any]:
        """A checkpoint with the shapes and shardings of ``target``.

        Only the parts named in ``target`` are read.

        Raises:
          ValueError: an array does not have the checksum it was saved with.
        """
        tree = self._checkpointer.load_checkpointables(step, target)
        metadata = self._checkpointer.metadata(step)
        stored = (getattr(metadata, "custom_metadata", None) or {}).get("checksums", {})
        for path, checksum in _checksums(mesh.fetch(tree)).items():
            if stored.get(path, checksum) != checksum:
                raise ValueError(
                    f"checkpoint {step} is damaged: array {path} does not have the "
                    "checksum it was saved with; delete that step's directory to go "
                    "back to the one before"
                )
        return tree

    def wait(self) -> None:
        """Until what was started is on disk."""
        self._checkpointer.wait()

    def close(self) -> None:
        """Waits and lets go of the directory."""
        self._checkpointer.close()
