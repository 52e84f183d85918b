"""The checker's own bounds of a network on many boxes, and their rounding errors.

Nothing here is shared with the searches: these are linear relaxations written a second
time, in NumPy, for many boxes at once.

**Bounds.** Take a row of coefficients on the outputs ``y`` of a layer. On a box the
pre-activation ``h`` of a neuron lies between two numbers ``l <= h <= u``. If ``l < 0 <
u``, then ``relu(h) <= s h + t`` with the line through both ends, and ``relu(h) >= q h``
for any ``q`` between 0 and 1. If the row's coefficient of the neuron is positive, the
line above replaces the neuron, else the line below. With ``h = W y' + b`` this gives a
row of coefficients on the layer before, and in the end a linear function of the inputs
that is nowhere below the row: a *majorant*. Its maximum over a box is attained in a
corner. Lower bounds are upper bounds of minus the row.

**Rounding.** Let ``e = 2**-53``. A computed sum of n products is off by at most ``n e``
times the sum of their absolute values, up to terms of order ``e**2``. We count what
each step may move the majorant on the set, in units of

    size = sum over layers j of |a_j| . m_j,   m_j = |W_j| Y_(j-1) + |b_j|,

where ``a_j`` are the computed coefficients of the pre-activations of layer j, ``Y_j``
bounds the outputs of layer j on the whole set, and ``Y_0`` the absolute inputs. So
``m_j`` bounds ``|h_j|``, and no neuron's ends are taken beyond it.

| step | moves the majorant by at most, in units of e |a_j| . m_j |
|---|---|
| the coefficient ``r s`` of a neuron is rounded | 1 |
| ``a_j W_j``: an error n e \\|a_j\\| \\|W_j\\| on outputs of at most ``Y_(j-1)`` | n |
| ``a_j . b_j`` | n |
| sum of ``r t``, where ``t <= 2 s m_j``, so ``r t <= 2 a_j m_j`` | 2 n |
| adding up constants of L layers, constants and coefficients of E outputs | 3 (L + E) |
| the corner: 2 d products with centre and radius, ``3 |g| Y_0`` in all | 6 d + 12 |

`rounding_units` is twice the sum of these, which also pays for the terms of order
``e**2`` and for the rounding of the size itself. Products below the range of normal
numbers are off by 2**-1075 instead; multiplied by anything a problem may hold (1e150)
and summed over a million terms they stay below `FLOOR`, which every margin includes.

The line above is made from floating-point numbers and must hold for these. With ``s``
computed as ``u / (u - l)`` it is off by a share of at most ``2 e``. Its intercept must
be at least ``- s l`` and ``u - s u``; the second is at most ``s |l| (1 + 3 e) + 3 e
u``. So ``t = s |l| (1 + 8 e) + 8 e u + FLOOR`` will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ennopt.network import Array, Ensemble

Cut = tuple[Array, Array]

UNIT = 2.0**-53
LARGEST = 1e150
"""Numbers beyond this are refused: `FLOOR` would not cover what underflows."""

FLOOR = 1e-150
"""Part of every margin: covers numbers too small to have relative precision."""


def rounding_units(longest: int, inputs: int, layers: int, added: int) -> float:
    """How many units of rounding times the size a majorant may be off; see above."""
    counted = 1 + 4 * longest + 3 * (layers + added) + 6 * inputs + 12
    return 2.0 * counted


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Hidden layers of one or more members that are equal, and the objective on them.

    Parameters
    ----------
    weights, biases
        Of the hidden layers, (width, width before) and (width,).
    row, shift
        The objective as coefficients of the last outputs, (width,), and a constant.
    row_size, shift_size
        The same with absolute values everywhere: what cancels leaves its rounding.
    columns
        Where the neurons of each layer stand among all neurons.
    added
        How many outputs of members were added up to `row`.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    row: Array
    shift: float
    row_size: Array
    shift_size: float
    columns: tuple[slice, ...]
    added: int

    @property
    def depth(self) -> int:
        """Number of hidden layers."""
        return len(self.weights)


def stacks_of(ensemble: Ensemble, output: Array | None, sign: float) -> list[Stack]:
    """The objective ``sign * output . prediction``, equal hidden layers only once."""
    chosen = np.ones(1) if output is None else np.asarray(output, dtype=np.float64)
    found: dict[bytes, Stack] = {}
    for weight, member in zip(ensemble.weights, ensemble.members, strict=True):
        factor, last, bias = sign * float(weight), member.weights[-1], member.biases[-1]
        row, shift = factor * (chosen @ last), factor * float(chosen @ bias)
        row_size = abs(factor) * (np.abs(chosen) @ np.abs(last))
        shift_size = abs(factor) * float(np.abs(chosen) @ np.abs(bias))
        hidden = (*member.weights[:-1], *member.biases[:-1])
        key = str([array.shape for array in hidden]).encode()
        key += b"".join(array.tobytes() for array in hidden)
        twin = found.get(key)
        added = chosen.size
        if twin is not None:
            row, shift = row + twin.row, shift + twin.shift
            row_size = row_size + twin.row_size
            shift_size, added = shift_size + twin.shift_size, added + twin.added
        found[key] = Stack(
            member.weights[:-1], member.biases[:-1], row, shift, row_size, shift_size,
            (), added,
        )  # fmt: skip
    stacks, first = [], 0
    for stack in found.values():
        ends = first + np.cumsum([0, *(len(b) for b in stack.biases)])
        columns = tuple(slice(int(i), int(k)) for i, k in pairwise(ends))
        stacks.append(replace(stack, columns=columns))
        first = int(ends[-1])
    return stacks


@dataclass(slots=True, eq=False)
class Majorants:
    """Linear functions ``slopes @ x + constants`` above the objective, one per box.

    The constants contain the margin for rounding.

    Parameters
    ----------
    slopes, constants
        (num_boxes, num_inputs) and (num_boxes,).
    passed
        For each stack and layer the coefficients of the outputs, (num_boxes, width).
    """

    slopes: Array
    constants: Array
    passed: list[list[Array]]


class Relaxation:
    """Bounds of the objective and of all hidden neurons on boxes of a root box.

    Parameters
    ----------
    stacks
        The networks whose sum is the objective.
    lower, upper
        Corners of the root box, (num_inputs,).
    """

    def __init__(self, stacks: Sequence[Stack], lower: Array, upper: Array) -> None:
        self.stacks = list(stacks)
        self.added = sum(stack.added for stack in stacks) + 1
        self.reach = np.maximum(np.abs(lower), np.abs(upper))
        self.num_neurons = sum(s.columns[-1].stop - s.columns[0].start
                               for s in stacks if s.depth)  # fmt: skip
        shapes = [w.shape for s in stacks for w in s.weights]
        longest = max((max(shape) for shape in shapes), default=1)
        deepest = max((s.depth for s in stacks), default=0) + 1
        units = rounding_units(longest, lower.size, deepest, self.added)
        self.gamma = units * UNIT
        # Sizes need bounds of the outputs before, layer by layer, on the root.
        self.sizes: list[list[Array]] = [[] for _ in stacks]
        self.low = np.full((1, self.num_neurons), -np.inf)
        self.high = np.full((1, self.num_neurons), np.inf)
        for sizes, stack in zip(self.sizes, self.stacks, strict=True):
            before = self.reach
            for k, (w, b) in enumerate(zip(stack.weights, stack.biases, strict=True)):
                size = (np.abs(w) @ before + np.abs(b)) * (1.0 + 1e-9) + FLOOR
                sizes.append(size)
                own = stack.columns[k]
                self.low[:, own], self.high[:, own] = -size, size
                self._bound_layer(stack, sizes, k, lower[None], upper[None],
                                  self.low, self.high)  # fmt: skip
                before = np.maximum(self.high[0, own], 0.0)
            sizes.append(np.array([before @ stack.row_size + stack.shift_size])
                         * (1.0 + 1e-9) + FLOOR)  # fmt: skip
        every = [self.reach, *(size for sizes in self.sizes for size in sizes)]
        self.largest = max(float(size.max()) for size in every)

    def bound_neurons(
        self, lower: Array, upper: Array, low: Array, high: Array, cut: Cut,
        every: bool = False,
    ) -> None:  # fmt: skip
        """Narrow the ends of all neurons, (num_boxes, num_neurons), in place.

        They hold where the `cut` of each box is not negative: only such points count.
        Neurons whose sign is known on all boxes are left out, unless `every` is true.
        """
        for sizes, stack in zip(self.sizes, self.stacks, strict=True):
            for k in range(stack.depth):
                self._bound_layer(stack, sizes, k, lower, upper, low, high, cut, every)

    def _bound_layer(
        self, stack: Stack, sizes: list[Array], k: int, lower: Array, upper: Array,
        low: Array, high: Array, cut: Cut | None = None, every: bool = False,
    ) -> None:  # fmt: skip
        own = stack.columns[k]
        unstable = (low[:, own] < 0.0) & (high[:, own] > 0.0)
        rows = np.flatnonzero(unstable.any(axis=0) | every)
        if not rows.size:
            return
        w, b, m = stack.weights[k][rows], stack.biases[k][rows], sizes[k][rows]
        both = np.concatenate([w, -w]), np.concatenate([b, -b]), np.tile(m, 2)
        top = self._row_tops(stack, sizes, k, *both, lower, upper, low, high, cut)
        places = own.start + rows
        high[:, places] = np.minimum(high[:, places], top[:, : rows.size])
        low[:, places] = np.maximum(low[:, places], -top[:, rows.size :])

    def _row_tops(
        self, stack: Stack, sizes: list[Array], k: int, rows: Array, shifts: Array,
        measured: Array, lower: Array, upper: Array, low: Array, high: Array,
        cut: Cut | None,
    ) -> Array:  # fmt: skip
        """Upper bounds of rows on the outputs of layer k - 1, (num_boxes, num_rows)."""
        count = len(lower)
        constants = np.broadcast_to(shifts, (count, len(shifts)))
        size = np.broadcast_to(measured, constants.shape)
        coefficients = rows  # (num_rows, width) or (num_boxes, num_rows, width)
        for j in range(k - 1, -1, -1):
            own = stack.columns[j]
            alive = np.flatnonzero((high[:, own] > 0.0).any(axis=0))
            places = own.start + alive
            slope, intercept, below = relu_lines(low[:, places], high[:, places])
            coefficients = coefficients[..., alive]
            above = np.maximum(coefficients, 0.0)
            if above.ndim == 2:
                moved = intercept @ above.T
            else:
                moved = np.matmul(above, intercept[:, :, None])[:, :, 0]
            a = above * slope[:, None, :]
            a += (coefficients - above) * below[:, None, :]
            flat = a.reshape(count * len(rows), alive.size)
            shape = (count, len(rows))
            constants = constants + moved
            constants += (flat @ stack.biases[j][alive]).reshape(shape)
            size = size + (np.abs(flat) @ sizes[j][alive]).reshape(shape)
            coefficients = (flat @ stack.weights[j][alive]).reshape(
                count, len(rows), -1
            )
        centre, radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
        top = _corner(coefficients, centre, radius)
        if cut is not None:
            moved_rows, added = self._with_cut(coefficients, cut, centre, radius)
            # What overflowed is no number, and the plain maximum is taken.
            top = np.fmin(top, _corner(moved_rows, centre, radius) + added)
        return np.asarray(top + constants + (self.gamma * size + FLOOR))

    def _with_cut(
        self, rows: Array, cut: Cut, centre: Array, radius: Array
    ) -> tuple[Array, Array]:
        """Rows (num_boxes, num_rows, num_inputs) plus a multiple of each box's cut.

        Any multiple that is not negative may be added, for the cut is not negative
        where points count. This one would be best on a ball about as large as the box.
        Returns the new rows and what is added to their constants, with a margin for
        the new coefficients and for the corner that they are maximized in.
        """
        a, s = cut
        reach = np.sqrt(a.shape[1] * 2.0 / np.pi)
        scaled, middle = a * radius, np.einsum("bp,bp->b", a, centre) + s
        length = np.einsum("bp,bp->b", scaled, scaled)[:, None]
        if rows.ndim == 2:
            dots = (scaled * radius) @ rows.T
            lengths = (radius * radius) @ (rows * rows).T
        else:
            dots = np.matmul(rows, (scaled * radius)[:, :, None])[:, :, 0]
            squares = rows * radius[:, None, :]
            lengths = np.einsum("brp,brp->br", squares, squares)
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = np.maximum(lengths * length - dots * dots, 0.0)
            room = np.maximum(reach**2 * length - middle[:, None] ** 2, 0.05 * length)
            wanted = -middle[:, None] * np.sqrt(rest / room)
            by = np.where(length > 0.0, (wanted - dots) / length, 0.0)
        by = np.where(np.isfinite(by) & (by > 0.0), by, 0.0)
        sizes = np.abs(rows) @ self.reach
        sizes = sizes + by * (np.abs(a) @ self.reach + np.abs(s))[:, None]
        units = 8.0 + 12.0 * self.reach.size + 24.0
        added = by * s[:, None] + (units * UNIT * sizes + FLOOR)
        return rows + by[:, :, None] * a[:, None, :], added

    def majorants(self, slope: Array, intercept: Array, below: Array) -> Majorants:
        """Majorants of the objective, for lines of all neurons as `relu_lines` gives.

        All arrays are (num_boxes, num_neurons).
        """
        count = len(slope)
        slopes = np.zeros((count, self.reach.size))
        constants, size = np.zeros(count), np.zeros(count)
        passed: list[list[Array]] = []
        for sizes, stack in zip(self.sizes, self.stacks, strict=True):
            r = np.broadcast_to(stack.row, (count, stack.row.size))
            constants += stack.shift
            size += sizes[-1][0]
            layers: list[Array] = []
            for j in range(stack.depth - 1, -1, -1):
                own = stack.columns[j]
                layers.append(r)
                above = np.maximum(r, 0.0)
                a = above * slope[:, own] + (r - above) * below[:, own]
                constants += np.einsum("bn,bn->b", above, intercept[:, own])
                constants += a @ stack.biases[j]
                size += np.abs(a) @ sizes[j]
                r = a @ stack.weights[j]
            passed.append(layers[::-1])
            slopes += r
        constants += self.gamma * size + FLOOR
        return Majorants(slopes, constants, passed)

    def signs(self, points: Array) -> Array:
        """Which neurons are on at points, zeros and ones (num_points, num_neurons)."""
        found = np.empty((len(points), self.num_neurons))
        for stack in self.stacks:
            y = points
            for w, b, own in zip(
                stack.weights, stack.biases, stack.columns, strict=True
            ):
                h = y @ w.T + b
                found[:, own] = h > 0.0
                y = np.maximum(h, 0.0)
        return found

    def forward(self, points: Array) -> tuple[Array, Array]:
        """Objective at points, and how far rounding may have moved it, (num_points,).

        The error of each layer is what the weights make of the error before, and n + 2
        units of the sum of absolute values; all of it twice, for the rounding of the
        error itself.
        """
        values, errors = np.zeros(len(points)), np.full(len(points), FLOOR)
        for stack in self.stacks:
            y, error = points, np.zeros_like(points)
            for w, b in zip(stack.weights, stack.biases, strict=True):
                units = 2.0 * (w.shape[1] + 2) * UNIT
                magnitude = np.abs(y) @ np.abs(w).T + np.abs(b)
                error = error @ np.abs(w).T * (1.0 + 1e-9) + units * magnitude
                y = np.maximum(y @ w.T + b, 0.0)
            units = 2.0 * (2 * stack.row.size + 2 * self.added + 8) * UNIT
            values += y @ stack.row + stack.shift
            errors += error @ np.abs(stack.row) * (1.0 + 1e-9)
            errors += units * (np.abs(y) @ stack.row_size + stack.shift_size)
        return values, errors


def _corner(rows: Array, centre: Array, radius: Array) -> Array:
    """Maxima on boxes of rows, (num_boxes, num_rows, num_inputs) or the same for all.

    (num_boxes, num_rows)
    """
    if rows.ndim == 2:
        return np.asarray(centre @ rows.T + radius @ np.abs(rows).T)
    top = np.matmul(rows, centre[:, :, None])
    return np.asarray((top + np.matmul(np.abs(rows), radius[:, :, None]))[:, :, 0])


def relu_lines(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Slope and intercept of a line above ReLU, and the slope of one below it.

    The line below goes through zero; where ``low < 0 < high`` any slope from 0 to 1
    would do, and this one is 1 where the neuron is rather on.
    """
    positive, negative = np.maximum(high, 0.0), np.maximum(-low, 0.0)
    width = positive + negative
    width[width == 0.0] = 1.0
    slope = positive / width  # 1 where low >= 0, 0 where high <= 0
    intercept = slope * negative * (1.0 + 8.0 * UNIT)
    unstable = (positive > 0.0) & (negative > 0.0)
    intercept += unstable * (8.0 * UNIT * positive + FLOOR)
    return slope, intercept, (positive > negative).astype(np.float64)


def multiplier(g: Array, a: Array, s: Array, centre: Array, radius: Array) -> Array:
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
