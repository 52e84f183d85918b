"""The paper's methods under linear constraints: the engine, by rows of their models."""

import math

import numpy as np
import pytest

from ennopt.domain import Domain, Rows
from ennopt.engine.box_search import BoxSearch
from ennopt.milp.scaling import centred
from ennopt.milp.scip import Scip
from ennopt.milp.solver import MilpResult, MilpStatus
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.lagrangian import LagrangianSearch
from ennopt.paper.root_bound import RootBound
from ennopt.paper.subproblems import ByMilp
from ennopt.paper.two_phase import TwoPhase
from ennopt.problem import Problem
from ennopt.result import Limits, Result, Status
from ennopt.run import Tools
from oracles import canonical, exact_on, mixed, moved, random_ensemble

SCIP, HIGHS = ByMilp("scip"), ByMilp("highs")
METHODS = {
    "big-M by HiGHS": BigM("highs"),
    "big-M by SCIP": BigM("scip"),
    "B&C by HiGHS": BranchAndCut(backend="highs"),
    "B&C by SCIP": BranchAndCut(backend="scip", inequalities=True),
    "E-NN": TwoPhase.on("scip"),
    "E-NN, tuned": TwoPhase.tuned(),
    "Phase Two by HiGHS": LagrangianSearch(members=HIGHS, whole=HIGHS),
    "Phase Two by SCIP": LagrangianSearch(members=SCIP, whole=SCIP),
}
every = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def case(seed, equal=False, num_inputs=None):
    """Two members and 1 to 3 rows, small enough for every method."""
    rng = np.random.default_rng(seed)
    d = num_inputs or 2 + seed % 2
    ensemble = random_ensemble(rng, 2, d, (4,), weighted=seed % 3 == 0)
    return ensemble, mixed(rng, d, 1 + seed % 3, equal)


def agrees(method, problem, gap=1e-4):
    """Whether a method proves what the engine proves, at a feasible point."""
    tools = Tools(Limits(gap=gap))
    result, engine = method.solve(problem, tools), BoxSearch().solve(problem, tools)
    assert result.status is engine.status is Status.OPTIMAL
    assert problem.domain.contains(result.x)
    assert result.value == problem.ensemble(result.x)[0]
    sign = 1.0 if problem.sense == "max" else -1.0
    size = 1e-9 * max(1.0, abs(engine.value))
    assert sign * result.bound >= sign * engine.value - size
    assert sign * engine.bound >= sign * result.value - size
    return result


@every
@pytest.mark.parametrize("equal", [False, True], ids=["inequalities", "equation"])
@pytest.mark.parametrize("seed", range(2, 6))
def test_every_method_proves_what_the_engine_proves(method, equal, seed):
    ensemble, domain = case(seed, equal)
    result = agrees(method, Problem(ensemble, domain))
    exact = exact_on(ensemble, domain)
    assert result.bound >= exact - 1e-6 * max(1.0, abs(exact))
    assert result.value <= exact + 1e-6 * max(1.0, abs(exact))


@every
def test_a_minimum_is_told_in_its_own_sense(method):
    agrees(method, Problem(*case(2, equal=True), "min"))


@every
@pytest.mark.parametrize("seed", [2, 3])
def test_constraints_on_inputs_far_from_zero_move_with_them(method, seed):
    ensemble, domain = case(seed, equal=seed == 2)
    # So far away, points may miss a constraint by 1e-5: a gap must be wider than that.
    far, there = moved((ensemble.fold_output(1.0, 3.0), domain), np.full_like(
        domain.lower, 1e4
    ))  # fmt: skip
    assert centred(canonical(far, there)).shift.all()
    result = agrees(method, Problem(far, there), gap=1e-3)
    assert result.value == pytest.approx(exact_on(ensemble, domain) + 3.0, rel=2e-3)


@every
@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_the_unit_of_a_constraint_does_not_matter(method, size):
    """SCIP ignored half of a small constraint and proved too low a bound."""
    ensemble, domain = case(5, num_inputs=2)
    rows = domain.rows
    rows = Rows(size * rows.matrix, size * rows.least, size * rows.most)
    same = Domain(domain.lower, domain.upper, rows=rows)
    result = agrees(method, Problem(ensemble, same))
    assert result.value == pytest.approx(exact_on(ensemble, domain), rel=2e-4)


CONTRADICTIONS = {
    "one too large": Rows([[1, 1, 1]], [4.0], [np.inf]),
    "three together": Rows(
        [[1, 1, 0], [1, -1, 0], [-2, 0, 0]], [1.2, 0.9, -1.5], [np.inf] * 3
    ),
    "two equations": Rows([[1, 1, 1], [1, 1, 1]], [1.0, 1.001], [1.0, 1.001]),
}


@every
@pytest.mark.parametrize("name", CONTRADICTIONS)
@pytest.mark.parametrize("sense", ["max", "min"])
def test_contradictory_rows_are_infeasible(method, name, sense):
    ensemble = random_ensemble(np.random.default_rng(1), 2, 3, (5, 4))
    domain = Domain([0.0] * 3, [1.0] * 3, rows=CONTRADICTIONS[name])
    result = method.solve(Problem(ensemble, domain, sense), Tools())
    assert result.status is Status.INFEASIBLE
    assert result.x is None
    assert result.bound == (-math.inf if sense == "max" else math.inf)
    assert Result.from_json(result.to_json()).status is Status.INFEASIBLE


@pytest.mark.parametrize("seed", range(3))
def test_a_root_bound_is_one_under_constraints_too(seed):
    ensemble, domain = case(seed, equal=seed == 0)
    box = Domain(domain.lower, domain.upper)
    inside = RootBound().solve(Problem(ensemble, domain), Tools())
    outside = RootBound().solve(Problem(ensemble, box), Tools())
    assert exact_on(ensemble, domain) <= inside.bound + 1e-9
    assert inside.bound <= outside.bound + 1e-9


# A solver that is wrong.


@pytest.mark.parametrize("name", ["big-M by SCIP", "B&C by SCIP", "Phase Two by SCIP"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_set_with_a_known_point_is_not_empty(name, times, monkeypatch):
    """Whatever the solver says; it once ended branch and cut with an error of ours."""
    right, calls = Scip.solve, []
    empty = MilpResult(MilpStatus.INFEASIBLE, bound=-math.inf, message="nonsense")

    def solve(self, model, *arguments):
        calls.append(model)
        return empty if len(calls) <= times else right(self, model, *arguments)

    monkeypatch.setattr(Scip, "solve", solve)
    result = agrees(METHODS[name], Problem(*case(2)))
    assert len(calls) > times
    assert any("not used" in note for note in result.notes)
