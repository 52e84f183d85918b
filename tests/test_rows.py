"""Linear constraints: what the set accepts, what a node knows, what a search proves."""

import numpy as np
import pytest

from ennopt.canonical import Canonical
from ennopt.domain import Domain, Rows
from ennopt.engine.auto import Auto
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import kernel
from ennopt.network import Ensemble, Network
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import exact_on, mixed, random_ensemble, random_network


def test_repaired_points_are_feasible(rng):
    for k in range(30):
        domain = mixed(rng, int(rng.integers(1, 7)), 3, equal=k % 2 == 0)
        points = domain.repair(rng.normal(size=(40, domain.num_inputs)) * 3)
        assert domain.feasible(points).mean() > 0.9
        kept = domain.sample(50, rng)
        assert len(kept) > 25
        assert np.all(domain.feasible(kept))


def test_half_spaces_hold_wherever_a_point_is_accepted(rng):
    for k in range(20):
        domain = mixed(rng, 4, 3, equal=k % 2 == 0)
        slopes, sides = domain.half_spaces()
        points = domain.sample(200, rng)
        assert np.all(points @ slopes.T >= sides)


def test_a_missed_constraint_is_not_accepted():
    domain = Domain([0, 0], [1, 1], rows=Rows([[1.0, 1.0]], [1.0], [1.0]))
    assert domain.contains([0.25, 0.75])
    assert domain.contains([0.25, 0.75 + 1e-10])
    assert not domain.contains([0.25, 0.75 + 1e-7])
    assert not domain.contains([-0.25, 1.25])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (([[1.0, np.nan]], [0.0], [1.0]), "finite coefficients"),
        (([[1.0, 1.0]], [2.0], [1.0]), "Exchange them"),
        (([[1.0, 1.0]], [0.0, 1.0], [1.0]), "one lower and one upper"),
        (([[1.0, 1.0]], [np.nan], [1.0]), "sides that a number"),
    ],
)
def test_senseless_rows_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        Rows(*rows)


def test_rows_on_other_inputs_are_refused():
    with pytest.raises(ValueError, match="3 inputs"):
        Domain([0] * 3, [1] * 3, rows=Rows([[1.0, 1.0]], [0.0], [1.0]))


# Searches.


WAYS = [
    pytest.param(
        False,
        id="compiled",
        marks=pytest.mark.skipif(kernel() is None, reason="no extension"),
    ),
    pytest.param(True, id="plain"),
]


@pytest.mark.parametrize("plain", WAYS)
@pytest.mark.parametrize("equal", [False, True], ids=["inequalities", "equation"])
def test_boxes_with_rows_agree_with_cells(plain, equal):
    for seed in range(3 if plain else 20):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(2, 4))
        ensemble = random_ensemble(rng, 2, d, (4, 3))
        domain = mixed(rng, d, int(rng.integers(1, 4)), equal)
        problem = Canonical.of(Problem(ensemble, domain))
        tree = BoxSearch().scheme.open(problem, 1e-4, plain=plain)
        start = domain.sample(50, rng)
        tree.offer(start[np.argmax(problem.values(start))])
        tree.plant()
        done = 0
        while tree.open and done < 20_000:
            done += tree.explore(500, np.inf, 1e9, dive=64, threads=1)
            for x in domain.repair(tree.candidates()):
                if domain.contains(x):
                    tree.offer(x)
        assert tree.open == 0
        exact = exact_on(ensemble, domain)
        assert tree.bound >= exact - 1e-7
        assert tree.value <= exact + 1e-6
        assert tree.bound - tree.value <= 2e-4 * max(1.0, abs(exact))


def test_the_answer_meets_its_constraints(rng):
    for seed in (0, 2, 4, 6, 8):
        rng = np.random.default_rng(seed)
        ensemble, domain = random_ensemble(rng, 2, 4, (8, 6)), mixed(rng, 4, 2, True)
        result = Auto().solve(Problem(ensemble, domain), Tools(Limits(seconds=60)))
        assert result.status is Status.OPTIMAL
        assert domain.contains(result.x)
        assert result.value == ensemble(result.x)[0]
        assert ensemble(domain.sample(2000, rng)).max() <= result.bound


@pytest.mark.parametrize("plain", WAYS)
def test_contradictory_rows_are_infeasible_and_proved(plain):
    net = random_network(np.random.default_rng(1), 3, (5, 4))
    for rows in (
        Rows([[1, 1, 1]], [4.0], [np.inf]),
        Rows([[1, 1, 0], [1, -1, 0], [-2, 0, 0]], [1.2, 0.9, -1.5], [np.inf] * 3),
    ):
        domain = Domain([0] * 3, [1] * 3, rows=rows)
        problem = Canonical.of(Problem(Ensemble([net]), domain))
        tree = BoxSearch().scheme.open(problem, 1e-4, plain=plain)
        tree.plant()
        tree.explore(5000, np.inf, 1e9, dive=64, threads=1)
        assert tree.open == 0
        assert tree.bound == -np.inf
        result = Auto().solve(problem, Tools())
        assert result.status is Status.INFEASIBLE
        assert result.x is None
        assert result.bound == -np.inf


def test_a_minimum_over_rows_is_told_in_its_own_sense():
    net = Network([[[1.0, 2.0]]], [[0.0]])
    domain = Domain([0, 0], [1, 1], rows=Rows([[1.0, 1.0]], [1.0], [1.0]))
    result = Auto().solve(Problem(Ensemble([net]), domain, "min"), Tools())
    assert result.value == pytest.approx(1.0, rel=2e-4)
    assert result.bound <= 1.0 + 1e-9
    np.testing.assert_allclose(result.x, [1.0, 0.0], atol=1e-3)


def test_points_whose_box_misses_a_row_are_left_alone():
    rows = Rows([[1.0, 1.0], [1.0, -1.0]], [3.0, -0.5], [np.inf, 0.5])
    low = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    high = np.array([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]])
    slack = np.full(2, 1e-9)
    points = np.array([[0.2, 0.7], [0.2, 0.7], [1.0, 1.0]])
    moved = rows.repair(points, low, high, slack)
    assert rows.met(moved, slack).tolist() == [False, True, False]
    assert moved[0].tolist() == [0.2, 0.7]
    assert moved[2].tolist() == [1.0, 1.0]


def test_a_row_that_touches_a_corner_of_the_box_is_met_there():
    rows = Rows([[1.0, 1.0]], [2.0], [2.0])
    box = np.zeros((1, 2)), np.ones((1, 2))
    moved = rows.repair(np.array([[0.1, 0.4]]), *box, np.full(1, 1e-9))
    assert rows.met(moved, np.full(1, 1e-9)).all()
