"""Every search ends: tiny networks, frozen bounds, deep ones, gaps below rounding."""

import math
from pathlib import Path

import numpy as np
import pytest

from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import kernel
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.schemes import Boxes, Signs
from ennopt.network import Ensemble, Network, read_npz
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import random_network, tiny_network

BOTH = pytest.mark.parametrize(
    "method", [BoxSearch(), NeuronSearch()], ids=["box", "neurons"]
)

COMPILED = pytest.mark.skipif(kernel() is None, reason="the extension is not built")
SETS = kernel().instruction_sets() if kernel() else []
DATA = Path(__file__).parent.parent / "data"


def tiny(seed):
    """One to three layers of up to eight neurons on up to twelve inputs."""
    net = tiny_network(np.random.default_rng(seed), 8, (1, 13))
    d = net.num_inputs
    return Canonical.sum_of([net], Domain([-1.0] * d, [1.0] * d))


def nodes_to_prove(problem, scheme, most, plain=False):
    """Nodes until a tree is empty, from the centre as its only point."""
    tree = scheme.open(problem, 1e-4, plain=plain)
    tree.plant()
    tree.offer(problem.domain.centre)
    count = tree.explore(most, math.inf, 1e9, dive=64, threads=1)
    assert tree.open == 0, (problem, tree.bound, tree.value)
    assert tree.bound - tree.value <= 1.01 * problem.tolerance(tree.value, 1e-4) + 1e-9
    return count


@COMPILED
@pytest.mark.parametrize("block", range(4))
def test_a_thousand_tiny_networks_end_under_both_searches(block):
    for seed in range(250 * block, 250 * (block + 1)):
        problem = tiny(seed)
        nodes_to_prove(problem, Boxes(), 1000)
        nodes_to_prove(problem, Signs(problem.root), 500)


def test_tiny_networks_end_without_the_extension():
    for seed in range(12):
        problem = tiny(seed)
        nodes_to_prove(problem, Boxes(), 1000, plain=True)
        nodes_to_prove(problem, Signs(problem.root), 500, plain=True)


@BOTH
def test_a_bound_that_froze_under_an_old_cut_moves(method):
    """Signs decided under a cut that was replaced kept a linear node open for ever."""
    ensemble = read_npz(DATA / "frozen_bound_4x8.npz")
    problem = Problem(ensemble, Domain(ensemble.lower, ensemble.upper))
    result = method.solve(problem, Tools(Limits(nodes=500)))
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(0.7248432, abs=1e-4)


@COMPILED
@pytest.mark.parametrize("name", SETS)
def test_a_neuron_without_weights_does_not_hide_what_to_split(name):
    """The reciprocal of its range overflowed, and the first input was always split."""
    shapes = [(15, 3), (8, 15), (9, 8), (1, 9)]
    for seed in (3, 13, 35):
        rng = np.random.default_rng(seed)
        weights = [rng.integers(-1, 2, s).astype(float) for s in shapes]
        biases = [rng.integers(-1, 2, s[0]).astype(float) for s in shapes]
        weights[0][2] = biases[0][2] = 0.0
        net = Network(tuple(weights), tuple(biases))
        problem = Canonical.sum_of([net], Domain([-1.0] * 3, [1.0] * 3))
        nodes_to_prove(problem, Boxes(instruction_set=name), 200)


@COMPILED
@pytest.mark.parametrize(("depth", "inputs", "radius"), [(6, 5, 0.05), (8, 2, 1.0)])
@pytest.mark.parametrize("gap", [1e-4, 1e-8])
def test_deep_networks_are_proved_to_the_gap(depth, inputs, radius, gap):
    """Margins come from the coefficients that occur, not from products of weights."""
    net = random_network(np.random.default_rng(1), inputs, (50,) * depth)
    box = Domain([-radius] * inputs, [radius] * inputs)
    result = BoxSearch().solve(
        Problem(Ensemble([net]), box), Tools(Limits(gap=gap, nodes=20_000))
    )
    assert result.status is Status.OPTIMAL
    assert result.gap <= gap
    points = box.sample(20_000, np.random.default_rng(0))
    assert net(points).max() <= result.bound


@BOTH
def test_a_gap_of_zero_ends_with_what_rounding_leaves(method):
    for seed in (3, 31, 40):
        problem = tiny(seed)
        result = method.solve(problem, Tools(Limits(gap=0.0, nodes=20_000)))
        assert result.status in (Status.OPTIMAL, Status.PRECISION_LIMIT)
        assert result.bound - result.value <= 1e-9
