"""Prose to sentences."""

import re

import sentencex

# The splitter's time grows with the square of a line; prose has no such sentences.
_LONGEST = 4000
_GAP = re.compile(r"(?<=[.!?]) ")


def _windows(text: str) -> list[str]:
    """Cuts a long line behind the last full stop of each window of _LONGEST."""
    parts, begin = [], 0
    while len(text) - begin > _LONGEST:
        cut = begin + _LONGEST
        stops = list(_GAP.finditer(text, begin, cut))
        cut = stops[-1].end() if stops else max(text.rfind(" ", begin, cut), begin) + 1
        cut = cut if cut > begin + 1 else begin + _LONGEST
        parts.append(text[begin:cut])
        begin = cut
    return [*parts, text[begin:]]


def split(text: str, language: str = "en") -> list[str]:
    """Sentences of a text, whitespace collapsed, none empty."""
    collapsed = " ".join(text.split())
    pieces = (s for w in _windows(collapsed) for s in sentencex.segment(language, w))
    return [sentence for piece in pieces if (sentence := piece.strip())]
