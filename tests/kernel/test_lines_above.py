"""Lines above neurons hold, and programs with them are solved and proved."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from signs import Case, agree
from ways import MODULE, SETS

from ennopt import Domain, Ensemble, Network, maximize
from ennopt.checkpoint import Checkpoint
from ennopt.engine.duality import proved_by
from ennopt.engine.lines_above import packed, proved_line, separated, unpacked
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.nodes import Fate
from ennopt.engine.program import L, U
from ennopt.engine.root_lines import lines_at_root
from ennopt.engine.schemes import Signs
from ennopt.tightening.lp import LpTightening
from oracles import (
    DEGENERATE,
    canonical,
    exact_maximum,
    exact_preactivations,
    random_case,
    random_domain,
    random_ensemble,
)

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")
EACH_SET = pytest.mark.parametrize("name", SETS)


def some_lines(problem, bounds, rounds=2, seed=0):
    """Lines below points that are as high as bounds of the neurons allow."""
    rng, lines = np.random.default_rng(seed), ()
    _, high = bounds.flat()
    for x in problem.domain.sample(rounds, rng):
        lines += separated(problem, bounds, x, np.maximum(high, 0.0))
    return lines


def cases(rng):
    for _ in range(15):
        yield random_case(rng)
    for make in DEGENERATE.values():
        yield make(rng)
    yield random_ensemble(rng, 2, 6, (9, 8, 7), weighted=True), random_domain(rng, 6)


def test_a_line_is_the_facet_below_a_point():
    # The hull of max(x + y - 1, 0) on the unit square has the facets x and y above.
    net = Network([[[1.0, 1.0]], [[1.0]]], [[-1.0], [0.0]])
    problem = canonical(Ensemble([net]), Domain([0.0, 0.0], [1.0, 1.0]))
    point = np.array([1.0, 0.25]), np.array([0.5])
    (line,) = separated(problem, problem.root, *point)
    assert line.neuron == 0
    assert line.slopes.tolist() == [0.0, 1.0]
    assert line.constant == pytest.approx(0.0, abs=1e-12)


def test_lines_hold_in_exact_arithmetic_whatever_their_slopes_are():
    seen = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 4))
        ensemble, domain = random_ensemble(rng, 1, d, (3, 3)), random_domain(rng, d)
        problem = canonical(ensemble, domain)
        bounds = LpTightening().tighten(problem)
        lines = [*some_lines(problem, bounds)]
        for neuron in range(6):
            scale = 10.0 ** rng.uniform(-3, 3)
            slopes = scale * rng.normal(size=d if neuron < 3 else 3)
            lines.append(proved_line(problem, bounds, neuron, slopes))
        corners = np.array(list(product(*zip(domain.lower, domain.upper, strict=True))))
        for x in np.concatenate([corners, domain.sample(10, rng)]):
            before = [[Fraction(v) for v in x.tolist()]]
            for own in exact_preactivations(problem.networks[0], x)[:-1]:
                before.append([max(h, Fraction(0)) for h in own])
            for line in lines:
                k, r = divmod(line.neuron, 3)
                most = Fraction(line.constant) + sum(
                    Fraction(a) * y
                    for a, y in zip(line.slopes.tolist(), before[k], strict=True)
                )
                assert before[k + 1][r] <= most
                seen += 1
    assert seen > 1000


def test_lines_are_no_higher_than_the_triangle_where_they_are_sought(rng):
    lower = 0
    for _ in range(20):
        ensemble, domain = random_ensemble(rng, 1, 4, (6, 5)), random_domain(rng, 4)
        problem = canonical(ensemble, domain)
        low, high = problem.root.flat()
        x, y = domain.sample(1, rng)[0], np.maximum(high, 0.0)
        net = problem.networks[0]
        h = np.concatenate(
            [net.weights[0] @ x + net.biases[0], net.weights[1] @ y[:6] + net.biases[1]]
        )
        for line in separated(problem, problem.root, x, y):
            i = line.neuron
            if not low[i] <= h[i] <= high[i]:
                continue
            at = float(line.slopes @ (x if i < 6 else y[:6])) + line.constant
            missed = high[i] * (h[i] - low[i]) / (high[i] - low[i]) - at
            assert missed >= -1e-9 * (high[i] - low[i])
            lower += missed > 1e-3 * (high[i] - low[i])
    assert lower > 20


def test_slopes_of_another_size_are_refused(rng):
    problem = canonical(random_ensemble(rng, 1, 2, (3,)), random_domain(rng, 2))
    for neuron, slopes in ((0, np.zeros(3)), (3, np.zeros(2)), (0, np.full(2, np.nan))):
        with pytest.raises(ValueError, match="Expected a slope"):
            proved_line(problem, problem.root, neuron, slopes)


def test_lines_are_the_same_after_they_were_kept(rng):
    ensemble, domain = random_ensemble(rng, 2, 5, (7, 4)), random_domain(rng, 5)
    problem = canonical(ensemble, domain)
    lines = some_lines(problem, problem.root)
    again = unpacked(problem, problem.root, packed(lines))
    assert len(again) == len(lines) > 3
    for one, two in zip(lines, again, strict=True):
        assert one.neuron == two.neuron
        assert one.slopes.tolist() == two.slopes.tolist()
        assert one.constant == two.constant


@EACH_SET
def test_programs_with_lines_agree_with_highs(name, rng):
    empty = seen = 0
    for members, inputs, widths in [
        (3, 2, (5, 4)), (2, 5, (7, 6, 5)), (1, 11, (9, 8, 7)), (4, 3, (13,)),
        (2, 20, (7, 6)), (1, 33, (12,)),
    ]:  # fmt: skip
        ensemble = random_ensemble(rng, members, inputs, widths, weighted=True)
        for tightening in (LpTightening(),):
            case = Case(
                ensemble, random_domain(rng, inputs), name, tightening, some_lines
            )
            empty += agree(case, 12, rng)
            seen += len(case.lines)
    assert empty > 0
    assert seen > 50


@pytest.mark.parametrize("seed", range(20))
def test_programs_with_lines_agree_with_highs_on_random_cases(seed):
    rng = np.random.default_rng(seed)
    name = SETS[seed % len(SETS)]
    agree(Case(*random_case(rng), name=name, lines=some_lines), 8, rng)


def test_a_warm_basis_with_lines_gives_the_same_optimum(rng):
    for _ in range(6):
        ensemble, domain = random_ensemble(rng, 2, 8, (9, 8)), random_domain(rng, 8)
        case = Case(ensemble, domain, lines=some_lines)
        rows = case.held(12, rng)
        warm = case.bound(case.root)[0]
        at = 16 + case.problem.num_inputs  # bytes before those of the neurons
        for row in rows:
            start = warm.copy()
            start[0, 0] = np.inf
            mine, own = (r.view(np.uint8).reshape(-1) for r in (start, row))
            mine[at:] = mine[at:] & 7 | own[at:] & 56
            cold, hot = (case.bound(r.reshape(1, -1))[0][0, 0] for r in (row, start))
            if np.isfinite(cold) and np.isfinite(hot):
                assert hot == pytest.approx(cold, rel=1e-7, abs=1e-7)


def test_the_bound_with_lines_holds_whatever_basis_a_node_comes_with(rng):
    finite = 0
    for seed in range(30):
        ensemble, domain = random_case(np.random.default_rng(seed))
        case = Case(ensemble, domain, lines=some_lines)
        exact, _ = exact_maximum(ensemble, domain)
        rows = np.repeat(case.root, 8, axis=0)
        bytes_ = rows[:, 2:].view(np.uint8)
        bytes_ |= rng.integers(0, 8, size=bytes_.shape).astype(np.uint8)
        for cutoff in (-np.inf, exact + 0.1 * abs(exact)):
            found, told, _ = case.bound(rows, cutoff)
            assert np.all(found[:, 0] >= exact - 1e-12 * max(1.0, abs(exact)))
            assert np.all(found[told[:, 0] == Fate.CLOSED, 0] <= cutoff)
            finite += np.count_nonzero(np.isfinite(found[:, 0]))
    assert finite > 300


def test_any_multipliers_of_lines_prove_a_bound_and_both_say_the_same(rng):
    held = 0
    for ensemble, domain in cases(rng):
        case = Case(ensemble, domain, lines=some_lines)
        problem, count = case.problem, case.problem.num_neurons + len(case.lines)
        rows = case.reference._limits
        free = np.full(problem.num_neurons, U | L, dtype=np.uint8)
        points = domain.sample(500, rng)
        top = problem.values(points).max()
        for scale, share in ((0.1, 1.0), (1.0, 1.0), (1e3, 0.0)):
            multipliers = scale * rng.normal(size=count)
            mine = MODULE.proved_by(case.scheme, free, multipliers, share)
            theirs = proved_by(
                problem, case.bounds, free, multipliers, share, learned=rows
            )
            assert mine == pytest.approx(theirs, rel=1e-12, abs=1e-12)
            assert mine >= (top if share else 0.0)
            held += len(case.lines) > 0
    assert held > 30


def hard(seed):
    rng = np.random.default_rng(seed)
    members = [
        Network(
            [
                rng.normal(0, (2 / a) ** 0.5, (b, a))
                for a, b in ((8, 9), (9, 9), (9, 1))
            ],
            [rng.normal(0, 0.1, b) for b in (9, 9, 1)],
        )
        for _ in range(3)
    ]
    return Ensemble(members), Domain(-np.ones(8), np.ones(8))


def nodes_of(scheme, problem, x):
    tree = scheme.open(problem, 1e-4)
    tree.plant()
    tree.offer(x)
    count = tree.explore(20_000, np.inf, np.inf, dive=1, threads=1)
    assert not tree.open
    return count, tree.bound


def test_lines_at_the_root_save_nodes_and_change_no_answer():
    plain = sharp = 0
    for seed in range(6):
        ensemble, domain = hard(seed)
        best = maximize(ensemble, domain)
        problem = canonical(ensemble, domain)
        bounds = LpTightening().tighten(problem)
        lines = lines_at_root(problem, bounds, best.value, "", lambda: False)
        one, low = nodes_of(Signs(bounds), problem, best.x)
        two, high = nodes_of(Signs(bounds, lines=lines), problem, best.x)
        assert low == pytest.approx(high, rel=2e-4)
        assert high >= best.value
        plain, sharp = plain + one, sharp + two
    assert sharp < 0.8 * plain


def test_no_lines_are_made_where_they_are_not_worth_it(rng):
    ensemble, domain = hard(0)
    problem = canonical(ensemble, domain)
    bounds = LpTightening().tighten(problem)
    assert lines_at_root(problem, bounds, 0.0, "", lambda: False)
    # With a value this far away nothing comes of it.
    assert lines_at_root(problem, bounds, -1e9, "", lambda: False) == ()
    assert lines_at_root(problem, bounds, -np.inf, "", lambda: False) == ()


def test_a_search_with_lines_goes_on_from_a_checkpoint(tmp_path):
    ensemble, domain = hard(3)
    method = NeuronSearch(gives_way=False)
    whole = maximize(ensemble, domain, method=method)
    assert whole.nodes > 1200  # beyond the first 500 of each tree
    file = tmp_path / "run.checkpoint"
    part = maximize(
        ensemble, domain, method=method, node_limit=1100, checkpoint=Checkpoint(file)
    )
    assert part.bound > whole.bound
    rest = maximize(ensemble, domain, method=method, checkpoint=Checkpoint(file))
    assert rest.status == whole.status
    assert rest.value == pytest.approx(whole.value, rel=1e-6)
    assert rest.nodes < 1.5 * whole.nodes
