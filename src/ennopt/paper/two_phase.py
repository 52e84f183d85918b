"""E-NN, the paper's two-phase algorithm (Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import MODELLED, Canonical, Feature
from ennopt.engine.values import first_values
from ennopt.milp import backend, preferred_backend
from ennopt.milp.solver import MilpStatus
from ennopt.paper.branch_and_cut import settle
from ennopt.paper.lagrangian import LagrangianSearch
from ennopt.paper.multipliers import Polyak
from ennopt.paper.preparation import first_points, tighten_in_run
from ennopt.paper.solving import limit_reached
from ennopt.paper.strengthened import Strengthening, solve_strengthened
from ennopt.paper.subproblems import ByEngine, ByMilp
from ennopt.paper.targeted import Targeted, Targets
from ennopt.problem import Problem, relative_gap
from ennopt.result import Result, Status
from ennopt.run import Run, Tools
from ennopt.tightening.progressive import Tightening
from ennopt.tightening.relaxation import Crown


@dataclass(frozen=True, slots=True)
class PhaseOne:
    """The big-M model with tightened bounds and inequalities, for a limited time.

    Parameters
    ----------
    seconds
        Time limit of the phase when a second phase follows.
    share
        Most of the time then left that the phase may take, so that a short run has
        a second phase, too.
    inequalities
        Whether integer solutions give Benders-dual inequalities (Proposition 1).
    ideal_cuts
        Most ideal single-neuron cuts; the paper's E-NN has none.
    """

    seconds: float = 180.0
    share: float = 0.5
    inequalities: bool = True
    ideal_cuts: int = 0


@dataclass(frozen=True, slots=True)
class MultiStart:
    """Ascents from random points and a polish by linear programs: a first value."""

    starts: int = 256
    polished: int = 3

    def offer(self, run: Run) -> None:
        """Tell the run what was found."""
        rng = np.random.default_rng(run.tools.seed)
        starts = run.problem.domain.sample(self.starts, rng)
        first_values(run.problem, starts, self.polished, run.offer, run.ended)


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """E-NN: targeted bounds, then the big-M model, then Lagrangian branch and bound.

    The defaults are the paper's. Every ingredient is a value that may be replaced or
    left out: ``tightening=(LpTightening(),)``, ``phase_one=None``, ``phase_two=None``,
    ``PhaseOne(inequalities=False)``, ``LagrangianSearch(heuristic=0.0)``, ...

    Parameters
    ----------
    tightening
        How the bounds of neurons are made, one step after the other.
    phase_one
        The big-M model; ``None`` leaves it out.
    phase_two
        The Lagrangian search; ``None`` leaves it out. Only for two or more members.
    reserve
        Share of the time limit that tightening must leave to the phases. Of 3,600 s a
        fifth leaves more than the paper's longest mean, 2,792 s.
    starts
        Random points among which the first value is chosen; 0 for none.
    ascent
        A better first value than that, or ``None``.
    backend
        Solver of Phase One; ``None`` for SCIP where installed, else HiGHS.

    Examples
    --------
    >>> from ennopt.domain import Domain
    >>> from ennopt.network import Ensemble, Network
    >>> nets = [Network([[[1.0]], [[s]]], [[0.5], [0.0]]) for s in (1.0, -0.5)]
    >>> problem = Problem(Ensemble(nets), Domain([-1.0], [1.0]))
    >>> TwoPhase().solve(problem, Tools()).value
    0.375
    """

    handles: ClassVar[frozenset[Feature]] = MODELLED
    tightening: tuple[Tightening, ...] = (Targeted(),)
    phase_one: PhaseOne | None = field(default_factory=PhaseOne)
    phase_two: LagrangianSearch | None = field(default_factory=LagrangianSearch)
    reserve: float = 0.2
    starts: int = 1000
    ascent: MultiStart | None = None
    backend: str | None = None

    def __post_init__(self) -> None:
        if self.phase_one is None and self.phase_two is None:
            raise ValueError("Expected at least one phase, got neither.")
        if not 0 <= self.reserve < 1:
            raise ValueError(f"Expected 0 <= reserve < 1, got {self.reserve}.")
        if self.backend is not None:
            backend(self.backend)

    @classmethod
    def on(cls, name: str) -> TwoPhase:
        """The paper's configuration with one solver for everything."""
        solver = ByMilp(name)
        return cls(
            tightening=(Targeted(backend=name),),
            phase_two=LagrangianSearch(members=solver, whole=solver),
            backend=name,
        )

    @classmethod
    def tuned(cls) -> TwoPhase:
        """The same algorithm with what is known to be faster.

        Linear relaxations bound the neurons, so no LP, no survey and no MILP is
        needed; the first value comes from ascents; members, and the boxes that are
        not split any more, are solved by the native engine, and no more exactly than
        the node needs; multipliers start where all members have one slope, follow
        Polyak's step over several relaxations of a node and are inherited. There is
        no Phase One.
        """
        engine = ByEngine()
        return cls(
            tightening=(Crown(),),
            phase_one=None,
            phase_two=LagrangianSearch(
                multipliers=Polyak(steps=0), fix_binaries=False, from_gradients=True,
                inherit=True, rounds=3, root_rounds=10, heuristic=0.0, revert=0.25,
                members=engine, whole=engine, gap_share=0.5, accuracy=0.3,
                member_nodes=10_000,
            ),
            ascent=MultiStart(),
        )  # fmt: skip

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        status = None
        with (
            tools.with_workers() as tools,
            tools.start(problem, self, self.handles) as run,
        ):
            solver = backend(self.backend or preferred_backend())
            self._record(run, solver.package)
            first_points(run, self.starts)
            if self.ascent is not None:
                with run.phase("values"):
                    self.ascent.offer(run)
            bounds = self._preprocess(run)
            run.details["unstable"] = bounds.num_unstable
            several = len(run.problem.networks) > 1
            second = self.phase_two if several or self.phase_one is None else None
            if self.phase_one is not None and run.ended() is None:
                with run.phase("phase_one"):
                    status = self._first(run, bounds, second is not None)
                run.details["phase_one_gap"] = relative_gap(run.value, run.bound)
            if second is not None and run.ended() is None and status is None:
                status = second.search(run, bounds)
        return run.finish(status)

    def _record(self, run: Run, package: str) -> None:
        packages = {"highspy"}
        if self.phase_one is not None:
            packages.add(package)
            run.details["backend"] = self.backend or preferred_backend()
        if self.phase_two is not None:
            packages |= self.phase_two.packages()
        run.libraries += sorted(packages)

    def _preprocess(self, run: Run) -> NeuronBounds:
        """Bounds of all neurons: Algorithm 2 by default."""
        seconds = run.remaining()
        if math.isfinite(seconds):
            seconds -= self.reserve * run.limits.seconds
        steps = tighten_in_run(run, self.tightening, seconds, run.phase)
        for done in steps.done:
            if isinstance(done, Targets):
                _record_targets(run, done)
        return steps.bounds

    def _first(self, run: Run, bounds: NeuronBounds, more: bool) -> Status | None:
        """Phase One; `more` says that a second phase follows."""
        assert self.phase_one is not None
        one = self.phase_one
        seconds = math.inf
        if more:
            seconds = min(one.seconds, one.share * run.remaining())
        solver = backend(self.backend or preferred_backend())
        ending = solve_strengthened(
            run, solver, bounds, Strengthening(one.ideal_cuts, one.inequalities),
            seconds, "phase_one_",
        )  # fmt: skip
        if not more:
            return settle(run, ending, bounds, solver.name)
        return limit_reached(ending) if ending is MilpStatus.NODE_LIMIT else None


def _record_targets(run: Run, done: Targets) -> None:
    """What the paper's tables tell about Algorithm 2."""
    details: dict[str, Any] = {
        "unstable_after_lps": done.first.num_unstable,
        "survey": done.survey.source,
        "surveyed_nodes": done.survey.nodes,
        "critical_neurons": done.critical,
        "milp_neurons": done.neurons,
        "milps": done.solves,
    }
    run.details.update(details)
    if done.survey.source == "LPs":
        run.notes.append(
            "The solver does not show its nodes: critical neurons come from a survey "
            "of a tree of linear programs."
        )
