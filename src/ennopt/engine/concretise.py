"""Largest values of linear functions on nodes: a box and some half-spaces.

A node is a box in coordinates ``|z_p| <= 1`` and half-spaces ``a.z + s >= 0``: the cut,
where the objective can still beat the cutoff, and the linear constraints of the
feasible set. Arrays carry one node per row of their first axis;
`src/kernel/concretise.hpp` mirrors these functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ennopt.network import Array

LARGEST = 1e300
"""Slopes, constants and multiples of half-spaces beyond this are not used: their sums
and products would overflow."""

CYCLES = 2
"""How often the multipliers of several half-spaces are improved, one by one."""

TIED = 1e-12
"""A form is zero at a breakpoint up to this share of what was added to it."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class HalfSpaces:
    """The half-spaces of a batch of nodes.

    Parameters
    ----------
    a
        Slopes times radius, (num_nodes, num_half_spaces, num_inputs).
    s
        Values at the centre, rounding included, (num_nodes, num_half_spaces).
    unit
        Relative rounding of a sum over the inputs.
    """

    a: Array
    s: Array
    unit: float

    @property
    def count(self) -> int:
        """Number of half-spaces of each node."""
        return int(self.s.shape[1])

    @property
    def inverse(self) -> Array:
        """``-1 / a``, 0 where that is not finite."""
        with np.errstate(divide="ignore"):
            inverse = np.where(self.a != 0.0, -1.0 / self.a, 0.0)
        return np.where(np.abs(inverse) < LARGEST, inverse, 0.0)

    @property
    def size(self) -> Array:
        """``sum |a| + |s|``: what a multiplier's rounding is measured by."""
        return np.asarray(np.abs(self.a).sum(axis=2) + np.abs(self.s))

    def combined(self, multipliers: Array) -> tuple[Array, Array, Array]:
        """A sum of half-spaces for each form, (num_nodes, num_forms, num_half_spaces).

        Returns slopes and how far they may be rounded, both (num_nodes, num_forms,
        num_inputs), and constants with their rounding, (num_nodes, num_forms).
        """
        slopes = np.einsum("nfk,nkp->nfp", multipliers, self.a)
        ties = TIED * np.einsum("nfk,nkp->nfp", multipliers, np.abs(self.a))
        constant = np.einsum("nfk,nk->nf", multipliers, self.s)
        return slopes, ties, constant + self.margin(multipliers)

    def margin(self, multipliers: Array) -> Array:
        """The rounding in the constants of `combined`."""
        sizes = np.einsum("nfk,nk->nf", multipliers, self.size)
        return np.asarray(self.unit * sizes)


def support(g: Array, halves: HalfSpaces) -> tuple[Array, Array]:
    """Bounds of the maximum of ``g.z`` on each node.

    Any multipliers ``lam >= 0`` give the bound ``sum |g + lam.a| + lam.s``. For one
    half-space the best is 0 or a breakpoint ``-g_q / a_q`` (a continuous knapsack). For
    several they are improved one by one, and along edges on which an input stays tied.

    Parameters
    ----------
    g
        (num_nodes, num_forms, num_inputs)
    halves
        Of the same nodes.

    Returns
    -------
    tuple
        Bounds (num_nodes, num_forms) and multipliers (num_nodes, num_forms,
        num_half_spaces).
    """
    best = np.abs(g).sum(axis=2)
    multipliers = np.zeros((*best.shape, halves.count))
    if halves.count == 0:
        return best, multipliers
    if halves.count == 1:
        best, multipliers[..., 0] = _one(g, halves)
        return best, multipliers
    # Half-spaces that hold every box of the batch bound nothing.
    (used,) = np.nonzero((halves.s < np.abs(halves.a).sum(axis=2)).any(axis=0))
    if used.size < halves.count:
        some = HalfSpaces(halves.a[:, used], halves.s[:, used], halves.unit)
        best, multipliers[..., used] = support(g, some)
        return best, multipliers
    corner = np.where(g[..., None, :] >= 0.0, halves.a[:, None], -halves.a[:, None])
    missed = (corner.sum(axis=3) + halves.s[:, None] < 0.0).any(axis=2)
    for _ in range(CYCLES if missed.any() else 0):
        for k in range(halves.count):
            _row_step(g, halves, multipliers, k, missed)
            for j in range(halves.count):
                if j != k:
                    _edge_step(g, halves, multipliers, k, j, missed)
    slopes, _, constant = halves.combined(multipliers)
    value = np.abs(g + slopes).sum(axis=2) + constant
    better = value < best
    return (
        np.where(better, value, best),
        np.where(better[..., None], multipliers, 0.0),
    )


def _one(g: Array, halves: HalfSpaces) -> tuple[Array, Array]:
    """`support` for a single half-space."""
    best = np.abs(g).sum(axis=2)
    a, s, size = halves.a, halves.s[:, 0, None], halves.size[:, 0, None]
    corner = s + np.where(g >= 0.0, a, -a).sum(axis=2)
    lam = g * halves.inverse
    with np.errstate(over="ignore"):
        lam = np.where(lam * size[..., None] < LARGEST, lam, 0.0)
    value = np.abs(g[:, :, None, :] + lam[..., None] * a[:, :, None, :]).sum(axis=3)
    value += lam * s[..., None] + halves.unit * lam * size[..., None]
    value = np.where((lam > 0.0) & (corner < 0.0)[..., None], value, np.inf)
    q = np.argmin(value, axis=2)[..., None]
    least = np.take_along_axis(value, q, axis=2)[..., 0]
    chosen = np.take_along_axis(lam, q, axis=2)[..., 0]
    better = least < best
    return np.where(better, least, best), np.where(better, chosen, 0.0)


def _line_search(
    r: Array, v: Array, slope: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """The t in [low, high] with the least ``sum |r + t v| + t slope``, and the gain.

    The function is convex and piecewise linear: a breakpoint ``-r_q / v_q`` or an end.
    Arrays (num_nodes, num_forms, num_inputs), the others (num_nodes, num_forms).
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        breaks = np.where(v != 0.0, -r / v, 0.0)
        trials = np.concatenate([breaks, low[..., None], high[..., None]], axis=2)
        trials = np.clip(trials, low[..., None], high[..., None])
        trials = np.where(np.abs(trials) < LARGEST, trials, 0.0)
        moved = np.abs(r[:, :, None] + trials[..., None] * v[:, :, None]).sum(axis=3)
        values = moved + trials * slope[..., None]
    values = np.where(np.isfinite(values), values, np.inf)
    q = np.argmin(values, axis=2)[..., None]
    t = np.take_along_axis(trials, q, axis=2)[..., 0]
    gain = np.abs(r).sum(axis=2) - np.take_along_axis(values, q, axis=2)[..., 0]
    return t, gain


def _row_step(
    g: Array, halves: HalfSpaces, multipliers: Array, k: int, missed: Flags
) -> None:
    """Improve the multiplier of half-space k of the forms whose corner is cut off."""
    slopes, _, _ = halves.combined(multipliers)
    r, lam = g + slopes, multipliers[..., k]
    price = halves.s[:, k] + halves.unit * halves.size[:, k]
    most = LARGEST / np.maximum(halves.size[:, k], 1.0)
    a = np.broadcast_to(halves.a[:, k, None], r.shape)
    high = np.broadcast_to(most[:, None], lam.shape) - lam
    t, gain = _line_search(r, a, np.broadcast_to(price[:, None], lam.shape), -lam, high)
    use = missed & (gain > 0.0)
    multipliers[..., k] = np.where(use, np.maximum(lam + t, 0.0), lam)


def _edge_step(
    g: Array, halves: HalfSpaces, multipliers: Array, k: int, j: int, missed: Flags
) -> None:
    """Move the multipliers of k and j together so that an input tied by k stays tied.

    A pivot of the dual simplex method without a matrix.
    """
    slopes, ties, _ = halves.combined(multipliers)
    r = g + slopes
    steep = np.abs(halves.a[:, k, None])
    tied = (np.abs(r) <= ties) & (steep > 0.0)
    q = np.argmax(np.where(tied, steep, -1.0), axis=2)
    use = missed & tied.any(axis=2) & (multipliers[..., k] > 0.0)
    if not use.any():
        return
    nodes = np.arange(len(g))[:, None]
    a_k, a_j = halves.a[nodes, k, q], halves.a[nodes, j, q]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(a_k != 0.0, a_j / a_k, 0.0)
    v = halves.a[:, j, None] - share[..., None] * halves.a[:, k, None]
    price = halves.s + halves.unit * halves.size
    slope = price[:, j, None] - share * price[:, k, None]
    lam_k, lam_j = multipliers[..., k], multipliers[..., j]
    # Both multipliers stay nonnegative: lam_j + t >= 0 and lam_k - t share >= 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.where(share != 0.0, lam_k / share, 0.0)
    low = np.where(share < 0.0, np.maximum(-lam_j, limit), -lam_j)
    most = LARGEST / np.maximum(halves.size[:, j, None], 1.0)
    high = np.where(share > 0.0, limit, np.broadcast_to(most, limit.shape))
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    t, gain = _line_search(r, v, slope, low, high)
    use &= gain > 0.0
    multipliers[..., j] = np.where(use, np.maximum(lam_j + t, 0.0), lam_j)
    multipliers[..., k] = np.where(use, np.maximum(lam_k - t * share, 0.0), lam_k)


def argument(g: Array, halves: HalfSpaces, multipliers: Array) -> Array:
    """Where ``g.z`` is largest, (num_nodes, num_inputs), for one form per node.

    Corners of the box; inputs at a breakpoint are set so that half-spaces with a
    multiplier are tight.
    """
    slopes, ties, _ = halves.combined(multipliers[:, None])
    r, ties = g + slopes[:, 0], ties[:, 0]
    z = np.where(r >= 0.0, 1.0, -1.0)
    inverse = halves.inverse
    for node in np.flatnonzero(multipliers.max(axis=1, initial=0.0) > 0.0):
        for k in np.flatnonzero(multipliers[node] > 0.0):
            a, total = (
                halves.a[node, k],
                halves.s[node, k] + halves.a[node, k] @ z[node],
            )
            if halves.count == 1:
                tied = g[node] * inverse[node, k] == multipliers[node, k]
            else:
                tied = np.abs(r[node]) <= ties[node]
            for q in np.flatnonzero(tied & (a != 0.0)):
                rest = total - a[q] * z[node, q]
                z[node, q] = min(max(rest * inverse[node, k, q], -1.0), 1.0)
                total = rest + a[q] * z[node, q]
    return z


def empty(halves: HalfSpaces) -> Flags:
    """Nodes whose half-spaces have no point in common, proved, (num_nodes,).

    Each is maximized over the box and the others: without a point where all are met,
    one of them stays negative.
    """
    found = np.zeros(len(halves.s), dtype=np.bool_)
    for k in range(halves.count):
        others = np.arange(halves.count) != k
        rest = HalfSpaces(halves.a[:, others], halves.s[:, others], halves.unit)
        most = support(halves.a[:, k, None], rest)[0][:, 0]
        rounding = halves.unit * halves.size[:, k]
        found |= most + halves.s[:, k] + rounding < 0.0
    return found


def clip(
    slopes: Array,
    constant: Array,
    cutoff: float | Array,
    reach: Array,
    unit: float,
    lower: Array,
    upper: Array,
) -> tuple[Array, Array, Array, Flags]:
    """Shrink boxes to where ``slopes.x + constant >= cutoff`` can be met.

    With U the largest value, an input with ``|a_j| * width_j > U - cutoff`` keeps only
    the width ``(U - cutoff) / |a_j|`` at its better end.

    Returns
    -------
    tuple
        New lower and upper (num_nodes, num_inputs), U (num_nodes,), and which boxes
        became empty: nothing there reaches the cutoff.
    """
    top = constant + np.where(slopes > 0.0, slopes * upper, slopes * lower).sum(axis=1)
    top = top + unit * (np.abs(constant) + np.abs(cutoff) + np.abs(slopes) @ reach)
    slack = top - cutoff
    none = slack < 0.0
    steep = np.abs(slopes)
    cuts = (steep * (upper - lower) > slack[:, None]) & ~none[:, None]
    width = slack[:, None] / np.where(cuts, steep, 1.0) * (1.0 + 1e-14) + 1e-15 * reach
    rising = slopes > 0.0
    low = np.where(cuts & rising, np.maximum(lower, upper - width), lower)
    high = np.where(cuts & ~rising, np.minimum(upper, lower + width), upper)
    return low, high, top, none
