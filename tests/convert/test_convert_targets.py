"""Classifiers and transformed targets: optimized inside, reported as predicted."""

import itertools
import math
import warnings

import keras
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import BaggingRegressor, VotingClassifier, VotingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from torch import nn

from ennopt import (
    Ensemble,
    Network,
    PredictorNotSupportedError,
    Result,
    load,
    maximize,
    minimize,
)
from ennopt.cli.main import main
from ennopt.network import ModelConfigurationError
from ennopt.targets import Classes, Link, Odds

RNG = np.random.default_rng(8)
X = RNG.uniform(-1, 1, (150, 2))
TWO = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 > 0.2, "good", "bad")
THREE = np.where(X[:, 0] > 0.3, "a", np.where(X[:, 1] > 0, "b", "c"))
Y = np.exp(X[:, 0] + 0.3 * np.abs(X[:, 1]))
GRID = np.array(list(itertools.product(np.linspace(-1, 1, 41), repeat=2)))
BOX = [(-1, 1), (-1, 1)]


def fit(model, y, x=X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y)


def classifier(**options):
    return MLPClassifier((6,), max_iter=80, random_state=0, **options)


def regressor(**options):
    return MLPRegressor(hidden_layer_sizes=(6,), max_iter=80, random_state=0, **options)


def check_class(model, output, column, optimize=maximize):
    """The best log-odds on a dense grid, and probabilities that respect the bound."""
    result = optimize(model, BOX, output=output)
    everywhere = model.predict_proba(GRID)[:, column]
    assert result.proved
    assert result.original == pytest.approx(result.probability, abs=1e-9)
    assert not any("original" in note for note in result.notes)
    if optimize is maximize:
        assert everywhere.max() <= result.probability_bound
        assert result.probability <= result.probability_bound
    else:
        assert everywhere.min() >= result.probability_bound
        assert result.probability >= result.probability_bound
    return result, everywhere


@pytest.mark.parametrize("optimize", [maximize, minimize])
@pytest.mark.parametrize("output", [None, 0, "good", "bad"])
@pytest.mark.parametrize(
    "model",
    [classifier(), LogisticRegression(), make_pipeline(StandardScaler(), classifier())],
    ids=["network", "logistic", "pipeline"],
)
def test_two_classes_are_optimized_by_their_log_odds(model, output, optimize):
    fit(model, TWO)
    column = {None: 1, 0: 0, "good": 1, "bad": 0}[output]
    result, everywhere = check_class(model, output, column, optimize)
    best = everywhere.max() if optimize is maximize else everywhere.min()
    gain = result.probability - best
    assert (gain if optimize is maximize else -gain) >= -1e-9
    odds = math.log(result.probability / (1 - result.probability))
    assert result.value == pytest.approx(odds)


@pytest.mark.parametrize("optimize", [maximize, minimize])
@pytest.mark.parametrize(
    ("name", "activation"), [("a", "relu"), ("b", "relu"), ("c", "relu"), ("b", "tanh")]
)
def test_three_classes_are_optimized_against_the_likeliest_other(
    name, activation, optimize
):
    model = fit(classifier(activation=activation), THREE)
    place = "abc".index(name)
    result, _ = check_class(model, name, place, optimize)
    logs = np.log(model.predict_proba(GRID))
    margins = logs[:, place] - np.delete(logs, place, axis=1).max(axis=1)
    if optimize is maximize:
        assert margins.max() <= result.bound + 1e-9
        assert result.value >= margins.max() - 1e-6
    else:
        assert margins.min() >= result.bound - 1e-9
    assert "against the likeliest other one (probability 0." in result.summary()
    again = Result.from_json(result.to_json())
    assert again.probability_bound == result.probability_bound


def test_several_labels_are_classes_of_their_own():
    labels = np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)
    model = fit(classifier(), labels)
    result, everywhere = check_class(model, 1, 1)
    assert result.probability >= everywhere.max() - 1e-9


def test_many_classes_compare_in_pairs(rng):
    for count in (3, 4, 5, 7):
        net = Network([rng.normal(size=(count, 2))], [rng.normal(size=count)])
        ensemble = Ensemble([net], target=Classes("softmax", tuple(range(count))))
        result = maximize(ensemble, BOX, output=count - 1)
        scores = net(GRID)
        margins = scores[:, -1] - scores[:, :-1].max(axis=1)
        assert margins.max() <= result.bound + 1e-9
        assert result.value >= margins.max() - 1e-9


def test_a_classifier_of_a_table_answers_in_its_columns():
    frame = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 1] > 0, "p", "q")})
    steps = make_column_transformer(
        (OneHotEncoder(), ["kind"]), (StandardScaler(), ["x"])
    )
    model = fit(make_pipeline(steps, classifier()), TWO, frame)
    result = maximize(model, frame, output="good")
    told = model.predict_proba(pd.DataFrame([result.inputs]))[0, 1]
    assert told == pytest.approx(result.probability)


@pytest.mark.parametrize("output", [None, 3, "d", 1.5, [1, 0, 0]])
def test_a_class_that_is_none_gets_one_error(output):
    with pytest.raises(ValueError, match=r"the class to optimize, .*'a', 'b'"):
        maximize(fit(classifier(), THREE), BOX, output=output)


@pytest.mark.parametrize("model", [
    VotingClassifier([("a", classifier()), ("b", classifier())], voting="soft"),
])  # fmt: skip
def test_means_of_probabilities_are_refused(model):
    with pytest.raises(PredictorNotSupportedError, match="no function of one score"):
        load(fit(model, TWO))
    two = [fit(classifier(), TWO), fit(LogisticRegression(), TWO)]
    with pytest.raises(PredictorNotSupportedError, match="a mean of probabilities"):
        load(two)


LAYERS = {
    "sigmoid": (1, nn.Sigmoid()),
    "softmax of two": (2, nn.Softmax(dim=1)),
    "softmax": (4, nn.Softmax(dim=-1)),
    "sigmoids": (3, nn.Sigmoid()),
}


@pytest.mark.parametrize("name", LAYERS)
def test_torch_modules_may_end_in_probabilities(name):
    torch.manual_seed(0)
    count, last = LAYERS[name]
    module = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, count), last)
    ensemble = load(module)
    assert isinstance(ensemble.target, Classes)
    with torch.no_grad():
        theirs = module(torch.tensor(GRID, dtype=torch.float32)).numpy()
    ours = ensemble.target.probabilities(ensemble(GRID))
    assert ours == pytest.approx(theirs, abs=1e-6)
    result = maximize(module, BOX, output=0)
    column = 1 - theirs[:, 0] if count == 1 else theirs[:, 0]
    assert column.max() <= result.probability_bound + 1e-6
    assert result.original == pytest.approx(result.probability, abs=1e-6)
    assert result.notes == ()


@pytest.mark.parametrize(
    "reshaped", [lambda p: p.squeeze(-1), lambda p: torch.squeeze(p, -1),
                 lambda p: torch.flatten(p), lambda p: p.view(-1)]
)  # fmt: skip
def test_functions_and_reshapes_of_a_sigmoid_are_followed(reshaped, tmp_path):
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(2, 1)

        def forward(self, x):
            return reshaped(torch.sigmoid(self.net(x)))

    assert load(Flat()).target == Classes("sigmoid", (0, 1))
    flat = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(1, "sigmoid"), keras.layers.Flatten()]
    )
    assert load(flat).target == Classes("sigmoid", (0, 1))


@pytest.mark.parametrize("kind", ["sigmoid", "softmax"])
def test_keras_models_and_files_may_end_in_probabilities(kind, tmp_path, capsys):
    keras.utils.set_random_seed(0)
    count = 1 if kind == "sigmoid" else 3
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(4, "relu"),
         keras.layers.Dense(count, kind)]
    )  # fmt: skip
    result = maximize(model, BOX, output=1)
    theirs = keras.ops.convert_to_numpy(model(GRID))[:, 0 if count == 1 else 1]
    assert theirs.max() <= result.probability_bound + 1e-6
    path, out = tmp_path / "model.keras", tmp_path / "model.npz"
    model.save(path)
    assert main(["convert", str(path), str(out)]) == 0
    again = maximize(out, BOX, output=1)
    assert again.probability == pytest.approx(result.probability)
    words = ["solve", str(out), "--lower", "-1", "--upper", "1", "--output-index", "1"]
    assert main([*words, "--quiet"]) == 0
    assert "this is the log-odds of class 1" in capsys.readouterr().out


TARGETS = {
    "log": {"func": np.log, "inverse_func": np.exp},
    "log1p": {"func": np.log1p, "inverse_func": np.expm1},
    "box-cox": {"transformer": PowerTransformer("box-cox")},
    "yeo-johnson": {"transformer": PowerTransformer(standardize=False)},
    "quantile": {"transformer": QuantileTransformer(n_quantiles=40)},
    "normal": {"transformer": QuantileTransformer(
        n_quantiles=40, output_distribution="normal")},
}  # fmt: skip


@pytest.mark.parametrize("optimize", [maximize, minimize])
@pytest.mark.parametrize("name", TARGETS)
def test_transformed_targets_are_optimized_inside_and_mapped(name, optimize):
    bag = BaggingRegressor(regressor(), n_estimators=3, random_state=0)
    model = fit(TransformedTargetRegressor(bag, **TARGETS[name]), Y)
    result = optimize(model, BOX)
    everywhere = model.predict(GRID)
    size = 1e-9 * (1 + np.abs(everywhere).max())
    assert result.proved
    if optimize is maximize:
        assert everywhere.max() <= result.bound
        assert result.value >= everywhere.max() - size
    else:
        assert everywhere.min() >= result.bound
        assert result.value <= everywhere.min() + size
    assert result.value == pytest.approx(model.predict(result.x[None])[0])
    assert result.original == pytest.approx(result.value)
    assert result.notes == ()
    assert "optimized before" in result.summary()


def test_a_poisson_network_is_optimized_before_its_exponential():
    model = fit(regressor(loss="poisson"), Y)
    result = maximize(model, BOX)
    assert result.value == pytest.approx(model.predict(result.x[None])[0])
    assert model.predict(GRID).max() <= result.bound


def test_members_that_transform_back_each_alone_are_refused():
    member = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp)
    for model in (
        VotingRegressor([("a", member), ("b", member)]),
        BaggingRegressor(member, n_estimators=2),
    ):
        with pytest.raises(PredictorNotSupportedError, match="average first"):
            load(fit(model, Y))
    with pytest.raises(PredictorNotSupportedError, match="average first"):
        load([fit(member, Y), fit(member, Y)])


def test_other_functions_of_the_target_are_refused_by_name():
    model = TransformedTargetRegressor(
        regressor(), transformer=FunctionTransformer(lambda y: y, lambda y: y)
    )
    with pytest.raises(PredictorNotSupportedError, match="grow everywhere"):
        load(fit(model, Y))


def test_what_a_file_cannot_describe_is_not_written(tmp_path):
    line = Ensemble([Network([[[1.0]]], [[0.0]])], target=Link("exp", np.exp))
    with pytest.raises(ModelConfigurationError, match="Keep the original model"):
        line.save(tmp_path / "model.npz")
    np.savez(tmp_path / "bad.npz", **{
        "net0.W0": np.ones((1, 1)), "net0.b0": np.zeros(1), "classes": "[1]",
    })  # fmt: skip
    with pytest.raises(ModelConfigurationError, match="classes as JSON"):
        load(tmp_path / "bad.npz")


@pytest.mark.parametrize("rivals", [1, 2, 9])
@pytest.mark.parametrize("seed", range(3))
def test_a_bound_of_the_odds_bounds_the_probability(rivals, seed):
    scores = np.random.default_rng(seed).normal(0, 5, (500, rivals + 1))
    classes = Classes("softmax", tuple(range(rivals + 1)))
    probability = classes.probabilities(scores)[:, 0]
    margins = scores[:, 0] - scores[:, 1:].max(axis=1)
    odds = Odds(0, rivals, lambda x: x)
    for p, margin in zip(probability, margins, strict=True):
        assert odds.bound(margin, "min") <= p <= odds.bound(margin, "max")
