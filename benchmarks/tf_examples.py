"""Instances as the public script writes them: tf.train.Example in TFRecord files.

The message is built from its published schema (tensorflow/core/example/example.proto),
so that protobuf's own C code serializes it, as in the script; no TensorFlow. The two
checksums of a record are left out, in the peer's favour.
"""

import struct
from collections.abc import Iterable
from typing import Any, BinaryIO

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bert_jax.data.public_script import Instance


def _schema() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="peer_example.proto", package="peer", syntax="proto3"
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
        ("float_list", 2, field.TYPE_MESSAGE, ".peer.FloatList", False),
        ("int64_list", 3, field.TYPE_MESSAGE, ".peer.Int64List", False),
    )
    feature.oneof_decl.add(name="kind")
    for each in feature.field:
        each.oneof_index = 0
    features = message(
        "Features",
        ("feature", 1, field.TYPE_MESSAGE, ".peer.Features.FeatureEntry", True),
    )
    entry = features.nested_type.add(name="FeatureEntry")  # after its field
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    entry.field.add(
        name="value", number=2, type=field.TYPE_MESSAGE, type_name=".peer.Feature",
        label=1,
    )  # fmt: skip
    message("Example", ("features", 1, field.TYPE_MESSAGE, ".peer.Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("peer.Example"))


Example = _schema()


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
        mask, segments = [1] * len(tokens), list(instance.segment_ids)
        while len(tokens) < length:
            tokens.append(0)
            mask.append(0)
            segments.append(0)
        places = list(instance.masked_lm_positions)
        labels = [ids[token] for token in instance.masked_lm_labels]
        weights = [1.0] * len(labels)
        while len(places) < most:
            places.append(0)
            labels.append(0)
            weights.append(0.0)
        example = Example()
        feature = example.features.feature
        for name, values in (
            ("input_ids", tokens),
            ("input_mask", mask),
            ("segment_ids", segments),
            ("masked_lm_positions", places),
            ("masked_lm_ids", labels),
            ("next_sentence_labels", [int(instance.is_random_next)]),
        ):
            feature[name].int64_list.value.extend(values)
        feature["masked_lm_weights"].float_list.value.extend(weights)
        data = example.SerializeToString()
        out.write(struct.pack("<QI", len(data), 0))
        out.write(data)
        out.write(struct.pack("<I", 0))
