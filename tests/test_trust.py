"""Trust regions as users ask for them."""

import numpy as np
import pandas as pd
import pytest

import ennopt
from ennopt.cli import main
from ennopt.domain import Domain, Near
from ennopt.domain.data import Data
from ennopt.domain.discrete import discretised
from ennopt.domain.reading import read_place
from ennopt.domain.trust import trusted
from ennopt.domain.where import Where
from ennopt.network import Ensemble, Network
from oracles import exact_maximum, random_ensemble

NAMES = ("dose", "heat", "age")
ROWS = np.array([[0.0, 10, 1], [1, 20, 2], [4, 20, 7], [5, 10, 7], [5, 30, 1.0]])


@pytest.fixture
def model():
    return Ensemble((Network((np.ones((1, 3)),), ([0.0],)),), input_names=NAMES)


def place(model, **said):
    return read_place(Where(**said), model).domain


def usual_by_definition(rows, levels=()):
    """The distance within which 95% of the different rows have another one."""
    spread = rows.std(axis=0)
    rows = sorted(set(map(tuple, rows.tolist())))
    found = []
    for row in rows:
        away = [
            max(
                abs(a - b) / s
                for j, (a, b, s) in enumerate(zip(row, other, spread, strict=True))
                if s > 1e-12 and j not in levels
            )
            for other in rows
            if other != row and all(row[j] == other[j] for j in levels)
        ]
        found += [min(away)] if away else []
    found.sort()
    within = [d for d in found if sum(e <= d for e in found) >= 0.95 * len(found)]
    return within[0]


@pytest.mark.parametrize("seed", range(6))
def test_the_usual_distance_is_that_of_its_definition(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 4)) * [1, 30, 0.1, 5]
    rows[:, 3] = np.round(rows[:, 3])
    rows = np.vstack([rows, rows[:20], rows[:5]])  # repeated
    rows = np.column_stack([rows, np.full(len(rows), 0.1 + seed)])  # constant
    data = Data(rows, tuple("abcde"))
    assert data.usual_distance() == pytest.approx(usual_by_definition(rows), rel=1e-12)
    moved = Data(rows * [3, 1, 1e6, 1e-6, 1] + 7, tuple("abcde"))
    assert moved.usual_distance() == pytest.approx(data.usual_distance(), rel=1e-9)


def test_rows_of_other_categories_are_not_near():
    rng = np.random.default_rng(0)
    numbers, level = rng.normal(size=(80, 2)), rng.integers(0, 3, size=80)
    rows = np.column_stack([numbers, np.eye(3)[level]])
    names = ("a", "b", "A", "B", "C")
    domain = discretised(
        Domain(rows.min(axis=0), rows.max(axis=0), names),
        categories={"plant": ["A", "B", "C"]},
    )
    data = Data(rows, names)
    expected = usual_by_definition(rows, levels=(2, 3, 4))
    assert data.usual_distance(domain.groups) == pytest.approx(expected, rel=1e-12)
    near = trusted(domain, "near", data)
    assert near.feasible(rows).all()
    other = rows[0].copy()
    other[2:] = np.eye(3)[(level[0] + 1) % 3]
    alone = trusted(domain, Near(radius=0.0), data)
    assert not alone.contains(other)
    free = trusted(domain, Near(radius={"plant": 1, "a": 0, "b": 0}), data)
    assert free.contains(other)


def test_categories_that_no_two_rows_share_do_not_count():
    numbers = np.array([[0.0, 1], [3, 1], [4, 9]])
    rows = np.column_stack([numbers, np.eye(3)])
    (group,) = discretised(
        Domain([0] * 5, [9, 9, 1, 1, 1]), categories={"plant": [2, 3, 4]}
    ).groups
    found = Data(rows, tuple("abcde")).usual_distance([group])
    assert found == pytest.approx(Data(numbers, ("a", "b")).usual_distance())


@pytest.mark.parametrize("count", [1, 3])
def test_a_region_holds_the_points_that_are_near_enough_rows(count):
    rng = np.random.default_rng(count)
    rows = rng.normal(size=(40, 3)) * [1, 100, 3]
    rows[:, 2] = np.round(rows[:, 2])
    rows = np.vstack([rows, rows[:15]])
    data = Data(rows, NAMES)
    domain = discretised(data.box, integers=["age"])
    near = trusted(domain, Near(radius=0.4, count=count), data)
    spread = rows.std(axis=0)
    radius = 0.4 * spread
    radius[2] = np.rint(radius[2])
    different = np.unique(rows, axis=0)
    points = rows[rng.integers(0, len(rows), 400)] + rng.normal(size=(400, 3)) * radius
    points[:, 2] = np.round(points[:, 2])
    within = np.abs(points[:, None] - different) <= radius
    expected = within.all(axis=2).sum(axis=1) >= count
    expected &= np.all((points >= domain.lower) & (points <= domain.upper), axis=1)
    assert np.array_equal(near.feasible(points), expected)
    assert 0 < expected.sum() < len(points)


def test_rows_themselves_are_trusted_whatever_the_inputs_are():
    rng = np.random.default_rng(5)
    rows = np.column_stack(
        [rng.normal(size=50) * 1e-7 + 0.3, rng.integers(0, 9, 50), [4.5] * 50,
         rng.choice([0.1, 0.2, 0.7], 50)]
    )  # fmt: skip
    names = ("a", "whole", "constant", "listed")
    data = Data(rows, names)
    domain = discretised(
        data.box, integers=["whole"], values={"listed": [0.1, 0.2, 0.7]}
    )
    for trust in ("near", Near(radius=0), Near(0.01), ["near", "box"]):
        assert trusted(domain, trust, data).feasible(rows).all()


def test_rows_between_whole_numbers_stand_for_the_nearest():
    data = Data([[0.4, 1], [2.6, 5], [2.7, 5.5]], ("age", "dose"))
    domain = discretised(data.box, integers=["age"])
    near = trusted(domain, Near(radius={"age": 0, "dose": 0}), data)
    points = np.array([[1, 1], [2, 1], [2, 5], [1, 5.0]])
    assert near.upper[0] == 2
    assert not near.feasible(points).any()  # 0 and 3 are beyond the range of the data
    near = trusted(domain, Near(radius={"age": 1, "dose": 0}), data)
    assert near.feasible(points).tolist() == [True, False, True, False]


def test_more_rows_make_a_smaller_region():
    rng = np.random.default_rng(2)
    data = Data(rng.normal(size=(100, 2)), ("a", "b"))
    points = data.box.sample(500, rng)
    one, three = (
        trusted(data.box, trust, data).feasible(points)
        for trust in ("near", Near(count=3))
    )
    assert three.sum() < one.sum()
    assert not np.any(three & ~one)


def test_the_box_of_the_data_narrows_wider_bounds(model):
    domain = place(model, domain=[(-9, 99)] * 3, data=ROWS, trust="box")
    assert domain.lower.tolist() == [0, 10, 1]
    assert domain.upper.tolist() == [5, 30, 7]
    assert domain.is_box


@pytest.mark.parametrize("method", ["box", "bigm"])
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_is_the_best_of_all_boxes_around_rows(seed, method):
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 2, 2, (4, 3))
    rows = rng.normal(size=(12, 2))
    radius = Near(radius=0.3).radii(Data(rows, ("x0", "x1")), Domain([0, 0], [1, 1]))
    low, high = rows.min(axis=0), rows.max(axis=0)
    best = max(
        exact_maximum(
            ensemble,
            Domain(np.maximum(row - radius, low), np.minimum(row + radius, high)),
        )[0]
        for row in rows
    )
    answer = ennopt.maximize(ensemble, rows, trust=Near(radius=0.3), method=method)
    assert answer.proved
    assert answer.value <= best + 1e-9 * (1 + abs(best))
    assert answer.bound >= best - 1e-9 * (1 + abs(best))
    assert answer.extrapolation.distances[0] <= 0.3 * (1 + 1e-9)


def test_data_may_be_the_domain_or_data(model, tmp_path):
    frame = pd.DataFrame(ROWS, columns=NAMES).assign(yields=1.0)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = None
    for said in (
        {"domain": frame},
        {"domain": ROWS},
        {"data": frame},
        {"data": tmp_path / "rows.csv"},
        {"domain": {"age": (1, 7)}, "data": ROWS},
        {"domain": frame.agg(["min", "max"]), "data": frame[["age", "heat", "dose"]]},
    ):
        (region,) = place(model, trust="near", **said).regions
        expected = region if expected is None else expected
        assert np.array_equal(region.lower, expected.lower)
        assert np.array_equal(region.upper, expected.upper)


def test_rows_of_bounds_and_of_data_are_matched_by_name():
    plain = Ensemble((Network((np.ones((1, 3)),), ([0.0],)),))
    frame = pd.DataFrame(ROWS, columns=NAMES)
    found = read_place(Where(domain=frame, data=frame[["age", "dose", "heat"]]), plain)
    assert found.domain.names == NAMES
    assert np.array_equal(found.data.rows, ROWS)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"trust": "ball"}, 'Expected trust "near", "box", "hull".*got .ball'),
        ({"trust": ennopt.Mahalanobis}, "Expected trust .*got type"),
        ({"trust": "neer"}, "got 'neer'"),
        ({"trust": 3}, "or a list of these, got int"),
        ({"trust": ["near", None, {}]}, "or a list of these, got dict"),
        ({"trust": Near(count=6)}, "at most the 5 different rows of data, got 6"),
        ({"trust": Near({"hat": 1})}, "got 'hat' at the radius.*Did you mean heat"),
        ({"trust": "near", "data": None, "domain": (0, 1)}, "rows of data to trust"),
        (
            {"trust": "near", "data": None,
             "domain": pd.DataFrame(ROWS, columns=NAMES).describe()},
            "Pass the rows as data=X",
        ),
        ({"trust": "box", "fixed": {"heat": 99}}, r"\[10, 30\] of the data.*\[99"),
        ({"target": [1, 2]}, "target for each of the 5 rows of data, got shape .2,."),
        ({"target": [1, 2, 3, 4, np.nan]}, "finite numbers as target"),
        ({"target": "yield"}, "the name 'yield' of a column.*array without names"),
        ({"target": [1], "data": None, "domain": (0, 1)}, "data with a target"),
        (
            {"target": "yeild", "data": pd.DataFrame(ROWS, columns=NAMES)},
            "a column of the data as target, got 'yeild'. The columns are dose",
        ),
        (
            {"target": "heat", "data": pd.DataFrame(ROWS, columns=NAMES)},
            "a target that is no input, got 'heat'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_error(model, said, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        place(model, **({"data": ROWS} | said))
    assert str(caught.value).startswith("Expected ")


@pytest.mark.parametrize(
    ("radius", "count"),
    [(-1, 1), (np.inf, 1), ({"a": -2}, 1), ("a", 1), (1, 0), (1, 1.5)],
)
def test_a_region_without_sense_cannot_be_made(radius, count):
    with pytest.raises(ValueError, match="at trust"):
        Near(radius, count)


def test_a_file_and_the_command_line_ask_for_the_same_region(model, tmp_path, capsys):
    model.save(tmp_path / "model.npz")
    rows = tmp_path / "rows.csv"
    pd.DataFrame(ROWS, columns=NAMES).assign(grams=7.0).to_csv(rows, index=False)
    expected = ennopt.maximize(model, ROWS, trust="near", target=[7.0] * 5)
    for text, words in (
        ("", ["--trust", "near"]),
        ('trust = "near"\n', []),
        ('trust = ["near", "box"]\n', []),
        ("trust = {count = 1}\n", ["--trust", "box"]),
        ("", ["--trust", "near:count=1"]),
        ('trust = "near:count=1"\n', []),
    ):
        (tmp_path / "b.toml").write_text(text + "[bounds]\nage = [1, 7]\n")
        status = main(
            ["solve", str(tmp_path / "model.npz"), "--data", str(rows), "--quiet",
             "--bounds", str(tmp_path / "b.toml"), "--target", "grams", "--json",
             *words]
        )  # fmt: skip
        assert status == 0
        answer = ennopt.Result.from_json(capsys.readouterr().out)
        assert answer.x.tolist() == expected.x.tolist()
        assert answer.extrapolation == expected.extrapolation
    (tmp_path / "b.toml").write_text("trust = {radios = 1}\nage = 3")
    words = ["solve", str(tmp_path / "model.npz"), "--data", str(rows)]
    for more, message in (
        (["--trust", "ball"], 'Expected trust "near", "box", "hull"'),
        (["--bounds", str(tmp_path / "b.toml")], "a radius and a count at trust"),
        (["--trust", "near:0.3"], "as near:radius=R,count=N or mahalanobis:radius=R"),
        (["--trust", "near:radius=x"], "got 'near:radius=x'"),
        (["--trust", "near:radius=1,radius=2"], "got 'near:radius=1,radius=2'"),
        (["--trust", "near:radius=-1"], "a radius of at least 0, got -1.0"),
        (["--trust", "hull:radius=1"], "got 'hull:radius=1'"),
        (["--target", "gram"], "data as target, got 'gram'. Did you mean grams"),
    ):
        assert main([*words, *more]) == 2
        assert message in capsys.readouterr().err


def test_a_region_without_feasible_points_is_infeasible_and_says_what_helps(model):
    answer = ennopt.maximize(model, ROWS, trust=Near(0.01), constraints="heat == 15")
    assert answer.status is ennopt.Status.INFEASIBLE
    assert answer.extrapolation is None
    assert "a larger trust region" in answer.summary()
    assert answer.details["conflict"][0] == "heat == 15"
    assert answer.details["conflict"][1].startswith("heat close to rows of data")


@pytest.mark.parametrize("method", ["box", "neurons", "bigm"])
@pytest.mark.parametrize(
    ("trust", "said", "heat"),
    [
        ("box", {"heat": {5, 40}}, "heat is one of 5, 40"),
        ("hull", {"heat": {5, 40}}, "heat is one of 5, 40"),
        ("mahalanobis", {"heat": {-90, 140}}, "heat is one of -90, 140"),
        ("box", {"heat": {99, 101}}, "heat is one of 99, 101"),
        (Near(0.1), {"heat": {13, 25}}, "heat is one of 13, 25"),
        ("box", {"age": (0.1, 0.9)}, None),
    ],
)
def test_values_that_all_lie_outside_of_a_region_are_infeasible(
    model, method, trust, said, heat
):
    """The set was refused as an error, though nobody gave contradictory bounds."""
    if heat is None:
        with pytest.raises(ValueError, match="Widen them, or leave trust out"):
            ennopt.maximize(model, said, data=ROWS, trust=trust)
        return
    answer = ennopt.maximize(model, said, data=ROWS, trust=trust, method=method)
    assert answer.status is ennopt.Status.INFEASIBLE
    statements = answer.details["conflict"]
    assert len(statements) == 2
    assert statements[1] == heat
    told = "close to rows of data" if isinstance(trust, Near) else f'trust="{trust}"'
    assert told in statements[0]
    assert heat in answer.summary()


def test_whole_numbers_between_rows_are_infeasible(model):
    rows = np.column_stack([ROWS[:, :2], np.linspace(1.2, 1.8, 5)])
    said = {"age": (0, 9), "dose": (0, 5), "heat": (0, 30)}
    answer = ennopt.maximize(model, said, data=rows, trust="box", integers=["age"])
    assert answer.status is ennopt.Status.INFEASIBLE
    assert answer.details["conflict"] == [
        '1.2 <= age <= 1.8 (trust="box")', "age is a whole number",
    ]  # fmt: skip


GRID_NAMES = ("days", "grade", "load", "oven_a", "oven_b")
GRID = [
    (days, grade, load, *oven)
    for days in range(5)
    for grade in (1.5, 2.0, 4.0)
    for load in range(-3, 4)
    for oven in ((0, 0), (1, 0), (0, 1))
]
"""Every point of a set that is discrete in all inputs."""


@pytest.mark.parametrize("seed", range(10))
def test_mixes_of_all_statements_have_the_optimum_of_enumeration(seed):
    """Near rows, whole numbers, lists, a category with a base level, a constraint."""
    rng = np.random.default_rng(seed)
    points = np.array(GRID, dtype=float)
    rows = points[rng.integers(0, len(points), 12)]
    rows = np.vstack([rows, rows[:3]])
    ensemble = Ensemble(
        random_ensemble(rng, 2, 5, (4, 3)).members, input_names=GRID_NAMES
    )
    count, radius = 1 + seed % 2, {"days": 1, "grade": 0.6, "load": 2}
    if seed % 3 == 0:
        radius["oven"] = 1
    least = 8 if seed == 9 else rng.integers(-2, 5)  # 8 is out of reach
    reach = np.array([1, 0.6, 2, *[radius.get("oven", 0)] * 2])
    different = np.unique(rows, axis=0)
    close = (np.abs(points[:, None] - different) <= reach).all(axis=2).sum(axis=1)
    allowed = (close >= count) & (points[:, 0] + points[:, 2] >= least)
    allowed &= np.all(points <= rows.max(axis=0), axis=1)
    allowed &= np.all(points >= rows.min(axis=0), axis=1)
    values = ensemble(points)[:, 0]
    for method in ("box", "bigm", "bnc", "enn")[: 4 if seed < 3 else 2]:
        answer = ennopt.maximize(
            ensemble,
            rows,
            integers=["days", "load"],
            values={"grade": [1.5, 2, 4]},
            categories={"oven": {"a": "oven_a", "b": "oven_b", "none": None}},
            constraints=f"days + load >= {least}",
            trust=Near(radius, count),
            method=method,
        )
        if not allowed.any():
            assert answer.status is ennopt.Status.INFEASIBLE
            continue
        best = values[allowed].max()
        assert answer.proved
        assert answer.value == pytest.approx(best, rel=1e-4, abs=1e-6)
        assert answer.bound >= best - 1e-9 * (1 + abs(best))
        assert np.all(points[allowed] == answer.x, axis=1).any()


def test_a_region_with_its_numbers_can_be_written_as_text(model, tmp_path, capsys):
    model.save(tmp_path / "model.npz")
    rows = tmp_path / "rows.csv"
    pd.DataFrame(ROWS, columns=NAMES).to_csv(rows, index=False)
    for text, region in (
        ("near:radius=0.9,count=2", Near(0.9, 2)),
        ("near: radius = 0.3", Near(0.3)),
        ("mahalanobis:radius=1.5", ennopt.Mahalanobis(1.5)),
    ):
        expected = ennopt.maximize(model, ROWS, trust=region)
        answer = ennopt.maximize(model, ROWS, trust=text)
        assert answer.value == pytest.approx(expected.value, rel=2e-4)
        words = ["--data", str(rows), "--trust", text, "--quiet", "--json"]
        assert main(["solve", str(tmp_path / "model.npz"), *words]) == 0
        answer = ennopt.Result.from_json(capsys.readouterr().out)
        assert answer.value == pytest.approx(expected.value, rel=2e-4)
