"""What an examiner found: each of these ended in a traceback, or in a wrong word."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import building, corpus, store, vocabularies, workers
from bert_jax.data.faults import Faults

PREPARE = Path(__file__).resolve().parents[2] / "launch/prepare.py"
LIMITED = """
import os, resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def vocab(toy_store):
    return str(toy_store.directory / "tokenizer/vocab.txt")


def prepare(*arguments, before=()):
    return subprocess.run(
        [sys.executable, *before, str(PREPARE), *map(str, arguments)],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("limit", [2_000, 5_000, 12_000])
def test_a_disk_that_fills_at_any_file(toy_text, vocab, tmp_path, limit):
    """numpy says how much it wrote and gives no errno; it is one message all the same.

    No file may grow beyond a limit, so that different writes fail.
    """
    flags = (f"--corpus=sentences:{toy_text}", f"--vocab={vocab}", "--workers=1")
    done = prepare(
        *flags, f"--out={tmp_path}/store", before=("-c", LIMITED, str(limit))
    )
    assert done.returncode == 2, done.stderr
    assert "the disk is full" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "store").exists()
    done = prepare(*flags, f"--out={tmp_path}/store")
    assert done.returncode == 0, done.stderr
    assert store.verify(tmp_path / "store") == []


def test_half_a_surrogate_pair(toy_store, tmp_path):
    """JSON can spell what is no text: replaced, counted with its place."""
    path = tmp_path / "a.jsonl"
    lines = [{"text": "the oven is ."}, {"text": "the mast"}, {"text": "of law ."}]
    texts = [json.dumps(line) for line in lines]
    texts[1] = texts[1].replace("mast", "mast \\ud83d .")
    texts[2] = texts[2].replace("law", "law \\ud83d\\ude00")  # a whole pair is text
    path.write_text("\n".join(texts) + "\n")
    text, faults = corpus.load(f"jsonl:{path}"), Faults()
    assert len(list(corpus.documents(text, faults))) == 3
    assert faults.counts == {"bad_bytes": 1}
    assert faults.places["bad_bytes"] == [f"{path}:2"]
    building.build(text, toy_store.vocabulary, tmp_path / "store", workers.over(1))
    assert store.open_store(tmp_path / "store").manifest["documents"] == 3
    with pytest.raises(ValueError, match="a.jsonl:2: lines not UTF-8"):
        list(corpus.documents(text, Faults(strict=True)))


def test_a_cut_gzip_is_read_to_its_end(tmp_path):
    """All that could be unpacked before the cut is kept."""
    draw = np.random.default_rng(0)
    words = ["".join(map(chr, draw.integers(97, 123, 6))) for _ in range(30_000)]
    data = "\n".join(words).encode()
    whole = gzip.compress(data)
    (tmp_path / "a.txt.gz").write_bytes(whole[: len(whole) // 2])
    faults = Faults()
    text = corpus.load(f"sentences:{tmp_path}/a.txt.gz")
    found = [word for document in corpus.documents(text, faults) for word in document]
    assert faults.counts == {"cut_off": 1}
    assert found[:-1] == words[: len(found) - 1] and len(found) > 0.4 * len(words)


def test_a_long_line_is_given_on_in_pieces(tmp_path):
    """A line of 8 MB without an end is never held whole."""
    from bert_jax.data import lines, shards

    path = tmp_path / "a.txt"
    path.write_text("word " * (8 << 18) + "\n")
    text = corpus.load(f"sentences:{path}")
    sizes = [
        sum(map(len, run.sentences))
        for shard in text.shards
        for run in shards.runs(shard, Faults())
    ]
    assert sum(sizes) > 8 << 20 and max(sizes) <= 2 * lines.LONGEST


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt.gz", b"no gzip at all", "compressed files that end early"),
        ("a.txt", b"\n\n  \n", "files without text"),
        ("a.jsonl", b'{"body": "x"}\n{"body": "y"}\n', "2 records that are no JSON"),
    ],
)
def test_an_empty_corpus_says_why(toy_store, tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    kind = "jsonl" if name.endswith("jsonl") else "sentences"
    text = corpus.load(f"{kind}:{tmp_path}/{name}")
    with pytest.raises(ValueError, match=f"holds no document with text.*{message}"):
        building.build(text, toy_store.vocabulary, tmp_path / "store", workers.over(1))
    assert not (tmp_path / "store.parts").exists() or any(
        p.is_dir() for p in (tmp_path / "store.parts").iterdir()
    )


def test_directories_and_links(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"is a directory; give its files.*folder/\*"):
        corpus.load(f"text:{tmp_path}/folder")
    (tmp_path / "a.txt").write_text("some text .\n")
    os.symlink(tmp_path / "gone.txt", tmp_path / "b.txt")
    with pytest.raises(ValueError, match="b.txt cannot be read: it links to nothing"):
        corpus.load(f"text:{tmp_path}/*.txt")
    with pytest.raises(ValueError, match="question mark cannot be part of a pattern"):
        corpus.load(f"text:{tmp_path}/?.txt?documents=file")


def test_a_weight_without_end(toy_text):
    for weight in ("1e400", "0", "-1", "nan"):
        with pytest.raises(ValueError, match="each weight above 0"):
            corpus.load(f"{weight}*sentences:{toy_text} + 1*sentences:{toy_text}")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--out={0}/file",), "is a file"),
        (("--out={0}/file/store",), "is a file"),
        (("--out={0}/file", "--learn_vocab", "--vocab="), "is a file"),
        (("--out={0}/full",), "holds other files and no store"),
        (("--out={0}/store", "--workers=-1"), "--workers -1 is below 0"),
        (("--out={0}/store", "--learn_vocab"), "leave one out"),
    ],
)
def test_places_and_numbers_are_looked_at_first(
    toy_text, vocab, tmp_path, flags, message
):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thing").write_text("precious")
    done = prepare(
        f"--corpus=sentences:{toy_text}", f"--vocab={vocab}",
        *(flag.format(tmp_path) for flag in flags),
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert message in done.stderr, done.stderr
    assert (tmp_path / "file").read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full"]


def test_a_broken_manifest_is_named(toy_text, vocab, tmp_path):
    spec = vocabularies.VocabularySpec(path=vocab)
    text = corpus.load(f"sentences:{toy_text}")
    made = tmp_path / "store"
    building.build(text, vocabularies.make(text, spec), made, workers.over(1))
    (made / "manifest.json").write_text("{")
    done = prepare(f"--verify={made}")
    assert done.returncode == 2
    assert "store/manifest.json is damaged" in done.stderr
