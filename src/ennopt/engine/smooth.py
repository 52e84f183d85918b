"""The objective on a batch of nodes for networks with activations other than ReLU.

`SmoothMajorant` stands in for `majorant.Majorant`: the same questions, other layers. No
neuron has a sign; each brings a line above and a line below on its range
(`ennopt.activations`). There are no slope steps: moving the point at which a line is
best towards the neuron's value where the majorant is largest took away 0 to 30% of the
nodes, and as much time. `src/kernel/smooth.hpp` mirrors this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ennopt.activations import Activation, Lines
from ennopt.engine.concretise import HalfSpaces, support
from ennopt.engine.majorant import Form, Sum
from ennopt.engine.nodes import Flags, NodeModel, Nodes, NodeSettings, States
from ennopt.network import Array, Network


@dataclass(slots=True, eq=False)
class SmoothLayer:
    """Bounds and lines of one layer on a batch; arrays (num_nodes, width)."""

    kind: Activation
    low: Array
    high: Array
    smear: Array  # (num_nodes, width, num_inputs): |GU| + |GL|, times radius
    lines: Lines
    coefficient: Array  # of the outputs, in the majorant

    @classmethod
    def of(
        cls, kind: Activation, low: Array, high: Array, size: Array, smear: Array
    ) -> SmoothLayer:
        """The layer with these bounds, which include their margins."""
        low, high = np.maximum(low, -size), np.minimum(high, size)
        # They cross only where no point of the node is left.
        low, high = np.minimum(low, high), np.maximum(low, high)
        lines = kind.lines(low, high)
        return cls(kind, low, high, smear, lines, np.zeros_like(low))

    def relax(self, row: Array, gamma: float) -> tuple[Array, Array, Array]:
        """From coefficients of outputs to coefficients of pre-activations.

        Parameters
        ----------
        row
            (..., num_nodes, width): what is above it is wanted.
        gamma
            Relative rounding of sums.

        Returns
        -------
        tuple
            The coefficients, the constant and its rounding margin.
        """
        lines = self.lines
        plus, minus = np.maximum(row, 0.0), np.minimum(row, 0.0)
        terms = plus * lines.high_shift + minus * lines.low_shift
        margin = gamma * np.abs(terms).sum(axis=-1)
        return plus * lines.high + minus * lines.low, terms.sum(axis=-1), margin


class SmoothMajorant(Sum[SmoothLayer]):
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
        self._states = nodes.states
        self.firsts: list[tuple[Array, Array]] = []  # wr and hc, as in `FirstLayer`
        self.layers: list[list[SmoothLayer]] = []
        for i, network in enumerate(model.networks):
            wr = network.weights[0] * radius[:, None, :]
            self.firsts.append((wr, centre @ network.weights[0].T + network.biases[0]))
            self.layers.append([])
            for k in range(len(network.hidden_widths)):
                self.layers[i].append(self._layer(network, i, k))

    def _layer(self, network: Network, i: int, k: int) -> SmoothLayer:
        """Layer k of network i from the layers before it."""
        (wr, hc), errors = self.firsts[i], self.model.errors[i]
        kind, size = network.activations[k], self.model.sizes[i][k]
        if k == 0:
            up, down = support(wr, self.halves)[0], support(-wr, self.halves)[0]
            low, high = hc - down - errors[0], hc + up + errors[0]
            return SmoothLayer.of(kind, low, high, size, 2.0 * np.abs(wr))
        w, b = network.weights[k], network.biases[k]
        rows = np.concatenate([w, -w])  # the lower form is minus the upper form of -row
        # (num_rows, num_nodes, ...) within the pass: lines belong to nodes.
        form = np.broadcast_to(rows[:, None], (len(rows), len(hc), w.shape[1]))
        c = np.broadcast_to(np.concatenate([b, -b])[:, None], form.shape[:2])
        margin = np.broadcast_to(np.concatenate([errors[k]] * 2)[:, None], c.shape)
        for s in range(k - 1, -1, -1):
            layer = self.layers[i][s]
            form, more, extra = layer.relax(form, self.model.gamma)
            margin = margin + extra + np.abs(form) @ errors[s]
            c = c + more
            if s > 0:
                c = c + form @ network.biases[s]
                form = form @ network.weights[s]
        g = form.transpose(1, 0, 2) @ wr
        c = c.T + (form * hc).sum(axis=2).T
        value = c + support(g, self.halves)[0] + margin.T
        n = len(w)
        smear = np.abs(g[:, :n]) + np.abs(g[:, n:])
        return SmoothLayer.of(kind, -value[:, n:], value[:, :n], size, smear)

    def output_form(
        self, i: int, w: Array, b: float, error: float
    ) -> tuple[Form, list[Array]]:
        """A majorant of ``w . y + b`` with y the last hidden layer of network i.

        Also what multiplies the outputs of each of its layers.
        """
        count, model = len(self.centre), self.model
        network, layers, (wr, hc) = model.networks[i], self.layers[i], self.firsts[i]
        margin = np.full(count, error)
        if not layers:
            slope, c = w * self.radius, self.centre @ w + b
            return Form(slope, c, slope, c, margin), []
        row, more = np.broadcast_to(w, (count, w.size)), np.full(count, b)
        coefficients = []
        for s in range(len(layers) - 1, -1, -1):
            coefficients.append(row)
            row, shift, extra = layers[s].relax(row, model.gamma)
            margin = margin + extra + np.abs(row) @ model.errors[i][s]
            more = more + shift
            if s > 0:
                more = more + row @ network.biases[s]
                row = row @ network.weights[s]
        form = np.einsum("bi,bip->bp", row, wr)
        c = more + (row * hc).sum(axis=1)
        return Form(form, c, form, c, margin), coefficients[::-1]

    def improve_slopes(self, z: Array, step: float, going: Flags) -> None:
        """Nothing: lines have no slopes to choose."""

    def anchored(
        self, form: Form, multipliers: Array, value: Array
    ) -> tuple[Array, Array, Array]:
        """The form as it is: lines at vertices are for ReLU."""
        return form.slopes, form.centre, value

    def errors_of(self, layer: SmoothLayer, a: Array) -> tuple[Array, Array]:
        """How far lines are off where a layer's outputs count `a` times, and widths.

        Measured at both ends of the range, in the middle, and where the range is next
        to zero: there ReLU has its kink.
        """
        lines, low, high = layer.lines, layer.low, layer.high
        x = np.stack([low, 0.5 * (low + high), np.clip(0.0, low, high), high])
        values = layer.kind.value(x)
        above = (lines.high * x + lines.high_shift - values).max(axis=0)
        below = (values - lines.low * x - lines.low_shift).max(axis=0)
        error = np.maximum(np.where(a > 0.0, a * above, -a * below), 0.0)
        return error, np.where(high > low, high - low, 1.0)

    def states(self) -> States:
        """Nothing to tell the children."""
        return self._states
