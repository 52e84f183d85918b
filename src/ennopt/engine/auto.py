"""The default method: which search for which problem, and why.

Measured on 59 ensembles (`make bench-inputs`, 15 s each, one thread): how often
branching on neurons is ahead of branching on inputs, by the time of a proof or else by
the gap.

| inputs | 40 to 60 unstable neurons | 120 |
|---|---|---|
| 8 | 5 of 8 | 2 of 3 |
| 10 | 2 of 4 | 0 of 1 |
| 12 | 8 of 8 | 3 of 3 |
| 16, 20, 30, 60 | 24 of 24 | 8 of 8 |

Where it is not ahead up to 60 neurons, both take less than a quarter of a second. Where
it is, boxes may take for ever: a random network 8 -> 6 -> 16 -> 15 -> 1 was not proved
by them within 150,000 nodes, and by neurons within 2,200.

On real data of 8 and 11 inputs with more neurons (Concrete, Wine; `make bench-engine`)
inputs are far ahead. Big-M on HiGHS or SCIP is nowhere ahead of the better of the two.

With linear constraints and discrete inputs the same rule holds, if a category counts as
one input. Nodes of random ensembles of 40 to 48 unstable neurons, "-" if not proved in
5 or 6 s on one busy core:

| inputs | 3 rows: boxes, signs | half whole | all whole | half are one category |
|---|---|---|---|---|
| 8 | 3254, 225 | 1261, 2177 | 408, 461 | 130, 999 |
| 10 | 1070, 4013 | 5665, 8031 | 4498, 1523 | 2661, 1543 |
| 12 | -, 1293 | -, 10043 | 61255, 4129 | 3216, 2893 |
| 16 | -, 2109 | -, 13793 | 5450, 2115 | 1172, 1809 |
| 20 | -, 1381 | -, 12307 | -, - (gaps 77%, 1.4%) | -, - (75%, 7.6%) |

With limits on predictions, risks and convex regions it holds, too, the more so: of 12
inputs, neurons prove four risks within 217 to 1,969 nodes that boxes leave open after
20,000 (`benchmarks/both_searches.md`). Near rows of data boxes are ahead up to 20
inputs: the parts of such a set are small boxes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ennopt.canonical import Canonical, Feature
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import kernel
from ennopt.engine.neuron_search import CERTIFIED, NeuronSearch
from ennopt.problem import Problem
from ennopt.result import Result
from ennopt.run import Tools

FEW_INPUTS, MANY_INPUTS = 7, 12
"""Up to the first branching on inputs is fastest, from the second on neurons."""

FEW_UNSTABLE = 60
"""In between, branching on neurons is faster for up to this many unstable ones."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A method and the reason for it, a sentence."""

    method: BoxSearch | NeuronSearch
    reason: str


@dataclass(frozen=True, slots=True)
class Auto:
    """Pick what to branch on: inputs, or neurons.

    Up to 7 inputs: inputs. From 12 on: neurons. In between: neurons if at most 60 of
    them are unstable on the whole domain. A category counts as one input. Problems near
    rows of data go to the inputs, and so do activations other than ReLU, which
    branching on neurons does not handle. A search that makes no progress gives way to
    the other.

    Examples
    --------
    >>> from ennopt import Domain, Ensemble, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> choice = Auto().choose(Problem(Ensemble([net]), Domain([-2.0], [1.0])))
    >>> print(choice.reason)
    1 input: branching on inputs is fastest up to 7.
    """

    handles: ClassVar[frozenset[Feature]] = BoxSearch.handles
    certifies: ClassVar[bool] = True

    def choose(self, problem: Problem | Canonical) -> Choice:
        """The method for a problem, and why."""
        if isinstance(problem, Problem):
            problem = Canonical.of(problem)
        groups = problem.domain.groups
        count = problem.num_inputs - sum(len(group.inputs) - 1 for group in groups)
        inputs = f"{count} input{'s' * (count > 1)}"
        if missing := problem.features - NeuronSearch.handles:
            what = " and ".join(sorted(feature.value for feature in missing))
            return Choice(BoxSearch(), f"{inputs} with {what}: branching on inputs.")
        if Feature.NEAR_DATA in problem.features:
            reason = f"{inputs} near rows of data: branching on inputs is fastest."
            return Choice(BoxSearch(), reason)
        if count <= FEW_INPUTS:
            reason = f"{inputs}: branching on inputs is fastest up to {FEW_INPUTS}."
            return Choice(BoxSearch(), reason)
        if count >= MANY_INPUTS:
            reason = f"{inputs}: branching on neurons is fastest from {MANY_INPUTS} on."
            return Choice(NeuronSearch(), reason)
        unstable = problem.root.num_unstable
        neurons = f"{inputs} and {unstable} unstable neurons"
        if unstable <= FEW_UNSTABLE:
            reason = f"{neurons}: few enough to branch on, up to {FEW_UNSTABLE}."
            return Choice(NeuronSearch(), reason)
        return Choice(BoxSearch(), f"{neurons}: too many to branch on.")

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Solve with the method of choice; the result names it and tells why."""
        if isinstance(problem, Problem):
            problem = Canonical.of(problem)
        choice = self.choose(problem)
        recorded = tools.recorder is not None and isinstance(
            choice.method, NeuronSearch
        )
        if recorded and (problem.features - CERTIFIED or kernel() is None):
            reason = "a certificate of such a problem is of branching on inputs."
            choice = Choice(BoxSearch(), reason)
        result = choice.method.solve(problem, tools)
        return replace(result, details=result.details | {"auto": choice.reason})
