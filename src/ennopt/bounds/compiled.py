"""The compiled kernel: whether it is there, and an ensemble in its terms."""

from __future__ import annotations

import importlib
import logging
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from ennopt.bounds.rounding import UNIT, magnitudes, margins
from ennopt.domain import Domain
from ennopt.network import Array, Ensemble, Network

logger = logging.getLogger(__name__)

SPREAD_POINTS = 256


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


def folded_members(ensemble: Ensemble) -> list[Network]:
    """Members whose plain sum is the ensemble: weights folded into the last layers.

    Members with the same hidden layers become one: copies that cancel would otherwise
    be relaxed apart.
    """
    merged: dict[tuple[bytes, ...], Network] = {}
    for member, weight in zip(ensemble.members, ensemble.weights, strict=True):
        own = member.fold_output(float(weight), 0.0)
        hidden = (*own.weights[:-1], *own.biases[:-1])
        key = (str(own.hidden_widths).encode(), *(array.tobytes() for array in hidden))
        if key in merged:
            twin = merged[key]
            own = Network(
                (*own.weights[:-1], twin.weights[-1] + own.weights[-1]),
                (*own.biases[:-1], twin.biases[-1] + own.biases[-1]),
            )
        merged[key] = own
    return list(merged.values())


def sum_unit(num_inputs: int) -> float:
    """Relative rounding of a sum over the inputs and a few terms more."""
    return (64 + 8 * num_inputs) * UNIT


def compile_model(ensemble: Ensemble, domain: Domain) -> Any:
    """The kernel's own copy of a one-output ensemble, with its rounding margins."""
    module = kernel()
    if module is None:
        raise ImportError("Expected the compiled kernel, got none. Check `kernel()`.")
    reach = reach_of(domain)
    members = folded_members(ensemble)
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
        for member in members
    ]
    return module.Model.make(
        parts,
        reach,
        objective_margin(members, reach),
        sum_unit(domain.num_inputs),
        spread_of(ensemble, domain),
    )


def reach_of(domain: Domain) -> Array:
    """Largest absolute value of each input."""
    return np.asarray(np.maximum(np.abs(domain.lower), np.abs(domain.upper)))


def spread_of(ensemble: Ensemble, domain: Domain) -> float:
    """Range of the prediction over random points: a size that no shift changes."""
    points = domain.sample(SPREAD_POINTS, np.random.default_rng(0))
    return float(np.ptp(ensemble(points)[:, 0]))


def objective_margin(members: list[Network], reach: Array) -> float:
    """Rounding margin of a bound of the sum of the members' outputs."""
    total = sum(float(margins(member, reach)[-1][0]) for member in members)
    return 2.0 * total
