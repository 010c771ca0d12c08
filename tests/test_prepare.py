"""launch/prepare.py from the shell: makes, reports, verifies, learns, refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.data import store, vocabularies

REPOSITORY = Path(__file__).resolve().parent.parent


def prepare(*arguments, code=0):
    command = [sys.executable, str(REPOSITORY / "launch/prepare.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_store_from_the_shell(toy_text, tmp_path, run_launcher):
    out = str(tmp_path / "store")
    shown = prepare("--corpus", f"sentences:{toy_text}", "--out", out, "--size", "150")
    for word in ("120 (12 held out)", "tokens in a sentence", "[UNK]", "MB/s", "█"):
        assert word in shown
    assert "| documents |" in (tmp_path / "store/provenance.md").read_text()
    assert "is whole" in prepare("--verify", out)
    opened = store.open_store(Path(out))
    # The same store again: nothing to do. Other text: refused.
    again = prepare("--corpus", f"sentences:{toy_text}", "--out", out, "--size", "150")
    assert opened.manifest["content"][:16] in again
    # A training run takes it as it is.
    done = run_launcher(
        "--exp", "smoke", "--plan", "--corpus", f"store:{out}",
        "--workdir", str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 0 and opened.content[:16] in done.stdout, done.stderr
    (tmp_path / "store/tokens.bin").write_bytes(b"\0\0")
    assert "tokens.bin not as written" in prepare("--verify", out, code=2)


def test_a_run_from_a_mixed_cased_store(toy_text, tmp_path, run_launcher):
    """The store's settings are the run's; provenance tells how often a source is read.

    And a run of one step on the text itself continues on the store, and backwards.
    """
    other = tmp_path / "other.txt"
    other.write_text(
        "\n".join(f"Plain {n} is the law .\nBaking .\n" for n in range(60))
    )
    mixture = f"0.7*sentences:{toy_text} + 0.3*sentences:{other}"
    out, run = str(tmp_path / "store"), tmp_path / "run"
    shown = prepare("--corpus", mixture, "--out", out, "--cased", "--size", "150")
    assert "source 2" in shown
    command = [
        "--exp", "smoke", "--config.phases=((32,3,8),)", "--workdir", str(run),
        "--config.optimizer.warmup_steps=1", "--config.eval.pairs=40",
    ]  # fmt: skip
    done = run_launcher(*command, "--corpus", f"store:{out}")
    assert done.returncode == 0, done.stderr[-2000:]
    config = json.loads((run / "config.json").read_text())
    assert config["vocabulary"]["lowercase"] is False
    facts = json.loads((run / "provenance.json").read_text())
    opened = store.open_store(Path(out))
    (first, second) = facts["phases"][0]["source_passes"]
    assert facts["store"] == opened.content and 0 < first and 0 < second
    assert "| Source 2, sentences | not said" in (run / "provenance.md").read_text()
    refused = run_launcher(
        *command, "--corpus", f"store:{out}", "--vocab", f"{out}/tokenizer/vocab.txt"
    )
    assert refused.returncode == 2 and "has its own vocabulary" in refused.stderr
    # The same text under the same settings is the same data.
    longer = [*command, "--config.phases=((32,4,8),)", "--extend"]
    longer.remove("--config.phases=((32,3,8),)")
    settings = ("--config.vocabulary.lowercase=False", "--config.vocabulary.size=150")
    done = run_launcher(*longer, "--corpus", mixture, *settings)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "continuing from step 3" in done.stdout


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 100), ("sentencepiece", 39)])
def test_a_vocabulary_from_the_shell(toy_text, tmp_path, kind, size):
    out = tmp_path / "vocabulary"
    shown = prepare(
        "--corpus", f"sentences:{toy_text}", "--out", str(out), "--learn_vocab",
        "--size", str(size), "--kind", kind,
    )  # fmt: skip
    for word in ("pieces a word", "[UNK]", "of the vocabulary used"):
        assert word in shown
    learned = vocabularies.open_directory(out)
    assert len(learned) == size and learned.digest()[:16] in shown
    assert ("rule nmt_nfkc" in shown) == (kind == "sentencepiece")


def test_refusals(toy_text, tmp_path):
    spec = f"sentences:{toy_text}"
    out = str(tmp_path / "store")
    assert "both needed" in prepare("--corpus", spec, code=2)
    assert "is missing" in prepare("--corpus", "text:/no/*", "--out", out, code=2)
    assert "no token store" in prepare("--verify", out, code=2)
    assert "wat" in prepare("--wat=1", code=2)
    (tmp_path / "vocab.txt").write_text("[PAD]\nthe\n")
    refused = prepare(
        "--corpus", spec, "--out", out, "--vocab", str(tmp_path / "vocab.txt"), code=2
    )
    assert "[MASK]" in refused and not Path(out).exists()
    (tmp_path / "bad.txt").write_bytes(b"good .\n\xff\xfe bad .\n")
    strict = prepare(
        "--corpus", f"sentences:{tmp_path}/bad.txt", "--out", out, "--strict",
        "--vocab", str(tmp_path / "v/vocab.txt"), code=2,
    )  # fmt: skip
    assert "is missing" in strict
