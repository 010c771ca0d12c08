"""A resumed run is the uninterrupted run, killed at any moment (law 5)."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import metrics

REPOSITORY = Path(__file__).resolve().parent.parent
STEPS, SAVE = 32, 4
FLAGS = {
    "--exp": "smoke",
    "--config.phases": "((32,20,48),(48,12,48))",
    "--config.checkpoint.every": str(SAVE),
    "--config.checkpoint.keep": "2",
    "--config.log.every": "1",
    "--config.eval.every": "1000",
    "--config.eval.pairs": "64",
    "--config.eval.sequence_length": "48",
}


def losses(directory):
    return {
        record["step"]: (record["loss"], record["mlm_loss"], record["nsp_loss"])
        for record in metrics.read(directory / "metrics.jsonl")
        if record["kind"] == "train"
    }


def last_step(directory):
    return max(losses(directory), default=0)


def saves(directory, temporary=False):
    try:
        names = [p.name for p in (directory / "checkpoints").iterdir()]
    except FileNotFoundError:
        return []
    if temporary:
        return [name for name in names if "tmp" in name]
    return sorted(int(name) for name in names if name.isdigit())


def facts(directory):
    return [
        (directory / name).read_bytes()
        for name in ("config.json", "provenance.json", "metrics.jsonl")
    ]


class Start:
    """One start of the launcher, watched from outside."""

    def __init__(self, directory, environ, **flags):
        self.directory = directory
        flags = {**FLAGS, "--workdir": directory, **flags}
        command = [sys.executable, str(REPOSITORY / "launch/tpu_pod.py")]
        self.out = open(directory.with_suffix(".out"), "a+")
        self.process = subprocess.Popen(
            [*command, *(f"{name}={value}" for name, value in flags.items())],
            env={**os.environ, **environ},
            stdout=self.out,
            stderr=subprocess.STDOUT,
        )
        self.begin = self.out.seek(0, os.SEEK_END)

    def text(self):
        return self.directory.with_suffix(".out").read_text()[self.begin :]

    def until(self, condition, seconds=120):
        """Waits for a moment; False where the process ended first."""
        end = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < end, f"never came:\n{self.text()[-2000:]}"
            time.sleep(0.0005)
        return True

    def finish(self, seconds=180):
        code = self.process.wait(seconds)
        return code, self.text()


def kill(start, moment, draw, cache):
    """Kills a start with SIGKILL at a named moment; says at which step it stood."""
    directory = start.directory
    ahead = last_step(directory) + draw.randint(1, 3)
    moments = {
        "preparing": lambda: any(cache.rglob(".building-*")),
        "compiling": lambda: "compiling" in start.text(),
        "mid-step": lambda: last_step(directory) >= ahead,
        "mid-save": lambda: bool(saves(directory, temporary=True)),
        "between saves": lambda: (
            last_step(directory) > (saves(directory) or [STEPS])[-1] > 0
        ),
        "after the last step": lambda: last_step(directory) == STEPS,
    }
    reached = start.until(moments[moment])
    time.sleep(draw.random() * 0.02)
    start.process.send_signal(signal.SIGKILL)
    start.process.wait()
    assert reached, f"{moment} never came: {start.text()[-2000:]}"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiled programs shared by the starts, so that restarts are quick."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("xla")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.fixture(scope="module")
def uninterrupted(cache, tmp_path_factory, compiled):
    directory = tmp_path_factory.mktemp("reference") / "run"
    code, text = Start(directory, compiled).finish()
    assert code == 0, text
    return directory


def assert_same(directory, reference):
    assert saves(directory)[-1] == STEPS
    assert losses(directory) == losses(reference)
    assert sorted(losses(directory)) == list(range(1, STEPS + 1))
    a, b = bert_jax.load(directory).params, bert_jax.load(reference).params
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_killed_at_any_moment(uninterrupted, tmp_path, compiled):
    seed = int(os.environ.get("BERT_JAX_KILL_SEED", time.time_ns() % 10**6))
    print(f"BERT_JAX_KILL_SEED={seed}")
    draw = random.Random(seed)
    directory, cache = tmp_path / "run", tmp_path / "cache"
    environ = {**compiled, "BERT_JAX_CACHE": str(cache)}
    middle = ["mid-step", "mid-save", "between saves"]
    draw.shuffle(middle)
    for moment in ["preparing", "compiling", *middle, "after the last step"]:
        # Compiling is compiling only where no program is kept from before.
        fresh = {"BERT_JAX_CACHE": str(cache)} if moment == "compiling" else environ
        start = Start(directory, fresh)
        kill(start, moment, draw, cache)
        print(moment, "at step", last_step(directory), "saved", saves(directory))
        if moment == "preparing":
            assert not directory.exists()
    code, text = Start(directory, environ).finish()
    assert code == 0, text
    assert_same(directory, uninterrupted)
    assert saves(directory, temporary=True) == [] and len(saves(directory)) == 2


def test_sigterm_saves_and_exits_0(uninterrupted, tmp_path, compiled):
    directory = tmp_path / "run"
    start = Start(directory, compiled)
    assert start.until(lambda: last_step(directory) >= 5)
    # Law 8: the directory is taken while the first process lives.
    second = Start(directory, compiled)
    code, text = second.finish()
    if start.process.poll() is None:
        assert code == 2 and "another live process" in text
    start.process.send_signal(signal.SIGTERM)
    code, text = start.finish()
    assert code == 0
    code, text = Start(directory, compiled).finish()
    assert code == 0, text
    assert_same(directory, uninterrupted)


def test_finished_run_says_its_line(uninterrupted, compiled):
    before = (uninterrupted / "metrics.jsonl").read_bytes()
    start = time.monotonic()
    code, text = Start(uninterrupted, compiled).finish()
    assert code == 0 and "held-out mlm_loss=" in text and time.monotonic() - start < 60
    assert (uninterrupted / "metrics.jsonl").read_bytes() == before


def test_extending_with_another_micro_batch(uninterrupted, tmp_path, compiled):
    """Law 8: phases change with --extend only, machine keys at any restart.

    Both changes are recorded, and another micro-batch gives the same losses to float
    tolerance.
    """
    copy = tmp_path / "run"
    shutil.copytree(uninterrupted, copy)
    longer = {"--config.phases": "((32,20,48),(48,14,48))"}
    code, text = Start(copy, compiled, **longer).finish()
    assert code == 2 and "--extend" in text
    changes = {**longer, "--config.machine.micro_batch": "24", "--extend": "true"}
    latest, recorded = copy / "checkpoints" / str(STEPS), facts(copy)
    cut = max((latest / "params").rglob("d/*"), key=lambda p: p.stat().st_size)
    os.truncate(cut, cut.stat().st_size // 2)
    code, text = Start(copy, compiled, **changes).finish()
    assert code == 2 and f"{latest.name} cannot be read" in text, text
    assert facts(copy) == recorded
    shutil.rmtree(latest)
    code, text = Start(copy, compiled, **changes).finish()
    assert code == 0 and f"continuing from step {STEPS - SAVE}" in text, text
    assert "changed machine.micro_batch: 0 -> 24" in text
    assert saves(copy)[-1] == 34 and max(losses(copy)) == 34
    for step in range(1, STEPS - SAVE + 1):
        assert losses(copy)[step] == losses(uninterrupted)[step]
    again, before = losses(copy)[STEPS - SAVE + 1], losses(uninterrupted)
    np.testing.assert_allclose(again, before[STEPS - SAVE + 1], rtol=1e-3)
    record = json.loads((copy / "provenance.json").read_text())
    events = [e["what"] for e in record["events"] if e["step"] == STEPS - SAVE]
    assert [what.split(":")[0] for what in events] == [
        "machine.rows_at_once", "machine key machine.micro_batch",
        "extension key phases",
    ]  # fmt: skip
    assert "extension key phases" in (copy / "provenance.md").read_text()


def test_damaged_checkpoint_is_refused(uninterrupted, tmp_path):
    """One flipped byte in an array file: Orbax alone would load it."""
    copy = tmp_path / "run"
    shutil.copytree(uninterrupted, copy)
    data = sorted((copy / f"checkpoints/{STEPS}/params").rglob("d/*"))
    target = max(data, key=lambda p: p.stat().st_size)
    raw = bytearray(target.read_bytes())
    raw[len(raw) // 2] ^= 1
    target.write_bytes(raw)
    with pytest.raises(Exception, match=r"damaged|checksum|CRC|Error|decod"):
        bert_jax.load(copy)


def test_run_directory_holds_no_path(uninterrupted):
    """Law 9: nothing in it is looked up by an absolute path."""
    for name in ("config.json", "provenance.json"):
        text = (uninterrupted / name).read_text()
        assert str(uninterrupted.parent) not in text and "/tmp" not in text
    record = json.loads((uninterrupted / "provenance.json").read_text())
    assert record["phases"][0]["masks"]["masked_share"] == pytest.approx(0.8, abs=0.05)
