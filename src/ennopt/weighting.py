"""Functions of the outputs of networks: weighted sums, risks of members, limits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ennopt.network import Array, frozen
from ennopt.risk import Risk

Group = tuple[tuple[int, ...], Risk]
"""Outputs, and the risk that they have together."""


@dataclass(frozen=True, slots=True, eq=False)
class Weighting:
    """A set W of weightings of the outputs: a function is ``min_{w in W} w . f(x)``.

    Any w in W gives an upper bound of the function. Improving w is a matter of speed,
    never of truth.

    Parameters
    ----------
    weights
        Of outputs that have one weight, (num_outputs,); zero for the others.
    groups
        Outputs whose weights are those of a risk, each output in one group at most.

    Examples
    --------
    >>> from ennopt.risk import Worst
    >>> Weighting(np.ones(2)).respond(np.array([3.0, 4.0]))
    array([1., 1.])
    >>> Weighting([1, 0, 0], (((1, 2), Worst()),)).respond(np.array([3.0, 4.0, 5.0]))
    array([1., 1., 0.])
    """

    weights: Array
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", frozen(self.weights))
        object.__setattr__(self, "groups", tuple(self.groups))

    @property
    def is_fixed(self) -> bool:
        """Whether there is one weighting only."""
        return not self.groups

    def respond(self, outputs: Array) -> Array:
        """The weighting in W with the least sum, (..., num_outputs)."""
        if self.is_fixed:
            return np.broadcast_to(self.weights, np.shape(outputs))
        found = np.array(np.broadcast_to(self.weights, np.shape(outputs)))
        for places, risk in self.groups:
            at = list(places)
            found[..., at] = risk.respond(outputs[..., at])
        return found

    def values(self, outputs: Array) -> Array:
        """The function at outputs (num_points, num_outputs), (num_points,)."""
        weights = self.respond(outputs)
        return np.asarray(np.einsum("nm,nm->n", weights, outputs))

    def range(self, low: Array, high: Array) -> tuple[float, float]:
        """Range of the function where outputs lie between two ends, (num_outputs,).

        Up to rounding.
        """
        ends = self.weights * low, self.weights * high
        least, most = float(np.minimum(*ends).sum()), float(np.maximum(*ends).sum())
        for places, risk in self.groups:
            at = list(places)
            below, above = risk.range(low[at], high[at])
            least, most = least + below, most + above
        return least, most

    @property
    def used(self) -> NDArray[np.bool_]:
        """Outputs that the function depends on, (num_outputs,)."""
        found = np.asarray(self.weights != 0.0)
        for places, _ in self.groups:
            found[list(places)] = True
        return found

    @property
    def lowest(self) -> Array:
        """Below which no weight is, (num_outputs,)."""
        found = np.array(self.weights)
        for places, risk in self.groups:
            found[list(places)] = risk.lowest(len(places))
        return found

    @property
    def heaviest(self) -> Array:
        """No absolute weight of an output is above this, (num_outputs,)."""
        found = np.abs(self.weights)
        for places, risk in self.groups:
            # Weights add up to one, or to one less what others are below zero.
            below = max(0.0, -risk.lowest(len(places)))
            found[list(places)] = 1.0 + len(places) * below
        return found

    @property
    def rewarded(self) -> NDArray[np.bool_]:
        """Outputs whose weight may be positive, (num_outputs,)."""
        found = self.weights > 0.0
        for places, _ in self.groups:
            found[list(places)] = True
        return found


@dataclass(frozen=True, slots=True, eq=False)
class PredictionLimits:
    """Conditions ``function(x) >= least`` on functions of the outputs.

    Parameters
    ----------
    functions
        One for each limit.
    least
        (num_limits,)
    slack
        How far a point may miss each limit, (num_limits,); ``None`` for what
        `Canonical.slack` says. Parts of a problem keep that of the whole.
    """

    functions: tuple[Weighting, ...] = ()
    least: Array = field(default_factory=lambda: np.zeros(0))
    slack: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", tuple(self.functions))
        object.__setattr__(self, "least", frozen(self.least))
        if self.slack is not None:
            object.__setattr__(self, "slack", frozen(self.slack))

    @property
    def count(self) -> int:
        """Number of limits."""
        return len(self.functions)

    def values(self, outputs: Array) -> Array:
        """The functions at outputs, (num_points, num_limits)."""
        found = [function.values(outputs) for function in self.functions]
        return np.array(found).reshape(self.count, len(outputs)).T
