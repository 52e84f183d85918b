"""Regions around data: where a model has seen enough to be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ennopt.network import Array, frozen

Flags = npt.NDArray[np.bool_]

ROWS_AT_ONCE = 2**22
"""Numbers that a comparison of points with rows of data may hold at once."""


class Region(Protocol):
    """A part of the inputs that is not a box and not given by linear constraints."""

    def contains(self, points: Array) -> Flags:
        """Which points (num_points, num_inputs) are in it, (num_points,)."""

    def clip(self, lower: Array, upper: Array) -> tuple[Array, Array, Flags]:
        """Smaller boxes with the same points of the region, and which hold none.

        All of shape (num_boxes, num_inputs), the last (num_boxes,).
        """

    def around(self, points: Array) -> tuple[Array, Array]:
        """Boxes of the region near points, each of shape (num_points, num_inputs)."""


@dataclass(frozen=True, slots=True, eq=False)
class NearRows:
    """Points near at least `count` rows of data: each input within its radius.

    Parameters
    ----------
    lower, upper
        The boxes around the rows, (num_rows, num_inputs): comparisons with them are
        exact.
    count
        How many of them a point must lie in.

    Examples
    --------
    >>> near = NearRows.rows([[0.0, 0.0], [1.0, 5.0]], radius=[0.1, 1.0])
    >>> near.contains(np.array([[0.05, 0.5], [0.5, 2.0], [1.0, 4.0]]))
    array([ True, False,  True])
    """

    lower: Array
    upper: Array
    count: int = 1

    def __post_init__(self) -> None:
        lower, upper = frozen(self.lower), frozen(self.upper)
        if lower.ndim != 2 or lower.shape != upper.shape or not len(lower):
            raise ValueError(
                f"Expected boxes around rows of data, got shapes {lower.shape} and "
                f"{upper.shape}."
            )
        if not 1 <= self.count <= len(lower):
            raise ValueError(
                f"Expected a count from 1 to the {len(lower)} rows, got {self.count}."
            )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @classmethod
    def rows(
        cls, data: npt.ArrayLike, radius: npt.ArrayLike, count: int = 1
    ) -> NearRows:
        """The region around rows (num_rows, num_inputs), a radius for each input."""
        points, reach = frozen(data), frozen(radius)
        if not (np.isfinite(reach).all() and (reach >= 0.0).all()):
            raise ValueError(f"Expected radii of at least 0, got {reach}.")
        return cls(points - reach, points + reach, count)

    def contains(self, points: Array) -> Flags:
        """Which points (num_points, num_inputs) are in it, (num_points,)."""
        found = np.zeros(len(points), dtype=bool)
        for part in self._parts(len(points)):
            met = np.ones((len(points[part]), len(self.lower)), dtype=bool)
            for x, low, high in zip(
                points[part].T, self.lower.T, self.upper.T, strict=True
            ):
                met &= (x[:, None] >= low) & (x[:, None] <= high)
            found[part] = met.sum(axis=1) >= self.count
        return found

    def clip(self, lower: Array, upper: Array) -> tuple[Array, Array, Flags]:
        """Smaller boxes with the same points of the region, and which hold none.

        A row counts if its box meets the given one; a point needs `count` of them, so
        it is at or above that many of their lower ends, and below their upper ones.
        """
        low, high = lower.copy(), upper.copy()
        empty = np.zeros(len(lower), dtype=bool)
        for i in range(len(lower)):
            alive = np.all((self.lower <= upper[i]) & (self.upper >= lower[i]), axis=1)
            if alive.sum() < self.count:
                empty[i] = True
                continue
            ends = np.partition(self.lower[alive], self.count - 1, axis=0)
            low[i] = np.maximum(low[i], ends[self.count - 1])
            ends = np.partition(-self.upper[alive], self.count - 1, axis=0)
            high[i] = np.minimum(high[i], -ends[self.count - 1])
            empty[i] = np.any(low[i] > high[i])
        low[empty], high[empty] = lower[empty], upper[empty]
        return low, high, empty

    def around(self, points: Array) -> tuple[Array, Array]:
        """Boxes of the region near points, each of shape (num_points, num_inputs).

        Each is what the boxes of the nearest rows, in units of their widths, have in
        common; where fewer than `count` meet, what those few have.
        """
        low, high = np.full_like(points, -np.inf), np.full_like(points, np.inf)
        few = min(len(self.lower), 8 * self.count if self.count > 1 else 1)
        for part in self._parts(len(points)):
            for i, rows in zip(
                range(len(points))[part], self._nearest(points[part], few), strict=True
            ):
                met = 0
                for r in rows:
                    lower = np.maximum(low[i], self.lower[r])
                    upper = np.minimum(high[i], self.upper[r])
                    if np.all(lower <= upper):
                        low[i], high[i], met = lower, upper, met + 1
                    if met == self.count:
                        break
        return low, high

    def _nearest(self, points: Array, few: int) -> npt.NDArray[np.int64]:
        """The rows whose boxes are nearest, the first ones first, (num_points, few)."""
        away = np.zeros((len(points), len(self.lower)))
        for x, low, high in zip(points.T, self.lower.T, self.upper.T, strict=True):
            out = np.maximum(low - x[:, None], x[:, None] - high)
            np.maximum(away, out / np.where(high > low, high - low, 1.0), out=away)
        if few == 1:
            return np.asarray(np.argmin(away, axis=1)[:, None])
        some = np.argpartition(away, few - 1, axis=1)[:, :few]
        order = np.argsort(np.take_along_axis(away, some, axis=1), kind="stable")
        return np.asarray(np.take_along_axis(some, order, axis=1))

    def within(self, lower: Array, upper: Array) -> NearRows:
        """The same region on a box: rows whose boxes do not meet it are left out."""
        alive = np.all((self.lower <= upper) & (self.upper >= lower), axis=1)
        if alive.sum() < self.count or alive.all():
            return self
        return NearRows(self.lower[alive], self.upper[alive], self.count)

    def reordered(self, order: list[int]) -> NearRows:
        """The same region of ``x[order]``."""
        return NearRows(self.lower[:, order], self.upper[:, order], self.count)

    def moved(self, shift: Array) -> NearRows:
        """The region of all ``x - shift``."""
        return NearRows(self.lower - shift, self.upper - shift, self.count)

    def on_units(self, units: Array) -> NearRows:
        """The region of all ``x / units``."""
        return NearRows(self.lower / units, self.upper / units, self.count)

    def _parts(self, num_points: int) -> list[slice]:
        """Points that can be compared with all rows at once."""
        size = max(1, ROWS_AT_ONCE // len(self.lower))
        return [slice(k, k + size) for k in range(0, num_points, size)]
