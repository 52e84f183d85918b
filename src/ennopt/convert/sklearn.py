"""scikit-learn models: networks, linear models, and ensembles of both.

What stands in front of a regressor is folded into its first layer, scalers of the
target into its last, so that the ensemble reads and predicts in the user's units. The
scores of a classifier, and predictions before a target is transformed back, stay as
they are, with a `Target` that says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ennopt.activations import RELU, Sigmoid, Tanh
from ennopt.columns import Column, Number
from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.sklearn_tables import (
    Inputs,
    Table,
    check_fitted,
    check_own,
    class_of,
    passes_through,
    scaling,
    transformed,
)
from ennopt.convert.verify import Loaded, Original, combine, verified
from ennopt.extras import require
from ennopt.network import Array, Ensemble, ModelConfigurationError, Network
from ennopt.targets import Classes, Link

OUTPUTS = ("identity", "exp", "logistic", "softmax")
INCREASING = ("exp", "expm1", "exp2", "sinh", "arcsinh", "cbrt", "arctan", "tanh")
REGRESSORS = (
    "MLPRegressor (relu, tanh, logistic, identity)",
    "linear models (LinearRegression, Ridge, Lasso, ...)",
    "BaggingRegressor",
    "VotingRegressor",
    "Pipeline",
    "TransformedTargetRegressor (scalers, increasing functions)",
    "MLPClassifier",
    "LogisticRegression",
    "GridSearchCV",
    "RandomizedSearchCV",
)

ACTIVATIONS = {"relu": RELU, "tanh": Tanh(), "logistic": Sigmoid()}


def load_sklearn(model: Any) -> Loaded:
    """Convert a fitted scikit-learn regressor and check it against `model.predict`."""
    _check(model, type(model).__name__)
    names = _column_names(model)
    inputs = Inputs(names or [f"x{j}" for j in range(_num_columns(model))])
    found = convert(model, "", Table.of_columns(inputs))
    order = inputs.order()
    ensemble = Ensemble(
        tuple(_reordered(m, order) for m in found.members),
        weights=found.weights,
        input_names=tuple(n for c in inputs.ordered() for n in c.input_names),
        columns=None if inputs.is_plain else inputs.ordered(),
        target=found.target,
    )
    center, spread = np.zeros(len(order)), np.ones(len(order))
    for j, units in inputs.units.items():
        center[order.index(j)], spread[order.index(j)] = units
    return verified(
        ensemble,
        Original(_predict(model, inputs, names is not None, ensemble), "float64"),
        units=(center, spread),
        source=f"sklearn {type(model).__name__}",
    )


def _reordered(network: Network, order: list[int]) -> Network:
    """The network with its inputs in another order; those it does not read last."""
    if order == list(range(network.num_inputs)):
        return network
    places = [order.index(j) for j in range(network.num_inputs)]
    return network.spread_inputs(places, len(order))


def _predict(
    model: Any, inputs: Inputs, is_named: bool, ensemble: Ensemble
) -> Callable[[Array], Any]:
    """The model's own predictions for points of the inputs: probabilities of classes.

    A sigmoid of one output has one column, the probability of the second class.
    """
    columns = {name: place for place, name in enumerate(inputs.names)}
    read: dict[str, Column] = {c.name: c for c in inputs.ordered()}

    def predict(x: Array) -> Any:
        with warnings.catch_warnings():
            # points without column names, to a model trained on a data frame
            warnings.filterwarnings("ignore", message="X does not have valid feature")
            table = x if plain else rows(x)
            if not isinstance(ensemble.target, Classes):
                return model.predict(table)
            found = np.asarray(model.predict_proba(table))
            return found[:, 1:] if ensemble.num_outputs == 1 else found

    def rows(x: Array) -> Any:
        """The points as a table of the user's; columns that are not read are zero."""
        cells = {
            name: [read[name].told(point) for point in x] if name in read else 0.0
            for name in columns
        }
        if is_named:
            pandas = require("pandas", "sklearn")
            return pandas.DataFrame(cells, index=range(len(x)))
        numbers = all(isinstance(column, Number) for column in read.values())
        table = np.zeros((len(x), len(columns)), dtype=float if numbers else object)
        for name, place in columns.items():
            table[:, place] = cells[name]
        return table

    plain = inputs.is_plain and not inputs.by_name
    return predict


def convert(model: Any, where: str, table: Table) -> Ensemble:
    """Convert one fitted regressor.

    Parameters
    ----------
    model
        The regressor.
    where
        Its place in the whole.
    table
        The features that it takes. The ensemble takes the inputs made so far.
    """
    where = f"{where}.{type(model).__name__}" if where else type(model).__name__
    _check(model, where)
    linear_model = require("sklearn.linear_model", "sklearn")
    if isinstance(model, class_of("neural_network", "MLPRegressor")):
        target = Link("exp", np.exp) if model.out_activation_ == "exp" else None
        return replace(_on(_mlp(model, where), table, where), target=target)
    if isinstance(model, class_of("neural_network", "MLPClassifier")):
        check_own(model, "predict_proba", where)
        return _classes(_on(_mlp(model, where), table, where), model)
    if isinstance(model, linear_model.LogisticRegression):
        check_own(model, "predict_proba", where)
        return _classes(_on(_linear(model, where), table, where), model)
    if isinstance(model, class_of("pipeline", "Pipeline")):
        return _pipeline(model, where, table)
    if isinstance(model, class_of("compose", "TransformedTargetRegressor")):
        return _transformed_target(model, where, table)
    if isinstance(model, class_of("ensemble", "BaggingRegressor")):
        table = table.as_numbers(where)
        members = [
            convert(e, where, table.take(features))
            for e, features in zip(
                model.estimators_, model.estimators_features_, strict=True
            )
        ]
        return _mean(members, table)
    if isinstance(model, class_of("ensemble", "VotingRegressor")):
        members = [convert(e, where, table) for e in model.estimators_]
        return _mean(members, table, _votes(model))
    if _is_search(model):
        return convert(model.best_estimator_, where, table)
    if isinstance(model, linear_model.RANSACRegressor):
        return convert(model.estimator_, where, table)
    if _is_linear(model):
        return _on(_linear(model, where), table, where)
    raise _not_a_regressor(model, where)


def _on(network: Network, table: Table, where: str) -> Ensemble:
    """A network of the features of a table, as one of the inputs."""
    table = table.as_numbers(where)
    if network.num_inputs != table.width:
        raise ModelConfigurationError(
            f"Expected {network.num_inputs} features, as many as were fitted, got "
            f"{table.width} from the steps before {where}."
        )
    return Ensemble((network.after(table.matrix, table.shift),))


def _mean(
    members: list[Ensemble], table: Table, weights: Array | None = None
) -> Ensemble:
    """The mean of several members, each on the inputs that all of them made."""
    size = table.inputs.size
    wide = [
        Ensemble(
            tuple(m.spread_inputs(range(m.num_inputs), size) for m in e.members),
            weights=e.weights,
            target=e.target,
        )
        for e in members
    ]
    return combine(wide, weights)


def _check(model: Any, where: str) -> None:
    """Refuse what is no model of scikit-learn, or not fitted."""
    try:
        check_fitted(model, where)
    except PredictorNotSupportedError:
        raise
    except TypeError as error:
        raise _not_a_regressor(model, where) from error
    check_own(model, "predict", where)


def _not_a_regressor(model: Any, where: str) -> PredictorNotSupportedError:
    base = require("sklearn.base", "sklearn")
    name, remedy = type(model).__name__, ""
    if base.is_classifier(model):
        name = f"the classifier {name}"
        remedy = "Only classifiers that score classes with one network can be optimized"
        remedy += ": means of probabilities are no function of one score."
    elif base.is_regressor(model):
        remedy = "Only networks and linear models can be optimized here."
    elif hasattr(model, "transform"):
        remedy = "Pass the pipeline that ends in a regressor."
    where = "" if where == type(model).__name__ else where
    return refuse("a scikit-learn regressor", name, REGRESSORS, where=where,
                  remedy=remedy)  # fmt: skip


def _is_search(model: Any) -> bool:
    selection = require("sklearn.model_selection", "sklearn")
    return isinstance(model, selection.GridSearchCV | selection.RandomizedSearchCV)


def _mlp(model: Any, where: str) -> Network:
    weights = [np.asarray(w, dtype=np.float64).T for w in model.coefs_]
    biases = [np.asarray(b, dtype=np.float64) for b in model.intercepts_]
    if model.activation == "identity":
        matrix, shift = weights[0], biases[0]
        for w, b in zip(weights[1:], biases[1:], strict=True):
            matrix, shift = w @ matrix, w @ shift + b
        weights, biases = [matrix], [shift]
    elif model.activation not in ACTIVATIONS:
        raise refuse(
            "an activation", model.activation, (*ACTIVATIONS, "identity"), where=where
        )
    if model.out_activation_ not in OUTPUTS:
        raise refuse("an output activation", model.out_activation_, OUTPUTS,
                     where=where)  # fmt: skip
    kinds = (ACTIVATIONS.get(model.activation, RELU),) * (len(weights) - 1)
    return Network(tuple(weights), tuple(biases), kinds)


def _classes(ensemble: Ensemble, model: Any) -> Ensemble:
    """The ensemble with the names of the classes that it scores."""
    names = [c.item() if isinstance(c, np.generic) else c for c in model.classes_]
    several = ensemble.num_outputs > 1
    soft = several and getattr(model, "out_activation_", "softmax") == "softmax"
    if len(names) != (ensemble.num_outputs if several else 2):
        raise ModelConfigurationError(
            f"Expected a score for each class, got {ensemble.num_outputs} for "
            f"{len(names)} classes."
        )
    return replace(ensemble, target=Classes("softmax" if soft else "sigmoid",
                                            tuple(names)))  # fmt: skip


def _is_linear(model: Any) -> bool:
    """Whether predictions are ``coef_ @ x + intercept_``."""
    base = require("sklearn.base", "sklearn")
    linear_model = require("sklearn.linear_model", "sklearn")
    svm = require("sklearn.svm", "sklearn")
    generalized = (
        linear_model.TweedieRegressor,
        linear_model.PoissonRegressor,
        linear_model.GammaRegressor,
    )
    modules = {cls.__module__ for cls in type(model).__mro__}
    family = any(m.startswith("sklearn.linear_model.") for m in modules)
    return (
        base.is_regressor(model)
        and (family or isinstance(model, svm.LinearSVR))
        and not isinstance(model, generalized)
        and hasattr(model, "coef_")
        and hasattr(model, "intercept_")
    )


def _linear(model: Any, where: str) -> Network:
    coefficients = model.coef_
    if hasattr(coefficients, "toarray"):  # sparsify() was called
        coefficients = coefficients.toarray()
    matrix = np.atleast_2d(np.asarray(coefficients, dtype=np.float64))
    if matrix.ndim != 2:
        raise ModelConfigurationError(
            f"Expected a matrix of coefficients, got shape {matrix.shape} at {where}."
        )
    intercept = np.asarray(model.intercept_, dtype=np.float64).ravel()
    shift = np.broadcast_to(intercept, (matrix.shape[0],))
    return Network((matrix,), (shift,))


def _votes(model: Any) -> Array | None:
    """Weights of the estimators that were not dropped, summing to one."""
    if model.weights is None:
        return None
    kept = [
        float(weight)
        for (_, estimator), weight in zip(model.estimators, model.weights, strict=True)
        if not isinstance(estimator, str)
    ]
    weights = np.array(kept)
    if not np.isfinite(weights).all() or weights.sum() == 0:
        raise ModelConfigurationError(
            f"Expected finite voting weights with a sum other than zero, got {kept}."
        )
    return np.asarray(weights / weights.sum())


def _pipeline(model: Any, where: str, table: Table) -> Ensemble:
    *steps, (name, last) = model.steps
    if passes_through(last):
        raise refuse(
            "a regressor as last step", str(last), REGRESSORS, where=f"{where}.{name}"
        )
    for step_name, step in steps:
        table = transformed(step, table, f"{where}.{step_name}")
    return convert(last, f"{where}.{name}", table)


def _transformed_target(model: Any, where: str, table: Table) -> Ensemble:
    ensemble = convert(model.regressor_, where, table)
    if ensemble.target is not None:
        raise PredictorNotSupportedError(
            f"Expected one transformation of the target, got another one inside at "
            f"{where}. Fit with one of them."
        )
    link = _link(model.transformer_, f"{where}.transformer_")
    if link is not None:
        if ensemble.num_outputs > 1:
            raise refuse(
                "a transformed target of one column", f"{ensemble.num_outputs} columns",
                ("one column",), where=where,
            )  # fmt: skip
        return replace(ensemble, target=link)
    factor, shift = scaling(model.transformer_, f"{where}.transformer_")
    if (factor == 0).any():
        raise ModelConfigurationError(
            "Expected a scaling of the target that can be undone, got a factor of "
            f"zero at {where}."
        )
    return ensemble.fold_output(1.0 / factor, -shift / factor)


def _link(step: Any, where: str) -> Link | None:
    """How a prediction is transformed back, if that is increasing and not affine."""
    preprocessing = require("sklearn.preprocessing", "sklearn")
    if isinstance(step, preprocessing.FunctionTransformer):
        if step.inverse_func is None and step.func is None:
            return None
        names = {getattr(np, name): name for name in INCREASING}
        known = isinstance(step.inverse_func, np.ufunc) and not step.inv_kw_args
        if not known or step.inverse_func not in names:
            raise refuse(
                "an inverse function of the target", f"{step.inverse_func!r}",
                INCREASING, where=where,
                remedy="It must be one of NumPy's functions that grow everywhere.",
            )  # fmt: skip
        return Link(names[step.inverse_func], step.inverse_func)
    kinds = (preprocessing.PowerTransformer, preprocessing.QuantileTransformer)
    if not isinstance(step, kinds):
        return None
    check_fitted(step, where)
    check_own(step, "transform", where)

    def apply(values: Array) -> Any:
        return step.inverse_transform(np.reshape(values, (-1, 1)))

    return Link(f"the inverse of {type(step).__name__}", apply)


def _num_columns(model: Any) -> int:
    """Number of columns that a model was fitted on."""
    if isinstance(model, class_of("pipeline", "Pipeline")):
        steps = [step for _, step in model.steps if not passes_through(step)]
        return _num_columns(steps[0]) if steps else 1
    if _is_search(model):
        return _num_columns(model.best_estimator_)
    return int(getattr(model, "n_features_in_", 1))


def _column_names(model: Any) -> tuple[str, ...] | None:
    """Column names of the data frame the model was trained on, if it was one."""
    names = getattr(model, "feature_names_in_", None)
    if names is None and hasattr(model, "best_estimator_"):
        names = getattr(model.best_estimator_, "feature_names_in_", None)
    return None if names is None else tuple(str(name) for name in names)
