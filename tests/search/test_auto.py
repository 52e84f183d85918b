"""The default method: what it picks, and that its answer is the pick's."""

import numpy as np
import pytest

from ennopt.domain import Domain
from ennopt.network import Ensemble, Network
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from ennopt.search import auto
from ennopt.search.auto import Auto
from ennopt.search.bigm import BigM
from ennopt.search.box import BoxSearch
from oracles import exact_maximum, random_case, random_domain, random_ensemble


def problem_of(rng, inputs, members, widths):
    ensemble = random_ensemble(rng, members, inputs, widths)
    return Problem(ensemble, random_domain(rng, inputs))


def test_few_inputs_go_to_the_engine(rng):
    choice = Auto().choose(problem_of(rng, 11, 3, (20, 20)))
    assert choice.method == BoxSearch()
    assert "11 inputs" in choice.reason


def test_many_inputs_and_few_neurons_go_to_a_milp_solver(rng, monkeypatch):
    problem = problem_of(rng, 30, 2, (10, 10))
    assert isinstance(Auto().choose(problem).method, BigM)
    monkeypatch.setattr(auto, "available_backends", lambda: ("highs",))
    assert Auto().choose(problem).method == BigM(backend="highs")


def test_many_inputs_and_many_neurons_go_to_the_engine(rng):
    choice = Auto().choose(problem_of(rng, 30, 5, (20, 20)))
    assert choice.method == BoxSearch()
    assert choice.method.settings(problem_of(rng, 30, 1, (3,))).branch_neurons


def test_stable_neurons_do_not_count(rng):
    ensemble = random_ensemble(rng, 5, 20, (20, 20))
    thin = Domain(np.zeros(20), np.full(20, 1e-3))
    assert isinstance(Auto().choose(Problem(ensemble, thin)).method, BigM)


def test_answers_agree_with_enumeration():
    for seed in range(20):
        ensemble, domain = random_case(np.random.default_rng(seed))
        result = Auto().solve(Problem(ensemble, domain), Tools(Limits(seconds=60)))
        exact, _ = exact_maximum(ensemble, domain)
        assert result.status is Status.OPTIMAL
        assert result.value == pytest.approx(exact, rel=2e-4, abs=2e-6)
        assert "BoxSearch" in result.method


def test_a_milp_solver_is_not_trusted_with_huge_weights(rng):
    problem = problem_of(rng, 30, 2, (10, 10))
    first, *others = problem.ensemble.members
    huge = Network((first.weights[0], 1e6 * first.weights[1], first.weights[2]),
                   first.biases)  # fmt: skip
    scaled = Problem(Ensemble((huge, *others)), problem.domain)
    assert isinstance(Auto().choose(problem).method, BigM)
    assert Auto().choose(scaled).method == BoxSearch()
