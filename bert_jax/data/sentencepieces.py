"""SentencePiece: a vocabulary of pieces of raw text.

Kudo & Richardson 2018 (arXiv 1808.06226); the unigram model is Kudo 2018 (arXiv
1804.10959). The model file holds the pieces and the normalisation; nothing else is
needed to encode.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import sentencepiece

from bert_jax.data import cache
from bert_jax.data.vocabulary import RESERVED

MODEL_TYPES = ("unigram", "bpe")
SPACE = "\u2581"  # how pieces write a space
# Numbers of fields and of an enumeration, in sentencepiece_model.proto.
_TRAINER_SPEC, _NORMALIZER_SPEC = 2, 3
_MODEL_TYPE, _SPACE_BEHIND, _RULE_NAME = 3, 24, 1
_TYPE_NAMES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a serialized protobuf message.

    Not the generated module, of which transformers registers a rival under one name.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        yield number, message[at : at + size]
        at += size


def _part(message: bytes, number: int) -> dict[int, int | bytes]:
    """Fields of the message inside ``message`` under a number; the last of each."""
    inner = dict(_fields(message)).get(number, b"")
    assert isinstance(inner, bytes)
    return dict(_fields(inner))


@dataclass(frozen=True)
class SentencePieceVocabulary:
    """A SentencePiece model by its serialized bytes; see ``vocabulary.Vocabulary``."""

    model: bytes = field(repr=False)

    @cached_property
    def processor(self) -> sentencepiece.SentencePieceProcessor:
        """Text to ids and nothing else: no sampling, no reserved ids around it.

        Reserved pieces are control symbols, which no text can spell.
        """
        processor = sentencepiece.SentencePieceProcessor()
        processor.load_from_serialized_proto(self.model)
        return processor

    def __len__(self) -> int:
        return self.processor.get_piece_size()

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Pieces in the order of their ids."""
        return tuple(self.processor.id_to_piece(list(range(len(self)))))

    @cached_property
    def ids(self) -> dict[str, int]:
        """Piece -> id."""
        return {token: number for number, token in enumerate(self.tokens)}

    @cached_property
    def _is_byte(self) -> list[bool]:
        return self.processor.is_byte(list(range(len(self))))

    @cached_property
    def word_starts(self) -> np.ndarray:
        """bool [V]: True where a piece begins a word.

        Those that start with a space, and the reserved and byte pieces, each of
        which is masked on its own.
        """
        numbers = list(range(len(self)))
        control = self.processor.is_control(numbers)
        unknown = self.processor.is_unknown(numbers)
        spaced = [token.startswith(SPACE) for token in self.tokens]
        return np.any([control, unknown, self._is_byte, spaced], axis=0)

    @cached_property
    def normalization(self) -> str:
        """Name of the rule that rewrites text before it is cut, as the model has it.

        Empty where the rule was a file of the one who trained it.
        """
        name = _part(self.model, _NORMALIZER_SPEC).get(_RULE_NAME, b"")
        assert isinstance(name, bytes)
        return name.decode()

    @cached_property
    def model_type(self) -> str:
        """unigram, bpe, word or char."""
        number = _part(self.model, _TRAINER_SPEC).get(_MODEL_TYPE, 1)
        assert isinstance(number, int)
        return _TYPE_NAMES[number]

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Ids of each sentence."""
        return self.processor.encode(sentences, out_type=int)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each id of ``text`` comes from: [begin, end) in its characters.

        The text is the one given, not its normal form. A piece that is part of a
        character (the f of a ligature, a byte) covers the whole of it, so what is cut
        from first begin to last end is never half a character. The space in front of
        a piece is outside it, except for a piece that is all space; one that stands
        for no character is empty.

        Args:
          text: one sentence, as for ``encode``.

        Returns:
          One pair an id, in the order of ``encode([text])[0]``.
        """
        normal, source = self.processor.normalize(text, with_offsets=True)
        ends = list(source)  # of each character of the normal form
        for number in reversed(range(len(normal))):
            same = source[number] == source[number + 1]
            ends[number] = ends[number + 1] if same else source[number + 1]
        if normal[:1] == SPACE and source[0] == source[1]:
            ends[0] = source[0]  # the space put before every text
        ids = self.processor.encode(text, out_type=int)
        pieces = self.processor.encode(text, out_type=str)
        spans, at, owed = [], 0, 0
        for number, piece in zip(ids, pieces, strict=True):
            if self._is_byte[number]:
                owed = (owed or len(normal[at].encode())) - 1
                first, step = at, int(owed == 0)
                last = at
            else:
                step = len(piece)
                spaces = step - len(piece.lstrip(SPACE))
                first = at + (spaces if spaces < step else 0)
                last = at + step - 1
            spans.append((source[first], ends[last]))
            at += step
        return spans

    def digest(self) -> str:
        """Hash of the model's bytes."""
        return cache.digest("sentencepiece", hashlib.sha256(self.model).hexdigest())

    def dtype(self) -> np.dtype:
        """Smallest of uint16 and uint32 that holds every id."""
        return np.dtype(np.uint16 if len(self) <= 2**16 else np.uint32)

    def write(self, directory: Path) -> None:
        """tokenizer.model, and settings.json beside it."""
        directory.mkdir(parents=True, exist_ok=True)
        temporary = directory / f".tokenizer.model.{os.getpid()}"
        temporary.write_bytes(self.model)
        temporary.replace(directory / "tokenizer.model")
        settings = {
            "kind": "sentencepiece",
            "model_type": self.model_type,
            "normalization": self.normalization,
            "size": len(self),
        }
        cache.write_json(directory / "settings.json", settings)


def read(path: Path) -> SentencePieceVocabulary:
    """A vocabulary from a SentencePiece model file.

    Args:
      path: a ``tokenizer.model``, ``spiece.model`` or the like.

    Returns:
      The vocabulary, its model loaded.

    Raises:
      ValueError: no such file, not a SentencePiece model, a reserved piece is missing
        or can come from text, or a kind of model without starts of words.
    """
    if not path.is_file():
        raise ValueError(f"SentencePiece model {path} is missing; give a .model file")
    vocabulary = SentencePieceVocabulary(path.read_bytes())
    try:
        processor = vocabulary.processor
    except (RuntimeError, ValueError, OSError):
        raise ValueError(
            f"{path} is not a SentencePiece model; give the .model file that training "
            "wrote (not the .vocab beside it), or empty vocabulary.path to learn one"
        ) from None
    ids = vocabulary.ids
    missing = [piece for piece in RESERVED if piece not in ids]
    if missing:
        raise ValueError(
            f"SentencePiece model {path} has no {', '.join(missing)}; train it with "
            "pad_piece=[PAD], unk_piece=[UNK] and control_symbols=[CLS],[SEP],[MASK], "
            "or empty vocabulary.path to learn one"
        )
    loose = [
        piece
        for piece in RESERVED
        if not (
            processor.is_unknown(ids[piece])
            if piece == "[UNK]"
            else processor.is_control(ids[piece])
        )
    ]
    if loose:
        raise ValueError(
            f"SentencePiece model {path} lets text spell {', '.join(loose)}; train it "
            "with unk_piece=[UNK] and the others as control symbols, not user-defined"
        )
    if vocabulary.model_type not in MODEL_TYPES:
        raise ValueError(
            f"SentencePiece model {path} is of type {vocabulary.model_type}; give one "
            f"of type {' or '.join(MODEL_TYPES)}"
        )
    if _part(vocabulary.model, _TRAINER_SPEC).get(_SPACE_BEHIND):
        raise ValueError(
            f"SentencePiece model {path} writes spaces behind words, so no piece tells "
            "where a word begins; train it without treat_whitespace_as_suffix"
        )
    return vocabulary
