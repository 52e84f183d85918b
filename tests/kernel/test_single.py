"""Bounds of neurons in float32: sound, as specified, only where they are precise."""

import numpy as np
import pytest
from ways import MODULE, SETS, boxes_in, fresh, settings_of

from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import compile_model
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import ON, Fate, NodeModel, Nodes, NodeSettings
from ennopt.network import Ensemble, Network
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools
from oracles import (
    canonical,
    random_domain,
    random_ensemble,
    random_network,
)

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")
SINGLE = NodeSettings(single=True)
SHAPES = [
    (3, 2, (5, 4)), (2, 5, (7, 6, 5)), (1, 11, (20, 20, 20, 20)), (2, 3, (9,) * 8),
]  # fmt: skip


def bounded(case, settings, rows, cutoff, name):
    """Nodes, fates, and bounds of the neurons by the kernel."""
    model, compiled = case
    found, told, _, low, high, _ = MODULE.bound_boxes(
        compiled, settings_of(settings), rows, cutoff, name
    )
    return Nodes.unpacked(found, model), told[:, 0], low, high


def cases(rng):
    """Ensembles with the rows of boxes of all sizes, and a level to reach."""
    for members, inputs, widths in SHAPES:
        ensemble = random_ensemble(rng, members, inputs, widths, weighted=True)
        domain = random_domain(rng, inputs)
        problem = canonical(ensemble, domain)
        case = NodeModel(problem), compile_model(problem)
        rows = fresh(case[0], *boxes_in(domain, 37, rng)).packed()
        level = float(np.quantile(ensemble(domain.sample(200, rng))[:, 0], 0.9))
        yield ensemble, case, rows, level


@pytest.mark.parametrize("name", SETS)
def test_float32_is_as_specified(name, rng):
    """Where lines are chosen alike: a share that is a tie may fall to either side."""
    apart = []
    for _, case, start, level in cases(rng):
        rows = start
        for cutoff in (-np.inf, level):
            nodes = Nodes.unpacked(rows, case[0])
            spec = bound_nodes(case[0], SINGLE, nodes, cutoff)
            mine, fate, low, high = bounded(case, SINGLE, rows, cutoff, name)
            alive = (fate != Fate.CLOSED) & (spec.fate != Fate.CLOSED)
            both = (mine.states < ON) & (nodes.states < ON) & alive[:, None]
            width = np.where(both, spec.upper - spec.lower, 1.0)
            for got, wanted in ((low, spec.lower), (high, spec.upper)):
                apart.append(((got - wanted) / width)[both])
            rows = nodes.packed()
    apart = np.abs(np.concatenate(apart))
    assert apart.size > 1000
    assert np.quantile(apart, 0.9) < 1e-5
    assert np.quantile(apart, 0.99) < 0.02


@pytest.mark.parametrize("name", SETS)
def test_float32_widens_bounds_by_little(name, rng):
    for _, case, rows, level in cases(rng):
        for cutoff in (-np.inf, level):
            wide, fate, low, high = bounded(case, SINGLE, rows, cutoff, name)
            mine, other, least, most = bounded(case, NodeSettings(), rows, cutoff, name)
            alive = (fate != Fate.CLOSED) & (other != Fate.CLOSED)
            both = (wide.states < ON) & (mine.states < ON) & alive[:, None]
            wider = ((high - low)[both] + 1e-12) / ((most - least)[both] + 1e-12)
            assert np.quantile(wider, 0.9) < 1.01
            assert np.quantile(wider, 0.1) > 0.99
            rows = mine.packed()


@pytest.mark.parametrize("name", SETS)
def test_float32_bounds_hold_at_samples(name, rng):
    for ensemble, case, rows, level in cases(rng):
        for cutoff in (-np.inf, level):
            boxes = Nodes.unpacked(rows, case[0])
            found, fate, low, high = bounded(case, SINGLE, rows, cutoff, name)
            for i in range(len(rows)):
                share = rng.random((60, case[0].num_inputs))
                x = boxes.lower[i] + share * (boxes.upper[i] - boxes.lower[i])
                value = ensemble(x)[:, 0]
                x, value = x[value > cutoff], value[value > cutoff]
                if not len(x):
                    continue
                assert fate[i] != Fate.CLOSED
                assert value.max() <= found.bound[i] + 1e-9
                hidden = np.concatenate(
                    [h for m in case[0].networks for h in m.preactivations(x)[:-1]],
                    axis=1,
                )
                free = found.states[i] < ON
                assert np.all(hidden[:, free] >= low[i, free] - 1e-9)
                assert np.all(hidden[:, free] <= high[i, free] + 1e-9)
                assert np.all(hidden[:, found.states[i] == ON] >= -1e-9)
                assert np.all(hidden[:, found.states[i] > ON] <= 1e-9)
            rows = found.packed()


@pytest.mark.parametrize("name", SETS)
def test_a_node_is_bounded_alike_whatever_its_neighbours(name, rng):
    for _, case, rows, _ in cases(rng):
        together = bounded(case, SINGLE, rows, -np.inf, name)
        for i in range(0, len(rows), 5):
            alone = bounded(case, SINGLE, rows[i : i + 1], -np.inf, name)
            np.testing.assert_array_equal(alone[0].states[0], together[0].states[i])
            free = alone[0].states[0] < ON
            for one, all_of_them in zip(alone[2:], together[2:], strict=True):
                np.testing.assert_allclose(
                    one[0, free], all_of_them[i, free], rtol=1e-4, atol=1e-6
                )


@pytest.mark.parametrize(("widths", "radius"), [
    ((10,) * 12, 0.3), ((20,) * 10, 0.1), ((3,) * 30, 1.0), ((64, 64), 0.3),
])  # fmt: skip
def test_searches_end_where_float32_is_used_and_where_it_is_not(widths, radius):
    """Networks on which float32 is precise, and others on which it is not used."""
    for seed in range(3):
        net = random_network(np.random.default_rng(seed), 3, widths)
        problem = Problem(Ensemble((net,)), Domain([-radius] * 3, [radius] * 3))
        tools = Tools(Limits(gap=1e-6, nodes=20_000))
        result = BoxSearch(gives_way=False).solve(problem, tools)
        assert result.status in (Status.OPTIMAL, Status.PRECISION_LIMIT)
        if result.status is Status.PRECISION_LIMIT:  # as in float64
            assert len(widths) > 20


def weights_that_cancel(lost):
    """A neuron whose slope is `lost` times the first input, what two rows differ by.

    Both rows cancel by themselves, so their neurons hardly move; they differ by less
    than float32 tells of weights of that size. Another neuron has a wide range.
    """
    large = 2.0**23
    return Network(
        (
            np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
            np.array(
                [
                    [large + lost / 2.0, -large, 0.0],
                    [large - lost / 2.0, -large, 0.0],
                    [0.0, 0.0, large],
                ]
            ),
            np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]]),
            np.array([[1.0, 1e-9]]),
        ),
        (
            np.full(3, 4.0),
            np.array([200.0, 200.0, 0.0]),
            np.array([-4.0 * lost, -4.0 * large]),
            np.zeros(1),
        ),
    )


@pytest.mark.parametrize("name", SETS)
def test_rounded_weights_count_although_neurons_hardly_move(name):
    for lost in (0.45, -0.45, 0.2):
        net = weights_that_cancel(lost)
        domain = Domain([-1.0, -1.0], [1.0, 1.0])
        problem = canonical(Ensemble((net,)), domain)
        case = NodeModel(problem), compile_model(problem)
        rows = Nodes.root(case[0]).packed()
        found, _, low, high = bounded(case, SINGLE, rows, -np.inf, name)
        assert found.states[0, 6] < ON
        assert low[0, 6] <= -abs(lost) < abs(lost) <= high[0, 6]
        assert found.bound[0] >= abs(lost)


def test_an_objective_that_float32_cannot_tell_from_zero_is_found():
    ensemble = Ensemble((weights_that_cancel(0.45),))
    problem = Problem(ensemble, Domain([-1.0, -1.0], [1.0, 1.0]))
    result = BoxSearch().solve(problem, Tools())
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(ensemble([1.0, 1.0])[0])
    assert result.bound >= result.value
