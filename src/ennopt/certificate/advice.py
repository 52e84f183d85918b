"""Choices that make a check short. None of them has to be right.

`ennopt.certificate.core` takes slopes, multiples of half-spaces and splits from here,
and whatever these are, what it proves is true. Bad ones only cost pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ennopt.network import Array

if TYPE_CHECKING:
    from ennopt.certificate.core import Model, Pieces
    from ennopt.weighting import Weighting

SWEEPS = 2
"""Times that the multiple of every half-space is improved."""

TINY = 1e-150

FEW_INPUTS = 5
"""Up to so many inputs, lines of the first layer cost more than they save."""

UNDECIDED = 0.7
"""An input is undecided where a row's slope is below this share of their mean."""

SHARES = 0.3, 0.6, 1.0
"""How far rows are moved towards other lines."""


def sharp(num_inputs: int) -> bool:
    """Whether lines of the first layer are worth their price."""
    return num_inputs > FEW_INPUTS


def signs(g: Array) -> Array:
    """The vertex where rows (num_rows, num_boxes, num_inputs) are largest.

    Minus one, one, or zero for inputs that may as well be anywhere.
    """
    size = np.abs(g)
    mean = size @ np.full(g.shape[2], 1.0 / g.shape[2])
    return np.where(size <= UNDECIDED * mean[..., None], 0.0, np.sign(g))


def needed(model: Model, functions: Sequence[Weighting]) -> npt.NDArray[np.bool_]:
    """Neurons whose ends matter, (num_neurons,).

    One of a last layer that no function rises with needs a line below it alone, and
    that is the same for all ends. A first layer's are needed for what follows it.
    """
    found, at = np.ones(model.sizes.size, dtype=bool), 0
    lowest = np.min([function.lowest for function in functions], axis=0)
    heaviest = np.max([function.heaviest for function in functions], axis=0)
    for stack in model.stacks:
        own = slice(at, at := at + len(stack.shifts))
        if len(stack.weights) > 1:
            rising = np.maximum(heaviest[own, None] * stack.rows,
                                lowest[own, None] * stack.rows)  # fmt: skip
            found[stack.columns[-1]] = (rising > 0.0).any(axis=0)
    return found


def multiple(g: Array, a: Array, s: Array, centre: Array, radius: Array) -> Array:
    """The multiple of ``a . x + s`` that lowers the maximum of g most, (num_boxes,).

    ``(g + t a) . centre + |g + t a| . radius + t s`` is convex in t and bends where an
    entry of ``g + t a`` vanishes: the first bend with an upward slope is its minimum.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bends = -g / a
    bends = np.where((bends > 0.0) & (a != 0.0) & np.isfinite(bends), bends, np.inf)
    signs = np.where(g * a < 0.0, -1.0, 1.0)
    weight = np.abs(a) * radius
    start = np.einsum("bp,bp->b", a, centre) + s + np.einsum("bp,bp->b", signs, weight)
    order = np.argsort(bends, axis=1)
    sorted_bends = np.take_along_axis(bends, order, axis=1)
    gains = 2.0 * np.take_along_axis(weight, order, axis=1)
    gains = np.where(np.isfinite(sorted_bends), gains, 0.0)
    slope = start[:, None] + np.cumsum(gains, axis=1)
    turned = (slope >= 0.0) & np.isfinite(sorted_bends)
    first = np.argmax(turned, axis=1)
    last = np.isfinite(sorted_bends).sum(axis=1) - 1
    at = np.where(turned.any(axis=1), first, np.maximum(last, 0))
    found = np.take_along_axis(sorted_bends, at[:, None], axis=1)[:, 0]
    return np.where((start >= 0.0) | ~np.isfinite(found), 0.0, found)


def multiple_for_rows(rows: Array, cut: Array, side: Array) -> Array:
    """Multiples of each box's cut that lower the maxima of many rows.

    All of them are on the box of width two around zero: rows (num_rows, num_boxes,
    num_inputs), cuts ``cut . z + side >= 0``. These multiples would be best on a ball
    about as large as the box. (num_rows, num_boxes)
    """
    length = np.einsum("bp,bp->b", cut, cut)
    dots = np.einsum("rbp,bp->rb", rows, cut)
    lengths = np.einsum("rbp,rbp->rb", rows, rows)
    reach = cut.shape[1] * 2.0 / np.pi
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.maximum(lengths * length - dots * dots, 0.0)
        room = np.maximum(reach * length - side**2, 0.05 * length)
        by = (-side * np.sqrt(rest / room) - dots) / length
    return np.where(length > 0.0, by, 0.0)


def scores(
    model: Model, pieces: Pieces, coefficients: Array, known: npt.NDArray[np.bool_]
) -> Array:
    """How much each input has to do with what the lines are off.

    `coefficients` are those of the neurons in the majorant, (num_pieces, num_neurons);
    of neurons whose ends are not `known` nothing can be said. (num_pieces, num_inputs)
    """
    width = pieces.upper - pieces.lower
    found = 1e-9 * width / np.maximum(model.reach, TINY)
    for stack in model.stacks:
        worth = np.eye(width.shape[1])
        for w, own in zip(stack.weights, stack.columns, strict=True):
            worth = np.abs(w) @ worth
            low, high = pieces.low[:, own], pieces.high[:, own]
            unstable = (low < 0.0) & (high > 0.0) & known[own]
            span = np.where(unstable, high - low, 1.0)
            height = np.where(unstable, -high * low / span, 0.0)
            off = np.abs(coefficients[:, own]) * height
            found += width * ((off / np.maximum(width @ worth.T, TINY)) @ worth)
    return np.asarray(found)
