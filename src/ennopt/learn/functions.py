"""Test functions that declare their domain, their optimum and where it is reached.

`check` is the one test that all of them must pass: it evaluates a function at its
declared optimizer, on a dense grid and along a local search, and refuses a declaration
that does not hold. The formula of Peaks and the domain of Spring are misprinted in the
paper that introduced these benchmarks; `check` refuses both as printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ennopt.domain import Domain
from ennopt.network import Array, frozen
from ennopt.problem import Sense

GRID_POINTS = 200_000
"""Points of the grid of `check`, about."""

VALUE_TOLERANCE = 1e-6
"""Largest error of a declared optimum, relative to the range of the function or
absolute, whichever is smaller."""


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of known optimum.

    Parameters
    ----------
    name
        One lower-case word.
    formula
        Takes points (num_points, num_inputs), gives values (num_points,).
    domain
        Where it is optimized.
    optimum
        The best value on the domain.
    optimizer
        Where it is reached, (num_inputs,).
    sense
        Whether the best value is the smallest or the largest.
    citation
        Where the function comes from.

    Examples
    --------
    >>> float(BEALE([3.0, 0.5]))
    0.0
    >>> PEAKS
    Function(peaks, min -6.55113 at (0.228279, -1.62553) on [-3, 3]^2)
    """

    name: str
    formula: Callable[[Array], Array]
    domain: Domain
    optimum: float
    optimizer: Array
    sense: Sense = "min"
    citation: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimizer", frozen(self.optimizer))
        if self.optimizer.shape != (self.domain.num_inputs,):
            raise ValueError(
                f"Expected an optimizer of {self.domain.num_inputs} coordinates, as "
                f"many as the domain has, got {self.optimizer.size} at {self.name}. "
                "Correct the domain or the optimizer."
            )
        if self.sense not in ("min", "max"):
            raise ValueError(f"Expected sense 'min' or 'max', got {self.sense!r}.")

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return self.domain.num_inputs

    def __call__(self, x: npt.ArrayLike) -> Array:
        """Values (...,) at points (..., num_inputs)."""
        points = np.asarray(x, dtype=np.float64)
        if points.ndim == 0 or points.shape[-1] != self.num_inputs:
            raise ValueError(
                f"Expected {self.num_inputs} inputs in the last axis of x, got shape "
                f"{points.shape}."
            )
        values = self.formula(points.reshape(-1, self.num_inputs))
        return np.asarray(values, dtype=np.float64).reshape(points.shape[:-1])

    def __repr__(self) -> str:
        low, high = self.domain.lower, self.domain.upper
        point = ", ".join(f"{v:.6g}" for v in self.optimizer)
        return (
            f"Function({self.name}, {self.sense} {self.optimum:.6g} at ({point}) on "
            f"[{low[0]:g}, {high[0]:g}]^{self.num_inputs})"
        )


class Check(NamedTuple):
    """What `check` found, for the record."""

    at_optimizer: float
    on_grid: float
    by_search: float
    searched: Array


def check(function: Function, *, grid_points: int = GRID_POINTS) -> Check:
    """Verify the declared optimum of `function`, or refuse it.

    Four facts must hold: the optimizer lies in the domain; the formula gives the
    declared optimum there; neither a dense grid of the domain nor a local search from
    the best points of the grid finds a better value; and the local search reaches the
    declared optimum.

    Parameters
    ----------
    function
        The function to check.
    grid_points
        Size of the grid, about; coordinates are spaced evenly.

    Raises
    ------
    ValueError
        When one of the facts does not hold, naming it.
    """
    sign = 1.0 if function.sense == "max" else -1.0
    domain = function.domain
    at = function.optimizer
    if np.abs(domain.repair(at) - at).max() > 1e-12:
        raise ValueError(
            f"Expected the optimizer of {function.name} in its domain, got "
            f"{function.optimizer.tolist()}."
        )
    per_axis = max(2, round(grid_points ** (1.0 / domain.num_inputs)))
    axes = [
        np.linspace(low, high, per_axis)
        for low, high in zip(domain.lower, domain.upper, strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    grid = grid.reshape(-1, domain.num_inputs)
    values = function(grid)
    tolerance = VALUE_TOLERANCE * min(1.0, float(np.ptp(values)))

    at_optimizer = float(function(function.optimizer))
    if not abs(at_optimizer - function.optimum) <= tolerance:
        raise ValueError(
            f"Expected the value {function.optimum:g} at the optimizer of "
            f"{function.name}, got {at_optimizer:g}. The formula, the optimizer or the "
            "optimum is misprinted."
        )
    on_grid = float(sign * (sign * values).max())
    starts = grid[np.argsort(sign * values)[-8:]]
    searched = np.stack([_climb(function, sign, start) for start in starts])
    reached = function(searched)
    best = int(np.argmax(sign * reached))
    by_search = float(reached[best])
    for how, found in (("a grid", on_grid), ("a local search", by_search)):
        if sign * found > sign * function.optimum + tolerance:
            raise ValueError(
                f"Expected {function.optimum:g} as the best value of {function.name} "
                f"on its domain, got the better {found:g} by {how}."
            )
    if abs(by_search - function.optimum) > tolerance:
        raise ValueError(
            f"Expected a local search to reach the optimum {function.optimum:g} of "
            f"{function.name}, got {by_search:g}."
        )
    return Check(at_optimizer, on_grid, by_search, searched[best])


def _climb(function: Function, sign: float, start: Array) -> Array:
    """Pattern search: the best of random steps, shrinking when none improves."""
    rng = np.random.default_rng(0)
    domain, point = function.domain, start
    value = sign * float(function(point))
    size = 0.05
    while size > 1e-10:
        d = domain.num_inputs
        steps = np.concatenate([np.eye(d), -np.eye(d), rng.normal(size=(12 * d, d))])
        trials = domain.repair(point + size * domain.widths * steps)
        found = sign * function(trials)
        best = int(np.argmax(found))
        if found[best] > value:
            point, value = trials[best], float(found[best])
            size *= 1.5
        else:
            size *= 0.5
    return point


def _peaks(x: Array) -> Array:
    a, b = x.T
    hill = 3 * (1 - a) ** 2 * np.exp(-(a**2) - (b + 1) ** 2)
    valley = 10 * (a / 5 - a**3 - b**5) * np.exp(-(a**2) - b**2)
    bump = np.exp(-((a + 1) ** 2) - b**2) / 3
    values: Array = hill - valley - bump
    return values


def _beale(x: Array) -> Array:
    a, b = x.T
    values: Array = (
        (1.5 - a + a * b) ** 2
        + (2.25 - a + a * b**2) ** 2
        + (2.625 - a + a * b**3) ** 2
    )
    return values


def _perm(x: Array) -> Array:
    j = np.arange(1, x.shape[1] + 1)
    total = np.zeros(len(x))
    for k in j:
        total += (((x / j) ** k - 1) @ (j.astype(float) ** k + 0.5)) ** 2
    return total


def _spring(x: Array) -> Array:
    squares = ((x - 4) ** 2).sum(axis=1)
    values: Array = 0.1 * squares - np.cos(4 * np.sqrt(squares))
    return values


def _styblinski(x: Array) -> Array:
    values: Array = 0.5 * (x**4 - 16 * x**2 + 5 * x).mean(axis=1)
    return values


def _rosenbrock(x: Array) -> Array:
    left, right = x[:, :-1], x[:, 1:]
    values: Array = (100 * (right - left**2) ** 2 + (1 - left) ** 2).sum(axis=1)
    return values


def _cube(low: float, high: float, num_inputs: int) -> Domain:
    names = tuple(f"x{j}" for j in range(1, num_inputs + 1))
    return Domain(np.full(num_inputs, low), np.full(num_inputs, high), names)


PEAKS = Function(
    "peaks", _peaks, _cube(-3, 3, 2), -6.551133332835842,
    [0.22827892, -1.62553496],  # type: ignore[arg-type]
    citation="Schweidtmann and Mitsos (2019), J. Optim. Theory Appl. 180, 925-948",
)  # fmt: skip
BEALE = Function(
    "beale", _beale, _cube(-4.5, 4.5, 2), 0.0, [3.0, 0.5],  # type: ignore[arg-type]
    citation="Jamil and Yang (2013), Int. J. Math. Model. Numer. Optim. 4, 150-194",
)  # fmt: skip
PERM = Function(
    "perm", _perm, _cube(-3, 4, 3), 0.0, [1.0, 2.0, 3.0],  # type: ignore[arg-type]
    citation="Mishra (2006), Some new test functions for global optimization",
)  # fmt: skip
SPRING = Function(
    "spring", _spring, _cube(0, 8, 5), -1.0, [4.0] * 5,  # type: ignore[arg-type]
    citation="Mishra (2006), Some new test functions for global optimization",
)  # fmt: skip

FUNCTIONS = {f.name: f for f in (PEAKS, BEALE, PERM, SPRING)}
"""The benchmark functions of the paper, by name."""


def styblinski(num_inputs: int) -> Function:
    """The Styblinski-Tang function, the mean over its coordinates.

    Separable with two valleys per coordinate: ``2**num_inputs`` local minima.

    Examples
    --------
    >>> styblinski(30).optimum
    -39.16616570377142
    """
    return Function(
        f"styblinski{num_inputs}", _styblinski, _cube(-5, 5, num_inputs),
        -39.16616570377142, np.full(num_inputs, -2.903534027771177),
        citation="Styblinski and Tang (1990), Neural Networks 3, 467-483",
    )  # fmt: skip


def rosenbrock(num_inputs: int) -> Function:
    """The Rosenbrock function: a curved valley that couples neighbours.

    Examples
    --------
    >>> float(rosenbrock(7)(np.ones(7)))
    0.0
    """
    if num_inputs < 2:
        raise ValueError(f"Expected num_inputs >= 2, got {num_inputs}.")
    return Function(
        f"rosenbrock{num_inputs}", _rosenbrock, _cube(-2, 2, num_inputs),
        0.0, np.ones(num_inputs),
        citation="Rosenbrock (1960), Computer Journal 3, 175-184",
    )  # fmt: skip


def function_named(name: str) -> Function:
    """The function called `name`: one of `FUNCTIONS`, or a family with its dimension.

    Examples
    --------
    >>> function_named("styblinski12").num_inputs
    12
    >>> function_named("paeks")
    Traceback (most recent call last):
        ...
    ValueError: Expected one of peaks, beale, perm, spring, styblinski<inputs>,
    rosenbrock<inputs>, got 'paeks'.
    """
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    for family in (styblinski, rosenbrock):
        stem = family.__name__
        digits = name.removeprefix(stem)
        if name.startswith(stem) and digits.isdecimal() and int(digits) > 1:
            return family(int(digits))
    raise ValueError(
        f"Expected one of {', '.join(FUNCTIONS)}, styblinski<inputs>, "
        f"rosenbrock<inputs>, got {name!r}."
    )
