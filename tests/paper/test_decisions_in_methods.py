"""Limits, risks and convex regions in the paper's methods."""

import numpy as np
import pytest

import ennopt
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.network import Ensemble
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.lagrangian import LagrangianSearch
from ennopt.paper.member_relaxation import (
    known_bounds,
    lagrangian_bound,
    member_problems,
)
from ennopt.paper.mixing import Mixing, keeper
from ennopt.paper.solving import blurred
from ennopt.paper.subproblems import ByEngine, ByMilp, Effort, Subproblem
from ennopt.paper.two_phase import TwoPhase
from ennopt.problem import Combination, Limit, Problem, Term
from ennopt.result import Limits, Status
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Worst
from ennopt.run import Tools
from oracles import exact_maximum, random_ensemble

METHODS = {
    "big-M by HiGHS": BigM("highs"),
    "big-M by SCIP": BigM("scip"),
    "B&C by HiGHS": BranchAndCut(backend="highs"),
    "B&C by SCIP": BranchAndCut(backend="scip", inequalities=True),
    "E-NN": TwoPhase.on("scip"),
    "Phase Two": LagrangianSearch(members=ByMilp("scip"), whole=ByMilp("scip")),
}
every = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
BOX = Domain([-1.0, -1.0], [1.0, 1.0])
GRID = np.stack(np.meshgrid(*[np.linspace(-1, 1, 161)] * 2), axis=-1).reshape(-1, 2)


def ensemble_of(seed, members=3, widths=(4,)):
    rng = np.random.default_rng(seed)
    return Ensemble(random_ensemble(rng, members, 2, widths).members)


def least_cost(ensemble, least, risk=None, factor=1.0):
    """Minimize a linear cost where a prediction is at least a number."""
    cost = Combination((), np.array([1.0, 0.7]), 0.2)
    limit = Limit(Combination((Term(ensemble, factor, risk=risk),), np.zeros(2)), least)
    return Problem(ensemble, BOX, "min", None, cost, (limit,))


@every
@pytest.mark.parametrize("risk", [Worst(), MeanMinusMad(0.5), MeanMinusStd(0.8)])
def test_goals_with_a_risk_agree_with_a_dense_grid(method, risk):
    ensemble = ensemble_of(0)
    goal = Combination((Term(ensemble, risk=risk),), np.array([0.1, 0.0]))
    problem = Problem(ensemble, BOX, "max", None, goal)
    result = method.solve(problem, Tools(Limits(gap=1e-4)))
    best = problem.values(GRID).max()
    assert result.status is Status.OPTIMAL
    assert best <= result.bound
    assert result.value == problem.values(result.x)[0]
    assert result.value >= best - 1e-4 * abs(best)
    assert result.value <= best + 0.03  # half a step of the grid, times the slopes


@every
@pytest.mark.parametrize("risk", [None, Cvar(0.6), MeanMinusStd(0.8)])
def test_limits_agree_with_a_dense_grid(method, risk):
    ensemble = ensemble_of(1)
    term = Term(ensemble, risk=risk)
    problem = least_cost(ensemble, float(np.quantile(term.values(GRID), 0.8)), risk)
    result = method.solve(problem, Tools(Limits(gap=1e-4)))
    met = problem.limit_values(GRID)[:, 0] >= problem.limits[0].least
    best = problem.values(GRID[met]).min()
    assert result.status is Status.OPTIMAL
    assert result.bound <= best
    assert best - 0.05 <= result.value <= best + 1e-9
    assert Canonical.of(problem).contains(result.x)


@every
def test_limits_that_contradict_each_other_are_infeasible(method):
    ensemble = ensemble_of(2, 2)
    above = Combination((Term(ensemble),), np.zeros(2))
    below = Combination((Term(ensemble, -1.0),), np.zeros(2))
    limits = (Limit(above, 0.1), Limit(below, 0.05))  # f >= 0.1 and f <= -0.05
    result = method.solve(Problem(ensemble, BOX, "max", None, above, limits), Tools())
    assert result.status is Status.INFEASIBLE
    assert result.x is None


@every
@pytest.mark.parametrize("seed", [3, 4])
def test_a_limit_that_one_point_meets_exactly_is_not_called_infeasible(method, seed):
    ensemble = ensemble_of(seed, 2)
    most, x = exact_maximum(ensemble, BOX)
    problem = least_cost(ensemble, most)
    result = method.solve(problem, Tools(Limits(gap=1e-3, nodes=2000)))
    value = problem.values(x)[0]
    assert result.status is not Status.INFEASIBLE
    assert result.bound <= value + 1e-6
    if result.x is not None:
        assert result.value == pytest.approx(value, abs=1e-3)
    beyond = method.solve(least_cost(ensemble, most + 1e-4), Tools())
    assert beyond.status is Status.INFEASIBLE


@pytest.mark.parametrize("method", [BigM("highs"), TwoPhase.on("scip")], ids=repr)
def test_risks_that_coincide_have_one_answer(method):
    ensemble, tools = ensemble_of(5), Tools()
    mean = method.solve(Problem(ensemble, BOX), tools).value
    worst = BoxSearch().solve(_with_risk(ensemble, Worst()), tools).value
    for risk, value in (
        (Cvar(1.0), mean), (MeanMinusStd(0.0), mean), (MeanMinusMad(0.0), mean),
        (Cvar(0.2), worst), (Worst(), worst),
    ):  # fmt: skip
        found = method.solve(_with_risk(ensemble, risk), tools)
        assert found.status is Status.OPTIMAL
        assert found.value == pytest.approx(value, rel=3e-4)
    one = Ensemble(ensemble.members[:1])
    alone = method.solve(Problem(one, BOX), tools).value
    for risk in (Worst(), MeanMinusStd(2.0)):
        found = method.solve(_with_risk(one, risk), tools)
        assert found.value == pytest.approx(alone, rel=3e-4)


def _with_risk(ensemble, risk):
    goal = Combination((Term(ensemble, risk=risk),), np.zeros(2))
    return Problem(ensemble, BOX, "max", None, goal)


@every
@pytest.mark.parametrize("trust", ["hull", "mahalanobis"])
def test_answers_lie_in_convex_regions(method, trust):
    rng = np.random.default_rng(6)
    data = rng.normal(size=(25, 2)) @ rng.normal(size=(2, 2))
    ensemble = ensemble_of(6)
    result = ennopt.maximize(ensemble, data, trust=trust, method=method)
    engine = ennopt.maximize(ensemble, data, trust=trust, method="box")
    assert result.status is engine.status is Status.OPTIMAL
    assert result.bound >= engine.value - 1e-9
    assert engine.bound >= result.value - 1e-9


# Phase Two.


def coupled(seed):
    """A risk of three members, and a limit on the mean of two others and an input."""
    rng = np.random.default_rng(seed)
    goal = Combination((Term(ensemble_of(seed), risk=Worst()),), np.zeros(2))
    both = Combination((Term(ensemble_of(seed + 9, 2)),), np.array([0.3, 0.0]))
    own = Combination((Term(ensemble_of(seed + 7, 1)),), rng.normal(size=2))
    least = [float(np.quantile(f.values(GRID), 0.3)) for f in (both, own)]
    limits = (Limit(both, least[0]), Limit(own, least[1]))
    return Problem(goal.terms[0].ensemble, BOX, "max", None, goal, limits)


@pytest.mark.parametrize("seed", range(3))
def test_any_mixing_bounds_the_objective_where_limits_hold(seed):
    problem, rng = Canonical.of(coupled(seed)), np.random.default_rng(seed)
    met = GRID[problem.feasible(GRID)]
    best = problem.values(met).max()
    mixing = Mixing.of(problem, rng.uniform(-1, 1, 2))
    bounds = []
    for _ in range(4):
        costs = rng.normal(size=(len(problem.networks), 2)) * 0.1
        costs -= costs.mean(axis=0)
        parts = member_problems(problem, BOX, costs, mixing)
        answers = [
            ByMilp("scip").solve(
                Subproblem(part, known_bounds(part, problem.root, i, True)),
                Effort(), None,
            )
            for i, part in enumerate(parts)
        ]  # fmt: skip
        bounds.append(
            lagrangian_bound(
                [a.bound for a in answers], costs, BOX, mixing.constant(problem)
            )
        )
        outputs = problem.outputs(rng.uniform(-1, 1, (1, 2)))[0]
        mixing = mixing.updated(problem, outputs)
        assert np.all(mixing.multipliers >= 0.0)
    assert min(bounds) >= best


def test_limits_of_one_member_stay_in_its_problem():
    problem = Canonical.of(coupled(0))
    keepers = [keeper(problem, function) for function in problem.limits.functions]
    assert keepers[0] is None
    assert keepers[1] is not None
    mixing = Mixing.of(problem, np.zeros(2))
    parts = member_problems(problem, BOX, np.zeros((len(problem.networks), 2)), mixing)
    assert [part.limits.count for part in parts] == [
        int(i == keepers[1]) for i in range(len(parts))
    ]
    own = parts[keepers[1]]
    np.testing.assert_allclose(
        own.limits.values(own.outputs(GRID))[:, 0],
        problem.limits.values(problem.outputs(GRID))[:, 1],
        atol=1e-12,
    )


@pytest.mark.parametrize("solver", [ByMilp("highs"), ByEngine()], ids=repr)
@pytest.mark.parametrize("sense", ["max", "min"])
def test_a_part_with_limits_is_bounded_in_the_sense_of_the_method(solver, sense):
    """The engine's answer came in the user's sense, which turned bounds of minima."""
    asked = coupled(1)
    goal = asked.goal if sense == "max" else asked.goal.negated()
    problem = Canonical.of(
        Problem(asked.ensemble, BOX, sense, None, goal, asked.limits)
    )
    best = problem.values(GRID[problem.feasible(GRID)]).max()
    found = solver.solve(Subproblem(problem, problem.root), Effort(slack=1e-4), None)
    assert best <= found.bound <= best + 0.1


def test_a_point_that_only_a_solver_accepts_ends_the_halving():
    ensemble = ensemble_of(3, 2)
    most, x = exact_maximum(ensemble, BOX)
    for excess, expected in ((1e-8, True), (1e-3, False)):
        problem = Canonical.of(least_cost(ensemble, most + excess))
        run = Tools().start(problem, BigM(), BigM.handles)
        assert blurred(run, x, float(problem.values(x)[0])) is expected
        assert not blurred(run, x, float(problem.values(x)[0]) + 0.1)
