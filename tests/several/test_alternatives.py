"""The best answers that differ, beside enumeration and dense grids."""

import itertools
import json

import numpy as np
import pytest

import ennopt
from ennopt import Prediction, Status, alternatives, linear
from oracles import random_ensemble, random_network


def far(results, reach):
    """Least distance of two answers, as a multiple of what was asked for."""
    points = [np.asarray(result.x) for result in results]
    return min(
        (np.abs(a - b) / reach).max() for a, b in itertools.combinations(points, 2)
    )


def greedy(points, values, reach, count):
    """What enumeration finds: the best, then the best that differs, and so on."""
    found, left = [], np.ones(len(points), bool)
    for _ in range(count):
        if not left.any():
            break
        best = np.flatnonzero(left)[np.argmax(values[left])]
        found.append(values[best])
        left &= ((np.abs(points - points[best]) / reach).max(axis=1)) >= 1.0 - 1e-12
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("distance", [0.34, {"x0": 2, "x2": 3}])
def test_whole_numbers_have_the_answers_of_enumeration(seed, distance):
    rng = np.random.default_rng(seed)
    net = random_network(rng, 3, (6,))
    found = alternatives(
        net, (-2, 3), integers=["x0", "x1", "x2"], distance=distance, count=6
    )
    points = np.array(list(itertools.product(range(-2, 4), repeat=3)), dtype=float)
    exact = greedy(points, net(points)[:, 0], found.reach, 6)
    assert found.proved
    assert [answer.value for answer in found] == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_each_answer_is_the_best_of_a_grid_of_what_is_left(seed):
    rng = np.random.default_rng(seed)
    trio = random_ensemble(rng, 3, 2, (6,))
    found = alternatives(trio, (-1, 1), distance=0.25, count=5)
    points = np.array(list(itertools.product(np.linspace(-1, 1, 101), repeat=2)))
    values, left = trio(points)[:, 0], np.ones(len(points), bool)
    assert found.proved
    assert len(found) == 5
    for answer in found:
        assert values[left].max() <= answer.bound + 1e-12
        assert answer.value == pytest.approx(trio(answer.x)[0], rel=1e-12)
        left &= (np.abs(points - answer.x) / found.reach).max(axis=1) >= 1.0
    assert far(found, found.reach) >= 1.0 - 1e-12
    ranked = [answer.value for answer in found]
    assert ranked == sorted(ranked, reverse=True)


def test_limits_and_the_other_sense_hold_for_every_alternative(rng):
    trio = ennopt.Ensemble(random_ensemble(rng, 3, 2, (5,)).members)
    own = Prediction(trio, name="own", risk="worst")
    level = ennopt.maximize(own, (-1, 1)).value - 0.5
    cost = linear({"x0": 1.0, "x1": 2.0})
    found = alternatives(
        cost, (-1, 1), sense="min", limits=own >= level, distance=0.1, count=3
    )
    points = np.array(list(itertools.product(np.linspace(-1, 1, 201), repeat=2)))
    each = np.stack([m(points)[:, 0] for m in trio.members]).min(axis=0)
    points = points[each >= level]
    values, left = points @ [1.0, 2.0], np.ones(len(points), bool)
    assert found.proved
    for answer in found:
        assert min(m(answer.x)[0] for m in trio.members) >= level - 1e-8
        if left.any():
            assert values[left].min() >= answer.bound - 1e-12
        left &= (np.abs(points - answer.x) / found.reach).max(axis=1) >= 1.0


def test_a_category_differs_when_its_level_does(rng):
    net = random_network(rng, 4, (6,))
    plants = {"plant": {"A": "x0", "B": "x1", "C": "x2"}}
    found = alternatives(
        net, {"x3": (-1, 1)}, categories=plants, distance={"plant": 1}, count=5
    )
    assert [answer.inputs["plant"] for answer in found] != []
    assert sorted(answer.inputs["plant"] for answer in found) == ["A", "B", "C"]
    assert found.status is Status.INFEASIBLE  # there are three levels
    assert "no further input differs" in found.summary()
    for k, answer in enumerate(found):
        alone = ennopt.maximize(
            net, {"x3": (-1, 1)}, categories=plants,
            fixed={"plant": answer.inputs["plant"]},
        )  # fmt: skip
        assert answer.value == pytest.approx(alone.value, rel=1e-3)
        assert k == 0 or answer.value <= found[k - 1].bound


def test_constraints_and_listed_values_stay_in_force(rng):
    net = random_network(rng, 2, (6,))
    found = alternatives(
        net, {"x0": [0.0, 0.5, 1.0, 2.0], "x1": (0, 2)}, distance={"x0": 0.5}, count=9,
        constraints="x0 + x1 <= 2",
    )  # fmt: skip
    assert sorted(answer.x[0] for answer in found) == [0.0, 0.5, 1.0, 2.0]
    assert all(answer.x.sum() <= 2 + 1e-8 for answer in found)
    for answer in found:
        ends = np.linspace(0, 2 - answer.x[0], 2001)
        line = net(np.column_stack([np.full(2001, answer.x[0]), ends]))
        assert line.max() <= answer.bound + 1e-12


def test_nothing_feasible_and_limits_are_told(rng):
    net = random_network(rng, 2, (6,))
    most = ennopt.maximize(net, (-1, 1)).bound
    none = alternatives(net, (-1, 1), limits=f"prediction >= {most + 1}")
    assert none.status is Status.INFEASIBLE
    assert len(none) == 0
    deep = [random_network(rng, 6, (20, 20)) for _ in range(2)]
    few = alternatives(deep, (-1, 1), node_limit=40, count=4)
    assert few.status is Status.NODE_LIMIT
    assert not few.proved
    points = np.random.default_rng(0).uniform(-1, 1, (2000, 6))
    values = np.mean([net(points)[:, 0] for net in deep], axis=0)
    assert few[0].bound >= values.max()


def test_a_callback_ends_the_work(rng):
    deep = [random_network(rng, 6, (20, 20)) for _ in range(2)]
    found = alternatives(deep, (-1, 1), callback=lambda moment: moment.nodes > 20)
    assert found.status is Status.INTERRUPTED


def test_alternatives_are_told_in_tables_and_json(rng):
    found = alternatives(random_network(rng, 2, (4,)), (-1, 1), count=2)
    frame = found.to_frame()
    assert list(frame.columns) == ["x0", "x1", "value", "bound", "status"]
    plain = json.loads(found.to_json())
    assert len(plain["alternatives"]) == len(found) == 2
    assert found[1].asked.problem.domain.widths.tolist() == [2, 2]


def test_bad_distances_get_one_clear_sentence(rng):
    net = random_network(rng, 2, (4,))
    for match, bad in (
        ("above 0 and at most 1", {"distance": 2}),
        ("above 0 and at most 1", {"distance": float("nan")}),
        ("an input or a category, got 'dose'", {"distance": {"dose": 1}}),
        ("positive distance", {"distance": {"x0": 0}}),
        ("at least one input", {"distance": {}}),
        ("at least 1 answer", {"count": 0}),
    ):
        with pytest.raises(ValueError, match=match):
            alternatives(net, (-1, 1), **bad)
