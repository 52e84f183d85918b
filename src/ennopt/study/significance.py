"""Whether a difference could be chance: exact or classical tests, two-sided.

They work by order alone, so that an infinite gap is simply the largest one, and need
no library beside NumPy. The tests of the project compare them with SciPy's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ennopt.network import Array

LEVEL = 0.05
"""Below this a difference counts as more than chance."""


def sign_test(wins: int, losses: int) -> float:
    """Chance of so uneven a count if either side were as likely; ties are left out.

    Examples
    --------
    >>> sign_test(9, 1), sign_test(0, 0)
    (0.021484375, 1.0)
    """
    count = wins + losses
    tail = sum(math.comb(count, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2.0 * tail / float(2**count))


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Chance of so uneven ranks (Mann-Whitney, normal approximation, ties counted).

    Parameters
    ----------
    first, second
        Two independent samples.

    Examples
    --------
    >>> round(rank_test([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]), 3)
    0.081
    """
    n, m = len(first), len(second)
    if not n or not m:
        return 1.0
    values = np.asarray([*first, *second], dtype=np.float64)
    ranks, ties = _ranks(values)
    u = ranks[:n].sum() - n * (n + 1) / 2
    total = n + m
    spread = n * m / 12 * (total + 1 - ties / max(1, total * (total - 1)))
    if spread <= 0:  # all values are equal
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(spread)
    return min(1.0, math.erfc(z / math.sqrt(2)))


def _ranks(values: Array) -> tuple[Array, float]:
    """Mean ranks from 1, and the sum of ``t**3 - t`` over groups of equal values."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean = last - (counts - 1) / 2
    return mean[place], float((counts.astype(np.float64) ** 3 - counts).sum())


def spread_test(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]
) -> float:
    """Chance of so uneven spreads: ranks of the distances to each group's median.

    Parameters
    ----------
    first, second
        Groups of values, each with a median of its own.
    """
    return rank_test(_distances(first), _distances(second))


def _distances(groups: Sequence[Sequence[float]]) -> list[float]:
    return [abs(value - float(np.median(group))) for group in groups for value in group]


def in_words(chance: float) -> str:
    """A chance as a reader sees it.

    Examples
    --------
    >>> in_words(0.03), in_words(1e-7), in_words(0.62)
    ('p = 0.030', 'p < 0.001', 'p = 0.62')
    """
    if chance < 1e-3:
        return "p < 0.001"
    return f"p = {chance:.3f}" if chance < 0.1 else f"p = {chance:.2f}"
