"""Imported first by a launcher that trains: starts it again with a heap on huge pages.

XLA's CPU backend takes fresh memory for the activations of every step; in pages of
4 KiB the kernel spends a quarter of a small model's step handing them out. glibc reads
the setting only at start-up. Nothing but speed, and the memory of a process at rest,
changes.
"""

import os
import sys
from pathlib import Path

TUNABLE = "glibc.malloc.hugetlb=1"


def _ask() -> None:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    launched = Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parent
    if sys.platform != "linux" or not launched or "hugetlb" in tunables:
        return
    os.environ["GLIBC_TUNABLES"] = f"{tunables}:{TUNABLE}".lstrip(":")
    os.execv(sys.executable, sys.orig_argv)


_ask()
