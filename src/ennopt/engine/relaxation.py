"""Bounds of all neurons on a batch of nodes, layer by layer.

An unstable neuron obeys ``alpha*h <= y <= su*h + tu`` with ``su = u/(u-l)`` and
``tu = -l*su``. The upper form of a row takes the line above where its coefficient is
positive; the lower form is minus the upper form of minus the row.
`src/kernel/relaxation.hpp` mirrors these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ennopt.engine.concretise import HalfSpaces, support
from ennopt.engine.lines import FirstLayer, anchor
from ennopt.engine.nodes import ON, Flags, NodeSettings, States
from ennopt.network import Array, Network


class Rounding(Protocol):
    """What passes in float32 round, beside what coefficients of neurons do."""

    def of(self, margin: Array, met: list[Array]) -> Array:
        """The whole margin, given that of coefficients, and constants on the way."""


@dataclass(slots=True, eq=False)
class Layer:
    """Bounds and lines of one layer on a batch; all arrays (num_nodes, width)."""

    low: Array
    high: Array
    on: Flags
    unstable: Flags
    slope: Array  # su
    shift: Array  # tu
    under: Array  # area rule: the slope below ReLU without other knowledge
    smear: Array  # (num_nodes, width, num_inputs): |GU| + |GL|, times radius
    jacobian: Array  # (num_nodes, width, num_inputs): J, times radius
    alpha: Array = field(default_factory=lambda: np.zeros(0))
    coefficient: Array = field(default_factory=lambda: np.zeros(0))


def settle(
    low: Array, high: Array, size: Array, state: States, smear: Array, jacobian: Array
) -> Layer:
    """Decide states and choose lines; bounds include their margins.

    Decided neurons stay so.
    """
    unstable, on = state < ON, state == ON
    low, high = np.maximum(low, -size), np.minimum(high, size)
    off = unstable & (high <= 0.0)
    now_on = unstable & (low >= 0.0) & ~off
    unstable = unstable & ~off & ~now_on
    on = on | now_on
    width = np.where(unstable, high - low, 1.0)
    one = np.where(on, 1.0, 0.0)
    slope = np.where(unstable, high / width, one)
    shift = np.where(unstable, -low * slope, 0.0)
    under = np.where(unstable, np.where(high > -low, 1.0, 0.0), one)
    return Layer(low, high, on, unstable, slope, shift, under, smear, jacobian)


def row_slopes(layer: Layer, signs: Array) -> Array:
    """Slopes below ReLU for each row of a later layer (deep rule 1).

    A row is largest near the vertex ``signs`` of its sensitivities; a neuron moves
    there by ``dev = sum_p sign_p J_p``, and the slope is on if it is then positive.
    Returns (num_nodes, num_rows, width).
    """
    dev = signs @ layer.jacobian.transpose(0, 2, 1)
    width = np.where(layer.unstable, layer.high - layer.low, 1.0)[:, None]
    middle = 0.5 * (layer.low + layer.high)[:, None]
    alpha = np.clip(0.5 + (middle + 0.75 * dev) * (5.0 / width), 0.0, 1.0)
    return np.where(layer.unstable[:, None], alpha, layer.slope[:, None])


def first_layer(
    network: Network, centre: Array, radius: Array, halves: HalfSpaces, error: Array,
    size: Array, state: States,
) -> tuple[Layer, FirstLayer]:  # fmt: skip
    """The first layer, linear in the inputs."""
    wr = network.weights[0] * radius[:, None, :]
    hc = centre @ network.weights[0].T + network.biases[0]
    up, down = support(wr, halves)[0], support(-wr, halves)[0]
    layer = settle(
        hc - down - error, hc + up + error, size, state, 2.0 * np.abs(wr), wr
    )
    total, free = np.abs(wr).sum(axis=2), layer.unstable
    first = FirstLayer(
        wr, hc,
        np.where(free, hc - total - error, -1.0),
        np.where(free, hc + total + error, 1.0),
    )  # fmt: skip
    return layer, first


def later_layer(
    network: Network, k: int, layers: list[Layer], first: FirstLayer,
    halves: HalfSpaces, settings: NodeSettings, errors: Sequence[Array], size: Array,
    state: States, skip: Flags,
) -> Layer:  # fmt: skip
    """Layer k >= 1 from the relaxed layers before it; `skip` rows are not bounded."""
    slope, before = layers[-1].slope, layers[-1].jacobian
    jacobian = network.weights[k] @ (slope[..., None] * before)
    low, high, smear = bound_rows(
        network, k, layers, first, halves, settings, jacobian, errors
    )
    low, high = np.where(skip, -size, low), np.where(skip, size, high)
    smear = np.where(skip[..., None], 0.0, smear)
    return settle(low, high, size, state, smear, jacobian)


def bound_rows(
    network: Network, k: int, layers: list[Layer], first: FirstLayer,
    halves: HalfSpaces, settings: NodeSettings, jacobian: Array,
    errors: Sequence[Array], rounding: Rounding | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Bounds of all rows of layer k, rounding included, from the layers before it.

    `errors` are the rounding errors of each layer's rows per unit of their
    coefficient, of all nodes alike or (num_nodes, width); `rounding` is what is
    particular to float32. Returns low and high, (num_nodes, width), and the smear
    (num_nodes, width, d).
    """
    count = len(halves.s)
    w, b = network.weights[k], network.biases[k]
    rows = np.concatenate([w, -w])  # the lower form is minus the upper form of -row
    form = np.broadcast_to(rows, (count, *rows.shape))
    c = np.broadcast_to(np.concatenate([b, -b]), (count, len(rows))).copy()
    margin = np.broadcast_to(np.concatenate([errors[k]] * 2, axis=-1), c.shape).copy()
    signs = np.sign(np.concatenate([jacobian, -jacobian], axis=1))
    for s in range(k - 1, 0, -1):
        layer = layers[s]
        under = layer.under[:, None]
        if settings.row_slopes:
            under = row_slopes(layer, signs)
        plus, minus = np.maximum(form, 0.0), np.minimum(form, 0.0)
        form = plus * layer.slope[:, None] + minus * under
        c += np.einsum("bri,bi->br", plus, layer.shift) + form @ network.biases[s]
        margin += (np.abs(form) * errors[s][..., None, :]).sum(axis=2)
        form = form @ network.weights[s]
    alive = layers[0].on | layers[0].unstable
    form = np.where(alive[:, None], form, 0.0)
    margin += (np.abs(form) * errors[0][..., None, :]).sum(axis=2)
    g, value, met = lift(form, c, layers[0], first, halves, settings)
    value = value + (margin if rounding is None else rounding.of(margin, met))
    n = len(w)
    return -value[:, n:], value[:, :n], np.abs(g[:, :n]) + np.abs(g[:, n:])


def lift(
    coefficients: Array, c: Array, layer: Layer, first: FirstLayer, halves: HalfSpaces,
    settings: NodeSettings,
) -> tuple[Array, Array, list[Array]]:  # fmt: skip
    """From coefficients of the first layer's outputs to forms in the inputs.

    Returns slopes times radius, largest values on the node, and all values at the
    centre that were met on the way.
    """
    fixed = np.where(layer.on[:, None], coefficients, 0.0)
    free = np.where(layer.unstable[:, None], coefficients, 0.0)
    stable = fixed @ first.slopes
    base = c + np.einsum("bri,bi->br", fixed, first.centre)
    plus, minus = np.maximum(free, 0.0), np.minimum(free, 0.0)
    slope = plus * layer.slope[:, None] + minus * layer.under[:, None]
    g = stable + slope @ first.slopes
    c = base + np.einsum("bri,bi->br", plus, layer.shift)
    c = c + np.einsum("bri,bi->br", slope, first.centre)
    most, multipliers = support(g, halves)
    value = c + most
    if not settings.vertex_lines:
        return g, value, [c]
    # Forms plus the best multiples of the half-spaces are what the lines are fitted to.
    shift, _, gain = halves.combined(multipliers)
    g, _, value, met = anchor(
        first, free, (stable + shift, base + gain), (g + shift, c + gain), value
    )
    return g - shift, value, [c, *met]
