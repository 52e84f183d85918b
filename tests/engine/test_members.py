"""Searches in the members of an ensemble bound it, as a whole and on nodes of signs."""

import math

import numpy as np
import pytest

from ennopt.domain import Domain
from ennopt.domain.rows import Rows
from ennopt.engine import neuron_search
from ennopt.engine.compiled import kernel
from ennopt.engine.members import Members
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.schemes import Signs
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import (
    DEGENERATE,
    canonical,
    exact_maximum,
    random_case,
    random_domain,
    random_ensemble,
)

pytestmark = pytest.mark.skipif(kernel() is None, reason="the extension is not built")


def never():
    return False


def of(problem):
    return Members(problem, problem.root, (), "", 0.0)


def cases(count):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        case = random_case(rng)
        yield case if seed % 2 else (random_ensemble(rng, 3, 2, (5, 4)), case[1])
    for make in DEGENERATE.values():
        yield make(np.random.default_rng(0))


def suiting(count):
    for ensemble, domain in cases(count):
        if domain.num_inputs == ensemble.num_inputs:
            problem = canonical(ensemble, domain)
            if Members.suit(problem):
                yield ensemble, domain, problem


@pytest.fixture
def from_the_start(monkeypatch):
    monkeypatch.setattr(neuron_search, "NODES_BEFORE_MEMBERS", 0)
    monkeypatch.setattr(neuron_search, "NODES_BEFORE_TIGHTENING", 0)


def test_the_bound_of_the_root_holds():
    tried = 0
    for ensemble, domain, problem in suiting(40):
        exact, _ = exact_maximum(ensemble, domain)
        for steps in (1, 6):
            cutoff = problem.sign * exact - 0.01 * problem.scale
            bundle = of(problem).prove(np.zeros(0), cutoff, steps, math.inf, never)
            assert problem.sign * bundle.bound >= exact - 1e-12 * problem.scale
        tried += 1
    assert tried > 20


def test_better_slopes_lower_the_bound():
    lower = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        networks = random_ensemble(rng, 3, 6, (8, 8))
        problem = canonical(networks, random_domain(rng, 6))
        own, bounds, bundle = of(problem), [], None
        best = float(problem.values(problem.domain.sample(1000, rng)).max())
        for steps in (1, 12):
            bundle = own.prove(np.zeros(0), best, steps, math.inf, never, bundle)
            bounds.append(bundle.bound)
        assert bounds[1] <= bounds[0]
        assert bounds[1] >= best
        lower.append(bounds[1] < bounds[0])
    assert any(lower)


def test_bounds_of_nodes_hold_at_points_with_their_signs():
    met = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        domain = random_domain(rng, 3)
        problem = canonical(random_ensemble(rng, 3, 3, (5, 4)), domain)
        tree = Signs(problem.root).open(problem, 1e-4)
        tree.plant()
        tree.explore(30, math.inf, math.inf, 1, 1)
        points = problem.domain.sample(2000, rng)
        values = problem.values(points)
        layers = [
            layer for n in problem.networks for layer in n.preactivations(points)[:-1]
        ]
        on = np.concatenate(layers, axis=1) >= 0.0
        low, high = problem.root.flat()
        for node in tree.snapshot()[:8]:
            held = node[2:].view(np.uint8)[3:][: low.size] >> 3
            free = (held == 7) | (low >= 0.0) | (high <= 0.0)
            inside = np.all(free | (on == (held == 3)), axis=1)
            cutoff = float(node[0]) - 0.3 * problem.spread
            bundle = of(problem).prove(node, cutoff, 4, math.inf, never)
            assert bundle.bound >= values[inside].max(initial=-math.inf)
            met += int(inside.any())
    assert met > 10


def test_a_budget_is_kept_and_the_bound_still_holds():
    rng = np.random.default_rng(5)
    problem = canonical(random_ensemble(rng, 3, 8, (9, 9)), random_domain(rng, 8))
    best = problem.values(problem.domain.sample(2000, rng)).max()
    for nodes in (1, 20, 200):
        bundle = of(problem).prove(np.zeros(0), -1e9, 30, nodes, never)
        assert bundle.nodes <= nodes + 3
        assert bundle.bound >= best
    halted = of(problem).prove(np.zeros(0), -1e9, 30, 100, lambda: True)
    assert halted.bound == math.inf


@pytest.mark.usefixtures("from_the_start")
def test_searches_that_close_nodes_by_members_agree_with_enumeration():
    for ensemble, domain, problem in suiting(30):
        result = NeuronSearch(starts=0, polished=0, gives_way=False).solve(
            problem, Tools(Limits(gap=1e-4))
        )
        exact, _ = exact_maximum(ensemble, domain)
        rounding = 1e-9 * max(1.0, problem.scale)
        assert result.status in (Status.OPTIMAL, Status.PRECISION_LIMIT)
        assert result.bound >= exact - rounding
        assert result.value <= exact + rounding
        assert result.bound - result.value <= 2e-4 * max(abs(exact), 1e-9) + rounding


@pytest.mark.usefixtures("from_the_start")
def test_members_close_open_nodes_of_an_ensemble_with_many_inputs(monkeypatch):
    closed = []
    prove = Members.prove

    def heard(self, node, cutoff, *rest):
        bundle = prove(self, node, cutoff, *rest)
        closed.append(node.size > 0 and bundle.bound <= cutoff)
        return bundle

    rng = np.random.default_rng(1)
    ensemble, domain = random_ensemble(rng, 3, 10, (8, 8)), random_domain(rng, 10)
    problem = canonical(ensemble, domain)
    method = NeuronSearch(gives_way=False)
    first = method.solve(problem, Tools(Limits(gap=1e-4, nodes=4_000)))
    monkeypatch.setattr(Members, "prove", heard)
    monkeypatch.setattr(neuron_search, "RACED", 0)
    second = method.solve(problem, Tools(Limits(gap=1e-4, nodes=4_000)))
    assert any(closed)
    assert second.bound >= first.value - 1e-9
    assert first.bound >= second.value - 1e-9
    again = method.solve(problem, Tools(Limits(gap=1e-4, nodes=4_000)))
    assert (again.nodes, again.bound) == (second.nodes, second.bound)


def test_only_ensembles_over_boxes_have_members():
    rng = np.random.default_rng(0)
    domain = random_domain(rng, 3)
    assert Members.suit(canonical(random_ensemble(rng, 2, 3, (4,)), domain))
    assert not Members.suit(canonical(random_ensemble(rng, 1, 3, (4,)), domain))
    row = Rows(np.ones((1, 3)), np.array([-np.inf]), np.array([1e3]))
    rows = Domain(domain.lower, domain.upper, rows=row)
    assert not Members.suit(canonical(random_ensemble(rng, 2, 3, (4,)), rows))
