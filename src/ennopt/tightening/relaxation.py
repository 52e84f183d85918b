"""The quick bounds of neurons: interval arithmetic and linear relaxations."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

from ennopt.bounds.linear import network_bounds
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval arithmetic: each neuron over the box of the layer before it.

    Examples
    --------
    >>> from ennopt import Domain, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> bounds = Interval().tighten(Canonical.sum_of([net], Domain([-1.0], [1.0])))
    >>> round(float(bounds.upper[0][1][0]), 9)
    2.0
    """

    def tighten(
        self,
        problem: Canonical,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
    ) -> NeuronBounds:
        """Bounds no looser than `bounds`, valid on the domain, rounding included.

        `executor` and `deadline` are what slower tighteners take; not needed here.
        """
        return _tightened(problem, bounds, linear=False)


@dataclass(frozen=True, slots=True)
class Crown:
    """Linear bounds of each neuron in the inputs, propagated backwards.

    Unstable neurons take the secant above and, below, slope 1 if ``u > -l`` else 0.
    The results are intersected with interval arithmetic.

    Examples
    --------
    >>> from ennopt import Domain, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> bounds = Crown().tighten(Canonical.sum_of([net], Domain([-1.0], [1.0])))
    >>> round(float(bounds.upper[0][1][0]), 9)
    1.0
    """

    def tighten(
        self,
        problem: Canonical,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
    ) -> NeuronBounds:
        """Bounds no looser than `bounds`, valid on the domain, rounding included.

        `executor` and `deadline` are what slower tighteners take; not needed here.
        """
        return _tightened(problem, bounds, linear=True)


def _tightened(
    problem: Canonical, bounds: NeuronBounds | None, *, linear: bool
) -> NeuronBounds:
    lower, upper = [], []
    domain = problem.domain
    for i, network in enumerate(problem.networks):
        known = None if bounds is None else (bounds.lower[i], bounds.upper[i])
        low, high = network_bounds(
            network, domain.lower, domain.upper, problem.gamma, known, linear=linear,
            outputs=problem.sizes[i],
        )  # fmt: skip
        lower.append(low)
        upper.append(high)
    return NeuronBounds(tuple(lower), tuple(upper))
