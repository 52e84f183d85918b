"""The solver boundary in plain data: a model in, a result with a bound out.

Nothing here knows a solver. An adapter (`highs`, `scip`, `gurobi`) implements
`Backend`, declares its `Capabilities` and refuses the rest with a remedy.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.network import Array, frozen

Indices: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

UNIT_ROUNDOFF = 2.0**-53

PROGRESS_SECONDS = 0.1
"""At least this long between two reports of a solver that bring no solution."""


TIGHT_TOLERANCE = 1e-9
"""Feasibility and integrality tolerance of models whose bounds count as proved.

A solver that is not to be trusted with it takes the tightest it is good for.
"""


class SolverError(RuntimeError):
    """A solver failed, or contradicts itself."""


class CapabilityError(ValueError):
    """A solver was asked for what it cannot do."""


class LicenceError(SolverError):
    """A solver's licence does not allow this model."""


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

    def with_cuts(self, cuts: Sequence[Cut]) -> LinearModel:
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

    def dual_bound(self, duals: Array) -> float:
        """An upper bound of the maximum from any row multipliers: weak duality.

        Valid whatever the solver's tolerances: ``c v = (c - A'y) v + y (A v)`` is
        bounded term by term over the bounds of columns and rows, with multipliers of
        the wrong sign set to zero and rounding errors added.

        Parameters
        ----------
        duals
            One multiplier per row, (num_rows,), not negative where the upper side of
            the row binds.
        """
        y = np.where(np.isfinite(duals), duals, 0.0)
        y = np.where((y > 0) & ~np.isfinite(self.row_upper), 0.0, y)
        y = np.where((y < 0) & ~np.isfinite(self.row_lower), 0.0, y)
        terms = self.coefficients * y[self._entry_rows()]
        size = self.num_columns
        reduced = self.objective - np.bincount(self.columns, terms, size)[:size]
        absolute = np.abs(self.objective)
        absolute = absolute + np.bincount(self.columns, np.abs(terms), size)[:size]
        operations = self.num_rows + self.num_columns + 8
        gamma = 2.0 * operations * UNIT_ROUNDOFF
        error = gamma * absolute
        reach = np.maximum(np.abs(self.lower), np.abs(self.upper))
        if not np.isfinite(reach[error > 0]).all():
            return math.inf
        reach = np.where(error > 0, reach, 0.0)
        side = np.where(reduced > 0, self.upper, self.lower)
        of_columns = np.where(reduced == 0, 0.0, reduced * np.where(error > 0, side, 0))
        binding = np.where(y > 0, self.row_upper, self.row_lower)
        of_rows = y * np.where(y == 0, 0.0, binding)
        total = float(of_columns.sum() + of_rows.sum() + self.offset)
        sizes = np.abs(of_columns).sum() + np.abs(of_rows).sum() + abs(self.offset)
        return total + float(error @ reach + gamma * sizes)

    def _entry_rows(self) -> Indices:
        return np.repeat(np.arange(self.num_rows), np.diff(self.starts))

    def __repr__(self) -> str:
        return (
            f"LinearModel({self.num_columns} columns, {self.num_integer} integer; "
            f"{self.num_rows} rows, {self.num_entries} entries)"
        )


def _readonly(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """An inequality ``coefficients @ v[columns] <= limit`` of a model's columns.

    Examples
    --------
    >>> Cut([0, 2], [1.0, -1.0], 0.5).violation(np.array([2.0, 9.0, 1.0]))
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


CutSource: TypeAlias = Callable[[Array, bool], Sequence[Cut]]
"""``separate(point, integral) -> cuts``: a pure function of a point (num_columns,)."""


@dataclass(frozen=True, slots=True)
class Separation:
    """Where a cut source is asked, and how much it may add.

    Parameters
    ----------
    source
        Asked with a point and whether it is an integer solution.
    at_fractional
        Ask at the LP solutions of nodes.
    at_integral
        Ask at integer solutions.
    required
        The inequalities belong to the model: an integer solution that violates one
        is rejected. Otherwise they must hold at every integer solution anyway.
    limit
        Most inequalities in all.
    violation
        Smallest violation, in units of the row, that is worth a row.
    """

    source: CutSource
    at_fractional: bool = True
    at_integral: bool = False
    required: bool = False
    limit: float = math.inf
    violation: float = 1e-6

    def __post_init__(self) -> None:
        if self.required and not self.at_integral:
            raise ValueError(
                "Expected required inequalities to be asked for at integer solutions, "
                "got at_integral=False."
            )


class CutCounter:
    """How many inequalities of a separation are left."""

    def __init__(self, separation: Separation) -> None:
        self.separation = separation
        self.left = separation.limit

    def ask(self, point: Array, integral: bool) -> list[Cut]:
        """Violated inequalities, most violated first, within what is left."""
        separation = self.separation
        if not separation.required and self.left <= 0:
            return []
        cuts = [
            (cut.violation(point), -index, cut)
            for index, cut in enumerate(separation.source(point, integral))
        ]
        cuts = [c for c in cuts if c[0] > separation.violation]
        cuts.sort(key=lambda c: c[:2], reverse=True)
        return [c[2] for c in cuts]

    def take(self, cuts: list[Cut]) -> list[Cut]:
        """The first of them that are within the limit, now used up."""
        if not self.separation.required and math.isfinite(self.left):
            cuts = cuts[: int(self.left)]
        self.left -= len(cuts)
        return cuts


class MilpStatus(enum.Enum):
    """How a solver ended: every adapter translates its own words into these."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    TIME_LIMIT = "time_limit"
    NODE_LIMIT = "node_limit"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MilpProgress:
    """A moment of a solve. `x` is there when a solution was found just now."""

    seconds: float
    value: float
    bound: float
    nodes: int
    x: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MilpResult:
    """What a solver returns.

    Parameters
    ----------
    status
        How it ended.
    value
        The solver's own value of `x`, up to its tolerances; ``-inf`` without one.
    x
        Best solution, (num_columns,), or ``None``.
    bound
        Nothing is better, up to the solver's tolerances; ``inf`` when unknown.
    nodes
        Nodes of its tree.
    seconds
        Wall-clock time.
    cuts
        Inequalities added by the separations.
    surveyed
        LP solutions of fractional nodes, (num_points, num_columns), if asked for.
    duals
        Row multipliers of a linear program, (num_rows,), if it was solved.
    message
        The solver's own word for the ending.
    """

    status: MilpStatus
    value: float = -math.inf
    x: Array | None = None
    bound: float = math.inf
    nodes: int = 0
    seconds: float = 0.0
    cuts: int = 0
    surveyed: Array = field(default_factory=lambda: np.zeros((0, 0)))
    duals: Array | None = None
    message: str = ""

    def heard(self, interrupted: bool) -> MilpResult:
        """The same, but told as interrupted if Ctrl-C came.

        A limit that was reached, or a proof that ended, in the same moment must not
        hide it.
        """
        ended = (MilpStatus.OPTIMAL, MilpStatus.TIME_LIMIT, MilpStatus.NODE_LIMIT)
        if interrupted and self.status in ended:
            return replace(self, status=MilpStatus.INTERRUPTED)
        return self


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """Limits and tolerances of one solve.

    Parameters
    ----------
    time_limit
        Wall-clock seconds.
    node_limit
        Nodes of the tree.
    gap, absolute_gap
        Relative and absolute distance of bound and value that counts as optimal.
    tolerance
        Feasibility and integrality tolerance.
    threads, seed
        Handed to the solver.
    survey
        Return the LP solutions of the first so many fractional nodes and stop after
        them; 0 for none.
    """

    time_limit: float = math.inf
    node_limit: float = math.inf
    gap: float = 1e-4
    absolute_gap: float = 1e-9
    tolerance: float = 1e-6
    threads: int = 1
    seed: int = 0
    survey: int = 0


@dataclass(frozen=True, slots=True)
class SolveHooks:
    """What a solver may call or be given while it works.

    Parameters
    ----------
    progress
        Called with a `MilpProgress` now and then and at each new solution, in the
        solver's thread; a true answer stops the solver.
    separations
        Cut sources.
    start
        A feasible point to begin with, (num_columns,).
    """

    progress: Callable[[MilpProgress], object] | None = None
    separations: tuple[Separation, ...] = ()
    start: Array | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do.

    Parameters
    ----------
    hot_start
        Solve a linear program again after a change of objective from its last basis.
    cuts
        Add valid inequalities inside the tree.
    lazy_constraints
        Reject integer solutions that violate required inequalities.
    node_survey
        Show the LP solutions of nodes.
    user_solutions
        Begin with a given solution.
    size_limit
        Most columns, and most rows, that the licence allows.
    margin
        How far its bound of a MILP in units of order one (see `units`), solved to
        `TIGHT_TOLERANCE`, is moved outward before it counts as proved. Bounds of
        linear programs are recomputed from duals and need none.
    """

    hot_start: bool = False
    cuts: bool = False
    lazy_constraints: bool = False
    node_survey: bool = False
    user_solutions: bool = False
    size_limit: float = math.inf
    margin: float = 1e-6


class Backend(Protocol):
    """A solver: one adapter file each."""

    @property
    def name(self) -> str:
        """Its name in `backend`."""

    @property
    def package(self) -> str:
        """The distribution whose version a result records."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; may look at the licence."""

    def solve(
        self,
        model: LinearModel,
        options: SolveOptions = ...,
        hooks: SolveHooks = ...,
    ) -> MilpResult:
        """Maximize the model."""


def demand(
    backend: Backend, model: LinearModel, options: SolveOptions, hooks: SolveHooks
) -> None:
    """Refuse, before any work, what the backend cannot do."""
    can = backend.capabilities
    remedy = "Use the backend 'scip' or 'gurobi' for it."
    required = any(s.required for s in hooks.separations)
    asked = (
        ("cuts inside the tree", bool(hooks.separations), can.cuts),
        ("required inequalities", required, can.lazy_constraints),
        ("a survey of its nodes", options.survey > 0, can.node_survey),
        ("an initial solution", hooks.start is not None, can.user_solutions),
    )
    for what, wanted, able in asked:
        if wanted and not able:
            raise CapabilityError(
                f"Expected a solver with {what}, got {backend.name}, which has none. "
                f"{remedy}"
            )
    if hooks.start is not None and hooks.start.shape != (model.num_columns,):
        raise ValueError(
            f"Expected a start of shape ({model.num_columns},), got "
            f"{hooks.start.shape}."
        )
    if max(model.num_columns, model.num_rows) > can.size_limit:
        raise LicenceError(
            f"Expected at most {can.size_limit:g} columns and rows, which the "
            f"size-limited licence of {backend.name} allows, got {model!r}. Install a "
            "full licence or use the backend 'scip' or 'highs'."
        )
