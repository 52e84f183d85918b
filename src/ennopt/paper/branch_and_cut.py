"""B&C, the paper's baseline: big-M, LP bounds and the cuts of Anderson et al."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import MODELLED, Canonical, Feature
from ennopt.milp import backend, preferred_backend
from ennopt.milp.solver import SMALLEST_VIOLATION, MilpStatus
from ennopt.paper.halving import halve_to_the_end
from ennopt.paper.preparation import BOUNDS_SHARE, first_points, tighten_in_run
from ennopt.paper.solving import limit_reached
from ennopt.paper.strengthened import CUT_LIMIT, Strengthening, solve_strengthened
from ennopt.paper.subproblems import ByMilp
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.progressive import Tightening


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
    presolve
        Whether the solver may simplify the model first; its own cuts are off anyway.
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

    handles: ClassVar[frozenset[Feature]] = MODELLED
    cut_limit: int = CUT_LIMIT
    violation: float = SMALLEST_VIOLATION
    tightening: tuple[Tightening, ...] = (LpTightening(),)
    inequalities: bool = False
    presolve: bool = True
    starts: int = 1000
    backend: str | None = None

    def __post_init__(self) -> None:
        if self.cut_limit < 0:
            raise ValueError(f"Expected cut_limit >= 0, got {self.cut_limit}.")
        if self.starts < 0:
            raise ValueError(f"Expected starts >= 0, got {self.starts}.")
        if self.backend is not None:
            backend(self.backend)

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        status = None
        with (
            tools.with_workers() as tools,
            tools.start(problem, self, self.handles) as run,
        ):
            solver = backend(self.backend or preferred_backend())
            run.libraries += sorted({"highspy", solver.package})
            run.details["backend"] = solver.name
            first_points(run, self.starts)
            with run.phase("lp_bounds"):
                allowed = min(run.remaining(), BOUNDS_SHARE * run.limits.seconds)
                bounds = tighten_in_run(run, self.tightening, allowed).bounds
            run.details["unstable"] = bounds.num_unstable
            if run.ended() is None:
                strengthening = Strengthening(
                    self.cut_limit, self.inequalities, self.violation,
                    presolve=self.presolve,
                )  # fmt: skip
                with run.phase("branch_and_cut"):
                    ending = solve_strengthened(run, solver, bounds, strengthening)
                    status = settle(run, ending, bounds, solver.name)
        return run.finish(status)


def settle(
    run: Run, ending: MilpStatus, bounds: NeuronBounds, solver: str
) -> Status | None:
    """What a solver's ending means for the run.

    A solver that is done within its tolerances, but whose margin leaves the gap open,
    or one that failed, is asked again on the whole box, on its halves, and so on.
    """
    if run.ended() is not None or ending is MilpStatus.INTERRUPTED:
        return None
    limit = limit_reached(ending)
    return halve_to_the_end(run, ByMilp(solver), bounds) if limit is None else limit
