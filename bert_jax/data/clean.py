"""Which characters are text at all: the clean-up of the 2018 tokenizer, written down.

Controls and format characters (Unicode categories Cc and Cf, version 14, other than
tab, LF and CR), NUL and U+FFFD are no text: they vanish and part no words. The ranges
stand here because Python and the tokenizers library follow different Unicode versions.
"""

import re

import numpy as np

_RANGES = (
    (0x00, 0x08), (0x0B, 0x0C), (0x0E, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD),
    (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F), (0x890, 0x891),
    (0x8E2, 0x8E2), (0x180E, 0x180E), (0x200B, 0x200F), (0x202A, 0x202E),
    (0x2060, 0x2064), (0x2066, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB),
    (0xFFFD, 0xFFFD), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x13438),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0001, 0xE0001), (0xE0020, 0xE007F),
)  # fmt: skip
# CJK Unified Ideographs with extensions A to E, and both compatibility blocks: each
# character is a word. Kana and hangul are not among them, as in the 2018 code.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def _pattern(ranges: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)


def _literal(ranges: tuple[tuple[int, int], ...]) -> str:
    return f"[{''.join(f'{chr(low)}-{chr(high)}' for low, high in ranges)}]"


# For regular expressions of the tokenizers library, which know no \U escapes.
NO_TEXT, IDEOGRAPH = _literal(_RANGES), _literal(_IDEOGRAPHS)
SURROGATE = re.compile("[\ud800-\udfff]")  # half a pair, as JSON can spell it
_NO_TEXT = re.compile(f"[{_pattern(_RANGES)}]")
_TEXT = re.compile(f"[^\\s{_pattern(_RANGES)}]")
_IDEOGRAPH = re.compile(f"([{_pattern(_IDEOGRAPHS)}])")


def squeeze(text: str) -> str:
    """Without what is no text; every run of white space one space, none at the ends."""
    # Printable: no control or format character, and no white space but the space.
    if text.isprintable() and "  " not in text and "\ufffd" not in text:
        return text.strip(" ")
    if not text.isascii() or not text.isprintable():
        text = _NO_TEXT.sub("", text)
    return " ".join(text.split())


def visible(text: str) -> bool:
    """Whether any token comes of a text."""
    return _TEXT.search(text) is not None


def part_ideographs(text: str) -> str:
    """Spaces around each ideograph, where there is one."""
    # From U+3000 on, and there only, a character begins with a byte of 0xE3 or more.
    data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    if not len(data) or data.max() < 0xE3 or not _IDEOGRAPH.search(text):
        return text
    return _IDEOGRAPH.sub(r" \1 ", text)
