"""Cuts against enumeration: all subsets, all activation patterns, all points."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import oracles
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.milp.building import ABSENT
from ennopt.milp.cuts import (
    BendersCuts,
    IdealCuts,
    benders_inequality,
    most_violated,
)
from ennopt.milp.formulation import big_m
from ennopt.milp.highs import Highs
from ennopt.milp.solver import MilpStatus
from ennopt.network import Ensemble, Network
from ennopt.tightening.relaxation import Crown, Interval


def ideal_limit(weights, bias, lower, upper, subset, x, z):
    """Right-hand side of one inequality, term by term as Anderson et al. write it."""
    total = bias * z
    for i, w in enumerate(weights):
        near, far = (lower[i], upper[i]) if w >= 0 else (upper[i], lower[i])
        total += w * (x[i] - near * (1 - z)) if i in subset else w * far * z
    return total


def all_subsets(count):
    for size in range(count + 1):
        yield from itertools.combinations(range(count), size)


def model_of(rng, num_members=2, widths=(4, 3), bounds=None):
    ensemble = oracles.random_ensemble(rng, num_members, 2, widths)
    domain = oracles.random_domain(rng)
    problem = oracles.canonical(ensemble, domain)
    return big_m(problem, (bounds or Crown()).tighten(problem))


@pytest.mark.parametrize("seed", range(5))
def test_the_separated_cut_is_the_most_violated_of_all_subsets(seed):
    rng = np.random.default_rng(seed)
    weights, bias = rng.normal(size=(4, 5)), rng.normal(size=4)
    centre, radius = rng.normal(size=5), rng.uniform(0.1, 2, size=5)
    lower, upper = centre - radius, centre + radius
    for _ in range(20):
        x, z = rng.uniform(lower, upper), rng.random(4)
        y = rng.normal(size=4)
        inside, excess = most_violated(weights, bias, lower, upper, x, y, z)
        for r in range(4):
            limits = [
                ideal_limit(weights[r], bias[r], lower, upper, subset, x, z[r])
                for subset in all_subsets(5)
            ]
            assert excess[r] == pytest.approx(y[r] - min(limits), abs=1e-12)
            own = ideal_limit(
                weights[r], bias[r], lower, upper, np.flatnonzero(inside[r]), x, z[r]
            )
            assert own == pytest.approx(min(limits), abs=1e-12)


@pytest.mark.parametrize("bounds", [Interval(), Crown()], ids=repr)
def test_ideal_cuts_hold_at_every_forward_pass(bounds, rng):
    made = model_of(rng, bounds=bounds)
    cuts = IdealCuts(made, threshold=-np.inf)
    found = []
    for _ in range(20):  # at arbitrary points, violated or not
        found += cuts.separate(rng.uniform(made.model.lower, made.model.upper))
    for x in made.problem.domain.sample(200, rng):
        v = made.assignment(x)
        assert max(cut.violation(v) for cut in found) <= 1e-9


def exact_columns(made, x):
    """All columns at the inputs x, in exact arithmetic."""
    v = [Fraction(0)] * made.model.num_columns
    for column, value in zip(made.inputs, x, strict=True):
        v[column] = Fraction(value)
    for member, layers in zip(made.problem.networks, made.neurons, strict=True):
        y = [Fraction(value) for value in x]
        for (w, b), at in zip(member.layers(), layers, strict=False):
            h = [
                sum((Fraction(a) * c for a, c in zip(row, y, strict=True)), Fraction(d))
                for row, d in zip(w.tolist(), b.tolist(), strict=True)
            ]
            y = [max(value, Fraction(0)) for value in h]
            for j, value in enumerate(h):
                for column, entry in (
                    (at.y[j], y[j]), (at.s[j], y[j] - value), (at.z[j], value > 0),
                ):  # fmt: skip
                    if column != ABSENT:
                        v[column] = Fraction(entry)
    return v


def exact_violation(cut, v):
    pairs = zip(cut.columns.tolist(), cut.coefficients.tolist(), strict=True)
    return sum(Fraction(a) * v[j] for j, a in pairs) - Fraction(cut.limit)


@pytest.mark.parametrize("seed", range(4))
def test_no_inequality_cuts_off_a_point_in_exact_arithmetic(seed):
    """At corners and best points they are equations, where rounding would show."""
    rng = np.random.default_rng(seed)
    made = model_of(rng, 2, (5, 4))
    ends = np.transpose([made.problem.domain.lower, made.problem.domain.upper])
    points = [np.array(corner) for corner in itertools.product(*ends)]
    points += list(made.problem.domain.sample(5, rng))
    ideal, cuts = IdealCuts(made, threshold=-np.inf), []
    for x in list(points):
        made_at = BendersCuts(made).at(BendersCuts(made).pattern(made.assignment(x)))
        if made_at is not None:
            cuts.append(made_at[0])
            points.append(made.point(made_at[1]))
        cuts += ideal.separate(made.assignment(x))
    exact = [exact_columns(made, x) for x in points]
    worst = [max(exact_violation(cut, v) for v in exact) for cut in cuts]
    assert max(worst) <= 0
    assert sum(violation > -1e-9 for violation in worst) > len(cuts) // 4


def test_cuts_come_most_violated_first_and_cut_off_their_point(rng):
    made = model_of(rng, 3, (6, 5), Interval())
    point = Highs().solve(made.model.relaxed()).x
    cuts = IdealCuts(made).separate(point)
    violations = [cut.violation(point) for cut in cuts]
    assert len(cuts) > 1
    assert violations == sorted(violations, reverse=True)
    assert violations[-1] > 1e-6
    after = Highs().solve(made.model.relaxed().with_inequalities(cuts))
    assert after.bound < made.model.value(point) - 1e-6


def test_integer_solutions_give_no_ideal_cut(rng):
    made = model_of(rng)
    for x in made.problem.domain.sample(50, rng):
        v = made.assignment(x)
        assert IdealCuts(made).separate(v, integral=True) == []
        assert IdealCuts(made).separate(v, integral=False) == []


def test_one_neuron_with_all_its_ideal_cuts_is_its_convex_hull():
    # Over the hull, any linear function is as large as over the graph of ReLU itself.
    net = Network([[[1.0, 1.0], [1.0, -1.0]], [[1.0, 0.0]]], [[0.3, 0.0], [0.0]])
    domain = Domain([-1.0, -1.0], [1.0, 1.0])
    problem = Canonical.sum_of([net], domain)
    made = big_m(problem, Interval().tighten(problem))
    rng = np.random.default_rng(3)
    for _ in range(10):
        tilt = rng.normal(size=2)
        objective = made.model.objective.copy()
        objective[made.inputs] += tilt
        model = made.model.with_objective(objective).relaxed()
        for _ in range(20):
            found = Highs().solve(model)
            cuts = IdealCuts(made).separate(found.x)
            if not cuts:
                break
            model = model.with_inequalities(cuts)
        tilted = Ensemble([net, Network([tilt[None]], [[0.0]])], weights=[1.0, 1.0])
        value, _ = oracles.exact_maximum(tilted, domain)
        assert found.bound == pytest.approx(value, abs=1e-6)


def patterns_of(made):
    """Every vector of binaries, feasible or not."""
    return itertools.product([0.0, 1.0], repeat=made.binaries.size)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_benders_inequality_holds_at_all_binaries_and_is_tight_at_its_own(seed):
    rng = np.random.default_rng(seed)
    made = model_of(rng, 2, (3,))
    source = BendersCuts(made)
    best = {}  # the largest value of each pattern, by its own linear program
    for pattern in patterns_of(made):
        lower, upper = made.model.lower.copy(), made.model.upper.copy()
        lower[made.binaries] = upper[made.binaries] = pattern
        found = Highs().solve(made.model.relaxed().with_column_bounds(lower, upper))
        if found.status is MilpStatus.OPTIMAL:
            best[pattern] = found.x
    assert len(best) > 3
    for pattern in best:
        cut, columns = source.at(np.array(pattern))
        excess = {other: cut.violation(v) for other, v in best.items()}
        assert max(excess.values()) <= 1e-7
        assert excess[pattern] == pytest.approx(0.0, abs=1e-7)
        value = made.model.value(best[pattern])
        reached = made.problem.values(made.point(columns))[0]
        assert reached == pytest.approx(value, abs=1e-7)


def test_a_benders_inequality_holds_at_fractional_points_too(rng):
    # It follows from the linear relaxation, which is why it cannot tighten it.
    made = model_of(rng, 2, (5, 4))
    cuts = [
        BendersCuts(made).separate(made.assignment(x), integral=True)[0]
        for x in made.problem.domain.sample(5, rng)
    ]
    for _ in range(20):
        tilt = rng.normal(size=made.model.num_columns)
        vertex = Highs().solve(made.model.with_objective(tilt).relaxed()).x
        assert max(cut.violation(vertex) for cut in cuts) <= 1e-6
    before = Highs().solve(made.model.relaxed()).bound
    after = Highs().solve(made.model.relaxed().with_inequalities(cuts)).bound
    assert after == pytest.approx(before, abs=1e-7)


def test_without_the_term_of_the_set_the_inequality_is_wrong():
    # As printed, Proposition 1 leaves out the bounds of the inputs.
    net = Network([[[1.0], [-1.0]], [[2.0, 0.5]]], [[0.1, 0.2], [0.0]])
    problem = Canonical.sum_of([net], Domain([-1.0], [1.0]))
    loose = Interval().tighten(problem.on(Domain([-2.0], [2.0])))
    made = big_m(problem, loose)
    best = made.assignment(np.array([1.0]))
    lower, upper = made.model.lower.copy(), made.model.upper.copy()
    lower[made.binaries] = upper[made.binaries] = best[made.binaries]
    fixed = made.model.relaxed().with_column_bounds(lower, upper)
    duals = Highs().solve(fixed).duals
    cut = benders_inequality(made.model, duals)
    assert cut.violation(best) == pytest.approx(0.0, abs=1e-8)
    slope = -sum(
        duals[r] * a
        for r in range(made.model.num_rows)
        for j, a in zip(*made.model.row(r), strict=True)
        if j == made.inputs[0]
    )
    ends = slope * problem.domain.lower[0], slope * problem.domain.upper[0]
    printed = cut.limit - max(ends)
    assert cut.violation(best) + cut.limit - printed > 0.5


def test_any_multipliers_make_a_valid_inequality(rng):
    made = model_of(rng, 2, (4, 3))
    points = [made.assignment(x) for x in made.problem.domain.sample(100, rng)]
    for _ in range(20):
        cut = benders_inequality(made.model, rng.normal(size=made.model.num_rows))
        assert max(cut.violation(v) for v in points) <= 1e-9


def test_a_benders_inequality_is_weak_duality_that_spares_the_binaries(rng):
    """At their best binaries both say the same about the objective."""
    made = model_of(rng, 2, (4, 3))
    model = made.model
    for _ in range(20):
        duals = rng.normal(size=model.num_rows)
        cut = benders_inequality(model, duals)
        slopes = model.objective.copy()
        slopes[cut.columns] -= cut.coefficients
        assert not slopes[~model.integer].any()
        most = cut.limit + np.maximum(slopes * model.lower, slopes * model.upper).sum()
        assert most + model.offset == pytest.approx(model.dual_bound(duals), rel=1e-9)


def test_a_pattern_that_no_input_has_gives_no_inequality():
    net = Network([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -0.5], [0.0]])
    problem = Canonical.sum_of([net], Domain([-1.0], [1.0]))
    made = big_m(problem, Interval().tighten(problem))
    assert BendersCuts(made).at(np.array([0.0, 1.0])) is None
    assert BendersCuts(made).at(np.array([1.0, 0.0])) is not None
    assert BendersCuts(made).separate(made.assignment(np.zeros(1)), False) == []


@pytest.mark.parametrize("name", oracles.DEGENERATE)
def test_degenerate_ensembles_separate_without_harm(name, rng):
    ensemble, domain = oracles.DEGENERATE[name](rng)
    problem = oracles.canonical(ensemble, domain)
    made = big_m(problem, problem.root)
    scale = max(1.0, np.abs(made.model.upper).max(initial=0.0))
    point = rng.uniform(made.model.lower, made.model.upper)
    cuts = IdealCuts(made).separate(point)
    x = domain.sample(1, rng)[0]
    cuts += BendersCuts(made).separate(made.assignment(x), integral=True)
    for x in domain.sample(30, rng):
        for cut in cuts:
            assert cut.violation(made.assignment(x)) <= 1e-9 * scale
