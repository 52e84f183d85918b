"""What the outputs of an ensemble mean, where they are not predictions themselves.

The scores of a classifier and predictions of a transformed target are optimized as they
are; what is reported is the probability, or the prediction in the user's units.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.columns import Level

Array: TypeAlias = npt.NDArray[np.float64]

LAST_BITS = float(8 * np.finfo(np.float64).eps)
"""Relative rounding of a function that maps a bound: bounds are moved out by this."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Outputs that are scores of classes.

    Parameters
    ----------
    kind
        ``"sigmoid"``: each output is the log-odds of a class of its own.
        ``"softmax"``: the probabilities of all classes add up to one.
    names
        Of the classes, one for each output; for a sigmoid of one output two, of which
        it scores the second.

    Examples
    --------
    >>> Classes("softmax", ("a", "b")).probabilities(np.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    kind: str
    names: tuple[Level, ...]

    def __post_init__(self) -> None:
        if self.kind not in ("sigmoid", "softmax") or not self.names:
            raise ValueError(
                f"Expected classes of a sigmoid or a softmax, got {self.kind!r} of "
                f"{len(self.names)} classes."
            )

    def probabilities(self, scores: Array) -> Array:
        """Probabilities for scores (..., num_outputs)."""
        if self.kind == "sigmoid":
            return np.asarray(0.5 * (1.0 + np.tanh(0.5 * scores)))
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    def to_text(self) -> str:
        """As JSON, which `from_text` reads back."""
        return json.dumps({"kind": self.kind, "names": self.names})

    @classmethod
    def from_text(cls, text: str) -> Classes:
        """From what `to_text` wrote; raises ValueError on anything else."""
        try:
            entry = json.loads(text)
            return cls(str(entry["kind"]), tuple(entry["names"]))
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"Expected classes as JSON, got {text!r:.80}.") from error


@dataclass(frozen=True, slots=True, eq=False)
class Odds:
    """An output that is the log-odds of a class against the likeliest other one.

    Parameters
    ----------
    name
        Of the class.
    rivals
        Number of other classes. With one, the probability follows from the log-odds.
    probability_at
        Probabilities of the class at points (num_points, num_inputs).

    Examples
    --------
    >>> odds = Odds("b", 1, lambda x: 0.5 * np.ones(len(x)))
    >>> round(odds.bound(0.0, "max"), 9)
    0.5
    """

    name: Level
    rivals: int
    probability_at: Callable[[Array], Array]

    @property
    def words(self) -> str:
        """What the value is."""
        against = " against the likeliest other one" * (self.rivals > 1)
        return f"the log-odds of class {self.name}{against}"

    def bound(self, odds: float, sense: str) -> float:
        """What no probability exceeds, or falls below, if no log-odds do.

        With ``m`` the log-odds against the likeliest of ``k`` others, the probability
        is between ``1 / (1 + k exp(-m))`` and ``1 / (1 + exp(-m))``.
        """
        shift = 0.0 if sense == "max" else math.log(self.rivals)
        if math.isnan(odds):
            return 1.0 if sense == "max" else 0.0
        found = 0.5 * (1.0 + math.tanh(0.5 * (odds - shift)))
        if sense == "max":
            return min(1.0, found * (1.0 + LAST_BITS) + LAST_BITS / 16)
        return max(0.0, found * (1.0 - LAST_BITS) - LAST_BITS / 16)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """An output whose increasing function is the prediction.

    Parameters
    ----------
    name
        Of the function.
    apply
        The function of an array.

    Examples
    --------
    >>> Link("exp", np.exp).value(0.0)
    1.0
    """

    name: str
    apply: Callable[[Array], Any]

    def value(self, inside: float) -> float:
        """The prediction for an output."""
        if math.isinf(inside):
            return inside  # nothing is known
        with np.errstate(all="ignore"):
            return float(np.ravel(self.apply(np.array([inside])))[0])

    def bound(self, inside: float, sense: str) -> float:
        """The bound of the prediction for a bound of the output."""
        sign = 1.0 if sense == "max" else -1.0
        found = self.value(inside)
        if math.isnan(found):  # outside of what the function is defined for
            return sign * math.inf
        return found + sign * LAST_BITS * abs(found)


Target: TypeAlias = Classes | Odds | Link
