"""Lines of neurons in the checker: whatever advice they follow, they hold."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import ennopt
from ennopt import Domain, Ensemble, Problem, solve
from ennopt.certificate import advice, checker, core
from ennopt.certificate.checker import check
from ennopt.certificate.core import Model, Prover, functions_of
from ennopt.certificate.lines import Box, Layer
from ennopt.certificate.record import Certificate
from ennopt.risk import MeanMinusStd
from oracles import exact_preactivations, random_ensemble, random_network

HOSTILE = np.array([-1.0, 0.0, 1.0, 0.5, -7.0, np.nan, np.inf, -np.inf])


def model_of(ensemble, domain):
    stacks, functions, added = functions_of(Problem(ensemble, domain))
    model = Model(stacks, added, domain.lower, domain.upper)
    return model, Prover(model, functions, [-1e300], domain)


def random_signs(rng, entries):
    return lambda g: rng.choice(entries, size=g.shape)


@pytest.mark.parametrize("entries", [HOSTILE[:3], HOSTILE[:5], HOSTILE], ids=len)
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e7])
def test_ends_of_neurons_hold_in_rational_numbers(scale, entries, monkeypatch):
    """With any vertex for every row, on boxes as thin as rounding errors."""
    monkeypatch.setattr(advice, "FEW_INPUTS", 0)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        monkeypatch.setattr(advice, "signs", random_signs(rng, entries))
        net = random_network(rng, 3, (4, 4, 3))
        net = Ensemble([net]).fold_input(scale, 0.3).members[0]
        lower = rng.normal(size=3) / scale
        for width in (1.0, 1e-3, 1e-12, 0.0):
            upper = lower + width * np.abs(lower)
            model, _ = model_of(Ensemble([net]), Domain(lower, upper))
            low, high = model.low.copy(), model.high.copy()
            slopes = rng.normal(size=(1, 3))
            side = -slopes @ (0.5 * (lower + upper))
            every = np.ones(model.sizes.size, bool)
            sides = lower[None], upper[None]
            model.bound_neurons(*sides, low, high, (slopes, side), every)
            corners = list(itertools.product(*zip(lower, upper, strict=True)))
            inner = rng.uniform(lower, upper, (6, 3))
            for x in np.clip([*corners, *inner], lower, upper):
                cut = Fraction(float(side[0])) + sum(
                    Fraction(a) * Fraction(v)
                    for a, v in zip(slopes[0].tolist(), x.tolist(), strict=True)
                )
                if cut < 0:
                    continue
                values = itertools.chain(*exact_preactivations(net, x)[:3])
                for h, least, most in zip(values, low[0], high[0], strict=True):
                    assert Fraction(least) <= h <= Fraction(most)
            if width == 0.0:  # and they are no wider than they must be
                assert np.all(high - low <= 1e-9 * (1.0 + np.abs(high)))


def test_a_line_is_exact_at_its_vertex():
    """At a vertex of the box a row is what the neurons are there."""
    rng = np.random.default_rng(3)
    net = random_network(rng, 4, (7, 5))
    lower, upper = -np.ones(4), rng.uniform(0.5, 2.0, 4)
    model, _ = model_of(Ensemble([net]), Domain(lower, upper))
    stack = model.stacks[0]
    box = Box(lower[None], upper[None], model.reach)
    layer = Layer(stack, 0, [], box, model.low, model.high)
    rows = np.concatenate([net.weights[1], -net.weights[1]])[:, None]
    positive = np.maximum(rows, 0.0)  # lines above are those that have a choice
    g, c = layer.back(positive[..., layer.alive], np.zeros((len(rows), 1)))
    plain = c + np.abs(g).sum(axis=2)
    better = 0
    for corner in itertools.product([-1.0, 1.0], repeat=4):
        at = box.centre[0] + box.radius[0] * np.array(corner)
        truth = positive[:, 0] @ np.maximum(net.weights[0] @ at + net.biases[0], 0.0)
        new = np.array(sharpened_at(layer, positive, g, c, plain, np.array(corner)))
        assert np.all(new >= truth - 1e-9)
        largest = np.all(np.sign(g[:, 0]) == corner, axis=1)
        better += int(np.sum(new[largest] < plain[largest, 0] - 1e-6))
    assert better


def sharpened_at(layer, rows, g, c, plain, corner):
    saved = advice.signs
    advice.signs = lambda g: np.broadcast_to(corner, g.shape)
    try:
        return layer.sharpened(rows[..., layer.alive], g, c, plain)[:, 0]
    finally:
        advice.signs = saved


def hostile(rng, monkeypatch):
    """All advice made at random: numbers of any sign and size, and no numbers."""

    def wild(shape):
        found = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, size=shape)
        odd = rng.random(shape) < 0.05
        return np.where(odd, rng.choice(HOSTILE, size=shape), found)

    patched = {
        "signs": random_signs(rng, HOSTILE),
        "SHARES": (-2.0, 0.4, 3.0),
        "FEW_INPUTS": 0,
        "multiple": lambda g, *rest: wild(len(g)),
        "multiple_for_rows": lambda rows, cut, side: wild((len(rows), len(cut))),
        "needed": lambda model, functions: rng.random(model.sizes.size) < 0.5,
        "scores": lambda model, pieces, *rest: wild(pieces.lower.shape),
    }
    for name, value in patched.items():
        monkeypatch.setattr(advice, name, value)


@pytest.mark.parametrize("seed", range(6))
def test_hostile_advice_never_proves_what_is_false(seed, tmp_path, monkeypatch):
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 2, 3, (6, 5))
    risk = MeanMinusStd(0.5) if seed % 3 == 2 else None
    path, box = tmp_path / "a", Domain([-1.0] * 3, [1.0] * 3)
    known = {"method": "box", "certificate": path, "threads": 1, "risk": risk}
    ennopt.maximize(ensemble, box, gap=1e-5, **known)
    claim = Certificate.read(path, ensemble)
    assert check(claim)
    size = 1e-3 + abs(claim.value)
    low = replace(claim, x=None, value=float("nan"), bound=claim.value - 1e-4 * size)
    hostile(rng, monkeypatch)
    for _ in range(5):
        assert not check(low, most_pieces=1500)


@pytest.mark.parametrize("few", [0, 99])
def test_a_claim_is_proved_with_lines_and_without(few, tmp_path, monkeypatch):
    rng = np.random.default_rng(7)
    ensemble = random_ensemble(rng, 2, 4, (8, 7, 6))
    problem = Problem(ensemble, Domain([-1.0] * 4, [1.0] * 4))
    solve(problem, "box", certificate=tmp_path / "a", gap=1e-4, threads=1)
    claim = Certificate.read(tmp_path / "a", ensemble)
    monkeypatch.setattr(advice, "FEW_INPUTS", few)
    assert check(claim)
    size = abs(claim.value) + 1e-3
    assert not check(replace(claim, bound=claim.value - 1e-9 * size, x=None))


def test_lines_of_the_first_layer_take_fewer_pieces(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    ensemble = random_ensemble(rng, 2, 7, (10, 10))
    problem = Problem(ensemble, Domain([-1.0] * 7, [1.0] * 7))
    solve(problem, "box", certificate=tmp_path / "a", gap=1e-2, threads=1)
    claim = Certificate.read(tmp_path / "a", ensemble)
    with_lines = check(claim)
    monkeypatch.setattr(advice, "FEW_INPUTS", 99)
    without = check(claim)
    assert with_lines and without
    assert with_lines.pieces < 0.8 * without.pieces


def test_rows_may_be_bounded_in_turn(tmp_path, monkeypatch, rng):
    """However many at once, the ends are the same."""
    monkeypatch.setattr(advice, "FEW_INPUTS", 0)
    ensemble = random_ensemble(rng, 2, 3, (9, 8, 7))
    domain = Domain([-1.0] * 3, [1.0] * 3)
    model, prover = model_of(ensemble, domain)
    pieces, _ = prover.split(prover.root(), np.array([1]))
    found = []
    for most in (1, 2**20):
        monkeypatch.setattr(core, "CACHED", most)
        low, high = pieces.low.copy(), pieces.high.copy()
        cut = np.ones((2, 3)), np.array([0.5, -0.5])
        every = np.ones(model.sizes.size, bool)
        model.bound_neurons(pieces.lower, pieces.upper, low, high, cut, every)
        found.append((low, high))
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-9)


def test_a_sign_found_where_other_points_counted_is_found_out():
    """On a thin piece without points that count, a sign may be wrong."""
    rng = np.random.default_rng(5)
    ensemble = random_ensemble(rng, 1, 2, (6, 5))
    model, prover = model_of(ensemble, Domain([-1.0] * 2, [1.0] * 2))
    pieces = prover.root()
    pieces.lower[:], pieces.upper[:] = 0.3, 0.3 + 1e-7
    (signs,) = model.forward(pieces.lower)[2]
    off = np.flatnonzero(signs == 0.0)[0]
    pieces.low[0, off] = 0.5 * model.high[0, off] + 1e-3  # said to be on
    pieces.high[0, off] = pieces.low[0, off] + 1.0
    proved, *_ = prover.prove(pieces, every=True)
    assert proved[0]
    assert checker.THIN > 1e-7
