"""What a search cannot handle is refused by name, never left out silently."""

import numpy as np
import pytest

from ennopt.canonical import (
    Canonical,
    Feature,
    PredictionLimits,
    UnsupportedProblemError,
    Weighting,
)
from ennopt.domain import Domain
from ennopt.engine.auto import Auto
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.two_phase import TwoPhase
from ennopt.result import Status
from ennopt.risk import Worst
from ennopt.run import Tools
from oracles import random_network, smooth_network

BOX = Domain([-1.0, -1.0], [1.0, 1.0])


def cases():
    rng = np.random.default_rng(0)
    one, three = random_network(rng), random_network(rng, num_outputs=3)
    limits = PredictionLimits((Weighting([1.0]),), [-1.0])
    worst = Weighting([0.0] * 3, (((0, 1, 2), Worst()),))
    yield Feature.WEIGHTS, Canonical((one,), BOX, weighting=Weighting([2.0]))
    yield Feature.OUTPUTS, Canonical((three,), BOX)
    yield Feature.LIMITS, Canonical((one,), BOX, limits=limits)
    yield Feature.RISK, Canonical((three,), BOX, weighting=worst)


CASES = pytest.mark.parametrize(
    ("feature", "problem"), [pytest.param(*case, id=case[0].name) for case in cases()]
)


METHODS = (NeuronSearch(), BigM(), BranchAndCut(), TwoPhase())


@CASES
def test_methods_handle_a_feature_or_refuse_it_by_name(feature, problem):
    assert problem.features == {feature}
    best = BoxSearch().solve(problem, Tools())
    for method in METHODS:
        if feature in method.handles:
            found = method.solve(problem, Tools())
            assert found.status is best.status is Status.OPTIMAL
            assert found.value == pytest.approx(best.value, rel=2e-4)
        else:
            with pytest.raises(UnsupportedProblemError, match=feature.value):
                method.solve(problem, Tools())


def test_big_m_models_are_for_relu_alone():
    rng = np.random.default_rng(0)
    problem = Canonical.sum_of([smooth_network(rng, 2, (3,), ["tanh"])], BOX)
    for method in METHODS:
        with pytest.raises(UnsupportedProblemError, match=Feature.ACTIVATIONS.value):
            method.solve(problem, Tools())


@CASES
def test_both_searches_handle_every_function(feature, problem):
    found = [m.solve(problem, Tools()) for m in (Auto(), BoxSearch(), NeuronSearch())]
    assert len({result.status for result in found}) == 1
    if found[0].status is Status.OPTIMAL:
        assert np.ptp([result.value for result in found]) <= 1e-3 * abs(found[0].value)


@CASES
def test_the_kernel_drops_no_output_weight_or_risk(feature, problem):
    if kernel() is not None:
        model, points = compile_model(problem), BOX.sample(9, np.random.default_rng(0))
        found = [model.evaluate(x) for x in points]
        np.testing.assert_allclose(found, problem.values(points), rtol=1e-12)
