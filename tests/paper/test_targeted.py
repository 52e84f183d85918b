"""Algorithm 2: discrepancies, critical neurons, surveys, targeted bounds."""

import itertools
import math
import time

import numpy as np
import pytest

import oracles
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.milp import backend
from ennopt.milp.formulation import big_m
from ennopt.milp.highs import Highs
from ennopt.milp.solver import MilpResult, MilpStatus
from ennopt.network import Network
from ennopt.paper.survey import discrepancies, lp_tree, summarize, survey
from ennopt.paper.targeted import Targeted
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.relaxation import Interval

BACKENDS = ["highs", "scip", "gurobi"]


def case(rng, num_members=2, widths=(5, 4)):
    ensemble = oracles.random_ensemble(rng, num_members, 2, widths)
    return oracles.canonical(ensemble, oracles.random_domain(rng))


def same(one, other):
    return all(
        np.array_equal(a, b)
        for mine, yours in ((one.lower, other.lower), (one.upper, other.upper))
        for ours, theirs in zip(mine, yours, strict=True)
        for a, b in zip(ours[:-1], theirs[:-1], strict=True)
    )


# Discrepancies.


def test_the_example_of_the_paper_has_a_discrepancy_of_five():
    # Example 1: h in [-20, 10], (h, y, z) = (-5, 5, 0.5).
    net = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    problem = Canonical.sum_of([net], Domain([-20.0], [10.0]))
    made = big_m(problem, Interval().tighten(problem))
    at = made.neurons[0][0]
    point = np.zeros(made.model.num_columns)
    point[made.inputs], point[at.y], point[at.s], point[at.z] = -5.0, 5.0, 10.0, 0.5
    assert made.model.relaxed().violation(point) <= 1e-9
    assert discrepancies(made, point)[0][0].tolist() == [5.0]


def test_a_forward_pass_has_no_discrepancy(rng):
    problem = case(rng)
    made = big_m(problem, problem.root)
    for x in problem.domain.sample(50, rng):
        for member in discrepancies(made, made.assignment(x)):
            assert max(layer.max() for layer in member) <= 1e-9


def test_the_mean_is_over_the_points_seen(rng):
    problem = case(rng)
    made = big_m(problem, Interval().tighten(problem))
    exact = made.assignment(problem.domain.sample(1, rng)[0])
    loose = Highs().solve(made.model.relaxed()).x
    one = summarize(made, np.array([loose]), "test")
    two = summarize(made, np.array([loose, exact]), "test")
    for mine, half in zip(one.mean, two.mean, strict=True):
        for a, b in zip(mine, half, strict=True):
            np.testing.assert_allclose(a, 2 * b, atol=1e-12)
    none = summarize(made, np.zeros((0, 0)), "test")
    assert max(layer.max() for member in none.mean for layer in member) == 0.0


@pytest.mark.parametrize("name", BACKENDS)
def test_the_critical_set_grows_as_the_threshold_falls(name, rng):
    problem = case(rng, 3, (8, 6))
    made = big_m(problem, problem.root)
    seen = survey(made, backend(name), 50)
    assert seen.nodes > 0
    assert seen.source == ("LPs" if name == "highs" else name)
    sets = [
        {
            (i, k, int(j))
            for i, member in enumerate(seen.critical(threshold))
            for k, layer in enumerate(member)
            for j in np.flatnonzero(layer)
        }
        for threshold in (math.inf, 0.3, 0.03, 0.003, 0.0)
    ]
    assert sets[0] == set()
    assert len(sets[-1]) == made.binaries.size
    assert all(small <= large for small, large in itertools.pairwise(sets))
    assert len({len(chosen) for chosen in sets}) > 2


@pytest.mark.parametrize("name", ["highs", "scip"])  # Gurobi tightens the root anyway
@pytest.mark.parametrize("seed", range(3))
def test_a_survey_begins_at_the_linear_relaxation_as_it_is(name, seed):
    # A presolve, cuts or strong branching would tighten it first, for seconds on
    # larger models, and the survey would see few nodes.
    made = big_m(problem := case(np.random.default_rng(seed), 3, (8, 6)), problem.root)
    root = Highs().solve(made.model.relaxed()).value
    seen = []

    def keep(formulation, points, *others):
        seen.append(points)
        return summarize(formulation, points, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ennopt.paper.survey.summarize", keep)
        survey(made, backend(name), 20)
    values = [made.model.value(point) for point in seen[0]]
    assert values[0] == pytest.approx(root, abs=1e-6)
    assert max(values) <= root + 1e-6


def test_a_solver_without_time_for_a_node_leaves_the_root_to_the_survey(rng):
    problem = case(rng, 3, (8, 6))
    made = big_m(problem, problem.root)

    class Slow:
        name, capabilities = "slow", backend("scip").capabilities

        def solve(self, model, options, hooks):
            return MilpResult(MilpStatus.TIME_LIMIT)

    seen = survey(made, Slow(), 50, 100.0)
    assert seen.nodes == 1
    assert seen.source == "LPs"
    root = Highs().solve(made.model.relaxed()).x
    same_mean = summarize(made, np.array([root]), "test").mean
    for mine, other in zip(seen.mean, same_mean, strict=True):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


# The tree of linear programs.


def test_the_tree_of_linear_programs_visits_feasible_fractional_points(rng):
    problem = case(rng, 3, (8, 6))
    made = big_m(problem, problem.root)
    points, ended = lp_tree(made, 30)
    relaxed = made.model.relaxed()
    z = points[:, made.binaries]
    assert len(points) == 30 or ended
    assert max(relaxed.violation(point) for point in points) <= 1e-6
    assert np.all(np.minimum(z, 1 - z).max(axis=1) > 1e-6)
    assert made.model.value(points[0]) == pytest.approx(
        Highs().solve(relaxed).value, abs=1e-6
    )


def test_the_tree_of_linear_programs_ends_by_itself_on_a_small_model(rng):
    problem = case(rng, 1, (3,))
    made = big_m(problem, problem.root)
    points, ended = lp_tree(made, 10_000)
    assert ended
    assert len(points) < 2**3


# Algorithm 2.


@pytest.mark.parametrize("name", BACKENDS)
def test_threshold_zero_gives_the_milp_bounds_and_infinity_the_lp_bounds(name, rng):
    problem = case(rng)
    lp = LpTightening().tighten(problem)
    milp = MilpTightening(backend=name, outputs=False).tighten(problem, lp)
    nothing = Targeted(backend=name, threshold=math.inf, nodes=20)
    everything = Targeted(backend=name, threshold=0.0, nodes=20)
    assert same(nothing.tighten(problem), lp)
    assert same(everything.tighten(problem), milp)
    assert not same(lp, milp)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("seed", range(2))
def test_targeted_bounds_hold_everywhere_and_are_between_the_two(name, seed):
    rng = np.random.default_rng(seed)
    problem = case(rng, 2, (6, 5))
    done = Targeted(backend=name, nodes=100, threshold=0.05).run(problem)
    exact = oracles.exact_ranges(oracles.summed(problem), problem.domain)
    for i, member in enumerate(exact):
        for k, (low, high) in enumerate(member[:-1]):
            assert np.all(done.bounds.lower[i][k] <= low + 1e-9)
            assert np.all(done.bounds.upper[i][k] >= high - 1e-9)
            assert np.all(done.bounds.lower[i][k] >= done.first.lower[i][k] - 1e-12)
            assert np.all(done.bounds.upper[i][k] <= done.first.upper[i][k] + 1e-12)
    assert done.neurons <= done.critical
    assert done.solves <= 2 * done.neurons


def test_the_first_hidden_layer_needs_no_milp(rng):
    problem = case(rng, 2, (6,))
    done = Targeted(threshold=0.0).run(problem)
    assert done.critical > 0
    assert done.solves == 0


@pytest.mark.parametrize("name", oracles.DEGENERATE)
def test_degenerate_ensembles_keep_true_bounds(name, rng):
    problem = oracles.canonical(*oracles.DEGENERATE[name](rng))
    bounds = Targeted(nodes=20).tighten(problem)
    scale = max(1.0, max(np.abs(u).max() for m in bounds.upper for u in m))
    points = problem.domain.sample(100, rng)
    inside = [network.preactivations(points) for network in problem.networks]
    assert bounds.contains(inside, slack=1e-9 * scale)


def test_a_deadline_in_the_past_leaves_valid_bounds(rng):
    problem = case(rng)
    done = Targeted().run(problem, deadline=time.perf_counter() - 1.0)
    assert done.survey.nodes == 0
    points = problem.domain.sample(100, rng)
    inside = [network.preactivations(points) for network in problem.networks]
    assert done.bounds.contains(inside, slack=1e-9)


def test_a_solver_that_fails_leaves_the_lp_bounds(rng, monkeypatch):
    from ennopt.milp.scip import Scip

    problem = case(rng)
    lp = LpTightening().tighten(problem)
    right = Scip.solve

    def fails(self, model, options, *hooks):
        if options.survey:
            return right(self, model, options, *hooks)
        return MilpResult(MilpStatus.FAILED, message="out of order")

    monkeypatch.setattr(Scip, "solve", fails)
    bounds = Targeted(backend="scip", threshold=0.0).tighten(problem)
    assert same(bounds, lp)


def test_phases_are_booked_under_their_names(rng):
    from contextlib import contextmanager

    names = []

    @contextmanager
    def phase(name):
        names.append(name)
        yield

    problem = case(rng)
    Targeted(threshold=0.0).run(problem, phase=phase)
    assert names == ["lp_bounds", "survey", "milp_bounds"]
