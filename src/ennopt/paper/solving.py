"""A MILP solver inside a run: what it is told, what the run hears, what it believes.

The points of a solver are evaluated by the forward pass and its bound is moved outward
by its stated margin. A bound that a known point contradicts is not used: a wrong answer
of a solver costs time, never the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ennopt.domain import Domain
from ennopt.engine.restore import restore
from ennopt.milp.epigraph import LIMIT_ROOM
from ennopt.milp.model import LinearModel
from ennopt.milp.refining import solve_refined
from ennopt.milp.scaling import ScaledModel
from ennopt.milp.solver import (
    Backend,
    MilpProgress,
    MilpResult,
    MilpStatus,
    Separation,
    SolveHooks,
)
from ennopt.network import Array
from ennopt.result import Status
from ennopt.run import SOUNDNESS_SLACK, Run

SOLVER_SHARE = 0.5
"""Share of the run's gap that a model of the whole problem may leave open; the margin
of its solver takes the rest."""

ROUNDING = 1e-9
"""A bound this far below a value, in units of the largest sums of a prediction, is
wrong: rounding of the forward pass stays far below it."""

RESTORING_STEPS = 10
"""Most linear programs that move a solver's point to where limits hold: it misses them
by tolerances only."""

GUIDES = 64
"""Most points at which the model of the next box is made sharp."""

BLUR = 4.0
"""How many times the room that a limit has in a model a point of a solver may miss it
by: the room itself, the solver's tolerance, and what weights make of that."""

PATIENCE = 5
"""Failures of a solver in a row after which a search gives up. One may be bad luck of
its numerics, and halves of a box are easier; five are a solver out of order."""


def contradicted(run: Run, domain: Domain, bound: float) -> bool:
    """Whether the best point known lies in a box and beats the bound claimed for it."""
    if bound == -math.inf and run.problem.on(domain).is_never_empty:
        return True  # no box is empty
    if run.x is None or not domain.contains(run.x):
        return False
    relative = SOUNDNESS_SLACK * max(1.0, abs(run.value))
    return bound < run.value - min(ROUNDING * run.problem.size, relative)


def offer(run: Run, x: Array) -> None:
    """Tell the run a point of a solver; if it misses a limit, one nearby that does not.

    Solvers meet limits up to tolerances that are wider than what we allow.
    """
    run.offer(x)
    problem = run.problem
    if not problem.limits.count or problem.contains(problem.domain.repair(x)):
        return
    run.offer(restore(problem, x, RESTORING_STEPS, run.ended))


def blurred(run: Run, x: Array | None, bound: float) -> bool:
    """Whether a point is the best of its box for a solver, but misses limits for us.

    By so little that no solver can tell: smaller boxes would not help.
    """
    problem = run.problem
    if x is None or not problem.limits.count:
        return False
    inside = problem.domain.repair(x)
    value = float(problem.values(inside)[0])
    if bound - value > problem.tolerance(value, run.limits.gap):
        return False
    if problem.contains(inside) or not problem.domain.contains(inside):
        return False
    over = problem.limits.values(problem.outputs(inside[None]))[0]
    low = np.concatenate([layers[-1] for layers in problem.root.lower])
    high = np.concatenate([layers[-1] for layers in problem.root.upper])
    ranges = [function.range(low, high) for function in problem.limits.functions]
    room = problem.slack + BLUR * LIMIT_ROOM * np.ptp(ranges, axis=1)
    return bool(np.all(over >= problem.limits.least - room))


@dataclass(slots=True, eq=False)
class Guides:
    """Points at which models that lack rows should be sharp, the latest ones."""

    points: list[Array] = field(default_factory=list)

    def note(self, x: Array) -> None:
        """Remember a point, (num_inputs,)."""
        self.points.append(x)
        del self.points[:-GUIDES]

    def known(self, run: Run) -> list[Array]:
        """The points, and the best one known to a run."""
        return self.points if run.x is None else [*self.points, run.x]


def limit_reached(status: MilpStatus) -> Status | None:
    """The run's word for a limit at which a solver ended."""
    limits = {
        MilpStatus.TIME_LIMIT: Status.TIME_LIMIT,
        MilpStatus.NODE_LIMIT: Status.NODE_LIMIT,
    }
    return limits.get(status)


@dataclass(slots=True, eq=False)
class Trust:
    """How far a run trusts its solver: failures are counted, noted and endured.

    Parameters
    ----------
    run
        Takes the notes.
    patience
        Failures in a row that are endured.
    failures
        How many there were.
    in_a_row
        How many since the last answer.
    """

    run: Run
    patience: float = math.inf
    failures: int = 0
    in_a_row: int = 0

    def heard(self, failures: Sequence[str]) -> None:
        """Take note of the answers to one box: why each failed, or ``""``."""
        for failure in failures:
            if failure:
                self._fail(f"A solver failed, and its bound was not used: {failure}")
        self.in_a_row = self.in_a_row + 1 if all(failures) else 0

    def believed(self, domain: Domain, bound: float) -> float:
        """The bound of a box; infinite if the best point known contradicts it."""
        if not contradicted(self.run, domain, bound):
            return bound
        self._fail("A bound of a solver was beaten by a known point and not used.")
        return math.inf

    def gave_up(self) -> bool:
        """Whether patience is at an end; then the run is asked to end as well."""
        if self.in_a_row < self.patience:
            return False
        self.run.notes.append(
            f"The search ended after {self.in_a_row} boxes in a row without an answer "
            "of the solver; the bound is what was proved before."
        )
        self.run.interrupt()
        return True

    def _fail(self, note: str) -> None:
        self.failures += 1
        if note not in self.run.notes:
            self.run.notes.append(note)


@dataclass(slots=True, eq=False)
class LiveSolve:
    """One MILP with the run's own objective, heard by the run while it is solved.

    Parameters
    ----------
    run
        Points are offered to it and nodes counted.
    solver
        The backend.
    scaled
        The model of the problem on a box.
    domain
        That box.
    prove
        Told a proved bound of the box, unless a known point contradicts it.
    presolve
        Whether the solver may simplify the model first.
    nodes
        Nodes counted so far.
    root_bound
        The solver's bound at its root, in the units of the model.
    contradictory
        Whether a bound was contradicted.
    guides
        Learns points at which models should be sharp.
    """

    run: Run
    solver: Backend
    scaled: ScaledModel
    domain: Domain
    prove: Callable[[float], object]
    presolve: bool = True
    nodes: int = 0
    root_bound: float = math.inf
    contradictory: bool = False
    guides: Guides = field(default_factory=Guides)

    def solve(
        self,
        model: LinearModel,
        seconds: float,
        separations: tuple[Separation, ...] = (),
    ) -> MilpResult:
        """Maximize the model of `scaled`, perhaps with more rows."""
        run = self.run
        options = self.scaled.options(
            seconds=seconds,
            nodes=max(1, run.limits.nodes - run.nodes),
            slack=SOLVER_SHARE * run.problem.tolerance(0.0, run.limits.gap),
            gap=SOLVER_SHARE * run.limits.gap,
            threads=run.tools.threads,
            seed=run.tools.seed,
        )
        options = replace(options, presolve=self.presolve)
        hooks = SolveHooks(
            progress=self._told, separations=separations, start=self._start()
        )
        found = solve_refined(
            self.solver, self.scaled, model, options, hooks, self.guides.note
        )
        self._hear(found.nodes, found.x, found.bound)
        if found.status is MilpStatus.INTERRUPTED and run.ended() is None:
            run.interrupt()
        run.tick()
        return found

    def _start(self) -> Array | None:
        x = self.run.x
        if x is None or not self.domain.contains(x):
            return None
        if not self.solver.capabilities.user_solutions:
            return None
        return self.scaled.columns(x)

    def _told(self, moment: MilpProgress) -> bool:
        if moment.nodes <= 1:
            self.root_bound = min(self.root_bound, moment.bound)
        self._hear(moment.nodes, moment.x, moment.bound)
        self.run.tick()
        return self.run.ended() is not None

    def _hear(self, nodes: int, x: Array | None, bound: float) -> None:
        run = self.run
        run.count(nodes - self.nodes)
        self.nodes = nodes
        if x is not None:
            offer(run, self.scaled.point(x))
        proved = self.scaled.proved(bound, self.solver)
        if contradicted(run, self.domain, proved):
            self.contradictory = True
        else:
            self.prove(proved)
