"""Linear constraints on the inputs: ``least <= matrix @ x <= most``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ennopt.columns import Group
from ennopt.network import Array, frozen

FEASIBILITY = 1e-9
"""How far a point may miss a linear constraint: this share of how much ``a @ x`` varies
over the box, and `CHECK_ROUNDING` for the arithmetic of the check itself."""

CHECK_ROUNDING = 16.0 * np.finfo(np.float64).eps
"""Rounding of ``a @ x - side``, as a share of ``|a| |x| + |side|`` and per input."""

ACCEPTED = 0.9
"""Share of the slack that the check of a point uses. The rest covers its rounding:
every bound holds for all points that the check accepts."""

REPAIRED = 0.5
"""Share of the slack that a point moved into the set may use."""

SWEEPS = (4, 16, 64)
"""Passes over the rows when points are moved into the set; those that are in after a
round take no part in the next."""

MOST_CORRECTED = 64
"""Points whose last digits are corrected one by one."""

CORRECTIONS = 20
"""Most steps on the rows that such a point still misses."""


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

    @classmethod
    def none(cls, num_inputs: int) -> Rows:
        """No constraints."""
        return cls(np.zeros((0, num_inputs)), np.zeros(0), np.zeros(0), ())

    @classmethod
    def one_of(cls, group: Group, num_inputs: int) -> Rows:
        """The condition on the sum of the inputs of a category."""
        slopes = np.zeros((1, num_inputs))
        slopes[0, list(group.inputs)] = 1.0
        least = np.array([1.0 if group.base is None else -np.inf])
        return cls(slopes, least, np.ones(1), (f"one {group.name}",))

    @property
    def count(self) -> int:
        """Number of constraints."""
        return len(self.least)

    @property
    def equations(self) -> npt.NDArray[np.bool_]:
        """Which constraints have equal sides, (num_rows,)."""
        return np.asarray(self.least == self.most)

    def slack(self, lower: Array, upper: Array) -> Array:
        """How far points of a box may miss each constraint, (num_rows,)."""
        magnitudes = np.abs(self.matrix)
        sides = np.where(np.isfinite(self.least), np.abs(self.least), 0.0)
        others = np.where(np.isfinite(self.most), np.abs(self.most), 0.0)
        reach = np.maximum(np.abs(lower), np.abs(upper))
        sizes = magnitudes @ reach + np.maximum(sides, others)
        rounding = (self.matrix.shape[1] + 2) * CHECK_ROUNDING * sizes
        return np.asarray(FEASIBILITY * (magnitudes @ (upper - lower)) + rounding)

    def half_spaces(self, slack: Array) -> tuple[Array, Array]:
        """The constraints as ``slopes @ x >= sides``, wider by their slack.

        An equation is two of them. Returns slopes (num_half_spaces, num_inputs) and
        sides (num_half_spaces,).
        """
        below, above = np.isfinite(self.least), np.isfinite(self.most)
        slopes = np.concatenate([self.matrix[below], -self.matrix[above]])
        least, most = self.least - slack, self.most + slack
        return slopes, np.concatenate([least[below], -most[above]])

    def met(self, x: Array, slack: Array) -> npt.NDArray[np.bool_]:
        """Which points (num_points, num_inputs) meet all constraints, (num_points,)."""
        return np.asarray(np.all(self.violation(x) <= ACCEPTED * slack, axis=-1))

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
        return replace(
            self, matrix=self.matrix / units[:, None], least=self.least / units,
            most=self.most / units,
        )  # fmt: skip

    def and_(self, others: Rows) -> Rows:
        """These constraints and others."""
        if not others.count:
            return self
        return Rows(
            np.concatenate([self.matrix, others.matrix]),
            np.concatenate([self.least, others.least]),
            np.concatenate([self.most, others.most]),
            (*self.texts, *others.texts),
        )

    def repair(self, points: Array, lower: Array, upper: Array, slack: Array) -> Array:
        """Move points into box and rows: Dykstra's projections, in units of the box.

        Points that cannot be moved close enough come back as far as they got; check
        them before use.

        Parameters
        ----------
        points
            (num_points, num_inputs)
        lower, upper
            A box for each point, (num_points, num_inputs).
        slack
            How far they may miss each row, (num_rows,).
        """
        width = np.max(upper - lower, axis=0, initial=0.0)
        width = np.where(width > 0.0, width, 1.0)
        low, high = lower / width, upper / width
        moved = np.clip(points / width, low, high)
        (going,) = np.nonzero(self._reachable(lower, upper, slack))
        for sweeps in SWEEPS:  # the few that take long go on alone
            moved[going] = self._swept(
                moved[going], low[going], high[going], width, slack, sweeps
            )
            going = going[self._out(moved[going] * width, slack)]
            if not going.size:
                break
        found = np.clip(moved * width, lower, upper)
        for i in going[:MOST_CORRECTED]:
            found[i] = self._corrected(found[i], lower[i], upper[i], slack)
        return found

    def _reachable(
        self, lower: Array, upper: Array, slack: Array
    ) -> npt.NDArray[np.bool_]:
        """Which boxes meet each row by itself; nothing moves points of the others in.

        The whole slack is allowed, so that rounding rules out no point in vain.
        """
        middle, radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
        values, reach = middle @ self.matrix.T, radius @ np.abs(self.matrix).T
        meets = (values + reach >= self.least - slack) & (
            values - reach <= self.most + slack
        )
        return np.asarray(meets.all(axis=1))

    def _out(self, points: Array, slack: Array) -> npt.NDArray[np.bool_]:
        return np.asarray(np.any(self.violation(points) > REPAIRED * slack, axis=1))

    def _swept(
        self, points: Array, low: Array, high: Array, width: Array, slack: Array,
        sweeps: int,
    ) -> Array:  # fmt: skip
        """Dykstra's projections, all in units of `width`."""
        matrix, moved = self.matrix * width, points
        # Inputs that cannot move take no part in a step.
        free = (high > low).astype(np.float64)
        lengths = free @ (matrix * matrix).T
        lengths[lengths == 0.0] = np.inf
        steps = [free * (row / lengths[:, [k]]) for k, row in enumerate(matrix)]
        of_rows = np.zeros((self.count, *moved.shape))
        of_box = np.zeros_like(moved)
        for _ in range(sweeps):
            for k, row in enumerate(matrix):
                start = moved + of_rows[k]
                value = start @ row
                side = np.minimum(np.maximum(value, self.least[k]), self.most[k])
                moved = start + (side - value)[:, None] * steps[k]
                of_rows[k] = start - moved
            start = moved + of_box
            moved = np.minimum(np.maximum(start, low), high)
            of_box = start - moved
            if not self._out(moved * width, slack).any():
                break
        return moved

    def _corrected(self, x: Array, lower: Array, upper: Array, slack: Array) -> Array:
        """The last digits: least squares on the rows missed so far.

        Inputs that reach an end of their range stay there.
        """
        width = np.where(upper > lower, upper - lower, 0.0)
        working = np.zeros(self.count, dtype=bool)
        for _ in range(CORRECTIONS):
            values = self.matrix @ x
            missed = self._missed(values) > REPAIRED * slack
            if not missed.any():
                break
            working |= missed
            inside = (x > lower) & (x < upper)
            aim = np.clip(values, self.least, self.most) - values
            steps = (self.matrix * (width * inside))[working]
            if not steps.any():
                break  # no input that these rows see can move
            move = np.linalg.lstsq(steps, aim[working], rcond=None)[0]
            after = np.clip(x + width * inside * move, lower, upper)
            if np.array_equal(after, x):
                break
            x = after
        return x

    def _missed(self, values: Array) -> Array:
        return np.maximum(np.maximum(self.least - values, values - self.most), 0.0)

    def __repr__(self) -> str:
        equal = int(self.equations.sum())
        other = self.count - equal
        return (
            f"Rows({equal} equation{'s' * (equal != 1)}, "
            f"{other} inequalit{'y' if other == 1 else 'ies'})"
        )
