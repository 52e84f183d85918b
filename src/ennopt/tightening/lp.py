"""Two linear programs for each neuron that is still unstable (section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ennopt.milp.formulation import sub_network
from ennopt.milp.highs import HotLp
from ennopt.tightening.progressive import Done, Job, Progressive

NEURONS_PER_JOB = 16
"""Neurons that share a linear program, each starting from the last one's basis."""


@dataclass(frozen=True, slots=True)
class LpTightening(Progressive):
    """Extremes of each unstable neuron over the linear relaxation of the layers before.

    Bounds are recomputed from the duals, so they hold whatever the solver's tolerance.

    Parameters
    ----------
    outputs
        Whether to bound the predictions of the members, too.

    Examples
    --------
    >>> from ennopt import Domain, Network
    >>> from ennopt.canonical import Canonical
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem = Canonical.sum_of([net], Domain([-1.0], [1.0]))
    >>> bounds = LpTightening().tighten(problem)
    >>> bounds.upper[0][1].round(9).tolist()
    [1.0]
    """

    outputs: bool = True

    def _work(self) -> tuple[Callable[[Job], Done], int]:
        return _solve, NEURONS_PER_JOB


def _solve(job: Job) -> Done:
    made = sub_network(job.problem, job.layer, job.bounds, relaxed=True)
    program = HotLp(made.model)
    upper = np.full(job.neurons.size, math.inf)
    lower = -upper
    neurons = solves = 0
    for index, j in enumerate(job.neurons.tolist()):
        form, constant = made.preactivation(0, job.layer, j)
        if job.remaining() <= 0:
            break
        neurons += 1
        found = program.maximize(form, constant, job.remaining())
        upper[index] = found.bound_of_feasible
        solves += 1
        if job.hidden and upper[index] <= 0:
            continue  # off: its lower bound is of no use
        found = program.maximize(-form, -constant, job.remaining())
        lower[index] = -found.bound_of_feasible
        solves += 1
    return Done(lower, upper, neurons, solves)
