"""Ctrl-C at any line of a tree or of the hand-out of units: no node is lost."""

import copy
import math
import sys
from concurrent.futures import Executor, Future

import numpy as np
import pytest

from ennopt.engine import search as search_module
from ennopt.engine import tree as tree_module
from ennopt.engine import units as units_module
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.nodes import NodeModel, Nodes, NodeSettings
from ennopt.engine.schemes import Boxes, PlainBoxes
from ennopt.engine.tree import PlainTree, Tolerance
from ennopt.engine.units import Unit, explore_with
from ennopt.run import Tools
from oracles import canonical, random_domain, random_ensemble

SCHEME = Boxes(NodeSettings(programs=0))


class Inline(Executor):
    """Runs what it is given at once."""

    def submit(self, function, *args):
        future = Future()
        future.set_result(function(*args))
        return future


def interrupted(module, line, function):
    """Call `function` with Ctrl-C at the given line executed in a module.

    Returns whether so many lines were executed.
    """
    left = line

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return left <= 0


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(4)
    ensemble, domain = random_ensemble(rng, 2, 2, (6, 5)), random_domain(rng, 2)
    return canonical(ensemble, domain)


def assert_nothing_lost(problem, tree, points):
    """Points that are not proved to be worse lie in open boxes."""
    values = problem.values(points)
    nodes = Nodes.unpacked(tree.snapshot(), NodeModel(problem))
    inside = np.zeros(len(points), dtype=bool)
    for lower, upper in zip(nodes.lower, nodes.upper, strict=True):
        inside |= np.all((points >= lower) & (points <= upper), axis=1)
    assert np.all(inside | (values <= tree.closed))
    assert values.max() <= tree.bound


def begun_tree(problem, rng):
    """A NumPy tree of small batches that closes nodes only far below the best value."""
    boxes = PlainBoxes(problem, SCHEME.settings)
    boxes.batch = 4
    low = Tolerance(-1.0, math.inf, -0.3 * problem.spread)
    tree = PlainTree(problem, boxes, low)
    tree.offer(problem.domain.sample(1, rng)[0])
    tree.plant()
    tree.explore(6, math.inf, math.inf, 1, 1)
    assert tree.open > 2
    return tree


def test_ctrl_c_at_any_line_of_a_tree_keeps_every_node(problem, rng):
    points = problem.domain.sample(3000, rng)
    begun, line = begun_tree(problem, rng), 0
    while True:
        tree, line = copy.deepcopy(begun), line + 1
        explore = lambda tree=tree: tree.explore(4, math.inf, math.inf, 1, 1)  # noqa: E731
        if not interrupted(tree_module, line, explore):
            break
        assert_nothing_lost(problem, tree, points)
        tree.explore(4, math.inf, math.inf, 1, 1)  # it still works
        assert_nothing_lost(problem, tree, points)
    assert line > 100


@pytest.mark.parametrize("module", [units_module, tree_module], ids=["units", "tree"])
def test_ctrl_c_at_any_line_of_the_hand_out_keeps_every_node(module, problem, rng):
    points = problem.domain.sample(3000, rng)
    begun, line = begun_tree(problem, rng), 0
    while True:
        tree, line = copy.deepcopy(begun), line + 1

        def unit(nodes, limit, seconds, tree=tree):
            found = tree.points()
            return Unit(problem, SCHEME, 1e-6, 1, nodes, found, min(limit, 3), seconds)

        def hand_out(tree=tree, unit=unit):
            with Tools.of(threads=1, node_limit=12).start(problem, "test") as run:
                explore_with(Inline(), run, tree, unit, lambda _: None)

        if not interrupted(module, line, hand_out):
            break
        assert_nothing_lost(problem, tree, points)
    assert line > 50


@pytest.mark.parametrize("method", [BoxSearch(starts=4), NeuronSearch(starts=4)])
def test_ctrl_c_at_any_line_of_a_search_keeps_what_was_told(method, rng):
    """From the first moment that a callback hears of there are a value and a bound."""
    problem, line = canonical(random_ensemble(rng, 1, 2, (4,)), random_domain(rng)), 0
    while True:
        line, told, results = line + 1, [], []
        tools = Tools.of(threads=1, gap=1e-6, callback=told.append)

        def solve(tools=tools, results=results):
            results.append(method.solve(problem, tools))

        if not interrupted(search_module, line, solve):
            break
        if results and len(told) > 1:  # the last moment is told by the end itself
            (result,) = results
            assert np.isfinite([told[0].value, told[0].bound]).all()
            assert result.value >= max(moment.value for moment in told)
            assert result.bound <= min(moment.bound for moment in told)
    assert line > 30
