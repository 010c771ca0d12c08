"""Rows of contiguous whole sentences: FULL-SENTENCES and DOC-SENTENCES.

Liu et al. 2019 (RoBERTa), section 4.2: sentences are read one after another up to the
length of the row. A FULL-SENTENCES row goes on into the next document, behind an extra
[SEP]; a DOC-SENTENCES row ends with its document. One segment, no pair label.

Two choices the paper leaves open: documents are read in an order permuted by (seed,
plan), so that plans differ; a sentence longer than a row is cut into whole rows, and
no token is lost.
"""

import numpy as np

from bert_jax.data import order
from bert_jax.data.rows import NO_LABEL, Draw, Plan, RowSpec, ragged
from bert_jax.data.store import Store

SPECIALS = 2  # [CLS] and the last [SEP]


def make(store: Store, spec: RowSpec, plan: int) -> Plan:
    """Plans rows of contiguous sentences.

    Raises:
      ValueError: no document on this side of the split.
    """
    documents = store.documents(spec.held_out, spec.source)
    if not len(documents):
        side = "held-out" if spec.held_out else "training"
        raise ValueError(
            f"the {side} side of the corpus has no document; give a corpus with more "
            "documents (blank lines separate them; from 20 on, a tenth is held out)"
        )
    room = spec.length - SPECIALS
    address = (spec.seed, plan, spec.side, Draw.DOCUMENTS)
    places = order.permuted(np.arange(len(documents)), len(documents), *address)
    documents = documents[places]
    starts, lengths, opens = _sentences(store, documents, room)

    across = spec.format == "full_sentences"
    begins = _begins(lengths, opens, room, across)
    # Spans begin where rows begin and where documents begin.
    cuts = opens.copy()
    cuts[begins] = True
    spans = np.flatnonzero(cuts)
    ends = np.append(spans[1:], len(lengths))
    tokens = np.concatenate([[0], np.cumsum(lengths)])
    return Plan(
        first=np.append(np.searchsorted(spans, begins), len(spans)),
        label=np.full(len(begins), NO_LABEL, np.uint8),
        cut=np.zeros(len(begins), np.int32),
        start=starts[spans],
        length=(tokens[ends] - tokens[spans]).astype(np.int32),
        segment=np.zeros(len(spans), np.uint8),
        document=documents[np.cumsum(opens)[spans] - 1],
    )


def _sentences(
    store: Store, documents: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First token, length, and "opens a document" of each sentence, documents in order.

    A sentence longer than ``room`` is given as several.
    """
    bounds = np.asarray(store.sentence_bounds)
    first, last = store.document_bounds[documents], store.document_bounds[documents + 1]
    counts = last - first
    within = ragged(counts)
    which = np.repeat(first, counts) + within
    opens = within == 0
    starts, lengths = bounds[which], bounds[which + 1] - bounds[which]
    if lengths.max(initial=0) > room:
        pieces = -(-lengths // room)
        part = ragged(pieces)
        starts = np.repeat(starts, pieces) + part * room
        lengths = np.minimum(np.repeat(lengths, pieces) - part * room, room)
        opens = np.repeat(opens, pieces) & (part == 0)
    return starts, lengths, opens


def _begins(
    lengths: np.ndarray, opens: np.ndarray, room: int, across: bool
) -> np.ndarray:
    """Numbers of the sentences rows begin with: each row takes all that still fits.

    Where a row from each sentence would end is array arithmetic; which of those rows
    there are is a chain, followed one by one.
    """
    count = len(lengths)
    tokens = np.concatenate([[0], np.cumsum(lengths)])
    if across:
        # A row of sentences i .. j - 1 has its tokens and a [SEP] for each document
        # that opens after i: room for those is taken from the row.
        opened = np.concatenate([[0], np.cumsum(opens)])
        # Cost up to and with sentence j - 1, as seen from any i: rises with j.
        cost = tokens[1:] + opened[1:]
        spent = tokens[:-1] + opened[1:]
        follow = np.searchsorted(cost, spent + room, "right")
    else:
        follow = np.searchsorted(tokens, tokens[:-1] + room, "right") - 1
        ends = np.append(np.flatnonzero(opens)[1:], count)
        follow = np.minimum(follow, ends[np.cumsum(opens) - 1])
    chain, at, jumps = [], 0, follow.tolist()
    while at < count:
        chain.append(at)
        at = jumps[at]
    return np.array(chain, np.int64)
