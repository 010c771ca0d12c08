"""Prose to sentences."""

import sentencex


def split(text: str, language: str = "en") -> list[str]:
    """Sentences of a text, whitespace collapsed, none empty."""
    pieces = sentencex.segment(language, " ".join(text.split()))
    return [sentence for piece in pieces if (sentence := piece.strip())]
