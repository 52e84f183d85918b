"""The feasible set: what a search and a model may ask of it.

A box, and linear constraints on it. Searches ask for the half-spaces that bound linear
functions on a node and shrink its box (`half_spaces`), models for rows (`rows`),
everybody for `contains`, `repair`, `sample` and `split`. The corners `lower` and
`upper` are those of the surrounding box, not of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.domain.rows import Rows
from ennopt.network import Array, Ensemble, frozen, shown

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The inputs allowed: a box in original units, and linear constraints.

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
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "names", names)
        rows = Rows.none(lower.size) if self.rows is None else self.rows
        if rows.matrix.shape[1] != lower.size:
            raise ValueError(
                f"Expected linear constraints on {lower.size} inputs, got "
                f"{rows.matrix.shape[1]} coefficients in each."
            )
        if rows.slack is None:
            reach = np.maximum(np.abs(lower), np.abs(upper))
            rows = rows.with_slack(reach)
        object.__setattr__(self, "rows", rows)

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
        return self.rows.count == 0

    @property
    def reach(self) -> Array:
        """Largest absolute value of each input, (num_inputs,)."""
        return np.asarray(np.maximum(np.abs(self.lower), np.abs(self.upper)))

    @property
    def centre(self) -> Array:
        """The middle of the surrounding box, (num_inputs,)."""
        return np.asarray(0.5 * (self.lower + self.upper))

    def half_spaces(self) -> tuple[Array, Array]:
        """The linear constraints as ``slopes @ x >= sides``, wider by their slack."""
        return self.rows.half_spaces()

    def feasible(self, points: Array) -> Flags:
        """Which points (num_points, num_inputs) are in the set, (num_points,).

        Bounds are exact; linear constraints may be missed by `FEASIBILITY` of their
        size.
        """
        inside = np.all((points >= self.lower) & (points <= self.upper), axis=1)
        if self.is_box:
            return np.asarray(inside)
        met = self.rows.violation(points) <= self.rows.slack
        return np.asarray(inside & met.all(axis=1))

    def contains(self, x: npt.ArrayLike) -> bool:
        """Whether the point `x` is in the set; see `feasible`."""
        return bool(self.feasible(np.atleast_2d(np.asarray(x, dtype=np.float64)))[0])

    def repair(self, points: npt.ArrayLike) -> Array:
        """Points of the set near `points`, (num_points, num_inputs).

        On a box the nearest ones. With linear constraints some may not be found: those
        come back outside; ask `feasible`.
        """
        inside = np.clip(np.asarray(points, np.float64), self.lower, self.upper)
        if self.is_box:
            return inside
        rows = np.atleast_2d(inside)
        outside = ~self.feasible(rows)
        moved = rows.copy()
        moved[outside] = self.rows.repair(rows[outside], self.lower, self.upper)
        return moved.reshape(inside.shape)

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
        return replace(self, lower=lower, upper=upper)

    def split(self, j: int, at: float) -> tuple[Domain, Domain]:
        """Two sets that cover this one and meet at ``x[j] == at``."""
        left_upper, right_lower = self.upper.copy(), self.lower.copy()
        left_upper[j] = right_lower[j] = at
        return self.within(self.lower, left_upper), self.within(right_lower, self.upper)

    def reordered(self, order: Sequence[int], names: Sequence[str]) -> Domain:
        """The same set with its inputs in another order."""
        chosen = list(order)
        rows = self.rows.reordered(chosen)
        return Domain(self.lower[chosen], self.upper[chosen], tuple(names), rows)

    def moved(self, shift: Array) -> Domain:
        """The set of all ``x - shift``."""
        rows = self.rows.moved(shift)
        return Domain(self.lower - shift, self.upper - shift, self.names, rows)

    def on_units(self, units: Array) -> Domain:
        """The set of all ``x / units``."""
        rows = self.rows.on_units(units)
        return Domain(self.lower / units, self.upper / units, self.names, rows)

    def __repr__(self) -> str:
        parts = [
            f"{shown(name)} in [{low:g}, {high:g}]"
            for name, low, high in zip(self.names, self.lower, self.upper, strict=True)
        ]
        if len(parts) > 6:
            parts = [*parts[:5], f"... {len(parts) - 5} more"]
        if not self.is_box:
            parts.append(repr(self.rows))
        return f"Domain({', '.join(parts)})"
