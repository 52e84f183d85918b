"""Good values before any proof: multi-start ascent and a polish by linear programs.

Nothing here proves anything; every point is feasible and its value is the forward
pass's. A ReLU ensemble is linear on the cell of inputs that share an activation
pattern, so the best point of a cell is a linear program in the inputs alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ennopt.domain import Domain
from ennopt.network import Array, Ensemble

SHORTEST_STEP = 1e-7
"""Share of an input's range below which an ascent has arrived."""

NO_GAIN = 1e-11
"""Relative size of a direction or multiplier that is taken for zero."""

STEPS_PER_INPUT = 20
"""Most steps of a climb on a polyhedron, for each input."""


def ascend(
    ensemble: Ensemble,
    domain: Domain,
    starts: Array,
    steps: int = 60,
    first: float = 0.25,
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
    first
        Size of the first step, as a share of each input's range.
    stop
        Asked before each step; a true answer ends the ascent.

    Returns
    -------
    tuple
        Points (num_points, num_inputs) and values (num_points,), best first.
    """
    points = domain.project(starts)
    values = ensemble(points)[:, 0]
    sizes = np.full((len(points), 1), first)
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


def climb(gradient: Array, normals: Array, slacks: Array) -> Array:
    """The move that gains most along `gradient`, from a point of a polyhedron.

    Maximizes ``gradient @ move`` subject to ``normals @ move <= slacks``, all slacks
    nonnegative, by active sets: go along the gradient's part that keeps the working
    rows tight, stop at the next row, drop a row whose multiplier is negative. The
    polyhedra here have few dimensions, so a solver would cost more to load.

    Parameters
    ----------
    gradient
        (num_inputs,)
    normals
        Of length one, (num_rows, num_inputs); the rows must bound every direction.
    slacks
        (num_rows,)

    Returns
    -------
    Array
        The move, (num_inputs,); the best so far if the steps run out.
    """
    move, working = np.zeros_like(gradient), list[int]()
    size = float(np.abs(gradient).max(initial=0.0))
    for _ in range(STEPS_PER_INPUT * gradient.size):
        tight = normals[working]
        multipliers = np.linalg.lstsq(tight.T, gradient, rcond=None)[0]
        direction = gradient - multipliers @ tight
        if np.abs(direction).max(initial=0.0) <= NO_GAIN * size:
            if not working or multipliers.min() >= -NO_GAIN * size:
                break
            working.pop(int(np.argmin(multipliers)))
            continue
        rates = normals @ direction
        rates[working] = 0.0
        ahead = rates > NO_GAIN * float(np.abs(direction).max())
        if not ahead.any():
            break
        lengths = np.full(rates.size, np.inf)
        left = np.maximum(slacks - normals @ move, 0.0)
        lengths[ahead] = left[ahead] / rates[ahead]
        next_row = int(np.argmin(lengths))
        move = move + lengths[next_row] * direction
        working.append(next_row)
    return move


def polish(ensemble: Ensemble, domain: Domain, x: Array, rounds: int = 10) -> Array:
    """Climb from cell to cell, taking the best point of each.

    Plain ascent stops short of a kinked maximum by about the usual tolerance, which
    can stall the end of a proof.
    """
    best, value = x, float(ensemble(x)[0])
    widths = domain.widths
    for _ in range(rounds):
        rows, limits, gradient = cell_forms(ensemble, best)
        sides = np.concatenate([np.diag(widths), np.diag(-widths)])
        normals = np.concatenate([rows * widths, sides])
        slacks = np.concatenate(
            [limits - rows @ best, domain.upper - best, best - domain.lower]
        )
        lengths = np.linalg.norm(normals, axis=1)
        used = lengths > 0
        normals = normals[used] / lengths[used, None]
        slacks = np.maximum(slacks[used] / lengths[used], 0.0)
        move = climb(gradient * widths, normals, slacks)
        corner = domain.project(best + move * widths)
        # Beyond the corner other cells begin: let a short ascent choose among them.
        near = np.stack([corner, corner + 1e-6 * np.sign(gradient) * widths])
        points, values = ascend(ensemble, domain, near, steps=20, first=1e-3)
        if not values[0] > value + 1e-12 * max(1.0, abs(value)):
            return points[0] if values[0] > value else best
        best, value = points[0], float(values[0])
    return best
