"""Solve a part of a problem: by a MILP of its big-M model, or by the native engine.

A subproblem is plain data and its answer is plain data, so that it can be solved in
this process or, through an executor, in another one. Whatever happens to the solver,
the answer has a proved bound: at worst the one that the neurons' bounds already give.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.milp import backend, preferred_backend
from ennopt.milp.formulation import big_m
from ennopt.milp.model import (
    TIGHT_TOLERANCE,
    LicenceError,
    MilpProgress,
    MilpStatus,
    SolveHooks,
    SolveOptions,
    SolverError,
)
from ennopt.milp.scaling import normalized
from ennopt.network import Array, Ensemble
from ennopt.paper.bigm import solver_margin
from ennopt.problem import Problem
from ennopt.result import Limits, Progress, Status
from ennopt.run import Callback, Run
from ennopt.tightening.relaxation import Interval

ENDINGS = {
    MilpStatus.OPTIMAL,
    MilpStatus.TIME_LIMIT,
    MilpStatus.NODE_LIMIT,
    MilpStatus.INTERRUPTED,
}
"""Endings of a solver whose bound counts."""

SAMPLES = 32
"""Points that tell the size of a subproblem's value."""

PAUSE_SECONDS = 0.1
"""How often a run that waits for its subproblems looks at the clock."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A canonical problem with bounds of its neurons, valid on its domain."""

    problem: Problem
    bounds: NeuronBounds


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What was found and proved about a subproblem.

    Parameters
    ----------
    x
        A good point, or ``None``.
    bound
        Proved.
    nodes
        Nodes of the solver.
    failure
        Why the solver gave no answer; empty if it did.
    interrupted
        Whether Ctrl-C ended it.
    """

    x: Array | None
    bound: float
    nodes: int = 0
    failure: str = ""
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of one subproblem; `slack` is the distance of bound and value to stop at.

    An absolute distance, because the values of members may cancel.
    """

    seconds: float = math.inf
    nodes: float = math.inf
    slack: float = 1e-6
    threads: int = 1
    seed: int = 0


class Tightens(Protocol):
    """Bounds neurons on a box."""

    def tighten(
        self, ensemble: Ensemble, domain: Domain, bounds: NeuronBounds | None = None
    ) -> NeuronBounds:
        """Bounds no looser than `bounds`."""


class SubproblemSolver(Protocol):
    """A way to solve subproblems."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Distributions whose versions a result records."""

    def solve(self, work: Work, effort: Effort, callback: Callback | None) -> Piece:
        """Maximize; a true answer of `callback` ends the work early."""


def fallback(work: Work, failure: str = "") -> Piece:
    """The bound that the neurons' bounds give by themselves."""
    ensemble, domain = work.problem.ensemble, work.problem.domain
    centre = 0.5 * (domain.lower + domain.upper)
    bounds = Interval().tighten(ensemble, domain, work.bounds)
    return Piece(centre, bounds.prediction(ensemble.weights)[1], failure=failure)


def begin(run: Run, bounds: NeuronBounds) -> None:
    """A first point and a first bound, so that a run may end at any time."""
    piece = fallback(Work(run.problem, bounds))
    assert piece.x is not None
    run.offer(piece.x)
    run.prove(piece.bound)


@dataclass(frozen=True, slots=True)
class ByMilp:
    """Solve subproblems as big-M models.

    Parameters
    ----------
    backend
        Name of the solver; ``None`` for the best one installed.
    tightening
        Recomputes the neurons' bounds on the box of the subproblem, starting from
        those known.
    """

    backend: str | None = None
    tightening: Tightens = field(default_factory=Interval)

    @property
    def packages(self) -> tuple[str, ...]:
        """The solver's."""
        return (backend(self.backend or preferred_backend()).package,)

    def solve(self, work: Work, effort: Effort, callback: Callback | None) -> Piece:
        """Maximize; a true answer of `callback` ends the work early."""
        if effort.seconds <= 0 or effort.nodes <= 0:
            return fallback(work)
        ensemble, domain = work.problem.ensemble, work.problem.domain
        bounds = self.tightening.tighten(ensemble, domain, work.bounds)
        same = normalized(ensemble, domain, bounds)
        made = big_m(same.ensemble, same.domain, same.bounds)

        def told(moment: MilpProgress) -> object:
            now = Progress(moment.seconds, -math.inf, math.inf, moment.nodes)
            return callback is not None and callback(now)

        solver = backend(self.backend or preferred_backend())
        options = SolveOptions(
            time_limit=effort.seconds, node_limit=effort.nodes, gap=0.0,
            absolute_gap=effort.slack / same.output,
            tolerance=TIGHT_TOLERANCE, threads=effort.threads, seed=effort.seed,
        )  # fmt: skip
        try:
            found = solver.solve(made.model, options, SolveHooks(progress=told))
        except LicenceError:
            raise
        except SolverError as error:
            return fallback(work, str(error))
        least = fallback(work).bound
        if found.status not in ENDINGS:
            word = found.message or found.status.value
            return fallback(work, f"the solver's word was {word!r}")
        x = (
            None
            if found.x is None
            else domain.repair(made.point(found.x) * same.inputs)
        )
        margin = solver_margin(solver, same, made.model)
        bound = (found.bound + margin) * same.output
        return Piece(
            x,
            min(bound, least),
            found.nodes,
            interrupted=found.status is MilpStatus.INTERRUPTED,
        )


@dataclass(frozen=True, slots=True)
class ByEngine:
    """Solve subproblems by the native engine, without a MILP solver.

    Parameters
    ----------
    engine
        Its settings; the ascents and polishes of its own start are left out.
    """

    engine: BoxSearch = field(default_factory=BoxSearch)

    @property
    def packages(self) -> tuple[str, ...]:
        """None."""
        return ()

    def solve(self, work: Work, effort: Effort, callback: Callback | None) -> Piece:
        """Maximize; a true answer of `callback` ends the work early."""
        least = fallback(work)
        if effort.seconds <= 0 or effort.nodes <= 0:
            return least
        problem, begin_at = work.problem, time.perf_counter()
        rng = np.random.default_rng(effort.seed)
        points = problem.domain.sample(SAMPLES, rng)
        values = problem.values(points)
        size = problem.tolerance(float(values.max()), 1.0)
        tree = self.engine.scheme.open(problem, min(1.0, effort.slack / size))
        tree.plant()
        tree.offer(points[int(np.argmax(values))])
        nodes, stopped = 0, False
        while tree.open and nodes < effort.nodes and not stopped:
            seconds = time.perf_counter() - begin_at
            if seconds >= effort.seconds:
                break
            nodes += tree.explore(
                nodes=effort.nodes - nodes,
                seconds=min(PAUSE_SECONDS, effort.seconds - seconds),
                bytes=Limits().memory,
                dive=self.engine.dive,
                threads=effort.threads,
            )
            now = Progress(seconds, tree.value, tree.bound, nodes)
            stopped = callback is not None and bool(callback(now))
        return Piece(tree.best_point(), min(tree.bound, least.bound), nodes)


def solve_all(
    run: Run,
    solver: SubproblemSolver,
    works: Sequence[Work],
    slack: float,
    nodes: float = math.inf,
) -> list[Piece] | None:
    """Solve subproblems one after another, or side by side through the executor.

    All get the same limits, so that the answer is the same either way when limits
    are counted in nodes.

    Parameters
    ----------
    run
        Whose limits and executor are used.
    solver
        Solves each.
    works
        What to solve.
    slack
        Distance of bound and value that each may leave.
    nodes
        Node limit of each, beside the run's.

    Returns
    -------
    list or None
        One answer each, or ``None`` if the run had to end before.
    """
    if run.ended() is not None:
        return None
    effort = Effort(
        seconds=run.remaining(),
        nodes=min(nodes, run.limits.nodes - run.nodes),
        slack=slack,
        threads=run.tools.threads,
        seed=run.tools.seed,
    )

    def asked(_: Progress) -> bool:
        run.tick()
        return run.ended() is Status.INTERRUPTED

    executor = run.tools.executor
    if executor is None or len(works) == 1:
        pieces = []
        for work in works:
            left = replace(effort, seconds=run.remaining())
            if run.ended() is Status.INTERRUPTED:
                pieces.append(fallback(work))
                continue
            pieces.append(solver.solve(work, left, asked))
            if pieces[-1].interrupted:
                run.interrupt()
        return pieces
    # A closure cannot travel to another process: there, limits alone end the work.
    in_threads = isinstance(executor, ThreadPoolExecutor)
    stop = threading.Event()

    def stopped(_: Progress) -> bool:
        return stop.is_set()

    listen = stopped if in_threads else None
    alone = replace(effort, threads=1)
    futures = [executor.submit(solver.solve, work, alone, listen) for work in works]
    try:
        while wait(futures, PAUSE_SECONDS).not_done:
            run.tick()
            if run.ended() is Status.INTERRUPTED:
                return None
    finally:
        stop.set()
        for future in futures:
            future.cancel()
    pieces = [future.result() for future in futures]
    if any(piece.interrupted for piece in pieces):
        run.interrupt()
    return pieces
