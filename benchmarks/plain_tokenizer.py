"""The tokenizer of 2018 in plain Python, character by character: the peer's cost.

What google-research/bert tokenization.py does, pass by pass, written from its described
behaviour; ``benchmarks.prepare`` checks its ids against ours before it times anything.
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
        out.append(" " if _is_space(character) else character)
    return "".join(out)


def _part_ideographs(text: str) -> str:
    out = []
    for character in text:
        if _is_ideograph(ord(character)):
            out += [" ", character, " "]
        else:
            out.append(character)
    return "".join(out)


def _strip_accents(token: str) -> str:
    out = []
    for character in unicodedata.normalize("NFD", token):
        if unicodedata.category(character) != "Mn":
            out.append(character)
    return "".join(out)


def _part_punctuation(token: str) -> list[str]:
    out: list[list[str]] = []
    begin = True
    for character in token:
        if _is_punctuation(character):
            out.append([character])
            begin = True
        else:
            if begin:
                out.append([])
            begin = False
            out[-1].append(character)
    return ["".join(characters) for characters in out]


def words(text: str) -> list[str]:
    """Lower-cased words of a text, accents stripped, punctuation set apart."""
    out = []
    for token in _part_ideographs(_clean(text)).split():
        out += _part_punctuation(_strip_accents(token.lower()))
    return " ".join(out).split()


def pieces(word: str, vocabulary: dict[str, int]) -> list[str]:
    """Longest matches from the left; [UNK] where the word cannot be covered."""
    characters = list(word)
    if len(characters) > LONGEST_WORD:
        return ["[UNK]"]
    found, start = [], 0
    while start < len(characters):
        end = len(characters)
        while start < end:
            piece = "".join(characters[start:end])
            if start > 0:
                piece = "##" + piece
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
