"""What one gets without a model, on the same held-out rows.

* unigram: every masked token guessed by its frequency in the training text;
* majority: every pair given the commoner label;
* overlap: the label guessed from the words the two segments share, weighted by rarity.
  How much of the next-sentence task is topic shows here.
"""

from dataclasses import dataclass, replace

import numpy as np

from bert_jax import statistics
from bert_jax.batch import Batch
from bert_jax.data import batches
from bert_jax.data.heldout import EvalSet
from bert_jax.data.rows import RANDOM
from bert_jax.data.store import Store
from bert_jax.data.stream import RowStream
from bert_jax.statistics import Estimate

FIT_PAIRS = 4000  # training pairs that set the threshold of the overlap baseline


@dataclass(frozen=True)
class Baselines:
    """Measured on the evaluation rows."""

    unigram_V: np.ndarray  # float64, nats of each token under the unigram model
    best_token: int  # the unigram model's guess
    majority: Estimate  # accuracy of the commoner label
    majority_label: int
    overlap: Estimate  # accuracy of word overlap
    overlap_correct: np.ndarray  # bool [pairs]


def unigram(store: Store) -> np.ndarray:
    """Nats of each token: minus log of add-one counts over the training tokens."""
    counts = store.token_counts(held_out=False) + 1
    return np.log(counts.sum()) - np.log(counts)


def overlap_scores(batch: Batch, rarity_V: np.ndarray) -> np.ndarray:
    """float [B]: shared rarity of the two segments over the smaller segment's own.

    rarity is the unigram model's nats, so that "the" counts little and a rare word
    much; a segment counts each of its tokens once.
    """
    scores = np.zeros(len(batch.tokens_BT))
    for row in range(len(scores)):
        tokens, words = batch.tokens_BT[row], batch.maskable_BT[row]
        second = batch.segments_BT[row] == 1
        a = np.unique(tokens[words & ~second])
        b = np.unique(tokens[words & second])
        shared = rarity_V[np.intersect1d(a, b, assume_unique=True)].sum()
        smaller = min(rarity_V[a].sum(), rarity_V[b].sum())
        scores[row] = shared / max(smaller, 1e-9)
    return scores


def _threshold(scores: np.ndarray, random: np.ndarray) -> float:
    """Score below which "random" is the better guess, by accuracy."""
    by_score = np.argsort(scores, kind="stable")
    labels = random[by_score]
    # Right guesses if the lowest n are called random: randoms below, actuals above.
    right = np.concatenate([[0], np.cumsum(labels)]) + np.concatenate(
        [np.cumsum((~labels)[::-1])[::-1], [0]]
    )
    best = int(np.argmax(right))
    if best == 0:
        return -np.inf
    if best == len(scores):
        return np.inf
    return float(scores[by_score[best - 1 : best + 1]].mean())


def measure(store: Store, rows: EvalSet, seed: int) -> Baselines:
    """All three, the overlap threshold fitted on training pairs of the same length."""
    nats_V = unigram(store)
    weight = rows.batch.weight_BP[:, 0]
    spec = replace(rows.spec.rows, seed=seed, held_out=False)
    stream = RowStream(store, spec, 1, "all_plans")
    place = np.arange(min(FIT_PAIRS, stream.cycle))
    address = stream.locate(place)
    training = batches.gather(store, stream.plans, address, place, rows.spec)
    paired = training.weight_BP[:, 0] > 0
    threshold = _threshold(
        overlap_scores(training, nats_V)[paired],
        training.label_BP[paired, 0] == RANDOM,
    )
    label = rows.batch.label_BP[:, 0]
    guess = (overlap_scores(rows.batch, nats_V) < threshold).astype(np.int32)
    majority = int((label * weight).sum() >= 0.5 * weight.sum())
    return Baselines(
        unigram_V=nats_V,
        best_token=int(np.argmin(nats_V)),
        majority=statistics.ratio((label == majority) * weight, weight, rows.document),
        majority_label=majority,
        overlap=statistics.ratio((guess == label) * weight, weight, rows.document),
        overlap_correct=guess == label,
    )
