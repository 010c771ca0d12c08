"""What a person should know before a run, in a line or two each."""

import re
from collections.abc import Iterator

import numpy as np
from ml_collections import ConfigDict

from bert_jax.data import clean, given, report
from bert_jax.setup import Setup

EMBEDDED_NOTICE = (
    "NOTICE  this run trains on the text embedded in Python itself, a stand-in of a "
    "few MB.\n        For a real model give a real corpus, e.g. --corpus "
    "'text:wiki/*.txt' (kinds: sentences:, text:, jsonl:, tfds:)"
)
SMALL_STEP = 1e12  # operations: a step below this is a toy and needs no notice
IDEOGRAPHS = 0.05  # share of the tokens from which whole words are worth a word


def notice(setup: Setup) -> str | None:
    """A plain word where a serious recipe meets the embedded corpus."""
    step = setup.flops_per_row()[0] * setup.curriculum.phases[0].batch_size
    embedded = setup.store.manifest["corpus"]["spec"].startswith("builtin:")
    return EMBEDDED_NOTICE if embedded and step > SMALL_STEP else None


def warnings(config: ConfigDict, setup: Setup) -> Iterator[str]:
    """Warnings about the text of a run, its rows and its masks."""
    yield from report.warnings(setup.store)
    m = config.masks
    if m.kind == "given":
        training, _, dropped = given.sides(setup.store)
        yield (
            f"{training:,} of the given rows train, {dropped:,} are left out: their "
            "random second segment is of a held-out text"
        )
    elif m.max_predictions and m.selection == "exact":
        for number, (length, _, _) in enumerate(config.phases, 1):
            wanted = round(length * m.rate)
            if wanted > m.max_predictions:
                yield (
                    f"phase {number}: a full row of {length} has {wanted} tokens to "
                    f"predict at masks.rate={m.rate}: {wanted} wanted, "
                    f"{m.max_predictions} kept by masks.max_predictions"
                )
    if m.unit != "token":
        share = ideographs(setup)
        if share > IDEOGRAPHS:
            yield (
                f"masks.unit={m.unit}, and {share:.0%} of the tokens are ideographs, "
                "each of which counts as a word of its own; segment the text into "
                "words with another tool, or use masks.unit=token"
            )


def ideographs(setup: Setup) -> float:
    """Share of the training tokens that are one ideograph."""
    one = re.compile(f"(?:##|\u2581)?{clean.IDEOGRAPH}")
    counts = setup.store.token_counts(False)
    tokens = setup.store.vocabulary.tokens
    alone = np.array([one.fullmatch(token) is not None for token in tokens])
    return float(counts[alone].sum() / max(counts.sum(), 1))
