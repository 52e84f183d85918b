"""Choices that make a check short. None of them has to be right.

`ennopt.certificate.core` takes slopes, multiples of half-spaces and splits from here,
and whatever these are, what it proves is true. Bad ones only cost pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ennopt.network import Array

if TYPE_CHECKING:
    from ennopt.certificate.core import Model, Pieces

SWEEPS = 2
"""Times that the multiple of every half-space is improved."""

TINY = 1e-150


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


def scores(model: Model, pieces: Pieces, coefficients: Array) -> Array:
    """How much each input has to do with what the lines are off.

    `coefficients` are those of the neurons in the majorant, (num_pieces, num_neurons).
    (num_pieces, num_inputs)
    """
    width = pieces.upper - pieces.lower
    found = 1e-9 * width / np.maximum(model.reach, TINY)
    for stack in model.stacks:
        worth = np.eye(width.shape[1])
        for w, own in zip(stack.weights, stack.columns, strict=True):
            worth = np.abs(w) @ worth
            low, high = pieces.low[:, own], pieces.high[:, own]
            unstable = (low < 0.0) & (high > 0.0)
            span = np.where(unstable, high - low, 1.0)
            height = np.where(unstable, -high * low / span, 0.0)
            off = np.abs(coefficients[:, own]) * height
            found += width * ((off / np.maximum(width @ worth.T, TINY)) @ worth)
    return np.asarray(found)
