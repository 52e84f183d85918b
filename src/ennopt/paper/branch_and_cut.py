"""B&C, the paper's baseline: big-M, LP bounds and the cuts of Anderson et al."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.milp import backend, preferred_backend
from ennopt.milp.model import MilpStatus
from ennopt.paper.lagrangian import LagrangianSearch
from ennopt.paper.strengthened import (
    Outcome,
    Strengthening,
    solve_strengthened,
)
from ennopt.paper.subproblems import ByMilp, begin
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.progressive import Tightening
from ennopt.tightening.relaxation import Interval

TIGHTENING_SHARE = 0.5
"""Share of the time limit that the bounds of neurons may take."""

ENDINGS = {
    MilpStatus.TIME_LIMIT: Status.TIME_LIMIT,
    MilpStatus.NODE_LIMIT: Status.NODE_LIMIT,
}


@dataclass(frozen=True, slots=True)
class BranchAndCut:
    """The baseline of the paper (section 3.3), after Anderson et al. (2020).

    The big-M model with bounds from two LPs per neuron; at fractional solutions of
    the solver's tree the most violated ideal inequality of every neuron is separated
    in linear time and added, most violated first.

    Parameters
    ----------
    cut_limit
        Most cuts in all; 0 for none.
    violation
        Smallest violation that is worth a cut, in units in which neurons are of
        order one.
    tightening
        How the bounds of neurons are made, one step after the other.
    inequalities
        Whether to add the Benders-dual inequalities of Proposition 1, too.
    starts
        Random points among which the solver's first solution is chosen; 0 for none.
    backend
        ``None`` for SCIP where installed, else HiGHS. HiGHS takes no cuts inside its
        tree: it gets them in rounds at the root.

    Examples
    --------
    >>> from ennopt.domain import Domain
    >>> from ennopt.network import Ensemble, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem = Problem(Ensemble([net]), Domain([-1.0], [2.0]))
    >>> BranchAndCut().solve(problem, Tools()).value
    2.0
    """

    cut_limit: int = 25_000
    violation: float = 1e-6
    tightening: tuple[Tightening, ...] = (LpTightening(),)
    inequalities: bool = False
    starts: int = 1000
    backend: str | None = None

    def __post_init__(self) -> None:
        if self.cut_limit < 0:
            raise ValueError(f"Expected cut_limit >= 0, got {self.cut_limit}.")
        if self.starts < 0:
            raise ValueError(f"Expected starts >= 0, got {self.starts}.")
        if self.backend is not None:
            backend(self.backend)

    def solve(self, problem: Problem, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        status = None
        with tools.start(problem, self) as run:
            solver = backend(self.backend or preferred_backend())
            run.libraries += sorted({"highspy", solver.package})
            run.details["backend"] = solver.name
            first_points(run, self.starts)
            with run.phase("lp_bounds"):
                bounds = step_by_step(run, self.tightening, TIGHTENING_SHARE)
            run.details["unstable"] = bounds.num_unstable
            if run.ended() is None:
                strengthening = Strengthening(
                    self.cut_limit, self.inequalities, self.violation
                )
                with run.phase("branch_and_cut"):
                    outcome = solve_strengthened(run, solver, bounds, strengthening)
                    status = settle(run, outcome, bounds, solver.name)
        return run.finish(status)


def first_points(run: Run, count: int) -> None:
    """Random points of the domain, for a first value."""
    if count:
        rng = np.random.default_rng(run.tools.seed)
        run.offer(run.problem.domain.sample(count, rng))


def step_by_step(run: Run, steps: tuple[Tightening, ...], share: float) -> NeuronBounds:
    """Tighten within a share of the time limit; every step may prove something."""
    ensemble, domain = run.problem.ensemble, run.problem.domain
    bounds = Interval().tighten(ensemble, domain)
    begin(run, bounds)
    deadline = None
    if np.isfinite(run.limits.seconds):
        allowed = min(run.remaining(), share * run.limits.seconds)
        deadline = time.perf_counter() + allowed
    for step in steps:
        bounds = step.tighten(ensemble, domain, bounds, run.tools.executor, deadline)
        begin(run, bounds)
        run.tick()
        if run.ended() is not None:
            break
    return bounds


def settle(
    run: Run, outcome: Outcome, bounds: NeuronBounds, solver: str
) -> Status | None:
    """What a solver's ending means for the run.

    A solver that is done within its tolerances, but whose margin leaves the gap open,
    or one that failed, is asked again on the halves of the box, and so on.
    """
    if run.ended() is not None or outcome.status is MilpStatus.INTERRUPTED:
        return None
    if outcome.status in ENDINGS:
        return ENDINGS[outcome.status]
    whole = ByMilp(solver)
    return LagrangianSearch(whole=whole).halve(run, bounds)
