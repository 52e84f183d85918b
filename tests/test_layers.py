"""The folder list is the architecture: imports point one way."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import ennopt

ROOT = Path(ennopt.__file__).parent
ROOMS = [
    "clock", "version", "extras", "options", "activations", "columns", "targets",
    "network",
    "npz", "sealed",
    "risk", "weighting", "domain", "problem", "bounds", "canonical", "met", "result",
    "log", "interrupts", "checkpoint",
    "run", "milp", "pages", "tightening", "engine", "paper", "methods", "convert",
    "expressions", "certificate", "question", "api", "several",
    "problem_file", "properties", "embed", "learn", "study",
    "explore", "cli",
]  # fmt: skip
CORE = {"numpy", "ennopt"}
HOMES = {
    "highspy": {"milp/highs.py", "embed/highs_host.py"},
    "pyscipopt": {"milp/scip.py", "embed/scip_host.py"},
    "gurobipy": {"milp/gurobi.py", "embed/gurobi_host.py"},
    "pyomo": {"embed/pyomo_host.py"},
    "torch": {"convert/torch.py", "convert/torch_state.py"},
    "keras": {"convert/keras.py"},
    "h5py": {"convert/keras.py"},
    "onnx": {"convert/onnx.py"},
    "onnxruntime": {"convert/onnx.py"},
    "google": {"convert/onnx.py"},  # protobuf, which ONNX files are written in
    "pandas": {"convert/sklearn.py", "several/series.py"},
    "sklearn": {
        "convert/sklearn.py",
        "convert/sklearn_tables.py",
        "learn/sampling.py",
        "learn/selection.py",
        "learn/training.py",
    },
    "scipy": {"learn/selection.py"},
    "matplotlib": {"pages/plot.py", "study/figures.py"},
    "jinja2": {"pages/render.py"},
    "rich": {"log.py"},
    "threadpoolctl": {"run.py"},
    "distributed": {"study/executors.py"},
    "IPython": {"log.py"},
    "starlette": {"explore/server.py"},
    "uvicorn": {"explore/server.py"},
}
"""Where each foreign library may be imported. What is not here may be nowhere: tables
are read through NumPy, dask through `distributed`, skl2onnx belongs to the tests."""

LATE = {
    ("network.py", "ennopt.npz"),
    ("result.py", "ennopt.pages.render"),
    ("result.py", "ennopt.pages.plot"),
}
"""What a value offers although a room below does the work: `Ensemble.save`,
`Result.report`, `Result.plot`. The room is imported when they are called."""

BY_NAME = ("require", "import_module", "find_spec", "__import__")
"""Functions that import the module that their first argument names."""


def imports(source):
    """Modules that a source text imports, by a statement or by name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[first, *_],
            ) if called in BY_NAME:
                if isinstance(first, ast.JoinedStr):  # f"sklearn.{part}"
                    first = first.values[0]
                if isinstance(first, ast.Constant):
                    yield first.value


def misplaced(path, source):
    """What a file of the package imports although it must not, as messages."""
    own = Path(path).with_suffix("").parts[0]
    for name in imports(source):
        package, *rest = name.split(".")
        if package == "ennopt" and rest and own not in ("__init__", "__main__"):
            room = rest[0]
            if room.startswith("_kernel"):
                continue
            if own not in ROOMS or room not in ROOMS:
                yield f"{path} or {name} is in no known room"
            elif ROOMS.index(room) > ROOMS.index(own) and (path, name) not in LATE:
                yield f"{path} imports {name} from a room below its own"
        elif package in CORE or package in sys.stdlib_module_names:
            continue
        elif path not in HOMES.get(package, ()):
            yield f"{path} imports {name}, which has its home elsewhere or nowhere"


def sources():
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_modules_import_only_rooms_above_their_own_and_libraries_at_home():
    found = [words for path, source in sources() for words in misplaced(path, source)]
    assert found == []


def test_modules_have_one_idea_each():
    """Or so it seems from their length; the house style says: split before 700."""
    long = {path: source.count("\n") for path, source in sources()}
    assert {path: lines for path, lines in long.items() if lines >= 700} == {}


def test_every_home_is_lived_in():
    lived = defaultdict(set)
    for path, source in sources():
        for name in imports(source):
            lived[name.split(".")[0]].add(path)
    assert {name: lived[name] for name in HOMES} == HOMES


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bounds/rounding.py", "from ennopt.milp.model import LinearModel"),
        ("engine/node.py", "import ennopt.paper.bigm"),
        ("attic/old.py", "from ennopt.network import Network"),
        ("milp/highs.py", "import gurobipy"),
        ("milp/solver.py", "import highspy"),
        ("milp/model.py", "from highspy import Highs"),
        ("paper/bigm.py", "scip = require('pyscipopt', 'scip')"),
        (
            "convert/graph.py",
            "def f():\n    return extras.require('torch.nn', 'torch')",
        ),
        ("learn/batched.py", "require(f'sklearn.{name}', 'train')"),
        ("cli/solve.py", "importlib.import_module('matplotlib.pyplot')"),
        ("domain/reading.py", "if importlib.util.find_spec('pandas'): pass"),
        ("network.py", "import scipy.linalg"),
        ("study/executors.py", "import dask"),
        ("convert/sklearn.py", "import skl2onnx"),
    ],
)
def test_an_import_in_the_wrong_place_is_seen(path, source):
    assert len(list(misplaced(path, source))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("milp/scip.py", "require('pyscipopt', 'scip')"),
        ("paper/bigm.py", "import math, numpy\nfrom ennopt.engine import values"),
        ("engine/compiled.py", "importlib.import_module('ennopt._kernel')"),
        ("study/expression.py", "importlib.import_module(room)"),
        ("convert/torch_state.py", "torch = require('torch', 'torch')"),
    ],
)
def test_an_import_in_the_right_place_is_none_of_our_business(path, source):
    assert list(misplaced(path, source)) == []


EACH_ITS_OWN = ("ACTIVATIONS", "CYCLES", "DEEPEST", "LOGGER", "STATUSES", "TOKEN")


def public_names(source):
    """Classes and constants that a module makes, without those for itself."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                pass
            case _:
                continue
        if not name.startswith("_"):
            yield name


def test_a_name_means_one_thing():
    """But for constants that each module, solver or framework has one of."""
    homes = defaultdict(list)
    for path, source in sources():
        if path.startswith("certificate/"):
            continue  # the checker shares nothing with us, constants included
        for name in public_names(source):
            homes[name].append(path)
    ours = (
        "activations/", "bounds/", "canonical.py", "domain/", "milp/", "network.py",
        "paper/", "problem.py", "run.py", "tightening/",
    )  # fmt: skip
    twice = {
        name: paths
        for name, paths in homes.items()
        if len(paths) > 1 and name not in EACH_ITS_OWN
        if any(path.startswith(ours) for path in paths)
    }
    assert twice == {}


def test_importing_the_package_imports_no_framework():
    heavy = sorted({*HOMES, "dask", "skl2onnx"})
    code = f"import sys, ennopt; print(*sorted(set({heavy}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_importing_the_package_loads_nothing_that_is_not_asked_for():
    code = (
        "import sys, ennopt; print('numpy' in sys.modules); "
        "ennopt.Network; print(*sorted(m for m in sys.modules if m == 'ennopt.api'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]
