"""The ETA counts each phase at its own price."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from bert_jax import progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_eta_knows_that_later_steps_cost_more(clock):
    """100 steps of one second, then 100 of four: 400 + 90 seconds are left at ten."""
    bar = progress.Progress(0, [(100, 1e9), (200, 4e9)])
    for step in range(1, 11):
        clock[0] += 1.0
        line = bar.update(step, 500, {"loss": 2.5})
    assert "ETA 8m10s" in bar._bar.postfix
    assert "500 tok/s" in bar._bar.postfix and "loss=2.5" in bar._bar.postfix
    assert line is None  # ten seconds between plain lines have not passed
    clock[0] += 5.0
    bar.restart_clock()  # an evaluation is not training
    clock[0] += 1.0
    assert bar.update(11, 500, {}) == "step 11/200 ETA 8m09s 500 tok/s "
    assert bar.speed() == pytest.approx(500)
    bar.close()


def test_a_compiled_step_is_no_measure(clock):
    bar = progress.Progress(0, [(100, 1e9)])
    clock[0] += 60
    assert bar.update(1, 10, {}, measured=False).startswith("step 1/100 ETA after 2")
    clock[0] += 1
    bar.update(2, 10, {})
    assert "ETA 1m38s 10 tok/s" in bar._bar.postfix


def test_speed_follows_a_change(clock):
    bar = progress.Progress(0, [(1000, 1e9)])
    for step in range(1, 201):
        clock[0] += 0.1 if step <= 100 else 0.2
        bar.update(step, 10, {})
    assert bar.speed() == pytest.approx(50, rel=0.2)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.9, "59s"),
        (200, "3m20s"),
        (5 * 3600 + 420, "5h07m"),
        (12 * 86400 + 4 * 3600, "12d04h"),
    ],
)
def test_durations(seconds, text):
    assert progress.duration(seconds) == text


DRAW = """
import time
from bert_jax.progress import Progress
bar = Progress(0, [(5, 1e9)])
for step in range(1, 6):
    time.sleep(0.15)
    bar.update(step, 100, {"loss": 1.5})
bar.close()
"""


@pytest.mark.parametrize("size", [(0, 0), (24, 100), (0, 100)])
def test_a_bar_on_a_terminal(size):
    """Drawn also where the terminal does not know its size (containers, batch jobs)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    done = subprocess.Popen([sys.executable, "-c", DRAW], stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    assert done.wait() == 0
    assert b"5/5" in seen and b"loss=1.5" in seen and b"ETA" in seen
