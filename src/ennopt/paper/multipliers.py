"""Lagrangian multipliers of the copies of the inputs, and how they are improved.

The paper gives each member its own copy ``x^i`` of the inputs and moves the
constraints ``x^1 = x^i`` into the objective with multipliers ``lambda_i``. Member 1
then has the cost ``+ sum_i lambda_i`` on its copy and member i the cost
``- lambda_i``: they add up to zero, so at one common point they change nothing.

Everything here is in scaled units: each input in [0, 1] over the feasible box, the
prediction in units of its spread, as the paper scales its data. Nothing here proves
anything; any multipliers give a valid bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from ennopt.network import Array, frozen

Copies: TypeAlias = Callable[[Array], tuple[Array, float] | None]
"""From costs, one row per member, to the maximizers, one row each, and the value."""


@dataclass(frozen=True, slots=True, eq=False)
class Multipliers:
    """``lambda_i`` of members 2, 3, ... and how far their improvement has come.

    Parameters
    ----------
    values
        (num_members - 1, num_inputs)
    updates
        Number q of updates so far.
    size
        The last step size ``mu_q``.

    Examples
    --------
    >>> Multipliers(np.array([[1.0, 0.0], [0.5, -2.0]])).costs()
    array([[ 1.5, -2. ],
           [-1. , -0. ],
           [-0.5,  2. ]])
    """

    values: Array
    updates: int = 0
    size: float = math.nan

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @classmethod
    def zero(cls, num_members: int, num_inputs: int) -> Multipliers:
        """``lambda = 0``, where the paper starts."""
        return cls(np.zeros((num_members - 1, num_inputs)))

    def costs(self) -> Array:
        """Linear cost of each member's copy, (num_members, num_inputs)."""
        return np.vstack([self.values.sum(axis=0), -self.values])


class StepRule(Protocol):
    """A way to improve multipliers at the maximizers of the relaxation."""

    @property
    def steps(self) -> int:
        """Updates before the search begins."""

    def update(self, now: Multipliers, copies: Array, excess: float) -> Multipliers:
        """The next multipliers.

        Parameters
        ----------
        now
            The multipliers whose relaxation was solved.
        copies
            Its maximizers, one row per member, (num_members, num_inputs).
        excess
            Its value less the best value known.
        """


@dataclass(frozen=True, slots=True)
class Subgradient:
    """The paper's updates: ``lambda -= mu_q (x^1 - x^i)``.

    Parameters
    ----------
    steps
        Q: updates before the search begins.
    step_size
        mu_0.
    compound
        As printed, ``mu_q = mu_(q-1) / sqrt(q)``, which is ``mu_0 / sqrt(q!)`` and soon
        nothing at all. Otherwise ``mu_0 / sqrt(q)``.

    Examples
    --------
    >>> rule, copies = Subgradient(), np.array([[1.0], [0.0]])
    >>> once = rule.update(Multipliers.zero(2, 1), copies, 0.0)
    >>> once.values, once.size
    (array([[-0.05]]), 0.05)
    """

    steps: int = 20
    step_size: float = 0.05
    compound: bool = True

    def update(self, now: Multipliers, copies: Array, excess: float) -> Multipliers:
        """The next multipliers; the excess plays no part."""
        q = now.updates + 1
        before = self.step_size if q == 1 or not self.compound else now.size
        size = before / math.sqrt(q)
        return Multipliers(now.values - size * (copies[0] - copies[1:]), q, size)


@dataclass(frozen=True, slots=True)
class Polyak:
    """Steps as long as the excess allows: ``mu = share * excess / |g|^2``.

    With the optimum as the best known value and share = 1 every step comes nearer to
    the best multipliers.

    Parameters
    ----------
    steps
        Updates before the search begins.
    share
        Of the full step. Below 1, because the best known value may not be the
        optimum.
    """

    steps: int = 20
    share: float = 0.7

    def update(self, now: Multipliers, copies: Array, excess: float) -> Multipliers:
        """The next multipliers; the same ones where the copies agree."""
        direction = copies[0] - copies[1:]
        length = float((direction**2).sum())
        if length <= 1e-18 or not math.isfinite(excess) or excess <= 0:
            return replace(now, updates=now.updates + 1)
        size = self.share * excess / length
        return Multipliers(now.values - size * direction, now.updates + 1, size)


def improve(
    rule: StepRule, now: Multipliers, maximize: Copies, incumbent: float
) -> tuple[Multipliers, Multipliers, int]:
    """Run the updates that come before the search.

    Parameters
    ----------
    rule
        How to step.
    now
        Where to start.
    maximize
        Solves the relaxation for given costs; ``None`` if it could not be solved or
        the time is over, which ends the updates.
    incumbent
        The best value known, in the same units.

    Returns
    -------
    tuple
        The last multipliers, those with the smallest relaxation value, and the number
        of relaxations solved.
    """
    best, least, solved = now, math.inf, 0
    for _ in range(rule.steps):
        found = maximize(now.costs())
        if found is None:
            break
        copies, value = found
        solved += 1
        if value < least:
            best, least = now, value
        now = rule.update(now, copies, value - incumbent)
    return now, best, solved
