"""The planner has the public script's distributions, and a broken one has not."""

import numpy as np
import pytest

from bert_jax import fidelity
from bert_jax.data import building, corpus, order, pairs, vocabularies
from bert_jax.data.rows import RowSpec

SPEC, PASSES = RowSpec(64, seed=3), 4
ROWS = 20_000


@pytest.fixture(scope="module")
def prose(cache):
    """The text that ships with Python, as the smoke experiment tokenizes it."""
    text = corpus.load("builtin:python-docs")
    spec = vocabularies.VocabularySpec(size=2000)
    return building.store_of(text, vocabularies.make(text, spec))


@pytest.fixture(scope="module")
def script(prose):
    """The script's rows, made once."""
    return fidelity.of_script(prose, SPEC, PASSES)


def compare(store, script):
    ours = fidelity.of_planner(store, SPEC, PASSES)
    assert min(len(ours.label), len(script.label)) >= ROWS
    return fidelity.compare(ours, script, len(store.documents(False)), SPEC.length)


def test_the_planner_has_the_scripts_distributions(prose, script):
    found = compare(prose, script)
    assert len(found) == 8 and min(found.values()) > 1e-4, found


def broken_targets(monkeypatch):
    """The target is drawn for each row, as some rewritings of the script do."""
    turn, random = pairs._one_turn, np.random.default_rng(0)

    def redrawn(bounds, documents, first, last, begin, target, live, spec, plan):
        room = spec.length - pairs.SPECIALS
        short = random.random(len(live)) < spec.short_seq_prob
        target = np.where(short, random.integers(2, room + 1, len(live)), room)
        return turn(bounds, documents, first, last, begin, target, live, spec, plan)

    monkeypatch.setattr(pairs, "_one_turn", redrawn)
    return "rows, and rows with a random second segment"


def broken_rewind(monkeypatch):
    """Sentences that a random segment displaced are lost."""
    turn = pairs._one_turn

    def onward(bounds, documents, first, last, begin, target, live, spec, plan):
        row, _ = turn(bounds, documents, first, last, begin, target, live, spec, plan)
        stop = np.searchsorted(bounds, bounds[begin] + target, "left")
        return row, np.minimum(np.maximum(stop, begin + 1), last[live])

    monkeypatch.setattr(pairs, "_one_turn", onward)
    return "rows, and rows with a random second segment"


def broken_truncation(monkeypatch):
    """A is cut where both are equally long."""
    cut = pairs.truncate

    def other(columns, room, spec, plan):
        swapped = columns._replace(
            length_a=columns.length_b, length_b=columns.length_a,
            start_a=columns.start_b, start_b=columns.start_a,
        )  # fmt: skip
        made = cut(swapped, room, spec, plan)
        back = np.arange(len(made.start)).reshape(-1, 2)[:, ::-1].ravel()
        return made._replace(length=made.length[back], start=made.start[back])

    monkeypatch.setattr(pairs, "truncate", other)
    return "truncated rows: lengths of A by label"


def broken_partners(monkeypatch):
    """A random second segment always begins a document."""
    below = order.below

    def fixed(n, *address):
        drawn = below(n, *address)
        return drawn * 0 if address[-1] == pairs.Draw.START else drawn

    monkeypatch.setattr(order, "below", fixed)
    return "lengths of B"


@pytest.mark.parametrize(
    "break_it", [broken_targets, broken_rewind, broken_truncation, broken_partners]
)
def test_a_broken_planner_has_not(prose, script, monkeypatch, break_it):
    name = break_it(monkeypatch)
    found = compare(prose, script)
    assert found[name] < 1e-4, found
