"""Hulls and ellipsoids around data: membership, half-spaces, and proofs on them."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog, nnls

import ennopt
from ennopt.domain import Domain, Ellipsoid, Hull, Rows
from ennopt.domain.convex import CLOSE, nearest
from ennopt.domain.reading import read_place
from ennopt.domain.where import Where
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.network import Ensemble, Network
from ennopt.paper.bigm import BigM
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import random_ensemble


def in_hull(data, x):
    """Whether a point is a mixture of rows, by SciPy."""
    rows = np.vstack([data.T, np.ones(len(data))])
    return linprog(np.zeros(len(data)), A_eq=rows, b_eq=[*x, 1.0]).status == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_point_of_a_hull_is_that_of_least_squares(seed):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(int(rng.integers(1, 60)), int(rng.integers(1, 7))))
    for x in 2.0 * rng.normal(size=(10, data.shape[1])):
        rows = np.vstack([data.T, 1e4 * np.ones(len(data))])
        shares, _ = nnls(rows, np.append(x, 1e4))
        far = np.linalg.norm(x - shares @ data)
        assert np.linalg.norm(x - nearest(data, x)) == pytest.approx(far, abs=1e-6)


def test_a_hull_holds_mixtures_of_its_rows_and_nothing_else(rng):
    data = rng.normal(size=(30, 3)) * [1.0, 10.0, 0.1]
    hull = Hull(data)
    shares = rng.dirichlet(np.ones(30), size=40)
    assert (hull.distance(shares @ data) <= CLOSE).all()
    for x in rng.normal(size=(60, 3)) * [1.5, 15.0, 0.15]:
        assert (hull.distance(x[None])[0] <= CLOSE) == in_hull(data, x)


@pytest.mark.parametrize("kind", ["hull", "ellipsoid"])
def test_half_spaces_hold_for_the_region_and_cut_off_the_point(kind, rng):
    data = rng.normal(size=(50, 4)) * 1e3 + 1e5
    region = Hull(data) if kind == "hull" else Ellipsoid.of(data, 1.5)
    inside = region.project(data + 500.0 * rng.normal(size=data.shape))
    for x in data.mean(axis=0) + 5e3 * rng.normal(size=(20, 4)):
        slopes, side = region.separate(x)
        exact = [Fraction(a) for a in slopes.tolist()]
        for point in inside:
            value = sum(a * Fraction(e) for a, e in zip(exact, point, strict=True))
            assert value <= Fraction(side)
        if region.distance(x[None])[0] > 2.0 * CLOSE:
            assert slopes @ x > side


def dense(ensemble, domain, count=400):
    """The best of a grid of points of a plane set."""
    axes = [
        np.linspace(low, high, count)
        for low, high in zip(domain.lower, domain.upper, strict=True)
    ]
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    for convex in domain.convex:
        if isinstance(convex, Ellipsoid):
            points = points[convex.distance(points) <= 0.0]
        else:
            around = np.array([in_hull(convex.data, x) for x in points])
            points = points[around]
    return float(ensemble(points[domain.linear.met(points, domain.slack)]).max())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("plain", [False, True])
def test_an_ellipsoid_is_searched_to_the_end(seed, plain):
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 2, 2, (6,))
    region = Ellipsoid.of(rng.normal(size=(40, 2)) @ rng.normal(size=(2, 2)), 1.2)
    rows = Rows(rng.normal(size=(1, 2)), [-np.inf], [0.5]) if seed % 2 else None
    domain = Domain(*region.box(), rows=rows, convex=(region,))
    result = BoxSearch().solve(Problem(ensemble, domain), Tools(Limits(gap=1e-5)))
    assert result.status is Status.OPTIMAL
    assert domain.contains(result.x)
    best = dense(ensemble, domain)
    assert result.bound >= best
    assert result.value >= best - 1e-4 * max(1.0, abs(best))


def test_a_hull_is_searched_to_the_end(rng):
    ensemble = random_ensemble(rng, 2, 2, (6,))
    hull = Hull(rng.normal(size=(12, 2)))
    domain = Domain(*hull.box(), convex=(hull,))
    result = BoxSearch().solve(Problem(ensemble, domain), Tools())
    assert result.status is Status.OPTIMAL
    best = dense(ensemble, domain, 40)
    assert result.bound >= best
    assert in_hull(hull.data, hull.project(result.x[None])[0])


def test_regions_apart_are_infeasible(rng):
    ensemble = random_ensemble(rng, 1, 2, (4,))
    left = Ellipsoid([0.0, 0.0], np.eye(2), 1.0)
    right = Ellipsoid([1.8, 1.8], np.eye(2), 1.0)
    domain = Domain([-1.0, -1.0], [3.0, 3.0], convex=(left, right))
    result = BoxSearch().solve(Problem(ensemble, domain), Tools(Limits(nodes=20_000)))
    assert result.status is Status.INFEASIBLE


@pytest.mark.parametrize("value", [0.1, 1.0, 1e9 / 3])
def test_an_input_that_is_constant_in_the_data_has_an_ellipsoid(value, rng):
    """Rounding of its mean made it vary by 1e-17, and the covariance singular."""
    data = np.column_stack([np.full(11, value), rng.normal(size=11)])
    region = Ellipsoid.of(data, 2.0)
    assert region.distance(np.array([[value, data[:, 1].mean()]]))[0] == 0.0


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
def test_a_hull_in_other_units_is_as_close_to_the_same_points(unit):
    """A constant input was measured in ones, whatever the units."""
    hull, units = Hull([[0.0, 0.5], [2.0, 0.5], [1.0, 0.5]]), np.array([1.0, unit])
    points = np.array([[1.0, 0.5 + 3e-7], [2.5, 0.5]])
    there = hull.on_units(units).distance(points / units)
    np.testing.assert_allclose(there, hull.distance(points), rtol=1e-6)
    assert Hull([[0.1], [0.1 + 1e-17]]).scale == 1.0


@pytest.mark.parametrize("trust", ["hull", "mahalanobis", ennopt.Mahalanobis(1.0)])
def test_trust_keeps_answers_in_the_region(trust, rng):
    ensemble = random_ensemble(rng, 2, 3, (8,))
    data = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3))
    result = ennopt.maximize(ensemble, data, trust=trust)
    region = Hull(data) if trust == "hull" else Ellipsoid.of(data, 1.0)
    if trust == "mahalanobis":
        assert result.extrapolation.percentile <= 95.1
    else:
        assert region.distance(result.x[None])[0] <= CLOSE


def test_an_ellipsoid_of_equal_rows_is_refused_with_a_remedy(rng):
    """There was a word about a radius that nobody had given."""
    with pytest.raises(ValueError, match=r"two different rows .* trust=.near."):
        ennopt.maximize(random_ensemble(rng), np.full((3, 2), 0.1), trust="mahalanobis")


def test_a_region_stays_with_whatever_else_is_said(rng):
    ensemble = random_ensemble(rng)
    data = rng.normal(size=(8, 2))
    domain = Domain(data.min(axis=0), data.max(axis=0), convex=(Hull(data),))
    where = Where(domain=domain, integers=[0], constraints="x0 + x1 <= 5")
    assert read_place(where, ensemble).domain.convex == domain.convex


def over_shares(ensemble, hull, rows):
    """The same problem over the shares of the rows of data in a mixture."""
    mixture = hull.data.T
    members = [
        Network((m.weights[0] @ mixture, *m.weights[1:]), m.biases)
        for m in ensemble.members
    ]
    count = mixture.shape[1]
    one = Rows(np.ones((1, count)), [1.0], [1.0])
    others = Rows(rows.matrix @ mixture, rows.least, rows.most)
    domain = Domain(np.zeros(count), np.ones(count), rows=one.and_(others))
    return Problem(Ensemble(members, weights=ensemble.weights), domain)


@pytest.mark.parametrize("seed", range(4))
def test_a_hull_is_what_mixtures_of_its_rows_say(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 4))
    ensemble = random_ensemble(rng, 2, d, (4,))
    hull = Hull(rng.normal(size=(int(rng.integers(4, 9)), d)))
    row = rng.normal(size=(1, d))
    at = float(row[0] @ hull.data.mean(axis=0))
    # An inequality, an equation, and one that no mixture meets.
    least, most = [(-np.inf, at), (at, at), (at - 0.1, at + 0.2), (at + 30, np.inf)][
        seed
    ]
    rows = Rows(row, [least], [most])
    lower, upper = hull.box()
    problem = Problem(ensemble, Domain(lower, upper, rows=rows, convex=(hull,)))
    mine = BoxSearch().solve(problem, Tools(Limits(gap=1e-5, nodes=20_000)))
    for method in (BigM("highs"), NeuronSearch()):
        other = method.solve(over_shares(ensemble, hull, rows), Tools(Limits(gap=1e-6)))
        assert other.status is mine.status
        if mine.x is None:
            assert mine.status is Status.INFEASIBLE
            continue
        size = 1e-5 * max(1.0, abs(other.value))
        assert mine.bound >= other.value - size
        assert other.bound >= mine.value - size


def test_a_constraint_that_no_mixture_meets_is_infeasible_and_says_why(rng):
    ensemble = random_ensemble(rng, 1, 2, (4,))
    data = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    box = ennopt.maximize(ensemble, data, constraints="x0 + x1 >= 1.5")
    assert box.status is Status.OPTIMAL
    for method in ("auto", "box"):
        hull = ennopt.maximize(
            ensemble, data, constraints="x0 + x1 >= 1.5", trust="hull", method=method
        )
        assert hull.status is Status.INFEASIBLE
        assert any("trust region" in note for note in hull.notes)


@pytest.mark.parametrize("kind", [Hull, lambda data: Ellipsoid.of(data, 2.0)])
def test_the_box_of_a_problem_is_no_wider_than_its_regions_and_loses_no_point(
    kind, rng
):
    data = 0.3 + 1e-10 * rng.normal(size=(20, 2))
    domain = Domain([-1.0, -1.0], [1.0, 1.0], convex=(kind(data),))
    small = domain.enclosed()
    assert np.all(small.widths < 1e-8)
    near = data.mean(axis=0) + 3e-9 * rng.uniform(-1.0, 1.0, size=(2000, 2))
    points = domain.convex[0].project(near)
    points = points[domain.feasible(points)]
    assert len(points) > 100
    assert small.feasible(points).all()


def test_a_region_outside_of_the_box_leaves_the_box(rng):
    domain = Domain([0.0], [1.0], convex=(Hull([[2.0], [3.0]]),))
    assert domain.enclosed() is domain


@pytest.mark.parametrize("trust", ["hull", ennopt.Mahalanobis(2.0)], ids=str)
def test_a_whole_number_cannot_use_what_a_region_may_be_missed_by(trust):
    peak = ennopt.Network(
        [[[1.0], [-1.0]], [[-1e4, -1e4]]], [[-3.2, 3.2], [2001.0]]
    )  # steep: moved by the slack of a region it would gain more than the gap
    data = np.array([[1.0], [2.0], [4.0], [5.0]])
    answer = ennopt.maximize(
        [peak], data, integers=["x0"], trust=trust, method="box", node_limit=100
    )
    assert answer.status == ennopt.Status.OPTIMAL
    assert answer.value == pytest.approx(1.0)
    assert answer.x == [3.0]
