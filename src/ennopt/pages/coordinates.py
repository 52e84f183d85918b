"""The inputs as their user has them, and lines and planes through an answer.

A coordinate is a column of the user: a number, or a choice among levels. Slices move
one or two of them and hold the others at the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.columns import CHANGES, Group, Level, Ordinal
from ennopt.domain import Domain, Rows
from ennopt.domain.convex import Hull
from ennopt.network import Array
from ennopt.problem import Problem
from ennopt.targets import Link

Flags = npt.NDArray[np.bool_]

LINE_POINTS = 121
"""Points of a slice along one input."""

PLANE_POINTS = 56
"""Points of a slice along two inputs, on each side."""

MOST_PROJECTED = 100
"""Points of a plane, and four times as many as of a line, that are asked whether they
are in a convex hull, which takes a projection each; the others are what the nearest of
these is."""


DRAWN_SLACK = 1e-6
"""A drawing shows a limit as reached within this share of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Coordinate:
    """A column of the user: where its numbers come from and where they may be.

    Parameters
    ----------
    name
        What the user calls it.
    inputs
        Numbers of its inputs.
    levels
        Of a choice the levels, ``None`` for a number.
    codes
        Of a choice the inputs at each level, (num_levels, len(inputs)).
    change
        Of a number the function of it that the input is, a key of `CHANGES`.
    """

    name: str
    inputs: tuple[int, ...]
    levels: tuple[Level, ...] | None = None
    codes: Array | None = None
    change: str | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number, not a choice."""
        return self.levels is None

    def told(self, points: Array) -> Array:
        """What points (num_points, num_inputs) have here: numbers, or level numbers."""
        mine = points[:, list(self.inputs)]
        if self.codes is not None:
            away = np.abs(mine[:, None, :] - self.codes).sum(axis=2)
            return np.asarray(away.argmin(axis=1), dtype=np.float64)
        if self.change is None:
            return np.asarray(mine[:, 0])
        return np.asarray(CHANGES[self.change].backward(mine[:, 0]), dtype=np.float64)

    def range(self, domain: Domain) -> tuple[float, float]:
        """Where the number may be."""
        low, high = self.told(np.stack([domain.lower, domain.upper])).tolist()
        return low, high

    def choices(self, domain: Domain, count: int, at: Array | None = None) -> Array:
        """Values of the inputs to look at, (num_values, len(inputs)).

        Parameters
        ----------
        domain
            The feasible set, whose box holds them.
        count
            How many values of a number that may have any.
        at
            A point (num_inputs,) whose value is one of them.
        """
        places = list(self.inputs)
        low, high = domain.lower[places], domain.upper[places]
        if self.codes is not None:
            inside = np.all((self.codes >= low) & (self.codes <= high), axis=1)
            return np.asarray(self.codes[inside])
        j = places[0]
        listed = domain.values.lists[j]
        if listed is not None:
            found = listed[(listed >= low[0]) & (listed <= high[0])]
        elif domain.values.whole[j] and high[0] - low[0] < count:
            found = np.arange(low[0], high[0] + 1)
        else:
            found = np.linspace(low[0], high[0], count)
            if self.change is not None:  # evenly in the user's units
                forward, backward, _ = CHANGES[self.change]
                ends = backward(np.array([low[0], high[0]]))
                even = np.linspace(float(ends[0]), float(ends[1]), count)
                found = np.clip(forward(even), low[0], high[0])
            if domain.values.whole[j]:
                found = np.unique(np.round(found))
        if at is not None:
            found = np.unique(np.append(found, at[j]))
        return np.asarray(found[:, None], dtype=np.float64)


def coordinates(problem: Problem) -> list[Coordinate]:
    """The columns of a problem, in the order in which an answer tells them."""
    domain = problem.domain
    columns: tuple[Any, ...] = problem.ensemble.columns or ()
    found: dict[int, Coordinate] = {}
    for column in columns:
        first = column.inputs[0]
        if isinstance(column, Group):
            found[first] = _choice(column)
        elif isinstance(column, Ordinal):
            codes = np.arange(float(len(column.levels)))[:, None]
            found[first] = Coordinate(column.name, column.inputs, column.levels, codes)
        else:
            found[first] = Coordinate(column.name, column.inputs, change=column.change)
    known = {j for coordinate in found.values() for j in coordinate.inputs}
    for group in domain.groups:
        if not known & set(group.inputs):
            found[group.inputs[0]] = _choice(group)
            known |= set(group.inputs)
    for j, name in enumerate(domain.names):
        if j not in known:
            found[j] = Coordinate(name, (j,))
    return [found[first] for first in sorted(found)]


def _choice(group: Group) -> Coordinate:
    codes = np.eye(len(group.inputs))
    if group.base is not None:
        codes = np.concatenate([np.zeros((1, len(group.inputs))), codes])
    return Coordinate(group.name, group.inputs, group.known, codes)


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """What the model predicts while one coordinate moves through an answer.

    Parameters
    ----------
    coordinate
        What moves.
    at
        Its value at each point, numbers or numbers of levels, (num_points,).
    labels
        Of a choice the level at each point.
    values
        Predictions, (num_points,).
    members
        Those of each member, (num_members, num_points).
    feasible
        Which points are allowed, (num_points,); equations are left aside.
    here
        Which point is the answer.
    """

    coordinate: Coordinate
    at: Array
    labels: tuple[str, ...]
    values: Array
    members: Array
    feasible: Flags
    here: int

    @property
    def influence(self) -> float:
        """How much the prediction changes along the line."""
        return float(np.ptp(self.values))


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """What the model predicts while two numbers move through an answer.

    Parameters
    ----------
    across, up
        What moves, and along which side of the picture.
    xs, ys
        Their values, (num_points,).
    values
        Predictions, (len(ys), len(xs)).
    feasible
        Which points are allowed, of the same shape.
    """

    across: Coordinate
    up: Coordinate
    xs: Array
    ys: Array
    values: Array
    feasible: Flags


def predictions(problem: Problem, points: Array) -> tuple[Array, Array]:
    """What is optimized (num_points,), and members' parts (num_members, num_points).

    As results tell them: targets that the model transforms are transformed back. If
    something else than a prediction is optimized, members have no part in it, (0,
    num_points): what they predict has another unit.
    """
    values, members = problem.values(points), problem.member_values(points)
    if not problem.is_prediction:
        return values, members[:0]
    target = problem.ensemble.target
    if isinstance(target, Link):
        values, members = (_applied(target, outputs) for outputs in (values, members))
    return values, members


def _applied(link: Link, outputs: Array) -> Array:
    with np.errstate(all="ignore"):
        mapped = np.asarray(link.apply(outputs.reshape(-1)), dtype=np.float64)
    return mapped.reshape(outputs.shape)


def has_equations(domain: Domain) -> bool:
    """Whether a constraint fixes a sum of inputs: then no input can move alone."""
    return bool(np.any(domain.rows.least == domain.rows.most))


def _allowed(problem: Problem, points: Array, shape: tuple[int, int]) -> Flags:
    """Which points of a slice are allowed, equations between inputs left aside.

    `shape` is that of the slice; a line is a plane with one row.
    """
    found = _in_domain(problem.domain, points, shape)
    if problem.limits:
        least = np.array([limit.least for limit in problem.limits])
        reached = problem.limit_values(points) >= least - DRAWN_SLACK * np.abs(least)
        found = found & reached.all(axis=1).reshape(shape)
    return found


def _in_domain(domain: Domain, points: Array, shape: tuple[int, int]) -> Flags:
    if has_equations(domain):
        rows = domain.rows
        kept = rows.least != rows.most
        texts = tuple(t for t, keep in zip(rows.texts, kept, strict=True) if keep)
        loose = Rows(rows.matrix[kept], rows.least[kept], rows.most[kept], texts)
        domain = replace(domain, rows=loose, slack=None)  # type: ignore[arg-type]
    if not any(isinstance(convex, Hull) for convex in domain.convex):
        return domain.feasible(points).reshape(shape)
    most = MOST_PROJECTED // 4 if 1 in shape else math.isqrt(MOST_PROJECTED)
    (rows_of, row), (columns_of, column) = (_spaced(size, most) for size in shape)
    grid = points.reshape(*shape, -1)[np.ix_(rows_of, columns_of)]
    flags = domain.feasible(grid.reshape(-1, grid.shape[-1]))
    found: Flags = flags.reshape(grid.shape[:2])[np.ix_(row, column)]
    return found


def _spaced(size: int, most: int) -> tuple[Any, Any]:
    """At most so many places of `size`, and for each place the nearest of them."""
    kept = np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(int))
    return kept, np.abs(np.arange(size)[:, None] - kept).argmin(axis=1)


def line(problem: Problem, coordinate: Coordinate, x: Array) -> Line | None:
    """The slice along one coordinate through `x`; ``None`` if it cannot move."""
    chosen = coordinate.choices(problem.domain, LINE_POINTS, x)
    if len(chosen) < 2:
        return None
    points = np.tile(x, (len(chosen), 1))
    points[:, list(coordinate.inputs)] = chosen
    values, members = predictions(problem, points)
    at = coordinate.told(points)
    labels: tuple[str, ...] = ()
    if coordinate.levels is not None:
        labels = tuple(str(coordinate.levels[int(number)]) for number in at)
    here = int(np.abs(points - x).max(axis=1).argmin())
    allowed = _allowed(problem, points, (1, len(points)))[0]
    allowed[here] = True
    return Line(coordinate, at, labels, values, members, allowed, here)


def plane(problem: Problem, across: Coordinate, up: Coordinate, x: Array) -> Plane:
    """The slice along two numbers through `x`."""
    us = across.choices(problem.domain, PLANE_POINTS)[:, 0]
    vs = up.choices(problem.domain, PLANE_POINTS)[:, 0]
    points = np.tile(x, (len(us) * len(vs), 1))
    points[:, across.inputs[0]] = np.tile(us, len(vs))
    points[:, up.inputs[0]] = np.repeat(vs, len(us))
    shape = (len(vs), len(us))
    values, _ = predictions(problem, points)
    return Plane(
        across, up,
        across.told(points)[: len(us)], up.told(points)[:: len(us)],
        values.reshape(shape), _allowed(problem, points, shape),
    )  # fmt: skip
