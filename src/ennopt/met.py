"""A point as its user would write it down, and how it meets constraints and limits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ennopt.domain import Domain, Rows
from ennopt.network import Array, Ensemble
from ennopt.problem import Problem

ACTIVE = 1e-4
"""A constraint counts as being at its limit within this share of its terms. An answer
is optimal within a gap: it may stop a little short of the limit that holds it back."""


class Met(NamedTuple):
    """How the answer meets a linear constraint ``least <= value <= most``.

    Parameters
    ----------
    text
        The constraint as the user stated it.
    value
        The sum of inputs times coefficients at the answer, all inputs on one side; not
        a number if there is no answer.
    least, most
        Its sides, infinite where there is none.
    side
        The side that the value is at: ``"lower"``, ``"upper"``, ``"both"`` for an
        equation, ``None`` if it is at none.
    """

    text: str
    value: float
    least: float
    most: float
    side: str | None

    @property
    def words(self) -> str:
        """How the constraint is met, for a person."""
        if math.isnan(self.value):
            return "no answer to check"
        if self.side == "both":
            return "holds"
        if self.side is not None:
            which = f"{self.side} " * math.isfinite(self.most - self.least)
            return f"at its {which}limit"
        spare = min(self.value - self.least, self.most - self.value)
        return f"{spare:.6g} to spare" if math.isfinite(spare) else "holds"


def told_at(domain: Domain, ensemble: Ensemble | None, x: Array) -> dict[str, Any]:
    """A point (num_inputs,) as its user would write it down.

    Columns that a model records have their own units and the names of their levels. A
    category of the domain is one entry, where its first input would be.

    Examples
    --------
    >>> from ennopt.domain.discrete import discretised
    >>> box = Domain([0, 0, 0], [1, 1, 9], ("plant_A", "plant_B", "age"))
    >>> plants = discretised(box, categories={"plant": {"A": 0, "B": 1}})
    >>> told_at(plants, None, np.array([0.0, 1.0, 7.0]))
    {'plant': 'B', 'age': 7.0}
    """
    told = dict(zip(domain.names, x.tolist(), strict=True))
    recorded: set[tuple[int, ...]] = set()
    if ensemble is not None and ensemble.columns is not None:
        told = ensemble.told(x)
        recorded = {column.inputs for column in ensemble.columns}
    for group in domain.groups:
        if group.inputs in recorded:
            continue
        first, *others = (domain.names[j] for j in group.inputs)
        level = (group.name, group.level(x))
        told = dict(
            level if name == first else (name, at)
            for name, at in told.items()
            if name not in others
        )
    return told


def met_at(rows: Rows, x: Array | None) -> tuple[Met, ...]:
    """How a point (num_inputs,) meets linear constraints.

    Examples
    --------
    >>> for met in met_at(Rows([[1, 1], [1, 0]], [2, 0], [2, 5]), np.array([1.0, 1.0])):
    ...     print(met.words)
    holds
    1 to spare
    """
    met = []
    for text, slopes, least, most in zip(
        rows.texts, rows.matrix, rows.least.tolist(), rows.most.tolist(), strict=True
    ):
        value, size = math.nan, 0.0
        if x is not None:
            value = float(slopes @ x)
            size = float(np.abs(slopes) @ np.abs(x))
        met.append(_met(text, value, size, least, most))
    return tuple(met)


def limits_at(problem: Problem, x: Array | None) -> tuple[Met, ...]:
    """How a point (num_inputs,) meets the limits on predictions."""
    met = []
    for limit in problem.limits:
        value = math.nan
        if x is not None:
            value = limit.sign * float(limit.function.values(x[None])[0])
        end = limit.sign * limit.least
        least, most = (end, math.inf) if limit.sign > 0 else (-math.inf, end)
        met.append(_met(limit.text, value, abs(value), least, most))
    return tuple(met)


def _met(text: str, value: float, size: float, least: float, most: float) -> Met:
    """What is said of a condition whose terms have the size `size`."""
    below, above = (
        math.isfinite(end) and abs(value - end) <= ACTIVE * (size + abs(end))
        for end in (least, most)
    )
    side = {
        (True, True): "both",
        (True, False): "lower",
        (False, True): "upper",
        (False, False): None,
    }[below, above]
    return Met(text, value, least, most, side)
