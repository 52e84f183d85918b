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
from ennopt.milp.formulation import Formulation, big_m
from ennopt.milp.model import LinearModel
from ennopt.milp.solver import TIGHT_TOLERANCE, Backend, SolveOptions
from ennopt.network import Array, Ensemble, Network
from ennopt.problem import Problem

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
    >>> from ennopt.bounds.relaxation import Interval
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


@dataclass(frozen=True, slots=True, eq=False)
class ScaledModel:
    """The big-M model of a problem in units of order one, and the way back.

    Parameters
    ----------
    units
        The problem and its bounds in those units.
    formulation
        Their model.

    Examples
    --------
    >>> from ennopt.bounds.relaxation import Interval
    >>> from ennopt.milp.highs import Highs
    >>> one = Ensemble([Network([[[3e6]], [[2e-9]]], [[0.0], [0.0]])])
    >>> box = Domain([-1.0], [1e-3])
    >>> scaled = ScaledModel.of(Problem(one, box), Interval().tighten(one, box))
    >>> found = Highs().solve(scaled.model)
    >>> scaled.point(found.x), round(scaled.proved(found.bound, Highs()), 9)
    (array([0.001]), 6e-06)
    """

    units: Normalized
    formulation: Formulation

    @classmethod
    def of(cls, problem: Problem, bounds: NeuronBounds) -> ScaledModel:
        """The model of a canonical problem with bounds of its neurons on its domain."""
        units = normalized(problem.ensemble, problem.domain, bounds)
        return cls(units, big_m(units.ensemble, units.domain, units.bounds))

    @property
    def model(self) -> LinearModel:
        """What a solver is given."""
        return self.formulation.model

    def point(self, columns: Array) -> Array:
        """The inputs of a vector of columns, in the problem's units, (num_inputs,)."""
        return self.formulation.point(columns) * self.units.inputs

    def columns(self, x: Array) -> Array:
        """All columns at a point in the problem's units, by the forward pass."""
        return self.formulation.assignment(x / self.units.inputs)

    def proved(self, bound: float, solver: Backend) -> float:
        """What a solver's bound of the model proves, in the problem's units.

        The bound of a MILP is moved outward by the solver's margin; those of linear
        programs are rigorous.
        """
        margin = 0.0
        if self.model.num_integer:
            low, high = self.units.bounds.prediction(self.units.ensemble.weights)
            margin = solver.capabilities.margin * (high - low) + TIGHT_TOLERANCE
        return (bound + margin) * self.units.output

    def options(
        self,
        *,
        seconds: float,
        nodes: float,
        slack: float,
        gap: float = 0.0,
        threads: int = 1,
        seed: int = 0,
    ) -> SolveOptions:
        """How a solver must solve the model so that its bound counts as proved.

        Parameters
        ----------
        seconds, nodes
            Limits.
        slack, gap
            Distance of bound and value that counts as closed: in the problem's units,
            and relative.
        threads, seed
            Handed to the solver.
        """
        return SolveOptions(
            time_limit=seconds,
            node_limit=nodes,
            gap=gap,
            absolute_gap=slack / self.units.output,
            tolerance=TIGHT_TOLERANCE,
            threads=threads,
            seed=seed,
        )
