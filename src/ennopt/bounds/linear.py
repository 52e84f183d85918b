"""Interval and linear relaxations of layers: bounds of all pre-activations.

A ReLU neuron with ``l <= h <= u`` is off (``u <= 0``), on (``l >= 0``) or unstable; an
unstable one obeys ``alpha * h <= max(h, 0) <= su * h + tu`` with ``su = u / (u - l)``,
``tu = -l * su`` and any alpha in [0, 1]. Other activations bring lines of their own.
"""

from __future__ import annotations

import numpy as np

from ennopt.activations import RELU
from ennopt.bounds.rounding import measured_layers, row_sizes
from ennopt.network import Array, Network

Known = tuple[tuple[Array, ...], tuple[Array, ...]]
"""Lower and upper bounds of every affine layer that are already proved."""


def network_bounds(
    network: Network,
    lower: Array,
    upper: Array,
    gamma: float,
    known: Known | None = None,
    *,
    linear: bool,
    outputs: tuple[Array, Array] | None = None,
) -> Known:
    """Bounds of every affine layer of a network on a box, rounding included.

    Parameters
    ----------
    network
        The network.
    lower, upper
        The box of its inputs, (num_inputs,).
    gamma
        `ennopt.bounds.rounding.relative_error` of the problem.
    known
        What is already proved: the result is no looser.
    linear
        Whether to propagate linear bounds backwards (slower, tighter), or only
        intervals forward.
    outputs
        Weights and biases that the rounding of the last layer is measured by, if not
        its own.
    """
    lows: list[Array] = []
    highs: list[Array] = []
    errors: list[Array] = []
    below, above = lower, upper  # range of the layer's inputs
    measured = measured_layers(network, outputs)
    for k, (w, b) in enumerate(network.layers()):
        reach = np.maximum(np.abs(below), np.abs(above))
        size = row_sizes(*measured[k], 2.0 * reach if k == 0 else reach)
        errors.append(gamma * size)
        plus, minus = np.maximum(w, 0.0), np.minimum(w, 0.0)
        low = plus @ below + minus @ above + b - errors[k]
        high = plus @ above + minus @ below + b + errors[k]
        low, high = np.maximum(low, -size), np.minimum(high, size)
        if known is not None:
            low, high = np.maximum(low, known[0][k]), np.minimum(high, known[1][k])
        if linear and k > 0:
            box = lower, upper
            bounds = lows, highs
            top = _largest(network, k, bounds, errors, gamma, w, b, box)
            bottom = _largest(network, k, bounds, errors, gamma, -w, -b, box)
            high, low = np.minimum(high, top), np.maximum(low, -bottom)
        # Two proofs of one number may cross by their rounding margins. Each is true,
        # so the number is between them.
        low, high = np.minimum(low, high), np.maximum(low, high)
        lows.append(low)
        highs.append(high)
        if k < len(network.activations):
            below, above = network.activations[k].range(low, high)
    return tuple(lows), tuple(highs)


def _largest(
    network: Network,
    k: int,
    bounds: tuple[list[Array], list[Array]],
    errors: list[Array],
    gamma: float,
    rows: Array,
    constants: Array,
    box: tuple[Array, Array],
) -> Array:
    """Upper bounds of rows over the outputs of layer ``k - 1``, (num_rows,).

    Unstable ReLU neurons take the secant above and, below, slope 1 if ``u > -l`` else
    0; others the lines that are best in the middle of their range.
    """
    form, c, margin = rows, constants, errors[k].copy()
    for s in range(k - 1, -1, -1):
        kind = network.activations[s]
        lines = kind.lines(bounds[0][s], bounds[1][s])
        plus, minus = np.maximum(form, 0.0), np.minimum(form, 0.0)
        form = plus * lines.high + minus * lines.low
        c = c + plus @ lines.high_shift + form @ network.biases[s]
        if kind != RELU:  # intercepts of ReLU are no larger than `form` times the sizes
            c = c + minus @ lines.low_shift
            margin = margin + gamma * (
                plus @ np.abs(lines.high_shift) - minus @ np.abs(lines.low_shift)
            )
        margin = margin + np.abs(form) @ errors[s]
        form = form @ network.weights[s]
    lower, upper = box
    positive, negative = np.maximum(form, 0.0), np.minimum(form, 0.0)
    return np.asarray(c + positive @ upper + negative @ lower + margin)


def ends(weights: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Inputs at which each weight's term is smallest and largest."""
    rising = weights >= 0
    return np.where(rising, lower, upper), np.where(rising, upper, lower)
