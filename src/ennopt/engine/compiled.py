"""The compiled kernel: whether it is there, and a canonical problem in its terms."""

from __future__ import annotations

import importlib
import logging
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ennopt.canonical import Canonical

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
    slopes, sides = problem.domain.half_spaces()
    model: Model = module.Model.make(
        stacks, problem.domain.lower, problem.domain.upper, slopes, sides,
        problem.unit, problem.spread, problem.noise,
    )  # fmt: skip
    return model
