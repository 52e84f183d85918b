"""The paper's big-M model of an ensemble, and what its columns mean.

For an unstable neuron with ``l <= h <= u``, l < 0 < u, and ``h = W y' + b`` of the
layer before, the paper (eq. BigM) asks for

    h <= y <= h - l (1 - z),    0 <= y <= u z,    z in {0, 1}.

Here h is written as ``y - s`` with ``s = max(-h, 0)``, which states the weights once
and turns ``h <= y`` into a bound of a column:

    y - s - W y' = b,    s <= -l (1 - z),    y <= u z,    0 <= y <= u,   0 <= s <= -l.

A neuron that is off vanishes, one that is on is ``y = W y' + b``; neither takes a
binary. The constants l, u are `NeuronBounds` and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.milp.model import Flags, Indices, LinearModel
from ennopt.network import Array, Network

ABSENT = -1
"""Column of a variable that a stable neuron does not have."""

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


@dataclass(frozen=True, slots=True, eq=False)
class ListColumns:
    """The binaries by which an input chooses from a list of values.

    Parameters
    ----------
    input
        Its number.
    values, columns
        Each value, and the column that is one if it is chosen.
    """

    input: int
    values: Array
    columns: Indices


@dataclass(frozen=True, slots=True, eq=False)
class NearColumns:
    """The binaries of a region around data: which rows' boxes hold the point.

    Parameters
    ----------
    lower, upper
        The boxes, (num_rows, num_inputs).
    columns
        One for each row, (num_rows,).
    count
        How many of them are ones.
    """

    lower: Array
    upper: Array
    columns: Indices
    count: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Formulation:
    """A model with the map between its columns and the neurons.

    Parameters
    ----------
    model
        The linear model; the prediction is its objective.
    problem, bounds
        What it was made from.
    inputs
        Columns of x, (num_inputs,).
    neurons
        ``neurons[i][k]`` are the columns of hidden layer k of network i. A model of
        the first layers only has fewer of them.
    lists
        Columns of the inputs that take the values of a list.
    near
        Columns of the regions around data.
    """

    model: LinearModel
    problem: Canonical
    bounds: NeuronBounds
    inputs: Indices
    neurons: tuple[tuple[LayerColumns, ...], ...]
    lists: tuple[ListColumns, ...] = ()
    near: tuple[NearColumns, ...] = ()

    def point(self, columns: Array) -> Array:
        """The inputs of a vector of columns, in the domain, (num_inputs,)."""
        return self.problem.domain.repair(columns[self.inputs])

    def assignment(self, x: Array) -> Array:
        """All columns at the point x by the forward pass: a feasible solution."""
        v = np.zeros(self.model.num_columns)
        v[self.inputs] = x
        for listed in self.lists:
            v[listed.columns[np.argmin(np.abs(listed.values - x[listed.input]))]] = 1.0
        for region in self.near:
            met = np.all((x >= region.lower) & (x <= region.upper), axis=1)
            v[region.columns[np.flatnonzero(met)[: region.count]]] = 1.0
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
        # Bounds of neurons carry rounding margins; the forward pass may round past.
        return np.clip(v, self.model.lower, self.model.upper)

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

    def __repr__(self) -> str:
        return f"Formulation({self.problem!r}, {self.model!r})"


def big_m(
    problem: Canonical, bounds: NeuronBounds, *, relaxed: bool = False
) -> Formulation:
    """The big-M model of a problem whose objective is a plain sum of outputs.

    Parameters
    ----------
    problem
        One output over each network.
    bounds
        Finite for every hidden neuron: the only source of the constants.
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
    for i, network in enumerate(problem.networks):
        if network.num_outputs != 1:
            raise ValueError(
                f"Expected one output over each network, got {network.num_outputs} at "
                f"network {i}. Choose one, or a linear combination, in the Problem."
            )
    made = hidden_layers(problem, bounds, relaxed=relaxed)
    objective, offset = np.zeros(made.model.num_columns), 0.0
    for i, network in enumerate(problem.networks):
        form, constant = made.preactivation(i, len(network.weights) - 1, 0)
        objective += form
        offset += constant
    return replace(made, model=made.model.with_objective(objective, offset))


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
    return _formulated(problem, [depth], bounds, relaxed)


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
    return _formulated(problem, depths, bounds, relaxed)


def _formulated(
    problem: Canonical, depths: Sequence[int], bounds: NeuronBounds, relaxed: bool
) -> Formulation:
    """The model of the first hidden layers of each network, as many as `depths` say."""
    problem.expect_relu("a big-M model")
    building = _Building(problem.domain, relaxed)
    neurons = tuple(
        building.add_layers(network, bounds, i, depth, relaxed)
        for i, (network, depth) in enumerate(zip(problem.networks, depths, strict=True))
    )
    return Formulation(
        building.model(),
        problem,
        bounds,
        building.inputs,
        neurons,
        building.lists,
        building.near,
    )


class _Building:
    """A model under construction: columns and rows as growing lists."""

    def __init__(self, domain: Domain, relaxed: bool) -> None:
        whole = domain.values.whole
        self._lower = [domain.lower]
        self._upper = [domain.upper]
        self._whole = [np.zeros_like(whole) if relaxed else whole]
        self._size = domain.num_inputs
        self._columns: list[Indices] = []
        self._values: list[Array] = []
        self._sides: list[tuple[float, float]] = []
        self.inputs: Indices = np.arange(domain.num_inputs, dtype=np.int64)
        # The constraints of the feasible set, wider by what a point may miss them.
        rows = domain.linear
        least, most = rows.least - domain.slack, rows.most + domain.slack
        for k in range(rows.count):
            (used,) = np.nonzero(rows.matrix[k])
            self._columns.append(self.inputs[used])
            self._values.append(rows.matrix[k, used])
            self._sides.append((float(least[k]), float(most[k])))
        self.lists = () if relaxed else tuple(self._add_lists(domain))
        self.near = () if relaxed else tuple(self._add_regions(domain))

    def _add_lists(self, domain: Domain) -> Iterator[ListColumns]:
        """A binary for each value that an input may choose from."""
        for j, values in enumerate(domain.values.lists):
            if values is None or domain.lower[j] == domain.upper[j]:
                continue
            inside = (values >= domain.lower[j]) & (values <= domain.upper[j])
            values = values[inside]
            ones = np.ones(values.size)
            columns = self._new(ones > 0.0, 0.0 * ones, ones, whole=True)
            self._row([*columns], [*ones], 1.0, 1.0)
            self._row([j, *columns], [-1.0, *values], 0.0, 0.0)
            yield ListColumns(j, values, columns)

    def _add_regions(self, domain: Domain) -> Iterator[NearColumns]:
        """A binary for each row of data whose box may be one that a point lies in."""
        for region in domain.within(domain.lower, domain.upper).regions:
            lower = np.maximum(region.lower, domain.lower)
            upper = np.minimum(region.upper, domain.upper)
            ones = np.ones(len(lower))
            columns = self._new(ones > 0.0, 0.0 * ones, ones, whole=True)
            self._row([*columns], [*ones], region.count, region.count)
            for j in range(domain.num_inputs):
                if region.count == 1:
                    self._row([j, *columns], [1.0, *-lower[:, j]], 0.0, np.inf)
                    self._row([j, *columns], [1.0, *-upper[:, j]], -np.inf, 0.0)
                    continue
                low, high = domain.lower[j], domain.upper[j]
                for r, column in enumerate(columns):
                    up, down = lower[r, j] - low, high - upper[r, j]
                    if up > 0.0:
                        self._row([j, column], [1.0, -up], low, np.inf)
                    if down > 0.0:
                        self._row([j, column], [1.0, down], -np.inf, high)
            yield NearColumns(lower, upper, columns, region.count)

    def add_layers(
        self,
        network: Network,
        bounds: NeuronBounds,
        i: int,
        depth: int,
        relaxed: bool,
    ) -> tuple[LayerColumns, ...]:
        made: list[LayerColumns] = []
        before = self.inputs
        for k in range(depth):
            low, high = bounds.lower[i][k], bounds.upper[i][k]
            if not (np.isfinite(low).all() and np.isfinite(high).all()):
                j = int(np.argmin(np.isfinite(low) & np.isfinite(high)))
                raise ValueError(
                    f"Expected finite bounds, got [{low[j]}, {high[j]}] at member {i}, "
                    f"layer {k}, neuron {j}. Tighten them with Interval() first."
                )
            at = self._add_layer(
                network.weights[k], network.biases[k], low, high, before, relaxed
            )
            made.append(at)
            before = at.y
        return tuple(made)

    def _add_layer(
        self, w: Array, b: Array, low: Array, high: Array, before: Indices,
        relaxed: bool,
    ) -> LayerColumns:  # fmt: skip
        off, on = high <= 0, low >= 0
        on &= ~off
        open_ = ~off & ~on
        size = np.maximum(np.abs(low), np.abs(high))
        room = np.where(on & (high - low < NARROW * size), NARROW_ROOM * size, 0.0)
        y = self._new(~off, np.maximum(low - room, 0.0), high + room)
        s = self._new(open_, np.zeros_like(low), -low)
        binary = np.zeros_like(open_) if relaxed else open_
        z = self._new(binary, np.zeros_like(low), np.ones_like(low), whole=True)
        there = before != ABSENT
        for j in np.flatnonzero(~off):
            weights = w[j, there]
            used = weights != 0
            columns = [y[j], *before[there][used]]
            values = [1.0, *-weights[used]]
            if open_[j]:
                columns.insert(1, s[j])
                values.insert(1, -1.0)
            self._row(columns, values, b[j], b[j])
            if not open_[j]:
                continue
            if relaxed:  # the triangle -l y + u s <= -l u, its product rounded up
                limit = -low[j] * high[j] * (1.0 + 2.0**-50)
                self._row([y[j], s[j]], [-low[j], high[j]], -np.inf, limit)
            else:
                self._row([s[j], z[j]], [1.0, -low[j]], -np.inf, -low[j])
                self._row([y[j], z[j]], [1.0, -high[j]], -np.inf, 0.0)
        return LayerColumns(y, s, z)

    def _new(
        self, wanted: Flags, lower: Array, upper: Array, whole: bool = False
    ) -> Indices:
        count = int(wanted.sum())
        columns = np.full(wanted.size, ABSENT, dtype=np.int64)
        columns[wanted] = np.arange(self._size, self._size + count)
        self._size += count
        self._lower.append(lower[wanted])
        self._upper.append(upper[wanted])
        self._whole.append(np.full(count, whole, dtype=np.bool_))
        return columns

    def _row(
        self, columns: list[int], values: list[float], low: float, high: float
    ) -> None:
        self._columns.append(np.array(columns, dtype=np.int64))
        self._values.append(np.array(values, dtype=np.float64))
        self._sides.append((float(low), float(high)))

    def model(self) -> LinearModel:
        sides = np.array(self._sides, dtype=np.float64).reshape(-1, 2)
        lengths = [columns.size for columns in self._columns]
        return LinearModel(
            lower=np.concatenate(self._lower),
            upper=np.concatenate(self._upper),
            objective=np.zeros(self._size),
            integer=np.concatenate(self._whole),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            columns=np.concatenate([*self._columns, np.zeros(0, np.int64)]),
            coefficients=np.concatenate([*self._values, np.zeros(0)]),
            row_lower=sides[:, 0],
            row_upper=sides[:, 1],
        )
