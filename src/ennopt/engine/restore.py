"""Values of problems with limits and risks: successive linear programs.

Where a majorant is largest, limits hold for the majorants and not for the predictions:
such points are practically never feasible. From each, a linear program moves within a
trust region, with predictions linearized and missed limits penalized; a step counts if
it helps the true objective. Nothing here proves anything.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ennopt.canonical import Canonical
from ennopt.engine.values import distinct
from ennopt.network import Array
from ennopt.weighting import Weighting

PENALTY = 20.0
"""What missing a limit costs, in spreads of the objective per spread of the limit."""

INSIDE = 1e-7
"""Share of its spread by which a limit is aimed to be exceeded: programs have
tolerances."""

FIRST_REGION, LONGER, SHORTER, LEAST_REGION = 0.1, 1.5, 0.4, 1e-7
"""Size of the trust region as a share of the inputs' ranges: at first, after a step
that helped, after one that did not, and the smallest."""

RESTORED = 6
"""Points that are moved to where limits hold, each time."""

REMEMBERED = 12
"""Weightings of a function that a program knows of, the latest."""


def merits(problem: Canonical, points: Array) -> Array:
    """The objective at points, less what missing limits costs, (num_points,)."""
    outputs = problem.outputs(points)
    values = problem.weighting.values(outputs)
    if not problem.limits.count:
        return values
    aims = problem.limits.least + INSIDE * problem.limit_spread
    below = np.maximum(aims - problem.limits.values(outputs), 0.0)
    return np.asarray(values - PENALTY * below @ _ratios(problem))


def _ratios(problem: Canonical) -> Array:
    """Spread of the objective per spread of each limit, (num_limits,)."""
    spread = problem.spread if problem.spread > 0.0 else 1.0
    own = np.where(problem.limit_spread > 0.0, problem.limit_spread, 1.0)
    return np.asarray(spread / own)


class _Weights:
    """Weightings of each function that were the least at points met so far."""

    def __init__(self, problem: Canonical) -> None:
        self._functions: tuple[Weighting, ...] = (
            problem.weighting,
            *problem.limits.functions,
        )
        self.known: list[list[Array]] = [[] for _ in self._functions]

    def meet(self, outputs: Array) -> None:
        """Learn from the outputs (num_outputs,) at a point."""
        for function, known in zip(self._functions, self.known, strict=True):
            if function.is_fixed and known:
                continue
            known.append(np.array(function.respond(outputs)))
            del known[:-REMEMBERED]


def restore_best(
    problem: Canonical,
    points: Array,
    offer: Callable[[Array], object],
    stop: Callable[[], object],
    most: int = RESTORED,
) -> None:
    """Move points to where limits hold, those first that are the best already.

    Parameters
    ----------
    problem
        With limits or risks.
    points
        (num_points, num_inputs)
    offer
        Told what was found.
    stop
        Asked now and then; true ends the work.
    most
        How many points are moved.
    """
    if not len(points):
        return
    order = np.argsort(-merits(problem, points), kind="stable")
    for x in distinct(points[order], problem.domain, most):
        if stop():
            break
        offer(restore(problem, x, stop=stop))


def restore(
    problem: Canonical,
    x: Array,
    steps: int = 30,
    stop: Callable[[], object] = lambda: None,
) -> Array:
    """A better point that meets the limits, or comes closer to that.

    Parameters
    ----------
    problem
        With limits or risks.
    x
        Where to start, (num_inputs,). Inputs that take whole numbers or values of a
        list keep theirs.
    steps
        Most linear programs.
    stop
        Asked before each; true ends the work.
    """
    domain = problem.domain
    best = domain.repair(x)
    merit = float(merits(problem, best[None])[0])
    weights, region = _Weights(problem), FIRST_REGION
    for _ in range(steps):
        if stop() or region < LEAST_REGION:
            break
        weights.meet(problem.outputs(best[None])[0])
        move = _program(problem, best, region, weights)
        if move is None:
            region *= 2.0 if region < FIRST_REGION else SHORTER
            continue
        trial = domain.repair(best + move)
        reached = float(merits(problem, trial[None])[0])
        if reached > merit and domain.contains(trial):
            gain, best, merit = reached - merit, trial, reached
            region = min(1.0, region * LONGER)
            if gain <= 1e-9 * max(problem.spread, 1e-300):
                break
        else:
            weights.meet(problem.outputs(trial[None])[0])
            region *= SHORTER
    return best


def _program(
    problem: Canonical, x: Array, region: float, weights: _Weights
) -> Array | None:
    """The best move from x within the trust region by linearized predictions.

    Columns are the moves in units of the inputs' ranges, the value of the objective,
    and what each limit is missed by.
    """
    from ennopt.milp.highs import HotLp
    from ennopt.milp.model import LinearModel

    domain, limits = problem.domain, problem.limits
    d, q = domain.num_inputs, limits.count
    widths = domain.widths
    some = np.where(widths > 0.0, widths, 1.0)
    low, high = (end[0] for end in domain.around(x[None]))
    free = (widths > 0.0) & ~domain.values.discrete
    down = np.where(free, np.maximum((low - x) / some, -region), 0.0)
    up = np.where(free, np.minimum((high - x) / some, region), 0.0)
    down, up = np.minimum(down, 0.0), np.maximum(up, 0.0)
    outputs = problem.outputs(x[None])[0]
    slopes = np.concatenate([n.gradient(x[None])[0] for n in problem.networks])
    slopes = slopes * widths
    size = problem.spread if problem.spread > 0.0 else 1.0
    rows, least = [], []
    for w in weights.known[0]:  # value <= w . outputs, in spreads
        row = np.zeros(d + 1 + q)
        row[:d], row[d] = w @ slopes / size, -1.0
        rows.append(row)
        least.append(-(w @ outputs) / size)
    ratios = _ratios(problem)
    for j in range(q):
        aim = limits.least[j] + INSIDE * problem.limit_spread[j]
        for w in weights.known[1 + j]:
            row = np.zeros(d + 1 + q)
            row[:d], row[d + 1 + j] = w @ slopes * ratios[j] / size, 1.0
            rows.append(row)
            least.append((aim - w @ outputs) * ratios[j] / size)
    most = [np.inf] * len(rows)
    for slope, bottom, top in zip(
        domain.linear.matrix, domain.linear.least, domain.linear.most, strict=True
    ):
        scale = float(np.abs(slope * widths).max(initial=0.0)) or 1.0
        row = np.zeros(d + 1 + q)
        row[:d] = slope * widths / scale
        rows.append(row)
        least.append((bottom - slope @ x) / scale)
        most.append((top - slope @ x) / scale)
    far = 1e6 * (1.0 + float(np.abs(outputs).max(initial=0.0)) / size)
    model = LinearModel.of(
        np.concatenate([down, [-far], np.zeros(q)]),
        np.concatenate([up, [far], np.full(q, far)]),
        np.concatenate([np.zeros(d), [1.0], np.full(q, -PENALTY)]),
        np.array(rows), lower_rows=least, upper_rows=most,
    )  # fmt: skip
    # Too small to be watched: a thread takes ten times as long as the program.
    solved = HotLp(model).maximize(model.objective, seconds=1.0)
    if solved.x is None:
        return None
    return np.asarray(solved.x[:d] * widths)
