"""Building a store: the same bytes whoever builds it, and nothing lost. Case P11."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import (
    building,
    corpus,
    parts,
    report,
    rows,
    shards,
    store,
    stream,
    vocabularies,
    vocabulary,
    workers,
)

BUILD = """
import sys
from pathlib import Path
from bert_jax.data import building, corpus, shards, vocabularies, workers
if __name__ == "__main__":
    shards.SHARD = int(sys.argv[4])
    text = corpus.load(sys.argv[1])
    spec = vocabularies.VocabularySpec(path=sys.argv[2])
    vocab = vocabularies.make(text, spec)
    building.build(text, vocab, Path(sys.argv[3]), workers.over(int(sys.argv[5])))
"""
SMALL = 4000  # bytes of a shard, so that the toy text has some


def hashes(directory):
    return store.open_store(directory).manifest["files"]


@pytest.fixture
def vocab(toy_store):
    return toy_store.vocabulary


@pytest.fixture
def text(toy_text, monkeypatch):
    monkeypatch.setattr(shards, "SHARD", SMALL)
    return corpus.load(f"sentences:{toy_text}")


def test_same_bytes_for_any_number_of_workers(text, vocab, toy_store, tmp_path):
    assert len(text.shards) > 5
    for number in (1, 2, 3):
        building.build(text, vocab, tmp_path / str(number), workers.over(number))
        assert hashes(tmp_path / str(number)) == toy_store.manifest["files"]
    # One shard, as the fixture was built, or many: the store is the same.
    assert store.open_store(tmp_path / "3").content == toy_store.content
    assert [p.name for p in tmp_path.iterdir() if "parts" in p.name] == []


def test_killed_and_started_again(text, vocab, toy_text, toy_store, tmp_path):
    """SIGKILL once some parts are there: those stay, the others are made."""
    vocab.write(tmp_path / "vocab")
    (tmp_path / "build.py").write_text(BUILD)
    place = tmp_path / "store"
    command = [
        sys.executable, str(tmp_path / "build.py"), text.spec,
        str(tmp_path / "vocab/vocab.txt"), str(place), str(SMALL), "2",
    ]  # fmt: skip
    process = subprocess.Popen(command)
    work = tmp_path / "store.parts"
    while len(list(work.glob("0*"))) < 2 and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {p.name: p.stat().st_mtime_ns for p in work.glob("0*")}
    assert done and not place.exists()
    building.build(text, vocab, place, workers.over(1))
    assert hashes(place) == toy_store.manifest["files"] and not work.exists()


def test_what_is_done_is_not_done_again(text, vocab, tmp_path, monkeypatch):
    place, made = tmp_path / "store", []
    real = parts.Tokenize.__call__

    def write(tokenize, task):
        made.append(task[0].begin)
        if len(made) == 4:
            raise KeyboardInterrupt
        real(tokenize, task)

    monkeypatch.setattr(parts.Tokenize, "__call__", write)
    with pytest.raises(KeyboardInterrupt):
        building.build(text, vocab, place, workers.over(1))
    monkeypatch.setattr(
        parts.Tokenize, "__call__", lambda *given: (made.append(0), real(*given))
    )
    building.build(text, vocab, place, workers.over(1))
    assert len(made) == 4 + len(text.shards) - 3


def test_two_builders_at_once(text, vocab, toy_store, tmp_path):
    vocab.write(tmp_path / "vocab")
    (tmp_path / "build.py").write_text(BUILD)
    command = [
        sys.executable, str(tmp_path / "build.py"), text.spec,
        str(tmp_path / "vocab/vocab.txt"), str(tmp_path / "store"), str(SMALL), "1",
    ]  # fmt: skip
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert hashes(tmp_path / "store") == toy_store.manifest["files"]


@pytest.mark.parametrize("moment", ["part", "join"])
def test_a_full_disk(text, vocab, tmp_path, monkeypatch, moment):
    """One message; the directory is not there, and the next build goes on."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    where = (parts.PartWriter, "finish") if moment == "part" else (np, "save")
    real = getattr(*where)
    count = 0

    def fails(*arguments, **named):
        nonlocal count
        count += 1
        late = moment == "part" or "held_out" in str(arguments[0])
        if count > 2 and late:
            raise full
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(*where, fails)
        with pytest.raises(ValueError, match="disk is full.*free some space"):
            building.build(text, vocab, tmp_path / "store", workers.over(1))
    assert not (tmp_path / "store").exists()
    assert len(list((tmp_path / "store.parts").glob("0*"))) >= 2
    building.build(text, vocab, tmp_path / "store", workers.over(1))
    assert store.verify(tmp_path / "store") == []


def test_verify_names_what_is_damaged(text, vocab, tmp_path):
    place = tmp_path / "store"
    building.build(text, vocab, place, workers.over(1))
    assert store.verify(place) == []
    raw = bytearray((place / "tokens.bin").read_bytes())
    raw[100] ^= 1
    (place / "tokens.bin").write_bytes(raw)
    (place / "held_out.npy").unlink()
    assert store.verify(place) == ["held_out.npy", "tokens.bin"]


def test_a_store_of_something_else_is_not_taken(text, vocab, tmp_path):
    building.build(text, vocab, tmp_path / "store", workers.over(1))
    other = tmp_path / "other.txt"
    other.write_text("the of .\n\nand is .\n")
    with pytest.raises(ValueError, match="store of other text"):
        loaded = corpus.load(f"sentences:{other}")
        building.build(loaded, vocab, tmp_path / "store", workers.over(1))


def test_equal_documents_can_be_dropped(vocab, tmp_path):
    documents = [f"the {w} of .\nand {w} ." for w in ("oven", "mast", "sailer", "wind")]
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(documents * 3 + ["law is ."]))
    text = corpus.load(f"sentences:{path}")
    building.build(text, vocab, tmp_path / "all", workers.over(1))
    building.build(
        text, vocab, tmp_path / "some", workers.over(1), drop_duplicates=True
    )
    kept, some = store.open_store(tmp_path / "all"), store.open_store(tmp_path / "some")
    assert kept.manifest["documents"] == 13 and some.manifest["documents"] == 5
    assert some.manifest["duplicate_documents"] == 8
    assert some.tokens.tolist() == [
        *kept.tokens[: len(kept.tokens) * 0 + some.sentence_bounds[-2]].tolist(),
        *kept.tokens[kept.sentence_bounds[-2] :].tolist(),
    ]
    counts = some.token_counts(False) + some.token_counts(True)
    assert (counts == np.bincount(some.tokens, minlength=len(vocab))).all()
    # Equal copies are on one side of the split.
    for number in range(4):
        assert len({bool(kept.held_out[number + 4 * copy]) for copy in range(3)}) == 1


def test_one_sentence_documents_are_warned_about(vocab, tmp_path):
    """Case P09: a blank line after each sentence makes every pair random."""
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(f"the oven of {w} ." for w in ("mast", "wind") * 30))
    place = tmp_path / "store"
    building.build(corpus.load(f"sentences:{path}"), vocab, place, workers.over(1))
    opened = store.open_store(place)
    plan = rows.make_plan(opened, rows.RowSpec(32, 0), 0)
    assert (plan.label == rows.RANDOM).all() and len(plan.label) >= 54
    (warning,) = report.warnings(opened)
    assert "100% of the documents have one sentence" in warning
    assert "label 1 = random next" in report.table(opened)


def test_random_share_of_long_documents(vocab, tmp_path):
    """Case P09: sentences of twenty words at length 128."""
    draw = np.random.default_rng(0)
    words = ["oven", "mast", "wind", "law", "the", "of", "and"]
    lines = [" ".join(draw.choice(words, 20)) + " ." for _ in range(1500)]
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join("\n".join(lines[a : a + 500]) for a in (0, 500, 1000)))
    place = tmp_path / "store"
    building.build(corpus.load(f"sentences:{path}"), vocab, place, workers.over(1))
    opened = store.open_store(place)
    plans = [rows.make_plan(opened, rows.RowSpec(128, 0), p) for p in range(12)]
    label = np.concatenate([p.label for p in plans])
    assert len(label) > 2000 and 0.45 < (label == rows.RANDOM).mean() < 0.62


def test_report(text, vocab, tmp_path):
    building.build(text, vocab, tmp_path / "store", workers.over(1))
    opened = store.open_store(tmp_path / "store")
    shown, kept = report.table(opened), report.markdown(opened)
    for found in (shown, kept):
        assert "120 (12 held out)" in found and report.BAR in found
        assert f"{opened.manifest['tokens']:,}" in found
    assert "toy.txt" in kept and "sha256" in kept


def mixed(tmp_path, weights="0.7*{} + 0.3*{}"):
    paths = []
    for name in ("a", "b"):
        body = [f"{name}{n} of the {name} .\n{name}{n} is ." for n in range(60)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(body))
        paths.append(f"sentences:{tmp_path}/{name}.txt")
    loaded = corpus.load(weights.format(*paths))
    spec = vocabularies.VocabularySpec(size=120)
    return building.store_of(loaded, vocabularies.make(loaded, spec))


def test_mixed_sources(cache, tmp_path):
    """Exact shares in every block of rows; rows never cross sources; all is pure."""
    both = mixed(tmp_path)
    assert both.weights == pytest.approx((0.7, 0.3))
    rowspec = rows.RowSpec(16, 0)
    mix = stream.make(both, rowspec, 2, "all_plans")
    address = mix.locate(np.arange(5000))
    picked = rows.take(mix.plans, address.plans[:, 0], address.rows[:, 0])
    source = both.sources[picked.document[::2]]
    assert (both.sources[picked.document[1::2]] == source).all()
    shares = (source.reshape(5, 1000) == 0).sum(axis=1)
    assert shares.tolist() == [700] * 5
    # No order is left inside a block.
    assert abs(np.corrcoef(np.arange(1000), source[:1000])[0, 1]) < 4 / 1000**0.5
    # A slice read alone is the slice: no state.
    later = mix.locate(np.arange(3210, 3260))
    for whole, part in zip(address, later, strict=True):
        np.testing.assert_array_equal(whole[3210:3260], part)
    # Each source reads each of its rows once a cycle of its own.
    for number, alone in enumerate(mix.streams):
        mine = np.sort(np.flatnonzero(source == number))
        assert len(mine) > alone.cycle
        reads = address.reads[mine, 0]
        first = mine[reads == 0]
        names = set(zip(address.plans[first, 0], address.rows[first, 0], strict=True))
        assert len(names) == len(first) == alone.cycle
    other = mixed(tmp_path, "0.5*{} + 0.5*{}")
    assert other.manifest["content"] == both.manifest["content"]
    assert other.content != both.content  # another mixture is other data


def test_memory_of_a_document_of_any_size(vocab, tmp_path):
    """A part takes runs of a document, never the whole of it."""
    longest = 0

    class Watched(parts.ChunkTable):
        def encode(self, sentences):
            nonlocal longest
            longest = max(longest, sum(map(len, sentences)))
            return super().encode(sentences)

    path = tmp_path / "a.txt"
    path.write_text("the oven of wind .\n" * 300_000)
    (shard,) = corpus.load(f"sentences:{path}").shards
    from bert_jax.data.faults import Faults

    writer = parts.PartWriter(tmp_path, Watched(vocab), Faults())
    for run in shards.runs(shard, Faults()):
        writer.add(run)
    writer.finish({})
    assert longest < parts.BLOCK + 10_000 and path.stat().st_size > 5 * longest


def test_workers_end_with_their_parent(tmp_path):
    """A killed build leaves no process behind."""
    (tmp_path / "busy.py").write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from bert_jax.data import workers\n"
        "def wait(place):\n"
        "    Path(place, str(os.getpid())).touch(); time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    list(workers.run(wait, [sys.argv[1]] * 2, 2))\n"
    )
    place = tmp_path / "pids"
    place.mkdir()
    process = subprocess.Popen([sys.executable, str(tmp_path / "busy.py"), str(place)])
    end = time.monotonic() + 30
    while len(list(place.iterdir())) < 2:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    alive = [Path("/proc", p.name) for p in place.iterdir()]
    while any(p.exists() and "Z" not in state(p) for p in alive):
        assert time.monotonic() < end
        time.sleep(0.01)


def state(process):
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_reads_nothing_it_need_not(vocab, tmp_path, monkeypatch, toy_text):
    """A vocabulary that is given, and a store that is there, read no text."""
    text = corpus.load(f"sentences:{toy_text}")
    building.build(text, vocab, tmp_path / "store", workers.over(1))
    monkeypatch.setattr(shards, "runs", None)
    building.build(text, vocab, tmp_path / "store", workers.over(1))
    vocab.write(tmp_path / "v")
    spec = vocabularies.VocabularySpec(path=str(tmp_path / "v/vocab.txt"))
    assert vocabularies.make(text, spec).tokens == vocab.tokens
    assert vocabulary.RESERVED == vocab.tokens[:5]
    shutil.rmtree(tmp_path / "v")
