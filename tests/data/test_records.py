"""Records of 2018: written, read back, and trained on as they were made."""

import io
import random
import struct

import jax
import numpy as np
import pytest
from tensorboardX.record_writer import masked_crc32c

from bert_jax import rules
from bert_jax.corruption import KEPT, MASKED, MaskSpec
from bert_jax.data import (
    batches,
    building,
    corpus,
    given,
    overlap,
    public_script,
    rows,
    store,
    tf_examples,
    vocabulary,
    workers,
)
from bert_jax.data.batches import BatchSpec
from bert_jax.data.rows import RowSpec
from bert_jax.data.stream import Address

LENGTH, MOST = 48, 8
WORDS = [
    *vocabulary.RESERVED,
    *(f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"),
]


@pytest.fixture(scope="module")
def documents():
    """120 documents of random words: no two share a run of tokens."""
    draw = np.random.default_rng(5)
    words = WORDS[5:]
    return [
        [
            [words[i] for i in draw.integers(0, len(words), draw.integers(5, 25))]
            for _ in range(draw.integers(1, 12))
        ]
        for _ in range(120)
    ]


@pytest.fixture(scope="module")
def instances(documents):
    return public_script.create_instances_from_documents(
        documents, WORDS, random.Random(1), max_seq_length=LENGTH,
        max_predictions_per_seq=MOST, masked_lm_prob=0.15, short_seq_prob=0.1,
        dupe_factor=5, do_whole_word_mask=False,
    )  # fmt: skip


def written(path, instances, length=LENGTH, most=MOST):
    ids = {word: number for number, word in enumerate(WORDS)}
    with open(path, "wb") as file:
        tf_examples.write(instances, ids, length, most, file)
    return path


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return vocabulary.read(path, vocabulary.TokenizerSpec())


@pytest.fixture(scope="module")
def made(instances, words, tmp_path_factory):
    """A store of the instances, in two files."""
    place = tmp_path_factory.mktemp("records")
    half = len(instances) // 2
    written(place / "0.tfrecord", instances[:half])
    written(place / "1.tfrecord", instances[half:])
    text = corpus.load(f"tfrecord:{place}/*.tfrecord")
    building.build(text, words, place / "store", workers.over(1))
    return store.open_store(place / "store")


def test_framing_and_features(instances, tmp_path):
    """The checksums are those of another writer, the features those of 2018."""
    path = written(tmp_path / "a.tfrecord", instances[:20])
    data = path.read_bytes()
    at = count = 0
    while at < len(data):
        size, head = struct.unpack("<QI", data[at : at + 12])
        assert masked_crc32c(data[at : at + 8]) == head
        body, at = data[at + 12 : at + 12 + size], at + 16 + size
        assert masked_crc32c(body) == struct.unpack("<I", data[at - 4 : at])[0]
        count += 1
    assert count == 20
    for record, instance in zip(
        tf_examples.read(str(path)), instances[:20], strict=True
    ):
        n, k = len(instance.tokens), len(instance.masked_lm_labels)
        assert [WORDS[i] for i in record.input_ids[:n]] == instance.tokens
        assert record.input_mask.tolist() == [1] * n + [0] * (LENGTH - n)
        assert record.segment_ids[:n].tolist() == instance.segment_ids
        places, labels = record.masked_lm_positions, record.masked_lm_ids
        assert places[:k].tolist() == instance.masked_lm_positions
        assert [WORDS[i] for i in labels[:k]] == instance.masked_lm_labels
        assert record.masked_lm_weights.tolist() == [1.0] * k + [0.0] * (MOST - k)
        assert record.next_sentence_labels.tolist() == [int(instance.is_random_next)]
        padding = (record.input_ids[n:], record.segment_ids[n:], places[k:], labels[k:])
        assert not any(values.any() for values in padding)


def test_trained_on_as_they_were_made(made, instances):
    """Every training row: what is seen, what is predicted, and both labels."""
    spec = RowSpec(LENGTH, 0, format="given")
    plan = rows.make_plan(made, spec, 0)
    count = len(plan.label)
    address = Address(*(np.zeros((count, 1), np.int64) for _ in range(3)))
    address.rows[:, 0] = np.arange(count)
    batch = batches.gather(
        made, [plan], address, np.arange(count), BatchSpec(spec, 1, "all_plans", 0.15,
        MOST, 0, given=True), masks=given.masks(made, spec),
    )  # fmt: skip
    masks = MaskSpec(len(WORDS), WORDS.index("[MASK]"), MOST)
    seen_BT, targets = jax.jit(rules.masked, static_argnums=2)(None, batch, masks)
    seen_BT, used = np.asarray(seen_BT), np.asarray(targets.weights_BK) > 0
    by_tokens = {tuple(instance.tokens): instance for instance in instances}
    met = 0
    for row in range(count):
        length = int((batch.pairs_BT[row] > 0).sum())
        instance = by_tokens[tuple(WORDS[i] for i in seen_BT[row, :length])]
        met += 1
        places = np.asarray(targets.positions_BK)[row, used[row]]
        labels = np.asarray(targets.labels_BK)[row, used[row]]
        assert places.tolist() == instance.masked_lm_positions
        assert [WORDS[i] for i in labels] == instance.masked_lm_labels
        assert batch.segments_BT[row, :length].tolist() == instance.segment_ids
        assert batch.label_BP[row, 0] == instance.is_random_next
        kinds = np.asarray(targets.kinds_BK)[row, used[row]]
        shown = [instance.tokens[p] for p in places]
        assert (kinds == MASKED).tolist() == [t == "[MASK]" for t in shown]
        same = [t == w for t, w in zip(shown, instance.masked_lm_labels, strict=True)]
        assert (kinds == KEPT).tolist() == same
    assert met == count > 0.9 * len(instances)


def test_held_out_text_never_trains(made, documents):
    """No training row holds a run of a held-out one; copies are on one side."""
    runs = {True: set(), False: set()}
    bounds, text = made.sentence_bounds, made.document_bounds
    long = overlap.RUN + overlap.WINDOW - 1
    plan = rows.make_plan(made, RowSpec(LENGTH, 0, format="given"), 0)
    training = set(plan.document.tolist())
    for number, held_out in enumerate(made.held_out.tolist()):
        if held_out or number in training:
            tokens = made.tokens[bounds[text[number]] : bounds[text[number + 1]]]
            for at in range(len(tokens) - long + 1):
                runs[held_out].add(tuple(tokens[at : at + long].tolist()))
    assert runs[True] and runs[False]
    assert not runs[True] & runs[False]
    assert 0 < made.held_out.mean() <= 0.1
    assert not made.held_out[sorted(training)].any()


def test_texts_are_those_that_share_a_run():
    """Segments cut from texts anywhere are put together again, and no others."""
    draw = np.random.default_rng(0)
    sources = [draw.integers(0, 30_000, 400) for _ in range(30)]
    pieces, owner = [], []
    for number, source in enumerate(sources):
        for begin in range(0, 340, 20):  # each overlaps the next by 40 tokens
            pieces.append(source[begin : begin + 60])
            owner.append(number)
    pieces += [np.array([1, 2, 3]), np.array([1, 2, 3]), np.array([1, 2, 4])]
    order = draw.permutation(len(pieces) - 3).tolist()
    order += [len(pieces) - 3, len(pieces) - 2, len(pieces) - 1]
    bounds = np.concatenate([[0], np.cumsum([len(pieces[i]) for i in order])])
    tokens = np.concatenate([pieces[i] for i in order])
    text, content = overlap.texts(tokens, bounds)
    owners = np.array([owner[i] for i in order[:-3]])
    for number in range(len(sources)):
        assert len(set(text[:-3][owners == number].tolist())) == 1
    assert len(set(text[:-3].tolist())) == len(sources)
    assert text[-3] == text[-2] != text[-1]
    assert len(content) == len(sources) + 2 == len(set(content.tolist()))


def test_chunks_do_not_matter(monkeypatch, made):
    bounds = np.asarray(made.sentence_bounds)
    whole = overlap.texts(made.tokens, bounds)
    monkeypatch.setattr(overlap, "CHUNK", 100)
    for left, right in zip(whole, overlap.texts(made.tokens, bounds), strict=True):
        np.testing.assert_array_equal(left, right)


def changed(instance, **fields):
    return instance._replace(**fields)


REFUSED = {
    "cap of another file": (lambda i: i, {"most": MOST + 2}, "was built for"),
    "length of another file": (lambda i: i, {"length": LENGTH + 8}, "was built for"),
    "a mask on [CLS]": (
        lambda i: changed(i, masked_lm_positions=[0, *i.masked_lm_positions[1:]]),
        {}, r"lie on \[CLS\]",
    ),
    "a mask on the middle [SEP]": (
        lambda i: changed(i, masked_lm_positions=[
            i.segment_ids.count(0) - 1, *i.masked_lm_positions[1:]]),
        {}, r"lie on \[CLS\]",
    ),
    "a mask twice": (
        lambda i: changed(i, masked_lm_positions=i.masked_lm_positions[:1] * 2,
                          masked_lm_labels=i.masked_lm_labels[:1] * 2),
        {}, "repeat",
    ),
    "one segment": (
        lambda i: changed(i, segment_ids=[0] * len(i.tokens)), {}, "no pair",
    ),
    "segments in disorder": (
        lambda i: changed(i, segment_ids=[1 - s for s in i.segment_ids]),
        {}, "zeros, then ones",
    ),
    "no [SEP] at the end": (
        lambda i: changed(i, tokens=[*i.tokens[:-1], WORDS[9]]),
        {}, "not of this vocabulary",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_no_record_of_2018(instances, words, tmp_path, case):
    """Refused with file and number of the record, and nothing is left behind."""
    change, sizes, message = REFUSED[case]
    full = [i for i in instances if len(i.masked_lm_labels) > 1]
    written(tmp_path / "0.tfrecord", full[:3])
    written(tmp_path / "1.tfrecord", [full[3], change(full[4])], **sizes)
    text = corpus.load(f"tfrecord:{tmp_path}/*.tfrecord")
    number = 1 if sizes else 2
    with pytest.raises(ValueError, match=rf"1\.tfrecord: record {number} .*{message}"):
        building.build(text, words, tmp_path / "store", workers.over(1))
    assert not (tmp_path / "store").exists()


def test_an_id_beyond_the_vocabulary(instances, tmp_path):
    """Case P19: file and record are named."""
    written(tmp_path / "0.tfrecord", instances[:40])
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDS[:20]) + "\n")
    small = vocabulary.read(path, vocabulary.TokenizerSpec())
    text = corpus.load(f"tfrecord:{tmp_path}/*.tfrecord")
    with pytest.raises(ValueError, match=r"record \d+ has a token id outside .* 20 t"):
        building.build(text, small, tmp_path / "store", workers.over(1))


@pytest.mark.parametrize("at", [3, 9, 40, -1])
def test_damage_is_found(instances, tmp_path, at):
    """A byte of the length, its checksum, the data or their checksum is changed."""
    path = written(tmp_path / "0.tfrecord", instances[:3])
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
    number = 3 if at < 0 else 1
    with pytest.raises(ValueError, match=f"record {number} is damaged"):
        list(tf_examples.read(str(path)))


def test_cut_off_and_empty(instances, words, tmp_path):
    path = written(tmp_path / "0.tfrecord", instances[:3])
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="record 3 is cut off"):
        list(tf_examples.read(str(path)))
    path.write_bytes(b"")
    text = corpus.load(f"tfrecord:{path}")
    with pytest.raises(ValueError, match="holds no record"):
        building.build(text, words, tmp_path / "store", workers.over(1))


def test_other_examples_are_refused(tmp_path):
    out = io.BytesIO()
    example = tf_examples.Example()
    example.features.feature["input_ids"].int64_list.value.extend([1, 2])
    data = example.SerializeToString()
    head = struct.pack("<Q", len(data))
    out.write(head + struct.pack("<I", masked_crc32c(head)))
    out.write(data + struct.pack("<I", masked_crc32c(data)))
    path = tmp_path / "0.tfrecord"
    path.write_bytes(out.getvalue())
    with pytest.raises(ValueError, match="no feature 'input_mask'"):
        list(tf_examples.read(str(path)))
