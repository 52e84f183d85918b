"""Phase Two against enumeration: multipliers, bounds, branching, the search."""

import itertools
import math
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import oracles
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.network import Network
from ennopt.paper.lagrangian import LagrangianSearch
from ennopt.paper.member_relaxation import (
    PaperUnits,
    branching,
    lagrangian_bound,
    member_problems,
)
from ennopt.paper.mixing import Mixing
from ennopt.paper.multipliers import Multipliers, Polyak, Subgradient, improve
from ennopt.paper.subproblems import (
    Answer,
    ByEngine,
    ByMilp,
    Effort,
    Subproblem,
    fallback,
)
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from ennopt.tightening.relaxation import Interval


def problem_of(rng, num_members=3, widths=(4, 3), **options):
    ensemble = oracles.random_ensemble(rng, num_members, 2, widths, **options)
    return oracles.canonical(ensemble, oracles.random_domain(rng))


def optimum_of(problem):
    """The exact maximum of a canonical problem, and where."""
    return oracles.exact_maximum(oracles.summed(problem), problem.domain)


def exact_members(problem, domain, costs):
    """Exact maxima of the member problems, by enumeration, and where."""
    parts = member_problems(problem, domain, costs, Mixing.of(problem, domain.centre))
    found = [optimum_of(part) for part in parts]
    return [value for value, _ in found], np.array([x for _, x in found])


# Multipliers.


def test_the_costs_of_the_members_add_up_to_zero(rng):
    costs = Multipliers(rng.normal(size=(4, 3))).costs()
    assert costs.shape == (5, 3)
    np.testing.assert_allclose(costs.sum(axis=0), 0.0, atol=1e-15)
    np.testing.assert_allclose(costs[0], -costs[1:].sum(axis=0))


def test_the_printed_step_size_is_the_first_over_the_root_of_a_factorial():
    now, copies = Multipliers.zero(2, 1), np.array([[1.0], [0.0]])
    for q in range(1, 8):
        now = Subgradient().update(now, copies, 1.0)
        assert now.size == pytest.approx(0.05 / math.sqrt(math.factorial(q)))
    other = Multipliers.zero(2, 1)
    for q in range(1, 8):
        other = Subgradient(compound=False).update(other, copies, 1.0)
        assert other.size == pytest.approx(0.05 / math.sqrt(q))


@pytest.mark.parametrize("rule", [Subgradient(), Polyak()], ids=repr)
def test_multipliers_stay_where_the_copies_agree(rule, rng):
    now = Multipliers(rng.normal(size=(2, 3)))
    after = rule.update(now, np.tile(rng.random(3), (3, 1)), 0.5)
    np.testing.assert_array_equal(after.values, now.values)


@pytest.mark.parametrize(
    "rule",
    [Subgradient(steps=40, step_size=0.5, compound=False), Polyak(40)],
    ids=repr,
)
def test_updates_lower_the_true_relaxation(rule):
    for seed in range(3):
        problem = problem_of(np.random.default_rng(seed))
        units = PaperUnits.of(problem, None)

        def maximize(scaled, problem=problem, units=units):
            costs = units.costs(scaled)
            values, copies = exact_members(problem, problem.domain, costs)
            return units.inputs(copies), sum(values) / units.output

        optimum, _ = optimum_of(problem)
        start = Multipliers.zero(3, 2)
        first = maximize(start.costs())[1]
        _, best, solved = improve(rule, start, maximize, optimum / units.output)
        assert solved == 40
        reached = maximize(best.costs())[1]
        assert optimum / units.output - 1e-9 <= reached
        slack = first - optimum / units.output
        assert reached - optimum / units.output <= 0.9 * slack + 1e-9


def test_updates_end_when_a_relaxation_cannot_be_solved():
    start = Multipliers.zero(2, 2)
    last, best, solved = improve(Subgradient(), start, lambda _: None, 0.0)
    assert (last, best, solved) == (start, start, 0)


# The bound.


@pytest.mark.parametrize("seed", range(6))
def test_the_lagrangian_bound_is_never_below_the_optimum(seed):
    rng = np.random.default_rng(seed)
    problem = problem_of(rng, weighted=bool(seed % 2))
    optimum, _ = optimum_of(problem)
    for size in (0.0, 0.1, 1.0, 10.0):
        costs = Multipliers(size * rng.normal(size=(2, 2))).costs()
        values, _ = exact_members(problem, problem.domain, costs)
        assert lagrangian_bound(values, costs, problem.domain) >= optimum - 1e-9


def test_the_root_bound_changes_with_the_multipliers(rng):
    problem = problem_of(rng)
    bounds = set()
    for size in (0.0, 0.1, 0.5):
        costs = Multipliers(np.full((2, 2), size)).costs()
        values, _ = exact_members(problem, problem.domain, costs)
        bounds.add(round(lagrangian_bound(values, costs, problem.domain), 6))
    assert len(bounds) == 3


def test_the_sign_of_the_update_is_that_of_descent():
    # Member 1 wants x = 1, member 2 wants x = 0: the price of member 1's copy must rise
    # against it, which is a negative multiplier.
    up = Network([[[1.0]]], [[0.0]])
    down = Network([[[-1.0]]], [[0.0]])
    problem = Canonical.sum_of([up, down], Domain([0.0], [1.0]))
    before = Multipliers.zero(2, 1)
    values, copies = exact_members(problem, problem.domain, before.costs())
    after = Subgradient().update(before, copies, 0.0)
    lower, _ = exact_members(problem, problem.domain, after.costs())
    assert after.values[0, 0] < 0
    assert sum(lower) < sum(values)


def test_costs_that_do_not_cancel_exactly_are_charged():
    costs = np.array([[0.1], [-0.1 + 1e-10]])
    domain = Domain([-1e6], [1e6])
    assert lagrangian_bound([1.0, 1.0], costs, domain) >= 2.0 + 9e-5


@pytest.mark.parametrize("seed", range(50))
def test_rounding_never_lowers_the_sum_of_the_members(seed):
    """In exact arithmetic, at the corner where costs that do not cancel cost most."""
    rng = np.random.default_rng(seed)
    bounds = rng.normal(size=4) * rng.choice([0.0, 1.0, 1e6])
    costs = rng.normal(size=(4, 3)) * 10.0 ** rng.uniform(-3, 3, 3)
    costs[0] = -costs[1:].sum(axis=0)  # but for rounding
    domain = oracles.random_domain(rng, 3)
    exact = sum(map(Fraction, bounds))
    for column, low, high in zip(costs.T, domain.lower, domain.upper, strict=True):
        rest = sum(map(Fraction, column))
        exact += max(-rest * Fraction(low), -rest * Fraction(high))
    bound = lagrangian_bound(bounds, costs, domain)
    near = Fraction(1e-13 * (1.0 + np.abs(bounds).sum() + np.abs(costs).sum()))
    assert exact <= Fraction(bound) <= exact + near


def test_a_member_without_a_point_leaves_none_at_all():
    """The bound was once not a number, and the node split for ever."""
    domain, costs = Domain([0.0], [1.0]), np.zeros((2, 1))
    assert lagrangian_bound([-math.inf, 1.0], costs, domain) == -math.inf
    assert lagrangian_bound([math.inf, -math.inf], costs, domain) == -math.inf


# Branching.


@pytest.mark.parametrize("seed", range(5))
def test_children_cover_their_parent(seed):
    rng = np.random.default_rng(seed)
    domain = oracles.random_domain(rng, 3)
    problem = oracles.canonical(oracles.random_ensemble(rng, 3, 3), domain)
    units = PaperUnits.of(problem, None)
    node = Domain(domain.lower + 0.1 * domain.widths, domain.upper)
    copies = node.sample(3, rng)
    j, at = branching(node, copies, units)
    left, right = node.split(j, at)
    for x in node.sample(200, rng):
        assert left.contains(x) or right.contains(x)
    scaled = units.inputs(copies)
    spread = np.ptp(scaled, axis=0)
    assert spread[j] == spread.max()
    assert at == pytest.approx(0.5 * (copies[:, j].max() + copies[:, j].min()))
    for side in (left, right):  # both are smaller, and only in one input
        assert np.count_nonzero(side.widths < node.widths) == 1


def test_copies_that_agree_split_the_widest_side():
    domain = Domain([0.0, 0.0], [10.0, 1.0])
    problem = Canonical.sum_of([Network([[[1.0, 1.0]]], [[0.0]])], domain)
    units = PaperUnits.of(problem, None)
    node = Domain([0.0, 0.0], [4.0, 1.0])  # in scaled units 0.4 by 1
    assert branching(node, np.full((3, 2), 0.5), units) == (1, 0.5)


# The search.


@pytest.mark.parametrize("backend", ["highs", "scip", "gurobi"])
@pytest.mark.parametrize("seed", range(2))
def test_phase_two_alone_proves_the_enumerated_optimum(backend, seed):
    rng = np.random.default_rng(seed)
    problem = problem_of(rng, 2 + seed, weighted=bool(seed))
    optimum, _ = optimum_of(problem)
    solver = ByMilp(backend)
    search = LagrangianSearch(members=solver, whole=solver)
    result = search.solve(problem, Tools())
    assert result.status is Status.OPTIMAL
    assert result.value <= optimum + 1e-7
    assert result.value >= optimum - result.gap * abs(optimum) - 1e-6
    assert result.bound >= optimum - 1e-7
    assert result.details["phase_two_nodes"] >= 1


@dataclass(frozen=True)
class Enumeration:
    """Exact subproblems without any solver: the oracle as a subproblem solver."""

    packages = ()

    def solve(self, subproblem, effort, callback):
        problem = subproblem.problem
        value, x = optimum_of(problem)
        return Answer(x, value + 1e-9)


@pytest.mark.parametrize("heuristic", [0.0, 0.02])
@pytest.mark.parametrize("inherit", [False, True])
@pytest.mark.parametrize("fix_binaries", [False, True])
def test_every_switch_leads_to_the_same_optimum(heuristic, inherit, fix_binaries):
    problem = problem_of(np.random.default_rng(4), 3, (3,))
    optimum, _ = optimum_of(problem)
    search = LagrangianSearch(
        members=Enumeration(), whole=Enumeration(), heuristic=heuristic,
        inherit=inherit, fix_binaries=fix_binaries, from_gradients=inherit,
        multipliers=Polyak(5) if inherit else Subgradient(5), rounds=1 + inherit,
    )  # fmt: skip
    result = search.solve(problem, Tools())
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(optimum, abs=2e-4 * max(1, abs(optimum)))
    assert result.bound >= optimum - 1e-9


def test_small_boxes_revert_to_one_model_of_the_ensemble():
    problem = problem_of(np.random.default_rng(1), 3, (4,))
    optimum, _ = optimum_of(problem)
    always = LagrangianSearch(revert=1.0, members=Enumeration(), whole=Enumeration())
    result = always.solve(problem, Tools())
    assert result.details["big_m_reversions"] == 1
    assert result.details["phase_two_nodes"] == 1
    assert result.value == pytest.approx(optimum, abs=1e-6)


@dataclass(frozen=True)
class Broken:
    """A solver that has no answer."""

    packages = ()

    def solve(self, subproblem, effort, callback):
        return fallback(subproblem, "out of order")


def test_a_solver_that_always_fails_leaves_a_true_bound_and_says_so(rng):
    problem = problem_of(rng)
    optimum, _ = optimum_of(problem)
    search = LagrangianSearch(members=Broken(), whole=Broken())
    result = search.solve(problem, Tools())
    assert result.status is Status.INTERRUPTED
    assert optimum <= result.bound < math.inf
    assert any("out of order" in note for note in result.notes)
    assert result.details["phase_two_failures"] > 0


class Unsteady:
    """A solver that fails at every third problem."""

    packages = ()

    def __init__(self):
        self.count = itertools.count()

    def solve(self, subproblem, effort, callback):
        if next(self.count) % 3 == 0:
            return fallback(subproblem, "out of order")
        return Enumeration().solve(subproblem, effort, callback)


def test_a_solver_that_fails_now_and_then_delays_the_proof_only(rng):
    problem = problem_of(rng)
    optimum, _ = optimum_of(problem)
    search = LagrangianSearch(members=Unsteady(), whole=Unsteady())
    result = search.solve(problem, Tools())
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(optimum, abs=2e-4 * max(1, abs(optimum)))
    assert result.bound >= optimum - 1e-9


class Liar:
    """A solver whose bounds are too low now and then."""

    packages = ()

    def __init__(self):
        self.count = itertools.count()

    def solve(self, subproblem, effort, callback):
        answer = Enumeration().solve(subproblem, effort, callback)
        lie = 10.0 * (next(self.count) % 4 == 0)
        return Answer(answer.x, answer.bound - lie)


def test_a_bound_that_a_known_point_beats_is_not_used(rng):
    problem = problem_of(rng, 2)
    optimum, x = optimum_of(problem)
    search = LagrangianSearch(members=Liar(), whole=Liar(), heuristic=0.0)
    with Tools().start(problem, search) as run:
        run.offer(x)
        status = search.search(run, problem.root)
    result = run.finish(status)
    assert result.bound >= optimum
    assert any("beaten by a known point" in note for note in result.notes)


def test_the_bound_of_the_neurons_is_a_bound(rng):
    for _ in range(5):
        problem = problem_of(rng, weighted=True)
        subproblem = Subproblem(problem, Interval().tighten(problem))
        optimum, _ = optimum_of(problem)
        assert fallback(subproblem).bound >= optimum


@pytest.mark.parametrize("backend", ["highs", "scip"])
def test_a_subproblem_without_time_still_has_a_bound(backend, rng):
    problem = problem_of(rng)
    subproblem = Subproblem(problem, problem.root)
    optimum, _ = optimum_of(problem)
    for effort in (Effort(seconds=0.0), Effort(seconds=1e-3), Effort(nodes=1)):
        answer = ByMilp(backend).solve(subproblem, effort, None)
        assert optimum <= answer.bound + 1e-9 < math.inf


@pytest.mark.parametrize("level", [-100.0, 0.0, 100.0])
def test_the_engine_leaves_no_more_than_asked_whatever_the_sign(level, rng):
    """Values below zero once counted as zero: the engine left a hundred times more."""
    problem = problem_of(rng)
    shifted = problem.networks[0].fold_output(1.0, level)
    problem = Canonical.sum_of([shifted, *problem.networks[1:]], problem.domain)
    optimum, _ = optimum_of(problem)
    effort = Effort(slack=1e-3)
    answer = ByEngine().solve(Subproblem(problem, problem.root), effort, None)
    assert optimum - 1e-9 <= answer.bound <= optimum + 2e-3


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_serial_and_parallel_runs_agree_under_a_node_limit(pool, rng):
    problem = problem_of(rng, 3, (6, 5))
    limits = Limits(nodes=12, gap=1e-9)
    search = LagrangianSearch(members=ByMilp("scip"), whole=ByMilp("scip"))
    alone = search.solve(problem, Tools(limits))
    with pool(2) as executor:
        side = search.solve(problem, Tools(limits, executor=executor))
    assert (alone.value, alone.bound, alone.nodes) == (
        side.value, side.bound, side.nodes
    )  # fmt: skip
    assert alone.status is side.status


@pytest.mark.parametrize("parallel", [False, True])
def test_ctrl_c_ends_the_search_with_what_is_proved(parallel):
    rng = np.random.default_rng(0)
    problem = Problem(
        oracles.random_ensemble(rng, 3, 6, (30, 30)), Domain([-1.0] * 6, [1.0] * 6)
    )
    search = LagrangianSearch(members=ByMilp("scip"), whole=ByMilp("scip"))
    timer = threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    pool = ThreadPoolExecutor(2) if parallel else None
    result = search.solve(problem, Tools(Limits(120.0), executor=pool))
    assert result.status is Status.INTERRUPTED
    assert result.value <= result.bound < math.inf


def test_one_member_is_solved_as_one_model(rng):
    problem = problem_of(rng, 1)
    optimum, _ = optimum_of(problem)
    result = LagrangianSearch().solve(problem, Tools())
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(optimum, abs=1e-4)
    assert result.details["big_m_reversions"] == 1


@pytest.mark.parametrize("name", oracles.DEGENERATE)
def test_degenerate_ensembles_are_solved(name, rng):
    ensemble, domain = oracles.DEGENERATE[name](rng)
    problem = Problem(ensemble, domain)
    optimum, _ = oracles.exact_maximum(ensemble, domain)
    slow = name == "cancelling members"  # value 0 everywhere: nothing to prune with
    result = LagrangianSearch().solve(problem, Tools(Limits(3.0 if slow else 120.0)))
    assert slow or result.status is Status.OPTIMAL
    slack = 1e-6 * max(1.0, Canonical.of(problem).scale)
    assert result.bound >= optimum - slack
    assert result.value == pytest.approx(optimum, rel=2e-4, abs=slack)
