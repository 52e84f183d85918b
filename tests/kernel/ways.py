"""The ways to bound nodes, behind one call: each instruction set, and NumPy.

A way is made from an ensemble, a domain and settings; it then takes packed nodes and a
cutoff and returns what becomes of the nodes, their fates, and the neurons' bounds.
"""

import dataclasses
from functools import partial

import numpy as np
import pytest

from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import NodeModel, Nodes
from oracles import canonical

MODULE = kernel()
SETS = MODULE.instruction_sets() if MODULE else []


def settings_of(plain):
    """The kernel's copy of settings."""
    compiled = MODULE.Settings()
    for name, value in dataclasses.asdict(plain).items():
        setattr(compiled, name, value)
    return compiled


def by_kernel(name, ensemble, domain, settings):
    """What bounds packed nodes by one instruction set."""
    model = compile_model(canonical(ensemble, domain))
    own = settings_of(settings)

    def bound(rows, cutoff):
        found, told, _, low, high, _ = MODULE.bound_boxes(
            model, own, rows, cutoff, name
        )
        return found, told[:, 0], low, high

    return bound


def by_numpy(ensemble, domain, settings):
    """What bounds packed nodes by the specification."""
    model = NodeModel(canonical(ensemble, domain))

    def bound(rows, cutoff):
        nodes = Nodes.unpacked(rows, model)
        out = bound_nodes(model, settings, nodes, cutoff)
        return nodes.packed(), out.fate, out.lower, out.upper

    return bound


WAYS = pytest.mark.parametrize(
    "way",
    [pytest.param(partial(by_kernel, name), id=name) for name in SETS]
    + [pytest.param(by_numpy, id="numpy")],
)


def boxes_in(domain, count, rng):
    """Boxes of all sizes inside the domain, the domain itself first."""
    a, b = domain.sample(count, rng), domain.sample(count, rng)
    b = a + rng.choice([1.0, 0.3, 0.03, 1e-4], size=(count, 1)) * (b - a)
    lower, upper = np.minimum(a, b), np.maximum(a, b)
    lower[0], upper[0] = domain.lower, domain.upper
    return lower, upper


def fresh(model, lower, upper):
    """Nodes of the given boxes that know nothing."""
    rows = np.repeat(Nodes.root(model).packed(), len(lower), axis=0)
    nodes = Nodes.unpacked(rows, model)
    nodes.lower, nodes.upper = lower.copy(), upper.copy()
    return nodes
