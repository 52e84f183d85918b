"""Limits, risks and convex regions in a model: what its rows and columns mean."""

import numpy as np
import pytest

from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.domain.convex import Ellipsoid, Hull
from ennopt.milp.building import Building
from ennopt.milp.epigraph import ColumnForm, add_function
from ennopt.milp.formulation import big_m
from ennopt.milp.highs import Highs
from ennopt.milp.scaling import ScaledModel, normalized
from ennopt.network import Ensemble
from ennopt.problem import Combination, Limit, Problem, Term
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Worst
from ennopt.weighting import Weighting
from oracles import random_domain, random_ensemble

RISKS = (
    Worst(), Cvar(0.5), Cvar(0.7), Cvar(0.05), MeanMinusMad(0.4), MeanMinusStd(1.5),
    MeanMinusStd(0.7, mean=0.0),
)  # fmt: skip


def decision(seed, risk, least=0.0):
    """A goal and a limit, both with a risk and a linear term."""
    rng = np.random.default_rng(seed)
    domain = random_domain(rng, 2)
    parts = [Ensemble(random_ensemble(rng, 3, 2, (4,)).members) for _ in range(2)]
    goal, limit = (
        Combination((Term(part, 2.0, risk=risk),), rng.normal(size=2), 0.3)
        for part in parts
    )
    return Problem(parts[0], domain, "max", None, goal, (Limit(limit, least),))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("risk", RISKS, ids=repr)
def test_the_largest_choice_of_an_epigraph_is_the_risk(risk, count):
    for y in np.random.default_rng(0).normal(size=(3, count)):
        building, nothing = Building(), np.zeros(0)
        outputs = [ColumnForm(np.zeros(0, np.int64), nothing, float(e)) for e in y]
        every = Weighting(np.zeros(count), ((tuple(range(count)), risk),))
        made = add_function(building, every, outputs, y - 1.0, y + 1.0)
        model = building.model(made.form.dense(building.size), made.form.constant)
        cuts = [
            part.tangent(risk.respond(y), 10.0) for part in made.risks if part.by_cuts
        ]
        found = Highs().solve(model.with_inequalities(cuts))
        assert found.value == pytest.approx(risk.respond(y) @ y, abs=1e-6)


@pytest.mark.parametrize("risk", RISKS, ids=repr)
def test_every_point_that_meets_the_limits_is_a_solution_of_the_model(risk):
    for seed in range(2):
        problem = Canonical.of(decision(seed, risk, -1.0))
        same = normalized(problem, problem.root)
        made = big_m(same.problem, same.bounds)
        points = problem.domain.sample(40, np.random.default_rng(seed))
        columns = [made.assignment(x / same.inputs) for x in points]
        cuts = [cut for v in columns for cut in made.cuts(v + 0.1)]
        assert made.lacks_rows == isinstance(risk, MeanMinusStd)
        for x, v, met in zip(points, columns, problem.feasible(points), strict=True):
            value = made.model.value(v) * same.output
            assert value == pytest.approx(problem.values(x)[0], abs=1e-9)
            assert not met or made.model.violation(v) <= 1e-9
            assert all(cut.violation(v) <= 1e-9 for cut in cuts)


def test_a_point_that_misses_a_limit_is_no_solution():
    problem = Canonical.of(decision(1, Worst()))
    made = big_m(problem, problem.root)
    points = problem.domain.sample(200, np.random.default_rng(0))
    missed = problem.limits.values(problem.outputs(points)).min(axis=1) < -1e-3
    assert 0 < missed.sum() < 200
    for x in points[missed]:
        assert made.model.violation(made.assignment(x)) > 1e-5


def test_the_range_of_a_risk_holds_at_points():
    rng = np.random.default_rng(3)
    for risk in RISKS:
        y = rng.normal(size=(50, 4))
        low, high = risk.range(y.min(axis=0), y.max(axis=0))
        values = [risk.respond(one) @ one for one in y]
        assert low - 1e-12 <= min(values)
        assert max(values) <= high + 1e-12


def test_parts_of_a_problem_keep_what_a_limit_may_be_missed_by():
    """The slack of a half was smaller: a feasible point of the whole was none there."""
    problem = Canonical.of(decision(0, Worst()))
    for half in problem.domain.split(0, problem.domain.centre[0]):
        np.testing.assert_array_equal(problem.on(half).slack, problem.slack)


# Convex regions.


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_a_model_reaches_as_far_as_the_hull(shift):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(30, 3)) + shift
    domain = Domain(data.min(axis=0), data.max(axis=0), convex=(Hull(data),))
    linear = random_ensemble(rng, 1, 3, ()).members
    problem = Canonical.sum_of(linear, domain)
    scaled = ScaledModel.of(problem, problem.root)
    found = Highs().solve(scaled.model)
    exact = problem.values(data).max()
    size = 1e-5 * max(1.0, abs(exact) * 1e-2)
    assert scaled.proved(found.bound) == pytest.approx(exact, abs=size)
    x = domain.sample(1, rng)[0]
    assert scaled.model.violation(scaled.columns(x)) <= 1e-9


def test_half_spaces_hold_on_the_ellipsoid_and_close_in_on_it():
    rng = np.random.default_rng(1)
    region = Ellipsoid.of(rng.normal(size=(40, 3)) @ rng.normal(size=(3, 3)), 1.5)
    domain = Domain(*region.box(), convex=(region,))
    (network,) = random_ensemble(rng, 1, 3, ()).members
    problem = Canonical.sum_of([network], domain)
    slopes = network.weights[0][0]
    reach = region.radius * np.linalg.norm(region.root.T @ slopes)
    exact = float(slopes @ region.middle) + reach + network.biases[0][0]
    bounds, guides = [], []
    for _ in range(12):
        scaled = ScaledModel.of(problem, problem.root, guides)
        found = Highs().solve(scaled.model)
        bounds.append(scaled.proved(found.bound))
        guides.append(found.x[scaled.formulation.inputs] * scaled.units.inputs)
    assert min(bounds) >= exact
    assert bounds[-1] <= exact + 1e-3 < bounds[0]
    for x in domain.sample(50, rng):
        assert scaled.model.violation(scaled.columns(x)) <= 1e-9
