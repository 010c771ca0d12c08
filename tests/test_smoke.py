"""One run of smoke, looked at from all sides."""

import json
import shutil

import numpy as np
import pytest

import bert_jax
from bert_jax import metrics

pytestmark = pytest.mark.quick


def test_what_a_person_sees(smoke_run):
    directory, text = smoke_run
    for word in (
        "devices",
        "mesh data 1",
        "parameters",
        "held out",
        "[UNK]",
        "positions",
    ):
        assert word in text
    lines = [line for line in text.splitlines() if " held-out mlm_loss=" in line]
    assert len(lines) == 2  # at step 25 and at the end
    for name in ("mlm_loss=", "mlm_accuracy=", "nsp_accuracy=", "±"):
        assert name in lines[-1]
    for name in ("unigram model", "majority label", "word overlap"):
        assert name in text
    assert "builtin:python-docs" in text


def test_run_directory(smoke_run):
    directory, text = smoke_run
    names = {p.name.split(".")[0] for p in directory.iterdir() if p.name[0] != "."}
    assert names == {"config", "tokenizer", "checkpoints", "provenance", "metrics",
                     "events", "log"}  # fmt: skip
    assert (directory / "tokenizer/vocab.txt").read_text().startswith("[PAD]\n[UNK]\n")
    for line in (directory / "log.txt").read_text().splitlines():
        assert line in text
    config = json.loads((directory / "config.json").read_text())
    assert config["format_version"] == 1 and len(config["data"]) == 64
    assert sorted(p.name for p in (directory / "checkpoints").iterdir()) == ["25", "50"]


def test_curves(smoke_run):
    directory, _ = smoke_run
    records = list(metrics.read(directory / "metrics.jsonl"))
    training = [r for r in records if r["kind"] == "train"]
    assert [r["step"] for r in training] == list(range(5, 51, 5))
    for record in training:
        names = "loss mlm_loss mlm_accuracy nsp_loss nsp_accuracy learning_rate"
        for name in [*names.split(), "gradient_norm", "tokens_per_second"]:
            assert np.isfinite(record[name])
        assert record["loss"] == pytest.approx(
            record["mlm_loss"] + record["nsp_loss"], rel=1e-5
        )
        t = record["step"] - 1  # the rate of the update that was just taken
        rate = 1e-3 * (t / 5 if t < 5 else 1 - t / 50)
        assert record["learning_rate"] == pytest.approx(rate, rel=1e-5)
    held_out = [r for r in records if r["kind"] == "held-out"]
    assert [r["step"] for r in held_out] == [25, 50]
    assert held_out[1]["mlm_loss"] < held_out[0]["mlm_loss"]
    gain = held_out[1]["unigram_loss"] - held_out[1]["mlm_loss"]
    assert held_out[1]["mlm_gain"] == pytest.approx(gain)
    assert all(r["mlm_loss_se"] > 0 for r in held_out)
    events = next(directory.glob("events.*"))
    assert events.stat().st_size > 1000


def test_provenance(smoke_run):
    directory, _ = smoke_run
    record = json.loads((directory / "provenance.json").read_text())
    assert record["corpus"]["spec"] == "builtin:python-docs"
    assert record["documents"] > 300 and record["held_out_documents"] >= 30
    for phase in record["phases"]:
        n = phase["masks"]["selected"]
        for name, share in (("masked", 0.8), ("random", 0.1), ("kept", 0.1)):
            sigma = (share * (1 - share) / n) ** 0.5
            assert abs(phase["masks"][f"{name}_share"] - share) < 4 * sigma
        assert abs(phase["masks"]["selected_share"] - 0.15) < 0.01
        assert 0.5 < phase["label_1_share"] < 0.7
        assert sum(phase["length_histogram"]["counts"]) == phase["distinct_rows"]
    text = (directory / "provenance.md").read_text()
    assert "Public script" in text and "another document" in text


def test_load_and_fill_mask(smoke_run):
    directory, _ = smoke_run
    model = bert_jax.load(directory)
    assert model.step == 50 and "50" in repr(model)
    best = model.fill_mask("Return the [MASK] of the list.", top_k=3)
    assert len(best) == 3 and best[0].probability >= best[1].probability > 0
    assert best[0].text == f"Return the {best[0].token} of the list."
    every = model.fill_mask("Return the [MASK].", top_k=len(model.vocabulary))
    assert sum(f.probability for f in every) == pytest.approx(1, abs=1e-4)
    two = model.fill_mask("A [MASK] and a [MASK].", top_k=2)
    assert [len(one) for one in two] == [2, 2]
    assert two[1][0].text.startswith("A [MASK] and a ")
    earlier = bert_jax.load(directory, step=25)
    assert earlier.step == 25
    assert (
        earlier.fill_mask("Return the [MASK].")[0]
        != model.fill_mask("Return the [MASK].")[0]
    )


def test_load_and_fill_mask_refuse(smoke_run, tmp_path):
    directory, _ = smoke_run
    with pytest.raises(ValueError, match=r"step 7; there are: 25, 50"):
        bert_jax.load(directory, step=7)
    with pytest.raises(ValueError, match="not a run directory"):
        bert_jax.load(tmp_path)
    model = bert_jax.load(directory)
    with pytest.raises(ValueError, match="no .MASK. in"):
        model.fill_mask("nothing hidden")
    with pytest.raises(ValueError, match="512 positions"):
        model.fill_mask("word " * 600 + "[MASK]")
    with pytest.raises(ValueError, match="one string, got list"):
        model.fill_mask(["a [MASK]"])
    with pytest.raises(ValueError, match="top_k=0"):
        model.fill_mask("a [MASK]", top_k=0)
    assert len(model.fill_mask("half a pair \ud83d [MASK]")) == 5


def test_load_says_what_is_damaged(smoke_run, tmp_path):
    """One ValueError of a line or two, and the other checkpoints there are."""
    run = tmp_path / "run"
    shutil.copytree(smoke_run[0], run)
    for path in (run / "checkpoints/50").rglob("*"):
        if path.is_file() and path.stat().st_size > 2000:
            path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="50 cannot be read.*there: 25") as error:
        bert_jax.load(run)
    assert len(str(error.value)) < 400
    assert bert_jax.load(run, step=25).step == 25
    (run / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        bert_jax.load(run)
    with pytest.raises(ValueError, match="is a file; give the run directory"):
        bert_jax.load(run / "config.json")


def test_padding_moves_no_prediction(smoke_run):
    """The bucket a text is padded to is not seen."""
    from bert_jax import pretrained

    model = bert_jax.load(smoke_run[0])
    short = model.fill_mask("Return the [MASK] of it.")
    before, pretrained.BUCKET = pretrained.BUCKET, 128
    try:
        long = bert_jax.load(smoke_run[0]).fill_mask("Return the [MASK] of it.")
    finally:
        pretrained.BUCKET = before
    assert [f.token for f in short] == [f.token for f in long]
    np.testing.assert_allclose(
        [f.probability for f in short], [f.probability for f in long], rtol=1e-4
    )


def test_not_finite_stops_before_a_save(run_launcher, tmp_path, toy_text):
    done = run_launcher(
        "--exp", "smoke", "--workdir", str(tmp_path / "run"),
        "--corpus", f"sentences:{toy_text}", "--config.vocabulary.size=150",
        "--config.optimizer.learning_rate=1e30", "--config.optimizer.warmup_steps=0",
        "--config.checkpoint.every=5", "--config.eval.every=100",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr[-2000:]
    assert "not finite" in done.stderr and "step 2" in done.stderr
    assert "plan " in done.stderr and "row " in done.stderr
    assert not any(p.name.isdigit() for p in (tmp_path / "run/checkpoints").iterdir())
