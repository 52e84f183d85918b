"""Results survive JSON, runs keep the record straight."""

import math
import time

import numpy as np
import pytest

from ennopt.domain import Domain
from ennopt.network import Ensemble, Network
from ennopt.problem import Problem
from ennopt.result import Event, Limits, NoSolutionError, Result, Status
from ennopt.run import Tools, UnsoundBoundError
from oracles import random_ensemble

LINE = Problem(
    Ensemble((Network((np.array([[2.0]]),), ([1.0],)),)), Domain([0.0], [1.0])
)


def some_result(**changes):
    fields = {
        "status": Status.TIME_LIMIT,
        "sense": "max",
        "x": np.array([0.1, 1 / 3]),
        "names": ("a", "b"),
        "value": 1.25,
        "bound": 1.5,
        "member_values": np.array([1.0, 1.5]),
        "nodes": 7,
        "seconds": {"total": 0.25},
        "history": (Event(0.0, -math.inf, math.inf), Event(0.2, 1.25, 1.5)),
        "method": "BigM()",
        "notes": ("said so",),
    }
    return Result(**(fields | changes))


def test_json_round_trip_is_exact():
    result = some_result()
    again = Result.from_json(result.to_json())
    assert again.to_json() == result.to_json()
    assert np.array_equal(again.x, result.x)
    assert again.history == result.history
    assert again.status is Status.TIME_LIMIT


@pytest.mark.parametrize("sense", ["max", "min"])
def test_unknown_values_survive_json(sense):
    worst = -math.inf if sense == "max" else math.inf
    result = some_result(
        sense=sense, x=None, value=worst, bound=-worst, member_values=[], history=()
    )
    again = Result.from_json(result.to_json())
    assert (again.value, again.bound, again.x) == (worst, -worst, None)
    assert "Infinity" not in result.to_json()
    with pytest.raises(NoSolutionError, match="time_limit"):
        _ = again.by_name


def test_gap_is_relative_to_the_value():
    assert some_result().gap == pytest.approx(0.2)
    assert some_result(value=0.0, bound=1e-12).gap == pytest.approx(1e-2)
    assert some_result(bound=math.inf).gap == math.inf


def test_negated_twice_is_the_same():
    result = some_result()
    assert result.negated().negated().to_json() == result.to_json()
    assert result.negated().bound == -1.5
    assert result.negated().gap == result.gap


def test_summary_tells_the_answer():
    text = some_result(status=Status.OPTIMAL).summary()
    assert "Maximum 1.25, proved" in text
    assert "every feasible point <= 1.5" in text
    assert "a = 0.1" in text
    assert "note: said so" in text


def test_names_and_notes_are_shown_escaped_and_kept_exactly():
    names = ("a\x1b[2J", "b")
    result = some_result(names=names, notes=("not \x1b[31mso",))
    assert all(line.isprintable() for line in result.summary().splitlines())
    assert r"a\x1b[2J = 0.1" in result.summary()
    again = Result.from_json(result.to_json())
    assert again.names == names
    assert tuple(again.by_name) == names


def test_a_result_tells_the_original_and_its_distance():
    result = some_result(original=1.2500001)
    assert result.deviation == pytest.approx(1e-7)
    assert "the original model predicts 1.2500001 there (deviation 1e-07)" in (
        result.summary()
    )
    assert Result.from_json(result.to_json()).to_json() == result.to_json()
    assert result.negated().negated().to_json() == result.to_json()
    assert result.negated().deviation == result.deviation
    assert some_result().deviation is None


def test_a_run_keeps_the_best_value_and_the_lowest_bound():
    with Tools().start(LINE, "test") as run:
        assert run.offer(np.array([[0.25], [0.5]]))
        assert not run.offer(np.array([0.4]))
        assert run.prove(5.0)
        assert not run.prove(6.0)
        assert not run.prove(math.nan)
        run.tick()
        assert run.ended() is None
        run.offer(np.array([7.0]))  # projected onto the domain
        run.prove(3.0)
    result = run.finish()
    assert (result.value, result.bound, result.status) == (3.0, 3.0, Status.OPTIMAL)
    assert result.history[0].value == 2.0


def test_a_bound_below_a_value_is_a_defect_not_a_result():
    with Tools().start(LINE, "test") as run:
        run.offer(np.array([1.0]))
        with pytest.raises(UnsoundBoundError, match="at least the value"):
            run.prove(2.9)


def test_only_value_and_bound_make_an_optimum():
    with Tools().start(LINE, "test") as run:
        run.offer(np.array([1.0]))
        run.prove(3.5)
    assert run.finish(Status.OPTIMAL).status is Status.PRECISION_LIMIT


def test_ctrl_c_ends_the_block_and_keeps_the_answer():
    with Tools().start(LINE, "test") as run:
        run.offer(np.array([0.5]))
        run.prove(4.0)
        raise KeyboardInterrupt
    result = run.finish()
    assert result.status is Status.INTERRUPTED
    assert (result.value, result.bound) == (2.0, 4.0)


def test_a_callback_may_stop_a_run():
    seen = []
    tools = Tools(callback=lambda moment: seen.append(moment) or True)
    with tools.start(LINE, "test") as run:
        run.offer(np.array([0.5]))
        run.tick()
    assert run.finish().status is Status.INTERRUPTED
    assert seen[0].value == 2.0


def test_limits_end_a_run():
    with Tools(Limits(nodes=10)).start(LINE, "test") as run:
        run.count(10)
        assert run.ended() is Status.NODE_LIMIT
    with Tools(Limits(seconds=1e-9)).start(LINE, "test") as run:
        assert run.ended() is Status.TIME_LIMIT
    with pytest.raises(RuntimeError, match="reason to stop"):
        Tools().start(LINE, "test").finish()


@pytest.mark.parametrize(
    "limits", [{"seconds": 0}, {"nodes": -1}, {"gap": -1e-3}, {"gap": math.nan}]
)
def test_senseless_limits_are_refused(limits):
    with pytest.raises(ValueError, match="Expected"):
        Limits(**limits)


def test_minimization_is_maximization_of_the_negated_output(rng):
    ensemble = random_ensemble(rng, num_outputs=3)
    domain = Domain([0, 0], [1, 1])
    problem = Problem(ensemble, domain, "min", [1.0, 0.0, -2.0])
    canonical = problem.maximized()
    x = domain.sample(10, rng)
    np.testing.assert_allclose(
        canonical.values(x), -(ensemble(x) @ [1.0, 0.0, -2.0]), atol=1e-12
    )
    assert canonical.is_canonical
    np.testing.assert_allclose(
        Problem(ensemble, domain, output=2).maximized().values(x), ensemble(x)[:, 2]
    )


@pytest.mark.parametrize("output", [None, 3, -1, 1.5, [1.0], "first", [1, 2, np.nan]])
def test_a_senseless_output_is_refused(rng, output):
    ensemble = random_ensemble(rng, num_outputs=3)
    with pytest.raises(ValueError, match="output"):
        Problem(ensemble, Domain([0, 0], [1, 1]), "max", output)


def test_the_scale_bounds_every_forward_pass(rng):
    problem = Problem(random_ensemble(rng, weighted=True), Domain([-3, 0], [1, 2]))
    values = problem.values(problem.domain.sample(500, rng))
    assert np.abs(values).max() <= problem.scale()


def test_a_bound_below_a_value_proves_nothing():
    with Tools().start(LINE, "test") as run:
        run.offer(LINE.domain.upper)
        run.prove(run.value + 1.0)
        assert not run.prove(run.value - 1e-8)
        assert run.bound == run.value + 1.0
        assert run.prove(run.value - 1e-13)  # rounding
        assert run.bound == run.value
    run.finish()


def test_time_is_booked_under_one_phase_only():
    with Tools().start(LINE, "test") as run:
        with run.phase("outer"):
            with run.phase("inner"):
                time.sleep(0.05)
            with run.phase("inner"):
                time.sleep(0.05)
        run.interrupt()
    seconds = run.finish().seconds
    assert seconds["inner"] >= 0.1
    assert seconds["outer"] + seconds["inner"] <= seconds["total"]
