"""Is the fast planner the public script? Distributions compared, on the same text.

    python -m benchmarks.fidelity [--corpus SPEC] [--vocab vocab.txt] [--length 128]

Prints a Markdown report: p-values of ``bert_jax.fidelity``, and where the two differ by
design. Without ``--vocab`` a vocabulary is learned.
"""

import argparse
import sys
import time

from bert_jax import fidelity
from bert_jax.data import building, corpus, vocabularies
from bert_jax.data.rows import RowSpec


def main() -> int:
    """Prints the report; the exit status is 1 where a p-value is below 1e-4."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="builtin:python-docs")
    parser.add_argument("--vocab", default="")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    text = corpus.load(options.corpus)
    spec = vocabularies.VocabularySpec(path=options.vocab, size=4000)
    store = building.store_of(text, vocabularies.make(text, spec))
    began = time.perf_counter()
    rows, documents = RowSpec(options.length, options.seed), len(store.documents(False))
    ours = fidelity.of_planner(store, rows, options.passes)
    theirs = fidelity.of_script(store, rows, options.passes)
    found = fidelity.compare(ours, theirs, documents, options.length)
    print(f"# The planner and the public script on {options.corpus}\n")
    print(
        f"Length {options.length}, {options.passes} passes over "
        f"{documents:,} documents: {len(ours.label):,} rows of the planner, "
        f"{len(theirs.label):,} of the script ({time.perf_counter() - began:.0f} s).\n"
    )
    print("| distribution | p |\n|---|---|")
    for name, p in found.items():
        print(f"| {name} | {p:.3g} |")
    print("\nWhere they differ by design:\n")
    for line in fidelity.BY_DESIGN:
        print(f"- {line}")
    return int(min(found.values()) < 1e-4)


if __name__ == "__main__":
    sys.exit(main())
