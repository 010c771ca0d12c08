"""The records of 2018: tf.train.Example in TFRecord files, read and written.

The features are those of create_pretraining_data.py (github.com/google-research/bert),
the message is built from its published schema (tensorflow/core/example/example.proto)
and the framing is that of tensorflow/core/lib/io/record_writer.h: length, masked
CRC-32C of the length, data, masked CRC-32C of the data. No TensorFlow is needed.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import fsspec
import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from bert_jax.data.public_script import Instance

INTEGERS = (
    "input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids",
    "next_sentence_labels",
)  # fmt: skip
WEIGHTS = "masked_lm_weights"
MOST = 1 << 28  # bytes of a record; a longer one is a damaged length


class Record(NamedTuple):
    """One row as it stands in a file, padding and all.

    ``place`` is file and number of the record, for a person.
    """

    place: str
    input_ids: np.ndarray  # int64 [T], corrupted
    input_mask: np.ndarray  # int64 [T], 1 = a token
    segment_ids: np.ndarray  # int64 [T]
    masked_lm_positions: np.ndarray  # int64 [K]
    masked_lm_ids: np.ndarray  # int64 [K], the original tokens
    next_sentence_labels: np.ndarray  # int64 [1], 1 = random
    masked_lm_weights: np.ndarray  # float32 [K], 0 = an unused slot


def _schema() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="bert_jax_example.proto", package="bert_jax", syntax="proto3"
    )
    field = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, int, str, bool]) -> Any:
        made = file.message_type.add(name=name)
        for title, number, kind, of, repeated in fields:
            label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            made.field.add(
                name=title, number=number, type=kind, type_name=of or None, label=label
            )
        return made

    message("FloatList", ("value", 1, field.TYPE_FLOAT, "", True))
    message("Int64List", ("value", 1, field.TYPE_INT64, "", True))
    feature = message(
        "Feature",
        ("float_list", 2, field.TYPE_MESSAGE, ".bert_jax.FloatList", False),
        ("int64_list", 3, field.TYPE_MESSAGE, ".bert_jax.Int64List", False),
    )
    feature.oneof_decl.add(name="kind")
    for each in feature.field:
        each.oneof_index = 0
    features = message(
        "Features",
        ("feature", 1, field.TYPE_MESSAGE, ".bert_jax.Features.FeatureEntry", True),
    )
    entry = features.nested_type.add(name="FeatureEntry")  # after its field
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    entry.field.add(
        name="value", number=2, type=field.TYPE_MESSAGE, type_name=".bert_jax.Feature",
        label=1,
    )  # fmt: skip
    message("Example", ("features", 1, field.TYPE_MESSAGE, ".bert_jax.Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("bert_jax.Example")
    )


Example = _schema()


def _masked_crc(data: bytes) -> int:
    """The checksum of TFRecord: rotated and shifted, so that it can be summed again."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def write(
    instances: Iterable[Instance],
    ids: dict[str, int],
    length: int,
    most: int,
    out: BinaryIO,
) -> None:
    """Writes instances as records, padded to ``length`` tokens and ``most`` masks."""
    for instance in instances:
        tokens = [ids[token] for token in instance.tokens]
        labels = [ids[token] for token in instance.masked_lm_labels]
        spare, free = length - len(tokens), most - len(labels)
        example = Example()
        feature = example.features.feature
        for name, values in (
            ("input_ids", tokens + [0] * spare),
            ("input_mask", [1] * len(tokens) + [0] * spare),
            ("segment_ids", [*instance.segment_ids, *[0] * spare]),
            ("masked_lm_positions", [*instance.masked_lm_positions, *[0] * free]),
            ("masked_lm_ids", labels + [0] * free),
            ("next_sentence_labels", [int(instance.is_random_next)]),
        ):
            feature[name].int64_list.value.extend(values)
        feature[WEIGHTS].float_list.value.extend([1.0] * len(labels) + [0.0] * free)
        data = example.SerializeToString()
        head = struct.pack("<Q", len(data))
        out.write(head + struct.pack("<I", _masked_crc(head)))
        out.write(data)
        out.write(struct.pack("<I", _masked_crc(data)))


def read(path: str) -> Iterator[Record]:
    """Records of a file, in order.

    Args:
      path: local or of any file system fsspec knows.

    Raises:
      ValueError: the file is no TFRecord file, is damaged or cut off, or a record has
        not the features of 2018; the file and the number of the record are named.
    """
    shown = path.removeprefix("file://")
    with fsspec.open(path, "rb") as file:
        number = 0
        while head := file.read(12):
            number += 1
            place = f"{shown}: record {number}"
            yield _record(_framed(file, head, place), place)


def _framed(file: BinaryIO, head: bytes, place: str) -> bytes:
    """The data of a record whose head was read."""
    if len(head) == 12:
        size, crc = struct.unpack("<QI", head)
        if size > MOST or _masked_crc(head[:8]) != crc:
            raise ValueError(
                f"{place} is damaged, or the file is no TFRecord file: the checksum "
                "of its length is wrong"
            )
        rest = file.read(size + 4)
        if len(rest) == size + 4:
            data: bytes = rest[:size]
            if _masked_crc(data) != struct.unpack("<I", rest[size:])[0]:
                raise ValueError(f"{place} is damaged: its checksum is wrong")
            return data
    raise ValueError(f"{place} is cut off; copy the file again, or leave it out")


def _record(data: bytes, place: str) -> Record:
    try:
        features = Example.FromString(data).features.feature
    except DecodeError as error:
        raise ValueError(f"{place} holds no tf.train.Example: {error}") from None
    missing = [name for name in (*INTEGERS, WEIGHTS) if name not in features]
    if missing:
        raise ValueError(
            f"{place} has no feature {missing[0]!r}, so it is no record of the 2018 "
            f"format; it has {', '.join(sorted(features)) or 'none'}"
        )
    integers = {n: np.array(features[n].int64_list.value, np.int64) for n in INTEGERS}
    weights = np.array(features[WEIGHTS].float_list.value, np.float32)
    return Record(place, masked_lm_weights=weights, **integers)
