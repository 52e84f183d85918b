"""Trees driven by hand, compiled and in NumPy: nothing is lost, and cold starts end."""

import math

import numpy as np
import pytest

from ennopt.bounds.relaxation import Crown
from ennopt.domain import Domain
from ennopt.engine.compiled import kernel
from ennopt.engine.nodes import OFF, ON, NodeModel, Nodes
from ennopt.engine.schemes import HELD_OFF, HELD_ON, Boxes, Signs, summands
from ennopt.problem import Problem
from oracles import DEGENERATE, exact_maximum, random_case, random_ensemble

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
    return Signs(Crown().tighten(summands(problem), problem.domain))


SCHEMES = pytest.mark.parametrize(
    "scheme", [lambda problem: BOXES, signs], ids=["boxes", "signs"]
)


def explore(tree, nodes=math.inf):
    return tree.explore(nodes=nodes, seconds=math.inf, bytes=1e9, dive=64, threads=1)


def low_tree(plain, ensemble, points):
    """A tree over [-1, 1]^d whose incumbent stays at a low corner.

    The tree's own domain is that corner, as far from zero as the box, so that margins
    are those of the box and no point that the tree meets raises its cutoff.
    """
    d = ensemble.num_inputs
    values = ensemble(points)[:, 0]
    corners = np.sign(points[:64]) + (points[:64] == 0.0)
    corner = corners[np.argmin(ensemble(corners)[:, 0])]
    value, level = float(ensemble(corner)[0]), float(np.quantile(values, 0.7))
    gap = max(level - value, 0.0) / abs(value)
    problem = Problem(ensemble, Domain(corner, corner))
    tree = BOXES.open(problem, gap, plain)
    tree.offer(corner)
    model = NodeModel(ensemble, problem.domain)
    root = Nodes.root(model, Domain([-1.0] * d, [1.0] * d))
    tree.add(root.packed())
    return tree, model


@KINDS
@pytest.mark.parametrize("shape", SHAPES)
def test_boxes_cover_their_parent(plain, shape, rng):
    """Every point above the cutoff lies in an open box that knows it.

    The cut and the bound are not below its value, and neurons that are on or off there
    are so at the point.
    """
    ensemble = random_ensemble(rng, *shape)
    points = rng.uniform(-1.0, 1.0, size=(1500, shape[1]))
    tree, model = low_tree(plain, ensemble, points)
    values = ensemble(points)[:, 0]
    high = values > tree.cutoff
    points, values = points[high], values[high]
    assert len(points) > 300
    hidden = [h for m in model.members for h in m.preactivations(points)[:-1]]
    neurons = np.concatenate(hidden, axis=1)
    decided = 0
    for count in (1, 4, 20, 100, 400):
        explore(tree, count)
        rows = tree.take(tree.open)
        tree.add(rows)
        nodes = Nodes.unpacked(rows, model.num_inputs, model.num_neurons)
        known = np.zeros(len(points), dtype=bool)
        for i, state in enumerate(nodes.states):
            mine = np.all(
                (points >= nodes.lower[i]) & (points <= nodes.upper[i]), axis=1
            )
            cut = points[mine] @ nodes.cut[i] + nodes.constant[i]
            assert np.all(cut >= values[mine])
            assert np.all(nodes.bound[i] >= values[mine])
            assert np.all(neurons[mine][:, state == ON] >= 0.0)
            assert np.all(neurons[mine][:, state == OFF] <= 0.0)
            decided += np.count_nonzero(state >= ON) * np.count_nonzero(mine)
            known |= mine
        assert known.all()
    assert len(rows) > 10
    assert decided > 200


@KINDS
@pytest.mark.parametrize("shape", [*SHAPES, (2, 18, (7, 6))])
def test_signs_cover_their_parent(plain, shape, rng):
    """Every point above the cutoff has the signs of an open node, and its bound."""
    ensemble = random_ensemble(rng, *shape)
    d = ensemble.num_inputs
    problem = Problem(ensemble, Domain([-1.0] * d, [1.0] * d))
    points = rng.uniform(-1.0, 1.0, size=(1500, d))
    tree = signs(problem).open(problem, 1e-4, plain)
    tree.plant()
    hidden = [
        h for m in summands(problem).members for h in m.preactivations(points)[:-1]
    ]
    neurons, values = np.concatenate(hidden, axis=1), ensemble(points)[:, 0]
    held = 0
    for count in (1, 4, 20, 60):
        explore(tree, count)
        rows = tree.take(tree.open)
        tree.add(rows)
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
    problem = Problem(ensemble, domain)
    tree = scheme(problem).open(problem, gap, plain)
    assert tree.value == -math.inf
    tree.plant()
    explore(tree)
    exact, _ = exact_maximum(ensemble, domain)
    size = max(1.0, abs(exact))
    assert tree.open == 0
    assert tree.bound >= exact - 1e-12 * size
    assert tree.value <= exact + 1e-12 * size
    assert domain.contains(tree.best_point())
    assert ensemble(tree.best_point())[0] == pytest.approx(tree.value, abs=1e-12 * size)
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
