"""Interval and linear relaxations of ReLU layers: bounds of all pre-activations.

A neuron with ``l <= h <= u`` is off (``u <= 0``), on (``l >= 0``) or unstable; an
unstable one obeys ``alpha * h <= max(h, 0) <= su * h + tu`` with ``su = u / (u - l)``,
``tu = -l * su`` and any alpha in [0, 1].
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.rounding import magnitudes, margins
from ennopt.domain import Domain
from ennopt.network import Array, Ensemble, Network


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval arithmetic: each neuron over the box of the layer before it.

    Examples
    --------
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
    for i, member in enumerate(ensemble.members):
        known = None if bounds is None else (bounds.lower[i], bounds.upper[i])
        low, high = _member_bounds(member, domain, known, linear=linear)
        lower.append(tuple(low))
        upper.append(tuple(high))
    return NeuronBounds(tuple(lower), tuple(upper))


def _member_bounds(
    network: Network,
    domain: Domain,
    known: tuple[tuple[Array, ...], tuple[Array, ...]] | None,
    *,
    linear: bool,
) -> tuple[list[Array], list[Array]]:
    reach = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
    sizes, widening = magnitudes(network, reach), margins(network, reach)
    lower: list[Array] = []
    upper: list[Array] = []
    below, above = domain.lower, domain.upper  # range of the layer's inputs
    for k, (w, b) in enumerate(network.layers()):
        plus, minus = np.maximum(w, 0.0), np.minimum(w, 0.0)
        low = plus @ below + minus @ above + b - widening[k]
        high = plus @ above + minus @ below + b + widening[k]
        low, high = np.maximum(low, -sizes[k]), np.minimum(high, sizes[k])
        if known is not None:
            low, high = np.maximum(low, known[0][k]), np.minimum(high, known[1][k])
        if linear and k > 0:
            form = backward(network, k, lower, upper, w)
            high = np.minimum(high, largest(form, b, domain) + widening[k])
            form = backward(network, k, lower, upper, -w)
            low = np.maximum(low, -largest(form, -b, domain) - widening[k])
        # Two proofs may cross by their rounding margins: keep the thinner truth.
        low, high = np.minimum(low, high), np.maximum(low, high)
        lower.append(low)
        upper.append(high)
        below, above = np.maximum(low, 0.0), np.maximum(high, 0.0)
    return lower, upper


def lines(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Slope and intercept of the line above ReLU, and the slope of the line below."""
    unstable = (low < 0.0) & (high > 0.0)
    width = np.where(unstable, high - low, 1.0)
    slope = np.where(unstable, high / width, np.where(low >= 0.0, 1.0, 0.0))
    intercept = np.where(unstable, -low * slope, 0.0)
    under = np.where(unstable, np.where(high > -low, 1.0, 0.0), slope)
    return slope, intercept, under


def backward(
    network: Network, k: int, lower: list[Array], upper: list[Array], rows: Array
) -> tuple[Array, Array]:
    """Linear functions of the inputs above ``rows @ y``, y the outputs of layer k - 1.

    Parameters
    ----------
    network
        The member.
    k
        Affine layer whose inputs `rows` multiply, at least 1.
    lower, upper
        Bounds of the pre-activations of the layers before k.
    rows
        (num_rows, width of layer k - 1)

    Returns
    -------
    tuple
        Coefficients (num_rows, num_inputs) and constants (num_rows,).
    """
    form = np.asarray(rows, dtype=np.float64)
    constant = np.zeros(len(form))
    for s in range(k - 1, -1, -1):
        slope, intercept, under = lines(lower[s], upper[s])
        plus, minus = np.maximum(form, 0.0), np.minimum(form, 0.0)
        form = plus * slope + minus * under
        constant = constant + plus @ intercept + form @ network.biases[s]
        form = form @ network.weights[s]
    return form, constant


def largest(form: tuple[Array, Array], shift: Array, domain: Domain) -> Array:
    """Largest value of each linear function, plus `shift`, on the box of `domain`."""
    coefficients, constant = form
    centre = 0.5 * (domain.lower + domain.upper)
    radius = 0.5 * (domain.upper - domain.lower)
    reached = coefficients @ centre + np.abs(coefficients) @ radius
    return np.asarray(reached + constant + shift)
