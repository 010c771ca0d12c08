"""``run(config, directory)``: the training loop, read top to bottom."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import (
    banner,
    checks,
    evaluate,
    mesh,
    metrics,
    prefetch,
    setup,
    step,
)
from bert_jax import config as configs
from bert_jax.checkpoint import Checkpoints, saved_steps
from bert_jax.data import cache, provenance
from bert_jax.progress import Progress
from bert_jax.rundir import Refusal, RunDirectory, git_revision
from bert_jax.setup import HeldOut, Setup
from bert_jax.step import State


@dataclass(frozen=True)
class Options:
    """What a person may ask of one start, beside the configuration."""

    plan: bool = False  # banner, table and refusals; nothing compiled or written
    extend: bool = False  # steps or phases may differ from the run's


class Stopped(Exception):
    """SIGTERM or SIGINT before there was anything to save."""


class _Signals:
    """Turns SIGTERM and SIGINT into a request to save and stop."""

    def __init__(self) -> None:
        self.asked = False
        self.training = False
        self._before = {
            number: signal.signal(number, self._ask)
            for number in (signal.SIGTERM, signal.SIGINT)
        }

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C means now
        self.asked = True
        if not self.training:
            raise Stopped

    def restore(self) -> None:
        """Gives the signals back to whoever had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


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
    signals = _Signals()
    try:
        _run(config, place, options, signals)
    except Stopped:
        place.say("stopped before the first step; nothing to save")
    finally:
        signals.restore()
        place.close()


def _run(
    config: ConfigDict, place: RunDirectory, options: Options, signals: _Signals
) -> None:
    began = time.perf_counter()
    # What needs no data is refused first.
    devices = setup.device_count(config)
    checks.check_config(config, configs.flatten(config), devices)
    changes = _compare(config, place, options)
    total = sum(steps for _, steps, _ in config.phases)
    done = max(saved_steps(place.checkpoints), default=0)
    if done >= total and not options.plan:
        place.say(_finished_line(place, done))
        return
    if changes is not None and not options.plan:
        place.lock()

    tokens = setup.prepare_store(config)
    if place.data() not in (None, tokens.content):
        raise Refusal(
            f"{place.path} trains on store {place.data()}, {config.corpus} gives "
            f"{tokens.content}; give the corpus the run began with (--corpus), or "
            "another --workdir"
        )
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
    )
    if options.plan:
        _introduce(config, plan, device_mesh, place, facts)
        return

    held_out = setup.held_out_sets(config, plan)
    place.lock()
    _introduce(config, plan, device_mesh, place, facts)
    _write_facts(config, place, facts, tokens, changes, done)

    checkpoints = Checkpoints(place.checkpoints, config.checkpoint.keep)
    state = _state(plan, checkpoints, done, mesh.replicated(device_mesh))
    if done:
        place.say(f"continuing from step {done:,}")
    curves = metrics.Curves(place.path, done)
    loop = _Loop(config, place, plan, held_out, device_mesh, checkpoints, curves)
    signals.training = True
    try:
        loop.train(state, done, signals)
        checkpoints.wait()
    finally:
        curves.close()
        checkpoints.close()
    if not loop.stopped:
        place.say(banner.finished(time.perf_counter() - began, total))


def _compare(
    config: ConfigDict, place: RunDirectory, options: Options
) -> dict[str, list[str]] | None:
    """Differences from the run so far, or None for a new run.

    Raises:
      Refusal: a recipe key differs, or phases without --extend.
    """
    old = place.config()
    if old is None:
        return None
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
    notice = banner.notice(plan)
    if notice:
        place.say(notice)
    place.say(banner.phase_table(plan, facts))


def _write_facts(
    config: ConfigDict,
    place: RunDirectory,
    facts: dict[str, Any],
    tokens: Any,
    changes: dict[str, list[str]] | None,
    done: int,
) -> None:
    """config.json, tokenizer/ and provenance of a start; changes are kept as events."""
    facts["events"] = place.provenance().get("events", [])
    for kind in (configs.MACHINE, configs.EXTENSION):
        for line in (changes or {}).get(kind, []):
            facts["events"].append({"step": done, "what": f"{kind} key {line}"})
            place.say(f"changed {line}")
    tokens.vocabulary.write(place.path / "tokenizer")
    cache.write_json(place.path / "provenance.json", facts)
    text = provenance.markdown(facts, configs.flatten(config))
    (place.path / "provenance.md").write_text(text, "utf-8")
    # Last: a directory with a config.json is one that can be continued.
    place.write_config(config, tokens.content)


def _state(plan: Setup, checkpoints: Checkpoints, done: int, sharding: Any) -> State:
    """A fresh state, or the one of a checkpoint."""

    def fresh() -> State:
        return step.init(plan.encoder, plan.optimizer, plan.seed)

    if not done:
        return jax.jit(fresh, out_shardings=sharding)()
    target = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(fresh),
    )
    return State(**checkpoints.load(done, target._asdict()))


class _Loop:
    """The loop and what it writes to."""

    def __init__(
        self,
        config: ConfigDict,
        place: RunDirectory,
        plan: Setup,
        held_out: list[HeldOut],
        device_mesh: Any,
        checkpoints: Checkpoints,
        curves: metrics.Curves,
    ):
        self.config, self.place, self.plan = config, place, plan
        self.held_out, self.mesh = held_out, device_mesh
        self.checkpoints, self.curves = checkpoints, curves
        self.stopped = False
        self._eval_steps = [
            jax.jit(
                step.make_eval_step(
                    plan.encoder, h.masks, h.rows.spec.rows.length, config.eval.seed
                )
            )
            for h in held_out
        ]

    def _compiled(self) -> list[Callable[..., Any]]:
        """One train step per phase; the state is donated."""
        return [
            jax.jit(step.make_train_step(spec), donate_argnums=0)
            for spec in self.plan.steps
        ]

    def train(self, state: State, done: int, signals: _Signals) -> None:
        """Steps from ``done`` to the end; a step's metrics are read in the next."""
        curriculum, config = self.plan.curriculum, self.config
        total = self.plan.total_steps
        train_steps = self._compiled()
        flops = self.plan.flops_per_row()
        sizes = [phase.batch_size for phase in curriculum.phases]
        work = [f * n for f, n in zip(flops, sizes, strict=True)]
        self.progress = Progress(done, list(zip(curriculum.ends, work, strict=True)))
        local = [mesh.local_rows(size) for size in sizes]
        batches = prefetch.batches(
            lambda n: curriculum.batch(n, local[curriculum.phase_of(n)]),
            done,
            total,
            config.machine.loader_threads,
        )
        pending: tuple[int, Any] | None = None
        saved, phase_before = done, -1
        while done < total and not signals.asked:
            phase = curriculum.phase_of(done)
            if phase != phase_before:
                self._announce(phase, done)
            batch = mesh.place(next(batches), self.mesh)
            state, numbers = train_steps[phase](state, batch)
            done += 1
            if pending is not None:
                self._account(*pending)
            pending = (done, numbers)
            if phase != phase_before:
                jax.block_until_ready(numbers)
                self.progress.restart_clock()
                phase_before = phase
            last = done == total
            save = last or done % config.checkpoint.every == 0
            if save or done % config.eval.every == 0:
                self._account(*pending)
                pending = None
                self._evaluate(done, state.params)
            if save:
                self.checkpoints.save(done, state._asdict())
                saved = done
            if pending is None:
                self.progress.restart_clock()
        if pending is not None:
            self._account(*pending)
        self.progress.close()
        if done < total:
            self.stopped = True
            if done > saved:
                self.checkpoints.save(done, state._asdict())
            self.place.say(
                f"stopped by a signal at step {done:,}, saved; the same command "
                "continues from there"
            )

    def _announce(self, phase: int, done: int) -> None:
        spec = self.plan.steps[phase]
        self.place.say(
            f"phase {phase + 1} from step {done:,}: length {spec.length}, compiling"
        )

    def _account(self, done: int, numbers: Any) -> None:
        """Reads, checks and records the metrics of one step (counted from 1)."""
        numbers = mesh.fetch(numbers)
        if not bool(numbers["finite"]):
            self._refuse(done, numbers)
        values = {
            "loss": float(numbers["loss"]),
            "learning_rate": float(numbers["learning_rate"]),
            "gradient_norm": float(numbers["gradient_norm"]),
            "surplus": float(numbers["surplus"]),
        }
        for name, sums in numbers["sums"].items():
            weight = max(float(sums["weight"]), 1.0)
            values[f"{name}_loss"] = float(sums["nll"]) / weight
            values[f"{name}_accuracy"] = float(sums["correct"]) / weight
        shown = {
            "loss": values["loss"],
            "mlm": values.get("mlm_accuracy", 0.0),
            "nsp": values.get("nsp_accuracy", 0.0),
            "lr": values["learning_rate"],
        }
        tokens = float(numbers["tokens"])
        line = self.progress.update(done, tokens, shown)
        if line:
            self.place.say(line)
        if done % self.config.log.every == 0 or done == self.plan.total_steps:
            values["tokens_per_second"] = self.progress.speed()
            self.curves.add("train", done, values)

    def _refuse(self, done: int, numbers: Any) -> None:
        """Stops at a loss or gradient that is not finite, and says where it came from.

        Raises:
          FloatingPointError: always.
        """
        address = self.plan.curriculum.address(done - 1)
        bad = np.flatnonzero(~np.isfinite(np.asarray(numbers["row_nll"])))
        where = "no single row's loss is; the gradient overflowed"
        if bad.size:
            named = [f"plan {address.plans[r]} row {address.rows[r]}" for r in bad[:8]]
            more = f" and {bad.size - 8} more" if bad.size > 8 else ""
            where = f"rows {', '.join(named)}{more} of the batch of {len(address.rows)}"
        raise FloatingPointError(
            f"step {done}: loss {float(numbers['loss'])}, gradient norm "
            f"{float(numbers['gradient_norm'])} are not finite ({where}). Nothing was "
            "saved after it; the last checkpoint is good. Try a lower "
            "optimizer.learning_rate or a longer warmup, or look at those rows"
        )

    def _evaluate(self, done: int, params: Any) -> None:
        """Scores the held-out sets, says the line, records the numbers."""
        for eval_step, held_out in zip(self._eval_steps, self.held_out, strict=True):
            result = evaluate.evaluate(
                eval_step,
                params,
                held_out.rows,
                held_out.baselines,
                self.config.machine.eval_batch,
                self.mesh,
            )
            line = result.line(held_out.name)
            self.place.say(f"step {done:,} {line}")
            if done == self.plan.total_steps:
                self.place.say(result.table())
            self.curves.add(held_out.name, done, result.record(), line)
