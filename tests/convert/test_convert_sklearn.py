"""scikit-learn models against their own predict."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVR

from ennopt.convert import PredictorNotSupportedError, load
from ennopt.network import ModelConfigurationError

CENTER, SPREAD = np.array([400.0, -3.0, 0.02]), np.array([90.0, 2.0, 0.01])
RNG = np.random.default_rng(5)
X = CENTER + SPREAD * RNG.uniform(-2, 2, (120, 3))
Z = (X - CENTER) / SPREAD
Y = 50 * np.sin(Z[:, 0]) + 30 * Z[:, 1] * Z[:, 2] + 500
POSITIVE = Y - Y.min() + 1.0


def mlp(seed=0, **options):
    options = {"hidden_layer_sizes": (6, 4), "max_iter": 40} | options
    return MLPRegressor(random_state=seed, **options)


def fit(model, x=X, y=Y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y)


def check(model, x=X):
    """Same predictions as the original, on the training data too."""
    ensemble = load(model)
    theirs = np.asarray(model.predict(x))
    size = 1.0 + np.abs(theirs).max()
    ours = ensemble(np.asarray(x, dtype=float))
    assert ours == pytest.approx(theirs.reshape(len(x), -1), abs=1e-9 * size)
    assert ensemble.deviation is not None
    assert ensemble.deviation <= 1e-9 * size
    return ensemble


class Descending(StandardScaler):
    """A scaler with negative factors."""

    def fit(self, X, y=None, sample_weight=None):
        super().fit(X, y, sample_weight)
        self.scale_ = -self.scale_
        return self


SCALERS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    MinMaxScaler(),
    MinMaxScaler(feature_range=(-3, -1)),
    MaxAbsScaler(),
    RobustScaler(),
    RobustScaler(with_centering=False, unit_variance=True),
    RobustScaler(with_scaling=False),
    FunctionTransformer(),
    Descending(),
    "passthrough",
]


@pytest.mark.parametrize("scaler", SCALERS, ids=str)
def test_scalers_of_the_inputs_are_folded_into_the_first_layer(scaler):
    ensemble = check(fit(make_pipeline(scaler, mlp())))
    assert ensemble.members[0].hidden_widths == (6, 4)


@pytest.mark.parametrize("scaler", [s for s in SCALERS if s != "passthrough"], ids=str)
def test_scalers_of_the_target_are_folded_into_the_last_layer(scaler):
    inner = make_pipeline(StandardScaler(), mlp())
    check(fit(TransformedTargetRegressor(inner, transformer=scaler)))


def test_an_untransformed_target_stays_as_it_is():
    check(fit(TransformedTargetRegressor(mlp())))


def test_several_scalers_fold_in_their_order():
    steps = (RobustScaler(), MinMaxScaler((1, 2)), None, MaxAbsScaler(), mlp())
    check(fit(Pipeline([(str(i), step) for i, step in enumerate(steps)])))


@pytest.mark.parametrize("widths", [(5,), (4, 3, 2)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_networks_of_any_depth_and_output_count_convert(widths, outputs):
    y = Y if outputs == 1 else np.column_stack([Y, -Z[:, 0]])
    ensemble = check(fit(mlp(hidden_layer_sizes=widths), Z, y), Z)
    assert ensemble.num_outputs == outputs
    assert ensemble.members[0].hidden_widths == widths


def test_several_targets_are_scaled_back_each():
    y = np.column_stack([Y, -Z[:, 0]])
    inner = make_pipeline(StandardScaler(), mlp())
    check(fit(TransformedTargetRegressor(inner, transformer=StandardScaler()), X, y))


def test_identity_activations_leave_one_affine_layer():
    ensemble = check(fit(mlp(activation="identity"), Z), Z)
    assert ensemble.members[0].hidden_widths == ()


def test_bagging_reads_the_features_of_each_estimator():
    model = fit(
        BaggingRegressor(
            make_pipeline(StandardScaler(), mlp()),
            n_estimators=4, max_features=2, bootstrap_features=True, random_state=1,
        )
    )  # fmt: skip
    ensemble = check(model)
    assert ensemble.num_members == 4
    for member, estimator, features in zip(
        ensemble.members, model.estimators_, model.estimators_features_, strict=True
    ):
        expected = estimator.predict(X[:, features])
        assert member(X)[:, 0] == pytest.approx(expected, rel=1e-9)


def test_nested_bagging_flattens():
    inner = BaggingRegressor(mlp(), n_estimators=2, max_features=2, random_state=2)
    model = fit(BaggingRegressor(inner, n_estimators=3, random_state=3), Z)
    ensemble = check(model, Z)
    assert ensemble.weights == pytest.approx(np.full(6, 1 / 6))


def test_voting_weights_are_normalised():
    model = VotingRegressor(
        [
            ("net", make_pipeline(StandardScaler(), mlp())),
            ("gone", "drop"),
            ("line", LinearRegression()),
            ("bag", BaggingRegressor(mlp(1), n_estimators=2, random_state=0)),
        ],
        weights=[1, 50, 2, 5],
    )
    ensemble = check(fit(model))
    assert ensemble.weights == pytest.approx([1 / 8, 2 / 8, 5 / 16, 5 / 16])


def test_a_scaler_in_front_of_an_ensemble_moves_every_member():
    bag = BaggingRegressor(mlp(), n_estimators=3, random_state=0)
    model = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), bag), transformer=MinMaxScaler((-1, 1))
    )
    ensemble = check(fit(model))
    assert np.ptp(ensemble.member_values(X).mean(axis=(1, 2))) < 200


@pytest.mark.parametrize(
    "model",
    [LinearRegression(), LinearRegression(fit_intercept=False), Ridge(), Lasso(),
     ElasticNet(), HuberRegressor(max_iter=1000), SGDRegressor(random_state=0),
     LinearSVR(random_state=0)],
    ids=str,
)  # fmt: skip
def test_linear_models_have_no_hidden_layer(model):
    ensemble = check(fit(model, Z), Z)
    assert ensemble.num_neurons == 0


@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV])
def test_a_search_gives_its_best_model(search):
    options = {"n_iter": 2} if search is RandomizedSearchCV else {}
    model = search(mlp(max_iter=5), {"alpha": [1e-4, 1.0]}, cv=2, **options)
    check(fit(model, Z), Z)


def test_column_names_become_input_names():
    frame = pd.DataFrame(X, columns=["heat", "flow", "salt"])
    model = fit(make_pipeline(StandardScaler(), mlp()), frame)
    assert load(model).input_names == ("heat", "flow", "salt")
    assert load(model, input_names=["a", "b", "c"]).input_names == ("a", "b", "c")
    assert load([model, model]).input_names == ("heat", "flow", "salt")
    bag = fit(BaggingRegressor(mlp(), n_estimators=2, random_state=0), frame)
    assert load(bag).input_names == ("heat", "flow", "salt")


def test_a_wrong_number_of_input_names_is_refused():
    with pytest.raises(ModelConfigurationError, match="3 different input names"):
        load(fit(mlp(), Z), input_names=["a", "b"])


REFUSED = [
    (RandomForestRegressor(n_estimators=2), Y, "RandomForestRegressor"),
    (PoissonRegressor(), POSITIVE, "PoissonRegressor"),
    (make_pipeline(MinMaxScaler(clip=True), mlp()), Y, r"MinMaxScaler\(clip=True\)"),
    (make_pipeline(PolynomialFeatures(2), mlp()), Y, "PolynomialFeatures"),
    (make_pipeline(QuantileTransformer(n_quantiles=20), mlp()), Y, "QuantileTrans"),
    (make_pipeline(FunctionTransformer(np.tanh), mlp()), Y, "tanh"),
    (TransformedTargetRegressor(mlp(), func=np.sqrt, inverse_func=np.square), POSITIVE,
     "square"),
    (RidgeClassifier(), Y > 500, "RidgeClassifier"),
    (BaggingClassifier(MLPClassifier(max_iter=2)), Y > 500, "BaggingClassifier"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "y", "name"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_is_not_piecewise_linear_is_refused_by_name(model, y, name):
    with pytest.raises(PredictorNotSupportedError, match=name):
        load(fit(model, Z, y))


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (
            RidgeClassifier(),
            "got the classifier RidgeClassifier. .*no function of one score",
        ),
        (
            RandomForestRegressor(2),
            "got RandomForestRegressor. Only networks and linear models",
        ),
        (StandardScaler(), "got StandardScaler. Pass the pipeline"),
    ],
)
def test_what_is_refused_comes_with_a_remedy(model, remedy):
    target = (Y > 500).astype(int) if isinstance(model, RidgeClassifier) else Y
    with pytest.raises(PredictorNotSupportedError, match=remedy):
        load(fit(model, y=target))


@pytest.mark.parametrize(
    "model",
    [mlp(), Ridge(), make_pipeline(StandardScaler(), mlp()), BaggingRegressor(mlp()),
     VotingRegressor([("a", mlp())]), TransformedTargetRegressor(mlp()),
     GridSearchCV(mlp(), {"alpha": [1]})],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_a_model_that_is_not_fitted_is_refused(model):
    with pytest.raises(ModelConfigurationError, match="Call fit first"):
        load(model)


def test_weights_that_are_not_numbers_are_refused():
    model = fit(mlp(), Z)
    model.coefs_[1][0, 0] = np.nan
    with pytest.raises(ModelConfigurationError, match="NaN or infinity at layer 1"):
        load(model)


def test_zero_estimators_are_refused():
    model = fit(BaggingRegressor(mlp(), n_estimators=1), Z)
    model.estimators_, model.estimators_features_ = [], []
    with pytest.raises(ModelConfigurationError, match="at least one member"):
        load(model)


class Capped(MLPRegressor):
    def predict(self, X):
        return np.minimum(super().predict(X), 1e6)


class Clipped(StandardScaler):
    def transform(self, X, copy=None):
        return np.clip(super().transform(X), -20, 20)


class Bent(StandardScaler):
    def inverse_transform(self, X, copy=None):
        return np.minimum(super().inverse_transform(X), 1e6)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Capped(hidden_layer_sizes=(4,), max_iter=20), "Capped"),
        (make_pipeline(Clipped(), mlp()), "Clipped"),
        (TransformedTargetRegressor(mlp(), transformer=Bent()), "Bent"),
    ],
)
def test_subclasses_that_compute_in_their_own_way_are_refused(model, name):
    with pytest.raises(PredictorNotSupportedError, match=f"one of {name}'s own"):
        load(fit(model))


def test_subclasses_that_only_add_to_a_model_convert():
    class Named(MLPRegressor):
        label = "mine"

    check(fit(Named(hidden_layer_sizes=(4,), max_iter=20)))
