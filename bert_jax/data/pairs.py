"""Rows of two segments: SEGMENT-PAIR and SENTENCE-PAIR, with a label or none.

SEGMENT-PAIR rows follow the public script (create_pretraining_data.py of
google-research/bert), with two named deviations: a random partner is always another
document, and always of the same side of the held-out split. A SENTENCE-PAIR row (Liu et
al. 2019) takes one sentence for each segment, and draws no target.

The script walks one document after another. Here all documents of a side advance
together, one row each a turn, so that every step is array arithmetic over documents;
draws are addressed by (plan, side, rank of the document on its side, sentence of the
document where the row begins). So the order of work decides nothing, and held-out rows
stay as they are when the training text changes.
"""

from typing import NamedTuple

import numpy as np

from bert_jax.data import order
from bert_jax.data.rows import (
    ACTUAL,
    EVERY,
    IN_ORDER,
    NO_LABEL,
    RANDOM,
    SWAPPED,
    Draw,
    Plan,
    RowSpec,
)
from bert_jax.data.store import Store

SPECIALS = 3  # [CLS], [SEP], [SEP]


class _Columns(NamedTuple):
    """Pairs before truncation; every field is [rows]."""

    start_a: np.ndarray
    length_a: np.ndarray
    start_b: np.ndarray
    length_b: np.ndarray
    label: np.ndarray
    document: np.ndarray
    partner: np.ndarray
    rank: np.ndarray
    sentence: np.ndarray


def make(store: Store, spec: RowSpec, plan: int) -> Plan:
    """Plans rows of two segments.

    A chunk of one sentence has nothing to follow it: under ``next_sentence`` its
    second segment is random without a draw (as in the script), else the row has one
    segment and no label.

    Raises:
      ValueError: no document on this side of the split, or one where two are needed.
    """
    documents = store.documents(spec.held_out, spec.source)
    _check_enough(store, spec, len(documents))
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
    turns: list[_Columns] = []
    while live.size:
        turn, follow = _one_turn(
            bounds, documents, first, last, cursor[live], target[live], live, spec, plan
        )
        turns.append(turn)
        cursor[live] = follow
        live = live[follow < last[live]]

    columns = _Columns(*(np.concatenate(each) for each in zip(*turns, strict=True)))
    # Back to document order; turns of one document are already in order.
    by_document = np.argsort(columns.rank, kind="stable")
    columns = _Columns(*(column[by_document] for column in columns))
    return truncate(columns, room, spec, plan)


def _check_enough(store: Store, spec: RowSpec, count: int) -> None:
    random = spec.pair_label == "next_sentence"
    if count >= (2 if random else 1):
        return
    side = "held-out" if spec.held_out else "training"
    if spec.source != EVERY:
        side = f"source {spec.source + 1}'s {side}"
    raise ValueError(
        f"sentence-pair training needs {'two documents' if random else 'a document'} "
        f"on each side of the split; the {side} side has {count} of "
        f"{len(store.held_out)}. Give a corpus with more documents (blank lines "
        "separate them; from 20 on, a tenth is held out)"
    )


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
) -> tuple[_Columns, np.ndarray]:
    """One row for each live document, before truncation, and where it reads on."""
    address = (spec.seed, plan, spec.side, live, begin - first[live])
    by_sentence = spec.format == "sentence_pair"

    def reach(start: np.ndarray, tokens: np.ndarray, end: np.ndarray) -> np.ndarray:
        """End of the fewest sentences from start with that many tokens, at least one.

        Ends with the document where it holds fewer.
        """
        if by_sentence:
            return start + 1
        stop = np.searchsorted(bounds, bounds[start] + tokens, "left")
        return np.minimum(np.maximum(stop, start + 1), end)

    if by_sentence:
        end = np.minimum(begin + 2, last[live])
    else:
        end = reach(begin, target, last[live])
    count = end - begin
    split = np.where(
        count > 1, 1 + order.below(np.maximum(count - 1, 1), *address, Draw.SPLIT), 1
    )
    end_a = begin + split
    lone = count == 1  # nothing left for B

    begin_b, end_b, partner = end_a, end, live
    swapped = np.zeros(len(live), bool)
    if spec.pair_label == "next_sentence":
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
        partner = np.where(random, other, live)
        label = np.where(random, RANDOM, ACTUAL)
        # Rewind: sentences a random partner displaced are read again.
        follow = np.where(random, end_a, end)
    else:
        follow = end
        label = np.full(len(live), NO_LABEL)
        if spec.pair_label == "sentence_order":
            swapped = ~lone & (order.uniform(*address, Draw.SWAP) < 0.5)
            label = np.where(lone, NO_LABEL, np.where(swapped, SWAPPED, IN_ORDER))
    start_a, length_a = bounds[begin], bounds[end_a] - bounds[begin]
    start_b, length_b = bounds[begin_b], bounds[end_b] - bounds[begin_b]
    row = _Columns(
        start_a=np.where(swapped, start_b, start_a),
        length_a=np.where(swapped, length_b, length_a),
        start_b=np.where(swapped, start_a, start_b),
        length_b=np.where(swapped, length_a, length_b),
        label=label.astype(np.uint8),
        document=documents[live],
        partner=documents[partner],
        rank=live,
        sentence=begin - first[live],
    )
    return row, follow


def truncate(columns: _Columns, room: int, spec: RowSpec, plan: int) -> Plan:
    """Shortens each pair to ``room`` tokens, one token at a time from the longer.

    In closed form: first the longer loses down to the other's length, then they
    alternate, B first (on a tie the script shortens B). Each lost token comes from the
    front with probability one half, else from the end.
    """
    a, b = columns.length_a, columns.length_b
    excess = np.maximum(a + b - room, 0)
    from_a = np.minimum(excess, np.maximum(a - b, 0))
    from_b = np.minimum(excess, np.maximum(b - a, 0))
    rest = excess - from_a - from_b
    from_a, from_b = from_a + rest // 2, from_b + (rest + 1) // 2
    address = (spec.seed, plan, spec.side, columns.rank, columns.sentence)
    start_a = columns.start_a + order.coin_sum(from_a, *address, Draw.FRONT_A)
    start_b = columns.start_b + order.coin_sum(from_b, *address, Draw.FRONT_B)

    paired = b > 0
    first = np.concatenate([[0], np.cumsum(1 + paired)])
    at_a, at_b = first[:-1], first[:-1][paired] + 1

    def spans(of_a: np.ndarray, of_b: np.ndarray, dtype: type) -> np.ndarray:
        out = np.empty(first[-1], dtype)
        out[at_a], out[at_b] = of_a, of_b[paired]
        return out

    return Plan(
        first=first,
        label=columns.label,
        cut=excess.astype(np.int32),
        start=spans(start_a, start_b, np.int64),
        length=spans(a - from_a, b - from_b, np.int32),
        segment=spans(np.zeros_like(a), np.ones_like(b), np.uint8),
        document=spans(columns.document, columns.partner, np.int64),
    )
