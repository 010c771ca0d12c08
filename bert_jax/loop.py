"""The loop: steps, metrics, held-out evaluation, saves, and stopping well."""

import signal
import threading
from types import FrameType
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import evaluate, mesh, metrics, prefetch, step
from bert_jax.checkpoint import Checkpoints
from bert_jax.progress import Progress
from bert_jax.rundir import RunDirectory
from bert_jax.setup import HeldOut, Setup
from bert_jax.step import State
from bert_jax.tally import Tally


class Stopped(Exception):
    """SIGTERM or SIGINT before there was anything to save."""


class Signals:
    """Turns SIGTERM and SIGINT into a request to save and stop."""

    def __init__(self) -> None:
        self.asked = False
        self.training = False
        # Only the main thread may take signals; elsewhere they stay with their owner.
        main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGTERM, signal.SIGINT) if main else ()
        self._before = {n: signal.signal(n, self._ask) for n in numbers}

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


class Loop:
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
        tally: Tally,
    ):
        self.config, self.place, self.plan = config, place, plan
        self.held_out, self.mesh = held_out, device_mesh
        self.checkpoints, self.curves, self.tally = checkpoints, curves, tally
        self.stopped = False
        self._eval_steps = [
            jax.jit(
                step.make_eval_step(
                    plan.encoder,
                    h.masks,
                    h.rows.spec.rows.length,
                    config.eval.seed,
                    h.objectives,
                )
            )
            for h in held_out
        ]

    def train(self, state: State, done: int, signals: Signals) -> None:
        """Steps from ``done`` to the end; a step's metrics are read in the next."""
        curriculum, config = self.plan.curriculum, self.config
        total = self.plan.total_steps
        train_steps = [
            jax.jit(step.make_train_step(spec), donate_argnums=0)
            for spec in self.plan.steps
        ]
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
            compiles = phase != phase_before
            if compiles:
                if pending is not None:
                    self._account(*pending)
                    pending = None
                self._announce(phase, done)
                phase_before = phase
            batch = mesh.place(next(batches), self.mesh)
            state, numbers = train_steps[phase](state, batch)
            done += 1
            if pending is not None:
                self._account(*pending)
            pending = (done, numbers)
            if compiles:  # no measure of speed
                self._account(done, numbers, measured=False)
                pending = None
            last = done == total
            save = last or done % config.checkpoint.every == 0
            if save or done % config.eval.every == 0:
                if pending is not None:
                    self._account(*pending)
                pending = None
                self._evaluate(done, state.params)
            if save:
                self._keep_tally(done)
                self.checkpoints.save(done, state._asdict())
                saved = done
            if pending is None:
                self.progress.restart_clock()
        if pending is not None:
            self._account(*pending)
        self.progress.close()
        if done < total:
            self.stopped = True
            new = done > saved
            if new:
                self._keep_tally(done)
                self.checkpoints.save(done, state._asdict())
                self.checkpoints.wait()
            self.place.say(
                f"stopped by a signal at step {done:,}, "
                f"{'saved' if new else 'nothing new to save'}; the same command "
                "continues from there"
            )

    def _keep_tally(self, done: int) -> None:
        """Counts up to a save, on disk before it."""
        self.curves.add("tally", done, self.tally.record())
        self.curves.flush()

    def _announce(self, phase: int, done: int) -> None:
        spec = self.plan.steps[phase]
        self.place.say(
            f"phase {phase + 1} from step {done:,}: length {spec.length}, compiling"
        )

    def _account(self, done: int, numbers: Any, measured: bool = True) -> None:
        """Reads, checks and records the metrics of one step (counted from 1)."""
        numbers = mesh.fetch(numbers)
        if not bool(numbers["finite"]):
            self._refuse(done, numbers)
        values = {
            "loss": float(numbers["loss"]),
            "learning_rate": float(numbers["learning_rate"]),
            "gradient_norm": float(numbers["gradient_norm"]),
            "surplus": float(numbers["counts"]["surplus"]),
        }
        for name, sums in numbers["sums"].items():
            weight = max(float(sums["weight"]), 1.0)
            values[f"{name}_loss"] = float(sums["nll"]) / weight
            values[f"{name}_accuracy"] = float(sums["correct"]) / weight
        shown = {
            "loss": values["loss"],
            **{name: values[f"{name}_accuracy"] for name in numbers["sums"]},
            "lr": values["learning_rate"],
        }
        phase = self.plan.curriculum.phase_of(done - 1)
        self.tally.add(phase, numbers["counts"])
        if numbers["counts"]["without_target"]:
            self.place.say(f"step {done:,}: no token to predict; the loss of it is 0")
        tokens = float(numbers["counts"]["tokens"])
        line = self.progress.update(done, tokens, shown, measured)
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
            named = [
                f"plan {plan} row {row}"
                for r in bad[:8]
                for plan, row in zip(address.plans[r], address.rows[r], strict=True)
                if row >= 0
            ]
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
                held_out.objectives,
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
