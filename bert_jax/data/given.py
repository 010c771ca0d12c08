"""Rows and masks that another program made, kept in a store beside their tokens.

    given.json             what the rows were built with
    given_NAME.npy         for each field of a ``rows.Plan``
    given_mask_first.npy   int64 [rows + 1], masks of row r begin here
    given_mask_place.npy   int32 [masks], position in the row
    given_mask_token.npy   int32 [masks], what stands there instead

The tokens of the store are the uncorrupted ones, so the same rows can be read with
masks drawn anew.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import cache
from bert_jax.data.rows import Plan, RowSpec, ragged, take
from bert_jax.data.store import Store


class Masks(NamedTuple):
    """Masks of the rows of a plan, one after another."""

    first: np.ndarray  # int64 [rows + 1]
    place: np.ndarray  # int32 [masks]
    token: np.ndarray  # int32 [masks]


class Layout(NamedTuple):
    """What the rows were built with, as far as they say it."""

    max_seq_length: int
    max_predictions_per_seq: int


def write(directory: Path, layout: Layout, plan: Plan, masks: Masks) -> None:
    """Writes rows and masks beside the tokens of a store that is being made."""
    cache.write_json(directory / "given.json", layout._asdict())
    for name, values in plan._asdict().items():
        np.save(directory / f"given_{name}.npy", values)
    for name, values in masks._asdict().items():
        np.save(directory / f"given_mask_{name}.npy", values)


def has_rows(store: Store) -> bool:
    """Whether a store came with rows."""
    return (store.directory / "given.json").is_file()


def layout(store: Store) -> Layout:
    """What the rows of a store were built with."""
    return Layout(**cache.read_json(store.directory / "given.json"))


def sides(store: Store) -> tuple[int, int, int]:
    """Rows for training, held out, and left out: their segments lie on both sides."""
    plan = Plan(*(_load(store, name) for name in Plan._fields))
    training = len(_rows(store, plan, False))
    held_out = len(_rows(store, plan, True))
    return training, held_out, len(plan.label) - training - held_out


def _load(store: Store, name: str) -> np.ndarray:
    return np.load(store.directory / f"given_{name}.npy", mmap_mode="r")


def _rows(store: Store, plan: Plan, held_out: bool) -> np.ndarray:
    """int64: rows all of whose documents lie on the side that is asked for."""
    on_side = store.held_out == held_out
    inside = np.add.reduceat(on_side[plan.document].astype(np.int64), plan.first[:-1])
    return np.flatnonzero(inside == np.diff(plan.first))


def make(store: Store, spec: RowSpec, plan: int) -> Plan:
    """The rows of one side of the split, in the order they were given.

    Raises:
      ValueError: the store has none, or none on that side.
    """
    del plan  # there is one
    if not has_rows(store):
        raise ValueError(
            "rows.format=given needs rows that another program made; give "
            "--corpus 'tfrecord:GLOB', or another rows.format"
        )
    whole = Plan(*(_load(store, name) for name in Plan._fields))
    mine = _rows(store, whole, spec.held_out)
    if not len(mine):
        side = "held-out" if spec.held_out else "training"
        raise ValueError(f"none of the given rows lies on the {side} side of the split")
    return take([whole], np.zeros(len(mine), np.int64), mine)


def masks(store: Store, spec: RowSpec) -> Masks:
    """Masks of the rows that ``make`` returns."""
    whole = Plan(*(_load(store, name) for name in Plan._fields))
    mine = _rows(store, whole, spec.held_out)
    first = _load(store, "mask_first")
    counts = np.diff(first)[mine]
    index = np.repeat(first[mine], counts) + ragged(counts)
    return Masks(
        np.concatenate([[0], np.cumsum(counts)]),
        _load(store, "mask_place")[index],
        _load(store, "mask_token")[index],
    )
