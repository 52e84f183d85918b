"""Functions of the outputs in the kernel: as in NumPy, and true on a dense grid."""

import numpy as np
import pytest
from test_conformance import TOLERANCE, compare, largest, settings_of
from ways import MODULE, SETS, boxes_in, fresh

from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import compile_model
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import Fate, NodeModel, Nodes, NodeSettings
from ennopt.engine.schemes import Boxes
from ennopt.engine.tree import PlainTree
from ennopt.network import Ensemble, Network
from ennopt.problem import Combination, Limit, Problem, Term
from ennopt.result import Limits, Status
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Worst
from ennopt.run import Tools
from oracles import random_domain, random_ensemble

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")

RISKS = {
    "worst": Worst(),
    "cvar": Cvar(0.5),
    "std": MeanMinusStd(0.4),
    "far std": MeanMinusStd(1.5),
    "mad": MeanMinusMad(0.5),
    "far mad": MeanMinusMad(2.0),
}


def cost(inputs):
    """A linear objective without networks."""
    return Combination((), np.linspace(-1.0, -0.3, inputs))


def reached(function, domain, rng, share):
    """What a function exceeds on such a share of the points of a domain."""
    return float(np.quantile(function.values(domain.sample(400, rng)), 1.0 - share))


def limited(kind, rng, inputs, widths, domain):
    """A problem that is no plain sum: with a limit, a risk, or both."""
    one = random_ensemble(rng, 3, inputs, widths)
    two = random_ensemble(rng, 2, inputs, (6,))
    zero = np.zeros(inputs)
    goal, bounds = Combination((Term(one),), zero), [Combination((Term(two),), zero)]
    if kind in RISKS:
        goal, bounds = Combination((Term(one, risk=RISKS[kind]),), zero), []
    elif kind == "cost":
        goal, bounds = cost(inputs), [goal]
    elif kind == "two limits":
        bounds.append(Combination((Term(one, 1.0, risk=Cvar(0.6)),), zero))
    elif kind == "uncertain":
        bounds = [Combination((Term(one, risk=MeanMinusStd(1.0, mean=0.0)),), zero)]
    elif kind == "worst of both":
        goal = Combination((Term(one, risk=Worst()),), zero)
        bounds = [Combination((Term(two, risk=Worst()),), zero)]
    elif kind == "infeasible":
        bounds = [Combination((Term(two),), zero)]
    limits = tuple(
        Limit(function, reached(function, domain, rng, 0.3)) for function in bounds
    )
    if kind == "infeasible":
        limits = (Limit(bounds[0], limits[0].least + 100.0),)
    return Problem(one, domain, "max", None, goal, limits)


KINDS = [*RISKS, "limit", "cost", "two limits", "uncertain", "worst of both"]


def rows_agree(found, wanted, old, level, slack=1e-9):
    """Limits for the children; of two that are equally high rounding chooses one."""
    alive = wanted.bound > level
    box = wanted.lower[alive], wanted.upper[alive]
    for j in range(wanted.limits.shape[1]):
        mine, spec, was = (n.limits[alive, j] for n in (found, wanted, old))
        np.testing.assert_allclose(
            largest(mine, *box), largest(spec, *box), rtol=1e-7, atol=slack
        )
        same = np.isclose(mine, spec, rtol=1e-7, atol=slack)
        kept = np.isclose(mine, was, 1e-7, slack) | np.isclose(spec, was, 1e-7, slack)
        assert np.all(same | kept)


def steady(model, rows, cutoff, rng):
    """Nodes whose bound and scores do not hang on the last digits of their numbers.

    Where two members are equally bad at the best point, rounding chooses weights.
    """
    found = []
    for share in (0.0, 1e-15):
        nodes = Nodes.unpacked(rows, model)
        for field in ("lower", "cut", "limits"):
            old = getattr(nodes, field)
            setattr(nodes, field, old * (1.0 + share * rng.normal(size=old.shape)))
        out = bound_nodes(model, NodeSettings(), nodes, cutoff)
        told = nodes.bound, out.fate, out.scores, nodes.constant, nodes.cut, out.points
        found.append(np.column_stack(told))
    return np.all(np.isclose(*found, rtol=1e-9, atol=1e-10), axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_kernel_equals_specification_on_functions(kind, rng):
    compared = 0
    for number, (inputs, widths) in enumerate([(2, (5, 4)), (4, (7,))]):
        domain = random_domain(rng, inputs)
        problem = Canonical.of(limited(kind, rng, inputs, widths, domain))
        model, compiled = NodeModel(problem), compile_model(problem)
        points = domain.sample(200, rng)
        level = float(np.quantile(problem.values(points), 0.9))
        lower, upper = boxes_in(domain, 8, rng)
        rows = fresh(model, lower, upper).packed()
        for generation in range(3):
            if generation == 2:  # weights of risks at a good point
                best = points[np.argmax(problem.values(points))]
                model.guide(best[None])
                compiled.guide(best)
            cutoff = -np.inf if generation == 0 else level
            rows = rows[steady(model, rows, cutoff, rng)]
            name = SETS[(number + generation) % len(SETS)]
            found, wanted = compare(
                (model, compiled), NodeSettings(), name, rows, cutoff, TOLERANCE, False
            )
            rows_agree(found, wanted, Nodes.unpacked(rows, model), cutoff)
            compared += len(rows)
            rows = wanted.packed()
    assert compared > 30


@pytest.mark.parametrize("kind", KINDS)
def test_kernel_and_canonical_problem_agree_on_values(kind, rng):
    domain = random_domain(rng, 3)
    problem = Canonical.of(limited(kind, rng, 3, (5, 4), domain))
    compiled, points = compile_model(problem), domain.sample(50, rng)
    found = [compiled.evaluate(x) for x in points]
    np.testing.assert_allclose(found, problem.values(points), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", RISKS)
def test_weights_stay_in_their_set_where_members_agree_up_to_rounding(kind):
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-9, 1e-16, 1e-200, 0.0):
        for level in (0.7, 0.0):
            y = level + size * rng.normal(size=(50, 5))
            weights = RISKS[kind].respond(y)
            np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-13)
            away = np.linalg.norm(weights - 0.2, axis=1) * np.sqrt(5.0)
            if kind.endswith("std"):
                assert np.all(away <= RISKS[kind].kappa * (1.0 + 1e-12))


def test_a_search_ends_where_all_members_agree():
    slopes = np.array([[1.0, 0.3], [-0.4, 1.0], [-0.8, -0.9]])
    members = [
        Network((row[None], np.ones((1, 1))), (np.full(1, 9.1), np.full(1, -9.0)))
        for row in slopes
    ]
    ensemble, domain = Ensemble(members), Domain([-0.7, -0.9], [0.8, 0.6])
    goal = Combination((Term(ensemble, risk=MeanMinusStd(5.0)),), np.zeros(2))
    problem = Problem(ensemble, domain, "max", None, goal, ())
    result = BoxSearch().solve(problem, Tools(Limits(nodes=20_000)))
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(0.1, abs=1e-5)  # all members agree at zero


@pytest.mark.parametrize("kind", [*KINDS, "infeasible"])
def test_search_with_functions_agrees_with_a_dense_grid(kind):
    rng = np.random.default_rng(KINDS.index(kind) if kind in KINDS else 99)
    domain = Domain([-1.0, -1.0], [1.0, 1.0])
    problem = limited(kind, rng, 2, (6, 5), domain)
    assert not isinstance(Boxes().open(Canonical.of(problem), 1e-4), PlainTree)
    result = BoxSearch().solve(problem, Tools(Limits(nodes=20_000)))
    side = np.linspace(-1.0, 1.0, 201)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    feasible = np.ones(len(grid), dtype=bool)
    for limit in problem.limits:
        feasible &= limit.function.values(grid) >= limit.least
    if kind == "infeasible":
        assert not feasible.any()
        assert result.status is Status.INFEASIBLE
        return
    best = float(problem.values(grid[feasible]).max())
    assert result.status is Status.OPTIMAL
    assert result.bound >= best - 1e-9
    assert result.value <= result.bound
    assert result.value >= best - 1e-4 * max(1.0, abs(best))
    assert Canonical.of(problem).contains(result.x)


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_and_limit_rows_hold_at_points_that_count(kind):
    """At every sampled point that meets the limits and beats the cutoff.

    Of equally good weights rounding chooses some, so kernel and specification may
    differ; what both must be is true.
    """
    checked = 0
    for seed, (inputs, widths) in enumerate([(2, (5, 4)), (4, (7,)), (3, (5, 4, 4))]):
        rng = np.random.default_rng(seed)
        domain = random_domain(rng, inputs)
        problem = Canonical.of(limited(kind, rng, inputs, widths, domain))
        model, compiled = NodeModel(problem), compile_model(problem)
        points = domain.sample(1500, rng)
        outputs = problem.outputs(points)
        values = problem.weighting.values(outputs)
        over = problem.limits.values(outputs) - problem.limits.least
        level = float(np.quantile(values, 0.9))
        rows = fresh(model, *boxes_in(domain, 9, rng)).packed()
        for generation in range(4):
            if generation == 2:
                compiled.guide(points[np.argmax(values)])
            cutoff = -np.inf if generation == 0 else level
            before, name = Nodes.unpacked(rows, model), SETS[generation % len(SETS)]
            found, told, *_ = MODULE.bound_boxes(
                compiled, settings_of(NodeSettings()), rows, cutoff, name
            )
            after, closed = Nodes.unpacked(found, model), told[:, 0] == Fate.CLOSED
            counts = np.all(over >= 0.0, axis=1) & (values > cutoff)
            for i in range(len(rows)):
                inside = np.all(
                    (points >= before.lower[i]) & (points <= before.upper[i]), axis=1
                )
                mine = points[inside & counts]
                checked += len(mine)
                if not len(mine):
                    continue
                assert not closed[i]
                assert np.all(values[inside & counts] <= after.bound[i])
                assert np.all((mine >= after.lower[i]) & (mine <= after.upper[i]))
                for j, row in enumerate(after.limits[i]):
                    above = row[0] + mine @ row[1:] + 1e-12
                    assert np.all(above >= over[inside & counts, j])
            rows = found[~closed]
            if not len(rows):
                break
    assert checked > 500
