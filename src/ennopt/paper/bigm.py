"""The paper's big-M model handed to a MILP solver: bounds, model, solve.

The solver's points are evaluated by the forward pass and its bound is moved outward by
its stated margin. Should value and bound then not meet although the solver is done, or
should it contradict a point, its box is halved and both parts are solved, in which
big-M constants are smaller: a wrong answer of a solver costs time, never the proof.
"""

from __future__ import annotations

import heapq
import itertools
import time
from dataclasses import dataclass, field, replace

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.domain import Domain
from ennopt.milp import backend
from ennopt.milp.formulation import big_m
from ennopt.milp.model import (
    TIGHT_TOLERANCE,
    Backend,
    LinearModel,
    MilpProgress,
    MilpResult,
    MilpStatus,
    SolveHooks,
    SolveOptions,
)
from ennopt.milp.scaling import Normalized, normalized
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.progressive import Tightening
from ennopt.tightening.relaxation import Crown, Interval

GAP_SHARE = 0.5
"""Share of the gap asked for that is left to the solver; its margin takes the rest."""

TIGHTENING_SHARE = 0.5
"""Share of the time limit that the tightening of bounds may take."""

NARROWEST = 2.0**-40
"""Boxes narrower than this share of the domain are not halved."""

ROUNDING = 1e-9
"""A bound this far below a found value, in units of its largest sums, is wrong."""

LIMITS = {
    MilpStatus.TIME_LIMIT: Status.TIME_LIMIT,
    MilpStatus.NODE_LIMIT: Status.NODE_LIMIT,
}


@dataclass(frozen=True, slots=True)
class BigM:
    """Maximize by one MILP.

    Parameters
    ----------
    backend
        ``"highs"``, ``"scip"`` or ``"gurobi"``.
    tightening
        How the bounds of neurons are made, one step after the other.
    starts
        Random points among which the solver's first solution is chosen; 0 for none.

    Examples
    --------
    >>> from ennopt.network import Ensemble, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> BigM().solve(Problem(Ensemble([net]), Domain([-1.0], [2.0])), Tools()).value
    2.0
    """

    backend: str = "highs"
    tightening: tuple[Tightening, ...] = (Crown(), LpTightening())
    starts: int = 1000

    def __post_init__(self) -> None:
        backend(self.backend)
        if self.starts < 0:
            raise ValueError(f"Expected starts >= 0, got {self.starts}.")

    def solve(self, problem: Problem, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        status = None
        with tools.start(problem, self) as run:
            status = _Search(self, run, backend(self.backend)).run()
        return run.finish(status)


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A box with its neurons' bounds and a proved bound of the prediction."""

    domain: Domain
    bounds: NeuronBounds
    bound: float


@dataclass(slots=True, eq=False)
class _Search:
    """A solve: boxes still open, by bound, and the largest bound of closed ones."""

    method: BigM
    record: Run
    solver: Backend
    open: list[tuple[float, int, _Piece]] = field(default_factory=list)
    settled: float = -np.inf
    order: itertools.count[int] = field(default_factory=itertools.count)

    def run(self) -> Status | None:
        record, problem = self.record, self.record.problem
        record.libraries += sorted({"highspy", self.solver.package})
        record.details |= {"boxes": 0, "failures": 0}
        if self.method.starts:
            rng = np.random.default_rng(record.tools.seed)
            record.offer(problem.domain.sample(self.method.starts, rng))
        with record.phase("bounds"):
            seconds = min(record.remaining(), TIGHTENING_SHARE * record.limits.seconds)
            root = self.tightened(problem.domain, None, np.inf, seconds)
        record.details["unstable"] = root.bounds.num_unstable
        record.details["root_bound"] = root.bound
        self.push(root)
        while self.open and record.ended() is None:
            piece = heapq.heappop(self.open)[2]
            with record.phase("solver"):
                status = self.explore(piece)
            if status is not None:
                return status
        if record.ended() is None:
            record.notes.append(
                f"the gap asked for is below what {self.solver.name} can prove"
            )
            return Status.OPTIMAL
        return None

    def tightened(
        self, domain: Domain, bounds: NeuronBounds | None, bound: float, seconds: float
    ) -> _Piece:
        """A piece with bounds of its own, proved step by step."""
        record, ensemble = self.record, self.record.problem.ensemble
        deadline = time.perf_counter() + seconds if seconds < np.inf else None
        steps: tuple[Tightening, ...] = (Interval(), *self.method.tightening)
        for step in steps:
            bounds = step.tighten(
                ensemble, domain, bounds, record.tools.executor, deadline
            )
            bound = min(bound, bounds.prediction(ensemble.weights)[1])
            self.prove(bound)
            record.tick()
            if record.ended() is not None:
                break
        assert bounds is not None
        return _Piece(domain, bounds, bound)

    def push(self, piece: _Piece) -> None:
        heapq.heappush(self.open, (-piece.bound, next(self.order), piece))

    def prove(self, bound: float) -> None:
        """What is proved if the box at hand has this bound."""
        rest = -self.open[0][0] if self.open else -np.inf
        self.record.prove(max(bound, rest, self.settled, self.record.value))

    def explore(self, piece: _Piece) -> Status | None:
        """Solve a box; close it, halve it, or say why the run must end."""
        record = self.record
        record.details["boxes"] += 1
        found, bound = self.milp(piece)
        if found.status is MilpStatus.INTERRUPTED and record.ended() is None:
            record.interrupt()
        usable = (MilpStatus.OPTIMAL, MilpStatus.INTERRUPTED, *LIMITS)
        if found.status not in usable or self.contradicted(piece, bound):
            if not record.details["failures"]:
                record.notes.append(
                    f"{self.solver.name} ended a box with {found.message} and bound "
                    f"{bound:.8g}, which cannot be: boxes like it are halved"
                )
            record.details["failures"] += 1
            bound = np.inf
        bound = min(bound, piece.bound)
        self.prove(bound)
        record.tick()
        if found.status is MilpStatus.INTERRUPTED or found.status in LIMITS:
            self.push(replace(piece, bound=bound))
            return LIMITS.get(found.status)
        if bound <= record.value + record.tolerance():
            self.settled = max(self.settled, bound)
            return None
        self.halve(replace(piece, bound=bound))
        return None

    def contradicted(self, piece: _Piece, bound: float) -> bool:
        """Whether the box would have a bound below the value of a point in it."""
        record = self.record
        if bound == -np.inf:
            return True  # no box is empty
        if record.x is None or not piece.domain.contains(record.x):
            return False
        return bound < record.value - ROUNDING * record.problem.scale()

    def halve(self, piece: _Piece) -> None:
        record, whole = self.record, self.record.problem.domain
        shares = piece.domain.widths / np.where(whole.widths > 0, whole.widths, 1.0)
        widest = int(np.argmax(shares))
        if shares[widest] < NARROWEST:
            self.settled = max(self.settled, piece.bound)
            return
        low, high = piece.domain.lower[widest], piece.domain.upper[widest]
        parts = piece.domain.split(widest, float(low + 0.5 * (high - low)))
        # Until both are bounded, the first stands for the second as well.
        self.push(piece)
        children = [
            self.tightened(part, piece.bounds, piece.bound, record.remaining())
            for part in parts
        ]
        self.open = [entry for entry in self.open if entry[2] is not piece]
        heapq.heapify(self.open)
        for child in children:
            self.push(child)

    def milp(self, piece: _Piece) -> tuple[MilpResult, float]:
        """The solver's answer on a box, and its bound in the problem's units."""
        record, problem = self.record, self.record.problem
        scaled = normalized(problem.ensemble, piece.domain, piece.bounds)
        made = big_m(scaled.ensemble, scaled.domain, scaled.bounds)
        margin, counted = solver_margin(self.solver, scaled, made.model), 0
        if record.details["boxes"] == 1:
            record.details |= {
                "columns": made.model.num_columns,
                "rows": made.model.num_rows,
                "binaries": made.model.num_integer,
            }

        def proved(bound: float) -> float:
            return (bound + margin) * scaled.output

        def told(moment: MilpProgress) -> bool:
            nonlocal counted
            record.count(moment.nodes - counted)
            counted = moment.nodes
            if moment.x is not None:
                record.offer(made.point(moment.x) * scaled.inputs)
            bound = min(proved(moment.bound), piece.bound)
            if not self.contradicted(piece, bound):
                self.prove(bound)
            record.tick()
            return record.ended() is not None

        start = None
        if record.x is not None and piece.domain.contains(record.x):
            start = made.assignment(record.x / scaled.inputs)
        options = solver_options(record, scaled, record.remaining())
        hooks = SolveHooks(progress=told, start=start)
        found = self.solver.solve(made.model, options, hooks)
        record.count(found.nodes - counted)
        if found.x is not None:
            record.offer(made.point(found.x) * scaled.inputs)
        return found, proved(found.bound)


def solver_options(run: Run, scaled: Normalized, seconds: float) -> SolveOptions:
    """What a solver is told so that the run can close its gap."""
    tolerance = run.problem.tolerance(0.0, run.limits.gap)
    return SolveOptions(
        time_limit=seconds,
        node_limit=max(1, run.limits.nodes - run.nodes),
        gap=GAP_SHARE * run.limits.gap,
        absolute_gap=GAP_SHARE * tolerance / scaled.output,
        tolerance=TIGHT_TOLERANCE,
        threads=run.tools.threads,
        seed=run.tools.seed,
    )


def solver_margin(solver: Backend, scaled: Normalized, model: LinearModel) -> float:
    """How far a solver's bound is moved outward, in the units of the model."""
    if not model.num_integer:
        return 0.0  # bounds of linear programs are rigorous
    low, high = scaled.bounds.prediction(scaled.ensemble.weights)
    return solver.capabilities.margin * (high - low) + TIGHT_TOLERANCE
