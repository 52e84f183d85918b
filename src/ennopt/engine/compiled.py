"""The compiled kernel: whether it is there, and a canonical problem in its terms."""

from __future__ import annotations

import importlib
import logging
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ennopt.activations import ACTIVATIONS, ELU
from ennopt.canonical import INPUT_SETS, Canonical, Feature
from ennopt.domain.rows import REPAIRED
from ennopt.network import Network

if TYPE_CHECKING:
    from types import ModuleType

    from ennopt._kernel import Model

logger = logging.getLogger(__name__)


@cache
def kernel() -> ModuleType | None:
    """The extension module, or ``None``, with one warning, where it is missing."""
    try:
        return importlib.import_module("ennopt._kernel")
    except ImportError as error:
        logger.warning(
            "The compiled kernel is missing (%s): bounds are computed with NumPy, "
            "about a hundred times slower. Install a C++20 compiler and ennopt again.",
            error,
        )
        return None


def compile_model(problem: Canonical) -> Model:
    """The kernel's own copy of a problem whose objective is a plain sum of outputs.

    Stacks of hidden layers, an output over each, the box and the half-spaces of the
    feasible set, and the sizes and errors of their rows.
    """
    module = kernel()
    if module is None:
        raise ImportError("Expected the compiled kernel, got none. Check `kernel()`.")
    problem.expect(INPUT_SETS | {Feature.ACTIVATIONS}, "the compiled kernel")
    stacks = [
        [
            (np.array(w), np.array(b), error, size)
            for (w, b), error, size in zip(
                network.layers(),
                problem.row_errors[i],
                problem.row_sizes[i],
                strict=True,
            )
        ]
        for i, network in enumerate(problem.networks)
    ]
    domain = problem.domain
    slopes, sides = domain.half_spaces()
    _, inner = domain.half_spaces(REPAIRED)
    lists = [[] if e is None else e.tolist() for e in domain.values.lists]
    model: Model = module.Model.make(
        stacks, domain.lower, domain.upper, slopes, sides, inner,
        domain.values.whole.tolist(), lists,
        [(np.array(r.lower), np.array(r.upper), r.count) for r in domain.regions],
        bool(domain.convex), problem.unit, problem.spread, problem.noise, problem.gamma,
        [] if problem.is_relu else [_activations(n) for n in problem.networks],
    )  # fmt: skip
    return model


def _activations(network: Network) -> list[list[tuple[int, float]]]:
    """Of each hidden layer, the number and the alpha of each neuron's activation."""
    numbers = {type(kind): i for i, kind in enumerate(ACTIVATIONS.values())}
    return [
        [
            (numbers[type(part)], part.alpha if isinstance(part, ELU) else 1.0)
            for part, count in kind.side_by_side(width)
            for _ in range(count)
        ]
        for kind, width in zip(network.activations, network.hidden_widths, strict=True)
    ]
