"""Models in good units say what the problem says, wherever its inputs lie."""

from fractions import Fraction

import numpy as np
import pytest

import oracles
from ennopt.canonical import Canonical
from ennopt.domain import Domain, Rows
from ennopt.milp import available_backends, backend
from ennopt.milp.scaling import FAR, ScaledModel, centred
from ennopt.problem import Problem
from oracles import canonical, summed

every = pytest.mark.parametrize("name", available_backends())


def far_problem(seed: int, shift: float) -> Problem:
    rng = np.random.default_rng(seed)
    ensemble = oracles.random_ensemble(rng, 2, 2, (5, 4), weighted=bool(seed % 2))
    box = oracles.random_domain(rng)
    moved = ensemble.fold_input(1.0, [-shift, 0.0])
    lower, upper = box.lower.copy(), box.upper.copy()
    lower[0], upper[0] = lower[0] + shift, upper[0] + shift
    return Problem(moved, Domain(lower, upper))


def model_of(problem: Problem) -> ScaledModel:
    seen = Canonical.of(problem)
    return ScaledModel.of(seen, seen.root)


def exactly(ensemble, x) -> Fraction:
    """The prediction in exact arithmetic."""
    pairs = zip(ensemble.weights, ensemble.members, strict=True)
    return sum(
        (
            Fraction(float(weight)) * oracles.exact_preactivations(member, x)[-1][0]
            for weight, member in pairs
        ),
        Fraction(0),
    )


def test_a_box_near_zero_is_left_alone(rng):
    ensemble = oracles.random_ensemble(rng)
    for low in (-1.0, 0.0, FAR - 1.0):
        domain = Domain([low, -1.0], [low + 1.0, 1.0])
        problem = canonical(ensemble, domain)
        moved = centred(problem)
        assert moved.problem is problem
        assert moved.error == 0.0 and not moved.shift.any()


@pytest.mark.parametrize("shift", [2e3, -3e5, 1e7, -4e9])
@pytest.mark.parametrize("seed", range(3))
def test_centring_moves_no_prediction_by_more_than_it_says(seed, shift):
    problem = far_problem(seed, shift)
    moved = centred(Canonical.of(problem))
    assert np.abs(moved.problem.domain.upper).max() < 10.0
    assert moved.shift[1] == 0.0  # that input is near zero
    for x in problem.domain.sample(20, np.random.default_rng(seed)):
        inside = x - moved.shift
        for here, origin, there in zip(inside, moved.shift, x, strict=True):
            assert Fraction(here) + Fraction(origin) == Fraction(there)
        there = exactly(problem.ensemble, x)
        here = exactly(summed(moved.problem), inside)
        assert abs(here - there) <= Fraction(moved.error)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e9])
def test_constraints_are_measured_in_units_of_their_own(size, rng):
    """SCIP drops coefficients of 1e-9, and with them the constraint."""
    ensemble, domain = oracles.random_ensemble(rng), oracles.mixed(rng, 2, 3, True)
    rows = domain.rows
    rows = Rows(size * rows.matrix, size * rows.least, size * rows.most)
    problem = canonical(ensemble, Domain(domain.lower, domain.upper, rows=rows))
    scaled = ScaledModel.of(problem, problem.root)
    own = scaled.units.problem.domain.rows
    largest = np.abs(own.matrix).max(axis=1)
    assert np.all((largest > 0.5) & (largest <= 1.0))
    for x in domain.sample(20, rng):  # feasible, whatever the units
        assert scaled.model.violation(scaled.columns(x)) <= 1e-12
    for x in np.array([domain.lower, domain.upper]):
        missed = rows.violation(x) / np.abs(rows.matrix).max(axis=1)
        shown = scaled.model.violation(scaled.columns(x))
        assert shown >= 0.25 * missed.max() / scaled.units.inputs.max()


@pytest.mark.parametrize("shift", [0.0, 1e7])
def test_points_and_columns_go_there_and_back(shift, rng):
    problem = far_problem(4, shift)
    scaled = model_of(problem)
    for x in problem.domain.sample(20, rng):
        columns = scaled.columns(x)
        assert scaled.model.violation(columns) <= 1e-9
        np.testing.assert_allclose(scaled.point(columns), x, rtol=1e-15)
        value = float(problem.ensemble(x)[0])
        shown = scaled.model.value(columns) * scaled.units.output
        assert shown == pytest.approx(value, abs=1e-6)


@every
@pytest.mark.parametrize("shift", [0.0, 1e4, 3e7])
def test_a_proved_bound_is_above_the_maximum_and_near_it(name, shift):
    """HiGHS once proved 23% too little, 30 million widths away from zero."""
    solver = backend(name)
    for seed in range(8):
        problem = far_problem(seed, shift)
        best, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
        scaled = model_of(problem)
        seen = Canonical.of(problem)
        options = scaled.options(seconds=60.0, nodes=np.inf, slack=1e-9)
        found = solver.solve(scaled.model, options)
        bound = scaled.proved(found.bound, solver)
        rounding = 1e-15 * seen.scale
        assert bound >= best - rounding
        low, high = seen.range(seen.root)
        assert bound <= best + 1e-5 * (high - low) + 1e-12 * seen.scale


def test_a_rigorous_bound_gets_no_margin_but_that_of_centring():
    near, far = model_of(far_problem(1, 0.0)), model_of(far_problem(1, 1e7))
    assert near.proved(0.5) == 0.5 * near.units.output
    assert far.proved(0.5) == 0.5 * far.units.output + far.origin.error
    assert far.origin.error > 0
    assert near.proved(0.5, backend("scip")) > near.proved(0.5)
