"""Text to a token store, with bounded memory, on all cores; started again it goes on.

    python launch/prepare.py --corpus 'text:wiki/*.txt' --out DIR
    python launch/prepare.py --corpus 'jsonl:c4/*.json.gz?field=text' --out DIR \\
        --vocab vocab.txt
    python launch/prepare.py --corpus SPEC --out DIR --learn_vocab --size 30522
    python launch/prepare.py --corpus SPEC --out DIR --beam_runner DataflowRunner \\
        --beam_parts gs://bucket/parts --beam_options '--project=P --region=R'
    python launch/prepare.py --verify DIR

A training run reads a store with --corpus store:DIR, and makes one by itself from any
other corpus spec.
"""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import _command
from absl import flags

if TYPE_CHECKING:
    from bert_jax.data.corpus import Corpus

CORPUS = flags.DEFINE_string("corpus", "", "Corpus spec; bert_jax/data/sources.py.")
OUT = flags.DEFINE_string("out", "", "Directory of the store; made when it is whole.")
VOCAB = flags.DEFINE_string("vocab", "", "vocab.txt or .model; default: learn one.")
KIND = flags.DEFINE_enum("kind", "wordpiece", ["wordpiece", "sentencepiece"], "")
MODEL_TYPE = flags.DEFINE_enum(
    "model_type", "unigram", ["unigram", "bpe"], "Of SentencePiece."
)
RULE = flags.DEFINE_string("rule", "nmt_nfkc", "Normalisation of SentencePiece.")
LEARN = flags.DEFINE_bool("learn_vocab", False, "Learn one and write it to OUT only.")
SIZE = flags.DEFINE_integer("size", 30522, "Tokens of a learned vocabulary.")
CASED = flags.DEFINE_bool("cased", False, "Keep capital letters.")
ACCENTS = flags.DEFINE_enum(
    "strip_accents", "auto", ["auto", "yes", "no"], "auto: as lowercasing does."
)
WORKERS = flags.DEFINE_integer("workers", 0, "Processes; 0 = one a core.")
RUNNER = flags.DEFINE_string(
    "beam_runner", "", "Work on Apache Beam, e.g. on Dataflow."
)
PARTS = flags.DEFINE_string("beam_parts", "", "Where Beam's workers leave parts.")
OPTIONS = flags.DEFINE_string("beam_options", "", "Flags of the Beam pipeline.")
STRICT = flags.DEFINE_bool("strict", False, "Stop at the first bad line.")
DROP = flags.DEFINE_bool("drop_duplicates", False, "Keep one of equal documents.")
VERIFY = flags.DEFINE_string("verify", "", "Check the hashes of a store.")
PLAN = flags.DEFINE_bool("plan", False, "Show what would be read; write nothing.")


def _verify(directory: Path) -> None:
    from bert_jax.data import store

    opened = store.open_store(directory)
    damaged = store.verify(directory)
    if damaged:
        raise ValueError(
            f"{directory} is damaged: {', '.join(damaged)} not as written; make the "
            "store again"
        )
    print(f"{directory} is whole: store {opened.content}")


def _check_flags(out: Path) -> None:
    """Refuses a place that cannot be made, and numbers that make no sense."""
    in_the_way = next(
        (p for p in (out, *out.absolute().parents) if p.exists() and not p.is_dir()),
        None,
    )
    if in_the_way is not None:
        raise ValueError(f"--out {out}: {in_the_way} is a file; give another place")
    if WORKERS.value < 0:
        raise ValueError(f"--workers {WORKERS.value} is below 0; 0 is one a core")
    if LEARN.value and VOCAB.value:
        raise ValueError(
            "--learn_vocab learns a vocabulary and --vocab brings one; leave one out"
        )


def _prepare(text: "Corpus", out: Path) -> None:
    from bert_jax.data import building, report, store, vocabularies, workers
    from bert_jax.data.vocabulary import TokenizerSpec

    began = time.perf_counter()
    processes = WORKERS.value or workers.cores()
    parts_at = PARTS.value or f"{out}.parts"
    run = workers.over(processes)
    if RUNNER.value:
        from bert_jax.data.beam import Beam

        run = Beam(RUNNER.value, parts_at, tuple(shlex.split(OPTIONS.value))).run
    strip = {"auto": None, "yes": True, "no": False}[ACCENTS.value]
    spec = vocabularies.VocabularySpec(
        kind=KIND.value,
        path=VOCAB.value,
        size=SIZE.value,
        tokenizer=TokenizerSpec(not CASED.value, strip),
        model_type=MODEL_TYPE.value,
        rule=RULE.value,
    )
    vocab = vocabularies.make(text, spec, run)
    if LEARN.value:
        vocab.write(out)
        print(report.vocabulary(vocab, text))
        print(f"\nvocabulary {vocab.digest()[:16]} of {len(vocab):,} tokens in {out}")
        return
    building.build(text, vocab, out, run, STRICT.value, DROP.value, parts_at)
    made = store.open_store(out)
    (out / "provenance.md").write_text(report.markdown(made), "utf-8")
    print(report.table(made))
    seconds = time.perf_counter() - began
    rate = made.manifest["corpus"]["bytes"] / 1e6 / seconds
    where = RUNNER.value or f"{processes} core(s)"
    print(f"\n{out}: {seconds:.1f} s, {rate:.1f} MB/s on {where}")


def body(argv: list[str]) -> None:
    """Reads the flags; makes or checks a store."""
    _command.parse_flags(argv)
    from bert_jax.data import corpus, report

    try:
        if VERIFY.value:
            _verify(Path(VERIFY.value))
            return
        if not CORPUS.value or not (OUT.value or PLAN.value):
            raise ValueError("--corpus SPEC and --out DIR are both needed")
        _check_flags(Path(OUT.value or "."))
        text = corpus.load(CORPUS.value)
        print(report.listing(text))
        if not PLAN.value:
            _prepare(text, Path(OUT.value))
    except ValueError as error:
        raise _command.Refusal(str(error)) from error


if __name__ == "__main__":
    _command.main(body)
