"""Limits on predictions and risks, mixed with feasible sets, against a MILP solver.

The oracle is HiGHS on a model of its own: every member by `add_predictor_constr`, risks
by their epigraphs. It does not know standard deviations, lists and regions around data:
on every fourth problem, which may have them, the methods are compared with each other.
``make conformance`` runs a thousand problems.
"""

import math
import os

import highspy
import numpy as np
import pytest
from answers import METHODS, agreed, answers, methods_for

import ennopt
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.embed import add_predictor_constr
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.schemes import Signs
from ennopt.network import Ensemble
from ennopt.problem import Combination, Limit, Problem, Term
from ennopt.result import Status
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Worst
from oracles import KINDS, random_ensemble, random_set, rounded

COUNT = int(os.environ.get("ENNOPT_CONFORMANCE", "16"))
GAP = 1e-4
LINEAR = (
    None, Worst(), Cvar(0.5), Cvar(0.9), MeanMinusMad(0.4), MeanMinusMad(0.7, mean=0.0)
)  # fmt: skip
EVERY = (None, Worst(), Cvar(0.5), MeanMinusMad(0.4), MeanMinusStd(0.7))


def random_function(rng, domain, risks=LINEAR):
    """One or two predictions, with a linear term as often as not."""
    d = domain.num_inputs
    terms = []
    for _ in range(int(rng.integers(1, 3))):
        members = int(rng.integers(1, 4))
        ensemble = random_ensemble(rng, members, d, (int(rng.integers(2, 4)),))
        ensemble = Ensemble(ensemble.members)  # equal weights
        risk = risks[int(rng.integers(len(risks)))]
        terms.append(Term(ensemble, float(rng.choice([1.0, -0.5, 2.0])), risk=risk))
    inputs = rng.normal(size=d) * (rng.random() < 0.5)
    return Combination(tuple(terms), inputs, float(rng.normal()))


def problem_of(seed):
    rng = np.random.default_rng(seed)
    known = ("rows", "equation", "whole", "group")
    every, risks = seed % 4 == 2, EVERY if seed % 4 == 2 else LINEAR
    kinds = [k for k in (KINDS if every else known) if rng.random() < 0.25]
    domain, _ = random_set(rng, kinds)
    if every and rng.random() < 0.3:
        domain = rounded(rng, domain)
    goal = random_function(rng, domain, risks)
    points = domain.sample(64, rng)
    limits = []
    for _ in range(int(rng.integers(0, 3))):
        function = random_function(rng, domain, risks)
        least = 1.0
        if len(points):
            least = float(np.quantile(function.values(points), rng.uniform(0.3, 1.0)))
            least += 0.3 * (rng.random() < 0.15)  # some cannot be met
        limits.append(Limit(function, least))
    sense = "max" if rng.random() < 0.7 else "min"
    return Problem(goal.terms[0].ensemble, domain, sense, None, goal, tuple(limits))


class Oracle:
    """The same problem in a model of HiGHS."""

    def __init__(self, problem):
        self.model = highspy.Highs()
        self.model.setOptionValue("output_flag", False)
        self.model.setOptionValue("mip_rel_gap", 1e-7)
        self.model.setOptionValue("primal_feasibility_tolerance", 1e-8)
        domain = problem.domain
        kinds = highspy.HighsVarType
        self.x = [
            self.model.addVariable(
                lb=low, ub=high, type=kinds.kInteger if whole else kinds.kContinuous
            )
            for low, high, whole in zip(
                domain.lower, domain.upper, domain.values.whole, strict=True
            )
        ]
        rows = domain.linear
        for slopes, low, high in zip(rows.matrix, rows.least, rows.most, strict=True):
            total = sum(float(a) * v for a, v in zip(slopes, self.x, strict=True))
            if math.isfinite(low):
                self.model.addConstr(total >= float(low))
            if math.isfinite(high):
                self.model.addConstr(total <= float(high))
        for limit in problem.limits:
            self.model.addConstr(self.function(limit.function) >= limit.least)
        sign = 1.0 if problem.sense == "max" else -1.0
        goal = problem.goal if sign > 0 else problem.goal.negated()
        self.goal = self.free()
        self.model.addConstr(self.goal <= self.function(goal))
        self.model.maximize(1.0 * self.goal)
        status = self.model.getModelStatus()
        self.best = None
        if status == highspy.HighsModelStatus.kOptimal:
            self.best = sign * self.model.getInfo().objective_function_value
        else:
            assert status == highspy.HighsModelStatus.kInfeasible

    def free(self, low=-math.inf):
        return self.model.addVariable(lb=low, ub=math.inf)

    def function(self, function):
        total = function.constant
        for a, v in zip(function.inputs, self.x, strict=True):
            total = total + float(a) * v
        for term in function.terms:
            total = total + self.term(term)
        return total

    def term(self, term):
        ensemble = term.ensemble
        share = term.factor * len(ensemble.members) * float(ensemble.weights[0])
        each = []
        for member in ensemble.members:
            added = add_predictor_constr(self.model, member, self.x, bounds="crown")
            each.append(share * added.output[0, 0])
        count = len(each)
        mean = sum(each) * (1.0 / count)
        if term.risk is None:
            return mean
        if isinstance(term.risk, MeanMinusMad):
            off = []
            for one in each:
                a = self.free(0.0)
                self.model.addConstr(a >= one - mean)
                self.model.addConstr(a >= mean - one)
                off.append(a)
            return term.risk.mean * mean - sum(off) * (term.risk.kappa / count)
        # CVaR, the worst member for a small share: t - sum max(t - y, 0) / (share n)
        share = term.risk.share if isinstance(term.risk, Cvar) else 1.0 / count
        share = max(share, 1.0 / count)
        t, below = self.free(), []
        for one in each:
            s = self.free(0.0)
            self.model.addConstr(s >= t - one)
            below.append(s)
        return t - sum(below) * (1.0 / (share * count))


def modelled(problem):
    """Whether the oracle can state a problem."""
    domain = problem.domain
    risks = [t.own_risk for f in problem.functions() for t in f.terms]
    plain = all(listed is None for listed in domain.values.lists)
    return (
        plain
        and not (domain.regions or domain.convex)
        and not any(isinstance(risk, MeanMinusStd) for risk in risks)
    )


def check(problem, methods=METHODS):
    """All methods and the oracle agree; returns the status."""
    results = answers(problem, GAP, methods, nodes=20_000)
    status = agreed(problem, results, room=1e-6)  # what solvers miss their rows by
    for name, result in results.items():
        if result.x is not None:
            assert problem.domain.contains(result.x), name
            missed = [limit.least - 1e-7 for limit in problem.limits]
            assert np.all(problem.limit_values(result.x)[0] >= missed), name
    if not modelled(problem):
        assert status in (Status.OPTIMAL, Status.INFEASIBLE)
        return status
    best = Oracle(problem).best
    if best is None:
        assert status is Status.INFEASIBLE
        return status
    assert status is Status.OPTIMAL
    room = 1e-6 * max(1.0, abs(best))
    sign = 1.0 if problem.sense == "max" else -1.0
    for name, result in results.items():
        assert sign * (result.bound - best) >= -room, name
        assert sign * (best - result.value) >= -10 * room, name
        assert sign * (best - result.value) <= 2 * GAP * max(1.0, abs(best)), name
    return status


@pytest.mark.parametrize("part", range(8))
def test_random_mixes_of_limits_risks_and_sets_agree_with_a_solver(part):
    statuses = [
        check(problem_of(seed), methods_for(seed)) for seed in range(part, COUNT, 8)
    ]
    assert Status.OPTIMAL in statuses


def test_a_limit_that_one_point_meets_exactly_is_not_called_infeasible():
    """The slack of a limit with a risk was negative: no point at its edge counted."""
    problem = problem_of(191)
    assert np.all(Canonical.of(problem).slack > 0.0)
    assert check(problem) is Status.OPTIMAL


def test_boxes_of_one_point_outside_of_a_hull_do_not_leave_a_problem_undecided():
    assert check(problem_of(154)) is Status.OPTIMAL


@pytest.mark.parametrize("seed", [0, 3, 7, 11])
def test_programs_by_highs_prove_what_the_kernel_proves(seed):
    """Without the extension they are what answers."""
    problem = problem_of(seed)
    (known,) = answers(problem, GAP, {"boxes": BoxSearch()}).values()
    canonical = Canonical.of(problem)
    tree = Signs(canonical.root).open(canonical, GAP, plain=True)
    tree.plant()
    if known.x is not None:
        tree.offer(known.x)
    tree.explore(1000, math.inf, math.inf, dive=1, threads=1)
    assert not tree.open
    if known.x is None:
        assert tree.bound == -math.inf
        return
    best = canonical.values(known.x)[0]
    assert best - 1e-9 <= tree.bound <= best + 2 * GAP * max(1.0, abs(best))


@pytest.mark.parametrize("method", ["box", "neurons", "bigm"])
@pytest.mark.parametrize("sense", ["max", "min"])
def test_a_prediction_is_proved_to_be_best_at_its_own_limit(sense, method):
    """All of a level set is the optimum: boxes alone would have to cover it."""
    rng = np.random.default_rng(4)
    ensemble = Ensemble(random_ensemble(rng, 2, 6, (16,)).members)
    level = float(np.median(ensemble(rng.uniform(-1, 1, (500, 6)))))
    yields = ennopt.Prediction(ensemble, name="yields")
    best, limit, sign = {
        "max": (ennopt.maximize, 3 * yields <= 3 * level, 1.0),
        "min": (ennopt.minimize, f"2*yields >= yields + {level!r}", -1.0),
    }[sense]
    result = best(yields, (-1, 1), limits=limit, method=method, node_limit=500)
    assert result.status is Status.OPTIMAL
    assert result.nodes <= 1
    assert 0.0 <= sign * (result.bound - level) <= 1e-6
    assert abs(result.value - level) <= 1e-4 * max(1.0, abs(level))


def test_the_mean_is_proved_to_be_best_at_the_limits_of_its_parts():
    rng = np.random.default_rng(5)
    one, two = (
        ennopt.Prediction(random_ensemble(rng, 1, 4, (12,)), name=name)
        for name in ("one", "two")
    )
    points = rng.uniform(-1, 1, (500, 4))
    middle = points[np.argmin(np.abs(points).max(axis=1))]
    least = [float(each.ensemble(middle)[0]) for each in (one, two)]
    result = ennopt.minimize(
        2 * one + two, (-1, 1), start=middle,
        limits=[one >= least[0], two >= least[1]], node_limit=500,
    )  # fmt: skip
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(2 * least[0] + least[1], rel=1e-3)
    assert result.nodes <= 1


@pytest.mark.parametrize("seed", range(40))
def test_no_feasible_point_is_above_the_ceiling(seed):
    """Limits are multiples of what is optimized, of a part of it, or something else."""
    rng = np.random.default_rng(seed)
    parts = [random_ensemble(rng, m, 2, (int(rng.integers(2, 6)),)) for m in (1, 2, 3)]
    parts = [Ensemble(part.members) for part in parts]  # equal weights

    def function():
        risks = (None, None, Worst(), Cvar(0.5), MeanMinusStd(0.7))
        terms = [
            Term(
                part,
                float(rng.choice([-2.0, -1.0, 0.5, 1.0, 3.0])),
                risk=risks[rng.integers(len(risks))] if len(part.members) > 1 else None,
            )
            for part in parts
            if rng.random() < 0.7
        ] or [Term(parts[0], -1.0)]
        slopes = rng.normal(size=2) * (rng.random() < 0.4)
        return Combination(tuple(terms), slopes, 0.0)

    goal, others = function(), [function() for _ in range(rng.integers(1, 4))]
    place = GRID[rng.integers(len(GRID))][None]  # where all of them hold
    limits = [Limit(other, float(other.values(place)[0])) for other in others]
    domain = Domain([-1.0, -1.0], [1.0, 1.0])
    problem = Problem(parts[0], domain, "max", None, goal, tuple(limits))
    canonical = Canonical.of(problem)
    inside = canonical.feasible(GRID)
    assert inside.any()
    most = canonical.values(GRID[inside]).max()
    ceiling = canonical.ceiling(canonical.root)
    assert most <= ceiling <= canonical.range(canonical.root)[1]


GRID = np.stack(np.meshgrid(*[np.linspace(-1, 1, 201)] * 2), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("kappa", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("seed", range(2))
def test_mean_less_deviations_agrees_with_a_dense_grid(kappa, seed):
    from ennopt import maximize

    rng = np.random.default_rng(seed)
    ensemble = Ensemble(random_ensemble(rng, 3, 2, (5, 4)).members)
    members = np.stack([member(GRID)[:, 0] for member in ensemble.members], axis=1)
    for risk, off in (
        (MeanMinusStd(kappa), members.std(axis=1)),
        (MeanMinusMad(kappa), np.abs(members - members.mean(1)[:, None]).mean(axis=1)),
    ):
        best = (members.mean(axis=1) - kappa * off).max()
        for method in ("box", "neurons"):
            result = maximize(ensemble, (-1, 1), risk=risk, method=method)
            assert result.status is Status.OPTIMAL
            assert result.bound >= best
            assert result.value >= best - 1e-3 * max(1.0, abs(best))


def test_risks_that_are_the_mean_are_solved_as_the_mean():
    from ennopt import maximize

    rng = np.random.default_rng(3)
    ensemble = Ensemble(random_ensemble(rng, 3, 2, (5, 4)).members)
    mean = maximize(ensemble, (-1, 1))
    for risk in (Cvar(1.0), MeanMinusStd(0.0), MeanMinusMad(0.0)):
        result = maximize(ensemble, (-1, 1), risk=risk)
        assert (result.value, result.nodes) == (mean.value, mean.nodes)
    worst = maximize(ensemble, (-1, 1), risk="worst")
    assert maximize(ensemble, (-1, 1), risk=Cvar(0.2)).value == pytest.approx(
        worst.value, abs=1e-3
    )
    assert worst.value == min(m(worst.x)[0] for m in ensemble.members)
