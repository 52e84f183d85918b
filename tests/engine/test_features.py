"""What a search cannot handle is refused by name, never left out silently."""

import numpy as np
import pytest

from ennopt.canonical import (
    Canonical,
    Feature,
    Fixed,
    PredictionLimits,
    UnsupportedProblemError,
)
from ennopt.domain import Domain
from ennopt.engine.auto import Auto
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.nodes import NodeModel
from ennopt.run import Tools
from oracles import random_network

BOX = Domain([-1.0, -1.0], [1.0, 1.0])
SEARCHES = pytest.mark.parametrize("method", [Auto(), BoxSearch(), NeuronSearch()])


def cases():
    rng = np.random.default_rng(0)
    one, three = random_network(rng), random_network(rng, num_outputs=3)
    limits = PredictionLimits(np.ones((1, 1)), np.zeros(1))
    yield Feature.WEIGHTS, Canonical((one,), BOX, weighting=Fixed(np.array([2.0])))
    yield Feature.OUTPUTS, Canonical((three,), BOX)
    yield Feature.LIMITS, Canonical((one,), BOX, limits=limits)


CASES = pytest.mark.parametrize(
    ("feature", "problem"), [pytest.param(*case, id=case[0].name) for case in cases()]
)


@SEARCHES
@CASES
def test_searches_refuse_what_they_cannot_handle_by_name(method, feature, problem):
    assert problem.features == {feature}
    with pytest.raises(UnsupportedProblemError, match=feature.value):
        method.solve(problem, Tools())


@CASES
def test_nodes_are_of_a_plain_sum_of_single_outputs(feature, problem):
    """The specification and the kernel alike: no output but the first is dropped."""
    makers = [NodeModel] if kernel() is None else [NodeModel, compile_model]
    for make in makers:
        with pytest.raises(ValueError, match=f"without {feature.value}"):
            make(problem)
