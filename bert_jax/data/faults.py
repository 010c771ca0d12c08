"""What was wrong with a text, counted with its places; or refused, if asked.

A bad line never ends a long build unless ``strict``: it is read as well as it can be,
counted, and its place is kept for the report.
"""

from dataclasses import dataclass, field

KINDS = {
    "bad_bytes": "lines not UTF-8 (bad bytes read as U+FFFD, which no token keeps)",
    "nul": "lines with NUL (dropped from them)",
    "long_lines": "lines cut because they are very long",
    "bad_records": "records that are no JSON object with that text field (left out)",
    "cut_off": "compressed files that end early (read to there)",
    "no_tokens": "lines that become no token (left out)",
    "empty_files": "files without text",
}
SERIOUS = ("bad_bytes", "bad_records", "cut_off")  # what ``strict`` refuses
SHOWN = 5  # places kept of each kind


@dataclass
class Faults:
    """Counts and first places of what was wrong, by kind."""

    strict: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, place: str, detail: str = "", count: int = 1) -> None:
        """Counts a fault.

        Raises:
          ValueError: strict, and text would be lost or changed by it.
        """
        if self.strict and kind in SERIOUS:
            raise ValueError(
                f"{place}: {KINDS[kind].split(' (')[0]}"
                f"{f' ({detail})' if detail else ''}; mend it, or leave --strict out "
                "to count such lines and go on"
            )
        self.counts[kind] = self.counts.get(kind, 0) + count
        kept = self.places.setdefault(kind, [])
        if len(kept) < SHOWN:
            kept.append(place)

    def lines(self) -> list[str]:
        """Each kind with its count and first places, for a person."""
        return [
            f"{count:,} {KINDS[kind]}: {', '.join(self.places.get(kind, []))}"
            for kind, count in sorted(self.counts.items())
        ]

    def merge(self, other: "Faults") -> None:
        """Adds what another part of the corpus found."""
        for kind, count in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
            kept = self.places.setdefault(kind, [])
            kept += other.places[kind][: SHOWN - len(kept)]
