"""The oracle equals the recorded instances of the public script."""

import json
import os
import random
from pathlib import Path

import pytest

from bert_jax.data import public_script, vocabulary

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("BERT_JAX_SHARED") or ROOT.parent / "shared" / "data")
REFERENCES = (
    "sample_text_L128_dupe5_seed12345",
    "sample_text_L64_dupe2_seed7_short50",
    "sample_text_wholeword_L128_dupe3_seed12345",
    "sample_text_wholeword_L64_dupe4_seed99_short30",
)
PLAIN = {
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
    "masked_lm_prob": 0.15,
    "short_seq_prob": 0.1,
    "dupe_factor": 3,
    "do_whole_word_mask": False,
}
SETTINGS = ("do_lower_case", "random_seed", *PLAIN)
WORDS = [*vocabulary.RESERVED, *"abcdefgh", "##s"]


def original(instance):
    """Tokens with the labels put back."""
    tokens = list(instance.tokens)
    labels = zip(instance.masked_lm_positions, instance.masked_lm_labels, strict=True)
    for position, label in labels:
        tokens[position] = label
    return tokens


def segments(instance):
    """A and B without masks and special tokens."""
    tokens = original(instance)
    first = instance.segment_ids.count(0)
    return tokens[1 : first - 1], tokens[first:-1]


def build(documents, seed=0, **changed):
    return public_script.create_instances_from_documents(
        documents, WORDS, random.Random(seed), **{**PLAIN, **changed}
    )


@pytest.mark.parametrize("name", REFERENCES)
def test_equals_the_reference(name):
    path = SHARED / "reference" / "pretraining" / f"{name}.json"
    if not path.is_file():
        pytest.skip("no reference instances; BERT_JAX_SHARED names the data folder")
    reference = json.loads(path.read_text("utf-8"))
    # The older version of the script has no such flag, and its files do not name it.
    reference.setdefault("do_whole_word_mask", False)
    got = public_script.create_instances(
        [SHARED / "pretrain" / "en" / "bert_sample_text.txt"],
        SHARED / "vocab" / "bert-base-uncased-vocab.txt",
        **{setting: reference[setting] for setting in SETTINGS},
    )
    assert len(got) == len(reference["instances"]) > 0
    for ours, theirs in zip(got, reference["instances"], strict=True):
        assert ours._asdict() == theirs


def test_files_are_one_stream(tmp_path):
    """An empty line ends a document and the end of a file does not."""
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("".join(f"{word}\n" for word in WORDS), "utf-8")
    first, second = tmp_path / "1.txt", tmp_path / "2.txt"
    first.write_text("A as\n\n\n b\u2028c \r\n", "utf-8")
    second.write_text("d ?\n \ne", "utf-8")
    read = vocabulary.read(vocab, vocabulary.TokenizerSpec())
    documents = [[["a", "a", "##s"]], [], [["b", "c"], ["d", "[UNK]"]], [["e"]]]
    assert public_script.read_documents([first, second], read) == documents
    from_files = public_script.create_instances(
        [first, second], vocab, do_lower_case=True, random_seed=0, **PLAIN
    )
    assert from_files == build(documents)


def test_seed_decides():
    documents = [[[word] * 6 for word in "abcd"], [[word] * 6 for word in "efgh"]]
    before = json.dumps(documents)
    assert build(documents, 1) == build(documents, 1)
    assert build(documents, 1) != build(documents, 2)
    assert json.dumps(documents) == before


def test_random_b_is_from_the_other_document():
    documents = [[[word] * 6 for word in "abcd"], [[word] * 6 for word in "efgh"]]
    instances = build(documents, dupe_factor=20)
    assert {instance.is_random_next for instance in instances} == {True, False}
    for instance in instances:
        ours, theirs = ({*side} <= {*"abcd"} for side in segments(instance))
        assert instance.is_random_next == (ours != theirs)


def test_lone_sentence_and_lone_document_are_random():
    """No draw can find another document: the label stays."""
    (instance,) = build([[["a", "b", "c"]]], dupe_factor=1)
    assert instance.is_random_next
    assert segments(instance) == (["a", "b", "c"], ["a", "b", "c"])


def test_unused_sentences_come_again():
    """Every sentence is used as A, or as B that follows it."""
    documents = [[[word] * 3 for word in "abcdefgh"], [["##s"]]]
    for seed in range(20):
        used = set()
        settings = {"max_seq_length": 15, "short_seq_prob": 0.0, "dupe_factor": 1}
        for instance in build(documents, seed, **settings):
            a, b = segments(instance)
            used |= {*a} if instance.is_random_next else {*a, *b}
        assert used == {*"abcdefgh", "##s"}


def test_long_pairs_are_cut_to_the_length():
    documents = [[list("abcdefgh") * 9, list("hgfedcba") * 9], [["a"] * 50]]
    for instance in build(documents):
        a, b = segments(instance)
        assert len(instance.tokens) == 32 and abs(len(a) - len(b)) <= 1


@pytest.mark.parametrize("length, masked", [(27, 4), (87, 14), (2, 1), (197, 20)])
def test_masked_count(length, masked):
    """Of the length with special tokens; 4.5 and 13.5 go to the even side."""
    documents = [[["a"] * (length - length // 2)], [["b"] * (length // 2)]]
    for share in (0.15, 0.05):
        for instance in build(
            documents,
            max_seq_length=200,
            max_predictions_per_seq=20,
            masked_lm_prob=share,
        ):
            size = len(instance.tokens)
            assert size == length + 3
            expected = min(20, max(1, round(size * share)))
            assert len(instance.masked_lm_positions) == expected
            assert instance.masked_lm_positions == sorted(instance.masked_lm_positions)
            assert not {"[CLS]", "[SEP]"} & {*instance.masked_lm_labels}
            if share == 0.15:
                assert expected == masked


def test_whole_words():
    """All pieces or none, and a word longer than the budget is never masked."""
    long = ["h", *["##s"] * 6]
    documents = [[["a", "##s", "b", *long] for _ in range(9)]] * 2
    instances = build(
        documents, max_seq_length=64, dupe_factor=10, do_whole_word_mask=True
    )
    partial = 0
    for instance in instances:
        chosen = set(instance.masked_lm_positions)
        tokens = original(instance)
        for position in range(2, len(tokens)):
            if tokens[position : position + 7] == long:
                assert position not in chosen
            # A piece right after [SEP] or [CLS] was cut off its word.
            if tokens[position] == "##s" and "[" not in tokens[position - 1]:
                assert (position in chosen) == (position - 1 in chosen)
        partial += len(chosen) < min(5, max(1, round(len(tokens) * 0.15)))
    assert partial  # nothing tops up what did not fit


def test_no_room_is_refused():
    with pytest.raises(ValueError, match="at least 5"):
        build([[["a"]]], max_seq_length=4)
    assert build([[["a"]], [["b"]]], max_seq_length=5)
    assert build([]) == []
