"""What every tightener must do; LP and MILP tighteners in particular."""

import itertools
import logging
import pickle
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.domain import Domain, Rows
from ennopt.engine.sign_tightening import SignTightening
from ennopt.milp.solver import MilpResult, MilpStatus
from ennopt.network import Ensemble, Network
from ennopt.tightening import milp as milp_tightening
from ennopt.tightening import progressive
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.relaxation import Crown, Interval
from ennopt.tightening.stepwise import tighten_by_steps
from oracles import members

TIGHTENERS = [
    Interval(),
    Crown(),
    LpTightening(),
    SignTightening(),
    MilpTightening(backend="highs"),
    MilpTightening(backend="scip"),
    MilpTightening(backend="gurobi"),
]
MILPS = [t for t in TIGHTENERS if isinstance(t, MilpTightening)]

every = pytest.mark.parametrize("tightener", TIGHTENERS, ids=repr)
seeds = st.integers(0, 2**32 - 1)


def sides(bounds: NeuronBounds) -> tuple[np.ndarray, np.ndarray]:
    """All bounds of all neurons as two long vectors."""
    flat = [
        np.concatenate([layer for member in side for layer in member])
        for side in (bounds.lower, bounds.upper)
    ]
    return flat[0], flat[1]


def assert_within(inner: NeuronBounds, outer: NeuronBounds, slack: float = 0.0) -> None:
    low, high = sides(inner)
    wide_low, wide_high = sides(outer)
    size = slack * np.maximum(np.abs(wide_low), np.abs(wide_high))
    assert np.all(low >= wide_low - size)
    assert np.all(high <= wide_high + size)


@every
@settings(max_examples=12, deadline=None)
@given(seed=seeds)
def test_bounds_contain_all_preactivations(tightener, seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_case(rng)
    bounds = tightener.tighten(members(ensemble, domain))
    points = domain.sample(500, rng)
    assert bounds.contains([m.preactivations(points) for m in ensemble.members])
    for member, ranges in zip(
        range(ensemble.num_members), oracles.exact_ranges(ensemble, domain), strict=True
    ):
        for k, (low, high) in enumerate(ranges):
            slack = 1e-12 * np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))
            assert np.all(bounds.lower[member][k] <= low + slack)
            assert np.all(bounds.upper[member][k] >= high - slack)


@every
@pytest.mark.parametrize("name", oracles.DEGENERATE)
def test_bounds_hold_on_degenerate_ensembles(tightener, name):
    rng = np.random.default_rng(3)
    ensemble, domain = oracles.DEGENERATE[name](rng)
    bounds = tightener.tighten(members(ensemble, domain))
    points = np.concatenate([domain.sample(500, rng), [domain.lower, domain.upper]])
    assert bounds.contains([m.preactivations(points) for m in ensemble.members])


@every
@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_nothing_is_loosened(tightener, seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_case(rng)
    for given_ in (Crown(), MilpTightening()):
        known = given_.tighten(members(ensemble, domain))
        assert_within(tightener.tighten(members(ensemble, domain), known), known)


@settings(max_examples=12, deadline=None)
@given(seed=seeds)
def test_each_tightener_is_within_the_cheaper_one(seed):
    ensemble, domain = oracles.random_case(np.random.default_rng(seed))
    interval = Interval().tighten(members(ensemble, domain))
    crown = Crown().tighten(members(ensemble, domain))
    lp = LpTightening().tighten(members(ensemble, domain), crown)
    assert_within(crown, interval)
    assert_within(lp, crown)
    assert_within(MilpTightening().tighten(members(ensemble, domain), lp), lp)


@settings(max_examples=12, deadline=None)
@given(seed=seeds)
def test_linear_programs_find_what_linear_propagation_finds(seed):
    """A bound by propagation is a dual solution of the linear program."""
    ensemble, domain = oracles.random_case(np.random.default_rng(seed))
    interval = Interval().tighten(members(ensemble, domain))
    lp = LpTightening().tighten(members(ensemble, domain), interval)
    crown = Crown().tighten(members(ensemble, domain), lp)
    for i, member in enumerate(ensemble.members):
        last = len(member.weights) - 1
        for k in range(1, last + 1):
            worked = lp.unstable(i, k) if k < last else np.array([True])
            scale = 1e-7 * np.maximum(1.0, np.abs(lp.upper[i][k]))
            tight = crown.upper[i][k] >= lp.upper[i][k] - scale
            assert np.all(tight[worked])


@pytest.mark.parametrize("tightener", MILPS, ids=repr)
@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_milps_are_exact_for_neurons_of_either_sign(tightener, seed):
    ensemble, domain = oracles.random_case(np.random.default_rng(seed))
    bounds = tightener.tighten(members(ensemble, domain))
    share = 200.0 * milp_tightening.backend(tightener.backend).capabilities.margin
    for i, ranges in enumerate(oracles.exact_ranges(ensemble, domain)):
        for k, (low, high) in enumerate(ranges):
            both = (low < 0) & (high > 0) if k < len(ranges) - 1 else np.array([True])
            # The solver's margin, times what the weights so far can make of it.
            weights = ensemble.members[i].weights[: k + 1]
            grown = np.prod([np.abs(w).sum(axis=1).max() for w in weights])
            size = np.maximum(np.abs(low), np.abs(high))
            slack = share * np.maximum(max(1.0, float(grown)), size)
            assert np.all((bounds.lower[i][k] >= low - slack)[both])
            assert np.all((bounds.upper[i][k] <= high + slack)[both])


def stretched(rng: np.random.Generator) -> tuple[Network, Domain]:
    """Every weight and input in a unit of its own, over twelve orders of magnitude."""
    net = oracles.random_network(rng, 2, (5, 4, 3))
    weights = [w * 10.0 ** rng.uniform(-6, 6, w.shape) for w in net.weights]
    biases = [b * 10.0 ** rng.uniform(-6, 6, b.shape) for b in net.biases]
    unit = 10.0 ** rng.uniform(-3, 3, 2)
    box = oracles.random_domain(rng)
    return Network(weights, biases), Domain(box.lower * unit, box.upper * unit)


def rescaled(rng: np.random.Generator) -> tuple[Network, Domain]:
    """A plain network whose neurons are measured in units of their own."""
    net, box = oracles.random_network(rng, 2, (5, 4, 3)), oracles.random_domain(rng)
    weights, biases = list(net.weights), list(net.biases)
    for k in range(3):
        unit = 10.0 ** rng.uniform(-8, 8, biases[k].size)
        weights[k], biases[k] = weights[k] * unit[:, None], biases[k] * unit
        weights[k + 1] = weights[k + 1] / unit
    return Network(weights, biases), box


def far_away(rng: np.random.Generator) -> tuple[Network, Domain]:
    """A plain network and box, moved up to 10 million widths away from zero."""
    net, box = oracles.random_network(rng, 2, (5, 4, 3)), oracles.random_domain(rng)
    shift = 10.0 ** rng.uniform(5, 7.5, 2)
    return net.fold_input(1.0, -shift), Domain(box.lower + shift, box.upper + shift)


@pytest.mark.parametrize("tightener", MILPS, ids=repr)
@pytest.mark.parametrize("make", [stretched, rescaled, far_away])
def test_milps_miss_nothing_on_badly_scaled_networks(tightener, make, monkeypatch):
    """Margins alone must do: no random point is there to contradict a solver.

    HiGHS 1.15 needs the points: some of these MILPs it solves to a wrong optimum.
    """
    if tightener.backend != "highs":
        monkeypatch.setattr(progressive, "WITNESSES", 0)
    for seed in (*range(12), 21):
        net, domain = make(np.random.default_rng(seed))
        ensemble = Ensemble((net,))
        bounds = tightener.tighten(members(ensemble, domain))
        for k, (low, high) in enumerate(oracles.exact_ranges(ensemble, domain)[0]):
            rounding = 1e-12 * np.maximum(np.abs(low), np.abs(high))
            assert np.all(bounds.lower[0][k] <= low + rounding), (seed, k)
            assert np.all(bounds.upper[0][k] >= high - rounding), (seed, k)


@pytest.mark.parametrize("seed", range(10))
def test_small_errors_move_a_neuron_by_no_more_than_their_amplification(seed):
    rng = np.random.default_rng(seed)
    net = oracles.random_network(rng, 3, (6, 5, 4), 2)
    x, size = rng.normal(size=3), 1e-6
    truth = net.preactivations(x)
    for _ in range(50):
        y = x + size * rng.choice([-1.0, 1.0], 3)
        for k, (w, b) in enumerate(net.layers()):
            h = w @ y + b
            most = size * milp_tightening.amplification(net, k)
            assert np.all(np.abs(h - truth[k]) <= most * (1 + 1e-6))
            y = np.maximum(h, 0.0) + size * rng.choice([-1.0, 1.0], h.size)
    # A neuron of one active path has all of it, but for the errors of later layers.
    line = Network([[[3.0]], [[5.0]], [[7.0]]], [[1.0], [1.0], [1.0]])
    assert milp_tightening.amplification(line, 2).tolist() == [7 * (5 * (3 + 1) + 1)]
    assert milp_tightening.amplification(line, 0).tolist() == [3.0]


@pytest.mark.parametrize("tightener", [Crown(), LpTightening(), SignTightening()])
def test_no_exact_preactivation_is_missed_far_from_zero(tightener, monkeypatch):
    """What centring rounds in the first layer, the layers after it inherit."""
    monkeypatch.setattr(progressive, "WITNESSES", 1)
    for seed in range(12):
        net, box = far_away(np.random.default_rng(seed))
        reach = 1e-6 * box.widths  # all but linear there: bounds are tight
        domain = Domain(box.centre - reach, box.centre + reach)
        problem = members(Ensemble((net,)), domain)
        bounds = tightener.tighten(problem, problem.root)
        ends = np.transpose([domain.lower, domain.upper])
        for corner in itertools.product(*ends):
            exact = oracles.exact_preactivations(net, np.array(corner))
            for k, layer in enumerate(exact):
                assert all(
                    Fraction(low) <= h <= Fraction(high)
                    for low, h, high in zip(
                        bounds.lower[0][k].tolist(), layer,
                        bounds.upper[0][k].tolist(), strict=True,
                    )
                )  # fmt: skip


@every
def test_bounds_hold_where_linear_constraints_do(tightener):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        ensemble = oracles.random_ensemble(rng, 2, 3, (5, 4))
        domain = oracles.mixed(rng, 3, 2, equal=seed % 2 == 0)
        bounds = tightener.tighten(members(ensemble, domain))
        points = domain.sample(500, rng)
        assert bounds.contains([m.preactivations(points) for m in ensemble.members])


@pytest.mark.parametrize("tightener", [LpTightening(), *MILPS], ids=repr)
def test_linear_constraints_tighten_bounds(tightener):
    rng = np.random.default_rng(1)
    ensemble = oracles.random_ensemble(rng, 2, 3, (5, 4))
    domain = oracles.mixed(rng, 3, 2, equal=True)
    inside = tightener.tighten(members(ensemble, domain))
    box = Domain(domain.lower, domain.upper)
    outside = tightener.tighten(members(ensemble, box))
    assert inside.num_unstable < outside.num_unstable
    for i in range(2):  # hidden neurons whose sign is decided keep their other bound
        low, high = inside.lower[i][-1][0], inside.upper[i][-1][0]
        wide_low, wide_high = outside.lower[i][-1][0], outside.upper[i][-1][0]
        assert wide_low - 1e-5 <= low <= high <= wide_high + 1e-5
        assert high - low < 0.8 * (wide_high - wide_low)


@every
def test_constraints_that_no_point_meets_break_nothing(tightener):
    ensemble = oracles.random_ensemble(np.random.default_rng(0), 2, 2, (5, 4))
    rows = Rows([[1.0, 1.0], [1.0, -1.0]], [3.0, 0.5], [np.inf, 0.5])
    problem = members(ensemble, Domain([0.0, 0.0], [1.0, 1.0], rows=rows))
    bounds = tightener.tighten(problem)
    assert_within(bounds, Interval().tighten(problem))


def wide_case() -> tuple[Ensemble, Domain]:
    rng = np.random.default_rng(11)
    members = tuple(
        oracles.random_network(rng, 3, widths) for widths in [(9, 20, 9), (12, 7), ()]
    )
    return Ensemble(members), oracles.random_domain(rng, 3)


@pytest.mark.parametrize(
    "tightener", [LpTightening(), MilpTightening(backend="gurobi")], ids=repr
)
@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
@pytest.mark.parametrize("workers", [1, 3])
def test_serial_and_parallel_answers_are_identical(tightener, pool, workers):
    ensemble, domain = wide_case()
    serial = tightener.tighten(members(ensemble, domain))
    with pool(workers) as executor:
        parallel = tightener.tighten(members(ensemble, domain), executor=executor)
    for one, other in zip(sides(serial), sides(parallel), strict=True):
        np.testing.assert_array_equal(one, other)


@every
def test_a_deadline_in_the_past_still_gives_bounds(tightener):
    ensemble, domain = wide_case()
    bounds = tightener.tighten(
        members(ensemble, domain), deadline=time.perf_counter() - 1.0
    )
    points = domain.sample(100, np.random.default_rng(0))
    assert bounds.contains([m.preactivations(points) for m in ensemble.members])
    assert_within(bounds, Interval().tighten(members(ensemble, domain)))


def test_a_time_limit_keeps_the_dual_bound(monkeypatch):
    """A solver that is stopped a little above the optimum has still proved that."""
    solver, above = milp_tightening.backend("scip"), 0.01

    class Stopped:
        capabilities = solver.capabilities

        def solve(self, model, options, hooks):
            bound = solver.solve(model, options).bound + above
            return MilpResult(MilpStatus.TIME_LIMIT, bound=bound)

    ensemble, domain = wide_case()
    start = Crown().tighten(members(ensemble, domain))
    method = MilpTightening(backend="scip", outputs=False)
    exact = method.tighten(members(ensemble, domain), start)
    monkeypatch.setattr(milp_tightening, "backend", lambda name: Stopped())
    bounds = method.tighten(members(ensemble, domain), start)
    assert_within(exact, bounds, slack=1e-5)
    assert_within(bounds, start)
    gained, whole = (
        (sides(start)[1] - sides(b)[1]).sum() for b in (bounds, exact)
    )  # fmt: skip
    assert 0.5 * whole < gained < whole
    points = domain.sample(2000, np.random.default_rng(0))
    assert bounds.contains([m.preactivations(points) for m in ensemble.members])


class Clock:
    """A solver that proves nothing, at once, and keeps the limits it was given."""

    capabilities = milp_tightening.backend("scip").capabilities

    def __init__(self):
        self.limits = []

    def solve(self, model, options, hooks):
        self.limits.append(options.time_limit)
        return MilpResult(MilpStatus.TIME_LIMIT)


def test_milps_divide_the_time_until_the_deadline(monkeypatch):
    ensemble, domain = wide_case()
    problem, clock = members(ensemble, domain), Clock()
    start = Crown().tighten(problem)
    monkeypatch.setattr(milp_tightening, "backend", lambda name: clock)
    method = MilpTightening(1000.0, "scip", outputs=False)
    done = method.run(problem, start, deadline=time.perf_counter() + 600.0)
    neurons = sum(
        int(start.unstable(i, k).sum())
        for i, network in enumerate(problem.networks)
        for k in range(1, len(network.weights) - 1)
    )
    assert done.neurons == neurons > 2
    assert done.solves == len(clock.limits) == 2 * neurons
    for index, limit in enumerate(clock.limits):
        waiting, second = neurons - index // 2, index % 2
        assert 0 < limit <= 600.0 / waiting / (2 - second)


def test_a_share_that_is_too_short_to_begin_is_lengthened(monkeypatch):
    ensemble, domain = wide_case()
    problem, clock = members(ensemble, domain), Clock()
    monkeypatch.setattr(milp_tightening, "backend", lambda name: clock)
    monkeypatch.setattr(milp_tightening, "LEAST_SECONDS", 100.0)
    MilpTightening(1000.0, "scip", outputs=False).run(
        problem, Crown().tighten(problem), deadline=time.perf_counter() + 600.0
    )
    assert all(limit > 90.0 for limit in clock.limits)


@pytest.mark.parametrize("method", [LpTightening(), MilpTightening()], ids=repr)
def test_neurons_that_a_deadline_leaves_out_are_not_counted(method):
    ensemble, domain = wide_case()
    late = method.run(members(ensemble, domain), deadline=time.perf_counter() - 1.0)
    assert (late.neurons, late.solves) == (0, 0)


@every
def test_several_outputs_are_bounded(tightener):
    rng = np.random.default_rng(2)
    ensemble = oracles.random_ensemble(rng, 2, 2, (4, 3), num_outputs=3)
    domain = oracles.random_domain(rng)
    bounds = tightener.tighten(members(ensemble, domain))
    points = domain.sample(500, rng)
    assert bounds.contains([m.preactivations(points) for m in ensemble.members])


def test_only_chosen_neurons_are_worked_on():
    ensemble, domain = wide_case()
    start = Crown().tighten(members(ensemble, domain))
    chosen = [
        [np.zeros(width, bool) for width in member.hidden_widths] + [np.zeros(1, bool)]
        for member in ensemble.members
    ]
    j = int(np.flatnonzero(start.unstable(0, 1))[0])
    chosen[0][1][j] = True
    method = MilpTightening(outputs=False)
    found = method.run(members(ensemble, domain), start, chosen=chosen)
    assert found.neurons == 1
    assert 1 <= found.solves <= 2
    assert found.bounds.upper[0][1][j] < start.upper[0][1][j]
    for i in range(ensemble.num_members):  # up to its layer, nothing else changed
        for k, high in enumerate(found.bounds.upper[i][: 2 if i == 0 else None]):
            changed = np.flatnonzero(high < start.upper[i][k])
            assert changed.tolist() == ([j] if (i, k) == (0, 1) else [])
    none = [[flags & False for flags in member] for member in chosen]
    assert method.run(members(ensemble, domain), start, chosen=none).solves == 0


def test_a_decided_sign_saves_the_second_program():
    # y = relu(x), then h = -y - 1 <= -1 whatever the bounds given say.
    net = Network(([[1.0]], [[-1.0]], [[1.0]]), ([0.0], [-1.0], [0.0]))
    ensemble, domain = Ensemble((net,)), Domain([-1.0], [1.0])
    loose = NeuronBounds(
        ((np.array([-1.0]), np.array([-9.0]), np.array([-9.0])),),
        ((np.array([1.0]), np.array([9.0]), np.array([9.0])),),
    )
    # Interval arithmetic sees it at once: nothing is left to solve.
    assert (
        MilpTightening(outputs=False).run(members(ensemble, domain), loose).solves == 0
    )
    # Here it does not: h = relu(x) - relu(x) - 1/2.
    twice = Network(
        ([[1.0], [1.0]], [[1.0, -1.0]], [[1.0]]), ([0.0, 0.0], [-0.5], [0.0])
    )
    found = MilpTightening(outputs=False).run(members(Ensemble((twice,)), domain))
    assert found.neurons == found.solves == 1
    assert found.bounds.upper[0][1][0] <= 0


@pytest.mark.parametrize(
    "wrong",
    [
        MilpResult(MilpStatus.OPTIMAL, bound=-50.0),
        MilpResult(MilpStatus.INFEASIBLE, bound=-np.inf),
        MilpResult(MilpStatus.FAILED),
    ],
    ids=lambda result: result.status.value,
)
def test_a_lying_solver_loosens_and_breaks_nothing(wrong, monkeypatch, caplog):
    class Liar:
        capabilities = milp_tightening.backend("highs").capabilities

        def solve(self, model, options, hooks):
            return wrong

    ensemble, domain = wide_case()
    start = Crown().tighten(members(ensemble, domain))
    method = MilpTightening()
    monkeypatch.setattr(milp_tightening, "backend", lambda name: Liar())
    with caplog.at_level(logging.WARNING):
        bounds = method.tighten(members(ensemble, domain), start)
    points = domain.sample(1000, np.random.default_rng(1))
    assert bounds.contains([m.preactivations(points) for m in ensemble.members])
    assert bool(caplog.records) == (wrong.status is MilpStatus.OPTIMAL)


def test_chains_are_as_tight_as_their_last_step():
    ensemble, domain = wide_case()
    steps = (Crown(), LpTightening())
    chain = tighten_by_steps(steps, members(ensemble, domain)).bounds
    lp = LpTightening().tighten(
        members(ensemble, domain), Crown().tighten(members(ensemble, domain))
    )
    assert_within(chain, lp)
    assert_within(lp, chain)
    nothing = tighten_by_steps((), members(ensemble, domain)).bounds
    assert_within(nothing, Interval().tighten(members(ensemble, domain)))


@every
def test_tighteners_are_values(tightener):
    twin = pickle.loads(pickle.dumps(tightener))
    assert twin == tightener
    assert repr(twin) == repr(tightener)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="seconds > 0"):
        MilpTightening(seconds=0)
    with pytest.raises(ValueError, match="among highs, scip, gurobi"):
        MilpTightening(backend="cbc")


def test_searches_end_where_corners_tie_up_to_rounding():
    """Of this neuron's two corners each once seemed better than the other, for ever."""
    member = Network(
        (
            [[0, 1, 0], [-1, 1, 0], [0, 1, 0], [-1, 1, -1]],
            [[0, 0, 0, -1], [0, 1, 0, -1], [-1, 0, -1, -1]],
            [[0, -1, 0], [1, 0, 0], [1, 0, -1]],
            [[0, -1, -1]],
        ),
        ([0, 1, 1, -1], [0, 0, 1], [0, 1, 0], [-1]),
    )
    ensemble = Ensemble((member,))
    domain = Domain(
        [-1.4081775621983377, 0.2580667103729512, 0.715604123602207],
        [9998.591822437802, 100.25806671037296, 0.815604123602207],
    )
    bounds = SignTightening().tighten(
        members(ensemble, domain), Crown().tighten(members(ensemble, domain))
    )
    points = domain.sample(2000, np.random.default_rng(0))
    assert bounds.contains([member.preactivations(points)])


@pytest.mark.parametrize(
    "wrong", [{"nodes": 0}, {"nodes": 2.5}, {"share": 0.0}, {"share": 1.0}], ids=repr
)
def test_searches_of_no_size_are_refused(wrong):
    with pytest.raises(ValueError, match="Expected"):
        SignTightening(**wrong)
