"""Alternatives and fronts on random sets, beside random points of these sets.

``make conformance`` runs a thousand of each.
"""

import os

import numpy as np
import pytest

from ennopt import Prediction, Status, alternatives, linear, maximize, pareto
from oracles import random_ensemble, random_set

COUNT = int(os.environ.get("ENNOPT_CONFORMANCE", "8"))
RUNS = {"node_limit": 20_000, "threads": 1}


def problem_of(seed):
    """A set that is mostly not a box, points of it, and an ensemble."""
    rng = np.random.default_rng(seed)
    domain, _ = random_set(rng)
    ensemble = random_ensemble(rng, int(rng.integers(1, 4)), domain.num_inputs, (4,))
    return rng, domain, domain.sample(4000, rng), ensemble


def check_alternatives(seed):
    rng, domain, points, ensemble = problem_of(seed)
    distance = float(rng.uniform(0.05, 0.6))
    found = alternatives(ensemble, domain, distance=distance, count=3, **RUNS)
    values, left = ensemble(points)[:, 0], np.ones(len(points), bool)
    for answer in found:
        assert domain.contains(answer.x)
        assert answer.bound >= answer.value == ensemble(answer.x)[0]
        if left.any():
            assert values[left].max() <= answer.bound + 1e-9
        off = (np.abs(points - answer.x) / found.reach).max(axis=1)
        left &= off >= 1.0
    if found.status is Status.INFEASIBLE:
        assert not left.any()
    if len(found):
        plain = maximize(ensemble, domain, **RUNS)
        assert found[0].value == pytest.approx(plain.value, rel=1e-3, abs=1e-4)
    return found.status


def check_front(seed):
    rng, domain, points, ensemble = problem_of(seed)
    own = Prediction(ensemble, name="own")
    prices = rng.normal(size=domain.num_inputs)
    cost = linear(dict(zip(domain.names, prices, strict=True)))
    front = pareto((cost, own), domain, senses=("min", "max"), points=4, **RUNS)
    pairs = np.column_stack([points @ prices, ensemble(points)[:, 0]])
    for part in front.empty:
        beyond = (pairs[:, 0] < part.first - 1e-7) & (pairs[:, 1] > part.second + 1e-7)
        assert not beyond.any()
    for point in front.points:
        assert domain.contains(point.result.x)
        better = (pairs[:, 0] < point.first - 1e-2) & (
            pairs[:, 1] > point.second + 1e-2
        )
        assert not (front.proved and better.any())
    if front.status is Status.INFEASIBLE:
        assert not len(points)
    return front.status


@pytest.mark.parametrize("part", range(2))
def test_no_point_of_a_random_set_beats_an_alternative(part):
    statuses = [check_alternatives(seed) for seed in range(part, COUNT, 2)]
    assert Status.OPTIMAL in statuses


@pytest.mark.parametrize("part", range(2))
def test_no_point_of_a_random_set_is_beyond_a_front(part):
    statuses = [check_front(seed) for seed in range(part, COUNT, 2)]
    assert Status.OPTIMAL in statuses
