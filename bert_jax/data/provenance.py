"""What a run really trains on: measured, and set beside the paper and its script."""

import importlib.metadata
import platform
from typing import Any

import numpy as np

from bert_jax.data.batches import Curriculum, Phase
from bert_jax.data.deviations import deviations
from bert_jax.data.rows import NO_LABEL
from bert_jax.data.store import Store

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy",
             "tokenizers", "sentencex")  # fmt: skip

# Where and with what a run is made: may change at a restart, and is told then.
CIRCUMSTANCES = ("libraries", "git_revision", "machine")


def phase_facts(
    phase: Phase, steps: int, start: int, max_positions: int, flops_per_row: float
) -> dict[str, Any]:
    """Facts of one phase from its plans, never from tokens."""
    spec, plans = phase.spec, phase.stream.plans
    lengths = np.concatenate([p.lengths() for p in plans])
    labels = np.concatenate([p.label for p in plans])
    cut = np.concatenate([p.cut for p in plans])
    rows, length = steps * phase.batch_size, spec.rows.length
    histogram, edges = np.histogram(lengths, bins=8, range=(0, length))
    reads = rows / len(lengths)
    copies = 1 if spec.given else spec.mask_copies  # 0: a mask for each read
    return {
        "sequence_length": length,
        "steps": steps,
        "batch_size": phase.batch_size,
        "rows": rows,
        "first_stream_position": start,
        "distinct_rows": len(lengths),
        "passes": phase.stream.passes(rows),
        "source_passes": phase.stream.source_passes(rows),
        "reads_of_a_row": reads,
        "mask_copies": copies,
        "repeats_of_a_mask": max(1.0, reads / copies) if copies else 1.0,
        "tokens": round(rows * float(lengths.mean())),
        "mean_length": float(lengths.mean()),
        "full_rows": float((lengths == length).mean()),
        "length_histogram": {
            "edges": edges.astype(int).tolist(),
            "counts": histogram.tolist(),
        },
        "labelled_share": float((labels != NO_LABEL).mean()),
        # Of a pair label: random seconds, or swapped ones.
        "label_1_share": float(labels[labels != NO_LABEL].mean())
        if (labels != NO_LABEL).any()
        else 0.0,
        "truncated_tokens_share": float(cut.sum() / (cut.sum() + lengths.sum())),
        "positions_trained": int(lengths.max()),
        "positions_untrained": max_positions - int(lengths.max()),
        "flops": rows * flops_per_row,
    }


def facts(
    store: Store,
    curriculum: Curriculum,
    max_positions: int,
    flops_per_row: list[float],
    masks: list[dict[str, float]],
    revision: str,
    machine: dict[str, Any],
    settings: dict[str, Any],
) -> dict[str, Any]:
    """The record of a run's data, for provenance.json."""
    m = store.manifest
    ends = (0, *curriculum.ends)
    phases = [
        {
            **phase_facts(phase, end - begin, start, max_positions, flops),
            "masks": measured,
        }
        for phase, begin, end, start, flops, measured in zip(
            curriculum.phases,
            ends,
            ends[1:],
            curriculum.starts,
            flops_per_row,
            masks,
            strict=False,
        )  # fmt: skip
    ]
    return {
        "format_version": 2,
        "store": store.content,
        "corpus": m["corpus"],
        "vocabulary": {"hash": m["vocabulary"], "size": m["vocabulary_size"]},
        "documents": m["documents"],
        "held_out_documents": m["held_out_documents"],
        "one_sentence_documents": m["one_sentence_documents"],
        "sentences": m["sentences"],
        "tokens": m["tokens"],
        "unknown_share": m["unknown_tokens"] / m["tokens"],
        "phases": phases,
        "deviations": deviations(settings),
        "libraries": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in LIBRARIES},
        },
        "git_revision": revision,
        "machine": machine,
        "events": [],
    }


def moved(name: str, before: Any, after: Any) -> list[str]:
    """What differs from the start before, a readable line each."""
    if before is None or before == after:
        return []
    if isinstance(after, dict):
        return [
            line
            for key, value in after.items()
            for line in moved(f"{name}.{key}", before.get(key), value)
        ]
    return [f"{name}: {before} -> {after}"]


def _mixture(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """How often each source of a mixed corpus is read; nothing for a single one."""
    sources = record["corpus"]["sources"]
    if len(sources) == 1:
        return []
    rows = []
    total = sum(source["weight"] for source in sources)
    for number, source in enumerate(sources):
        passes = [phase["source_passes"][number] for phase in record["phases"]]
        share = source["weight"] / total
        said = ", ".join(f"{p:.1f}" for p in passes)
        name = f"Source {number + 1}, {source['kind']}"
        rows.append((name, "not said", "none", f"{share:.1%} of rows; passes {said}"))
    return rows


def markdown(record: dict[str, Any], config: dict[str, Any]) -> str:
    """provenance.md: paper | public script | this run, and the deviations."""
    lines = [
        "# What this run trains on",
        "",
        f"Store `{record['store']}`, corpus `{record['corpus']['spec']}`.",
        "",
        "| | Paper (Devlin et al. 2018) | Public script (create_pretraining_data.py) "
        "| This run, planned | This run, measured |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row)} |" for row in _table(record, config)]
    lines += ["", "Phases are parted by commas.", "", "## Lengths of rows", ""]
    for number, phase in enumerate(record["phases"], 1):
        edges, counts = (phase["length_histogram"][n] for n in ("edges", "counts"))
        shares = ", ".join(
            f"{low}-{high}: {count / sum(counts):.1%}"
            for low, high, count in zip(edges, edges[1:], counts, strict=False)
        )
        lines.append(f"- phase {number}: {shares}")
    lines += ["", "## Deviations from the script", ""]
    lines += [f"- {text}" for text in record["deviations"]]
    lines += ["", "## Events", ""]
    lines += [f"- step {e['step']}: {e['what']}" for e in record["events"]]
    lines += ["", f"Code {record['git_revision']}; " + ", ".join(
        f"{name} {version}" for name, version in record["libraries"].items()
    )]  # fmt: skip
    return "\n".join(lines) + "\n"


def _table(record: dict[str, Any], config: dict[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table: name, paper, script, planned, measured."""
    phases, measured = record["phases"], record.get("measured", [])

    def each(name: str, form: str = "{:.3f}") -> str:
        return ", ".join(form.format(phase[name]) for phase in phases)

    def mask(name: str) -> str:
        return ", ".join(f"{phase['masks'][name]:.4f}" for phase in phases)

    def seen(name: str, form: str = "{:.4f}") -> str:
        return ", ".join(form.format(phase[name]) for phase in measured) or "when done"

    sizes = f"{record['documents']:,} documents, {record['tokens']:,} tokens"
    steps = ", ".join(f"{p['steps']:,} at {p['sequence_length']}" for p in phases)
    masking = {
        "static": f"static, copies={config['masks.copies']}",
        "dynamic": "dynamic: drawn anew at each read of a row",
        "given": "given: made by another program",
    }[config["masks.kind"]]
    total = sum(phase["flops"] for phase in phases)
    compute = ", ".join(f"{phase['flops'] / total:.0%}" for phase in phases)
    done = sum(phase["flops"] for phase in measured) or 1
    computed = ", ".join(f"{phase['flops'] / done:.0%}" for phase in measured)
    repeats = ", ".join(
        f"{run['pairs'] / min(run['pairs'], masks):.1f}"
        if (masks := phase["distinct_rows"] * phase["mask_copies"])
        else "1.0"
        for phase, run in zip(phases, measured, strict=False)
        if run["pairs"]
    )
    untrained = min(phase["positions_untrained"] for phase in phases)
    return [
        ("Text", "Books + Wikipedia, 3,300M words", "any file", sizes, ""),
        ("Steps by length", "90 % at 128, 10 % at 512", "a flag each run", steps,
         seen("steps", "{:,}")),
        ("Batch", "256", "32 (flag default)", each("batch_size", "{}"), ""),
        ("Passes", "about 40", "dupe_factor copies, cycled", each("passes", "{:.1f}"),
         ""),
        *(( *row, "") for row in _mixture(record)),
        ("Format", "segment pairs", "segment pairs", config["rows.format"], ""),
        ("Selected", "15 %", "round(0.15 n), at least 1", mask("selected_share"),
         seen("selected_share")),
        ("of them [MASK]", "80 %", "80 %", mask("masked_share"), seen("masked_share")),
        ("of them random", "10 %", "10 %, any vocabulary entry", mask("random_share"),
         seen("random_share")),
        ("of them kept", "10 %", "10 %", mask("kept_share"), seen("kept_share")),
        ("Masks", "not said", "static, dupe_factor copies", masking, ""),
        ("Repeats of a mask", "not said", "passes / dupe_factor",
         each("repeats_of_a_mask", "{:.1f}"), repeats),
        ("Pair label 1 (random next, or swapped)", "50 %", "50 %, more on short "
         "documents", each("label_1_share"), seen("label_1_share", "{:.3f}")),
        ("Short rows", "not said", "10 % of documents",
         f"{config['rows.short_seq_prob']:.0%} of documents", ""),
        ("Truncated tokens", "not said", "from either end, the longer",
         each("truncated_tokens_share", "{:.4f}"), ""),
        ("Mean row length", "not said", "not said", each("mean_length", "{:.1f}"),
         seen("mean_length", "{:.1f}")),
        ("Padding", "not said", "not said", "", seen("padding_share", "{:.1%}")),
        ("Predicted tokens by place computed", "not said", "not said", "",
         seen("predicted_per_place")),
        ("Predicted tokens by GFLOP", "not said", "not said", "",
         seen("predicted_per_gflop", "{:.2f}")),
        ("Compute by phase", "not said", "not said", compute, computed),
        ("Positions trained", "0..511", "0..max_seq_length - 1",
         ", ".join(f"0..{p['positions_trained'] - 1}" for p in phases), ""),
        ("Positions never trained", "none", "above max_seq_length", f"{untrained}", ""),
        ("[UNK] share", "not said", "not said", f"{record['unknown_share']:.4%}", ""),
    ]  # fmt: skip
