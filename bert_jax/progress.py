"""The progress bar: where training is, how fast, and when it will be done."""

import os
import sys
import time

from tqdm import tqdm

PLAIN_SECONDS = 10.0  # between lines where the output is not a terminal


def duration(seconds: float) -> str:
    """As in 45s, 3m20s, 5h07m, 12d04h."""
    seconds = int(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02d}h"


def _sized() -> bool:
    try:
        return all(os.get_terminal_size(sys.stderr.fileno()))
    except (OSError, ValueError):
        return False


class Progress:
    """A tqdm bar on a terminal, a line every few seconds elsewhere.

    The ETA is work left over measured speed, both in floating-point operations, so
    that a later phase of longer rows is counted at its own price.
    """

    def __init__(self, first: int, flops_of_step: list[tuple[int, float]]):
        """Begins at a step.

        Args:
          first: steps done already.
          flops_of_step: (last step, operations of each step) of each phase.
        """
        self._phases = flops_of_step
        self._total = flops_of_step[-1][0]
        self._bar = tqdm(
            total=self._total,
            initial=first,
            unit="step",
            disable=not sys.stderr.isatty(),
            # Some terminals say they have no size; tqdm would draw nothing.
            **({"dynamic_ncols": True} if _sized() else {"ncols": 100, "nrows": 20}),
            bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {postfix}",
        )
        self._rate = 0.0  # operations a second, a running mean
        self._tokens = 0.0
        self._last = time.perf_counter()
        self._printed = 0.0

    def _left(self, step: int) -> float:
        """Operations from a step to the end."""
        left, begin = 0.0, 0
        for end, flops in self._phases:
            left += max(0, end - max(step, begin)) * flops
            begin = end
        return left

    def restart_clock(self) -> None:
        """Leaves out of the speed what was not training: compiling, evaluation."""
        self._last = time.perf_counter()

    def speed(self) -> float:
        """Tokens a second, a running mean; 0 before the first measured step."""
        return self._tokens

    def update(
        self, step: int, tokens: float, shown: dict[str, float], measured: bool = True
    ) -> str | None:
        """Counts one step; returns a line to print where there is no terminal.

        ``measured`` False leaves the step's time out of the speed: it was compiled.
        """
        now = time.perf_counter()
        elapsed, self._last = max(now - self._last, 1e-9), now
        flops = next(flops for end, flops in self._phases if step <= end)
        # Running mean over some thirty steps, or ten seconds where that is fewer.
        new = min(0.5, max(1 / 30, elapsed / 10)) if self._rate else 1.0
        new = new if measured else 0.0
        self._rate += new * (flops / elapsed - self._rate)
        self._tokens += new * (tokens / elapsed - self._tokens)
        self._bar.update(1)
        eta = duration(self._left(step) / self._rate) if self._rate else "after 2 steps"
        numbers = " ".join(f"{name}={value:.4g}" for name, value in shown.items())
        speed = f"{self._tokens:,.0f} tok/s " if self._rate else ""
        status = f"ETA {eta} {speed}{numbers}"
        self._bar.set_postfix_str(status, refresh=False)
        if self._bar.disable and now - self._printed > PLAIN_SECONDS:
            self._printed = now
            return f"step {step:,}/{self._total:,} {status}"
        return None

    def close(self) -> None:
        """Leaves the bar where it stands."""
        self._bar.close()
