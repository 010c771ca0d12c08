"""Grain reads batches ahead of the loop.

Beside ``bert_jax.data`` rather than in it: importing Grain imports jax.
"""

from collections.abc import Callable, Iterator

import grain

from bert_jax.batch import Batch


class _Steps:
    """Random-access source of Grain: element n is the batch of step n."""

    def __init__(self, batch: Callable[[int], Batch], steps: int):
        self._batch, self._steps = batch, steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Batch:
        return self._batch(int(step))


def batches(
    batch: Callable[[int], Batch], first: int, steps: int, threads: int
) -> Iterator[Batch]:
    """Batches of steps first .. steps - 1, in order, gathered by threads ahead.

    Each batch is a pure function of its step, so threads change nothing but speed.
    """
    source = grain.MapDataset.source(_Steps(batch, steps))[first:]
    options = grain.ReadOptions(
        num_threads=threads, prefetch_buffer_size=max(2, 2 * threads)
    )
    return iter(source.to_iter_dataset(options))
