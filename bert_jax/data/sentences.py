"""Prose to sentences."""

import sentencex

from bert_jax.data import clean


def check(language: str) -> None:
    """Refuses a language that is no code.

    Raises:
      ValueError: with the form of a code.
    """
    if not (language.isascii() and 2 <= len(language.split("-")[0]) <= 3):
        raise ValueError(
            f"language {language!r} is no code of two or three letters like en, de, zh"
        )


def split(text: str, language: str = "en") -> list[str]:
    """Sentences of a text, whitespace collapsed, none empty.

    A language without rules of its own uses those of a related one, then the general
    ones of sentencex.
    """
    pieces = sentencex.segment(language, clean.squeeze(text))
    return [sentence for piece in pieces if (sentence := piece.strip())]
