"""Valid inequalities of the big-M model, each a pure function of a point.

`IdealCuts` are the single-neuron inequalities of Anderson et al. (2020): with the
big-M rows they describe the convex hull of one ReLU over a box of its inputs. There
are exponentially many; the most violated one is found in linear time.

`BendersCuts` are the paper's Proposition 1: fix the binaries at an integer solution,
take the dual multipliers of the linear program that is left, and weak duality bounds
the prediction by a linear function of the binaries. As printed the term of the
feasible set is missing; here it is the sum over the bounds of the columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ennopt.bounds.linear import ends
from ennopt.bounds.rounding import UNIT
from ennopt.milp.building import ABSENT
from ennopt.milp.formulation import Formulation
from ennopt.milp.highs import Highs
from ennopt.milp.model import Indices, Inequality, LinearModel
from ennopt.milp.solver import (
    SMALLEST_VIOLATION,
    TIGHT_TOLERANCE,
    Backend,
    MilpStatus,
    SolveOptions,
)
from ennopt.network import Array

NEGLIGIBLE = 1e-11
"""A binary's coefficient this small, relative to the largest, joins the constant."""


def most_violated(
    weights: Array, bias: Array, lower: Array, upper: Array, x: Array, y: Array,
    z: Array,
) -> tuple[npt.NDArray[np.bool_], Array]:  # fmt: skip
    """For each neuron the set I of the ideal inequality that a point violates most.

    With ``L~ = L`` where ``w >= 0`` else ``U``, and ``U~`` the other one, every set I
    gives ``y <= sum_I w (x - L~ (1 - z)) + (b + sum_(not I) w U~) z``. An input is in
    I exactly if that makes the right-hand side smaller.

    Parameters
    ----------
    weights, bias
        (num_neurons, num_inputs) and (num_neurons,).
    lower, upper
        Bounds of the inputs of the layer, (num_inputs,).
    x, y, z
        The point: inputs (num_inputs,), outputs and binaries (num_neurons,).

    Returns
    -------
    tuple
        Sets I, (num_neurons, num_inputs), and violations, (num_neurons,), not
        positive where the point obeys all inequalities of a neuron.

    Examples
    --------
    >>> w, one = np.array([[1.0, 1.0]]), np.ones(2)
    >>> x, half = np.array([1.0, 0.0]), np.array([0.5])
    >>> inside, excess = most_violated(w, -2 * half, 0 * one, one, x, half, half)
    >>> inside.tolist(), excess.tolist()
    ([[False, True]], [0.5])
    """
    near, far = ends(weights, lower, upper)
    share = z[:, None]
    kept = weights * (x - near * (1.0 - share))
    dropped = weights * far * share
    inside = kept < dropped
    limit = bias * z + np.where(inside, kept, dropped).sum(axis=1)
    return inside, np.asarray(y - limit)


@dataclass(frozen=True, slots=True, eq=False)
class _UnstableLayer:
    """The unstable neurons of one hidden layer and the columns they meet."""

    weights: Array
    bias: Array
    lower: Array
    upper: Array
    inputs: Indices
    y: Indices
    z: Indices

    def separate(
        self, point: Array, threshold: float
    ) -> list[tuple[float, Inequality]]:
        x, y, z = point[self.inputs], point[self.y], point[self.z]
        inside, excess = most_violated(
            self.weights, self.bias, self.lower, self.upper, x, y, z
        )
        return [
            (float(excess[r]), self.cut(int(r), inside[r]))
            for r in np.flatnonzero(excess > threshold)
        ]

    def cut(self, r: int, inside: npt.NDArray[np.bool_]) -> Inequality:
        """``y - sum_I w x - (b + sum_I w L~ + sum_(not I) w U~) z <= -sum_I w L~``."""
        w = self.weights[r]
        near, far = ends(w, self.lower, self.upper)
        used = inside & (w != 0)
        low = float((w * near)[inside].sum())
        slope = float(self.bias[r]) + low + float((w * far)[~inside].sum())
        reach = np.maximum(np.abs(self.lower), np.abs(self.upper))
        size = abs(float(self.bias[r])) + float(np.abs(w) @ reach)
        return Inequality(
            np.concatenate([[self.y[r], self.z[r]], self.inputs[used]]),
            np.concatenate([[1.0, -slope], -w[used]]),
            -low + 4.0 * (w.size + 4) * UNIT * size,
        )


@dataclass(frozen=True, slots=True, eq=False)
class IdealCuts:
    """Separation of the ideal single-neuron inequalities of Anderson et al.

    Parameters
    ----------
    formulation
        A big-M model with its binaries.
    threshold
        Smallest violation that is returned, in units of the neuron.
    """

    formulation: Formulation
    threshold: float = SMALLEST_VIOLATION
    _layers: tuple[_UnstableLayer, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_layers", tuple(_unstable_layers(self.formulation)))

    def separate(self, point: Array, integral: bool = False) -> list[Inequality]:
        """The most violated inequality of every violated neuron, worst first.

        An integer solution violates none: nothing is computed for it.

        Parameters
        ----------
        point
            Values of all columns, (num_columns,).
        integral
            Whether it is an integer solution.
        """
        if integral:
            return []
        found = [
            pair
            for layer in self._layers
            for pair in layer.separate(point, self.threshold)
        ]
        found.sort(key=lambda pair: -pair[0])
        return [cut for _, cut in found]


def _unstable_layers(formulation: Formulation) -> list[_UnstableLayer]:
    layers = []
    stacks = zip(formulation.problem.networks, formulation.neurons, strict=True)
    for i, (network, columns) in enumerate(stacks):
        before = formulation.inputs
        lower, upper = (
            formulation.problem.domain.lower,
            formulation.problem.domain.upper,
        )
        for k, at in enumerate(columns):
            rows = at.z != ABSENT
            there = before != ABSENT
            if rows.any():
                layers.append(
                    _UnstableLayer(
                        weights=network.weights[k][np.ix_(rows, there)],
                        bias=network.biases[k][rows],
                        lower=lower[there],
                        upper=upper[there],
                        inputs=before[there],
                        y=at.y[rows],
                        z=at.z[rows],
                    )
                )
            before = at.y
            lower = np.maximum(formulation.bounds.lower[i][k], 0.0)
            upper = np.maximum(formulation.bounds.upper[i][k], 0.0)
    return layers


def benders_inequality(model: LinearModel, duals: Array) -> Inequality:
    """The objective below a linear function of the integer columns: weak duality.

    For any row multipliers ``p``, ``c v = (c - A'p) v + p (A v)``. Integer columns
    keep their reduced cost as a coefficient, every other column is bounded over its
    bounds and every row over its sides, rounding included. Valid at every feasible
    point of the linear relaxation, whatever the multipliers; at the binaries whose
    linear program has `duals` as its optimal multipliers it is tight.

    Parameters
    ----------
    model
        With finite bounds of its columns.
    duals
        One multiplier per row, (num_rows,), as for `LinearModel.weak_duality`.

    Returns
    -------
    Inequality
        ``objective - sum_z slope_z z <= constant``; the model's offset is left out on
        both sides.
    """
    dual, whole = model.weak_duality(duals), model.integer
    ends = np.maximum(dual.reduced * model.lower, dual.reduced * model.upper)
    of_columns = np.where(whole, 0.0, ends)
    slopes = np.where(whole, dual.reduced, 0.0)
    largest = max(float(np.abs(model.objective).max(initial=0.0)), 1.0)
    small = np.abs(slopes) <= NEGLIGIBLE * largest
    constant = float(of_columns.sum() + dual.of_rows.sum())
    constant += float(
        np.maximum(slopes * model.lower, slopes * model.upper)[small].sum()
    )
    slopes[small] = 0.0
    sizes = float(np.abs(of_columns).sum() + np.abs(dual.of_rows).sum())
    sizes += abs(constant)
    reach = np.maximum(np.abs(model.lower), np.abs(model.upper))
    margin = dual.gamma * (float(dual.sizes @ reach) + sizes)
    coefficients = model.objective - slopes
    columns = np.flatnonzero(coefficients)
    return Inequality(columns, coefficients[columns], constant + margin)


@dataclass(frozen=True, slots=True, eq=False)
class BendersCuts:
    """The inequalities of Proposition 1, one for each activation pattern.

    The corrected inequality follows from the linear relaxation of the big-M model
    (weak duality holds at fractional binaries too), so it cannot tighten that
    relaxation; it is here because the paper has it.

    Parameters
    ----------
    formulation
        A big-M model with its binaries.
    solver
        Solves the linear program of a pattern.
    seconds
        Time limit of one linear program.
    """

    formulation: Formulation
    solver: Backend = field(default_factory=Highs)
    seconds: float = 10.0
    _free: LinearModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The rows bound y and s already. As bounds of columns they would take the
        # multipliers away from the binaries and leave a constant: valid but blunt.
        model = self.formulation.model
        lower, upper = model.lower.copy(), model.upper.copy()
        for layers in self.formulation.neurons:
            for at in layers:
                unstable = at.s != ABSENT
                upper[at.y[unstable]] = upper[at.s[unstable]] = math.inf
                on = (at.y != ABSENT) & ~unstable
                lower[at.y[on]], upper[at.y[on]] = -math.inf, math.inf
        free = replace(model.relaxed(), lower=lower, upper=upper)
        object.__setattr__(self, "_free", free)

    def pattern(self, point: Array) -> Array:
        """The binaries at the inputs of `point`, by the forward pass."""
        formulation = self.formulation
        inside = formulation.assignment(formulation.point(point))
        return np.asarray(inside[formulation.binaries])

    def at(self, pattern: Array) -> tuple[Inequality, Array] | None:
        """The inequality of a pattern, and the columns of the best inputs that have it.

        ``None`` if no input has it, or if the solver fails: no harm to any bound.
        """
        binaries = self.formulation.binaries
        lower, upper = self._free.lower.copy(), self._free.upper.copy()
        lower[binaries] = upper[binaries] = pattern
        fixed = self._free.with_column_bounds(lower, upper)
        options = SolveOptions(time_limit=self.seconds, tolerance=TIGHT_TOLERANCE)
        found = self.solver.solve(fixed, options)
        if found.status is not MilpStatus.OPTIMAL or found.duals is None:
            return None
        if found.x is None:
            return None
        cut = benders_inequality(self.formulation.model, found.duals)
        return cut, found.x

    def separate(self, point: Array, integral: bool) -> list[Inequality]:
        """The inequality of an integer solution; none at fractional points."""
        if not integral:
            return []
        made = self.at(self.pattern(point))
        return [] if made is None else [made[0]]
