"""Whole numbers, lists of values and categories as users give them."""

import itertools

import numpy as np
import pandas as pd
import pytest

import ennopt
from ennopt.cli import main
from ennopt.domain import Domain
from ennopt.domain.discrete import discretised
from ennopt.domain.reading import read_place
from ennopt.domain.where import Where
from ennopt.network import Ensemble, Network
from oracles import random_ensemble

NAMES = ("cement", "grade", "age", "plant_A", "plant_B", "plant_C")
BOUNDS = {
    "cement": (100, 500),
    "grade": [32.5, 52.5, 42.5],
    "age": (0.5, 4.5),
    "plant_A": (0, 1),
    "plant_B": (0, 1),
    "plant_C": (0, 1),
}
PLANTS = {"plant": ["plant_A", "plant_B", "plant_C"]}
MEANT = (
    [None], [32.5, 42.5, 52.5], [1, 2, 3, 4],
    [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)],
)  # fmt: skip
"""What the inputs may be: anything, a list, whole numbers, one plant of three."""


@pytest.fixture
def model():
    net = Network((np.ones((1, len(NAMES))),), ([0.0],))
    return Ensemble((net,), input_names=NAMES)


def place(model, **said):
    return read_place(Where(**said), model).domain


@pytest.mark.parametrize(
    "grade",
    [
        [42.5, 32.5, 52.5],
        (52.5, 32.5, 42.5),
        {32.5, 42.5, 52.5},
        frozenset({32.5, 42.5, 52.5}),
        np.array([32.5, 42.5, 52.5]),
        {"values": [32.5, 42.5, 52.5, 32.5]},
        pd.Series([32.5, 42.5, 52.5]),
    ],
    ids=range(7),
)
def test_every_form_of_a_list_gives_the_same_values(model, grade):
    bounds = BOUNDS | {"grade": grade}
    domain = place(model, domain=bounds)
    assert domain.values.lists[1].tolist() == [32.5, 42.5, 52.5]
    assert (domain.lower[1], domain.upper[1]) == (32.5, 52.5)
    assert domain.values.discrete.tolist() == [False, True, False, False, False, False]


def test_a_pair_is_a_range_and_a_set_of_two_is_a_list(model):
    ranged = place(model, domain=BOUNDS | {"grade": [32.5, 42.5]})
    listed = place(model, domain=BOUNDS | {"grade": {32.5, 42.5}})
    assert ranged.is_box
    assert ranged.values.lists[1] is None
    assert listed.values.lists[1].tolist() == [32.5, 42.5]
    whole = place(model, domain=BOUNDS | {"age": range(1, 29)})
    assert whole.values.lists[2].tolist() == list(range(1, 29))


def test_names_and_positions_of_integers_are_the_same(model):
    for given in (["age"], "age", [2], (np.int64(2),), {"age"}, np.array([2])):
        domain = place(model, domain=BOUNDS, integers=given)
        assert domain.values.whole.tolist() == [False, False, True, False, False, False]
        assert (domain.lower[2], domain.upper[2]) == (1.0, 4.0)


def test_a_list_of_a_keyword_is_met_within_the_range_of_the_data(model):
    rows = np.ones((2, 6)) * [[100, 32.5, 1, 0, 0, 1], [500, 45, 90, 1, 0, 0]]
    domain = place(model, domain=rows, values={"grade": [32.5, 42.5, 52.5]})
    assert (domain.lower[1], domain.upper[1]) == (32.5, 42.5)
    assert domain.contains([100, 42.5, 1, 0, 0, 0])
    assert not domain.contains([100, 45, 1, 0, 0, 0])


def test_lists_and_categories_bound_inputs_that_have_no_other_bounds(model):
    bounds = {"cement": (100, 500), "age": 28}
    domain = place(
        model, domain=bounds, values={"grade": [32.5, 42.5]}, categories=PLANTS
    )
    assert domain.lower.tolist() == [100, 32.5, 28, 0, 0, 0]
    assert domain.upper.tolist() == [500, 42.5, 28, 1, 1, 1]


def test_a_level_without_an_input_is_the_base_level(model):
    levels = {"A": "plant_A", "B": 4, "none": None}
    domain = place(model, domain=BOUNDS, categories={"plant": levels})
    (group,) = domain.groups
    assert (group.inputs, group.levels, group.base) == ((3, 4), ("A", "B"), "none")
    assert domain.contains([100, 32.5, 1, 0, 0, 0.5])
    assert not domain.contains([100, 32.5, 1, 1, 1, 0])


def test_a_category_is_fixed_by_the_name_of_its_level(model):
    for fixed, upper in (
        ({"plant": "plant_B"}, [0, 1, 0]),
        ({"plant_C": 1}, [1, 1, 1]),
    ):
        domain = place(model, domain=BOUNDS, categories=PLANTS, fixed=fixed)
        assert domain.upper[3:].tolist() == upper
    levels = {"A": "plant_A", "B": "plant_B", "C": None}
    domain = place(
        model, domain=BOUNDS, categories={"plant": levels}, fixed={"plant": "C"}
    )
    assert domain.upper[3:].tolist() == [0, 0, 1]


def choices():
    """Every choice of the discrete inputs, as bounds of a box."""
    for _, grade, age, plant in itertools.product(*MEANT):
        point = [grade, age, *plant]
        yield Domain([100, *point], [500, *point], NAMES)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["auto", "bigm"])
def test_the_optimum_is_the_best_of_all_choices(seed, method):
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 2, len(NAMES), (4,))
    scales = np.array([200.0, 10.0, 2.0, 1.0, 1.0, 1.0])
    nets = [
        Network((net.weights[0] / scales, *net.weights[1:]), net.biases)
        for net in ensemble.members
    ]
    ensemble = Ensemble(nets, input_names=NAMES)
    best = max(ennopt.maximize(ensemble, box).value for box in choices())
    answer = ennopt.maximize(
        ensemble, BOUNDS, integers=["age"], categories=PLANTS, method=method
    )
    assert answer.proved
    assert answer.value <= best + 1e-4 * max(abs(best), 0.01)
    assert answer.bound >= best - 1e-4 * max(abs(best), 0.01)
    _, grade, age, *plant = answer.x
    assert grade in MEANT[1]
    assert age in MEANT[2]
    assert tuple(plant) in MEANT[3]
    level = answer.inputs["plant"]
    assert answer.by_name[level] == 1.0
    assert list(answer.inputs) == ["cement", "grade", "age", "plant"]
    lines = answer.summary().splitlines()
    assert any(line.split() == ["plant", "=", level] for line in lines)
    assert not any(line.strip().startswith("plant_") for line in lines)
    again = ennopt.Result.from_json(answer.to_json())
    assert again.inputs == answer.inputs


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"integers": ["aeg"]}, "got 'aeg' at integers. Did you mean age"),
        ({"integers": [6]}, "position from 0 to 5, got 6 at integers"),
        ({"integers": [-1]}, "position from 0 to 5, got -1"),
        ({"integers": [True]}, "name or position of an input, got True"),
        ({"integers": 2}, "names or positions of inputs, got 2"),
        ({"integers": ["grade"]}, "list of grade, which is an integer, got 32.5"),
        (
            {"integers": ["age"], "fixed": {"age": 2.5}},
            "whole number within the bounds",
        ),
        (
            {"domain": BOUNDS | {"age": (1.2, 1.8)}, "integers": ["age"]},
            r"a whole number within the bounds, got \[1.2, 1.8\] at input age",
        ),
        ({"values": {"grad": [1, 2]}}, "got 'grad' at values. Did you mean grade"),
        ({"values": {"grade": []}}, "finite numbers, got .. at input grade"),
        ({"values": {"grade": ["a"]}}, "finite numbers, got .'a'. at input grade"),
        ({"values": {"grade": [np.nan, 1]}}, "finite numbers, got .nan, 1. at input"),
        ({"values": {"grade": [[1], 2]}}, "finite numbers, got"),
        ({"values": {"age": [7, 28]}}, r"within the range \[0.5, 4.5\].* got 7, 28"),
        ({"values": {"grade": [40]}}, "the other list of it, 32.5, 42.5, 52.5"),
        ({"values": [1, 2]}, "lists of values as a dict by name, got list"),
        ({"domain": BOUNDS | {"grade": [1, 2, "a"]}}, "got .1, 2, 'a'. at input grade"),
        ({"domain": BOUNDS | {"grade": [1]}}, "a list of at least three values or a"),
        ({"domain": BOUNDS | {"grade": set()}}, "finite numbers, got set"),
        ({"fixed": {"grade": 40}}, "a value of its list within the bounds"),
        ({"categories": {"plant": ["plant_A", "plant_D"]}}, "'plant_D' at category pl"),
        ({"categories": {"plant": ["plant_A"]}}, "at least two levels, got 1"),
        ({"categories": {"plant": ["plant_A", "plant_A"]}}, "got one twice"),
        (
            {"categories": {"age": ["plant_A", "plant_B"]}},
            "no input has, got 'age",
        ),
        ({"categories": {"plant": "plant_A"}}, "as a list of names"),
        ({"categories": ["plant_A"]}, "as a dict by name, got list"),
        ({"categories": {"p": ["plant_A", "age"]}}, r"from 0 to 1 in category p, got"),
        ({"categories": {"p": ["plant_A", "grade"]}}, "without lists of values"),
        (
            {"categories": PLANTS | {"p": ["plant_A", "plant_B"]}},
            "one category, got plant_A in plant and p",
        ),
        ({"categories": {"p": {"A": None, "B": ""}}}, "one level without an input"),
        (
            {"categories": PLANTS, "fixed": {"plant": "D"}},
            "a level of category plant, got 'D', which is unknown. Known are 'plant_A'",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_error(model, said, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        place(model, **({"domain": BOUNDS} | said))
    assert str(caught.value).startswith("Expected ")


TOML = """
integers = ["age"]
constraints = ["cement >= 200"]
[categories]
plant = ["plant_A", "plant_B", "plant_C"]
[bounds]
cement = [100, 500]
age = [0.5, 4.5]
grade = {values = [52.5, 32.5, 42.5]}
"""


def test_a_file_says_the_same_as_keywords(model, tmp_path):
    path = tmp_path / "mix.toml"
    path.write_text(TOML)
    read = place(model, domain=path)
    said = place(
        model, domain=BOUNDS, integers=["age"], categories=PLANTS,
        constraints="cement >= 200",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    points = np.vstack([said.sample(50, rng), read.sample(50, rng), np.ones((1, 6))])
    assert np.array_equal(read.feasible(points), said.feasible(points))
    assert read.groups == said.groups
    more = place(model, domain=path, integers=["cement"], fixed={"plant": "plant_A"})
    assert more.values.whole[:3].tolist() == [True, False, True]
    assert more.upper[3:].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("integers = ['age', 3]\nage = [1, 2]", "integers as a list of texts"),
        ("integers = ['aeg']\nage = [1, 2]", "got 'aeg' at integers. Did you mean age"),
        (
            "grade = {values = ['a']}",
            "grade = {values = [...]} or levels",
        ),
        (
            "grade = {valeus = [1, 2]}",
            "grade = {values = [...]} or levels",
        ),
        (
            "grade = {values = []}",
            "grade = {values = [...]} or levels",
        ),
        ("[categories]\nplant = [1, 2]", "plant = .names of inputs. or a table"),
        ("age = 3\n[bounds]\ngrade = 3", "table .bounds., got age outside"),
    ],
)
def test_a_file_that_cannot_be_meant_is_one_error(model, tmp_path, text, message):
    path = tmp_path / "mix.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message.replace("[...]", ".*")):
        place(model, domain=path, data=np.ones((1, 6)) * [[100, 30, 1, 0, 0, 1]])


def test_inputs_may_be_called_as_the_statements_of_a_file(tmp_path):
    names = ("integers", "categories", "constraints")
    net = Network((np.ones((1, 3)),), ([0.0],))
    path = tmp_path / "odd.toml"
    path.write_text(
        "integers = [0, 2]\nconstraints = 1\ncategories = {values = [1, 2]}"
    )
    domain = place(Ensemble((net,), input_names=names), domain=path)
    assert domain.lower.tolist() == [0, 1, 1]
    assert domain.upper.tolist() == [2, 2, 1]


def test_the_command_line_says_the_same_as_keywords(model, tmp_path, capsys):
    model.save(tmp_path / "model.npz")
    (tmp_path / "mix.csv").write_text(
        "name,lower,upper\ncement,100,500\nage,0.5,4.5\ngrade,0,50\n"
    )
    words = [
        "solve", str(tmp_path / "model.npz"), "--bounds", str(tmp_path / "mix.csv"),
        "--quiet", "--integer", "age", "--values", "grade=32.5,42.5, 52.5",
        "--category", "plant=plant_A,plant_B,plant_C",
    ]  # fmt: skip
    assert main([*words, "--json"]) == 0
    answer = ennopt.Result.from_json(capsys.readouterr().out)
    assert answer.x[:3].tolist() == [500, 42.5, 4]
    assert answer.value == 547.5
    for more, message in (
        (["--integer", "aeg"], "got 'aeg' at integers. Did you mean age?"),
        (["--values", "grade"], "Expected NAME=A,B,..., got 'grade' at --values"),
        (["--values", "grade=a"], "Expected a number, got 'a' at --values"),
        (["--values", "grade=60"], "Expected --values once for each name"),
        (["--category", "q=cement,age"], "from 0 to 1 in category q, got [100, 500]"),
    ):
        assert main([*words, *more]) == 2
        assert message in capsys.readouterr().err
    out = ["convert", words[1], *words[2:4], str(tmp_path / "out.npz")]
    toml = tmp_path / "mix.toml"
    toml.write_text(TOML.replace('constraints = ["cement >= 200"]', ""))
    out[3] = str(toml)
    assert main(out) == 2
    assert "a model file records nothing else" in capsys.readouterr().err


def test_a_domain_keeps_what_was_said_before(model):
    domain = Domain([0] * 6, [10] * 6, NAMES)
    once = discretised(domain, integers=["age"], values={"grade": [1, 2.5, 7]})
    twice = discretised(once, integers=[0], values={"grade": [2.5, 7, 9]})
    assert twice.values.whole.tolist() == [True, False, True, False, False, False]
    assert (twice.lower[1], twice.upper[1]) == (2.5, 7)


def test_truth_values_of_a_table_stay_zero_or_one():
    # Largest between the ends: 1 - |2 x0 - 1| + x1.
    first = np.array([[2.0, 0.0], [-2.0, 0.0]])
    tent = Network((first, -np.ones((1, 2))), (np.array([-1.0, 1.0]), np.ones(1)))
    ramp = Network((np.array([[0.0, 1.0]]),), (np.zeros(1),))
    model = ennopt.Ensemble(
        [tent, ramp], weights=[1.0, 1.0], input_names=("heated", "dose")
    )
    data = pd.DataFrame({"heated": [True, False], "dose": [0.0, 2.0]})
    free = ennopt.maximize(model, data.astype(float))
    assert free.value == pytest.approx(3.0)
    for place in ({"domain": data}, {"domain": {"dose": (0, 2)}, "data": data}):
        answer = ennopt.maximize(model, **place)
        assert answer.value == 2.0
        assert answer.inputs["heated"] in (0.0, 1.0)
