"""Tasks over processes: results in task order, nothing left running behind."""

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def nothing() -> None:
    """For tasks that need no preparation."""


def _begin(
    parent: int, prepare: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    # A worker whose parent was killed would wait for work for ever.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)  # killed before the line above could matter
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a worker is one core
    prepare(*arguments)


def run(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    workers: int,
    prepare: Callable[..., None],
    arguments: tuple[Any, ...] = (),
) -> Iterator[Any]:
    """Results of ``function(task)``, in the order of the tasks.

    Args:
      function: of a module, so that a fresh process finds it.
      tasks: what to do; each can be pickled.
      workers: processes; with one, or one task, all happens in this process.
      prepare, arguments: called once in each process before its first task.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        prepare(*arguments)
        yield from map(function, tasks)
        return
    # Spawned and not forked: threads of jax in the parent would be copied mid-step.
    with ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(os.getpid(), prepare, arguments),
    ) as pool:
        futures = [pool.submit(function, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
