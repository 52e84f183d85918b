"""What the paper's methods do before they search: first points, bounds of neurons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.engine.restore import restore_best
from ennopt.engine.search import halted
from ennopt.paper.subproblems import Subproblem, fallback
from ennopt.run import Run
from ennopt.tightening.progressive import (
    Tightening,
    deadline_after,
    few_if_convex,
)
from ennopt.tightening.stepwise import Phase, Steps, tighten_by_steps, unnamed

BOUNDS_SHARE = 0.5
"""Share of the time limit that bounds of neurons may take before a MILP is solved: the
solver has the other half even where the bounds do not finish."""


def first_points(run: Run, count: int) -> None:
    """Random points of the domain, for a first value.

    With limits, the most promising of them are moved to where limits hold.
    """
    if not count:
        return
    rng, domain = np.random.default_rng(run.tools.seed), run.problem.domain
    points = domain.sample(few_if_convex(domain, count), rng)
    run.offer(points)
    if run.problem.limits.count:
        restore_best(run.problem, points, run.offer, run.ended)


def begin(run: Run, bounds: NeuronBounds) -> None:
    """A first point and a first bound, so that a run may end at any time."""
    least = fallback(Subproblem(run.problem, bounds))
    assert least.x is not None
    run.offer(least.x)
    run.prove(least.bound)


def tighten_in_run(
    run: Run,
    steps: Sequence[Tightening],
    seconds: float,
    phase: Phase = unnamed,
) -> Steps:
    """Bounds of all neurons, step by step; what a step proves, the run is told.

    Parameters
    ----------
    run
        Its problem is bounded, its executor used; it ends the work when it must end.
    steps
        One after the other.
    seconds
        Time limit.
    phase
        Books the time of steps; by default it is booked where the caller is.
    """
    return tighten_by_steps(
        steps, run.problem, None, run.tools.executor, deadline_after(seconds),
        stop=lambda: halted(run),
        heard=lambda bounds: begin(run, bounds), phase=phase,
    )  # fmt: skip
