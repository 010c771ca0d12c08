"""Tasks over processes: results in task order, nothing left running behind."""

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

# A function over tasks, results in task order. The function can be pickled and is sent
# once to each worker, so what it keeps (a table that fills) serves all tasks there.
# Tasks can be pickled, results are values of JSON: they may come from other machines.
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def over(processes: int | None = None) -> Run:
    """Work over some processes of this machine; as many as it has cores by default."""
    return partial(run, workers=processes or cores())


_function: Callable[[Any], Any]


def _begin(parent: int, function: Callable[[Any], Any]) -> None:
    global _function
    # A worker whose parent was killed would wait for work for ever.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)  # killed before the line above could matter
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a worker is one core
    _function = function


def _call(task: Any) -> Any:
    return _function(task)


def run(
    function: Callable[[Any], Any], tasks: Sequence[Any], workers: int
) -> Iterator[Any]:
    """Results of ``function(task)``, in the order of the tasks.

    Args:
      function, tasks: see ``Run``.
      workers: processes; with one, or one task, all happens in this process.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        yield from map(function, tasks)
        return
    # Spawned and not forked: threads of jax in the parent would be copied mid-step.
    with ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(os.getpid(), function),
    ) as pool:
        futures = [pool.submit(_call, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
