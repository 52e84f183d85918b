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
from ennopt.engine.majorant import SMEAR_FLOOR, WIDTH_FLOOR
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


class SmoothMajorant:
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

    def form(self) -> tuple[Array, Array, Array, Array, Array]:
        """Slopes (times radius) and value at the centre of a majorant of the sum.

        The third and fourth are for `anchored`, which needs none here; the last is the
        rounding margin. Each layer keeps the coefficients of its outputs.
        """
        count, d = self.centre.shape
        form, c, margin = np.zeros((count, d)), np.zeros(count), np.zeros(count)
        model = self.model
        for network, layers, (wr, hc), errors in zip(
            model.networks, self.layers, self.firsts, model.errors, strict=True
        ):
            w, b = network.weights[-1][0], network.biases[-1][0]
            margin = margin + errors[-1][0]
            if not layers:
                form, c = form + w * self.radius, c + self.centre @ w + b
                continue
            row, more = np.broadcast_to(w, (count, w.size)), np.full(count, b)
            for s in range(len(layers) - 1, -1, -1):
                layers[s].coefficient = row
                row, shift, extra = layers[s].relax(row, model.gamma)
                margin = margin + extra + np.abs(row) @ errors[s]
                more = more + shift
                if s > 0:
                    more = more + row @ network.biases[s]
                    row = row @ network.weights[s]
            form = form + np.einsum("bi,bip->bp", row, wr)
            c = c + more + (row * hc).sum(axis=1)
        return form, c, form, c, margin

    def improve_slopes(self, z: Array, step: float, going: Flags) -> None:
        """Nothing: lines have no slopes to choose."""

    def anchored(
        self, form: Array, c: Array, base: Array, base_c: Array, multipliers: Array,
        value: Array,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """The form as it is: lines at vertices are for ReLU."""
        return form, c, value

    def scores(self, form: Array) -> tuple[Array, Array]:
        """Smear: errors of lines attributed to the inputs that neurons depend on.

        The error of a line is measured at both ends of the range, in the middle, and
        where the range is next to zero: there ReLU has its kink.
        Returns scores (num_nodes, num_inputs) and the sums of all errors (num_nodes,).
        """
        total, errors = SMEAR_FLOOR * np.abs(form), np.zeros(len(form))
        for layers in self.layers:
            for layer in layers:
                lines, a = layer.lines, layer.coefficient
                low, high = layer.low, layer.high
                x = np.stack([low, 0.5 * (low + high), np.clip(0.0, low, high), high])
                values = layer.kind.value(x)
                above = (lines.high * x + lines.high_shift - values).max(axis=0)
                below = (values - lines.low * x - lines.low_shift).max(axis=0)
                error = np.maximum(np.where(a > 0.0, a * above, -a * below), 0.0)
                width = np.where(high > low, high - low, 1.0)
                total = total + np.einsum("bi,bip->bp", error / width, layer.smear)
                errors = errors + error.sum(axis=1)
        widths = self.model.domain.widths
        share = 2.0 * self.radius / np.where(widths > 0.0, widths, 1.0)
        return total + WIDTH_FLOOR * errors[:, None] * share, errors

    def states(self) -> States:
        """Nothing to tell the children."""
        return self._states
