"""Has the planner the public script's distributions? Two samples, compared.

Both builders read the same documents several times. What is counted is counted for
each document and pass, since rows of one document and pass share a target length. If
the builders are alike, the passes of a document could change sides unseen: that gives
the covariance of the difference of the two means without any assumption on rows, and
over many documents the difference is normal.
"""

import random
from typing import NamedTuple

import jax
import numpy as np
from scipy import stats

from bert_jax import draws, step
from bert_jax.corruption import MaskSpec
from bert_jax.data import batches, pairs, public_script, rows
from bert_jax.data.batches import BatchSpec
from bert_jax.data.rows import RowSpec
from bert_jax.data.store import Store
from bert_jax.data.stream import Address

RATE = 0.15
BLOCK = 512  # rows masked at a time
BY_DESIGN = (
    "A random second segment is always of another document. The script draws ten "
    "documents and then takes its own, so on very few documents it labels true "
    "continuations as random.",
    "A random second segment is always of the same side of the held-out split; the "
    "script has no held-out text.",
    "Each draw is addressed by seed, plan, document and sentence. The script has one "
    "stream of draws, so a changed document changes every row behind it.",
    "Rows come in a permutation computed from their number; the script shuffles them "
    "in memory.",
    "Whole words end at a [SEP]. In the script a piece that truncation left in front "
    "of the second segment falls together with the last word of the first.",
)


class Sample(NamedTuple):
    """Rows of one builder, [R] each and [M] for masks."""

    document: np.ndarray  # int [R], rank of the document that A is of
    number: np.ndarray  # int [R], pass
    a: np.ndarray  # int [R], tokens of A
    b: np.ndarray  # int [R], tokens of B
    label: np.ndarray  # int [R], 1 = random
    row: np.ndarray  # int [M], row of each mask
    place: np.ndarray  # int [M], position of each mask
    kind: np.ndarray  # int [M], 0 = [MASK], 1 = as it was, 2 = another token


def most_of(length: int) -> int:
    """Predicted tokens of a full row."""
    return max(1, round(length * RATE))


def of_script(store: Store, spec: RowSpec, passes: int) -> Sample:
    """The oracle on the training documents of a store, pass by pass."""
    vocab = store.vocabulary.tokens
    ids = store.documents(False)
    bounds, first = store.sentence_bounds, store.document_bounds
    documents = [
        [
            [vocab[t] for t in store.tokens[bounds[s] : bounds[s + 1]]]
            for s in range(first[d], first[d + 1])
        ]
        for d in ids
    ]
    # The script shuffles documents and rows; a mark on each token says where it is of.
    marked = [
        [[_Token(t, rank) for t in sentence] for sentence in document]
        for rank, document in enumerate(documents)
    ]
    found: list[tuple[int, public_script.Instance]] = []
    for number in range(passes):
        made = public_script.create_instances_from_documents(
            marked,
            vocab,
            random.Random(f"{spec.seed} {number}"),
            max_seq_length=spec.length,
            max_predictions_per_seq=most_of(spec.length),
            masked_lm_prob=RATE,
            short_seq_prob=spec.short_seq_prob,
            dupe_factor=1,
            do_whole_word_mask=False,
        )
        found += [(number, instance) for instance in made]
    owner, masks = [], []
    for row, (_, instance) in enumerate(found):
        labels = dict(
            zip(instance.masked_lm_positions, instance.masked_lm_labels, strict=True)
        )
        first_a = labels.get(1, instance.tokens[1])
        owner.append(first_a.document)  # type: ignore[attr-defined]
        for place, label in labels.items():
            seen = instance.tokens[place]
            kind = 0 if seen == "[MASK]" else 1 if seen == label else 2
            masks.append((row, place, kind))
    a = np.array([i.segment_ids.count(0) - 2 for _, i in found])
    length = np.array([len(i.tokens) for _, i in found])
    return Sample(
        np.array(owner),
        np.array([number for number, _ in found]),
        a,
        length - a - pairs.SPECIALS,
        np.array([int(i.is_random_next) for _, i in found]),
        *np.array(masks).T,
    )


class _Token(str):
    """A token that knows the rank of its document."""

    document: int

    def __new__(cls, text: str, document: int) -> "_Token":
        made = super().__new__(cls, text)
        made.document = document
        return made


def of_planner(store: Store, spec: RowSpec, passes: int) -> Sample:
    """The planner and the masking rule on the same documents, a plan for each pass."""
    most = most_of(spec.length)
    plans = [rows.make_plan(store, spec, number) for number in range(passes)]
    sizes = [len(plan.label) for plan in plans]
    number = np.repeat(np.arange(passes), sizes)
    row_of = np.concatenate([np.arange(size) for size in sizes])
    whole = rows.take(plans, number, row_of)
    vocab = store.vocabulary
    masking = BatchSpec(spec, passes, "all_plans", RATE, most, 0)
    masks = MaskSpec(len(vocab), vocab.ids["[MASK]"], slots=most)
    corrupt = jax.jit(step.corrupt, static_argnums=(1, 2, 3, 4))
    found = []
    for begin in range(0, len(row_of), BLOCK):
        index = np.minimum(np.arange(begin, begin + BLOCK), len(row_of) - 1)
        zero = np.zeros((BLOCK, 1), np.int64)
        address = Address(number[index, None], row_of[index, None], zero)
        batch = batches.gather(store, plans, address, np.arange(BLOCK), masking)
        seen_BT, targets = corrupt(
            batch, masks, spec.length, spec.seed, draws.Stream.MASKS
        )
        real = min(BLOCK, len(row_of) - begin)
        row, slot = np.nonzero(np.asarray(targets.weights_BK)[:real] > 0)
        place = np.asarray(targets.positions_BK)[row, slot]
        seen = np.asarray(seen_BT)[row, place]
        label = np.asarray(targets.labels_BK)[row, slot]
        kind = np.where(seen == masks.mask_id, 0, np.where(seen == label, 1, 2))
        found.append(np.stack([row + begin, place, kind]))
    rank = np.searchsorted(store.documents(False), whole.document[::2])
    return Sample(
        rank, number, whole.length[::2], whole.length[1::2], whole.label.astype(int),
        *np.concatenate(found, 1),
    )  # fmt: skip


def features(sample: Sample, length: int) -> dict[str, np.ndarray]:
    """What is compared: name -> int [R, k], what each row adds to its unit."""
    total = sample.a + sample.b + pairs.SPECIALS

    def bins(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
        index = np.digitize(values, edges)
        return (index[:, None] == np.arange(len(edges) + 1)).astype(int)

    edges = np.linspace(4, length, 12).astype(int)
    masks, most = np.bincount(sample.row, minlength=len(total)), most_of(length)
    kinds = np.zeros((len(total), 3), int)
    np.add.at(kinds, (sample.row, sample.kind), 1)
    tenth = np.zeros((len(total), 10), int)
    share = (sample.place * 10) // total[sample.row]
    np.add.at(tenth, (sample.row, share), 1)
    full = (total == length)[:, None]
    return {
        "rows, and rows with a random second segment": np.stack(
            [np.ones_like(total), sample.label], 1
        ),
        "lengths of rows": bins(total, edges),
        "lengths of A": bins(sample.a, edges),
        "lengths of B": bins(sample.b, edges),
        "truncated rows: lengths of A by label": np.concatenate(
            [
                bins(sample.a, edges) * full * (sample.label == label)[:, None]
                for label in (0, 1)
            ],
            1,
        ),
        "predicted tokens a row": bins(masks, np.arange(1, most + 1)),
        "[MASK], kept and random tokens": kinds,
        "places of predicted tokens, in tenths of a row": tenth,
    }


def p_value(
    ours: np.ndarray, theirs: np.ndarray, a: Sample, b: Sample, documents: int
) -> float:
    """Probability of a difference as large, if passes could change sides.

    Args:
      ours, theirs: [R, k], what rows add to their units.
      a, b: the samples they are of, with an equal number of passes.
      documents: how many there are.
    """
    passes = int(a.number.max()) + 1
    units = np.zeros((2, documents, passes, ours.shape[1]))
    np.add.at(units[0], (a.document, a.number), ours)
    np.add.at(units[1], (b.document, b.number), theirs)
    difference = (units[0].mean(1) - units[1].mean(1)).sum(0)
    pooled = np.concatenate(list(units), axis=1)
    centred = pooled - pooled.mean(1, keepdims=True)
    covariance = np.einsum("dpi,dpj->ij", centred, centred) / (2 * passes - 1)
    covariance *= 2 / passes
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    rank = int(np.linalg.matrix_rank(covariance, rtol=1e-9, hermitian=True))
    return float(stats.chi2.sf(difference @ inverse @ difference, rank))


def compare(
    ours: Sample, theirs: Sample, documents: int, length: int
) -> dict[str, float]:
    """p-value of each feature.

    Args:
      ours, theirs: rows of both builders, of equally many passes.
      documents: how many both have read.
      length: tokens of a row, at most.
    """
    left, right = features(ours, length), features(theirs, length)
    return {n: p_value(left[n], right[n], ours, theirs, documents) for n in left}
