"""Two MILPs for each neuron that is still unstable: exact, up to their time limit."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ennopt.milp import backend
from ennopt.milp.formulation import sub_network
from ennopt.milp.model import LinearModel
from ennopt.milp.solver import (
    TIGHT_TOLERANCE,
    MilpStatus,
    SolveHooks,
    SolveOptions,
)
from ennopt.network import Array, Network
from ennopt.tightening.progressive import (
    Done,
    Job,
    Progressive,
    deadline_after,
    seconds_left,
)

LEAST_SECONDS = 0.02
"""With less a solver has hardly begun: where there is not even that for each MILP, the
neurons that come first are served."""

GAP = 1e-6
"""Relative gap of a MILP that bounds a neuron."""


@dataclass(frozen=True, slots=True)
class MilpTightening(Progressive):
    """Extremes of each unstable neuron over the layers before, as MILPs.

    At the time limit the solver's dual bound is kept. Once the first MILP decides
    the sign of a neuron, the second is skipped.

    Parameters
    ----------
    seconds
        Time limit of each MILP, and less where a deadline leaves less: the time until
        then is divided over the neurons that wait.
    backend
        Which solver.
    outputs
        Whether to bound the predictions of the members, too.
    seed
        Handed to the solver.

    Examples
    --------
    >>> from ennopt import Domain, Network
    >>> from ennopt.canonical import Canonical
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem = Canonical.sum_of([net], Domain([-1.0], [2.0]))
    >>> bounds = MilpTightening().tighten(problem)
    >>> bounds.upper[0][1].round(4).tolist()
    [2.0]
    """

    seconds: float = 5.0
    backend: str = "highs"
    outputs: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"Expected seconds > 0, got {self.seconds}.")
        backend(self.backend)

    def _work(self) -> tuple[Callable[[Job], Done], int]:
        return functools.partial(_solve, self), 1


def amplification(network: Network, layer: int) -> Array:
    """How far errors of one unit, everywhere before a layer, may move its neurons.

    In the units of a job, every input and every neuron is of order one, and a solver
    is free to be wrong about each by its tolerance; weights carry that on. Ordinary
    networks amplify by 10 to 20 a layer, those of mixed magnitudes by millions.

    Parameters
    ----------
    network
        In units of order one.
    layer
        Affine layer of the neurons.

    Returns
    -------
    Array
        Not less than one, (width of the layer,).
    """
    error = np.ones(network.num_inputs)
    for weights in network.weights[:layer]:
        error = np.abs(weights) @ error + 1.0
    return np.maximum(1.0, np.abs(network.weights[layer]) @ error)


def _solve(method: MilpTightening, job: Job) -> Done:
    made = sub_network(job.problem, job.layer, job.bounds)
    margins = backend(method.backend).capabilities.margin * amplification(
        job.network, job.layer
    )
    upper = np.full(job.neurons.size, math.inf)
    lower = -upper
    neurons = solves = 0
    for index, j in enumerate(job.neurons.tolist()):
        share = math.inf if job.share is None else job.share()
        ends = deadline_after(max(share, 2.0 * LEAST_SECONDS))
        form, constant = made.preactivation(0, job.layer, j)
        low = job.bounds.lower[0][job.layer][j]
        high = job.bounds.upper[0][job.layer][j]
        # The side nearer to zero first: it is the likelier to decide the sign.
        sides = (1.0, -1.0) if high <= -low else (-1.0, 1.0)
        for waiting, side in zip((2, 1), sides, strict=True):
            if job.remaining() <= 0:
                break
            seconds = min(method.seconds, seconds_left(ends) / waiting, job.remaining())
            model = made.model.with_objective(side * form, side * constant)
            bound = _bound(method, model, job, seconds) + margins[j]
            neurons = index + 1
            solves += 1
            if side > 0:
                upper[index] = bound
            else:
                lower[index] = -bound
            if job.hidden and bound <= 0:
                break  # the sign is decided
    return Done(lower, upper, neurons, solves)


def _bound(
    method: MilpTightening, model: LinearModel, job: Job, seconds: float
) -> float:
    solver = backend(method.backend)
    options = SolveOptions(
        time_limit=seconds,
        gap=GAP,
        absolute_gap=0.1 * solver.capabilities.margin,
        tolerance=TIGHT_TOLERANCE,
        seed=method.seed,
        brisk=True,
    )
    found = solver.solve(model, options, SolveHooks(progress=lambda _: job.stopped()))
    if found.status is MilpStatus.INTERRUPTED and not job.stopped():
        raise KeyboardInterrupt
    return found.bound_of_feasible
