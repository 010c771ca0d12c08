"""The same store over Apache Beam, byte for byte. Run where Beam is installed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.data import building, corpus, shards, store, vocabularies
from bert_jax.data.beam import Beam
from bert_jax.data.vocabularies import VocabularySpec

pytestmark = [
    pytest.mark.beam,
    pytest.mark.skipif(
        importlib.util.find_spec("apache_beam") is None, reason="needs apache-beam"
    ),
]
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def text(toy_text, monkeypatch):
    monkeypatch.setattr(shards, "SHARD", 4000)
    return corpus.load(f"sentences:{toy_text}")


@pytest.mark.parametrize("mode", ["in_memory", "multi_threading"])
def test_same_bytes(text, toy_store, tmp_path, mode):
    options = (f"--direct_running_mode={mode}", "--direct_num_workers=2")
    beam = Beam("DirectRunner", str(tmp_path / "parts"), options)
    place = tmp_path / "store"
    assert len(text.shards) > 5
    building.build(
        text, toy_store.vocabulary, place, beam.run, parts_at=beam.place
    )  # fmt: skip
    made = store.open_store(place).manifest
    assert made["files"] == toy_store.manifest["files"]
    assert made["corpus"]["sources"][0]["files"][0]["sha256"]
    assert not list((tmp_path / "parts").iterdir())


def test_parts_on_another_file_system(text, toy_store, tmp_path):
    """What has no rename and no local path: parts are put there and fetched."""
    import fsspec

    beam = Beam("DirectRunner", "memory://beam/parts")
    building.build(
        text, toy_store.vocabulary, tmp_path / "store", beam.run, parts_at=beam.place
    )
    made = store.open_store(tmp_path / "store").manifest
    assert made["files"] == toy_store.manifest["files"]
    assert fsspec.filesystem("memory").find("/beam") == []


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_the_same_vocabulary(text, tmp_path, kind, monkeypatch):
    beam = Beam("DirectRunner", str(tmp_path / "parts"))
    spec = VocabularySpec(kind=kind, size=39 if kind == "sentencepiece" else 100)
    found = []
    for number, run in enumerate((None, beam.run)):
        monkeypatch.setenv("BERT_JAX_CACHE", str(tmp_path / str(number)))
        found.append(vocabularies.make(text, spec, run).digest())
    assert found[0] == found[1]


def test_a_failed_pipeline_is_one_message(toy_store, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"good .\n\xff\xfe bad .\n")
    text = corpus.load(f"sentences:{tmp_path}/bad.txt")
    beam = Beam("DirectRunner", str(tmp_path / "parts"))
    with pytest.raises(ValueError, match=r"DirectRunner failed: .*bad\.txt"):
        building.build(
            text, toy_store.vocabulary, tmp_path / "s", beam.run, strict=True
        )
    assert not (tmp_path / "s").exists()


def test_from_the_shell(toy_text, tmp_path):
    def prepare(out, *more):
        command = [
            sys.executable, str(REPOSITORY / "launch/prepare.py"), "--size", "150",
            "--corpus", f"sentences:{toy_text}", "--out", str(tmp_path / out), *more,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-2000:]
        return store.open_store(tmp_path / out).content

    assert prepare("a") == prepare("b", "--beam_runner", "DirectRunner")
