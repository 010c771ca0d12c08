"""Devices as a mesh, and how arrays lie on it. Sharding is said here and nowhere else.

Axes: ``data`` and ``fsdp`` split the rows of a batch; parameters lie whole on every
device.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp", "tensor")


def make(shape: tuple[int, int, int] | None = None) -> Mesh:
    """A mesh over all devices of all processes; by default all on ``data``.

    Raises:
      ValueError: the shape does not multiply to the number of devices.
    """
    if shape and shape[2] != 1:
        raise ValueError(
            f"machine.mesh={shape}: nothing is split over tensor yet, so it must be 1"
        )
    count = jax.device_count()
    shape = shape or (count, 1, 1)
    if int(np.prod(shape)) != count:
        raise ValueError(
            f"machine.mesh={shape} asks for {int(np.prod(shape))} devices, there are "
            f"{count}; its product must be {count}"
        )
    # Auto, said aloud: the default of make_mesh is Explicit since jax 0.9, under which
    # an embedding lookup with sharded ids is a type error.
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """One copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def over_rows(mesh: Mesh) -> NamedSharding:
    """Leading axis split over every device that takes rows."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def row_devices(mesh: Mesh) -> int:
    """How many ways the rows of a batch are split."""
    return int(mesh.shape["data"] * mesh.shape["fsdp"])


def local_rows(batch_size: int) -> range:
    """Places of the global batch that this process gathers."""
    each = batch_size // jax.process_count()
    first = each * jax.process_index()
    return range(first, first + each)


def place(tree: Any, mesh: Mesh) -> Any:
    """Host arrays of this process's rows -> global arrays split over rows."""
    sharding = over_rows(mesh)
    return jax.tree.map(
        lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), tree
    )


def fetch(tree: Any) -> Any:
    """Arrays, split or not, to numpy on every process."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)
