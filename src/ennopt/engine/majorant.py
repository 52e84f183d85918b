"""The objective on a batch of nodes: linear majorant, slope steps, branching scores.

`src/kernel/majorant.hpp` mirrors this.
"""

from __future__ import annotations

import abc
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ennopt.bounds.rounding import sum_error
from ennopt.engine.concretise import HalfSpaces
from ennopt.engine.lines import FirstLayer, at_vertex
from ennopt.engine.nodes import (
    OFF,
    ON,
    SLOPE_MAX,
    Flags,
    NodeModel,
    Nodes,
    NodeSettings,
    Past,
    States,
)
from ennopt.engine.relaxation import Layer, first_layer, later_layer
from ennopt.engine.single import SinglePasses
from ennopt.network import Array

CROWDED_SHARE = 0.1
"""Share of unstable neurons above which rows that only ever need the line below ReLU
are not bounded; with few left, skipping them would stall the tree."""

SMEAR_FLOOR = 0.02
"""Weight of the majorant itself in the branching scores: they are never all zero."""

SMEAR_DECAY = 0.5
"""What the errors of a layer count in the scores, relative to the layer before. Errors
of late layers are the largest, but much of them comes from the layers before them."""

WIDTH_FLOOR = 1e-4
"""Share of all errors that every input is blamed for, times its relative width: an
error that no input seems to cause, because forms cancel, does not stay for ever."""


def slope_byte(alpha: Array) -> Array:
    """A slope in [0, 1] as a byte, halves to the nearer end.

    Rounded the other way, a slope that half steps move to an end would never get there.
    """
    scaled = alpha * SLOPE_MAX
    return np.floor(np.where(alpha < 0.5, scaled + 0.5 - 1e-9, scaled + 0.5))


class HasCoefficient(Protocol):
    """A layer that keeps how often its outputs count, (num_nodes, width)."""

    coefficient: Array
    smear: Array


AnyLayer = TypeVar("AnyLayer", bound=HasCoefficient)


class Form(NamedTuple):
    """A linear function above another one on each node of a batch.

    Parameters
    ----------
    slopes, centre
        Slopes times radius (num_nodes, num_inputs), and values at the centre
        (num_nodes,).
    base, base_centre
        Those of its part without unstable neurons of the first layers.
    margin
        Its rounding, (num_nodes,).
    """

    slopes: Array
    centre: Array
    base: Array
    base_centre: Array
    margin: Array

    @classmethod
    def zero(cls, count: int, num_inputs: int) -> Form:
        """Nothing yet."""
        wide, thin = np.zeros((count, num_inputs)), np.zeros(count)
        return cls(wide, thin, wide, thin, thin)

    def plus(self, other: Form) -> Form:
        """The sum of two."""
        return Form(*(one + two for one, two in zip(self, other, strict=True)))

    def times(self, factors: Array) -> Form:
        """A multiple for each node, factors (num_nodes,) of at least zero."""
        each = factors[:, None]
        return Form(
            self.slopes * each, self.centre * factors, self.base * each,
            self.base_centre * factors, self.margin * factors,
        )  # fmt: skip


class Sum(abc.ABC, Generic[AnyLayer]):
    """The layers of all networks on a batch of nodes, and a line above their sum.

    Which lines the neurons have, subclasses say.
    """

    model: NodeModel
    centre: Array
    radius: Array
    layers: list[list[AnyLayer]]

    @abc.abstractmethod
    def output_form(
        self, i: int, w: Array, b: float, error: float
    ) -> tuple[Form, list[Array]]:
        """A majorant of ``w . y + b`` with y the last hidden layer of network i.

        Also what multiplies the outputs of each of its layers. `error` is the rounding
        of the output itself.
        """

    @abc.abstractmethod
    def errors_of(self, layer: AnyLayer, a: Array) -> tuple[Array, Array]:
        """How far lines are off where a layer's outputs count `a` times, and widths.

        Both (num_nodes, width); where the signs hold.
        """

    def form(self) -> Form:
        """A majorant of the sum; each layer keeps the coefficients of its outputs."""
        total = Form.zero(*self.centre.shape)
        for i, (network, layers) in enumerate(
            zip(self.model.networks, self.layers, strict=True)
        ):
            own, coefficients = self.output_form(
                i, network.weights[-1][0], float(network.biases[-1][0]),
                float(self.model.errors[i][-1][0]),
            )  # fmt: skip
            total = total.plus(own)
            for layer, coefficient in zip(layers, coefficients, strict=True):
                layer.coefficient = coefficient
        return total

    def scores(self, form: Array) -> tuple[Array, Array]:
        """Smear: relaxation errors attributed to the inputs they depend on.

        Returns scores (num_nodes, num_inputs) and the sums of all errors (num_nodes,):
        how far the majorant can be above the objective where the signs hold.
        """
        total, errors = SMEAR_FLOOR * np.abs(form), np.zeros(len(form))
        for i, layers in enumerate(self.layers):
            more, error = self.smear(i, [layer.coefficient for layer in layers])
            total, errors = total + more, errors + error
        return total + self.floor(errors), errors

    def smear(self, i: int, coefficients: list[Array]) -> tuple[Array, Array]:
        """The errors of network i where its layers' outputs count so many times.

        Attributed to the inputs, those of each layer half as much as those of the
        layer before, (num_nodes, num_inputs), and in all, (num_nodes,).
        """
        total, errors = np.zeros_like(self.centre), np.zeros(len(self.centre))
        for s, (layer, a) in enumerate(zip(self.layers[i], coefficients, strict=True)):
            error, width = self.errors_of(layer, a)
            gap = SMEAR_DECAY**s * error / width
            total = total + np.einsum("bi,bip->bp", gap, layer.smear)
            errors = errors + error.sum(axis=1)
        return total, errors

    def floor(self, errors: Array) -> Array:
        """What every input is blamed for, (num_nodes, num_inputs)."""
        widths = self.model.domain.widths
        share = 2.0 * self.radius / np.where(widths > 0.0, widths, 1.0)
        return np.asarray(WIDTH_FLOOR * errors[:, None] * share)


class Majorant(Sum[Layer]):
    """The layers of all networks on a batch of nodes, and a line above their sum."""

    def __init__(
        self,
        model: NodeModel,
        nodes: Nodes,
        centre: Array,
        radius: Array,
        halves: HalfSpaces,
        settings: NodeSettings,
    ) -> None:
        self.model, self.halves = model, halves
        self.centre, self.radius = centre, radius
        open_others = (nodes.states < ON) & ~model.only_below
        share = CROWDED_SHARE * model.num_neurons
        # Without slope steps the skipped rows' slopes would never improve.
        able = ~Past.of(nodes.past).again & (settings.max_steps > 0)
        self.crowded = (open_others.sum(axis=1) > share) & able
        self.layers: list[list[Layer]] = []
        self.firsts: list[FirstLayer | None] = []
        at = 0
        for i in range(len(model.networks)):
            at = self._add_network(i, at, nodes.states, settings)

    def _add_network(
        self, i: int, at: int, states: States, settings: NodeSettings
    ) -> int:
        """Bound the neurons of network i; `at` is the number of its first one."""
        model, network = self.model, self.model.networks[i]
        layers: list[Layer] = []
        first: FirstLayer | None = None
        passes: SinglePasses | None = None
        for k, width in enumerate(network.hidden_widths):
            mine = slice(at, at + width)
            state, at = states[:, mine], at + width
            errors, size = model.errors[i], model.sizes[i][k]
            if first is None:
                layer, first = first_layer(
                    network, self.centre, self.radius, self.halves, errors[0], size,
                    state,
                )  # fmt: skip
                if settings.single:
                    sums = max(sum_error(network) for network in model.networks)
                    passes = SinglePasses(network, layer, first, errors[0], sums)
            elif passes is not None:
                layer = passes.later_layer(
                    k, layers, first, self.halves, settings, size, state,
                    self.crowded[:, None] & model.only_below[mine],
                )  # fmt: skip
            else:
                skip = self.crowded[:, None] & model.only_below[mine]
                layer = later_layer(
                    network, k, layers, first, self.halves, settings, errors, size,
                    state, skip,
                )  # fmt: skip
            chosen = np.where(state <= SLOPE_MAX, state / SLOPE_MAX, layer.under)
            layer.alpha = np.where(layer.unstable, chosen, layer.slope)
            layers.append(layer)
        self.layers.append(layers)
        self.firsts.append(first)
        return at

    def output_form(
        self, i: int, w: Array, b: float, error: float
    ) -> tuple[Form, list[Array]]:
        """A majorant of ``w . y + b`` with y the last hidden layer of network i.

        Also what multiplies the outputs of each of its layers.
        """
        count = len(self.centre)
        network, layers, first = (
            self.model.networks[i],
            self.layers[i],
            self.firsts[i],
        )
        errors = self.model.errors[i]
        margin = np.full(count, error)
        if first is None:
            slope, more = w * self.radius, self.centre @ w + b
            return Form(slope, more, slope, more, margin), []
        row = np.broadcast_to(w, (count, w.size))
        more = np.full(count, b)
        coefficients = [row]
        for s in range(len(layers) - 1, 0, -1):
            layer = layers[s]
            plus, minus = np.maximum(row, 0.0), np.minimum(row, 0.0)
            row = plus * layer.slope + minus * layer.alpha
            more = more + (plus * layer.shift).sum(axis=1) + row @ network.biases[s]
            margin = margin + np.abs(row) @ errors[s]
            row = row @ network.weights[s]
            coefficients.append(row)
        layer = layers[0]
        alive = layer.on | layer.unstable
        margin = margin + np.where(alive, np.abs(row), 0.0) @ errors[0]
        plus, minus = np.maximum(row, 0.0), np.minimum(row, 0.0)
        slope = plus * layer.slope + minus * layer.alpha
        form = np.einsum("bi,bip->bp", slope, first.slopes)
        c = more + (plus * layer.shift + slope * first.centre).sum(axis=1)
        fixed = np.where(layer.on, row, 0.0)
        base = np.einsum("bi,bip->bp", fixed, first.slopes)
        base_c = more + (fixed * first.centre).sum(axis=1)
        return Form(form, c, base, base_c, margin), coefficients[::-1]

    def improve_slopes(self, z: Array, step: float, going: Flags) -> None:
        """Best response: at z, slopes move towards [h > 0] where they are in use."""
        for network, layers, first in zip(
            self.model.networks, self.layers, self.firsts, strict=True
        ):
            if first is None:
                continue
            h = first.centre + np.einsum("bip,bp->bi", first.slopes, z)
            y = h
            for s, layer in enumerate(layers):
                if s > 0:
                    h = y @ network.weights[s].T + network.biases[s]
                below = layer.coefficient < 0.0
                y = np.where(below, layer.alpha * h, layer.slope * h + layer.shift)
                move = step * (np.where(h > 0.0, 1.0, 0.0) - layer.alpha)
                moving = below & layer.unstable & going[:, None]
                layer.alpha = np.where(moving, layer.alpha + move, layer.alpha)

    def anchored(
        self, form: Form, multipliers: Array, value: Array
    ) -> tuple[Array, Array, Array]:
        """First-layer lines at the common vertex of the networks, mixed in.

        Returns slopes, values at the centre, and largest values on the node.
        """
        pieces = [
            (layers[0], first)
            for layers, first in zip(self.layers, self.firsts, strict=True)
            if first is not None
        ]
        if not pieces:
            return form.slopes, form.centre, value
        each = multipliers[:, None]
        shift, tie, gain = self.halves.combined(each)
        joined = FirstLayer(
            *(
                np.concatenate([getattr(first, name) for _, first in pieces], axis=1)
                for name in ("slopes", "centre", "lower", "upper")
            )
        )
        free = np.concatenate(
            [np.where(lay.unstable, lay.coefficient, 0.0) for lay, _ in pieces], axis=1
        )
        g, constant, value_2d = at_vertex(
            joined, free[:, None],
            (form.base[:, None] + shift, form.base_centre[:, None] + gain),
            (form.slopes[:, None] + shift, form.centre[:, None] + gain),
            value[:, None], tie,
        )  # fmt: skip
        # The rounding of both moves stays in the constant.
        constant = constant - (gain - self.halves.margin(each))
        return (g - shift)[:, 0], constant[:, 0], value_2d[:, 0]

    def errors_of(self, layer: Layer, a: Array) -> tuple[Array, Array]:
        """How far lines are off where a layer's outputs count `a` times, and widths.

        Both (num_nodes, width); where the signs hold.
        """
        above = a * layer.shift
        below = -a * np.maximum(
            (1.0 - layer.alpha) * layer.high, -layer.alpha * layer.low
        )
        error = np.where(layer.unstable, np.where(a > 0.0, above, below), 0.0)
        return error, np.where(layer.unstable, layer.high - layer.low, 1.0)

    def states(self) -> States:
        """One byte per neuron for the children."""
        parts = [
            np.where(
                layer.unstable,
                slope_byte(np.where(layer.unstable, layer.alpha, 0.0)),
                np.where(layer.on, ON, OFF),
            ).astype(np.uint8)
            for layers in self.layers
            for layer in layers
        ]
        nothing = np.zeros((len(self.centre), 0), dtype=np.uint8)
        return np.concatenate([nothing, *parts], axis=1)
