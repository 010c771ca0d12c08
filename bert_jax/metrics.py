"""Curves: JSON lines first, TensorBoard events beside them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a metrics.jsonl in file order; a line cut off by a kill is skipped."""
    if not path.exists():
        return
    with open(path, encoding="utf-8") as f:
        for line in f:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


class Curves:
    """Appends records to metrics.jsonl and TensorBoard."""

    def __init__(self, directory: Path, restored_step: int):
        """Opens the curves of a run; records past the restored step are dropped.

        Steps between the last checkpoint and a kill will be taken again; their first
        records would otherwise stand twice.
        """
        path = directory / "metrics.jsonl"
        kept = [record for record in read(path) if record["step"] <= restored_step]
        temporary = path.with_name(".metrics.jsonl")
        text = "".join(json.dumps(record) + "\n" for record in kept)
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
        self._file = open(path, "a", encoding="utf-8")
        self._board = SummaryWriter(str(directory), purge_step=restored_step + 1)

    def add(
        self,
        kind: str,
        step: int,
        values: Mapping[str, float],
        line: str | None = None,
    ) -> None:
        """Writes one record: kind is "train", "tally" or the name of an evaluation.

        ``line`` is kept as it was printed.
        """
        record: dict[str, Any] = {"kind": kind, "step": step, **values}
        if line is not None:
            record["line"] = line
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        for name, value in values.items() if kind != "tally" else ():
            self._board.add_scalar(f"{kind}/{name}", value, step)

    def flush(self) -> None:
        """Brings TensorBoard's events to disk; metrics.jsonl always is."""
        self._board.flush()

    def close(self) -> None:
        """Writes out what is buffered."""
        self._file.close()
        self._board.close()
