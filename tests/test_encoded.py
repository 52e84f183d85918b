"""Everything that narrows a set, on pipelines whose users have columns."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

import ennopt
from ennopt.cli import main
from ennopt.domain import Near
from ennopt.domain.reading import read_place
from ennopt.domain.where import Where
from ennopt.network import read_npz

RNG = np.random.default_rng(5)
N = 60
FRAME = pd.DataFrame(
    {
        "cement": RNG.uniform(100, 500, N),
        "grade": RNG.choice(["32.5", "42.5", "52.5"], N),
        "dose": np.exp(RNG.uniform(-2, 3, N)),
        "size": RNG.choice(["small", "medium", "large"], N),
        "age": RNG.integers(1, 90, N),
    }
)
OVENS = RNG.integers(0, 2, N)
FRAME["oven_A"], FRAME["oven_B"] = OVENS, 1 - OVENS
STRENGTH = (
    FRAME.cement / 50
    + 3 * (FRAME.grade == "52.5") * np.log(FRAME.dose)
    - 0.002 * (FRAME.age - 40) ** 2
    + 2 * FRAME.oven_A
)
SIZES = [["small", "medium", "large"]]
PLAIN = ["cement", "age", "oven_A", "oven_B"]


@pytest.fixture(scope="module", params=["relu", "tanh"])
def recipe(request):
    columns = make_column_transformer(
        (StandardScaler(), PLAIN),
        (OneHotEncoder(drop="first"), ["grade"]),
        (make_pipeline(FunctionTransformer(np.log), StandardScaler()), ["dose"]),
        (OrdinalEncoder(categories=SIZES), ["size"]),
    )
    network = MLPRegressor(
        hidden_layer_sizes=(6,),
        activation=request.param,
        max_iter=80,
        alpha=1,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_pipeline(columns, network).fit(FRAME, STRENGTH)


def close(value):
    return pytest.approx(value, rel=2e-4, abs=1e-6)


def test_rows_of_a_table_are_encoded_as_the_pipeline_does_it(recipe, tmp_path):
    ensemble = ennopt.load(recipe)
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    for given in (FRAME, tmp_path / "rows.csv"):
        place = read_place(Where(data=given), ensemble)
        ours = ensemble(place.data.rows)[:, 0]
        assert ours == pytest.approx(recipe.predict(FRAME), rel=1e-9)
        assert place.data.names == ensemble.input_names
        assert all(map(place.domain.contains, place.data.rows))


def test_near_with_radius_zero_the_answer_is_a_row_of_the_table(recipe):
    best = int(np.argmax(recipe.predict(FRAME)))
    for where in ({"domain": FRAME}, {"data": FRAME}):
        answer = ennopt.maximize(recipe, trust=Near(radius=0), **where)
        assert answer.value == close(recipe.predict(FRAME)[best])
        row = FRAME.iloc[best].to_dict()
        assert {name: answer.inputs[name] for name in row} == {
            name: at if isinstance(at, str) else pytest.approx(at)
            for name, at in row.items()
        }
        assert answer.extrapolation.nearest[0] == best
        assert answer.extrapolation.distances[0] == pytest.approx(0, abs=1e-9)


def test_a_trust_region_of_a_table_holds_the_levels_of_its_rows(recipe):
    part = FRAME[(FRAME.grade != "52.5") | (FRAME["size"] == "large")]
    answer = ennopt.maximize(recipe, data=part, trust="near")
    near = part[part.grade == answer.inputs["grade"]]
    assert (near["size"] == answer.inputs["size"]).any()
    free = ennopt.maximize(recipe, data=part)
    assert answer.value <= free.bound + 1e-9


def test_a_target_of_the_table_is_compared_with_the_prediction(recipe):
    measured = FRAME.assign(strength=STRENGTH)
    answer = ennopt.maximize(recipe, data=measured, target="strength")
    low, high = answer.extrapolation.target_range
    assert (low, high) == (STRENGTH.min(), STRENGTH.max())
    with pytest.raises(ValueError, match="target that is no input, got 'age'"):
        ennopt.maximize(recipe, data=measured, target="age")
    with pytest.raises(ValueError, match="rows of data with a target"):
        ennopt.maximize(recipe, {}, target="strength")


def test_whole_numbers_and_values_are_those_of_the_columns(recipe):
    doses = [0.5, 2.0, 11.0]
    said = {"data": FRAME, "integers": ["age"]}
    answer = ennopt.maximize(recipe, values={"dose": doses}, **said)
    assert answer.inputs["dose"] in doses
    assert answer.inputs["age"] == round(answer.inputs["age"])
    each = [ennopt.maximize(recipe, fixed={"dose": at}, **said).value for at in doses]
    assert answer.value == close(max(each))
    same = ennopt.maximize(recipe, {"dose": [2.0, 0.5, 11.0]}, **said)
    assert same.value == close(answer.value)


def test_a_category_by_keyword_is_told_beside_those_of_the_model(recipe):
    ovens = {"oven": {"A": "oven_A", "B": "oven_B"}}
    rest = FRAME.drop(columns=["oven_A", "oven_B"]).describe()
    bounds = {name: tuple(rest[name][["min", "max"]]) for name in rest}
    answer = ennopt.maximize(recipe, bounds, categories=ovens, fixed={"grade": "42.5"})
    assert set(answer.inputs) == {"cement", "age", "oven", "grade", "dose", "size"}
    assert answer.inputs["grade"] == "42.5"
    assert answer.by_name["oven_A"] == float(answer.inputs["oven"] == "A")
    assert answer.by_name["oven_A"] + answer.by_name["oven_B"] == 1.0
    lines = [line.split() for line in answer.summary().splitlines()]
    assert ["oven", "=", answer.inputs["oven"]] in lines
    again = ennopt.Result.from_json(answer.to_json())
    assert again.inputs == answer.inputs
    each = [
        ennopt.maximize(
            recipe, bounds, categories=ovens, fixed={"grade": "42.5", "oven": oven}
        )
        for oven in "AB"
    ]
    assert answer.value == close(max(one.value for one in each))


def test_constraints_and_fixed_columns_go_with_discrete_ones(recipe):
    answer = ennopt.maximize(
        recipe, data=FRAME, integers=["age"], constraints="cement + 2*age <= 350",
        fixed={"size": "large", "dose": 2.5},
    )  # fmt: skip
    told = answer.inputs
    assert told["cement"] + 2 * told["age"] <= 350 + 1e-6
    assert (told["size"], told["dose"]) == ("large", 2.5)
    assert recipe.predict(pd.DataFrame([told]))[0] == close(answer.value)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"integers": ["dose"]}, r"'dose', which the model reads as log\(dose\), at i"),
        ({"integers": ["grade"]}, "'grade', a category, at integers. Choose its lev"),
        ({"values": {"grade": [1]}}, "column of numbers, got the category grade"),
        (
            {"values": {"grade": ["42.5"]}},
            "numbers, got the category grade. Choose its",
        ),
        ({"values": {"dose": [-1.0]}}, "can take the log, got -1 at column dose"),
        ({"categories": {"k": ["oven_A", "dose"]}}, "log.*at category k"),
        ({"categories": {"k": ["oven_A", "grad"]}}, "got 'grad' at category k. Did"),
        ({"categories": {"grade": ["oven_A", "oven_B"]}}, "that no input has"),
        ({"constraints": "dose <= 3"}, "'dose', which the model reads as log"),
        ({"data": FRAME.assign(dose=0.0)}, "take the log, got 0 at column dose. Drop"),
        ({"data": FRAME.describe(), "trust": "near"}, "rows of data to trust"),
    ],
)
def test_what_a_pipeline_cannot_mean_is_one_error(recipe, said, message):
    with pytest.raises(ValueError, match=message):
        ennopt.maximize(recipe, **({"data": FRAME} | said))


def test_the_command_line_takes_tables_with_everything(recipe, tmp_path, capsys):
    model, rows = tmp_path / "model.npz", tmp_path / "rows.csv"
    ennopt.load(recipe).save(model)
    FRAME.to_csv(rows, index=False)
    words = ["--data", str(rows), "--integer", "age", "--trust", "near"]
    words += ["--category", "oven=oven_A,oven_B", "--fix", "oven=oven_A"]
    words += ["--fix", "grade=52.5"]
    assert main(["solve", str(model), "--json", "--quiet", *words]) == 0
    told = json.loads(capsys.readouterr().out)["inputs"]
    assert (told["oven"], told["grade"]) == ("oven_A", "52.5")
    assert told["age"] == round(told["age"])
    out = tmp_path / "out.npz"
    convert = ["convert", str(model), str(out), "--data", str(rows)]
    for text, refused in {
        'integers = ["age"]': "discrete inputs",
        '[categories]\noven = ["oven_A", "oven_B"]': "the category oven",
        'trust = "near"': "a trust region",
        'constraints = ["age <= 30"]': "'age <= 30'",
        'size = ["small", "large"]': "levels that are not neighbours at category size",
        'grade = ["42.5", "52.5"]': "a choice without '32.5' at category grade",
    }.items():
        (tmp_path / "b.toml").write_text(text)
        assert main([*convert, "--bounds", str(tmp_path / "b.toml")]) == 2
        assert refused in capsys.readouterr().err
    assert main([*convert, "--fix", "size=medium"]) == 0
    saved = read_npz(out)
    place = saved.columns[[c.name for c in saved.columns].index("size")].input
    assert saved.lower[place] == saved.upper[place] == 1.0
