"""Fixtures: one cache, one tiny store and one trained ``smoke`` for all tests."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_by_workers(tmp_path_factory):
    """A directory of this session, the same in every process of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Tests never touch the cache of the person who runs them; workers share one."""
    path = shared_by_workers(tmp_path_factory) / "cache"
    path.mkdir(exist_ok=True)
    before = os.environ.get("BERT_JAX_CACHE")
    os.environ["BERT_JAX_CACHE"] = str(path)
    os.environ["JAX_PLATFORMS"] = "cpu"
    yield path
    if before is None:
        del os.environ["BERT_JAX_CACHE"]
    else:
        os.environ["BERT_JAX_CACHE"] = before


def launch(*arguments, cwd=REPOSITORY, timeout=300, **environ):
    """Runs the pretraining launcher to its end."""
    command = [sys.executable, str(REPOSITORY / "launch/tpu_pod.py"), *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture(scope="session")
def shared():
    """Real data and reference outputs, where they lie beside the project."""
    named = os.environ.get("BERT_JAX_SHARED")
    place = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not place.is_dir():
        pytest.skip("no reference data: set BERT_JAX_SHARED to its folder")
    return place


@pytest.fixture(scope="session")
def run_launcher():
    """``launch`` for tests."""
    return launch


def sentence(draw, words):
    """A sentence of a few words of a small language."""
    count = int(draw.integers(3, 12))
    return " ".join(words[int(i)] for i in draw.integers(0, len(words), count)) + " ."


@pytest.fixture(scope="session")
def toy_text(tmp_path_factory):
    """A ``sentences:`` file of 120 documents; each third has a topic of its own."""
    draw = np.random.default_rng(7)
    topics = [
        [f"{stem}{ending}" for stem in stems for ending in ("o", "a", "er", "ing")]
        for stems in (
            ("bak", "flour", "oven"),
            ("sail", "mast", "wind"),
            ("jud", "law"),
        )
    ]
    blocks = []
    for number in range(120):
        words = [*topics[number % 3], "the", "of", "and", "is"]
        count = 1 if number % 17 == 0 else int(draw.integers(2, 30))
        blocks.append("\n".join(sentence(draw, words) for _ in range(count)))
    path = tmp_path_factory.mktemp("text") / "toy.txt"
    path.write_text("\n\n".join(blocks) + "\n")
    return path


@pytest.fixture(scope="session")
def toy_store(cache, toy_text):
    """The toy text tokenized with a learned vocabulary."""
    from bert_jax.data import building, corpus, vocabularies

    text = corpus.load(f"sentences:{toy_text}")
    spec = vocabularies.VocabularySpec(size=150)
    return building.store_of(text, vocabularies.make(text, spec))


@pytest.fixture(scope="session")
def smoke_run(cache, tmp_path_factory):
    """A finished run of the smoke experiment: its directory and what it printed."""
    place = shared_by_workers(tmp_path_factory)
    directory, shown = place / "smoke", place / "smoke.out"
    with open(place / "smoke.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shown.is_file():
            done = launch("--exp", "smoke", "--workdir", str(directory))
            assert done.returncode == 0, done.stderr[-3000:]
            shown.write_text(done.stdout)
    return directory, shown.read_text()
