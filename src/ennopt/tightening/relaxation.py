"""The quick bounds of neurons: interval arithmetic and linear relaxations."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from ennopt.bounds.linear import network_bounds
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.rounding import relative_error
from ennopt.domain import Domain
from ennopt.network import Ensemble


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval arithmetic: each neuron over the box of the layer before it.

    Examples
    --------
    >>> from ennopt.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> bounds = Interval().tighten(Ensemble([net]), Domain([-1.0], [1.0]))
    >>> round(float(bounds.upper[0][1][0]), 9)
    2.0
    """

    def tighten(
        self,
        ensemble: Ensemble,
        domain: Domain,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
    ) -> NeuronBounds:
        """Bounds no looser than `bounds`, valid on `domain`, rounding included.

        `executor` and `deadline` are what slower tighteners take; not needed here.
        """
        return _tightened(ensemble, domain, bounds, linear=False)


@dataclass(frozen=True, slots=True)
class Crown:
    """Linear bounds of each neuron in the inputs, propagated backwards.

    Unstable neurons take the secant above and, below, slope 1 if ``u > -l`` else 0.
    The results are intersected with interval arithmetic.

    Examples
    --------
    >>> from ennopt.network import Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> bounds = Crown().tighten(Ensemble([net]), Domain([-1.0], [1.0]))
    >>> round(float(bounds.upper[0][1][0]), 9)
    1.0
    """

    def tighten(
        self,
        ensemble: Ensemble,
        domain: Domain,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
    ) -> NeuronBounds:
        """Bounds no looser than `bounds`, valid on `domain`, rounding included.

        `executor` and `deadline` are what slower tighteners take; not needed here.
        """
        return _tightened(ensemble, domain, bounds, linear=True)


def _tightened(
    ensemble: Ensemble, domain: Domain, bounds: NeuronBounds | None, *, linear: bool
) -> NeuronBounds:
    lower, upper = [], []
    gamma = relative_error(ensemble.members)
    for i, member in enumerate(ensemble.members):
        known = None if bounds is None else (bounds.lower[i], bounds.upper[i])
        low, high = network_bounds(
            member, domain.lower, domain.upper, gamma, known, linear=linear
        )
        lower.append(low)
        upper.append(high)
    return NeuronBounds(tuple(lower), tuple(upper))
