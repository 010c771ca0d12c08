"""WordPiece: the tokenizer of 2018, vocabularies learned and read, the fast table."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import chunks, clean, vocabulary
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
spec = vocabulary.TokenizerSpec()
counts = vocabulary.count_words(open(sys.argv[1]).read().split("\\n"), spec)
for word in vocabulary.learn(counts, 600, spec).tokens: print(word)
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


def test_vocabulary_too_small_is_refused():
    with pytest.raises(ValueError, match=r"vocabulary\.size=10"):
        vocabulary.learn(Counter({"the": 3, "quick": 3, "fox": 3}), 10, TokenizerSpec())


def test_read_vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n")
    assert vocabulary.read(path, TokenizerSpec()).tokens == tuple(WORDS)
    path.write_text("\n".join(w for w in WORDS if w != "[MASK]") + "\n")
    with pytest.raises(ValueError, match=r"has no \[MASK\]"):
        vocabulary.read(path, TokenizerSpec())


def test_lines_of_a_vocabulary(tmp_path):
    """Case P05: one line is one id; LF ends a line; what is wrong is named."""
    path, five = tmp_path / "vocab.txt", ["[PAD]", "[UNK]", "", "\u2028", "x"]
    rest = ["[CLS]", "[SEP]", "[MASK]"]
    for end in ("\n", "\r\n"):
        path.write_bytes("".join(word + end for word in [*five, *rest]).encode())
        found = vocabulary.read(path, TokenizerSpec())
        assert len(found) == 8 and found.ids["x"] == 4 and found.tokens[2:4] == (
            "", "\u2028",
        )  # fmt: skip
    path.write_text("\n".join([*WORDS, "cat"]) + "\n")
    with pytest.raises(ValueError, match=r"'cat' more than once \(lines 7 and 24;"):
        vocabulary.read(path, TokenizerSpec())
    path.write_bytes(b"\x80\x02weights")
    with pytest.raises(ValueError, match="is not text"):
        vocabulary.read(path, TokenizerSpec())


def basic(text, lowercase=True, strip=None):
    """Words before they are cut into pieces."""
    spec = TokenizerSpec(lowercase, strip)
    normal = spec.normalizer().normalize_str(spec.prepare(text))
    return [word for word, _ in spec.splitter().pre_tokenize_str(normal)]


@pytest.mark.quick
def test_ideographs_are_words():
    """Case P01: all of CJK with extensions A to E, and nothing else."""
    for code in (0x4E00, 0x3400, 0x20000, 0x2B740, 0x2B820, 0x2B91F, 0x2CEAF, 0x2F800):
        assert len(basic(f"a{chr(code)}b", lowercase=False)) == 3, hex(code)
    assert basic("a漢b") == ["a", "漢", "b"]
    for code in (0x2CEB0, 0xA000, 0x3042, 0xAC00):
        assert len(basic(f"a{chr(code)}b", lowercase=False)) == 1, hex(code)
    words = basic("アリババ株式会社", lowercase=False)
    assert words == ["アリババ", "株", "式", "会", "社"]


@pytest.mark.quick
def test_case_and_accents_are_two_settings():
    """Case P02."""
    assert basic("Müsste naïve") == ["musste", "naive"]
    assert basic("Müsste naïve", strip=False) == ["müsste", "naïve"]
    assert basic("Müsste naïve", lowercase=False) == ["Müsste", "naïve"]
    assert basic("re\u0301sume\u0301") == ["resume"]
    assert basic("İstanbul") == ["istanbul"] and basic("ß") == ["ß"]
    assert basic("バ") == ["ハ"] and basic("バ", strip=False) == ["バ"]
    assert len(basic("한국")[0]) == 6
    assert basic("ΟΔΥΣΣΕΥΣ Σ ΑΣ, ΣΑΣ") == ["οδυσσευς", "σ", "ας", ",", "σας"]


@pytest.mark.quick
def test_what_is_no_text_vanishes():
    """Case P03: and offsets point into the untouched input."""
    for text, words in {
        "ab\u200bcd": ["abcd"], "ab\u00adcd": ["abcd"], "\ufeffab": ["ab"],
        "a\u00a0b\u3000c": ["a", "b", "c"], "a\0b\ac": ["abc"], "a\x85b": ["ab"],
        "a\u2028b": ["a", "b"], "a\ufffdb": ["ab"], "\u200d": [], "\ue000": ["\ue000"],
    }.items():  # fmt: skip
        assert basic(text) == words, repr(text)
        assert clean.squeeze(text).split() == words, repr(text)
    vocab = Vocabulary((*RESERVED, "ab", "##cd"), TokenizerSpec())
    assert vocab.offsets("ab\u200bcd") == [(0, 2), (3, 5)]


def test_against_googles_tokenizer(shared):
    """Every string of the reference, with both published vocabularies."""
    cases = (shared / "reference/tokenization/cases.jsonl").read_text().split("\n")
    vocabs = {
        name: vocabulary.read(
            shared / f"vocab/bert-base-{name}-vocab.txt", TokenizerSpec()
        )
        for name in ("uncased", "chinese")
    }
    tables = {name: chunks.ChunkTable(vocab) for name, vocab in vocabs.items()}
    seen = 0
    for case in map(json.loads, filter(None, cases)):
        assert basic(case["text"]) == case["basic_lower"]
        assert basic(case["text"], lowercase=False) == case["basic_cased"]
        for name, vocab in vocabs.items():
            assert vocab.encode([case["text"]])[0] == case[f"{name}_ids"]
            squeezed = clean.squeeze(case["text"])
            if squeezed:
                ids, lengths = tables[name].encode([squeezed])
                assert ids.tolist() == case[f"{name}_ids"] and sum(lengths) == len(ids)
        seen += 1
    assert seen == 196


def test_unit_cases_of_other_projects(shared):
    """What the tests of the 2018 code and of transformers expect."""
    folder = shared / "reference/tokenization"
    cases = []
    for name in ("google_unit_cases", "hf_basic_unit_cases"):
        cases += json.loads((folder / f"{name}.json").read_text())["cases"]
    seen = Counter()
    for case in cases:
        kind = case.get("kind", "basic")
        seen[kind] += 1
        if kind in ("full", "wordpiece"):
            words = (*RESERVED, *(w for w in case["vocab"] if w not in RESERVED))
            vocab = Vocabulary(words, TokenizerSpec(case.get("do_lower_case", True)))
            text = case["text"]
            if kind == "wordpiece":  # one step of the tokenizer: no lowercasing before
                vocab = Vocabulary(words, TokenizerSpec(False))
            assert [words[i] for i in vocab.encode([text])[0]] == case["tokens"]
        elif kind == "basic":
            text, want = case["text"], case["tokens"]
            if "never_split" in case:  # a reserved word in text is text here: case P04
                text, want = text.replace("[UNK]", ""), want[:-1]
            found = basic(text, case["do_lower_case"], case.get("strip_accents"))
            assert found == want, case
        elif kind == "is_punctuation":
            assert all(basic(f"a{c}a") == ["a", c, "a"] for c in case["true"])
            assert all(basic(f"a{c}a") != ["a", c.lower(), "a"] for c in case["false"])
        elif kind == "is_whitespace":
            assert all(basic(f"a{c}a") == ["a", "a"] for c in case["true"])
            assert all(basic(f"a{c}a") != ["a", "a"] for c in case["false"])
        elif kind == "is_control":
            assert all(basic(f"a{c}a") == ["aa"] for c in case["true"])
            assert all(basic(f"a{c}a") != ["aa"] for c in case["false"])
    assert seen["basic"] == 12 and seen["wordpiece"] == 3 and seen["full"] == 1


def test_character_classes(shared):
    """The drop set and the ideographs are Google's, code point by code point."""
    path = shared / "reference/tokenization/char_classes.json"
    classes = json.loads(path.read_text())
    control = {c for a, b in classes["control"] for c in range(a, b + 1)} | {0xFFFD}
    chinese = {c for a, b in classes["chinese_char"] for c in range(a, b + 1)}
    for code in (*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE0100)):
        character = chr(code)
        assert (clean._NO_TEXT.match(character) is not None) == (code in control)
        parted = clean.part_ideographs(f"a{character}")
        assert (parted != f"a{character}") == (code in chinese), hex(code)


def test_table_gives_the_ids_of_the_library(toy_store):
    """Chunks seen before or not, ASCII or not, one to a block or many."""
    vocab = Vocabulary(tuple(WORDS), TokenizerSpec())
    texts = ["the cat", "unaffable cats", "中the中", "café, (the", "a" * 300, "ΑΣ b"]
    table = chunks.ChunkTable(vocab)
    for _ in range(2):
        ids, lengths = table.encode([clean.squeeze(t) for t in texts])
        want = vocab.encode(texts)
        assert lengths.tolist() == [len(w) for w in want]
        assert ids.tolist() == [i for w in want for i in w]


def test_table_forgets_what_is_rare_and_stays_right(monkeypatch):
    monkeypatch.setattr(chunks, "LARGEST", 40)
    monkeypatch.setattr(chunks, "KEPT", 20)
    vocab = Vocabulary(tuple(WORDS), TokenizerSpec())
    table = chunks.ChunkTable(vocab)
    draws = np.random.default_rng(0)
    for block in range(30):
        texts = [
            f"the cat{draws.integers(200)} sat, ({draws.integers(200)} é{block})"
            for _ in range(20)
        ]
        ids, lengths = table.encode(texts)
        want = vocab.encode(texts)
        assert lengths.tolist() == [len(w) for w in want]
        assert ids.tolist() == [i for w in want for i in w]
        assert {"the", "sat,"} <= set(table._numbers) and len(table._numbers) <= 120
