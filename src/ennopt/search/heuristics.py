"""Good values before any proof: multi-start ascent and a polish by linear programs.

Nothing here proves anything; every point is feasible and its value is the forward
pass's. A ReLU ensemble is linear on the cell of inputs that share an activation
pattern, so the best point of a cell is a linear program in the inputs alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ennopt.domain import Domain
from ennopt.milp.highs import HotLp
from ennopt.milp.model import LinearModel
from ennopt.network import Array, Ensemble

SHORTEST_STEP = 1e-7
"""Share of an input's range below which an ascent has arrived."""


def ascend(
    ensemble: Ensemble,
    domain: Domain,
    starts: Array,
    steps: int = 60,
    stop: Callable[[], object] = lambda: None,
) -> tuple[Array, Array]:
    """Follow the signs of the gradient from many points at once.

    Parameters
    ----------
    ensemble
        One output, to be maximized.
    domain
        Where the points stay.
    starts
        (num_points, num_inputs)
    steps
        Steps of each point; a step that does not help is halved.
    stop
        Asked before each step; a true answer ends the ascent.

    Returns
    -------
    tuple
        Points (num_points, num_inputs) and values (num_points,), best first.
    """
    points = domain.project(starts)
    values = ensemble(points)[:, 0]
    sizes = np.full((len(points), 1), 0.25)
    slopes = ensemble.gradient(points)[:, 0]
    for _ in range(steps):
        if stop():
            break
        moved = domain.project(points + sizes * np.sign(slopes) * domain.widths)
        reached = ensemble(moved)[:, 0]
        better = reached > values
        points[better], values[better] = moved[better], reached[better]
        if better.any():
            slopes[better] = ensemble.gradient(points[better])[:, 0]
        sizes = np.where(better[:, None], 1.2 * sizes, 0.5 * sizes)
        if sizes.max() < SHORTEST_STEP:
            break
    order = np.argsort(-values, kind="stable")
    return points[order], values[order]


def distinct(points: Array, domain: Domain, most: int) -> Array:
    """The first `most` points that are not close to an earlier one."""
    scale = np.where(domain.widths > 0, domain.widths, 1.0)
    kept: list[Array] = []
    for point in points:
        if all(np.abs((point - other) / scale).max() > 1e-3 for other in kept):
            kept.append(point)
            if len(kept) == most:
                break
    return np.array(kept)


def cell_forms(ensemble: Ensemble, x: Array) -> tuple[Array, Array, Array]:
    """The activation cell of `x` and the prediction on it.

    Returns
    -------
    tuple
        Rows A (num_neurons, num_inputs) and limits b with ``A z <= b`` on the cell,
        and the gradient (num_inputs,) of the prediction there.
    """
    rows, limits = [], []
    gradient = np.zeros(ensemble.num_inputs)
    for weight, member in zip(ensemble.weights, ensemble.members, strict=True):
        slope, shift = member.weights[0], member.biases[0]
        for w, b in zip(member.weights[1:], member.biases[1:], strict=True):
            on = slope @ x + shift > 0
            sign = np.where(on, -1.0, 1.0)  # on: slope z + shift >= 0
            rows.append(sign[:, None] * slope)
            limits.append(-sign * shift)
            slope, shift = (w * on) @ slope, (w * on) @ shift + b
        gradient = gradient + weight * slope[0]
    if not rows:
        return np.zeros((0, x.size)), np.zeros(0), gradient
    return np.concatenate(rows), np.concatenate(limits), gradient


def polish(ensemble: Ensemble, domain: Domain, x: Array, rounds: int = 10) -> Array:
    """Climb from cell to cell, taking the best point of each.

    Plain ascent stops short of a kinked maximum by about the usual tolerance, which
    can stall the end of a proof.
    """
    best, value = x, float(ensemble(x)[0])
    for _ in range(rounds):
        rows, limits, gradient = cell_forms(ensemble, best)
        active = np.abs(rows).max(axis=1, initial=0.0) > 0
        rows, limits = rows[active], limits[active]
        limits = np.maximum(limits, rows @ best)  # the point itself stays feasible
        model = LinearModel.of(
            domain.lower, domain.upper, gradient, rows, upper_rows=limits
        )
        solved = HotLp(model).maximize(gradient)
        if solved.x is None:
            return best
        corner = domain.project(solved.x)
        # Beyond the corner other cells begin: let a short ascent choose among them.
        near = np.stack([corner, corner + 1e-6 * np.sign(gradient) * domain.widths])
        points, values = ascend(ensemble, domain, near, steps=40)
        if not values[0] > value + 1e-12 * max(1.0, abs(value)):
            return points[0] if values[0] > value else best
        best, value = points[0], float(values[0])
    return best
