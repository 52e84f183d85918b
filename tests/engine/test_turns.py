"""A search whose bound hardly moves gives way to the other one, and nothing is lost."""

import itertools
import math
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ennopt
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.engine import turns
from ennopt.engine.auto import Auto
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import kernel
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.schemes import Boxes, Signs
from ennopt.network import Ensemble
from ennopt.paper.bigm import BigM
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import random_ensemble, random_network, tiny_network

pytestmark = pytest.mark.skipif(kernel() is None, reason="the extension is not built")

COUNT = int(os.environ.get("ENNOPT_CONFORMANCE", "12"))
PARTS = max(2, COUNT // 50)
MOST_NODES = 100_000
"""Of a search on networks of up to 3 layers of 16 neurons and 12 inputs."""

BOTH = pytest.mark.parametrize(
    "method", [BoxSearch(), NeuronSearch()], ids=["box", "neurons"]
)


def hard_for_boxes(seed=140):
    """11 inputs: 53 nodes of signs prove what a million boxes do not.

    With seed 50 it is some 3,000 nodes, and 240,000 boxes.
    """
    net = tiny_network(np.random.default_rng(seed), 16, (8, 13))
    d = net.num_inputs
    return Problem(Ensemble([net]), Domain([-1.0] * d, [1.0] * d))


def hard_for_signs():
    """5 inputs: 2,300 boxes, or 55,000 nodes of signs."""
    net = random_network(np.random.default_rng(1), 5, (30, 30, 30))
    return Problem(Ensemble([net]), Domain([-1.0] * 5, [1.0] * 5))


def changes(result):
    return [note for note in result.notes if note.startswith("Changed to")]


def impatient(monkeypatch, nodes):
    for kind in (BoxSearch, NeuronSearch):
        monkeypatch.setattr(kind, "patience", nodes)


@pytest.mark.parametrize("part", range(PARTS))
def test_tiny_networks_end_under_both_searches_and_auto(part):
    for seed in range(part, COUNT, PARTS):
        net = tiny_network(np.random.default_rng(seed), 16, (1, 13))
        d = net.num_inputs
        problem = Canonical.sum_of([net], Domain([-1.0] * d, [1.0] * d))
        values, bounds = [], []
        for method in (BoxSearch(), NeuronSearch(), Auto()):
            result = method.solve(problem, Tools(Limits(nodes=MOST_NODES)))
            assert result.status is Status.OPTIMAL, (seed, method)
            values.append(result.value)
            bounds.append(result.bound)
        assert max(values) <= min(bounds) + 1e-9, seed


def test_boxes_that_come_no_closer_give_way_to_signs(monkeypatch):
    problem = hard_for_boxes()
    alone = BoxSearch(gives_way=False).solve(problem, Tools(Limits(nodes=40_000)))
    assert alone.status is Status.NODE_LIMIT and not changes(alone)
    monkeypatch.setattr(BoxSearch, "patience", 1_000)
    result = BoxSearch().solve(problem, Tools(Limits(nodes=40_000)))
    assert result.status is Status.OPTIMAL
    (note,) = changes(result)
    assert "branching on neurons after" in note and "closer to the value" in note
    assert result.value == pytest.approx(1.0, abs=1e-4)
    assert result.bound >= alone.value


def test_signs_that_come_no_closer_give_way_to_boxes(monkeypatch):
    problem = hard_for_signs()
    monkeypatch.setattr(NeuronSearch, "patience", 100)
    method = NeuronSearch(tightening_nodes=0)
    result = method.solve(problem, Tools(Limits(nodes=5_000)))
    assert result.status is Status.OPTIMAL
    assert "branching on inputs after" in changes(result)[0]
    box = BoxSearch().solve(problem, Tools())
    assert max(box.value, result.value) <= min(box.bound, result.bound)


def eager_reason(self):
    """Change at every look."""
    self.search.look = self.search.nodes + 8
    return "of this test"


@BOTH
@pytest.mark.parametrize("text", [None, "x0 + x1 <= 0.3", "x0 - x1 + x2 == 0.2"])
def test_searches_that_change_all_the_time_still_prove(method, text, monkeypatch):
    impatient(monkeypatch, 4)
    monkeypatch.setattr(turns.Turns, "_reason", eager_reason)
    # Without first values, which prove such problems almost alone.
    boxes, signs = Boxes(), (lambda run: Signs(run.problem.root))
    for way in ("_begin", "_prepare"):
        monkeypatch.setattr(BoxSearch, way, lambda self, s, *_: s.plant(boxes))
        monkeypatch.setattr(
            NeuronSearch, way, lambda self, s, *_: s.plant(signs(s.run))
        )
    domain = Domain([-1.0] * 3, [1.0] * 3)
    if text:
        domain = domain.constrained([text])
    changed, bounds = 0, []
    for seed in range(2):
        ensemble = random_ensemble(np.random.default_rng(seed), 2, 3, (4, 4))
        problem = Problem(ensemble, domain)
        bounds.clear()
        result = method.solve(
            problem, Tools(callback=lambda now: bounds.append(now.bound))
        )
        assert result.status is Status.OPTIMAL
        other = BigM("highs").solve(problem, Tools())
        assert result.value <= other.bound + 1e-9
        assert result.bound >= other.value - 1e-9
        assert all(a >= b for a, b in itertools.pairwise(bounds))
        changed += sum("; changed after" in note for note in changes(result))
    assert changed


def test_a_run_with_a_certificate_stays_with_its_boxes(monkeypatch, tmp_path):
    impatient(monkeypatch, 100)
    problem = hard_for_boxes()
    result = ennopt.solve(
        problem, method="box", node_limit=3_000, threads=1,
        certificate=tmp_path / "proof",
    )  # fmt: skip
    assert result.status is Status.NODE_LIMIT
    assert not changes(result)


def test_threads_and_executors_change_too(monkeypatch):
    impatient(monkeypatch, 1_000)
    problem = hard_for_boxes()
    two = BoxSearch().solve(problem, Tools(threads=2))
    with ThreadPoolExecutor(2) as pool:
        units = BoxSearch().solve(problem, Tools(threads=2, executor=pool))
    for result in (two, units):
        assert result.status is Status.OPTIMAL
        assert changes(result)


def test_a_run_goes_on_with_the_search_that_it_changed_to(monkeypatch, tmp_path):
    impatient(monkeypatch, 1_000)
    problem, file = hard_for_boxes(50), tmp_path / "state"
    whole = ennopt.solve(problem, method="box", threads=1)
    last = ennopt.solve(
        problem, method="box", threads=1, checkpoint=file, node_limit=whole.nodes - 100
    )
    assert last.status is Status.NODE_LIMIT
    assert changes(last)
    result = ennopt.solve(problem, method="box", threads=1, checkpoint=file)
    assert result.status is Status.OPTIMAL
    assert result.bound <= last.bound
    assert result.value >= last.value
    # A whole search on boxes would take a hundred times as many.
    assert result.nodes < 2 * whole.nodes


def test_turns_go_on_where_a_checkpoint_found_them(monkeypatch, tmp_path):
    """Pieces shorter than a turn never changed to the other search."""
    impatient(monkeypatch, 1_000)
    problem, file, nodes = hard_for_boxes(50), tmp_path / "state", 0
    whole = ennopt.solve(problem, method="box", threads=1)
    while True:
        result = ennopt.solve(
            problem, method="box", threads=1, checkpoint=file, node_limit=nodes + 700
        )
        nodes = result.nodes
        if result.status is not Status.NODE_LIMIT:
            break
        assert nodes < 3 * whole.nodes
    assert result.status is Status.OPTIMAL


def test_a_run_repeats_whatever_the_clock_says(monkeypatch):
    impatient(monkeypatch, 1_000)
    counts = set()
    for seconds in (math.inf, 1e6):
        limits = Limits(seconds=seconds)
        counts.add(BoxSearch().solve(hard_for_boxes(), Tools(limits)).nodes)
    assert len(counts) == 1


def test_signs_without_hidden_layers_go_on_from_a_checkpoint(tmp_path):
    """Their state has no bounds of neurons, and was taken for one of boxes."""
    net = random_network(np.random.default_rng(0), 3, ())
    for _ in range(2):
        result = ennopt.maximize(
            net, (-1, 1), method="neurons", checkpoint=tmp_path / "state"
        )
        assert result.status is Status.OPTIMAL
