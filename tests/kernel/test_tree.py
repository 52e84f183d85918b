"""Trees driven by hand, compiled and in NumPy: nothing is lost, and cold starts end."""

import math

import numpy as np
import pytest

from ennopt.domain import Domain
from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.nodes import OFF, ON, NodeModel, Nodes, NodeSettings, Past
from ennopt.engine.program import HELD_OFF, HELD_ON
from ennopt.engine.schemes import Boxes, PlainBoxes, Signs, compiled_tree
from ennopt.engine.tree import Kind, PlainTree, Tolerance
from ennopt.network import Ensemble, Network
from oracles import (
    DEGENERATE,
    canonical,
    exact_maximum,
    mixed,
    random_case,
    random_domain,
    random_ensemble,
)

BOXES, NO_PROGRAMS = Boxes(), Boxes(NodeSettings(programs=0))
KINDS = pytest.mark.parametrize(
    "plain",
    [
        pytest.param(
            False,
            id="compiled",
            marks=pytest.mark.skipif(kernel() is None, reason="no extension"),
        ),
        pytest.param(True, id="plain"),
    ],
)
SHAPES = [(2, 3, (6, 5, 4)), (3, 5, (8, 6)), (2, 4, (9,))]


def signs(problem):
    """The scheme of signs with plain bounds of the neurons."""
    return Signs(problem.root)


SCHEMES = pytest.mark.parametrize(
    "scheme", [lambda problem: BOXES, signs], ids=["boxes", "signs"]
)


def explore(tree, nodes=math.inf):
    return tree.explore(nodes=nodes, seconds=math.inf, bytes=1e9, dive=64, threads=1)


def low_tree(plain, problem, distance):
    """A tree that closes a node only where its bound is `distance` below the value."""
    tolerance = Tolerance(-1.0, math.inf, -distance)
    assert tolerance.cutoff(3.0) == 3.0 - distance
    if plain:
        boxes = PlainBoxes(problem, NodeSettings(programs=0))
        return PlainTree(problem, boxes, tolerance)
    boxes = kernel().Boxes(compile_model(problem), kernel().Settings())
    return compiled_tree(boxes, tolerance)


@KINDS
@pytest.mark.parametrize("shape", SHAPES)
def test_boxes_cover_their_parent(plain, shape, rng):
    """Every point above the cutoff lies in an open box that knows it.

    The cut and the bound are not below its value, and neurons that are on or off there
    are so at the point.
    """
    ensemble = random_ensemble(rng, *shape)
    problem = canonical(ensemble, Domain([-1.0] * shape[1], [1.0] * shape[1]))
    points = rng.uniform(-1.0, 1.0, size=(1500, shape[1]))
    values = ensemble(points)[:, 0]
    tree = low_tree(plain, problem, float(values.max() - np.quantile(values, 0.6)))
    tree.offer(points[np.argmax(values)])
    tree.plant()
    model = NodeModel(problem)
    hidden = [h for m in model.networks for h in m.preactivations(points)[:-1]]
    neurons = np.concatenate(hidden, axis=1)
    decided = covered = 0
    for count in (1, 4, 20, 100, 400):
        explore(tree, count)
        rows = tree.snapshot()
        assert len(rows) == tree.open
        nodes = Nodes.unpacked(rows, model)
        high = values > tree.cutoff
        known = np.zeros(len(points), dtype=bool)
        for i, state in enumerate(nodes.states):
            inside = (points >= nodes.lower[i]) & (points <= nodes.upper[i])
            mine = inside.all(axis=1) & high
            cut = points[mine] @ nodes.cut[i] + nodes.constant[i]
            assert np.all(cut >= values[mine])
            assert np.all(nodes.bound[i] >= values[mine])
            assert np.all(neurons[mine][:, state == ON] >= 0.0)
            assert np.all(neurons[mine][:, state == OFF] <= 0.0)
            decided += np.count_nonzero(state >= ON) * np.count_nonzero(mine)
            known |= mine
        assert np.all(known[high])
        covered += np.count_nonzero(high)
    assert len(rows) > 10
    assert covered > 500
    assert decided > 200


def with_handovers(tree, nodes, rng):
    """Explore to the end; now and then some nodes are taken and added again."""
    lines = []
    while tree.open:
        explore(tree, nodes)
        taken = tree.take(int(rng.integers(0, 4)))
        lines.append(tree.journal())
        tree.add(taken)
    assert len(tree.journal()) == 0
    return np.concatenate(lines)


def family(lines):
    """Of a journal of one root: each node's parent, and the line that ended it."""
    parents, ends, elsewhere = {}, {}, set()
    for line in lines:
        kind, node = Kind(int(line[0])), line[1]
        if kind is Kind.ADD and node not in parents:
            assert not parents  # the root
            parents[node] = None
        elif kind is Kind.ADD:
            elsewhere.remove(node)
        else:
            assert node in parents
            assert node not in ends
            assert node not in elsewhere
        if kind is Kind.TAKE:
            elsewhere.add(node)
        if kind is Kind.SPLIT:
            for child in (line[4], line[4] + 1):
                assert child not in parents
                parents[child] = node
        if kind in (Kind.SPLIT, Kind.CLOSE):
            ends[node] = line
    assert not elsewhere
    assert set(ends) == set(parents)
    return parents, ends


@KINDS
@pytest.mark.parametrize(
    "scheme", [lambda problem: NO_PROGRAMS, signs], ids=["boxes", "signs"]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_journal_proves_the_bound_of_its_tree(plain, scheme, seed):
    """Every node has one end, and the largest bound of a removal is the tree's.

    Nodes that are taken and added again keep their numbers.
    """
    rng = np.random.default_rng(seed)
    problem = canonical(random_ensemble(rng, 2, 3, (9, 8)), Domain([-1] * 3, [1] * 3))
    tree = scheme(problem).open(problem, 1e-3, plain=plain, journal=True)
    tree.plant()
    lines = with_handovers(tree, 1, rng)
    _, ends = family(lines)
    assert sum(line[0] == Kind.SPLIT for line in ends.values()) > 3
    assert np.count_nonzero(lines[:, 0] == Kind.TAKE) > 3
    assert lines[:, 5].max() == tree.closed == tree.bound
    assert np.all(lines[np.isin(lines[:, 0], [Kind.SPLIT, Kind.ADD])][:, 5] == -np.inf)


def volume(box):
    return float(np.prod(box[1] - box[0]))


@KINDS
@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("scheme", [BOXES, NO_PROGRAMS], ids=["finished", "split"])
@pytest.mark.parametrize("seed", range(3))
def test_leaves_and_clipped_parts_of_a_journal_cover_the_root(
    plain, rows, scheme, seed
):
    """And what the journal says of a point, on its way from the root, holds."""
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 2, 3, (9, 8))
    domain = mixed(rng, 3, rows) if rows else random_domain(rng, 3)
    problem = canonical(ensemble, domain)
    tree = scheme.open(problem, 1e-3, plain=plain, journal=True)
    tree.plant()
    lines = with_handovers(tree, 7, rng)
    family(lines)
    points = rng.uniform(domain.lower, domain.upper, size=(2000, 3))
    values = np.where(domain.feasible(points), problem.values(points), -np.inf)
    boxes, removed = {1.0: (domain.lower, domain.upper)}, 0.0
    where, least = np.ones(len(points)), np.full(len(points), -np.inf)
    for kind, node, place, x, y, bound in lines:
        here, p = where == node, int(place)
        if kind == Kind.CLIP:
            lower, upper = (side.copy() for side in boxes[node])
            assert lower[p] <= x <= y <= upper[p]
            lower[p], upper[p] = x, y
            removed += volume(boxes[node]) - volume((lower, upper))
            boxes[node] = lower, upper
            gone = here & ((points[:, p] < x) | (points[:, p] > y))
            assert np.all(values[gone] <= np.maximum(bound, least[gone]))
            where[gone] = 0.0
        elif kind == Kind.EXCLUDE:
            least[here] = np.maximum(least[here], bound)
        elif kind == Kind.CLOSE:
            assert np.all(values[here] <= np.maximum(bound, least[here]))
            where[here] = 0.0
            removed += volume(boxes.pop(node))
        elif kind == Kind.SPLIT:
            lower, upper = boxes.pop(node)
            assert lower[p] < x < upper[p]
            left, right = upper.copy(), lower.copy()
            left[p] = right[p] = x
            boxes[y], boxes[y + 1] = (lower, left), (right, upper)
            where[here] = np.where(points[here, p] <= x, y, y + 1)
    assert not boxes
    assert not where.any()
    assert removed == pytest.approx(volume((domain.lower, domain.upper)), rel=1e-9)
    assert scheme is BOXES or np.count_nonzero(lines[:, 0] == Kind.CLIP) > 3
    assert lines[:, 5].max() == tree.bound


@KINDS
def test_a_journal_hears_what_was_proved_elsewhere(plain, rng):
    problem = canonical(random_ensemble(rng, 2, 3, (6, 5)), Domain([-1] * 3, [1] * 3))
    tree = NO_PROGRAMS.open(problem, 1e-3, plain=plain, journal=True)
    tree.plant()
    explore(tree, 5)
    taken = tree.take(2)
    tree.close(100.0)
    lines = tree.journal()
    assert lines[-3:-1, 0].tolist() == [Kind.TAKE] * 2
    assert lines[-3:-1, 1].tolist() == taken[:, -1].tolist()
    assert lines[-1].tolist() == [Kind.CLOSE, 0.0, -1.0, 0.0, 0.0, 100.0]
    assert tree.closed == 100.0
    assert set(taken[:, -1]).isdisjoint(tree.snapshot()[:, -1])


@KINDS
def test_a_tree_keeps_its_best_points_that_differ(plain, rng):
    ensemble = random_ensemble(rng, 2, 3, (6, 5))
    problem = canonical(ensemble, Domain([-1] * 3, [1] * 3))
    tree = BOXES.open(problem, 1e-4, plain=plain)
    points = problem.domain.sample(30, rng)
    values = ensemble(points)[:, 0]
    worst_first = np.argsort(values)
    for order in (worst_first[::-1], worst_first, rng.permutation(30)):
        for x in points[order]:
            tree.offer(x)
            tree.offer(np.clip(x + 1e-9, -1.0, 1.0))
        kept = tree.points()
        reached = ensemble(kept)[:, 0]
        assert np.all(np.diff(reached) <= 0.0)
        np.testing.assert_allclose(reached, values[worst_first[:-9:-1]], rtol=1e-6)
        assert tree.value == pytest.approx(reached[0])
    near = np.clip(kept[0] + 1e-6, -1.0, 1.0)
    for x in (kept[0], near):
        before = tree.value
        assert tree.offer(x) == (tree.value > before)
    assert len(tree.points()) == 8


@KINDS
def test_a_linear_model_is_proved_at_the_root_to_the_last_digit(plain):
    """What was closed has its own bound, not the cutoff."""
    net = Network([[[2.0, -1.0]]], [[1.0]])
    problem = canonical(Ensemble([net]), Domain([0.0, 0.0], [1.0, 1.0]))
    tree = BOXES.open(problem, 1e-4, plain=plain)
    tree.offer(np.array([1.0, 0.0]))
    tree.plant()
    explore(tree)
    assert tree.open == 0
    assert 3.0 <= tree.bound <= 3.0 + 1e-12


@KINDS
@pytest.mark.parametrize("shape", [*SHAPES, (2, 18, (7, 6))])
def test_signs_cover_their_parent(plain, shape, rng):
    """Every point above the cutoff has the signs of an open node, and its bound."""
    ensemble = random_ensemble(rng, *shape)
    d = ensemble.num_inputs
    problem = canonical(ensemble, Domain([-1.0] * d, [1.0] * d))
    points = rng.uniform(-1.0, 1.0, size=(1500, d))
    tree = signs(problem).open(problem, 1e-4, plain=plain)
    tree.plant()
    hidden = [h for m in problem.networks for h in m.preactivations(points)[:-1]]
    neurons, values = np.concatenate(hidden, axis=1), ensemble(points)[:, 0]
    held = 0
    for count in (1, 4, 20, 60):
        explore(tree, count)
        rows = tree.snapshot()
        assert len(rows) == tree.open
        known = values <= tree.cutoff
        for row in rows:
            states = row[2:].view(np.uint8)[d : d + neurons.shape[1]] >> 3 << 3
            mine = np.all(neurons[:, states == HELD_ON] >= 0.0, axis=1)
            mine &= np.all(neurons[:, states == HELD_OFF] <= 0.0, axis=1)
            assert np.all(row[0] >= values[mine])
            known |= mine
            held += np.count_nonzero((states == HELD_ON) | (states == HELD_OFF))
        assert known.all()
    assert held > 10


def proves_cold(plain, scheme, ensemble, domain, gap=1e-4):
    """Explore to the end without any offer; the tree must find and prove by itself."""
    problem = canonical(ensemble, domain)
    tree = scheme(problem).open(problem, gap, plain=plain)
    assert tree.value == -math.inf
    tree.plant()
    explore(tree)
    exact, _ = exact_maximum(ensemble, domain)
    size = max(1.0, abs(exact))
    assert tree.open == 0
    assert tree.bound >= exact - 1e-12 * size
    assert tree.value <= exact + 1e-12 * size
    assert domain.contains(tree.points()[0])
    assert ensemble(tree.points()[0])[0] == pytest.approx(tree.value, abs=1e-12 * size)
    allowed = 1.01 * problem.tolerance(exact, gap) + 1e-9 * size
    assert tree.bound - tree.value <= allowed


@KINDS
@SCHEMES
@pytest.mark.parametrize("case", DEGENERATE)
def test_cold_trees_agree_with_enumeration_on_degenerate_ensembles(plain, scheme, case):
    for seed in (4,) if plain else range(8):
        rng = np.random.default_rng(seed)
        proves_cold(plain, scheme, *DEGENERATE[case](rng), 1e-2 if plain else 1e-4)


@SCHEMES
@pytest.mark.parametrize("block", range(4))
@pytest.mark.skipif(kernel() is None, reason="no extension")
def test_cold_trees_agree_with_enumeration(scheme, block):
    for seed in range(1190 + 60 * block, 1250 + 60 * block):
        rng = np.random.default_rng(seed)
        proves_cold(False, scheme, *random_case(rng), (1e-4, 1e-6)[seed % 2])


@SCHEMES
def test_cold_plain_trees_agree_with_enumeration(scheme):
    for seed in range(1000, 1010):
        proves_cold(True, scheme, *random_case(np.random.default_rng(seed)))


@pytest.mark.skipif(kernel() is None, reason="no extension")
@pytest.mark.parametrize("programs", [0, 1])
def test_trees_explore_the_same_boxes(programs):
    """With the best point known from the start the order of the nodes is all one.

    (With more programs, how these branch would count, and there the two differ.)
    """
    scheme = Boxes(NodeSettings(programs=programs))
    compared = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        ensemble, domain = random_ensemble(rng, 2, 2, (7, 5)), random_domain(rng, 2)
        problem = canonical(ensemble, domain)
        _, best = exact_maximum(ensemble, domain)
        counts = []
        for plain in (False, True):
            tree = scheme.open(problem, 1e-5, plain=plain)
            tree.offer(best)
            tree.plant()
            counts.append(explore(tree))
        assert counts[0] == pytest.approx(counts[1], rel=0.05, abs=2)
        compared += counts[1]
    assert compared > 20


def test_a_past_is_one_number():
    again, generations = np.array(list(np.ndindex(2, 9))).T
    past = Past(again == 1, generations)
    assert len(set(past.packed())) == len(again)
    for mine, found in zip(past, Past.of(past.packed()), strict=True):
        np.testing.assert_array_equal(mine, found)
