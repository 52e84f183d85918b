"""Good values before any proof: multi-start ascent and a polish of its best points.

Nothing here proves anything; values are the forward pass's, and whoever takes a point
checks that it is feasible. A sum of ReLU networks is linear on the cell of inputs that
share an activation pattern, so the best point of a cell is a linear program in the
inputs alone. With other activations the polish follows the gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.network import Array, Network

SHORTEST_STEP = 1e-7
"""Share of an input's range below which an ascent has arrived."""

ROUGH_STEP = 1e-4
"""The same on a set that is not a box."""

STEPS_PER_OFFER = 10
"""Steps of an ascent between two offers of its best point."""

APART = 1e-3
"""Points differ that are this share of some input's range apart."""

LEAST_RISE = 1e-12
"""A polish goes on while a round raises the value by this share of its size: less is
rounding."""

NO_GAIN = 1e-11
"""Relative size of a direction or multiplier that is taken for zero."""

FIRST_STEP = 1e-3
"""Share of an input's range that the first step along a gradient goes."""

SMALLEST = 1e-300
"""What divisions take for zero."""

STEPS_PER_INPUT = 20
"""Most steps of a climb on a polyhedron, for each input."""


def ascend(
    problem: Canonical,
    starts: Array,
    steps: int = 60,
    first: float = 0.25,
    stop: Callable[[], object] = lambda: None,
    offer: Callable[[Array], object] = lambda _: None,
) -> tuple[Array, Array]:
    """Follow the signs of the gradient from many points at once.

    Parameters
    ----------
    problem
        What to maximize, and where.
    starts
        (num_points, num_inputs)
    steps
        Steps of each point; a step that does not help is halved.
    first
        Size of the first step, as a share of each input's range.
    stop
        Asked before each step; true ends the ascent.
    offer
        Told the best point now and then: an interrupted ascent is not lost.

    Returns
    -------
    tuple
        Points (num_points, num_inputs) and values (num_points,), best first.
    """
    domain = problem.domain
    points = domain.repair(starts)
    values = problem.values(points)
    sizes = np.full((len(points), 1), first)
    low, high = domain.around(points)
    # Moving points into a set is dear: there the polish has to do the rest.
    shortest = 0.0 if domain.is_box else ROUGH_STEP
    slopes = problem.gradients(points)
    for step in range(steps):
        if stop() or not len(points):
            break
        if step % STEPS_PER_OFFER == 0:
            offer(points[np.argmax(values)])
        (going,) = np.nonzero(sizes[:, 0] >= shortest)
        moves = sizes[going] * np.sign(slopes[going]) * domain.widths
        boxes = low[going], high[going]
        moved = domain.repair(points[going] + moves, boxes)
        reached = problem.values(moved)
        better = (reached > values[going]) & domain.feasible(moved, regions=False)
        gained = going[better]
        points[gained], values[gained] = moved[better], reached[better]
        if better.any():
            slopes[gained] = problem.gradients(points[gained])
        sizes[going] *= np.where(better[:, None], 1.2, 0.5)
        if sizes.max() < max(shortest, SHORTEST_STEP):
            break
    order = np.argsort(-values, kind="stable")
    return points[order], values[order]


def corners(
    domain: Domain,
    directions: Array,
    seconds: float,
    stop: Callable[[], object] = lambda: None,
) -> Array:
    """Feasible points that lie farthest along some directions, by linear programs.

    For sets on which moving random points in finds nothing. Whole numbers and lists
    make them integer programs.

    Parameters
    ----------
    domain
        The feasible set.
    directions
        (num_directions, num_inputs)
    seconds
        For each of them.
    stop
        Asked before each; true ends the work.

    Returns
    -------
    Array
        (num_points, num_inputs): fewer points than directions, perhaps none.
    """
    from ennopt.milp.highs import Highs
    from ennopt.milp.scaling import ScaledModel

    found = []
    for direction in directions:
        if stop():
            break
        along = Canonical.sum_of([Network((direction[None],), (np.zeros(1),))], domain)
        scaled = ScaledModel.of(along, along.root)
        options = scaled.options(seconds=seconds, nodes=np.inf, slack=0.0, gap=0.1)
        solved = Highs().solve(scaled.model, options)
        if solved.x is None:
            break  # the set may be empty
        found.append(domain.repair(scaled.point(solved.x)))
    points = np.array(found).reshape(len(found), domain.num_inputs)
    return points[domain.feasible(points)]


def apart(x: Array, other: Array, domain: Domain) -> bool:
    """Whether two points differ by more than `APART`."""
    scale = np.where(domain.widths > 0, domain.widths, 1.0)
    return bool(np.any(np.abs(x - other) > APART * scale))


def distinct(points: Array, domain: Domain, most: int) -> Array:
    """The first `most` points that are not close to an earlier one."""
    kept: list[Array] = []
    for point in points:
        if len(kept) >= most:
            break
        if all(apart(point, other, domain) for other in kept):
            kept.append(point)
    return np.array(kept).reshape(len(kept), domain.num_inputs)


def cell_forms(problem: Canonical, x: Array) -> tuple[Array, Array, Array]:
    """The activation cell of `x` and the objective on it.

    Returns
    -------
    tuple
        Rows A (num_rows, num_inputs) and limits b with ``A z <= b`` on the cell, the
        half-spaces of the feasible set among them, and the gradient (num_inputs,) of
        the objective there.
    """
    problem.expect_relu("a polish by cells")
    slopes, sides = problem.domain.half_spaces()
    rows, limits = [-slopes], [-sides]
    gradients = []
    for network in problem.networks:
        slope, shift = network.weights[0], network.biases[0]
        for w, b in zip(network.weights[1:], network.biases[1:], strict=True):
            on = slope @ x + shift > 0
            sign = np.where(on, -1.0, 1.0)  # on: slope z + shift >= 0
            rows.append(sign[:, None] * slope)
            limits.append(-sign * shift)
            slope, shift = (w * on) @ slope, (w * on) @ shift + b
        gradients.append(slope)
    weights = problem.weighting.respond(problem.outputs(x[None])[0])
    gradient = weights @ np.concatenate(gradients)
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
        Asked before each step; true ends the climb.

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
    problem: Canonical,
    x: Array,
    rounds: int = 10,
    stop: Callable[[], object] = lambda: None,
) -> Array:
    """Climb from cell to cell, taking the best point of each.

    Plain ascent stops short of a kinked maximum by about the usual tolerance, which
    can stall the end of a proof. If `stop` answers true, the best so far is returned.
    """
    if not problem.is_relu:
        return follow(problem, x, stop=stop)
    domain = problem.domain
    best, value = x, float(problem.values(x)[0])
    widths = domain.widths
    some = np.where(widths > 0.0, widths, 1.0)
    for _ in range(rounds):
        if stop():
            break
        rows, limits, gradient = cell_forms(problem, best)
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
        corner = domain.repair(best + move * widths)
        # Beyond the corner other cells begin: let a short ascent choose among them.
        near = np.stack([corner, corner + 1e-6 * np.sign(gradient) * widths])
        points, values = ascend(problem, near, steps=20, first=1e-3)
        if not values[0] > value + LEAST_RISE * max(abs(value), problem.spread):
            return points[0] if values[0] > value else best
        best, value = points[0], float(values[0])
    return best


def follow(
    problem: Canonical,
    x: Array,
    steps: int = 100,
    stop: Callable[[], object] = lambda: None,
) -> Array:
    """Follow the gradient of a smooth objective uphill, inside the feasible set.

    The length of a step is what the last two gradients say of the curvature (Barzilai
    and Borwein); one that does not help is halved.
    """
    domain, widths = problem.domain, problem.domain.widths
    best, value = x, float(problem.values(x)[0])
    slope = problem.gradients(best[None])[0] * widths
    size = FIRST_STEP / max(float(np.abs(slope).max(initial=0.0)), SMALLEST)
    for _ in range(steps):
        if stop():
            break
        moved = domain.repair(best + size * slope * widths)
        reached = float(problem.values(moved)[0])
        if not (reached > value and domain.contains(moved)):
            size *= 0.5
            if size * np.abs(slope).max(initial=0.0) < SHORTEST_STEP:
                break
            continue
        after = problem.gradients(moved[None])[0] * widths
        way = (moved - best) / np.where(widths > 0.0, widths, 1.0)
        bend = float(way @ (slope - after))
        size = float(way @ way) / bend if bend > SMALLEST else 2.0 * size
        best, value, slope = moved, reached, after
    return best


def first_values(
    problem: Canonical,
    starts: Array,
    polished: int,
    offer: Callable[[Array], object],
    stop: Callable[[], object],
) -> None:
    """Climb from many points and polish the best of them that differ.

    Parameters
    ----------
    problem
        What to maximize, and where.
    starts
        (num_points, num_inputs)
    polished
        How many points to polish.
    offer
        Told what was found.
    stop
        Asked now and then; true ends the work.
    """
    if not len(starts):
        return
    points, _ = ascend(problem, starts, stop=stop, offer=offer)
    offer(points[:1])
    for point in distinct(points, problem.domain, polished):
        if stop():
            break
        offer(polish(problem, point, stop=stop))
