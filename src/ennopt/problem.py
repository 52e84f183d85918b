"""What is optimized, as the user says it: an ensemble, a feasible set and a sense.

Methods see its canonical form (`ennopt.canonical`): networks whose sum is maximized.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.domain import Domain
from ennopt.network import Array, Ensemble

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
class Problem:
    """Maximize or minimize the prediction of `ensemble` over `domain`.

    Parameters
    ----------
    ensemble
        What predicts.
    domain
        Where the inputs may lie.
    sense
        ``"max"`` or ``"min"``.
    output
        Which of several outputs: its index, or the coefficients of a linear
        combination, (num_outputs,). ``None`` for a single output.
    """

    ensemble: Ensemble
    domain: Domain
    sense: Sense = "max"
    output: Output = None

    def __post_init__(self) -> None:
        if self.sense not in ("max", "min"):
            raise ValueError(f"Expected sense 'max' or 'min', got {self.sense!r}.")
        if self.domain.num_inputs != self.ensemble.num_inputs:
            raise ValueError(
                f"Expected a domain of {self.ensemble.num_inputs} inputs, got "
                f"{self.domain.num_inputs}."
            )
        object.__setattr__(self, "output", _coefficients(self.output, self.ensemble))
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = (*self._sizes(), float(self.domain.widths.max()))
        if not all(size <= LARGEST_PREDICTION for size in sizes):  # NaN is refused too
            raise ValueError(
                f"Expected predictions and bounds of at most {LARGEST_PREDICTION:g}, "
                f"got sums of up to {max(sizes):.3g}. Narrow the bounds or rescale the "
                "model."
            )

    def values(self, points: Array) -> Array:
        """Predictions to be optimized at many points, (num_points,)."""
        return self._chosen(self.ensemble(np.atleast_2d(points)))

    def member_values(self, x: Array) -> Array:
        """What each member predicts at a point, (num_members,)."""
        return self._chosen(self.ensemble.member_values(x))

    def _chosen(self, outputs: Array) -> Array:
        if self.output is None:
            return outputs[..., 0]
        coefficients = np.asarray(self.output)
        (used,) = np.nonzero(coefficients)
        if used.size == 1 and coefficients[used[0]] == 1.0:
            return outputs[..., used[0]]  # exactly, whatever the others are
        return np.asarray(outputs @ coefficients)

    def _sizes(self) -> tuple[float, float]:
        """Largest absolute sums: of a prediction, and inside any member."""
        total, inside = 0.0, 0.0
        pairs = zip(self.ensemble.weights, self.ensemble.members, strict=True)
        for weight, member in pairs:
            y = member.absolute(self.domain.reach)
            inside = max(inside, *(float(layer.max()) for layer in y))
            total += abs(float(weight)) * float(y[-1].max())
        return total, inside


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
