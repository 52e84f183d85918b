"""How pessimistic a prediction is: what the members of an ensemble make of it together.

A risk is the least of many weighted sums of the members' predictions,
``min_{w in W} w . f(x)``. Any w of the set gives an upper bound of it, so a search may
choose w freely: a good choice makes a proof shorter, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class Risk(Protocol):
    """A set W of weightings of the members of an ensemble."""

    @property
    def words(self) -> str:
        """What it is, in a few words."""

    def respond(self, y: Array) -> Array:
        """The weighting in W with the least sum for predictions y.

        Both are of shape (..., num_members).
        """

    def lowest(self, count: int) -> float:
        """No weight of `count` members is below this."""

    def range(self, low: Array, high: Array) -> tuple[float, float]:
        """Range of it where the members lie between two ends, (num_members,)."""

    def is_mean(self, count: int) -> bool:
        """Whether it is the plain mean of `count` members."""


@dataclass(frozen=True, slots=True)
class Cvar:
    """The mean of the worst members: of the share `share` of them.

    The conditional value at risk. A share of 1 is the mean, and a small one the worst
    member.

    Examples
    --------
    >>> Cvar(0.5).respond(np.array([4.0, 1.0, 3.0, 2.0]))
    array([0. , 0.5, 0. , 0.5])
    """

    share: float

    def __post_init__(self) -> None:
        if not (isinstance(self.share, Real) and 0.0 < float(self.share) <= 1.0):
            raise ValueError(
                f"Expected a share of the members above 0 and at most 1, got "
                f"{self.share!r} at Cvar."
            )

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        return f"the mean of the worst {self.share:.3g} of the members"

    def respond(self, y: Array) -> Array:
        """The weighting in W with the least sum for predictions y."""
        return _least_capped(y, self.cap(y.shape[-1]))

    def cap(self, count: int) -> float:
        """The largest weight of one of `count` members."""
        return min(1.0, 1.0 / (self.share * count))

    def lowest(self, count: int) -> float:
        """No weight of `count` members is below this."""
        return 0.0

    def range(self, low: Array, high: Array) -> tuple[float, float]:
        """Range of it where the members lie between two ends, (num_members,)."""
        return float(self.respond(low) @ low), float(self.respond(high) @ high)

    def is_mean(self, count: int) -> bool:
        """Whether it is the plain mean of `count` members."""
        return count == 1 or self.share == 1.0


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst member.

    Examples
    --------
    >>> Worst().respond(np.array([4.0, 1.0, 3.0]))
    array([0., 1., 0.])
    """

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        return "the worst member"

    def respond(self, y: Array) -> Array:
        """The weighting in W with the least sum for predictions y."""
        return _least_capped(y, 1.0)

    def lowest(self, count: int) -> float:
        """No weight of `count` members is below this."""
        return 0.0

    def range(self, low: Array, high: Array) -> tuple[float, float]:
        """Range of it where the members lie between two ends, (num_members,)."""
        return float(self.respond(low) @ low), float(self.respond(high) @ high)

    def is_mean(self, count: int) -> bool:
        """Whether it is the plain mean of `count` members."""
        return count == 1


@dataclass(frozen=True, slots=True)
class MeanMinusStd:
    """The mean, less `kappa` standard deviations of the members.

    The deviation is that of the members themselves: divided by their number.

    Examples
    --------
    >>> y = np.array([1.0, 3.0])
    >>> round(float(MeanMinusStd(0.5).respond(y) @ y), 9)  # 2 - 0.5 * 1
    1.5
    """

    kappa: float = 1.0
    mean: float = 1.0

    def __post_init__(self) -> None:
        _check_kappa(self.kappa, "MeanMinusStd")

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        return _less(self.mean, self.kappa, "standard deviation", "deviations")

    def respond(self, y: Array) -> Array:
        """The weighting in W with the least sum for predictions y."""
        count = y.shape[-1]
        off = y - y.mean(axis=-1, keepdims=True)
        # A direction, whose sum must be zero however short it is: where members agree
        # up to rounding, the first difference alone is not.
        off = off - off.mean(axis=-1, keepdims=True)
        most = np.abs(off).max(axis=-1, keepdims=True)
        off = off / np.where(most > 0.0, most, 1.0)
        length = np.sqrt((off * off).sum(axis=-1, keepdims=True))
        unit = np.where(length > 0.0, off / np.where(length > 0.0, length, 1.0), 0.0)
        return np.asarray(self.mean / count - self.kappa / math.sqrt(count) * unit)

    def lowest(self, count: int) -> float:
        """No weight of `count` members is below this."""
        # The largest entry of a unit vector whose entries add up to zero.
        largest = math.sqrt((count - 1) / count)
        return self.mean / count - self.kappa / math.sqrt(count) * largest

    def range(self, low: Array, high: Array) -> tuple[float, float]:
        """Range of it where the members lie between two ends, (num_members,)."""
        return _deviating(self.mean, self.kappa, low, high)

    def is_mean(self, count: int) -> bool:
        """Whether it is the plain mean of `count` members."""
        return self.mean == 1.0 and (count == 1 or self.kappa == 0.0)


@dataclass(frozen=True, slots=True)
class MeanMinusMad:
    """The mean, less `kappa` mean absolute deviations of the members from it.

    Examples
    --------
    >>> y = np.array([1.0, 3.0])
    >>> float(MeanMinusMad(1.0).respond(y) @ y)  # 2 - 1
    1.0
    """

    kappa: float = 1.0
    mean: float = 1.0

    def __post_init__(self) -> None:
        _check_kappa(self.kappa, "MeanMinusMad")

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        return _less(self.mean, self.kappa, "mean absolute deviation", "deviations")

    def respond(self, y: Array) -> Array:
        """The weighting in W with the least sum for predictions y."""
        count = y.shape[-1]
        signs = np.sign(y - y.mean(axis=-1, keepdims=True))
        off = signs - signs.mean(axis=-1, keepdims=True)
        return np.asarray(self.mean / count - self.kappa / count * off)

    def lowest(self, count: int) -> float:
        """No weight of `count` members is below this."""
        return self.mean / count - self.kappa / count * 2.0 * (count - 1) / count

    def range(self, low: Array, high: Array) -> tuple[float, float]:
        """Range of it where the members lie between two ends, (num_members,)."""
        return _deviating(self.mean, self.kappa, low, high)

    def is_mean(self, count: int) -> bool:
        """Whether it is the plain mean of `count` members."""
        return self.mean == 1.0 and (count == 1 or self.kappa == 0.0)


WRITTEN = "worst, cvar:SHARE, std:KAPPA or mad:KAPPA"
"""How risks are written as text."""

NAMED: dict[str, Risk] = {"worst": Worst()}
"""Risks that have a name, as `risk` of `maximize` takes them."""


def risk_of(given: object) -> Risk | None:
    """A risk by its name or as such; ``None`` and ``"mean"`` are the mean.

    Examples
    --------
    >>> risk_of("worst"), risk_of("cvar:0.4")
    (Worst(), Cvar(share=0.4))
    >>> risk_of("bad")
    Traceback (most recent call last):
    ...
    ValueError: Expected a risk, 'mean' or 'worst', got 'bad'. Pass Cvar(0.4), ...
    """
    if given is None or given == "mean":
        return None
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]
    if isinstance(given, str) and ":" in given:
        return _written(given)
    if isinstance(given, Worst | Cvar | MeanMinusStd | MeanMinusMad):
        return given
    raise ValueError(
        f"Expected a risk, 'mean' or 'worst', got {given!r:.60}. Pass Cvar(0.4), "
        "MeanMinusStd(1.0) or MeanMinusMad(1.0) for others."
    )


def _written(text: str) -> Risk:
    """A risk with its number: ``"cvar:0.4"``, ``"std:1"`` or ``"mad:1"``."""
    name, _, number = text.partition(":")
    at_least = "a finite number of at least 0"
    kinds: dict[str, tuple[Callable[[float], Risk], str]] = {
        "cvar": (Cvar, "a share of the members above 0 and at most 1"),
        "std": (MeanMinusStd, at_least), "mad": (MeanMinusMad, at_least),
    }  # fmt: skip
    if name not in kinds:
        raise ValueError(f"Expected {WRITTEN}, got {text!r:.60}.")
    kind, allowed = kinds[name]
    try:
        return kind(float(number))
    except ValueError as error:
        raise ValueError(f"Expected {allowed} after {name}:, got {text!r:.60}.") from (
            error
        )


def _check_kappa(kappa: object, name: str) -> None:
    if not (isinstance(kappa, Real) and 0.0 <= float(kappa) < math.inf):
        raise ValueError(
            f"Expected a finite kappa of at least 0, got {kappa!r} at {name}."
        )


def _less(mean: float, kappa: float, one: str, many: str) -> str:
    deviations = f"one {one}" if kappa == 1.0 else f"{kappa:.3g} {one[:-9]}{many}"
    return (
        f"the mean of the members less {deviations}" if mean else f"less {deviations}"
    )


def _deviating(
    mean: float, kappa: float, low: Array, high: Array
) -> tuple[float, float]:
    """Range of the mean less deviations: no deviation is above half the spread."""
    ends = mean * float(low.mean()), mean * float(high.mean())
    most = 0.5 * float(high.max() - low.min())
    return min(ends) - kappa * most, max(ends)


def _least_capped(y: Array, cap: float) -> Array:
    """Weights in [0, cap] that add up to one and have the least sum with y."""
    order = np.argsort(y, axis=-1, kind="stable")
    ranks = np.arange(y.shape[-1])
    shares = np.clip(1.0 - ranks * cap, 0.0, cap)
    weights = np.zeros(y.shape)
    np.put_along_axis(weights, order, np.broadcast_to(shares, y.shape), axis=-1)
    return weights
