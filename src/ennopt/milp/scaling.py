"""Units in which a model is well scaled: powers of two, so that nothing is rounded.

A solver's tolerances are absolute. ReLU is positively homogeneous, so each neuron may
be measured in its own unit (about its largest pre-activation), each input and the
prediction in theirs; with powers of two the rescaled network is exactly the same one.
An input whose range lies far from zero is measured from the middle of that range:
otherwise a tolerance is as wide as the range. That rounds the biases of the first
layer, and how far this may move a prediction is charged to the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.rounding import UNIT
from ennopt.canonical import Canonical
from ennopt.milp.formulation import Formulation, big_m
from ennopt.milp.model import Inequality, LinearModel
from ennopt.milp.solver import TIGHT_TOLERANCE, Backend, SolveOptions
from ennopt.network import Array, Network
from ennopt.weighting import Weighting

FAR = 2.0**10
"""An input whose range lies this many times its width from zero is far from it. Nearer,
a solver's tolerance of 1e-7 is at most 1e-4 of the width."""

LARGEST_EXPONENT = 200
"""Units stay within 2 to the power of plus or minus this: no overflow, no zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Centred:
    """A problem with the inputs that are far from zero moved there.

    Parameters
    ----------
    problem
        As seen from the new origin; neurons keep their values but for rounding.
    shift
        Where that is: original = centred + shift, (num_inputs,).
    error
        How far the rounding of biases may move the objective.
    """

    problem: Canonical
    shift: Array
    error: float


def centred(problem: Canonical) -> Centred:
    """Measure inputs that are far from zero from the middle of their range.

    Both ends of such a range are within a factor of two of its middle, so their
    distances to it are exact. Without such inputs nothing changes at all.

    Examples
    --------
    >>> from ennopt import Domain
    >>> net = Network([[[1.0]]], [[-2e6]])
    >>> moved = centred(Canonical.sum_of([net], Domain([2e6], [2e6 + 1.0])))
    >>> moved.problem.domain, moved.problem.values(np.array([0.5]))
    (Domain(x0 in [-0.5, 0.5]), array([1.]))
    """
    domain = problem.domain
    nearest = np.maximum(np.maximum(domain.lower, -domain.upper), 0.0)
    far = nearest > FAR * domain.widths
    shift = np.where(far, domain.lower + 0.5 * domain.widths, 0.0)
    shift = np.where(domain.values.whole, np.rint(shift), shift)
    if not far.any():
        return Centred(problem, shift, 0.0)
    errors = []
    operations = problem.num_inputs + 4.0
    for network in problem.networks:
        error = np.abs(network.weights[0]) @ np.abs(shift) + np.abs(network.biases[0])
        error = 2.0 * operations * UNIT * error
        for w in network.weights[1:]:
            error = np.abs(w) @ error
        errors.append(error)
    of_outputs = np.concatenate(errors)
    limits = problem.limits
    if limits.count:
        more = [function.heaviest @ of_outputs for function in limits.functions]
        limits = replace(limits, slack=problem.slack + more)
    networks = tuple(network.fold_input(1.0, shift) for network in problem.networks)
    moved = replace(
        problem, networks=networks, domain=domain.moved(shift), limits=limits,
        origin=None, known=None,
    )  # fmt: skip
    return Centred(moved, shift, float(problem.weighting.heaviest @ of_outputs))


@dataclass(frozen=True, slots=True, eq=False)
class Normalized:
    """A problem and its bounds in units of order one.

    Parameters
    ----------
    problem, bounds
        In the new units.
    inputs
        Unit of each input: original = normalized * unit, (num_inputs,).
    output
        Unit of the objective. Each limit has its own.
    neurons
        ``neurons[i][k]`` are the units of layer k of network i, (width,).
    """

    problem: Canonical
    bounds: NeuronBounds
    inputs: Array
    output: float
    neurons: tuple[tuple[Array, ...], ...]


def normalized(problem: Canonical, bounds: NeuronBounds) -> Normalized:
    """Measure each input, neuron and constraint, and the objective, in its own unit.

    Examples
    --------
    >>> from ennopt import Domain
    >>> net = Network([[[3e6]], [[2e-9]]], [[0.0], [0.0]])
    >>> problem = Canonical.sum_of([net], Domain([0.0], [1e-3]))
    >>> same, top = normalized(problem, problem.root), problem.domain.upper
    >>> same.problem.values(top / same.inputs) * same.output == problem.values(top)
    array([ True])
    """
    problem.expect_relu("a linear program or MILP")
    whole = problem.domain.values.whole
    inputs = np.where(whole, 1.0, _units(problem.domain.reach))
    domain = problem.domain.on_units(inputs)
    # Solvers drop coefficients and violations that are small beside one.
    domain = domain.divided(_units(np.abs(domain.linear.matrix).max(axis=1)))
    functions = (problem.weighting, *problem.limits.functions)
    of_functions = _function_units(problem, functions, bounds)
    output = float(of_functions[0])
    of_outputs = np.full(problem.num_outputs, output)
    for function, own_unit in zip(functions, of_functions, strict=True):
        of_outputs[function.used] = own_unit
    networks, lower, upper, units = [], [], [], []
    at = 0
    for i, network in enumerate(problem.networks):
        weights, biases, lows, highs, own = [], [], [], [], []
        before = inputs
        for k, (w, b) in enumerate(network.layers()):
            low, high = bounds.lower[i][k], bounds.upper[i][k]
            unit = _units(np.maximum(np.abs(low), np.abs(high)))
            if k == len(network.weights) - 1:
                unit = of_outputs[at : at + unit.size]
                at += unit.size
            own.append(unit)
            weights.append(w * before / unit[:, None])
            biases.append(b / unit)
            lows.append(low / unit)
            highs.append(high / unit)
            before = unit
        networks.append(Network(tuple(weights), tuple(biases)))
        lower.append(tuple(lows))
        upper.append(tuple(highs))
        units.append(tuple(own))
    limits = problem.limits
    if limits.count:
        limits = replace(
            limits, least=limits.least / of_functions[1:],
            slack=problem.slack / of_functions[1:],
        )  # fmt: skip
    return Normalized(
        Canonical(tuple(networks), domain, problem.weighting, limits),
        NeuronBounds(tuple(lower), tuple(upper)), inputs, output, tuple(units),
    )  # fmt: skip


def _function_units(
    problem: Canonical, functions: Sequence[Weighting], bounds: NeuronBounds
) -> Array:
    """The unit of each function, which all its outputs have, (num_functions,)."""
    found = []
    for function in functions:
        heaviest, at, total = function.heaviest, 0, 0.0
        for low, high in zip(bounds.lower, bounds.upper, strict=True):
            size = np.maximum(np.abs(low[-1]), np.abs(high[-1]))
            total += float((heaviest[at : at + size.size] * size).max())
            at += size.size
        found.append(total)
    shared = np.sum([function.used for function in functions], axis=0)
    if np.any(shared > 1):  # an output of several functions has one unit
        found = [max(found)] * len(found)
    return _units(np.array(found))


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
    origin
        The problem with inputs that are far from zero moved there.
    units
        That problem and its bounds in units of order one.
    formulation
        Their model.

    Examples
    --------
    >>> from ennopt import Domain
    >>> from ennopt.milp.highs import Highs
    >>> net = Network([[[3e6]], [[2e-9]]], [[0.0], [0.0]])
    >>> problem = Canonical.sum_of([net], Domain([-1.0], [1e-3]))
    >>> scaled = ScaledModel.of(problem, problem.root)
    >>> found = Highs().solve(scaled.model)
    >>> scaled.point(found.x), round(scaled.proved(found.bound, Highs()), 9)
    (array([0.001]), 6e-06)
    """

    origin: Centred
    units: Normalized
    formulation: Formulation

    @classmethod
    def of(
        cls, problem: Canonical, bounds: NeuronBounds, guides: Sequence[Array] = ()
    ) -> ScaledModel:
        """The model of a problem with bounds of its neurons on its domain.

        Where rows say only in part what the problem is, they are made sharp at some
        points `guides` in the problem's units, in the domain or not.
        """
        origin = centred(problem)
        units = normalized(origin.problem, bounds)
        made = cls(origin, units, big_m(units.problem, units.bounds))
        if not made.formulation.lacks_rows:
            return made
        cuts = [cut for x in guides for cut in made.cuts_at(x)]
        model = made.model.with_inequalities(cuts)
        return replace(made, formulation=replace(made.formulation, model=model))

    def cuts_at(self, x: Array) -> list[Inequality]:
        """What `Formulation.cuts` says at a point in the problem's units."""
        return self.formulation.cuts(self.columns(x))

    @property
    def model(self) -> LinearModel:
        """What a solver is given."""
        return self.formulation.model

    def point(self, columns: Array) -> Array:
        """The inputs of a vector of columns, in the problem's units, (num_inputs,)."""
        return self.formulation.point(columns) * self.units.inputs + self.origin.shift

    def columns(self, x: Array) -> Array:
        """All columns at a point in the problem's units, by the forward pass."""
        inside = (x - self.origin.shift) / self.units.inputs
        return self.formulation.assignment(inside)

    def proved(self, bound: float, solver: Backend | None = None) -> float:
        """What a bound of the model proves, in the problem's units.

        Parameters
        ----------
        bound
            Of the model.
        solver
            Who claims it: the bound of a MILP is moved outward by its margin.
            ``None`` for a rigorous bound, such as those of linear programs.
        """
        margin = 0.0
        if solver is not None and self.model.num_integer:
            low, high = self.units.problem.range(self.units.bounds)
            margin = solver.capabilities.margin * (high - low) + TIGHT_TOLERANCE
        return (bound + margin) * self.units.output + self.origin.error

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
