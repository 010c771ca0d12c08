"""The public script's records, from its launcher into a training run (case P13)."""

import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import metrics

REPOSITORY = Path(__file__).resolve().parent.parent
GIVEN = ("--config.rows.format=given", "--config.masks.kind=given")


def script(*arguments):
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "launch/public_script.py"), *arguments],
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def made(toy_text, toy_store, tmp_path_factory):
    """Records of the toy text of length 32, cap 5; their pattern and vocabulary."""
    place = tmp_path_factory.mktemp("public")
    vocab = toy_store.directory / "tokenizer/vocab.txt"
    done = script(
        f"--input_file={toy_text}", f"--vocab_file={vocab}", "--dupe_factor=4",
        f"--output_file={place}/a.tfrecord,{place}/b.tfrecord", "--max_seq_length=32",
        "--max_predictions_per_seq=5",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stdout
    return f"tfrecord:{place}/*.tfrecord", str(vocab)


def train(run_launcher, made, workdir, *flags):
    text, vocab = made
    return run_launcher(
        "--exp=smoke", f"--corpus={text}", f"--vocab={vocab}", f"--workdir={workdir}",
        "--config.phases=((32,8,16),)", "--config.eval.every=8", *flags,
        "--config.optimizer.warmup_steps=2", "--config.eval.pairs=50",
    )  # fmt: skip


def test_a_run_on_records(run_launcher, made, tmp_path):
    done = train(run_launcher, made, tmp_path / "run", *GIVEN)
    assert done.returncode == 0, done.stderr
    assert "given masks" in done.stdout and "of the given rows train" in done.stdout
    record = metrics.read(tmp_path / "run/metrics.jsonl")
    tally = [r for r in record if r["kind"] == "tally"][-1]
    assert tally["phase0_rows"] == 8 * 16
    # Counts of the script: 15 % of each row, rounded, five at most.
    predicted = sum(tally[f"phase0_{kind}"] for kind in ("masked", "random", "kept"))
    assert 0.11 < predicted / tally["phase0_tokens"] < 0.17
    shown = subprocess.run(
        [sys.executable, str(REPOSITORY / "launch/show.py"), "--run",
         str(tmp_path / "run"), "--step", "2", "--row", "3"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "{[MASK]:" in shown.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((*GIVEN, "--config.masks.max_predictions=10"),
         "masks.max_predictions=10, the records were built with "
         "max_predictions_per_seq=5"),
        ((*GIVEN, "--config.phases=((32,8,16),(64,8,16))"),
         "phase 2 has sequence length 64, the records were built with "
         "max_seq_length=32"),
        ((), "holds finished rows, rows.format is segment_pair"),
        ((GIVEN[1],), "masks.kind=given needs rows.format=given"),
    ],
)  # fmt: skip
def test_what_the_records_are_not(run_launcher, made, tmp_path, flags, message):
    text, vocab = made
    phases = any("phases" in flag for flag in flags)
    done = run_launcher(
        "--exp=smoke", f"--corpus={text}", f"--vocab={vocab}",
        f"--workdir={tmp_path / 'run'}", *flags,
        *(() if phases else ("--config.phases=((32,8,16),)",)),
    )  # fmt: skip
    assert done.returncode == 2
    assert message in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()


def test_records_need_their_vocabulary_and_stand_alone(run_launcher, made, tmp_path):
    text, vocab = made
    done = run_launcher(
        "--exp=smoke", f"--corpus={text}", *GIVEN, f"--workdir={tmp_path / 'run'}"
    )
    assert done.returncode == 2 and "no text to learn a vocabulary" in done.stderr
    done = run_launcher(
        "--exp=smoke", f"--corpus=0.5*{text} + 0.5*builtin:python-docs", *GIVEN,
        f"--vocab={vocab}", f"--workdir={tmp_path / 'run'}",
    )  # fmt: skip
    assert done.returncode == 2 and "cannot be mixed" in done.stderr


def test_given_rows_need_records(run_launcher, toy_text, tmp_path):
    done = run_launcher(
        "--exp=smoke", f"--corpus=sentences:{toy_text}", *GIVEN,
        "--config.vocabulary.size=150", f"--workdir={tmp_path / 'run'}",
    )  # fmt: skip
    assert done.returncode == 2 and "tfrecord:GLOB" in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_cap_is_warned_about(run_launcher, made, toy_text, tmp_path):
    """512 tokens at a rate of 0.15 are 77; the script's default keeps 20."""
    done = script(
        f"--input_file={toy_text}", f"--vocab_file={made[1]}", "--dupe_factor=1",
        f"--output_file={tmp_path}/a.tfrecord", "--max_seq_length=512",
    )  # fmt: skip
    assert done.returncode == 0 and "77 wanted, 20 kept" in done.stdout
    done = run_launcher(
        "--exp=smoke", f"--corpus=sentences:{toy_text}", "--plan",
        "--config.vocabulary.size=150", "--config.phases=((512,50,16),)",
        "--config.masks.max_predictions=20", f"--workdir={tmp_path / 'run'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "77 wanted, 20 kept" in done.stdout
    assert not (tmp_path / "run").exists()


def test_bad_input_of_the_script(tmp_path, made):
    done = script("--input_file=nothing*.txt", f"--vocab_file={made[1]}",
                  f"--output_file={tmp_path}/a")  # fmt: skip
    assert done.returncode == 2 and "no file matches 'nothing*.txt'" in done.stderr
    (tmp_path / "empty.txt").write_text("\n\n")
    done = script(f"--input_file={tmp_path}/empty.txt", f"--vocab_file={made[1]}",
                  f"--output_file={tmp_path}/a")  # fmt: skip
    assert done.returncode == 2 and "no document with text" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.txt"]
