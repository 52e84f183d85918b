"""The compiled kernel: whether it is there, and an ensemble in its terms."""

from __future__ import annotations

import importlib
import logging
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from ennopt.bounds.rounding import magnitudes, margins
from ennopt.domain import Domain
from ennopt.engine.objective import Objective
from ennopt.network import Ensemble

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


def compile_model(ensemble: Ensemble, domain: Domain) -> Any:
    """The kernel's own copy of a one-output ensemble, with its rounding margins."""
    module = kernel()
    if module is None:
        raise ImportError("Expected the compiled kernel, got none. Check `kernel()`.")
    objective = Objective.of(ensemble, domain)
    reach = objective.reach
    parts = [
        [
            (np.array(w), np.array(b), margin, size)
            for (w, b), margin, size in zip(
                member.layers(),
                margins(member, reach),
                magnitudes(member, reach),
                strict=True,
            )
        ]
        for member in objective.members
    ]
    return module.Model.make(
        parts, reach, objective.margin, objective.unit, objective.spread
    )
