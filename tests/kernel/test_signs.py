"""Linear programs of held neurons: HiGHS's optimum, and proofs whatever the basis."""

from fractions import Fraction

import numpy as np
import pytest
from signs import Case, agree, value_at
from ways import MODULE, SETS

from ennopt.domain import Domain
from ennopt.engine.compiled import compile_model
from ennopt.engine.nodes import Fate
from ennopt.engine.program import HELD_OFF, HELD_ON
from ennopt.engine.schemes import Signs
from ennopt.network import Ensemble, Network
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.relaxation import Interval
from oracles import (
    DEGENERATE,
    canonical,
    exact_maximum,
    random_case,
    random_domain,
    random_ensemble,
    random_network,
)

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")
EACH_SET = pytest.mark.parametrize("name", SETS)


@EACH_SET
@pytest.mark.parametrize("tightening", [Interval(), LpTightening()], ids=repr)
def test_programs_agree_with_highs_on_random_shapes(name, tightening, rng):
    empty = 0
    for members, inputs, widths in [
        (3, 2, (5, 4)), (2, 5, (7, 6, 5)), (1, 11, (9, 8, 7, 6)), (4, 3, (13,)),
        (3, 20, (7, 6)), (2, 33, (12,)),
    ]:  # fmt: skip
        ensemble = random_ensemble(rng, members, inputs, widths, weighted=True)
        case = Case(ensemble, random_domain(rng, inputs), name, tightening)
        empty += agree(case, 12, rng)
    assert 0 < empty < 60


@pytest.mark.parametrize("case", DEGENERATE)
def test_programs_agree_with_highs_on_degenerate_ensembles(case):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        agree(Case(*DEGENERATE[case](rng)), 8, rng)


@pytest.mark.parametrize("seed", range(40))
def test_programs_agree_with_highs_on_random_cases(seed):
    rng = np.random.default_rng(seed)
    agree(Case(*random_case(rng), name=SETS[seed % len(SETS)]), 8, rng)


@EACH_SET
def test_no_sample_beats_the_bound_of_its_node(name, rng):
    seen = 0
    for _ in range(12):
        inputs = int(rng.integers(1, 9))
        widths = [int(n) for n in rng.integers(1, 10, size=int(rng.integers(1, 4)))]
        ensemble = random_ensemble(rng, 2, inputs, widths, weighted=True)
        case = Case(ensemble, random_domain(rng, inputs), name)
        points = case.problem.domain.sample(2000, rng)
        points[:500] = np.where(
            rng.random((500, inputs)) < 0.5,
            case.problem.domain.lower,
            case.problem.domain.upper,
        )
        values, neurons = ensemble(points)[:, 0], case.neurons(points)
        rows = case.held(20, rng)
        found, _, reached = case.bound(rows)
        assert all(case.problem.domain.contains(x) for x in reached)
        for before, after in zip(rows, found, strict=True):
            mine = case.signs_hold(before, neurons)
            assert np.all(values[mine] <= after[0])
            seen += np.count_nonzero(mine)
    assert seen > 10_000


@EACH_SET
def test_the_bound_holds_whatever_basis_a_node_comes_with(name, rng):
    """Any bytes for the ties: a worse bound, never a wrong one."""
    finite = 0
    for seed in range(60):
        ensemble, domain = random_case(np.random.default_rng(seed))
        case = Case(ensemble, domain, name)
        exact, _ = exact_maximum(ensemble, domain)
        rows = np.repeat(case.root, 8, axis=0)
        bytes_ = rows[:, 2:].view(np.uint8)
        bytes_ |= rng.integers(0, 8, size=bytes_.shape).astype(np.uint8)
        bytes_[0] = 0  # what cannot be: nothing allowed, nothing tied
        bytes_[1] = rng.integers(0, 8, size=bytes_.shape[1])
        for cutoff in (-np.inf, exact + 0.1 * abs(exact), 1e9):
            found, told, _ = case.bound(rows, cutoff)
            assert np.all(found[:, 0] >= exact - 1e-12 * max(1.0, abs(exact)))
            assert np.all(found[told[:, 0] == Fate.CLOSED, 0] <= cutoff)
            finite += np.count_nonzero(np.isfinite(found[:, 0]))
    assert finite > 500


def test_bounds_are_proofs_in_exact_arithmetic():
    """Against fractions, without slack, on points and on boxes barely wider."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 5))
        members = [
            random_network(rng, d, (4, 3)[: 1 + seed % 2], scale=10.0**power)
            for power in rng.integers(-4, 5, size=2)
        ]
        members.append(members[0].fold_output(-1.0 - 1e-15, 0.0))
        x = rng.normal(size=d) * 10.0 ** rng.integers(-3, 4)
        radius = np.abs(x) * rng.choice([0.0, 1e-16, 1e-12, 0.1])
        ensemble = Ensemble(tuple(members), weights=[1.0, *rng.normal(size=1), 1.0])
        case = Case(ensemble, Domain(x - radius, x + radius))
        found, _, _ = case.bound(case.root)
        for point in (x - radius, x, x + radius):
            exact = [Fraction(float(v)) for v in point]
            assert Fraction(float(found[0, 0])) >= value_at(ensemble, exact)


@EACH_SET
def test_a_closed_node_has_a_bound_at_the_cutoff(name, rng):
    """The program stops once the cutoff is reached, with a bound that shows it."""
    ensemble = random_ensemble(rng, 3, 6, (8, 7))
    case = Case(ensemble, random_domain(rng, 6), name)
    rows = case.held(40, rng)
    free = case.bound(rows)[0][:, 0]
    cutoff = float(np.median(free[np.isfinite(free)]))
    found, told, _ = case.bound(rows, cutoff)
    closed = told[:, 0] == Fate.CLOSED
    assert 5 < closed.sum() < 35
    assert np.all(found[closed, 0] <= cutoff)
    np.testing.assert_allclose(found[~closed, 0], free[~closed], rtol=1e-9)


def test_a_warm_basis_gives_the_same_optimum(rng):
    """Children begin with their parent's basis: any path leads to the same bound."""
    ensemble = random_ensemble(rng, 2, 9, (8, 7))
    case = Case(ensemble, random_domain(rng, 9))
    row, cold = case.root, case.root
    for _ in range(12):
        found, told, _ = case.bound(row)
        fresh, _, _ = case.bound(cold)
        assert found[0, 0] == pytest.approx(fresh[0, 0], rel=1e-7)
        if told[0, 0] != Fate.SPLIT:
            break
        neuron, side = int(told[0, 1]), rng.choice([HELD_ON, HELD_OFF])
        row = found
        states = case.states(row)
        states[0, neuron] = (states[0, neuron] & 7) | side
        cold = cold.copy()
        case.states(cold)[0, neuron] = side


@EACH_SET
def test_inputs_that_cannot_move_have_no_say(name):
    """Bytes that tie both their corners, and more of them than there are neurons."""
    line = Network([np.ones((1, 400))], [[0.0]])
    fixed = Domain(np.ones(400), np.ones(400))
    case = Case(Ensemble((line,)), fixed, name)
    rows = case.root.copy()
    rows[:, 2:].view(np.uint8)[:] = 3
    assert case.bound(rows)[0][0, 0] == pytest.approx(400.0)


@pytest.mark.parametrize("power", [-40, 40])
@pytest.mark.parametrize("where", ["inputs", "layer"])
def test_units_do_not_matter(where, power, rng):
    """Inputs or a layer in other units, powers of two: the same tree."""
    net = random_network(rng, 6, (8, 8))
    unit = 2.0**power
    first, second, last = net.weights
    b0, b1, b2 = net.biases
    if where == "inputs":
        other = Network((first / unit, second, last), net.biases)
        domains = Domain([-1.0] * 6, [1.0] * 6), Domain([-unit] * 6, [unit] * 6)
    else:
        other = Network((first * unit, second / unit, last), (b0 * unit, b1, b2))
        domains = (Domain([-1.0] * 6, [1.0] * 6),) * 2
    counts = []
    for network, domain in zip((net, other), domains, strict=True):
        problem = canonical(Ensemble((network,)), domain)
        tree = Signs(problem.root).open(problem, 1e-4)
        tree.plant()
        counts.append(tree.explore(np.inf, np.inf, 1e9, dive=1, threads=1))
        assert tree.open == 0
        allowed = 1.01 * problem.tolerance(tree.value, 1e-4)
        assert tree.bound - tree.value <= allowed
    assert counts[0] > 10
    assert counts[1] == pytest.approx(counts[0], rel=0.1)


def test_nodes_of_another_size_are_refused(rng):
    case = Case(random_ensemble(rng, 1, 2, (3,)), random_domain(rng, 2))
    with pytest.raises(ValueError, match="numbers each"):
        case.bound(np.zeros((1, 9)))
    one = Network([[[1.0]], [[1.0]]], [[0.0], [0.0]])
    domain = Domain([0.0], [1.0])
    model = compile_model(canonical(Ensemble((one,)), domain))
    with pytest.raises(ValueError, match="each neuron"):
        MODULE.Signs(model, np.zeros(2), np.zeros(2), "", np.zeros((2, 1)), 0, 0.0)
