"""The bound that multipliers prove: the part of the programs of signs that is a proof.

With lambda any numbers, one for each equation ``h = W y + b``, ``p = W' lambda`` from
the layer above (the outputs' weights for the last one) and g the same for the inputs,

    sum lambda b + sum_inputs max g x
                 + sum_neurons max over its corners of p y - lambda h

is above the objective at every point whose neurons keep to their corners: the triangle
over their bounds, or the side of it that a held neuron is on. `src/kernel/duality.hpp`
mirrors this function.
"""

from __future__ import annotations

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.nodes import States
from ennopt.engine.program import L, U
from ennopt.network import Array


def proved_by(
    problem: Canonical, bounds: NeuronBounds, allowed: States, multipliers: Array
) -> float:
    """An upper bound of the objective from any multipliers, rounding included.

    Parameters
    ----------
    problem
        One output over each network.
    bounds
        Of the neurons.
    allowed
        Corners that each neuron may take beside zero: `U`, `L` or both, (num_neurons,).
        What `bounds` decide is not asked here.
    multipliers
        Of the equations of all hidden neurons, (num_neurons,).
    """
    domain = problem.domain
    lows, highs = bounds.flat()
    g, g_size = np.zeros(domain.num_inputs), np.zeros(domain.num_inputs)
    total, size, far, at = 0.0, 0.0, 1.0, 0
    for network in problem.networks:
        depth = len(network.hidden_widths)
        ends = at + np.cumsum([0, *network.hidden_widths])
        a = np.ones(network.num_outputs)
        for k in range(depth, -1, -1):
            w, b = network.weights[k], network.biases[k]
            total += float(a @ b)
            size += float(np.abs(a * b).sum())
            p, p_size = a @ w, np.abs(a) @ np.abs(w)
            if k == 0:
                g, g_size = g + p, g_size + p_size
                break
            own = slice(ends[k - 1], ends[k])
            low, high, a = lows[own], highs[own], multipliers[own]
            corners = _largest_corner(p, a, low, high, allowed[own])
            reach = np.maximum(np.abs(low), np.abs(high))
            total += float(corners.sum())
            size += float((p_size + np.abs(a)) @ reach)
            far = max(far, float(reach.max(initial=0.0)))
        at = int(ends[-1])
    total += float(np.maximum(g * domain.lower, g * domain.upper).sum())
    size += float(g_size @ domain.reach)
    far = max(far, float(domain.reach.max()))
    count = 4.0 * (at + domain.num_inputs) + 64.0
    rounding = count * (2.0**-52 * size + 2.0**-1060 * count * far)
    outputs = sum(float(errors[-1].sum()) for errors in problem.row_errors)
    proved = total + rounding + outputs
    return proved if proved == proved else float("inf")


def _largest_corner(
    p: Array, multipliers: Array, low: Array, high: Array, allowed: States
) -> Array:
    """Largest ``p y - lambda h`` of each neuron over the corners that are allowed."""
    up, down = (p - multipliers) * high, -multipliers * low
    best = np.maximum(np.where(allowed & U, up, 0.0), np.where(allowed & L, down, 0.0))
    best = np.maximum(best, 0.0)
    on, off = low >= 0.0, (high <= 0.0) & (low < 0.0)
    best = np.where(on, np.maximum(up, (p - multipliers) * low), best)
    return np.where(off, np.maximum(down, -multipliers * high), best)
