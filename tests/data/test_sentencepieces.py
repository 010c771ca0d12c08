"""SentencePiece: what is learned from what, and where each piece comes from."""

import json
import os
import pickle
import pydoc_data.topics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from bert_jax.data import piece_learning, sentencepieces
from bert_jax.data.vocabulary import RESERVED

ROOT = Path(__file__).resolve().parents[2]
TEXT = [line for page in pydoc_data.topics.topics.values() for line in page.split("\n")]
TEXT = [line for line in TEXT if line.strip()][:2000]
ODD = "\ufe30 \u0149 Ａ１ ﬁt"
MEASURES = ("\ufe30", "\u0149", "Ａ１", "ﬁ")


@pytest.fixture(scope="module")
def learned():
    """A small model with the default rule, and its report."""
    return piece_learning.learn(TEXT, 300)


@pytest.fixture(scope="module")
def identity():
    text = [*TEXT, *[f"{ODD} the"] * 50]
    return piece_learning.learn(text, 300, rule="identity", coverage=1.0)[0]


@pytest.fixture(scope="module")
def byted():
    """Of type bpe, with bytes for characters that it does not know."""
    options = {"model_type": "bpe", "byte_fallback": True}
    return piece_learning.learn(TEXT, 600, **options)[0]


def pieces(vocabulary, text):
    return [vocabulary.tokens[i] for i in vocabulary.encode([text])[0]]


@pytest.mark.quick
def test_reserved_ids_never_come_from_text(learned, identity, byted):
    text = "[CLS] the [SEP] [MASK] [PAD] [UNK] [cls][MASK]."
    for vocabulary in (learned[0], identity, byted):
        assert vocabulary.tokens[:5] == RESERVED
        assert [vocabulary.ids[t] for t in RESERVED] == [0, 1, 2, 3, 4]
        for given in (text, *RESERVED, "", " [MASK]", "x[MASK]x"):
            assert not {0, 2, 3, 4} & set(vocabulary.encode([given])[0])
    assert 1 not in byted.encode(["\u4e2d 😀"])[0]
    assert 1 in learned[0].encode(["\u4e2d 😀"])[0]


def test_interface(learned):
    vocabulary = learned[0]
    assert len(vocabulary) == len(vocabulary.tokens) == len(vocabulary.ids) == 300
    assert vocabulary.encode([]) == [] and vocabulary.encode(["", "  "]) == [[], []]
    assert vocabulary.encode(["the text"] * 3) == 3 * [
        vocabulary.encode(["the text"])[0]
    ]
    assert "".join(pieces(vocabulary, "the text")) == "▁the▁text"
    assert vocabulary.dtype() == np.uint16
    assert (vocabulary.model_type, vocabulary.normalization) == ("unigram", "nmt_nfkc")
    assert len(repr(vocabulary)) < 100
    assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary


@pytest.mark.quick
def test_write_and_read(learned, byted, tmp_path):
    for vocabulary, kind in ((learned[0], "unigram"), (byted, "bpe")):
        vocabulary.write(tmp_path / kind)
        files = {"tokenizer.model", "settings.json"}
        assert {p.name for p in (tmp_path / kind).iterdir()} == files
        again = sentencepieces.read(tmp_path / kind / "tokenizer.model")
        assert again == vocabulary and again.digest() == vocabulary.digest()
        assert again.tokens == vocabulary.tokens
        settings = json.loads((tmp_path / kind / "settings.json").read_text())
        assert settings == {
            "kind": "sentencepiece",
            "model_type": kind,
            "normalization": "nmt_nfkc",
            "size": len(vocabulary),
        }
    assert learned[0].digest() != byted.digest()


def test_word_starts(learned, byted):
    for vocabulary in (learned[0], byted):
        starts = vocabulary.word_starts
        assert starts.dtype == bool and starts.shape == (len(vocabulary),)
        for number, piece in enumerate(vocabulary.tokens):
            byte = vocabulary is byted and 5 <= number < 5 + 256
            assert starts[number] == (number < 5 or byte or piece[0] == "\u2581")
        ids = vocabulary.encode(["the text of the module"])[0]
        assert starts[ids].sum() == 5 and starts[ids[0]]
    assert byted.tokens[5] == "<0x00>" and byted.tokens[260] == "<0xFF>"


@pytest.mark.quick
def test_p06_default_rule_rewrites_and_offsets_do_not(learned, identity):
    vocabulary = learned[0]
    assert vocabulary.normalization == "nmt_nfkc"
    for odd, plain in zip(MEASURES, ("..", "\u02bcn", "A1", "fi"), strict=True):
        assert vocabulary.encode([odd]) == vocabulary.encode([plain])
        assert vocabulary.processor.normalize(odd) == f"▁{plain}"
    for text in ("ﬁt", "a ﬁt one", "so ﬁt.", "\ufeff the  ﬁt"):
        spans, ids = vocabulary.offsets(text), vocabulary.encode([text])[0]
        assert len(spans) == len(ids)
        begin = text.index("ﬁ")
        answer = [span for span in spans if begin <= span[0] < begin + 2]
        assert text[answer[0][0] : answer[-1][1]] == "ﬁt"  # and not fit
    assert identity.normalization == "identity"
    for odd in MEASURES:
        assert identity.processor.normalize(odd) == f"▁{odd}"
        assert "".join(pieces(identity, odd)) == f"▁{odd}"
        assert 1 not in identity.encode([odd])[0]


@pytest.mark.quick
@pytest.mark.parametrize("fallback", [False, True])
def test_offsets_by_hand(fallback):
    # An alphabet, and merges enough for the one word that occurs often.
    text = ["the the the the"] * 9 + [*"finxA1."]
    vocabulary, _ = piece_learning.learn(
        text,
        5 + 256 * fallback + len("▁thefinxA1.") + 3,
        model_type="bpe",
        byte_fallback=fallback,
        coverage=1.0,
    )

    def both(text):
        return list(
            zip(pieces(vocabulary, text), vocabulary.offsets(text), strict=True)
        )

    front = ("▁", (0, 0))
    # Each half of a split character covers the whole of it.
    halves = [("f", (0, 1)), ("i", (0, 1)), ("f", (1, 2)), ("i", (1, 2))]
    assert both("\ufb01\ufb01") == [front, *halves]
    assert both("Ａ１") == [front, ("A", (0, 1)), ("1", (1, 2))]
    assert both("\ufe30") == [front, (".", (0, 1)), (".", (0, 1))]
    half = ["<0xCA>", "<0xBC>"] if fallback else ["[UNK]"]
    expected = [front, *[(piece, (0, 1)) for piece in half], ("n", (0, 1))]
    assert both("\u0149") == expected
    # Spaces: dropped, many in one, and outside the word behind them.
    assert both("  the \t\n the ") == [("▁the", (2, 5)), ("▁the", (9, 12))]
    assert both("the \t x") == [("▁the", (0, 3)), ("▁", (3, 6)), ("x", (6, 7))]
    assert both("") == both("  ") == []
    # Two code points in one, and four bytes of one character.
    spans = vocabulary.offsets("the e\u0301 the")
    assert set(spans[2:-1]) == {(4, 6)} and spans[-1] == (7, 10)
    count = 4 if fallback else 1
    assert vocabulary.offsets("x😀x")[2:-1] == [(1, 2)] * count
    expected = [(0, 1)] * 2 + [(1, 2)] * 3 if fallback else [(0, 2)]
    assert vocabulary.offsets("\u00e9\u4e2d")[1:] == expected


def test_offsets_cover_the_text(learned, identity, byted):
    draw = np.random.default_rng(3)
    pool = [
        *ODD,
        *"the of 😀中㍿´½▁[]\u00ad\u200b\x00\t\n",
        "e\u0301",
        "\ufeff",
        "\u1100\u1161",
    ]
    for vocabulary in (learned[0], identity, byted):
        for _ in range(500):
            text = "".join(pool[i] for i in draw.integers(0, len(pool), 10))
            spans, ids = vocabulary.offsets(text), vocabulary.encode([text])[0]
            assert len(spans) == len(ids)
            covered = {i for begin, end in spans for i in range(begin, end)}
            missed = {c for i, c in enumerate(text) if i not in covered}
            assert not missed & set("\ufe30\u0149Ａ１ﬁ中㍿😀½thef")
            assert spans == sorted(spans)


@pytest.mark.quick
def test_p07_report():
    lines = [f"line {number} of the text" for number in range(1000)]
    lines.insert(500, "x" * 5000)
    _, report = piece_learning.learn(lines, 40, sample=500)
    assert report == piece_learning.LearnReport(1001, 500, 1, 0)
    assert str(report).startswith("1,001 sentences read, 500 used, 1 too long")
    _, report = piece_learning.learn([*lines, "", " \n", "a \u2585"], 40)
    assert report == piece_learning.LearnReport(1004, 1000, 1, 3)
    # The limit is in bytes, and the trainer takes a sentence that just meets it.
    just = "é" * (piece_learning.LONGEST_SENTENCE // 2)
    vocabulary, report = piece_learning.learn([*lines, just, just + "e"], 40)
    assert (report.used, report.too_long) == (1001, 2) and "é" in vocabulary.ids


def test_p07_sample_is_not_the_head():
    lines = [b"%d" % number for number in range(1000)]
    chosen = [piece_learning._reservoir(lines, 500, seed) for seed in range(200)]
    assert all(len(set(c)) == 500 for c in chosen)
    counts = np.bincount([int(n) for c in chosen for n in c], minlength=1000)
    assert 70 < counts[-1] < 130  # the last line: half of the seeds, within 4 sigma
    for tenth in counts.reshape(10, 100).mean(1):
        assert abs(tenth - 100) < 3
    assert piece_learning._reservoir(lines, 500, 7) == chosen[7] != chosen[8]
    assert piece_learning._reservoir(lines, 1000, 0) == lines
    long = (b"%d" % number for number in range(20_000))  # more than one block of draws
    places = [int(n) for n in piece_learning._reservoir(long, 4000, 0)]
    assert abs(np.mean(places) - 10_000) < 400 and len(set(places)) == 4000


LEARN = """
import hashlib, sys
from bert_jax.data import piece_learning, sentencepieces
def line(n):
    return " ".join(f"{n * k * 2654435761 % 2**20:x}" for k in range(1, 9))
kind, lines, width, seed = sys.argv[1], *map(int, sys.argv[2:])
texts = (" ".join([line(n)] * width) for n in range(lines))
vocabulary, _ = piece_learning.learn(texts, 100, model_type=kind, seed=seed, sample=200)
print(hashlib.sha256(vocabulary.model).hexdigest())
status = dict(s.split(":", 1) for s in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]))
"""


def fresh(kind, lines, width, seed, hash_seed="0"):
    """Hash of the model and peak memory in kB, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", LEARN, kind, *map(str, (lines, width, seed))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""  # the trainer's log
    digest, peak = done.stdout.split()
    return digest, int(peak)


@pytest.mark.parametrize("kind", sentencepieces.MODEL_TYPES)
def test_p07_same_seed_same_bytes(kind):
    first, again = (fresh(kind, 1000, 1, 0, h)[0] for h in ("1", "2"))
    assert first == again
    assert fresh(kind, 1000, 1, 1)[0] != first


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_p07_memory_does_not_grow_with_the_corpus():
    small = fresh("unigram", 4000, 50, 0)[1]
    large = fresh("unigram", 40_000, 50, 0)[1]  # about 100 MB of text
    assert large < 1.2 * small


def test_nothing_of_the_machine_in_the_model(learned):
    assert os.fsencode(Path.home()) not in learned[0].model
    assert os.fsencode(sys.prefix) not in learned[0].model
    assert b"package_data" not in learned[0].model


@pytest.mark.parametrize("kind", sentencepieces.MODEL_TYPES)
def test_impossible_sizes(kind, capfd):
    def refused(size, text=TEXT[:300], **options):
        with pytest.raises(ValueError) as error:
            piece_learning.learn(text, size, model_type=kind, **options)
        assert "\n" not in str(error.value) and ".cc" not in str(error.value)
        return str(error.value)

    assert "size=3 holds no more than the 5 reserved" in refused(3)
    for size, word in ((20, "least"), (100_000, "most")):
        message = refused(size)
        assert f"vocabulary.size={size} is" in message
        remedy = int(message.split(f"use at {word} ")[1].split(",")[0])
        text = TEXT[:300]
        assert len(piece_learning.learn(text, remedy, model_type=kind)[0]) == remedy
    assert "no text" in refused(100, [])
    assert "1 too long" in refused(100, ["y" * 5000])
    assert "'nfd'" in refused(100, rule="nfd")
    assert "sample" in refused(100, sample=0)
    assert capfd.readouterr() == ("", "")


def test_text_that_normalises_to_nothing():
    with pytest.raises(ValueError, match="vocabulary.size=100 .* other text"):
        piece_learning.learn(["\u200b"], 100)
    with pytest.raises(ValueError, match="model type 'word'"):
        piece_learning.learn(["a"], 100, model_type="word")


def trained(path, **options):
    """A model of somebody else's."""
    with open(path, "wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT),
            model_writer=out,
            vocab_size=200,
            minloglevel=2,
            num_threads=1,
            **options,
        )
    return path


OURS = {"pad_id": 3, "pad_piece": "[PAD]", "unk_piece": "[UNK]"}


@pytest.mark.quick
def test_refused_files(tmp_path):
    def refused(path):
        with pytest.raises(ValueError) as error:
            sentencepieces.read(path)
        assert "\n" not in str(error.value) and str(path) in str(error.value)
        return str(error.value)

    path = tmp_path / "tokenizer.model"
    assert "missing" in refused(path) and "missing" in refused(tmp_path)
    for content in (b"", b"hello", b"[PAD]\n[UNK]\n", b"\x00\xff" * 50):
        path.write_bytes(content)
        assert "not a SentencePiece model" in refused(path)
    whole = trained(path).read_bytes()
    assert "no [PAD], [UNK], [CLS], [SEP], [MASK]; train it with" in refused(path)
    path.write_bytes(whole[:3000])
    assert "not a SentencePiece model" in refused(path)
    trained(path, control_symbols=["[CLS]", "[SEP]"], **OURS)
    assert "no [MASK]; " in refused(path)
    trained(path, user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"], **OURS)
    assert "lets text spell [CLS], [SEP], [MASK]" in refused(path)
    ours = {**OURS, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
    trained(path, model_type="word", **ours)
    assert "of type word" in refused(path)
    trained(path, treat_whitespace_as_suffix=True, **ours)
    assert "spaces behind words" in refused(path)
    trained(path, **ours)  # other ids, and pieces of its own for begin and end
    vocabulary = sentencepieces.read(path)
    assert vocabulary.ids["[PAD]"] == 3 and vocabulary.ids["[UNK]"] == 0
    assert vocabulary.word_starts[:7].all() and "<s>" in vocabulary.tokens
    assert not set(range(1, 7)) & set(vocabulary.encode(["[MASK] <s> the [PAD]"])[0])
