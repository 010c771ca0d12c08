"""WordPiece: the vocabulary, read or learned, and the text -> ids of the 2018 code.

The ids are those of Google's tokenization.py. Where the tokenizers library differs from
it, the difference is closed here: private-use characters are kept, the whole of CJK
Extension E is set apart, and a word-final capital sigma is lower-cased to its final
form. Words of up to 200 characters are cut into pieces.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from bert_jax.data import cache, clean

RESERVED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIGMA = "\u03a3"
LONGEST_WORD = 200  # characters; a longer word is [UNK]
RAREST_CHARACTER = 2  # learned alphabets leave out characters seen less often


@dataclass(frozen=True)
class TokenizerSpec:
    """Settings of the original tokenizer.

    ``strip_accents`` None ties accents to lowercasing, as the 2018 code does.
    """

    lowercase: bool = True
    strip_accents: bool | None = None

    def normalizer(self) -> normalizers.Normalizer:
        """Clean-up of control characters, accents, case."""
        return normalizers.Sequence(
            [
                # The library's own clean-up drops private-use characters too.
                normalizers.Replace(tokenizers.Regex(clean.NO_TEXT), ""),
                normalizers.BertNormalizer(
                    clean_text=False,
                    handle_chinese_chars=False,
                    strip_accents=self.strip_accents,
                    lowercase=self.lowercase,
                ),
            ]
        )

    def splitter(self) -> pre_tokenizers.PreTokenizer:
        """Words: parted by white space, punctuation and ideographs alone."""
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(clean.IDEOGRAPH), "isolated"),
                pre_tokenizers.BertPreTokenizer(),
            ]
        )

    def prepare(self, text: str) -> str:
        """Final capital sigmas lower-cased as Python does; no character moves."""
        if not self.lowercase or SIGMA not in text:
            return text
        return "".join(map(_lower_sigmas, re.split(r"(\s+)", text)))


def _lower_sigmas(word: str) -> str:
    for at in (n for n, character in enumerate(word) if character == SIGMA):
        lowered = word.lower()[len(word[:at].lower())]
        word = word[:at] + lowered + word[at + 1 :]
    return word


@dataclass(frozen=True)
class Vocabulary:
    """An ordered list of tokens with the settings of its tokenizer."""

    tokens: tuple[str, ...]
    spec: TokenizerSpec

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id."""
        return {token: number for number, token in enumerate(self.tokens)}

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        """Text to ids and nothing else: no [CLS], and reserved tokens are not added.

        Not added means that "[MASK]" in corpus text is punctuation and a word, so
        reserved ids other than [UNK] cannot come from text.
        """
        model = models.WordPiece(
            self.ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD
        )
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.normalizer = self.spec.normalizer()
        tokenizer.pre_tokenizer = self.spec.splitter()
        return tokenizer

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Ids of each sentence."""
        prepared = [self.spec.prepare(sentence) for sentence in sentences]
        encoded = self.tokenizer.encode_batch_fast(prepared, add_special_tokens=False)
        return [e.ids for e in encoded]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each id of a text comes from: characters of the untouched input."""
        prepared = self.spec.prepare(text)
        return self.tokenizer.encode(prepared, add_special_tokens=False).offsets

    @cached_property
    def word_starts(self) -> np.ndarray:
        """bool [V]: True where a piece begins a word."""
        return np.array([not token.startswith("##") for token in self.tokens])

    def digest(self) -> str:
        """Hash of the tokens and the settings."""
        return cache.digest(self.tokens, self.spec.lowercase, self.spec.strip_accents)

    def dtype(self) -> np.dtype:
        """Smallest of uint16 and uint32 that holds every id."""
        return np.dtype(np.uint16 if len(self) <= 2**16 else np.uint32)

    def write(self, directory: Path) -> None:
        """vocab.txt, and settings.json beside it."""
        directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{token}\n" for token in self.tokens)
        cache.write_text(directory / "vocab.txt", text)
        settings = {
            "kind": "wordpiece",
            "lowercase": self.spec.lowercase,
            "strip_accents": self.spec.strip_accents,
            "longest_word": LONGEST_WORD,
        }
        cache.write_json(directory / "settings.json", settings)


def read(path: Path, spec: TokenizerSpec) -> Vocabulary:
    """A vocabulary from a vocab.txt, one token a line.

    Raises:
      ValueError: no such file, a reserved token is missing, or a token occurs twice.
    """
    if not path.is_file():
        raise ValueError(f"vocabulary {path} is missing; give a vocab.txt, or none")
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"vocabulary {path} is not text ({error.reason}); give a vocab.txt, one "
            "token a line"
        ) from None
    if lines[-1] == "":
        lines.pop()
    tokens = tuple(line.removesuffix("\r") for line in lines)
    missing = [token for token in RESERVED if token not in tokens]
    if missing:
        raise ValueError(
            f"vocabulary {path} has no {', '.join(missing)}; BERT needs each of "
            f"{', '.join(RESERVED)} on a line of its own"
        )
    twice = [token for token, count in Counter(tokens).items() if count > 1]
    if twice:
        numbers = [n for n, token in enumerate(tokens, 1) if token == twice[0]]
        raise ValueError(
            f"vocabulary {path} holds {twice[0]!r} more than once (lines "
            f"{' and '.join(map(str, numbers[:2]))}; {len(twice)} such tokens); each "
            "line must be its own token"
        )
    return Vocabulary(tokens, spec)


def count_words(texts: Iterable[str], spec: TokenizerSpec) -> Counter[str]:
    """Counts of words as the tokenizer sees them."""
    normalizer, splitter = spec.normalizer(), spec.splitter()
    counts: Counter[str] = Counter()
    for text in texts:
        normal = normalizer.normalize_str(spec.prepare(text))
        counts.update(word for word, _ in splitter.pre_tokenize_str(normal))
    return counts


def learn(counts: Counter[str], size: int, spec: TokenizerSpec) -> Vocabulary:
    """Learns a WordPiece vocabulary; equal counts give equal bytes in any process.

    The library's trainer numbers the alphabet in hash order, which differs from
    process to process and decides ties. Seeded with the reserved tokens, the sorted
    alphabet and the sorted ``##`` alphabet as its special tokens, it has no freedom
    left; only its list of tokens is kept.

    Raises:
      ValueError: ``size`` does not hold the reserved tokens and the alphabet.
    """
    first: Counter[str] = Counter()
    later: Counter[str] = Counter()
    for word, count in counts.items():
        if len(word) <= LONGEST_WORD:
            first[word[0]] += count
            for character in word[1:]:
                later[f"##{character}"] += count
    seen = first + Counter({piece[2:]: count for piece, count in later.items()})
    usual = {c for c, count in seen.items() if count >= RAREST_CHARACTER}
    pieces = sorted(p for p in later if p[2:] in usual)
    # The trainer drops a character from a word unless it is there without ## as well.
    seeds = [*RESERVED, *sorted(usual), *pieces]
    if size < len(seeds):
        raise ValueError(
            f"vocabulary.size={size} is smaller than the {len(RESERVED)} reserved "
            f"tokens and the alphabet of this text ({len(seeds)} together); use more"
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=seeds,
        limit_alphabet=0,
        show_progress=False,
        continuing_subword_prefix="##",
    )
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    usable = sorted((w, n) for w, n in counts.items() if set(w) <= usual)
    trained.train_from_iterator(_repeated(usable), trainer)
    ids = trained.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=lambda token: ids[token])), spec)


def _repeated(words: list[tuple[str, int]]) -> Iterator[str]:
    """Each word as often as it was counted, in blocks of text."""
    for word, count in words:
        while count > 0:
            block = min(count, 1000)
            yield " ".join([word] * block)
            count -= block
