"""Launchers run from any directory, and shadow nothing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = sorted((REPOSITORY / "launch").glob("*.py"))
EXTRA = {
    "tpu_pod": ["--exp", "smoke", "--config.vocabulary.size=150"],
    "prepare": [],
}
WORDS = {
    "tpu_pod": ("devices", "parameters", "documents", "phase", "passes", "compute"),
    "prepare": ("1 files", "shards"),
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
    command = [sys.executable, str(launcher), "--plan"]
    command += ["--corpus", f"sentences:{toy_text}", *EXTRA[launcher.stem]]
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
