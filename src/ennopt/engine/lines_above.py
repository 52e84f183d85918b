"""Lines above neurons: sharper than the triangle, valid on the whole domain.

A neuron ``y = max(h, 0)``, ``h = w Y + b``, with the outputs Y of the layer before (or
the inputs) in a box and h between its bounds l and u. Let I be a set of the entries of
Y, ``N`` a lower bound of ``sum_I w Y`` and ``C`` an upper bound of ``h - sum_I w Y``.
With z one where the neuron is on, else zero,

    y <= sum_I w Y - N (1 - z) + C z

Nothing but the neuron knows z. Two sets, one whose right-hand side rises with z and one
whose falls, have a weighted mean in which z drops out: a line above the neuron, linear
in Y. With the empty set and the full one it is the line of the triangle. With all sets
and the bounds of the box alone these lines make up the convex hull of the neuron
(Anderson et al. 2020, Tjandraatmadja et al. 2020); here N and C use l and u, too.

That a line is valid does not depend on how its slopes were found: see `proved_line`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ennopt.bounds.linear import ends
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.rounding import UNIT
from ennopt.canonical import Canonical
from ennopt.engine.pool import Row
from ennopt.network import Array

MOST_SETS = 12
"""Most sets that are tried for each neuron, after the empty and the full one."""

VIOLATION = 1e-3
"""Share of a neuron's range by which a point must miss a line that is worth a row."""


class LineAbove(NamedTuple):
    """A neuron's output is at most ``slopes @ Y + constant``.

    Parameters
    ----------
    neuron
        Number of the neuron, network by network and layer by layer.
    slopes
        Of the outputs Y of the layer before, or of the inputs, (num_before,).
    constant
        Rounding included.
    """

    neuron: int
    slopes: Array
    constant: float


class _Layer(NamedTuple):
    """A hidden layer with bounds of what comes before and of its pre-activations."""

    weights: Array
    bias: Array
    lower: Array
    upper: Array
    low: Array
    high: Array
    first: int  # its first neuron
    before: int  # that of the layer before, -1 for the inputs

    def inputs(self, x: Array, y: Array) -> Array:
        """What comes before, of all inputs and outputs of neurons."""
        if self.before < 0:
            return x
        return y[self.before : self.before + self.weights.shape[1]]


def _layers(problem: Canonical, bounds: NeuronBounds) -> Iterator[_Layer]:
    first = 0
    for i, network in enumerate(problem.networks):
        lower, upper, before = problem.domain.lower, problem.domain.upper, -1
        for k, width in enumerate(network.hidden_widths):
            low, high = bounds.lower[i][k], bounds.upper[i][k]
            yield _Layer(
                network.weights[k], network.biases[k], lower, upper, low, high,
                first, before,
            )  # fmt: skip
            before, first = first, first + width
            lower, upper = np.maximum(low, 0.0), np.maximum(high, 0.0)


def separated(
    problem: Canonical, bounds: NeuronBounds, x: Array, y: Array
) -> tuple[LineAbove, ...]:
    """A line above each unstable neuron that a point is clearly above.

    Parameters
    ----------
    problem, bounds
        What the lines hold for.
    x, y
        The point: inputs (num_inputs,) and outputs of all neurons (num_neurons,).
    """
    found = []
    for layer in _layers(problem, bounds):
        own = y[layer.first : layer.first + len(layer.bias)]
        slopes, limits = _lowest_lines(layer, layer.inputs(x, y))
        unstable = (layer.low < 0.0) & (layer.high > 0.0)
        missed = own - limits > VIOLATION * (layer.high - layer.low)
        for r in np.flatnonzero(unstable & missed).tolist():
            constant = _proved(layer, r, slopes[r])
            found.append(LineAbove(layer.first + r, slopes[r], constant))
    return tuple(found)


def proved_line(
    problem: Canonical, bounds: NeuronBounds, neuron: int, slopes: Array
) -> LineAbove:
    """The line above a neuron with these slopes, whatever they are.

    Where the neuron is off its output exceeds ``slopes @ Y`` by at most the largest
    ``-slopes @ Y + v (h - l)`` over the box of Y, and where it is on by at most the
    largest ``h - slopes @ Y + (1 - v) (u - h)``, both for any v from 0 to 1. Each is
    least at 0, at 1 or where v is the ratio of a slope and its weight: all are tried.
    """
    for layer in _layers(problem, bounds):
        r = neuron - layer.first
        if 0 <= r < len(layer.bias):
            if slopes.shape != layer.lower.shape or not np.isfinite(slopes).all():
                break
            return LineAbove(neuron, slopes, _proved(layer, r, slopes))
    raise ValueError(
        f"Expected a slope for each entry before one of {problem.num_neurons} neurons, "
        f"got {slopes.size} at neuron {neuron}."
    )


def _lowest_lines(layer: _Layer, at: Array) -> tuple[Array, Array]:
    """Slopes of a line for each neuron, and where it is at a point.

    For a given z the lowest right-hand side takes each entry into I that makes it
    smaller. The highest of all z, where the line is found, is where two sides cross.
    """
    w, bias = layer.weights, layer.bias[:, None]
    low, high = layer.low[:, None], layer.high[:, None]
    near, far = (w * end for end in ends(w, layer.lower, layer.upper))

    def side(inside: npt.NDArray[np.bool_]) -> Array:
        """The right-hand side of sets I: at z = 0, and its slope in z."""
        rest = bias + np.where(inside, 0.0, far).sum(axis=1, keepdims=True)
        least = np.where(inside, near, 0.0).sum(axis=1, keepdims=True)
        least = np.maximum(least, low - rest)
        most = np.minimum(rest, high - least)
        kept = np.where(inside, w * at, 0.0).sum(axis=1, keepdims=True)
        return np.concatenate([kept - least, least + most], axis=1)

    left, right = np.zeros(w.shape, np.bool_), np.ones(w.shape, np.bool_)
    rising, falling = side(left), side(right)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(MOST_SETS):
            z = (falling[:, 0] - rising[:, 0]) / (rising[:, 1] - falling[:, 1])
            level = rising[:, 0] + rising[:, 1] * z
            share = z[:, None]
            inside = w * at - near * (1.0 - share) < far * share
            new = side(inside)
            lower = new[:, 0] + new[:, 1] * z < level - 1e-9 * (layer.high - layer.low)
            up, down = lower & (new[:, 1] > 0.0), lower & (new[:, 1] <= 0.0)
            left[up], rising[up] = inside[up], new[up]
            right[down], falling[down] = inside[down], new[down]
            if not lower.any():
                break
        share = falling[:, 1] / (falling[:, 1] - rising[:, 1])
        slopes = w * (share[:, None] * left + (1.0 - share)[:, None] * right)
        return slopes, share * rising[:, 0] + (1.0 - share) * falling[:, 0]


def _proved(layer: _Layer, r: int, slopes: Array) -> float:
    """The constant of `proved_line`, rounding included."""
    w, b = layer.weights[r], layer.bias[r]
    low, high = layer.low[r], layer.high[r]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.unique(np.append(slopes / w, [0.0, 1.0]))
    v = ratios[(ratios >= 0.0) & (ratios <= 1.0)][:, None]

    forms = v * w - slopes
    most = np.maximum(forms * layer.lower, forms * layer.upper).sum(axis=1)
    off = most + v[:, 0] * (b - low)
    on = most + v[:, 0] * b + (1.0 - v[:, 0]) * high
    reach = np.maximum(np.abs(layer.lower), np.abs(layer.upper))
    size = float((2.0 * np.abs(w) + np.abs(slopes)) @ reach)
    size += float(abs(b) + abs(low) + abs(high))
    rounding = 4.0 * (w.size + 8) * UNIT * size + 2.0**-1000
    return float(max(off.min(), on.min()) + rounding)


def row_of(problem: Canonical, line: LineAbove) -> Row:
    """The line as a row of the programs of signs."""
    slopes, hidden = np.zeros(problem.num_inputs), np.zeros(problem.num_neurons)
    hidden[line.neuron] = -1.0
    first = 0
    for network in problem.networks:
        before = -1
        for width in network.hidden_widths:
            if first <= line.neuron < first + width:
                if before < 0:
                    slopes = line.slopes
                else:
                    hidden[before : before + line.slopes.size] = line.slopes
            before, first = first, first + width
    none = np.zeros(problem.num_outputs)
    return Row(slopes, none, -1, -line.constant, -line.constant, hidden)


def packed(lines: Sequence[LineAbove]) -> Array:
    """Neurons and slopes of lines, (num_lines, 1 + most_before), for a checkpoint.

    Constants are proved anew by `unpacked`.
    """
    widest = max((line.slopes.size for line in lines), default=0)
    found = np.zeros((len(lines), 1 + widest))
    for row, line in zip(found, lines, strict=True):
        row[0], row[1 : 1 + line.slopes.size] = line.neuron, line.slopes
    return found


def unpacked(
    problem: Canonical, bounds: NeuronBounds, rows: Array
) -> tuple[LineAbove, ...]:
    """Lines as they were before `packed`."""
    before = [
        weights.shape[1]
        for network in problem.networks
        for weights in network.weights[:-1]
        for _ in weights
    ]
    return tuple(
        proved_line(problem, bounds, int(row[0]), row[1 : 1 + before[int(row[0])]])
        for row in rows
    )
