"""What a person sees at the start: one banner, one table of phases."""

from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.data.store import Store
from bert_jax.picks import slots_for
from bert_jax.progress import duration
from bert_jax.setup import Setup


def _count(number: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def _flops(number: float) -> str:
    for size, unit in ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP")):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number / 1e9:,.1f} GFLOP"


def _data(store: Store) -> str:
    m = store.manifest
    c = m["corpus"]
    return (
        f"data     {c['spec']}  {c['bytes'] / 1e6:.2f} MB, {m['documents']:,} "
        f"documents ({m['held_out_documents']:,} held out), "
        f"{m['sentences']:,} sentences, {_count(m['tokens'])} tokens\n"
        f"         text {c['content'][:16]}  store {store.content[:16]}  vocabulary "
        f"{m['vocabulary_size']:,} ({m['unknown_tokens'] / m['tokens']:.2%} [UNK])"
    )


def _rows(config: ConfigDict) -> str:
    r = config.rows
    text = r.format.replace("_", " ") + ("s" if r.format.endswith("pair") else "")
    label = {"next_sentence": "", "sentence_order": " in or out of order", "none": ""}
    packed = f", up to {r.pack} packed in a row" if r.pack > 1 else ""
    return text + label[r.pair_label] + packed


def _rate(config: ConfigDict) -> str:
    m = config.masks
    return f"{m.rate:.0%}" + (f" to {m.final_rate:.0%}" if m.final_rate else "")


def banner(config: ConfigDict, setup: Setup, mesh: Any, directory: str) -> str:
    """Devices, mesh, parameters, data and plan of a run."""
    device = jax.devices()[0]
    spec, m = setup.encoder, config.masks
    parts = spec.parameters()
    copies = f", {m.copies} copies" if m.kind == "static" else ""
    shape = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    o = setup.optimizer
    lines = [
        f"bert_jax {config.experiment}  ->  {directory}",
        f"devices  {jax.device_count()} x {device.device_kind} ({device.platform}), "
        f"{jax.process_count()} process(es), mesh {shape}",
        f"model    {spec.layers} layers of {spec.width}, {spec.heads} heads: "
        f"{sum(parts.values()):,} parameters ({parts['embeddings']:,} in embeddings)",
        _data(setup.store),
        f"plan     {_rows(config)}, {config.rows.plans} plans, {config.rows.shuffle}; "
        f"{m.kind} masks{copies}, {_rate(config)} {m.selection} {m.unit}s; "
        + " + ".join(f"{w:g} {name}" for name, w in setup.steps[0].objectives),
        f"adam     peak {o.learning_rate:g}, {o.warmup_steps:,} warmup of "
        f"{o.total_steps:,} steps, {o.schedule}, decay {o.weight_decay:g}, clip "
        f"{o.clip_norm:g}; seed {setup.seed}",
    ]
    return "\n".join(lines)


def phase_table(setup: Setup, facts: dict[str, Any]) -> str:
    """Rows, tokens, passes, compute and position coverage of each phase."""
    head = (
        f"{'phase':>5} {'length':>6} {'steps':>9} {'batch':>11} {'rows':>8} "
        f"{'tokens':>8} {'passes':>7} {'compute':>15}  positions trained"
    )
    lines = [head]
    most = setup.encoder.max_positions
    total = sum(phase["flops"] for phase in facts["phases"])
    tokens = sum(phase["tokens"] for phase in facts["phases"])
    for number, (phase, spec) in enumerate(
        zip(facts["phases"], setup.steps, strict=True), 1
    ):
        batch = f"{phase['batch_size']}"
        if spec.micro_batches > 1:
            size = phase["batch_size"] // spec.micro_batches
            batch += f"={spec.micro_batches}x{size}"
        length = phase["sequence_length"]
        lines.append(
            f"{number:>5} {length:>6} {phase['steps']:>9,} {batch:>11} "
            f"{_count(phase['rows']):>8} {_count(phase['tokens']):>8} "
            f"{phase['passes']:>7.1f} {_flops(phase['flops']):>15}  "
            f"0..{length - 1} of {most} ({phase['tokens'] / tokens:.0%} of tokens)"
        )
    untrained = most - max(phase["sequence_length"] for phase in facts["phases"])
    note = f"; positions {most - untrained}..{most - 1} stay as initialised"
    lines.append(
        f"      in all {_count(tokens)} tokens, {_flops(total)}"
        + (note if untrained else "")
    )
    return "\n".join(lines)


def budget_table(setup: Setup, rate: float) -> str:
    """The same steps and rows by other curricula: what the lengths of phases cost.

    Floating-point operations count attention, so a row of 512 costs more than four of
    128. Copying only the longest length of a recipe (all at 512) is the dear way;
    copying only the shortest leaves positions untrained.
    """
    spec, curriculum = setup.encoder, setup.curriculum
    ends = (0, *curriculum.ends)
    rows = sum(
        (end - begin) * phase.batch_size
        for phase, begin, end in zip(curriculum.phases, ends, ends[1:], strict=False)
    )
    longest = spec.max_positions
    own = [
        (s.length, (end - begin) * phase.batch_size / rows, s.masks.slots)
        for phase, s, begin, end in zip(
            curriculum.phases, setup.steps, ends, ends[1:], strict=False
        )
    ]

    def at(length: int, share: float) -> tuple[int, float, int]:
        return length, share, slots_for(length, rate, "exact", 0)

    ways = {
        "configured": own,
        f"90/10 at {longest // 4} and {longest}": [
            at(longest // 4, 0.9), at(longest, 0.1),
        ],
        f"all at {longest}": [at(longest, 1.0)],
    }  # fmt: skip
    flops = {
        name: sum(rows * share * spec.train_flops(T, K) for T, share, K in way)
        for name, way in ways.items()
    }
    lines = [
        f"{'the same rows as':>22} {'places':>8} {'compute':>15} {'relative':>9}  "
        "positions trained"
    ]
    for name, way in ways.items():
        places = sum(rows * share * T for T, share, _ in way)
        lines.append(
            f"{name:>22} {_count(places):>8} {_flops(flops[name]):>15} "
            f"{flops[name] / flops['configured']:>8.2f}x  "
            f"0..{max(T for T, _, _ in way) - 1} of {longest}"
        )
    return "\n".join(lines)


def finished(seconds: float, steps: int) -> str:
    """Last words of a run."""
    return f"done: {steps:,} steps in {duration(seconds)}"
