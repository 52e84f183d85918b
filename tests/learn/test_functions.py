from dataclasses import replace

import numpy as np
import pytest

from ennopt.domain import Domain
from ennopt.learn.functions import (
    BEALE,
    FUNCTIONS,
    PEAKS,
    PERM,
    SPRING,
    Function,
    check,
    function_named,
    rosenbrock,
    styblinski,
)


@pytest.mark.parametrize(
    "function",
    [*FUNCTIONS.values(), styblinski(2), styblinski(3), rosenbrock(2), rosenbrock(3)],
    ids=lambda f: f.name,
)
def test_every_function_keeps_its_declared_optimum(function):
    found = check(function, grid_points=60_000)
    assert found.at_optimizer == pytest.approx(function.optimum, abs=1e-6)
    assert found.on_grid >= function.optimum - 1e-6


@pytest.mark.parametrize(
    ("function", "stated", "point"),
    [
        (PEAKS, -6.551, (0.228, -1.626)),
        (BEALE, 0.0, (3.0, 0.5)),
        (PERM, 0.0, (1.0, 2.0, 3.0)),
        (SPRING, -1.0, (4.0,) * 5),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_values_are_those_of_the_paper(function, stated, point):
    assert float(function(point)) == pytest.approx(stated, abs=5e-4)


def test_peaks_as_printed_is_refused():
    def printed(x):
        a, b = x.T
        return (
            3 * (1 - a**2) ** 2 * np.exp(-(a**2) - (b + 1) ** 2)
            - 10 * (a / 5 - a**3 - b**5) * np.exp(-(a**2) - b**2)
            - np.exp(-((a + 1) ** 2) - b**2) / 3
        )

    assert float(printed(PEAKS.optimizer[None])[0]) == pytest.approx(-5.968, abs=1e-3)
    with pytest.raises(ValueError, match=r"Expected the value -6\.551.* got -5\.96"):
        check(replace(PEAKS, formula=printed))


def test_the_domain_of_spring_as_printed_is_refused():
    with pytest.raises(ValueError, match=r"optimizer of 4 coordinates.* got 5"):
        replace(SPRING, domain=Domain(np.zeros(4), np.full(4, 8.0)))


def test_an_optimum_that_a_grid_beats_is_refused():
    local = np.array([1.0, 1.0])
    wrong = replace(BEALE, optimizer=local, optimum=float(BEALE(local)))
    with pytest.raises(ValueError, match=r"as the best value of beale.* the better"):
        check(wrong)


def test_an_optimizer_outside_the_domain_is_refused():
    with pytest.raises(ValueError, match="in its domain"):
        check(replace(BEALE, domain=Domain([-1, -1], [1, 1])))


def test_a_maximized_function_is_checked_in_its_own_sense():
    hill = Function(
        "hill", lambda x: 5 - (x**2).sum(axis=1), Domain([-1, -2], [2, 2]), 5.0,
        np.zeros(2), sense="max",
    )  # fmt: skip
    assert check(hill).by_search == pytest.approx(5.0)
    with pytest.raises(ValueError, match="the better"):
        check(replace(hill, optimizer=np.ones(2), optimum=3.0))


def test_perm_has_a_second_minimizer():
    # Three equations of degree 1, 2 and 3: (1, 2, 3) is not the only solution.
    second = np.array([1.68579765, 1.13489757, 3.04515563])
    assert float(PERM(second)) < 1e-8
    assert np.linalg.norm(second - PERM.optimizer) > 1


def test_functions_take_any_leading_shape():
    x = SPRING.domain.sample(12, np.random.default_rng(0)).reshape(3, 4, 5)
    assert SPRING(x).shape == (3, 4)
    assert SPRING(x)[1, 2] == SPRING(x[1, 2])
    with pytest.raises(ValueError, match="Expected 5 inputs"):
        SPRING(np.zeros(4))


@pytest.mark.parametrize("name", ["peak", "styblinski", "styblinskix", "rosenbrock1"])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(ValueError, match="Expected one of peaks"):
        function_named(name)
