"""After a run, the model that was given is asked for its prediction at the answer."""

import json
import pickle
import subprocess
import sys
from concurrent.futures import Executor, Future
from itertools import pairwise

import keras
import numpy as np
import onnxruntime
import pytest
import torch
from keras import layers
from skl2onnx import to_onnx
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import ennopt
from ennopt import Ensemble, Problem, Result, load, maximize, minimize
from ennopt.api import solve
from ennopt.convert.verify import FOLDING_SLACK, UNITS, Original, _rounding
from oracles import random_ensemble, random_network

BOX = [(-1.0, 1.3), (-0.7, 2.0)]
X = np.random.default_rng(0).uniform(-1, 2, (80, 2))
Y = np.column_stack([np.sin(2 * X[:, 0]) * X[:, 1], X[:, 0] - X[:, 1] ** 2])


def regressor(outputs=1):
    target = Y[:, 0] if outputs == 1 else Y
    model = MLPRegressor(
        hidden_layer_sizes=(6, 5), max_iter=60, random_state=1, tol=0.0
    )
    with pytest.warns(ConvergenceWarning):
        return make_pipeline(StandardScaler(), model).fit(X, target)


def module(outputs=1, dtype=torch.float32):
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, outputs))
    return net.to(dtype)


def keras_model():
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.Input((2,)), layers.Dense(6, "relu"), layers.Dense(1)]
    )


def asked(model, x):
    """What the frameworks themselves predict at a point."""
    if isinstance(model, nn.Module):
        dtype = next(model.parameters()).dtype
        with torch.no_grad():
            return model(torch.tensor(x[None], dtype=dtype)).double().numpy().ravel()
    if isinstance(model, keras.Model):
        point = x[None].astype(np.float32)
        return keras.ops.convert_to_numpy(model(point)).astype(float).ravel()
    if hasattr(model, "predict"):
        return np.ravel(model.predict(x[None]))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {session.get_inputs()[0].name: x[None].astype(np.float32)}
    return session.run(None, feeds)[0].astype(float).ravel()


MODELS = {
    "sklearn": regressor,
    "torch": module,
    "torch float64": lambda: module(dtype=torch.float64),
    "keras": keras_model,
    "onnx": lambda: to_onnx(regressor(), X[:1].astype(np.float32)),
}


@pytest.mark.parametrize("optimize", [maximize, minimize])
@pytest.mark.parametrize("name", MODELS)
def test_the_result_tells_what_the_framework_predicts_at_the_answer(name, optimize):
    model = MODELS[name]()
    answer = optimize(model, BOX, threads=1)
    assert answer.original == asked(model, answer.x)[0]
    assert answer.deviation == abs(answer.original - answer.value)
    assert answer.deviation <= (1e-12 if "float64" in name else 1e-5)
    assert not answer.notes
    assert f"the original model predicts {answer.original:.8g} there" in (
        answer.summary()
    )


@pytest.mark.parametrize("optimize", [maximize, minimize])
@pytest.mark.parametrize("output", [0, 1, [2.0, -0.5]])
@pytest.mark.parametrize("build", [regressor, module])
def test_several_outputs_are_combined_as_asked_for(build, output, optimize):
    model = build(outputs=2)
    answer = optimize(model, BOX, output=output, threads=1)
    coefficients = np.eye(2)[output] if np.ndim(output) == 0 else np.array(output)
    theirs = coefficients @ asked(model, answer.x)
    assert answer.original == pytest.approx(theirs, rel=1e-12)
    assert answer.deviation < 1e-5


def test_a_list_is_asked_for_the_mean_of_its_models():
    ensemble = random_ensemble(np.random.default_rng(4))
    models = [regressor(), [module(), keras_model()], ensemble]
    answer = maximize(models, BOX, threads=1)
    net, model = (asked(m, answer.x)[0] for m in models[1])
    first, third = asked(models[0], answer.x)[0], ensemble(answer.x)[0]
    mean = (first + (net + model) / 2 + third) / 3
    assert answer.original == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_asked_in_half_precision(dtype):
    model = module(dtype=dtype)
    answer = maximize(model, BOX, threads=1)
    assert answer.original == asked(model, answer.x)[0]
    assert 1e-6 < answer.deviation < 0.1
    assert not answer.notes  # as much as rounding explains


def test_ensembles_and_their_files_have_no_original(tmp_path):
    ensemble = load(module())
    ensemble.save(tmp_path / "model.npz")
    for model in (ensemble, ensemble.members[0], tmp_path / "model.npz"):
        answer = maximize(model, BOX, threads=1)
        assert answer.original is None
        assert answer.deviation is None
    told = maximize(ensemble, BOX, threads=1)
    assert "compared with the original model when loaded" in told.summary()


# Originals that do not answer, or not as before.


def changed_in_the_run(change):
    """A result whose original was changed after it was loaded."""
    model = regressor()
    network = model[-1]
    value = maximize(model, BOX, threads=1).value

    def once(moment):
        if not hasattr(network, "seen"):
            network.seen = True
            change(network)

    answer = maximize(model, BOX, threads=1, callback=once)
    assert answer.value == value  # whatever the original says
    (note,) = answer.notes
    assert f"note: {note}" in answer.summary()
    return answer, note


def test_a_deviation_beyond_rounding_is_noted():
    def shift(network):
        network.intercepts_[-1] = network.intercepts_[-1] + 1e-6

    answer, note = changed_in_the_run(shift)
    assert answer.deviation == pytest.approx(1e-6, rel=1e-3)
    assert "than rounding in float64 explains" in note


def test_an_original_that_raises_does_not_lose_the_answer():
    answer, note = changed_in_the_run(lambda network: network.coefs_.clear())
    assert answer.original is None
    assert "failed at the answer (IndexError" in note


def test_an_original_that_predicts_no_number_is_noted():
    def spoil(network):
        network.intercepts_[-1] = network.intercepts_[-1] * np.nan

    answer, note = changed_in_the_run(spoil)
    assert answer.original is None
    assert "predicts [nan] at the answer" in note


class OwnError(Exception):
    """What a stranger's code may raise."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, OwnError, MemoryError])
def test_whatever_an_original_raises_the_answer_stays(error):
    def predict(x):
        raise error("now")

    ensemble = random_ensemble(np.random.default_rng(5))
    problem = Problem(ensemble, ennopt.Domain([-1, -1], [1, 1]), "min")
    plain = solve(problem)
    answer = solve(problem, original=Original(predict, "float32"))
    assert (answer.value, answer.bound) == (plain.value, plain.bound)
    assert len(answer.notes) == len(plain.notes) + 1


def test_names_that_the_original_prints_are_escaped():
    def predict(x):
        raise ValueError("\x1b[31mred")

    problem = Problem(random_ensemble(np.random.default_rng(5)),
                      ennopt.Domain([-1, -1], [1, 1]))  # fmt: skip
    answer = solve(problem, original=Original(predict, "float32"))
    assert "\x1b" not in answer.summary()


# The record.


def test_the_original_survives_json():
    answer = minimize(module(), BOX, threads=1)
    data = json.loads(answer.to_json())
    assert data["original"] == answer.original
    assert data["deviation"] == answer.deviation
    again = Result.from_json(answer.to_json())
    assert again.to_json() == answer.to_json()
    assert again.summary() == answer.summary()


def test_the_command_line_asks_the_original_too(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(regressor(), X[:1].astype(np.float32)).SerializeToString())
    done = subprocess.run(
        [sys.executable, "-m", "ennopt", "solve", str(path), "--json", "--quiet",
         "--lower", "-1", "--upper", "1", "--sense", "min"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answer = Result.from_json(done.stdout)
    assert answer.original is not None
    assert answer.deviation < 1e-5


class Pickling(Executor):
    """Sends work as to another process, and does it here."""

    sent = 0

    def submit(self, work, /, *args, **options):
        work, args, options = pickle.loads(pickle.dumps((work, args, options)))
        self.sent += 1
        future = Future()
        future.set_result(work(*args, **options))
        return future


def test_originals_are_never_sent_to_other_processes():
    class Local(nn.Module):  # cannot be pickled
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(),
                nn.Linear(20, 1),
            )  # fmt: skip

        def forward(self, x):
            return self.net(x)

    torch.manual_seed(0)
    executor = Pickling()
    answer = maximize(
        Local(), (-3, 3), method="bnc", threads=1, executor=executor, time_limit=5
    )
    assert executor.sent
    assert answer.deviation < 1e-4


def test_an_ensemble_is_optimized_without_any_framework():
    code = (
        "import sys\n"
        "from ennopt import Network, maximize\n"
        "maximize(Network([[[1.0]]], [[0.0]]), [(0, 1)])\n"
        "heavy = {'torch', 'keras', 'onnx', 'onnxruntime', 'sklearn'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


# What rounding explains.


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("depth", range(1, 9))
def test_rounding_stays_within_what_is_called_rounding(depth, precision):
    rng = np.random.default_rng(depth)
    members = tuple(random_network(rng, 4, (30,) * depth) for _ in range(3))
    ensemble = Ensemble(members, weights=[0.5, -2.0, 1.0])
    kind = np.dtype(precision)
    for point in 3 * rng.standard_normal((20, 4)):
        total = kind.type(0.0)
        for weight, member in zip(ensemble.weights, members, strict=True):
            y = point.astype(kind)
            for k, (w, b) in enumerate(member.layers()):
                y = w.astype(kind) @ y + b.astype(kind)
                y = y if k == depth else np.maximum(y, 0)
            total = total + kind.type(weight) * y
        # weights were rounded as well, which counts as one more error for each term
        allowed = 2 * _rounding(ensemble, point, UNITS[precision]) / FOLDING_SLACK
        assert np.abs(total.astype(float) - ensemble(point)) <= allowed


def test_the_units_are_those_of_the_types():
    for name in ("float16", "float32", "float64"):
        assert UNITS[name] == np.finfo(name).eps / 2
    assert UNITS["bfloat16"] == torch.finfo(torch.bfloat16).eps / 2
    assert all(a < b for a, b in pairwise(UNITS.values()) if b < 2**-8)
