"""The vocabulary of a run, of either kind: read, or learned from training documents."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import sentencepiece
import tokenizers

from bert_jax.data import cache, learning, sentencepieces, vocabulary, workers
from bert_jax.data.corpus import Corpus
from bert_jax.data.sentencepieces import SentencePieceVocabulary
from bert_jax.data.vocabulary import RESERVED, TokenizerSpec, Vocabulary
from bert_jax.data.workers import Run

KINDS = ("wordpiece", "sentencepiece")
AnyVocabulary = Vocabulary | SentencePieceVocabulary


@dataclass(frozen=True)
class VocabularySpec:
    """Which vocabulary; ``path`` names one to read, empty to learn one of ``size``."""

    kind: str = "wordpiece"
    path: str = ""
    size: int = 30522
    tokenizer: TokenizerSpec = TokenizerSpec()  # WordPiece alone
    model_type: str = "unigram"  # SentencePiece: unigram | bpe
    rule: str = "nmt_nfkc"  # SentencePiece: normalisation
    seed: int = 0  # SentencePiece: of the sample of sentences


def read(spec: VocabularySpec) -> AnyVocabulary:
    """The vocabulary of the file that a spec names.

    Raises:
      ValueError: the file will not do.
    """
    if spec.kind == "sentencepiece":
        return sentencepieces.read(Path(spec.path))
    return vocabulary.read(Path(spec.path), spec.tokenizer)


def reserved_ids(vocab: AnyVocabulary) -> tuple[int, ...]:
    """Ids that are no words, sorted: [PAD] to [MASK], and [unusedN] (case P14)."""
    return tuple(
        sorted(
            number
            for token, number in vocab.ids.items()
            if token in RESERVED or token.startswith("[unused")
        )
    )


def make(corpus: Corpus, spec: VocabularySpec, run: Run | None = None) -> AnyVocabulary:
    """The vocabulary of a spec; a learned one comes from the cache where it is there.

    Raises:
      ValueError: the file will not do, or the size cannot be learned from this text.
    """
    if spec.path:
        return read(spec)
    if corpus.sources[0].kind == "tfrecord":
        raise ValueError(
            f"{corpus.spec} holds token ids, no text to learn a vocabulary from; give "
            "the vocab.txt it was built with (--vocab)"
        )

    def build(directory: Path) -> None:
        work = run or workers.over()
        if spec.kind == "sentencepiece":
            _learn_pieces(corpus, spec, work).write(directory)
        else:
            learned = learning.learn_wordpiece(corpus, spec.size, spec.tokenizer, work)
            learned.write(directory)

    library = sentencepiece if spec.kind == "sentencepiece" else tokenizers
    key = cache.digest(corpus.identity, astuple(spec), library.__version__)
    return open_directory(cache.entry("vocabularies", key, build))


def _learn_pieces(
    corpus: Corpus, spec: VocabularySpec, run: Run
) -> SentencePieceVocabulary:
    from bert_jax.data import piece_learning

    learned, report = piece_learning.learn(
        learning.training_sentences(corpus, run),
        spec.size,
        model_type=spec.model_type,
        rule=spec.rule,
        seed=spec.seed,
    )
    print(f"SentencePiece {spec.model_type}, rule {spec.rule}: {report}")
    return learned


def open_directory(directory: Path) -> AnyVocabulary:
    """The vocabulary a directory was written with, and its settings.

    Raises:
      ValueError: it is missing, or a file in it will not do.
    """
    path = directory / "settings.json"
    if not path.is_file():
        raise ValueError(f"{directory} holds no vocabulary: it has no settings.json")
    settings = cache.read_json(path)
    if settings["kind"] == "sentencepiece":
        return sentencepieces.read(directory / "tokenizer.model")
    spec = TokenizerSpec(settings["lowercase"], settings["strip_accents"])
    return vocabulary.read(directory / "vocab.txt", spec)


class PieceTable:
    """Encodes blocks of sentences with a SentencePiece model."""

    def __init__(self, pieces: SentencePieceVocabulary):
        self.vocabulary = pieces

    def encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all sentences in a row, and how many each has (int64)."""
        encoded = self.vocabulary.encode(sentences)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        flat: Iterator[int] = (i for ids in encoded for i in ids)
        ids = np.fromiter(flat, self.vocabulary.dtype(), int(lengths.sum()))
        return ids, lengths
