"""The compiled kernel: whether it is there, and a canonical problem in its terms."""

from __future__ import annotations

import importlib
import logging
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ennopt.activations import ACTIVATIONS, ELU
from ennopt.canonical import INPUT_SETS, LIMIT_ACCEPTED, Canonical, Feature
from ennopt.domain.rows import REPAIRED
from ennopt.engine.nodes import FUNCTIONS, group_rounding, pieces_of
from ennopt.network import Network
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Risk, Worst
from ennopt.weighting import Weighting

if TYPE_CHECKING:
    from types import ModuleType

    from ennopt._kernel import Function, Model

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
    """The kernel's own copy of a problem.

    Stacks of hidden layers, the outputs over each, the box and the half-spaces of the
    feasible set, and the sizes and errors of their rows; functions of the outputs
    unless the objective is their plain sum.
    """
    module = kernel()
    if module is None:
        raise ImportError("Expected the compiled kernel, got none. Check `kernel()`.")
    others = FUNCTIONS if problem.is_relu else {Feature.ACTIVATIONS}
    problem.expect(INPUT_SETS | others, "the compiled kernel")
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
        [] if problem.is_sum else _functions(problem),
        [] if problem.is_sum else [tuple(piece) for piece in pieces_of(problem)],
    )  # fmt: skip
    return model


def _functions(problem: Canonical) -> list[Function]:
    """The objective and the limits, in the order of `ennopt::Function`."""

    def told(function: Weighting, *numbers: float) -> Function:
        groups = [
            (list(places), *_risk(risk, len(places)))
            for places, risk in function.groups
        ]
        return (
            np.array(function.weights), groups, *numbers,
            group_rounding(problem, function),
        )  # type: ignore[return-value]  # fmt: skip

    limits = problem.limits
    return [
        told(problem.weighting, 0.0, 0.0, 0.0, problem.spread),
        *(
            told(
                function, least, least - LIMIT_ACCEPTED * slack, least - slack,
                float(spread),
            )
            for function, least, slack, spread in zip(
                limits.functions, limits.least.tolist(), problem.slack.tolist(),
                problem.limit_spread, strict=True,
            )
        ),
    ]  # fmt: skip


def _risk(risk: Risk, count: int) -> tuple[int, float, float]:
    """Number of its kind, cap or kappa, and the factor of the mean."""
    match risk:
        case Worst():
            return 0, 1.0, 1.0
        case Cvar():
            return 0, risk.cap(count), 1.0
        case MeanMinusStd():
            return 1, float(risk.kappa), float(risk.mean)
        case MeanMinusMad():
            return 2, float(risk.kappa), float(risk.mean)
    raise TypeError(f"Expected a risk that the kernel knows, got {risk!r}.")


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
