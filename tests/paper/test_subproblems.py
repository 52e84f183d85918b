"""How the time of a run is divided over subproblems, and who solves them."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

import oracles
from ennopt.milp.highs import Highs
from ennopt.milp.scaling import ScaledModel
from ennopt.paper.subproblems import (
    ByMilp,
    Effort,
    Subproblem,
    fallback,
    solve_all,
)
from ennopt.result import Limits
from ennopt.run import Tools
from ennopt.tightening.milp import MilpTightening

SECONDS = 60.0


def problem_of(rng, num_members=3, widths=(4, 3)):
    ensemble = oracles.random_ensemble(rng, num_members, 2, widths)
    return oracles.canonical(ensemble, oracles.random_domain(rng))


@dataclass(frozen=True)
class Recorder:
    """Solves nothing, and keeps what it was allowed and the thread it was asked in."""

    packages = ()
    efforts: list[Effort] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def solve(self, subproblem, effort, callback):
        self.efforts.append(effort)
        self.threads.append(threading.get_ident())
        return fallback(subproblem)


def shares(problem, tools, count):
    """What each of some subproblems may take of a minute, in the order of starts."""
    recorder = Recorder()
    with tools.start(problem, "test") as run:
        subproblem = Subproblem(problem, problem.root)
        assert solve_all(run, recorder, [subproblem] * count, 1e-6) is not None
    return [effort.seconds for effort in recorder.efforts]


def test_time_is_divided_over_the_subproblems_that_still_wait(rng):
    seconds = shares(problem_of(rng), Tools(Limits(SECONDS)), 4)
    for part, waiting in zip(seconds, (4, 3, 2, 1), strict=True):
        assert 0 < part <= SECONDS / waiting


def test_as_many_as_there_are_threads_share_the_time(rng):
    with ThreadPoolExecutor(2) as pool:
        tools = Tools(Limits(SECONDS), executor=pool)
        seconds = shares(problem_of(rng), tools, 4)
    for part, share in zip(sorted(seconds), (2 / 4, 2 / 3, 1.0, 1.0), strict=True):
        assert 0 < part <= share * SECONDS


def test_without_a_limit_nothing_is_divided(rng):
    assert shares(problem_of(rng), Tools(), 3) == [math.inf] * 3


def test_threads_solve_side_by_side(rng):
    problem, recorder = problem_of(rng), Recorder()
    with (
        Tools(threads=2).with_workers() as tools,
        tools.start(problem, "test") as run,
    ):
        solve_all(run, recorder, [Subproblem(problem, problem.root)] * 3, 1e-6)
    assert len(recorder.threads) == 3
    assert threading.get_ident() not in recorder.threads


def test_one_thread_and_a_given_executor_need_no_workers():
    with Tools().with_workers() as tools:
        assert tools.executor is None
    with ThreadPoolExecutor(1) as pool:
        given = Tools(threads=2, executor=pool)
        with given.with_workers() as tools:
            assert tools is given
        assert pool.submit(int).result() == 0  # still open


@pytest.mark.parametrize("backend", ["highs", "scip"])
def test_without_time_the_linear_relaxation_bounds_a_subproblem(backend, rng):
    strict = 0
    for _ in range(5):
        problem = problem_of(rng, 1, (6, 5))
        subproblem = Subproblem(problem, problem.root)
        optimum, _ = oracles.exact_maximum(oracles.summed(problem), problem.domain)
        scaled = ScaledModel.of(problem, problem.root)
        relaxed = scaled.proved(Highs().solve(scaled.model.relaxed()).bound)
        for effort in (Effort(seconds=0.0), Effort(nodes=0)):
            bound = ByMilp(backend).solve(subproblem, effort, None).bound
            assert optimum - 1e-9 <= bound <= relaxed + 1e-9
        strict += relaxed < fallback(subproblem).bound - 1e-6
    assert strict  # else the test would show nothing


def test_jobs_in_threads_end_when_the_work_is_stopped(rng):
    problem = problem_of(rng, 2, (8, 8, 8))
    with ThreadPoolExecutor(2) as pool:
        done = MilpTightening(backend="scip").run(
            problem, executor=pool, stop=lambda: True
        )
    assert done.neurons == 0
