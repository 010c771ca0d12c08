"""Rows to batches: numpy indexing over whole batches, never Python per record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_jax import picks
from bert_jax.batch import Batch
from bert_jax.data import given, rows, stream
from bert_jax.data.rows import NO_LABEL, Plan, RowSpec
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
    pack: int = 1  # rows in one row of the batch, at most
    given: bool = False  # masks are those that came with the rows


def gather(
    store: Store,
    plans: list[Plan],
    address: Address,
    place: np.ndarray,
    spec: BatchSpec,
    rate: float | None = None,
    masks: given.Masks | None = None,
) -> Batch:
    """Rows ``[CLS] span [SEP] span [SEP] ...`` as a Batch, packed where asked for.

    Args:
      store: the tokens.
      plans: by plan number.
      address: rows wanted, [B, P]; addresses the masks.
      place: int [B], place of each row in the global batch; addresses dropout.
      spec: length and masking counts.
      rate: share of tokens to predict; that of the spec by default.
      masks: those that came with the rows of plan 0.
    """
    ids, B, T = store.vocabulary.ids, len(place), spec.rows.length
    row_N, number_N = np.nonzero(address.rows >= 0)  # N pairs, row after row
    pairs = rows.take(
        plans, address.plans[row_N, number_N], address.rows[row_N, number_N]
    )
    length_N = pairs.lengths()
    ends_N = np.cumsum(length_N)
    # Where each pair begins in the flat batch: its row, behind the pairs before it.
    before_N = ends_N - length_N
    first_N = row_N * T + before_N - before_N[np.searchsorted(row_N, row_N)]

    # [SEP] everywhere in a pair, then [CLS] first and the tokens of each span.
    tokens, maskable = np.full(B * T, ids["[PAD]"], np.int32), np.zeros(B * T, bool)
    segments, numbers, positions, words = (np.zeros(B * T, np.int32) for _ in range(4))
    within = rows.ragged(length_N)
    flat = np.repeat(first_N, length_N) + within
    tokens[flat], tokens[first_N] = ids["[SEP]"], ids["[CLS]"]
    numbers[flat] = np.repeat(number_N + 1, length_N)
    positions[flat] = within

    spans_N = np.diff(pairs.first)
    length_S = pairs.length.astype(np.int64)
    ends_S = np.cumsum(length_S + 1)  # each with its [SEP]
    begins_S = ends_S - length_S - 1
    inside_S = begins_S - np.repeat(begins_S[pairs.first[:-1]], spans_N)
    first_S = np.repeat(first_N, spans_N) + 1 + inside_S
    within = rows.ragged(length_S)
    flat = np.repeat(first_S, length_S) + within
    tokens[flat] = store.tokens[np.repeat(pairs.start, length_S) + within]
    maskable[flat] = True
    flat = np.repeat(first_S, length_S + 1) + rows.ragged(length_S + 1)
    segments[flat] = np.repeat(pairs.segment, length_S + 1)

    # A span begins a word even where truncation left it the middle of one: words
    # never go on across a [SEP].
    opens = maskable & store.vocabulary.word_starts[tokens]
    opens[first_S] = True
    count = np.cumsum(opens)
    flat = np.flatnonzero(numbers)
    words[flat] = count[flat] - np.repeat(count[first_N], length_N)
    words[~maskable] = 0

    shape = address.rows.shape
    rate = spec.mask_rate if rate is None else rate
    counts = picks.pick_counts(T, rate, spec.max_predictions)
    reads = address.reads % spec.mask_copies if spec.mask_copies else address.reads
    paired = pairs.label != NO_LABEL

    def per_pair(values: Any, dtype: type = np.int32) -> np.ndarray:
        out: np.ndarray = np.zeros(shape, dtype)
        out[row_N, number_N] = values
        return out

    return Batch(
        tokens_BT=tokens.reshape(B, T),
        segments_BT=segments.reshape(B, T),
        pairs_BT=numbers.reshape(B, T),
        positions_BT=positions.reshape(B, T),
        maskable_BT=maskable.reshape(B, T),
        words_BT=words.reshape(B, T),
        starts_BP=per_pair(first_N - row_N * T),
        plans_BP=per_pair(address.plans[row_N, number_N]),
        rows_BP=per_pair(address.rows[row_N, number_N]),
        reads_BP=per_pair(reads[row_N, number_N]),
        picks_BP=per_pair(np.array(counts, np.int32)[length_N]),
        rate_BP=per_pair(np.float32(rate), np.float32),
        label_BP=per_pair(np.where(paired, pairs.label, 0)),
        weight_BP=per_pair(paired, np.float32),
        place_B=place.astype(np.int32),
        given=masks and _given(masks, address.rows[:, 0]),
    )


def _given(masks: given.Masks, rows_B: np.ndarray) -> tuple[np.ndarray, ...]:
    """Positions, tokens in their place and slots in use, each [B, K]."""
    counts = masks.first[rows_B + 1] - masks.first[rows_B]
    slots = int(np.diff(masks.first).max())
    index = masks.first[rows_B][:, None] + np.arange(slots)
    used = np.arange(slots) < counts[:, None]
    index = np.where(used, index, 0)
    return (
        np.where(used, masks.place[index], 0).astype(np.int32),
        np.where(used, masks.token[index], 0).astype(np.int32),
        used,
    )


class Phase:
    """The batches of one phase: a pure function of the step."""

    def __init__(self, store: Store, spec: BatchSpec, batch_size: int):
        self.store, self.spec, self.batch_size = store, spec, batch_size
        self.stream = stream.make(store, spec.rows, spec.plans, spec.shuffle, spec.pack)
        self.masks = given.masks(store, spec.rows) if spec.given else None

    def batch(self, position: int, places: range, rate: float | None = None) -> Batch:
        """Rows ``places`` of the global batch that begins at a stream position."""
        place = np.arange(places.start, places.stop)
        address = self.stream.locate(position + place)
        return gather(
            self.store, self.stream.plans, address, place, self.spec, rate, self.masks
        )


@dataclass(frozen=True)
class Curriculum:
    """Phases one after another under one count of steps.

    ``ends`` are ends of phases in steps; ``starts`` the stream position where each
    phase begins: 0, or where an earlier phase over the same rows stopped.
    """

    phases: Sequence[Phase]
    ends: tuple[int, ...]
    starts: tuple[int, ...]
    final_rate: float = 0.0  # masking rate goes there in a line; 0 = it stays

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
        return phase.batch(self.position(step), places, self.rate(step))

    def rate(self, step: int) -> float:
        """Share of tokens to predict in a step."""
        begin = self.phases[self.phase_of(step)].spec.mask_rate
        if not self.final_rate:
            return begin
        return begin + (self.final_rate - begin) * step / max(self.ends[-1] - 1, 1)

    def address(self, step: int) -> Address:
        """Where the rows of a step come from."""
        phase = self.phases[self.phase_of(step)]
        place = np.arange(phase.batch_size)
        return phase.stream.locate(self.position(step) + place)


def curriculum(
    store: Store, specs: Sequence[tuple[BatchSpec, int, int]], final_rate: float = 0.0
) -> Curriculum:
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
    return Curriculum(phases, tuple(ends), tuple(starts), final_rate)
