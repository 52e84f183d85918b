"""Any multipliers prove a bound: the kernel's equals its specification, and holds."""

import numpy as np
import pytest
from ways import MODULE

from ennopt.engine.duality import proved_by
from ennopt.engine.program import L, U
from ennopt.engine.schemes import compiled_signs
from oracles import DEGENERATE, canonical, exact_maximum, random_case, random_ensemble
from oracles import random_domain as box

pytestmark = pytest.mark.skipif(MODULE is None, reason="the extension is not built")


def cases(rng):
    for _ in range(40):
        yield random_case(rng)
    for make in DEGENERATE.values():
        yield make(rng)
    yield random_ensemble(rng, 3, 6, (9, 8, 7), weighted=True), box(rng, 6)


def test_any_multipliers_prove_a_bound_and_both_say_the_same(rng):
    finite = 0
    for ensemble, domain in cases(rng):
        problem = canonical(ensemble, domain)
        bounds = problem.root
        signs = compiled_signs(problem, bounds)
        free = np.full(problem.num_neurons, U | L, dtype=np.uint8)
        top = None
        for scale in (0.0, 0.1, 1.0, 1e3):
            multipliers = scale * rng.normal(size=problem.num_neurons)
            mine = MODULE.proved_by(signs, free, multipliers)
            theirs = proved_by(problem, bounds, free, multipliers)
            assert mine == pytest.approx(theirs, rel=1e-12, abs=1e-12)
            if top is None and problem.num_inputs <= 2:
                top = exact_maximum(ensemble, domain)[0]
            if top is not None:
                assert mine >= top
            finite += np.isfinite(mine)
    assert finite > 100


def test_held_neurons_hold_for_the_points_that_have_their_signs(rng):
    seen = 0
    for _ in range(20):
        ensemble, domain = random_ensemble(rng, 2, 3, (5, 4)), box(rng, 3)
        problem = canonical(ensemble, domain)
        points = domain.sample(3000, rng)
        neurons = np.concatenate(
            [h for n in problem.networks for h in n.preactivations(points)[:-1]], axis=1
        )
        # Some neurons held as they are at one of the points.
        held = np.where(neurons[0] >= 0, U, L)
        chosen = rng.random(problem.num_neurons) < 0.5
        allowed = np.where(chosen, held, U | L)
        mine = np.all((neurons >= 0) | (allowed != U), axis=1)
        mine &= np.all((neurons <= 0) | (allowed != L), axis=1)
        values = problem.values(points)
        signs = compiled_signs(problem, problem.root)
        for scale in (0.1, 1.0):
            multipliers = scale * rng.normal(size=problem.num_neurons)
            bound = MODULE.proved_by(signs, allowed.astype(np.uint8), multipliers)
            assert np.all(values[mine] <= bound)
        seen += np.count_nonzero(mine)
    assert seen > 50


def test_multipliers_that_are_not_numbers_prove_nothing(rng):
    problem = canonical(random_ensemble(rng, 1, 2, (4, 3)), box(rng, 2))
    signs = compiled_signs(problem, problem.root)
    free = np.full(problem.num_neurons, U | L, dtype=np.uint8)
    nothing = np.full(problem.num_neurons, np.nan)
    assert MODULE.proved_by(signs, free, nothing) == np.inf
    with np.errstate(invalid="ignore"):
        assert proved_by(problem, problem.root, free, nothing) == np.inf
