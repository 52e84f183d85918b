"""B&C against enumeration on every backend, and its endings."""

import math
import signal
import threading

import numpy as np
import pytest

import oracles
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.milp.cuts import BendersCuts
from ennopt.milp.formulation import big_m
from ennopt.milp.highs import Highs
from ennopt.milp.scaling import ScaledModel
from ennopt.milp.scip import Scip
from ennopt.milp.solver import MilpResult, MilpStatus
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.strengthened import IncumbentInequalities, root_rounds
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.relaxation import Crown, Interval

BACKENDS = ["highs", "scip", "gurobi"]


def problem_of(rng, num_members=2, widths=(5, 4), num_inputs=2):
    ensemble = oracles.random_ensemble(rng, num_members, num_inputs, widths)
    return Problem(ensemble, oracles.random_domain(rng, num_inputs))


def hard_problem():
    rng = np.random.default_rng(0)
    ensemble = oracles.random_ensemble(rng, 3, 6, (30, 30))
    return Problem(ensemble, Domain([-1.0] * 6, [1.0] * 6))


def agrees(result, problem):
    optimum, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
    slack = 1e-6 * max(1.0, Canonical.of(problem).scale)
    assert result.status is Status.OPTIMAL
    assert result.bound >= optimum - slack
    assert result.value == pytest.approx(optimum, rel=2e-4, abs=slack)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(4))
def test_branch_and_cut_proves_the_enumerated_optimum(backend, seed):
    problem = problem_of(np.random.default_rng(seed))
    agrees(BranchAndCut(backend=backend).solve(problem, Tools()), problem)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inequalities_and_cuts_together_prove_the_same(backend, rng):
    problem = problem_of(rng, 3, (6, 4))
    method = BranchAndCut(backend=backend, inequalities=True, starts=0)
    result = method.solve(problem, Tools())
    agrees(result, problem)
    if backend == "highs":
        assert result.details["inequalities"] == 0
        assert any("inside its tree" in note for note in result.notes)
    else:
        assert result.details["inequalities"] > 0


@pytest.mark.parametrize("backend", ["scip", "gurobi"])
def test_inequalities_stay_beside_the_linear_program(backend, rng):
    problem = problem_of(rng, 3, (6, 4))
    method = BranchAndCut(cut_limit=0, inequalities=True, backend=backend, starts=0)
    result = method.solve(problem, Tools())
    agrees(result, problem)
    assert result.details["inequalities"] > 0
    assert result.details["cuts"] == 0


def test_only_solutions_that_beat_those_before_give_inequalities(rng):
    problem = Canonical.of(problem_of(rng, 3, (6, 4)))
    scaled = ScaledModel.of(problem, problem.root)
    points = problem.domain.sample(40, rng)
    order = np.argsort(problem.values(points))
    with Tools().start(problem, "test") as run:
        source = BendersCuts(scaled.formulation)
        rising = IncumbentInequalities(source, run, scaled)
        for x in points[order]:
            rising.separate(scaled.columns(x), True)
        falling = IncumbentInequalities(source, run, scaled)
        for x in points[order[::-1]]:
            falling.separate(scaled.columns(x), True)
        assert falling.separate(scaled.columns(points[order[-1]]), False) == []
    patterns = {source.pattern(scaled.columns(x)).tobytes() for x in points}
    assert rising.count == len(patterns) > 1
    assert falling.count == 1


@pytest.mark.parametrize("name", oracles.DEGENERATE)
def test_degenerate_ensembles_are_solved(name, rng):
    ensemble, domain = oracles.DEGENERATE[name](rng)
    problem = Problem(ensemble, domain)
    agrees(BranchAndCut().solve(problem, Tools(Limits(30.0))), problem)


def test_cuts_shrink_the_tree():
    cut, plain = 0, 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        ensemble = oracles.random_ensemble(rng, 2, 3, (12, 10))
        problem = Problem(ensemble, Domain([-1.0] * 3, [1.0] * 3))
        cut += BranchAndCut(backend="scip").solve(problem, Tools()).nodes
        plain += BranchAndCut(0, backend="scip").solve(problem, Tools()).nodes
    assert cut < plain


def test_the_limit_on_cuts_is_kept(rng):
    problem = problem_of(rng, 3, (10, 8))
    many = BranchAndCut(backend="scip").solve(problem, Tools()).details["cuts"]
    assert many > 3
    for limit in (0, 3):
        result = BranchAndCut(limit, backend="scip").solve(problem, Tools())
        assert result.details["cuts"] == limit
        agrees(result, problem)


def test_root_rounds_lower_the_bound_and_keep_it_true(rng):
    problem = problem_of(rng, 2, (8, 6))
    optimum, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
    seen = Canonical.of(problem)
    made = big_m(seen, Interval().tighten(seen))
    done = root_rounds(made, 25_000)
    assert done.after < done.before - 1e-6
    assert done.after >= optimum - 1e-7
    assert len(done.cuts) <= done.generated
    again = Highs().solve(made.model.relaxed().with_inequalities(done.cuts))
    assert again.bound == pytest.approx(done.after, rel=1e-4)
    assert root_rounds(made, 5).generated == 5
    assert root_rounds(made, 0).after == done.before


def test_the_break_down_of_the_tables_is_in_the_result(rng):
    problem = problem_of(rng, 3, (8, 6))
    result = BranchAndCut(backend="scip").solve(problem, Tools())
    assert {"lp_bounds", "branch_and_cut", "total"} <= set(result.seconds)
    details = result.details
    assert details["root_bound_after_cuts"] <= details["root_bound_before_cuts"]
    assert details["root_bound_after_cuts"] >= result.value - 1e-6
    assert details["binaries"] == details["unstable"]
    assert {"pyscipopt", "highspy"} <= set(result.versions)


@pytest.mark.parametrize(
    "tightening", [(Interval(),), (Crown(),), (Crown(), LpTightening())], ids=repr
)
def test_any_bounds_lead_to_the_same_optimum(tightening, rng):
    problem = problem_of(rng)
    agrees(BranchAndCut(tightening=tightening).solve(problem, Tools()), problem)


# Endings.


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_is_enough_for_a_true_bound(backend):
    problem = hard_problem()
    if backend == "gurobi":
        problem = problem_of(np.random.default_rng(0), 3, (20, 20), 4)
    result = BranchAndCut(backend=backend).solve(problem, Tools(Limits(1.0)))
    best = BranchAndCut(starts=20_000).solve(problem, Tools(Limits(1.0))).value
    assert result.status in (Status.TIME_LIMIT, Status.OPTIMAL)
    assert best - 1e-9 <= result.bound < math.inf
    assert result.value > -math.inf


def test_a_node_limit_is_named():
    result = BranchAndCut(backend="scip").solve(hard_problem(), Tools(Limits(nodes=5)))
    assert result.status is Status.NODE_LIMIT
    assert result.value <= result.bound < math.inf


def test_ctrl_c_ends_with_what_is_proved():
    timer = threading.Timer(1.5, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    result = BranchAndCut(backend="scip").solve(hard_problem(), Tools(Limits(120.0)))
    assert result.status is Status.INTERRUPTED
    assert result.value <= result.bound < math.inf


def test_a_callback_can_end_it():
    stop = Tools(Limits(120.0), callback=lambda moment: moment.seconds > 0.5)
    result = BranchAndCut(backend="scip").solve(hard_problem(), stop)
    assert result.status is Status.INTERRUPTED


@pytest.mark.parametrize("how", ["status", "lie"])
def test_a_solver_that_fails_is_asked_again_on_halves(how, rng, monkeypatch):
    problem = problem_of(rng, 2, (4, 3))
    right, calls = Scip.solve, []

    def fails(self, model, *arguments):
        calls.append(model)
        if len(calls) > 1:
            return right(self, model, *arguments)
        if how == "lie":
            return MilpResult(MilpStatus.OPTIMAL, bound=-100.0)
        return MilpResult(MilpStatus.FAILED, message="out of order")

    monkeypatch.setattr(Scip, "solve", fails)
    result = BranchAndCut(backend="scip").solve(problem, Tools())
    assert len(calls) > 1
    agrees(result, problem)
    assert any("failed" in note for note in result.notes)


def test_a_solver_that_never_answers_leaves_a_true_bound(rng, monkeypatch):
    problem = problem_of(rng, 2, (4, 3))
    optimum, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
    failed = MilpResult(MilpStatus.FAILED, message="out of order")
    monkeypatch.setattr(Scip, "solve", lambda *arguments: failed)
    result = BranchAndCut(backend="scip").solve(problem, Tools())
    assert result.status is Status.INTERRUPTED
    assert optimum <= result.bound < math.inf
    assert any("out of order" in note for note in result.notes)


@pytest.mark.parametrize("options", [{"cut_limit": -1}, {"starts": -1}])
def test_wrong_options_are_refused_at_once(options):
    with pytest.raises(ValueError, match="Expected"):
        BranchAndCut(**options)
    with pytest.raises(ValueError, match="backend"):
        BranchAndCut(backend="glpk")


def test_it_agrees_with_the_plain_model(rng):
    problem = problem_of(rng, 3, (6, 5), 3)
    one = BranchAndCut().solve(problem, Tools())
    other = BigM("highs").solve(problem, Tools())
    assert one.value == pytest.approx(other.value, rel=2e-4)
