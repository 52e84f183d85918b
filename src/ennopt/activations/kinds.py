"""What a neuron does with its pre-activation: ReLU, or a smooth function.

Each activation is one small object: its value and slope, a proved bound of the rounding
error of the value, and lines above and below on an interval (`envelope`).

**Errors.** The proofs rest on the mathematical libraries: that NumPy's and the C
library's ``exp``, ``expm1``, ``log1p``, ``tanh`` and ``erfc`` are within 40 units in
the last place (ulp). NumPy and glibc document at most 5. The few operations after them
add one each, so `ULPS` = 64 covers both. Where the argument of ``exp`` or ``erfc`` is
itself rounded, the error grows with its size z: the relative error of ``exp(z)`` is z
times that of z. Those terms are added in `error`. Results below
1e-300 have no relative precision; `TINY` covers them. Tests compare with arithmetic of
60 digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ennopt.activations.envelope import TINY, UNIT, Array, Lines, lines_of

ULPS = 64.0 * 2.0 * UNIT
"""Relative error of a value, in general: 64 units in the last place."""

ROOT_2, ROOT_2_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)

GELU_FACTOR, GELU_CUBIC = math.sqrt(2.0 / math.pi), 0.044715
"""Of the tanh form of GELU: ``x / 2 * (1 + tanh(FACTOR * (x + CUBIC * x**3)))``."""


class Activation:
    """A function of one number, applied to each neuron of a layer.

    This class holds for functions that rise everywhere and are convex between
    their `bends` and concave outside of them.
    """

    bends: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    @property
    def name(self) -> str:
        """How files and messages call it; `activation_named` reads it."""
        return type(self).__name__.lower()

    def value(self, x: Array) -> Array:
        """The function, of any number of neurons and points, (..., width)."""
        raise NotImplementedError

    def slope(self, x: Array) -> Array:
        """Its derivative; at a kink, that of the left side."""
        raise NotImplementedError

    def error(self, x: Array, value: Array) -> Array:
        """How far `value`, computed at x, may be from the function."""
        return ULPS * np.abs(value) + TINY

    def range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Bounds of the function on intervals, rounding included."""
        low, high = self.value(lower), self.value(upper)
        return low - self.error(lower, low), high + self.error(upper, high)

    def reach(self, lower: Array, upper: Array) -> Array:
        """Bounds of its absolute value on intervals."""
        low, high = self.range(lower, upper)
        return np.asarray(np.maximum(np.abs(low), np.abs(high)))

    def lines(self, lower: Array, upper: Array) -> Lines:
        """Lines below and above on intervals, (..., width)."""
        return lines_of(self, lower, upper)

    def side_by_side(self, width: int) -> tuple[tuple[Activation, int], ...]:
        """What a layer of so many neurons holds, in order, and how many of each."""
        return ((self, width),)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, repr=False)
class ReLU(Activation):
    """``max(x, 0)``.

    Examples
    --------
    >>> ReLU().value(np.array([-1.0, 2.0]))
    array([0., 2.])
    """

    def value(self, x: Array) -> Array:
        """The function."""
        return np.maximum(x, 0.0)

    def slope(self, x: Array) -> Array:
        """1 where x is positive."""
        return np.where(x > 0.0, 1.0, 0.0)

    def error(self, x: Array, value: Array) -> Array:
        """None."""
        return np.zeros_like(value)

    def lines(self, lower: Array, upper: Array) -> Lines:
        """The chord above; below, slope 1 or 0.

        Their rounding is in proportion to the slope and to the size of the interval;
        whoever adds them up accounts for it.
        """
        unstable = (lower < 0.0) & (upper > 0.0)
        width = np.where(unstable, upper - lower, 1.0)
        high = np.where(unstable, upper / width, np.where(lower >= 0.0, 1.0, 0.0))
        shift = np.where(unstable, -lower * high, 0.0)
        low = np.where(unstable, np.where(upper > -lower, 1.0, 0.0), high)
        return Lines(low, np.zeros_like(low), high, shift)


@dataclass(frozen=True, slots=True, repr=False)
class Tanh(Activation):
    """The hyperbolic tangent.

    Examples
    --------
    >>> Tanh().lines(np.array([1.0]), np.array([1.0])).high_shift.round(3)
    array([0.342])
    """

    bends: ClassVar[tuple[float, float]] = (-math.inf, 0.0)

    def value(self, x: Array) -> Array:
        """The function."""
        return np.tanh(x)

    def slope(self, x: Array) -> Array:
        """``1 / cosh(x)**2``."""
        e = np.exp(-2.0 * np.abs(x))
        return np.asarray(4.0 * e / (1.0 + e) ** 2)


@dataclass(frozen=True, slots=True, repr=False)
class Sigmoid(Activation):
    """``1 / (1 + exp(-x))``, the logistic function.

    Examples
    --------
    >>> Sigmoid().value(np.array([0.0]))
    array([0.5])
    """

    bends: ClassVar[tuple[float, float]] = (-math.inf, 0.0)

    def value(self, x: Array) -> Array:
        """The function."""
        e = np.exp(-np.abs(x))
        return np.asarray(np.where(x >= 0.0, 1.0, e) / (1.0 + e))

    def slope(self, x: Array) -> Array:
        """``sigmoid(x) * sigmoid(-x)``."""
        e = np.exp(-np.abs(x))
        return np.asarray(e / (1.0 + e) ** 2)


@dataclass(frozen=True, slots=True, repr=False)
class Softplus(Activation):
    """``log(1 + exp(x))``.

    Examples
    --------
    >>> Softplus().value(np.array([0.0])).round(4)
    array([0.6931])
    """

    def value(self, x: Array) -> Array:
        """The function."""
        return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))

    def slope(self, x: Array) -> Array:
        """The sigmoid."""
        return Sigmoid().value(x)


@dataclass(frozen=True, slots=True, repr=False)
class ELU(Activation):
    """``x`` where x is positive, else ``alpha * (exp(x) - 1)``.

    Parameters
    ----------
    alpha
        More than 0, at most 1: then the function is convex. For a larger one, use
        ``ELU_alpha = alpha * ELU_1 + (1 - alpha) * ReLU``, as the importers do.

    Examples
    --------
    >>> ELU().value(np.array([-1.0, 2.0])).round(4)
    array([-0.6321,  2.    ])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise ValueError(
                f"Expected 0 < alpha <= 1, got {self.alpha!r}. Write an ELU with a "
                "larger alpha as alpha * ELU() + (1 - alpha) * ReLU()."
            )

    @property
    def name(self) -> str:
        """How files and messages call it."""
        return "elu" if self.alpha == 1.0 else f"elu({self.alpha!r})"

    def value(self, x: Array) -> Array:
        """The function."""
        left = self.alpha * np.expm1(np.minimum(x, 0.0))
        return np.asarray(np.where(x > 0.0, x, left))

    def slope(self, x: Array) -> Array:
        """1, or ``alpha * exp(x)``."""
        left = self.alpha * np.exp(np.minimum(x, 0.0))
        return np.asarray(np.where(x > 0.0, 1.0, left))


class Dip(Activation):
    """A function that falls to its least value, at `lowest`, and rises after it."""

    lowest: ClassVar[tuple[float, float]]

    def range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Bounds of the function on intervals, rounding included."""
        at, least = self.lowest
        a, b = self.value(lower), self.value(upper)
        errors = np.maximum(self.error(lower, a), self.error(upper, b))
        low = np.where((lower < at) & (at < upper), least, np.minimum(a, b))
        # Next to the lowest point the function is flat: a rounded `at` costs 1e-31.
        return low - np.maximum(errors, 1e-16 * abs(least)), np.maximum(a, b) + errors


@dataclass(frozen=True, slots=True, repr=False)
class SiLU(Dip):
    """``x * sigmoid(x)``, also called swish.

    Examples
    --------
    >>> SiLU().value(np.array([0.0, 2.0])).round(4)
    array([0.    , 1.7616])
    """

    bends: ClassVar[tuple[float, float]] = (-2.3993572805154677, 2.3993572805154677)
    lowest: ClassVar[tuple[float, float]] = (-1.2784645427610738, -0.27846454276107384)

    def value(self, x: Array) -> Array:
        """The function."""
        return np.asarray(x * Sigmoid().value(x))

    def slope(self, x: Array) -> Array:
        """``s + x s (1 - s)`` with the sigmoid s."""
        return np.asarray(Sigmoid().value(x) + x * Sigmoid().slope(x))


@dataclass(frozen=True, slots=True, repr=False)
class GELU(Dip):
    """``x`` times the normal distribution's cumulative function at x.

    Examples
    --------
    >>> GELU().value(np.array([0.0, 2.0])).round(4)
    array([0.    , 1.9545])
    """

    bends: ClassVar[tuple[float, float]] = (-ROOT_2, ROOT_2)
    lowest: ClassVar[tuple[float, float]] = (-0.7517915246935645, -0.1699712074799037)

    def value(self, x: Array) -> Array:
        """The function."""
        return np.asarray(x * self._share(x))

    def slope(self, x: Array) -> Array:
        """``Phi(x) + x phi(x)``."""
        near = np.clip(x, -40.0, 40.0)  # beyond, the density is below 1e-300
        density = np.exp(-0.5 * near * near) / ROOT_2_PI
        return np.asarray(self._share(x) + near * density)

    def error(self, x: Array, value: Array) -> Array:
        """Left of zero erfc multiplies the error of its argument by about x**2."""
        z = np.clip(x, -40.0, 0.0)
        return np.asarray((ULPS + 8.0 * UNIT * z * z) * np.abs(value) + TINY)

    def _share(self, x: Array) -> Array:
        scaled = np.clip(x, -40.0, 40.0) / -ROOT_2
        return 0.5 * _erfc(scaled)


@dataclass(frozen=True, slots=True, repr=False)
class GELUTanh(Dip):
    """The usual approximation of GELU by a hyperbolic tangent.

    Examples
    --------
    >>> GELUTanh().value(np.array([0.0, 2.0])).round(4)
    array([0.    , 1.9546])
    """

    bends: ClassVar[tuple[float, float]] = (-1.4185040087908283, 1.4185040087908283)
    lowest: ClassVar[tuple[float, float]] = (-0.7524614220710162, -0.17004075057125406)

    @property
    def name(self) -> str:
        """How files and messages call it."""
        return "gelu_tanh"

    def value(self, x: Array) -> Array:
        """The function, as ``x * sigmoid(2 u)``: exact to the left of zero, too."""
        return np.asarray(x * Sigmoid().value(self._inner(x)))

    def slope(self, x: Array) -> Array:
        """``s + x s (1 - s) (2 u)'`` with the sigmoid s of ``2 u``."""
        inner, near = self._inner(x), np.clip(x, -40.0, 40.0)
        steep = 2.0 * GELU_FACTOR * (1.0 + 3.0 * GELU_CUBIC * near * near)
        return np.asarray(
            Sigmoid().value(inner) + near * steep * Sigmoid().slope(inner)
        )

    def error(self, x: Array, value: Array) -> Array:
        """Left of zero exp multiplies the error of its argument ``2 u`` by itself."""
        inner = np.maximum(-self._inner(x), 0.0)
        return np.asarray((ULPS + 16.0 * UNIT * inner) * np.abs(value) + TINY)

    def _inner(self, x: Array) -> Array:
        near = np.clip(x, -40.0, 40.0)  # beyond, the sigmoid is 0 or 1 to 1e-300
        cubic = near * (1.0 + GELU_CUBIC * near * near)
        return np.asarray(2.0 * GELU_FACTOR * cubic)


def _erfc(x: Array) -> Array:
    """NumPy has none: the C library's, number by number."""
    found = np.fromiter(map(math.erfc, x.ravel().tolist()), np.float64, x.size)
    return found.reshape(x.shape)


@dataclass(frozen=True, slots=True, repr=False)
class Mixed(Activation):
    """Several activations in one layer, side by side.

    Parameters
    ----------
    parts
        Pairs (activation, number of neurons), in the order of the neurons.

    Examples
    --------
    >>> both = Mixed(((ReLU(), 1), (Tanh(), 2)))
    >>> both.value(np.array([-1.0, -1.0, 1.0])).round(2)
    array([ 0.  , -0.76,  0.76])
    >>> both
    relu*1+tanh*2
    """

    parts: tuple[tuple[Activation, int], ...]

    def __post_init__(self) -> None:
        counts = [count for _, count in self.parts]
        nested = any(isinstance(kind, Mixed) for kind, _ in self.parts)
        if nested or not counts or min(counts) < 1:
            raise ValueError(
                f"Expected activations of at least one neuron each, got {self.parts}."
            )

    @property
    def name(self) -> str:
        """How files and messages call it."""
        return "+".join(f"{kind.name}*{count}" for kind, count in self.parts)

    @property
    def width(self) -> int:
        """Number of neurons."""
        return sum(count for _, count in self.parts)

    def value(self, x: Array) -> Array:
        """Of each neuron its own function."""
        return _joined([kind.value(x[..., at]) for kind, at in self._slices()])

    def slope(self, x: Array) -> Array:
        """Of each neuron its own derivative."""
        return _joined([kind.slope(x[..., at]) for kind, at in self._slices()])

    def error(self, x: Array, value: Array) -> Array:
        """Of each neuron its own error."""
        return _joined(
            [kind.error(x[..., at], value[..., at]) for kind, at in self._slices()]
        )

    def range(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Bounds of the functions on intervals, rounding included."""
        parts = [k.range(lower[..., at], upper[..., at]) for k, at in self._slices()]
        return _joined([low for low, _ in parts]), _joined([high for _, high in parts])

    def lines(self, lower: Array, upper: Array) -> Lines:
        """Lines below and above on intervals, (..., width)."""
        parts = [k.lines(lower[..., at], upper[..., at]) for k, at in self._slices()]
        names = ("low", "low_shift", "high", "high_shift")
        return Lines(*(_joined([getattr(p, n) for p in parts]) for n in names))

    def side_by_side(self, width: int) -> tuple[tuple[Activation, int], ...]:
        """Its parts."""
        return self.parts

    def _slices(self) -> list[tuple[Activation, slice]]:
        start, found = 0, []
        for kind, count in self.parts:
            found.append((kind, slice(start, start + count)))
            start += count
        return found


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts, axis=-1)


RELU = ReLU()
ACTIVATIONS: dict[str, Activation] = {
    kind.name: kind
    for kind in (
        RELU, Tanh(), Sigmoid(), Softplus(), ELU(), SiLU(), GELU(), GELUTanh()
    )
}  # fmt: skip


def activation_named(name: str) -> Activation:
    """The activation that `Activation.name` calls so.

    Examples
    --------
    >>> activation_named("elu(0.5)").alpha
    0.5
    >>> activation_named("relu*3+tanh*2").width
    5
    """
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    if "*" in name and (parts := [_PART.fullmatch(part) for part in _split(name)]):
        found = [m for m in parts if m is not None]
        if len(found) == len(parts):
            pairs = [(activation_named(m[1]), int(m[2])) for m in found]
            return Mixed(tuple(pairs))
    if match := _ELU.fullmatch(name):
        return ELU(float(match[1]))
    raise ValueError(
        f"Expected an activation among {', '.join(ACTIVATIONS)}, got {name!r:.80}."
    )


_PART = re.compile(r"([a-z_]+(?:\([0-9.e-]+\))?)\*([0-9]{1,9})")
_ELU = re.compile(r"elu\(([0-9]*\.?[0-9]*(?:e-?[0-9]+)?)\)")


def _split(name: str) -> list[str]:
    return name.split("+")
