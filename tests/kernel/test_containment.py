"""Bounds of nodes contain samples and exact optima, for each way to compute them."""

from functools import cache, partial

import numpy as np
import pytest
from ways import WAYS, boxes_in, fresh

from ennopt.domain import Domain
from ennopt.engine.nodes import OFF, ON, Fate, NodeModel, Nodes, NodeSettings, Past
from ennopt.network import Ensemble, Network
from oracles import (
    DEGENERATE,
    canonical,
    exact_maximum,
    random_case,
    random_domain,
    random_ensemble,
)


def samples(lower, upper, rng, count=150):
    """Corners and inner points of each box, (num_boxes, count, num_inputs)."""
    shares = rng.random((len(lower), count, lower.shape[1]))
    shares[:, : count // 3] = np.round(shares[:, : count // 3])
    points = lower[:, None] + shares * (upper - lower)[:, None]
    return np.clip(points, lower[:, None], upper[:, None])


def neurons_at(model, points):
    hidden = [h for m in model.networks for h in m.preactivations(points)[:-1]]
    return np.concatenate([np.zeros((*points.shape[:-1], 0)), *hidden], axis=-1)


def assert_contains(model, nodes, low, high, points, values, neurons, mine):
    """Points `mine` of each node keep to its bounds and to the states of neurons."""
    count = 0
    for i, state in enumerate(nodes.states):
        h, value = neurons[i][mine[i]], values[i][mine[i]]
        count += len(value)
        assert np.all(value <= nodes.bound[i])
        free = state < ON
        assert np.all(h[:, free] <= high[i, free])
        assert np.all(h[:, free] >= low[i, free])
        assert np.all(h[:, state == ON] >= 0.0)
        assert np.all(h[:, state == OFF] <= 0.0)
        cut = points[i][mine[i]] @ nodes.cut[i] + nodes.constant[i]
        assert np.all(cut >= value)
    return count


def shapes(rng, count):
    for _ in range(count):
        inputs = int(rng.integers(1, 7))
        widths = [int(n) for n in rng.integers(1, 10, size=int(rng.integers(1, 5)))]
        yield (
            random_ensemble(
                rng, int(rng.integers(1, 4)), inputs, widths, weighted=True
            ),
            random_domain(rng, inputs),
        )


def deep_and_wide(rng):
    for members, inputs, widths in (
        (1, 3, (16,) * 8), (2, 8, (24,) * 6), (1, 12, (128, 40)), (1, 20, (30,) * 4)
    ):  # fmt: skip
        yield random_ensemble(rng, members, inputs, widths), random_domain(rng, inputs)


@WAYS
@pytest.mark.parametrize("drawn", [partial(shapes, count=20), deep_and_wide])
def test_no_sample_leaves_the_bounds_of_its_box(way, drawn, rng):
    for ensemble, domain in drawn(rng):
        model, settings = NodeModel(canonical(ensemble, domain)), NodeSettings()
        lower, upper = boxes_in(domain, 60, rng)
        rows = fresh(model, lower, upper).packed()
        found, _, low, high = way(ensemble, domain, settings)(rows, -np.inf)
        nodes = Nodes.unpacked(found, model)
        points = samples(lower, upper, rng)
        values = ensemble(points)[..., 0]
        assert_contains(
            model, nodes, low, high, points, values, neurons_at(model, points),
            np.ones(values.shape, dtype=bool),
        )  # fmt: skip


@WAYS
def test_no_sample_above_the_cutoff_is_lost(way, rng):
    """Through three generations: clipped, bounded again."""
    settings = NodeSettings()
    total = clipped = 0
    for ensemble, domain in shapes(rng, 12):
        model, bound = (
            NodeModel(canonical(ensemble, domain)),
            way(ensemble, domain, settings),
        )
        lower, upper = boxes_in(domain, 40, rng)
        points = samples(lower, upper, rng)
        values, neurons = ensemble(points)[..., 0], neurons_at(model, points)
        cutoff = float(np.quantile(values, 0.6))
        rows = fresh(model, lower, upper).packed()
        good = values > cutoff
        for _ in range(3):
            found, fate, low, high = bound(rows, cutoff)
            assert not good[fate == Fate.CLOSED].any()
            nodes = Nodes.unpacked(found, model)
            alive = fate != Fate.CLOSED
            inside = (points >= nodes.lower[:, None]) & (points <= nodes.upper[:, None])
            assert np.all(inside.all(axis=2) | ~good)
            clipped += np.count_nonzero(~inside.all(axis=2)[alive])
            mine = good & alive[:, None]
            total += assert_contains(
                model, nodes, low, high, points, values, neurons, mine
            )
            rows = nodes.packed()
    assert total > 20_000
    assert clipped > 1000


@cache
def exact_cases():
    """Random cases with sub-boxes and the exact maximum on each: 3,000 boxes."""
    cases = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        ensemble, domain = random_case(rng)
        lower, upper = boxes_in(domain, 20, rng)
        exact = [
            exact_maximum(ensemble, Domain(low, high))
            for low, high in zip(lower, upper, strict=True)
        ]
        values = np.array([value for value, _ in exact])
        cases.append((ensemble, domain, lower, upper, values, [x for _, x in exact]))
    return cases


@WAYS
def test_bounds_of_boxes_contain_exact_optima(way):
    settings = NodeSettings()
    for ensemble, domain, lower, upper, exact, points in exact_cases():
        model, bound = (
            NodeModel(canonical(ensemble, domain)),
            way(ensemble, domain, settings),
        )
        rows = fresh(model, lower, upper).packed()
        found, _, _, _ = bound(rows, -np.inf)
        assert np.all(found[:, 0] >= exact)
        cutoff = float(np.median(exact))
        for _ in range(2):  # with a cutoff, from the cuts of the first bounds
            found, fate, _, _ = bound(found, cutoff)
            nodes = Nodes.unpacked(found, model)
            good = exact > cutoff
            assert not np.any(good & (fate == Fate.CLOSED))
            assert np.all(nodes.bound[good] >= exact[good])
            x = np.array(points)
            inside = np.all((x >= nodes.lower) & (x <= nodes.upper), axis=1)
            assert np.all(inside[good])


@WAYS
@pytest.mark.parametrize("case", DEGENERATE)
def test_bounds_of_degenerate_ensembles_contain_exact_optima(way, case, rng):
    ensemble, domain = DEGENERATE[case](rng)
    model, settings = NodeModel(canonical(ensemble, domain)), NodeSettings()
    lower, upper = boxes_in(domain, 25, rng)
    rows = fresh(model, lower, upper).packed()
    found, _, _, _ = way(ensemble, domain, settings)(rows, -np.inf)
    for i in range(25):
        exact, _ = exact_maximum(ensemble, Domain(lower[i], upper[i]))
        assert found[i, 0] >= exact


@WAYS
@pytest.mark.parametrize("again", [False, True])
def test_bounding_a_box_again_keeps_the_count_of_roundings(way, again):
    """A constant, its cutoff closer than rounding: splitting is of no use."""
    net = Network([np.zeros((2, 1)), np.ones((1, 2))], [np.ones(2), [0.0]])
    ensemble, domain = Ensemble([net]), Domain([0.0], [1.0])
    model = NodeModel(canonical(ensemble, domain))
    bound = way(ensemble, domain, NodeSettings())
    rows = Nodes.root(model).packed()
    top = float(bound(rows, -np.inf)[0][0, 0])
    level = top - model.noise
    for generations in range(10):
        nodes = Nodes.unpacked(rows, model)
        past = Past(*(np.array([x]) for x in (again, generations)))
        nodes.past = past.packed()
        found, fate, _, _ = bound(nodes.packed(), level)
        assert fate[0] == (Fate.STUCK if generations >= 8 else Fate.SPLIT)
        told = Past.of(Nodes.unpacked(found, model).past)
        assert not told.again[0]
        assert told.generations[0] == generations + 1
