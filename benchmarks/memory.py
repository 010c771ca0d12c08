"""Peak memory of a build by the size of its input; flat if all goes well.

    python -m benchmarks.memory --input FILE... --mb 25 100 400

FILE is prose, blank lines between paragraphs; it is repeated, with words changed in
every copy, up to each size. ``launch/prepare.py`` builds the store with a vocabulary
learned once; the peak resident memory (VmHWM) of each of its processes is read from the
kernel while it runs. What the interpreter and the libraries need is measured by a
process that only imports them. The last line is one JSON object.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import growth

PREPARE = Path(__file__).resolve().parent.parent / "launch" / "prepare.py"
IMPORTS = (
    "import re; from bert_jax.data import building, report, store, vocabularies;"
    "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
)


def _children(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            found += [int(child), *_children(int(child))]
    return found


def base() -> int:
    """Peak resident kB of a process that only imports what a build imports."""
    return int(subprocess.check_output([sys.executable, "-c", IMPORTS]))


def peaks(command: list[str]) -> tuple[dict[int, int], float]:
    """Peak resident kB of each process of a command, and its seconds."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    found: dict[int, int] = {}
    while process.poll() is None:
        try:
            for pid in [process.pid, *_children(process.pid)]:
                status = Path(f"/proc/{pid}/status").read_text()
                if "VmHWM:" in status:
                    found[pid] = int(status.split("VmHWM:")[1].split()[0])
        except OSError:
            pass  # one of them ended meanwhile
        time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return found, time.perf_counter() - began


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, nargs="+", required=True)
    parser.add_argument("--mb", type=float, nargs="+", default=[25, 400])
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    least = base()
    text = "\n\n".join(path.read_text("utf-8") for path in given.input)
    out: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        for size in given.mb:
            target = Path(place, f"{size:g}.txt")
            growth.grow(text, target, int(size * 1e6))
            build = [
                sys.executable, str(PREPARE), "--workers", str(given.workers),
                "--corpus", f"text:{target}?documents=blank_line",
            ]  # fmt: skip
            vocab = f"{place}/v"
            if not out:
                learn = ["--learn_vocab", "--size", "8000", "--out", vocab]
                subprocess.run([*build, *learn], check=True, stdout=subprocess.DEVNULL)
            store = f"{place}/s{size:g}"
            each, seconds = peaks(
                [*build, "--vocab", f"{vocab}/vocab.txt", "--out", store]
            )
            above = [max(peak - least, 0) for peak in each.values()]
            out[f"{size:g}"] = {
                "largest_process_mb_above": round(max(above) / 1e3, 1),
                "all_processes_mb_above": round(sum(above) / 1e3, 1),
                "processes": len(each),
                "mb_per_s": round(size / seconds, 1),
            }
            print(f"{size:g} MB: {out[f'{size:g}']}")
            target.unlink()
    sums = [row["all_processes_mb_above"] for row in out.values()]
    print(json.dumps({
        "base_mb": round(least / 1e3, 1), "workers": given.workers, "by_mb": out,
        "largest_over_smallest": round(max(sums) / min(sums), 3),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
