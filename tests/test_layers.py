"""The folder list is the architecture: imports point one way."""

import ast
import subprocess
import sys
from pathlib import Path

import ennopt

ROOT = Path(ennopt.__file__).parent
ROOMS = [
    "version", "extras", "options", "network", "domain", "problem", "bounds",
    "canonical", "result", "log", "run", "milp", "tightening", "engine", "paper",
    "methods", "convert", "api", "learn", "study", "cli",
]  # fmt: skip
FOREIGN = {
    "highspy": "milp/highs.py",
    "pyscipopt": "milp/scip.py",
    "gurobipy": "milp/gurobi.py",
    "torch": "convert/torch.py",
    "keras": "convert/keras.py",
    "onnx": "convert/onnx.py",
    "onnxruntime": "convert/onnx.py",
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def room(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def test_a_module_imports_only_rooms_above_its_own():
    for path in ROOT.rglob("*.py"):
        own = room(path)
        if own in ("__init__", "__main__"):
            continue
        assert own in ROOMS, f"{path} is in no known room"
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "ennopt" and len(parts) > 1:
                if parts[1].startswith("_kernel"):
                    continue
                assert ROOMS.index(parts[1]) <= ROOMS.index(own), f"{path}: {name}"


def test_foreign_libraries_are_imported_in_their_own_file_only():
    for path in ROOT.rglob("*.py"):
        for name in imports(path):
            home = FOREIGN.get(name.split(".")[0])
            if home is not None:
                assert path == ROOT / home, f"{path} imports {name}"


def test_importing_the_package_imports_no_framework():
    code = (
        "import sys, ennopt\n"
        "heavy = {'torch', 'keras', 'onnx', 'sklearn', 'pyscipopt', 'gurobipy', "
        "'matplotlib', 'pandas', 'scipy', 'distributed'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
