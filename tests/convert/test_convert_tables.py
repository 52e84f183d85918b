"""Pipelines on tables of mixed columns: the user's columns in, the same ones out."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import BaggingRegressor, VotingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import (
    SelectFromModel,
    SelectKBest,
    VarianceThreshold,
    f_regression,
)
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)

from ennopt import Domain, PredictorNotSupportedError, load, maximize
from ennopt.columns import Group, Number
from ennopt.network import read_npz

RNG = np.random.default_rng(3)
N = 160
FRAME = pd.DataFrame(
    {
        "cement": RNG.uniform(100, 500, N),
        "grade": RNG.choice(["32.5", "42.5", "52.5"], N, p=[0.1, 0.5, 0.4]),
        "dose": np.exp(RNG.uniform(-2, 3, N)),
        "plant": RNG.choice(["east", "north", "south", "west"], N,
                            p=[0.5, 0.4, 0.05, 0.05]),
        "age": RNG.integers(1, 90, N),
        "code": RNG.choice([3, 5, 8], N),
    }
)  # fmt: skip
TARGET = (
    FRAME.cement / 50
    + 3 * (FRAME.grade == "52.5")
    + np.log(FRAME.dose) * (FRAME.plant == "east")
    - 0.02 * (FRAME.age - 40) ** 2 / 10
    + FRAME.code
)
NUMBERS = ["cement", "age"]


def mlp(**options):
    options = {"hidden_layer_sizes": (8,), "max_iter": 60, "random_state": 0} | options
    return MLPRegressor(**options)


def fit(model, frame=FRAME):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(frame, TARGET)


def encoded(ensemble, frame):
    """Rows of a frame as points of the inputs, by the meaning of the columns alone."""
    x = np.zeros((len(frame), ensemble.num_inputs))
    for column in ensemble.columns:
        cells = frame[column.name]
        if isinstance(column, Number):
            change = getattr(np, column.change) if column.change else np.asarray
            x[:, column.input] = change(cells)
            continue
        cells = cells.map(lambda c, names=dict(column.alike): names.get(c, c))
        for j, level in enumerate(column.levels):
            hit = cells == level
            if isinstance(column, Group):
                x[hit, column.inputs[j]] = 1.0
            else:
                x[hit, column.input] = j
    return x


def check(model, frame=FRAME):
    """Same predictions as the pipeline, for every row of the data."""
    ensemble = load(model)
    theirs = model.predict(frame)
    assert ensemble.columns is not None
    size = 1.0 + np.abs(theirs).max()
    ours = ensemble(encoded(ensemble, frame))[:, 0]
    assert ours == pytest.approx(theirs, abs=1e-9 * size)
    assert ensemble.deviation <= 1e-9 * size
    point = encoded(ensemble, frame)[7]
    assert model.predict(pd.DataFrame([ensemble.told(point)])) == pytest.approx(
        model.predict(frame.iloc[[7]])
    )
    return ensemble


def columns_of(*parts, **options):
    return ColumnTransformer([(f"p{k}", *p) for k, p in enumerate(parts)], **options)


def test_a_column_transformer_gives_columns_and_categories():
    steps = columns_of((StandardScaler(), NUMBERS), (OneHotEncoder(), ["grade"]))
    ensemble = check(fit(make_pipeline(steps, mlp())))
    assert ensemble.columns == (
        Number("cement", 0),
        Group("grade", (1, 2, 3), ("32.5", "42.5", "52.5")),
        Number("age", 4),
    )
    assert ensemble.input_names[1] == "grade=32.5"


ENCODERS = {
    "drop first": OneHotEncoder(drop="first"),
    "drop if binary": OneHotEncoder(drop="if_binary"),
    "drop by name": OneHotEncoder(drop=["42.5", "west"]),
    "dense": OneHotEncoder(sparse_output=False),
    "ignore": OneHotEncoder(handle_unknown="ignore"),
    "infrequent": OneHotEncoder(
        min_frequency=0.2, handle_unknown="infrequent_if_exist"
    ),
    "at most two": OneHotEncoder(max_categories=2, drop="first"),
    "as frames": OneHotEncoder(sparse_output=False).set_output(transform="pandas"),
    "target": TargetEncoder(),
    "ordinal": OrdinalEncoder(),
    "ordinal, few": OrdinalEncoder(min_frequency=0.2),
    "ordinal, in order": OrdinalEncoder(
        categories=[["52.5", "32.5", "42.5"], ["west", "south", "east", "north"]]
    ),
    "unknown codes": OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1
    ),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_are_read_as_they_encode(name):
    steps = columns_of((MinMaxScaler(), NUMBERS), (ENCODERS[name], ["grade", "plant"]))
    check(fit(make_pipeline(steps, mlp())))


def test_categories_may_be_numbers_and_stay_numbers():
    steps = columns_of((OneHotEncoder(), ["code"]), ("passthrough", ["cement"]))
    model = fit(make_pipeline(steps, mlp()))
    result = maximize(model, FRAME)
    assert result.inputs["code"] in (3, 5, 8)
    assert type(result.inputs["code"]) is int
    assert maximize(model, FRAME, fixed={"code": 5}).inputs["code"] == 5


STEPS = {
    "imputers": columns_of(
        (make_pipeline(KNNImputer(), StandardScaler()), NUMBERS),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()),
         ["grade", "plant"]),
        (SimpleImputer(add_indicator=True), ["dose"]),
    ),
    "selected": make_pipeline(
        columns_of((StandardScaler(), [*NUMBERS, "dose"]),
                   (OneHotEncoder(sparse_output=False), ["grade", "plant"])),
        VarianceThreshold(), SelectKBest(f_regression, k=5),
    ),
    "selected by a model": make_pipeline(
        columns_of((StandardScaler(), slice("cement", "cement")),
                   (OneHotEncoder(), [False, True, False, True, False, False])),
        SelectFromModel(LinearRegression(), threshold="median"),
    ),
    "principal components": make_pipeline(
        columns_of((StandardScaler(), NUMBERS), (OneHotEncoder(), [1]),
                   sparse_threshold=0.0),
        PCA(3, whiten=True),
    ),
    "singular values": make_pipeline(
        columns_of((StandardScaler(), NUMBERS), (OneHotEncoder(), [1])),
        TruncatedSVD(2),
    ),
    "a union": columns_of(
        (FeatureUnion([("a", StandardScaler()), ("b", PCA(1))],
                      transformer_weights={"b": 2.0}), NUMBERS),
        (OneHotEncoder(), ["plant"]),
    ),
    "weights": columns_of((StandardScaler(), NUMBERS), (OneHotEncoder(), ["plant"]),
                          transformer_weights={"p1": 0.5}),
    "the rest": columns_of((OneHotEncoder(), ["grade"]), ("drop", ["plant"]),
                           remainder="passthrough"),
    "the rest scaled": columns_of((OneHotEncoder(), ["grade", "plant"]),
                                  remainder=StandardScaler()),
    "one column twice": columns_of((StandardScaler(), ["cement"]),
                                   (MinMaxScaler(), ["cement", "age"]),
                                   (OneHotEncoder(), ["grade"])),
    "a logarithm": columns_of(
        (make_pipeline(FunctionTransformer(np.log), StandardScaler()), ["dose"]),
        (FunctionTransformer(np.sqrt), ["age"]), ("passthrough", ["cement"]),
        (OneHotEncoder(drop="first"), ["grade"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_steps_before_the_network_are_folded_in(name):
    check(fit(make_pipeline(STEPS[name], mlp())))


def test_members_may_each_have_their_own_transformer():
    first = columns_of((StandardScaler(), ["age"]), (OneHotEncoder(), ["plant"]))
    second = columns_of((MinMaxScaler(), ["cement"]), (OneHotEncoder(), ["plant"]))
    votes = VotingRegressor(
        [("a", make_pipeline(first, mlp())), ("b", make_pipeline(second, mlp()))]
    )
    ensemble = check(fit(votes))
    assert [c.name for c in ensemble.columns] == ["cement", "plant", "age"]
    bag = BaggingRegressor(mlp(), n_estimators=2, max_features=0.6, random_state=1)
    assert check(fit(make_pipeline(first, bag))).num_members == 2


def test_positions_and_arrays_of_mixed_cells_do_as_well():
    steps = make_column_transformer((OneHotEncoder(), [1]), (StandardScaler(), [0]))
    rows = FRAME[["cement", "grade"]].to_numpy(dtype=object)
    model = fit(make_pipeline(steps, mlp()), rows)
    ensemble = load(model)
    assert [column.name for column in ensemble.columns] == ["x0", "x1"]
    result = maximize(model, rows)
    given = np.array([list(result.inputs.values())], dtype=object)
    assert model.predict(given)[0] == pytest.approx(result.value)


def test_columns_survive_a_file(tmp_path):
    ensemble = load(fit(make_pipeline(STEPS["a logarithm"], mlp())))
    ensemble.save(tmp_path / "model.npz")
    again = read_npz(tmp_path / "model.npz")
    assert again.columns == ensemble.columns
    assert again.input_names == ensemble.input_names


@pytest.fixture(scope="module")
def recipe():
    steps = columns_of(
        (StandardScaler(), ["cement"]),
        (FunctionTransformer(np.log), ["dose"]),
        (OneHotEncoder(drop="first"), ["grade"]),
        (OrdinalEncoder(), ["plant"]),
    )
    return fit(make_pipeline(steps, mlp()))


def brute(model, frame):
    """The best prediction on a dense grid of the numbers and on every category."""
    grid = pd.MultiIndex.from_product(
        [
            np.linspace(frame.cement.min(), frame.cement.max(), 25),
            np.geomspace(frame.dose.min(), frame.dose.max(), 25),
            sorted(set(frame.grade)),
            sorted(set(frame.plant)),
        ],
        names=["cement", "dose", "grade", "plant"],
    ).to_frame(index=False)
    return model.predict(grid).max()


@pytest.mark.parametrize("method", ["box", "bigm"])
def test_the_answer_is_told_in_the_columns_of_the_user(recipe, method):
    result = maximize(recipe, FRAME, method=method)
    assert result.proved
    assert set(result.inputs) == {"cement", "dose", "grade", "plant"}
    assert result.inputs["grade"] in {"32.5", "42.5", "52.5"}
    frame = pd.DataFrame([result.inputs])
    assert recipe.predict(frame)[0] == pytest.approx(result.value)
    assert result.original == pytest.approx(result.value)
    assert result.notes == ()
    best = brute(recipe, FRAME)
    assert best <= result.bound
    assert result.value >= best - 1e-9
    assert f"plant  = {result.inputs['plant']}" in result.summary()
    again = type(result).from_json(result.to_json())
    assert again.inputs == result.inputs


def test_levels_are_chosen_by_name(recipe):
    chosen = {"grade": ["42.5", "52.5"], "plant": "north", "dose": (1, 100)}
    result = maximize(recipe, chosen, data=FRAME)
    assert result.inputs["grade"] in {"42.5", "52.5"}
    assert result.inputs["plant"] == "north"
    assert 1 <= result.inputs["dose"] <= 100
    part = FRAME[FRAME.grade.isin(chosen["grade"]) & (FRAME.plant == "north")]
    assert brute(recipe, part.assign(dose=part.dose.clip(1, 100))) <= result.bound
    for level in ("32.5", "42.5", "52.5"):
        fixed = {"grade": level, "plant": "west", "dose": 2.5}
        answer = maximize(recipe, FRAME, fixed=fixed)
        assert answer.inputs | fixed == answer.inputs


def test_a_level_that_the_data_lacks_is_not_chosen(recipe):
    part = FRAME[FRAME.grade != "52.5"]
    assert maximize(recipe, part).inputs["grade"] != "52.5"


def test_levels_that_the_model_treats_alike_are_known_by_either_name():
    steps = columns_of((OneHotEncoder(min_frequency=0.2), ["plant"]))
    model = fit(make_pipeline(steps, mlp()))
    values = [maximize(model, {"plant": name}).value for name in ("south", "west")]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"domain": {"grade": "62.5"}},
         r"got '62.5', which is unknown. Known are '32.5', '42.5', '52.5'"),
        ({"domain": {"grade": (1, 2)}}, "got 1, which is unknown"),
        ({"domain": {"grade": 3}}, "got 3, which is unknown"),
        ({"domain": {"grade": []}}, "at least one level"),
        ({"fixed": {"plant": "mars"}}, "'mars', which is unknown"),
        ({"fixed": {"plant": ["east"]}}, "one value that fixes it"),
        ({"domain": {"cement": "much"}}, "got 'much' at column cement"),
        ({"domain": {"cement": (3, 1)}}, r"lower <= upper, got \[3, 1\]"),
        ({"domain": {"dose": (0, 1)}}, "take the log, got 0 at column dose"),
        ({"domain": {"garde": "A"}}, "unknown column garde. Did you mean grade"),
        ({"domain": {"grade=42.5": 1}}, "Give bounds or levels for grade"),
        ({"constraints": 'grade == "52.5"'}, "'grade', a category, in 'grade =="),
        ({"constraints": ["cement <= 9", "plant >= 1"]}, "'plant', a category"),
        ({"constraints": "dose + cement <= 9"}, r"which the model reads as log\(dose"),
        ({"domain": [(0, 1)] * 4}, "Expected bounds by name"),
        ({"data": FRAME.drop(columns="dose")}, "got none for dose"),
        ({"data": FRAME.assign(grade="77")}, "'77', which is unknown"),
        ({"data": FRAME.assign(grade=None)}, "missing cells, got one at column grade"),
    ],
)  # fmt: skip
def test_mistakes_get_one_clear_error(recipe, given, message):
    with pytest.raises(ValueError, match=message):
        maximize(recipe, **({"data": FRAME} | given))


def test_constraints_on_numbers_hold_beside_categories(recipe):
    result = maximize(recipe, FRAME, constraints="cement <= 250")
    assert result.inputs["cement"] <= 250 + 1e-6


def test_bounds_by_describe_leave_the_categories_open(recipe):
    result = maximize(recipe, FRAME.describe())
    assert result.value == pytest.approx(maximize(recipe, FRAME).value, rel=1e-3)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (columns_of((PolynomialFeatures(), NUMBERS)), "PolynomialFeatures at .*Produc"),
        (columns_of((SimpleImputer(missing_values=0), NUMBERS)), "missing_values=0"),
        (columns_of((FunctionTransformer(np.sin), NUMBERS)), "log, log1p, .* got func"),
        (columns_of((FunctionTransformer(lambda x: x), NUMBERS)), "got func="),
        (columns_of((make_pipeline(StandardScaler(with_mean=False),
                                   FunctionTransformer(np.exp)), ["age"])),
         "exp of columns that another step changed"),
        (columns_of((FunctionTransformer(np.log), ["dose"]), ("passthrough", ["dose"])),
         "dose as its log and as a number"),
        (columns_of((OneHotEncoder(), ["code"]), ("passthrough", ["code"])),
         "code as a category and as a number"),
    ],
)  # fmt: skip
def test_what_cannot_be_folded_in_is_refused_by_name(steps, message):
    with pytest.raises(PredictorNotSupportedError, match=message):
        load(fit(make_pipeline(steps, mlp())))


def test_a_domain_of_the_inputs_is_taken_as_it_is(recipe):
    ensemble = load(recipe)
    domain = Domain.of({"cement": 200, "dose": 1.0, "grade": "42.5"}, ensemble)
    assert [group.name for group in domain.groups] == ["grade"]
    assert domain.values.lists[-2] is not None or domain.values.lists[-1] is not None
    result = maximize(recipe, domain)
    assert result.inputs["grade"] == "42.5"
    assert result.inputs["cement"] == 200


def test_a_domain_made_by_hand_must_know_the_categories(recipe):
    ensemble = load(recipe)
    ones = np.ones(ensemble.num_inputs)
    with pytest.raises(ValueError, match="knows the category grade"):
        maximize(recipe, Domain(0 * ones, ones, ensemble.input_names))
    with pytest.raises(ValueError, match=r"Domain of the inputs cement, grade=42\.5"):
        maximize(recipe, Domain(0 * ones, ones))
