"""Text to token store and planned rows, beside the public script's plain Python.

    python -m benchmarks.prepare --input FILE [--vocab vocab.txt]

Without ``--vocab`` it is that of the reference files, or one learned from FILE. FILE
is prose: a paragraph a line, blank line between documents. It is split into
sentences once, untimed; both sides read the sentence file. Ours, on all cores and from
an empty cache each time: build the store, plan ``dupe`` traversals at length 128. The
peer, on one core as it is: per-token Python tokenization, the instance builder and
TFRecords, on a slice of the file because it takes seconds a megabyte. Rounds alternate.
The last line is one JSON object.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import plain_tokenizer
from bert_jax.data import (
    building,
    corpus,
    learning,
    public_script,
    rows,
    tf_examples,
    vocabulary,
    workers,
)
from bert_jax.data.vocabulary import TokenizerSpec

LENGTH, PREDICTIONS = 128, 20
# Instances made by the public script, with the text and vocabulary they came from.
REFERENCE = Path(os.environ.get("BERT_JAX_SHARED", "../shared/data"))
OURS = """
import json, resource, sys, time
from pathlib import Path
if __name__ == "__main__":
    from bert_jax.data import building, corpus, rows, store, vocabulary, workers
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spec, vocab, place, cores, dupe = sys.argv[1:6]
    began = time.perf_counter()
    text = corpus.load(spec)
    words = vocabulary.read(Path(vocab), vocabulary.TokenizerSpec())
    building.build(text, words, Path(place), workers.over(int(cores)))
    built = time.perf_counter()
    made = store.open_store(Path(place))
    plans = rows.load_plans(made, rows.RowSpec(128, 0), int(dupe))
    planned = sum(len(plan.label) for plan in plans)
    done = time.perf_counter()
    print(json.dumps({
        "seconds": done - began, "build": built - began, "rows": planned, "base": base,
        "own": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "workers": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
    }))
"""


def ours(spec: str, vocab: Path, dupe: int) -> dict[str, float]:
    """One build and ``dupe`` plans in a fresh process and an empty cache."""
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, "ours.py")
        script.write_text(OURS)
        cores = str(workers.cores())
        done = subprocess.run(
            [sys.executable, str(script), spec, str(vocab), f"{place}/s", cores,
             str(dupe)],
            env={**os.environ, "BERT_JAX_CACHE": f"{place}/cache"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout.strip().splitlines()[-1])


def _documents(lines: list[str], words: dict[str, int]) -> list[list[list[str]]]:
    """Tokenized documents of lines in the 2018 format, by per-token Python."""
    documents: list[list[list[str]]] = [[]]
    for line in lines:
        line = line.strip()
        if not line:
            documents.append([])
        elif tokens := plain_tokenizer.tokenize(line, words):
            documents[-1].append(tokens)
    return [document for document in documents if document]


def peer(
    lines: list[str], words: dict[str, int], dupe: int, out: Path
) -> tuple[float, int]:
    """Seconds and instances of the public script's way on some lines."""
    began = time.perf_counter()
    found = public_script.create_instances_from_documents(
        _documents(lines, words),
        list(words),
        random.Random(12345),
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        masked_lm_prob=0.15,
        short_seq_prob=0.1,
        dupe_factor=dupe,
        do_whole_word_mask=False,
    )
    with open(out, "wb") as file:
        tf_examples.write(found, words, LENGTH, PREDICTIONS, file)
    return time.perf_counter() - began, len(found)


def check_reference(folder: Path) -> int:
    """Checks the peer against instances that the public script made; returns how many.

    Raises:
      AssertionError: they differ, and the peer is not the public script's work.
    """
    seen = 0
    vocab_file = folder / "vocab/bert-base-uncased-vocab.txt"
    text = folder / "pretrain/en/bert_sample_text.txt"
    for path in sorted(folder.glob("reference/pretraining/*.json")):
        reference = json.loads(path.read_text("utf-8"))
        words = vocabulary.read(vocab_file, TokenizerSpec()).tokens
        lines = text.read_text("utf-8").split("\n")
        documents = _documents(lines, {word: i for i, word in enumerate(words)})
        found = public_script.create_instances_from_documents(
            documents,
            words,
            random.Random(reference["random_seed"]),
            do_whole_word_mask=reference.get("do_whole_word_mask", False),
            **{
                name: reference[name]
                for name in (
                    "max_seq_length", "max_predictions_per_seq", "masked_lm_prob",
                    "short_seq_prob", "dupe_factor",
                )
            },
        )  # fmt: skip
        assert [i._asdict() for i in found] == reference["instances"], path
        seen += len(found)
    return seen


def sentence_file(source: Path, target: Path) -> None:
    """The prose of a file as one sentence a line."""
    text = corpus.load(f"text:{source}?documents=blank_line")
    with open(target, "w", encoding="utf-8") as out:
        for document in corpus.documents(text):
            out.writelines(f"{sentence}\n" for sentence in document)
            out.write("\n")


def vocabulary_file(reference: Path, text: Path, work: Path) -> Path:
    """The original's vocabulary where it is, else one of its size from the text."""
    found = reference / "vocab/bert-base-uncased-vocab.txt"
    if not found.is_file():
        source = corpus.load(f"sentences:{text}")
        spec = TokenizerSpec()
        learning.learn_wordpiece(source, 30_522, spec, workers.over()).write(work)
        found = work / "vocab.txt"
    return found


def check(lines: list[str], vocab: vocabulary.Vocabulary) -> None:
    """Both sides' ids agree on the peer's slice.

    Raises:
      AssertionError: they do not, and no figure would mean anything.
    """
    for line in filter(None, (text.strip() for text in lines)):
        plain = plain_tokenizer.tokenize(line, vocab.ids)
        assert [vocab.ids[token] for token in plain] == vocab.encode([line])[0], line


def planning(spec: str, vocab: Path) -> float:
    """Rows planned in a minute by one core at length 128; tokens are not read."""
    with tempfile.TemporaryDirectory() as place:
        words = vocabulary.read(vocab, TokenizerSpec())
        building.build(corpus.load(spec), words, Path(place, "s"), workers.over())
        from bert_jax.data import store

        made = store.open_store(Path(place, "s"))
        (made.directory / "tokens.bin").unlink()  # planning must not need it
        taken, planned = [], 0
        for plan in range(5):
            began = time.process_time()
            planned = len(rows.make_plan(made, rows.RowSpec(LENGTH, 0), plan).label)
            taken.append(time.process_time() - began)
        return planned / statistics.median(taken) * 60


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--vocab", type=Path)
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--slice_mb", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp())
    target = work / "sentences.txt"
    sentence_file(given.input, target)
    size = target.stat().st_size / 1e6
    words = given.vocab or vocabulary_file(given.reference, target, work)
    vocab = vocabulary.read(words, TokenizerSpec())
    with open(target, encoding="utf-8") as file:
        lines = file.readlines(int(given.slice_mb * 1e6))
    slice_mb = sum(len(line.encode()) for line in lines) / 1e6
    check(lines, vocab)
    equal = check_reference(given.reference)
    print(f"the peer equals the public script on {equal} instances of its own")
    spec = f"sentences:{target}"
    found: dict[str, list[float]] = {}
    peak = base = 0.0
    for _ in range(given.rounds):
        for dupe in (1, 5):
            mine = ours(spec, words, dupe)
            seconds, count = peer(lines, vocab.ids, dupe, work / "tfrecord")
            found.setdefault(f"ours{dupe}", []).append(size / mine["seconds"])
            found.setdefault(f"peer{dupe}", []).append(slice_mb / seconds)
            peak = max(peak, mine["own"] + workers.cores() * mine["workers"])
            base = mine["base"]
            print(
                f"dupe {dupe}: ours {size:.1f} MB, {mine['rows']:,.0f} rows in "
                f"{mine['seconds']:.2f} s; peer {slice_mb:.1f} MB, {count:,} "
                f"instances in {seconds:.1f} s"
            )
    rates = {name: statistics.median(values) for name, values in found.items()}
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"this process, with the peer's documents in memory: {own / 1e3:.0f} MB")
    print(json.dumps({
        "mb_per_s_dupe1": round(rates["ours1"], 2),
        "mb_per_s_dupe5": round(rates["ours5"], 2),
        "peer_mb_per_s_dupe1": round(rates["peer1"], 3),
        "peer_mb_per_s_dupe5": round(rates["peer5"], 3),
        "speedup_dupe1": round(rates["ours1"] / rates["peer1"], 1),
        "speedup_dupe5": round(rates["ours5"] / rates["peer5"], 1),
        "rows_per_minute_per_core": round(planning(spec, words)),
        "peak_rss_mb": round(peak / 1e3),  # all processes, each at its worst
        "interpreter_and_libraries_mb": round(base / 1e3),
        "input_mb": round(size, 1),
        "cores": workers.cores(),
        "reference_instances_equal": equal,
        "numpy": np.__version__,
    }))  # fmt: skip
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
