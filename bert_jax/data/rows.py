"""Plans: which spans of the store make up which rows.

A *plan* is the rows of one traversal of the corpus under one plan number. A row is one
or more spans of the store's tokens; a [SEP] follows each. Planning reads lengths of
sentences, never tokens:

    segment_pair    the public script's chunks, cut in two      (``pairs``)
    sentence_pair   two sentences                               (``pairs``)
    full_sentences  whole sentences, across documents, up to T  (``contiguous``)
    doc_sentences   the same within one document                (``contiguous``)
    given           rows that another program made              (``given``)

The first four are those of Liu et al. 2019 (RoBERTa), section 4.2.
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import cache, workers
from bert_jax.data.store import Store, open_store

FORMAT_VERSION = 3
MANY = 500_000  # sentences times plans that are worth starting processes for
EVERY = -1
# Labels of a pair. 2018: is the second segment the actual next or a random one?
# ALBERT's sentence order: are the two in order or swapped?
ACTUAL, RANDOM = 0, 1
IN_ORDER, SWAPPED = 0, 1
NO_LABEL = 255

PAIRED = ("segment_pair", "sentence_pair")
FORMATS = (*PAIRED, "full_sentences", "doc_sentences", "given")
PAIR_LABELS = ("next_sentence", "sentence_order", "none")


class Draw(IntEnum):
    """Streams of a plan's draws."""

    SHORT, TARGET, SPLIT, RANDOM, PARTNER, START, FRONT_A, FRONT_B = range(8)
    SWAP, DOCUMENTS = 8, 9


@dataclass(frozen=True)
class RowSpec:
    """What decides the rows of a plan, beside the store."""

    length: int  # T, tokens of a row with [CLS] and every [SEP]
    seed: int
    short_seq_prob: float = 0.1  # segment_pair alone
    random_next_prob: float = 0.5  # next_sentence alone
    held_out: bool = False
    source: int = EVERY  # of a mixed corpus: rows and partners of this source alone
    format: str = "segment_pair"
    pair_label: str = "next_sentence"

    @property
    def side(self) -> int:
        """Part of every draw's address: side of the split, and source."""
        return int(self.held_out) + 2 * (self.source + 1)


class Plan(NamedTuple):
    """Rows, and the spans of all of them one after another.

    Row r is spans ``first[r] .. first[r + 1]``.
    """

    first: np.ndarray  # int64 [rows + 1]
    label: np.ndarray  # uint8 [rows], see above
    cut: np.ndarray  # int32 [rows], tokens lost to truncation
    start: np.ndarray  # int64 [spans], first token in the store
    length: np.ndarray  # int32 [spans]
    segment: np.ndarray  # uint8 [spans], 0 = A, 1 = B
    document: np.ndarray  # int64 [spans], document in the store

    def lengths(self) -> np.ndarray:
        """int64 [rows]: tokens of each row with [CLS] and every [SEP]."""
        ends = np.concatenate([[0], np.cumsum(self.length, dtype=np.int64)])
        return 1 + np.diff(ends[self.first]) + np.diff(self.first)


def make_plan(store: Store, spec: RowSpec, plan: int) -> Plan:
    """Plans rows.

    Raises:
      ValueError: too few documents on this side of the split for the format.
    """
    from bert_jax.data import contiguous, given, pairs

    makers = {
        "segment_pair": pairs.make,
        "sentence_pair": pairs.make,
        "full_sentences": contiguous.make,
        "doc_sentences": contiguous.make,
        "given": given.make,
    }
    return makers[spec.format](store, spec, plan)


def take(plans: list[Plan], plan_of: np.ndarray, row_of: np.ndarray) -> Plan:
    """Some rows of some plans, as a plan.

    Args:
      plans: by plan number.
      plan_of, row_of: int [n], plan and row of each row wanted.
    """
    counts = np.empty(len(row_of), np.int64)
    picked = [(number, plan_of == number) for number in np.unique(plan_of)]
    for number, here in picked:
        first = plans[number].first
        counts[here] = first[row_of[here] + 1] - first[row_of[here]]
    bounds = np.concatenate([[0], np.cumsum(counts)])
    out = Plan(
        bounds,
        *(np.empty(len(row_of), c.dtype) for c in plans[0][1:3]),
        *(np.empty(bounds[-1], c.dtype) for c in plans[0][3:]),
    )
    for number, here in picked:
        plan, rows = plans[number], row_of[here]
        out.label[here], out.cut[here] = plan.label[rows], plan.cut[rows]
        within = ragged(counts[here])
        source = np.repeat(plan.first[rows], counts[here]) + within
        target = np.repeat(bounds[:-1][here], counts[here]) + within
        for column, values in zip(out[3:], plan[3:], strict=True):
            column[target] = values[source]
    return out


def ragged(counts: np.ndarray) -> np.ndarray:
    """0 .. counts[0] - 1, 0 .. counts[1] - 1, and so on, in one array."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)


@dataclass(frozen=True)
class _Make:
    """Makes plans of a store in another process."""

    directory: Path
    spec: RowSpec

    def __call__(self, plan: int) -> None:
        load_plan(open_store(self.directory), self.spec, plan)


def load_plans(store: Store, spec: RowSpec, count: int) -> list[Plan]:
    """The first plans, from the cache; many of much text are made on all cores."""
    if store.manifest["sentences"] * count > MANY:
        missing = [n for n in range(count) if not _place(store, spec, n).is_dir()]
        list(workers.over()(_Make(store.directory, spec), missing))
    return [load_plan(store, spec, plan) for plan in range(count)]


def load_plan(store: Store, spec: RowSpec, plan: int) -> Plan:
    """A plan from the cache, made the first time; columns are memory maps."""
    place = _place(store, spec, plan)
    if not place.is_dir():
        with cache.building(place) as directory:
            for name, column in make_plan(store, spec, plan)._asdict().items():
                np.save(directory / f"{name}.npy", column)
    return Plan(
        **{name: np.load(place / f"{name}.npy", mmap_mode="r") for name in Plan._fields}
    )


def _place(store: Store, spec: RowSpec, plan: int) -> Path:
    """Where the cache keeps a plan."""
    decides = {**vars(spec), "held_out": spec.side, "source": 0}
    key = cache.digest(
        FORMAT_VERSION, store.manifest["content"], plan, sorted(decides.items())
    )
    return cache.root() / "plans" / key
