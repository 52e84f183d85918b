"""Nodes of signs on other sets than boxes: programs, proofs, empty sets, branching."""

from fractions import Fraction

import numpy as np
import pytest
from signs import Case, agree, value_at
from ways import MODULE, SETS

from ennopt.domain import Domain, Rows, Values
from ennopt.engine.duality import proved_by
from ennopt.engine.nodes import Fate
from ennopt.engine.program import L, U
from ennopt.engine.schemes import Signs, compiled_signs
from ennopt.network import Ensemble, Network
from oracles import canonical, exactly_feasible, random_domain, random_ensemble

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")


def random_rows(rng, box, count, missed=0.0):
    """Equations and inequalities in all units that a point of the box meets.

    Or that all points miss by so many widths.
    """
    matrix = rng.normal(size=(count, box.num_inputs))
    matrix *= 10.0 ** rng.integers(-3, 4, size=(count, 1))
    least = matrix @ box.sample(1, rng)[0] + missed * np.abs(matrix) @ box.widths
    most = np.where(rng.random(count) < 0.4, least, np.inf)
    return Rows(matrix, least, most)


def random_set(rng, inputs, missed=0.0):
    """A box with linear constraints."""
    box = random_domain(rng, inputs)
    rows = random_rows(rng, box, int(rng.integers(1, 4)), missed)
    return Domain(box.lower, box.upper, rows=rows)


def discrete_set(rng, inputs, share=0.5):
    """Whole numbers, values of a list, and a continuum; a share of them with rows."""
    lower, upper = np.full(inputs, -3.0), np.full(inputs, 4.0)
    lists = {0: rng.uniform(-3.0, 4.0, size=5)}
    values = Values.of(inputs, range(1, 1 + inputs // 2), lists)
    box = Domain(lower, upper, values=values)
    rows = random_rows(rng, box, 1) if rng.random() < share else None
    return Domain(lower, upper, rows=rows, values=values)


@pytest.mark.parametrize("name", SETS)
def test_programs_agree_with_highs(name):
    empty = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        inputs = int(rng.integers(1, 7))
        ensemble = random_ensemble(rng, 2, inputs, (5, 4) if seed % 2 else (6,))
        empty += agree(Case(ensemble, random_set(rng, inputs), name), 8, rng)
    assert 20 < empty < 140


def test_programs_on_parts_of_discrete_inputs_agree_with_highs():
    empty = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        inputs = int(rng.integers(2, 7))
        ensemble = random_ensemble(rng, 2, inputs, (5, 4) if seed % 2 else (6,))
        case = Case(ensemble, discrete_set(rng, inputs), SETS[seed % len(SETS)])
        empty += agree(case, 8, rng)
    assert 5 < empty < 140


@pytest.mark.parametrize("plain", [False, True])
def test_children_cover_the_values_of_their_parent(plain):
    narrowed = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        case = Case(random_ensemble(rng, 2, 5, ()), discrete_set(rng, 5, share=1.0))
        values = case.problem.domain.values
        tree = Signs(case.bounds).open(case.problem, 1e-9, plain=plain)
        tree.plant()
        tree.explore(1, np.inf, np.inf, dive=1, threads=1)
        children = tree.take(tree.open)
        if len(children) != 2:
            continue
        (ends,), (a, b) = case.ends(case.root), case.ends(children)
        moved = np.any(a != b, axis=0)
        assert np.count_nonzero(moved) <= 1
        for k in np.flatnonzero(moved):
            low, high = (a, b) if a[0, k] < b[0, k] else (b, a)
            p = int(np.flatnonzero(values.discrete)[k])
            assert (low[0, k], high[1, k]) == (ends[0, k], ends[1, k])
            assert values.above(p, low[1, k]) == high[0, k]
            narrowed += 1
    assert narrowed > 5


@pytest.mark.parametrize("plain", [False, True])
def test_the_next_values_are_tried_where_rounding_leaves_the_set(plain):
    """The program's point looks whole, but what is near it meets no constraint."""
    rows = Rows([[1.0, 1e-10, 0.0]], [1.0 + 0.5e-10], [1.0 + 0.5e-10])
    values = Values.of(3, whole=[0, 1])
    domain = Domain([0.0] * 3, [3.0, 3.0, 1.0], rows=rows, values=values)
    ensemble = random_ensemble(np.random.default_rng(0), 1, 3, (4,))
    problem = canonical(ensemble, domain)
    tree = Signs(problem.root).open(problem, 1e-6, plain=plain)
    tree.plant()
    tree.explore(1000, np.inf, np.inf, dive=1, threads=1)
    points = domain.sample(500, np.random.default_rng(0))
    assert tree.open == 0
    assert tree.bound >= problem.values(points).max()


@pytest.mark.parametrize("seed", range(8))
def test_an_empty_set_has_a_bound_of_minus_infinity(seed):
    rng = np.random.default_rng(seed)
    inputs = int(rng.integers(1, 7))
    ensemble = random_ensemble(rng, 2, inputs, (5, 4))
    case = Case(ensemble, random_set(rng, inputs, missed=1.5))
    found, told, _ = case.bound(case.root)
    assert found[0, 0] == -np.inf
    assert told[0, 0] == Fate.CLOSED


def test_points_of_the_programs_are_feasible():
    """Where no sign is open, the point is in the set without any repair."""
    met = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        domain = random_set(rng, 4)
        line = random_ensemble(rng, 2, 4, ())
        tree = Signs(canonical(line, domain).root).open(canonical(line, domain), 1e-6)
        tree.plant()
        tree.explore(100, np.inf, np.inf, dive=1, threads=1)
        assert tree.open == 0
        if tree.bound == -np.inf:
            continue
        (point,) = tree.points()[:1]
        assert exactly_feasible(domain, point)
        assert tree.bound == pytest.approx(tree.value, rel=1e-6, abs=1e-6)
        met += 1
    assert met > 20


def multipliers_of(rng, problem, scale):
    count = len(problem.domain.half_spaces()[1])
    units = 1.0 / np.maximum(np.abs(problem.domain.half_spaces()[0]).max(axis=1), 1e-9)
    own = rng.normal(size=problem.num_neurons)
    return scale * np.concatenate([own, rng.normal(size=count) * units])


def test_any_multipliers_prove_a_bound_and_both_say_the_same():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        inputs = int(rng.integers(1, 5))
        ensemble = random_ensemble(rng, 2, inputs, (5, 4))
        problem = canonical(ensemble, random_set(rng, inputs))
        points = problem.domain.sample(200, rng)
        top = problem.values(points).max(initial=-np.inf)
        signs = compiled_signs(problem, problem.root)
        free = np.full(problem.num_neurons, U | L, dtype=np.uint8)
        for scale in (0.0, 0.1, 1.0, 1e3):
            chosen = multipliers_of(rng, problem, scale)
            for share, least in ((1.0, top), (0.0, 0.0 if len(points) else -np.inf)):
                mine = MODULE.proved_by(signs, free, chosen, share)
                theirs = proved_by(problem, problem.root, free, chosen, share)
                assert mine == pytest.approx(theirs, rel=1e-11, abs=1e-11)
                assert mine >= least


def test_bounds_are_proofs_in_exact_arithmetic():
    """At points that are barely feasible, against fractions, without slack."""
    near = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(2, 5))
        scale = 10.0 ** float(rng.integers(-3, 4))
        ensemble = random_ensemble(rng, 2, d, (4, 3)[: 1 + seed % 2], scale=scale)
        box = random_domain(rng, d)
        domain = Domain(box.lower, box.upper, rows=random_rows(rng, box, 2))
        case = Case(ensemble, domain)
        found, _, reached = case.bound(case.root)
        slopes, sides = domain.half_spaces()
        points = domain.repair(np.concatenate([reached, domain.sample(20, rng)]))
        for row, side in zip(slopes, sides, strict=True):
            # To the very edge of what counts as feasible.
            points = np.concatenate(
                [points, points - ((points @ row - side) / (row @ row))[:, None] * row]
            )
        for point in points:
            if exactly_feasible(domain, point):
                exact = [Fraction(float(v)) for v in point]
                assert Fraction(float(found[0, 0])) >= value_at(ensemble, exact)
                near += 1
    assert near > 500


def test_constraints_in_other_units_give_the_same_tree(rng):
    box = Domain([-1.0] * 5, [1.0] * 5)
    rows = Rows(rng.normal(size=(2, 5)), [0.1, 0.2], [0.1, np.inf])
    ensemble = random_ensemble(rng, 2, 5, (8,))
    counts = []
    for power in (0, 40, -40):
        other = rows.divided(np.full(2, 2.0**power))
        problem = canonical(ensemble, Domain(box.lower, box.upper, rows=other))
        tree = Signs(problem.root).open(problem, 1e-4)
        tree.plant()
        counts.append(tree.explore(np.inf, np.inf, 1e9, dive=1, threads=1))
        assert tree.bound - tree.value <= 1.01 * problem.tolerance(tree.value, 1e-4)
    assert counts[0] > 5
    assert counts[1:] == pytest.approx(counts[:1] * 2, rel=0.1)


def test_nodes_of_signs_learn_no_half_spaces():
    one = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    problem = canonical(Ensemble((one,)), Domain([0.0], [1.0]))
    for plain in (False, True):
        tree = Signs(problem.root).open(problem, 1e-4, plain=plain)
        with pytest.raises(ValueError, match="convex regions or risks"):
            tree.narrow(np.ones((1, 1)), np.zeros(1))
