"""Rows of data that a user gives: their ranges, and how far points are from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ennopt.columns import Group
from ennopt.domain.sets import Domain
from ennopt.network import Array, frozen

Flags = npt.NDArray[np.bool_]

USUAL_SHARE = 0.95
"""Share of the rows that have another row within the usual distance, and that a region
by Mahalanobis distance holds by default."""

MOST_NUMBERS = 2 * 10**8
LEAST_COMPARED = 100
"""Of many rows, some evenly spaced ones are compared with all: so many numbers, but at
least so many rows."""

NUMBERS_AT_ONCE = 2**18
"""Distances that are held at once: what fits into a cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """Rows of data, usually those that a model was trained on.

    Parameters
    ----------
    rows
        (num_rows, num_inputs), in original units and in the order of the inputs.
    names
        Name of each input.
    target
        What was measured in each row, (num_rows,), ``None`` if that is not known.

    Examples
    --------
    >>> data = Data([[1, 20], [3, 20], [2, 20]], ("dose", "heat"))
    >>> data.distances(np.array([3.0, 20.0])).round(2)
    array([2.45, 0.  , 1.22])
    >>> round(data.usual_distance(), 2)
    1.22
    """

    rows: Array
    names: tuple[str, ...]
    target: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", frozen(self.rows))
        Domain.from_data(self.rows, self.names)  # finite, and of the right shape
        if self.target is None:
            return
        target = frozen(self.target)
        if target.shape != (len(self.rows),):
            raise ValueError(
                f"Expected a target for each of the {len(self.rows)} rows of data, got "
                f"shape {target.shape}."
            )
        if not np.isfinite(target).all():
            raise ValueError(
                "Expected finite numbers as target, got NaN or infinity. Fill or drop "
                "those rows."
            )
        object.__setattr__(self, "target", target)

    @property
    def box(self) -> Domain:
        """The range of the rows."""
        return Domain.from_data(self.rows, self.names)

    @property
    def spread(self) -> Array:
        """Standard deviation of each input, exactly 0 if it is constant."""
        constant = self.rows.min(axis=0) == self.rows.max(axis=0)
        return np.where(constant, 0.0, self.rows.std(axis=0))

    def distances(self, x: Array, groups: Sequence[Group] = ()) -> Array:
        """How far each row is from a point (num_inputs,): (num_rows,).

        In the input that differs most, in standard deviations of that input. Inputs
        that are constant in the data do not count, nor do inputs of categories. Rows
        with another level of a category are infinitely far, unless all are.
        """
        away = _distances(self.rows, x[None], self.spread, groups)[0]
        same = _alike(self.rows, x[None], groups)[0]
        return np.where(same, away, np.inf) if same.any() else away

    def alike(self, x: Array, group: Group) -> Flags:
        """Which rows have the level of a category that a point has, (num_rows,)."""
        return np.asarray(_alike(self.rows, x[None], [group])[0])

    def usual_distance(self, groups: Sequence[Group] = ()) -> float:
        """How far rows usually are from each other: 95% have another row so near.

        Rows that are equal count once. Rows that share their categories with no other
        row do not count, unless that is true of all; then categories do not.
        """
        rows, spread = np.unique(self.rows, axis=0), self.spread
        if len(rows) == 1:
            return 0.0
        count = min(len(rows), max(LEAST_COMPARED, MOST_NUMBERS // rows.size))
        compared = np.linspace(0, len(rows) - 1, count).astype(int)
        size = max(1, NUMBERS_AT_ONCE // len(rows))
        of_any, of_alike = [], []
        for part in (compared[k : k + size] for k in range(0, count, size)):
            away = _distances(rows, rows[part], spread, groups)
            away[np.arange(len(part)), part] = np.inf  # not to itself
            of_any.append(away.min(axis=1))
            away[~_alike(rows, rows[part], groups)] = np.inf
            of_alike.append(away.min(axis=1))
        found = np.concatenate(of_alike)
        found = np.sort(found[np.isfinite(found)])
        if not found.size:
            found = np.sort(np.concatenate(of_any))
        return float(found[math.ceil(USUAL_SHARE * found.size) - 1])


def _distances(
    rows: Array, points: Array, spread: Array, groups: Sequence[Group]
) -> Array:
    """Of points (num_points, num_inputs) to rows, (num_points, num_rows)."""
    used = spread > 0.0
    for group in groups:
        used[list(group.inputs)] = False
    away = np.zeros((len(points), len(rows)))
    for j in np.flatnonzero(used):
        apart = np.abs(points[:, j, None] - rows[:, j]) / spread[j]
        np.maximum(away, apart, out=away)
    return away


def _alike(rows: Array, points: Array, groups: Sequence[Group]) -> Flags:
    """Which rows have the categories of which points, (num_points, num_rows)."""
    same = np.ones((len(points), len(rows)), dtype=bool)
    for j in (j for group in groups for j in group.inputs):
        same &= (points[:, j, None] > 0.5) == (rows[:, j] > 0.5)
    return same
