"""maximize and minimize agree with enumeration, whatever the model and the bounds."""

import numpy as np
import pytest

import ennopt
from ennopt import BigM, Domain, Ensemble, Network, Status, maximize, minimize
from ennopt.methods import METHODS
from oracles import DEGENERATE, exact_maximum, random_case, random_ensemble


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("seed", range(3))
def test_every_method_finds_and_proves_both_extremes(method, seed):
    ensemble, domain = random_case(np.random.default_rng(seed))
    high, _ = exact_maximum(ensemble, domain)
    low, _ = exact_maximum(ensemble.negated(), domain)
    top = maximize(ensemble, domain, method=method, threads=1)
    bottom = minimize(ensemble, domain, method=method, threads=1)
    assert (top.status, bottom.status) == (Status.OPTIMAL, Status.OPTIMAL)
    assert top.value == pytest.approx(high, rel=2e-4, abs=2e-6)
    assert bottom.value == pytest.approx(-low, rel=2e-4, abs=2e-6)
    assert top.bound >= high - 1e-9
    assert bottom.bound <= -low + 1e-9
    assert top.value == ensemble(top.x)[0]
    assert domain.contains(top.x)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("name", sorted(DEGENERATE))
def test_every_method_survives_degenerate_ensembles(method, name, rng):
    ensemble, domain = DEGENERATE[name](rng)
    exact, _ = exact_maximum(ensemble, domain)
    answer = maximize(ensemble, domain, method=method, threads=1)
    assert answer.status is Status.OPTIMAL
    slack = 1e-9 * max(1.0, abs(exact))
    assert answer.value <= exact + slack
    assert answer.bound >= exact - slack
    assert answer.value == pytest.approx(exact, rel=2e-4, abs=2e-6)


def test_bounds_by_name_and_answers_by_name(rng):
    ensemble = Ensemble(random_ensemble(rng).members, input_names=("dose", "heat"))
    answer = maximize(ensemble, {"heat": (0, 1), "dose": (2, 3)})
    assert 0 <= answer.by_name["heat"] <= 1
    assert 2 <= answer.by_name["dose"] <= 3


def test_an_output_of_several_is_selected(rng):
    ensemble = random_ensemble(rng, num_outputs=2)
    domain = Domain([-1, -1], [1, 1])
    difference = maximize(ensemble, domain, output=[1.0, -1.0])
    exact, _ = exact_maximum(ensemble.combine_outputs([1.0, -1.0]), domain)
    assert difference.value == pytest.approx(exact, rel=2e-4, abs=2e-6)
    with pytest.raises(ValueError, match="2 outputs"):
        maximize(ensemble, domain)


def test_a_callback_sees_the_users_sense_and_may_stop(rng):
    ensemble = random_ensemble(rng, 3, 6, (12, 12))
    seen = []
    minimize(ensemble, (-1, 1), callback=seen.append, time_limit=2)
    assert all(moment.bound <= moment.value for moment in seen)
    stopped = minimize(
        random_ensemble(rng, 5, 12, (40, 40, 40)), (-2, 2), callback=lambda _: True
    )
    assert stopped.status is Status.INTERRUPTED
    assert stopped.bound <= stopped.value


def test_senseless_methods_are_refused(rng):
    ensemble = random_ensemble(rng)
    with pytest.raises(ValueError, match="Expected a method among"):
        maximize(ensemble, (0, 1), method="simplex")
    with pytest.raises(TypeError, match="method or its name"):
        maximize(ensemble, (0, 1), method=3)
    with pytest.raises(ValueError, match="Give the method its backend"):
        maximize(ensemble, (0, 1), method=BigM(), backend="scip")


def test_public_names_exist():
    assert all(hasattr(ennopt, name) for name in ennopt.__all__)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("size", [0.0, 1e-310, 1e-200])
def test_predictions_too_small_to_tell_apart_are_proved(method, size):
    net = Network([[[size], [-size]], [[size, size]]], [[0.0, 0.0], [0.0]])
    answer = maximize(
        Ensemble([net]), [(-1, 1)], method=method, threads=1, time_limit=60
    )
    assert answer.status is Status.OPTIMAL
    assert answer.bound >= answer.value


@pytest.mark.parametrize("reach", [1e160, 1e308])
def test_sums_that_overflow_are_refused(reach, rng):
    with pytest.raises(ValueError, match="at most 1e\\+150"):
        maximize(random_ensemble(rng), (-reach, reach), threads=1)
