"""Mixed-integer linear models in plain data, their inequalities, and weak duality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.bounds.rounding import UNIT
from ennopt.network import Array, frozen

Indices: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LinearModel:
    """Maximize ``objective @ v + offset`` over rows, bounds and integrality.

    Parameters
    ----------
    lower, upper
        Bounds of the columns, (num_columns,).
    objective
        (num_columns,)
    integer
        Which columns must be integral, (num_columns,).
    starts, columns, coefficients
        The rows in compressed form: row r has the entries
        ``starts[r]:starts[r + 1]`` of `columns` and `coefficients`.
    row_lower, row_upper
        ``row_lower <= A v <= row_upper``, (num_rows,); infinite for one-sided rows.
    offset
        Constant of the objective.

    Examples
    --------
    >>> model = LinearModel.of([0, 0], [1, 1], [1, 2], [[1, 1]], upper_rows=[1.5])
    >>> model
    LinearModel(2 columns, 0 integer; 1 rows, 2 entries)
    """

    lower: Array
    upper: Array
    objective: Array
    integer: Flags
    starts: Indices
    columns: Indices
    coefficients: Array
    row_lower: Array
    row_upper: Array
    offset: float = 0.0

    def __post_init__(self) -> None:
        for spec in fields(self):
            given = getattr(self, spec.name)
            own: object
            if spec.name in ("starts", "columns"):
                own = _readonly(np.array(given, dtype=np.int64))
            elif spec.name == "integer":
                own = _readonly(np.array(given, dtype=np.bool_))
            elif spec.name == "offset":
                own = float(given)
            else:
                own = frozen(given)
            object.__setattr__(self, spec.name, own)
        n, m = self.num_columns, self.num_rows
        for name, length in (
            ("upper", n), ("objective", n), ("integer", n), ("starts", m + 1),
            ("row_upper", m), ("columns", self.coefficients.size),
        ):  # fmt: skip
            if getattr(self, name).shape != (length,):
                raise ValueError(
                    f"Expected {name} of shape ({length},), got "
                    f"{getattr(self, name).shape}."
                )
        if m and (self.starts[0] != 0 or self.starts[-1] != self.columns.size):
            raise ValueError("Expected starts from 0 to the number of entries.")
        if np.any((self.columns < 0) | (self.columns >= n)):
            raise ValueError(f"Expected columns in 0..{n - 1} in every row.")
        finite = (self.objective, self.coefficients, np.array(self.offset))
        if not all(np.isfinite(values).all() for values in finite):
            raise ValueError("Expected finite coefficients, got NaN or infinity.")

    @classmethod
    def of(
        cls,
        lower: npt.ArrayLike,
        upper: npt.ArrayLike,
        objective: npt.ArrayLike,
        rows: npt.ArrayLike = (),
        *,
        lower_rows: npt.ArrayLike | None = None,
        upper_rows: npt.ArrayLike | None = None,
        integer: npt.ArrayLike | None = None,
        offset: float = 0.0,
    ) -> LinearModel:
        """A small model from a dense matrix of rows, (num_rows, num_columns)."""
        n = int(np.size(np.asarray(lower)))
        dense = np.asarray(rows, dtype=np.float64).reshape(-1, n)
        r, c = np.nonzero(dense)
        m = len(dense)
        return cls(
            lower=frozen(lower), upper=frozen(upper), objective=frozen(objective),
            integer=np.asarray(np.zeros(n) if integer is None else integer, np.bool_),
            starts=np.searchsorted(r, np.arange(m + 1)).astype(np.int64),
            columns=c.astype(np.int64), coefficients=dense[r, c],
            row_lower=np.full(m, -np.inf) if lower_rows is None else frozen(lower_rows),
            row_upper=np.full(m, np.inf) if upper_rows is None else frozen(upper_rows),
            offset=offset,
        )  # fmt: skip

    @property
    def num_columns(self) -> int:
        """Number of variables."""
        return int(self.lower.size)

    @property
    def num_rows(self) -> int:
        """Number of linear constraints."""
        return int(self.row_lower.size)

    @property
    def num_integer(self) -> int:
        """Number of integral variables."""
        return int(self.integer.sum())

    @property
    def num_entries(self) -> int:
        """Number of coefficients of all rows."""
        return int(self.coefficients.size)

    def row(self, r: int) -> tuple[Indices, Array]:
        """Columns and coefficients of row r."""
        span = slice(int(self.starts[r]), int(self.starts[r + 1]))
        return self.columns[span], self.coefficients[span]

    def value(self, v: Array) -> float:
        """The objective at a point, (num_columns,)."""
        return float(self.objective @ v) + self.offset

    def activities(self, v: Array) -> Array:
        """``A v``, (num_rows,)."""
        terms = self.coefficients * v[self.columns]
        sums = np.bincount(self._entry_rows(), terms, self.num_rows)
        return np.asarray(sums, dtype=np.float64)

    def violation(self, v: Array) -> float:
        """Largest violation of a bound, row or integrality; 0 if feasible."""
        rows = self.activities(v)
        whole = v[self.integer]
        parts = [
            self.lower - v, v - self.upper, self.row_lower - rows,
            rows - self.row_upper, np.abs(whole - np.round(whole)), np.zeros(1),
        ]  # fmt: skip
        return float(max(part.max(initial=0.0) for part in parts))

    def with_objective(self, objective: Array, offset: float = 0.0) -> LinearModel:
        """The same feasible set with another objective."""
        return replace(self, objective=objective, offset=offset)

    def with_column_bounds(self, lower: Array, upper: Array) -> LinearModel:
        """The same model with other bounds of the columns."""
        return replace(self, lower=lower, upper=upper)

    def with_inequalities(self, cuts: Sequence[Inequality]) -> LinearModel:
        """The model with the inequalities as further rows."""
        if not cuts:
            return self
        ends = self.num_entries + np.cumsum([cut.columns.size for cut in cuts])
        return replace(
            self,
            starts=np.concatenate([self.starts, ends]),
            columns=np.concatenate([self.columns, *(c.columns for c in cuts)]),
            coefficients=np.concatenate(
                [self.coefficients, *(c.coefficients for c in cuts)]
            ),
            row_lower=np.append(self.row_lower, np.full(len(cuts), -np.inf)),
            row_upper=np.append(self.row_upper, [c.limit for c in cuts]),
        )

    def relaxed(self) -> LinearModel:
        """The same model without integrality."""
        return replace(self, integer=np.zeros(self.num_columns, dtype=np.bool_))

    def weak_duality(self, duals: Array) -> WeakDuality:
        """``c v = (c - A'p) v + p (A v)`` with multipliers p that bound something.

        Parameters
        ----------
        duals
            One multiplier per row, (num_rows,), not negative where the upper side of
            the row binds. One that is not finite, or that would need a side of its
            row that does not exist, counts as zero.
        """
        p = np.where(np.isfinite(duals), duals, 0.0)
        p = np.where((p > 0) & ~np.isfinite(self.row_upper), 0.0, p)
        p = np.where((p < 0) & ~np.isfinite(self.row_lower), 0.0, p)
        terms, size = self.coefficients * p[self._entry_rows()], self.num_columns
        used = np.bincount(self.columns, terms, size)[:size]
        absolute = np.bincount(self.columns, np.abs(terms), size)[:size]
        side = np.where(p > 0, self.row_upper, self.row_lower)
        return WeakDuality(
            reduced=self.objective - used,
            of_rows=p * np.where(p == 0, 0.0, side),
            sizes=np.abs(self.objective) + absolute,
            gamma=2.0 * (self.num_rows + size + 8) * UNIT,
        )

    def dual_bound(self, duals: Array) -> float:
        """An upper bound of the maximum from any row multipliers: weak duality.

        Valid whatever the solver's tolerances: every term of `weak_duality` is bounded
        over the bounds of columns and rows, and rounding errors are added.

        Parameters
        ----------
        duals
            As for `weak_duality`.
        """
        dual = self.weak_duality(duals)
        error = dual.gamma * dual.sizes
        reach = np.maximum(np.abs(self.lower), np.abs(self.upper))
        if not np.isfinite(reach[error > 0]).all():
            return math.inf
        reach = np.where(error > 0, reach, 0.0)
        side = np.where(dual.reduced > 0, self.upper, self.lower)
        side = np.where(error > 0, side, 0.0)
        of_columns = np.where(dual.reduced == 0, 0.0, dual.reduced * side)
        total = float(of_columns.sum() + dual.of_rows.sum() + self.offset)
        sizes = np.abs(of_columns).sum() + np.abs(dual.of_rows).sum() + abs(self.offset)
        return total + float(error @ reach + dual.gamma * sizes)

    def _entry_rows(self) -> Indices:
        return np.repeat(np.arange(self.num_rows), np.diff(self.starts))

    def __repr__(self) -> str:
        return (
            f"LinearModel({self.num_columns} columns, {self.num_integer} integer; "
            f"{self.num_rows} rows, {self.num_entries} entries)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class WeakDuality:
    """The objective of a model split between its columns and its rows.

    ``objective @ v`` is ``reduced @ v`` plus one term for each row, whatever v.

    Parameters
    ----------
    reduced
        Reduced costs ``c - A'p`` of the columns, (num_columns,).
    of_rows
        Largest value of each row's term ``p_r (A v)_r`` where v obeys the row,
        (num_rows,).
    sizes
        ``|c| + |A|'|p|``, (num_columns,): rounding moves a reduced cost by at most
        ``gamma * sizes``.
    gamma
        Relative rounding error of a sum over all rows and columns.
    """

    reduced: Array
    of_rows: Array
    sizes: Array
    gamma: float


def _readonly(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Inequality:
    """An inequality ``coefficients @ v[columns] <= limit`` of a model's columns.

    Examples
    --------
    >>> Inequality([0, 2], [1.0, -1.0], 0.5).violation(np.array([2.0, 9.0, 1.0]))
    0.5
    """

    columns: Indices
    coefficients: Array
    limit: float

    def __post_init__(self) -> None:
        columns = _readonly(np.array(self.columns, dtype=np.int64))
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "coefficients", frozen(self.coefficients))
        object.__setattr__(self, "limit", float(self.limit))
        if columns.shape != self.coefficients.shape or columns.ndim != 1:
            raise ValueError(
                f"Expected one coefficient for each column, got {columns.shape} "
                f"columns and {self.coefficients.shape} coefficients."
            )

    def violation(self, v: Array) -> float:
        """How far a point exceeds the limit; not positive if it obeys."""
        return float(self.coefficients @ v[self.columns]) - self.limit
