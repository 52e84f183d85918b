"""Largest values of linear functions on nodes: a box and one cut.

A node is a box in coordinates ``|z_p| <= 1`` and the cut ``a.z + s >= 0``: points
that can still beat the cutoff. Arrays carry one node per row of their first axis;
`src/kernel/concretise.hpp` mirrors these functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ennopt.network import Array

LARGEST = 1e300
"""Multiples of a cut beyond this are not used: they would overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The cuts of a batch of nodes.

    Parameters
    ----------
    a
        Slopes times radius, (num_nodes, num_inputs).
    s
        Value at the centre minus the cutoff, rounding included, (num_nodes,).
    used
        Whether there is a finite cutoff.
    unit
        Relative rounding of a sum over the inputs.
    """

    a: Array
    s: Array
    used: bool
    unit: float

    @property
    def inverse(self) -> Array:
        """``-1 / a``, 0 where that is not finite."""
        with np.errstate(divide="ignore"):
            inverse = np.where(self.a != 0.0, -1.0 / self.a, 0.0)
        return np.where(np.abs(inverse) < LARGEST, inverse, 0.0)

    @property
    def size(self) -> Array:
        """``sum |a| + |s|``: what a multiplier's rounding is measured by."""
        return np.asarray(np.abs(self.a).sum(axis=1) + np.abs(self.s))


def support(g: Array, cut: Cut) -> tuple[Array, Array]:
    """Bounds of the maximum of ``g.z`` on each node.

    Any multiplier ``lam >= 0`` gives the bound ``sum |g + lam a| + lam s``; the best
    one is 0 or a breakpoint ``-g_q / a_q`` (a continuous knapsack).

    Parameters
    ----------
    g
        (num_nodes, num_forms, num_inputs)
    cut
        Of the same nodes.

    Returns
    -------
    tuple
        Bounds and multipliers, each (num_nodes, num_forms).
    """
    best = np.abs(g).sum(axis=2)
    if not cut.used:
        return best, np.zeros_like(best)
    a, s = cut.a[:, None, :], cut.s[:, None]
    corner = s + np.where(g >= 0.0, a, -a).sum(axis=2)
    lam = g * cut.inverse[:, None, :]
    with np.errstate(over="ignore"):
        lam = np.where(lam * cut.size[:, None, None] < LARGEST, lam, 0.0)
    value = np.abs(g[:, :, None, :] + lam[..., None] * a[:, :, None, :]).sum(axis=3)
    value += lam * s[..., None] + cut.unit * lam * cut.size[:, None, None]
    value = np.where((lam > 0.0) & (corner < 0.0)[..., None], value, np.inf)
    q = np.argmin(value, axis=2)[..., None]
    least = np.take_along_axis(value, q, axis=2)[..., 0]
    chosen = np.take_along_axis(lam, q, axis=2)[..., 0]
    better = least < best
    return np.where(better, least, best), np.where(better, chosen, 0.0)


def argument(g: Array, cut: Cut, multiplier: Array) -> Array:
    """Where ``g.z`` is largest, (num_nodes, num_inputs), for one form per node.

    Corners of the box; the input at the breakpoint is set so that the cut is tight.
    """
    z = np.where(g + multiplier[:, None] * cut.a >= 0.0, 1.0, -1.0)
    inverse = cut.inverse
    for node in np.flatnonzero(multiplier > 0.0):
        total = cut.s[node] + cut.a[node] @ z[node]
        at_break = g[node] * inverse[node] == multiplier[node]
        for q in np.flatnonzero(at_break & (cut.a[node] != 0.0)):
            rest = total - cut.a[node, q] * z[node, q]
            z[node, q] = min(max(rest * inverse[node, q], -1.0), 1.0)
            total = rest + cut.a[node, q] * z[node, q]
    return z


def clip(
    slopes: Array,
    constant: Array,
    cutoff: float,
    reach: Array,
    unit: float,
    lower: Array,
    upper: Array,
) -> tuple[Array, Array, Array, npt.NDArray[np.bool_]]:
    """Shrink boxes to where their cut ``slopes.x + constant >= cutoff`` can be met.

    With U the cut's largest value, an input with ``|a_j| * width_j > U - cutoff``
    keeps only the width ``(U - cutoff) / |a_j|`` at its better end.

    Returns
    -------
    tuple
        New lower and upper (num_nodes, num_inputs), U (num_nodes,), and which boxes
        became empty: nothing there beats the cutoff.
    """
    top = constant + np.where(slopes > 0.0, slopes * upper, slopes * lower).sum(axis=1)
    top = top + unit * (np.abs(constant) + abs(cutoff) + np.abs(slopes) @ reach)
    slack = top - cutoff
    empty = slack < 0.0
    steep = np.abs(slopes)
    cuts = (steep * (upper - lower) > slack[:, None]) & ~empty[:, None]
    width = slack[:, None] / np.where(cuts, steep, 1.0) * (1.0 + 1e-14) + 1e-15 * reach
    rising = slopes > 0.0
    low = np.where(cuts & rising, np.maximum(lower, upper - width), lower)
    high = np.where(cuts & ~rising, np.minimum(upper, lower + width), upper)
    return low, high, top, empty
