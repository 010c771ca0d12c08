"""``run(config, directory)``: a run from refusals to the last line, top to bottom."""

import os
import time
from dataclasses import dataclass
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax import banner, checks, mesh, metrics, notices, setup, step
from bert_jax import config as configs
from bert_jax.checkpoint import DAMAGED, Checkpoints, load_parts, saved_steps
from bert_jax.data import cache, provenance
from bert_jax.loop import Loop, Signals, Stopped
from bert_jax.rundir import Refusal, RunDirectory, git_revision
from bert_jax.setup import Setup
from bert_jax.step import State
from bert_jax.tally import Tally


@dataclass(frozen=True)
class Options:
    """What a person may ask of one start, beside the configuration."""

    plan: bool = False  # banner, table and refusals; nothing compiled or written
    extend: bool = False  # steps or phases may differ from the run's


def run(config: ConfigDict, directory: str, options: Options = Options()) -> None:  # noqa: B008
    """Trains, evaluates and saves; continues where the run directory stands.

    Args:
      config: see ``config.py``.
      directory: the run directory; made if need be.
      options: of this start.

    Raises:
      Refusal: the run cannot work, or cannot be continued this way. Nothing was
        written.
      FloatingPointError: a loss or gradient was not finite; the state before it is not
        saved over.
    """
    place = RunDirectory(directory)
    signals = Signals()
    try:
        _run(config, place, options, signals)
    except Stopped:
        place.say("stopped before a step was taken; nothing new to save")
    finally:
        signals.restore()
        place.close()


def _run(
    config: ConfigDict, place: RunDirectory, options: Options, signals: Signals
) -> None:
    began = time.perf_counter()
    # What needs no data is refused first.
    devices = setup.device_count(config)
    checks.check_config(config, configs.flatten(config), devices)
    setup.adopt_vocabulary(config)
    place.check_place()
    changes = _compare(config, place, options)
    total = sum(steps for _, steps, _ in config.phases)
    done = max(saved_steps(place.checkpoints), default=0)
    if done and changes is None:
        raise Refusal(
            f"{place.path} holds checkpoints but no config.json, so what made them is "
            "not known; give another --workdir"
        )
    if done > total:
        raise Refusal(
            f"{place.path} stands at step {done:,}, the phases end at {total:,}; give "
            "as many steps or more, or another --workdir"
        )
    # Another corpus is looked at first: it must be the text the run was trained on.
    same = changes is not None and not any(
        line.startswith("corpus:") for line in changes[configs.MACHINE]
    )
    if done == total and same and not options.plan:
        place.say(_finished_line(place, done))
        return
    if changes is not None and done < total and not options.plan:
        _take(place, begun=True, done=done)

    tokens = setup.prepare_store(config)
    if place.data() not in (None, tokens.content):
        raise Refusal(
            f"{place.path} trains on store {place.data()}, {config.corpus} gives "
            f"{tokens.content}; give the corpus the run began with (--corpus), or "
            "another --workdir"
        )
    if done == total and not options.plan:
        place.say(_finished_line(place, done))
        return
    plan = setup.make(config, tokens, devices)
    device_mesh = mesh.make(config.machine.mesh or None)
    masks = [] if options.plan else setup.measure_masks(plan)
    facts = provenance.facts(
        tokens,
        plan.curriculum,
        plan.encoder.max_positions,
        plan.flops_per_row(),
        masks or [{} for _ in plan.steps],
        git_revision(),
        {
            "devices": f"{device_mesh.size} {jax.devices()[0].device_kind}",
            "rows_at_once": [
                size // spec.micro_batches
                for (_, _, size), spec in zip(config.phases, plan.steps, strict=True)
            ],
        },
        configs.flatten(config),
    )
    if options.plan:
        _introduce(config, plan, device_mesh, place, facts)
        return

    held_out = setup.held_out_sets(config, plan)
    state = _state(plan, place, done, mesh.replicated(device_mesh))
    _take(place, begun=changes is not None, done=done)
    _introduce(config, plan, device_mesh, place, facts)
    _write_facts(config, place, facts, tokens, changes, done)

    checkpoints = Checkpoints(place.checkpoints, config.checkpoint.keep)
    if done:
        place.say(f"continuing from step {done:,}")
    curves = metrics.Curves(place.path, done)
    tally = Tally(len(plan.steps), metrics.read(place.metrics))
    loop = Loop(config, place, plan, held_out, device_mesh, checkpoints, curves, tally)
    signals.training = True
    try:
        loop.train(state, done, signals)
        checkpoints.wait()
    finally:
        curves.close()
        checkpoints.close()
    if not loop.stopped:
        facts = place.provenance()
        facts["measured"] = tally.measured(plan.flops_per_row())
        _write_provenance(config, place, facts)
        place.say(banner.finished(time.perf_counter() - began, total))


def _compare(
    config: ConfigDict, place: RunDirectory, options: Options
) -> dict[str, list[str]] | None:
    """Differences from the run so far, or None for a new run.

    Raises:
      Refusal: a recipe key differs, or phases without --extend.
    """
    try:
        old = place.config()
    except (ValueError, OSError) as error:
        raise Refusal(f"{place.path} cannot be continued: {error}") from error
    if old is None:
        return None
    if old.vocabulary.path and not config.vocabulary.path:
        # A run begun with --vocab goes on with it, also where that file is gone.
        wordpiece = old.vocabulary.kind == "wordpiece"
        name = "vocab.txt" if wordpiece else "tokenizer.model"
        kept = place.path / "tokenizer" / name
        given = os.path.isfile(old.vocabulary.path)
        config.vocabulary.path = old.vocabulary.path if given else str(kept)
        config.vocabulary.size = old.vocabulary.size  # that of the file
    changes = configs.differences(old, config)
    if changes[configs.RECIPE]:
        raise Refusal(
            f"{place.path} holds a run of another recipe:\n  "
            + "\n  ".join(changes[configs.RECIPE])
            + "\ncontinue it with the same keys, or give another --workdir"
        )
    if changes[configs.EXTENSION] and not options.extend:
        raise Refusal(
            f"{place.path} was planned otherwise:\n  "
            + "\n  ".join(changes[configs.EXTENSION])
            + "\npass --extend to change its length (the schedule follows), or give "
            "another --workdir"
        )
    return changes


def _take(place: RunDirectory, begun: bool, done: int) -> None:
    """Locks a run directory that must still stand where it was read.

    Raises:
      Refusal: another process has it, or had it since.
    """
    place.lock()
    if (place.begun(), max(saved_steps(place.checkpoints), default=0)) != (begun, done):
        raise Refusal(
            f"another process trained in {place.path} while this one prepared; give "
            "the command again to continue from there, or another --workdir"
        )


def _finished_line(place: RunDirectory, done: int) -> str:
    lines = [
        record["line"]
        for record in metrics.read(place.metrics)
        if record["kind"] == "held-out" and record["step"] == done
    ]
    return "\n".join([f"finished: {place.path} stands at its last step {done:,}",
                      *lines[-1:]])  # fmt: skip


def _introduce(
    config: ConfigDict, plan: Setup, device_mesh: Any, place: RunDirectory, facts: Any
) -> None:
    place.say(banner.banner(config, plan, device_mesh, str(place.path)))
    notice = notices.notice(plan)
    if notice:
        place.say(notice)
    for text in notices.warnings(config, plan):
        place.say(f"warning: {text}")
    place.say(banner.phase_table(plan, facts))
    place.say(banner.budget_table(plan, config.masks.rate))


def _write_facts(
    config: ConfigDict,
    place: RunDirectory,
    facts: dict[str, Any],
    tokens: Any,
    changes: dict[str, list[str]] | None,
    done: int,
) -> None:
    """config.json, tokenizer/ and provenance of a start; changes are kept as events."""
    before = place.provenance()
    facts["events"] = before.get("events", [])
    for name in provenance.CIRCUMSTANCES:
        for line in provenance.moved(name, before.get(name), facts[name]):
            facts["events"].append({"step": done, "what": line})
            place.say(f"changed {line}")
    for kind in (configs.MACHINE, configs.EXTENSION):
        for line in (changes or {}).get(kind, []):
            facts["events"].append({"step": done, "what": f"{kind} key {line}"})
            place.say(f"changed {line}")
    tokens.vocabulary.write(place.path / "tokenizer")
    if "measured" in before:  # of a run that is being extended
        facts["measured"] = before["measured"]
    _write_provenance(config, place, facts)
    # Last: a directory with a config.json is one that can be continued.
    place.write_config(config, tokens.content)


def _write_provenance(
    config: ConfigDict, place: RunDirectory, facts: dict[str, Any]
) -> None:
    cache.write_json(place.path / "provenance.json", facts)
    text = provenance.markdown(facts, configs.flatten(config))
    cache.write_text(place.path / "provenance.md", text)


def _state(plan: Setup, place: RunDirectory, done: int, sharding: Any) -> State:
    """A fresh state, or the one of a checkpoint."""

    def fresh() -> State:
        return step.init(plan.encoder, plan.optimizer, plan.seed)

    if not done:
        return jax.jit(fresh, out_shardings=sharding)()
    target = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(fresh),
    )
    try:
        return State(**load_parts(place.checkpoints, done, target._asdict()))
    except DAMAGED as error:
        raise Refusal(
            f"checkpoint {place.checkpoints / str(done)} cannot be read: {error}\n"
            "delete that directory to go back to the checkpoint before it"
        ) from error
