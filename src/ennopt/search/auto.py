"""The default method: which search for which problem, and why.

Measured on 43 ensembles of 13 to 60 inputs (`make bench-inputs`, 15 s each, one
thread): how often the engine is ahead, by the time of a proof or else by the gap.

| unstable neurons | ensembles | ahead of big-M on HiGHS | on SCIP |
|---|---|---|---|
| 40, random | 15 | 8 | 5 |
| 40, trained | 6 | 0 | 0 |
| 60, random | 5 | 4 | 0 |
| 60, trained | 6 | 5 | 2 |
| 120, random | 5 | 5 | 5 |
| 120, trained | 6 | 6 | 1 |

So HiGHS mostly wins on 40 unstable neurons, SCIP on 60 and, of trained networks, 120.
On trained ensembles of up to 11 inputs the engine is ahead everywhere (`make
bench-engine`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ennopt.bounds.relaxation import Crown
from ennopt.milp import available_backends
from ennopt.problem import Problem
from ennopt.result import Result
from ennopt.run import Tools
from ennopt.search.bigm import BigM
from ennopt.search.box import BoxSearch

ENGINE_INPUTS = 12
"""Up to this many inputs the engine is ahead whatever the networks."""

MILP_NEURONS = {"scip": 130, "highs": 45}
"""Up to this many unstable neurons a MILP solver is ahead on many inputs."""

MILP_WEIGHT = 1e4
"""Largest weight, of a first layer per input's range, that a MILP solver is trusted
with: on weights of 1e6 its tolerances gave wrong bounds."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A method and the reason for it, a sentence."""

    method: BoxSearch | BigM
    reason: str


@dataclass(frozen=True, slots=True)
class Auto:
    """Pick the engine, or a MILP solver where that is faster.

    Up to 12 inputs: the engine. Beyond: big-M if so few neurons are unstable on the
    whole domain that a MILP solver enumerates them sooner (130 with SCIP installed,
    else 45 with HiGHS) and weights are at most 1e4, else the engine, which beyond 16
    inputs branches on neurons as well.

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
        if _largest_weight(problem) > MILP_WEIGHT:
            return Choice(
                BoxSearch(), f"{inputs}, but weights too large for a MILP solver."
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


def _largest_weight(problem: Problem) -> float:
    """The largest weight, those of first layers times the widths of the inputs."""
    widths = problem.domain.widths
    return max(
        float(np.abs(w * widths if k == 0 else w).max(initial=0.0))
        for member in problem.ensemble.members
        for k, w in enumerate(member.weights)
    )
