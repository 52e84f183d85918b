"""Convex regions around data: the hull of its rows, an ellipsoid around its middle.

A search knows a convex region by half-spaces that contain it. They are found where they
are needed: `separate` gives one that cuts off a given point. Whatever the point, the
half-space holds for the whole region, so it may be used everywhere from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ennopt.domain.rows import CHECK_ROUNDING
from ennopt.network import Array, frozen

Flags = npt.NDArray[np.bool_]

CLOSE = 1e-7
"""How far from a convex region a point may lie and still count as in it, in the units
of the region: spreads of the inputs, or radii."""

WIDER = 1.01
"""Half-spaces are wider than a region by so many times `CLOSE`."""

CYCLES = 200
"""Most rows of data that the search for the nearest point of a hull takes up."""


LEAST_VARIANCE = 1e-4
"""Variance of a direction in which the data do not vary, all inputs having variance 1:
a hundredth of a standard deviation away counts as one."""


CONSTANT = 1e-12
"""An input whose range, or standard deviation, is at most this share of its size is
constant."""


class Convex(Protocol):
    """A convex region, known by the half-spaces that contain it."""

    def distance(self, points: Array) -> Array:
        """How far points (num_points, num_inputs) are outside, (num_points,)."""

    def project(self, points: Array) -> Array:
        """Points of the region near these, (num_points, num_inputs)."""

    def separate(self, point: Array) -> tuple[Array, float]:
        """A half-space ``slopes @ x <= side`` that holds for all points of the region.

        And for all that count as in it; if `point` is not, it is cut off.
        """

    @property
    def room(self) -> float:
        """How much wider than the region its half-spaces are."""

    def box(self) -> tuple[Array, Array]:
        """A box around the region, each corner (num_inputs,)."""

    def surrounding(self) -> tuple[Array, Array]:
        """A box around all points that count as in the region: no other one does."""

    def reordered(self, order: list[int]) -> Convex:
        """The same region of ``x[order]``."""

    def moved(self, shift: Array) -> Convex:
        """The region of all ``x - shift``."""

    def on_units(self, units: Array) -> Convex:
        """The region of all ``x / units``."""


@dataclass(frozen=True, slots=True, eq=False)
class Hull:
    """The convex hull of rows of data.

    Parameters
    ----------
    data
        (num_rows, num_inputs)
    scale
        The unit of each input in which distances are measured, (num_inputs,); ``None``
        for its range among the rows, and one for an input that is constant there.

    Examples
    --------
    >>> hull = Hull([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]])
    >>> hull.project(np.array([[2.0, 4.0]])).round(6)
    array([[1., 2.]])
    """

    data: Array
    scale: Array = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        data = frozen(self.data)
        if data.ndim != 2 or not len(data) or not np.isfinite(data).all():
            raise ValueError(f"Expected finite rows of data, got shape {data.shape}.")
        object.__setattr__(self, "data", frozen(np.unique(data, axis=0)))
        scale = self.scale
        if scale is None:
            ranges = np.ptp(data, axis=0)
            varies = ranges > CONSTANT * np.abs(data).max(axis=0)
            scale = np.where(varies, ranges, 1.0)
        object.__setattr__(self, "scale", frozen(scale))

    def distance(self, points: Array) -> Array:
        """How far points (num_points, num_inputs) are outside, in `scale`."""
        away = (points - self.project(points)) / self.scale
        return np.asarray(np.linalg.norm(away, axis=1))

    def project(self, points: Array) -> Array:
        """The nearest points of the hull, in `scale`."""
        scale = self.scale
        rows = self.data / scale
        near = [nearest(rows, point / scale) * scale for point in points]
        found = np.array(near).reshape(points.shape)
        return np.clip(found, self.data.min(axis=0), self.data.max(axis=0))

    def separate(self, point: Array) -> tuple[Array, float]:
        """A half-space that holds for all points of the hull; see `Convex`."""
        scale = self.scale
        away = (point - self.project(point[None])[0]) / scale
        length = float(np.linalg.norm(away))
        if not length > 0.0:
            away, length = np.ones_like(away), float(np.sqrt(away.size))
        slopes = away / length / scale
        # Its side is the largest of all rows, whatever the accuracy of the projection.
        size = float((np.abs(slopes) * np.abs(self.data)).sum(axis=1).max())
        rounding = (slopes.size + 2) * CHECK_ROUNDING * size
        return slopes, float((self.data @ slopes).max()) + self.room + rounding

    @property
    def room(self) -> float:
        """How much wider than the hull its half-spaces are."""
        return WIDER * CLOSE

    def box(self) -> tuple[Array, Array]:
        """The range of the rows."""
        return self.data.min(axis=0), self.data.max(axis=0)

    def surrounding(self) -> tuple[Array, Array]:
        """The range of the rows, wider by how far a point may be outside."""
        return _outwards(*self.box(), 2.0 * CLOSE * self.scale)

    def reordered(self, order: list[int]) -> Hull:
        """The same region of ``x[order]``."""
        return Hull(self.data[:, order], self.scale[order])

    def moved(self, shift: Array) -> Hull:
        """The region of all ``x - shift``."""
        return Hull(self.data - shift, self.scale)

    def on_units(self, units: Array) -> Hull:
        """The region of all ``x / units``."""
        return Hull(self.data / units, self.scale / units)

    def shares(self, x: Array) -> Array:
        """How much of each row the nearest point of the hull has, (num_rows,)."""
        found = np.zeros(len(self.data))
        used, shares = _nearest(self.data / self.scale, x / self.scale)
        found[used] = shares
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Ellipsoid:
    """Points whose Mahalanobis distance from a middle is at most a radius.

    Parameters
    ----------
    middle
        (num_inputs,)
    root
        A matrix T with covariance ``T @ T.T``, (num_inputs, num_inputs): points are
        ``middle + T @ y`` with ``|y| <= radius``.
    radius
        In standard deviations.

    Examples
    --------
    >>> circle = Ellipsoid([0.0, 0.0], np.diag([1.0, 2.0]), 3.0)
    >>> [side.round(3).tolist() for side in circle.box()]
    [[-3.0, -6.0], [3.0, 6.0]]
    >>> circle.distance(np.array([[0.0, 12.0]]))
    array([1.])
    """

    middle: Array
    root: Array
    radius: float

    def __post_init__(self) -> None:
        for name in ("middle", "root"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        if not (np.isfinite(self.radius) and self.radius > 0.0):
            raise ValueError(f"Expected a radius above 0, got {self.radius}.")
        if np.linalg.matrix_rank(self.root) < self.middle.size:
            raise ValueError("Expected a covariance of full rank, got a singular one.")

    @classmethod
    def of(cls, data: npt.ArrayLike, radius: float) -> Ellipsoid:
        """Around the mean of rows, in standard deviations of their covariance.

        Inputs are measured in their own standard deviations first. A direction in which
        the rows do not vary has the variance `LEAST_VARIANCE`.
        """
        rows = frozen(data)
        own = rows.std(axis=0)
        # The mean of equal numbers is rounded: they seem to vary a little.
        varies = own > CONSTANT * np.abs(rows).max(axis=0)
        scale = np.where(varies, own, 1.0)
        scaled = (rows - rows.mean(axis=0)) / scale
        variances, axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))
        lengths = np.sqrt(np.maximum(variances, LEAST_VARIANCE))
        return cls(rows.mean(axis=0), scale[:, None] * axes * lengths, radius)

    def spread(self, points: Array) -> Array:
        """Points in standard deviations from the middle, (num_points, num_inputs)."""
        return np.asarray(np.linalg.solve(self.root, (points - self.middle).T).T)

    def distance(self, points: Array) -> Array:
        """How far points (num_points, num_inputs) are outside, in radii."""
        lengths = np.linalg.norm(self.spread(points), axis=1) / self.radius
        return np.asarray(np.maximum(lengths - 1.0, 0.0))

    def project(self, points: Array) -> Array:
        """Points of the ellipsoid on the way to its middle."""
        lengths = np.linalg.norm(self.spread(points), axis=1) / self.radius
        shares = 1.0 / np.maximum(lengths, 1.0)
        return np.asarray(self.middle + shares[:, None] * (points - self.middle))

    def separate(self, point: Array) -> tuple[Array, float]:
        """The half-space that touches the ellipsoid on the way; see `Convex`."""
        spread = self.spread(point[None])[0]
        length = float(np.linalg.norm(spread))
        direction = spread / length if length > 0.0 else np.ones_like(spread)
        slopes = np.linalg.solve(self.root.T, direction)
        # The largest value on the ellipsoid, whatever the accuracy of the slopes.
        reach = float(np.linalg.norm(self.root.T @ slopes)) * self.radius
        terms = np.abs(self.middle) + self.radius * np.abs(self.root).sum(axis=1)
        size = float(np.abs(slopes) @ terms)
        rounding = (slopes.size + 2) ** 2 * CHECK_ROUNDING * size
        side = float(slopes @ self.middle) + reach * (1.0 + WIDER * CLOSE) + rounding
        return slopes, side

    @property
    def room(self) -> float:
        """How much wider than the ellipsoid its half-spaces are."""
        return WIDER * CLOSE * self.radius

    def box(self) -> tuple[Array, Array]:
        """The box around it."""
        reach = self.radius * np.linalg.norm(self.root, axis=1) * (1.0 + 2.0 * CLOSE)
        return self.middle - reach, self.middle + reach

    def surrounding(self) -> tuple[Array, Array]:
        """The box around it, which has room for points that count as in it."""
        return _outwards(*self.box(), 0.0)

    def reordered(self, order: list[int]) -> Ellipsoid:
        """The same region of ``x[order]``."""
        return Ellipsoid(self.middle[order], self.root[order], self.radius)

    def moved(self, shift: Array) -> Ellipsoid:
        """The region of all ``x - shift``."""
        return Ellipsoid(self.middle - shift, self.root, self.radius)

    def on_units(self, units: Array) -> Ellipsoid:
        """The region of all ``x / units``."""
        return Ellipsoid(self.middle / units, self.root / units[:, None], self.radius)


def _outwards(low: Array, high: Array, room: Array | float) -> tuple[Array, Array]:
    """A box that is wider by some room, and by the rounding of its corners."""
    rounding = CHECK_ROUNDING * (np.abs(low) + np.abs(high))
    return low - room - rounding, high + room + rounding


def nearest(rows: Array, x: Array) -> Array:
    """The point of a convex hull nearest to x: Wolfe's minimum-norm point.

    Parameters
    ----------
    rows
        The points whose hull it is, (num_rows, num_inputs).
    x
        (num_inputs,)
    """
    used, shares = _nearest(rows, x)
    return np.asarray(x + shares @ (rows - x)[used])


def _nearest(rows: Array, x: Array) -> tuple[list[int], Array]:
    """The rows whose mixture is nearest to x, and their shares."""
    moved = rows - x
    scale = max(float(np.abs(moved).max(initial=0.0)) ** 2, 1e-300)
    used = [int(np.argmin((moved * moved).sum(axis=1)))]
    shares = np.ones(1)
    for _ in range(CYCLES):
        point = shares @ moved[used]
        products = moved @ point
        best = int(np.argmin(products))
        if products[best] >= point @ point - 1e-14 * scale or best in used:
            break
        used.append(best)
        shares = np.append(shares, 0.0)
        while True:
            aim = _affine_minimum(moved[used], scale)
            if aim.min() > 1e-12:
                shares = aim
                break
            falling = aim < shares
            ratios = shares[falling] / (shares - aim)[falling]
            step = min(1.0, float(ratios.min(initial=np.inf)))
            shares = np.maximum(shares + step * (aim - shares), 0.0)
            kept = shares > 1e-12
            if kept.all() or not kept.any():
                break
            used = [r for r, keep in zip(used, kept.tolist(), strict=True) if keep]
            shares = shares[kept] / shares[kept].sum()
    return used, shares / shares.sum()


def _affine_minimum(corners: Array, scale: float) -> Array:
    """Shares with sum one whose mixture of corners is the nearest to zero.

    They have equal products with all corners. Any multiple of the matrix of ones may be
    added to the products of the corners: it changes the sum of the shares only.
    """
    products = corners @ corners.T + scale
    ones = np.ones(len(corners))
    try:
        shares = np.linalg.solve(products, ones)
    except np.linalg.LinAlgError:  # corners that depend on each other
        shares = np.linalg.lstsq(products, ones, rcond=None)[0]
    total = shares.sum()
    if not abs(total) > 1e-300:
        return ones / len(ones)
    return np.asarray(shares / total)
