"""Shared by all launchers: finds the repository, reads --exp and --config.KEY=VALUE.

``python launch/x.py`` puts launch/ first on sys.path, so importing this file works
from any directory, and no file here may be named like an installed module.
"""

import importlib.util
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

REPOSITORY = Path(__file__).resolve().parent.parent
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from absl import flags  # noqa: E402
from ml_collections import ConfigDict, config_flags  # noqa: E402

from bert_jax import config as configs  # noqa: E402
from bert_jax.rundir import Refusal  # noqa: E402

EXPERIMENTS = REPOSITORY / "experiments"


def experiments() -> list[str]:
    """Names of the experiments there are."""
    return sorted(p.stem for p in EXPERIMENTS.glob("*.py") if p.stem != "__init__")


def load_experiment(name: str) -> ConfigDict:
    """The configuration of ``--exp NAME`` or ``--exp NAME:ARGUMENT``.

    Raises:
      Refusal: there is no such experiment.
    """
    stem, _, argument = name.partition(":")
    names = experiments()
    if stem not in names:
        hint = configs.suggest(stem, names)
        raise Refusal(f"no experiment {stem!r}{hint}\nthere are: {', '.join(names)}")
    location = EXPERIMENTS / f"{stem}.py"
    spec = importlib.util.spec_from_file_location(f"experiments.{stem}", location)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(argument) if argument else module.get_config()
    config.experiment = name
    return config


def _flag(argv: list[str], name: str) -> str:
    """Value of ``--name VALUE`` or ``--name=VALUE``, read before flags are parsed."""
    for number, word in enumerate(argv):
        if word.lstrip("-") == name and number + 1 < len(argv):
            return argv[number + 1]
        if word.lstrip("-").startswith(f"{name}=") and word.startswith("-"):
            return word.partition("=")[2]
    return ""


def parse(argv: list[str]) -> ConfigDict:
    """Parses absl flags and returns the experiment with its overrides.

    Raises:
      Refusal: an unknown experiment, flag or key, or a value of the wrong type.
    """
    _help(argv)
    name = _flag(argv, "exp")
    if not name:
        raise Refusal(f"--exp is missing; there are: {', '.join(experiments())}")
    config = load_experiment(name)
    known = list(configs.flatten(config))
    given: set[str] = set()
    for word in argv:
        if word.startswith(("--config.", "-config.")):
            path = word.partition("=")[0].partition(".")[2]
            if path in given:
                # A tuple given twice would be joined, which nobody means.
                raise Refusal(f"--config.{path} is given twice; give it once")
            given.add(path)
            if path not in known:
                raise Refusal(
                    f"no key {path!r} in the configuration"
                    f"{configs.suggest(path, known)}\nbert_jax/config.py lists them all"
                )
    config_flags.DEFINE_config_dict("config", config)
    try:
        rest = flags.FLAGS(argv)
    except (flags.Error, TypeError, ValueError, AttributeError) as error:
        raise Refusal(str(error).strip()) from error
    if len(rest) > 1:
        raise Refusal(
            f"{rest[1]!r} is not a flag; a key is set with --config.KEY=VALUE, and a "
            "value with spaces or brackets needs quotes"
        )
    return config


def parse_flags(argv: list[str]) -> None:
    """Parses the flags of a launcher without an experiment.

    Raises:
      Refusal: an unknown flag, a value of the wrong type, a stray word.
    """
    _help(argv)
    try:
        rest = flags.FLAGS(argv)
    except (flags.Error, ValueError) as error:
        raise Refusal(str(error).strip()) from error
    if len(rest) > 1:
        raise Refusal(f"{rest[1]!r} is not a flag; see --help")


def _help(argv: list[str]) -> None:
    if any(word.lstrip("-") in ("help", "helpfull", "h") for word in argv[1:]):
        print(sys.modules["__main__"].__doc__)
        print(flags.FLAGS.main_module_help())
        sys.exit(0)


def main(body: Callable[[list[str]], Any]) -> NoReturn:
    """Runs a launcher; what is refused is one message on stderr and exit status 2."""
    # A console that cannot show a character must not end a run.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        body(sys.argv)
    except Refusal as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        sys.exit(2)
    except FloatingPointError as error:
        print(f"stopped: {error}", file=sys.stderr)
        sys.exit(3)
    except Exception as error:
        # Orbax and its storage library each say this in an exception of their own.
        if "No space left on device" not in str(error):
            raise
        print(
            "stopped: the disk is full. What was saved before is whole: free some "
            "space and give the same command again, or copy the run directory to a "
            "larger disk and give that as --workdir",
            file=sys.stderr,
        )
        sys.exit(3)
    sys.exit(0)
