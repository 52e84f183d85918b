"""Trees driven by hand, compiled and in NumPy: nothing is lost, and cold starts end."""

import math

import numpy as np
import pytest

from ennopt.bounds.compiled import kernel
from ennopt.bounds.nodes import (
    HELD_OFF,
    HELD_ON,
    OFF,
    ON,
    NodeModel,
    Nodes,
    NodeSettings,
)
from ennopt.domain import Domain
from ennopt.problem import Problem
from ennopt.search.tree import PlainTree, open_tree
from oracles import DEGENERATE, exact_maximum, random_case, random_ensemble

COMPILED = pytest.param(
    open_tree,
    id="compiled",
    marks=pytest.mark.skipif(kernel() is None, reason="the extension is not built"),
)
PLAIN = pytest.param(PlainTree, id="plain")
SHAPES = [(2, 3, (6, 5, 4)), (3, 5, (8, 6)), (2, 4, (9,)), (2, 18, (7, 6))]
KINDS = pytest.mark.parametrize("make", [COMPILED, PLAIN])
BRANCHING = pytest.mark.parametrize(
    "settings",
    [NodeSettings(), NodeSettings(branch_neurons=True)],
    ids=["inputs", "neurons"],
)


def explore(tree, nodes=math.inf):
    return tree.explore(nodes=nodes, seconds=math.inf, bytes=1e9, dive=64, threads=1)


def low_tree(make, ensemble, settings, points):
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
    tree = make(problem, settings, gap)
    tree.offer(corner)
    model = NodeModel(ensemble, problem.domain)
    root = Nodes.root(model, Domain([-1.0] * d, [1.0] * d), settings)
    tree.add(root.packed())
    return tree, model


@KINDS
@BRANCHING
@pytest.mark.parametrize("shape", SHAPES)
def test_children_cover_their_parent(make, settings, shape, rng):
    """Every point above the cutoff lies in an open node that knows it.

    It is in the box, has the signs of the held neurons, and then the cut and the bound
    are not below its value, and neurons that are on or off there are so at the point.
    """
    ensemble = random_ensemble(rng, *shape)
    points = rng.uniform(-1.0, 1.0, size=(1500, shape[1]))
    tree, model = low_tree(make, ensemble, settings, points)
    values = ensemble(points)[:, 0]
    high = values > tree.cutoff
    points, values = points[high], values[high]
    assert len(points) > 300
    hidden = [h for m in model.members for h in m.preactivations(points)[:-1]]
    neurons = np.concatenate(hidden, axis=1)
    signs = held = 0
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
            mine &= np.all(neurons[:, state == HELD_ON] >= 0.0, axis=1)
            mine &= np.all(neurons[:, state == HELD_OFF] <= 0.0, axis=1)
            cut = points[mine] @ nodes.cut[i] + nodes.constant[i]
            assert np.all(cut >= values[mine])
            assert np.all(nodes.bound[i] >= values[mine])
            assert np.all(neurons[mine][:, state == ON] >= 0.0)
            assert np.all(neurons[mine][:, state == OFF] <= 0.0)
            signs += np.count_nonzero(state >= ON) * np.count_nonzero(mine)
            held += np.count_nonzero((state == HELD_ON) | (state == HELD_OFF))
            known |= mine
        assert known.all()
    assert len(rows) > 10
    assert signs > 200 or settings.branch_neurons
    assert (held > 10) == settings.branch_neurons


def proves_cold(make, settings, ensemble, domain, gap=1e-4):
    """Explore to the end without any offer; the tree must find and prove by itself."""
    problem = Problem(ensemble, domain)
    tree = make(problem, settings, gap)
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
@BRANCHING
@pytest.mark.parametrize("case", DEGENERATE)
def test_cold_trees_agree_with_enumeration_on_degenerate_ensembles(
    make, settings, case
):
    for seed in range(8) if make is open_tree else (4,):
        rng = np.random.default_rng(seed)
        gap = 1e-4 if make is open_tree else 1e-2
        proves_cold(make, settings, *DEGENERATE[case](rng), gap)


@BRANCHING
@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("make", [COMPILED])
def test_cold_trees_agree_with_enumeration(make, settings, block):
    for seed in range(1190 + 60 * block, 1250 + 60 * block):
        rng = np.random.default_rng(seed)
        gap = 1e-3 if settings.branch_neurons else (1e-4, 1e-6)[seed % 2]
        proves_cold(make, settings, *random_case(rng), gap)


@BRANCHING
def test_cold_plain_trees_agree_with_enumeration(settings):
    for seed in range(1000, 1010):
        rng = np.random.default_rng(seed)
        proves_cold(PlainTree, settings, *random_case(rng))
