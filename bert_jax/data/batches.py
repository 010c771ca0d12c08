"""Rows to batches: numpy indexing over whole batches, never Python per record."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax import picks
from bert_jax.batch import Batch
from bert_jax.data import stream
from bert_jax.data.rows import Plan, RowSpec
from bert_jax.data.store import Store
from bert_jax.data.stream import Address


@dataclass(frozen=True)
class BatchSpec:
    """What turns rows into a batch, beside the rows."""

    rows: RowSpec
    plans: int
    shuffle: str
    mask_rate: float
    max_predictions: int  # 0 = no cap
    mask_copies: int  # 0 = dynamic masks; n = static, n copies per row


def gather(
    store: Store, columns: Plan, address: Address, place: np.ndarray, spec: BatchSpec
) -> Batch:
    """Rows ``[CLS] A [SEP] B [SEP]`` as a Batch of one pair a row.

    Args:
      store: the tokens.
      columns: spans of the rows, from the stream.
      address: where the rows come from; addresses the masks.
      place: int [B], place of each row in the global batch; addresses dropout.
      spec: length and masking counts.
    """
    ids = store.vocabulary.ids
    a_B1 = columns.length_a[:, None].astype(np.int64)
    b_B1 = columns.length_b[:, None].astype(np.int64)
    at_1T = np.arange(spec.rows.length)[None, :]
    in_a = (at_1T >= 1) & (at_1T <= a_B1)
    in_b = (at_1T >= a_B1 + 2) & (at_1T <= a_B1 + b_B1 + 1)
    source_BT = np.where(in_a, columns.start_a[:, None] + at_1T - 1, 0)
    start_b_B1 = columns.start_b[:, None] - a_B1 - 2
    source_BT = np.where(in_b, start_b_B1 + at_1T, source_BT)

    length_B1 = a_B1 + b_B1 + 3
    inside = at_1T < length_B1
    tokens = np.asarray(store.tokens[source_BT.ravel()]).reshape(source_BT.shape)
    tokens = np.where(in_a | in_b, tokens.astype(np.int32), ids["[SEP]"])
    tokens[:, 0] = ids["[CLS]"]
    tokens = np.where(inside, tokens, ids["[PAD]"]).astype(np.int32)

    counts = picks.pick_counts(spec.rows.length, spec.mask_rate, spec.max_predictions)
    reads = address.reads % spec.mask_copies if spec.mask_copies else address.reads

    def column(values: np.ndarray, dtype: type = np.int32) -> np.ndarray:
        return np.asarray(values).astype(dtype)[:, None]

    return Batch(
        tokens_BT=tokens,
        segments_BT=((at_1T >= a_B1 + 2) & inside).astype(np.int32),
        pairs_BT=inside.astype(np.int32),
        positions_BT=np.where(inside, at_1T, 0).astype(np.int32),
        maskable_BT=in_a | in_b,
        starts_BP=np.zeros((len(place), 1), np.int32),
        plans_BP=column(address.plans),
        rows_BP=column(address.rows),
        reads_BP=column(reads),
        picks_BP=np.array(counts, np.int32)[length_B1],
        nsp_BP=column(columns.label),
        weight_BP=np.ones((len(place), 1), np.float32),
        place_B=place.astype(np.int32),
    )


class Phase:
    """The batches of one phase: a pure function of the step."""

    def __init__(self, store: Store, spec: BatchSpec, batch_size: int):
        self.store, self.spec, self.batch_size = store, spec, batch_size
        self.stream = stream.make(store, spec.rows, spec.plans, spec.shuffle)

    def batch(self, position: int, places: range) -> Batch:
        """Rows ``places`` of the global batch that begins at a stream position."""
        place = np.arange(places.start, places.stop)
        address = self.stream.locate(position + place)
        columns = self.stream.columns(address)
        return gather(self.store, columns, address, place, self.spec)


@dataclass(frozen=True)
class Curriculum:
    """Phases one after another under one count of steps.

    ``ends`` are ends of phases in steps; ``starts`` the stream position where each
    phase begins: 0, or where an earlier phase over the same rows stopped.
    """

    phases: Sequence[Phase]
    ends: tuple[int, ...]
    starts: tuple[int, ...]

    def phase_of(self, step: int) -> int:
        """Number of the phase that step (counted from 0) belongs to."""
        return int(np.searchsorted(self.ends, step, "right"))

    def position(self, step: int) -> int:
        """Stream position of the first row of a step."""
        number = self.phase_of(step)
        begin = self.ends[number - 1] if number else 0
        batch_size = self.phases[number].batch_size
        return self.starts[number] + (step - begin) * batch_size

    def batch(self, step: int, places: range) -> Batch:
        """The rows of a step, those at ``places`` of its global batch."""
        phase = self.phases[self.phase_of(step)]
        return phase.batch(self.position(step), places)

    def address(self, step: int) -> Address:
        """Where the rows of a step come from."""
        phase = self.phases[self.phase_of(step)]
        place = np.arange(phase.batch_size)
        return phase.stream.locate(self.position(step) + place)


def curriculum(store: Store, specs: Sequence[tuple[BatchSpec, int, int]]) -> Curriculum:
    """A curriculum from (spec, steps, batch size) of each phase."""
    phases: list[Phase] = []
    ends: list[int] = []
    starts: list[int] = []
    used: dict[BatchSpec, int] = {}
    for spec, steps, batch_size in specs:
        phases.append(Phase(store, spec, batch_size))
        ends.append((ends[-1] if ends else 0) + steps)
        starts.append(used.get(spec, 0))
        used[spec] = starts[-1] + steps * batch_size
    return Curriculum(phases, tuple(ends), tuple(starts))
