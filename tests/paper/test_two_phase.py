"""E-NN against enumeration, with every ingredient switched, and its endings."""

import math
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import oracles
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.milp.scip import Scip
from ennopt.milp.solver import MilpResult, MilpStatus
from ennopt.network import Ensemble
from ennopt.paper.lagrangian import LagrangianSearch
from ennopt.paper.multipliers import Multipliers, Subgradient
from ennopt.paper.subproblems import ByEngine, ByMilp
from ennopt.paper.targeted import Targeted
from ennopt.paper.two_phase import PhaseOne, TwoPhase
from ennopt.problem import Problem
from ennopt.result import Limits, Result, Status
from ennopt.run import Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.relaxation import Crown, Interval

BACKENDS = ["highs", "scip", "gurobi"]


def problem_of(rng, num_members=2, widths=(4, 3), num_inputs=2, **options):
    ensemble = oracles.random_ensemble(rng, num_members, num_inputs, widths, **options)
    return Problem(ensemble, oracles.random_domain(rng, num_inputs))


def hard_problem(num_members=3):
    rng = np.random.default_rng(0)
    ensemble = oracles.random_ensemble(rng, num_members, 6, (30, 30))
    return Problem(ensemble, Domain([-1.0] * 6, [1.0] * 6))


def agrees(result, problem):
    optimum, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
    slack = 1e-6 * max(1.0, Canonical.of(problem).scale)
    assert result.status is Status.OPTIMAL
    assert result.bound >= optimum - slack
    assert result.value == pytest.approx(optimum, rel=2e-4, abs=slack)


# The answer.


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(3))
def test_both_phases_prove_the_enumerated_optimum(backend, seed):
    problem = problem_of(np.random.default_rng(seed), 2 + seed % 2, weighted=seed == 2)
    agrees(TwoPhase.on(backend).solve(problem, Tools()), problem)


@pytest.mark.parametrize("backend", ["highs", "scip"])
def test_phase_two_alone_with_targeted_bounds_proves_it(backend, rng):
    problem = problem_of(rng, 3)
    solver = ByMilp(backend)
    method = TwoPhase(
        (Targeted(backend=backend),),
        phase_one=None,
        phase_two=LagrangianSearch(members=solver, whole=solver),
    )
    result = method.solve(problem, Tools())
    agrees(result, problem)
    assert result.details["phase_two_nodes"] > 0


@pytest.mark.parametrize("seed", range(6))
def test_the_tuned_configuration_proves_it(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_case(rng)
    problem = Problem(ensemble, domain)
    agrees(TwoPhase.tuned().solve(problem, Tools(Limits(30.0))), problem)


def test_the_native_engine_agrees_beyond_what_can_be_enumerated():
    rng = np.random.default_rng(5)
    ensemble = oracles.random_ensemble(rng, 3, 4, (10, 8))
    problem = Problem(ensemble, Domain([-1.0] * 4, [1.0] * 4))
    engine = BoxSearch().solve(problem, Tools())
    for method in (TwoPhase(), TwoPhase.tuned()):
        result = method.solve(problem, Tools())
        assert result.status is Status.OPTIMAL
        assert result.value == pytest.approx(engine.value, rel=2e-4)
        assert result.bound >= engine.value - 1e-7


@pytest.mark.parametrize(
    "method", [TwoPhase(), TwoPhase.tuned()], ids=["paper", "tuned"]
)
@pytest.mark.parametrize("name", oracles.DEGENERATE)
def test_degenerate_ensembles_are_solved(method, name, rng):
    ensemble, domain = oracles.DEGENERATE[name](rng)
    problem = Problem(ensemble, domain)
    slow = name == "cancelling members"  # value 0 everywhere: nothing to prune with
    result = method.solve(problem, Tools(Limits(3.0 if slow else 60.0)))
    if slow and result.status is Status.TIME_LIMIT:
        optimum, _ = oracles.exact_maximum(ensemble, domain)
        assert optimum <= result.bound < math.inf
    else:
        agrees(result, problem)


SWITCHES = {
    "interval bounds": TwoPhase((Interval(),)),
    "linear bounds": TwoPhase((Crown(),)),
    "LP bounds": TwoPhase((LpTightening(),)),
    "MILP bounds": TwoPhase((LpTightening(), MilpTightening(outputs=False))),
    "sharper threshold": TwoPhase((Targeted(nodes=10, threshold=0.0),)),
    "no inequalities": TwoPhase(phase_one=PhaseOne(inequalities=False)),
    "ideal cuts in Phase One": TwoPhase(phase_one=PhaseOne(ideal_cuts=100)),
    "no Phase One": TwoPhase(phase_one=None),
    "no Phase Two": TwoPhase(phase_two=None),
    "no heuristic": TwoPhase(phase_one=None, phase_two=LagrangianSearch(heuristic=0.0)),
    "binaries free in the subgradient": TwoPhase(
        phase_one=None, phase_two=LagrangianSearch(fix_binaries=False)
    ),
    "slower step sizes": TwoPhase(
        phase_one=None,
        phase_two=LagrangianSearch(multipliers=Subgradient(compound=False)),
    ),
    "members by the engine": TwoPhase(
        phase_one=None,
        phase_two=LagrangianSearch(members=ByEngine(), whole=ByEngine()),
    ),
    "no random points": TwoPhase(starts=0),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_leads_to_the_same_optimum(name):
    problem = problem_of(np.random.default_rng(7), 3, (4,))
    agrees(SWITCHES[name].solve(problem, Tools()), problem)


def test_the_defaults_are_those_of_the_paper():
    method = TwoPhase()
    (targeted,) = method.tightening
    assert (targeted.nodes, targeted.threshold) == (1000, 0.01)
    assert targeted.milp_seconds == 5.0
    assert targeted.first == (LpTightening(),)
    assert method.phase_one.seconds == 180.0
    assert method.phase_one.inequalities
    assert method.phase_one.ideal_cuts == 0
    two = method.phase_two
    assert two.multipliers == Subgradient(steps=20, step_size=0.05, compound=True)
    assert (two.heuristic, two.revert) == (0.02, 0.02)
    assert two.fix_binaries
    assert not two.inherit


def test_the_papers_own_limits_leave_room_for_its_times():
    method, limit = TwoPhase(), 3600.0
    assert (1.0 - method.reserve) * limit > 2792.0  # its longest mean for bounds
    assert method.phase_one.share * method.reserve * limit >= method.phase_one.seconds


def test_the_printed_steps_vanish_and_those_of_the_tuned_search_do_not():
    copies = np.array([[1.0], [0.0]])

    def last_size(rule, updates=20):
        now = Multipliers.zero(2, 1)
        for _ in range(updates):
            now = rule.update(now, copies, 0.05)
        return now.size

    assert last_size(TwoPhase().phase_two.multipliers) < 1e-9
    assert last_size(Subgradient(compound=False)) == pytest.approx(0.05 / 20**0.5)
    assert last_size(TwoPhase.tuned().phase_two.multipliers) > 0.01


# What a result tells.


def test_the_break_down_of_the_tables_is_in_the_result():
    problem = problem_of(np.random.default_rng(0), 3, (6, 5))
    targeted = Targeted(nodes=50, threshold=0.0)
    short = TwoPhase((targeted,), phase_one=PhaseOne(seconds=1e-3))
    result = short.solve(problem, Tools())
    phases = {"lp_bounds", "survey", "milp_bounds", "phase_one", "subgradient"}
    assert phases | {"phase_two", "total"} <= set(result.seconds)
    details = result.details
    for name in (
        "critical_neurons", "milp_neurons", "milps", "surveyed_nodes", "survey",
        "unstable_after_lps", "unstable", "phase_one_cuts", "phase_one_inequalities",
        "phase_one_gap", "phase_one_root_bound_before_cuts", "phase_two_start_gap",
        "phase_two_nodes", "phase_two_mean_depth", "big_m_reversions",
        "subgradient_relaxations",
    ):  # fmt: skip
        assert name in details, name
    assert details["milps"] <= 2 * details["milp_neurons"]
    assert details["unstable"] <= details["unstable_after_lps"]
    assert details["phase_two_start_gap"] < details["phase_one_gap"]
    assert Result.from_json(result.to_json()).details["milps"] == details["milps"]


def test_highs_says_what_it_cannot_do(rng):
    result = TwoPhase.on("highs").solve(problem_of(rng, 2, (6, 5)), Tools())
    assert result.details["survey"] == "LPs"
    assert any("survey" in note for note in result.notes)
    assert any("Proposition 1" in note for note in result.notes)


def test_targeted_bounds_tighten_the_root_of_phase_one():
    problem = problem_of(np.random.default_rng(1), 2, (10, 8, 6), 3)
    lp = TwoPhase((LpTightening(),), phase_two=None)
    targeted = TwoPhase(phase_two=None)
    key = "phase_one_root_bound_before_cuts"
    loose = lp.solve(problem, Tools()).details[key]
    tight = targeted.solve(problem, Tools()).details[key]
    assert tight < loose


def test_one_member_has_no_second_phase(rng):
    result = TwoPhase().solve(problem_of(rng, 1), Tools())
    assert result.status is Status.OPTIMAL
    assert "phase_two" not in result.seconds


def test_members_of_different_sizes_are_solved(rng):
    members = tuple(oracles.random_network(rng, 2, w) for w in [(3,), (5, 4), ()])
    problem = Problem(Ensemble(members), oracles.random_domain(rng))
    for method in (TwoPhase(), TwoPhase(phase_one=None), TwoPhase.tuned()):
        agrees(method.solve(problem, Tools()), problem)


# Endings.


@pytest.mark.parametrize(
    "method", [TwoPhase(), TwoPhase.on("highs"), TwoPhase.tuned()],
    ids=["scip", "highs", "tuned"],
)  # fmt: skip
@pytest.mark.parametrize("num_members", [1, 3])
def test_a_second_is_enough_for_a_true_bound(method, num_members):
    problem = hard_problem(num_members)
    found = BoxSearch().solve(problem, Tools(Limits(1.0))).value
    result = method.solve(problem, Tools(Limits(1.0)))
    assert result.status in (Status.TIME_LIMIT, Status.OPTIMAL)
    assert found - 1e-9 <= result.bound < math.inf


@pytest.mark.parametrize("seconds", [0.2, 1.5, 4.0])
def test_ctrl_c_ends_any_phase_with_what_is_proved(seconds):
    timer = threading.Timer(seconds, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    method = TwoPhase(
        (Targeted(nodes=50, milp_seconds=0.05),), phase_one=PhaseOne(seconds=0.5)
    )
    result = method.solve(hard_problem(), Tools(Limits(120.0)))
    assert result.status is Status.INTERRUPTED
    assert result.value <= result.bound < math.inf


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_serial_and_parallel_runs_agree_under_a_node_limit(pool):
    problem = problem_of(np.random.default_rng(3), 3, (6, 5))
    method = TwoPhase(phase_one=None)
    limits = Limits(nodes=40, gap=1e-9)
    alone = method.solve(problem, Tools(limits))
    with pool(2) as executor:
        side = method.solve(problem, Tools(limits, executor=executor))
    assert alone.status is side.status
    assert (alone.value, alone.bound, alone.nodes) == (
        side.value, side.bound, side.nodes
    )  # fmt: skip


@pytest.mark.parametrize("after", [0, 1, 5, 12])
def test_a_solver_that_fails_in_the_middle_leaves_a_true_bound(after, rng, monkeypatch):
    problem = problem_of(rng, 3, (5, 4))
    optimum, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
    right, calls = Scip.solve, []

    def fails(self, model, *arguments):
        calls.append(model)
        if len(calls) > after:
            return MilpResult(MilpStatus.FAILED, message="out of order")
        return right(self, model, *arguments)

    monkeypatch.setattr(Scip, "solve", fails)
    result = TwoPhase.on("scip").solve(problem, Tools())
    assert result.status in (Status.INTERRUPTED, Status.OPTIMAL)
    assert optimum - 1e-7 <= result.bound < math.inf
    if result.status is Status.INTERRUPTED:
        assert any("out of order" in note for note in result.notes)


@pytest.mark.parametrize(
    "options",
    [{"phase_one": None, "phase_two": None}, {"reserve": 1.0}, {"backend": "glpk"}],
    ids=str,
)
def test_wrong_options_are_refused_at_once(options):
    with pytest.raises(ValueError, match="Expected"):
        TwoPhase(**options)
