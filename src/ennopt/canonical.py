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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
from ennopt.network import Array, Ensemble, Network
from ennopt.problem import SMALLEST_DISTANCE, ZERO_SHARE, Combination, Problem, Term
from ennopt.risk import Risk, Worst
from ennopt.weighting import PredictionLimits, Weighting

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

MODELLED = frozenset(Feature) - {Feature.ACTIVATIONS}
"""What rows, columns and cuts of a MILP say of a problem."""


LIMIT_ACCEPTED = 0.9
"""Share of the slack of a limit that a point may miss it by: bounds hold for all of
it, and the rest is for rounding."""

LIMIT_SLACK = 1e-9
"""Share of a limit's spread that a point may miss it by."""


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
        Conditions on functions of the outputs.
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
    limits: PredictionLimits = PredictionLimits()  # noqa: RUF009 - frozen
    sizes: tuple[tuple[Array, Array], ...] = None  # type: ignore[assignment]
    additions: int = 0
    sign: float = 1.0
    origin: Problem | None = None
    known: NeuronBounds | None = None

    def __post_init__(self) -> None:
        if self.weighting is None:
            weighting = Weighting(np.ones(self.num_outputs))
            object.__setattr__(self, "weighting", weighting)
        if self.sizes is None:
            own = tuple(
                (np.abs(n.weights[-1]), np.abs(n.biases[-1])) for n in self.networks
            )
            object.__setattr__(self, "sizes", own)

    @classmethod
    def of(cls, problem: Problem) -> Canonical:
        """The canonical form of what a user says."""
        domain = problem.domain.enclosed()
        sign = 1.0 if problem.sense == "max" else -1.0
        goal = problem.goal if sign > 0 else problem.goal.negated()
        limits = [
            (part, limit.least)
            for limit in problem.limits
            for part in each_alone(limit.function)
        ]
        if not limits and all(term.own_risk is None for term in goal.terms):
            rows = list(_rows(goal))
            networks, sizes = merged(
                [row for row, _, _ in rows], [(w, b) for _, w, b in rows]
            )
            return cls(
                networks, domain, sizes=sizes,
                additions=_additions([goal]), sign=sign, origin=problem,
            )  # fmt: skip
        outputs = _Outputs()
        functions = [outputs.add(part) for part in (goal, *(f for f, _ in limits))]
        networks, sizes = outputs.networks()
        weightings = [outputs.weighting(*function) for function in functions]
        return cls(
            networks, domain, weightings[0],
            PredictionLimits(
                tuple(weightings[1:]), np.array([least for _, least in limits])
            ),
            sizes, _additions([goal, *(f for f, _ in limits)]), sign, problem,
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
        limits = self.limits
        if limits.count:  # a point that counts as feasible does so in every part
            limits = replace(limits, slack=self.slack)
        return replace(self, domain=domain, known=known, limits=limits)

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
        if not self.weighting.is_fixed:
            found.add(Feature.RISK)
        if self.is_sum or self.limits.count or not self.weighting.is_fixed:
            return frozenset(found)  # those have weights and several outputs anyway
        if np.any(self.weighting.weights != 1.0):
            found.add(Feature.WEIGHTS)
        if any(network.num_outputs != 1 for network in self.networks):
            found.add(Feature.OUTPUTS)
        return frozenset(found)

    @property
    def is_sum(self) -> bool:
        """Whether it is the plain sum of networks of one output each, no limits."""
        return (
            self.limits.count == 0
            and self.weighting.is_fixed
            and bool(np.all(self.weighting.weights == 1.0))
            and all(network.num_outputs == 1 for network in self.networks)
        )

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
        return self.weighting.values(self.outputs(points))

    def feasible(self, points: Array) -> NDArray[np.bool_]:
        """Which points are in the set and meet every limit, (num_points,)."""
        points = np.atleast_2d(points)
        found = self.domain.feasible(points)
        if self.limits.count and found.any():
            over = self.limits.values(self.outputs(points[found])) - self.limits.least
            found[found] = np.all(over >= -LIMIT_ACCEPTED * self.slack, axis=1)
        return found

    @property
    def is_never_empty(self) -> bool:
        """Whether every point of the surrounding box is feasible."""
        return self.domain.is_box and not self.limits.count

    def contains(self, x: Array) -> bool:
        """Whether a point is in the set and meets every limit."""
        return bool(self.feasible(x)[0])

    def outputs(self, points: Array) -> Array:
        """All outputs at many points, (num_points, num_outputs)."""
        return np.concatenate([network(points) for network in self.networks], axis=1)

    def gradients(self, points: Array) -> Array:
        """Slopes of the objective at many points, (num_points, num_inputs)."""
        weights = self.weighting.respond(self.outputs(points))
        slopes = np.concatenate([n.gradient(points) for n in self.networks], axis=1)
        return np.asarray(np.einsum("nm,nmp->np", weights, slopes))

    def range(self, bounds: NeuronBounds) -> tuple[float, float]:
        """Range of the objective by the bounds of the outputs."""
        if self.is_sum:
            return bounds.prediction(np.ones(len(self.networks)))
        low = np.concatenate([layers[-1] for layers in bounds.lower])
        high = np.concatenate([layers[-1] for layers in bounds.upper])
        # Any weighting bounds the function from above; from below all of them do.
        own = self.weighting.respond(0.5 * (low + high))
        most = np.where(own > 0.0, own * high, own * low)
        size = self.weighting.heaviest @ np.maximum(np.abs(low), np.abs(high))
        rounding = 4.0 * low.size * UNIT * float(size + np.abs(most).sum())
        least, _ = self.weighting.range(low, high)
        return least - rounding, float(most.sum()) + rounding

    def ceiling(self, bounds: NeuronBounds) -> float:
        """No feasible point has a larger objective, by the bounds of the outputs.

        With any factor of at least zero, no point that meets a limit has an objective
        above ``objective + factor * (limit - least)``. Where both are multiples of the
        same output it cancels: what shall be small but not below its own limit is at
        that limit at best, which majorants on boxes do not see.
        """
        top = self.range(bounds)[1]
        if not self.limits.count:
            return top
        low = np.concatenate([layers[-1] for layers in bounds.lower])
        high = np.concatenate([layers[-1] for layers in bounds.upper])
        sizes = np.concatenate([layers[-1] for layers in self.row_sizes])
        middle, multiples = 0.5 * (low + high), self._multiples()
        weights = self.weighting.respond(middle)
        gained, passed = 0.0, float(np.abs(weights) @ sizes)  # sums, which round
        weights = weights @ multiples
        for limit, least in zip(
            self.limits.functions, self.limits.least - self.slack, strict=True
        ):
            function = limit.respond(middle)
            own = function @ multiples
            some = own * weights < 0.0
            factors = np.append(0.0, -weights[some] / own[some])
            sums = weights + factors[:, None] * own
            tops = np.where(sums > 0.0, sums * high, sums * low).sum(axis=1)
            best = int(np.argmin(tops - factors * least))
            weights, gained = sums[best], gained - float(factors[best] * least)
            passed += float(factors[best] * (np.abs(function) @ sizes + abs(least)))
        most = float(np.where(weights > 0.0, weights * high, weights * low).sum())
        implied = most + gained + 16.0 * self.gamma * passed
        return min(top, implied) if np.isfinite(implied) else top

    def _multiples(self) -> Array:
        """Outputs as multiples of the first ones that they are multiples of.

        Up to rounding ``outputs = multiples @ outputs``, (num_outputs, num_outputs).
        """
        found, at = np.zeros((self.num_outputs, self.num_outputs)), 0
        for network in self.networks:
            rows = np.column_stack([network.weights[-1], network.biases[-1]])
            for r, row in enumerate(rows):
                found[at + r, at + r] = 1.0
                for first in range(r):
                    pivot = int(np.argmax(np.abs(rows[first])))
                    share = row[pivot] / (rows[first, pivot] or np.inf)
                    if np.all(np.abs(row - share * rows[first]) <= 4 * UNIT * abs(row)):
                        found[at + r, [at + r, at + first]] = 0.0, share
                        break
            at += network.num_outputs
        return found

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
    def limit_spread(self) -> Array:
        """Range of each limit's function over many points, (num_limits,)."""
        found = self.limits.values(self.outputs(self._points()))
        return np.asarray(np.ptp(found, axis=0))

    @cached_property
    def slack(self) -> Array:
        """How far a point may miss each limit, (num_limits,).

        A share of how far its function varies, and the rounding of a forward pass.
        """
        if self.limits.slack is not None:
            return self.limits.slack
        outputs = np.concatenate([sizes[-1] for sizes in self.row_sizes])
        rounding = np.array(
            [16.0 * self.gamma * (f.heaviest @ outputs) for f in self.limits.functions]
        )
        return np.asarray(LIMIT_SLACK * self.limit_spread + rounding)

    @cached_property
    def noise(self) -> float:
        """Rounding margin of a bound where all signs are decided: most of many points.

        And what the objective gains where the set is wider by its slack. An estimate of
        what cannot be proved; no bound rests on it.
        """
        points = self._points()
        weights = (
            self.weighting.heaviest if not self.is_sum else np.ones(self.num_outputs)
        )
        total, gradients = np.zeros(SPREAD_POINTS), np.zeros_like(points)
        at = 0
        for network, errors in zip(self.networks, self.row_errors, strict=True):
            own = weights[at : at + network.num_outputs]
            at += network.num_outputs
            hidden = network.preactivations(points)[:-1]
            total += own @ errors[-1]
            row = np.tile(own @ network.weights[-1], (len(points), 1))
            for s in range(len(hidden) - 1, -1, -1):
                kind, h = network.activations[s], hidden[s]
                slopes = kind.slope(h)
                if kind != RELU:
                    shifts = np.abs(kind.value(h) - slopes * h)
                    total += self.gamma * (np.abs(row) * shifts).sum(axis=1)
                total += np.abs(row) @ errors[s]
                row = (row * slopes) @ network.weights[s]
            gradients += row if hidden else own @ network.weights[0]
        return float(total.max()) + self._gain(gradients)

    def _gain(self, gradients: Array) -> float:
        """What the slack of the set is worth, about, with such slopes.

        Inputs that take some values only cannot use it.
        """
        domain = self.domain
        free = np.where(domain.values.discrete, 0.0, domain.widths)
        steepest = float(np.linalg.norm(gradients * free, axis=1).max())
        lengths = np.linalg.norm(domain.linear.matrix * domain.widths, axis=1)
        used = lengths > 0.0
        missed = (domain.slack[used] / lengths[used]).sum() + CLOSE * len(domain.convex)
        limited = LIMIT_SLACK * self.limits.count * self.spread
        return float(steepest * missed) + limited

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
        key = hidden_key(own)
        if key in kept:
            twin, others, shifts = kept[key]
            own = own.with_output(
                twin.weights[-1] + own.weights[-1], twin.biases[-1] + own.biases[-1]
            )
            weights, bias = weights + others, bias + shifts
        kept[key] = own, weights, bias
    networks = tuple(network for network, _, _ in kept.values())
    return networks, tuple((weights, bias) for _, weights, bias in kept.values())


def each_alone(function: Combination) -> list[Combination]:
    """A function that must reach a limit, as functions that all must.

    The worst member reaches a limit if every member does.
    """
    if len(function.terms) != 1 or not isinstance(function.terms[0].own_risk, Worst):
        return [function]
    (term,) = function.terms
    ensemble = term.ensemble
    share = term.factor * len(ensemble.members) * float(ensemble.weights[0])
    return [
        replace(
            function,
            terms=(Term(Ensemble((member,), np.ones(1)), share, term.output),),
        )
        for member in ensemble.members
    ]


def _rows(function: Combination) -> Iterator[tuple[Network, Array, Array]]:
    """Networks of one output that add up to a function without risks.

    With each, the absolute weights and biases of the output: outputs that cancel leave
    their rounding behind.
    """
    for term in function.terms:
        for factor, member in zip(
            term.factor * term.ensemble.weights, term.ensemble.members, strict=True
        ):
            yield _row(term, member, float(factor))
    if function.inputs.any() or function.constant:
        slopes, constant = function.inputs[None], np.array([function.constant])
        yield Network((slopes,), (constant,)), np.abs(slopes), np.abs(constant)


def _row(term: Term, member: Network, factor: float) -> tuple[Network, Array, Array]:
    """A member with the output that a term asks for, times a factor."""
    coefficients, one = np.ones((1, 1)), member
    if term.output is not None:
        coefficients = np.atleast_2d(np.asarray(term.output))
        one = member.combine_outputs(coefficients)
    share = abs(factor) * np.abs(coefficients)
    return (
        one.fold_output(factor, 0.0),
        share @ np.abs(member.weights[-1]),
        share @ np.abs(member.biases[-1]),
    )


def _additions(functions: Sequence[Combination]) -> int:
    """How many outputs are added up at most."""
    return max(
        sum(
            len(term.ensemble.members) * term.ensemble.num_outputs
            for term in function.terms
        )
        for function in functions
    )


class _Outputs:
    """Outputs over stacks of hidden layers, for several functions."""

    def __init__(self) -> None:
        self._stacks: dict[tuple[bytes, ...], list[tuple[Network, Array, Array]]] = {}

    def add(self, function: Combination) -> tuple[list[_Place], list[_Places]]:
        """Outputs of a function: those that are added, and those of each risk."""
        plain = replace(
            function, terms=tuple(t for t in function.terms if t.own_risk is None)
        )
        rows = list(_rows(plain))
        networks, sizes = merged(
            [row for row, _, _ in rows], [(w, b) for _, w, b in rows]
        )
        fixed = [
            self._place(network, *size)
            for network, size in zip(networks, sizes, strict=True)
        ]
        groups = []
        for term in function.terms:
            if term.own_risk is not None:
                ensemble = term.ensemble
                share = term.factor * len(ensemble.members) * ensemble.weights[0]
                places = [
                    self._place(*_row(term, member, float(share)))
                    for member in ensemble.members
                ]
                groups.append((places, term.own_risk))
        return fixed, groups

    def _place(self, row: Network, weights: Array, biases: Array) -> _Place:
        rows = self._stacks.setdefault(hidden_key(row), [])
        rows.append((row, weights, biases))
        return hidden_key(row), len(rows) - 1

    def networks(
        self,
    ) -> tuple[tuple[Network, ...], tuple[tuple[Array, Array], ...]]:
        """Stacks with all their outputs, and the sizes of those."""
        networks, sizes = [], []
        for rows in self._stacks.values():
            stacked = [
                np.concatenate(parts)
                for parts in (
                    [row.weights[-1] for row, _, _ in rows],
                    [row.biases[-1] for row, _, _ in rows],
                    [weights for _, weights, _ in rows],
                    [biases for _, _, biases in rows],
                )
            ]
            networks.append(rows[0][0].with_output(stacked[0], stacked[1]))
            sizes.append((stacked[2], stacked[3]))
        return tuple(networks), tuple(sizes)

    def weighting(self, fixed: list[_Place], groups: list[_Places]) -> Weighting:
        """The function of all outputs that `add` told the places of."""
        starts, count = {}, 0
        for key, rows in self._stacks.items():
            starts[key] = count
            count += len(rows)
        weights = np.zeros(count)
        for key, row in fixed:
            weights[starts[key] + row] = 1.0
        return Weighting(
            weights,
            tuple(
                (tuple(starts[key] + row for key, row in places), risk)
                for places, risk in groups
            ),
        )


_Place = tuple[tuple[bytes, ...], int]
_Places = tuple[list[_Place], Risk]


def hidden_key(network: Network) -> tuple[bytes, ...]:
    """Equal for networks with the same hidden layers."""
    hidden = (*network.weights[:-1], *network.biases[:-1])
    shape = f"{network.hidden_widths} {network.activations}"
    return (shape.encode(), *(array.tobytes() for array in hidden))
