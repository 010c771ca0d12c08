"""Pretrains an experiment on the devices there are: a laptop, a GPU, a pod.

    python launch/tpu_pod.py --exp bert_tiny_nsp
    python launch/tpu_pod.py --exp bert_base_nsp --corpus 'text:*.txt' --workdir DIR
    python launch/tpu_pod.py --exp bert_base_nsp --config.optimizer.learning_rate=2e-4

The same command continues a run where its directory stands. On a pod it runs on every
host, with --pod.
"""

import _huge_pages  # noqa: F401, I001  (before anything heavy)
import _command
from absl import flags

EXP = flags.DEFINE_string("exp", "", "Experiment: a file in experiments/.")
WORKDIR = flags.DEFINE_string("workdir", "", "Run directory; default runs/EXP.")
CORPUS = flags.DEFINE_string("corpus", "", "Corpus spec, e.g. 'text:wiki/*.txt'.")
VOCAB = flags.DEFINE_string("vocab", "", "A vocab.txt; default: learn one.")
PLAN = flags.DEFINE_bool("plan", False, "Show what would run; write nothing.")
EXTEND = flags.DEFINE_bool("extend", False, "Let steps or phases differ on restart.")
POD = flags.DEFINE_bool("pod", False, "One of several hosts: find the others.")
ALLOW_CPU = flags.DEFINE_bool(
    "allow_cpu", False, "Use the CPU though there is an accelerator."
)


def body(argv: list[str]) -> None:
    """Parses, checks the devices, trains."""
    config = _command.parse(argv)
    for name, value in (("corpus", CORPUS), ("vocab", VOCAB), ("workdir", WORKDIR)):
        if value.present and not value.value:
            raise _command.Refusal(
                f"--{name} is empty (an unset variable?); give one, or leave it out"
            )
    if CORPUS.value:
        config.corpus = CORPUS.value
    if VOCAB.value:
        config.vocabulary.path = VOCAB.value

    import jax

    from bert_jax import checks, train

    if POD.value:
        jax.distributed.initialize()
    if not ALLOW_CPU.value:
        checks.check_accelerator(jax.default_backend(), jax.process_count())
    directory = WORKDIR.value or f"runs/{config.experiment.replace(':', '-')}"
    train.run(config, directory, train.Options(PLAN.value, EXTEND.value))


if __name__ == "__main__":
    _command.main(body)
