"""The run directory: one live process, config, tokenizer, log.

config.json        every resolved key          provenance.json, .md
tokenizer/         vocab.txt, settings.json    metrics.jsonl, events.*
checkpoints/STEP/  Orbax                       log.txt
"""

import fcntl
import os
from pathlib import Path
from typing import Any, TextIO

from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data import cache


class Refusal(ValueError):
    """What cannot work, in one message for the person who asked."""


class RunDirectory:
    """A directory that one process at a time may write."""

    def __init__(self, path: str | Path):
        if "://" in str(path):
            raise Refusal(
                f"run directory {path} is not on a local disk, and this version writes "
                "nowhere else; give a local path and copy the finished directory"
            )
        self.path = Path(path)
        self._lock: TextIO | None = None
        self._log: TextIO | None = None

    @property
    def checkpoints(self) -> Path:
        """Where Orbax writes."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """The curve, a JSON object a line."""
        return self.path / "metrics.jsonl"

    def begun(self) -> bool:
        """Whether a run was begun here: a config.json is written last."""
        return (self.path / "config.json").is_file()

    def config(self) -> ConfigDict | None:
        """The configuration the directory was written with, or None for a new one."""
        value = self._json("config.json")
        return None if value is None else configs.from_json(value)

    def data(self) -> str | None:
        """Content hash of the store the run trains on, or None for a new run."""
        value = self._json("config.json")
        return None if value is None else value["data"]

    def provenance(self) -> dict[str, Any]:
        """provenance.json, empty for a new run."""
        return self._json("provenance.json") or {}

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = cache.read_json(self.path / name)
            return value
        except FileNotFoundError:
            return None

    def check_place(self) -> None:
        """Refuses a path that cannot be a directory this process writes in.

        Raises:
          Refusal: a file is in the way, or there is no permission.
        """
        nearest = self.path.absolute()
        while not nearest.exists():
            nearest = nearest.parent
        if not nearest.is_dir():
            raise Refusal(
                f"run directory {self.path} cannot be made: {nearest} is a file; give "
                "another --workdir"
            )
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise Refusal(
                f"run directory {self.path} cannot be written: no permission in "
                f"{nearest}; give another --workdir"
            )

    def lock(self) -> None:
        """Takes the directory for this process, until it ends.

        Raises:
          Refusal: another live process holds it.
        """
        if self._lock is not None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / ".lock", "a+")
        except OSError as error:
            raise Refusal(
                f"run directory {self.path} cannot be made: {error.strerror}; give "
                "another --workdir"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise Refusal(
                f"{self.path} is in use by another live process (pid {owner}); wait "
                "for it, stop it, or give another --workdir"
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock

    def write_config(self, config: ConfigDict, data: str) -> None:
        """config.json: every resolved key, and the content hash of the data."""
        value = {**configs.as_json(config), "data": data}
        cache.write_json(self.path / "config.json", value)

    def say(self, text: str = "") -> None:
        """Prints, and keeps what was printed in log.txt."""
        print(text, flush=True)
        if self._lock is None:
            return
        if self._log is None:
            self._log = open(self.path / "log.txt", "a", encoding="utf-8")
        self._log.write(text + "\n")
        self._log.flush()

    def close(self) -> None:
        """Lets go of the directory."""
        for file in (self._log, self._lock):
            if file is not None:
                file.close()
        self._log = self._lock = None


def git_revision() -> str:
    """Revision of the source tree with a + if it was changed, or "unknown"."""
    import subprocess

    root = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root:
            return "unknown"  # installed inside a repository that is not ours
        changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return "unknown"
