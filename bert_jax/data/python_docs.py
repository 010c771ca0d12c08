"""The embedded corpus ``builtin:python-docs``: English that ships with every CPython.

The topics of ``pydoc`` (the language reference) and the docstrings and longer comments
of the standard library. Everything is read as text or by ``ast``; nothing is imported.
"""

import ast
import hashlib
import itertools
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax.data import prose

EXTRACTOR_VERSION = 4
TOPICS = "pydoc_data/topics.py"
_SKIPPED = frozenset(
    "test tests idle_test site-packages dist-packages lib2to3 ensurepip turtledemo "
    "__pycache__ __phello__ pydoc_data encodings".split()
)
_LARGE = 600  # words from which a page is cut: at headings or classes, then evenly
_SMALL = 120  # words below which a part joins the one before it, or is left out


class Document(NamedTuple):
    """One document: a topic, a module, or a part of one of them."""

    name: str
    paragraphs: list[str]


def _root(stdlib: Path | None) -> Path:
    return stdlib or Path(sysconfig.get_paths()["stdlib"])


def _sources(root: Path) -> list[Path]:
    """Standard-library files that are read, in name order."""
    found: list[Path] = []
    for directory, below, names in os.walk(root):
        # Pruned here: site-packages may hold many times the files of the library.
        below[:] = [
            d for d in below if d not in _SKIPPED and not d.startswith("config-")
        ]
        found.extend(
            Path(directory, name)
            for name in names
            if name.endswith(".py") and not name.startswith(("test_", "_sysconfigdata"))
        )
    topics = root / TOPICS
    return ([topics] if topics.is_file() else []) + sorted(found)


def fingerprint(stdlib: Path | None = None) -> str:
    """Hash of the sources and of the way they are read; cheap."""
    root = _root(stdlib)
    total = hashlib.sha256(f"python-docs {EXTRACTOR_VERSION}".encode())
    for path in _sources(root):
        total.update(str(path.relative_to(root)).encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def documents(stdlib: Path | None = None) -> Iterator[Document]:
    """Documents in name order; each paragraph once in the whole corpus."""
    root = _root(stdlib)
    seen: set[str] = set()
    for path in _sources(root):
        try:
            source = path.read_text("utf-8")
            tree = ast.parse(source)
        except (SyntaxError, ValueError, OSError):
            continue  # a file for another Python, or not text
        if path == root / TOPICS:
            parts = list(_topics(tree))
        else:
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            parts = _module(name, tree, source)
        for document in parts:
            fresh = [p for p in document.paragraphs if p not in seen]
            seen.update(fresh)
            fresh = list(dict.fromkeys(fresh))
            if _words(fresh) >= _SMALL:
                yield Document(document.name, fresh)


def _words(paragraphs: list[str]) -> int:
    return sum(len(paragraph.split()) for paragraph in paragraphs)


def _topics(tree: ast.Module) -> Iterator[Document]:
    """Pages of ``topics = {name: page}``, long ones cut at their headings."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            pages = ast.literal_eval(node.value)
            for name in sorted(pages):
                yield from _page(f"topics.{name}", pages[name])


def _page(name: str, text: str) -> Iterator[Document]:
    whole = prose.paragraphs(text)
    if _words(whole) < _LARGE:
        yield Document(name, whole)
        return
    lines = text.splitlines()
    parts: list[list[str]] = [[]]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        ruled = len(following) >= 3 and set(following) <= set("=-*~^")
        if ruled and len(set(following)) == 1 and line.strip():
            parts.append([])
        parts[-1].append(line)
    yield from _merged(name, [prose.paragraphs("\n".join(part)) for part in parts])


def _merged(name: str, parts: list[list[str]]) -> Iterator[Document]:
    """Documents of parts; one too small joins the part before it."""
    groups: list[list[str]] = []
    for part in parts:
        if groups and min(_words(part), _words(groups[-1])) < _SMALL:
            groups[-1].extend(part)
        else:
            groups.append(list(part))
    cut = [piece for group in groups for piece in _cut(group)]
    for number, group in enumerate(cut):
        yield Document(f"{name}.{number}", group)


def _cut(group: list[str]) -> list[list[str]]:
    """Runs of a group, about equal in words, as few as keep each below a large page."""
    total = _words(group)
    pieces = -(-total // _LARGE)
    middles, before = [], 0
    for paragraph in group:
        size = len(paragraph.split())
        middles.append(before + size / 2)
        before += size
    numbered = zip(middles, group, strict=True)
    return [
        [paragraph for _, paragraph in run]
        for _, run in itertools.groupby(numbered, lambda n: n[0] * pieces // total)
    ]


_Owner = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _docstrings(node: _Owner) -> list[str]:
    """Paragraphs of a node's docstring and of those inside it, in order."""
    found = prose.paragraphs(ast.get_docstring(node, clean=False) or "")
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.extend(_docstrings(child))
    return found


def _module(name: str, tree: ast.Module, source: str) -> list[Document]:
    """Docstrings of a module, by class where it is large, then its comments."""
    said = [p for block in prose.comments(source) for p in block]
    documented = _docstrings(tree)
    if _words(documented) < _LARGE:
        parts = [documented]
    else:
        top = prose.paragraphs(ast.get_docstring(tree, clean=False) or "")
        parts = [top]
        loose: list[str] = []
        for child in tree.body:
            if isinstance(child, ast.ClassDef):
                parts.append(_docstrings(child))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                loose.extend(_docstrings(child))
        parts.append(loose)
    return list(_merged(name, [*parts, said]))
