"""The tokenizer of 2018 in plain Python, character by character: the peer's cost.

What google-research/bert tokenization.py does, written from its described behaviour;
``benchmarks.prepare`` checks its ids against ours before it times anything.
"""

import unicodedata

LONGEST_WORD = 200


def _is_space(character: str) -> bool:
    return character in " \t\n\r" or unicodedata.category(character) == "Zs"


def _is_control(character: str) -> bool:
    if character in "\t\n\r":
        return False
    return unicodedata.category(character) in ("Cc", "Cf")


def _is_ideograph(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF or 0x2A700 <= code <= 0x2B73F
        or 0x2B740 <= code <= 0x2B81F or 0x2B820 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF or 0x2F800 <= code <= 0x2FA1F
    )  # fmt: skip


def _is_punctuation(character: str) -> bool:
    code = ord(character)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(character).startswith("P")


def _clean(text: str) -> str:
    out = []
    for character in text:
        code = ord(character)
        if code in (0, 0xFFFD) or _is_control(character):
            continue
        if _is_ideograph(code):
            out += [" ", character, " "]
        else:
            out.append(" " if _is_space(character) else character)
    return "".join(out)


def words(text: str) -> list[str]:
    """Lower-cased words of a text, accents stripped, punctuation set apart."""
    out = []
    for token in _clean(text).split():
        token = token.lower()
        plain = [
            character
            for character in unicodedata.normalize("NFD", token)
            if unicodedata.category(character) != "Mn"
        ]
        begin = True
        for character in plain:
            if _is_punctuation(character):
                out.append(character)
                begin = True
            else:
                if begin:
                    out.append("")
                begin = False
                out[-1] += character
    return out


def pieces(word: str, vocabulary: dict[str, int]) -> list[str]:
    """Longest matches from the left; [UNK] where the word cannot be covered."""
    if len(word) > LONGEST_WORD:
        return ["[UNK]"]
    found, start = [], 0
    while start < len(word):
        end = len(word)
        while start < end:
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocabulary:
                break
            end -= 1
        else:
            return ["[UNK]"]
        found.append(piece)
        start = end
    return found


def tokenize(text: str, vocabulary: dict[str, int]) -> list[str]:
    """Pieces of a text."""
    return [piece for word in words(text) for piece in pieces(word, vocabulary)]
