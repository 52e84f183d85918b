"""Units in which a model is well scaled: powers of two, so that nothing is rounded.

A solver's tolerances are absolute. ReLU is positively homogeneous, so each neuron may
be measured in its own unit (about its largest pre-activation), each input and the
prediction in theirs; with powers of two the rescaled network is exactly the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.domain import Domain
from ennopt.network import Array, Ensemble, Network

LARGEST_EXPONENT = 200
"""Units stay within 2 to the power of plus or minus this: no overflow, no zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Normalized:
    """An ensemble, its box and its bounds in units of order one.

    Parameters
    ----------
    ensemble, domain, bounds
        In the new units.
    inputs
        Unit of each input: original = normalized * unit, (num_inputs,).
    output
        Unit of the prediction.
    neurons
        ``neurons[i][k]`` are the units of layer k of member i, (width,); the outputs
        of a member share one.
    """

    ensemble: Ensemble
    domain: Domain
    bounds: NeuronBounds
    inputs: Array
    output: float
    neurons: tuple[tuple[Array, ...], ...]


def normalized(ensemble: Ensemble, domain: Domain, bounds: NeuronBounds) -> Normalized:
    """Measure every input, every neuron and the prediction in a unit of its own.

    Examples
    --------
    >>> from ennopt.tightening.relaxation import Interval
    >>> one = Ensemble([Network([[[3e6]], [[2e-9]]], [[0.0], [0.0]])])
    >>> box = Domain([0.0], [1e-3])
    >>> same = normalized(one, box, Interval().tighten(one, box))
    >>> same.ensemble(box.upper / same.inputs) * same.output == one(box.upper)
    array([ True])
    """
    inputs = _units(np.maximum(np.abs(domain.lower), np.abs(domain.upper)))
    members, lower, upper, units = [], [], [], []
    for i, member in enumerate(ensemble.members):
        weights, biases, lows, highs, own = [], [], [], [], []
        before = inputs
        for k, (w, b) in enumerate(member.layers()):
            low, high = bounds.lower[i][k], bounds.upper[i][k]
            unit = _units(np.maximum(np.abs(low), np.abs(high)))
            if k == len(member.weights) - 1:
                unit = np.full_like(unit, unit.max())
            own.append(unit)
            weights.append(w * before / unit[:, None])
            biases.append(b / unit)
            lows.append(low / unit)
            highs.append(high / unit)
            before = unit
        members.append(Network(tuple(weights), tuple(biases)))
        lower.append(tuple(lows))
        upper.append(tuple(highs))
        units.append(tuple(own))
    factors = ensemble.weights * np.array([own[-1][0] for own in units])
    output = float(_units(np.array([np.abs(factors).sum()]))[0])
    return Normalized(
        ensemble=Ensemble(tuple(members), weights=factors / output),
        domain=Domain(domain.lower / inputs, domain.upper / inputs, domain.names),
        bounds=NeuronBounds(tuple(lower), tuple(upper)),
        inputs=inputs,
        output=output,
        neurons=tuple(units),
    )


def _units(sizes: Array) -> Array:
    """The power of two next above each size; 1 for zero and for what is unbounded."""
    usable = np.where(np.isfinite(sizes) & (sizes > 0), sizes, 1.0)
    exponents = np.ceil(np.log2(usable))
    exponents = np.clip(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT)
    return np.asarray(np.exp2(np.where(usable == sizes, exponents, 0.0)))
