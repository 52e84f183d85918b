"""The default method: what it picks, and that its answer is the pick's."""

import itertools

import numpy as np
import pytest

from ennopt.domain import Domain, Group, Rows, Values
from ennopt.domain.regions import NearRows
from ennopt.engine.auto import Auto
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.network import Ensemble, Network
from ennopt.problem import Combination, Limit, Problem, Term
from ennopt.result import Limits, Status
from ennopt.risk import Worst
from ennopt.run import Tools
from oracles import exact_maximum, random_case, random_domain, random_ensemble


def problem_of(rng, inputs, members, widths):
    ensemble = random_ensemble(rng, members, inputs, widths)
    return Problem(ensemble, random_domain(rng, inputs))


@pytest.mark.parametrize("inputs", [1, 7])
def test_few_inputs_are_branched_on(inputs, rng):
    choice = Auto().choose(problem_of(rng, inputs, 3, (20, 20)))
    assert choice.method == BoxSearch()
    assert f"{inputs} input" in choice.reason


@pytest.mark.parametrize("shape", [(1, (5,)), (5, (20, 20))], ids=repr)
@pytest.mark.parametrize("inputs", [12, 30])
def test_with_many_inputs_neurons_are_branched_on(inputs, shape, rng):
    choice = Auto().choose(problem_of(rng, inputs, *shape))
    assert choice.method == NeuronSearch()
    assert f"{inputs} inputs" in choice.reason


def test_in_between_the_unstable_neurons_decide(rng):
    ensemble = random_ensemble(rng, 5, 11, (20, 20))
    wide, thin = (Domain([-r] * 11, [r] * 11) for r in (1.0, 1e-4))
    choice = Auto().choose(Problem(ensemble, wide))
    assert choice.method == BoxSearch()
    assert "unstable neurons: too many" in choice.reason
    choice = Auto().choose(Problem(ensemble, thin))
    assert choice.method == NeuronSearch()
    assert "few enough" in choice.reason


def test_a_tiny_network_that_boxes_hardly_end_on_is_proved_by_signs():
    """Eight inputs and 37 neurons: boxes leave a gap of 135% after 20,000 nodes."""
    rng, sizes = np.random.default_rng(3), [8, 6, 16, 15, 1]
    weights, biases = [], []
    for n, m in itertools.pairwise(sizes):
        weights.append(rng.integers(-1, 2, (m, n)).astype(float))
        biases.append(rng.integers(-1, 2, m).astype(float))
    problem = Problem(
        Ensemble([Network(tuple(weights), tuple(biases))]), Domain([-1] * 8, [1] * 8)
    )
    choice = Auto().choose(problem)
    assert choice.method == NeuronSearch(), choice.reason
    result = Auto().solve(problem, Tools(Limits(nodes=1000)))
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("inputs", [8, 12])
def test_constraints_and_whole_numbers_change_nothing(inputs, rng):
    box = random_domain(rng, inputs)
    rows = Rows(np.ones((1, inputs)), [box.centre.sum()], [np.inf])
    values = Values.of(inputs, lists={0: [box.lower[0], box.upper[0]]})
    domain = Domain(box.lower, box.upper, rows=rows, values=values)
    ensemble = random_ensemble(rng, 3, inputs, (20, 20))
    plain, other = (Auto().choose(Problem(ensemble, d)) for d in (box, domain))
    assert plain == other


def test_a_category_counts_as_one_input(rng):
    group = Group("kind", tuple(range(6)), tuple("abcdef"))
    values = Values.of(12, whole=range(6))
    domain = Domain(np.zeros(12), np.ones(12), values=values, groups=(group,))
    choice = Auto().choose(Problem(random_ensemble(rng, 2, 12, (5,)), domain))
    assert choice.method == BoxSearch()
    assert "7 inputs" in choice.reason


def test_limits_and_risks_of_many_inputs_are_branched_on_by_neurons(rng):
    ensemble = Ensemble(random_ensemble(rng, 3, 12, (4,)).members)
    domain = random_domain(rng, 12)
    goal = Combination((Term(ensemble, 1.0, risk=Worst()),), np.zeros(12), 0.0)
    least = float(np.median(goal.values(domain.sample(100, rng))))
    problem = Problem(ensemble, domain, "max", None, goal, (Limit(goal, least),))
    choice = Auto().choose(problem)
    assert choice.method == NeuronSearch()
    assert "12 inputs" in choice.reason


def test_near_rows_of_data_inputs_are_branched_on(rng):
    data = rng.random((5, 12))
    ensemble = random_ensemble(rng, 2, 12, (5,))
    near = Domain([0.0] * 12, [1.0] * 12, regions=(NearRows.rows(data, [0.2] * 12),))
    problem = Problem(ensemble, near)
    choice = Auto().choose(problem)
    assert choice.method == BoxSearch()
    assert "near rows of data" in choice.reason
    boxes, signs = (m.solve(problem, Tools()) for m in (BoxSearch(), NeuronSearch()))
    assert boxes.status is signs.status is Status.OPTIMAL
    assert boxes.value == pytest.approx(signs.value, rel=2e-4)


def test_answers_agree_with_enumeration():
    for seed in range(20):
        ensemble, domain = random_case(np.random.default_rng(seed))
        result = Auto().solve(Problem(ensemble, domain), Tools(Limits(seconds=60)))
        exact, _ = exact_maximum(ensemble, domain)
        assert result.status is Status.OPTIMAL
        assert result.value == pytest.approx(exact, rel=2e-4, abs=2e-6)
        assert "BoxSearch" in result.method


def test_the_result_tells_why_the_method_was_chosen(rng):
    problem = problem_of(rng, 2, 1, (4,))
    result = Auto().solve(problem, Tools())
    assert result.details["auto"] == Auto().choose(problem).reason
    assert f"auto chose BoxSearch: {result.details['auto']}" in result.summary()
