"""What every method sees: a sum of networks to maximize over a feasible set.

`Problem` is what the user says; `Canonical.of` resolves it once: the sense, the choice
of an output, the factors of the members, members that share their hidden layers. All
that searches, models and checks need beside the weights is here, too, computed when
first asked for: bounds of the neurons on the whole set, the sizes that rounding errors
are measured by, the spread of the objective. The way back, to the user's sense and
names, is `ennopt.run.Run`, the record of a run.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from ennopt.activations import RELU
from ennopt.bounds.linear import network_bounds
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.rounding import (
    LATER_ROUNDINGS_PER_TERM,
    UNIT,
    UPWARD,
    network_sizes,
    relative_error,
)
from ennopt.domain import Domain
from ennopt.domain.convex import CLOSE
from ennopt.network import Array, Network, frozen
from ennopt.problem import SMALLEST_DISTANCE, ZERO_SHARE, Problem

SPREAD_POINTS = 256


class Feature(enum.Enum):
    """Something a problem may have that not every method can handle."""

    LINEAR_ROWS = "linear constraints on the inputs"
    DISCRETE = "inputs that take whole numbers or listed values only"
    NEAR_DATA = "inputs near rows of data"
    CONVEX = "inputs in a convex region around data"
    ACTIVATIONS = "activations other than ReLU"
    LIMITS = "limits on predictions"
    RISK = "an objective other than a weighted sum"
    WEIGHTS = "outputs weighted by other numbers than 1"
    OUTPUTS = "several outputs of one network"


class UnsupportedProblemError(ValueError):
    """A method was asked for what it cannot handle."""


INPUT_SETS = frozenset(
    {Feature.LINEAR_ROWS, Feature.DISCRETE, Feature.NEAR_DATA, Feature.CONVEX}
)
"""What a feasible set may have beside a box."""

MILP_SETS = INPUT_SETS - {Feature.CONVEX}
"""What rows and binaries of a model say of it."""


class Weighting(Protocol):
    """A set W of weightings of the outputs: the objective is ``min_{w in W} w . f(x)``.

    Any w in W gives an upper bound of the objective. Improving w is a matter of speed,
    never of truth.
    """

    def respond(self, outputs: Array) -> Array:
        """The weighting in W with the least sum, (..., num_outputs)."""


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """One weighting: a weighted sum of the outputs.

    Examples
    --------
    >>> Fixed(np.ones(2)).respond(np.array([3.0, 4.0]))
    array([1., 1.])
    """

    weights: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", frozen(self.weights))

    def respond(self, outputs: Array) -> Array:
        """The one weighting there is."""
        return np.broadcast_to(self.weights, np.shape(outputs))


@dataclass(frozen=True, slots=True, eq=False)
class PredictionLimits:
    """Conditions ``matrix @ outputs >= least`` on predictions.

    Parameters
    ----------
    matrix
        (num_limits, num_outputs)
    least
        (num_limits,)
    """

    matrix: Array
    least: Array

    def __post_init__(self) -> None:
        for name in ("matrix", "least"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    @classmethod
    def none(cls, num_outputs: int) -> PredictionLimits:
        """No limits."""
        return cls(np.zeros((0, num_outputs)), np.zeros(0))

    @property
    def count(self) -> int:
        """Number of limits."""
        return len(self.least)


@dataclass(frozen=True, eq=False, repr=False)
class Canonical:
    """Maximize the least weighting of some outputs over a feasible set.

    Parameters
    ----------
    networks
        Stacks of hidden layers, each with the outputs over it as its last affine layer.
        No two have the same hidden layers. Outputs are numbered network by network.
    domain
        The feasible set.
    weighting
        How outputs make the objective; ``None`` for their plain sum.
    limits
        Conditions on outputs; ``None`` for none.
    sizes
        ``|weights|`` and ``|biases|`` of the outputs of each network, as they were
        before outputs were merged: what cancels leaves its rounding behind. ``None``
        for the networks' own.
    additions
        How many outputs were added up to those that are left.
    sign
        The user's objective is this times the objective here: -1 for a minimization.
    origin
        What the user said, if this was made from it: its forward pass gives values.
    known
        Bounds of the neurons on the set that are already proved, if any.

    Examples
    --------
    >>> from ennopt import Ensemble
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem = Canonical.of(Problem(Ensemble([net, net]), Domain([-1.0], [2.0])))
    >>> problem
    Canonical(1 network, 2 hidden neurons, 1 output, 1 input)
    >>> problem.values(np.array([[2.0]]))
    array([2.])
    """

    networks: tuple[Network, ...]
    domain: Domain
    weighting: Weighting = None  # type: ignore[assignment]
    limits: PredictionLimits = None  # type: ignore[assignment]
    sizes: tuple[tuple[Array, Array], ...] = None  # type: ignore[assignment]
    additions: int = 0
    sign: float = 1.0
    origin: Problem | None = None
    known: NeuronBounds | None = None

    def __post_init__(self) -> None:
        if self.weighting is None:
            weighting = Fixed(np.ones(self.num_outputs))
            object.__setattr__(self, "weighting", weighting)
        if self.limits is None:
            object.__setattr__(self, "limits", PredictionLimits.none(self.num_outputs))
        if self.sizes is None:
            own = tuple(
                (np.abs(n.weights[-1]), np.abs(n.biases[-1])) for n in self.networks
            )
            object.__setattr__(self, "sizes", own)

    @classmethod
    def of(cls, problem: Problem) -> Canonical:
        """The canonical form of what a user says."""
        sign = 1.0 if problem.sense == "max" else -1.0
        ensemble, coefficients = problem.ensemble, np.ones((1, 1))
        if problem.output is not None:
            coefficients = np.atleast_2d(np.asarray(problem.output))
        folded, sizes = [], []
        for member, weight in zip(ensemble.members, ensemble.weights, strict=True):
            factor = sign * float(weight)
            one = (
                member
                if problem.output is None
                else member.combine_outputs(coefficients)
            )
            folded.append(one.fold_output(factor, 0.0))
            # Outputs that cancel leave their rounding behind.
            share = abs(factor) * np.abs(coefficients)
            sizes.append(
                (share @ np.abs(member.weights[-1]), share @ np.abs(member.biases[-1]))
            )
        networks, merged_sizes = merged(folded, sizes)
        return cls(
            networks, problem.domain, sizes=merged_sizes,
            additions=len(folded) * ensemble.num_outputs, sign=sign, origin=problem,
        )  # fmt: skip

    @classmethod
    def sum_of(
        cls, networks: Sequence[Network], domain: Domain,
        known: NeuronBounds | None = None,
    ) -> Canonical:  # fmt: skip
        """Maximize the plain sum of networks of one output each, taken as they are."""
        return cls(tuple(networks), domain, known=known)

    def on(self, domain: Domain, known: NeuronBounds | None = None) -> Canonical:
        """The same objective over another set, a part of this one."""
        return replace(self, domain=domain, known=known)

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return self.domain.num_inputs

    @property
    def num_outputs(self) -> int:
        """Number of outputs of all networks."""
        return sum(network.num_outputs for network in self.networks)

    @property
    def num_neurons(self) -> int:
        """Number of hidden neurons of all networks."""
        return sum(network.num_neurons for network in self.networks)

    @property
    def is_relu(self) -> bool:
        """Whether all hidden neurons are ReLU."""
        return all(network.is_relu for network in self.networks)

    @property
    def features(self) -> frozenset[Feature]:
        """What a method must be able to handle."""
        found = set()
        if self.domain.linear.count:
            found.add(Feature.LINEAR_ROWS)
        if not self.domain.values.any:
            found.add(Feature.DISCRETE)
        if self.domain.regions:
            found.add(Feature.NEAR_DATA)
        if self.domain.convex:
            found.add(Feature.CONVEX)
        if not self.is_relu:
            found.add(Feature.ACTIVATIONS)
        if self.limits.count:
            found.add(Feature.LIMITS)
        if not isinstance(self.weighting, Fixed):
            found.add(Feature.RISK)
        elif np.any(self.weighting.weights != 1.0):
            found.add(Feature.WEIGHTS)
        if any(network.num_outputs != 1 for network in self.networks):
            found.add(Feature.OUTPUTS)
        return frozenset(found)

    def expect(self, handled: frozenset[Feature], who: str) -> None:
        """Refuse, by name, features that are not `handled` by somebody."""
        missing = sorted(feature.value for feature in self.features - handled)
        if missing:
            raise UnsupportedProblemError(
                f"Expected a problem without {' and '.join(missing)}, which {who} "
                "cannot handle. Use method='auto'."
            )

    def expect_relu(self, who: str) -> None:
        """Refuse other activations on behalf of what is made for ReLU alone."""
        self.expect(frozenset(Feature) - {Feature.ACTIVATIONS}, who)

    # Values.

    def values(self, points: Array) -> Array:
        """The objective at many points by the forward pass, (num_points,)."""
        points = np.atleast_2d(points)
        if self.origin is not None:
            return self.sign * self.origin.values(points)
        outputs = self.outputs(points)
        weights = self.weighting.respond(outputs)
        return np.asarray(np.einsum("nm,nm->n", weights, outputs))

    def outputs(self, points: Array) -> Array:
        """All outputs at many points, (num_points, num_outputs)."""
        return np.concatenate([network(points) for network in self.networks], axis=1)

    def gradients(self, points: Array) -> Array:
        """Slopes of the objective at many points, (num_points, num_inputs)."""
        weights = self.weighting.respond(self.outputs(points))
        slopes = np.concatenate([n.gradient(points) for n in self.networks], axis=1)
        return np.asarray(np.einsum("nm,nmp->np", weights, slopes))

    def range(self, bounds: NeuronBounds) -> tuple[float, float]:
        """Range of a plain sum of outputs by the bounds of the outputs."""
        return bounds.prediction(np.ones(len(self.networks)))

    # What rounding errors are measured by.

    @cached_property
    def gamma(self) -> float:
        """Relative rounding of a bound; see `ennopt.bounds.rounding`."""
        return relative_error(self.networks) + 4 * self.additions * UNIT

    @cached_property
    def unit(self) -> float:
        """Relative rounding of a sum over the inputs and a few terms more."""
        return (64 + 8 * self.num_inputs) * UNIT

    @cached_property
    def root(self) -> NeuronBounds:
        """Bounds of all neurons on the whole set, by linear relaxations."""
        lower, upper = [], []
        for i, network in enumerate(self.networks):
            known = None
            if self.known is not None:
                known = self.known.lower[i], self.known.upper[i]
            low, high = network_bounds(
                network, self.domain.lower, self.domain.upper, self.gamma, known,
                linear=self.known is None, outputs=self.sizes[i],
            )  # fmt: skip
            lower.append(low)
            upper.append(high)
        return NeuronBounds(tuple(lower), tuple(upper))

    @cached_property
    def row_sizes(self) -> tuple[tuple[Array, ...], ...]:
        """``[network][layer]``: bounds m of ``|W| |y| + |b|`` on the set, (width,)."""
        reach, root = self.domain.reach, self.root
        return tuple(
            tuple(network_sizes(network, reach, bounds, sizes))
            for network, bounds, sizes in zip(
                self.networks, zip(root.lower, root.upper, strict=True), self.sizes,
                strict=True,
            )
        )  # fmt: skip

    @cached_property
    def row_errors(self) -> tuple[tuple[Array, ...], ...]:
        """``[network][layer]``: rounding of a bound, per unit of its coefficient."""
        later = relative_error(self.networks, LATER_ROUNDINGS_PER_TERM)
        later += 4 * self.additions * UNIT
        return tuple(
            tuple((later if k else self.gamma) * size for k, size in enumerate(sizes))
            for sizes in self.row_sizes
        )

    @cached_property
    def size(self) -> float:
        """Largest magnitude that the objective can have on the set, generously."""
        return float(sum(sizes[-1].sum() for sizes in self.row_sizes)) * UPWARD

    @cached_property
    def scale(self) -> float:
        """Largest magnitude that sums of absolute values can have in a forward pass.

        It does not vanish where neurons are dead or members cancel, so it says what
        counts as close to zero.
        """
        total = 0.0
        for network, (weights, biases) in zip(self.networks, self.sizes, strict=True):
            measured = network.with_output(weights, biases)
            total += float(measured.absolute(self.domain.reach)[-1].sum())
        return total

    @cached_property
    def spread(self) -> float:
        """Range of the objective over many points: a size that no shift changes."""
        return float(np.ptp(self.values(self._points())))

    @cached_property
    def noise(self) -> float:
        """Rounding margin of a bound where all signs are decided: most of many points.

        And what the objective gains where the set is wider by its slack. An estimate of
        what cannot be proved; no bound rests on it.
        """
        points, total = self._points(), np.zeros(SPREAD_POINTS)
        gradients = np.zeros_like(points)
        for network, errors in zip(self.networks, self.row_errors, strict=True):
            hidden = network.preactivations(points)[:-1]
            total += errors[-1].sum()
            row = np.tile(network.weights[-1].sum(axis=0), (len(points), 1))
            for s in range(len(hidden) - 1, -1, -1):
                kind, h = network.activations[s], hidden[s]
                slopes = kind.slope(h)
                if kind != RELU:
                    shifts = np.abs(kind.value(h) - slopes * h)
                    total += self.gamma * (np.abs(row) * shifts).sum(axis=1)
                total += np.abs(row) @ errors[s]
                row = (row * slopes) @ network.weights[s]
            gradients += row if hidden else network.weights[0].sum(axis=0)
        return float(total.max()) + self._gain(gradients)

    def _gain(self, gradients: Array) -> float:
        """What the slack of the set is worth, about, with such slopes."""
        domain = self.domain
        steepest = float(np.linalg.norm(gradients * domain.widths, axis=1).max())
        lengths = np.linalg.norm(domain.linear.matrix * domain.widths, axis=1)
        used = lengths > 0.0
        missed = (domain.slack[used] / lengths[used]).sum() + CLOSE * len(domain.convex)
        return float(steepest * missed)

    def _points(self) -> Array:
        """Points all over the surrounding box, (SPREAD_POINTS, num_inputs)."""
        lower, upper = self.domain.lower, self.domain.upper
        # Multiples of irrational numbers, modulo one: spread out, and nothing to load.
        steps = np.sqrt(np.arange(2, 2 + self.num_inputs) + 0.5)
        shares = np.arange(SPREAD_POINTS)[:, None] * steps % 1.0
        return np.asarray(np.clip(lower + shares * self.domain.widths, lower, upper))

    def tolerance(self, value: float, gap: float) -> float:
        """How far above `value` a bound may stay when the gap counts as closed."""
        relative = gap * max(abs(value), ZERO_SHARE * min(1.0, self.scale))
        return max(relative, SMALLEST_DISTANCE)

    def __repr__(self) -> str:
        def many(count: int, what: str) -> str:
            return f"{count} {what}{'s' * (count != 1)}"

        parts = [
            many(len(self.networks), "network"),
            many(self.num_neurons, "hidden neuron"),
            many(self.num_outputs, "output"),
            many(self.num_inputs, "input"),
            *(feature.value for feature in sorted(self.features, key=str)),
        ]
        return f"Canonical({', '.join(parts)})"


def merged(
    members: Sequence[Network], sizes: Sequence[tuple[Array, Array]]
) -> tuple[tuple[Network, ...], tuple[tuple[Array, Array], ...]]:
    """Members with the same hidden layers become one whose output is their sum.

    Copies that cancel would otherwise be relaxed apart. `sizes` are the absolute output
    weights and biases of each member; returns the networks and the sums of theirs.
    """
    kept: dict[tuple[bytes, ...], tuple[Network, Array, Array]] = {}
    for own, (weights, bias) in zip(members, sizes, strict=True):
        hidden = (*own.weights[:-1], *own.biases[:-1])
        shape = f"{own.hidden_widths} {own.activations}"
        key = (shape.encode(), *(array.tobytes() for array in hidden))
        if key in kept:
            twin, others, shifts = kept[key]
            own = own.with_output(
                twin.weights[-1] + own.weights[-1], twin.biases[-1] + own.biases[-1]
            )
            weights, bias = weights + others, bias + shifts
        kept[key] = own, weights, bias
    networks = tuple(network for network, _, _ in kept.values())
    return networks, tuple((weights, bias) for _, weights, bias in kept.values())
