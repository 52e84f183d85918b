"""The bound that multipliers prove: the part of the programs of signs that is a proof.

With lambda any numbers, one for each equation ``h = W y + b``, ``p = W' lambda`` from
the layer above (the outputs' weights for the last one) and g the same for the inputs,

    sum lambda b + sum_inputs max g x
                 + sum_neurons max over its corners of p y - lambda h

is above the objective at every point whose neurons keep to their corners: the triangle
over their bounds, or the side of it that a held neuron is on. A half-space ``a x >= s``
of the feasible set is one equation more, ``h = a x - s``, whose h lies between zero and
an upper bound and feeds nothing: ``p = 0``. Without the outputs' weights the sum is
above zero at every point: if it is negative, there is none. `src/kernel/duality.hpp`
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
    problem: Canonical, bounds: NeuronBounds, allowed: States, multipliers: Array,
    share: float = 1.0,
) -> float:  # fmt: skip
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
        Of the equations of all hidden neurons, then of the half-spaces of the domain,
        (num_neurons + num_half_spaces,).
    share
        Of the objective: 1, or 0 to prove by a negative number that there is no point.
    """
    domain = problem.domain
    lows, highs = bounds.flat()
    g, g_size = np.zeros(domain.num_inputs), np.zeros(domain.num_inputs)
    total, size, far, at = 0.0, 0.0, 1.0, 0
    for network in problem.networks:
        depth = len(network.hidden_widths)
        ends = at + np.cumsum([0, *network.hidden_widths])
        a = np.full(network.num_outputs, share)
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
    slopes, sides = domain.half_spaces()
    a, reach = multipliers[at:], _largest_excess(problem, slopes, sides)
    total += float(np.maximum(0.0, -a * reach).sum() - a @ sides)
    size += float(np.abs(a) @ (reach + np.abs(sides)))
    far = max(far, float(reach.max(initial=0.0)))
    g, g_size = g + a @ slopes, g_size + np.abs(a) @ np.abs(slopes)
    total += float(np.maximum(g * domain.lower, g * domain.upper).sum())
    size += float(g_size @ domain.reach)
    far = max(far, float(domain.reach.max()))
    count = 4.0 * (multipliers.size + domain.num_inputs) + 64.0
    rounding = count * (2.0**-52 * size + 2.0**-1060 * count * far)
    outputs = sum(float(errors[-1].sum()) for errors in problem.row_errors)
    proved = total + rounding + share * outputs
    return proved if proved == proved else float("inf")


def _largest_excess(problem: Canonical, slopes: Array, sides: Array) -> Array:
    """What ``slopes @ x - sides`` cannot exceed on the box, (num_half_spaces,).

    The limit of an item of the kernel's program, which measures half-spaces by it. It
    is no smaller than the range of ``slopes @ x``, and positive.
    """
    lower, upper = problem.domain.lower, problem.domain.upper
    most = np.maximum(slopes * lower, slopes * upper).sum(axis=1) - sides
    width = np.abs(slopes) @ (upper - lower)
    size = np.abs(slopes) @ problem.domain.reach + np.abs(sides)
    reach = np.maximum(most + 2.0 * problem.unit * size, width)
    return np.where(reach > 0.0, reach, np.where(size > 0.0, size, 1.0))


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
