"""The paper's big-M model handed to a MILP solver: bounds, model, solve.

Should value and bound not meet although the solver is done, or should it fail or
contradict a point, its box is halved and both parts are solved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import MODELLED, Canonical, Feature
from ennopt.engine.search import halted
from ennopt.milp import backend
from ennopt.milp.scaling import ScaledModel
from ennopt.milp.solver import Backend, MilpStatus
from ennopt.paper.halving import BoundedBox, Halving, OpenBoxes, best_first
from ennopt.paper.preparation import BOUNDS_SHARE, first_points
from ennopt.paper.solving import Guides, LiveSolve, Trust, limit_reached
from ennopt.paper.subproblems import Answer, Subproblem, fallback
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.progressive import Tightening, deadline_after
from ennopt.tightening.relaxation import Crown, Interval
from ennopt.tightening.stepwise import Heard, tighten_by_steps, unheard


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
    >>> from ennopt import Domain, Ensemble, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> BigM().solve(Problem(Ensemble([net]), Domain([-1.0], [2.0])), Tools()).value
    2.0
    """

    handles: ClassVar[frozenset[Feature]] = MODELLED
    backend: str = "highs"
    tightening: tuple[Tightening, ...] = (Crown(), LpTightening())
    starts: int = 1000

    def __post_init__(self) -> None:
        backend(self.backend)
        if self.starts < 0:
            raise ValueError(f"Expected starts >= 0, got {self.starts}.")

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        status = None
        with (
            tools.with_workers() as tools,
            tools.start(problem, self, self.handles) as run,
        ):
            search = _BoxByBox(self.tightening, run, backend(self.backend))
            run.libraries += sorted({"highspy", search.solver.package})
            first_points(run, self.starts)
            try:
                status = search.run_to_the_end()
            finally:
                run.details["boxes"] = search.solved
                run.details["failures"] = search.trust.failures
        return run.finish(status)


class _BoxByBox:
    """The boxes of one run: bounds of their neurons, and the solve of their models."""

    def __init__(
        self, tightening: tuple[Tightening, ...], run: Run, solver: Backend
    ) -> None:
        self.tightening, self.run, self.solver = tightening, run, solver
        self.boxes: OpenBoxes[BoundedBox] = OpenBoxes()
        self.trust = Trust(run)
        self.guides = Guides()
        self.solved = 0

    def run_to_the_end(self) -> Status | None:
        """Tighten and solve the whole domain, then halves where a gap is left."""
        run, problem = self.run, self.run.problem
        unknown = NeuronBounds.unknown(problem.networks)
        root = BoundedBox(problem.domain, unknown, math.inf)
        with run.phase("bounds"):
            allowed = min(run.remaining(), BOUNDS_SHARE * run.limits.seconds)
            root = self.tightened(root, allowed, self.prove)
        run.details["unstable"] = root.bounds.num_unstable
        run.levels["root_bound"] = root.bound
        if run.ended() is not None:
            return None
        self.boxes.push(root)
        halving = Halving(
            run, self.boxes, self.solve, self.trust,
            prepare=lambda box: self.tightened(box, run.remaining()),
        )  # fmt: skip
        with run.phase("solver"):
            return best_first(run, self.boxes, halving.explore, self.trust)

    def prove(self, bounds: NeuronBounds) -> None:
        """What bounds of all neurons on the whole domain prove."""
        self.run.prove(self.run.problem.ceiling(bounds))

    def tightened(
        self, box: BoundedBox, seconds: float, heard: Heard = unheard
    ) -> BoundedBox:
        """The box with bounds of its own."""
        run, problem = self.run, self.run.problem.on(box.domain)
        # Interval arithmetic as a step of its own: easy runs end after it.
        bounds = tighten_by_steps(
            (Interval(), *self.tightening), problem, box.bounds,
            run.tools.executor, deadline_after(seconds),
            stop=lambda: halted(run), heard=heard,
        ).bounds  # fmt: skip
        bound = min(box.bound, problem.ceiling(bounds))
        return replace(box, bounds=bounds, bound=bound)

    def solve(self, box: BoundedBox) -> Answer:
        """The answer of the solver to a box; the run hears of it while it works."""
        run = self.run
        problem = run.problem.on(box.domain)
        scaled = ScaledModel.of(problem, box.bounds, self.guides.known(run))
        model = scaled.model
        self.solved += 1
        if self.solved == 1:
            run.details |= {
                "columns": model.num_columns,
                "rows": model.num_rows,
                "binaries": model.num_integer,
            }

        def prove(bound: float) -> None:
            rest = max(self.boxes.bound(), run.value)
            run.prove(max(min(bound, box.bound), rest))

        live = LiveSolve(
            run, self.solver, scaled, box.domain, prove, guides=self.guides
        )
        found = live.solve(model, run.remaining())
        if found.status is MilpStatus.INFEASIBLE and not problem.is_never_empty:
            return Answer(None, -math.inf)
        if not found.status.has_bound:
            failure = found.message or found.status.value
            return fallback(Subproblem(problem, box.bounds), failure)
        return Answer(
            None if found.x is None else scaled.point(found.x),
            scaled.proved(found.bound, self.solver),
            limit=limit_reached(found.status),
        )
