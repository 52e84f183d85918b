"""The feasible set: what a search and a model may ask of it.

A box, linear constraints on it, and inputs that take whole numbers or the values of a
list only. Searches ask for the half-spaces that bound linear functions on a node and
shrink its box (`half_spaces`), and for the values that its corners may take
(`values`); models for rows (`linear`); everybody for `contains`, `repair`, `sample`
and `split`. The corners `lower` and `upper` are those of the surrounding box, not of
the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.columns import Group
from ennopt.domain.convex import CLOSE, Convex
from ennopt.domain.regions import NearRows
from ennopt.domain.rows import REPAIRED, Rows
from ennopt.domain.values import Values
from ennopt.network import Array, Ensemble, frozen, shown

Flags = npt.NDArray[np.bool_]
PROJECTIONS = 20
"""Rounds of projections onto convex regions when a point is moved into a set."""

Boxes = tuple[Array, Array]
"""Lower and upper corners, (num_points, num_inputs)."""


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The inputs allowed: a box in original units, linear constraints, kinds of values.

    An empty box cannot be built; constraints that no point of it meets can, and make a
    problem infeasible.

    Parameters
    ----------
    lower, upper
        (num_inputs,), finite.
    names
        Name of each input, ``None`` for ``x0, x1, ...``.
    rows
        Linear constraints, ``None`` for none.
    values
        Which values each input may take, ``None`` for any.
    groups
        Categories: inputs of zeros and ones of which one is a one.
    regions
        Regions around data in which a point must lie, in all of them.
    convex
        Convex regions in which a point must lie, or as close to them as `CLOSE` says.
    slack
        How far a point may miss each row of `linear`, (num_rows,); ``None`` for what
        `Rows.slack` says. Parts of a set keep that of the whole.

    Examples
    --------
    >>> mix = Domain([0, 0], [1, 1], ("dose", "heat"), Rows([[1, 1]], [1.5], [1.5]))
    >>> mix.contains([0.75, 0.75]), mix.contains([0.5, 0.5])
    (True, False)
    >>> Domain([0, 0], [1, -1], names=("dose", "heat"))
    Traceback (most recent call last):
    ...
    ValueError: Expected lower <= upper, got [0, -1] at input heat. ...
    """

    lower: Array
    upper: Array
    names: tuple[str, ...] = None  # type: ignore[assignment]
    rows: Rows = None  # type: ignore[assignment]
    values: Values = None  # type: ignore[assignment]
    groups: tuple[Group, ...] = ()
    regions: tuple[NearRows, ...] = ()
    convex: tuple[Convex, ...] = ()
    slack: Array = None  # type: ignore[assignment]
    linear: Rows = field(init=False, repr=False)
    """All linear constraints: `rows`, and one for each category."""

    def __post_init__(self) -> None:
        lower, upper = frozen(self.lower), frozen(self.upper)
        if lower.ndim != 1 or lower.size == 0 or upper.shape != lower.shape:
            raise ValueError(
                "Expected lower and upper as vectors of one length, got shapes "
                f"{lower.shape} and {upper.shape}. Give one bound for each input."
            )
        names = self.names
        if names is None:
            names = tuple(f"x{j}" for j in range(lower.size))
        names = tuple(str(name) for name in names)
        if len(names) != lower.size or len(set(names)) != len(names):
            raise ValueError(
                f"Expected {lower.size} different names, got {list(names)!r:.200}."
            )
        for j, name in enumerate(names):
            low, high = lower[j], upper[j]
            if not (np.isfinite(low) and np.isfinite(high)):
                raise ValueError(
                    f"Expected finite bounds, got [{low:g}, {high:g}] at input {name}. "
                    "Give the range in which the model may be trusted."
                )
            if low > high:
                raise ValueError(
                    f"Expected lower <= upper, got [{low:g}, {high:g}] at input "
                    f"{name}. Exchange them."
                )
        object.__setattr__(self, "names", names)
        self._set_values(lower, upper)
        self._set_rows()

    def _set_values(self, lower: Array, upper: Array) -> None:
        """The corners of the box, moved to values that inputs may take."""
        values = Values.of(lower.size) if self.values is None else self.values
        if values.whole.shape != lower.shape or len(values.lists) != lower.size:
            raise ValueError(
                f"Expected the values of {lower.size} inputs, got those of "
                f"{len(values.lists)}."
            )
        groups = tuple(self.groups)
        for group in groups:
            places = list(group.inputs)
            unit = (lower[places] >= 0.0) & (upper[places] <= 1.0)
            if not (unit & values.whole[places]).all():
                raise ValueError(
                    f"Expected whole numbers from 0 to 1 as inputs of category "
                    f"{group.name}, got other values."
                )
        inner, outer = values.up(lower), values.down(upper)
        for j in np.flatnonzero(inner > outer).tolist():
            kind = "a whole number" if values.whole[j] else "a value of its list"
            raise ValueError(
                f"Expected {kind} within the bounds, got [{lower[j]:g}, {upper[j]:g}] "
                f"at input {shown(self.names[j])}. Widen them."
            )
        object.__setattr__(self, "lower", frozen(inner))
        object.__setattr__(self, "upper", frozen(outer))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "groups", groups)

    def _set_rows(self) -> None:
        """All linear constraints, and how far a point may miss each."""
        d = self.lower.size
        rows = Rows.none(d) if self.rows is None else self.rows
        if rows.matrix.shape[1] != d:
            raise ValueError(
                f"Expected linear constraints on {d} inputs, got "
                f"{rows.matrix.shape[1]} coefficients in each."
            )
        linear = rows
        for group in self.groups:
            linear = linear.and_(Rows.one_of(group, d))
        slack = self.slack
        if slack is None:
            slack = linear.slack(self.lower, self.upper)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "linear", linear)
        object.__setattr__(self, "slack", frozen(slack))

    @classmethod
    def from_data(cls, data: Any, names: Sequence[str] | None = None) -> Domain:
        """The range of training data.

        Parameters
        ----------
        data
            (num_rows, num_inputs), an array or a DataFrame; the columns of a
            DataFrame give the names.
        names
            Names of the columns of an array.
        """
        columns = getattr(data, "columns", None)
        if columns is not None and names is None:
            names = [str(column) for column in columns]
        try:
            table = np.asarray(data, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Expected numeric columns, got {error}. Encode or drop other columns."
            ) from error
        if table.ndim != 2 or 0 in table.shape:
            raise ValueError(
                f"Expected data of shape (num_rows, num_inputs), got {table.shape}."
            )
        bad = ~np.isfinite(table).all(axis=0)
        if bad.any():
            j = int(np.argmax(bad))
            name = names[j] if names is not None and j < len(names) else f"x{j}"
            raise ValueError(
                f"Expected finite data, got NaN or infinity at input {name}. "
                "Fill or drop those rows."
            )
        return cls(table.min(axis=0), table.max(axis=0), names and tuple(names))  # type: ignore[arg-type]

    @classmethod
    def of(cls, spec: Any, ensemble: Ensemble) -> Domain:
        """Read whatever a user may give; see `ennopt.domain.reading.read_domain`."""
        from ennopt.domain.reading import read_domain

        return read_domain(spec, ensemble)

    def constrained(self, constraints: Any = None, fixed: Any = None) -> Domain:
        """With more constraints and fixed inputs; see `ennopt.domain.constraints`."""
        from ennopt.domain.constraints import constrained

        return constrained(self, constraints, fixed)

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return int(self.lower.size)

    @property
    def widths(self) -> Array:
        """``upper - lower``, (num_inputs,)."""
        return self.upper - self.lower

    @property
    def is_box(self) -> bool:
        """Whether the set is its surrounding box."""
        free = self.linear.count == 0 and self.values.any
        return free and not self.regions and not self.convex

    @property
    def reach(self) -> Array:
        """Largest absolute value of each input, (num_inputs,)."""
        return np.asarray(np.maximum(np.abs(self.lower), np.abs(self.upper)))

    @property
    def centre(self) -> Array:
        """The middle of the surrounding box, (num_inputs,)."""
        return np.asarray(0.5 * (self.lower + self.upper))

    def half_spaces(self, share: float = 1.0) -> tuple[Array, Array]:
        """The linear constraints as ``slopes @ x >= sides``, wider by their slack.

        With a smaller `share` of the slack they hold points that are surely accepted.
        """
        return self.linear.half_spaces(share * self.slack)

    def feasible(self, points: Array, *, regions: bool = True) -> Flags:
        """Which points (num_points, num_inputs) are in the set, (num_points,).

        Bounds, kinds of values and regions are exact; linear constraints may be missed
        by their slack. Points that are known to lie in all regions need not be asked.
        """
        inside = np.all((points >= self.lower) & (points <= self.upper), axis=1)
        if self.is_box:
            return np.asarray(inside)
        inside &= self.values.allowed(points) & self.linear.met(points, self.slack)
        for region in self.regions if regions else ():
            inside &= region.contains(points)
        for convex in self.convex:
            inside[inside] = convex.distance(points[inside]) <= CLOSE
        return np.asarray(inside)

    def contains(self, x: npt.ArrayLike) -> bool:
        """Whether the point `x` is in the set; see `feasible`."""
        return bool(self.feasible(np.atleast_2d(np.asarray(x, dtype=np.float64)))[0])

    def around(self, points: Array) -> Boxes:
        """For each point a box, in the box of the set and in its regions."""
        low, high = (np.broadcast_to(e, points.shape) for e in (self.lower, self.upper))
        for region in self.regions:
            lower, upper = region.around(points)
            low, high = np.maximum(low, lower), np.minimum(high, upper)
        return low, high

    def repair(self, points: npt.ArrayLike, boxes: Boxes | None = None) -> Array:
        """Points of the set near `points`, (num_points, num_inputs).

        On a box the nearest ones. With linear constraints some may not be found: those
        come back outside; ask `feasible`. If `boxes` is given, what `around` said of
        points nearby, each point stays in its own.
        """
        inside = np.clip(np.asarray(points, np.float64), self.lower, self.upper)
        if self.is_box:
            return inside
        found = np.atleast_2d(inside)
        # What is well inside stays; at the edge of the slack rounding would decide.
        well = np.all(self.linear.violation(found) <= REPAIRED * self.slack, axis=1)
        if boxes is None:
            out = ~(well & self.feasible(found))
            low, high = self.around(found[out])
        else:
            kept = np.all((found >= boxes[0]) & (found <= boxes[1]), axis=1)
            out = ~(well & kept & self.feasible(found, regions=False))
            low, high = boxes[0][out], boxes[1][out]
        if out.any():
            found[out] = self._moved_in(found[out], low, high)
            for _ in range(PROJECTIONS if self.convex else 0):
                # Not the nearest point of all, but one of all if they meet well.
                moved = found[out]
                for convex in self.convex:
                    moved = convex.project(moved)
                found[out] = self._moved_in(moved, low, high)
                if self.feasible(found[out], regions=False).all():
                    break
        return found.reshape(inside.shape)

    def separated(self, points: Array) -> tuple[Array, Array]:
        """Half-spaces ``slopes @ x >= sides`` of the set that cut off some points.

        Points (num_points, num_inputs) outside of a convex region give one each.
        """
        slopes, sides = [], []
        for convex in self.convex:
            for point in points[convex.distance(points) > CLOSE]:
                slope, side = convex.separate(point)
                slopes.append(-slope)
                sides.append(-side)
        count = len(sides)
        return np.array(slopes).reshape(count, self.num_inputs), np.array(sides)

    def _moved_in(self, points: Array, low: Array, high: Array) -> Array:
        """Points moved to the linear constraints, then to allowed values, then back."""
        points = np.minimum(np.maximum(points, low), high)
        if self.linear.count:
            points = self.linear.repair(points, low, high, self.slack)
        if self.values.any:
            return points
        points = self._snapped(points, low, high)
        if self.linear.count:
            held = self.values.discrete
            low, high = np.where(held, points, low), np.where(held, points, high)
            points = self.linear.repair(points, low, high, self.slack)
        return points

    def _snapped(self, points: Array, low: Array, high: Array) -> Array:
        """Points with the nearest values that inputs may take in their boxes."""
        inner, outer = self.values.up(low), self.values.down(high)
        nearest = np.minimum(np.maximum(self.values.nearest(points), inner), outer)
        for group in self.groups:
            places = list(group.inputs)
            nearest[:, places] = group.snapped(points, self.lower, self.upper)[
                :, places
            ]
        return nearest

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Random points, (count, num_inputs): uniform on a box.

        With linear constraints, uniform points of the box moved into the set; fewer
        than asked for, perhaps none, where that fails.
        """
        shares = rng.random((count, self.num_inputs))
        points = self.repair(self.lower + shares * self.widths)
        return points if self.is_box else points[self.feasible(points)]

    def within(self, lower: Array, upper: Array) -> Domain:
        """The part of the set in another box, which must meet the own one."""
        regions = tuple(region.within(lower, upper) for region in self.regions)
        return replace(self, lower=lower, upper=upper, regions=regions)

    def enclosed(self) -> Domain:
        """The same set, its box no wider than those around its convex regions.

        Where no point is left the set is empty, and stays as it is.
        """
        lower, upper = self.lower, self.upper
        for convex in self.convex:
            low, high = convex.surrounding()
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        if np.any(self.values.up(lower) > self.values.down(upper)):
            return self
        return self.within(lower, upper) if self.convex else self

    def split(self, j: int, at: float) -> tuple[Domain, Domain]:
        """Two sets that cover this one and meet, or nearly, at ``x[j] == at``."""
        left_upper, right_lower = self.upper.copy(), self.lower.copy()
        left_upper[j], right_lower[j] = at, self.values.above(j, at)
        return self.within(self.lower, left_upper), self.within(right_lower, self.upper)

    def reordered(self, order: Sequence[int], names: Sequence[str]) -> Domain:
        """The same set with its inputs in another order."""
        chosen = list(order)
        return replace(
            self, lower=self.lower[chosen], upper=self.upper[chosen],
            names=tuple(names), rows=self.rows.reordered(chosen),
            values=self.values.reordered(chosen),
            groups=tuple(group.reordered(chosen) for group in self.groups),
            regions=tuple(region.reordered(chosen) for region in self.regions),
            convex=tuple(convex.reordered(chosen) for convex in self.convex),
        )  # fmt: skip

    def moved(self, shift: Array) -> Domain:
        """The set of all ``x - shift``: categories as plain rows."""
        return replace(
            self, lower=self.lower - shift, upper=self.upper - shift,
            rows=self.linear.moved(shift), values=self.values.moved(shift), groups=(),
            convex=tuple(convex.moved(shift) for convex in self.convex),
            regions=tuple(region.moved(shift) for region in self.regions),
        )  # fmt: skip

    def on_units(self, units: Array) -> Domain:
        """The set of all ``x / units``: categories as plain rows."""
        return replace(
            self, lower=self.lower / units, upper=self.upper / units,
            rows=self.linear.on_units(units), values=self.values.on_units(units),
            groups=(), convex=tuple(convex.on_units(units) for convex in self.convex),
            regions=tuple(region.on_units(units) for region in self.regions),
        )  # fmt: skip

    def divided(self, units: Array) -> Domain:
        """The same set, each linear constraint divided by a number, (num_rows,)."""
        return replace(
            self, rows=self.linear.divided(units), slack=self.slack / units, groups=()
        )

    def __repr__(self) -> str:
        parts = [
            f"{shown(name)} in [{low:g}, {high:g}]"
            for name, low, high in zip(self.names, self.lower, self.upper, strict=True)
        ]
        if len(parts) > 6:
            parts = [*parts[:5], f"... {len(parts) - 5} more"]
        if self.rows.count:
            parts.append(repr(self.rows))
        discrete = [shown(self.names[j]) for j in np.flatnonzero(self.values.discrete)]
        if len(discrete) > 6:
            discrete = [*discrete[:5], f"... {len(discrete) - 5} more"]
        if discrete:
            parts.append(f"whole or listed: {' '.join(discrete)}")
        if self.regions:
            parts.append("near rows of data")
        parts += [f"in a {type(region).__name__.lower()}" for region in self.convex]
        return f"Domain({', '.join(parts)})"
