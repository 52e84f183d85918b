"""Networks with other activations than ReLU: bounds are proofs, searches end."""

import itertools

import mpmath
import numpy as np
import pytest

from ennopt.activations import ACTIVATIONS, ELU, RELU, Mixed, ReLU, Sigmoid, Tanh
from ennopt.canonical import Canonical, UnsupportedProblemError
from ennopt.domain import Domain, Rows
from ennopt.domain.regions import NearRows
from ennopt.domain.values import Values
from ennopt.engine import schemes
from ennopt.engine.auto import Auto
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import Fate, NodeModel, Nodes, NodeSettings
from ennopt.engine.program import SignPrograms
from ennopt.engine.schemes import Signs
from ennopt.engine.sign_tightening import SignTightening
from ennopt.engine.values import ascend, cell_forms, follow
from ennopt.milp.formulation import big_m, sub_network
from ennopt.network import Ensemble, Network, read_npz
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.lagrangian import LagrangianSearch
from ennopt.paper.root_bound import RootBound
from ennopt.paper.targeted import Targeted
from ennopt.paper.two_phase import TwoPhase
from ennopt.problem import Problem
from ennopt.result import Status
from ennopt.run import Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.relaxation import Crown, Interval
from oracles import (
    canonical,
    grid_maximum,
    random_domain,
    random_network,
    smooth_case,
    smooth_network,
)

NAMES = [name for name in ACTIVATIONS if name != "relu"]
SETTINGS = NodeSettings(max_steps=0, output_lines=False, programs=0)


def random_boxes(model, domain, count, rng):
    nodes = Nodes.unpacked(np.repeat(Nodes.root(model).packed(), count, axis=0), model)
    a, b = domain.sample(count, rng), domain.sample(count, rng)
    b = a + rng.choice([1.0, 0.1, 1e-3, 1e-8, 0.0], size=(count, 1)) * (b - a)
    nodes.lower, nodes.upper = np.minimum(a, b), np.maximum(a, b)
    nodes.lower[0], nodes.upper[0] = domain.lower, domain.upper
    return nodes


def points_of(lower, upper, rng, count=200):
    corners = rng.integers(0, 2, size=(count // 3, lower.size))
    shares = np.concatenate([corners, rng.random((count - len(corners), lower.size))])
    return np.clip(lower + shares * (upper - lower), lower, upper)


def test_no_sample_beats_the_bound_of_its_node(rng):
    for _ in range(40):
        ensemble, domain = smooth_case(rng)
        model = NodeModel(canonical(ensemble, domain))
        nodes = random_boxes(model, domain, 20, rng)
        lower, upper = nodes.lower.copy(), nodes.upper.copy()
        bound_nodes(model, SETTINGS, nodes, -np.inf)
        for i in range(20):
            values = ensemble(points_of(lower[i], upper[i], rng))[:, 0]
            assert values.max() <= nodes.bound[i] + 1e-13 * np.abs(values).max()


def test_what_a_cut_leaves_out_is_below_the_cutoff(rng):
    for _ in range(25):
        ensemble, domain = smooth_case(rng, 3)
        model = NodeModel(canonical(ensemble, domain))
        nodes = random_boxes(model, domain, 10, rng)
        cutoff = float(ensemble(domain.sample(1, rng))[0, 0])
        starts = [(nodes.lower[i].copy(), nodes.upper[i].copy()) for i in range(10)]
        for _ in range(3):  # the majorant of each round is the cut of the next
            out = bound_nodes(model, SETTINGS, nodes, cutoff)
            for i, (lower, upper) in enumerate(starts):
                points = points_of(lower, upper, rng)
                better = ensemble(points)[:, 0] > cutoff + 1e-9
                kept = (points >= nodes.lower[i]) & (points <= nodes.upper[i])
                assert not (better & ~kept.all(axis=1)).any()
                assert not (better.any() and out.fate[i] == Fate.CLOSED)


def test_bounds_of_neurons_contain_what_is_computed(rng):
    for _ in range(30):
        ensemble, domain = smooth_case(rng)
        problem = Canonical.sum_of(ensemble.members, domain)
        points = points_of(domain.lower, domain.upper, rng)
        seen = [n.preactivations(points) for n in problem.networks]
        for bounds in (
            problem.root,
            Interval().tighten(problem),
            Crown().tighten(problem),
        ):
            assert bounds.contains(seen)
        for i, sizes in enumerate(problem.row_sizes):
            for size, h in zip(sizes, seen[i], strict=True):
                assert np.all(np.abs(h) <= size)


def exactly(net, x):
    """The output in arithmetic of 50 digits."""
    exact = {
        "relu": lambda h: max(h, mpmath.mpf(0)),
        "tanh": mpmath.tanh,
        "sigmoid": lambda h: 1 / (1 + mpmath.exp(-h)),
        "softplus": lambda h: mpmath.log1p(mpmath.exp(h)),
        "gelu": lambda h: h * mpmath.erfc(-h / mpmath.sqrt(2)) / 2,
    }
    y = mpmath.matrix([mpmath.mpf(float(v)) for v in x])
    for k, (w, b) in enumerate(net.layers()):
        h = mpmath.matrix(w.tolist()) * y + mpmath.matrix(b.tolist())
        y = h
        if k < len(net.activations):
            y = mpmath.matrix([exact[net.activations[k].name](v) for v in h])
    return y[0]


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e-3, 1e5])
def test_bounds_hold_in_exact_arithmetic(scale, rng):
    # On a point the bound is the value and the rounding margin, nothing else.
    with mpmath.workdps(50):
        for name in ("tanh", "sigmoid", "softplus", "gelu", "relu"):
            net = smooth_network(rng, 2, [6, 5], [name, "tanh"], scale)
            domain = Domain([-1.0, -1.0], [1.0, 1.0])
            model = NodeModel(Canonical.sum_of([net], domain))
            x = domain.sample(4, rng)
            nodes = random_boxes(model, domain, 4, rng)
            nodes.lower, nodes.upper = x.copy(), x.copy()
            bound_nodes(model, SETTINGS, nodes, -np.inf)
            for i in range(4):
                value, bound = exactly(net, x[i]), mpmath.mpf(float(nodes.bound[i]))
                assert value <= bound
                assert bound <= value + 1e-8 * (abs(value) + scale**2)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_of_shrinking_boxes_close_in_quadratically(name, rng):
    net = smooth_network(rng, 2, [8, 8], [name, name])
    domain = Domain([-1.0, -1.0], [1.0, 1.0])
    model = NodeModel(Canonical.sum_of([net], domain))
    x = 0.7 * domain.sample(20, rng)
    gaps = []
    for radius in (0.1, 0.01, 0.001):
        nodes = random_boxes(model, domain, 20, rng)
        nodes.lower, nodes.upper = x - radius, x + radius
        bound_nodes(model, SETTINGS, nodes, -np.inf)
        slope = np.abs(net.gradient(x)[:, 0]).sum(axis=1)
        gaps.append(np.max(nodes.bound - net(x)[:, 0] - radius * slope))
    assert gaps[1] <= gaps[0] / 30
    assert gaps[2] <= gaps[1] / 30


def proves(ensemble, domain, best, method=None, gap=1e-4):
    problem = canonical(ensemble, domain)
    result = (method or BoxSearch()).solve(problem, Tools.of(gap=gap, threads=1))
    assert result.status is Status.OPTIMAL
    assert result.bound >= best - 1e-12 * max(1.0, abs(best))
    assert result.value >= best - problem.tolerance(best, gap)
    assert ensemble(result.x)[0] == result.value
    assert domain.contains(result.x)
    return result


@pytest.mark.parametrize("name", NAMES)
def test_searches_agree_with_a_dense_grid(name, rng):
    for inputs, widths, count in ((1, (8,), 1), (2, (6, 5), 2), (3, (6,), 2)):
        nets = [
            smooth_network(rng, inputs, widths, [name] * len(widths))
            for _ in range(count)
        ]
        ensemble, domain = Ensemble(nets), random_domain(rng, inputs)
        per_side = {1: 20_001, 2: 301, 3: 61}[inputs]
        best = grid_maximum(ensemble, domain, per_side)
        proves(ensemble, domain, best)


def test_searches_without_the_extension_agree_with_a_dense_grid(rng, monkeypatch):
    monkeypatch.setattr(schemes, "kernel", lambda: None)
    for _ in range(6):
        ensemble, domain = smooth_case(rng, 2)
        proves(ensemble, domain, grid_maximum(ensemble, domain, 301))


def test_mixed_ensembles_agree_with_a_dense_grid(rng):
    for _ in range(12):
        ensemble, domain = smooth_case(rng, 2)
        best = grid_maximum(ensemble, domain, 301)
        proves(ensemble, domain, best)


def test_a_search_without_a_first_value_ends(rng):
    for _ in range(4):
        ensemble, domain = smooth_case(rng, 2)
        best = grid_maximum(ensemble, domain, 301)
        proves(ensemble, domain, best, BoxSearch(starts=0, polished=0))


def test_relu_bounded_as_any_activation_has_the_same_optimum(rng):
    # A tanh neuron that the output ignores makes it another problem for the search.
    for _ in range(5):
        plain = random_network(rng, 2, (5, 4))
        more = [np.pad(plain.weights[0], ((0, 1), (0, 0)), constant_values=0.5)]
        more += [np.pad(plain.weights[1], ((0, 0), (0, 1))), plain.weights[2]]
        biases = [np.pad(plain.biases[0], (0, 1)), *plain.biases[1:]]
        both = Network(more, biases, [Mixed(((RELU, 5), (Tanh(), 1))), RELU])
        domain = random_domain(rng, 2)
        best = BoxSearch().solve(canonical(Ensemble([plain]), domain), Tools())
        proves(Ensemble([both]), domain, best.value)


def test_a_small_gap_is_reached(rng):
    ensemble = Ensemble([smooth_network(rng, 2, [6], ["tanh"])])
    domain = Domain([-1.0, -1.0], [1.0, 1.0])
    proves(ensemble, domain, grid_maximum(ensemble, domain, 301), gap=1e-8)


def test_one_point_and_inputs_without_width(rng):
    net = smooth_network(rng, 2, [6, 4], ["gelu", "sigmoid"])
    point = Domain([0.3, -0.2], [0.3, -0.2])
    proves(Ensemble([net]), point, float(net([0.3, -0.2])[0]))
    line = Domain([0.3, -1.0], [0.3, 1.0])
    side = np.column_stack([np.full(2001, 0.3), np.linspace(-1.0, 1.0, 2001)])
    proves(Ensemble([net]), line, float(net(side).max()))


def test_minimization_is_the_other_side(rng):
    net = smooth_network(rng, 2, [6], ["softplus"])
    ensemble, domain = Ensemble([net]), random_domain(rng, 2)
    result = BoxSearch().solve(Problem(ensemble, domain, "min"), Tools())
    lowest = -grid_maximum(ensemble.negated(), domain, 301)
    assert result.status is Status.OPTIMAL
    assert result.bound <= lowest + 1e-12
    assert result.value <= lowest + 1e-4 * abs(lowest) + 1e-6


def test_constraints_whole_numbers_and_regions_hold(rng):
    for _ in range(4):
        ensemble = Ensemble([smooth_network(rng, 2, [6, 4], ["tanh", "silu"])])
        rows = Rows([[1.0, 1.0]], [-np.inf], [0.5])
        near = NearRows.rows(rng.uniform(-2, 2, (5, 2)), [0.8, 0.8])
        domain = Domain(
            [-2.0, -2.0], [2.0, 2.0], rows=rows, values=Values.of(2, whole=[0]),
            regions=(near,),
        )  # fmt: skip
        x = np.array(
            list(itertools.product(np.arange(-2.0, 3.0), np.linspace(-2, 2, 2001)))
        )
        x = x[domain.feasible(x)]
        if not len(x):
            continue
        result = proves(ensemble, domain, float(ensemble(x).max()))
        assert result.x[0] == np.rint(result.x[0])


def test_more_than_one_process_may_search(rng):
    from concurrent.futures import ThreadPoolExecutor

    ensemble = Ensemble([smooth_network(rng, 3, [10, 8], ["tanh", "tanh"])])
    domain = random_domain(rng, 3)
    with ThreadPoolExecutor(2) as pool:
        tools = Tools.of(executor=pool, threads=2)
        result = BoxSearch().solve(canonical(ensemble, domain), tools)
    assert result.status is Status.OPTIMAL
    assert result.bound >= grid_maximum(ensemble, domain, 41)


def test_gradients_are_those_of_the_forward_pass(rng):
    for _ in range(20):
        ensemble, domain = smooth_case(rng)
        x = domain.sample(1, rng)[0]
        slope, step = ensemble.gradient(x)[0], 1e-6
        for p in range(x.size):
            move = step * (np.arange(x.size) == p)
            rate = (ensemble(x + move)[0] - ensemble(x - move)[0]) / (2 * step)
            assert rate == pytest.approx(slope[p], abs=2e-5 * (1 + abs(rate)))


def test_following_the_gradient_reaches_a_stationary_point(rng):
    for _ in range(5):
        ensemble = Ensemble([smooth_network(rng, 3, [8], ["tanh"])])
        domain = Domain([-3.0] * 3, [3.0] * 3)
        problem = canonical(ensemble, domain)
        starts, _ = ascend(problem, domain.sample(8, rng))
        x = follow(problem, starts[0])
        slope = ensemble.gradient(x)[0]
        moved = np.clip(x + slope, domain.lower, domain.upper)
        assert ensemble(x)[0] >= ensemble(starts[0])[0]
        assert np.abs(slope * (moved - x)).max() <= 1e-5


# What is made for ReLU alone says so.


def smooth_problem():
    net = Network([[[1.0, 2.0]], [[1.0]], [[1.0]]], [[0.0]] * 3, ["relu", "tanh"])
    return canonical(Ensemble([net]), Domain([-1.0, -1.0], [1.0, 1.0]))


@pytest.mark.parametrize(
    "method",
    [
        NeuronSearch(),
        BigM(),
        BranchAndCut(),
        TwoPhase(),
        LagrangianSearch(),
        RootBound(),
    ],
    ids=lambda method: type(method).__name__,
)
def test_other_methods_refuse_by_name(method):
    name = type(method).__name__
    with pytest.raises(
        UnsupportedProblemError, match=f"activations other than ReLU, which {name} "
    ):
        method.solve(smooth_problem(), Tools())


@pytest.mark.parametrize(
    "work",
    [
        lambda p: LpTightening().tighten(p),
        lambda p: MilpTightening().tighten(p),
        lambda p: SignTightening().tighten(p),
        lambda p: Targeted().tighten(p),
        lambda p: SignPrograms(p, p.root),
        lambda p: big_m(p, p.root),
        lambda p: sub_network(p, 1, p.root),
        lambda p: cell_forms(p, np.zeros(2)),
        lambda p: Signs(p.root).open(p, 1e-4),
        lambda p: Signs(p.root).open(p, 1e-4, plain=True),
    ],
)  # fmt: skip
def test_what_works_on_signs_refuses_by_name(work):
    with pytest.raises(UnsupportedProblemError, match="activations other than ReLU"):
        work(smooth_problem())


def test_auto_branches_on_inputs_however_many(rng):
    net = smooth_network(rng, 20, [3], ["tanh"])
    choice = Auto().choose(Problem(Ensemble([net]), random_domain(rng, 20)))
    assert isinstance(choice.method, BoxSearch)
    assert "activations other than ReLU" in choice.reason


# Networks and files.


def test_a_network_takes_names_and_objects():
    weights, biases = [[[1.0]], [[1.0]], [[1.0]]], [[0.0]] * 3
    net = Network(weights, biases, ["tanh", ELU(0.5)])
    assert net.activations == (Tanh(), ELU(0.5))
    assert not net.is_relu
    assert repr(net) == "Network(1 -> 1 tanh -> 1 elu(0.5) -> 1)"
    assert Network(weights, biases).activations == (ReLU(), ReLU())
    with pytest.raises(ValueError, match="for each of 2 hidden layers, got 1"):
        Network(weights, biases, ["tanh"])
    with pytest.raises(ValueError, match="Expected an activation among"):
        Network(weights, biases, ["tanh", "sine"])
    with pytest.raises(TypeError, match="Expected an activation or its name, got int"):
        Network(weights, biases, ["tanh", 3])
    with pytest.raises(ValueError, match="of 1 neurons, got 2 at layer 0"):
        Network(weights, biases, [Mixed(((Tanh(), 2),)), "relu"])


def test_folding_keeps_the_activations(rng):
    net = smooth_network(rng, 2, [3, 4], ["tanh", "gelu"])
    x = rng.normal(size=(5, 2))
    assert np.allclose(net.fold_input(2.0, 1.0)(x), net(2.0 * x + 1.0))
    assert np.allclose(net.fold_output(2.0, 1.0)(x), 2.0 * net(x) + 1.0)
    assert np.allclose(net.combine_outputs([[3.0]])(x), 3.0 * net(x))
    wide = net.spread_inputs([2, 0], 3)
    assert np.allclose(wide(rng.normal(size=(5, 3)) * 0), net(x * 0))
    assert wide.activations == net.activations


def test_members_of_other_activations_are_not_merged(rng):
    net = smooth_network(rng, 2, [3], ["tanh"])
    twin = Network(net.weights, net.biases, ["sigmoid"])
    assert (
        len(canonical(Ensemble([net, twin, net]), random_domain(rng, 2)).networks) == 2
    )


def test_a_file_keeps_the_activations(rng, tmp_path):
    kinds = [Mixed(((ReLU(), 1), (Sigmoid(), 2))), ELU(0.25)]
    nets = [smooth_network(rng, 2, [3, 4], kinds), random_network(rng, 2, (3,))]
    Ensemble(nets).save(tmp_path / "model.npz")
    again = read_npz(tmp_path / "model.npz")
    assert again.members[0].activations == tuple(kinds)
    assert again.members[1].is_relu
    x = rng.normal(size=(5, 2))
    assert np.array_equal(again(x), Ensemble(nets)(x))


def test_a_file_with_an_unknown_activation_is_refused(tmp_path):
    one, zero = np.ones((1, 1)), np.zeros(1)
    layers = {f"net0.W{k}": one for k in range(2)} | {
        f"net0.b{k}": zero for k in range(2)
    }
    np.savez(tmp_path / "model.npz", **layers, **{"net0.activations": ["sine"]})
    with pytest.raises(ValueError, match=r"got 'sine'\. In net0 of"):
        read_npz(tmp_path / "model.npz")
