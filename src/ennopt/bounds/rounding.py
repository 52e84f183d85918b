"""How far floating-point bounds of neurons can be from the exact ones.

A bound is made by a backward pass: a row of coefficients ``a_k`` on the outputs of a
layer becomes, line by line, coefficients ``a_j`` on the pre-activations of every layer
before it, down to the inputs. An error in ``a_j W_j`` is a linear function of the
outputs before, which are at most ``M_(j-1)``; an error in a line or a constant is in
proportion to the pre-activation it belongs to. So rounding costs at most

    gamma * sum over layers of |a_j| . m_j,   m_j = |W_j| M_(j-1) + |b_j|,

with the coefficients that really occur: one dot product per row and layer, and nothing
that grows with the product of all weights. The sizes m are made once, from bounds of
the neurons on the whole feasible set, which are themselves made with this rule, layer
by layer. docs/engine.md counts the roundings behind `gamma`. The intercept of a line of
another activation than ReLU may be large where its slope is small; it adds ``gamma``
times itself and its coefficient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ennopt.activations.envelope import UNIT as UNIT
from ennopt.network import Array, Network

ROUNDINGS_PER_TERM = 16
"""For each term of the first layer's sums: products, two terms of its constant, and
four terms more of the anchored lines, each of size m or twice that."""

LATER_ROUNDINGS_PER_TERM = 4
"""The same of a layer after the first, which has no anchored lines: three, and one more
for the sizes of sums that were rounded themselves."""

ROUNDINGS_PER_SUM = 4
"""For each layer and each network whose constants are added up."""

ROUNDINGS_PER_LINE = 128
"""Roundings of lines, their mixes and the products of one neuron, generously."""

UNIT_SINGLE = 2.0**-24
"""Relative rounding of a float32 number."""

LINE_INPUTS, LINE_ROUNDINGS = 16, 128
"""Roundings of an anchored line in float32, times the range of its neuron: for each
input, and in all. The neurons that a sum runs over come on top."""

UNDERFLOW = 1e-18
"""More than everything that underflows in a pass in float32, per coefficient and in
all, if sizes and products of weights are at most 1e15: a number below the normal range,
1.2e-38, may become zero where other code of the process has asked for that."""

UPWARD = 1.0 + 1e-12
"""Makes up for the rounding of a size itself."""

LEAST_SIZE = 1e-290
"""Floor of a size. What is divided by a rounding error, such as the range of a neuron
without weights, must not underflow: the reciprocals of the kernel would overflow."""


def relative_error(
    networks: Iterable[Network], per_term: int = ROUNDINGS_PER_TERM
) -> float:
    """The factor `gamma` of bounds of these networks and of their sum.

    Sums run over the neurons of one layer, or over the inputs; their results are added
    up over the layers of a network, and over the networks.
    """
    networks = list(networks)
    longest = max(int(max(w.shape)) for n in networks for w in n.weights)
    inputs = max(n.num_inputs for n in networks)
    sums = sum(1 for _ in networks) + max(len(n.weights) for n in networks)
    roundings = per_term * (longest + inputs) + ROUNDINGS_PER_SUM * sums
    return (roundings + ROUNDINGS_PER_LINE) * UNIT


def sum_error(network: Network) -> float:
    """Relative rounding of the constants of a pass in float32.

    Two terms for each neuron and output, and what concretising them takes.
    """
    terms = 2 * sum(len(b) for b in network.biases)
    return (terms + 16 * network.num_inputs + 64) * UNIT_SINGLE


def row_sizes(weights: Array, biases: Array, reach: Array) -> Array:
    """Bounds m of ``|W| |y| + |b|`` where ``|y| <= reach``, (num_rows,).

    They bound the absolute pre-activations, too.
    """
    return (np.abs(weights) @ reach + np.abs(biases)) * UPWARD + LEAST_SIZE


def network_sizes(
    network: Network,
    reach: Array,
    bounds: tuple[Sequence[Array], Sequence[Array]],
    outputs: tuple[Array, Array] | None = None,
) -> list[Array]:
    """The sizes m of every affine layer.

    Parameters
    ----------
    network
        One member.
    reach
        Largest absolute value of each input, (num_inputs,).
    bounds
        Proved lower and upper bounds of the pre-activations of the hidden layers.
    outputs
        Weights and biases that the last layer is measured by, if not its own.
    """
    sizes = []
    for k, (w, b) in enumerate(measured_layers(network, outputs)):
        most = reach
        if k > 0:
            kind = network.activations[k - 1]
            most = kind.reach(bounds[0][k - 1], bounds[1][k - 1])
        # Layer 0 is evaluated as centre plus radius times z, twice the reach at most.
        sizes.append(row_sizes(w, b, 2.0 * most if k == 0 else most))
    return sizes


def measured_layers(
    network: Network, outputs: tuple[Array, Array] | None
) -> list[tuple[Array, Array]]:
    """Weights and biases that rounding is measured by, layer by layer.

    Outputs that were added up are measured by what they were before: what cancels
    leaves its rounding behind.
    """
    layers = list(network.layers())
    return layers if outputs is None else [*layers[:-1], outputs]


def inherited_errors(network: Network, sizes: Sequence[Array]) -> list[Array]:
    """How far rounding in the layers before may move each layer's pre-activations.

    Rounding of a forward pass, and of biases that were moved with the inputs: a layer
    far larger than those after it leaves more there than their own sizes tell.

    Parameters
    ----------
    network
        One member.
    sizes
        Of its affine layers, as `network_sizes` gives them.
    """
    errors = [np.zeros_like(sizes[0])]
    for k, w in enumerate(network.weights[1:]):
        operations = 2.0 * (network.weights[k].shape[1] + 4)
        own = errors[-1] + operations * UNIT * sizes[k]
        errors.append((np.abs(w) @ own) * UPWARD)
    return errors
