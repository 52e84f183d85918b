"""The paper's survey: where do fractional solutions overestimate ReLU?

The discrepancy of a neuron at a fractional solution is ``y - max(h, 0)``. Neurons
whose mean over the surveyed nodes reaches a threshold are critical (Algorithm 2).
A survey proves nothing; it only chooses neurons.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ennopt import clock
from ennopt.milp.building import ABSENT
from ennopt.milp.formulation import Formulation
from ennopt.milp.highs import HotLp
from ennopt.milp.model import Flags
from ennopt.milp.solver import (
    Backend,
    MilpProgress,
    MilpStatus,
    SolveHooks,
    SolveOptions,
)
from ennopt.network import Array
from ennopt.tightening.stepwise import never

FRACTIONAL = 1e-6
"""A binary this far from 0 and 1 is fractional."""


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """Discrepancies of the neurons at the fractional solutions of a tree.

    Parameters
    ----------
    mean
        ``mean[i][k]`` of hidden layer k of member i, (width,): the mean over the
        nodes really seen; 0 for neurons that the model knows to be stable.
    unstable
        Which neurons have a binary, in the same shape.
    nodes
        Fractional solutions seen.
    source
        Whose tree it was: a solver's own, or ``"LPs"`` for a tree of ours.
    finished
        Whether the tree ended before the survey was full.
    """

    mean: tuple[tuple[Array, ...], ...]
    unstable: tuple[tuple[Flags, ...], ...]
    nodes: int
    source: str
    finished: bool = False

    def critical(self, threshold: float) -> tuple[tuple[Flags, ...], ...]:
        """Unstable neurons with a mean discrepancy of at least `threshold`."""
        return tuple(
            tuple(
                open_ & (mean >= threshold)
                for mean, open_ in zip(means, opens, strict=True)
            )
            for means, opens in zip(self.mean, self.unstable, strict=True)
        )


def discrepancies(formulation: Formulation, point: Array) -> list[list[Array]]:
    """``y - max(h, 0)`` of every hidden neuron at a vector of columns, never negative.

    Parameters
    ----------
    formulation
        A big-M model.
    point
        (num_columns,)
    """

    def of_layer(h: Array, y: Array) -> Array:
        over = y - np.maximum(np.where(np.isnan(h), 0.0, h), 0.0)
        return np.maximum(over, 0.0)

    return [
        [of_layer(layer.h, layer.y) for layer in member]
        for member in formulation.activations(point)
    ]


def summarize(
    formulation: Formulation, points: Array, source: str, finished: bool = False
) -> Survey:
    """The survey of given fractional solutions, (num_points, num_columns)."""
    totals = [[np.zeros(at.y.size) for at in layers] for layers in formulation.neurons]
    for point in points:
        for total, found in zip(totals, discrepancies(formulation, point), strict=True):
            for k, layer in enumerate(found):
                total[k] += layer
    count = max(len(points), 1)
    return Survey(
        mean=tuple(tuple(t / count for t in total) for total in totals),
        unstable=tuple(
            tuple(at.z != ABSENT for at in layers) for layers in formulation.neurons
        ),
        nodes=len(points),
        source=source,
        finished=finished,
    )


def survey(
    formulation: Formulation,
    backend: Backend,
    nodes: int,
    seconds: float = math.inf,
    seed: int = 0,
    stop: Callable[[], object] = never,
) -> Survey:
    """Look at the first fractional solutions of a branch and bound on the model.

    Parameters
    ----------
    formulation
        A big-M model.
    backend
        Its tree is surveyed if it can show its nodes; otherwise a tree of linear
        programs of ours is.
    nodes
        How many fractional solutions.
    seconds
        Time limit; a shorter survey is a survey. A solver that sees no node by then
        leaves as long again to the linear relaxation at the root.
    seed
        Of the solver.
    stop
        Asked now and then; true ends the survey.
    """
    if nodes < 1 or seconds <= 0 or formulation.binaries.size == 0:
        return summarize(formulation, np.zeros((0, 0)), backend.name, finished=True)
    if not backend.capabilities.node_survey:
        points, finished = lp_tree(formulation, nodes, seconds, stop)
        return summarize(formulation, points, "LPs", finished)

    def ask(moment: MilpProgress) -> object:
        return stop()

    found = backend.solve(
        formulation.model,
        SolveOptions(time_limit=seconds, survey=nodes, seed=seed),
        SolveHooks(progress=ask),
    )
    if found.status is MilpStatus.INTERRUPTED and not stop():
        raise KeyboardInterrupt
    if not len(found.surveyed) and found.status is MilpStatus.TIME_LIMIT:
        points, finished = lp_tree(formulation, 1, seconds, stop)  # the root, at least
        return summarize(formulation, points, "LPs", finished)
    finished = len(found.surveyed) < nodes
    return summarize(formulation, found.surveyed, backend.name, finished)


def lp_tree(
    formulation: Formulation,
    nodes: int,
    seconds: float = math.inf,
    stop: Callable[[], object] = never,
) -> tuple[Array, bool]:
    """Fractional solutions of a best-first tree that branches on the binaries.

    The most fractional binary is branched on; linear programs start from the last
    basis.

    Returns
    -------
    tuple
        Solutions, (num_points, num_columns), and whether the tree ended by itself.
    """
    begin = clock.now()
    model, binaries = formulation.model, formulation.binaries
    program = HotLp(model)
    order = itertools.count()
    best = -math.inf
    points: list[Array] = []
    tree = [(-math.inf, next(order), model.lower[binaries], model.upper[binaries])]
    while tree and len(points) < nodes:
        left = seconds - (clock.now() - begin)
        if left <= 0 or stop():
            return np.array(points).reshape(-1, model.num_columns), False
        bound, _, low, high = heapq.heappop(tree)
        if -bound <= best:
            break
        lower, upper = model.lower.copy(), model.upper.copy()
        lower[binaries], upper[binaries] = low, high
        program.restrict(lower, upper)
        found = program.maximize(model.objective, model.offset, left)
        if found.x is None or found.value <= best:
            continue
        z = found.x[binaries]
        distance = np.minimum(z, 1.0 - z)
        if distance.max() <= FRACTIONAL:
            best = found.value
            continue
        points.append(found.x)
        x = formulation.point(found.x)
        if formulation.problem.domain.contains(x):
            best = max(best, float(formulation.problem.values(x)[0]))
        j = int(np.argmax(distance))
        for side in (0.0, 1.0):
            below, above = low.copy(), high.copy()
            below[j] = above[j] = side
            heapq.heappush(tree, (-found.value, next(order), below, above))
    ended = len(points) < nodes
    return np.array(points).reshape(-1, model.num_columns), ended
