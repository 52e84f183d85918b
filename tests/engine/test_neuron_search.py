"""NeuronSearch against enumeration, MILP solvers and itself, and at its limits."""

import itertools
import math
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

from ennopt.domain import Domain
from ennopt.engine import schemes
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import kernel
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.schemes import Signs
from ennopt.network import Ensemble, Network
from ennopt.paper.bigm import BigM
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import (
    DEGENERATE,
    canonical,
    exact_maximum,
    random_case,
    random_domain,
    random_ensemble,
    random_network,
)

COLD = NeuronSearch(starts=0, polished=0)
COMPILED = pytest.mark.skipif(kernel() is None, reason="the extension is not built")


def proves(ensemble, domain, method, gap=1e-4):
    """The method ends with a proof that enumeration confirms."""
    problem = canonical(ensemble, domain)
    result = method.solve(problem, Tools(Limits(gap=gap)))
    exact, _ = exact_maximum(ensemble, domain)
    rounding = 1e-12 * max(1.0, problem.scale)
    assert result.status in (Status.OPTIMAL, Status.PRECISION_LIMIT)
    assert result.bound >= exact - rounding
    assert result.value <= exact + rounding
    allowed = 1.01 * problem.tolerance(exact, gap) + 1e-9 * problem.scale
    assert result.bound - result.value <= allowed
    assert ensemble(result.x)[0] == result.value
    assert domain.contains(result.x)
    return result


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_degenerate_ensembles_agree_with_enumeration(case, seed):
    proves(*DEGENERATE[case](np.random.default_rng(seed)), NeuronSearch())


@pytest.mark.parametrize("block", range(4))
def test_random_ensembles_agree_with_enumeration_from_a_cold_start(block):
    for seed in range(50 * block, 50 * block + 50):
        proves(*random_case(np.random.default_rng(seed)), COLD)


@pytest.mark.parametrize(
    "method",
    [
        NeuronSearch(dive=64),
        NeuronSearch(tightening_nodes=0),
        NeuronSearch(tightening_nodes=3),
    ],
    ids=repr,
)
def test_settings_change_the_work_and_not_the_answer(method):
    for seed in range(400, 415):
        proves(*random_case(np.random.default_rng(seed)), method)


@COMPILED
@pytest.mark.parametrize("name", kernel().instruction_sets() if kernel() else [])
def test_every_instruction_set_agrees_with_enumeration(name):
    method = NeuronSearch(starts=0, polished=0, instruction_set=name)
    for seed in range(300, 320):
        proves(*random_case(np.random.default_rng(seed)), method)


def test_the_search_without_the_extension_agrees_with_enumeration(monkeypatch):
    monkeypatch.setattr(schemes, "kernel", lambda: None)
    for seed in range(8):
        proves(*random_case(np.random.default_rng(seed)), COLD)


@pytest.mark.parametrize("scales", [(1e6,), (1e-6,), (1e6, 1e-6)], ids=repr)
@pytest.mark.parametrize("widths", [(), (5,), (4, 3)], ids=repr)
def test_huge_and_tiny_weights_agree_with_enumeration(scales, widths):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        nets = [random_network(rng, 2, widths, scale=scale) for scale in scales * 2]
        proves(Ensemble(tuple(nets)), random_domain(rng), NeuronSearch())


@pytest.mark.parametrize("mixed", [(1e6, 1e-6), (1e-6, 1e6)], ids=repr)
def test_huge_layers_before_tiny_ones_agree_with_enumeration(mixed):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        net = random_network(rng, 2, (5,))
        pairs = zip(mixed, net.layers(), strict=True)
        layers = [(scale * w, scale * b) for scale, (w, b) in pairs]
        scaled = Network(*zip(*layers, strict=True))
        proves(Ensemble((net, scaled)), random_domain(rng), NeuronSearch())


@COMPILED
@pytest.mark.parametrize("backend", ["highs", "scip"])
def test_many_inputs_agree_with_milp_solvers(backend, rng):
    if backend == "scip":
        pytest.importorskip("pyscipopt")
    for inputs, widths in ((14, (9, 8)), (18, (8,)), (25, (6, 5)), (40, (7,))):
        ensemble = random_ensemble(rng, 2, inputs, widths)
        problem = canonical(ensemble, random_domain(rng, inputs))
        mine = NeuronSearch().solve(problem, Tools(Limits(seconds=60)))
        other = BigM(backend).solve(problem, Tools(Limits(seconds=60)))
        assert mine.status is other.status is Status.OPTIMAL
        assert mine.value == pytest.approx(other.value, rel=2e-4)
        assert mine.bound >= other.value - 1e-9
        assert other.bound >= mine.value - 1e-9


@COMPILED
def test_both_searches_of_the_engine_agree(rng):
    for inputs, widths in ((3, (8, 8)), (5, (6, 6, 6)), (8, (12,)), (10, (6, 5))):
        problem = canonical(
            random_ensemble(rng, 3, inputs, widths, weighted=True),
            random_domain(rng, inputs),
        )
        tools = Tools(Limits(gap=1e-6, seconds=60))
        boxes, neurons = (m.solve(problem, tools) for m in (BoxSearch(), COLD))
        assert boxes.status is neurons.status is Status.OPTIMAL
        assert neurons.bound >= boxes.value
        assert boxes.bound >= neurons.value


def hard_case(seed=3, inputs=15, widths=(9, 8)):
    """Some hundreds of nodes; no end in sight with two layers of 20."""
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 3, inputs, widths)
    return canonical(ensemble, Domain([-1.0] * inputs, [1.0] * inputs))


def endless_case():
    return hard_case(inputs=20, widths=(20, 20))


def assert_valid(problem, result):
    points = problem.domain.sample(20_000, np.random.default_rng(0))
    assert problem.values(points).max() <= result.bound
    assert problem.values(result.x)[0] == result.value <= result.bound


@COMPILED
def test_threads_processes_and_units_agree():
    problem = hard_case()
    method = NeuronSearch(tightening_nodes=0)
    serial = method.solve(problem, Tools())
    assert serial.nodes > 600
    answers = [method.solve(problem, Tools(threads=2))]
    for executor in (ThreadPoolExecutor, ProcessPoolExecutor):
        with executor(2) as pool:
            tools = Tools(threads=2, executor=pool)
            answers.append(method.solve(problem, tools))
            answers.append(NeuronSearch().solve(problem, tools))
    for answer in answers:
        assert answer.status is Status.OPTIMAL
        assert answer.value == pytest.approx(serial.value, rel=2e-4)
        assert answer.bound >= serial.value
        assert serial.bound >= answer.value


@COMPILED
def test_a_dask_cluster_agrees():
    distributed = pytest.importorskip("distributed")
    problem = hard_case()
    serial = NeuronSearch().solve(problem, Tools())
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        answer = NeuronSearch().solve(problem, Tools(threads=2, executor=client))
    assert answer.status is Status.OPTIMAL
    assert answer.value == pytest.approx(serial.value, rel=2e-4)
    assert answer.bound >= serial.value


@COMPILED
def test_one_thread_and_a_seed_repeat_exactly():
    problem = endless_case()
    tools = Tools(Limits(nodes=1500), seed=5)
    method = NeuronSearch(tightening_nodes=20)
    first, second = (method.solve(problem, tools) for _ in range(2))
    assert first.nodes == second.nodes
    assert first.bound == second.bound
    assert first.value == second.value


@COMPILED
def test_the_order_of_one_thread_does_not_depend_on_the_clock():
    """Explored in one go or in pieces, the open nodes are the same."""
    problem = hard_case()
    bounds = problem.root
    left = []
    for piece in (300, 7):
        tree = Signs(bounds).open(problem, 1e-4)
        tree.plant()
        done = 0
        while done < 300:
            size = min(piece, 300 - done)
            done += tree.explore(size, math.inf, 1e9, dive=1, threads=1)
        left.append(tree.take(tree.open))
    np.testing.assert_array_equal(left[0], left[1])


@COMPILED
@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor])
def test_limits_hold(executor):
    problem = endless_case()
    for limits, status in (
        (Limits(seconds=0.6), Status.TIME_LIMIT),
        (Limits(nodes=64), Status.NODE_LIMIT),
        (Limits(nodes=900), Status.NODE_LIMIT),
    ):
        with executor(2) if executor else nullcontext() as pool:
            tools = Tools(limits, threads=1 if pool is None else 2, executor=pool)
            result = NeuronSearch(tightening_nodes=10).solve(problem, tools)
        assert result.status is status
        assert result.nodes < limits.nodes + 100
        assert_valid(problem, result)
        bounds = [event.bound for event in result.history]
        assert all(a >= b for a, b in itertools.pairwise(bounds))


@COMPILED
def test_a_small_memory_dives_and_still_proves():
    problem = hard_case()
    roomy = NeuronSearch(tightening_nodes=0).solve(problem, Tools())
    tight = NeuronSearch(tightening_nodes=0).solve(problem, Tools(Limits(memory=1.0)))
    assert tight.status is Status.OPTIMAL
    assert tight.value == pytest.approx(roomy.value, rel=2e-4)
    assert tight.bound >= roomy.value


@COMPILED
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("phase", ["bounds", "search"])
def test_ctrl_c_ends_a_search_with_what_is_proved(threads, phase):
    problem = endless_case()
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))

    def start(progress):
        if timer.ident is None and (phase == "bounds" or progress.nodes > 700):
            timer.start()

    tools = Tools(Limits(seconds=200), threads=threads, callback=start)
    nodes = 100_000 if phase == "bounds" else 2
    result = NeuronSearch(tightening_nodes=nodes).solve(problem, tools)
    assert result.status is Status.INTERRUPTED
    assert sum(result.seconds.values()) < 100
    assert_valid(problem, result)


@COMPILED
@pytest.mark.parametrize("limit", [1, 2, 10.5])
def test_a_limit_of_few_nodes_holds_without_the_extension(limit, monkeypatch):
    monkeypatch.setattr(schemes, "kernel", lambda: None)
    problem = hard_case()
    result = COLD.solve(problem, Tools(Limits(nodes=limit)))
    assert result.status is Status.NODE_LIMIT
    assert result.nodes <= math.ceil(limit)
    assert_valid(problem, result)


@pytest.mark.parametrize("phase", ["values", "bounds", "search"])
def test_the_callback_is_asked_in_every_phase(phase):
    phases = set()
    wide = hard_case(inputs=40, widths=(60, 60))

    def told(progress):
        phases.add(progress.phase)
        return progress.phase == phase

    tools = Tools(Limits(seconds=100), callback=told)
    result = NeuronSearch(tightening_nodes=5).solve(wide, tools)
    assert result.status is Status.INTERRUPTED
    assert phase in phases
    assert math.isfinite(result.bound)


@COMPILED
def test_ctrl_c_leaves_no_work_in_the_executor():
    problem = hard_case(inputs=40, widths=(60, 60))
    with ThreadPoolExecutor(1) as pool:
        submitted = []
        original = pool.submit

        def submit(*work):
            submitted.append(original(*work))
            if len(submitted) == 3:
                signal.raise_signal(signal.SIGINT)
            return submitted[-1]

        pool.submit = submit
        result = NeuronSearch().solve(problem, Tools(threads=2, executor=pool))
        assert result.status is Status.INTERRUPTED
        assert len(submitted) <= 4
        assert all(f.done() or f.running() for f in submitted[:-1])


@pytest.mark.parametrize(
    "wrong",
    [{"starts": -1}, {"polished": 1.5}, {"dive": 0}, {"tightening_nodes": -5},
     {"tightening_nodes": 2.5}],
    ids=repr,
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="Expected"):
        NeuronSearch(**wrong)


def test_a_callback_stops_the_search():
    problem = endless_case()
    tools = Tools(Limits(nodes=10**6), callback=lambda progress: progress.nodes > 0)
    result = NeuronSearch(tightening_nodes=0).solve(problem, tools)
    assert result.status is Status.INTERRUPTED
    assert_valid(problem, result)
