"""The bound that multipliers prove: the part of the programs of signs that is a proof.

With lambda any numbers, one for each equation ``h = W y + b``, ``p = W' lambda`` from
the layer above (the outputs' weights for the last one) and g the same for the inputs,

    sum lambda b + sum_inputs max g x
                 + sum_neurons max over its corners of p y - lambda h

is above the objective at every point whose neurons keep to their corners: the triangle
over their bounds, or the side of it that a held neuron is on. A row of the feasible
set, ``a x + G f >= s`` with the outputs f, is one equation more, ``h = a x + G f - s``,
whose h lies between zero and an upper bound and feeds nothing: ``p = 0``. Its
multiplier adds to the weights of the outputs and to g. A line above a neuron is a row
on outputs y of neurons: its multiplier adds to their p. An extra input, a risk of the
objective, counts there with weight one and in rows with weight minus one. Without the
objective the sum is above zero at every point: if it is negative, there is none.
`src/kernel/duality.hpp` mirrors this function.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.nodes import States
from ennopt.engine.pool import (
    Row,
    fixed_rows,
    largest_excess,
    output_errors,
    risk_ranges,
)
from ennopt.engine.program import L, U
from ennopt.network import Array


def proved_by(
    problem: Canonical, bounds: NeuronBounds, allowed: States, multipliers: Array,
    share: float = 1.0, learned: Sequence[Row] = (),
) -> float:  # fmt: skip
    """An upper bound of the objective from any multipliers, rounding included.

    Parameters
    ----------
    problem
        Of ReLU networks.
    bounds
        Of the neurons and outputs.
    allowed
        Corners that each neuron may take beside zero: `U`, `L` or both, (num_neurons,).
        What `bounds` decide is not asked here.
    multipliers
        Of the equations of all hidden neurons, then of the fixed rows of the problem,
        then of those learned, (num_neurons + num_rows,).
    share
        Of the objective: 1, or 0 to prove by a negative number that there is no point.
    learned
        Rows that hold beside the fixed ones.
    """
    domain, goal = problem.domain, problem.weighting
    rows, errors = [*fixed_rows(problem), *learned], output_errors(problem)
    lows, highs = bounds.flat()
    risks = risk_ranges(problem, bounds)
    g, g_size = np.zeros((2, domain.num_inputs))
    t, t_size = np.full((2, len(goal.groups)), share)
    c, c_size = share * goal.weights, np.abs(share * goal.weights)
    of_rows, of_rows_size = np.zeros((2, problem.num_neurons))
    total, size, far = 0.0, 0.0, 1.0
    for a, row in zip(multipliers[problem.num_neurons :], rows, strict=True):
        most = largest_excess(problem, bounds, row)
        total += max(0.0, -a * most) - a * row.side
        size += abs(a) * (most + abs(row.side))
        far = max(far, most)
        g, g_size = g + a * row.slopes, g_size + np.abs(a * row.slopes)
        c, c_size = c + a * row.shares, c_size + np.abs(a * row.shares)
        if row.hidden is not None:
            of_rows += a * row.hidden
            of_rows_size += np.abs(a * row.hidden)
        if row.extra >= 0:
            t[row.extra] -= a
            t_size[row.extra] += abs(a)
    at = output = 0
    for i, network in enumerate(problem.networks):
        depth = len(network.hidden_widths)
        ends = at + np.cumsum([0, *network.hidden_widths])
        own = slice(output, output + network.num_outputs)
        a, a_size = c[own], c_size[own]
        far = max(far, float(problem.row_sizes[i][-1].max()))
        for k in range(depth, -1, -1):
            w, b = network.weights[k], network.biases[k]
            total += float(a @ b)
            size += float(a_size @ np.abs(b))
            p, p_size = a @ w, a_size @ np.abs(w)
            if k == 0:
                g, g_size = g + p, g_size + p_size
                break
            own = slice(ends[k - 1], ends[k])
            p, p_size = p + of_rows[own], p_size + of_rows_size[own]
            low, high, a = lows[own], highs[own], multipliers[own]
            a_size = np.abs(a)
            corners = _largest_corner(p, a, low, high, allowed[own])
            reach = np.maximum(np.abs(low), np.abs(high))
            total += float(corners.sum())
            size += float((p_size + a_size) @ reach)
            far = max(far, float(reach.max(initial=0.0)))
        at, output = int(ends[-1]), output + network.num_outputs
    for form, sizes, low, high, reach in (
        (g, g_size, domain.lower, domain.upper, domain.reach),
        (t, t_size, *risks, risks[1]),
    ):
        total += float(np.maximum(form * low, form * high).sum())
        size += float(sizes @ reach)
        far = max(far, float(reach.max(initial=0.0)))
    count = 4.0 * (multipliers.size + g.size + t.size + c.size) + 64.0
    rounding = count * (2.0**-52 * size + 2.0**-1060 * count * far)
    proved = total + rounding + share * float(np.abs(goal.weights) @ errors)
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
