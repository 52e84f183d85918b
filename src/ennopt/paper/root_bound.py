"""The experiment of the paper's Table 4: what do bounds of neurons give at the root?

Bounds are made in one of several ways; then the big-M model is relaxed, and branch and
cut goes on from there until so many ideal cuts are in its linear programs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import MODELLED, Canonical, Feature
from ennopt.milp import backend, preferred_backend
from ennopt.milp.cuts import IdealCuts
from ennopt.milp.scaling import ScaledModel
from ennopt.milp.solver import SMALLEST_VIOLATION, Backend, Separation
from ennopt.paper.preparation import begin
from ennopt.paper.solving import LiveSolve
from ennopt.paper.strengthened import CUT_LIMIT, ROUNDS, root_rounds
from ennopt.paper.targeted import Targeted
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.progressive import Tightening, deadline_after
from ennopt.tightening.stepwise import tighten_by_steps


@dataclass(frozen=True, slots=True)
class _Cut:
    """What cuts did: the bound, how many, and in how many nodes or rounds."""

    bound: float
    cuts: int = 0
    nodes: int = 0
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class RootBound:
    """Bound the neurons, then the prediction at the root and after cuts.

    Parameters
    ----------
    tightening
        How the bounds of neurons are made, one step after the other.
    cut_limit
        Ideal cuts along the tree of branch and cut after which it ends; 0 for no tree.
    rounds
        Most rounds of cuts at the root where the solver takes none inside its tree.
    tree_seconds
        Time limit of the tree.
    reserve
        Share of a time limit that the bounds of neurons must leave to the rest.
    backend
        The solver; ``None`` for SCIP where installed, else HiGHS.

    Examples
    --------
    >>> from ennopt.domain import Domain
    >>> from ennopt.network import Ensemble, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem = Problem(Ensemble([net]), Domain([-1.0], [2.0]))
    >>> RootBound().solve(problem, Tools()).details["root_bound"]
    2.0...
    """

    handles: ClassVar[frozenset[Feature]] = MODELLED
    tightening: tuple[Tightening, ...] = (LpTightening(),)
    cut_limit: int = CUT_LIMIT
    rounds: int = ROUNDS
    tree_seconds: float = math.inf
    reserve: float = 0.4
    backend: str | None = None

    def __post_init__(self) -> None:
        for name in ("cut_limit", "rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"Expected {name} >= 0, got {getattr(self, name)}.")
        if not 0 <= self.reserve < 1:
            raise ValueError(f"Expected 0 <= reserve < 1, got {self.reserve}.")
        if self.backend is not None:
            backend(self.backend)

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Bound the prediction; the value is that of one point."""
        with (
            tools.with_workers() as tools,
            tools.start(problem, self, self.handles) as run,
        ):
            solver = backend(self.backend or preferred_backend())
            run.libraries += sorted({"highspy", solver.package})
            with run.phase("bounds"):
                bounds = self._bounds(run)
            with run.phase("root"):
                scaled = ScaledModel.of(run.problem, bounds)
                root = root_rounds(scaled.formulation, 0, seconds=run.remaining())
                run.count(1)
                run.prove(scaled.proved(root.before))
            with run.phase("cuts"):
                made = self._cut(run, scaled, solver)
            run.levels |= {
                "root_bound": scaled.proved(root.before),
                "root_bound_after_cuts": min(made.bound, scaled.proved(root.before)),
            }
            run.details |= {
                "unstable": bounds.num_unstable,
                "cuts": made.cuts,
                "rounds": made.rounds,
                "solver_nodes": made.nodes,
            }
        return run.finish(Status.NODE_LIMIT)

    def _cut(self, run: Run, scaled: ScaledModel, solver: Backend) -> _Cut:
        """The bound after so many cuts: along the tree, or at the root."""
        seconds = min(self.tree_seconds, run.remaining())
        if not solver.capabilities.cuts:
            run.notes.append(
                f"{solver.name} takes no cuts inside its tree: ideal cuts were added "
                "in rounds at the root only."
            )
            done = root_rounds(
                scaled.formulation, self.cut_limit, self.rounds, seconds=seconds
            )
            bound = scaled.proved(done.after)
            run.prove(bound)
            return _Cut(bound, done.generated, rounds=done.rounds)
        if not self.cut_limit or run.ended() is not None:
            return _Cut(run.bound)
        ideal = IdealCuts(scaled.formulation, SMALLEST_VIOLATION)
        separation = Separation(ideal.separate, limit=self.cut_limit, ends=True)
        live = LiveSolve(run, solver, scaled, run.problem.domain, run.prove)
        found = live.solve(scaled.model, seconds, (separation,))
        return _Cut(run.bound, found.cuts, found.nodes)

    def _bounds(self, run: Run) -> NeuronBounds:
        """Bounds step by step, counting what MILPs did.

        All steps are made even if the run could end: the question is what they give.
        """
        seconds = (1.0 - self.reserve) * run.remaining()
        steps = tighten_by_steps(
            self.tightening, run.problem, None, run.tools.executor,
            deadline_after(seconds),
            heard=lambda bounds: begin(run, bounds),
        )  # fmt: skip
        by_milps = [
            done
            for step, done in zip(self.tightening, steps.done, strict=True)
            if isinstance(step, MilpTightening | Targeted)
        ]
        run.details |= {
            "milp_neurons": sum(done.neurons for done in by_milps),
            "milps": sum(done.solves for done in by_milps),
        }
        return steps.bounds
