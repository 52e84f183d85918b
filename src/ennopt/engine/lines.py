"""First-layer lines anchored at a vertex, or where some inputs are undecided.

With z in [-1, 1]^d, ``wr = w * radius``, ``hc = h(centre)``, the range [Lb, Ub] of h
over the box, a vertex sigma and a set U of undecided inputs::

    Hc = hc + sum_(p not in U) wr_p sigma_p    R = sum_U |wr_p|    H-+ = Hc -+ R

An input outside U agrees where ``wr_p * sigma_p > 0``, else it disagrees.

- ``H- >= 0``: slope 1 on disagreeing and on U, b = H-/(H- - Lb) on agreeing, V0 = H-
- ``H+ <= 0``: a = Ub/(Ub - H+) on disagreeing, 0 on the others, V0 = 0
- otherwise: 1 on disagreeing, u = H+/(2R) on U, 0 on agreeing, V0 = 0

Then ``ReLU(h(z)) <= V0 + u (R + sum_U wr_p z_p) + sum_dis a wr_p (z_p - sigma_p) +
sum_agr b wr_p (z_p - sigma_p)``: an inequality of the single-neuron hull (Anderson et
al.), exact at sigma when U is empty. Proof: ``ReLU(t + s) <= ReLU(t) + s`` for s >= 0
on the slope-1 inputs, monotonicity on the slope-0 ones, the secant on the others. A
negative coefficient takes the slope [Hc > 0] below ReLU. All of this holds for any
vertex and any U; `anchor` guesses which suit a form. `src/kernel/lines.hpp` mirrors
these functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ennopt.network import Array

SHARES = (0.15, 0.3, 0.45, 0.6, 0.8, 1.0)
"""How far a form may move towards a new one."""

LINE_PASSES = 2
"""How often a form is improved: each pass takes the lines at another point z."""

LEAN_START, LEAN_STEP = 0.7, 0.8
"""How far z leans: at first to the slopes of the form, in units of their mean, then
further to those of the new form, in units of the largest, less with every pass."""

UNDECIDED = 0.5
"""An input is undecided where z is not further than this from the middle."""

LEAST_SLOPE = 1e-290
"""Slopes are divided by their mean, or the largest, but by no less than this."""


@dataclass(frozen=True, slots=True, eq=False)
class FirstLayer:
    """The first layer of a member on a batch of nodes.

    Parameters
    ----------
    slopes
        wr, (num_nodes, width, num_inputs).
    centre
        hc, (num_nodes, width).
    lower, upper
        Lb and Ub where a neuron is unstable, else -1 and 1, (num_nodes, width).
    """

    slopes: Array
    centre: Array
    lower: Array
    upper: Array


def mix(
    g: Array,
    c: Array,
    gnew: Array,
    cnew: Array,
    value: Array,
) -> tuple[Array, Array, Array]:
    """Move forms ``(g, c)`` towards new ones as far as ``c + sum |g|`` falls.

    A convex mix of valid forms is valid. Shapes: forms (num_nodes, num_forms,
    num_inputs), the others (num_nodes, num_forms). Returns forms and value.
    """
    share = np.zeros_like(c)
    tie = 1e-11 * np.abs(value)  # rounding must not decide
    for eta in SHARES:
        reached = c + eta * (cnew - c) + np.abs(g + eta * (gnew - g)).sum(axis=2)
        better = reached < value - tie
        value, share = np.where(better, reached, value), np.where(better, eta, share)
    g = g + share[..., None] * (gnew - g)
    return g, c + share * (cnew - c), value


def anchored_lines(
    first: FirstLayer, coefficients: Array, signs: Array, undecided: Array
) -> tuple[Array, Array]:
    """Forms above ``coefficients @ ReLU(h)`` anchored at vertices.

    Parameters
    ----------
    first
        The layer.
    coefficients
        (num_nodes, num_forms, width), zero where a neuron is stable.
    signs
        The vertex, (num_nodes, num_forms, num_inputs), 0 where undecided.
    undecided
        Which inputs are in U, of the same shape.

    Returns
    -------
    tuple
        Slopes (num_nodes, num_forms, num_inputs), times radius, and values at the
        centre (num_nodes, num_forms).
    """
    wr, size = first.slopes, np.abs(first.slopes)
    hc, lb, ub = (x[:, None, :] for x in (first.centre, first.lower, first.upper))
    total = size.sum(axis=2)[:, None, :]
    top = hc + signs @ wr.transpose(0, 2, 1)
    wide = undecided.astype(float) @ size.transpose(0, 2, 1)
    low, high = top - wide, top + wide
    over = low >= 0.0
    under = (high <= 0.0) & ~over
    numerator = np.where(over, low, np.where(under, ub, high))
    denominator = np.where(over, low - lb, np.where(under, ub - high, 2.0 * wide))
    q = numerator / denominator
    a = np.where(under, q, 1.0)
    b = np.where(over, q, 0.0)
    u = np.where(over, 1.0, np.where(under, 0.0, q))
    moved, rest = 0.5 * (top - hc), 0.5 * (total - wide)
    value = (
        np.where(over, low, 0.0) + u * wide + a * (rest - moved) - b * (rest + moved)
    )
    plus, minus = np.maximum(coefficients, 0.0), np.minimum(coefficients, 0.0)
    below = np.where(top > 0.0, minus, 0.0)
    decided = (plus * 0.5 * (a + b) + below) @ wr
    decided -= signs * ((plus * 0.5 * (a - b)) @ size)
    open_slopes = (plus * u + below) @ wr
    constant = (plus * value + below * hc).sum(axis=2)
    return np.where(undecided, open_slopes, decided), constant


def at_vertex(
    first: FirstLayer,
    coefficients: Array,
    stable: tuple[Array, Array],
    form: tuple[Array, Array],
    value: Array,
    tie: Array,
) -> tuple[Array, Array, Array]:
    """Improve forms by lines at the vertex where they are largest.

    Parameters
    ----------
    first, coefficients
        As in `anchored_lines`.
    stable
        Slopes and constants of the part without unstable first-layer neurons.
    form
        Slopes and constants to improve.
    value
        Largest values of `form` on the node, (num_nodes, num_forms).
    tie
        How far from zero rounding may have left a slope, of the slopes' shape.

    Returns
    -------
    tuple
        Slopes, constants, values.
    """
    signs = np.where(form[0] >= -tie, 1.0, -1.0)
    nowhere = np.zeros(signs.shape, dtype=bool)
    more, constant = anchored_lines(first, coefficients, signs, nowhere)
    return mix(*form, stable[0] + more, stable[1] + constant, value)


def anchor(
    first: FirstLayer,
    coefficients: Array,
    stable: tuple[Array, Array],
    form: tuple[Array, Array],
    value: Array,
) -> tuple[Array, Array, Array, list[Array]]:
    """Improve forms by lines at points z that lean to where they are largest.

    An input is undecided where z is near the middle. Arguments are those of
    `at_vertex`. Returns slopes, constants, values, and the constants of the forms that
    were mixed in.
    """
    (g, c), met = form, []
    mean = np.abs(g).mean(axis=2, keepdims=True)
    z = np.clip(LEAN_START * (g / np.maximum(mean, LEAST_SLOPE)), -1.0, 1.0)
    for k in range(1, LINE_PASSES + 1):
        undecided = np.abs(z) <= UNDECIDED
        signs = np.where(undecided, 0.0, np.where(z > 0.0, 1.0, -1.0))
        more, constant = anchored_lines(first, coefficients, signs, undecided)
        gnew, cnew = stable[0] + more, stable[1] + constant
        met.append(cnew)
        g, c, value = mix(g, c, gnew, cnew, value)
        most = np.abs(gnew).max(axis=2, keepdims=True)
        z = z + (LEAN_STEP / k) * (gnew / np.maximum(most, LEAST_SLOPE))
        z = np.clip(z, -1.0, 1.0)
    return g, c, value, met
