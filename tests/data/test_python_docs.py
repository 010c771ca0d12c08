"""The embedded corpus: prose, read and never run, the same every time."""

import shutil

import pytest

from bert_jax.data import prose, python_docs

MODULE = '''"""Tools for boats. They float on water most of the time.

Each boat has a name and a sail. The sail may be torn::

    boat = Boat("x")
    assert not boat.torn

>>> Boat("y").name
'y'

=====  =====
name   sail
=====  =====

* A bullet is kept as a sentence of its own.
* See :func:`~boats.sail` and ``hoist`` for **more** of it.
"""
raise SystemExit("a module of the corpus was imported")

# This comment is prose of some length about the mast,
# which stands upright unless the wind is strong.
# It is kept because it reads like a text.

class Boat:
    """A boat of wood that carries two people over a lake."""

    def hoist(self):
        """Hoist the sail and wait for wind to come.

        Copyright 1999 by the makers of boats and sails.
        """
'''


@pytest.fixture
def stdlib(tmp_path, monkeypatch):
    monkeypatch.setattr(python_docs, "_SMALL", 20)  # these texts are short
    (tmp_path / "boats.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "latin.py").write_bytes(b'"""caf\xe9"""\n')
    for skipped in ("test", "site-packages", "encodings"):
        (tmp_path / skipped).mkdir()
        shutil.copy(tmp_path / "boats.py", tmp_path / skipped / "other.py")
    return tmp_path


def test_reads_without_importing(stdlib):
    found = list(python_docs.documents(stdlib))
    assert found == list(python_docs.documents(stdlib))
    assert [d.name for d in found] == ["boats.0", "boats.1"]
    assert found[0].paragraphs == [
        "Tools for boats. They float on water most of the time.",
        "Each boat has a name and a sail. The sail may be torn:",
        "A bullet is kept as a sentence of its own.",
        "See boats.sail and hoist for more of it.",
        "A boat of wood that carries two people over a lake.",
        "Hoist the sail and wait for wind to come.",
    ]
    assert found[1].paragraphs == [
        "This comment is prose of some length about the mast, which stands upright "
        "unless the wind is strong. It is kept because it reads like a text.",
    ]


def test_a_page_of_few_words_is_no_document(stdlib, monkeypatch):
    monkeypatch.setattr(python_docs, "_SMALL", 120)
    assert list(python_docs.documents(stdlib)) == []


def test_comments_are_prose():
    (block,) = prose.comments(MODULE)
    assert block == [
        "This comment is prose of some length about the mast, which stands upright "
        "unless the wind is strong. It is kept because it reads like a text."
    ]
    assert list(prose.comments("# if x:\n#     y = 1\n#     z()\n")) == []


def test_a_wrapped_line_may_begin_with_a_keyword():
    text = "The sail is taken down\nfrom the mast when the wind is strong."
    assert prose.paragraphs(text) == [text.replace("\n", " ")]
    for code in ("from boats import sail", "def hoist(self):", "class Boat:"):
        assert prose.paragraphs(f"This is how a boat begins.\n{code}\n") == []


def test_names_are_words_and_lists_of_names_are_not_prose():
    assert prose.is_prose("Calls set_sail and take_down in this order.")
    assert not prose.is_prose("Names: mast, sail, oar, deck, keel, hull.")
    assert not prose.is_prose(
        "Parameters: mast -- a pole sail -- a cloth oar -- a stick to row with."
    )


def test_names_keep_their_underscores():
    text = "The *new_sail* is set and then __del__() is called on **it**."
    plain = "The new_sail is set and then __del__() is called on it."
    assert prose.paragraphs(text) == [plain]


def test_a_sentence_goes_with_its_address():
    text = "A boat floats. See https://example.org/a.html for more. It may sink."
    assert prose.paragraphs(text) == ["A boat floats. It may sink."]


def test_a_large_class_is_cut_evenly(stdlib):
    methods = "".join(
        f'    def m{n}(self):\n        """Method number {n} moves the boat."""\n'
        for n in range(250)
    )
    (stdlib / "fleet.py").write_text(f"class Fleet:\n{methods}")
    parts = [d for d in python_docs.documents(stdlib) if d.name.startswith("fleet")]
    assert [len(d.paragraphs) for d in parts] == [83, 84, 83]  # of six words each


def test_fingerprint_follows_every_byte(stdlib):
    before = python_docs.fingerprint(stdlib)
    assert before == python_docs.fingerprint(stdlib)
    (stdlib / "site-packages/other.py").write_text("x = 1\n")
    assert before == python_docs.fingerprint(stdlib)  # not a source
    (stdlib / "boats.py").write_text(MODULE.replace("wood", "iron"))
    assert before != python_docs.fingerprint(stdlib)


def test_topics_are_cut_at_headings(stdlib):
    long = "\n\n".join(
        f"Sentence number {n} is about the word {n} here." for n in range(40)
    )
    other = long.replace("about", "of")
    page = f"Title\n*****\n\n{long}\n\nPart two\n========\n\n{other}\n"
    (stdlib / "pydoc_data").mkdir()
    (stdlib / "pydoc_data/topics.py").write_text(f"topics = {{'boats': {page!r}}}\n")
    topics = [d for d in python_docs.documents(stdlib) if d.name.startswith("topics")]
    assert [d.name for d in topics] == ["topics.boats.0", "topics.boats.1"]
    assert [len(d.paragraphs) for d in topics] == [40, 40]
    assert "Title" not in " ".join(p for d in topics for p in d.paragraphs)


@pytest.mark.quick
def test_the_real_corpus():
    found = list(python_docs.documents())
    paragraphs = [p for d in found for p in d.paragraphs]
    assert len(found) > 300 and sum(map(len, paragraphs)) > 1e6
    assert len(set(paragraphs)) == len(paragraphs)
    assert len({d.name for d in found}) == len(found)
    text = "\n".join(paragraphs)
    for trace in (">>>", "::=", ":func:", "``", "+---"):
        assert trace not in text
    assert all(prose.is_prose(p) for p in paragraphs)
