"""One tightening after the other: who is told what, and when the work ends."""

import itertools
import time
from contextlib import contextmanager

import numpy as np
import pytest

import oracles
from ennopt.canonical import Canonical
from ennopt.engine.sign_tightening import SignTightening
from ennopt.paper.targeted import Targeted, Targets
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from ennopt.tightening.progressive import deadline_after, seconds_left
from ennopt.tightening.relaxation import Crown, Interval
from ennopt.tightening.stepwise import tighten_by_steps

STEPS = [Interval(), Crown(), LpTightening(), MilpTightening(), Targeted(nodes=20)]


def case() -> Canonical:
    rng = np.random.default_rng(5)
    ensemble = oracles.random_ensemble(rng, 2, 2, (6, 5))
    return oracles.members(ensemble, oracles.random_domain(rng))


def flat(bounds):
    return np.concatenate([np.concatenate([-low, high]) for low, high in pairs(bounds)])


def pairs(bounds):
    for lows, highs in zip(bounds.lower, bounds.upper, strict=True):
        yield from zip(lows, highs, strict=True)


@pytest.mark.parametrize("step", [*STEPS, SignTightening()], ids=repr)
def test_a_step_in_the_loop_gives_what_it_gives_alone(step):
    problem = case()
    alone = step.tighten(problem, Interval().tighten(problem))
    steps = tighten_by_steps([step], problem)
    np.testing.assert_array_equal(flat(steps.bounds), flat(alone))
    assert len(steps.done) == 1


def test_bounds_are_told_as_they_become_known_and_only_get_tighter():
    problem = case()
    heard = []
    steps = tighten_by_steps(STEPS[1:], problem, heard=heard.append)
    first = Interval().tighten(problem)
    np.testing.assert_array_equal(flat(heard[0]), flat(first))
    assert heard[-1] is steps.bounds
    # Interval arithmetic, four steps, and within the last its own two first parts.
    assert len(heard) == 1 + 4 + 2
    for before, after in itertools.pairwise(heard):
        assert np.all(flat(after) <= flat(before))
    assert np.any(flat(heard[-1]) < flat(heard[0]))


@pytest.mark.parametrize("first", [Crown(), LpTightening(), Targeted(nodes=20)])
def test_a_true_answer_ends_the_work_with_what_is_known(first):
    problem = case()
    steps = tighten_by_steps([first, MilpTightening()], problem, stop=lambda: True)
    assert len(steps.done) == 1  # the second was not begun
    assert steps.done[0].solves == 0  # and the first did not work for long
    points = problem.domain.sample(500, np.random.default_rng(0))
    assert steps.bounds.contains([m.preactivations(points) for m in problem.networks])


def test_known_bounds_are_a_start():
    problem = case()
    tight = MilpTightening().tighten(problem)
    steps = tighten_by_steps([Crown()], problem, tight)
    assert np.all(flat(steps.bounds) <= flat(tight))


def test_what_each_step_did_is_counted():
    problem = case()
    lp, milp, targeted = LpTightening(), MilpTightening(), Targeted(nodes=20)
    steps = tighten_by_steps([Crown(), lp, targeted], problem)
    crown = Crown().tighten(problem)
    assert steps.done[0].solves == 0
    assert steps.done[1].solves == lp.run(problem, crown).solves > 0
    assert isinstance(steps.done[2], Targets)
    only = tighten_by_steps([milp], problem).done[0]
    assert only.neurons <= only.solves <= 2 * only.neurons


def test_a_deadline_in_the_past_leaves_interval_arithmetic():
    problem = case()
    past = time.perf_counter() - 1.0
    steps = tighten_by_steps([LpTightening(), MilpTightening()], problem, deadline=past)
    assert sum(done.solves for done in steps.done) == 0
    np.testing.assert_array_equal(flat(steps.bounds), flat(Interval().tighten(problem)))


def test_time_is_booked_under_the_names_of_the_parts():
    problem = case()
    names = []

    @contextmanager
    def phase(name):
        names.append(name)
        yield

    targeted = Targeted(nodes=20, threshold=0.0)
    tighten_by_steps([Crown(), targeted], problem, phase=phase)
    assert names == ["bounds", "lp_bounds", "survey", "milp_bounds"]


def test_deadlines_are_read_on_one_clock():
    assert deadline_after(np.inf) is None
    assert seconds_left(None) == np.inf
    assert 0.0 < seconds_left(deadline_after(100.0)) <= 100.0
    assert seconds_left(deadline_after(-5.0)) == 0.0
