"""One trained ensemble through every importer: same members, values and optimum."""

import contextlib
import io
import warnings
from functools import cache

import keras
import numpy as np
import pytest
import torch
from keras import layers
from skl2onnx import to_onnx
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, VotingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import ennopt
from ennopt import Domain, Ensemble, Network, load
from oracles import exact_maximum

WIDTHS = [(5,), (6, 4), (4,), ()]
BOX = Domain([-2.0, -1.5], [1.5, 2.0])
X = np.random.default_rng(3).uniform(BOX.lower, BOX.upper, (300, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] - 0.3 * X[:, 1] ** 2


@cache
def regressors():
    """Members trained once, with numbers that float32 holds exactly."""
    fitted = []
    for seed, widths in enumerate(WIDTHS):
        model = (
            MLPRegressor(hidden_layer_sizes=widths, max_iter=200, random_state=seed,
                         learning_rate_init=0.02)
            if widths else LinearRegression()
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, Y)
        if widths:
            model.coefs_ = [w.astype(np.float32).astype(float) for w in model.coefs_]
            model.intercepts_ = [
                b.astype(np.float32).astype(float) for b in model.intercepts_
            ]
        else:
            model.coef_ = model.coef_.astype(np.float32).astype(float)
            model.intercept_ = float(np.float32(model.intercept_))
        fitted.append(model)
    return fitted


@cache
def truth():
    """The ensemble, straight from the trained arrays."""
    members = []
    for model in regressors():
        if isinstance(model, LinearRegression):
            members.append(Network((model.coef_[None],), ([model.intercept_],)))
        else:
            weights = tuple(w.T for w in model.coefs_)
            members.append(Network(weights, tuple(model.intercepts_)))
    return Ensemble(tuple(members))


def voting():
    names = [(f"m{i}", model) for i, model in enumerate(regressors())]
    model = VotingRegressor(names)
    model.estimators_ = regressors()
    model.named_estimators_ = dict(names)
    return model


def bagging():
    model = BaggingRegressor(regressors()[0], n_estimators=4)
    model.estimators_ = regressors()
    model.estimators_features_ = [np.arange(2)] * 4
    model.n_features_in_ = 2
    return model


def torch_net(member):
    modules = []
    for w, b in member.layers():
        linear = nn.Linear(w.shape[1], w.shape[0])
        linear.weight.data = torch.tensor(w, dtype=torch.float32)
        linear.bias.data = torch.tensor(b, dtype=torch.float32)
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def torch_nets():
    return [torch_net(member) for member in truth().members]


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(torch_nets())

    def forward(self, x):
        return torch.stack([net(x) for net in self.nets]).mean(dim=0)


class ScaledMean(Mean):
    def forward(self, x):
        z = (x - torch.tensor([10.0, -3.0])) / torch.tensor([4.0, -0.5])
        return 20.0 * super().forward(z) + 100.0


def keras_net(member):
    depth = len(member.weights)
    model = keras.Sequential([keras.Input((2,))])
    for k, (w, b) in enumerate(member.layers()):
        dense = layers.Dense(len(b), "relu" if k < depth - 1 else None)
        model.add(dense)
        dense.set_weights([w.T, b])
    return model


def keras_nets():
    return [keras_net(member) for member in truth().members]


def keras_mean():
    x = keras.Input((2,))
    return keras.Model(x, layers.Average()([net(x) for net in keras_nets()]))


def keras_scaled_mean():
    x = keras.Input((2,))
    z = layers.Rescaling(np.array([0.25, -2.0]), np.array([-2.5, -6.0]))(x)
    mean = layers.Average()([net(z) for net in keras_nets()])
    return keras.Model(x, layers.Rescaling(20.0, 100.0)(mean))


@contextlib.contextmanager
def quiet():
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def torch_export(module, path, dynamo):
    example = (torch.zeros(2, 2),)
    with quiet():
        if dynamo:
            batch = torch.export.Dim("batch")
            torch.onnx.export(
                module.eval(), example, path, dynamo=True, verbose=False,
                dynamic_shapes=({0: batch},),
            )  # fmt: skip
        else:
            torch.onnx.export(
                module.eval(), example, path, dynamo=False, input_names=["x"],
                dynamic_axes={"x": {0: "batch"}},
            )  # fmt: skip
    return path


def keras_export(model, path):
    model(np.zeros((1, 2)))  # the exporter wants a model that was called
    with quiet():
        model.export(path, format="onnx", verbose=False)
    return path


def saved(save, path):
    save(path)
    return path


ROUTES = {
    "network": lambda folder: list(truth().members),
    "npz": lambda folder: saved(truth().save, folder / "model.npz"),
    "sklearn list": lambda folder: regressors(),
    "sklearn voting": lambda folder: voting(),
    "sklearn bagging": lambda folder: bagging(),
    "torch list": lambda folder: torch_nets(),
    "torch mean": lambda folder: Mean(),
    "torch state": lambda folder: saved(
        lambda path: torch.save([net.state_dict() for net in torch_nets()], path),
        folder / "model.pt",
    ),
    "keras list": lambda folder: keras_nets(),
    "keras mean": lambda folder: keras_mean(),
    "keras file": lambda folder: saved(keras_mean().save, folder / "model.keras"),
    "onnx by torch": lambda folder: torch_export(Mean(), folder / "t.onnx", True),
    "onnx by old torch": lambda folder: torch_export(Mean(), folder / "o.onnx", False),
    "onnx by keras": lambda folder: keras_export(keras_mean(), folder / "k.onnx"),
    "onnx by skl2onnx": lambda folder: to_onnx(voting(), X[:1].astype(np.float32)),
    "onnx list": lambda folder: [
        to_onnx(model, X[:1].astype(np.float32)) for model in regressors()
    ],
    "mixture": lambda folder: [
        regressors()[0], torch_nets()[1], keras_nets()[2], truth().members[3]
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Each route, once."""

    @cache
    def convert(route):
        return load(ROUTES[route](tmp_path_factory.mktemp("models")))

    return convert


@pytest.mark.parametrize("route", ROUTES)
def test_every_importer_gives_the_same_members(route, converted):
    ensemble = converted(route)
    assert ensemble.weights == pytest.approx(np.full(4, 0.25), rel=1e-6)
    for ours, theirs in zip(ensemble.members, truth().members, strict=True):
        assert ours.hidden_widths == theirs.hidden_widths
        for (w, b), (v, c) in zip(ours.layers(), theirs.layers(), strict=True):
            assert w == pytest.approx(v, rel=1e-6, abs=1e-7)
            assert b == pytest.approx(c, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("route", ROUTES)
def test_every_importer_gives_the_same_predictions(route, converted):
    points = BOX.sample(200, np.random.default_rng(0))
    assert converted(route)(points) == pytest.approx(truth()(points), abs=1e-5)


@pytest.mark.parametrize("route", [r for r in ROUTES if r not in ("network", "npz")])
def test_every_importer_measures_its_deviation(route, converted):
    assert 0.0 <= converted(route).deviation < 1e-5
    assert "deviation" in repr(converted(route))


@pytest.mark.parametrize("route", ROUTES)
def test_every_importer_gives_the_same_optimum(route, converted):
    exact, x = exact_maximum(truth(), BOX)
    answer = ennopt.maximize(converted(route), BOX, threads=1, gap=1e-6)
    assert answer.value == pytest.approx(exact, abs=1e-5)
    assert answer.bound >= exact - 1e-5
    assert truth()(answer.x)[0] == pytest.approx(truth()(x)[0], abs=1e-5)


@pytest.mark.parametrize("route", ROUTES)
def test_every_importer_lets_the_original_speak_at_the_answer(route, tmp_path):
    answer = ennopt.maximize(ROUTES[route](tmp_path), BOX, threads=1)
    if route in ("network", "npz"):
        assert answer.original is None
    else:
        assert answer.original == pytest.approx(answer.value, abs=1e-5)
        assert not [note for note in answer.notes if "original" in note]


# The same members behind scaled inputs and a scaled target, with a negative factor.


def scaler(mean, scale):
    fitted = StandardScaler().fit(np.zeros((2, len(mean))))
    fitted.mean_, fitted.scale_ = np.array(mean), np.array(scale)
    return fitted


def sklearn_scaled():
    inner = make_pipeline(scaler([10.0, -3.0], [4.0, -0.5]), voting())
    model = TransformedTargetRegressor(inner, transformer=StandardScaler())
    model.regressor_, model.transformer_ = inner, scaler([100.0], [20.0])
    model._training_dim = 1
    return model


SCALED = {
    "sklearn": lambda folder: sklearn_scaled(),
    "torch": lambda folder: ScaledMean(),
    "keras": lambda folder: keras_scaled_mean(),
    "onnx by torch": lambda folder: torch_export(ScaledMean(), folder / "t.onnx", True),
    "onnx by keras": lambda folder: keras_export(
        keras_scaled_mean(), folder / "k.onnx"
    ),
}


@pytest.mark.parametrize("route", SCALED)
def test_scaling_is_folded_in_alike_by_every_importer(route, tmp_path):
    ensemble = load(SCALED[route](tmp_path))
    expected = truth().fold_input([0.25, -2.0], [-2.5, -6.0]).fold_output(20.0, 100.0)
    assert ensemble.weights == pytest.approx(np.full(4, 0.25), rel=1e-6)
    for ours, theirs in zip(ensemble.members, expected.members, strict=True):
        for (w, b), (v, c) in zip(ours.layers(), theirs.layers(), strict=True):
            assert w == pytest.approx(v, rel=1e-5, abs=1e-5)
            assert b == pytest.approx(c, rel=1e-5, abs=1e-5)
    units = Domain([2.0, -4.0], [16.0, -2.0])
    points = units.sample(100, np.random.default_rng(1))
    assert ensemble(points) == pytest.approx(expected(points), rel=1e-5)
    assert ensemble.deviation < 1e-3  # of predictions around 100, in float32
