"""Learning SentencePiece pieces from a bounded, seeded sample of a corpus.

Kudo & Richardson 2018 (arXiv 1808.06226); unigram: Kudo 2018 (arXiv 1804.10959); bpe:
Sennrich et al. 2016 (arXiv 1508.07909).
"""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import sentencepiece

from bert_jax.data import order
from bert_jax.data.sentencepieces import MODEL_TYPES, SentencePieceVocabulary
from bert_jax.data.vocabulary import RESERVED

RULES = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
LONGEST_SENTENCE = 4192  # bytes of UTF-8; the trainer's own limit
_REFUSED = "\u2585".encode()  # the trainer drops sentences that hold it
_STREAM = 0x5350  # keeps the draws of the sample apart from others with its seed
_BLOCK = 8192  # draws made at a time


@dataclass(frozen=True)
class LearnReport:
    """What became of the sentences: read, learned from, and left out.

    ``skipped`` ones are blank or hold U+2585, which the trainer keeps for itself.
    """

    read: int
    used: int
    too_long: int
    skipped: int

    def __str__(self) -> str:
        return (
            f"{self.read:,} sentences read, {self.used:,} used, {self.too_long:,} too "
            f"long, {self.skipped:,} blank or with U+2585"
        )


class _Lines:
    """Sentences the trainer would take, as UTF-8; the others are counted."""

    def __init__(self, texts: Iterable[str], longest: int) -> None:
        self.texts, self.longest = texts, longest
        self.read = self.too_long = self.skipped = 0

    def __iter__(self) -> Iterator[bytes]:
        for text in self.texts:
            self.read += 1
            line = text.strip().encode("utf-8", "replace")
            if len(line) > self.longest:
                self.too_long += 1
            elif not line or _REFUSED in line:
                self.skipped += 1
            else:
                yield line


def _reservoir(lines: Iterable[bytes], room: int, seed: int) -> list[bytes]:
    """At most ``room`` lines, each with the same chance (Vitter 1985, algorithm R).

    Each draw is addressed by the seed and the number of its line.
    """
    kept: list[bytes] = []
    places: list[int] = []
    for number, line in enumerate(lines):
        if number < room:
            kept.append(line)
            continue
        at = (number - room) % _BLOCK
        if at == 0:
            numbers = np.arange(number, number + _BLOCK)
            places = order.below(numbers + 1, seed, _STREAM, numbers).tolist()
        if places[at] < room:
            kept[places[at]] = line
    return kept


def _refusal(message: str, size: int, sentences: int) -> str:
    """The trainer's complaint in the words of a setting and its remedy."""
    few = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if few:
        return (
            f"vocabulary.size={size} is smaller than the reserved pieces and the "
            f"alphabet of this text ({few[1]} together); use at least {few[1]}"
        )
    many = re.search(r"too high \(\d+\)\..*<= (\d+)", message)
    if many:
        return (
            f"vocabulary.size={size} is more than the {many[1]} pieces that this text "
            f"allows; use at most {many[1]}, or more text"
        )
    reason = " ".join(message.split())
    return (
        f"SentencePiece cannot learn vocabulary.size={size} pieces from {sentences} "
        f"sentences ({reason}); use another size or other text"
    )


def learn(
    texts: Iterable[str],
    size: int,
    *,
    model_type: str = "unigram",
    rule: str = "nmt_nfkc",
    seed: int = 0,
    sample: int = 2_000_000,
    longest: int = LONGEST_SENTENCE,
    coverage: float = 0.9995,
    byte_fallback: bool = False,
) -> tuple[SentencePieceVocabulary, LearnReport]:
    """Learns pieces from a random sample; equal text and seed give equal bytes.

    One trainer thread and a sorted sample leave the trainer no freedom. Memory is
    that of the sample, however long the text. Sources: Kudo & Richardson 2018;
    unigram, Kudo 2018; bpe, Sennrich et al. 2016.

    Args:
      texts: sentences, read once; fewer than 2**32.
      size: pieces, the reserved ones included.
      model_type: unigram or bpe.
      rule: the normalisation stored in the model; identity leaves characters alone.
      seed: of the sample.
      sample: sentences to learn from, at most.
      longest: bytes of UTF-8; longer sentences are left out and counted.
      coverage: share of the text's characters that the alphabet must hold.
      byte_fallback: 256 more pieces, so that a rare character is bytes and not [UNK].

    Returns:
      The vocabulary, and what became of the sentences.

    Raises:
      ValueError: an unknown setting, a size that this text does not allow, no text.
    """
    if model_type not in MODEL_TYPES:
        raise ValueError(f"model type {model_type!r} is none of {MODEL_TYPES}")
    if rule not in RULES:
        raise ValueError(f"normalisation rule {rule!r} is none of {RULES}")
    if sample < 1:
        raise ValueError(f"a sample of {sample} sentences teaches nothing; use more")
    if size <= len(RESERVED):
        raise ValueError(
            f"vocabulary.size={size} holds no more than the {len(RESERVED)} reserved "
            "pieces; use more"
        )
    lines = _Lines(texts, longest)
    sentences = _reservoir(lines, sample, seed)
    report = LearnReport(lines.read, len(sentences), lines.too_long, lines.skipped)
    if not sentences:
        raise ValueError(f"no text to learn a vocabulary from: {report}")
    sentences.sort()
    model = io.BytesIO()
    pad, unknown, *control = RESERVED
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=model_type,
            vocab_size=size,
            normalization_rule_name=rule,
            character_coverage=coverage,
            byte_fallback=byte_fallback,
            max_sentence_length=longest,
            input_sentence_size=0,
            shuffle_input_sentence=False,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=pad,
            unk_piece=unknown,
            control_symbols=control,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        message = _refusal(str(error), size, len(sentences))
        raise ValueError(message) from None
    return SentencePieceVocabulary(model.getvalue()), report
