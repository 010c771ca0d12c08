"""The oracle: instances equal to those of the public script of 2018, draw for draw.

The behaviour of ``create_pretraining_data.py`` of github.com/google-research/bert,
which made the data of Devlin et al. 2018 ("BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding"). Equal settings and an equal seed give equal
instances in an equal order. Everything is in memory and on one core, in plain loops
in the order of the script's draws: this is for comparisons, not for large corpora.

Tokens are those of ``bert_jax.data.vocabulary``, which are the script's.
"""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.data import vocabulary

Sentence = Sequence[str]
Document = Sequence[Sentence]

SPECIALS = 3  # [CLS] and two [SEP]
SHORTEST = 2  # tokens of the shortest pair, and of the shortest drawn target
PARTNER_DRAWS = 10  # after that many, B may come from the document of A


class Instance(NamedTuple):
    """One pair of segments with its masks, before ids and padding.

    ``is_random_next`` says that B was drawn. Drawn or not, it may come from the
    document of A when no draw of a document finds another one.
    """

    tokens: list[str]
    segment_ids: list[int]
    is_random_next: bool
    masked_lm_positions: list[int]
    masked_lm_labels: list[str]


def create_instances(
    paths: Iterable[str | Path],
    vocab_file: str | Path,
    *,
    do_lower_case: bool,
    max_seq_length: int,
    max_predictions_per_seq: int,
    masked_lm_prob: float,
    short_seq_prob: float,
    dupe_factor: int,
    random_seed: int,
    do_whole_word_mask: bool,
) -> list[Instance]:
    """Instances of text files, in the script's order.

    Args:
      paths: UTF-8 files in order, one sentence a line, an empty line after a document.
        The end of a file ends no document, as in the script.
      vocab_file: a vocab.txt; its order decides the random replacements.
      do_lower_case: lowercase, and drop accents.
      max_seq_length: most tokens of an instance, special ones included.
      max_predictions_per_seq: most masked positions of an instance.
      masked_lm_prob: share of the tokens to mask.
      short_seq_prob: chance that a document aims at shorter pairs in one pass.
      dupe_factor: passes over the documents.
      random_seed: seed of the one generator behind every draw.
      do_whole_word_mask: mask all pieces of a word or none.

    Returns:
      The instances of all passes, shuffled together.

    Raises:
      ValueError: the vocabulary is missing or unfit, a text is not UTF-8, or
        ``max_seq_length`` has no room for a pair.
      OSError: a text cannot be read.
    """
    spec = vocabulary.TokenizerSpec(do_lower_case)
    vocab = vocabulary.read(Path(vocab_file), spec)
    return create_instances_from_documents(
        read_documents(paths, vocab),
        vocab.tokens,
        random.Random(random_seed),
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_predictions_per_seq,
        masked_lm_prob=masked_lm_prob,
        short_seq_prob=short_seq_prob,
        dupe_factor=dupe_factor,
        do_whole_word_mask=do_whole_word_mask,
    )


def read_documents(
    paths: Iterable[str | Path], vocab: vocabulary.Vocabulary
) -> list[list[list[str]]]:
    """Tokenized documents of text files.

    Args:
      paths: files in order, as for ``create_instances``.
      vocab: the vocabulary and its tokenizer.

    Returns:
      Documents of sentences of tokens; a document may be empty.

    Raises:
      ValueError: a text is not UTF-8.
      OSError: a text cannot be read.
    """
    documents: list[list[list[str]]] = [[]]
    for path in paths:
        # Only "\n" ends a line: str.splitlines would also cut at U+2028 and others.
        lines = _text(Path(path)).split("\n")
        if lines[-1] == "":
            lines.pop()  # what follows the last "\n" is no empty line
        lines = [line.strip() for line in lines]
        for line, ids in zip(lines, vocab.encode(lines), strict=True):
            if not line:
                documents.append([])
            elif ids:
                documents[-1].append([vocab.tokens[number] for number in ids])
    return documents


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line} is not UTF-8 ({error.reason}), and the script stops there "
            "too; mend the file"
        ) from None


def create_instances_from_documents(
    documents: Sequence[Document],
    vocab_words: Sequence[str],
    rng: random.Random,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    masked_lm_prob: float,
    short_seq_prob: float,
    dupe_factor: int,
    do_whole_word_mask: bool,
) -> list[Instance]:
    """Instances of tokenized documents, in the script's order.

    Args:
      documents: documents of sentences of tokens, left as they are. Empty documents
        and empty sentences count for nothing.
      vocab_words: every token in the order of its id.
      rng: the generator behind every draw; it moves on.
      max_seq_length: as for ``create_instances``, like the rest.
      max_predictions_per_seq: most masked positions of an instance.
      masked_lm_prob: share of the tokens to mask.
      short_seq_prob: chance that a document aims at shorter pairs in one pass.
      dupe_factor: passes over the documents.
      do_whole_word_mask: mask all pieces of a word or none.

    Returns:
      The instances of all passes, shuffled together.

    Raises:
      ValueError: ``max_seq_length`` has no room for a pair.
    """
    longest = max_seq_length - SPECIALS
    if longest < SHORTEST:
        raise ValueError(
            f"max_seq_length={max_seq_length} has no room for {SPECIALS} special "
            f"tokens and a pair; use at least {SPECIALS + SHORTEST}"
        )
    full = [[sentence for sentence in document if sentence] for document in documents]
    full = [document for document in full if document]
    rng.shuffle(full)
    instances = []
    for _ in range(dupe_factor):
        for number in range(len(full)):
            target = longest
            # One draw per document and pass; its chunks share the target.
            if rng.random() < short_seq_prob:
                target = rng.randint(SHORTEST, longest)
            at = 0
            while at < len(full[number]):
                a, b, is_random_next, at = _pair(full, number, at, target, rng)
                _truncate(a, b, longest, rng)
                tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
                masked = _mask(
                    tokens,
                    _candidates(tokens, do_whole_word_mask),
                    _count(len(tokens), masked_lm_prob, max_predictions_per_seq),
                    vocab_words,
                    rng,
                )
                instances.append(
                    Instance(
                        tokens,
                        [0] * (len(a) + 2) + [1] * (len(b) + 1),
                        is_random_next,
                        [position for position, _ in masked],
                        [label for _, label in masked],
                    )
                )
    rng.shuffle(instances)
    return instances


def _pair(
    documents: list[list[Sentence]],
    number: int,
    start: int,
    target: int,
    rng: random.Random,
) -> tuple[list[str], list[str], bool, int]:
    """A, B, whether B was drawn, and the sentence at which the next chunk starts."""
    document = documents[number]
    stop, length = start, 0
    while stop < len(document) and length < target:
        length += len(document[stop])
        stop += 1
    sentences = stop - start
    a_end = start + (rng.randint(1, sentences - 1) if sentences > 1 else 1)
    a = _joined(document[start:a_end])
    # A lone sentence has no continuation, so it takes no draw and label 1.
    if sentences > 1 and rng.random() >= 0.5:
        return a, _joined(document[a_end:stop]), False, stop
    b = _drawn(documents, number, target - len(a), rng)
    return a, b, True, a_end  # the unused sentences of the chunk come again


def _drawn(
    documents: list[list[Sentence]], number: int, target: int, rng: random.Random
) -> list[str]:
    """Whole sentences from a drawn place, one even where ``target`` is not positive."""
    other = number
    for _ in range(PARTNER_DRAWS):
        other = rng.randint(0, len(documents) - 1)
        if other != number:
            break
    document = documents[other]
    b: list[str] = []
    for sentence in document[rng.randint(0, len(document) - 1) :]:
        b.extend(sentence)
        if len(b) >= target:
            break
    return b


def _joined(sentences: Iterable[Sentence]) -> list[str]:
    """Tokens of the sentences in one list."""
    return [token for sentence in sentences for token in sentence]


def _truncate(a: list[str], b: list[str], longest: int, rng: random.Random) -> None:
    """Shortens the longer one, B on a tie, by a token of a drawn end until both fit."""
    while len(a) + len(b) > longest:
        longer = a if len(a) > len(b) else b
        del longer[0 if rng.random() < 0.5 else -1]


def _count(length: int, share: float, most: int) -> int:
    """Positions to mask; ``length`` includes specials, and halves round to even."""
    return min(most, max(1, round(length * share)))


def _candidates(tokens: list[str], whole_words: bool) -> list[list[int]]:
    """Positions that are masked together, in order."""
    groups: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        # Not bounded by [SEP]: where truncation left B a piece in front, that piece
        # joins the last word of A.
        if whole_words and groups and token.startswith("##"):
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def _mask(
    tokens: list[str],
    groups: list[list[int]],
    count: int,
    vocab_words: Sequence[str],
    rng: random.Random,
) -> list[tuple[int, str]]:
    """Masks in place; returns positions with their labels, sorted."""
    rng.shuffle(groups)
    masked: list[tuple[int, str]] = []
    for group in groups:
        # A word too long for what is left is passed over; a later one may fit.
        if len(masked) + len(group) > count:
            continue
        for position in group:
            label = tokens[position]
            if rng.random() < 0.8:
                tokens[position] = "[MASK]"
            elif rng.random() >= 0.5:
                tokens[position] = vocab_words[rng.randint(0, len(vocab_words) - 1)]
            masked.append((position, label))
    return sorted(masked)
