"""Plans: which spans of the store make up which rows.

A *plan* is the rows of one traversal of the corpus under one plan number. SEGMENT-PAIR
rows follow the public script (create_pretraining_data.py of google-research/bert),
with two named deviations: a random partner is always another document, and always of
the same side of the held-out split.

The script walks one document after another. Here all documents of a side advance
together, one row each a turn, so that every step is array arithmetic over documents;
draws are addressed by (plan, side, rank of the document on its side, sentence of the
document where the row begins). So the order of work decides nothing, and held-out rows
stay as they are when the training text changes.
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import cache, order, workers
from bert_jax.data.store import Store, open_store

FORMAT_VERSION = 2
SPECIALS = 3  # [CLS], [SEP], [SEP]
MANY = 500_000  # sentences times plans that are worth starting processes for
EVERY = -1
ACTUAL, RANDOM = 0, 1  # next-sentence labels of 2018


class Draw(IntEnum):
    """Streams of a plan's draws."""

    SHORT, TARGET, SPLIT, RANDOM, PARTNER, START, FRONT_A, FRONT_B = range(8)


@dataclass(frozen=True)
class RowSpec:
    """What decides the rows of a plan, beside the store."""

    length: int  # T, tokens of a row with [CLS] and both [SEP]
    seed: int
    short_seq_prob: float = 0.1
    random_next_prob: float = 0.5
    held_out: bool = False
    source: int = EVERY  # of a mixed corpus: rows and partners of this source alone

    @property
    def side(self) -> int:
        """Part of every draw's address: side of the split, and source."""
        return int(self.held_out) + 2 * (self.source + 1)


class Plan(NamedTuple):
    """Rows in document order; every field is [rows]."""

    start_a: np.ndarray  # int64, first token of A in the store
    length_a: np.ndarray  # int32, after truncation
    start_b: np.ndarray  # int64
    length_b: np.ndarray  # int32
    label: np.ndarray  # uint8, ACTUAL or RANDOM
    document: np.ndarray  # int64, document of A
    partner: np.ndarray  # int64, document of B
    cut: np.ndarray  # int32, tokens lost to truncation


def make_plan(store: Store, spec: RowSpec, plan: int) -> Plan:
    """Plans SEGMENT-PAIR rows with next-sentence labels.

    Raises:
      ValueError: fewer than two documents on this side of the split.
    """
    documents = store.documents(spec.held_out, spec.source)
    if len(documents) < 2:
        side = "held-out" if spec.held_out else "training"
        if spec.source != EVERY:
            side = f"source {spec.source + 1}'s {side}"
        raise ValueError(
            f"sentence-pair training needs two documents on each side of the split; "
            f"the {side} side has {len(documents)} of {len(store.held_out)}. Give a "
            "corpus with more documents (blank lines separate them; from 20 on, a "
            "tenth is held out)"
        )
    bounds = np.asarray(store.sentence_bounds)
    first, last = store.document_bounds[documents], store.document_bounds[documents + 1]
    room = spec.length - SPECIALS
    live = np.arange(len(documents))
    address = (spec.seed, plan, spec.side, live)

    # Recipe: one target per document and plan, shared by all its rows.
    short = order.uniform(*address, Draw.SHORT) < spec.short_seq_prob
    drawn = 2 + order.below(room - 1, *address, Draw.TARGET)
    target = np.where(short, drawn, room)

    cursor = first.copy()
    turns: list[dict[str, np.ndarray]] = []
    while live.size:
        turn, follow = _one_turn(
            bounds, documents, first, last, cursor[live], target[live], live, spec, plan
        )
        turns.append(turn)
        cursor[live] = follow
        live = live[follow < last[live]]

    columns = {name: np.concatenate([t[name] for t in turns]) for name in turns[0]}
    # Back to document order; turns of one document are already in order.
    by_document = np.argsort(columns["document"], kind="stable")
    columns = {name: column[by_document] for name, column in columns.items()}
    return _truncate(columns, room, spec, plan)


def _one_turn(
    bounds: np.ndarray,
    documents: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    begin: np.ndarray,
    target: np.ndarray,
    live: np.ndarray,
    spec: RowSpec,
    plan: int,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """One row for each live document, before truncation, and where it reads on."""
    address = (spec.seed, plan, spec.side, live, begin - first[live])

    def reach(start: np.ndarray, tokens: np.ndarray, end: np.ndarray) -> np.ndarray:
        """End of the fewest sentences from start with that many tokens, at least one.

        Ends with the document where it holds fewer.
        """
        stop = np.searchsorted(bounds, bounds[start] + tokens, "left")
        return np.minimum(np.maximum(stop, start + 1), end)

    end = reach(begin, target, last[live])
    count = end - begin
    split = np.where(
        count > 1, 1 + order.below(np.maximum(count - 1, 1), *address, Draw.SPLIT), 1
    )
    end_a = begin + split
    lone = count == 1  # nothing left for B: random, without a draw
    random = lone | (order.uniform(*address, Draw.RANDOM) < spec.random_next_prob)

    # Another document of the same side: skip over one's own place in the list.
    other = order.below(len(documents) - 1, *address, Draw.PARTNER)
    other = other + (other >= live)
    offset = order.below(last[other] - first[other], *address, Draw.START)
    start_other = first[other] + offset
    wanted = target - (bounds[end_a] - bounds[begin])
    end_other = reach(start_other, wanted, last[other])

    begin_b = np.where(random, start_other, end_a)
    end_b = np.where(random, end_other, end)
    row = {
        "start_a": bounds[begin],
        "length_a": bounds[end_a] - bounds[begin],
        "start_b": bounds[begin_b],
        "length_b": bounds[end_b] - bounds[begin_b],
        "label": np.where(random, RANDOM, ACTUAL).astype(np.uint8),
        "document": documents[live],
        "partner": documents[np.where(random, other, live)],
        "rank": live,
        "sentence": begin - first[live],
    }
    # Rewind: sentences a random partner displaced are read again.
    return row, np.where(random, end_a, end)


def _truncate(
    columns: dict[str, np.ndarray], room: int, spec: RowSpec, plan: int
) -> Plan:
    """Shortens each pair to ``room`` tokens, one token at a time from the longer.

    In closed form: first the longer loses down to the other's length, then they
    alternate, B first (on a tie the script shortens B). Each lost token comes from the
    front with probability one half, else from the end.
    """
    a, b = columns["length_a"], columns["length_b"]
    excess = np.maximum(a + b - room, 0)
    from_a = np.minimum(excess, np.maximum(a - b, 0))
    from_b = np.minimum(excess, np.maximum(b - a, 0))
    rest = excess - from_a - from_b
    from_a, from_b = from_a + rest // 2, from_b + (rest + 1) // 2
    address = (spec.seed, plan, spec.side, columns["rank"], columns["sentence"])
    return Plan(
        start_a=columns["start_a"] + order.coin_sum(from_a, *address, Draw.FRONT_A),
        length_a=(a - from_a).astype(np.int32),
        start_b=columns["start_b"] + order.coin_sum(from_b, *address, Draw.FRONT_B),
        length_b=(b - from_b).astype(np.int32),
        label=columns["label"],
        document=columns["document"],
        partner=columns["partner"],
        cut=excess.astype(np.int32),
    )


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
    key = cache.digest(
        FORMAT_VERSION,
        store.manifest["content"],
        plan,
        [spec.length, spec.seed, spec.short_seq_prob, spec.random_next_prob],
        spec.side,
    )
    return cache.root() / "plans" / key
