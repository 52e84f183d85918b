"""The solver boundary in plain data: a model in, a result with a bound out.

Nothing here knows a solver. An adapter (`highs`, `scip`, `gurobi`) implements
`Backend`, declares its `Capabilities` and refuses the rest with a remedy.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np

from ennopt.milp.model import Inequality, LinearModel
from ennopt.network import Array

PROGRESS_SECONDS = 0.1
"""At least this long between two reports of a solver that bring no solution."""

TIGHT_TOLERANCE = 1e-9
"""Feasibility and integrality tolerance of models whose bounds count as proved.

A solver that is not to be trusted with it takes the tightest it is good for.
"""

SMALLEST_VIOLATION = 1e-6
"""Smallest violation of an inequality that is worth a row, in units of the row: what is
less, a solver's own tolerance allows."""


class CapabilityError(ValueError):
    """A solver was asked for what it cannot do."""


class LicenceError(RuntimeError):
    """A solver's licence does not allow this model."""


InequalitySource: TypeAlias = Callable[[Array, bool], Sequence[Inequality]]
"""``separate(point, integral)``: a pure function of a point (num_columns,)."""


@dataclass(frozen=True, slots=True)
class Separation:
    """Where a source of inequalities is asked, and how much it may add.

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
        Most inequalities in all, of those that the solver took where it tells.
    violation
        Smallest violation, in units of the row, that is worth a row.
    ends
        Whether the solve ends, as at a node limit, once `limit` is used up at
        fractional solutions.
    """

    source: InequalitySource
    at_fractional: bool = True
    at_integral: bool = False
    required: bool = False
    limit: float = math.inf
    violation: float = SMALLEST_VIOLATION
    ends: bool = False

    def __post_init__(self) -> None:
        if self.required and not self.at_integral:
            raise ValueError(
                "Expected required inequalities to be asked for at integer solutions, "
                "got at_integral=False."
            )


class InequalityCounter:
    """How many inequalities of a separation are left."""

    def __init__(self, separation: Separation) -> None:
        self.separation = separation
        self.left = separation.limit

    def ask(self, point: Array, integral: bool) -> list[Inequality]:
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

    def taken(self, count: int) -> None:
        """Begin again with what the solver says it has taken of those offered."""
        self.left = self.separation.limit - count

    def used_up(self) -> bool:
        """Whether the solve must end for want of inequalities."""
        return self.separation.ends and self.left <= 0

    def take(self, cuts: list[Inequality]) -> list[Inequality]:
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

    @property
    def has_bound(self) -> bool:
        """Whether a bound that comes with it may count."""
        return self in (
            MilpStatus.OPTIMAL,
            MilpStatus.TIME_LIMIT,
            MilpStatus.NODE_LIMIT,
            MilpStatus.INTERRUPTED,
        )


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
        Inequalities of the separations that the solver took into its LPs. Gurobi does
        not tell: there, all that were offered, but for those at integer solutions that
        are not required.
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

    @property
    def bound_of_feasible(self) -> float:
        """The bound of a model that has points, whatever the solver says about that."""
        return math.inf if self.status is MilpStatus.INFEASIBLE else self.bound

    def heard(self, interrupted: bool) -> MilpResult:
        """The same, but told as interrupted if Ctrl-C came.

        A limit that was reached, a proof that ended or a failure in the same moment
        must not hide it.
        """
        if not interrupted:
            return self
        bound = self.bound if self.status.has_bound else math.inf
        return replace(self, status=MilpStatus.INTERRUPTED, bound=bound)


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
    presolve
        Whether the solver may simplify the model first.
    brisk
        Explore nodes at once, instead of heuristics, presolve and strong branching:
        for a bound within a short time. HiGHS goes on as always.
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
    presolve: bool = True
    brisk: bool = False
    survey: int = 0


@dataclass(frozen=True, slots=True)
class SolveHooks:
    """What a solver may call or be given while it works.

    Parameters
    ----------
    progress
        Called with a `MilpProgress` now and then and at each new solution, in the
        solver's thread. Return True to stop the solver.
    separations
        Inequality sources.
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
