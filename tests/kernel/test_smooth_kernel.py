"""Activations other than ReLU: the kernel equals its specification."""

import numpy as np
import pytest
from ways import MODULE, SETS, boxes_in, fresh, settings_of

from ennopt.activations import ACTIVATIONS
from ennopt.domain import Domain, Rows
from ennopt.engine.compiled import compile_model
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import Fate, NodeModel, Nodes, NodeSettings
from ennopt.network import Ensemble
from oracles import canonical, random_domain, smooth_case, smooth_network

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")
SETTINGS = NodeSettings(max_steps=0, output_lines=False, programs=0)
NAMES = [name for name in ACTIVATIONS if name != "relu"]


def compare(problem, rows, cutoff, name):
    """Bound the same nodes both ways; returns what the kernel makes of them."""
    model = NodeModel(problem)
    found, told, points, low, high, scores = MODULE.bound_boxes(
        compile_model(problem), settings_of(SETTINGS), rows, cutoff, name
    )
    mine, nodes = Nodes.unpacked(found, model), Nodes.unpacked(rows, model)
    spec = bound_nodes(model, SETTINGS, nodes, cutoff)

    def close(got, wanted, rtol=1e-9, atol=1e-9):
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)

    np.testing.assert_array_equal(told[:, 0], spec.fate)
    alive = spec.fate != Fate.CLOSED
    close(told[:, 4], spec.dropped)
    np.testing.assert_array_equal(mine.past[alive], nodes.past[alive])
    for field in ("bound", "lower", "upper", "constant", "cut"):
        close(getattr(mine, field)[alive], getattr(nodes, field)[alive], atol=1e-7)
    close(low[alive], spec.lower[alive])
    close(high[alive], spec.upper[alive])
    close(scores[alive], spec.scores[alive], rtol=1e-6)
    close(points[alive], spec.points[alive])
    close(told[alive, 3], spec.values[alive])
    split = spec.fate == Fate.SPLIT
    np.testing.assert_array_equal(told[split, 1], spec.split[split])
    return mine


def check(ensemble, domain, name, rng):
    """Without a cutoff, then twice with one and the cuts that were left."""
    problem = canonical(ensemble, domain)
    rows = fresh(NodeModel(problem), *boxes_in(domain, 11, rng)).packed()
    level = float(np.quantile(ensemble(domain.sample(200, rng))[:, 0], 0.9))
    for cutoff in (-np.inf, level, level):
        rows = compare(problem, rows, cutoff, name).packed()


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", NAMES)
def test_kernel_equals_specification(name, kind, rng):
    for members, inputs, widths in [(2, 3, (9, 8, 7)), (3, 2, (5,)), (1, 6, (13, 4))]:
        nets = [
            smooth_network(rng, inputs, widths, [kind] * len(widths))
            for _ in range(members)
        ]
        check(Ensemble(nets), random_domain(rng, inputs), name, rng)


@pytest.mark.parametrize("seed", range(20))
def test_kernel_equals_specification_on_random_cases(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = smooth_case(rng)
    check(ensemble, domain, SETS[seed % len(SETS)], rng)


@pytest.mark.parametrize("name", SETS)
def test_kernel_equals_specification_with_a_constraint(name, rng):
    # With a cutoff there would be two half-spaces, whose multipliers rounding decides.
    domain = Domain([-1.0] * 3, [1.0] * 3, rows=Rows([[1, 1, 0]], [-np.inf], [0.5]))
    net = smooth_network(rng, 3, (8, 6), ["tanh", "gelu"])
    problem = canonical(Ensemble([net]), domain)
    box = Domain(domain.lower, domain.upper)
    rows = fresh(NodeModel(problem), *boxes_in(box, 11, rng)).packed()
    compare(problem, rows, -np.inf, name)


def test_values_are_those_of_the_forward_pass(rng):
    for _ in range(20):
        ensemble, domain = smooth_case(rng)
        model = compile_model(canonical(ensemble, domain))
        for x in domain.sample(5, rng):
            assert model.evaluate(x) == pytest.approx(
                ensemble(x)[0], rel=1e-12, abs=1e-12
            )
