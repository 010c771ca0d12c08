"""TensorFlow Datasets as text, read through random access; TensorFlow is not needed.

``tfds:NAME[/CONFIG][:SPLIT]``: a name known to the library and prepared in its data
directory (``?data_dir=``), or the directory of a dataset prepared elsewhere.
"""

import functools
from collections.abc import Iterator
from typing import Any

from bert_jax.data.sources import Source


def _parts(place: str) -> tuple[str, str]:
    """Dataset and split of a place; "train" unless one is named."""
    head, colon, tail = place.rpartition(":")
    named = colon and not tail.startswith("//") and "/" not in tail
    return (head, tail) if named else (place, "train")


@functools.lru_cache(maxsize=4)
def _open(source: Source) -> tuple[str, Any]:
    """Full name of the prepared dataset, and its records.

    Raises:
      ValueError: no such dataset, split or field, or it is not prepared.
    """
    import tensorflow_datasets as tfds

    name, split = _parts(source.place)
    try:
        if "://" in name or name.startswith(("/", ".", "~")):
            builder = tfds.builder_from_directory(name)
        else:
            builder = tfds.builder(name, data_dir=source.data_dir or None)
        records = builder.as_data_source(split=split)
    except Exception as error:  # the library raises a score of its own kinds
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise ValueError(
            f"corpus {source.name} cannot be opened: {reason}; name a dataset prepared "
            "with tfds (file_format=array_record), or the directory of one, e.g. "
            "tfds:/data/wiki40b/en/1.3.0:train"
        ) from None
    if source.field not in builder.info.features:
        raise ValueError(
            f"corpus {source.name} has no field {source.field!r}; there are "
            f"{', '.join(sorted(builder.info.features))}: pass ?field="
        )
    size = sum(builder.info.splits[s].num_bytes for s in builder.info.splits)
    return f"{builder.info.full_name}:{split}:{size}", records


def measure(source: Source) -> tuple[str, int]:
    """What identifies the records, and how many there are.

    Raises:
      ValueError: see ``_open``.
    """
    version, records = _open(source)
    return version, len(records)


def texts(source: Source, begin: int, end: int) -> Iterator[tuple[int, str]]:
    """Number and text of the records begin .. end."""
    _, records = _open(source)
    for number in range(begin, end):
        text = records[number][source.field]
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        yield number, text
