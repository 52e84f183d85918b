"""Halving a box and solving its model: the same for every method that does it."""

import math
from dataclasses import replace

import numpy as np
import pytest

import oracles
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.milp.highs import Highs
from ennopt.milp.scip import Scip
from ennopt.milp.solver import MilpResult, MilpStatus
from ennopt.network import Ensemble, Network
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.halving import (
    NARROWEST,
    BoundedBox,
    Halving,
    OpenBoxes,
    best_first,
    middle,
    parts,
)
from ennopt.paper.lagrangian import LagrangianSearch
from ennopt.paper.solving import Trust, contradicted
from ennopt.paper.subproblems import Answer, ByMilp
from ennopt.paper.two_phase import TwoPhase
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from ennopt.tightening.relaxation import Crown, Interval

SCIP = ByMilp("scip")
METHODS = {
    "big-M": BigM("scip", (Crown(),)),
    "B&C": BranchAndCut(backend="scip", tightening=(Crown(),)),
    "Phase One": TwoPhase((Crown(),), phase_two=None, backend="scip"),
    "Phase Two": LagrangianSearch(members=SCIP, whole=SCIP),
    "reversion": LagrangianSearch(members=SCIP, whole=SCIP, revert=1.0),
}
every = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)

FAILED = MilpResult(MilpStatus.FAILED, message="out of order")
EMPTY = MilpResult(MilpStatus.INFEASIBLE, bound=-math.inf, message="nonsense")


LOW = MilpResult(MilpStatus.OPTIMAL, bound=-5.0, message="a lie")


def problem_of(seed, size=1.0):
    rng = np.random.default_rng(seed)
    ensemble = oracles.random_ensemble(rng, 2, 2, (5, 4)).fold_output(size, 0.0)
    return Problem(ensemble, oracles.random_domain(rng))


def break_solver(monkeypatch, wrong):
    """Let SCIP answer as `wrong` says, call by call; truly where that is ``None``."""
    right, calls = Scip.solve, []

    def solve(self, model, *arguments):
        calls.append(model)
        said = wrong(len(calls))
        return right(self, model, *arguments) if said is None else said

    monkeypatch.setattr(Scip, "solve", solve)
    return calls


def agrees(result, problem):
    optimum, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
    scale = Canonical.of(problem).scale
    assert result.status is Status.OPTIMAL
    assert result.bound >= optimum - 1e-9 * scale
    assert result.value == pytest.approx(optimum, rel=2e-4, abs=2e-4 * scale)


# Boxes.


@pytest.mark.parametrize("seed", range(5))
def test_halves_cover_their_box_and_meet_in_the_middle_of_its_widest_side(seed):
    rng = np.random.default_rng(seed)
    whole = oracles.random_domain(rng, 3)
    box = Domain(whole.lower, whole.upper - rng.random(3) * whole.widths)
    j, at = middle(box, whole)
    left, right = parts(box, j, at, whole)
    shares = box.widths / whole.widths
    assert shares[j] == shares.max()
    assert left.widths[j] == pytest.approx(0.5 * box.widths[j])
    assert left.upper[j] == right.lower[j] == at
    for x in box.sample(200, rng):
        assert left.contains(x) or right.contains(x)


def test_a_box_without_room_is_not_split():
    whole = Domain([0.0, 3.0], [1.0, 3.0])
    thin = Domain([0.0, 3.0], [0.5 * NARROWEST, 3.0])
    assert parts(thin, *middle(thin, whole), whole) == ()
    point = Domain([3.0], [3.0])
    assert parts(point, *middle(point, point), point) == ()
    # Two neighbouring numbers have no middle: halving would give the box again.
    pair = Domain([1.0], [np.nextafter(1.0, 2.0)])
    assert parts(pair, *middle(pair, pair), pair) == ()


def test_open_boxes_come_largest_bound_first_and_closed_ones_keep_theirs(rng):
    bounds = rng.permutation(20).astype(float)
    domain = Domain([0.0], [1.0])
    net = Network([[[1.0]]], [[0.0]])
    known = Interval().tighten(Canonical.sum_of([net], domain))
    boxes = OpenBoxes()
    assert boxes.bound() == -math.inf
    for bound in bounds:
        boxes.push(BoundedBox(domain, known, bound))
    closed = -math.inf
    for left in range(20, 0, -1):
        assert len(boxes) == left
        assert boxes.bound() == max(closed, bounds.max())
        box = boxes.pop()
        assert box.bound == bounds.max()
        bounds = bounds[bounds != box.bound]
        if left % 5 == 0:
            closed = max(closed, box.bound)
            boxes.close(box.bound)
    assert boxes.bound() == closed == 19.0


# What is believed.


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e9])
def test_a_bound_below_a_point_of_its_box_is_contradicted_in_any_unit(size):
    problem = problem_of(0, size)
    optimum, x = oracles.exact_maximum(problem.ensemble, problem.domain)
    left, right = parts(problem.domain, 0, float(x[0]) + 1e-6, problem.domain)
    with Tools().start(problem, "test") as run:
        assert not contradicted(run, problem.domain, optimum)
        assert contradicted(run, problem.domain, -math.inf)  # no box is empty
        run.offer(x)
        assert not contradicted(run, problem.domain, run.value)
        assert contradicted(run, problem.domain, run.value - 1e-3 * size)
        assert contradicted(run, left, run.value - 1e-3 * size)
        assert not contradicted(run, right, run.value - 1e-3 * size)  # x is elsewhere


def test_trust_counts_notes_once_and_ends_with_its_patience():
    problem = problem_of(0)
    with Tools().start(problem, "test") as run:
        trust = Trust(run, patience=3)
        for failures in (["a"], ["a", ""], ["a", "b"], ["b"]):
            trust.heard(failures)
        assert (trust.failures, trust.in_a_row) == (5, 2)
        assert not trust.gave_up() and run.ended() is None
        trust.heard(["a"])
        assert trust.gave_up() and run.ended() is Status.INTERRUPTED
        assert sum("not used" in note for note in run.notes) == 2


# Methods.


@every
@pytest.mark.parametrize("wrong", [FAILED, EMPTY, LOW], ids=lambda r: r.message)
@pytest.mark.parametrize("times", [1, 4])
def test_wrong_answers_cost_time_but_not_the_proof(method, wrong, times, monkeypatch):
    problem = problem_of(1)
    calls = break_solver(monkeypatch, lambda k: wrong if k <= times else None)
    result = method.solve(problem, Tools())
    assert len(calls) > times
    agrees(result, problem)
    assert any("not used" in note for note in result.notes)


@every
def test_a_lie_about_a_tiny_prediction_is_noticed(method, monkeypatch):
    """Bounds a millionth below a point were once believed, whatever the unit."""
    size = 1e-8
    problem = problem_of(1, size)
    calls = break_solver(monkeypatch, lambda k: LOW if k <= 2 else None)
    result = method.solve(problem, Tools())
    assert len(calls) > 2
    optimum, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
    assert result.bound >= optimum * (1 - 1e-6)
    assert result.value == pytest.approx(optimum, rel=2e-4)


@every
def test_a_box_of_two_neighbouring_numbers_ends(method, monkeypatch):
    """One of its halves is itself: a solver that fails once kept `BigM` for ever."""
    net = oracles.random_network(np.random.default_rng(3), 1, (4, 3))
    twin = Network(net.weights, (net.biases[0] + 0.1, *net.biases[1:]))
    problem = Problem(Ensemble([net, twin]), Domain([1.0], [np.nextafter(1.0, 2.0)]))
    break_solver(monkeypatch, lambda k: FAILED)
    result = method.solve(problem, Tools(Limits(gap=0.0, nodes=1000)))
    best = float(problem.values(np.array([[1.0], [np.nextafter(1.0, 2.0)]])).max())
    assert result.bound >= best


def test_big_m_proves_by_bounds_of_neurons_alone_where_no_model_is_solved(monkeypatch):
    # |x| on [-1, 1]: the halves are linear, and their middles lead to the corner.
    net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    problem = Problem(Ensemble([net]), Domain([-1.0], [1.0]))
    calls = break_solver(monkeypatch, lambda k: FAILED)
    result = BigM("scip", (Crown(),)).solve(problem, Tools(Limits(seconds=60)))
    agrees(result, problem)
    assert len(calls) < 50


def test_halves_that_are_closed_beforehand_are_not_solved():
    problem = problem_of(1)
    optimum, x = oracles.exact_maximum(problem.ensemble, problem.domain)
    bounds = Canonical.of(problem).root
    solved, boxes = [], OpenBoxes()
    with Tools().start(problem, "test") as run:
        run.offer(x)

        def solve(box):
            solved.append(box.domain)
            return Answer(None, math.inf, failure="out of order")

        def prepare(box):  # as if bounds on the half told the whole truth
            return replace(box, bound=optimum)

        halving = Halving(run, boxes, solve, Trust(run), prepare)
        boxes.push(BoundedBox(problem.domain, bounds, 1e3))
        assert best_first(run, boxes, halving.explore, halving.trust) is None
    assert run.ended() is Status.OPTIMAL
    assert len(solved) == halving.explored == 1


def test_a_linear_program_that_is_called_empty_proves_nothing(monkeypatch):
    """Every point of the box is feasible: once that ended in an error of ours."""
    problem = problem_of(2)
    right = Highs.solve

    def solve(self, model, *arguments):
        return EMPTY if not model.num_integer else right(self, model, *arguments)

    monkeypatch.setattr(Highs, "solve", solve)
    for method in (BranchAndCut(backend="highs"), BranchAndCut(backend="scip")):
        agrees(method.solve(problem, Tools()), problem)


def test_a_solver_that_errs_for_ever_ends_by_patience(monkeypatch):
    problem = problem_of(1)
    optimum, _ = oracles.exact_maximum(problem.ensemble, problem.domain)
    for name in ("B&C", "Phase One", "Phase Two"):
        with monkeypatch.context() as patch:
            calls = break_solver(patch, lambda k: FAILED)
            result = METHODS[name].solve(problem, Tools())
        assert result.status is Status.INTERRUPTED
        assert optimum <= result.bound < math.inf
        assert any("in a row" in note for note in result.notes)
        assert len(calls) < 200


def test_bounds_fall_and_the_history_ends_with_the_answer(monkeypatch):
    problem = problem_of(1)
    break_solver(monkeypatch, lambda k: LOW if k % 2 else None)
    for method in METHODS.values():
        result = method.solve(problem, Tools(Limits(nodes=300)))
        bounds = [event.bound for event in result.history]
        assert bounds == sorted(bounds, reverse=True)
        assert bounds[-1] == result.bound
