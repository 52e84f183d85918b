"""What the bounds of later layers round if they are computed in float32.

The kernel does so relative to a reference point: the centre of the box, and the outputs
that neurons have there. Coefficients then multiply distances from the reference, which
shrink with the box, and so do all rounding errors. Bounds in exact arithmetic are the
same; so this module specifies the margins, and `relaxation` the bounds. Per unit of the
coefficient of a neuron the error is

    rounding of the reference + roundings * UNIT_SINGLE * spread,

where `spread` is the row of absolute weights times the distances of the outputs before
it from the reference: weights and products of weights round by so much, however well
the distances themselves cancel.
docs/engine.md counts the roundings. `src/kernel/single.hpp` computes all of it in
float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.rounding import (
    LINE_INPUTS,
    LINE_ROUNDINGS,
    UNDERFLOW,
    UNIT,
    UNIT_SINGLE,
)
from ennopt.engine.concretise import HalfSpaces
from ennopt.engine.lines import FirstLayer
from ennopt.engine.nodes import Flags, NodeSettings, States
from ennopt.engine.relaxation import Layer, bound_rows, settle
from ennopt.network import Array, Network


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A layer at the reference point, and how far its neurons may be from there.

    Parameters
    ----------
    at, rounding
        Pre-activations, and how far they may be rounded, (num_nodes, width).
    reach
        Of each pre-activation from `at`, at most, (num_nodes, width).
    apart
        Of each pre-activation from `at` plus its sensitivities times z.
    spread
        Absolute weights times the distances of the outputs before; not below `reach`.
    """

    at: Array
    rounding: Array
    reach: Array
    apart: Array
    spread: Array

    @classmethod
    def first(cls, layer: Layer, first: FirstLayer, error: Array) -> Reference:
        """Of a first layer."""
        reach = np.abs(first.slopes).sum(axis=2) + error
        rounding = np.broadcast_to(error, reach.shape)
        apart = rounding + 2 * UNIT_SINGLE * reach
        return cls(first.centre, rounding, reach, apart, reach)

    @classmethod
    def after(
        cls, network: Network, k: int, before: Departures, jacobian: Array
    ) -> Reference:
        """Of layer k, from what is known of the layer before."""
        w, b = network.weights[k], network.biases[k]
        steep, d = np.abs(w).T, network.num_inputs
        at = before.out @ w.T + b
        size = np.abs(before.out) @ steep + np.abs(b)
        rounding = (2 * w.shape[1] + 16) * UNIT * size
        up = 1.0 + (2 * w.shape[1] + 2 * d + 16) * UNIT_SINGLE
        apart = before.passed @ steep * up + rounding
        reach = (np.abs(jacobian).sum(axis=2) + apart) * up
        spread = before.most @ steep * up + rounding
        return cls(at, rounding, np.minimum(spread, reach), apart, spread)


@dataclass(frozen=True, slots=True, eq=False)
class Departures:
    """What a layer passes on, and what its coefficients round; (num_nodes, width).

    Parameters
    ----------
    out
        Outputs at the reference point.
    most
        Their distance from there, at most.
    passed
        What outputs may differ from `out` plus slopes times sensitivities times z.
    error
        Rounding per unit of a coefficient.
    """

    out: Array
    most: Array
    passed: Array
    error: Array

    @classmethod
    def of(
        cls, layer: Layer, here: Reference, roundings: int, sums: float
    ) -> Departures:
        """Of a layer whose neurons are bounded."""
        at, su, reach, free = here.at, layer.slope, here.reach, layer.unstable
        out = np.where(free, np.maximum(at, 0.0), np.where(layer.on, at, 0.0))
        low, high = layer.low, layer.high
        # Of the line above at the reference: it meets ReLU at both ends.
        above = np.maximum(su * (at - low) - out, high - out - su * (high - at))
        above = np.maximum(above, -su * reach)
        missed = free & (above < 0.0) & (su > 0.0)
        steep = np.where(missed, -above / np.where(missed, su, 1.0), 0.0)
        off = np.where(free, np.maximum(above, out - su * at), 0.0)
        most = np.minimum(np.maximum(high - out, out), reach)
        most = np.where(free, most, np.where(layer.on, reach, 0.0))
        width, d = layer.jacobian.shape[1:]
        chain = (width + 2 * d + 16) * UNIT_SINGLE
        norm = np.abs(layer.jacobian).sum(axis=2)
        passed = su * (here.apart + chain * norm) + off
        error = here.rounding + roundings * UNIT_SINGLE * here.spread
        error = error + 2 * sums * steep
        return cls(out, most, passed, error)


@dataclass(frozen=True, slots=True, eq=False)
class SingleRounding:
    """The margin of a pass in float32.

    Parameters
    ----------
    reference
        Of the layer whose rows are bounded.
    sums
        Relative rounding of its constants.
    """

    reference: Reference
    sums: float

    def of(self, margin: Array, met: list[Array]) -> Array:
        """The whole margin, given that of coefficients, and constants on the way."""
        at = np.concatenate([self.reference.at, -self.reference.at], axis=1)
        rounding = np.concatenate([self.reference.rounding] * 2, axis=1)
        for c in met:  # relative to the reference
            margin = margin + self.sums * np.abs(c - at)
        return np.asarray((margin + UNDERFLOW) * (1.0 + 4.0 * self.sums) + rounding)


class SinglePasses:
    """The layers of a network whose later ones are bounded in float32."""

    def __init__(
        self, network: Network, layer: Layer, first: FirstLayer, error: Array,
        sums: float,
    ) -> None:  # fmt: skip
        self.network, self.sums = network, sums
        rows = layer.low.shape[1] + LINE_INPUTS * network.num_inputs + LINE_ROUNDINGS
        here = Reference.first(layer, first, error)
        self.known = [Departures.of(layer, here, rows, self.sums)]

    def later_layer(
        self, k: int, layers: list[Layer], first: FirstLayer, halves: HalfSpaces,
        settings: NodeSettings, size: Array, state: States, skip: Flags,
    ) -> Layer:  # fmt: skip
        """Layer k >= 1, as `relaxation.later_layer`."""
        slope, before = layers[-1].slope, layers[-1].jacobian
        jacobian = self.network.weights[k] @ (slope[..., None] * before)
        here = Reference.after(self.network, k, self.known[-1], jacobian)
        errors: Sequence[Array] = [
            *(known.error for known in self.known), 4 * UNIT_SINGLE * here.spread
        ]  # fmt: skip
        rounding = SingleRounding(here, self.sums)
        wider = HalfSpaces(halves.a, halves.s, 4.0 * self.sums)
        low, high, smear = bound_rows(
            self.network, k, layers, first, wider, settings, jacobian, errors, rounding
        )
        low, high = np.where(skip, -size, low), np.where(skip, size, high)
        smear = np.where(skip[..., None], 0.0, smear)
        layer = settle(low, high, size, state, smear, jacobian)
        rows = layer.low.shape[1] + 8
        self.known.append(Departures.of(layer, here, rows, self.sums))
        return layer
