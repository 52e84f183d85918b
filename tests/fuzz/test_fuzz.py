"""Whatever a file holds, a reader returns or says in one sentence what is wrong.

``make fuzz`` tries many more: ``ENNOPT_FUZZ`` is how many files for each reader.
"""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutated

import ennopt
from ennopt import Domain, Problem, solve
from ennopt.certificate.checker import check
from ennopt.certificate.record import VERSION, Certificate
from ennopt.checkpoint import VERSION as CHECKPOINT
from ennopt.checkpoint import Checkpoint
from ennopt.cli.question import read_point
from ennopt.convert.vnnlib import Property
from ennopt.domain.files import read_bounds, read_cells
from ennopt.domain.statements import read_statement
from ennopt.learn.instances import MANIFEST, read_manifest
from ennopt.sealed import write_sealed
from ennopt.study.record import parse
from ennopt.study.spec import read_study
from oracles import random_ensemble

COUNT = int(os.environ.get("ENNOPT_FUZZ", "60"))
SLOW = max(6, COUNT // 10)
MOST_BYTES = 2**28
"""No reader may take more for a file of a few thousand bytes."""

REFUSALS = (ValueError, TypeError, NotImplementedError, OSError)
"""What a reader may raise; the command line prints these in one line."""

VNNLIB = """(declare-const X_0 Real) (declare-const X_1 Real)
(declare-const Y_0 Real) ; a comment
(assert (and (>= X_0 -2.5) (<= X_0 1e0) (>= X_1 0) (<= X_1 1)))
(assert (or (and (>= Y_0 4) (<= Y_0 5)) (<= (+ Y_0 (* 2 X_0)) -1)))
"""
TOML = """constraints = ["dose <= 2*age", "age + dose >= 1"]
integers = ["age"]
[bounds]
age = [1, 28]
dose = 3.5
grade = {values = [32.5, 42.5]}
"""
STUDY = Path(__file__).parents[2] / "experiments" / "paper.toml"
CSV = "name,lower,upper\nage,1,28\ndose,3,3\ndose <= 2*age,,\n"


def sealed(kind, version, path, data):
    """Seal a body again: a checksum alone must not be what protects a reader."""
    write_sealed(path, kind, version, data)


def model():
    made = random_ensemble(np.random.default_rng(0), 2, 2, (3, 3))
    return made.on_box([-1.0] * 2, [1.0] * 2)


def certificates(folder):
    for method in ("box", "neurons"):
        problem = Problem(model(), Domain([-1.0] * 2, [1.0] * 2))
        solve(problem, method, certificate=folder / "a", threads=1)
        yield (folder / "a").read_bytes().split(b"\n", 2)[2]


def certificate(path, data):
    sealed("certificate", VERSION, path, data)
    claim = Certificate.read(path, model())
    verdict = check(claim, most_pieces=50)
    if verdict:  # then it is true, whatever the file says
        sign = 1.0 if claim.problem.sense == "max" else -1.0
        points = claim.problem.domain.sample(50, np.random.default_rng(0))
        values = claim.problem.values(points) if len(points) else np.zeros(0)
        assert np.all(sign * values <= sign * claim.bound + 1e-12)


def checkpoints(folder):
    problem = Problem(model(), Domain([-1.0] * 2, [1.0] * 2))
    solve(problem, "box", checkpoint=folder / "a", threads=1, node_limit=3, gap=1e-9)
    yield (folder / "a").read_bytes().split(b"\n", 2)[2]


def checkpoint(path, data):
    sealed("checkpoint", CHECKPOINT, path, data)
    problem = Problem(model(), Domain([-1.0] * 2, [1.0] * 2))
    solve(
        problem, "box", threads=1, gap=1e-9, node_limit=50,
        checkpoint=Checkpoint(path, interval=1e6),
    )  # fmt: skip


def npz(folder):
    model().save(folder / "a.npz")
    yield (folder / "a.npz").read_bytes()


def onnx(folder):
    module = pytest.importorskip("onnx")
    make, numbers = module.helper, module.numpy_helper
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(3, 2)), "b": rng.normal(size=3),
              "v": rng.normal(size=(1, 3)), "c": np.zeros(1)}  # fmt: skip
    graph = make.make_graph(
        [
            make.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
            make.make_node("Relu", ["h"], ["r"]),
            make.make_node("Gemm", ["r", "v", "c"], ["y"], transB=1),
        ],
        "net",
        [make.make_tensor_value_info("x", module.TensorProto.FLOAT, [None, 2])],
        [make.make_tensor_value_info("y", module.TensorProto.FLOAT, [None, 1])],
        [numbers.from_array(a.astype(np.float32), n) for n, a in arrays.items()],
    )
    opset = [make.make_opsetid("", 17)]
    yield make.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def torch_state(folder):
    torch = pytest.importorskip("torch")
    layers = torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)
    )
    torch.save(layers.state_dict(), folder / "a.pt")
    yield (folder / "a.pt").read_bytes()


def keras(folder):
    os.environ.setdefault("KERAS_BACKEND", "torch")
    module = pytest.importorskip("keras")
    made = module.Sequential(
        [
            module.Input((2,)),
            module.layers.Dense(3, activation="relu"),
            module.layers.Dense(1),
        ]
    )
    made.save(folder / "a.keras")
    yield (folder / "a.keras").read_bytes()


def loaded(path, data):
    path.write_bytes(data)
    ennopt.load(path)


def bounds(path, data):
    path.write_bytes(data)
    read_bounds(path)


def study(path, data):
    path.write_bytes(data)
    read_study(path)


PROBLEM = """sense = "max"
objective = "2*y - cost"
limits = ["y >= -9", "std(y) <= 4"]
data = "rows.csv"
trust = "near"
constraints = ["x0 + x1 <= 1"]

[models]
y = {file = "y.npz", risk = "cvar:0.5"}

[expressions]
cost = {x0 = 0.5}

[bounds]
x0 = [-1, 1]
x1 = 0.25

[run]
time_limit = 60
"""


def problem(path, data):
    path.write_bytes(data)
    model().save(path.with_name("y.npz"))
    path.with_name("rows.csv").write_text("x0,x1\n0.5,0.25\n-0.5,0.25\n")
    ennopt.read_problem(path)


def results(folder):
    found = ennopt.maximize(model(), [(-1, 1)] * 2, constraints=["x0 + x1 <= 1"])
    yield found.to_json().encode()


def result(path, data):
    ennopt.Result.from_json(data.decode())


def point(path, data):
    path.write_bytes(data)
    read_point(path)


def rows(path, data):
    path.write_bytes(data)
    read_cells(path, "a file of data")


MANIFESTS = Path(__file__).parents[2] / "experiments" / "instances" / MANIFEST


def manifest(path, data):
    path.with_name(MANIFEST).write_bytes(data)
    read_manifest(path.parent)


READERS = {
    "npz": (npz, loaded, "a.npz", COUNT),
    "onnx": (onnx, loaded, "a.onnx", COUNT),
    "torch state": (torch_state, loaded, "a.pt", COUNT),
    "keras": (keras, loaded, "a.keras", SLOW),
    "bounds.toml": (lambda _: [TOML.encode()], bounds, "a.toml", COUNT),
    "bounds.csv": (lambda _: [CSV.encode()], bounds, "a.csv", COUNT),
    "constraint": (
        lambda _: [b"2*age + 3.5*dose <= 1e3", b"-1 <= age - `dose` <= 2"],
        lambda path, data: read_statement(data.decode(), ["age", "dose"]),
        "a",
        COUNT,
    ),
    "vnnlib": (
        lambda _: [VNNLIB.encode()],
        lambda path, data: Property.of(data.decode()),
        "a",
        COUNT,
    ),
    "problem": (lambda _: [PROBLEM.encode()], problem, "a.toml", SLOW),
    "result": (results, result, "a.json", COUNT),
    "known point": (
        lambda folder: [b'{"x0": 0.5, "x1": "wet"}', *results(folder)],
        point,
        "a.json",
        COUNT,
    ),
    "data": (lambda _: [b"age,mix\n28,'a'\n3.5,b\n"], rows, "a.csv", COUNT),
    "instances": (lambda _: [MANIFESTS.read_bytes()], manifest, "a", COUNT),
    "certificate": (certificates, certificate, "b", COUNT),
    "checkpoint": (checkpoints, checkpoint, "b", SLOW),
    "study": (lambda _: [STUDY.read_bytes()], study, "a.toml", COUNT),
    "study record": (
        lambda _: [b'{"line": "run", "key": "a", "value": 1.5}\n' * 3],
        lambda path, data: parse(data),
        "a",
        COUNT,
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(name, tmp_path):
    make, read, file, count = READERS[name]
    corpus = list(make(tmp_path))
    for good in corpus:
        read(tmp_path / file, good)  # what is not damaged is read
    rng = np.random.default_rng(int(os.environ.get("ENNOPT_FUZZ_SEED", "0")))
    refused = 0
    tracemalloc.start()
    try:
        for k in range(count):
            data = mutated(rng, corpus[k % len(corpus)], corpus)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                read(tmp_path / file, data)
            except REFUSALS as error:
                refused += 1
                told = str(error)
                assert told, data
            assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES, data
    finally:
        tracemalloc.stop()
    assert refused > 0


@pytest.mark.parametrize("name", ["result", "known point", "instances"])
@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b"[1]", b'{"inputs": 1, "x_by_name": null, "sense": 2}']
)
def test_json_of_another_kind_is_refused(name, data, tmp_path):
    _, read, file, _ = READERS[name]
    with pytest.raises(ValueError, match="Expected "):
        read(tmp_path / file, data)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=200) | st.text(
    "()<>=+-*/.,0123456789eEXY_ andorsert;`\"'\n", max_size=200
)


@settings(
    max_examples=COUNT, deadline=None, suppress_health_check=list(HealthCheck),
    derandomize=COUNT <= 1000,
)  # fmt: skip
@given(TEXTS)
def test_no_text_trips_the_parsers(text):
    for read in (
        lambda: read_statement(text, ["x0", "x1"]),
        lambda: Property.of(text),
        lambda: parse(text.encode()),
    ):
        try:
            read()
        except ValueError as error:
            assert str(error)
