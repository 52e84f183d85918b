"""Trees driven by hand, compiled and in NumPy: nothing is lost, and cold starts end."""

import math

import numpy as np
import pytest

from ennopt.domain import Domain
from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.nodes import OFF, ON, NodeModel, Nodes, NodeSettings
from ennopt.engine.program import HELD_OFF, HELD_ON
from ennopt.engine.schemes import Boxes, PlainBoxes, Signs, compiled_tree
from ennopt.engine.tree import Kind, PlainTree, Tolerance
from ennopt.network import Ensemble, Network
from oracles import DEGENERATE, canonical, exact_maximum, random_case, random_ensemble

BOXES = Boxes()
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


@KINDS
@SCHEMES
def test_a_journal_tells_the_whole_tree(plain, scheme, rng):
    """Splits and closings make a binary tree in which every node has one end."""
    problem = canonical(random_ensemble(rng, 2, 3, (6, 5)), Domain([-1] * 3, [1] * 3))
    tree = scheme(problem).open(problem, 1e-3, plain=plain, journal=True)
    tree.plant()
    lines = []
    while tree.open:
        explore(tree, 7)
        lines.append(tree.journal())
    assert len(tree.journal()) == 0
    lines = np.concatenate(lines)
    split, closed = lines[lines[:, 0] == Kind.SPLIT], lines[lines[:, 0] == Kind.CLOSE]
    born = {1.0} | {child for first in split[:, 4] for child in (first, first + 1)}
    ended = [*split[:, 1], *closed[:, 1]]
    assert len(split) > 3
    assert len(ended) == len(set(ended)) == len(born)
    assert set(ended) == born
    assert closed[:, 3].max() <= tree.bound
    # Children of a box are within it, clips only shrink it.
    if scheme(problem) is BOXES:
        ends = {1.0: (problem.domain.lower, problem.domain.upper)}
        for kind, node, place, x, y in lines:
            lower, upper = (side.copy() for side in ends[node])
            p = int(place)
            if kind == Kind.CLIP:
                assert lower[p] <= x <= y <= upper[p]
                lower[p], upper[p] = x, y
                ends[node] = lower, upper
            elif kind == Kind.SPLIT:
                assert lower[p] < x < upper[p]
                left, right = upper.copy(), lower.copy()
                left[p] = right[p] = x
                ends[y], ends[y + 1] = (lower, left), (right, upper)
        assert np.count_nonzero(lines[:, 0] == Kind.CLIP) > 3


@KINDS
def test_a_tree_keeps_its_best_points(plain, rng):
    ensemble = random_ensemble(rng, 2, 3, (6, 5))
    problem = canonical(ensemble, Domain([-1] * 3, [1] * 3))
    tree = BOXES.open(problem, 1e-4, plain=plain)
    points = problem.domain.sample(30, rng)
    for x in points:
        tree.offer(x)
    kept, values = tree.points(), ensemble(points)[:, 0]
    assert 1 < len(kept) <= 8
    reached = ensemble(kept)[:, 0]
    assert np.all(np.diff(reached) <= 0.0)
    assert tree.value == pytest.approx(reached[0]) == pytest.approx(values.max())


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
