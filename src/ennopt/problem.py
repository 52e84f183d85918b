"""What is optimized, as the user says it: predictions, limits, a feasible set.

Methods see its canonical form (`ennopt.canonical`): networks over one feasible set.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.domain import Domain
from ennopt.network import Array, Ensemble
from ennopt.risk import MeanMinusMad, MeanMinusStd, Risk

Sense: TypeAlias = Literal["max", "min"]
Output: TypeAlias = int | npt.ArrayLike | None

ZERO_SHARE = 0.01
"""Near value zero a relative gap means nothing: there, `gap * ZERO_SHARE` absolute."""

GAP_FLOOR = 1e-10
"""Smallest |value| that a relative gap is divided by."""

LARGEST_PREDICTION = 1e150
"""Sums beyond this are refused: rounding margins, and squares, would overflow."""

SMALLEST_DISTANCE = 1e-290
"""Closer than this counts as equal: numbers so small have no relative precision."""


def relative_gap(value: float, bound: float) -> float:
    """``|bound - value| / max(|value|, 1e-10)``; infinite while one is unknown."""
    if not (np.isfinite(value) and np.isfinite(bound)):
        return float("inf")
    return abs(bound - value) / max(abs(value), GAP_FLOOR)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A prediction of an ensemble, times a number.

    Parameters
    ----------
    ensemble
        What predicts.
    factor
        The number.
    output
        As `Problem.output`.
    risk
        How pessimistic the prediction is; ``None`` for the ensemble's own weighted
        sum of its members. A risk needs members of equal weights.
    """

    ensemble: Ensemble
    factor: float = 1.0
    output: Output = None
    risk: Risk | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "output", _coefficients(self.output, self.ensemble))
        weights = self.ensemble.weights
        if self.risk is not None and np.any(weights != weights[0]):
            raise ValueError(
                f"Expected members of equal weights for {self.risk!r}, got "
                f"{weights.tolist()!r:.80}. A risk counts every member alike."
            )

    @property
    def own_risk(self) -> Risk | None:
        """The risk, ``None`` where it is the mean."""
        count = len(self.ensemble.members)
        return None if self.risk is None or self.risk.is_mean(count) else self.risk

    @property
    def is_disagreement(self) -> bool:
        """Whether it is how far members disagree, and no prediction."""
        deviations = (MeanMinusStd, MeanMinusMad)
        return isinstance(self.risk, deviations) and self.risk.mean == 0.0

    def values(self, points: Array) -> Array:
        """Pessimistic, (num_points,): ``risk(factor * predictions of the members)``."""
        if self.own_risk is None:
            return self.factor * self.chosen(self.ensemble(np.atleast_2d(points)))
        members = self.members(points)
        weights = self.own_risk.respond(members)
        return np.asarray(np.einsum("ne,ne->n", weights, members))

    def members(self, points: Array) -> Array:
        """What a risk is of: factor times predictions, (num_points, num_members)."""
        points, ensemble = np.atleast_2d(points), self.ensemble
        share = self.factor * len(ensemble.members) * ensemble.weights[0]
        each = [self.chosen(member(points)) for member in ensemble.members]
        return np.asarray(share * np.stack(each, axis=1))

    def chosen(self, outputs: Array) -> Array:
        """The output asked for, of (..., num_outputs)."""
        if self.output is None:
            return outputs[..., 0]
        coefficients = np.asarray(self.output)
        (used,) = np.nonzero(coefficients)
        if used.size == 1 and coefficients[used[0]] == 1.0:
            return outputs[..., used[0]]  # exactly, whatever the others are
        return np.asarray(outputs @ coefficients)


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """A sum of predictions, a linear function of the inputs and a constant.

    Risks are pessimistic: low where the function is to be large.

    Parameters
    ----------
    terms
        The predictions.
    inputs
        Factors of the inputs, (num_inputs,).
    constant
        What is added.
    text
        What the user calls it, for messages and reports; empty if it has no name.
    """

    terms: tuple[Term, ...]
    inputs: Array
    constant: float = 0.0
    text: str = ""

    def negated(self) -> Combination:
        """Minus the function; its risks are then low where it is large."""
        terms = tuple(replace(term, factor=-term.factor) for term in self.terms)
        return Combination(terms, -self.inputs, -self.constant)

    def values(self, points: Array) -> Array:
        """At many points, (num_points,)."""
        points = np.atleast_2d(points)
        if not self.inputs.any() and self.constant == 0.0 and len(self.terms) == 1:
            return self.terms[0].values(points)
        total = points @ self.inputs + self.constant
        for term in self.terms:
            total = total + term.values(points)
        return np.asarray(total)


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """A condition on predictions: ``function(x) >= least``.

    Parameters
    ----------
    function
        With pessimistic risks.
    least
        What it must reach.
    text
        The condition as the user stated it.
    sign
        What the user states is this times the function: -1 for an upper limit.
    """

    function: Combination
    least: float
    text: str = "a limit"
    sign: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Maximize or minimize a prediction over `domain`.

    Parameters
    ----------
    ensemble
        What predicts. Of several predictions, the one that a result tells the members
        of.
    domain
        Where the inputs may lie.
    sense
        ``"max"`` or ``"min"``.
    output
        Which of several outputs: its index, or the coefficients of a linear
        combination, (num_outputs,). ``None`` for a single output.
    goal
        What is optimized, if it is not the prediction of `ensemble`.
    limits
        Conditions on predictions.
    """

    ensemble: Ensemble
    domain: Domain
    sense: Sense = "max"
    output: Output = None
    goal: Combination = None  # type: ignore[assignment]
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        if self.sense not in ("max", "min"):
            raise ValueError(f"Expected sense 'max' or 'min', got {self.sense!r}.")
        object.__setattr__(self, "output", _coefficients(self.output, self.ensemble))
        object.__setattr__(self, "limits", tuple(self.limits))
        d = self.domain.num_inputs
        if self.goal is None:
            term = Term(self.ensemble, output=self.output)
            object.__setattr__(self, "goal", Combination((term,), np.zeros(d)))
        for function in self.functions():
            for ensemble in (self.ensemble, *(t.ensemble for t in function.terms)):
                if ensemble.num_inputs != d:
                    raise ValueError(
                        f"Expected a domain of {ensemble.num_inputs} inputs, got {d}."
                    )
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = [float(self.domain.widths.max())]
            for function in self.functions():
                sizes += self._sizes(function)
        if not all(size <= LARGEST_PREDICTION for size in sizes):  # NaN is refused too
            raise ValueError(
                f"Expected predictions and bounds of at most {LARGEST_PREDICTION:g}, "
                f"got sums of up to {max(sizes):.3g}. Narrow the bounds or rescale the "
                "model."
            )

    def functions(self) -> Iterator[Combination]:
        """The goal, then those of the limits."""
        yield self.goal
        for limit in self.limits:
            yield limit.function

    @property
    def is_prediction(self) -> bool:
        """Whether the goal is what a model predicts, and nothing else."""
        goal = self.goal
        return (
            len(goal.terms) == 1
            and goal.terms[0].factor == 1.0
            and not goal.terms[0].is_disagreement
            and goal.constant == 0.0
            and not goal.inputs.any()
        )

    def values(self, points: Array) -> Array:
        """What is optimized at many points, (num_points,)."""
        if self.sense == "max":
            return self.goal.values(points)
        return -self.goal.negated().values(points)

    def limit_values(self, points: Array) -> Array:
        """The functions of the limits at many points, (num_points, num_limits)."""
        points = np.atleast_2d(points)
        found = [limit.function.values(points) for limit in self.limits]
        return np.array(found).reshape(len(found), len(points)).T

    def member_values(self, x: Array) -> Array:
        """What each member predicts at a point, (num_members,)."""
        main = Term(self.ensemble, output=self.output)
        return main.chosen(self.ensemble.member_values(x))

    def _sizes(self, function: Combination) -> list[float]:
        """Largest absolute sums: of a function, and inside any member."""
        total, inside = float(np.abs(function.inputs) @ self.domain.reach), 0.0
        total += abs(function.constant)
        for term in function.terms:
            factors = abs(term.factor) * np.abs(term.ensemble.weights)
            for factor, member in zip(factors, term.ensemble.members, strict=True):
                y = member.absolute(self.domain.reach)
                inside = max(inside, *(float(layer.max()) for layer in y))
                total += float(factor) * float(y[-1].max())
        return [total, inside]


def _coefficients(output: Output, ensemble: Ensemble) -> Array | None:
    count = ensemble.num_outputs
    if output is None:
        if count > 1:
            raise ValueError(
                f"Expected the output to optimize, got none for a model of {count} "
                "outputs. Pass output=0 or coefficients, one for each output."
            )
        return None
    if np.ndim(output) == 0:
        try:
            index = operator.index(output)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(
                f"Expected output as an index or as coefficients, got {output!r}."
            ) from error
        if not 0 <= index < count:
            raise ValueError(f"Expected an output in 0..{count - 1}, got {index}.")
        unit: Array = np.eye(count)[index]
        return unit
    vector = np.asarray(output, dtype=np.float64)
    if vector.shape != (count,) or not np.isfinite(vector).all():
        raise ValueError(
            f"Expected {count} finite output coefficients, got {output!r:.80}."
        )
    return vector
