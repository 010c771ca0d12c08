"""Learning a vocabulary from the training documents of a corpus, over all cores.

Two readings: the first takes the hash of each document, which decides who is held out;
the second counts the words of the others.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from bert_jax.data import corpus as corpora
from bert_jax.data import order, vocabulary
from bert_jax.data.corpus import Corpus
from bert_jax.data.shards import Shard
from bert_jax.data.vocabulary import TokenizerSpec, Vocabulary
from bert_jax.data.workers import Run

SAMPLE = 1 << 30  # bytes of text from which words are counted; more changes little


def _hashes(shard: Shard) -> list[int]:
    """Content hash of each document of a shard."""
    alone = Corpus("", (shard.source,), (shard,))
    return [corpora.document_hash(text) for text in corpora.documents(alone)]


def _words(task: tuple[Shard, int, TokenizerSpec]) -> Counter[str]:
    """Counts of words in the training documents of a shard."""
    shard, largest, spec = task
    alone = Corpus("", (shard.source,), (shard,))
    training = (
        sentence
        for text in corpora.documents(alone)
        if corpora.document_hash(text) > largest
        for sentence in text
    )
    return vocabulary.count_words(training, spec)


def sample(corpus: Corpus, limit: int = SAMPLE) -> list[Shard]:
    """Shards of about ``limit`` bytes, spread over the corpus."""
    count = len(corpus.shards)
    sizes = [
        shard.end - shard.begin if shard.end >= 0 else sum(f.size for f in shard.files)
        for shard in corpus.shards
    ]
    taken: list[int] = []
    total = 0
    for number in order.permuted(np.arange(count), count, 0).tolist():
        if taken and total + sizes[number] > limit:
            break
        taken.append(number)
        total += sizes[number]
    return [corpus.shards[number] for number in sorted(taken)]


def threshold(corpus: Corpus, run: Run) -> int:
    """Largest content hash of a held-out document.

    Raises:
      ValueError: there is no document.
    """
    each = [np.array(h, np.uint64) for h in run(_hashes, corpus.shards)]
    hashes = np.concatenate(each)
    if not len(hashes):
        raise ValueError(
            f"the corpus {corpus.spec} is empty: it holds no document with text"
        )
    return corpora.held_out_threshold(hashes)


def training_sentences(corpus: Corpus, run: Run) -> Iterator[str]:
    """Sentences of the training documents, in corpus order."""
    largest = threshold(corpus, run)
    for text in corpora.documents(corpus):
        if corpora.document_hash(text) > largest:
            yield from text


def learn_wordpiece(
    corpus: Corpus, size: int, spec: TokenizerSpec, run: Run
) -> Vocabulary:
    """Learns a WordPiece vocabulary (``vocabulary.learn``).

    Raises:
      ValueError: ``size`` does not hold the reserved tokens and the alphabet.
    """
    largest = threshold(corpus, run)
    tasks = [(shard, largest, spec) for shard in sample(corpus)]
    counts: Counter[str] = Counter()
    for words in run(_words, tasks):
        counts.update(words)
    return vocabulary.learn(counts, size, spec)
