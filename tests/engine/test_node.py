"""The bound of a node is a proof: nothing on the node beats it."""

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from scipy.optimize import linprog

from ennopt.domain import Domain
from ennopt.engine.concretise import HalfSpaces, argument, clip, empty, support
from ennopt.engine.lines import FirstLayer, anchor, anchored_lines, mix
from ennopt.engine.majorant import Sum
from ennopt.engine.node import bound_nodes, branch
from ennopt.engine.nodes import Fate, NodeModel, Nodes, NodeSettings
from oracles import (
    DEGENERATE,
    canonical,
    exact_maximum,
    random_case,
    random_domain,
    random_ensemble,
)

ALL = pytest.mark.parametrize(
    "settings",
    [NodeSettings(), NodeSettings(row_slopes=False, vertex_lines=False)],
    ids=["rules", "plain"],
)


def nodes_of(model, domain, count, rng):
    a, b = domain.sample(count, rng), domain.sample(count, rng)
    b = a + rng.choice([1.0, 0.3, 0.03], size=(count, 1)) * (b - a)
    nodes = Nodes.unpacked(np.repeat(Nodes.root(model).packed(), count, axis=0), model)
    nodes.lower, nodes.upper = np.minimum(a, b), np.maximum(a, b)
    nodes.lower[0], nodes.upper[0] = domain.lower, domain.upper
    return nodes


def samples(lower, upper, rng, count=300):
    corners = rng.integers(0, 2, size=(count // 3, lower.size))
    inner = rng.random((count - count // 3, lower.size))
    return np.clip(
        lower + np.concatenate([corners, inner]) * (upper - lower), lower, upper
    )


@ALL
def test_no_sample_beats_the_bound_of_its_node(settings, rng):
    for _ in range(40):
        inputs = int(rng.integers(1, 6))
        widths = tuple(int(n) for n in rng.integers(2, 9, size=int(rng.integers(1, 5))))
        ensemble = random_ensemble(rng, int(rng.integers(1, 4)), inputs, widths)
        domain = random_domain(rng, inputs)
        model = NodeModel(canonical(ensemble, domain))
        nodes = nodes_of(model, domain, 25, rng)
        lower, upper = nodes.lower.copy(), nodes.upper.copy()
        bound_nodes(model, settings, nodes, -np.inf)
        for i in range(25):
            values = ensemble(samples(lower[i], upper[i], rng))[:, 0]
            assert values.max() <= nodes.bound[i]


@pytest.mark.parametrize("case", DEGENERATE)
def test_the_root_bound_is_at_least_the_exact_maximum(case, rng):
    ensemble, domain = DEGENERATE[case](rng)
    model = NodeModel(canonical(ensemble, domain))
    root = Nodes.root(model)
    bound_nodes(model, NodeSettings(), root, -np.inf)
    assert root.bound[0] >= exact_maximum(ensemble, domain)[0]


@ALL
def test_no_point_above_the_cutoff_is_lost(settings, rng):
    """Clipping, cuts, states and pruning keep every point that beats the cutoff."""
    lost = kept = 0
    for _ in range(25):
        ensemble, domain = random_ensemble(rng, 2, 3, (7, 6, 5)), random_domain(rng, 3)
        model = NodeModel(canonical(ensemble, domain))
        points = samples(domain.lower, domain.upper, rng, 2000)
        values = ensemble(points)[:, 0]
        cutoff = float(np.quantile(values, 0.97))
        good = points[values > cutoff]
        nodes = Nodes.root(model)
        for _ in range(5):  # five generations of the tree
            out = bound_nodes(model, settings, nodes, cutoff)
            rows, d = nodes.packed(), 3
            children = [rows[out.fate == Fate.AGAIN]]
            for i in np.flatnonzero(out.fate == Fate.SPLIT):
                left, right = rows[i].copy(), rows[i].copy()
                left[3 + 2 * d + out.split[i]] = out.middle[i]
                right[3 + d + out.split[i]] = out.middle[i]
                children.append(np.stack([left, right]))
            nodes = Nodes.unpacked(np.concatenate(children), model)
            inside = [
                np.any(np.all((x >= nodes.lower) & (x <= nodes.upper), axis=1))
                for x in good
            ]
            lost += len(good) - sum(inside)
            kept += sum(inside)
    assert lost == 0
    assert kept > 1000


def test_states_of_neurons_hold_on_the_node(rng):
    for _ in range(30):
        ensemble, domain = random_case(rng)
        model = NodeModel(canonical(ensemble, domain))
        nodes = nodes_of(model, domain, 10, rng)
        lower, upper = nodes.lower.copy(), nodes.upper.copy()
        out = bound_nodes(model, NodeSettings(), nodes, -np.inf)
        for i in range(10):
            points = samples(lower[i], upper[i], rng)
            h = [m.preactivations(points)[:-1] for m in model.networks]
            flat = [layer for member in h for layer in member]
            if not flat:
                continue
            values = np.concatenate(flat, axis=1)
            state, slack = nodes.states[i], 1e-9
            assert np.all(values[:, state == 254] >= -slack)
            assert np.all(values[:, state == 255] <= slack)
            free = state < 254
            assert np.all(values[:, free] <= out.upper[i, free] + slack)
            assert np.all(values[:, free] >= out.lower[i, free] - slack)


def test_support_is_the_largest_value_on_box_and_cut(rng):
    for _ in range(200):
        d = int(rng.integers(1, 6))
        g, a = rng.normal(size=(1, 1, d)), rng.normal(size=(1, d))
        s = float(rng.normal())
        if s + np.abs(a).sum() < 0:
            continue  # the node is empty
        cut = HalfSpaces(a[:, None], np.array([[s]]), 0.0)
        most, lam = support(g, cut)
        z = rng.uniform(-1, 1, size=(4000, d))
        z[:2000] = np.sign(z[:2000])
        inside = z @ a[0] + s >= 0
        if inside.any():
            assert (z[inside] @ g[0, 0]).max() <= most[0, 0] + 1e-9
        point = argument(g[:, 0], cut, lam[:, 0])[0]
        assert point @ a[0] + s >= -1e-9
        assert point @ g[0, 0] == pytest.approx(most[0, 0], abs=1e-9)


def random_half_spaces(rng, count, d):
    """Half-spaces of one node, most of them met by a common point."""
    a = rng.normal(size=(1, count, d))
    inside = rng.uniform(-0.5, 0.5, size=d)
    s = -(a[0] @ inside) + rng.uniform(-0.1, 0.4, size=count)
    return HalfSpaces(a, s[None], 0.0)


def exact_support(g, halves):
    """The largest value by a linear program, ``None`` if there is no point."""
    found = linprog(
        -g, A_ub=-halves.a[0], b_ub=halves.s[0], bounds=[(-1.0, 1.0)] * g.size
    )
    return -found.fun if found.status == 0 else None


def test_support_on_several_half_spaces_is_above_and_mostly_exact(rng):
    exact = total = 0
    for _ in range(150):
        d, count = int(rng.integers(2, 9)), int(rng.integers(2, 6))
        halves = random_half_spaces(rng, count, d)
        g = rng.normal(size=(1, 3, d))
        most, multipliers = support(g, halves)
        assert np.all(multipliers >= 0.0)
        for form, bound in zip(g[0], most[0], strict=True):
            best = exact_support(form, halves)
            if best is None:
                continue
            assert bound >= best - 1e-9
            exact += bound <= best + 1e-7
            total += 1
    assert total > 300
    assert exact > 0.75 * total


def test_nodes_found_empty_have_no_point_and_most_empty_ones_are_found(rng):
    found = none = 0
    for _ in range(300):
        d, count = int(rng.integers(2, 6)), int(rng.integers(2, 5))
        a = rng.normal(size=(1, count, d))
        halves = HalfSpaces(a, rng.normal(size=(1, count)) - 1.0, 0.0)
        point = exact_support(np.zeros(d), halves)
        claimed = bool(empty(halves)[0])
        assert not (claimed and point is not None)
        none += point is None
        found += claimed
    assert none > 50
    assert found > 0.95 * none


def test_clipping_keeps_every_point_that_meets_the_cut(rng):
    shrunk = 0
    for _ in range(300):
        d = int(rng.integers(1, 5))
        lower = rng.normal(size=(1, d))
        upper = lower + rng.random((1, d))
        slopes, constant = rng.normal(size=(1, d)), np.zeros(1)
        points = samples(lower[0], upper[0], rng, 600)
        cutoff = float(np.quantile(points @ slopes[0], 0.9))
        low, high, _, empty = clip(
            slopes, constant, cutoff, np.full(d, 10.0), 1e-15, lower, upper
        )
        good = points[points @ slopes[0] >= cutoff]
        assert not empty[0]
        assert np.all((good >= low) & (good <= high))
        shrunk += np.any(high - low < upper - lower)
    assert shrunk > 100


def test_anchored_lines_are_above_relu_everywhere_and_exact_at_their_vertex(rng):
    for _ in range(300):
        d, n = int(rng.integers(1, 6)), 4
        wr, hc = rng.normal(size=(1, n, d)), 0.8 * rng.normal(size=(1, n))
        total = np.abs(wr).sum(axis=2)
        unstable = np.abs(hc) < total
        first = FirstLayer(
            wr, hc,
            np.where(unstable, hc - total, -1.0), np.where(unstable, hc + total, 1.0),
        )  # fmt: skip
        coefficients = np.where(unstable, rng.normal(size=(1, n)), 0.0)[:, None]
        undecided = rng.random((1, 1, d)) < rng.choice([0.0, 0.4])
        signs = np.where(undecided, 0.0, rng.choice([-1.0, 1.0], size=(1, 1, d)))
        g, c = anchored_lines(first, coefficients, signs, undecided)
        z = rng.uniform(-1, 1, size=(500, d))
        z[:200] = np.sign(z[:200])
        exact = np.maximum(z @ wr[0].T + hc[0], 0.0) @ coefficients[0, 0]
        assert np.all(exact <= z @ g[0, 0] + c[0, 0] + 1e-12)
        if not undecided.any():
            vertex = signs[0, 0]
            there = np.maximum(wr[0] @ vertex + hc[0], 0.0) @ coefficients[0, 0]
            assert vertex @ g[0, 0] + c[0, 0] == pytest.approx(there, abs=1e-12)


def test_forms_anchored_where_they_lean_stay_above_relu_and_fall(rng):
    fallen = 0
    for _ in range(200):
        d, n = int(rng.integers(1, 9)), 6
        wr, hc = rng.normal(size=(1, n, d)), 0.3 * rng.normal(size=(1, n))
        total = np.abs(wr).sum(axis=2)
        unstable = np.abs(hc) < total
        low = np.where(unstable, hc - total, -1.0)
        high = np.where(unstable, hc + total, 1.0)
        coefficients = np.where(unstable, rng.normal(size=(1, n)), 0.0)[:, None]
        plus, minus = np.maximum(coefficients, 0.0), np.minimum(coefficients, 0.0)
        steep = high / (high - low)
        lines = plus * steep[:, None] + minus * (high > -low)[:, None]
        g = lines @ wr  # the triangle: what the lines are to improve
        c = (lines @ hc[..., None])[..., 0] + (plus @ (-low * steep)[..., None])[..., 0]
        value = c + np.abs(g).sum(axis=2)
        nothing = np.zeros_like(g), np.zeros_like(c)
        g, c, best, _ = anchor(
            FirstLayer(wr, hc, low, high), coefficients, nothing, (g, c), value
        )
        z = rng.uniform(-1, 1, size=(500, d))
        z[:200] = np.sign(z[:200])
        exact = np.maximum(z @ wr[0].T + hc[0], 0.0) @ coefficients[0, 0]
        assert np.all(exact <= z @ g[0, 0] + c[0, 0] + 1e-12)
        np.testing.assert_allclose(best, c + np.abs(g).sum(axis=2), atol=1e-12)
        assert np.all(best <= value)
        fallen += np.any(best < value - 1e-6)
    assert fallen > 100


def test_errors_count_half_as_much_with_every_layer():
    class Even(Sum):
        """Three layers of one neuron with an error of one each."""

        centre = np.zeros((1, 2))
        layers: ClassVar = [[SimpleNamespace(smear=np.array([[[1.0, 3.0]]]))] * 3]

        def output_form(self, i, w, b, error):
            raise NotImplementedError

        def errors_of(self, layer, a):
            return np.abs(a), np.ones_like(a)

    scores, errors = Even().smear(0, [np.ones((1, 1))] * 3)
    np.testing.assert_array_equal(scores, [[1.75, 5.25]])
    assert errors == 3.0


def test_mixing_never_raises_the_largest_value(rng):
    g, gnew = rng.normal(size=(2, 50, 3, 4))
    c, cnew = rng.normal(size=(2, 50, 3))
    value = c + np.abs(g).sum(axis=2)
    moved, constant, best = mix(g, c, gnew, cnew, value)
    assert np.all(best <= value)
    np.testing.assert_allclose(best, constant + np.abs(moved).sum(axis=2))
    assert np.any(best < value)


def test_packed_nodes_come_back_the_same(rng):
    ensemble, domain = random_ensemble(rng, 2, 3, (5, 4)), random_domain(rng, 3)
    model = NodeModel(canonical(ensemble, domain))
    nodes = nodes_of(model, domain, 7, rng)
    bound_nodes(model, NodeSettings(), nodes, -np.inf)
    back = Nodes.unpacked(nodes.packed(), model)
    for name in Nodes.__slots__:
        np.testing.assert_array_equal(getattr(back, name), getattr(nodes, name))


def test_a_domain_that_is_one_point_gets_its_value(rng):
    ensemble, domain = random_ensemble(rng, 2, 3, (5, 4)), random_domain(rng, 3)
    point = Domain(domain.lower, domain.lower)
    model = NodeModel(canonical(ensemble, point))
    root = Nodes.root(model)
    assert bound_nodes(model, NodeSettings(), root, -np.inf).fate[0] == Fate.AGAIN
    assert bound_nodes(model, NodeSettings(), root, -np.inf).fate[0] == Fate.STUCK
    value = ensemble(domain.lower)[0]
    assert value <= root.bound[0] <= value + 1e-9


def test_scores_that_are_no_numbers_split_the_widest_input(rng):
    ensemble, domain = random_ensemble(rng, 1, 3, (4,)), Domain([0, 0, 0], [8, 1, 2])
    model = NodeModel(canonical(ensemble, domain))
    nodes = Nodes.root(model)
    nodes.lower, nodes.upper = np.zeros((1, 3)), np.array([[4.0, 0.9, 0.1]])
    no = np.zeros(1, dtype=bool)
    fate, place, _ = branch(model, nodes, np.full((1, 3), np.nan), no, no, no, no)
    assert (fate[0], place[0]) == (Fate.SPLIT, 1)
