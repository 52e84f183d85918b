"""Every way to solve a problem, and what all of them must agree on.

A method takes part in every test whose problem it `handles`: to add one is one line.
"""

from ennopt.canonical import Canonical
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.two_phase import TwoPhase
from ennopt.result import Limits, Status
from ennopt.run import Tools

METHODS = {
    "boxes": BoxSearch(),
    "neurons": NeuronSearch(),
    "HiGHS": BigM("highs"),
    "SCIP": BigM("scip"),
    "B&C": BranchAndCut(backend="scip"),
    "E-NN": TwoPhase.on("scip"),
}


def answers(problem, gap, methods=METHODS, **limits):
    """The results of all methods that can solve a problem, by name."""
    features = Canonical.of(problem).features
    return {
        name: method.solve(problem, Tools(Limits(gap=gap, **limits)))
        for name, method in methods.items()
        if features <= method.handles
    }


def agreed(problem, results, room=1e-7):
    """Check that no value beats a bound of another method; returns the one status."""
    sign = 1.0 if problem.sense == "max" else -1.0
    for name, result in results.items():
        if result.x is None:
            assert result.status is Status.INFEASIBLE, name
            continue
        value = sign * result.value
        assert result.value == problem.values(result.x)[0], name
        for other, bound in results.items():
            assert sign * bound.bound >= value - room * max(1.0, abs(value)), (
                name, other, problem.sense, result.value, bound.bound,
            )  # fmt: skip
    statuses = {name: result.status for name, result in results.items()}
    assert len(set(statuses.values())) == 1, statuses
    return statuses.popitem()[1]
