"""Bad input: one readable message, and nothing written in the run directory."""

import importlib.util
import os
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from bert_jax import checks, train
from bert_jax import config as configs
from bert_jax.rundir import Refusal

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def command():
    path = REPOSITORY / "launch/_command.py"
    spec = importlib.util.spec_from_file_location("_command", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def set_keys(config, **keys):
    for path, value in keys.items():
        *groups, name = path.split("__")
        place = config
        for group in groups:
            place = place[group]
        place[name] = value
    return config


@pytest.fixture
def smoke(command, toy_text) -> ConfigDict:
    config = command.load_experiment("smoke")
    return set_keys(config, corpus=f"sentences:{toy_text}", vocabulary__size=150)


CASES = {
    "missing corpus": ({"corpus": "text:/no/such/*.txt"}, "is missing"),
    "unknown corpus": ({"corpus": "wiki"}, "no kind"),
    "missing vocabulary": ({"vocabulary__path": "/no/vocab.txt"}, "is missing"),
    "phase beyond positions": (
        {"phases": ((64, 5, 8), (640, 5, 8))},
        "phase 2: sequence length 640 is outside 8 .. 512",
    ),
    "batch that does not divide": (
        {"phases": ((64, 50, 10),), "machine__micro_batch": 4},
        "machine.micro_batch=4 does not divide the batch of 10",
    ),
    "warmup beyond the run": (
        {"optimizer__warmup_steps": 51},
        "optimizer.warmup_steps=51 is longer than the run of 50",
    ),
    "unknown choice": ({"rows__shuffle": "yes"}, "rows.shuffle='yes' is not one of"),
    "share above one": ({"masks__rate": 1.5}, "masks.rate=1.5 must lie between"),
    "shares add up": ({"masks__mask_share": 0.95}, "add to more than 1"),
    "no phases": ({"phases": ()}, "must be a tuple"),
    "negative steps": ({"phases": ((64, -5, 8),)}, "must be a tuple"),
    "heads": ({"model__heads": 3}, "model.width=64 does not split"),
    "zero plans": ({"rows__plans": 0}, "rows.plans=0 must be at least 1"),
    "micro-batch": ({"machine__micro_batch": -1}, "machine.micro_batch=-1 must be 0"),
    "mesh": ({"machine__mesh": (2, 1, 1)}, "its product must be 1"),
    "seed": ({"seed": 1 << 40}, "seed=1099511627776 is outside 0 .. 2147483647"),
    "rate that is none": (
        {"optimizer__learning_rate": float("nan")},
        "learning_rate=nan is no finite",
    ),
    "negative rate": ({"optimizer__learning_rate": -1.0}, "learning_rate=-1.0 and"),
    "negative decay": ({"optimizer__weight_decay": -0.1}, "weight_decay=-0.1 is below"),
    "beta of one": ({"optimizer__beta2": 1.0}, "must lie in [0, 1)"),
    "label of one segment": (
        {"rows__format": "full_sentences"},
        "rows.format=full_sentences has one segment",
    ),
    "packed given rows": ({"rows__format": "given", "rows__pack": 2}, "rows.pack=2"),
    "given masks of planned rows": (
        {"masks__kind": "given"},
        "masks.kind=given needs rows.format=given",
    ),
    "no token to predict": ({"masks__rate": 0.0}, "masks.rate=0 predicts nothing"),
    "moving static rate": (
        {"masks__final_rate": 0.3, "masks__kind": "static"},
        "masks.final_rate=0.3",
    ),
    "independent spans": (
        {"masks__unit": "span", "masks__selection": "independent"},
        "masks.unit=span needs masks.selection=exact",
    ),
    "nothing to learn": ({"objectives__mlm": 0.0}, "one of mlm, ltr and generator"),
    "two token objectives": (
        {"objectives__ltr": 1.0, "model__causal": True},
        "ltr, mlm: one of mlm",
    ),
    "detection alone": ({"objectives__rtd": 50.0}, "go together"),
    "order without its label": (
        {"objectives__sop": 1.0},
        "needs rows.pair_label=sentence_order",
    ),
    "pairs without labels": (
        {"rows__pair_label": "none"},
        "needs rows.pair_label=next_sentence",
    ),
    "left to right both ways": (
        {"objectives__mlm": 0.0, "objectives__ltr": 1.0, "objectives__nsp": 0.0},
        "a left-to-right model needs both",
    ),
    "pair label under a causal mask": (
        {"objectives__mlm": 0.0, "objectives__ltr": 1.0, "model__causal": True},
        "no pair label can be read",
    ),
    "negative weight": ({"objectives__nsp": -1.0}, "objectives.nsp is below 0"),
    "vocabulary too small": ({"vocabulary__size": 20}, "vocabulary.size=20"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_before_anything_is_written(smoke, tmp_path, case):
    keys, message = CASES[case]
    directory = tmp_path / "run"
    with pytest.raises(Refusal) as refusal:
        train.run(set_keys(smoke, **keys), str(directory))
    assert message in str(refusal.value)
    assert not directory.exists()


def test_vocabulary_without_mask(smoke, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    with pytest.raises(Refusal, match=r"has no \[MASK\]"):
        train.run(set_keys(smoke, vocabulary__path=str(path)), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_no_place_for_a_run(smoke, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Refusal, match="file is a file"):
        train.run(smoke, str(tmp_path / "file" / "run"))
    assert (tmp_path / "file").read_text() == "mine"
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(Refusal, match="no permission"):
        train.run(smoke, str(closed / "run"))


def test_empty_corpus(smoke, tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    config = set_keys(smoke, corpus=f"sentences:{tmp_path}/empty.txt")
    with pytest.raises(Refusal, match="is empty"):
        train.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("documents", [1, 12])
def test_too_few_documents_for_pairs(smoke, tmp_path, documents):
    """Case P08; twelve documents leave one held out, which has no partner."""
    text = "\n\n".join(f"one {n} two .\nthree {n} four ." for n in range(documents))
    (tmp_path / "few.txt").write_text(text + "\n")
    config = set_keys(
        smoke, corpus=f"sentences:{tmp_path}/few.txt", vocabulary__size=90
    )
    with pytest.raises(Refusal, match="two documents on each side"):
        train.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_unknown_experiment(command):
    with pytest.raises(Refusal) as refusal:
        command.load_experiment("bert_base_npr")
    text = str(refusal.value)
    assert "did you mean bert_base_nsp?" in text and "bert_large_nsp" in text


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--config.optimizer.learing_rate=1", "did you mean optimizer.learning_rate?"),
        ("--config.learning_rate=1", "did you mean optimizer.learning_rate?"),
        ("--config.zzz=1", "no key 'zzz'"),
        ("--config.optimiser.lr=1", "did you mean optimizer.learning_rate?"),
        ("--config.seed=1", "--config.seed is given twice"),
    ],
)
def test_unknown_key(command, flag, hint):
    with pytest.raises(Refusal) as refusal:
        command.parse(["x", "--exp", "smoke", "--config.seed=2", flag])
    assert hint in str(refusal.value)


def test_wrong_type_and_stray_words(run_launcher, tmp_path):
    for words in (["--config.rows.plans=many"], ["--workdirs=x"], ["stray"]):
        done = run_launcher("--exp", "smoke", *words, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.startswith("refused: ")
        assert "Traceback" not in done.stderr and list(tmp_path.iterdir()) == []


def test_accelerator_present_but_unused(tmp_path):
    (tmp_path / "accel0").touch()
    with pytest.raises(Refusal, match=r"TPU: .*accel0.*jax\[tpu\]"):
        checks.check_accelerator("cpu", 1, {}, str(tmp_path))
    checks.check_accelerator("tpu", 1, {}, str(tmp_path))
    checks.check_accelerator("cpu", 1, {"JAX_PLATFORMS": "cpu"}, str(tmp_path))
    (tmp_path / "accel0").rename(tmp_path / "nvidia0")
    with pytest.raises(Refusal, match="NVIDIA GPU"):
        checks.check_accelerator("cpu", 1, {}, str(tmp_path))
    (tmp_path / "nvidia0").unlink()
    checks.check_accelerator("cpu", 1, {}, str(tmp_path))
    pod = {"TPU_WORKER_HOSTNAMES": "a,b,c,d"}
    with pytest.raises(Refusal, match=r"one of 4 hosts.*--pod"):
        checks.check_accelerator("tpu", 1, pod, str(tmp_path))
    checks.check_accelerator("tpu", 4, pod, str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "options", "message"),
    [
        ({"optimizer__learning_rate": 5e-4}, {}, "another recipe"),
        ({"phases": ((32, 40, 16), (64, 90, 16))}, {}, "--extend"),
        ({"corpus": "builtin:python-docs"}, {"extend": True}, "another recipe"),
        ({"corpus": "text:/no/such.txt"}, {}, "is missing"),
        ({"phases": ((32, 40, 16),)}, {"extend": True}, "stands at step 50"),
    ],
)
def test_what_may_not_change(command, smoke_run, keys, options, message):
    """Law 8: recipe keys never, phases with --extend; the directory stays as it is."""
    directory, _ = smoke_run
    config = command.load_experiment("smoke")
    before = {p: p.stat().st_mtime_ns for p in directory.rglob("*")}
    if keys.get("corpus") == "builtin:python-docs":
        keys = {"vocabulary__size": 1900, **keys}
    with pytest.raises(Refusal, match=message):
        train.run(set_keys(config, **keys), str(directory), train.Options(**options))
    assert {p: p.stat().st_mtime_ns for p in directory.rglob("*")} == before


def test_a_finished_run_is_of_its_text(command, smoke_run, toy_text, tmp_path):
    """Another corpus is no continuation; the same text at another path is."""
    directory, _ = smoke_run
    kept = directory / "tokenizer/vocab.txt"
    config = command.load_experiment("smoke")
    other = {"corpus": f"sentences:{toy_text}", "vocabulary__path": str(kept)}
    with pytest.raises(Refusal, match="trains on store|another recipe"):
        train.run(set_keys(config, **other), str(directory))


def test_empty_values(run_launcher, tmp_path):
    for flag in ("--corpus=", "--vocab=", "--workdir="):
        done = run_launcher("--exp", "smoke", flag, "--plan", cwd=tmp_path)
        assert done.returncode == 2 and "is empty (an unset variable?)" in done.stderr
        assert list(tmp_path.iterdir()) == []


def test_every_key_has_a_kind():
    flat = configs.flatten(configs.default())
    assert set(flat) == set(configs.KIND)
    assert all(key.meaning for key in configs.KEYS)


def test_config_survives_json():
    config = set_keys(configs.default(), phases=((16, 3, 4), (32, 1, 2)), seed=9)
    again = configs.from_json(configs.as_json(config))
    assert configs.flatten(again) == configs.flatten(config)
    with pytest.raises(ValueError, match="format 99"):
        configs.from_json({"format_version": 99})
