"""Counts of what a run was really trained on, added up as the steps go by."""

from collections.abc import Iterable
from typing import Any

# Of each step's metrics ``counts``; sums over the global batch.
NAMES = (
    "rows",  # of the batch
    "tokens",  # [CLS] and [SEP] among them, padding not
    "places",  # tokens and padding
    "masked", "random", "kept",  # predicted tokens by what stands in their place
    "surplus",  # chosen, and dropped for want of a slot
    "pairs",  # rows that were packed into those of the batch
    "labelled", "label_1",  # pairs with a label, and with label 1
    "without_target",  # steps in which nothing was to be predicted
)  # fmt: skip


class Tally:
    """Sums by phase; kept in metrics.jsonl beside every save, so none is lost."""

    def __init__(self, phases: int, records: Iterable[dict[str, Any]] = ()):
        """Zero, or the last of the records of kind "tally"."""
        self._sums = [dict.fromkeys(("steps", *NAMES), 0) for _ in range(phases)]
        for record in records:
            if record["kind"] == "tally":
                for number, sums in enumerate(self._sums):
                    for name in sums:
                        sums[name] = record.get(f"phase{number}_{name}", 0)

    def add(self, phase: int, counts: dict[str, Any]) -> None:
        """Adds a step."""
        sums = self._sums[phase]
        sums["steps"] += 1
        for name in NAMES:
            sums[name] += int(counts[name])

    def record(self) -> dict[str, int]:
        """Flat numbers for metrics.jsonl."""
        return {
            f"phase{number}_{name}": value
            for number, sums in enumerate(self._sums)
            for name, value in sums.items()
        }

    def measured(self, flops_per_row: list[float]) -> list[dict[str, float]]:
        """What provenance says of each phase when a run is done."""
        out = []
        for sums, flops in zip(self._sums, flops_per_row, strict=True):
            predicted = sums["masked"] + sums["random"] + sums["kept"]

            def share(value: float, of: float) -> float:
                return value / of if of else 0.0

            out.append(
                {
                    **sums,
                    "predicted": predicted,
                    "selected_share": share(predicted, sums["tokens"]),
                    "masked_share": share(sums["masked"], predicted),
                    "random_share": share(sums["random"], predicted),
                    "kept_share": share(sums["kept"], predicted),
                    "label_1_share": share(sums["label_1"], sums["labelled"]),
                    "mean_length": share(sums["tokens"], sums["pairs"]),
                    "padding_share": 1 - share(sums["tokens"], sums["places"]),
                    # Supervision density: what is learned from, by what is computed.
                    "predicted_per_place": share(predicted, sums["places"]),
                    "flops": sums["rows"] * flops,
                    "predicted_per_gflop": share(predicted, sums["rows"] * flops / 1e9),
                }
            )
        return out
