"""Splitting prose: nothing is lost, and a long line takes no longer than it must."""

import time

from bert_jax.data import sentences


def test_splits_and_collapses():
    text = "One  two.\n Three\tfour?  Dr. Smith came.  "
    assert sentences.split(text) == ["One two.", "Three four?", "Dr. Smith came."]
    assert sentences.split(" \n ") == []


def test_nothing_is_lost():
    text = (
        "A first one. Then e.g. this, and i.e. that! What? 3.14 is pi. " * 500
    ) + "end"
    joined = "".join("".join(s.split()) for s in sentences.split(text))
    assert joined == "".join(text.split())


def test_time_grows_with_the_text():
    """200 kB on one line, with and without full stops."""
    for piece in ("word " * 40_000, "This is a sentence. " * 10_000):
        start = time.process_time()
        assert sentences.split(piece)
        assert time.process_time() - start < 5
