"""Linear constraints on the inputs: ``least <= matrix @ x <= most``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ennopt.network import Array, frozen

FEASIBILITY = 1e-9
"""How far a point may miss a linear constraint: this share of the largest sum
``|a| |x| + |side|`` on the box. Every bound holds for all points that the check
accepts: relaxations are wider by the same amount."""

SWEEPS = 500
"""Most passes over the rows when a point is moved into the set."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Linear constraints ``least <= matrix @ x <= most``; equal sides are an equation.

    Parameters
    ----------
    matrix
        (num_rows, num_inputs), finite.
    least, most
        (num_rows,); infinite for a side that does not count.
    texts
        Each constraint as the user stated it, for messages.
    slack
        How far a point may miss each constraint, (num_rows,). A `Domain` sets it, from
        `FEASIBILITY` and its box; parts of the domain keep it.

    Examples
    --------
    >>> rows = Rows([[1.0, 1.0]], [2.0], [2.0])
    >>> rows
    Rows(1 equation, 0 inequalities)
    """

    matrix: Array
    least: Array
    most: Array
    texts: tuple[str, ...] = None  # type: ignore[assignment]
    slack: Array = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        matrix = np.atleast_2d(frozen(self.matrix))
        least, most = (np.atleast_1d(frozen(s)) for s in (self.least, self.most))
        count = len(matrix)
        if matrix.ndim != 2 or least.shape != (count,) or most.shape != (count,):
            raise ValueError(
                f"Expected one lower and one upper side for each of {count} linear "
                f"constraints, got {least.size} and {most.size}."
            )
        texts = self.texts
        if texts is None:
            texts = tuple(f"linear constraint {k + 1}" for k in range(count))
        if len(texts) != count:
            raise ValueError(f"Expected {count} texts, got {len(texts)}.")
        for k, text in enumerate(texts):
            if not np.isfinite(matrix[k]).all():
                raise ValueError(f"Expected finite coefficients, got NaN at {text}.")
            if not (least[k] < np.inf and most[k] > -np.inf):
                raise ValueError(
                    f"Expected sides that a number can meet, got [{least[k]}, "
                    f"{most[k]}] at {text}."
                )
            if not least[k] <= most[k]:
                raise ValueError(
                    f"Expected the lower side below the upper one, got "
                    f"[{least[k]:g}, {most[k]:g}] at {text}. Exchange them."
                )
        for name, own in (("matrix", matrix), ("least", least), ("most", most)):
            object.__setattr__(self, name, frozen(own))
        object.__setattr__(self, "texts", tuple(texts))
        if self.slack is not None:
            object.__setattr__(self, "slack", frozen(self.slack))

    @classmethod
    def none(cls, num_inputs: int) -> Rows:
        """No constraints."""
        return cls(np.zeros((0, num_inputs)), np.zeros(0), np.zeros(0), ())

    @property
    def count(self) -> int:
        """Number of constraints."""
        return len(self.least)

    @property
    def equations(self) -> npt.NDArray[np.bool_]:
        """Which constraints have equal sides, (num_rows,)."""
        return np.asarray(self.least == self.most)

    def with_slack(self, reach: Array) -> Rows:
        """The constraints with the slack of a box with ``|x| <= reach``."""
        sides = np.where(np.isfinite(self.least), np.abs(self.least), 0.0)
        others = np.where(np.isfinite(self.most), np.abs(self.most), 0.0)
        sizes = np.abs(self.matrix) @ reach + np.maximum(sides, others)
        return replace(self, slack=FEASIBILITY * sizes)

    def half_spaces(self) -> tuple[Array, Array]:
        """The constraints as ``slopes @ x >= sides``, wider by their slack.

        An equation is two of them. Returns slopes (num_half_spaces, num_inputs) and
        sides (num_half_spaces,).
        """
        below, above = np.isfinite(self.least), np.isfinite(self.most)
        slopes = np.concatenate([self.matrix[below], -self.matrix[above]])
        least, most = self.least - self.slack, self.most + self.slack
        return slopes, np.concatenate([least[below], -most[above]])

    def violation(self, x: Array) -> Array:
        """How far points (..., num_inputs) miss each constraint, never negative."""
        return self._missed(x @ self.matrix.T)

    def reordered(self, order: Sequence[int]) -> Rows:
        """The same constraints on ``x[order]``."""
        return replace(self, matrix=self.matrix[:, list(order)])

    def moved(self, shift: Array) -> Rows:
        """The same constraints on ``x - shift``."""
        by = self.matrix @ shift
        return replace(self, least=self.least - by, most=self.most - by)

    def on_units(self, units: Array) -> Rows:
        """The same constraints on ``x / units``."""
        return replace(self, matrix=self.matrix * units)

    def divided(self, units: Array) -> Rows:
        """The same constraints, each divided by a positive number, (num_rows,)."""
        sides = {
            name: getattr(self, name) / units for name in ("least", "most", "slack")
        }
        return replace(self, matrix=self.matrix / units[:, None], **sides)

    def repair(self, points: Array, lower: Array, upper: Array) -> Array:
        """Move points into box and rows: Dykstra's projections, in units of the box.

        Points that cannot be moved close enough come back as far as they got; check
        them before use.
        """
        width = np.where(upper > lower, upper - lower, 1.0)
        low, high = lower / width, upper / width
        matrix = self.matrix * width
        lengths = np.einsum("kj,kj->k", matrix, matrix)
        moved = np.clip(points / width, low, high)
        of_rows = np.zeros((self.count, *moved.shape))
        of_box = np.zeros_like(moved)
        for _ in range(SWEEPS):
            if np.all(self._missed(moved @ matrix.T) <= 0.5 * self.slack):
                break
            for k in np.flatnonzero(lengths > 0.0):
                free = moved + of_rows[k]
                value = free @ matrix[k]
                step = np.clip(value, self.least[k], self.most[k]) - value
                moved = free + (step / lengths[k])[..., None] * matrix[k]
                of_rows[k] = free - moved
            free = moved + of_box
            moved = np.clip(free, low, high)
            of_box = free - moved
        return np.clip(moved * width, lower, upper)

    def _missed(self, values: Array) -> Array:
        return np.maximum(np.maximum(self.least - values, values - self.most), 0.0)

    def __repr__(self) -> str:
        equal = int(self.equations.sum())
        other = self.count - equal
        return (
            f"Rows({equal} equation{'s' * (equal != 1)}, "
            f"{other} inequalit{'y' if other == 1 else 'ies'})"
        )
