"""What every backend must do, and what those without a capability must refuse."""

import importlib
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from ennopt.milp import available_backends, backend
from ennopt.milp.formulation import sub_network
from ennopt.milp.model import Inequality, LinearModel
from ennopt.milp.scaling import normalized
from ennopt.milp.solver import (
    CapabilityError,
    LicenceError,
    MilpResult,
    MilpStatus,
    Separation,
    SolveHooks,
    SolveOptions,
)
from ennopt.network import Ensemble
from ennopt.tightening.lp import LpTightening

DATA = Path(__file__).parents[1] / "data"
BACKENDS = available_backends()
CUTTING = [name for name in BACKENDS if backend(name).capabilities.cuts]
WITHOUT_CUTS = [name for name in BACKENDS if not backend(name).capabilities.cuts]

every = pytest.mark.parametrize("name", BACKENDS)
cutting = pytest.mark.parametrize("name", CUTTING)


def knapsack() -> LinearModel:
    return LinearModel.of(
        np.zeros(6), np.full(6, 3.0), [3, 5, 4, 2, 7, 1], [[2, 3, 1, 4, 5, 2]],
        upper_rows=[14.5], integer=np.ones(6), offset=10.0,
    )  # fmt: skip


def enumerated(model: LinearModel, allowed=lambda v: True) -> float:
    points = itertools.product(range(4), repeat=model.num_columns)
    vectors = (np.array(point, dtype=float) for point in points)
    return max(
        model.value(v) for v in vectors if model.violation(v) == 0 and allowed(v)
    )


def hard_model() -> LinearModel:
    """Far too large a tree for a second; the zero vector is feasible."""
    rng = np.random.default_rng(5)
    return LinearModel.of(
        np.full(60, -3.0), np.full(60, 3.0), rng.normal(size=60),
        rng.normal(size=(45, 60)), upper_rows=np.ones(45), integer=np.ones(60),
    )  # fmt: skip


@every
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), brisk=st.booleans())
def test_random_milps_agree_with_enumeration(name, seed, brisk):
    rng = np.random.default_rng(seed)
    model = LinearModel.of(
        np.zeros(4), np.full(4, 3.0), rng.normal(size=4), rng.normal(size=(3, 4)),
        upper_rows=rng.random(3), integer=np.ones(4), offset=float(rng.normal()),
    )  # fmt: skip
    found = backend(name).solve(model, SolveOptions(gap=1e-9, brisk=brisk))
    best = enumerated(model)
    assert found.status is MilpStatus.OPTIMAL
    assert found.value == pytest.approx(best, abs=1e-6)
    assert best - 1e-6 <= found.bound <= best + 1e-6
    assert model.violation(found.x) <= 1e-6


@every
def test_linear_programs_have_rigorous_bounds(name):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(4, 5))
    model = LinearModel.of(
        -np.ones(5), np.ones(5), rng.normal(size=5), rows,
        lower_rows=[-1, -np.inf, -0.5, 0.25], upper_rows=[np.inf, 1, 0.5, 0.25],
    )  # fmt: skip
    reference = backend("highs").solve(model)
    found = backend(name).solve(model)
    assert found.status is MilpStatus.OPTIMAL
    assert found.value == pytest.approx(reference.value, abs=1e-7)
    assert found.bound == pytest.approx(reference.bound, abs=1e-7)


@every
@pytest.mark.parametrize("integer", [0, 1])
def test_infeasible_and_unbounded_models_are_told_apart(name, integer):
    solver = backend(name)
    empty = LinearModel.of([0], [1], [1], [[1]], lower_rows=[2], integer=[integer])
    assert solver.solve(empty).status is MilpStatus.INFEASIBLE
    endless = LinearModel.of([0], [np.inf], [1], integer=[integer])
    found = solver.solve(endless)
    assert found.status is MilpStatus.UNBOUNDED
    assert found.bound == np.inf


@every
def test_a_model_without_rows_is_solved(name):
    model = LinearModel.of([0, -1], [2, 1], [1, -1], offset=0.5, integer=[1, 0])
    assert backend(name).solve(model).value == pytest.approx(3.5)


@every
def test_a_time_limit_leaves_a_valid_bound(name):
    found = backend(name).solve(hard_model(), SolveOptions(time_limit=1.0, gap=0.0))
    assert found.status is MilpStatus.TIME_LIMIT
    assert found.bound >= found.value
    assert np.isfinite(found.bound)
    # Any feasible point, found by anyone, stays below the bound.
    longer = backend("scip").solve(hard_model(), SolveOptions(node_limit=200))
    assert longer.value <= found.bound


@every
def test_no_time_at_all_is_a_time_limit(name):
    found = backend(name).solve(knapsack(), SolveOptions(time_limit=0.0))
    assert found.status is MilpStatus.TIME_LIMIT
    assert found.bound == np.inf


@every
def test_a_node_limit_leaves_a_valid_bound(name):
    found = backend(name).solve(hard_model(), SolveOptions(node_limit=3))
    assert found.status is MilpStatus.NODE_LIMIT
    assert found.bound >= found.value


@every
def test_progress_shows_feasible_solutions_and_can_stop_the_solver(name):
    seen = []

    def watch(moment):
        seen.append(moment)
        return moment.x is not None

    model = hard_model()
    found = backend(name).solve(model, hooks=SolveHooks(progress=watch))
    assert found.status is MilpStatus.INTERRUPTED
    shown = [moment for moment in seen if moment.x is not None]
    assert shown
    for moment in shown:
        assert model.violation(moment.x) <= 1e-5
        assert model.value(moment.x) == pytest.approx(moment.value, abs=1e-6)
        assert moment.bound >= moment.value - 1e-6


@every
def test_exceptions_in_progress_reach_the_caller(name):
    def fail(moment):
        raise ZeroDivisionError("in a callback")

    with pytest.raises(ZeroDivisionError, match="in a callback"):
        backend(name).solve(hard_model(), hooks=SolveHooks(progress=fail))


@every
def test_a_given_solution_is_used(name):
    model = hard_model()
    good = backend("scip").solve(model, SolveOptions(node_limit=100)).x
    options = SolveOptions(node_limit=1)
    found = backend(name).solve(model, options, SolveHooks(start=np.round(good)))
    assert found.value >= model.value(np.round(good)) - 1e-6


@every
def test_a_given_solution_loses_no_better_one(name):
    """SCIP called this one optimal: its presolve had removed all better ones."""
    with np.load(DATA / "lost_with_a_start.npz") as arrays:
        parts = dict(arrays)
    start, better = parts.pop("start"), parts.pop("better")
    model = LinearModel(**parts | {"offset": float(parts["offset"])})
    assert max(model.violation(start), model.violation(better)) < 1e-9
    options = SolveOptions(gap=5e-5, tolerance=1e-9)
    found = backend(name).solve(model, options, SolveHooks(start=start))
    assert found.bound >= model.value(better) - 1e-6
    assert model.value(better) > model.value(start) + 4e-4


@every
def test_same_seed_same_nodes(name):
    options = SolveOptions(node_limit=50, seed=7)
    counts = {backend(name).solve(hard_model(), options).nodes for _ in range(2)}
    assert len(counts) == 1


@cutting
def test_required_inequalities_reject_solutions(name):
    """Without locks and rejection a solver reports the larger, wrong optimum."""
    model, few = knapsack(), Inequality(np.arange(6), np.ones(6), 3.0)
    asked = []

    def source(point, integral):
        asked.append(integral)
        return [few]

    separation = Separation(
        source, at_fractional=False, at_integral=True, required=True
    )
    found = backend(name).solve(model, hooks=SolveHooks(separations=(separation,)))
    assert all(asked)
    assert found.status is MilpStatus.OPTIMAL
    assert found.value == pytest.approx(enumerated(model, lambda v: v.sum() <= 3))
    assert found.value < enumerated(model)
    assert found.cuts >= 1


@cutting
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_required_inequalities_agree_with_enumeration(name, seed):
    rng = np.random.default_rng(seed)
    model = knapsack().with_objective(rng.normal(size=6))
    rows = [
        Inequality(np.arange(6), rng.normal(size=6), rng.random() + 0.1)
        for _ in range(3)
    ]

    def obeys(v):
        return all(cut.violation(v) <= 1e-9 for cut in rows)

    separation = Separation(
        lambda point, integral: rows,
        at_fractional=bool(rng.integers(2)), at_integral=True, required=True,
    )  # fmt: skip
    found = backend(name).solve(
        model, SolveOptions(gap=0.0), SolveHooks(separations=(separation,))
    )
    assert found.value == pytest.approx(enumerated(model, obeys), abs=1e-6)


@cutting
def test_cuts_at_fractional_points_keep_the_optimum(name):
    """Presolve and heuristics may solve a model before any cut is asked for."""
    model = hard_model()
    best = backend("scip").solve(model, SolveOptions(node_limit=300))
    lp = backend("highs").solve(model.relaxed())
    halfway = 0.5 * (best.bound + lp.value)
    points = []

    def source(point, integral):
        points.append(point)
        assert not integral
        # The optimum obeys it: best.bound is proved.
        return [Inequality(np.arange(60), model.objective, halfway)]

    found = backend(name).solve(
        model,
        SolveOptions(node_limit=20),
        SolveHooks(separations=(Separation(source),)),
    )
    assert points
    assert all(model.relaxed().violation(point) <= 1e-6 for point in points)
    assert found.cuts >= 1
    assert best.value - 1e-6 <= found.bound <= halfway + 1e-6


@cutting
def test_cuts_stay_within_their_limit_most_violated_first(name):
    model = hard_model()
    lp = backend("highs").solve(model.relaxed())
    deep = Inequality(np.arange(60), model.objective, lp.value - 1.0)
    shallow = Inequality(np.arange(60), model.objective, lp.value - 0.5)
    found = backend(name).solve(
        model,
        SolveOptions(node_limit=1),
        SolveHooks(separations=(Separation(lambda v, i: [shallow, deep], limit=1),)),
    )
    assert found.cuts == 1
    # Only the deeper of the two explains so low a bound at the root.
    assert found.bound <= lp.value - 1.0 + 1e-6


@cutting
def test_a_separation_may_end_the_solve_when_it_is_used_up(name):
    model = hard_model()

    def source(point, integral):
        value = float(model.objective @ point)
        return [Inequality(np.arange(60), model.objective, value - 1e-3 * abs(value))]

    separation = Separation(source, limit=2, ends=True)
    found = backend(name).solve(model, hooks=SolveHooks(separations=(separation,)))
    assert found.status is MilpStatus.NODE_LIMIT
    assert found.cuts <= 2
    assert np.isfinite(found.bound)


@every
def test_without_presolve_the_optimum_is_the_same(name):
    found = backend(name).solve(knapsack(), SolveOptions(gap=0.0, presolve=False))
    assert found.status is MilpStatus.OPTIMAL
    assert found.value == pytest.approx(enumerated(knapsack()))


def test_a_limit_of_cuts_counts_those_that_the_solver_took():
    """SCIP drops most of many parallel cuts; those offered once used up the limit."""
    model, offered = hard_model(), []
    mean = np.abs(model.objective).mean()

    def source(point, integral):
        value = float(model.objective @ point)
        cuts = [  # as good as parallel: one of them is enough
            Inequality(np.arange(60), model.objective, value - mean * (k + 1) / 1e4)
            for k in range(10)
        ]
        offered.extend(cuts)
        return cuts

    found = backend("scip").solve(
        model, SolveOptions(node_limit=5),
        SolveHooks(separations=(Separation(source, limit=12),)),
    )  # fmt: skip
    assert 0 < found.cuts < len(offered)
    assert len(offered) > 20  # asked again although 20 were offered


@cutting
def test_inequalities_at_solutions_need_not_reject_them(name):
    model = knapsack()
    calls = []

    def source(point, integral):
        calls.append(integral)
        best = enumerated(model) - model.offset
        return [Inequality(np.arange(6), model.objective, best)]

    separation = Separation(source, at_fractional=False, at_integral=True)
    found = backend(name).solve(
        model, SolveOptions(gap=0.0), SolveHooks(separations=(separation,))
    )
    assert found.value == pytest.approx(enumerated(model))
    assert calls
    assert all(calls)


@cutting
def test_exceptions_in_cut_sources_reach_the_caller(name):
    def fail(point, integral):
        raise ZeroDivisionError("in a cut source")

    for at_integral in (False, True):
        separation = Separation(fail, not at_integral, at_integral)
        with pytest.raises(ZeroDivisionError, match="in a cut source"):
            backend(name).solve(
                hard_model(), hooks=SolveHooks(separations=(separation,))
            )


@cutting
def test_a_survey_returns_fractional_solutions_of_the_relaxation(name):
    model = hard_model()
    found = backend(name).solve(model, SolveOptions(survey=20))
    assert found.status is MilpStatus.NODE_LIMIT
    assert found.surveyed.shape == (20, 60)
    assert found.x is None  # no time goes into heuristics
    relaxed = model.relaxed()
    root = backend("highs").solve(relaxed).value
    for point in found.surveyed:
        assert relaxed.violation(point) <= 1e-6
        assert np.abs(point - np.round(point)).max() > 1e-6
        assert model.value(point) <= root + 1e-6


@pytest.mark.parametrize("name", WITHOUT_CUTS)
def test_what_a_solver_cannot_do_is_refused_with_a_remedy(name):
    solver, source = backend(name), Separation(lambda v, integral: [])
    with pytest.raises(CapabilityError, match=r"cuts.*'scip'"):
        solver.solve(knapsack(), hooks=SolveHooks(separations=(source,)))
    with pytest.raises(CapabilityError, match="survey"):
        solver.solve(knapsack(), SolveOptions(survey=10))


def test_models_beyond_the_size_limited_licence_are_refused_before_solving():
    gurobi = backend("gurobi")
    limit = gurobi.capabilities.size_limit
    large = LinearModel.of(np.zeros(2001), np.ones(2001), np.ones(2001))
    if np.isinf(limit):  # a full licence is in force
        assert gurobi.solve(large).value == pytest.approx(2001)
        return
    assert limit == 2000
    with pytest.raises(LicenceError, match=r"size-limited licence.*2001 columns"):
        gurobi.solve(large)
    fits = LinearModel.of(np.zeros(2000), np.ones(2000), np.ones(2000))
    assert gurobi.solve(fits).value == pytest.approx(2000)


@every
def test_a_tight_tolerance_loses_no_optimum(name):
    """A solver at a tolerance that it cannot keep once lost one of these."""
    ensemble, domain = oracles.random_case(np.random.default_rng(9))
    bounds = LpTightening().tighten(oracles.members(ensemble, domain))
    alone = Ensemble((ensemble.members[2],))
    scaled = normalized(oracles.members(alone, domain), bounds.member(2))
    made = sub_network(scaled.problem, 1, scaled.bounds)
    least, most = oracles.exact_ranges(alone, domain)[0][1]
    options = SolveOptions(gap=1e-6, tolerance=1e-9)
    for j, unit in enumerate(scaled.neurons[0][1]):
        form, constant = made.preactivation(0, 1, j)
        for sign, truth in ((1.0, most[j]), (-1.0, -least[j])):
            model = made.model.with_objective(sign * form, sign * constant)
            found = backend(name).solve(model, options)
            assert found.bound * unit == pytest.approx(truth, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "module", "verb"),
    [("scip", "pyscipopt", "optimizeNogil"), ("gurobi", "gurobipy", "optimize")],
)
def test_an_error_of_the_solver_is_a_failed_solve(name, module, verb, monkeypatch):
    """PySCIPOpt raises where a linear program beats it: that once ended the run."""
    package, words = importlib.import_module(module), "error in LP solver!"

    class Failing(package.Model):
        pass

    def fail(self, *arguments):
        if name == "gurobi":
            raise package.GurobiError(10005, words)
        raise Exception(words)

    setattr(Failing, verb, fail)
    backend(name).solve(knapsack())  # the licence is looked at with a sound solver
    monkeypatch.setattr(package, "Model", Failing)
    found = backend(name).solve(knapsack())
    assert found.status is MilpStatus.FAILED
    assert found.bound == np.inf
    assert words in found.message


@pytest.mark.parametrize("status", MilpStatus)
def test_nothing_hides_an_interruption(status):
    found = MilpResult(status, bound=-np.inf if "inf" in status.value else 3.0)
    assert found.heard(False) is found
    heard = found.heard(True)
    assert heard.status is MilpStatus.INTERRUPTED
    assert heard.bound == (3.0 if status.has_bound else np.inf)


@every
def test_ctrl_c_returns_the_best_so_far(name):
    code = f"""
        import numpy as np
        from ennopt.milp import backend
        from ennopt.milp.model import LinearModel
        from ennopt.milp.solver import SolveHooks
        rng = np.random.default_rng(5)
        model = LinearModel.of(
            np.full(60, -3.0), np.full(60, 3.0), rng.normal(size=60),
            rng.normal(size=(45, 60)), upper_rows=np.ones(45), integer=np.ones(60),
        )
        told = []
        def watch(moment):
            if moment.x is not None and not told:
                told.append(True)
                print("found", flush=True)
        result = backend({name!r}).solve(model, hooks=SolveHooks(progress=watch))
        print(result.status.value, result.value, result.bound, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE, text=True, env=os.environ.copy(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "found"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    status, value, bound = output.split()[-3:]
    assert process.returncode == 0
    assert status == "interrupted"
    assert np.isfinite(float(value))
    assert float(bound) >= float(value)
