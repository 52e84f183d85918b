"""Functions of outputs in a model: weighted sums are linear, risks have epigraphs.

The outputs of a risk have columns f of their own. Then the risk of n of them is at
least what a model may choose for it, and the largest choice is the risk itself:

    worst member     t <= f_i
    CVaR             v - cap (s_1 + ... + s_n),   s_i >= v - f_i,   s_i >= 0
    mean less MAD    m mean(f) - kappa / n (a_1 + ... + a_n),   a_i >= +-(f_i - mean(f))
    mean less std    t <= w . f   for each weighting w of the risk

where m is 1, or 0 for the deviations alone. Those of the last kind are too many: a few
are rows from the start, others are cuts, made where a solution violates them. Every w
gives a row that holds at all points, so a model that lacks some has a bound that is
proved all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.rounding import UNIT
from ennopt.milp.building import ABSENT, Building
from ennopt.milp.model import Indices, Inequality
from ennopt.network import Array
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Risk, Worst
from ennopt.weighting import PredictionLimits, Weighting

ROOM = 1e-3
"""Bounds of these columns are wider than what bounds of neurons say, by this share of
their size: rows say what they are, and bounds that cut nothing off do no harm."""

LIMIT_ROOM = 1e-7
"""A limit is a row that is wider than what points may miss it by, by this share of how
much its function varies. A solver's tolerance then calls nothing infeasible that is
feasible, and the bound holds for a little more than it has to."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnForm:
    """An affine function of columns: ``values @ v[columns] + constant``."""

    columns: Indices
    values: Array
    constant: float = 0.0

    @classmethod
    def sum_of(cls, forms: Sequence[ColumnForm]) -> ColumnForm:
        """The sum of functions; a column may come several times."""
        return cls(
            np.concatenate([*(form.columns for form in forms), np.zeros(0, np.int64)]),
            np.concatenate([*(form.values for form in forms), np.zeros(0)]),
            math.fsum(form.constant for form in forms),
        )

    def times(self, factor: float) -> ColumnForm:
        """The function times a number."""
        return ColumnForm(self.columns, factor * self.values, factor * self.constant)

    def dense(self, size: int) -> Array:
        """One coefficient for each of the first `size` columns."""
        return np.bincount(self.columns, self.values, size)[:size].astype(np.float64)

    def at(self, v: Array) -> float:
        """The function at a vector of columns."""
        return float(self.values @ v[self.columns]) + self.constant


@dataclass(frozen=True, slots=True, eq=False)
class RiskColumns:
    """The columns of one risk.

    Parameters
    ----------
    risk
        What it is.
    places
        Numbers of its outputs.
    outputs
        Their columns f, (num_members,).
    value
        The risk as a function of columns.
    top
        The column t, `ABSENT` if there is none.
    level, parts
        The column v of CVaR; s or a of each member.
    by_cuts
        Whether rows of t are missing that a solution may violate.
    """

    risk: Risk
    places: tuple[int, ...]
    outputs: Indices
    value: ColumnForm
    top: int = ABSENT
    level: int = ABSENT
    parts: Indices | None = None
    by_cuts: bool = False

    def assign(self, v: Array, outputs: Array) -> None:
        """Set the columns of a vector where all outputs are given."""
        f = outputs[list(self.places)]
        v[self.outputs] = f
        if self.top != ABSENT:
            v[self.top] = self.risk.respond(f) @ f
        if self.parts is None:
            return
        if self.level == ABSENT:
            v[self.parts] = np.abs(f - f.mean())
            return
        weights = self.risk.respond(f)
        v[self.level] = f[weights > 0.0].max()
        v[self.parts] = np.maximum(v[self.level] - f, 0.0)

    def tangent(self, weights: Array, size: float) -> Inequality:
        """``t <= w . f`` for members of absolute value of at most `size`."""
        rounding = 4.0 * (weights.size + 4) * UNIT * float(np.abs(weights).sum())
        return Inequality(
            np.append(self.outputs, self.top), np.append(-weights, 1.0), rounding * size
        )


@dataclass(frozen=True, slots=True, eq=False)
class FunctionColumns:
    """A function of outputs in a model.

    Parameters
    ----------
    form
        What it is as a function of columns; with risks, a lower bound of it whose
        largest value is the function.
    risks
        The columns of its risks.
    """

    form: ColumnForm
    risks: tuple[RiskColumns, ...] = ()


def add_function(
    building: Building, function: Weighting, outputs: Sequence[ColumnForm], low: Array,
    high: Array,
) -> FunctionColumns:  # fmt: skip
    """Columns and rows of a function.

    Parameters
    ----------
    building
        Has the columns of all neurons.
    function
        Of the outputs.
    outputs
        Each as a function of columns.
    low, high
        Bounds of the outputs, (num_outputs,).
    """
    fixed = [outputs[k].times(w) for k, w in enumerate(function.weights) if w != 0.0]
    risks = []
    for places, risk in function.groups:
        at = list(places)
        size = np.maximum(np.abs(low[at]), np.abs(high[at]))
        columns = building.add(low[at] - ROOM * size, high[at] + ROOM * size)
        for k, column in zip(places, columns, strict=True):
            own = outputs[k]
            building.row(
                [column, *own.columns], [1.0, *-own.values], own.constant, own.constant
            )
        ends = risk.range(low[at], high[at])
        risks.append(_add_risk(building, risk, places, columns, ends, size.max()))
    form = ColumnForm.sum_of([*fixed, *(risk.value for risk in risks)])
    return FunctionColumns(form, tuple(risks))


def _add_risk(
    building: Building, risk: Risk, places: tuple[int, ...], f: Indices,
    ends: tuple[float, float], size: float,
) -> RiskColumns:  # fmt: skip
    """The epigraph of a risk of columns f that lies between `ends`."""
    count = f.size
    reach = max(abs(ends[0]), abs(ends[1]), size) * (1.0 + ROOM)
    wide = np.full(count, 2.0 * reach)
    cap = risk.cap(count) if isinstance(risk, Cvar) else 1.0
    if isinstance(risk, Cvar) and cap < 1.0:
        (level,) = building.add(-wide[:1], wide[:1])
        below = building.add(0.0 * wide, 2.0 * wide)
        for one, part in zip(f, below, strict=True):
            building.row([part, one, level], [1.0, 1.0, -1.0], low=0.0)
        value = ColumnForm(
            np.append(below, level), np.append(np.full(count, -cap), 1.0)
        )
        return RiskColumns(risk, places, f, value, level=int(level), parts=below)
    if isinstance(risk, Worst | Cvar):
        (top,) = building.add(-wide[:1], wide[:1])
        for one in f:
            building.row([top, one], [1.0, -1.0], high=0.0)
        value = ColumnForm(np.array([top]), np.ones(1))
        return RiskColumns(risk, places, f, value, top=int(top))
    if not isinstance(risk, MeanMinusMad | MeanMinusStd):
        raise TypeError(f"Expected a risk that a model can state, got {risk!r}.")
    if isinstance(risk, MeanMinusMad) or count == 2:  # of two, both deviations are one
        off = building.add(0.0 * wide, 2.0 * wide)
        shares = np.full(count, 1.0 / count)
        for k, part in enumerate(off):
            away = np.eye(count)[k] - shares
            building.row([part, *f], [1.0, *-away], low=0.0)
            building.row([part, *f], [1.0, *away], low=0.0)
        value = ColumnForm(
            np.concatenate([f, off]),
            np.repeat([risk.mean / count, -risk.kappa / count], count),
        )
        return RiskColumns(risk, places, f, value, parts=off)
    span = np.array([2.0 * reach * (1.0 + risk.kappa)])
    (top,) = building.add(-span, span)
    value = ColumnForm(np.array([top]), np.ones(1))
    made = RiskColumns(risk, places, f, value, top=int(top), by_cuts=True)
    for y in (np.zeros(count), *np.eye(count), *-np.eye(count)):
        cut = made.tangent(risk.respond(y), size)
        building.row(cut.columns, cut.coefficients, high=cut.limit)
    return made


def add_limits(
    building: Building, limits: PredictionLimits, slack: Array,
    outputs: Sequence[ColumnForm], low: Array, high: Array,
) -> tuple[FunctionColumns, ...]:  # fmt: skip
    """Columns and rows of limits, wider by what points may miss them.

    Parameters
    ----------
    building, outputs, low, high
        As for `add_function`.
    limits
        Functions and what they must reach.
    slack
        What points may miss them by, (num_limits,).
    """
    made = []
    for function, least, own in zip(limits.functions, limits.least, slack, strict=True):
        columns = add_function(building, function, outputs, low, high)
        least_value, most_value = function.range(low, high)
        room = own + LIMIT_ROOM * (most_value - least_value)
        form = columns.form
        (used,) = np.nonzero(values := form.dense(building.size))
        building.row(used, values[used], low=least - room - form.constant)
        made.append(columns)
    return tuple(made)
