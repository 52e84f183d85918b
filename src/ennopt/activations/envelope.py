"""Lines above and below a smooth function on intervals, valid whatever rounding does.

A `Curve` is convex between its two bends and concave outside of them (a bend may be
infinite). A line above it on ``[l, u]`` is found in two steps.

1. *A slope.* Where the curve is convex on all of the interval: the slope of the chord.
   Where it is concave: its own slope in the middle. Else the one of three that is best
   in the middle: the curve's own slope there, and the slopes of the lines from either
   end that touch the curve on a concave piece, which are found by bisection. Nothing
   rests on how well this is done.
2. *The intercept* that this slope needs, the largest ``f(x) - slope * x``. On a convex
   piece it is attained at an end. On a concave piece any point p of it serves,

       f(x) - slope * x  <=  f(p) - slope * p + (f'(p) - slope) * (x - p),

   and the right-hand side is largest at an end. Where ``f'(p)`` is close to the slope
   little is lost; but the inequality holds for every p, so several are tried.

Every term carries a proved bound of its rounding. A line below f is a line above -f. As
the interval shrinks, the distance between line and curve falls with its square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

UNIT = 2.0**-53

TINY = 1e-300
"""Absolute floor of an error: covers underflow, where relative errors mean nothing."""

SLOPE_ERROR = 2.0**-43
"""Largest error of `Curve.slope`. Slopes are below 1.2, and are computed with errors of
at most 200 units in the last place of one; this is five times as much."""

BISECTIONS = 12
"""Halvings on the way to the point where a line from an end touches the curve."""


class Curve(Protocol):
    """A function that is convex between its bends and concave outside of them.

    Bends are within 1e-15 of the true ones. That is exact enough: a curve whose second
    derivative is set to zero on so short a piece differs by less than 1e-29 of ``|x|``.
    """

    @property
    def bends(self) -> tuple[float, float]:
        """Where the curvature changes its sign; perhaps infinite."""

    def value(self, x: Array) -> Array:
        """The function."""

    def slope(self, x: Array) -> Array:
        """Its derivative, wrong by at most `SLOPE_ERROR`."""

    def error(self, x: Array, value: Array) -> Array:
        """How far `value`, computed at x, may be from the function."""


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """``low * h + low_shift <= f(h) <= high * h + high_shift`` on intervals.

    All arrays have the shape of the intervals.
    """

    low: Array
    low_shift: Array
    high: Array
    high_shift: Array


def lines_of(curve: Curve, lower: Array, upper: Array) -> Lines:
    """Lines on the intervals ``[lower, upper]``, arrays of one shape."""
    middle = np.clip(0.5 * (lower + upper), lower, upper)
    known = [_Known.of(curve, x) for x in (lower, middle, upper)]
    low, low_shift = _above(curve, -1.0, *known)
    high, high_shift = _above(curve, 1.0, *known)
    return Lines(-low, -low_shift, high, high_shift)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A curve at points: computed once for both of its sides."""

    x: Array
    value: Array
    slope: Array
    error: Array

    @classmethod
    def of(cls, curve: Curve, x: Array) -> _Known:
        value = curve.value(x)
        return cls(x, value, curve.slope(x), curve.error(x, value))

    def raised(self, sign: float, slope: Array) -> Array:
        """``F(x) - slope * x`` for ``F = sign * curve``, with the error of F."""
        return sign * self.value + self.error - slope * self.x

    def where(self, chosen: npt.NDArray[np.bool_]) -> _Known:
        """At some of the points."""
        return _Known(
            self.x[chosen], self.value[chosen], self.slope[chosen], self.error[chosen]
        )


def _above(
    curve: Curve, sign: float, left: _Known, middle: _Known, right: _Known
) -> tuple[Array, Array]:
    """Slope and intercept of a line above ``F = sign * curve``."""
    lower, upper = left.x, right.x
    first, second = curve.bends
    inside = (lower >= first) & (upper <= second)
    outside = (upper <= first) | (lower >= second)
    concave, convex = (inside, outside) if sign < 0.0 else (outside, inside)
    width = np.where(upper > lower, upper - lower, 1.0)
    chord = sign * (right.value - left.value) / width
    # Of a tiny interval the quotient is mostly rounding.
    a, b = sign * left.slope, sign * right.slope
    chord = np.clip(chord, np.minimum(a, b), np.maximum(a, b))
    slope = np.where(concave, sign * middle.slope, chord)
    touch = middle.raised(sign, slope) + SLOPE_ERROR * (upper - lower)
    ends = np.maximum(left.raised(sign, slope), right.raised(sign, slope))
    shift = np.where(concave, touch, ends)
    bent = ~(concave | convex)
    if bent.any():
        some = (known.where(bent) for known in (left, middle, right))
        slope[bent], shift[bent] = _around_bends(curve, sign, *some)
    # The terms of an intercept were rounded: three operations, counted generously.
    reach = np.maximum(np.abs(lower), np.abs(upper))
    shift = shift + 8.0 * UNIT * (np.abs(shift) + 2.0 * np.abs(slope) * reach) + TINY
    return slope, shift


def _around_bends(
    curve: Curve, sign: float, left: _Known, middle: _Known, right: _Known
) -> tuple[Array, Array]:
    """`_above` for intervals that hold a bend inside, (num_intervals,)."""
    bends = [np.clip(bend, left.x, right.x) for bend in curve.bends]
    first, second = (_Known.of(curve, x) for x in bends)
    pieces = [(first, second)]  # where F is concave
    if sign > 0.0:
        pieces = [(left, first), (second, right)]
    pieces = [(start, end) for start, end in pieces if np.any(end.x > start.x)]
    trials = [(sign * middle.slope, middle)]
    for known, (start, end) in ((left, pieces[-1]), (right, pieces[0])):
        if not np.all((start.x <= known.x) & (known.x <= end.x)):
            trials.append(_tangent(curve, sign, known, start.x, end.x))
    best_slope, best_shift = trials[0][0], np.full_like(left.x, np.inf)
    for slope, touch in trials:
        ends = (known.raised(sign, slope) for known in (left, first, second, right))
        shift = np.max(list(ends), axis=0)
        for start, end in pieces:
            shift = np.maximum(shift, _over(sign, slope, start, end, touch, middle))
        better = shift + slope * middle.x < best_shift + best_slope * middle.x
        best_slope = np.where(better, slope, best_slope)
        best_shift = np.where(better, shift, best_shift)
    return best_slope, best_shift


def _over(
    sign: float, slope: Array, start: _Known, end: _Known, *others: _Known
) -> Array:
    """The intercept that a slope needs on a concave piece of F.

    The point p is the better of both ends and of those others that are in the piece.
    """
    needed = np.full_like(slope, np.inf)
    for known in (start, end, *others):
        p, rest = known.x, sign * known.slope - slope
        more = np.maximum(rest * (end.x - p), rest * (start.x - p))
        more = more + SLOPE_ERROR * (end.x - start.x)
        raised = known.raised(sign, slope)
        size = np.abs(raised) + 2.0 * np.abs(slope * p) + more
        proved = raised + more + 8.0 * UNIT * size
        mine = (start.x <= p) & (p <= end.x)
        needed = np.where(mine, np.minimum(needed, proved), needed)
    return needed


def _tangent(
    curve: Curve, sign: float, known: _Known, start: Array, end: Array
) -> tuple[Array, _Known]:
    """Slope of the line from F at a point that touches a concave piece, and where."""
    x, own = known.x, known.value
    near, far = np.where(x <= start, start, end), np.where(x <= start, end, start)
    for _ in range(BISECTIONS):
        middle = 0.5 * (near + far)
        # The tangent there passes below F at x: the line touches further away.
        missed = sign * (curve.value(middle) - own) <= (
            sign * curve.slope(middle) * (middle - x)
        )
        near, far = np.where(missed, middle, near), np.where(missed, far, middle)
    touch = _Known.of(curve, far)
    width = np.where(far != x, far - x, 1.0)
    slope = sign * (touch.value - own) / width
    # From so near the quotient is mostly rounding.
    slope = np.where(np.abs(far - x) > 1e-6, slope, sign * touch.slope)
    return slope, touch
