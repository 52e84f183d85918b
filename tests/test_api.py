"""maximize and minimize agree with enumeration, whatever the model and the bounds."""

import logging
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import ennopt
from ennopt import (
    BigM,
    Domain,
    Ensemble,
    Network,
    Problem,
    Status,
    maximize,
    minimize,
    solve,
)
from ennopt.methods import METHODS
from ennopt.run import available_cores
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


@pytest.mark.parametrize("name", ["highs", "scip", "gurobi"])
def test_a_solver_as_method_is_told_to_be_a_backend(rng, name):
    match = (
        f"got '{name}', a MILP solver. Choose the method bigm and the backend {name}"
    )
    with pytest.raises(ValueError, match=match):
        maximize(random_ensemble(rng), (0, 1), method=name)


def test_a_class_as_method_is_told_to_be_called(rng):
    with pytest.raises(TypeError, match=r"got the class BigM. Write BigM\(\)"):
        maximize(random_ensemble(rng), (0, 1), method=BigM)


def test_none_is_no_limit(rng):
    answer = maximize(
        random_ensemble(rng), (0, 1), time_limit=None, node_limit=None,
        memory_limit=None, threads=None,
    )  # fmt: skip
    assert answer.status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"time_limit": 0}, "positive number or None, got 0 at time_limit"),
        ({"time_limit": "60"}, "positive number or None, got '60' at time_limit"),
        ({"node_limit": -1}, "got -1 at node_limit"),
        ({"memory_limit": float("nan")}, "got nan at memory_limit"),
        ({"memory_limit": "2GB"}, "got '2GB' at memory_limit"),
        ({"gap": None}, "gap >= 0, got None"),
        ({"gap": -1}, "gap >= 0, got -1"),
        ({"threads": 0}, "whole number of threads >= 1, got 0"),
        ({"threads": 1.5}, "whole number of threads >= 1, got 1.5"),
        ({"seed": None}, "whole number as seed >= 0, got None"),
        ({"callback": 3}, "callback that can be called, got 3"),
        ({"executor": 3}, "executor with a method submit, got 3"),
    ],
)
def test_senseless_keywords_are_refused_by_name(keywords, message):
    with pytest.raises((ValueError, TypeError), match=message):
        # The model is never looked at: a slip costs no time.
        maximize(None, (0, 1), **keywords)


def test_a_memory_limit_reaches_the_search(rng):
    ensemble = random_ensemble(rng, 3, 4, (12, 12))
    seen = []

    class Spy:
        def solve(self, problem, tools):
            seen.append(tools.limits.memory)
            return ennopt.BoxSearch().solve(problem, tools)

    roomy = maximize(ensemble, (-1, 1), method=Spy(), memory_limit=1e9)
    tight = minimize(ensemble, (-1, 1), method=Spy(), memory_limit=1.0)
    assert seen == [1e9, 1.0]
    assert roomy.proved
    assert tight.bound <= tight.value


def test_a_problem_is_solved_as_it_is(rng):
    ensemble, domain = random_case(rng)
    low, _ = exact_maximum(ensemble.negated(), domain)
    problem = Problem(ensemble, domain, "min")
    for method in ("auto", "bigm", BigM(backend="scip")):
        answer = solve(problem, method, time_limit=60, threads=1)
        assert answer.proved
        assert answer.value == pytest.approx(-low, rel=2e-4, abs=2e-6)
    assert "scip" in solve(problem, "bigm", backend="scip").method
    with pytest.raises(TypeError, match="Expected a Problem, got Ensemble"):
        solve(ensemble)


def test_data_bounds_what_the_domain_leaves_out(rng):
    ensemble = Ensemble(random_ensemble(rng).members, input_names=("dose", "age"))
    rows = np.array([[0.0, 1.0], [2.0, 90.0]])
    answer = maximize(ensemble, {"age": 28}, data=rows)
    assert answer.by_name["age"] == 28
    assert 0 <= answer.by_name["dose"] <= 2
    assert 1 <= minimize(ensemble, data=rows).by_name["age"] <= 90


def test_verbose_prints_the_log_and_leaves_the_callback_alone(rng, capsys):
    ensemble = random_ensemble(rng, 3, 3, (12, 12))
    seen = []
    answer = minimize(ensemble, (-1, 1), verbose=True, callback=seen.append)
    log = capsys.readouterr().err
    assert repr(ensemble) in log
    assert "Domain(" in log
    assert f"{answer.value:.8g}" in log
    assert seen[-1].value == answer.value
    minimize(ensemble, (-1, 1))
    assert capsys.readouterr().err == ""
    stopped = maximize(
        random_ensemble(rng, 5, 12, (40, 40, 40)), (-2, 2), verbose=True,
        callback=lambda _: True,
    )  # fmt: skip
    assert stopped.status is Status.INTERRUPTED


def test_a_run_is_told_to_logging_without_any_handler_of_ours(rng, caplog):
    assert logging.getLogger("ennopt").handlers == []
    with caplog.at_level(logging.INFO, "ennopt"):
        answer = minimize(random_ensemble(rng, 2, 2, (6,)), (-1, 1), method="box")
    first, *moments, last = [record.getMessage() for record in caplog.records]
    assert first.startswith("BoxSearch(") and "Canonical(" in first
    assert f"value {answer.value:g}, bound {answer.bound:g}" in moments[-1]
    assert last.startswith("optimal after")


def test_public_names_exist():
    assert all(hasattr(ennopt, name) for name in ennopt.__all__)
    assert set(ennopt.__all__) <= set(dir(ennopt))
    with pytest.raises(AttributeError, match="no attribute 'maximise'"):
        _ = ennopt.maximise


def test_importing_the_package_loads_no_method_and_no_room_below():
    code = (
        "import sys, ennopt\n"
        "rooms = {name.split('.')[1] for name in sys.modules if 'ennopt.' in name}\n"
        "print(*sorted(rooms & {'paper', 'engine', 'milp', 'learn', 'study', 'cli'}))\n"
        "net = ennopt.Network([[[1.0]]], [[0.0]])\n"
        "assert ennopt.maximize(net, [(0, 1)]).value == 1.0\n"
        "print(*sorted(n for n in sys.modules if n.startswith('ennopt.paper')))\n"
        "print(ennopt.BigM.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["", "", "BigM"]


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


@pytest.mark.skipif(available_cores() < 2, reason="one core is one thread")
def test_one_thread_is_one_thread_of_the_matrix_library_too(rng):
    def libraries():
        return [
            entry["num_threads"]
            for entry in threadpool_info()
            if entry["user_api"] == "blas"
        ]

    before, during = libraries(), []
    ensemble = random_ensemble(rng, 2, 3, (8, 8))
    ennopt.maximize(
        ensemble, (-1, 1), threads=1, callback=lambda _: during.extend(libraries())
    )
    assert max(before) > 1
    assert set(during) == {1}
    assert libraries() == before
