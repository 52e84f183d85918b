"""Bounds are proofs in exact arithmetic: compared with fractions, without any slack."""

import itertools
import math
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
from ways import WAYS, by_kernel

from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import kernel
from ennopt.engine.concretise import HalfSpaces, support
from ennopt.engine.nodes import (
    OFF,
    ON,
    Fate,
    NodeModel,
    Nodes,
    NodeSettings,
)
from ennopt.network import Ensemble, Network
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import canonical, random_ensemble, random_network

PRECISIONS = pytest.mark.parametrize(
    "settings", [NodeSettings(), NodeSettings(single=True)], ids=["double", "single"]
)
COMPILED = pytest.mark.skipif(kernel() is None, reason="the extension is not built")


def preactivations(network, x):
    """Values of all affine layers at a point of fractions, exactly."""
    layers, y = [], x
    for w, b in network.layers():
        h = [
            sum((Fraction(v) * u for v, u in zip(row, y, strict=True)), Fraction(shift))
            for row, shift in zip(w.tolist(), b.tolist(), strict=True)
        ]
        layers.append(h)
        y = [max(value, Fraction(0)) for value in h]
    return layers


def value_at(ensemble, x):
    """The prediction at a point of fractions, exactly."""
    return sum(
        Fraction(weight) * preactivations(member, x)[-1][0]
        for member, weight in zip(
            ensemble.members, ensemble.weights.tolist(), strict=True
        )
    )


def maximum_on(ensemble, low, high):
    """The exact maximum of one input and one hidden layer: at an end or a kink."""
    points = {Fraction(low), Fraction(high)}
    for member in ensemble.members:
        for w, b in zip(member.weights[0][:, 0], member.biases[0], strict=True):
            if w != 0.0:
                points.add(-Fraction(float(b)) / Fraction(float(w)))
    inside = [x for x in points if Fraction(low) <= x <= Fraction(high)]
    return max(value_at(ensemble, [x]) for x in inside)


def root_bound(way, ensemble, domain):
    settings = NodeSettings()
    model = NodeModel(canonical(ensemble, domain))
    rows = Nodes.root(model).packed()
    return Fraction(float(way(ensemble, domain, settings)(rows, -np.inf)[0][0, 0]))


def uneven_case(rng):
    """Weights over twelve orders of magnitude, members that nearly cancel, a box that
    may be thinner than the last digit."""
    d = int(rng.integers(1, 4))
    widths = [int(n) for n in rng.integers(1, 5, size=int(rng.integers(0, 4)))]
    members = []
    for _ in range(2):
        net = random_network(rng, d, widths)
        members.append(
            Network(
                tuple(w * 10.0 ** rng.integers(-6, 7, w.shape) for w in net.weights),
                tuple(b * 10.0 ** rng.integers(-6, 7, b.shape) for b in net.biases),
            )
        )
    members.append(members[0].fold_output(-1.0 - 1e-15, 0.0))
    x = rng.normal(size=d) * 10.0 ** rng.integers(-3, 4)
    radius = np.abs(x) * rng.choice([0.0, 1e-16, 1e-15, 1e-12, 1e-6, 0.1])
    ensemble = Ensemble(tuple(members), weights=[1.0, *rng.normal(size=1), 1.0])
    return ensemble, Domain(x - radius, x + radius)


def assert_exact(nodes, low, high, x, value, neurons):
    """What a node says of a point in it is true of the exact numbers."""
    assert nodes.bound[0] == np.inf or Fraction(float(nodes.bound[0])) >= value
    for a, u, b in zip(nodes.lower[0], x, nodes.upper[0], strict=True):
        assert Fraction(float(a)) <= u <= Fraction(float(b))
    terms = (Fraction(float(a)) * u for a, u in zip(nodes.cut[0], x, strict=True))
    assert sum(terms, Fraction(float(nodes.constant[0]))) >= value
    for j, (state, h) in enumerate(zip(nodes.states[0], neurons, strict=True)):
        if state < ON:
            assert Fraction(float(low[0, j])) <= h <= Fraction(float(high[0, j]))
        assert state != ON or h >= 0
        assert state != OFF or h <= 0


@WAYS
@PRECISIONS
def test_nodes_tell_the_truth_in_exact_arithmetic(way, settings):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        ensemble, domain = uneven_case(rng)
        model, bound = (
            NodeModel(canonical(ensemble, domain)),
            way(ensemble, domain, settings),
        )
        points = [domain.lower, domain.upper, *domain.sample(2, rng)]
        exact = [[Fraction(v) for v in x.tolist()] for x in points]
        values = [value_at(ensemble, x) for x in exact]
        neurons = [
            [h for m in model.networks for k in preactivations(m, x)[:-1] for h in k]
            for x in exact
        ]
        for cutoff in (-np.inf, float(min(values)), float(max(values)) * (1 - 1e-13)):
            rows = Nodes.root(model).packed()
            for _ in range(2):
                rows, fate, low, high = bound(rows, cutoff)
                nodes = Nodes.unpacked(rows, model)
                for x, value, hidden in zip(exact, values, neurons, strict=True):
                    if value > cutoff:
                        assert fate[0] != Fate.CLOSED
                        assert_exact(nodes, low, high, x, value, hidden)


@WAYS
@pytest.mark.parametrize(("inputs", "depth", "width"), [
    (3, 8, 50), (3, 6, 12), (12, 2, 128),
])  # fmt: skip
@PRECISIONS
def test_deep_nodes_tell_the_truth_in_exact_arithmetic(
    way, settings, inputs, depth, width
):
    """Margins are those of the coefficients that occur, and still cover all rounding.

    Members that cancel leave nothing but rounding; a box of a few digits' width leaves
    no room for the relaxation to hide it.
    """
    for seed in range(2):
        rng = np.random.default_rng(seed)
        net = random_network(rng, inputs, (width,) * depth, scale=1.0 + 0.2 * seed)
        ensemble = Ensemble((net, net.fold_output(-1.0 - 1e-15, 0.0), net))
        x = rng.normal(size=inputs)
        radius = np.abs(x) * (0.0, 1e-15)[seed]
        domain = Domain(x - radius, x + radius)
        model = NodeModel(canonical(ensemble, domain))
        bound = way(ensemble, domain, settings)
        points = [domain.lower, domain.upper] if seed else [x]
        rows = Nodes.root(model).packed()
        for _ in range(2):  # the second time every row is bounded
            rows, _, low, high = bound(rows, -np.inf)
        nodes = Nodes.unpacked(rows, model)
        for point in points:
            exact = [Fraction(v) for v in point.tolist()]
            hidden = [
                h
                for network in model.networks
                for layer in preactivations(network, exact)[:-1]
                for h in layer
            ]
            value = value_at(ensemble, exact)
            assert_exact(nodes, low, high, exact, value, hidden)
            # And they are tight: no product of weights through all layers.
            assert float(Fraction(float(nodes.bound[0])) - value) < 1e-6


@WAYS
def test_float32_tells_the_truth_where_nothing_hides_its_rounding(way):
    """Affine maps made of neurons that are on: bounds are exact but for rounding.

    Neurons are centred where they are least, so that the kernel has to bound them.
    """
    for seed in range(6):
        rng = np.random.default_rng(seed)
        d, widths = 2 + seed % 2, ((9, 8, 7), (30, 30, 30), (5,) * 6)[seed % 3]
        lower = rng.normal(size=d) * 10.0 ** rng.integers(-2, 3)
        upper = lower + rng.uniform(0.0, 1.0, d) * (1.0, 1e-5)[seed // 3]
        corners = np.array(list(itertools.product(*zip(lower, upper, strict=True))))
        weights, biases, y = [], [], corners
        for width in widths:
            w = rng.normal(size=(width, y.shape[1]))
            h = y @ w.T
            # Least at zero but for a little: on, to be proved, or just unstable.
            below = 1e-7 * np.ptp(h, axis=0) * (np.arange(width) % 2)
            biases.append(-h.min(axis=0) - below)
            weights.append(w)
            y = np.maximum(h + biases[-1], 0.0)
        weights.append(rng.normal(size=(1, y.shape[1])))
        biases.append(np.zeros(1))
        ensemble = Ensemble((Network(tuple(weights), tuple(biases)),))
        domain = Domain(lower, upper)
        model = NodeModel(canonical(ensemble, domain))
        bound = way(ensemble, domain, NodeSettings(single=True))
        rows = Nodes.root(model).packed()
        for _ in range(2):
            rows, _, low, high = bound(rows, -np.inf)
        nodes = Nodes.unpacked(rows, model)
        for corner in corners:
            exact = [Fraction(v) for v in corner.tolist()]
            hidden = [
                h
                for network in model.networks
                for layer in preactivations(network, exact)[:-1]
                for h in layer
            ]
            value = value_at(ensemble, exact)
            assert_exact(nodes, low, high, exact, value, hidden)


def test_a_multiple_of_a_cut_that_overflows_proves_nothing():
    slopes = np.array([[1e9] * 5 + [1e-299]])
    edge = math.ldexp(1.0, 1023) / 5e9 * 2.0  # the multiplier that just overflows
    for share in 1.0 + 2.0**-50 * np.arange(-60, 61):
        for s in (-5e9, -5e9 * (1 - 1e-15), -4e9, -1.0):
            g = np.array([-1.0] * 5 + [-edge * share * 1e-299])
            cut = HalfSpaces(slopes[:, None], np.array([[s]]), 0.0)
            with np.errstate(over="ignore", invalid="ignore"):
                most, multiplier = support(g[None, None], cut)
            # Where all of the first five are -s / 5e9, the cut is met.
            z = np.array([-s / 5e9] * 5 + [-1.0])
            assert most[0, 0] >= g @ z - 1e-9
            assert np.isfinite(multiplier[0, 0, 0])


@WAYS
def test_merged_members_leave_their_rounding_behind(way, rng):
    """Equal hidden layers whose output weights cancel, but for rounding."""
    domain, below = Domain([-1.0], [2.0]), 0
    for _ in range(40):
        net = random_network(rng, 1, (3,))
        weight = float(rng.uniform(0.1, 1.0))
        factor = float(rng.uniform(1.0, 10.0))
        large = net.fold_output(1e8, 0.0)
        # weight * large and -(weight / factor) * (factor * large) differ by rounding.
        twin = large.fold_output(factor, 0.0)
        ensemble = Ensemble((large, twin), weights=[weight, -weight / factor])
        exact = maximum_on(ensemble, -1.0, 2.0)
        below += exact > 0
        assert root_bound(way, ensemble, domain) >= exact
    assert below > 5


def test_outputs_that_cancel_leave_their_rounding_behind():
    """Several outputs of one network, combined by factors that nearly cancel."""
    below = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        weights = 1e10 * np.ones((3, 1)) * rng.choice([1.0, 1.0 + 2.0**-30])
        net = Network((weights,), (np.zeros(3),))
        share = rng.uniform(0.05, 0.9)
        factors = np.array([share, -1.0, 1.0 - share])
        problem = Problem(Ensemble((net,)), Domain([0.0], [1.0]), "max", factors)
        exact = sum(
            Fraction(f) * Fraction(w)
            for f, w in zip(factors.tolist(), weights[:, 0].tolist(), strict=True)
        )
        result = BoxSearch().solve(problem, Tools())
        below += exact > 0
        assert Fraction(float(result.bound)) >= exact
    assert below > 5


@cache
def one_and_many(slope, step, bias):
    """A member and thousands below its last digit, but not their sum.

    The hidden neuron is ``x + 2`` of the first, of the others ``slope * x + bias``,
    with slopes that rise by `step`. Returns the ensemble and its value at zero, where
    all members are largest.
    """
    count, tiny = 3000, 0.99 * 2.0**-53
    members = [Network(([[1.0]], [[1.0]]), ([2.0], [0.0]))]
    for i in range(count):
        members.append(Network(([[slope + step * i]], [[tiny]]), ([bias], [0.0])))
    ensemble = Ensemble(tuple(members), weights=np.ones(len(members)))
    return ensemble, 2 + count * Fraction(bias) * Fraction(tiny)


@WAYS
def test_thousands_of_tiny_members_that_are_merged_are_not_lost(way):
    ensemble, exact = one_and_many(1.0, 0.0, 2.0)
    assert root_bound(way, ensemble, Domain([-0.1], [0.0])) >= exact


@COMPILED
def test_thousands_of_tiny_members_are_not_lost():
    ensemble, exact = one_and_many(0.5, 1e-6, 1.0)
    way = partial(by_kernel, "")
    assert root_bound(way, ensemble, Domain([-0.1], [0.0])) >= exact


@COMPILED
def test_a_time_limit_beyond_the_clock_is_no_limit(rng):
    problem = Problem(
        random_ensemble(rng, 3, 5, (10, 10)), Domain([-1.0] * 5, [1.0] * 5)
    )
    tree = BoxSearch().scheme.open(Canonical.of(problem), 1e-4)
    tree.plant()
    count = tree.explore(nodes=math.inf, seconds=1e12, bytes=1e9, dive=64, threads=1)
    assert tree.open == 0
    assert count > 100
    result = BoxSearch().solve(problem, Tools(Limits(seconds=1e12)))
    assert result.status is Status.OPTIMAL
