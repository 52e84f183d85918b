"""The same search in threads, processes and on a cluster; memory and Ctrl-C."""

import itertools
import logging
import math
import pickle
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import kernel
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.tree import PlainTree
from ennopt.engine.units import Unit, explore_unit
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import (
    canonical,
    exact_maximum,
    random_case,
    random_domain,
    random_ensemble,
)

COMPILED = pytest.mark.skipif(kernel() is None, reason="the extension is not built")


def hard_case(seed=3, inputs=6):
    """A few thousand nodes with 6 inputs, no end in sight with 8."""
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 3, inputs, (16, 16, 16))
    return canonical(ensemble, random_domain(rng, inputs))


def assert_valid(problem, result):
    """Value and bound belong to a point and to all points."""
    points = problem.domain.sample(20_000, np.random.default_rng(0))
    assert problem.values(points).max() <= result.bound
    assert problem.values(result.x)[0] == result.value <= result.bound


@COMPILED
def test_threads_processes_and_units_agree():
    problem = hard_case()
    serial = BoxSearch().solve(problem, Tools())
    assert serial.nodes > 300
    answers = [BoxSearch().solve(problem, Tools(threads=2))]
    with ThreadPoolExecutor(2) as pool:
        answers.append(BoxSearch().solve(problem, Tools(threads=2, executor=pool)))
    with ProcessPoolExecutor(2) as pool:
        answers.append(BoxSearch().solve(problem, Tools(threads=2, executor=pool)))
    for answer in answers:
        assert answer.status is Status.OPTIMAL
        assert answer.value == pytest.approx(serial.value, rel=2e-4)
        assert answer.bound >= serial.value
        assert serial.bound >= answer.value


@COMPILED
def test_a_dask_cluster_agrees():
    """The client itself serves, and so does its executor."""
    distributed = pytest.importorskip("distributed")
    problem = hard_case()
    serial = BoxSearch().solve(problem, Tools())
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for executor in (client, client.get_executor()):
            tools = Tools(threads=2, executor=executor)
            answer = BoxSearch().solve(problem, tools)
            assert answer.status is Status.OPTIMAL
            assert answer.nodes > 300
            assert answer.value == pytest.approx(serial.value, rel=2e-4)
            assert answer.bound >= serial.value


def test_a_unit_returns_what_is_left_of_its_nodes():
    problem = hard_case()
    scheme = BoxSearch().scheme
    tree = scheme.open(problem, 1e-4)
    tree.plant()
    x = problem.domain.lower
    unit = Unit(problem, scheme, 1e-4, 256, tree.take(1), x[None], limit=100)
    assert tree.open == 0
    result = explore_unit(pickle.loads(pickle.dumps(unit)))
    assert result.count >= 100
    assert len(result.nodes) > 1
    bound = max(result.closed, result.nodes[:, 0].max())
    points = problem.domain.sample(20_000, np.random.default_rng(0))
    assert problem.values(points).max() <= bound <= unit.bound
    assert problem.values(result.points[0])[0] >= problem.values(x)[0]


def test_units_together_prove_what_the_tree_proves():
    """Hand out every node again and again: the largest bound of the parts is valid."""
    rng = np.random.default_rng(5)
    ensemble, domain = random_ensemble(rng, 2, 2, (5, 4)), random_domain(rng, 2)
    problem, exact = canonical(ensemble, domain), exact_maximum(ensemble, domain)[0]
    scheme = BoxSearch().scheme
    tree = scheme.open(problem, 1e-4)
    tree.plant()
    x = problem.domain.lower
    for _ in range(10_000):
        if not tree.open:
            break
        unit = Unit(problem, scheme, 1e-4, 256, tree.take(2), x[None], limit=4)
        result = explore_unit(unit)
        x = result.points[0]
        tree.close(result.closed)
        tree.add(result.nodes)
        tree.offer(x)
    assert tree.open == 0
    value = problem.values(x)[0]
    assert value == pytest.approx(exact, rel=2e-4)
    assert exact <= tree.bound <= value + 2e-4 * abs(value)


@COMPILED
@pytest.mark.parametrize("threads", [1, 2])
def test_a_small_memory_keeps_few_nodes_open(threads):
    """However short the slices are in which a search is done."""
    problem = hard_case(2, inputs=8)
    opened = []
    for memory in (1e9, 1.0):
        tree = BoxSearch().scheme.open(problem, 1e-4)
        tree.plant()
        most = count = 0
        while tree.open and count < 20_000:
            count += tree.explore(40, math.inf, memory, dive=16, threads=threads)
            most = max(most, tree.open)
        opened.append(most)
    assert opened[0] > 4000
    assert opened[1] < 1000


@COMPILED
@pytest.mark.parametrize("threads", [1, 2])
def test_a_small_memory_dives_and_still_proves(threads):
    problem = hard_case()
    roomy = BoxSearch().solve(problem, Tools())
    tools = Tools(Limits(memory=1.0), threads=threads)
    tight = BoxSearch(dive=16).solve(problem, tools)
    assert tight.status is Status.OPTIMAL
    assert tight.value == pytest.approx(roomy.value, rel=2e-4)
    assert tight.bound >= roomy.value
    with ThreadPoolExecutor(threads) as pool:
        tools = Tools(Limits(memory=1.0), threads=threads, executor=pool)
        units = BoxSearch(dive=16).solve(problem, tools)
    assert units.status is Status.OPTIMAL
    assert units.value == pytest.approx(roomy.value, rel=2e-4)


@COMPILED
@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor, ProcessPoolExecutor])
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_search_with_what_is_proved(executor, threads):
    problem = hard_case(2, inputs=8)
    with executor(2) if executor else nullcontext() as pool:
        if pool is not None:
            pool.submit(math.sqrt, 1.0).result()  # its processes are there
        timer = threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT))

        def start(progress):  # once the search is under way
            if progress.nodes > 1000 and timer.ident is None:
                timer.start()

        limits = Limits(seconds=200, gap=1e-9)
        tools = Tools(limits, threads=threads, executor=pool, callback=start)
        result = BoxSearch().solve(problem, tools)
    assert result.status is Status.INTERRUPTED
    assert result.details["open_nodes"] > 0
    bounds = [event.bound for event in result.history]
    assert all(a >= b for a, b in itertools.pairwise(bounds))
    assert result.bound < math.inf
    assert_valid(problem, result)


@COMPILED
@pytest.mark.parametrize("limits", [Limits(seconds=0.3), Limits(nodes=3000)], ids=repr)
def test_limits_hold_with_an_executor(limits):
    problem = hard_case(2, inputs=8)
    with ThreadPoolExecutor(2) as pool:
        result = BoxSearch().solve(problem, Tools(limits, threads=2, executor=pool))
    expected = {0.3: Status.TIME_LIMIT}.get(limits.seconds, Status.NODE_LIMIT)
    assert result.status is expected
    assert result.nodes < limits.nodes + 200
    assert_valid(problem, result)


@COMPILED
def test_the_interpreter_keeps_running_while_the_kernel_explores():
    problem = hard_case(1)
    tree = BoxSearch().scheme.open(problem, 0.0)
    tree.plant()
    worker = threading.Thread(
        target=tree.explore, args=(math.inf, 0.5, 1e9, 256, 1), daemon=True
    )
    worker.start()
    ticks = 0
    while worker.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 5


def test_without_the_extension_numpy_answers_and_says_so_once(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "ennopt._kernel", None)  # importing it fails
    kernel.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, logger="ennopt"):
            for seed in range(3):
                case = random_case(np.random.default_rng(seed))
                problem = canonical(*case)
                assert isinstance(BoxSearch().scheme.open(problem, 1e-4), PlainTree)
                result = BoxSearch().solve(problem, Tools())
                exact, _ = exact_maximum(*case)
                assert result.status is Status.OPTIMAL
                assert result.value == pytest.approx(exact, rel=2e-4)
                assert result.bound >= exact
    finally:
        kernel.cache_clear()
    (record,) = [r for r in caplog.records if "kernel is missing" in r.getMessage()]
    assert record.levelno == logging.WARNING


@COMPILED
@pytest.mark.parametrize(
    "method", [BoxSearch(), NeuronSearch()], ids=["box", "neurons"]
)
def test_an_early_ctrl_c_keeps_a_value_and_a_bound(method):
    """Whenever it comes, from the first report on."""
    rng = np.random.default_rng(0)
    problem = canonical(random_ensemble(rng, 1, 10, (120, 120)), random_domain(rng, 10))
    centre = problem.values(problem.domain.centre)[0]
    best = []
    for calls in (1, 2, 4, 8):
        left = itertools.count(calls, -1)

        def interrupt(_, left=left):
            if next(left) <= 1:
                raise KeyboardInterrupt

        result = method.solve(problem, Tools(Limits(seconds=30), callback=interrupt))
        assert result.status is Status.INTERRUPTED
        assert math.isfinite(result.bound)
        assert_valid(problem, result)
        best.append(result.value)
    assert best[0] >= centre
    assert best[-1] > centre
