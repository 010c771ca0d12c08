"""The data builder of 2018, draw for draw, under its own flag names.

    python launch/public_script.py --input_file 'text/*.txt' --vocab_file vocab.txt \\
        --output_file data.tfrecord --max_seq_length 128 --max_predictions_per_seq 20

Reads a sentence a line with an empty line after each document; writes the records that
the public script (create_pretraining_data.py of github.com/google-research/bert) writes
for the same flags. Everything is in memory and on one core: it is the oracle, for
comparisons. Train on its rows and masks with

    python launch/tpu_pod.py --exp NAME --corpus tfrecord:data.tfrecord \\
        --vocab vocab.txt --config.rows.format=given --config.masks.kind=given
"""

import contextlib
import glob
import time
from pathlib import Path

import _command
from absl import flags

INPUT = flags.DEFINE_list("input_file", [], "Text files or patterns, with commas.")
OUTPUT = flags.DEFINE_list("output_file", [], "TFRecord files, with commas.")
VOCAB = flags.DEFINE_string("vocab_file", "", "vocab.txt.")
LOWER = flags.DEFINE_bool("do_lower_case", True, "Lowercase, and drop accents.")
WHOLE = flags.DEFINE_bool("do_whole_word_mask", False, "All pieces of a word or none.")
LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Tokens of a row, with specials.")
MOST = flags.DEFINE_integer("max_predictions_per_seq", 20, "Masked positions, at most.")
SEED = flags.DEFINE_integer("random_seed", 12345, "Of every draw.")
DUPE = flags.DEFINE_integer("dupe_factor", 10, "Passes, each with masks of its own.")
RATE = flags.DEFINE_float("masked_lm_prob", 0.15, "Share of tokens to mask.")
PLAN = flags.DEFINE_bool("plan", False, "Show what would be read; write nothing.")
SHORT = flags.DEFINE_float("short_seq_prob", 0.1, "Documents with a short target.")


def _inputs() -> list[str]:
    """Files in the order of the patterns; within one, sorted.

    The script leaves that order to the file system, and so its draws.
    """
    found: list[str] = []
    for pattern in INPUT.value:
        matches = [name for name in sorted(glob.glob(pattern)) if Path(name).is_file()]
        if not matches:
            raise _command.Refusal(f"--input_file: no file matches {pattern!r}")
        found += matches
    return found


def _check_flags() -> None:
    """Refuses numbers that make no rows, and places that cannot be written."""
    for flag, least in ((LENGTH, 5), (MOST, 1), (DUPE, 1)):
        if flag.value < least:
            raise _command.Refusal(f"--{flag.name}={flag.value} is below {least}")
    for flag in (RATE, SHORT):
        if not 0 <= flag.value <= 1:
            raise _command.Refusal(f"--{flag.name}={flag.value} is outside 0 .. 1")
    outputs = [Path(name).absolute() for name in OUTPUT.value]
    if len(set(outputs)) < len(outputs):
        raise _command.Refusal("--output_file names a file twice")
    for path in outputs:
        if path.is_dir():
            raise _command.Refusal(f"--output_file {path} is a directory")
        for parent in path.parents:
            if parent.exists() and not parent.is_dir():
                raise _command.Refusal(f"--output_file {path}: {parent} is a file")


def body(argv: list[str]) -> None:
    """Reads the flags; writes records."""
    _command.parse_flags(argv)
    from bert_jax.data import public_script, tf_examples, vocabulary

    if not INPUT.value or not OUTPUT.value or not VOCAB.value:
        raise _command.Refusal(
            "--input_file, --output_file and --vocab_file are all needed"
        )
    began = time.perf_counter()
    _check_flags()
    wanted = round(LENGTH.value * RATE.value)
    if wanted > MOST.value:
        print(
            f"warning: a full row has {wanted} tokens to predict at masked_lm_prob "
            f"{RATE.value}: {wanted} wanted, {MOST.value} kept by "
            f"--max_predictions_per_seq; use {wanted}"
        )
    inputs = _inputs()
    size = sum(Path(name).stat().st_size for name in inputs)
    print(
        f"{len(inputs)} file(s), {size / 1e6:,.2f} MB of text, all in memory on one "
        f"core -> {', '.join(OUTPUT.value)}"
    )
    if PLAN.value:
        return
    try:
        found = public_script.create_instances(
            inputs,
            VOCAB.value,
            do_lower_case=LOWER.value,
            max_seq_length=LENGTH.value,
            max_predictions_per_seq=MOST.value,
            masked_lm_prob=RATE.value,
            short_seq_prob=SHORT.value,
            dupe_factor=DUPE.value,
            random_seed=SEED.value,
            do_whole_word_mask=WHOLE.value,
        )
        words = vocabulary.read(
            Path(VOCAB.value), vocabulary.TokenizerSpec(LOWER.value)
        )
    except (OSError, ValueError) as error:
        raise _command.Refusal(str(error)) from error
    if not found:
        raise _command.Refusal(f"no document with text in {', '.join(inputs)}")
    outputs = [Path(name) for name in OUTPUT.value]
    with contextlib.ExitStack() as stack:
        # Each file gets its final name when all are whole.
        parts = [path.with_name(f".{path.name}.part") for path in outputs]
        for path in outputs:
            path.parent.mkdir(parents=True, exist_ok=True)
        files = [stack.enter_context(open(part, "wb")) for part in parts]
        for number, file in enumerate(files):  # in turn, as the script does
            mine = found[number :: len(files)]
            tf_examples.write(mine, dict(words.ids), LENGTH.value, MOST.value, file)
    for part, path in zip(parts, outputs, strict=True):
        part.replace(path)
    random = sum(instance.is_random_next for instance in found)
    masks = sum(len(instance.masked_lm_positions) for instance in found)
    tokens = sum(len(instance.tokens) for instance in found)
    print(
        f"{len(found):,} instances of {len(inputs)} file(s) in "
        f"{', '.join(OUTPUT.value)}: {tokens / len(found):.1f} tokens a row, "
        f"{random / len(found):.1%} random next, {masks / tokens:.2%} masked "
        f"({time.perf_counter() - began:.1f} s)"
    )


if __name__ == "__main__":
    _command.main(body)
