"""The oracles against each other: nothing else would notice if they were wrong."""

import numpy as np
import pytest

import oracles
from ennopt.domain import Domain
from ennopt.network import Ensemble
from oracles import DEGENERATE, exact_maximum, exact_ranges, grid_maximum


def lifted(ensemble: Ensemble, domain: Domain) -> tuple[Ensemble, Domain]:
    """The same problem with inputs of no effect, so that LPs enumerate it."""
    extra = 3 - ensemble.num_inputs
    members = tuple(
        m.spread_inputs(range(ensemble.num_inputs), 3) for m in ensemble.members
    )
    return (
        Ensemble(members, weights=ensemble.weights),
        Domain([*domain.lower, *[0.0] * extra], [*domain.upper, *[1.0] * extra]),
    )


@pytest.mark.parametrize("seed", range(6))
def test_polygons_and_programs_find_one_maximum(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_ensemble(rng, 2), oracles.random_domain(rng)
    value, x = exact_maximum(ensemble, domain)
    other, _ = exact_maximum(*lifted(ensemble, domain))
    assert domain.contains(x)
    assert value == pytest.approx(other, abs=1e-7)


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("seed", range(3))
def test_maximum_is_close_above_the_grid(name, seed):
    ensemble, domain = DEGENERATE[name](np.random.default_rng(seed))
    value, x = exact_maximum(ensemble, domain)
    grid = grid_maximum(ensemble, domain, 301)
    slope = np.abs(ensemble.gradient(domain.sample(300, np.random.default_rng(0))))
    step = slope.max(axis=(0, 1)) @ domain.widths / 300
    assert grid - 1e-9 * max(1.0, abs(value)) <= value <= grid + 3 * step + 1e-9
    assert value == pytest.approx(float(ensemble(x)[0]))


@pytest.mark.parametrize("seed", range(3))
def test_ranges_by_polygons_and_by_programs_agree(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_ensemble(rng, 1), oracles.random_domain(rng)
    flat = exact_ranges(ensemble, domain)[0]
    solid = exact_ranges(*lifted(ensemble, domain))[0]
    for (low, high), (other_low, other_high) in zip(flat, solid, strict=True):
        np.testing.assert_allclose(low, other_low, atol=1e-7)
        np.testing.assert_allclose(high, other_high, atol=1e-7)
