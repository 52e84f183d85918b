"""Results survive JSON, runs keep the record straight."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from ennopt.canonical import Canonical
from ennopt.domain import Domain, Rows
from ennopt.met import met_at
from ennopt.network import Ensemble, Network
from ennopt.paper.bigm import BigM
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


ROWS = Rows(
    [[1, 1], [1, 0], [0, 1], [0, 1], [1, 0], [1, 1]],
    [2.0, -np.inf, 1.0, 1.0, 0.0, -np.inf],
    [2.0, 1.0, np.inf, 3.0, 5.0, np.inf],
)
AT = ["both", "upper", "lower", "lower", None, None]
WORDS = [
    "holds", "at its limit", "at its limit", "at its lower limit", "1 to spare", "holds"
]  # fmt: skip


def test_a_result_tells_how_constraints_are_met():
    x = np.array([1.0, 1.0 + 1e-9])
    result = some_result(x=x, constraints=met_at(ROWS, x))
    assert [met.side for met in result.constraints] == AT
    assert [met.words for met in result.constraints] == WORDS
    assert [met.value for met in result.constraints] == (ROWS.matrix @ x).tolist()
    assert f"\n  {ROWS.texts[4]}: 1 to spare\n" in result.summary()
    assert Result.from_json(result.to_json()).constraints == result.constraints


def test_constraints_without_an_answer_survive_json():
    result = some_result(x=None, constraints=met_at(ROWS, None))
    again = Result.from_json(result.to_json())
    assert again.to_json() == result.to_json()
    assert again.constraints[1][2:] == (-math.inf, 1.0, None)
    assert math.isnan(again.constraints[1].value)
    assert {met.words for met in again.constraints} == {"no answer to check"}


def test_of_many_constraints_a_summary_lists_those_at_their_limits():
    x = np.ones(2)
    many = met_at(Rows(np.eye(2)[[0] * 40], [-np.inf] * 40, [1.0, *[2.0] * 39]), x)
    text = some_result(x=x, constraints=many).summary()
    assert "  linear constraint 1: at its limit\n  39 other constraints hold\n" in text


def test_a_long_constraint_is_shown_in_part():
    rows = Rows([[1, 1]], [0], [1], (" + ".join(["a\tb\x1b"] * 100) + " <= 1",))
    x = np.zeros(2)
    lines = some_result(x=x, constraints=met_at(rows, x)).summary().splitlines()
    assert max(map(len, lines)) < 120
    assert all(line.isprintable() for line in lines)


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


def opposite(result):
    """The same answer told as a minimization."""
    return replace(result, sense="min", value=-result.value, bound=-result.bound)


def test_a_printed_result_tells_the_answer():
    result = some_result(status=Status.OPTIMAL, bound=1.2501)
    text = str(result)
    assert text == result.summary()
    assert "Maximum 1.25, proved: no input can exceed 1.2501 (gap 0.008%)" in text
    assert "optimal after 0.25 s and 7 nodes" in text
    assert "a = 0.1" in text
    assert "note: said so" in text
    assert repr(result).startswith("Result(status=optimal")
    assert "\n" not in repr(result)


NOTHING = {"x": None, "member_values": []}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Best found 1.25; no input can exceed 1.5 (gap 20%)"),
        ({"bound": math.inf}, "Best found 1.25; no bound proved"),
        ({"value": -math.inf, **NOTHING}, "No input found; no input can exceed 1.5"),
        (
            {"value": -math.inf, "bound": math.inf, **NOTHING},
            "No input found; no bound proved",
        ),
        (
            {"status": Status.INFEASIBLE, "value": -math.inf, **NOTHING},
            "Infeasible: no input satisfies every bound and constraint",
        ),
        ({"value": 0.0}, "Best found 0; no input can exceed 1.5 (distance 1.5)"),
        ({"value": 0.5}, "Best found 0.5; no input can exceed 1.5 (gap 200%)"),
    ],
)
def test_an_unproved_answer_says_so(changes, sentence):
    result = some_result(**changes)
    assert result.summary().splitlines()[0] == sentence
    assert "Maximum" not in str(result)
    mirrored = sentence.replace("exceed ", "fall below -")
    for value in ("1.25", "0.5"):
        mirrored = mirrored.replace(f"found {value}", f"found -{value}")
    assert opposite(result).summary().splitlines()[0] == mirrored


def test_a_point_that_is_not_there_is_explained():
    with pytest.raises(NoSolutionError, match="Raise the limit"):
        _ = some_result(**NOTHING).by_name
    with pytest.raises(NoSolutionError, match="Widen the bounds"):
        _ = some_result(status=Status.INFEASIBLE, **NOTHING).by_name


def test_an_optimum_near_zero_explains_its_gap():
    near = some_result(
        status=Status.OPTIMAL, value=1e-9, bound=5e-7, asked_gap=1e-4, notes=()
    )
    assert near.gap > near.asked_gap
    (note,) = near.notes
    assert "near zero" in note
    assert "0.0001" in note
    assert note in str(near)
    again = Result.from_json(opposite(near).to_json())
    assert again.notes == near.notes
    assert again.asked_gap == 1e-4


def test_an_optimum_away_from_zero_has_nothing_to_explain(rng):
    for gap in (1e-4, 1e-12, 0.0):
        for value in rng.uniform(0.01, 9.0, 200):  # the gap of some rounds up
            far = some_result(
                status=Status.OPTIMAL, value=value, bound=value + gap * value,
                asked_gap=gap, notes=(),
            )  # fmt: skip
            assert far.notes == ()


def test_a_run_carries_the_gap_asked_for_and_explains_a_larger_one():
    line = Problem(
        Ensemble((Network((np.array([[1.0]]),), ([-1.0],)),)), Domain([0.0], [1.0])
    )
    with Tools(Limits(gap=1e-3)).start(line, "test") as run:
        run.offer(np.array([1.0 - 1e-7]))
        run.prove(0.0)
    result = run.finish()
    assert result.asked_gap == 1e-3
    assert result.status is Status.OPTIMAL
    assert result.gap > 1e-3
    assert "near zero" in result.notes[0]


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


def test_a_first_value_does_not_wait_for_bounds_of_the_neurons(rng):
    """Ctrl-C in the first moments keeps the point: bounds of wide layers take time."""
    problem = Canonical.of(Problem(random_ensemble(rng), Domain([0, 0], [1, 1])))
    with Tools().start(problem, "test") as run:
        run.offer(problem.domain.centre)
        assert "root" not in vars(problem)
        raise KeyboardInterrupt
    result = run.finish()
    assert result.status is Status.INTERRUPTED
    assert result.value == problem.values(problem.domain.centre[None])[0]


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
    canonical = Canonical.of(problem)
    x = domain.sample(10, rng)
    wanted = -(ensemble(x) @ [1.0, 0.0, -2.0])
    np.testing.assert_allclose(canonical.values(x), wanted, atol=1e-12)
    np.testing.assert_allclose(canonical.outputs(x).sum(axis=1), wanted, atol=1e-12)
    third = Problem(ensemble, domain, output=2)
    np.testing.assert_array_equal(third.values(x), ensemble(x)[:, 2])
    total = Canonical.of(third).outputs(x).sum(axis=1)
    np.testing.assert_allclose(total, third.values(x), atol=1e-12)


@pytest.mark.parametrize("output", [None, 3, -1, 1.5, [1.0], "first", [1, 2, np.nan]])
def test_a_senseless_output_is_refused(rng, output):
    ensemble = random_ensemble(rng, num_outputs=3)
    with pytest.raises(ValueError, match="output"):
        Problem(ensemble, Domain([0, 0], [1, 1]), "max", output)


def test_the_scale_bounds_every_forward_pass(rng):
    problem = Problem(random_ensemble(rng, weighted=True), Domain([-3, 0], [1, 2]))
    values = problem.values(problem.domain.sample(500, rng))
    assert np.abs(values).max() <= Canonical.of(problem).scale


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


def test_details_in_units_of_the_objective_are_told_in_the_users_sense(rng):
    ensemble = random_ensemble(rng, 2, 2, (4, 3))
    domain = Domain([-1, -1], [1, 1])
    low = BigM().solve(Problem(ensemble, domain, "min"), Tools())
    high = BigM().solve(Problem(ensemble.negated(), domain), Tools())
    assert low.details["root_bound"] == pytest.approx(-high.details["root_bound"])
    assert low.details["root_bound"] <= low.bound <= low.value
    for seconds, value, bound in low.history:
        assert seconds >= 0
        assert bound <= value


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e12])
def test_bounds_below_a_value_are_judged_by_the_size_of_the_problem(size):
    """Rounding is forgiven, a solver's tolerance proves nothing, more is a defect."""
    net = Network([[[size], [-size]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    problem = Problem(Ensemble([net]), Domain([-1.0], [1.0]))
    with Tools().start(problem, "test") as run:
        run.offer(np.array([1.0]))
        assert run.value == size
        assert not run.prove(size * (1.0 - 1e-7))
        with pytest.raises(UnsoundBoundError):
            run.prove(size * 0.99)
        assert run.bound == np.inf
        assert run.prove(size * (1.0 - 1e-12))
        assert run.bound == size


def test_a_value_above_a_proved_bound_is_a_defect():
    """Whichever came first."""
    with Tools().start(LINE, "test") as run:
        run.prove(1.5)
        with pytest.raises(UnsoundBoundError, match="at least the value"):
            run.offer(np.array([1.0]))
