"""Shows what a run was trained on, in words.

    python launch/show.py --run DIR --step N [--row K]   rows, masks and labels
    python launch/show.py --provenance DIR               paper | script | this run

Predicted tokens stand in braces: {[MASK]:word}, {random other:word}, {kept:word}. Rows
are drawn again from their address, so any step of any run can be shown, before, while
and after it trains; the text must be there (--corpus says where, if it moved).
"""

import sys
from pathlib import Path

import _command
from absl import flags

RUN = flags.DEFINE_string("run", "", "Directory of a run.")
STEP = flags.DEFINE_integer("step", 0, "Step, counted from 1.")
ROW = flags.DEFINE_integer("row", -1, "Row of the batch; all of them by default.")
CORPUS = flags.DEFINE_string("corpus", "", "Where the run's text is, if it moved.")
PROVENANCE = flags.DEFINE_string("provenance", "", "Directory of a run or a store.")
COLOR = flags.DEFINE_enum("color", "auto", ["auto", "yes", "no"], "Colour the masks.")
PLAN = flags.DEFINE_bool("plan", False, "Say which rows would be shown, and no more.")


def _rows() -> None:
    from bert_jax import replay

    plan, _ = replay.open_run(RUN.value, CORPUS.value)
    shown = replay.replay(plan, STEP.value)
    length = plan.steps[shown.phase].length
    count = len(shown.tokens_BT)
    print(
        f"step {shown.step:,} of {plan.total_steps:,}, phase {shown.phase + 1}: "
        f"{count} rows of {length} tokens"
    )
    if not -1 <= ROW.value < count:
        raise _command.Refusal(f"--row {ROW.value} is outside 0 .. {count - 1}")
    if PLAN.value:
        return
    color = COLOR.value == "yes" or (COLOR.value == "auto" and sys.stdout.isatty())
    for number in range(count) if ROW.value < 0 else [ROW.value]:
        print(shown.row(number, color))


def body(argv: list[str]) -> None:
    """Reads the flags; prints."""
    _command.parse_flags(argv)
    if PROVENANCE.value:
        path = Path(PROVENANCE.value) / "provenance.md"
        if not path.is_file():
            raise _command.Refusal(f"{path.parent} holds no provenance.md")
        print(path.read_text("utf-8"), end="")
    elif RUN.value and STEP.value:
        _rows()
    else:
        raise _command.Refusal("give --run DIR --step N, or --provenance DIR")


if __name__ == "__main__":
    _command.main(body)
