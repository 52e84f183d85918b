"""The experiment of the paper's Table 4: what do bounds of neurons give at the root?

Bounds are made in one of several ways; then the big-M model is relaxed, once as it is
and once with ideal cuts in rounds. No tree is searched.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.milp.formulation import big_m
from ennopt.milp.scaling import normalized
from ennopt.paper.strengthened import root_rounds
from ennopt.paper.subproblems import begin
from ennopt.paper.targeted import Targeted
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.progressive import Tightening
from ennopt.tightening.relaxation import Interval


@dataclass(frozen=True, slots=True)
class RootBound:
    """Bound the neurons, then the prediction by the linear relaxation at the root.

    Parameters
    ----------
    tightening
        How the bounds of neurons are made, one step after the other.
    cut_limit
        Most ideal cuts in all.
    rounds
        Most rounds of cuts.
    reserve
        Share of a time limit that the bounds of neurons must leave to the relaxation.

    Examples
    --------
    >>> from ennopt.domain import Domain
    >>> from ennopt.network import Ensemble, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem = Problem(Ensemble([net]), Domain([-1.0], [2.0]))
    >>> RootBound().solve(problem, Tools()).details["root_bound"]
    2.0...
    """

    tightening: tuple[Tightening, ...] = (LpTightening(),)
    cut_limit: int = 25_000
    rounds: int = 50
    reserve: float = 0.4

    def __post_init__(self) -> None:
        for name in ("cut_limit", "rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"Expected {name} >= 0, got {getattr(self, name)}.")
        if not 0 <= self.reserve < 1:
            raise ValueError(f"Expected 0 <= reserve < 1, got {self.reserve}.")

    def solve(self, problem: Problem, tools: Tools) -> Result:
        """Bound the prediction; the value is that of one point."""
        with tools.start(problem, self) as run:
            run.libraries.append("highspy")
            with run.phase("bounds"):
                bounds = self._bounds(run)
            with run.phase("root"):
                same = normalized(problem.ensemble, problem.domain, bounds)
                rounds = root_rounds(
                    big_m(same.ensemble, same.domain, same.bounds),
                    self.cut_limit,
                    self.rounds,
                    seconds=run.remaining(),
                )
            run.count(1)
            run.prove(rounds.after * same.output)
            run.details |= {
                "unstable": bounds.num_unstable,
                "root_bound": rounds.before * same.output,
                "root_bound_after_cuts": rounds.after * same.output,
                "cuts": rounds.generated,
                "rounds": rounds.rounds,
            }
        return run.finish(Status.NODE_LIMIT)

    def _bounds(self, run: Run) -> NeuronBounds:
        """Bounds step by step, counting what MILPs did."""
        ensemble, domain = run.problem.ensemble, run.problem.domain
        allowed = (1.0 - self.reserve) * run.remaining()
        deadline = time.perf_counter() + allowed
        bounds = Interval().tighten(ensemble, domain)
        neurons = solves = 0
        for step in self.tightening:
            match step:
                case MilpTightening():
                    milps = step.run(ensemble, domain, bounds, deadline=deadline)
                    bounds = milps.bounds
                    neurons, solves = neurons + milps.neurons, solves + milps.solves
                case Targeted():
                    aimed = step.run(ensemble, domain, bounds, deadline=deadline)
                    bounds = aimed.bounds
                    neurons, solves = neurons + aimed.neurons, solves + aimed.milps
                case _:
                    bounds = step.tighten(ensemble, domain, bounds, deadline=deadline)
            begin(run, bounds)
        run.details |= {"milp_neurons": neurons, "milps": solves}
        return bounds
