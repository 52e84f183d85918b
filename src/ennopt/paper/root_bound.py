"""The experiment of the paper's Table 4: what do bounds of neurons give at the root?

Bounds are made in one of several ways; then the big-M model is relaxed, once as it is
and once with ideal cuts in rounds. No tree is searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical, Feature
from ennopt.milp.scaling import ScaledModel
from ennopt.paper.preparation import begin
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

    handles: ClassVar[frozenset[Feature]] = frozenset({Feature.LINEAR_ROWS})
    tightening: tuple[Tightening, ...] = (LpTightening(),)
    cut_limit: int = CUT_LIMIT
    rounds: int = ROUNDS
    reserve: float = 0.4

    def __post_init__(self) -> None:
        for name in ("cut_limit", "rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"Expected {name} >= 0, got {getattr(self, name)}.")
        if not 0 <= self.reserve < 1:
            raise ValueError(f"Expected 0 <= reserve < 1, got {self.reserve}.")

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Bound the prediction; the value is that of one point."""
        with tools.start(problem, self, self.handles) as run:
            run.libraries.append("highspy")
            with run.phase("bounds"):
                bounds = self._bounds(run)
            with run.phase("root"):
                scaled = ScaledModel.of(run.problem, bounds)
                rounds = root_rounds(
                    scaled.formulation,
                    self.cut_limit,
                    self.rounds,
                    seconds=run.remaining(),
                )
            run.count(1)
            after = scaled.proved(rounds.after)
            run.prove(after)
            run.levels |= {
                "root_bound": scaled.proved(rounds.before),
                "root_bound_after_cuts": after,
            }
            run.details |= {
                "unstable": bounds.num_unstable,
                "cuts": rounds.generated,
                "rounds": rounds.rounds,
            }
        return run.finish(Status.NODE_LIMIT)

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
