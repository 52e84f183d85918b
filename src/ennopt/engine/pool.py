"""Rows of the linear programs of signs, and a pool of those that are learned.

A row says that a linear function of inputs and outputs is large enough: a linear
constraint, a limit on predictions, a weighting of a risk, a half-space around a convex
region. Weightings and half-spaces are learned where a program's point misses them, and
hold for all nodes from then on. `src/kernel/pool.hpp` does the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.domain.rows import REPAIRED
from ennopt.engine.nodes import group_rounding
from ennopt.network import Array
from ennopt.risk import MeanMinusMad, MeanMinusStd, Risk

ROW_EDGE = 0.25
"""The points of programs keep to limits less this share of their slack: a point that
was rounded then still counts as one that meets them."""

REGION_EDGE = 0.5
"""The same for half-spaces, of how much wider they are than their region."""

WEIGHTINGS, HALF_SPACES = 64, 128
"""Places for rows of each function with risks, and of each convex region."""


class Row(NamedTuple):
    """``slopes @ x + shares @ outputs``, less an extra input, is at least `side`.

    Parameters
    ----------
    slopes
        Of the inputs, (num_inputs,).
    shares
        Of the outputs, (num_outputs,).
    extra
        The number of the extra input: a risk of the objective; -1 for none.
    side
        What a proof uses.
    edge
        What the points of programs keep to, a little further inside.
    hidden
        Of the outputs of the hidden neurons, (num_neurons,): a line above one of them.
    """

    slopes: Array
    shares: Array
    extra: int
    side: float
    edge: float
    hidden: Array | None = None


def num_learned(problem: Canonical) -> int:
    """How many rows there is room for beside the fixed ones."""
    return num_weightings(problem) + HALF_SPACES * len(problem.domain.convex)


def num_weightings(problem: Canonical) -> int:
    """How many of these rows are weightings of risks."""
    functions = (problem.weighting, *problem.limits.functions)
    return WEIGHTINGS * sum(not function.is_fixed for function in functions)


def fixed_rows(problem: Canonical) -> list[Row]:
    """Linear constraints, then limits that are weighted sums of outputs."""
    slopes, sides = problem.domain.half_spaces()
    inner = problem.domain.half_spaces(REPAIRED)[1]
    edges = sides + 1.5 * (inner - sides)
    nothing = np.zeros(problem.num_outputs)
    found = [
        Row(slope, nothing, -1, float(side), float(edge))
        for slope, side, edge in zip(slopes, sides, edges, strict=True)
    ]
    for j, function in enumerate(problem.limits.functions):
        if function.is_fixed:
            found.append(_limit(problem, j, function.weights, 0.0))
    return found


def _limit(problem: Canonical, j: int, weights: Array, rounding: float) -> Row:
    least, slack = float(problem.limits.least[j]), float(problem.slack[j])
    margin = rounding + float(np.abs(weights) @ output_errors(problem))
    none = np.zeros(problem.num_inputs)
    return Row(none, weights, -1, least - slack - margin, least - ROW_EDGE * slack)


def half_space(problem: Canonical, slopes: Array, side: float) -> Row:
    """A row ``slopes @ x >= side``."""
    none = np.zeros(problem.num_outputs)
    return Row(slopes, none, -1, side, side + REGION_EDGE * room(problem))


def room(problem: Canonical) -> float:
    """How much wider half-spaces are than the convex regions that they are for."""
    return min((convex.room for convex in problem.domain.convex), default=0.0)


def missed_weightings(
    problem: Canonical, outputs: Array, extras: Array
) -> Iterator[tuple[Row, float, float]]:
    """Weightings of risks that are the least at a point, and how far it misses them.

    Parameters
    ----------
    problem
        With risks in the objective or in limits.
    outputs
        At the point, (num_outputs,).
    extras
        What the risks of the objective are there, (num_risks,).

    Yields
    ------
    tuple
        The row, what it is missed by, and in what units: the spread of its function.
    """
    goal = problem.weighting
    own = np.array(goal.respond(outputs))
    rounding = group_rounding(problem, goal)
    for g, (places, _) in enumerate(goal.groups):
        shares = np.zeros_like(own)
        shares[list(places)] = own[list(places)]
        margin = rounding + float(np.abs(shares) @ output_errors(problem))
        row = Row(np.zeros(problem.num_inputs), shares, g, -margin, 0.0)
        yield row, float(extras[g] - shares @ outputs), problem.spread
    for j, function in enumerate(problem.limits.functions):
        if not function.is_fixed:
            weights = np.array(function.respond(outputs))
            row = _limit(problem, j, weights, group_rounding(problem, function))
            missed = row.edge - float(weights @ outputs)
            yield row, missed, float(problem.limit_spread[j])


def output_errors(problem: Canonical) -> Array:
    """Rounding of each output, per unit of its weight, (num_outputs,)."""
    return np.concatenate([errors[-1] for errors in problem.row_errors])


def output_ranges(bounds: NeuronBounds) -> Array:
    """Both ends of each output, (2, num_outputs)."""
    ends = bounds.lower, bounds.upper
    return np.array([np.concatenate([own[-1] for own in end]) for end in ends])


def risk_ranges(problem: Canonical, bounds: NeuronBounds) -> Array:
    """Both ends of each risk of the objective, (2, num_risks)."""
    reach = np.abs(output_ranges(bounds)).max(axis=0)
    most = [
        float(reach[list(places)].max()) * _largest_share(risk) * (1.0 + 2.0**-40)
        + 2.0**-900
        for places, risk in problem.weighting.groups
    ]
    return np.array([[-one for one in most], most])


def _largest_share(risk: Risk) -> float:
    """A risk is at most so many times the largest prediction of a member."""
    match risk:
        case MeanMinusStd() | MeanMinusMad():
            return abs(float(risk.mean)) + 2.0 * float(risk.kappa)
        case _:
            return 1.0


def largest_excess(problem: Canonical, bounds: NeuronBounds, row: Row) -> float:
    """What a row cannot exceed its side by.

    The limit of an item of the kernel's program, which measures rows by it. It is no
    smaller than the range of what the row says, and positive.
    """
    domain = problem.domain
    ends = np.concatenate(
        [
            np.array([domain.lower, domain.upper]), output_ranges(bounds),
            risk_ranges(problem, bounds),
        ],
        axis=1,
    )  # fmt: skip
    extras = np.zeros(len(problem.weighting.groups))
    if row.extra >= 0:
        extras[row.extra] = -1.0
    form = np.concatenate([row.slopes, row.shares, extras])
    if row.hidden is not None:
        form = np.append(form, row.hidden)
        ends = np.concatenate([ends, np.maximum(bounds.flat(), 0.0)], axis=1)
    most = float(np.maximum(form * ends[0], form * ends[1]).sum()) - row.side
    width = float(np.abs(form) @ (ends[1] - ends[0]))
    size = float(np.abs(form) @ np.abs(ends).max(axis=0)) + abs(row.side)
    terms = problem.num_outputs + 2 + (row.hidden is not None) * problem.num_neurons
    rounding = problem.unit + 2.0**-51 * terms
    reach = max(most + 2.0 * rounding * size, width)
    return reach if reach > 0.0 else size if size > 0.0 else 1.0


class Pool:
    """Rows that were learned, in a fixed number of places.

    Parameters
    ----------
    room
        How many.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self.rows: list[Row] = []

    def learn(self, row: Row) -> bool:
        """Take a row; the oldest makes room. False if it is known already."""
        for other in self.rows:
            if (
                other.extra == row.extra
                and other.side == row.side
                and np.array_equal(other.slopes, row.slopes)
                and np.array_equal(other.shares, row.shares)
            ):
                return False
        self.rows = [*self.rows[-self._room + 1 :], row] if self._room else []
        return True
