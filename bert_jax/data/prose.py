"""Documentation markup to paragraphs of prose: code, tables and markup go."""

import inspect
import re
from collections.abc import Iterator

_RULE = re.compile(r"^\s*([=\-~^*#\"'+._])\1{2,}\s*$")
_TABLE = re.compile(r"\+[-=]{2,}|^\s*\||={3,}\s+={3,}|-{3,}\s+-{3,}|-\+-|\s\|\s")
# A wrapped line of prose may begin with a keyword, so a whole statement is asked for.
_CODE = re.compile(
    r">>>|::=|^\s*\.\.\s|^\s*(?:import [\w.]+(?: as \w+)?|from [\w.]+ import .+"
    r"|(?:async )?def \w+\(.*|class \w+(?:\(.*\))?:|print\(.*)\s*$"
)
_BULLET = re.compile(r"^(?:[*\-+o•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
_ROLE = re.compile(r":[a-z][a-z:]*:`[~!]?([^`<]*?)(?:\s*<[^`>]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}")
_LITERAL = re.compile(r"``([^`]*)``|`([^`']*)[`']")
# Asterisks alone: two underscores around a name are part of it, as in __del__.
_STRONG = re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*\n]+?)(?<=\S)\1(?![\w*])")
_FOOTNOTE = re.compile(r"\s?\[(?:\d{1,3}|#\w*|CIT\w*)\]_?")
_URL = r"<?\b(?:https?|ftp)://\S*[^\s.,;:!?)>\]]>?"
# Without its address the sentence around it says nothing.
_LINKED = re.compile(rf"(?:(?<=[.!?:] )|^)[^.!?:]*(?:{_URL}[^.!?]*)+(?:[.!?]+|$)")
_LISTED = re.compile(r" --? |\w: [A-Z]|\w = ")
_VERSION = re.compile(
    r"(?:New|Changed|Added|Deprecated|Removed|Modified) (?:in|since)\b"
)
_LEGAL = re.compile(r"copyright|licen[cs]e|all rights reserved|warrant", re.IGNORECASE)
_WORD = re.compile(r"^[\"'(\[]*[A-Za-z][A-Za-z'’\-/]*[\"')\],.;:!?]*$")
_ODD = re.compile(r"[{}<>=\\|@#$%^~`]")
_QUOTES = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "..."}
)
LEAST_WORDS = 5


def _plain(text: str) -> str:
    """Inline markup to the text it stands for."""
    text = _ROLE.sub(r"\1", text)
    text = _LINK.sub(r"\1", text)
    text = _LITERAL.sub(lambda m: m[1] or m[2] or "", text)
    text = _STRONG.sub(r"\2", text)
    text = _FOOTNOTE.sub("", text)
    return " ".join(_LINKED.sub("", text).translate(_QUOTES).split())


def is_prose(text: str) -> bool:
    """True for a paragraph of sentences: mostly words, a capital, a full stop."""
    words = text.split()
    if len(words) < LEAST_WORDS or text[-1] not in '.!?:")':
        return False
    if not (text[0].isupper() or text[0] in "\"'("):
        return False
    if _LEGAL.search(text) or _VERSION.match(text) or not text.isprintable():
        return False
    if text.count(",") > len(words) / 2 or "://" in text:
        return False
    listed = len(_LISTED.findall(text))
    if listed >= 3 and listed > len(words) / 25:
        return False  # names with their meanings, run together
    wordy = sum(bool(_WORD.match(word)) for word in words)
    return wordy >= 0.7 * len(words) and len(_ODD.findall(text)) <= len(words) / 12


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _blocks(text: str) -> Iterator[list[str]]:
    """Runs of lines between blank lines; each bullet is a run of its own."""
    block: list[str] = []
    for line in text.expandtabs().splitlines():
        stripped = line.strip()
        if not stripped or _RULE.match(line):
            # What stands over a rule is a heading.
            if block and not (stripped and len(block) == 1):
                yield block
            block = []
        elif block and (_BULLET.match(stripped) or _indent(line) < _indent(block[0])):
            yield block
            block = [line]
        else:
            block.append(line)
    if block:
        yield block


def paragraphs(text: str) -> list[str]:
    """Clean single-line paragraphs of a docstring or a page of documentation."""
    kept: list[str] = []
    code_beyond: int | None = None  # after "::" what is indented further is code
    for block in _blocks(inspect.cleandoc(text)):
        indent = _indent(block[0])
        if code_beyond is not None and indent > code_beyond:
            continue
        last = block[-1].rstrip()
        code_beyond = indent if last.endswith("::") else None
        if any(_CODE.search(line) or _TABLE.search(line) for line in block):
            continue
        joined = _BULLET.sub("", " ".join(line.strip() for line in block))
        if joined.endswith("::"):
            joined = joined[:-1]
        plain = _plain(joined)
        if plain and is_prose(plain):
            kept.append(plain)
    return kept


_COMMENT = re.compile(r"^\s*#+ ?(.*)$")


def comments(source: str) -> Iterator[list[str]]:
    """Paragraphs of each block of comment lines that is prose.

    Read line by line rather than tokenized: a string that holds comment lines is rare,
    and its prose is as good.
    """
    run: list[str] = []
    for line in [*source.splitlines(), ""]:
        found = _COMMENT.match(line)
        if found:
            run.append(found[1])
            continue
        if len(run) >= 3:
            kept = [p for p in paragraphs("\n".join(run)) if p.endswith((".", ":"))]
            if kept:
                yield kept
        run = []
