"""Fronts of two objectives beside dense grids and enumeration."""

import itertools
import json
from dataclasses import replace

import matplotlib
import numpy as np
import pytest

import ennopt
from ennopt import Ensemble, Input, Network, Prediction, Status, linear, pareto
from ennopt.question import Question
from ennopt.several.front import _Found, _Search
from ennopt.several.series import Series
from oracles import random_ensemble, random_network

matplotlib.use("agg")

SIGNS = {"max": 1.0, "min": -1.0}


def grid(low, high, count=121, dimension=2):
    axes = [np.linspace(low, high, count)] * dimension
    return np.array(list(itertools.product(*axes)))


def check_on(front, values):
    """No point of the set is excluded or beats the front; `values` (num_points, 2)."""
    one, two = (SIGNS[sense] for sense in front.senses)
    for part in front.empty:
        inside = (one * (values[:, 0] - part.first) > 0.0) & (
            two * (values[:, 1] - part.second) > 0.0
        )
        assert not inside.any()
    spread = np.ptp(values, axis=0)
    for point in front.points:
        better = (one * (values[:, 0] - point.first) > 1e-3 * spread[0]) & (
            two * (values[:, 1] - point.second) > 1e-3 * spread[1]
        )
        assert not better.any()


@pytest.mark.parametrize("seed", range(2))
def test_no_point_of_a_grid_is_where_a_front_says_that_none_is(seed):
    rng = np.random.default_rng(seed)
    trio = Ensemble(random_ensemble(rng, 3, 2, (5,)).members)
    strength, points = Prediction(trio, name="strength"), grid(-1, 1)
    cost = linear({"x0": 1.0, "x1": -0.5})
    front = pareto((cost, strength), (-1, 1), senses=("min", "max"), points=6)
    assert front.proved
    values = np.column_stack([points @ [1.0, -0.5], trio(points)[:, 0]])
    check_on(front, values)
    for point in front.points:
        x = point.result.x
        assert point.first == pytest.approx(x @ [1.0, -0.5], abs=1e-9)
        assert point.second == pytest.approx(trio(x)[0], rel=1e-12)
    ends = [front.points[0].first, front.points[-1].second]
    assert ends[0] == pytest.approx(-1.5, rel=1e-3)
    assert ends[1] >= values[:, 1].max() - 1e-3


@pytest.mark.parametrize("kind", ["std", "mad", "spread"])
def test_the_mean_is_weighed_against_how_far_members_disagree(kind):
    rng = np.random.default_rng(7)
    trio = Ensemble(random_ensemble(rng, 3, 2, (4,)).members)
    strength, points = Prediction(trio, name="strength"), grid(-1, 1, 61)
    off = getattr(strength, kind)()
    front = pareto((strength, off), (-1, 1), senses=("max", "min"), points=3, gap=1e-3)
    each = np.stack([m(points)[:, 0] for m in trio.members])
    far = {
        "std": each.std(axis=0),
        "mad": np.abs(each - each.mean(axis=0)).mean(axis=0),
        "spread": np.ptp(each, axis=0),
    }[kind]
    assert front.proved
    check_on(front, np.column_stack([trio(points)[:, 0], far]))
    assert front.names == ("strength", f"{kind}(strength)")


def exact_front(values):
    """Pairs that no other one dominates, both to be large."""
    return sorted(
        {
            tuple(v)
            for v in values
            if not np.any((values >= v).all(axis=1) & (values > v).any(axis=1))
        }
    )


@pytest.mark.parametrize("seed", range(3))
def test_whole_numbers_have_all_points_of_their_front(seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng, 2, (6,))
    front = pareto(
        (Prediction(net), Input("x0") + Input("x1")), (-3, 3), integers=["x0", "x1"],
        points=40,
    )  # fmt: skip
    points = np.array(list(itertools.product(range(-3, 4), repeat=2)), dtype=float)
    exact = exact_front(np.column_stack([net(points)[:, 0], points.sum(axis=1)]))
    assert np.allclose(front.values, exact, atol=1e-3)
    assert front.unknown < 0.01


def test_a_front_with_a_dent_gets_its_points_too():
    # The second objective falls, rises and falls: weighted sums would miss the dent.
    dent = Network(
        [[[1.0], [1.0], [1.0]], [[-2.0, 3.0, -4.0]]], [[0.0, -1.0, -2.0], [4.0]]
    )
    front = pareto((Input("x0"), Prediction(dent)), (0, 3), points=8)
    assert front.proved
    points = np.linspace(0, 3, 2001)[:, None]
    values = np.column_stack([points[:, 0], dent(points)[:, 0]])
    check_on(front, values)
    # Between 0.5 and 2 in the first, the best is the second peak, at 2.
    assert not any(0.51 < point.first < 1.99 for point in front.points)
    assert any(point.first == pytest.approx(2, abs=0.01) for point in front.points)


def test_objectives_that_agree_have_a_front_of_one_point():
    rising = Prediction(Network([[[1.0]]], [[0.0]]))
    front = pareto((rising, 2 * rising + 1), (0, 1))
    assert len(front.points) == 1
    assert (front.points[0].first, front.points[0].second) == pytest.approx((1, 3))
    assert front.unknown == 0.0


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_no_two_points_are_equal_within_the_gap(seed):
    rng = np.random.default_rng(seed)
    trio = Ensemble(random_ensemble(rng, 3, 2, (5,)).members)
    strength, duo = Prediction(trio), Prediction(Ensemble(trio.members[:2]))
    points, cost = grid(-1, 1), linear({"x0": 1.0, "x1": -0.5})
    for goals, senses, values in (
        ((strength, duo), ("max", "max"), Ensemble(trio.members[:2])(points)[:, 0]),
        ((strength, cost), ("max", "min"), points @ [1.0, -0.5]),
    ):
        front = pareto(goals, (-1, 1), senses=senses, points=9, gap=0.01)
        assert front.proved
        check_on(front, np.column_stack([trio(points)[:, 0], values]))
        found = front.values
        assert len(found) > 1
        for one, two in itertools.combinations(found, 2):
            size = np.maximum(np.abs(one), np.abs(two))
            assert (np.abs(one - two) > 0.01 * size).any()
        best = ennopt.maximize(strength, (-1, 1), gap=0.01)
        assert found[:, 0].max() >= best.value - 0.01 * abs(best.value)


def test_a_point_that_is_not_proved_gives_way_to_an_equal_one_that_is(rng):
    own = Prediction(random_network(rng, 2, (4,)))
    front = pareto((own, Input("x0")), (-1, 1), points=2)
    result = front.points[0].result
    loose = replace(result, status=Status.TIME_LIMIT, bound=result.value + 9)
    question = Question.of([(own, "max"), (Input("x0"), "max")], (-1, 1), {}, "pareto")
    posed = question.posed()
    search = _Search(
        posed, Series(posed, question.running), ("a", "b"), ("max", "max"), 5
    )
    search.found = [_Found(1.0, 2.00001, loose), _Found(1.00001, 2.0, result)]
    assert [point.result for point in search._kept()] == [result]


def test_a_front_of_nothing_is_infeasible(rng):
    net = random_network(rng, 2, (4,))
    own = Prediction(net, name="own")
    most = ennopt.maximize(net, (-1, 1)).bound
    front = pareto((own, Input("x0")), (-1, 1), limits=own >= most + 1)
    assert front.status is Status.INFEASIBLE
    assert front.points == ()
    assert front.summary().startswith("Infeasible")
    assert json.loads(front.to_json())["points"] == []
    assert front.plot() is not None


def test_a_limit_on_nodes_leaves_what_was_found_and_proved(rng):
    deep = [random_network(rng, 4, (12, 12)) for _ in range(2)]
    own = Prediction(deep)
    front = pareto((own, linear({"x0": 1.0, "x3": -2.0})), (-1, 1), node_limit=20)
    assert not front.proved
    points = np.random.default_rng(0).uniform(-1, 1, (500, 4))
    values = np.mean([net(points)[:, 0] for net in deep], axis=0)
    for pair in zip(values, points @ [1.0, 0.0, 0.0, -2.0], strict=True):
        assert not front.excludes(*pair)


def test_a_front_is_told_in_tables_pictures_and_json(rng):
    own = Prediction(random_network(rng, 2, (4,)), name="yield")
    front = pareto((linear({"x0": 1.0}), own), (-1, 1), senses=("min", "max"), points=3)
    frame = front.to_frame()
    assert list(frame.columns[:4]) == ["x0", "yield", "x1", "status"]
    assert len(frame) == len(front.points) == len(front.results)
    plain = json.loads(front.to_json())
    assert plain["senses"] == ["min", "max"]
    assert len(plain["empty"]) == len(front.empty)
    assert "x0, minimized" in front.summary()
    axes = front.plot()
    assert axes.get_xlabel() == "x0"
    drawn = axes.get_lines()[0].get_xydata()
    assert np.allclose(drawn, front.values)


def test_bad_fronts_get_one_clear_sentence(rng):
    own = Prediction(random_network(rng, 2, (4,)))
    for match, make in (
        ("two objectives, got one. .* call maximize", lambda: pareto((own,), (-1, 1))),
        ("two objectives, got one", lambda: pareto(own, (-1, 1))),
        ("two objectives, got 3", lambda: pareto((own, own, own), (-1, 1))),
        ("two senses", lambda: pareto((own, own), (-1, 1), senses="max")),
        ("at least 2 points", lambda: pareto((own, Input("x0")), (-1, 1), points=1)),
        ("'max' or 'min'", lambda: pareto((own, own), (-1, 1), senses=("up", "max"))),
        ("linear program", lambda: pareto((Input("x0"), Input("x1")), (-1, 1))),
    ):
        with pytest.raises(ValueError, match=match):
            make()
    with pytest.raises(TypeError, match="keyword of pareto, got 'threshold'"):
        pareto((own, Input("x0")), (-1, 1), threshold=1.0)


def test_no_point_at_a_limit_is_not_called_infeasible(rng):
    net = random_network(rng, 6, (16, 16))
    own, box = Prediction(net, name="own"), [(-1, 1)] * 6
    most = ennopt.maximize(net, box).value
    asked = {"limits": own >= most - 1e-7, "node_limit": 20}
    front = pareto((own, Input("x0")), box, **asked)
    assert front.status is not Status.INFEASIBLE
    found = ennopt.alternatives(own, box, **asked)
    assert found.status is not Status.INFEASIBLE
    assert len(front.points) == len(found) == 0
    assert "No" in front.summary()
    assert "No" in found.summary()
