"""What only shows on much text: memory and workers. Case P11; run with ``-m slow``.

The case names 1 GB and eight workers; here it is 200 MB and two.
"""

import os
import sys

import pytest

from benchmarks import growth, memory
from bert_jax.data import corpus, store, vocabulary

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """Files of 25 and of 200 MB, and a vocabulary."""
    text = "\n".join(
        f"{sentence}\n" if last else sentence
        for document in corpus.documents(corpus.load("builtin:python-docs"))
        for last, sentence in (
            (n == len(document) - 1, s) for n, s in enumerate(document)
        )
    )
    place = tmp_path_factory.mktemp("grown")
    for size in (25, 200):
        growth.grow(text, place / f"{size}.txt", size * 1_000_000)
    spec = vocabulary.TokenizerSpec()
    words = vocabulary.count_words(text.split("\n"), spec)
    vocabulary.learn(words, 4000, spec).write(place)
    return place


def build(grown, size, workers, out):
    """Peak kB of each process of a build, and its seconds."""
    return memory.peaks(
        [
            sys.executable, str(memory.PREPARE), "--vocab", str(grown / "vocab.txt"),
            "--corpus", f"sentences:{grown}/{size}.txt", "--workers", str(workers),
            "--out", str(out),
        ]
    )  # fmt: skip


def test_memory_is_flat_and_bounded(grown, tmp_path):
    """Peak RSS of the largest process and of all together; the bound is on what is
    above the interpreter and libraries, in all of them.

    What grows at first is the table of chunks: 1.6 MB of text, repeated with a few
    words changed, has not filled it at 25 MB.
    """
    base = memory.base()
    peaks, largest, above = {}, {}, {}
    for size in (25, 200):
        each, _ = build(grown, size, 2, tmp_path / str(size))
        peaks[size], largest[size] = sum(each.values()), max(each.values())
        above[size] = sum(max(peak - base, 0) for peak in each.values())
    assert 10_000 < above[25] < 400_000 and above[200] < 400_000
    assert largest[200] < 1.2 * largest[25]
    assert peaks[200] < 1.2 * peaks[25]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_workers_are_faster(grown, tmp_path):
    seconds = {}
    for workers in (1, 2):
        _, seconds[workers] = build(grown, 200, workers, tmp_path / str(workers))
    assert seconds[1] / seconds[2] >= 1.6
    first, second = (store.open_store(tmp_path / n).manifest for n in ("1", "2"))
    assert first["files"] == second["files"]
