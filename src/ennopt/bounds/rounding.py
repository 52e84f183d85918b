"""How far floating-point bounds of neurons can be from the exact ones.

Every bound of this package is a chain of sums and products of weights, biases and
inputs with slopes in [0, 1]. Rounding moves its result by at most ``gamma_N * S``: N
counts the operations of the longest chain, and S is the same expression on absolute
values. With slopes at most one, S obeys ``S_0 = |W_0| |x| + |b_0|`` and
``S_k = |W_k| S_(k-1) + |b_k|``, whatever the node, so margins are computed once for
the whole feasible set. S also bounds the pre-activations themselves.
"""

from __future__ import annotations

import numpy as np

from ennopt.network import Array, Network

UNIT = 2.0**-53
TINY = 1e-300
"""Absolute floor of a margin: covers underflow, where relative errors mean nothing."""


def magnitudes(network: Network, reach: Array) -> list[Array]:
    """Bounds S of the absolute pre-activations where ``|x| <= reach``.

    Parameters
    ----------
    network
        The member.
    reach
        Largest absolute value of each input, (num_inputs,).

    Returns
    -------
    list
        One array per affine layer, the output layer last.
    """
    sizes: list[Array] = []
    current = np.asarray(reach, dtype=np.float64)
    for w, b in network.layers():
        current = (np.abs(w) @ current + np.abs(b)) * (1.0 + 1e-12) + TINY
        sizes.append(current)
    return sizes


def margins(network: Network, reach: Array) -> list[Array]:
    """How much to widen the bounds of each neuron, layer by layer.

    A bound of layer k passes ``k + 1`` layers; in each, at most eight terms of size S
    (two lines, bias, product, first-layer lines and their mixes) are rounded.
    """
    operations = 4 * (sum(w.shape[0] for w in network.weights) + network.num_inputs)
    gamma = (operations + 64) * UNIT
    return [
        8.0 * (k + 2) * gamma * size + TINY
        for k, size in enumerate(magnitudes(network, reach))
    ]
