"""scikit-learn regressors: networks, linear models, and ensembles of both.

Scalers in front of a regressor are folded into its first layer, scalers of the
target into its last, so that the ensemble reads and predicts in the user's units.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.verify import Loaded, Original, combine, verified
from ennopt.extras import require
from ennopt.network import Array, Ensemble, ModelConfigurationError, Network

REGRESSORS = (
    "MLPRegressor (relu, identity)",
    "linear models (LinearRegression, Ridge, Lasso, ...)",
    "BaggingRegressor",
    "VotingRegressor",
    "Pipeline",
    "TransformedTargetRegressor",
    "GridSearchCV",
    "RandomizedSearchCV",
)
SCALERS = (
    "StandardScaler",
    "MinMaxScaler (clip=False)",
    "MaxAbsScaler (clip=False)",
    "RobustScaler",
    "FunctionTransformer (func=None)",
    "passthrough",
)

Units = tuple[Array, Array]


def load_sklearn(model: Any) -> Loaded:
    """Convert a fitted scikit-learn regressor and check it against `model.predict`."""
    ensemble = convert(model, "")

    def predict(x: Array) -> Any:
        with warnings.catch_warnings():
            # points without column names, to a model trained on a data frame
            warnings.filterwarnings("ignore", message="X does not have valid feature")
            return model.predict(x)

    loaded = verified(
        ensemble,
        Original(predict, "float64"),
        units=_units(model, ensemble.num_inputs),
        source=f"sklearn {type(model).__name__}",
    )
    names = _input_names(model)
    if names is None:
        return loaded
    return loaded._replace(ensemble=replace(loaded.ensemble, input_names=names))


def convert(model: Any, where: str) -> Ensemble:
    """Convert one fitted regressor; `where` is its place in the whole."""
    name = type(model).__name__
    where = f"{where}.{name}" if where else name
    _check_fitted(model, where)
    _check_own(model, "predict", where)
    linear_model = require("sklearn.linear_model", "sklearn")
    if isinstance(model, _class("neural_network", "MLPRegressor")):
        return _mlp(model, where)
    if isinstance(model, _class("pipeline", "Pipeline")):
        return _pipeline(model, where)
    if isinstance(model, _class("compose", "TransformedTargetRegressor")):
        return _transformed_target(model, where)
    if isinstance(model, _class("ensemble", "BaggingRegressor")):
        members = [
            _spread(convert(e, where), features, model.n_features_in_)
            for e, features in zip(
                model.estimators_, model.estimators_features_, strict=True
            )
        ]
        return combine(members)
    if isinstance(model, _class("ensemble", "VotingRegressor")):
        return combine([convert(e, where) for e in model.estimators_], _votes(model))
    if _is_search(model):
        return convert(model.best_estimator_, where)
    if isinstance(model, linear_model.RANSACRegressor):
        return convert(model.estimator_, where)
    if _is_linear(model):
        return _linear(model, where)
    raise _not_a_regressor(model, where)


def _not_a_regressor(model: Any, where: str) -> PredictorNotSupportedError:
    base = require("sklearn.base", "sklearn")
    name, remedy = type(model).__name__, ""
    if base.is_classifier(model):
        name = f"the classifier {name}"
        remedy = "It predicts classes, which have no largest: fit a regressor."
    elif base.is_regressor(model):
        remedy = "Only networks with ReLU and linear models can be optimized here."
    elif hasattr(model, "transform"):
        remedy = "Pass the pipeline that ends in a regressor."
    where = "" if where == type(model).__name__ else where
    return refuse("a scikit-learn regressor", name, REGRESSORS, where=where,
                  remedy=remedy)  # fmt: skip


def _class(module: str, name: str) -> Any:
    return getattr(require(f"sklearn.{module}", "sklearn"), name)


def _is_search(model: Any) -> bool:
    selection = require("sklearn.model_selection", "sklearn")
    return isinstance(model, selection.GridSearchCV | selection.RandomizedSearchCV)


def _check_fitted(model: Any, where: str) -> None:
    if isinstance(model, type):
        raise PredictorNotSupportedError(
            f"Expected a fitted model, got the class {model.__name__}. "
            "Make an instance and call fit."
        )
    exceptions = require("sklearn.exceptions", "sklearn")
    validation = require("sklearn.utils.validation", "sklearn")
    try:
        validation.check_is_fitted(model)
    except exceptions.NotFittedError as error:
        raise ModelConfigurationError(
            f"Expected a fitted model, got one that is not at {where}. Call fit first."
        ) from error
    except TypeError as error:
        raise _not_a_regressor(model, where) from error


def _check_own(model: Any, method: str, where: str) -> None:
    """Refuse a subclass that computes in its own way: only its layers are read."""
    for name in (method, "inverse_transform"):
        found = getattr(type(model), name, None)
        if found is not None and found.__module__.partition(".")[0] != "sklearn":
            raise PredictorNotSupportedError(
                f"Expected the {name} of scikit-learn, got one of "
                f"{type(model).__name__}'s own at {where}. Convert the scikit-learn "
                "model it is made from."
            )


def _mlp(model: Any, where: str) -> Ensemble:
    weights = [np.asarray(w, dtype=np.float64).T for w in model.coefs_]
    biases = [np.asarray(b, dtype=np.float64) for b in model.intercepts_]
    if model.activation == "identity":
        matrix, shift = weights[0], biases[0]
        for w, b in zip(weights[1:], biases[1:], strict=True):
            matrix, shift = w @ matrix, w @ shift + b
        weights, biases = [matrix], [shift]
    elif model.activation != "relu":
        raise refuse(
            "an activation", model.activation, ("relu", "identity"), where=where
        )
    if model.out_activation_ != "identity":
        raise refuse(
            "an output activation", model.out_activation_, ("identity",), where=where
        )
    return Ensemble((Network(tuple(weights), tuple(biases)),))


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


def _linear(model: Any, where: str) -> Ensemble:
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
    return Ensemble((Network((matrix,), (shift,)),))


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


def _spread(ensemble: Ensemble, positions: Any, num_inputs: int) -> Ensemble:
    """The ensemble on all inputs, of which it reads `positions`."""
    columns = [int(p) for p in np.asarray(positions)]
    if columns == list(range(num_inputs)):
        return ensemble
    return Ensemble(
        tuple(m.spread_inputs(columns, num_inputs) for m in ensemble.members),
        weights=ensemble.weights,
    )


def _pipeline(model: Any, where: str) -> Ensemble:
    *steps, (name, last) = model.steps
    if _passes_through(last):
        raise refuse(
            "a regressor as last step", str(last), REGRESSORS, where=f"{where}.{name}"
        )
    ensemble = convert(last, f"{where}.{name}")
    for name, step in reversed(steps):
        if not _passes_through(step):
            ensemble = ensemble.fold_input(*scaling(step, f"{where}.{name}"))
    return ensemble


def _passes_through(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _transformed_target(model: Any, where: str) -> Ensemble:
    ensemble = convert(model.regressor_, where)
    factor, shift = scaling(model.transformer_, f"{where}.transformer_")
    if (factor == 0).any():
        raise ModelConfigurationError(
            "Expected a scaling of the target that can be undone, got a factor of "
            f"zero at {where}."
        )
    return ensemble.fold_output(1.0 / factor, -shift / factor)


def scaling(step: Any, where: str) -> tuple[Array, Array]:
    """Factor and shift of a fitted scaler: it maps ``x`` to ``factor * x + shift``."""
    preprocessing = require("sklearn.preprocessing", "sklearn")
    one, zero = np.ones(1), np.zeros(1)
    if isinstance(step, preprocessing.FunctionTransformer):
        if step.func is not None or step.inverse_func is not None:
            raise refuse(
                "a FunctionTransformer",
                f"func={step.func!r}, inverse_func={step.inverse_func!r}",
                ("func=None, inverse_func=None",),
                where=where,
            )
        return one, zero
    _check_fitted(step, where)
    _check_own(step, "transform", where)
    if getattr(step, "clip", False):
        raise refuse(
            "a scaler", f"{type(step).__name__}(clip=True)", SCALERS, where=where,
            remedy="Clipping is not affine; fit with clip=False.",
        )  # fmt: skip
    if isinstance(step, preprocessing.StandardScaler):
        factor = 1.0 / _vector(step.scale_) if step.with_std else one
        return factor, -factor * (_vector(step.mean_) if step.with_mean else zero)
    if isinstance(step, preprocessing.RobustScaler):
        factor = 1.0 / _vector(step.scale_) if step.with_scaling else one
        center = _vector(step.center_) if step.with_centering else zero
        return factor, -factor * center
    if isinstance(step, preprocessing.MinMaxScaler):
        return _vector(step.scale_), _vector(step.min_)
    if isinstance(step, preprocessing.MaxAbsScaler):
        return 1.0 / _vector(step.scale_), zero
    raise refuse("a transformer", type(step).__name__, SCALERS, where=where)


def _vector(values: npt.ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64).ravel()


def _units(model: Any, num_inputs: int) -> Units | None:
    """Center and spread of the inputs that the first scaler met recorded."""
    if _is_search(model):
        return _units(model.best_estimator_, num_inputs)
    if isinstance(model, _class("compose", "TransformedTargetRegressor")):
        return _units(model.regressor_, num_inputs)
    if isinstance(model, _class("ensemble", "VotingRegressor")):
        return _units(model.estimators_[0], num_inputs)
    if isinstance(model, _class("ensemble", "BaggingRegressor")):
        center, spread = np.zeros(num_inputs), np.ones(num_inputs)
        for member, features in zip(
            model.estimators_, model.estimators_features_, strict=True
        ):
            units = _units(member, len(features))
            if units is None:
                return None
            center[features], spread[features] = units
        return center, spread
    if isinstance(model, _class("pipeline", "Pipeline")):
        for _, step in model.steps[:-1]:
            if not _passes_through(step):
                factor, shift = scaling(step, "")
                if (factor != 0).all():
                    return (
                        np.broadcast_to(-shift / factor, (num_inputs,)),
                        np.broadcast_to(1.0 / np.abs(factor), (num_inputs,)),
                    )
        return _units(model.steps[-1][1], num_inputs)
    return None


def _input_names(model: Any) -> tuple[str, ...] | None:
    """Column names of the data frame the model was trained on, if it was one."""
    names = getattr(model, "feature_names_in_", None)
    if names is None and hasattr(model, "best_estimator_"):
        names = getattr(model.best_estimator_, "feature_names_in_", None)
    return None if names is None else tuple(str(name) for name in names)
