"""The default method: which search for which problem, and why.

Measured on random ensembles (8 s each, one thread; seconds of a proof, or the gap):

| inputs, members, widths | engine | big-M on HiGHS | big-M on SCIP |
|---|---|---|---|
| 8, 2, (10, 10) | 0.2 s | 4.4 s | - |
| 12, 1, (20,) | 0.02 s | 0.14 s | - |
| 12, 2, (10, 10) | 2.6 s | 3.6 s | - |
| 15, 2, (10, 10) | 6.7 s | 4.8 s | 1.4 s |
| 20, 1, (20, 20) | 1.3 s | 0.39 | 1.6 s |
| 20, 2, (10, 10) | 4.8 s | 3.9 s | 0.8 s |
| 30, 2, (10, 10) | 0.16 | 5.3 s | 1.7 s |
| 30, 3, (10, 10) | 0.56 | 0.84 | 7.1 s |
| 30, 3, (20, 20) | 2.7 | 12.3 | 3.7 |
| 60, 1, (10, 10) | 1.2 s | 0.8 s | 0.3 s |
| 60, 3, (20, 20) | 2.2 | 10.6 | 3.7 |

On trained ensembles of up to 11 inputs the engine is ahead everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from ennopt.bounds.relaxation import Crown
from ennopt.milp import available_backends
from ennopt.problem import Problem
from ennopt.result import Result
from ennopt.run import Tools
from ennopt.search.bigm import BigM
from ennopt.search.box import BoxSearch

ENGINE_INPUTS = 12
"""Up to this many inputs the engine is ahead whatever the networks."""

MILP_NEURONS = {"scip": 70, "highs": 45}
"""Up to this many unstable neurons a MILP solver is ahead on many inputs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A method and the reason for it, a sentence."""

    method: BoxSearch | BigM
    reason: str


@dataclass(frozen=True, slots=True)
class Auto:
    """Pick the engine, or a MILP solver where that is faster.

    Up to 12 inputs: the engine. Beyond: big-M if so few neurons are unstable on the
    whole domain that a MILP solver enumerates them sooner (70 with SCIP installed, else
    45 with HiGHS), else the engine, which beyond 16 inputs branches on neurons as well.

    Examples
    --------
    >>> from ennopt import Domain, Ensemble, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> choice = Auto().choose(Problem(Ensemble([net]), Domain([-2.0], [1.0])))
    >>> print(choice.reason)
    1 input: branching on inputs is fastest up to 12.
    """

    def choose(self, problem: Problem) -> Choice:
        """The method for a problem, and why."""
        count = problem.domain.num_inputs
        inputs = f"{count} input{'s' * (count > 1)}"
        if count <= ENGINE_INPUTS:
            return Choice(
                BoxSearch(),
                f"{inputs}: branching on inputs is fastest up to {ENGINE_INPUTS}.",
            )
        unstable = Crown().tighten(problem.ensemble, problem.domain).num_unstable
        backend = "scip" if "scip" in available_backends() else "highs"
        if unstable <= MILP_NEURONS[backend]:
            return Choice(
                BigM(backend=backend),
                f"{inputs} but only {unstable} unstable neurons: a MILP solver "
                f"enumerates up to {MILP_NEURONS[backend]} sooner.",
            )
        return Choice(
            BoxSearch(),
            f"{inputs} and {unstable} unstable neurons: too many for a MILP solver.",
        )

    def solve(self, problem: Problem, tools: Tools) -> Result:
        """Solve with the method of choice; the result names it."""
        return self.choose(problem).method.solve(problem, tools)
