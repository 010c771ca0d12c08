"""Real text grown to any size: repeated, with some words changed in every copy."""

import random
import re
from pathlib import Path

SHARE = 0.02  # of the words changed, so that copies bring words not seen before


def perturbed(text: str, seed: int) -> str:
    """The text with a share of its words changed by one letter, the same for a seed."""
    draws = random.Random(seed)
    words = re.split(r"([^\W\d_]+)", text)  # words at odd places
    for _ in range(int(len(words) // 2 * SHARE)):
        at = 2 * draws.randrange(len(words) // 2) + 1
        word = words[at]
        letter = draws.choice("abcdefghijklmnopqrstuvwxyz")
        spot = draws.randrange(len(word) + 1)
        words[at] = word[:spot] + letter + word[spot:]
    return "".join(words)


def grow(text: str, target: Path, size: int) -> int:
    """Writes copies of a text, each changed in its own way, until there are ``size``
    bytes; returns the bytes written."""
    written, copy = 0, 0
    with open(target, "wb") as out:
        while written < size:
            data = perturbed(text, copy).encode() + b"\n\n"
            written += out.write(data)
            copy += 1
    return written
