"""The shards of a corpus over Apache Beam: Dataflow, Flink, Spark, or its local runner.

What a worker does with a shard is what a process of one machine does with it, so the
store comes out the same. Needs the extra: ``pip install 'bert_jax[beam]'``.
"""

import json
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec

from bert_jax.data import remote

RESULTS = "results"


@dataclass(frozen=True)
class Beam:
    """Where tasks run; ``run`` is a ``workers.Run``.

    Attributes:
      runner: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, ...
      place: a path or URL all workers and this machine can write to.
      options: flags of the pipeline, as the runner takes them.
    """

    runner: str
    place: str
    options: tuple[str, ...] = ()

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any]
    ) -> Iterator[Any]:
        """Results of ``function(task)``, in the order of the tasks.

        Raises:
          ValueError: Beam is not installed, or a task failed.
        """
        if not tasks:
            return iter(())
        try:
            import apache_beam
            from apache_beam.options.pipeline_options import PipelineOptions
        except ImportError:
            raise ValueError(
                "--beam_runner needs Apache Beam: pip install 'bert_jax[beam]'"
            ) from None

        class Work(apache_beam.DoFn):
            """Calls the function; leaves its result where the launcher finds it."""

            def __init__(self, pickled: bytes, to: str):
                self.pickled, self.to = pickled, to

            def setup(self) -> None:
                self.function = pickle.loads(self.pickled)

            def process(self, numbered: tuple[int, bytes]) -> None:
                number, task = numbered
                result = self.function(pickle.loads(task))
                with fsspec.open(f"{self.to}/{number:06d}.json", "w") as out:
                    json.dump(result, out)

        to = f"{self.place.rstrip('/')}/{RESULTS}-{uuid.uuid4().hex[:8]}"
        system, path = fsspec.core.url_to_fs(to)
        system.makedirs(path, exist_ok=True)
        # Pickled here: Beam's own pickling of tasks differs between its versions.
        numbered = [(number, pickle.dumps(task)) for number, task in enumerate(tasks)]
        options = PipelineOptions(list(self.options))
        try:
            with apache_beam.Pipeline(self.runner, options) as pipeline:
                _ = (
                    pipeline
                    | "shards" >> apache_beam.Create(numbered)
                    | "spread" >> apache_beam.Reshuffle()
                    | "work" >> apache_beam.ParDo(Work(pickle.dumps(function), to))
                )
            return iter(
                [
                    json.loads(system.cat_file(f"{path}/{number:06d}.json"))
                    for number in range(len(tasks))
                ]
            )
        except Exception as error:  # every runner raises kinds of its own
            raise ValueError(
                f"the pipeline on {self.runner} failed: {error}; what it finished is "
                "kept: start it again"
            ) from error
        finally:
            remote.remove(to)
