"""What a run read at any step, again: rows, masks and labels, in words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_jax import draws, setup, step
from bert_jax.batch import Batch
from bert_jax.corruption import MASKED, RANDOMED, Targets
from bert_jax.data.stream import Address
from bert_jax.objectives import rule_of
from bert_jax.rundir import Refusal, RunDirectory
from bert_jax.setup import Setup

RED, YELLOW, GREEN, PLAIN = "\033[31m", "\033[33m", "\033[32m", "\033[0m"
LABELS = {
    "next_sentence": ("the actual next", "a random segment"),
    "sentence_order": ("in order", "swapped"),
}


@dataclass(frozen=True)
class Replay:
    """The global batch of one step as the model saw it; arrays are numpy."""

    step: int
    phase: int
    address: Address
    batch: Batch
    tokens_BT: np.ndarray  # corrupted
    targets: Targets
    setup: Setup

    def row(self, number: int, color: bool = False) -> str:
        """A row in words: segments, what is predicted, labels."""
        batch = self.batch
        plan = self.setup.curriculum.phases[self.phase]
        lines = []
        for pair in range(batch.starts_BP.shape[1]):
            if self.address.rows[number, pair] < 0:
                continue
            at = np.flatnonzero(batch.pairs_BT[number] == pair + 1)
            where = (
                f"row {number}: plan {self.address.plans[number, pair]} row "
                f"{self.address.rows[number, pair]}, read "
                f"{self.address.reads[number, pair]} times before, {len(at)} tokens"
            )
            names = LABELS.get(plan.spec.rows.pair_label)
            if names and batch.weight_BP[number, pair]:
                label = int(batch.label_BP[number, pair])
                where += f", label {label} ({names[label]})"
            lines += [where, *self._segments(number, at, color)]
        return "\n".join(lines)

    def _segments(self, number: int, at: np.ndarray, color: bool) -> list[str]:
        batch, targets = self.batch, self.targets
        used = targets.weights_BK[number] > 0
        slots = {
            int(place): slot
            for slot, place in enumerate(targets.positions_BK[number])
            if used[slot]
        }
        names = self.setup.store.vocabulary.tokens
        lines = []
        for segment, letter in ((0, "A"), (1, "B")):
            words = []
            for place in at[batch.segments_BT[number, at] == segment].tolist():
                seen = names[self.tokens_BT[number, place]]
                if place not in slots:
                    words.append(seen)
                    continue
                slot = slots[place]
                label = names[targets.labels_BK[number, slot]]
                kind = int(targets.kinds_BK[number, slot])
                paint, text = GREEN, f"{{kept:{label}}}"
                if kind == MASKED:
                    paint, text = RED, f"{{{seen}:{label}}}"
                elif kind == RANDOMED:
                    paint, text = YELLOW, f"{{random {seen}:{label}}}"
                words.append(f"{paint}{text}{PLAIN}" if color else text)
            if words:
                lines.append(f"  {letter} {' '.join(words)}")
        return lines


def open_run(directory: str, corpus: str = "") -> tuple[Setup, Any]:
    """The rows of a run, and its configuration.

    Args:
      directory: of the run.
      corpus: where its text is, if not where it was.

    Raises:
      Refusal: no run there, or the corpus is other text.
    """
    place = RunDirectory(directory)
    config = place.config()
    if config is None:
        raise Refusal(f"{directory} holds no run: it has no config.json")
    if corpus:
        config.corpus = corpus
    if not config.corpus.startswith("store:"):
        # Its own copy: the file it was read from may be gone, or learned from text.
        wordpiece = config.vocabulary.kind == "wordpiece"
        name = "vocab.txt" if wordpiece else "tokenizer.model"
        config.vocabulary.path = str(place.path / "tokenizer" / name)
    setup.adopt_vocabulary(config)
    tokens = setup.prepare_store(config)
    if tokens.content != place.data():
        raise Refusal(
            f"{directory} trained on store {place.data()}, {config.corpus} gives "
            f"{tokens.content}; name the corpus it trained on with --corpus"
        )
    return setup.make(config, tokens, 1), config


def replay(plan: Setup, number: int) -> Replay:
    """The batch of step ``number``, counted from 1.

    Raises:
      Refusal: the run has no such step.
    """
    if not 1 <= number <= plan.total_steps:
        raise Refusal(f"step {number} is outside 1 .. {plan.total_steps:,}")
    curriculum = plan.curriculum
    phase = curriculum.phase_of(number - 1)
    spec = plan.steps[phase]
    batch = curriculum.batch(number - 1, range(curriculum.phases[phase].batch_size))
    tokens_BT, targets = step.corrupt(
        batch,
        spec.masks,
        spec.length,
        spec.seed,
        draws.Stream.MASKS,
        rule_of(name for name, _ in spec.objectives),
    )
    return Replay(
        number,
        phase,
        curriculum.address(number - 1),
        batch,
        np.asarray(tokens_BT),
        Targets(*(np.asarray(field) for field in targets)),
        plan,
    )
