"""Values before the proof: feasible, never worse than their start."""

import numpy as np
import pytest

from ennopt.engine.values import ascend, cell_forms, climb, distinct, polish
from ennopt.milp.highs import HotLp
from ennopt.milp.model import LinearModel
from oracles import (
    canonical,
    exact_maximum,
    random_case,
    random_domain,
    random_ensemble,
)


def test_ascent_never_loses_value_and_stays_inside(rng):
    for _ in range(30):
        ensemble, domain = random_case(rng)
        starts = domain.sample(20, rng)
        points, values = ascend(canonical(ensemble, domain), starts)
        assert values[0] >= ensemble(starts).max()
        assert np.all(np.diff(values) <= 0)
        assert all(domain.contains(point) for point in points)
        np.testing.assert_allclose(ensemble(points)[:, 0], values, rtol=1e-12)


def test_many_starts_with_polish_find_most_maxima(rng):
    found = 0
    for _ in range(40):
        ensemble, domain = random_case(rng)
        points, _ = ascend(canonical(ensemble, domain), domain.sample(100, rng))
        best = max(
            float(ensemble(polish(canonical(ensemble, domain), point))[0])
            for point in distinct(points, domain, 3)
        )
        exact, _ = exact_maximum(ensemble, domain)
        assert best <= exact + 1e-9 * max(1.0, abs(exact))
        found += best >= exact - 1e-7 * max(1.0, abs(exact))
    assert found >= 36


def test_polish_never_loses_value(rng):
    for _ in range(30):
        ensemble, domain = random_ensemble(rng, 2, 4, (8, 6)), random_domain(rng, 4)
        x = domain.sample(1, rng)[0]
        better = polish(canonical(ensemble, domain), x)
        assert domain.contains(better)
        assert ensemble(better)[0] >= ensemble(x)[0]


def test_polish_reaches_the_best_point_of_the_cell(rng):
    ensemble, domain = random_ensemble(rng, 2, 3, (6, 5)), random_domain(rng, 3)
    x = domain.sample(1, rng)[0]
    rows, limits, gradient = cell_forms(canonical(ensemble, domain), x)
    assert np.all(rows @ x <= limits + 1e-12)
    near = x + 1e-3 * rng.normal(size=(2000, 3))
    inside = np.all(near @ rows.T <= limits, axis=1) & np.all(
        (near >= domain.lower) & (near <= domain.upper), axis=1
    )
    assert inside.sum() > 100
    value = ensemble(x)[0]
    for point in near[inside]:
        change = gradient @ (point - x)
        assert ensemble(point)[0] == pytest.approx(value + change, abs=1e-10)
    top = ensemble(polish(canonical(ensemble, domain), x))[0]
    assert top >= ensemble(near[inside]).max() - 1e-9


def test_distinct_points_are_apart(rng):
    _, domain = random_case(rng)
    points = domain.sample(50, rng)
    twice = np.concatenate([points, points])
    assert len(distinct(twice, domain, 1000)) <= 50
    assert len(distinct(twice, domain, 3)) == 3
    assert distinct(twice, domain, 0).shape == (0, domain.num_inputs)


def test_climb_agrees_with_a_linear_program(rng):
    for _ in range(150):
        d, rows = int(rng.integers(1, 12)), int(rng.integers(0, 40))
        normals = rng.normal(size=(rows, d))
        normals /= np.linalg.norm(normals, axis=1)[:, None]
        slacks, down, up = (
            np.where(rng.random(n) < 0.2, 0.0, rng.random(n)) for n in (rows, d, d)
        )
        gradient = rng.normal(size=d) * (rng.random(d) < 0.8)
        move = climb(gradient, normals, slacks, down, up)
        assert np.all(normals @ move <= slacks + 1e-10)
        assert np.all(move >= -down - 1e-10)
        assert np.all(move <= up + 1e-10)
        model = LinearModel.of(-down, up, gradient, normals, upper_rows=slacks)
        best = HotLp(model).maximize(gradient)
        assert gradient @ move == pytest.approx(best.value, abs=1e-8)


def test_a_climb_and_a_polish_stop_when_told(rng):
    nothing = climb(np.ones(3), np.zeros((0, 3)), np.zeros(0), *np.ones((2, 3)),
                    stop=lambda: True)  # fmt: skip
    np.testing.assert_array_equal(nothing, np.zeros(3))
    ensemble, domain = random_case(rng)
    x = domain.sample(1, rng)[0]
    np.testing.assert_array_equal(
        polish(canonical(ensemble, domain), x, stop=lambda: True), x
    )
