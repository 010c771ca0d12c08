"""Imports go down the layers only, and the lazy ones stay lazy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "bert_jax"

# Lower layers know nothing of higher ones; within a layer, see the order of the lines.
LAYERS = {
    "batch": 0, "picks": 0, "draws": 0, "corruption": 0, "losses": 0, "optim": 0,
    "mesh": 0, "attention": 0, "statistics": 0, "rules": 0, "units": 0,
    "encoder": 1, "data": 1, "checkpoint": 1, "metrics": 1, "prefetch": 1,
    "objectives": 2, "memory": 2, "baselines": 2,
    "step": 3, "tally": 1, "config": 3, "rundir": 3, "progress": 3, "evaluate": 3,
    "specs": 3, "recipe_checks": 4,
    "checks": 4, "setup": 4, "banner": 4, "notices": 4, "fidelity": 4,
    "loop": 4, "train": 4,
    "pretrained": 5, "replay": 5, "__init__": 6,
}  # fmt: skip


def module_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path):
    """First component below bert_jax of every import in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "bert_jax":
                names = [parts[1]] if len(parts) > 1 else [a.name for a in node.names]
                yield from names
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "bert_jax" and len(parts) > 1:
                    yield parts[1]


@pytest.mark.quick
@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_imports_go_down(path):
    own = module_of(path)
    assert own in LAYERS, f"give {own} a layer in this test"
    for name in imports(path):
        if name != own:
            assert LAYERS[name] <= LAYERS[own], f"{own} imports {name} from above"


def test_no_circles():
    """Within a layer too: the graph of modules has an order."""
    graph = {name: set() for name in LAYERS}
    for path in PACKAGE.rglob("*.py"):
        graph[module_of(path)] |= set(imports(path)) - {module_of(path)}
    done: set[str] = set()
    while len(done) < len(graph):
        ready = {n for n, needs in graph.items() if n not in done and needs <= done}
        assert ready, f"a circle among {sorted(set(graph) - done)}"
        done |= ready


def loaded(code, *modules):
    check = f"import sys; {code}; print([m for m in {modules!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.quick
def test_import_is_lazy():
    assert loaded("import bert_jax", "jax", "numpy", "flax") == "[]"


def test_data_never_imports_jax():
    names = sorted(p.stem for p in (PACKAGE / "data").glob("*.py") if p.stem[0] != "_")
    code = "; ".join(f"import bert_jax.data.{name}" for name in names)
    assert len(names) > 8
    assert loaded(code, "jax", "flax", "grain", "tensorflow") == "[]"


def test_builders_stay_light():
    """What every worker of a build imports: these two would cost it 30 MB."""
    code = "import bert_jax.data.building, bert_jax.data.report"
    assert loaded(code, "scipy", "google") == "[]"


def test_only_the_encoder_knows_flax():
    for path in PACKAGE.rglob("*.py"):
        knows = any(
            (
                isinstance(node, ast.ImportFrom)
                and (node.module or "").startswith("flax")
            )
            or (
                isinstance(node, ast.Import)
                and any(a.name.startswith("flax") for a in node.names)
            )
            for node in ast.walk(ast.parse(path.read_text()))
        )
        assert not knows or module_of(path) == "encoder", path
