"""Every search ends: tiny networks, frozen bounds, deep ones, gaps below rounding."""

import math
from pathlib import Path

import numpy as np
import pytest

from ennopt import MeanMinusMad, maximize
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


def worst_of_two():
    """One network of size 100 and one of size 0.01, of which the least counts.

    The majorant left out the small one, so that nothing made it closer.
    """
    large = Network(
        [[[0.29, 1.07], [1.91, -0.37], [0.72, 1.08]],
         [[0.32, 0.62, -1.07], [-0.03, 0.89, 0.82], [-0.31, -0.6, 0.26]],
         [[51.05, -24.11, -192.13]]],
        [[-1.14, -1.17, -0.01], [-1.05, -0.84, 0.68], [21.2]],
    )  # fmt: skip
    small = Network(
        [[[0.77, 0.84], [-0.65, 0.0], [0.25, 0.04], [0.3, 1.03]],
         [[1.34, 0.39, 0.32, 0.23], [-0.29, 0.98, 0.27, -0.56],
          [-0.01, -0.29, 0.41, -1.42], [0.09, 0.42, -0.9, -0.35]],
         [[-0.0143, 0.0016, 0.0014, -0.0001]]],
        [[-0.74, 0.22, -0.48, -0.69], [-0.11, 1.31, -1.1, 1.19], [-0.0136]],
    )  # fmt: skip
    return [large, small], Domain([-0.38, -0.6], [0.98, 0.24]), "worst"


def mean_less_deviation(seed):
    """Three networks of sizes 1, 10 and 0.1: boxes had to be as thin as the gap."""
    rng = np.random.default_rng(seed)

    def drawn(shape, size=1.0):
        return np.round(rng.normal(size=shape), 1) * size

    members = [
        Network([drawn((4, 2)), drawn((1, 4), size)], [drawn(4), drawn(1, size)])
        for size in (1.0, 10.0, 0.1)
    ]
    return members, Domain([-1.0] * 2, [1.0] * 2), MeanMinusMad(1.0)


@COMPILED
@pytest.mark.parametrize(
    "case",
    [worst_of_two(), mean_less_deviation(27), mean_less_deviation(29)],
    ids=["worst", "deviation 27", "deviation 29"],
)
def test_boxes_with_a_risk_end_in_a_few_nodes(case):
    members, domain, risk = case
    found, checked = (
        maximize(members, domain, risk=risk, method=way, threads=1, node_limit=200)
        for way in (BoxSearch(gives_way=False), NeuronSearch())
    )
    assert found.status == checked.status == Status.OPTIMAL
    tolerance = 1.01e-4 * max(1.0, abs(checked.value))
    assert found.value == pytest.approx(checked.value, abs=tolerance)


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
