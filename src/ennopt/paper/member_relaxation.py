"""The paper's relaxation: one problem for each member, on a copy of the inputs each.

The sum of the members' *proved bounds* bounds the ensemble, whatever the multipliers;
where the copies disagree is where a box is split. Everything is as in the paper:
multipliers and distances are in units in which each input is in [0, 1] and the
prediction in units of its spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.rounding import UNIT
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.network import Array
from ennopt.paper.halving import middle
from ennopt.paper.mixing import Mixing, alone
from ennopt.tightening.relaxation import Interval

AGREEMENT = 1e-6
"""Copies this close, in scaled units, agree: splitting between them leads nowhere."""


@dataclass(frozen=True, slots=True, eq=False)
class PaperUnits:
    """The paper's units: each input in [0, 1], the prediction in units of its spread.

    Parameters
    ----------
    domain
        The feasible box.
    output
        Unit of the prediction.
    """

    domain: Domain
    output: float

    @classmethod
    def of(cls, problem: Canonical, output: float | None, seed: int = 0) -> PaperUnits:
        """Units of a problem; without `output`, the spread of random predictions."""
        if output is None:
            rng = np.random.default_rng(seed)
            values = problem.values(problem.domain.sample(1000, rng))
            output = float(np.ptp(values)) if values.size else 1.0
            output = output or 1.0
        return cls(problem.domain, output)

    def inputs(self, x: Array) -> Array:
        """Points in scaled units; an input of no width is 0."""
        widths = self.domain.widths
        some = np.where(widths > 0, widths, 1.0)
        return np.where(widths > 0, (x - self.domain.lower) / some, 0.0)

    def costs(self, scaled: Array) -> Array:
        """Linear costs for the inputs as they are, from costs in scaled units."""
        widths = self.domain.widths
        some = np.where(widths > 0, widths, 1.0)
        return np.where(widths > 0, scaled * (self.output / some), 0.0)

    def scaled_costs(self, costs: Array) -> Array:
        """The inverse of `costs`."""
        return costs * (self.domain.widths / self.output)


def member_problems(
    problem: Canonical, domain: Domain, costs: Array, mixing: Mixing
) -> list[Canonical]:
    """The relaxation on `domain`: for each member, its prediction plus its cost.

    Parameters
    ----------
    problem
        Whose networks are the members.
    domain
        The box of a node.
    costs
        Linear cost of each member's copy, (num_members, num_inputs).
    mixing
        How outputs are weighted, and limits that several members meet together.
    """
    here = problem.on(domain)
    return [alone(here, mixing, i, cost) for i, cost in enumerate(costs)]


def lagrangian_bound(
    bounds: Sequence[float], costs: Array, domain: Domain, constant: float = 0.0
) -> float:
    """Bound of the ensemble on `domain` from bounds of the member problems.

    At one common point the costs add up to nothing, but for rounding, which is
    charged here; `constant` is what multipliers of limits add. Where one member has no
    point, there is none at all.
    """
    if -math.inf in bounds:
        return -math.inf
    total = np.array([math.fsum(column) for column in costs.T])
    rest = float(np.abs(total) @ domain.reach)
    sizes = math.fsum(abs(bound) for bound in bounds) + rest + abs(constant)
    rounding = 4.0 * (len(bounds) + domain.num_inputs) * UNIT * sizes
    return math.fsum(bounds) + constant + rest + rounding


def known_bounds(
    problem: Canonical, bounds: NeuronBounds, i: int, mixed: bool
) -> NeuronBounds:
    """Bounds of member i and, after it, of what is beside it: the cost, linear terms.

    Where its outputs are not those of the ensemble, they are unknown.

    Parameters
    ----------
    problem
        Of `member_problems`.
    bounds
        Of the whole ensemble, valid on the problem's box.
    i
        The member.
    mixed
        Whether its outputs are others than those of the ensemble.
    """
    beside = Canonical.sum_of(problem.networks[1:], problem.domain).root
    low, high = bounds.lower[i], bounds.upper[i]
    if not mixed:
        return NeuronBounds((low, *beside.lower), (high, *beside.upper))
    unknown = np.full(problem.networks[0].num_outputs, np.inf)
    known = NeuronBounds(
        ((*low[:-1], -unknown), *beside.lower), ((*high[:-1], unknown), *beside.upper)
    )
    return Interval().tighten(problem, known)


def branching(domain: Domain, copies: Array, units: PaperUnits) -> tuple[int, float]:
    """Input with the largest disagreement, and the middle between its extreme copies.

    Where the copies agree, the middle of the widest side.

    Parameters
    ----------
    domain
        The box of the node.
    copies
        Maximizers of the members in it, (num_members, num_inputs).
    units
        In which inputs are compared.
    """
    high, low = copies.max(axis=0), copies.min(axis=0)
    disagreement = units.inputs(high) - units.inputs(low)
    j = int(np.argmax(disagreement))
    if disagreement[j] > AGREEMENT:
        at = float(0.5 * (high[j] + low[j]))
        if domain.lower[j] < at < domain.upper[j]:
            return j, at
    return middle(domain, units.domain)
