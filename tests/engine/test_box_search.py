"""BoxSearch against enumeration, against itself, and at its limits."""

import itertools

import numpy as np
import pytest

from ennopt.domain import Domain
from ennopt.engine import schemes
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.compiled import kernel
from ennopt.engine.nodes import NodeSettings
from ennopt.engine.schemes import Boxes
from ennopt.network import Ensemble, Network
from ennopt.paper.bigm import BigM
from ennopt.result import Limits, Status
from ennopt.run import Tools
from ennopt.tightening.relaxation import Crown
from oracles import (
    DEGENERATE,
    canonical,
    exact_maximum,
    random_case,
    random_domain,
    random_ensemble,
    random_network,
)

COLD = BoxSearch(starts=0, polished=0)
COMPILED = pytest.mark.skipif(kernel() is None, reason="the extension is not built")


@pytest.fixture
def plain(monkeypatch):
    """The search as it runs without the extension."""
    monkeypatch.setattr(schemes, "kernel", lambda: None)


def proves(ensemble, domain, method, tools=None):
    problem = canonical(ensemble, domain)
    result = method.solve(problem, tools or Tools())
    value, _ = exact_maximum(ensemble, domain)
    size = max(1.0, abs(value))
    assert result.status is Status.OPTIMAL
    assert result.bound >= value - 1e-12 * size
    assert result.value <= value + 1e-9 * size
    tolerance = problem.tolerance(value, 1e-4)
    assert result.value >= value - 1.01 * tolerance - 1e-9 * size
    assert ensemble(result.x)[0] == result.value
    assert domain.contains(result.x)
    return result


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_degenerate_ensembles_agree_with_enumeration(case, seed):
    ensemble, domain = DEGENERATE[case](np.random.default_rng(seed))
    proves(ensemble, domain, BoxSearch())


@pytest.mark.parametrize("block", range(4))
def test_random_ensembles_agree_with_enumeration_from_a_cold_start(block):
    for seed in range(50 * block, 50 * block + 50):
        proves(*random_case(np.random.default_rng(seed)), COLD)


def test_the_search_without_the_extension_agrees_with_enumeration(plain):
    for seed in range(12):
        proves(*random_case(np.random.default_rng(seed)), COLD)


@COMPILED
@pytest.mark.parametrize("name", kernel().instruction_sets() if kernel() else [])
def test_every_instruction_set_agrees_with_enumeration(name):
    method = BoxSearch(starts=0, polished=0, instruction_set=name)
    for seed in range(300, 330):
        proves(*random_case(np.random.default_rng(seed)), method)


@pytest.mark.parametrize(
    "method",
    [
        BoxSearch(row_slopes=False, vertex_lines=False),
        BoxSearch(slope_steps=0),
        BoxSearch(dive=1),
        BoxSearch(dive=10**6),
    ],
    ids=repr,
)
def test_settings_change_the_work_and_not_the_answer(method):
    for seed in range(400, 415):
        proves(*random_case(np.random.default_rng(seed)), method)


@COMPILED
@pytest.mark.parametrize(("backend", "gap"), [("highs", 1e-5), ("scip", 1e-6)])
@pytest.mark.parametrize("block", range(4))
def test_small_ensembles_agree_with_two_milp_solvers(backend, gap, block):
    """Each to ten times the solver's margin: at the margin it halves for ever."""
    if backend == "scip":
        pytest.importorskip("pyscipopt")
    tools = Tools(Limits(gap=gap))
    for seed in range(10 * block, 10 * block + 10):
        rng = np.random.default_rng(seed)
        inputs, members = (int(n) for n in rng.integers((2, 1), (5, 3)))
        widths = [int(n) for n in rng.integers(2, 6, size=int(rng.integers(1, 3)))]
        ensemble = random_ensemble(rng, members, inputs, widths, weighted=seed % 3 == 0)
        problem = canonical(ensemble, random_domain(rng, inputs))
        mine = BoxSearch().solve(problem, tools)
        other = BigM(backend, (Crown(),)).solve(problem, tools)
        assert mine.status is other.status is Status.OPTIMAL
        assert abs(mine.value - other.value) <= problem.tolerance(mine.value, gap)
        assert mine.bound >= other.value
        assert other.bound >= mine.value


def proves_in_proportion(ensemble, domain, gap=1e-4):
    """As `proves`, measured by what the sums can reach instead of by one."""
    problem = canonical(ensemble, domain)
    result = BoxSearch().solve(problem, Tools(Limits(gap=gap, seconds=60)))
    exact, _ = exact_maximum(ensemble, domain)
    rounding = 1e-12 * problem.scale
    assert result.bound >= exact - rounding
    assert result.value <= exact + rounding
    allowed = 1.01 * problem.tolerance(exact, gap) + 1e-9 * problem.scale
    assert result.bound - result.value <= allowed
    assert result.status in (Status.OPTIMAL, Status.PRECISION_LIMIT)
    return result


@pytest.mark.parametrize("scales", [(1e6,), (1e-6,), (1e6, 1e-6)], ids=repr)
@pytest.mark.parametrize("widths", [(), (5,), (4, 3)], ids=repr)
def test_huge_and_tiny_weights_agree_with_enumeration(scales, widths):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        nets = [random_network(rng, 2, widths, scale=scale) for scale in scales * 2]
        proves_in_proportion(Ensemble(tuple(nets)), random_domain(rng))


@pytest.mark.parametrize("mixed", [(1e6, 1e-6), (1e-6, 1e6)], ids=repr)
def test_huge_layers_before_tiny_ones_agree_with_enumeration(mixed):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        nets = []
        for _ in range(2):
            net = random_network(rng, 2, (5,))
            pairs = zip(mixed, net.layers(), strict=True)
            layers = [(scale * w, scale * b) for scale, (w, b) in pairs]
            nets.append(Network(*zip(*layers, strict=True)))
        proves_in_proportion(Ensemble(tuple(nets)), random_domain(rng))


@COMPILED
@pytest.mark.parametrize("scale", [1e6, 1e-6])
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_ensembles_of_other_sizes_agree_with_enumeration(case, scale):
    for seed in range(3):
        ensemble, domain = DEGENERATE[case](np.random.default_rng(seed))
        proves_in_proportion(ensemble.fold_output(scale, 0.0), domain)
        narrow = Domain(domain.lower / scale, domain.upper / scale)
        proves_in_proportion(ensemble.fold_input(scale, 0.0), narrow)


def separate(hidden, factors, num_inputs, constant=0.0):
    """A network that adds ``factor * ReLU(a x_j + b)`` for each input x_j."""
    first = [[a * (j == p) for p in range(num_inputs)] for j in range(num_inputs)
             for a, _ in hidden]  # fmt: skip
    shifts = [b for _ in range(num_inputs) for _, b in hidden]
    return Network(
        (np.array(first), np.array([list(factors) * num_inputs])),
        (np.array(shifts), np.array([constant])),
    )


TIES = {
    "two equal maxima": (((1, 0), (-1, 0)), (1, 1), 1.0),
    "a flat maximum": (((1, -0.5), (-1, -0.5)), (-1, -1), 0.0),
    "a flat end": (((1, 0), (1, -0.5)), (2, -2), 1.0),
    "flat everywhere": (((1, 0), (-1, 0), (1, 0), (-1, 0)), (1, 1, -1, -1), 0.0),
}
"""Of one input on [-1, 1]: neurons (slope, bias), factors, and the maximum."""


@pytest.mark.parametrize("case", TIES)
@pytest.mark.parametrize("inputs", [1, 2, 4])
@pytest.mark.parametrize("constant", [0.0, 3.0])
def test_ties_and_flat_maxima_are_proved(case, inputs, constant):
    hidden, factors, most = TIES[case]
    net = separate(hidden, factors, inputs, constant)
    problem = canonical(Ensemble((net,)), Domain([-1.0] * inputs, [1.0] * inputs))
    result = BoxSearch().solve(problem, Tools(Limits(gap=1e-6, nodes=20_000)))
    exact = inputs * most + constant
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(exact, abs=1e-12)
    assert exact <= result.bound <= exact + problem.tolerance(exact, 1e-6) + 1e-12


@pytest.mark.parametrize("inputs", [1, 3])
def test_equal_maxima_of_different_members_are_proved(inputs):
    """Members that are largest at opposite corners: their sum is so at both."""
    rising = separate(((1, 0),), (1,), inputs)
    falling = separate(((-1, 0),), (1,), inputs)
    box = Domain([-1.0] * inputs, [1.0] * inputs)
    problem = canonical(Ensemble((rising, falling), weights=[1.0, 1.0]), box)
    result = BoxSearch().solve(problem, Tools(Limits(gap=1e-6, nodes=20_000)))
    assert result.status is Status.OPTIMAL
    assert result.value == inputs <= result.bound


def hard_case(seed=3):
    """A few thousand nodes."""
    rng = np.random.default_rng(seed)
    return canonical(random_ensemble(rng, 3, 6, (16, 16, 16)), random_domain(rng, 6))


@COMPILED
def test_one_thread_and_a_seed_repeat_exactly():
    problem = hard_case()
    tools = Tools(Limits(nodes=2000), seed=5)
    first, second = (BoxSearch().solve(problem, tools) for _ in range(2))
    assert first.nodes == second.nodes
    assert first.bound == second.bound
    assert first.value == second.value


@COMPILED
def test_the_bound_falls_monotonically_and_never_below_the_value():
    result = BoxSearch().solve(hard_case(1), Tools())
    bounds = [event.bound for event in result.history]
    assert all(a >= b for a, b in itertools.pairwise(bounds))
    assert all(event.bound >= event.value for event in result.history)


def test_a_node_limit_stops_with_a_valid_bound():
    problem = hard_case()
    result = BoxSearch().solve(problem, Tools(Limits(nodes=64)))
    assert result.status is Status.NODE_LIMIT
    assert 64 <= result.nodes < 64 + 16
    points = problem.domain.sample(20_000, np.random.default_rng(0))
    assert result.bound >= problem.values(points).max()


def test_a_callback_stops_the_search():
    seen = []

    def stop(progress):
        seen.append(progress)
        return progress.phase == "search"

    problem = hard_case()
    result = BoxSearch().solve(
        problem, Tools(Limits(gap=1e-9, nodes=10**6), callback=stop)
    )
    assert result.status is Status.INTERRUPTED
    assert seen
    assert result.bound >= result.value


def test_a_gap_of_zero_ends_with_a_note_about_rounding():
    net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    problem = canonical(Ensemble([net]), Domain([-2.0], [1.0]))
    result = BoxSearch().solve(problem, Tools(Limits(gap=0.0)))
    assert result.value == 2.0
    assert result.status is Status.PRECISION_LIMIT
    assert result.bound <= 2.0 + 1e-9


def both_trees(problem, x):
    """The tree in NumPy and the compiled one, with one incumbent and no nodes yet."""
    for plain in (True, False):
        tree = Boxes(NodeSettings(programs=0)).open(problem, 1e-4, plain=plain)
        tree.offer(x)
        yield tree


def explored(tree, nodes=np.inf):
    """Explore to the end of so many nodes; how many there were."""
    done = 0
    while tree.open and done < nodes:
        done += tree.explore(nodes - done, 1e9, 1e12, dive=1, threads=1)
    return done


def alike(rows, others):
    """Whether two lists of nodes are the same up to rounding."""
    return rows.shape == others.shape and np.allclose(
        rows, others, rtol=1e-9, atol=1e-12, equal_nan=True
    )


def children_of(tree, node):
    """The nodes that a node becomes, in order, and how many were bounded."""
    tree.add(node)
    worked = explored(tree, 1)
    rows = tree.take(10)
    return rows[np.lexsort(rows.T[::-1])], worked


def nudged(problem, x, node, by):
    """The children in NumPy of a node whose box is smaller in its last digits."""
    other, d = node.copy(), problem.num_inputs
    lower = 3 + d
    other[:, lower : lower + d] *= 1.0 + by
    other[:, lower + d : lower + 2 * d] *= 1.0 - 0.7 * by
    other[:, 3 : 3 + d] *= 1.0 + by
    return children_of(next(both_trees(problem, x)), other)[0]


@COMPILED
@pytest.mark.parametrize("seed", range(6))
def test_the_plain_tree_and_the_compiled_tree_take_the_same_nodes(seed):
    """From the first node to the last, each with the same children and bounds.

    The optimum is known beforehand, so the nodes do not depend on their order.
    """
    rng = np.random.default_rng(seed)
    num_inputs = 2 + seed % 3
    ensemble = random_ensemble(rng, 2, num_inputs, (8, 6))
    domain = Domain([-1.0] * num_inputs, [1.0] * num_inputs)
    problem = canonical(ensemble, domain)
    x = BoxSearch().solve(problem, Tools(Limits(gap=1e-9))).x
    waiting, count, ties = [], 0, 0
    for tree in both_trees(problem, x):
        tree.plant()
        waiting.append(tree.take(1))
    np.testing.assert_array_equal(*waiting)
    waiting = waiting[:1]
    while waiting:
        node, children = waiting.pop(), []
        for tree in both_trees(problem, x):
            rows, worked = children_of(tree, node)
            children.append(rows)
        if not alike(*children):  # a maximum on a kink: rounding chooses slopes
            ties += 1
            moved = [nudged(problem, x, node, by) for by in (1e-14, -1e-14)]
            assert any(alike(children[1], other) for other in moved)
        waiting += [row[None] for row in children[0]]
        count += worked
    assert ties <= 1
    for tree in both_trees(problem, x):
        tree.plant()
        nodes = explored(tree)
        assert ties or nodes == count
        assert tree.bound == pytest.approx(tree.value, rel=1.01e-4)
    assert count > 10


def test_offsets_far_from_zero_keep_the_bound_valid(rng):
    ensemble, domain = random_ensemble(rng, 2, 2, (5, 4)), random_domain(rng, 2)
    far = ensemble.fold_input(1.0, -1e6)
    moved = Domain(domain.lower + 1e6, domain.upper + 1e6)
    result = BoxSearch().solve(canonical(far, moved), Tools(Limits(seconds=20)))
    points = moved.sample(20_000, rng)
    assert result.bound >= far(points).max()


@pytest.mark.parametrize("seed", range(4))
def test_a_constant_in_the_prediction_does_not_change_the_work(seed):
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 3, 3, (20, 20) if seed % 2 else (10, 10, 10))
    domain = Domain([-1.0] * 3, [1.0] * 3)
    tools = Tools(Limits(gap=1e-6))
    first = BoxSearch().solve(canonical(ensemble, domain), tools)
    moved = ensemble.fold_output(1.0, -first.value)  # now the maximum is zero
    limits = Limits(gap=1e-4, nodes=3 * first.nodes)
    answer = BoxSearch().solve(canonical(moved, domain), Tools(limits))
    assert answer.status is Status.OPTIMAL


@COMPILED
@pytest.mark.parametrize("seed", range(60))
def test_searches_over_unit_weights_end(seed):
    rng = np.random.default_rng(seed)
    sizes = [1, *rng.integers(2, 6, size=int(rng.integers(1, 4))).tolist(), 1]
    pairs = list(itertools.pairwise(sizes))
    net = Network(
        tuple(rng.integers(-1, 2, size=(b, a)).astype(float) for a, b in pairs),
        tuple(rng.integers(-1, 2, size=b).astype(float) for _, b in pairs),
    )
    problem = canonical(Ensemble((net,)), Domain([-2.0], [3.0]))
    answer = BoxSearch().solve(problem, Tools(Limits(nodes=50_000)))
    assert answer.status is Status.OPTIMAL


@COMPILED
def test_a_sign_decided_by_a_cut_does_not_outlive_it():
    first = Network(
        (
            [[0.0, 0.0], [1.0, 0.0], [0.0, -1.0]],
            [[0.0, 1.0, -1.0], [-1.0, 1.0, -1.0], [0.0, 0.0, 0.0]],
            [[-1.0, -1.0, 1.0]],
        ),
        ([-1.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [-1.0]),
    )
    second = Network(
        (
            [[-1.0, -1.0], [0.0, 0.0], [0.0, 0.0]],
            [[-1.0, 0.0, 1.0], [-1.0, -1.0, -1.0], [1.0, 0.0, 1.0]],
            [[1.0, 1.0, 0.0]],
        ),
        ([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [1.0]),
    )
    problem = canonical(Ensemble((first, second)), Domain([-3.0, -3.0], [1.0, 1.0]))
    answer = BoxSearch().solve(problem, Tools(Limits(nodes=50_000)))
    assert answer.status is Status.OPTIMAL
    assert answer.value == pytest.approx(0.5, abs=1e-12)
