"""Lines above and below neurons on boxes, and rows of coefficients that pass them.

Must be trusted, as `ennopt.certificate.core` must, which says what a majorant is and
counts the rounding of all that is done here.

**Neurons.** With ``l <= h <= u`` there are lines ``relu(h) <= s h + t`` and ``relu(h)
>= q h``, for any q between zero and one. A *row* is a sum of neurons' outputs with
coefficients. It takes the line above where a coefficient is positive, else the one
below, layer by layer back to the inputs.

**Lines of the first layer.** On a box ``x = centre + radius z`` with ``|z_p| <= 1`` a
neuron of the first layer is ``h = c + v . z``. Write S for the sum of all ``|v_p|`` and
``U = c + S`` for its largest value. Take any shares g_p between zero and one, and let T
be the sum of all ``g_p |v_p|``. Then ``relu(h) - sum g_p v_p z_p`` is the larger of two
linear functions, ``- sum g_p v_p z_p``, which is at most T, and ``h`` less the same
sum, which is at most ``U - T``. With ``T = U / 2`` both are ``U / 2``. So

    relu(h) <= sum g_p v_p z_p + U / 2     wherever sum g_p |v_p| = U / 2,

and all these lines differ in their slopes alone. Which is lowest at a vertex, or where
some inputs are anywhere? Give shares first to inputs that disagree with it (``v_p z_p <
0``), then to those that may be anywhere, last to those that agree, until ``U / 2`` is
used up. Where that would need shares beyond one, h is positive on the whole box and
``relu(h) = h``; where U is negative, ``relu(h) = 0``. A mix of two valid bounds of a
row is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ennopt.certificate import advice
from ennopt.network import Array

Cut = tuple[Array, Array]
"""Functions ``slopes . x + sides``, (num_pieces, num_inputs) and (num_pieces,)."""

UNIT = 2.0**-53
FLOOR = 1e-150
"""Part of every margin: covers numbers too small to have relative precision."""

LEAST = 2.0**-1022
"""What is divided by is at least so much."""


@dataclass(slots=True, eq=False)
class Stack:
    """Hidden layers, (width, width before) and (width,), and the outputs over them.

    Outputs are rows of coefficients (num_outputs, width) and constants, and the same
    with absolute values everywhere: what cancels leaves its rounding. `columns` says
    where the neurons of each layer stand among all neurons.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    rows: Array
    shifts: Array
    row_sizes: Array
    shift_sizes: Array
    columns: tuple[slice, ...] = ()


class Box:
    """The boxes of pieces in units of their own, ``x = centre + radius z``.

    Parameters
    ----------
    lower, upper
        Corners, (num_pieces, num_inputs).
    reach
        Largest absolute inputs, (num_inputs,).
    cut
        A half-space of each piece; ``None`` for none.
    """

    def __init__(
        self, lower: Array, upper: Array, reach: Array, cut: Cut | None = None
    ) -> None:
        self.centre, self.radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
        a, s = cut or (np.zeros_like(lower), np.zeros(len(lower)))
        self.steep = a * self.radius
        self.side = np.einsum("bp,bp->b", a, self.centre) + s
        self.sharp = cut is not None and advice.sharp(reach.size)
        sizes = np.abs(a) @ reach + np.abs(s)
        self.spread = (16.0 * reach.size + 48.0) * UNIT * sizes

    def tops(self, r: Array, c: Array, layers: Sequence[Layer]) -> Array:
        """Maxima of rows on the pieces, where the cut holds, (num_rows, num_pieces).

        Rows are coefficients (num_rows, 1, width) of the outputs of the last of the
        layers before them, or of the inputs, and constants (num_rows, 1). What rounding
        moves is not included, but for that of the cut.
        """
        if layers:
            r = r[..., layers[-1].alive]
            for layer in layers[:0:-1]:
                r, c = layer.back(r, c)
            g, c = layers[0].back(r, c)
        else:
            g, c = r * self.radius, c + r[:, 0] @ self.centre.T
        top = c + _length(g)
        by = advice.multiple_for_rows(g, self.steep, self.side)
        by = np.where(np.isfinite(by) & (by > 0.0), by, 0.0)
        g, c = g + by[:, :, None] * self.steep, c + by * self.side
        moved = c + _length(g)
        if layers and self.sharp:
            moved = layers[0].sharpened(r, g, c, moved)
        return np.asarray(np.fmin(top, moved + (self.spread * by + FLOOR)))


class Layer:
    """Lines of a layer's neurons on pieces, for rows of the layers after it.

    Neurons that are off on all pieces are left out; `alive` are the others.

    Parameters
    ----------
    stack, k
        Which layer.
    layers
        Those before it.
    box
        Of the pieces.
    low, high
        Ends of all neurons, (num_pieces, num_neurons).
    """

    def __init__(
        self, stack: Stack, k: int, layers: Sequence[Layer], box: Box, low: Array,
        high: Array,
    ) -> None:  # fmt: skip
        own = stack.columns[k]
        self.alive = np.flatnonzero((high[:, own] > 0.0).any(axis=0))
        low, high = low[:, own][:, self.alive], high[:, own][:, self.alive]
        self.s, self.t, self.q = upper_lines(low, high)
        self.weights, biases = stack.weights[k][self.alive], stack.biases[k][self.alive]
        self.radius = None if layers else box.radius
        if layers:
            self.weights = self.weights[:, layers[-1].alive]
            self.at = np.broadcast_to(biases, low.shape)
        else:
            self.at = box.centre @ self.weights.T + biases
            self.absolute = np.abs(self.weights)
            self.open = ((low < 0.0) & (high > 0.0)).astype(np.float64)
            self.size = box.radius @ self.absolute.T
            half = 0.5 * (self.at + self.size)
            self.half = np.maximum(np.maximum(half, self.at), 0.0)
        # For rows that are the same on all pieces: one product is enough for all.
        both = np.concatenate([self.s.T, self.q.T])
        self.shifts = both * np.tile(self.at.T, (2, 1))
        self.shifts[: self.alive.size] += self.t.T
        both = both[:, :, None] * np.tile(self.weights, (2, 1))[:, None]
        self.slopes = both.reshape(len(both), len(low) * self.weights.shape[1])

    def back(self, r: Array, c: Array) -> tuple[Array, Array]:
        """Rows of the outputs as rows of what comes before, (num_rows, num_pieces, n).

        Before the first layer come the inputs, in units of the box.
        """
        above = np.maximum(r, 0.0)
        if len(r[0]) == 1:
            signed = np.concatenate([above, r - above], axis=2)[:, 0]
            shape = len(r), len(self.at), self.weights.shape[1]
            g, c = (signed @ self.slopes).reshape(shape), c + signed @ self.shifts
        else:
            c = c + np.einsum("rbn,bn->rb", above, self.t)
            above *= self.s - self.q
            above += r * self.q
            g, c = above @ self.weights, c + np.einsum("rbn,bn->rb", above, self.at)
        return (g if self.radius is None else g * self.radius), c

    def sharpened(self, r: Array, g: Array, c: Array, top: Array) -> Array:
        """Lower maxima of rows by lines that are exact where the rows are largest.

        `r` are coefficients of the outputs of this first layer, ``g . z + c`` what
        other lines make of them, and `top` the maxima of that.
        """
        assert self.radius is not None
        above = np.maximum(r, 0.0) * self.open
        below = r * self.open - above
        # The rows without unstable neurons, then the same with other lines of these.
        fixed = g - (above * self.s + below * self.q) @ self.weights * self.radius
        more = c + np.einsum("rbn,bn->rb", above, self.half - self.s * self.at - self.t)
        more -= np.einsum("rbn,bn->rb", below, self.q * self.at)
        signs = np.sign(advice.signs(g))
        undecided = signs == 0.0
        towards = (signs * self.radius) @ self.weights.T
        wide = (undecided * self.radius) @ self.absolute.T
        against = 0.5 * (self.size - wide - towards)
        rest = self.half - against
        with np.errstate(over="ignore"):
            first = np.minimum(self.half / np.maximum(against, LEAST), 1.0)
            last = (rest - wide) / np.maximum(self.size - wide - against, LEAST)
            rest = np.clip(rest / np.maximum(wide, LEAST), 0.0, 1.0) * above
        first *= above
        last = np.clip(last, 0.0, 1.0) * above
        below *= towards > -self.at  # any slope of a line below, zero or one
        more += np.einsum("rbn,bn->rb", below, self.at)
        slopes = (0.5 * (first + last) + below) @ self.weights
        slopes -= signs * ((0.5 * (first - last)) @ self.absolute)
        slopes = np.where(undecided, (rest + below) @ self.weights, slopes)
        change, raised = fixed + slopes * self.radius - g, more - c
        for share in np.clip(advice.SHARES, 0.0, 1.0):
            moved = c + share * raised + _length(g + share * change)
            top = np.fmin(top, moved)
        return top


def _length(g: Array) -> Array:
    """Sums of absolute values, (num_rows, num_pieces)."""
    return np.asarray(np.abs(g) @ np.ones(g.shape[2]))


def largest_error(r: Array, a: Array, low: Array, high: Array) -> Array:
    """The largest ``r relu(h) - a h`` on ``low <= h <= high``, rounded up."""
    at_low = np.where(low > 0.0, r - a, -a) * low
    at_high = np.where(high > 0.0, r - a, -a) * high
    most = np.maximum(at_low, at_high)
    most = np.where((low < 0.0) & (high > 0.0), np.maximum(most, 0.0), most)
    return np.asarray(most + 4.0 * UNIT * np.abs(most))


def upper_lines(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """``relu(h) <= s h + t``, and ``relu(h) >= q h``: any q in [0, 1] will do."""
    positive, negative = np.maximum(high, 0.0), np.maximum(-low, 0.0)
    width = positive + negative
    s = positive / np.where(width > 0.0, width, 1.0)
    t = largest_error(np.ones_like(s), s, low, high)
    return s, np.maximum(t, 0.0), (positive > negative).astype(np.float64)
