"""Launchers run from any directory, and shadow nothing."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = sorted((REPOSITORY / "launch").glob("*.py"))
EXTRA = {
    "tpu_pod": ["--exp", "smoke", "--config.vocabulary.size=150"],
    "prepare": [],
    "public_script": ["--vocab_file", "vocab.txt", "--output_file", "a.tfrecord"],
    "show": [],  # below: it needs a run
}
WORDS = {
    "tpu_pod": ("devices", "parameters", "documents", "phase", "passes", "compute"),
    "prepare": ("1 files", "shards"),
    "public_script": ("1 file(s)", "a.tfrecord"),
}
LAUNCHERS = [p for p in FILES if not p.stem.startswith("_")]


@pytest.mark.quick
def test_names_shadow_nothing():
    """launch/ stands first on sys.path, so a file named like a module would hide it."""
    for path in FILES:
        assert path.stem not in sys.stdlib_module_names
        found = importlib.util.find_spec(path.stem)
        assert found is None or Path(found.origin).parent == path.parent, found


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda p: p.stem)
def test_runs_from_another_directory(launcher, tmp_path, toy_text):
    """--plan says what would run, and writes nothing."""
    if launcher.stem == "show":
        pytest.skip("needs a run: test_show_says_what_a_run_read")
    command = [sys.executable, str(launcher), "--plan"]
    if launcher.stem == "public_script":
        command += ["--input_file", str(toy_text)]
    else:
        command += ["--corpus", f"sentences:{toy_text}"]
    command += EXTRA[launcher.stem]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    for word in WORDS[launcher.stem]:
        assert word in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_every_experiment_has_a_command_in_its_docstring():
    names = [p for p in (REPOSITORY / "experiments").glob("*.py") if p.stem[0] != "_"]
    assert len(names) >= 8
    for path in names:
        module = importlib.util.module_from_spec(
            spec := importlib.util.spec_from_file_location(path.stem, path)
        )
        spec.loader.exec_module(module)
        assert f"--exp {path.stem}" in module.__doc__


def load(name):
    path = REPOSITORY / "experiments" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config()


def test_bert_base_is_the_recipe_of_2018():
    from bert_jax import config as configs

    c = load("bert_base_nsp")
    assert c.phases == ((128, 900_000, 256), (512, 100_000, 256))
    o = c.optimizer
    assert (o.learning_rate, o.warmup_steps, o.schedule) == (
        1e-4,
        10_000,
        "linear_2018",
    )
    assert (o.beta1, o.beta2, o.epsilon, o.weight_decay) == (0.9, 0.999, 1e-6, 0.01)
    assert (o.clip_norm, o.bias_correction) == (1.0, False)
    assert (c.masks.rate, c.masks.mask_share, c.masks.random_share) == (0.15, 0.8, 0.1)
    assert (c.masks.kind, c.masks.copies, c.rows.plans) == ("static", 1, 10)
    assert (c.model.dropout, c.model.attention_dropout, c.model.gelu) == (
        0.1,
        0.1,
        "tanh",
    )
    mlm = load("bert_base_mlm")
    differ = [
        key
        for key, value in configs.flatten(c).items()
        if configs.flatten(mlm)[key] != value
    ]
    assert differ == ["objectives.nsp"]


def test_paper_and_public_script_differ_in_named_keys():
    from bert_jax import config as configs

    paper, public = (
        configs.flatten(load(name)) for name in ("bert_base_paper", "bert_base_public")
    )
    differ = [key for key, value in paper.items() if public[key] != value]
    assert set(differ) == {
        "masks.max_predictions", "phases", "optimizer.learning_rate",
    }  # fmt: skip


def test_show_says_what_a_run_read(smoke_run, tmp_path):
    """Any row of any step, replayed from its address; the provenance beside it."""
    from bert_jax import replay

    directory, _ = smoke_run

    def show(*arguments):
        command = [sys.executable, str(REPOSITORY / "launch/show.py"), *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    where = ["--run", str(directory), "--step", "45"]
    one = show(*where, "--row", "3")
    assert one.returncode == 0, one.stderr[-2000:]
    assert "step 45 of 50, phase 2: 16 rows of 64 tokens" in one.stdout
    plan, _ = replay.open_run(str(directory))
    seen = replay.replay(plan, 45)
    assert seen.row(3) in one.stdout and "label" in one.stdout
    used = int((seen.targets.weights_BK[3] > 0).sum())
    assert one.stdout.count("{") == used > 0
    assert "\033[" in seen.row(3, color=True) and "\033[" not in one.stdout
    # The same rows as those the loop counted: masks of all steps add up.
    record = json.loads((directory / "provenance.json").read_text())
    for number, measured in enumerate(record["measured"]):
        steps = range(1, 41) if number == 0 else range(41, 51)
        shown = [replay.replay(plan, n) for n in steps]
        count = sum(int((r.targets.weights_BK > 0).sum()) for r in shown)
        assert measured["predicted"] == count
        assert measured["steps"] == len(steps) and measured["rows"] == 16 * len(steps)
        pairs = sum(int(r.batch.label_BP.sum()) for r in shown)
        assert measured["label_1"] == pairs
    for wrong in (["--step", "51"], ["--step", "45", "--row", "16"]):
        refused = show("--run", str(directory), *wrong)
        assert refused.returncode == 2 and "outside" in refused.stderr
    table = show("--provenance", str(directory)).stdout
    assert "| Selected |" in table and "when done" not in table
    assert list(tmp_path.iterdir()) == []


def test_plan_compares_curricula(run_launcher, toy_text):
    """What the lengths of phases cost, before anything is compiled."""
    done = run_launcher(
        "--exp", "bert_base_paper", "--plan", "--corpus", f"sentences:{toy_text}",
        "--config.vocabulary.size=150",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line for line in done.stdout.splitlines() if "x  0.." in line]
    assert [line.split("x  ")[1] for line in rows] == ["0..511 of 512"] * 3
    costs = [float(line.split()[-4].rstrip("x")) for line in rows]
    # The paper's own curriculum is 90/10; all at 512 costs more than three times that.
    assert costs[:2] == [1.0, 1.0] and 2.5 < costs[2] < 4.5
