"""The paper's big-M model of an ensemble, and what its columns mean.

For an unstable neuron with ``l <= h <= u``, l < 0 < u, and ``h = W y' + b`` of the
layer before, the paper (eq. BigM) asks for

    h <= y <= h - l (1 - z),    0 <= y <= u z,    z in {0, 1}.

Here h is written as ``y - s`` with ``s = max(-h, 0)``, which states the weights once
and turns ``h <= y`` into a bound of a column:

    y - s - W y' = b,    s <= -l (1 - z),    y <= u z,    0 <= y <= u,   0 <= s <= -l.

A neuron that is off vanishes, one that is on is ``y = W y' + b``; neither takes a
binary. The constants l, u are `NeuronBounds` and nothing else. `ennopt.milp.epigraph`
adds what limits and risks need, `ennopt.milp.input_columns` what the set needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.milp.building import ABSENT, Building
from ennopt.milp.epigraph import ColumnForm, FunctionColumns, add_function, add_limits
from ennopt.milp.input_columns import InputColumns, add_inputs
from ennopt.milp.model import Indices, Inequality, LinearModel
from ennopt.network import Array, Network

NARROW, NARROW_ROOM = 1e-3, 1e-6
"""A neuron that is on and varies by less than the first share of its size gets room
beyond its bounds, the second share. Its row says what it is; as constraints, bounds so
close would cut into the box as soon as a solver drops a small coefficient of the row.
"""


@dataclass(frozen=True, slots=True, eq=False)
class LayerColumns:
    """Where the variables of a hidden layer are, `ABSENT` where there is none.

    Parameters
    ----------
    y
        Outputs, (width,); absent if the neuron is off.
    s
        Negative parts ``max(-h, 0)``, (width,); absent if the neuron is stable.
    z
        Whether the neuron is on, (width,); absent if stable, or if relaxed.
    """

    y: Indices
    s: Indices
    z: Indices


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """What a vector of columns says about a hidden layer, each (width,).

    For off neurons of the model h is not known from the columns: ``nan``, y = z = 0.
    """

    h: Array
    y: Array
    z: Array


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Formulation:
    """A model with the map between its columns and the neurons.

    Parameters
    ----------
    model
        The linear model; the prediction is its objective.
    problem, bounds
        What it was made from.
    columns
        Columns of the feasible set: the inputs, and what conditions add.
    neurons
        ``neurons[i][k]`` are the columns of hidden layer k of network i. A model of
        the first layers only has fewer of them.
    functions
        Columns of the objective and of the limits, if they are in the model.
    """

    model: LinearModel
    problem: Canonical
    bounds: NeuronBounds
    columns: InputColumns
    neurons: tuple[tuple[LayerColumns, ...], ...]
    functions: tuple[FunctionColumns, ...] = ()

    @property
    def inputs(self) -> Indices:
        """Columns of x, (num_inputs,)."""
        return self.columns.inputs

    def point(self, columns: Array) -> Array:
        """The inputs of a vector of columns, in the domain, (num_inputs,)."""
        return self.problem.domain.repair(columns[self.inputs])

    def assignment(self, x: Array) -> Array:
        """All columns at the point x by the forward pass: a feasible solution."""
        v = np.zeros(self.model.num_columns)
        self.columns.assign(v, x)
        for network, layers in zip(self.problem.networks, self.neurons, strict=True):
            values = network.preactivations(x)
            for h, at in zip(values, layers, strict=False):
                for columns, entries in (
                    (at.y, np.maximum(h, 0.0)),
                    (at.s, np.maximum(-h, 0.0)),
                    (at.z, (h > 0).astype(float)),
                ):
                    there = columns != ABSENT
                    v[columns[there]] = entries[there]
        if self.functions:
            outputs = self.problem.outputs(x[None])[0]
            for function in self.functions:
                for risk in function.risks:
                    risk.assign(v, outputs)
        # Bounds of neurons carry rounding margins; the forward pass may round past.
        return np.clip(v, self.model.lower, self.model.upper)

    @property
    def lacks_rows(self) -> bool:
        """Whether solutions must be asked for `cuts` that they violate."""
        risks = (risk for function in self.functions for risk in function.risks)
        return bool(self.columns.rounded) or any(risk.by_cuts for risk in risks)

    def cuts(self, columns: Array, integral: bool = True) -> list[Inequality]:
        """Inequalities of what rows say in part only, as sharp as can be at a point.

        Parameters
        ----------
        columns
            Of any point, (num_columns,).
        integral
            Not asked for: they hold everywhere.
        """
        found = self.columns.half_spaces(columns[self.inputs])
        for function in self.functions:
            for risk in function.risks:
                if risk.by_cuts:
                    f = columns[risk.outputs]
                    size = np.abs(self.model.upper[risk.outputs]).max()
                    size = max(size, np.abs(self.model.lower[risk.outputs]).max())
                    found.append(risk.tangent(risk.risk.respond(f), float(size)))
        return found

    def activations(self, columns: Array) -> list[list[Activations]]:
        """h, y and z of every hidden layer ``[member][layer]`` at a column vector."""

        def layer(at: LayerColumns) -> Activations:
            padded = np.append(columns, 0.0)  # ABSENT reads the zero at the end
            y, s = padded[at.y], padded[at.s]
            h = np.where(at.y == ABSENT, np.nan, y - s)
            on = (at.y != ABSENT) & (at.s == ABSENT)
            z = np.where(on, 1.0, padded[at.z])
            return Activations(h, y, z)

        return [[layer(at) for at in layers] for layers in self.neurons]

    @property
    def binaries(self) -> Indices:
        """Columns of all z, member by member and layer by layer."""
        found = [at.z[at.z != ABSENT] for layers in self.neurons for at in layers]
        return np.concatenate([*found, np.zeros(0, np.int64)]).astype(np.int64)

    def preactivation(self, i: int, k: int, j: int) -> tuple[Array, float]:
        """Neuron j of affine layer k of member i as a function of the columns.

        Returns
        -------
        tuple
            Coefficients (num_columns,) and constant. Layer k may be the first one
            that the model leaves out.
        """
        network = self.problem.networks[i]
        before = self.inputs if k == 0 else self.neurons[i][k - 1].y
        there = before != ABSENT
        form = np.zeros(self.model.num_columns)
        form[before[there]] = network.weights[k][j, there]
        return form, float(network.biases[k][j])

    def output(self, i: int, j: int) -> ColumnForm:
        """Output j of network i as a function of the columns."""
        form, constant = self.preactivation(
            i, len(self.problem.networks[i].weights) - 1, j
        )
        (used,) = np.nonzero(form)
        return ColumnForm(used, form[used], constant)

    def __repr__(self) -> str:
        return f"Formulation({self.problem!r}, {self.model!r})"


def big_m(
    problem: Canonical, bounds: NeuronBounds, *, relaxed: bool = False
) -> Formulation:
    """The big-M model of a problem, its limits and risks included.

    Parameters
    ----------
    problem
        What to maximize, and where.
    bounds
        Finite for every neuron: the only source of the constants.
    relaxed
        Without binaries: z is projected out of the linear relaxation, which leaves
        the triangle ``y <= u (h - l) / (u - l)``, or ``-l y + u s <= -l u``.

    Examples
    --------
    >>> from ennopt import Domain
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem = Canonical.sum_of([net], Domain([-1.0], [2.0]))
    >>> big_m(problem, problem.root).model
    LinearModel(7 columns, 2 integer; 6 rows, 14 entries)
    """
    depths = [len(network.weights) - 1 for network in problem.networks]
    building, made = _formulated(problem, depths, bounds, relaxed)
    outputs = [
        made.output(i, j)
        for i, network in enumerate(problem.networks)
        for j in range(network.num_outputs)
    ]
    low = np.concatenate([layers[-1] for layers in bounds.lower])
    high = np.concatenate([layers[-1] for layers in bounds.upper])
    goal = add_function(building, problem.weighting, outputs, low, high)
    limits: tuple[FunctionColumns, ...] = ()
    if problem.limits.count:
        limits = add_limits(building, problem.limits, problem.slack, outputs, low, high)
    model = building.model(goal.form.dense(building.size), goal.form.constant)
    return replace(made, model=model, functions=(goal, *limits))


def sub_network(
    problem: Canonical, depth: int, bounds: NeuronBounds, *, relaxed: bool = False
) -> Formulation:
    """The model of the first `depth` hidden layers of one network, no objective yet.

    Take the objective for a neuron of the layer after them from
    ``preactivation(0, depth, j)``.

    Parameters
    ----------
    problem
        Of one network.
    depth
        Number of hidden layers in the model.
    bounds
        Of its neurons.
    relaxed
        As for `big_m`.
    """
    return _formulated(problem, [depth], bounds, relaxed)[1]


def hidden_layers(
    problem: Canonical, bounds: NeuronBounds, *, relaxed: bool = False
) -> Formulation:
    """The model of all hidden layers, no objective yet, whatever outputs stand on them.

    Take output j of network i from ``preactivation(i, num_hidden_layers, j)``.

    Parameters
    ----------
    problem, bounds, relaxed
        As for `big_m`, and networks may have several outputs.
    """
    depths = [len(network.weights) - 1 for network in problem.networks]
    return _formulated(problem, depths, bounds, relaxed)[1]


def _formulated(
    problem: Canonical, depths: Sequence[int], bounds: NeuronBounds, relaxed: bool
) -> tuple[Building, Formulation]:
    """The model of the first hidden layers of each network, as many as `depths` say."""
    problem.expect_relu("a big-M model")
    building = Building()
    columns = add_inputs(building, problem.domain, relaxed)
    neurons = tuple(
        _add_layers(building, columns.inputs, network, bounds, i, depth, relaxed)
        for i, (network, depth) in enumerate(zip(problem.networks, depths, strict=True))
    )
    made = Formulation(building.model(), problem, bounds, columns, neurons)
    return building, made


def _add_layers(
    building: Building, inputs: Indices, network: Network, bounds: NeuronBounds, i: int,
    depth: int, relaxed: bool,
) -> tuple[LayerColumns, ...]:  # fmt: skip
    made: list[LayerColumns] = []
    before = inputs
    for k in range(depth):
        low, high = bounds.lower[i][k], bounds.upper[i][k]
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            j = int(np.argmin(np.isfinite(low) & np.isfinite(high)))
            raise ValueError(
                f"Expected finite bounds, got [{low[j]}, {high[j]}] at member {i}, "
                f"layer {k}, neuron {j}. Tighten them with Interval() first."
            )
        at = _add_layer(
            building, network.weights[k], network.biases[k], low, high, before, relaxed
        )
        made.append(at)
        before = at.y
    return tuple(made)


def _add_layer(
    building: Building, w: Array, b: Array, low: Array, high: Array, before: Indices,
    relaxed: bool,
) -> LayerColumns:  # fmt: skip
    off, on = high <= 0, low >= 0
    on &= ~off
    open_ = ~off & ~on
    size = np.maximum(np.abs(low), np.abs(high))
    room = np.where(on & (high - low < NARROW * size), NARROW_ROOM * size, 0.0)
    y = building.add_some(~off, np.maximum(low - room, 0.0), high + room)
    s = building.add_some(open_, np.zeros_like(low), -low)
    binary = np.zeros_like(open_) if relaxed else open_
    z = building.add_some(binary, np.zeros_like(low), np.ones_like(low), whole=True)
    there = before != ABSENT
    for j in np.flatnonzero(~off):
        weights = w[j, there]
        used = weights != 0
        columns = [y[j], *before[there][used]]
        values = [1.0, *-weights[used]]
        if open_[j]:
            columns.insert(1, s[j])
            values.insert(1, -1.0)
        building.row(columns, values, b[j], b[j])
        if not open_[j]:
            continue
        if relaxed:  # the triangle -l y + u s <= -l u, its product rounded up
            limit = -low[j] * high[j] * (1.0 + 2.0**-50)
            building.row([y[j], s[j]], [-low[j], high[j]], high=limit)
        else:
            building.row([s[j], z[j]], [1.0, -low[j]], high=-low[j])
            building.row([y[j], z[j]], [1.0, -high[j]], high=0.0)
    return LayerColumns(y, s, z)
