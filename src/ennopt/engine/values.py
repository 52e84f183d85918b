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
from ennopt.run import Run

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
        if len(kept) >= most:
            break
        if all(np.abs((point - other) / scale).max() > 1e-3 for other in kept):
            kept.append(point)
    return np.array(kept).reshape(len(kept), domain.num_inputs)


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


def climb(
    gradient: Array,
    normals: Array,
    slacks: Array,
    down: Array,
    up: Array,
    stop: Callable[[], object] = lambda: None,
) -> Array:
    """The move that gains most along `gradient`, from a point of a polyhedron.

    Maximizes ``gradient @ move`` subject to ``normals @ move <= slacks`` and
    ``-down <= move <= up``, all of these nonnegative, by active sets: go along the
    gradient's part that keeps to the sides reached and the working rows, stop at the
    next one, drop one whose multiplier is negative. The polyhedra here have few rows
    that matter, so a solver would cost more to load.

    Parameters
    ----------
    gradient
        (num_inputs,)
    normals
        Of length one, (num_rows, num_inputs).
    slacks
        (num_rows,)
    down, up
        (num_inputs,)
    stop
        Asked before each step; a true answer ends the climb.

    Returns
    -------
    Array
        The move, (num_inputs,); the best so far if the steps run out.
    """
    move, working = np.zeros_like(gradient), list[int]()
    side = np.zeros(gradient.size)  # 1 at the upper side, -1 at the lower, 0 between
    size = float(np.abs(gradient).max(initial=0.0))
    for _ in range(STEPS_PER_INPUT * gradient.size):
        if stop():
            break
        free = side == 0.0
        tight = normals[working]
        multipliers = np.linalg.lstsq(tight[:, free].T, gradient[free], rcond=None)[0]
        rest = gradient - multipliers @ tight
        direction = np.where(free, rest, 0.0)
        steepest = float(np.abs(direction).max(initial=0.0))
        if steepest <= NO_GAIN * size:
            of_sides = np.where(free, np.inf, rest * side)
            every = np.concatenate([multipliers, of_sides])
            least = int(np.argmin(every))
            if every[least] >= -NO_GAIN * size:
                break
            if least < len(working):
                working.pop(least)
            else:
                side[least - len(working)] = 0.0
            continue
        rates = normals @ direction
        rates[working] = 0.0
        ahead = rates > NO_GAIN * steepest
        lengths = np.full(rates.size, np.inf)
        left = np.maximum(slacks - normals @ move, 0.0)
        lengths[ahead] = left[ahead] / rates[ahead]
        room = np.maximum(np.where(direction > 0.0, up - move, down + move), 0.0)
        moving = np.abs(direction) > NO_GAIN * steepest
        to_sides = np.full(gradient.size, np.inf)
        to_sides[moving] = room[moving] / np.abs(direction[moving])
        row, at = int(np.argmin(lengths)) if lengths.size else -1, np.argmin(to_sides)
        if row >= 0 and lengths[row] < to_sides[at]:
            move = move + lengths[row] * direction
            working.append(row)
        else:
            move = move + to_sides[at] * direction
            side[at] = np.sign(direction[at])
    return move


def polish(
    ensemble: Ensemble,
    domain: Domain,
    x: Array,
    rounds: int = 10,
    stop: Callable[[], object] = lambda: None,
) -> Array:
    """Climb from cell to cell, taking the best point of each.

    Plain ascent stops short of a kinked maximum by about the usual tolerance, which
    can stall the end of a proof. A true answer of `stop` ends it with the best so far.
    """
    best, value = x, float(ensemble(x)[0])
    widths = domain.widths
    some = np.where(widths > 0.0, widths, 1.0)
    for _ in range(rounds):
        if stop():
            break
        rows, limits, gradient = cell_forms(ensemble, best)
        normals, slacks = rows * widths, limits - rows @ best
        lengths = np.linalg.norm(normals, axis=1)
        used = lengths > 0
        move = climb(
            gradient * widths,
            normals[used] / lengths[used, None],
            np.maximum(slacks[used] / lengths[used], 0.0),
            np.where(widths > 0.0, (best - domain.lower) / some, 0.0),
            np.where(widths > 0.0, (domain.upper - best) / some, 0.0),
            stop,
        )
        corner = domain.project(best + move * widths)
        # Beyond the corner other cells begin: let a short ascent choose among them.
        near = np.stack([corner, corner + 1e-6 * np.sign(gradient) * widths])
        points, values = ascend(ensemble, domain, near, steps=20, first=1e-3)
        if not values[0] > value + 1e-12 * max(1.0, abs(value)):
            return points[0] if values[0] > value else best
        best, value = points[0], float(values[0])
    return best


def first_values(
    run: Run,
    starts: Array,
    polished: int,
    stop: Callable[[], object] = lambda: None,
) -> None:
    """Climb from many points and polish the best; the run is offered what is found.

    Parameters
    ----------
    run
        Whose problem it is.
    starts
        (num_points, num_inputs)
    polished
        How many of the best points, no two of them close, are polished.
    stop
        Asked before each step; a true answer ends the work.
    """
    if not len(starts):
        return
    ensemble, domain = run.problem.ensemble, run.problem.domain
    points, _ = ascend(ensemble, domain, starts, stop=stop)
    run.offer(points[:1])
    for point in distinct(points, domain, polished):
        if stop():
            break
        run.offer(polish(ensemble, domain, point, stop=stop))
