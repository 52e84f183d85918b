"""The compiled kernel equals its NumPy specification, on every instruction set."""

import dataclasses

import numpy as np
import pytest

from ennopt.bounds.compiled import compile_model, kernel
from ennopt.bounds.node import bound_nodes
from ennopt.bounds.nodes import Fate, NodeModel, Nodes, NodeSettings
from ennopt.domain import Domain
from oracles import DEGENERATE, random_case, random_domain, random_ensemble

MODULE = kernel()
pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")
SETS = MODULE.instruction_sets() if MODULE else []
TOLERANCE = 1e-9


def settings_of(plain):
    compiled = MODULE.Settings()
    for name, value in dataclasses.asdict(plain).items():
        setattr(compiled, name, value)
    return compiled


def boxes_in(domain, count, rng):
    """Boxes of all sizes inside the domain, the domain itself first."""
    a, b = domain.sample(count, rng), domain.sample(count, rng)
    shrink = rng.choice([1.0, 0.5, 0.1, 1e-3], size=(count, 1))
    b = a + shrink * (b - a)
    lower, upper = np.minimum(a, b), np.maximum(a, b)
    lower[0], upper[0] = domain.lower, domain.upper
    return lower, upper


def fresh(model, lower, upper, settings=None):
    domain = Domain(lower[0], upper[0])
    root = Nodes.root(model, domain, settings)
    rows = np.repeat(root.packed(), len(lower), axis=0)
    nodes = Nodes.unpacked(rows, model.num_inputs, model.num_neurons)
    nodes.lower, nodes.upper = lower.copy(), upper.copy()
    return nodes


def scale_of(model):
    return 1.0 + sum(float(sizes[-1][0]) for sizes in model.sizes)


def check(ensemble, domain, settings, name, rng, count=19, score_tolerance=1e-6):
    model = NodeModel(ensemble, domain)
    compiled = compile_model(ensemble, domain)
    lower, upper = boxes_in(domain, count, rng)
    nodes = fresh(model, lower, upper, settings)
    cutoff = -np.inf
    level = float(np.quantile(ensemble(domain.sample(200, rng))[:, 0], 0.9))
    slack = TOLERANCE * scale_of(model)
    # A first bound without a cutoff, then twice on the children's inheritance.
    for _ in range(3):
        before = nodes.packed()
        found, told, _, low, high, scores = MODULE.bound_nodes(
            compiled, settings_of(settings), before, cutoff, name
        )
        spec = bound_nodes(model, settings, nodes, cutoff)
        mine = Nodes.unpacked(found, model.num_inputs, model.num_neurons)
        np.testing.assert_array_equal(told[:, 0] == Fate.CLOSED, spec.fate == 0)
        alive = spec.fate != Fate.CLOSED
        np.testing.assert_array_equal(told[alive, 0], spec.fate[alive])
        for field in ("bound", "lower", "upper"):
            got, wanted = getattr(mine, field)[alive], getattr(nodes, field)[alive]
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=slack)
        unstable = (nodes.states < 252) & alive[:, None]
        np.testing.assert_array_equal(mine.states[alive] < 252, unstable[alive])
        np.testing.assert_array_equal(
            np.where(unstable, 0, mine.states)[alive],
            np.where(unstable, 0, nodes.states)[alive],
        )
        np.testing.assert_allclose(
            np.where(unstable, low, 0), np.where(unstable, spec.lower, 0), atol=slack
        )
        np.testing.assert_allclose(
            np.where(unstable, high, 0), np.where(unstable, spec.upper, 0), atol=slack
        )
        np.testing.assert_allclose(
            scores[alive], spec.scores[alive], rtol=score_tolerance, atol=slack
        )
        np.testing.assert_array_equal(told[alive, 4], spec.neuron[alive])
        np.testing.assert_allclose(
            mine.multipliers[alive], nodes.multipliers[alive], rtol=1e-6, atol=1e-9
        )
        cutoff = level
        if settings.branch_neurons:  # hold some neurons on and off, as branching does
            free = (nodes.states < 252) & (rng.random(nodes.states.shape) < 0.3)
            held = rng.choice([252, 253], size=nodes.states.shape)
            nodes.states = np.where(free, held, nodes.states).astype(np.uint8)
            drawn = rng.random(nodes.states.shape) * rng.choice([0.0, 0.3])
            now = (nodes.states == 252) | (nodes.states == 253)
            nodes.multipliers = np.where(free, drawn, nodes.multipliers) * now


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "settings",
    [
        NodeSettings(),
        NodeSettings(max_steps=0),
        NodeSettings(row_slopes=False, vertex_lines=False, output_lines=False),
        NodeSettings(row_slopes=False),
        NodeSettings(vertex_lines=False),
        NodeSettings(branch_neurons=True),
    ],
    ids=["all", "no steps", "plain", "lines", "slopes", "neurons"],
)
def test_kernel_equals_specification_on_random_shapes(name, settings, rng):
    shapes = [(3, 2, (5, 4)), (2, 5, (7, 6, 5)), (1, 11, (9, 8, 7, 6)), (4, 3, (13,))]
    for members, inputs, widths in shapes:
        ensemble = random_ensemble(rng, members, inputs, widths, weighted=True)
        check(ensemble, random_domain(rng, inputs), settings, name, rng)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("case", DEGENERATE)
def test_kernel_equals_specification_on_degenerate_ensembles(name, case, rng):
    ensemble, domain = DEGENERATE[case](rng)
    # Where a maximum lies on an exact kink, rounding decides a slope step, which moves
    # no bound but the scores a little.
    tolerance = 1e-3 if case == "kinks at the bounds" else 1e-6
    check(ensemble, domain, NodeSettings(), name, rng, score_tolerance=tolerance)


@pytest.mark.parametrize("seed", range(30))
def test_kernel_equals_specification_on_random_cases(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = random_case(rng)
    check(ensemble, domain, NodeSettings(), SETS[-1], rng)


@pytest.mark.parametrize("name", SETS)
def test_a_node_is_bounded_alike_whatever_its_neighbours_in_the_lanes(name, rng):
    ensemble, domain = random_ensemble(rng, 3, 4, (8, 7, 6)), random_domain(rng, 4)
    model, compiled = NodeModel(ensemble, domain), compile_model(ensemble, domain)
    lower, upper = boxes_in(domain, 17, rng)
    rows = fresh(model, lower, upper).packed()
    level = float(np.quantile(ensemble(domain.sample(200, rng))[:, 0], 0.9))
    settings = MODULE.Settings()
    together = MODULE.bound_nodes(compiled, settings, rows, level, name)
    for i in range(len(rows)):
        alone = MODULE.bound_nodes(compiled, settings, rows[i : i + 1], level, name)
        if alone[1][0, 0] != Fate.CLOSED:
            np.testing.assert_allclose(alone[5][0], together[5][i], rtol=1e-9)
            np.testing.assert_allclose(
                alone[0][0, :15], together[0][i, :15], rtol=1e-9, atol=1e-12
            )
