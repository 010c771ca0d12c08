"""Corpus, vocabulary and store: what is read, what is learned, what is kept."""

import fcntl
import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import cache as cache_module
from bert_jax.data import corpus, rows, store, vocabulary
from bert_jax.data.rows import RowSpec
from bert_jax.data.vocabulary import RESERVED, TokenizerSpec, Vocabulary

WORDS = [
    *RESERVED,
    *"the cat ##s mask [ ] un ##aff ##able cafe a ##b . 中 sep cls pad unk".split(),
]


def wordpiece(text, lowercase=True, strip=None):
    vocab = Vocabulary(tuple(WORDS), TokenizerSpec(lowercase, strip))
    return [WORDS[i] for i in vocab.encode([text])[0]]


def test_tokenizer_of_2018():
    assert wordpiece("The CATS.") == ["the", "cat", "##s", "."]
    assert wordpiece("unaffable") == ["un", "##aff", "##able"]
    assert wordpiece("unaffablex") == ["[UNK]"]  # a remainder spoils the whole word
    assert wordpiece("the中the") == ["the", "中", "the"]  # spaces around CJK
    assert wordpiece("ca\u0301fe\u0301") == ["cafe"] == wordpiece("Café")
    assert wordpiece("café", lowercase=False) == ["[UNK]"]  # accents go with case
    assert wordpiece("café", lowercase=False, strip=True) == ["cafe"]
    assert wordpiece("the\u200b\x00cat\ufffd") == ["[UNK]"]  # dropped, so one word
    assert wordpiece("the\u00a0cat\tthe") == ["the", "cat", "the"]
    assert wordpiece("a" + "b" * 199) == ["a", *["##b"] * 199]
    assert wordpiece("a" + "b" * 200) == ["[UNK]"]  # 201 characters


@pytest.mark.quick
def test_reserved_ids_never_come_from_text():
    text = "[CLS] the [SEP] [MASK] [PAD] [UNK] [cls][MASK]."
    for lowercase in (True, False):
        ids = Vocabulary(tuple(WORDS), TokenizerSpec(lowercase)).encode([text])[0]
        assert not {
            WORDS.index(t) for t in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
        } & set(ids)
    assert wordpiece("[MASK]") == ["[", "mask", "]"]


LEARN = """
import sys
from bert_jax.data import vocabulary
text = open(sys.argv[1]).read().split("\\n")
for word in vocabulary.learn(text, 600, vocabulary.TokenizerSpec()).tokens: print(word)
"""


def pythons():
    """This Python, and another that has the library, if there is one."""
    other = os.environ.get("BERT_JAX_SECOND_PYTHON", "")
    return [sys.executable, *([other] if other and Path(other).is_file() else [])]


def test_learned_vocabulary_is_the_same_in_fresh_processes(tmp_path):
    """Byte for byte, under different hash seeds, and under the other Python."""
    prose = Path(__file__).read_text() + Path(vocabulary.__file__).read_text()
    (tmp_path / "text").write_text(prose)
    found = set()
    for python in pythons():
        for seed in ("1", "2", "3"):
            done = subprocess.run(
                [python, "-c", LEARN, str(tmp_path / "text")],
                capture_output=True,
                check=True,
                env={**os.environ, "PYTHONHASHSEED": seed},
            )
            found.add(hashlib.sha256(done.stdout).hexdigest())
    assert len(found) == 1
    tokens = done.stdout.decode().split("\n")
    assert tokens[:5] == list(RESERVED) and len(set(tokens[:-1])) == 600
    assert "vocabulary" in tokens


def test_learned_vocabulary_sees_training_documents_only(toy_store, toy_text):
    text = corpus.load(f"sentences:{toy_text}")
    training = [s for d in text.documents(held_out=False) for s in d]
    again = vocabulary.learn(training, 150, TokenizerSpec())
    assert again.tokens == toy_store.vocabulary.tokens


def test_vocabulary_too_small_is_refused():
    with pytest.raises(ValueError, match=r"vocabulary\.size=10"):
        vocabulary.learn(["the quick brown fox"] * 3, 10, TokenizerSpec())


def test_read_vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n")
    assert vocabulary.read(path, TokenizerSpec()).tokens == tuple(WORDS)
    path.write_text("\n".join(w for w in WORDS if w != "[MASK]") + "\n")
    with pytest.raises(ValueError, match=r"has no \[MASK\]"):
        vocabulary.read(path, TokenizerSpec())
    path.write_text("\n".join([*WORDS, "cat"]) + "\n")
    with pytest.raises(ValueError, match="'cat' more than once"):
        vocabulary.read(path, TokenizerSpec())


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_corpora_are_read_as_they_are(tmp_path, suffix):
    text = b"One two.\nThree  four.\n\n\nFive six.\n"
    packed = {
        "": text, ".gz": gzip.compress(text), ".xz": lzma.compress(text),
        ".zst": corpus.zstd.compress(text),
    }[suffix]  # fmt: skip
    (tmp_path / f"a.txt{suffix}").write_bytes(packed)
    source = corpus.parse(f"sentences:{tmp_path}/a.txt{suffix}")
    assert list(corpus.documents(source)) == [
        ["One two.", "Three  four."],
        ["Five six."],
    ]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_file_cut_off_is_no_short_corpus(tmp_path, suffix):
    text = np.random.default_rng(0).bytes(4000).hex().encode()
    pack = {".gz": gzip, ".xz": lzma, ".zst": corpus.zstd}[suffix]
    packed = pack.compress(text)
    source = corpus.parse(f"sentences:{tmp_path}/a{suffix}")
    for damaged in (packed[: len(packed) // 2], text):
        (tmp_path / f"a{suffix}").write_bytes(damaged)
        with pytest.raises(ValueError, match=f"a{suffix} cannot be read to its end"):
            list(corpus.documents(source))


def test_half_built_entries_go_unless_they_are_being_built(cache):
    place = cache_module.root() / "kind"
    old = time.time() - 2 * cache_module.YOUNG
    for name in ("dead", "live"):
        (place / f".building-{name}").mkdir(parents=True)
        os.utime(place / f".building-{name}", (old, old))
    held = os.open(place / ".building-live", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    cache_module.entry("kind", "key", lambda path: None)
    assert sorted(p.name for p in place.iterdir()) == [".building-live", "key"]
    os.close(held)


def test_text_corpora(tmp_path):
    (tmp_path / "a.txt").write_text("One two. Three\nfour.\n\nFive six.\n")
    (tmp_path / "b.txt").write_text("Seven eight.\n")
    by_file = corpus.parse(f"text:{tmp_path}/*.txt")
    want = [["One two.", "Three four.", "Five six."], ["Seven eight."]]
    assert list(corpus.documents(by_file)) == want
    by_blank = corpus.parse(f"text:{tmp_path}/*.txt?documents=blank_line")
    assert list(corpus.documents(by_blank)) == [
        ["One two.", "Three", "four."], ["Five six."], ["Seven eight."],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("wiki.txt", "no kind"),
        ("builtin:novels", "python-docs"),
        ("text:a?documents=none", "unknown option"),
        ("text:a?documents=", "unknown option"),
        ("text:part-?.txt", "no option like"),
        ("sentences:/no/such/*.txt", "is missing"),
    ],
)
def test_bad_specs_are_refused(cache, spec, word):
    with pytest.raises(ValueError, match=word):
        corpus.load(spec)


def test_empty_and_undecodable_corpora_are_refused(cache, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n \n\n")
    with pytest.raises(ValueError, match="is empty"):
        corpus.load(f"sentences:{path}")
    path.write_bytes(b"caf\xe9 latin one\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        corpus.load(f"sentences:{path}")


def test_split_size_and_copies():
    draw = np.random.default_rng(0)
    for count, wanted in (
        (5, 0),
        (19, 1),
        (100, 10),
        (320, 32),
        (1600, 32),
        (5000, 100),
    ):
        hashes = draw.integers(1, 2**63, count).astype(np.uint64)
        assert (hashes <= np.uint64(corpus.held_out_threshold(hashes))).sum() == wanted
    # Ninety copies of the lowest document cannot all be held out of a hundred.
    hashes = np.array([5] * 90 + list(range(100, 110)), np.uint64)
    assert (hashes <= np.uint64(corpus.held_out_threshold(hashes))).sum() == 0
    hashes = np.array([50] * 5 + list(range(100, 200)), np.uint64)
    side = hashes <= np.uint64(corpus.held_out_threshold(hashes))
    assert side[:5].all() and side.sum() == 10


def test_store_holds_the_text(toy_store, toy_text):
    """Decoding the flat array gives every sentence back, in order."""
    blocks = toy_text.read_text().strip().split("\n\n")
    sentences = [line for block in blocks for line in block.split("\n")]
    bounds, tokens = toy_store.sentence_bounds, toy_store.vocabulary.tokens
    assert len(bounds) == len(sentences) + 1
    for n, sentence in enumerate(sentences):
        pieces = [tokens[i] for i in toy_store.tokens[bounds[n] : bounds[n + 1]]]
        assert " ".join(pieces).replace(" ##", "") == sentence
    sizes = np.diff(toy_store.document_bounds)
    assert sizes.tolist() == [block.count("\n") + 1 for block in blocks]
    assert toy_store.tokens.dtype == np.uint16
    assert toy_store.held_out.sum() == 12 and toy_store.manifest["unknown_tokens"] == 0
    counts = toy_store.token_counts(False) + toy_store.token_counts(True)
    np.testing.assert_array_equal(
        counts, np.bincount(toy_store.tokens, minlength=len(tokens))
    )


def test_cache_is_used_and_survives_a_move(toy_store, toy_text, tmp_path, monkeypatch):
    """A second run prepares nothing; text under another name is the same store."""
    plan = rows.load_plan(toy_store, RowSpec(32, 0), 0)
    monkeypatch.setattr(store, "_write", None)
    monkeypatch.setattr(rows, "make_plan", None)
    text = corpus.load(f"sentences:{toy_text}")
    assert store.build(text, toy_store.vocabulary).content == toy_store.content
    again = rows.load_plan(toy_store, RowSpec(32, 0), 0)
    np.testing.assert_array_equal(plan.start_b, again.start_b)
    moved = shutil.copy(toy_text, tmp_path / "moved.txt")
    text = corpus.load(f"sentences:{moved}")
    assert store.build(text, toy_store.vocabulary).content == toy_store.content


def test_newer_format_is_refused(toy_store, tmp_path):
    copy = tmp_path / "store"
    shutil.copytree(toy_store.directory, copy)
    manifest = (copy / "manifest.json").read_text()
    newer = manifest.replace('"format_version": 2', '"format_version": 99')
    (copy / "manifest.json").write_text(newer)
    with pytest.raises(ValueError, match="format 99"):
        store.open_store(copy, TokenizerSpec())
