"""Several functions of the outputs on a batch of nodes: an objective with limits.

Pieces are majorants of outputs, or of minus outputs. A function is the least of many
weighted sums of outputs, so every weighting of it gives a majorant: a sum of pieces. A
limit's majorant is a half-space of the node, like a linear constraint, and is inherited
by the children. The objective is bounded over all of them, with a weighting that is
improved by best response: move towards the weighting that is worst at the point where
the majorant is largest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ennopt.bounds.rounding import UNIT
from ennopt.engine.concretise import LARGEST, HalfSpaces, argument, empty, support
from ennopt.engine.majorant import SMEAR_FLOOR, Form, Majorant
from ennopt.engine.nodes import Flags, Nodes, States
from ennopt.engine.relaxation import Layer
from ennopt.engine.smooth import SmoothLayer, SmoothMajorant
from ennopt.network import Array
from ennopt.weighting import Weighting

STEPS = (0.02, 0.06, 0.15, 0.35, 0.7, 1.0)
"""Shares of the way to the best response that are tried."""

FINER = (1.0, 1.0, 0.25, 0.0625)
"""Scale of the steps in each round before the first slope step; later ones have two."""

BLAME = 0.3
"""What counts beside the majorants in the branching scores: a limit that is missed at
the best point, and the weights that the objective has there."""


class Functions:
    """An objective and limits, over the layers of `inner`.

    Parameters
    ----------
    inner
        The layers of all networks on the nodes.
    nodes
        The nodes, with the majorants of the limits that they inherit.
    halves
        The cut, if there is a cutoff, then a row for each limit, then others.
    first
        Number of the first limit's row.
    """

    def __init__(
        self,
        inner: Majorant | SmoothMajorant,
        nodes: Nodes,
        halves: HalfSpaces,
        first: int,
    ) -> None:
        self._inner, self._model = inner, inner.model
        self.layers: Sequence[Sequence[Layer | SmoothLayer]] = inner.layers
        self._first, self._at = first, slice(first, first + inner.model.num_limits)
        self.halves = HalfSpaces(halves.a.copy(), halves.s.copy(), halves.unit)
        count = len(inner.centre)
        self._z = np.zeros_like(inner.centre)
        self._outputs = np.zeros((count, inner.model.problem.num_outputs))
        self._multipliers = np.zeros((count, halves.count))
        self._weights: list[Array] = []  # of the outputs, for each function
        self._step = 0
        # Weights stay as they are on nodes whose slopes do: what a node becomes does
        # not depend on the others of its batch.
        self._going: Flags = np.ones(count, dtype=bool)
        self.missed: Flags = np.zeros(count, dtype=bool)
        """Nodes on which a limit cannot be met, or not with the other half-spaces."""
        self.over = np.full((count, inner.model.num_limits), np.inf)
        """How far each limit can be exceeded, at most."""

    @property
    def spreads(self) -> Array:
        """Of the functions of the limits, (num_limits,)."""
        return self._model.problem.limit_spread

    def form(self) -> Form:
        """A majorant of the objective; limits become half-spaces first."""
        model = self._model
        forms, self._coefficients = [], []
        for piece in model.pieces:
            network = model.networks[piece.network]
            form, coefficients = self._inner.output_form(
                piece.network, piece.sign * network.weights[-1][piece.row],
                piece.sign * float(network.biases[-1][piece.row]),
                float(model.errors[piece.network][-1][piece.row]),
            )  # fmt: skip
            forms.append(form)
            self._coefficients.append(coefficients)
        self._forms = forms
        self._slopes = np.stack([form.slopes for form in forms], axis=1)
        self._centres = np.stack([form.centre for form in forms], axis=1)
        problem = model.problem
        functions = (problem.weighting, *problem.limits.functions)
        if not self._weights:
            y = self._outputs_at(np.zeros_like(self._z), None)
            self._weights = [np.array(function.respond(y)) for function in functions]
        for j, function in enumerate(problem.limits.functions):
            self._weights[1 + j] = self._limit(j, function)
        if self._step == 0 and self.halves.count > self._first:
            self.missed |= empty(self.halves)
        self._weights[0] = self._improved(problem.weighting)
        self._step += 1
        return self._joined(0)

    def _joined(self, f: int) -> Form:
        """The majorant of function f with its weights, combined from the pieces."""
        shares = self._shares(self._weights[f])
        total = Form.zero(*self._z.shape)
        for k, form in enumerate(self._forms):
            total = total.plus(form.times(shares[:, k]))
        return total._replace(margin=total.margin + self._rounding(f, shares))

    def _rounding(self, f: int, shares: Array) -> Array:
        """Of the combination, and of weights that are in their set up to rounding."""
        sizes = np.abs(self._slopes).sum(axis=2) + np.abs(self._centres)
        count = len(self._model.pieces)
        margin = 4.0 * (count + 4) * UNIT * (shares * sizes).sum(axis=1)
        return np.asarray(margin + self._model.group_rounding[f])

    def _shares(self, weights: Array) -> Array:
        """Of pieces, for weights of outputs (..., num_outputs)."""
        pieces = self._model.pieces
        outputs = [piece.output for piece in pieces]
        signs = np.array([piece.sign for piece in pieces])
        return np.asarray(np.maximum(weights[..., outputs] * signs, 0.0))

    def _outputs_at(self, z: Array, weights: Array | None) -> Array:
        """Outputs by their pieces at points (num_nodes, num_inputs).

        Above for outputs of positive weight, below for those of negative weight, if
        there is such a piece.
        """
        at = self._centres + np.einsum("nkp,np->nk", self._slopes, z)
        found = np.zeros((len(z), self._model.problem.num_outputs))
        known = np.zeros(found.shape[1], dtype=bool)
        for k, piece in enumerate(self._model.pieces):
            own = piece.sign * at[:, k]
            if not known[piece.output]:
                found[:, piece.output], known[piece.output] = own, True
            elif weights is not None:
                negative = weights[:, piece.output] < 0.0
                found[:, piece.output] = np.where(negative, own, found[:, piece.output])
        return found

    def _limit(self, j: int, function: Weighting) -> Array:
        """Make the half-space of limit j; returns the weights of its outputs."""
        problem, halves = self._model.problem, self.halves
        weights = self._weights[1 + j]
        if not function.is_fixed:
            trials = [weights, *self._guides(1 + j)]
            if self._step:
                y = self._outputs_at(self._z, weights)
                target = function.respond(y)
                trials += [weights + eta * (target - weights) for eta in STEPS]
            best = self._best(np.stack(trials, axis=1))
            weights = np.where(self._going[:, None], best, weights)
        self._weights[1 + j] = weights
        form = self._joined(1 + j)
        least = float(problem.limits.least[j] - problem.slack[j])
        size = np.abs(form.slopes).sum(axis=1) + np.abs(form.centre) + abs(least)
        s = form.centre + form.margin - least + halves.unit * size
        s = np.minimum(s, LARGEST)
        k = self._first + j
        old = halves.s[:, k] + np.abs(halves.a[:, k]).sum(axis=1)
        new = s + np.abs(form.slopes).sum(axis=1)
        lower = new < old
        halves.a[:, k] = np.where(lower[:, None], form.slopes, halves.a[:, k])
        halves.s[:, k] = np.where(lower, s, halves.s[:, k])
        self.over[:, j] = np.minimum(np.minimum(old, new), self.over[:, j])
        self.missed |= self.over[:, j] + halves.unit * halves.size[:, k] < 0.0
        return weights

    def _guides(self, f: int) -> list[Array]:
        """Weights that function f has at good points, for each node the same."""
        if not self._model.guides:
            return []
        shape = len(self._z), self._model.problem.num_outputs
        return [np.broadcast_to(one, shape) for one in self._model.guides[f]]

    def _best(self, trials: Array) -> Array:
        """The best of weights, (num_nodes, num_trials, num_outputs)."""
        values, _ = self._largest(trials)
        q = np.argmin(values, axis=1)
        return np.asarray(trials[np.arange(len(trials)), q])

    def _largest(self, trials: Array) -> tuple[Array, Array]:
        """Largest values with trial weights, and the multipliers of half-spaces."""
        shares = self._shares(trials)
        forms = np.einsum("ntk,nkp->ntp", shares, self._slopes)
        centre = np.einsum("ntk,nk->nt", shares, self._centres)
        most, multipliers = support(forms, self.halves)
        return centre + most, multipliers

    def _improved(self, function: Weighting) -> Array:
        """Weights of the objective, after some rounds of best response."""
        old = weights = self._weights[0]
        if function.is_fixed:
            return weights
        weights = self._best(np.stack([weights, *self._guides(0)], axis=1))
        for scale in FINER if self._step == 0 else FINER[1:3]:
            shares = self._shares(weights)
            form = np.einsum("nk,nkp->np", shares, self._slopes)
            _, multipliers = support(form[:, None], self.halves)
            z = argument(form, self.halves, multipliers[:, 0])
            target = function.respond(self._outputs_at(z, weights))
            trials = [weights]
            trials += [weights + scale * eta * (target - weights) for eta in STEPS]
            weights = self._best(np.stack(trials, axis=1))
        return np.where(self._going[:, None], weights, old)

    # What the search asks after a bound.

    def note(self, multipliers: Array, z: Array) -> None:
        """Hear where the majorant is largest, and which half-spaces count there."""
        self._multipliers, self._z = multipliers, z
        self._outputs = self._model.problem.outputs(
            self._inner.centre + self._inner.radius * z
        )

    def _lagrangian(self) -> Array:
        """Shares of the pieces in the objective plus multiples of limits.

        A limit that is missed at the best point counts, too, whatever its majorant
        says there: else nothing would make that closer. So do the outputs that a risk
        has there: a majorant may leave out a member that is the worst, and is bounded
        too loosely to be of use.
        """
        model, problem = self._model, self._model.problem
        shares = self._shares(self._weights[0])
        if not problem.weighting.is_fixed:
            at_point = problem.weighting.respond(self._outputs)
            shares = shares + BLAME * self._shares(at_point)
        reached = problem.limits.values(self._outputs)
        for j in range(model.num_limits):
            own = self._multipliers[:, self._first + j]
            ratio = model.spread / max(float(problem.limit_spread[j]), 1e-300)
            missed = reached[:, j] < problem.limits.least[j]
            blame = np.where(missed, BLAME * ratio, 0.0)
            at_point = problem.limits.functions[j].respond(self._outputs)
            shares = shares + own[:, None] * self._shares(self._weights[1 + j])
            shares = shares + blame[:, None] * self._shares(at_point)
        return np.asarray(shares)

    def _set_coefficients(self, shares: Array) -> None:
        """Give the layers their coefficients in a sum of pieces."""
        for i, layers in enumerate(self.layers):
            for s, layer in enumerate(layers):
                total = np.zeros_like(layer.low)
                for k, piece in enumerate(self._model.pieces):
                    if piece.network == i:
                        total = total + shares[:, k, None] * self._coefficients[k][s]
                layer.coefficient = total

    def improve_slopes(self, z: Array, step: float, going: Flags) -> None:
        """Best response of the slopes below ReLU, for all functions together."""
        self._going = going
        self._set_coefficients(self._lagrangian())
        self._inner.improve_slopes(z, step, going)

    def anchored(
        self, form: Form, multipliers: Array, value: Array
    ) -> tuple[Array, Array, Array]:
        """First-layer lines at the common vertex of the networks, mixed in."""
        self._set_coefficients(self._shares(self._weights[0]))
        self._inner.halves = self.halves
        return self._inner.anchored(form, multipliers, value)

    def scores(self, form: Array) -> tuple[Array, Array]:
        """Errors of the objective plus multiples of limits, as `Sum.scores`.

        Linear terms need no branching: only pieces of networks count for the floor.
        """
        shares = self._lagrangian()
        total, errors = np.zeros_like(self._z), np.zeros(len(self._z))
        flat = np.zeros_like(self._z)
        for k, piece in enumerate(self._model.pieces):
            if self._inner.layers[piece.network]:
                flat = flat + shares[:, k, None] * self._slopes[:, k]
                more, error = self._inner.smear(piece.network, self._coefficients[k])
                total = total + shares[:, k, None] * more
                errors = errors + shares[:, k] * error
        total = total + SMEAR_FLOOR * np.abs(flat)
        return total + self._inner.floor(errors), errors

    def short(self) -> Flags:
        """Nodes where functions fall short of what the signs of neurons promise."""
        shares, model = self._lagrangian(), self._model
        at = self._centres + np.einsum("nkp,np->nk", self._slopes, self._z)
        promised, reached = np.zeros((2, len(self._z)))
        for k, piece in enumerate(model.pieces):
            _, errors = self._inner.smear(piece.network, self._coefficients[k])
            own = at[:, k] - errors - self._forms[k].margin
            promised += shares[:, k] * own
            reached += shares[:, k] * piece.sign * self._outputs[:, piece.output]
        return np.asarray(reached < promised)

    def rows(self, centre: Array, radius: Array) -> Array:
        """Majorants of the limits for the children, as `Nodes.limits`."""
        halves, model = self.halves, self._model
        a, s = halves.a[:, self._at], halves.s[:, self._at]
        safe = np.where(radius > 0.0, radius, 1.0)[:, None]
        slopes = np.where(radius[:, None] > 0.0, a / safe, 0.0)
        slopes = np.where(np.abs(slopes) < LARGEST, slopes, 0.0)
        constant = s - (slopes * centre[:, None]).sum(axis=2)
        constant = constant + model.unit * (np.abs(s) + np.abs(slopes) @ model.reach)
        # An input that is fixed on the node may vary on no child: its slope is gone.
        return np.concatenate([constant[..., None], slopes], axis=2)

    def states(self) -> States:
        """One byte per neuron for the children."""
        return self._inner.states()
