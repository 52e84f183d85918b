"""The objective of a search: members whose plain sum is the ensemble, with margins.

The specification in NumPy and the compiled kernel are both made from this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ennopt.bounds.rounding import UNIT, magnitudes, margins
from ennopt.domain import Domain
from ennopt.network import Array, Ensemble, Network

SPREAD_POINTS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """A one-output ensemble on a domain, ready to be bounded.

    Parameters
    ----------
    members
        Networks whose plain sum is the ensemble.
    reach
        Largest absolute value of each input, (num_inputs,).
    margin
        Rounding margin of a bound of the sum.
    unit
        Relative rounding of a sum over the inputs and a few terms more.
    spread
        Range of the sum over many points: a size that no shift changes.
    """

    members: tuple[Network, ...]
    reach: Array
    margin: float
    unit: float
    spread: float

    @classmethod
    def of(cls, ensemble: Ensemble, domain: Domain) -> Objective:
        """The objective of maximizing `ensemble` on `domain`."""
        folded = [
            member.fold_output(float(weight), 0.0)
            for member, weight in zip(ensemble.members, ensemble.weights, strict=True)
        ]
        reach = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
        # Multiples of irrational numbers, modulo one: spread out, and nothing to load.
        steps = np.sqrt(np.arange(2, 2 + domain.num_inputs) + 0.5)
        shares = np.arange(SPREAD_POINTS)[:, None] * steps % 1.0
        points = domain.project(domain.lower + shares * domain.widths)
        return cls(
            members=merged(folded),
            reach=np.asarray(reach),
            margin=sum_margin(folded, reach),
            unit=(64 + 8 * domain.num_inputs) * UNIT,
            spread=float(np.ptp(ensemble(points)[:, 0])),
        )


def merged(members: list[Network]) -> tuple[Network, ...]:
    """Members with the same hidden layers become one.

    Copies that cancel would otherwise be relaxed apart.
    """
    kept: dict[tuple[bytes, ...], Network] = {}
    for own in members:
        hidden = (*own.weights[:-1], *own.biases[:-1])
        key = (str(own.hidden_widths).encode(), *(array.tobytes() for array in hidden))
        if key in kept:
            twin = kept[key]
            own = Network(
                (*own.weights[:-1], twin.weights[-1] + own.weights[-1]),
                (*own.biases[:-1], twin.biases[-1] + own.biases[-1]),
            )
        kept[key] = own
    return tuple(kept.values())


def sum_margin(members: list[Network], reach: Array) -> float:
    """Rounding margin of a bound of the sum of the members' outputs.

    Members are taken as they were before some were merged: what cancels leaves its
    rounding behind. Adding them up rounds once for each member.
    """
    total = sum(float(margins(member, reach)[-1][0]) for member in members)
    size = sum(float(magnitudes(member, reach)[-1][0]) for member in members)
    return 2.0 * total + 4.0 * len(members) * UNIT * size
