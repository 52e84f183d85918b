"""Interval and linear relaxations against sampling, enumeration and each other."""

import numpy as np
import pytest

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.domain import Domain
from ennopt.network import Ensemble, Network
from ennopt.tightening.relaxation import Crown, Interval
from oracles import (
    DEGENERATE,
    exact_ranges,
    members,
    random_case,
    random_domain,
    random_ensemble,
)

METHODS = pytest.mark.parametrize("method", [Interval(), Crown()], ids=repr)


def preactivations(ensemble, points):
    return [member.preactivations(points) for member in ensemble.members]


@METHODS
def test_bounds_contain_sampled_preactivations(method, rng):
    for _ in range(200):
        ensemble, domain = random_case(rng)
        bounds = method.tighten(members(ensemble, domain))
        points = domain.sample(200, rng)
        assert bounds.contains(preactivations(ensemble, points))


@METHODS
@pytest.mark.parametrize("case", DEGENERATE)
def test_bounds_contain_exact_ranges(method, case, rng):
    ensemble, domain = DEGENERATE[case](rng)
    bounds = method.tighten(members(ensemble, domain))
    for i, member in enumerate(exact_ranges(ensemble, domain)):
        for k, (low, high) in enumerate(member):
            size = 1e-12 * max(1.0, np.abs(low).max(), np.abs(high).max())
            assert np.all(bounds.lower[i][k] <= low + size)
            assert np.all(bounds.upper[i][k] >= high - size)


def test_linear_bounds_are_never_looser_than_intervals(rng):
    for _ in range(50):
        ensemble, domain = random_ensemble(rng, 2, 4, (6, 5, 4)), random_domain(rng, 4)
        interval = Interval().tighten(members(ensemble, domain))
        linear = Crown().tighten(members(ensemble, domain))
        for i in range(2):
            for k in range(4):
                assert np.all(linear.upper[i][k] <= interval.upper[i][k])
                assert np.all(linear.lower[i][k] >= interval.lower[i][k])


def test_linear_bounds_are_tighter_somewhere_in_deep_networks(rng):
    ensemble, domain = random_ensemble(rng, 1, 4, (8, 8, 8)), random_domain(rng, 4)
    interval = Interval().tighten(members(ensemble, domain))
    linear = Crown().tighten(members(ensemble, domain))
    assert linear.upper[0][-1][0] < 0.8 * interval.upper[0][-1][0]


@METHODS
def test_given_bounds_are_never_loosened(method, rng):
    for _ in range(30):
        ensemble, domain = random_case(rng)
        points = domain.sample(500, rng)
        known = method.tighten(members(ensemble, domain))
        # Any tighter valid bounds will do: those of a smaller box around the samples.
        inner = Domain(points.min(axis=0), points.max(axis=0))
        tight = Crown().tighten(members(ensemble, inner))
        again = method.tighten(members(ensemble, inner), known.intersect(tight))
        for i in range(ensemble.num_members):
            for k in range(len(known.upper[i])):
                assert np.all(again.upper[i][k] <= tight.upper[i][k])
                assert np.all(again.lower[i][k] >= tight.lower[i][k])
        assert again.contains(preactivations(ensemble, points))


def test_first_layer_bounds_are_exact_up_to_rounding(rng):
    ensemble, domain = random_ensemble(rng, 1, 3, (5,)), random_domain(rng, 3)
    bounds = Interval().tighten(members(ensemble, domain))
    low, high = exact_ranges(ensemble, domain)[0][0]
    np.testing.assert_allclose(bounds.lower[0][0], low, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(bounds.upper[0][0], high, rtol=1e-10, atol=1e-10)


@METHODS
def test_margins_cover_rounding_where_terms_cancel(method):
    # 1e8 * x - 1e8 * x + x: the exact value is x, floats lose half of their digits.
    w = np.array([[1e8, -1e8, 1.0]])
    net = Network((np.ones((3, 1)), w), (np.zeros(3), np.zeros(1)))
    box = Domain([0.1], [0.3])
    bounds = method.tighten(members(Ensemble((net,)), box))
    points = np.linspace(0.1, 0.3, 1001)[:, None]
    assert bounds.contains([net.preactivations(points)])


def test_crossing_proofs_are_accepted(rng):
    ensemble, domain = random_ensemble(rng, 1, 2, (3, 3)), random_domain(rng, 2)
    point = Domain(domain.lower, domain.lower)
    exact = preactivations(ensemble, domain.lower)
    known = NeuronBounds(exact, exact)
    bounds = Crown().tighten(members(ensemble, point), known)
    assert bounds.contains(exact, slack=1e-9)
