"""BigM against enumeration, on every backend, and its endings."""

import pickle
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from ennopt.milp import available_backends, backend
from ennopt.milp.solver import MilpResult, MilpStatus
from ennopt.paper import bigm as bigm_module
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.relaxation import Crown, Interval

BACKENDS = available_backends()
every = pytest.mark.parametrize("name", BACKENDS)
seeds = st.integers(0, 2**32 - 1)


def hard_case():
    rng = np.random.default_rng(0)
    return oracles.random_ensemble(rng, 5, 6, (30, 30)), oracles.random_domain(rng, 6)


def assert_proved(result, ensemble, domain, gap=1e-4):
    best, _ = oracles.exact_maximum(ensemble, domain)
    size = max(1.0, abs(best))
    assert result.status is Status.OPTIMAL
    assert domain.contains(result.x)
    assert result.value == float(ensemble(result.x)[0])
    assert best - max(1e-6, 1.1 * gap * abs(best)) <= result.value
    assert result.value <= best + 1e-9 * size
    assert result.bound >= best - 1e-9 * size


@every
@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_every_backend_agrees_with_enumeration(name, seed):
    ensemble, domain = oracles.random_case(np.random.default_rng(seed))
    tools = Tools(limits=Limits(gap=1e-7))
    result = BigM(backend=name).solve(Problem(ensemble, domain), tools)
    best, _ = oracles.exact_maximum(ensemble, domain)
    assert_proved(result, ensemble, domain, gap=1e-7)
    assert result.value == pytest.approx(best, abs=1e-6)


@every
@pytest.mark.parametrize("case", oracles.DEGENERATE)
def test_degenerate_ensembles_are_proved(name, case):
    for seed in range(2):
        ensemble, domain = oracles.DEGENERATE[case](np.random.default_rng(seed))
        result = BigM(backend=name).solve(Problem(ensemble, domain), Tools())
        assert_proved(result, ensemble, domain)


@every
@pytest.mark.parametrize(("unit", "size"), [(1e-6, 1e6), (1e5, 1e-7)])
def test_units_of_inputs_and_outputs_do_not_matter(name, unit, size):
    rng = np.random.default_rng(4)
    ensemble, domain = oracles.random_ensemble(rng, 3), oracles.random_domain(rng)
    plain = BigM(backend=name).solve(Problem(ensemble, domain), Tools())
    scaled = ensemble.fold_input(1.0 / unit, 0.0).fold_output(size, 0.0)
    box = type(domain)(domain.lower * unit, domain.upper * unit)
    result = BigM(backend=name).solve(Problem(scaled, box), Tools())
    assert result.status is Status.OPTIMAL
    assert result.value / size == pytest.approx(plain.value, rel=2e-4)
    assert result.details["boxes"] <= 1


@every
def test_a_minimum_is_the_maximum_of_the_negated_ensemble(name):
    rng = np.random.default_rng(8)
    ensemble, domain = oracles.random_ensemble(rng, 2), oracles.random_domain(rng)
    problem = Problem(ensemble, domain, sense="min")
    result = BigM(backend=name).solve(problem, Tools())
    least = -oracles.exact_maximum(ensemble.negated(), domain)[0]
    assert result.value == pytest.approx(least, rel=2e-4)
    assert result.bound <= least + 1e-9


@pytest.mark.parametrize(
    "tightening",
    [(), (Interval(),), (Crown(),), (Crown(), MilpTightening(seconds=1.0))],
    ids=repr,
)
def test_any_tightening_gives_the_same_optimum(tightening):
    rng = np.random.default_rng(6)
    ensemble, domain = oracles.random_ensemble(rng, 2), oracles.random_domain(rng)
    method = BigM("scip", tightening)
    assert_proved(method.solve(Problem(ensemble, domain), Tools()), ensemble, domain)


@every
def test_a_second_is_a_second(name):
    ensemble, domain = hard_case()
    tools = Tools(limits=Limits(seconds=1.0))
    result = BigM(backend=name).solve(Problem(ensemble, domain), tools)
    assert result.status is Status.TIME_LIMIT
    assert result.bound >= result.value
    seen = oracles.canonical(ensemble, domain)
    assert result.bound <= seen.range(seen.root)[1]
    assert result.value == float(ensemble(result.x)[0])


def test_a_time_limit_within_the_bounds_still_proves_something():
    ensemble, domain = hard_case()
    tools = Tools(limits=Limits(seconds=1e-3))
    result = BigM().solve(Problem(ensemble, domain), tools)
    assert result.status is Status.TIME_LIMIT
    assert np.isfinite(result.bound)
    assert result.x is not None


@every
def test_a_node_limit_ends_the_run(name):
    rng = np.random.default_rng(0)
    ensemble = oracles.random_ensemble(rng, 3, 4, (12, 12))
    domain = oracles.random_domain(rng, 4)
    tools = Tools(limits=Limits(nodes=2))
    method = BigM(backend=name, tightening=(Crown(),))
    result = method.solve(Problem(ensemble, domain), tools)
    assert result.status is Status.NODE_LIMIT
    assert result.value <= result.bound < np.inf


@every
def test_the_callback_sees_progress_and_can_stop(name):
    ensemble, domain = hard_case()
    seen = []

    def callback(moment):
        seen.append(moment)
        return moment.phase == "solver"

    method = BigM(backend=name, tightening=(Crown(),))
    result = method.solve(Problem(ensemble, domain), Tools(callback=callback))
    assert result.status is Status.INTERRUPTED
    bounds = [moment.bound for moment in seen]
    assert bounds == sorted(bounds, reverse=True)
    assert {"bounds", "solver"} <= {moment.phase for moment in seen}


@every
def test_an_interrupt_inside_the_callback_returns_the_best_answer(name):
    ensemble, domain = hard_case()

    def callback(moment):
        if moment.phase == "solver":
            raise KeyboardInterrupt

    method = BigM(backend=name, tightening=(Crown(),))
    result = method.solve(Problem(ensemble, domain), Tools(callback=callback))
    assert result.status is Status.INTERRUPTED
    assert result.x is not None


def test_history_is_monotone_and_ends_with_the_answer():
    rng = np.random.default_rng(1)
    ensemble = oracles.random_ensemble(rng, 3, 2, (12, 12))
    domain = oracles.random_domain(rng)
    method = BigM(backend="scip", starts=1)
    result = method.solve(Problem(ensemble, domain), Tools())
    values = [event.value for event in result.history]
    bounds = [event.bound for event in result.history]
    assert values == sorted(values)
    assert bounds == sorted(bounds, reverse=True)
    assert (values[-1], bounds[-1]) == (result.value, result.bound)
    assert {"bounds", "solver", "total"} <= set(result.seconds)
    assert {"pyscipopt", "highspy", "ennopt"} <= set(result.versions)


@every
@pytest.mark.parametrize("method", [BigM, BranchAndCut])
def test_nodes_are_those_of_the_solver(name, method, monkeypatch):
    rng = np.random.default_rng(3)
    problem = Problem(
        oracles.random_ensemble(rng, 3, 4, (12, 12)), oracles.random_domain(rng, 4)
    )
    solver, found = type(backend(name)), []
    solve = solver.solve

    def noted(self, model, *arguments):
        result = solve(self, model, *arguments)
        if model.num_integer:
            found.append(result)
        return result

    monkeypatch.setattr(solver, "solve", noted)
    result = method(backend=name, tightening=(Crown(),)).solve(problem, Tools())
    assert result.status is Status.OPTIMAL
    assert result.nodes == sum(answer.nodes for answer in found) > 5


@every
def test_same_seed_same_answer_with_and_without_an_executor(name):
    rng = np.random.default_rng(3)
    ensemble = oracles.random_ensemble(rng, 3, 2, (8, 8))
    domain = oracles.random_domain(rng)
    problem, method = Problem(ensemble, domain), BigM(backend=name)
    serial = method.solve(problem, Tools(seed=5))
    with ThreadPoolExecutor(2) as executor:
        other = method.solve(problem, Tools(seed=5, executor=executor))
    assert (serial.value, serial.bound) == (other.value, other.bound)
    assert serial.x.tolist() == other.x.tolist()


@pytest.mark.parametrize(
    "lie",
    [
        MilpResult(MilpStatus.INFEASIBLE, bound=-np.inf, message="nonsense"),
        MilpResult(MilpStatus.FAILED, message="numerics"),
        MilpResult(MilpStatus.OPTIMAL, bound=-1e3, message="wrong"),
    ],
    ids=lambda result: result.message,
)
def test_a_solver_that_errs_once_costs_time_but_not_the_proof(lie, monkeypatch):
    honest, calls = bigm_module.backend("scip"), []

    class Erring:
        name, package, capabilities = "scip", "pyscipopt", honest.capabilities

        def solve(self, model, options, hooks):
            calls.append(model)
            return lie if len(calls) == 1 else honest.solve(model, options, hooks)

    monkeypatch.setattr(bigm_module, "backend", lambda name: Erring())
    rng = np.random.default_rng(6)
    ensemble, domain = oracles.random_ensemble(rng, 2), oracles.random_domain(rng)
    method = BigM("scip", (Crown(),))
    result = method.solve(Problem(ensemble, domain), Tools())
    assert_proved(result, ensemble, domain)
    assert len(calls) > 1
    assert any("its bound was not used" in n or "beaten" in n for n in result.notes)
    assert result.details["failures"] == 1


def test_a_gap_of_zero_ends_all_the_same():
    rng = np.random.default_rng(2)
    ensemble = oracles.random_ensemble(rng, 1, 1, (3,))
    domain = oracles.random_domain(rng, 1)
    tools = Tools(limits=Limits(gap=0.0))
    result = BigM("scip").solve(Problem(ensemble, domain), tools)
    best, _ = oracles.exact_maximum(ensemble, domain)
    assert result.status is Status.OPTIMAL
    assert result.bound == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_prediction_bounds_follow_the_signs_of_member_weights(seed):
    rng = np.random.default_rng(seed)
    ensemble = oracles.random_ensemble(rng, 3, weighted=True)
    domain = oracles.random_domain(rng)
    bounds = Crown().tighten(oracles.members(ensemble, domain))
    low, high = bounds.prediction(ensemble.weights)
    assert high >= oracles.exact_maximum(ensemble, domain)[0]
    assert low <= -oracles.exact_maximum(ensemble.negated(), domain)[0]
    ends = [
        sorted((weight * bounds.lower[i][-1][0], weight * bounds.upper[i][-1][0]))
        for i, weight in enumerate(ensemble.weights)
    ]
    assert (low, high) == pytest.approx(tuple(np.sum(ends, axis=0)), rel=1e-12)


def test_methods_are_values():
    method = BigM("gurobi", (Crown(),), starts=10)
    assert pickle.loads(pickle.dumps(method)) == method
    assert repr(method) == "BigM(backend='gurobi', tightening=(Crown(),), starts=10)"
    with pytest.raises(ValueError, match="starts >= 0"):
        BigM(starts=-1)
    with pytest.raises(ValueError, match="among highs"):
        BigM(backend="cbc")


@every
def test_ctrl_c_returns_the_best_answer_so_far(name):
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(oracles.__file__).parent)!r})
        import numpy as np, oracles
        from ennopt.tightening.relaxation import Crown
        from ennopt.problem import Problem
        from ennopt.run import Tools
        from ennopt.paper.bigm import BigM
        rng = np.random.default_rng(0)
        ensemble = oracles.random_ensemble(rng, 5, 6, (30, 30))
        problem = Problem(ensemble, oracles.random_domain(rng, 6))
        told = []
        def callback(moment):
            if moment.phase == "solver" and not told:
                told.append(True)
                print("solving", flush=True)
        method = BigM(backend={name!r}, tightening=(Crown(),))
        result = method.solve(problem, Tools(callback=callback))
        print(result.status.value, result.value, result.bound, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "solving"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    status, value, bound = output.split()[-3:]
    assert process.returncode == 0
    assert status == "interrupted"
    assert float(bound) >= float(value) > -np.inf
