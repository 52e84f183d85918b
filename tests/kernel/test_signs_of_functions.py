"""Nodes of signs with limits and risks: programs, proofs, learned rows, hard cases."""

from fractions import Fraction

import numpy as np
import pytest
from signs import value_at
from ways import MODULE

from ennopt.canonical import Canonical
from ennopt.domain import Domain, NearRows
from ennopt.domain.convex import Ellipsoid
from ennopt.engine.duality import proved_by
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.nodes import Fate
from ennopt.engine.pool import (
    WEIGHTINGS,
    Pool,
    fixed_rows,
    half_space,
    missed_weightings,
    num_learned,
)
from ennopt.engine.program import FREE, HELD_OFF, HELD_ON, L, SignPrograms, U
from ennopt.engine.schemes import Signs, compiled_signs
from ennopt.network import Ensemble, Network
from ennopt.problem import Combination, Limit, Problem, Term
from ennopt.result import Limits, Status
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Worst
from ennopt.run import Tools
from oracles import random_domain, random_ensemble

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")
RISKS = (None, Worst(), Cvar(0.5), MeanMinusStd(0.7), MeanMinusMad(1.4))


def combination(rng, d, risk, members=3):
    ensemble = Ensemble(random_ensemble(rng, members, d, (4, 3)).members)
    inputs = rng.normal(size=d) * 0.3
    return Combination((Term(ensemble, 1.0, risk=risk),), inputs, 0.5)


def problem_of(rng, risk=None, limit=None, limited=True, d=3):
    """Maximize a risk of one ensemble where a risk of another is large enough."""
    domain = random_domain(rng, d)
    goal = combination(rng, d, risk)
    limits = ()
    if limited:
        function = combination(rng, d, limit, members=2)
        values = function.values(domain.sample(200, rng))
        limits = (Limit(function, float(np.quantile(values, 0.7))),)
    return Problem(goal.terms[0].ensemble, domain, "max", None, goal, limits)


def held(rng, problem, count):
    """Nodes on which some neurons are held, the root first; and their states."""
    rows = np.repeat(SignPrograms(problem, problem.root).root(), count, axis=0)
    d = problem.num_inputs + len(problem.weighting.groups)
    states = rows[:, 2:].view(np.uint8)[:, d : d + problem.num_neurons]
    chosen = rng.random(states.shape) < rng.random((count, 1)) * 0.6
    chosen[0] = False
    side = rng.choice([HELD_ON, HELD_OFF], size=states.shape)
    states[...] = np.where((states == FREE) & chosen, side, states)
    return rows, states.copy()


def neurons_at(problem, points):
    hidden = [h for n in problem.networks for h in n.preactivations(points)[:-1]]
    return np.concatenate(hidden, axis=1)


@pytest.mark.parametrize("risk", RISKS, ids=repr)
def test_no_feasible_point_beats_the_bound_of_its_node(risk):
    seen = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        problem = Canonical.of(problem_of(rng, risk, RISKS[seed % len(RISKS)]))
        points = problem.domain.sample(3000, rng)
        points = points[problem.feasible(points)]
        values, neurons = problem.values(points), neurons_at(problem, points)
        rows, states = held(rng, problem, 12)
        scheme = compiled_signs(problem, problem.root)
        reference = SignPrograms(problem, problem.root)
        # A second time with what was learned, and from the bases of the first.
        for _ in range(2):
            rows, _, _ = MODULE.bound_signs(scheme, rows, -np.inf)
        for own, row in zip(states >> 3 << 3, rows, strict=True):
            mine = np.all(neurons[:, own == HELD_ON] >= 0.0, axis=1)
            mine &= np.all(neurons[:, own == HELD_OFF] <= 0.0, axis=1)
            assert np.all(values[mine] <= row[0])
            seen += np.count_nonzero(mine)
        (found,), _ = reference.explore(reference.root(), -np.inf)
        assert np.all(values <= found.node[0])
    assert seen > 2000


def test_programs_with_limits_agree_with_highs():
    empty = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        problem = Canonical.of(problem_of(rng))
        rows, _ = held(rng, problem, 8)
        scheme = compiled_signs(problem, problem.root)
        reference = SignPrograms(problem, problem.root)
        size = problem.scale
        for row in rows:
            (mine,), _, _ = MODULE.bound_signs(scheme, row[None], -1e3 * size)
            other = row.copy()
            reference.bound(other, reference._states(other))
            if other[0] == -np.inf:
                assert mine[0] <= -1e3 * size
                empty += 1
            else:
                assert mine[0] == pytest.approx(other[0], abs=1e-7 * size)
    assert 5 < empty < 75


@pytest.mark.parametrize("risk", RISKS, ids=repr)
def test_any_multipliers_prove_a_bound_and_both_say_the_same(risk):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        problem = Canonical.of(problem_of(rng, risk))
        points = problem.domain.sample(500, rng)
        points = points[problem.feasible(points)]
        top = problem.values(points).max(initial=-np.inf)
        signs = compiled_signs(problem, problem.root)
        free = np.full(problem.num_neurons, U | L, dtype=np.uint8)
        count = problem.num_neurons + len(fixed_rows(problem))
        learned = [
            row
            for x in points[:4]
            for row, _, _ in missed_weightings(
                problem, problem.outputs(x[None])[0], np.zeros(1)
            )
        ]
        for scale in (0.0, 0.1, 1.0, 1e3):
            chosen = scale * rng.normal(size=count)
            for share, least in ((1.0, top), (0.0, 0.0 if len(points) else -np.inf)):
                mine = MODULE.proved_by(signs, free, chosen, share)
                theirs = proved_by(problem, problem.root, free, chosen, share)
                assert mine == pytest.approx(theirs, rel=1e-11, abs=1e-11)
                assert mine >= least
                more = np.append(chosen, scale * rng.normal(size=len(learned)))
                own = proved_by(problem, problem.root, free, more, share, learned)
                assert own >= least


def test_bounds_with_limits_are_proofs_in_exact_arithmetic():
    """Members and limits in fractions, without slack: the worst member of three."""
    near = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        stated = problem_of(rng, Worst(), d=2)
        problem = Canonical.of(stated)
        scheme = compiled_signs(problem, problem.root)
        rows, _ = held(rng, problem, 1)
        for _ in range(3):
            rows, _, reached = MODULE.bound_signs(scheme, rows, -np.inf)
        (limit,) = stated.limits
        edge = Fraction(float(problem.limits.least[0])) - Fraction(
            float(problem.slack[0])
        )
        for x in np.concatenate([problem.domain.sample(20, rng), reached]):
            point = [Fraction(float(v)) for v in x]
            if exact(limit.function, point, sum) / 2 < edge:  # the mean of two
                continue
            value = exact(stated.goal, point, min)
            assert Fraction(float(rows[0, 0])) >= value
            near += 1
    assert near > 50


def exact(function, point, joined):
    """A combination of one term in fractions; sums are of twice its linear part."""
    (term,) = function.terms
    each = [value_at(Ensemble((m,)), point) for m in term.ensemble.members]
    line = Fraction(function.constant) + sum(
        Fraction(float(a)) * v for a, v in zip(function.inputs, point, strict=True)
    )
    return joined(each) + (line if joined is min else len(each) * line)


def test_weightings_that_are_learned_are_met_by_their_risk():
    rng = np.random.default_rng(2)
    for risk in RISKS[1:]:
        problem = Canonical.of(problem_of(rng, risk, limited=False))
        points = problem.domain.sample(50, rng)
        outputs, values = problem.outputs(points), problem.values(points)
        fixed = outputs @ problem.weighting.weights
        for y in outputs[:10]:
            for row, _, _ in missed_weightings(problem, y, np.zeros(1)):
                assert np.all(outputs @ row.shares - (values - fixed) >= row.side)


def test_a_full_pool_makes_room():
    pool, problem = Pool(3), Canonical.of(problem_of(np.random.default_rng(0)))
    rows = [half_space(problem, np.eye(3)[k % 3], float(k)) for k in range(5)]
    assert all(pool.learn(row) for row in rows)
    assert pool.rows == rows[2:]
    assert not pool.learn(half_space(problem, np.eye(3)[1], 4.0))
    assert num_learned(problem) == 0
    scheme = Canonical.of(problem_of(np.random.default_rng(0), Worst()))
    assert num_learned(scheme) == WEIGHTINGS
    tree = Signs(scheme.root).open(scheme, 1e-4)
    tree.plant()
    far = np.full((300, 1), -1e3) - np.arange(300)[:, None]
    tree.narrow(np.ones((300, 3)), far[:, 0])  # more than there is room for
    tree.explore(2000, np.inf, np.inf, dive=1, threads=1)
    assert tree.open == 0


def member(weights, biases):
    return Network(
        [np.asarray(w, dtype=float) for w in weights],
        [np.asarray(b, dtype=float) for b in biases],
    )


ABSOLUTE = member([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
CONSTANT = member([[[0.0]], [[0.0]]], [[-1.0], [2.0]])


def solve(ensemble, domain, risk=None, limits=()):
    d = domain.num_inputs
    goal = Combination((Term(ensemble, 1.0, risk=risk),), np.zeros(d), 0.0)
    problem = Problem(ensemble, domain, "max", None, goal, limits)
    return NeuronSearch().solve(problem, Tools(Limits(nodes=2000)))


@pytest.mark.parametrize("risk", [*RISKS[1:], Cvar(1.0), MeanMinusStd(0.0)], ids=repr)
def test_degenerate_risks_end(risk):
    line = Domain([-2.0], [1.0])
    one = solve(Ensemble((ABSOLUTE,)), line, risk)  # one member: no risk at all
    assert (one.status, one.value) == (Status.OPTIMAL, 2.0)
    same = solve(Ensemble((ABSOLUTE,) * 3), line, risk)
    assert same.status is Status.OPTIMAL
    assert same.value == pytest.approx(2.0)
    flat = solve(Ensemble((CONSTANT,) * 2), line, risk)
    assert flat.status is Status.OPTIMAL
    assert flat.value == pytest.approx(2.0)
    point = solve(Ensemble((ABSOLUTE, CONSTANT)), Domain([0.5], [0.5]), risk)
    assert point.status is Status.OPTIMAL
    assert point.x.tolist() == [0.5]


def limit_of(network, least):
    one = Ensemble((network,))
    return Limit(Combination((Term(one, 1.0),), np.zeros(1), 0.0), least)


@pytest.mark.parametrize(("least", "value"), [(1.0, 2.0), (2.0, 2.0), (2.1, None)])
def test_limits_that_one_point_or_none_meets(least, value):
    """|x| >= least on [-2, 1]: the left end alone meets 2."""
    result = solve(
        Ensemble((ABSOLUTE,)),
        Domain([-2.0], [1.0]),
        limits=(limit_of(ABSOLUTE, least),),
    )
    if value is None:
        assert result.status is Status.INFEASIBLE
    else:
        assert result.status is Status.OPTIMAL
        assert result.value == pytest.approx(value)


def test_limits_on_constants_hold_or_do_not():
    for least, status in ((2.0, Status.OPTIMAL), (2.5, Status.INFEASIBLE)):
        found = solve(
            Ensemble((ABSOLUTE,)), Domain([-2.0], [1.0]),
            limits=(limit_of(CONSTANT, least),),
        )  # fmt: skip
        assert found.status is status


@pytest.mark.parametrize("plain", [False, True])
def test_children_of_points_far_from_data_cover_what_is_near(plain):
    """Each float64 of the parent that is near data is in one of the children."""
    rng = np.random.default_rng(4)
    data = rng.uniform(-1.0, 1.0, size=(6, 2))
    near = NearRows.rows(data, [0.15, 0.2])
    domain = Domain([-1.0] * 2, [1.0] * 2, regions=(near,))
    ensemble = random_ensemble(rng, 2, 2, (5,))
    problem = Canonical.of(Problem(ensemble, domain))
    tree = Signs(problem.root).open(problem, 1e-9, plain=plain)
    tree.plant()
    tree.explore(1, np.inf, np.inf, dive=1, threads=1)
    children = tree.take(tree.open)
    assert len(children) == 2
    lower, upper = children[:, 2:4], children[:, 4:6]
    corners = np.concatenate([near.lower, near.upper, domain.sample(500, rng)])
    for x in corners[domain.feasible(corners)]:
        assert np.any(np.all((lower <= x) & (x <= upper), axis=1))


def test_a_node_waits_for_half_spaces_and_then_ends():
    """A linear objective on an ellipsoid: no neuron to branch on, rows to learn."""
    line = member([[[1.0, 2.0]]], [[0.0]])
    circle = Ellipsoid([0.0, 0.0], np.eye(2), 1.0)
    domain = Domain([-2.0] * 2, [2.0] * 2, convex=(circle,))
    result = solve(Ensemble((line,)), domain)
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(5.0**0.5, rel=1e-4)
    problem = Canonical.of(Problem(Ensemble((line,)), domain))
    scheme = compiled_signs(problem, problem.root)
    rows, told, _ = MODULE.bound_signs(
        scheme, held(np.random.default_rng(0), problem, 1)[0], 0.0
    )
    assert told[0, 0] == Fate.AGAIN
    assert rows[0, 1] == 2.0  # it waited once


def test_threads_share_a_pool():
    problem = Canonical.of(problem_of(np.random.default_rng(1), MeanMinusStd(1.0), d=5))
    bounds, values = [], []
    for threads in (1, 4):
        tree = Signs(problem.root).open(problem, 1e-5)
        tree.plant()
        for _ in range(200):
            tree.explore(100, np.inf, np.inf, dive=1, threads=threads)
            if not tree.open:
                break
        assert tree.open == 0
        bounds.append(tree.bound)
        values.append(tree.value)
    top = problem.domain.sample(2000, np.random.default_rng(0))
    top = problem.values(top[problem.feasible(top)]).max()
    assert all(bound >= max(top, *values) for bound in bounds)
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-3 * problem.spread)


def test_a_search_with_risks_goes_on_with_an_empty_pool():
    """What was learned is not kept with the nodes; bytes that tell of it do no harm."""
    problem = Canonical.of(
        problem_of(np.random.default_rng(3), Cvar(0.5), Worst(), d=5)
    )
    whole = Signs(problem.root).open(problem, 1e-5)
    whole.plant()
    first = Signs(problem.root).open(problem, 1e-5)
    first.plant()
    first.explore(4, np.inf, np.inf, dive=1, threads=1)
    assert first.open
    second = Signs(problem.root).open(problem, 1e-5)
    for x in first.points():
        second.offer(x)
    second.close(first.closed)
    second.add(first.take(first.open))
    for tree in (whole, second):
        tree.explore(20_000, np.inf, np.inf, dive=1, threads=1)
        assert tree.open == 0
    assert second.bound >= max(whole.value, second.value)
    assert second.bound == pytest.approx(whole.bound, abs=1e-3 * problem.spread)
