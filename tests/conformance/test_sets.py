"""Every kind of feasible set and mixes of them: all ways to solve a problem agree.

``make conformance`` runs a thousand problems.
"""

import math
import os

import numpy as np
import pytest
from answers import METHODS, OTHERS, agreed, answers, methods_for
from scipy.optimize import nnls

from ennopt.canonical import Canonical
from ennopt.domain import Domain, Group, NearRows, Rows, Values
from ennopt.domain.convex import CLOSE, Ellipsoid
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.schemes import Signs
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import (
    KINDS,
    exactly_feasible,
    random_ensemble,
    random_set,
    rounded,
)

GAP = 1e-5
COUNT = int(os.environ.get("ENNOPT_CONFORMANCE", "24"))
PARTS = max(6, COUNT // 20)
PLAIN_NODES = 3000


def close(domain, x):
    """Whether a point is close to every convex region, by other means than ours."""
    for region in domain.convex:
        if isinstance(region, Ellipsoid):
            y = np.linalg.inv(region.root) @ (x - region.middle)
            if np.linalg.norm(y) > region.radius * (1.0 + 2.0 * CLOSE):
                return False
            continue
        rows = np.vstack(
            [region.data.T / region.scale[:, None], np.ones(len(region.data))]
        )
        away = nnls(rows, np.append(x / region.scale, 1.0))[1]
        if away > 2.0 * CLOSE:
            return False
    return True


def problem_of(seed, kinds=None):
    rng = np.random.default_rng(seed)
    domain, kinds = random_set(rng, kinds)
    if seed % 6 == 3:
        domain = rounded(rng, domain)
    widths = (3, 3) if rng.random() < 0.4 else (int(rng.integers(2, 5)),)
    members = int(rng.integers(1, 3))
    ensemble = random_ensemble(rng, members, domain.num_inputs, widths)
    return Problem(ensemble, domain, "max" if rng.random() < 0.7 else "min")


def agree(problem, methods=METHODS):
    """Solve in every way and compare values with bounds; returns the status."""
    sign = 1.0 if problem.sense == "max" else -1.0
    canonical = Canonical.of(problem)
    # Points may miss a convex region by more than this gap allows.
    gap = 1e-4 if problem.domain.convex else GAP
    results = answers(problem, gap, methods)
    status = agreed(problem, results, room=1e-6 if problem.domain.convex else 1e-7)
    if problem.domain.convex:  # their half-spaces are learned outside of a tree
        for name, result in results.items():
            assert result.x is None or close(problem.domain, result.x), name
        return status
    schemes = [BoxSearch().scheme]
    if "neurons" in results:
        schemes.append(Signs(canonical.root))
    trees = [scheme.open(canonical, GAP, plain=True) for scheme in schemes]
    known = results["boxes"].x
    for tree in trees:
        tree.plant()
        if known is not None:
            tree.offer(known)
        tree.explore(PLAIN_NODES, math.inf, math.inf, dive=1, threads=1)
        assert not tree.open
    for name, result in results.items():
        if result.x is None:
            assert all(tree.bound == -math.inf for tree in trees)
            continue
        value = sign * result.value
        size = 1e-7 * max(1.0, abs(value))
        assert exactly_feasible(problem.domain, result.x), name
        assert all(tree.bound >= value - size for tree in trees)
    return status


@pytest.mark.parametrize("part", range(PARTS))
def test_random_mixes_of_sets_are_solved_alike(part):
    found = [
        agree(problem_of(seed), methods_for(seed)) for seed in range(part, COUNT, PARTS)
    ]
    assert set(found) <= {Status.OPTIMAL, Status.INFEASIBLE}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_set_by_itself(kind):
    assert agree(problem_of(5, [kind]), METHODS | OTHERS) is Status.OPTIMAL


@pytest.mark.parametrize("seed", [9, 21])
def test_programs_by_highs_separate_points_from_convex_regions(seed):
    """Without the extension they are what answers."""
    problem = problem_of(seed)
    assert problem.domain.convex
    canonical = Canonical.of(problem)
    (known,) = answers(problem, 1e-4, {"boxes": BoxSearch()}).values()
    tree = Signs(canonical.root).open(canonical, 1e-4, plain=True)
    tree.plant()
    if known.x is not None:
        tree.offer(known.x)
    tree.explore(PLAIN_NODES, math.inf, math.inf, dive=1, threads=1)
    assert not tree.open
    best = -math.inf if known.x is None else canonical.values(known.x)[0]
    assert tree.bound >= best


def test_an_ellipsoid_of_data_that_hardly_vary_is_not_called_infeasible():
    """Its half-spaces were thinner than the tolerances of solvers."""
    problem = problem_of(405)
    (region,) = problem.domain.convex
    assert np.ptp(region.box(), axis=0).min() < 1e-10
    assert agree(problem, METHODS | OTHERS) is Status.OPTIMAL


def test_boxes_of_one_point_outside_of_an_ellipsoid_are_empty():
    """They were closed before a half-space that cuts off their point was known."""
    problem = problem_of(435)
    assert agree(problem) is Status.INFEASIBLE
    canonical = Canonical.of(problem)
    tree = BoxSearch().scheme.open(canonical, GAP, plain=True)
    tree.plant()
    tree.explore(PLAIN_NODES, math.inf, math.inf, dive=1, threads=1)
    assert not tree.open
    assert tree.bound == -math.inf


def enumerated(problem, whole):
    """The best of all points of a set of whole numbers."""
    axes = [
        np.arange(low, high + 1)
        for low, high in zip(problem.domain.lower, problem.domain.upper, strict=True)
    ]
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(axes))
    return problem.ensemble(points[problem.domain.feasible(points)]).max()


@pytest.mark.parametrize("method", [BoxSearch(), NeuronSearch()], ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_whole_numbers_agree_with_enumeration(seed, method):
    rng = np.random.default_rng(seed)
    d = 4
    matrix = rng.integers(-3, 4, size=(2, d)).astype(float)
    at = matrix @ rng.integers(0, 8, d)
    rows = Rows(matrix, at - 2.0, np.where([True, False], at, np.inf))
    domain = Domain(
        np.zeros(d), np.full(d, 7.9), rows=rows, values=Values.of(d, whole=range(d))
    )
    ensemble = random_ensemble(rng, 2, d, (12,))
    problem = Problem(ensemble, domain)
    result = method.solve(problem, Tools(Limits(gap=1e-6)))
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(enumerated(problem, d), rel=1e-6)


@pytest.mark.parametrize("method", [BoxSearch(), NeuronSearch()], ids=repr)
def test_categories_choose_one_level_each(method):
    rng = np.random.default_rng(3)
    groups = (
        Group("first", (0, 1, 2), ("a", "b", "c")),
        Group("second", (3, 4), ("d", "e"), base="f"),
    )
    values = Values.of(6, whole=range(5))
    domain = Domain(np.zeros(6), np.ones(6), values=values, groups=groups)
    ensemble = random_ensemble(rng, 2, 6, (10,))
    result = method.solve(Problem(ensemble, domain), Tools())
    best = -math.inf
    for first in np.eye(3):
        for second in ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0]):
            one = np.concatenate([first, second])
            line = Domain([*one, 0.0], [*one, 1.0])
            best = max(best, BoxSearch().solve(Problem(ensemble, line), Tools()).value)
    assert result.value == pytest.approx(best, rel=2e-4)
    assert {group.level(result.x) for group in groups} < set("abcdef")


def test_a_point_near_two_rows_is_in_both_their_boxes():
    data = np.array([[0.0, 0.0], [0.3, 0.1], [2.0, 2.0]])
    near = NearRows.rows(data, [0.2, 0.2], count=2)
    domain = Domain([-5.0, -5.0], [5.0, 5.0], regions=(near,))
    ensemble = random_ensemble(np.random.default_rng(1), 1, 2, (6,))
    assert not domain.contains([2.0, 2.0])
    apart = Domain([-5.0] * 2, [5.0] * 2, regions=(NearRows.rows(data, [0.1, 0.1], 2),))
    for search in (BoxSearch(), NeuronSearch()):
        result = search.solve(Problem(ensemble, domain), Tools())
        assert np.all(np.abs(result.x - data[:2]) <= 0.2 + 1e-15)
        none = search.solve(Problem(ensemble, apart), Tools())
        assert none.status is Status.INFEASIBLE
