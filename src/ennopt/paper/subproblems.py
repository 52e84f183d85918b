"""Solve a part of a problem: by a MILP of its big-M model, or by the native engine.

A subproblem is plain data and its answer is plain data, so that it can be solved in
this process or, through an executor, in another one. Whatever happens to the solver,
the answer has a proved bound: at worst the one that the neurons' bounds already give.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from ennopt import clock
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.slices import in_slices
from ennopt.milp import backend, preferred_backend
from ennopt.milp.highs import HotLp
from ennopt.milp.refining import met_inside, solve_refined
from ennopt.milp.scaling import ScaledModel
from ennopt.milp.solver import MilpProgress, MilpStatus, SolveHooks
from ennopt.network import Array
from ennopt.result import Limits, Progress, Status
from ennopt.run import Callback, Run, Tools
from ennopt.tightening.progressive import Shares, Tightening, workers
from ennopt.tightening.relaxation import Interval

SUBPROBLEM_SHARE = 0.25
"""Share of the run's tolerance that the subproblems of a box may leave in all; the
margins of their solver, and what multipliers leave open, take the rest."""

SAMPLES = 32
"""Points that tell the size of a subproblem's value."""

LP_SECONDS = 1.0
"""Most time that the linear relaxation may take where a MILP had none: many times what
those of the paper's sizes need."""

SEARCHED_NODES, LEAST_GAP = 20_000, 1e-9
"""Most nodes of the engine on a box with limits, and the smallest relative gap that it
is asked for. A box that is not closed then is halved."""

PAUSE_SECONDS = 0.1
"""How often a run that waits for its subproblems looks at the clock."""


@dataclass(frozen=True, slots=True, eq=False)
class Subproblem:
    """A problem with bounds of its neurons, valid on its domain.

    Parameters
    ----------
    problem
        The objective of a member or of the ensemble, on a box.
    bounds
        Of its neurons.
    """

    problem: Canonical
    bounds: NeuronBounds


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What was found and proved about a subproblem.

    Parameters
    ----------
    x
        A good point, or ``None``.
    bound
        Proved.
    nodes
        Nodes of the solver that are not counted yet.
    failure
        Why the solver gave no answer; empty if it did.
    interrupted
        Whether Ctrl-C ended it.
    limit
        A limit of the whole run that the solver reached.
    """

    x: Array | None
    bound: float
    nodes: int = 0
    failure: str = ""
    interrupted: bool = False
    limit: Status | None = None


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


class SubproblemSolver(Protocol):
    """A way to solve subproblems."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Distributions whose versions a result records."""

    def solve(
        self, subproblem: Subproblem, effort: Effort, callback: Callback | None
    ) -> Answer:
        """Maximize, and end early where `callback` returns True."""


def fallback(subproblem: Subproblem, failure: str = "") -> Answer:
    """The bound that the neurons' bounds give by themselves."""
    problem = subproblem.problem
    bounds = Interval().tighten(problem, subproblem.bounds)
    return Answer(problem.domain.centre, problem.range(bounds)[1], failure=failure)


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
    tightening: Tightening = field(default_factory=Interval)

    @property
    def packages(self) -> tuple[str, ...]:
        """The solver's."""
        return (backend(self.backend or preferred_backend()).package,)

    def solve(
        self, subproblem: Subproblem, effort: Effort, callback: Callback | None
    ) -> Answer:
        """Maximize, and end early where `callback` returns True."""
        least = fallback(subproblem)
        problem = subproblem.problem
        bounds = self.tightening.tighten(problem, subproblem.bounds)
        scaled = ScaledModel.of(problem, bounds)
        if effort.seconds <= 0 or effort.nodes <= 0:
            return replace(least, bound=min(least.bound, _relaxed_bound(scaled)))

        def told(moment: MilpProgress) -> object:
            now = Progress(moment.seconds, -math.inf, math.inf, moment.nodes)
            return callback is not None and callback(now)

        solver = backend(self.backend or preferred_backend())
        options = scaled.options(
            seconds=effort.seconds,
            nodes=effort.nodes,
            slack=effort.slack,
            threads=effort.threads,
            seed=effort.seed,
        )
        hooks = SolveHooks(progress=told)
        found = solve_refined(solver, scaled, scaled.model, options, hooks)
        if found.status is MilpStatus.INFEASIBLE and not problem.is_never_empty:
            return Answer(None, -math.inf, found.nodes)
        if not found.status.has_bound:
            failure = found.message or found.status.value
            bound = min(least.bound, _relaxed_bound(scaled))
            return replace(least, bound=bound, failure=failure)
        bound = min(scaled.proved(found.bound, solver), least.bound)
        if found.status is not MilpStatus.OPTIMAL:
            # The solver may have been stopped before it solved its first relaxation.
            bound = min(bound, _relaxed_bound(scaled))
        x = None if found.x is None else scaled.point(found.x)
        if x is not None and problem.limits.count and not problem.contains(x):
            better = met_inside(scaled, scaled.model, np.asarray(found.x))
            x = x if better is None else better
        return Answer(
            x,
            bound,
            found.nodes,
            interrupted=found.status is MilpStatus.INTERRUPTED,
        )


def _relaxed_bound(scaled: ScaledModel) -> float:
    """What the linear relaxation alone proves: the bound of a MILP without time."""
    model = scaled.model
    found = HotLp(model).maximize(model.objective, model.offset, LP_SECONDS)
    return scaled.proved(found.bound_of_feasible)


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

    def solve(
        self, subproblem: Subproblem, effort: Effort, callback: Callback | None
    ) -> Answer:
        """Maximize, and end early where `callback` returns True."""
        least = fallback(subproblem)
        if effort.seconds <= 0 or effort.nodes <= 0:
            return least
        problem, begin_at = subproblem.problem, clock.now()
        if problem.limits.count or not problem.weighting.is_fixed:
            return self._searched(problem, effort, callback, least)
        rng = np.random.default_rng(effort.seed)
        points = problem.domain.sample(SAMPLES, rng)
        values = problem.values(points)
        # Without a point its value may be as large as values get.
        size = problem.tolerance(values.max() if len(points) else problem.scale, 1.0)
        tree = self.engine.scheme.open(problem, min(1.0, effort.slack / size))
        tree.plant()
        if len(points):
            tree.offer(points[int(np.argmax(values))])
        nodes = 0
        for count in in_slices(
            tree,
            nodes=effort.nodes,
            remaining=lambda: effort.seconds - (clock.now() - begin_at),
            bytes=Limits().memory,
            dive=self.engine.dive,
            threads=effort.threads,
        ):
            nodes += count
            moved = problem.domain.repair(tree.candidates())
            for x in moved[problem.feasible(moved)]:
                tree.offer(x)
            seconds = clock.now() - begin_at
            now = Progress(seconds, tree.value, tree.bound, nodes)
            if callback is not None and callback(now):
                break
        x = tree.points()[0] if len(tree.points()) else None
        return Answer(x, min(tree.bound, least.bound), nodes)

    def _searched(
        self, problem: Canonical, effort: Effort, callback: Callback | None,
        least: Answer,
    ) -> Answer:  # fmt: skip
        """By the whole method, which seeks points that meet limits."""
        size = problem.tolerance(problem.spread, 1.0)
        limits = Limits(
            seconds=effort.seconds, nodes=min(effort.nodes, SEARCHED_NODES),
            gap=min(1.0, max(effort.slack / size, LEAST_GAP)),
        )  # fmt: skip
        tools = Tools(limits, effort.threads, effort.seed, callback=callback)
        found = self.engine.solve(replace(problem, sign=1.0, origin=None), tools)
        return Answer(found.x, min(found.bound, least.bound), found.nodes)


def allowed(run: Run, share: float) -> float:
    """A share of the run's tolerance, or of what it is about if no value is known."""
    if run.x is not None:
        return share * run.tolerance()
    return share * run.problem.tolerance(run.problem.spread, run.limits.gap)


def solve_all(
    run: Run,
    solver: SubproblemSolver,
    subproblems: Sequence[Subproblem],
    slack: float,
    nodes: float = math.inf,
) -> list[Answer] | None:
    """Solve subproblems one after another, or side by side through the executor.

    The time left is divided over them. All have the same node limit, so that the
    answer is the same either way when limits are counted in nodes.

    Parameters
    ----------
    run
        Whose limits and executor are used.
    solver
        Solves each.
    subproblems
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
        nodes=min(nodes, run.limits.nodes - run.nodes),
        slack=slack,
        threads=run.tools.threads,
        seed=run.tools.seed,
    )
    executor = run.tools.executor
    if executor is None or len(subproblems) == 1:
        return _in_turn(run, solver, subproblems, effort)
    return _side_by_side(run, solver, subproblems, replace(effort, threads=1), executor)


def _in_turn(
    run: Run,
    solver: SubproblemSolver,
    subproblems: Sequence[Subproblem],
    effort: Effort,
) -> list[Answer]:
    shares = Shares(run.remaining, len(subproblems))

    def asked(_: Progress) -> bool:
        run.tick()
        return run.ended() is Status.INTERRUPTED

    answers = []
    for subproblem in subproblems:
        if run.ended() is Status.INTERRUPTED:
            answers.append(fallback(subproblem))
            continue
        part = replace(effort, seconds=shares.take())
        answers.append(solver.solve(subproblem, part, asked))
        if answers[-1].interrupted:
            run.interrupt()
    return answers


def _side_by_side(
    run: Run,
    solver: SubproblemSolver,
    subproblems: Sequence[Subproblem],
    effort: Effort,
    executor: Executor,
) -> list[Answer] | None:
    stop = threading.Event()
    shares = Shares(run.remaining, len(subproblems), workers(executor))

    def in_thread(subproblem: Subproblem) -> Answer:
        part = replace(effort, seconds=shares.take())
        return solver.solve(subproblem, part, lambda _: stop.is_set())

    if isinstance(executor, ThreadPoolExecutor):
        futures = [executor.submit(in_thread, each) for each in subproblems]
    else:
        # A closure cannot travel to another process: there, limits alone end the work.
        part = replace(effort, seconds=shares.take())
        futures = [
            executor.submit(solver.solve, each, part, None) for each in subproblems
        ]
    try:
        while wait(futures, PAUSE_SECONDS).not_done:
            run.tick()
            if run.ended() is Status.INTERRUPTED:
                return None
    finally:
        stop.set()
        for future in futures:
            future.cancel()
    answers = [future.result() for future in futures]
    if any(answer.interrupted for answer in answers):
        run.interrupt()
    return answers
