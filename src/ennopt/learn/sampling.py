"""Tables sampled from functions: Latin hypercube and multivariate normal.

Everything is drawn from one seed: same seed, same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ennopt.domain import Domain
from ennopt.extras import require
from ennopt.learn.datasets import DATASETS, Table
from ennopt.learn.functions import FUNCTIONS, Function, function_named
from ennopt.network import Array

REDRAWS = 10_000
"""Draws per wanted point before a normal distribution counts as outside its domain."""


class Sampling(Protocol):
    """A way to choose points: `draw` them, and say which `box` they stand for."""

    def draw(self, function: Function, count: int, rng: np.random.Generator) -> Array:
        """Points (count, num_inputs) in the domain of `function`."""
        ...

    def box(self, function: Function, points: Array) -> Domain:
        """The box that scaling maps to [0, 1]."""
        ...


@dataclass(frozen=True)
class LatinHypercube:
    """One point in each of `count` equal slices of every coordinate.

    Examples
    --------
    >>> from ennopt.learn.functions import PEAKS
    >>> x = LatinHypercube().draw(PEAKS, 6, np.random.default_rng(0))
    >>> np.sort(np.floor(x[:, 0])).tolist()  # [-3, 3] has six slices of width 1
    [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0]
    """

    def draw(self, function: Function, count: int, rng: np.random.Generator) -> Array:
        """Points (count, num_inputs) in the domain of `function`."""
        domain = function.domain
        slices = np.stack(
            [rng.permutation(count) for _ in range(domain.num_inputs)], axis=1
        )
        shares = (slices + rng.random(slices.shape)) / count
        return domain.repair(domain.lower + shares * domain.widths)

    def box(self, function: Function, points: Array) -> Domain:
        """The whole domain, which the sample fills."""
        return function.domain


@dataclass(frozen=True)
class MultivariateNormal:
    """Normal around the optimizer with a random covariance; needs scikit-learn.

    The covariance is drawn by ``sklearn.datasets.make_spd_matrix``, in the units of
    the function. Points outside the domain are drawn again.

    Parameters
    ----------
    scale
        Factor on the covariance.
    """

    scale: float = 1.0

    def draw(self, function: Function, count: int, rng: np.random.Generator) -> Array:
        """Points (count, num_inputs) in the domain of `function`."""
        covariance = self.covariance(function, rng)
        kept: list[Array] = []
        missing, drawn = count, 0
        while missing > 0:
            if drawn > REDRAWS * count:
                raise ValueError(
                    "Expected a normal distribution that meets the domain of "
                    f"{function.name}, got {count - missing} points inside of {drawn}."
                )
            points = rng.multivariate_normal(
                function.optimizer, covariance, size=4 * missing, method="cholesky"
            )
            drawn += len(points)
            low, high = function.domain.lower, function.domain.upper
            inside = ((points >= low) & (points <= high)).all(axis=1)
            kept.append(points[inside][:missing])
            missing -= len(kept[-1])
        return np.concatenate(kept)

    def covariance(self, function: Function, rng: np.random.Generator) -> Array:
        """The covariance (num_inputs, num_inputs) that `rng` yields."""
        make_spd_matrix = require("sklearn.datasets", "train").make_spd_matrix
        seed = int(rng.integers(2**31))
        matrix = make_spd_matrix(n_dim=function.num_inputs, random_state=seed)
        return self.scale * np.asarray(matrix, dtype=np.float64)

    def box(self, function: Function, points: Array) -> Domain:
        """The range of the points, as a scaler fitted to the data would have it."""
        return Domain.from_data(points, function.domain.names)


SAMPLINGS: dict[str, Sampling] = {"lhs": LatinHypercube(), "mvn": MultivariateNormal()}
"""The two ways of the paper, by name."""


def paper_count(num_inputs: int) -> int:
    """Number of points that the paper samples: 2000 + 1000 (num_inputs - 2).

    Examples
    --------
    >>> [paper_count(n) for n in (2, 3, 5)]
    [2000, 3000, 5000]
    """
    return 2000 + 1000 * (num_inputs - 2)


def sample(
    function: Function,
    *,
    sampling: Sampling | None = None,
    count: int | None = None,
    seed: int = 0,
) -> Table:
    """A table of points of `function` and its values there.

    Parameters
    ----------
    function
        What to sample.
    sampling
        How; a Latin hypercube by default.
    count
        Number of points, that of the paper by default.
    seed
        Of the points.

    Examples
    --------
    >>> from ennopt.learn.functions import BEALE
    >>> sample(BEALE, seed=3)
    Table(2000 rows, 2 inputs -> beale, from beale by LatinHypercube(), seed 3)
    """
    chosen = LatinHypercube() if sampling is None else sampling
    rng = np.random.default_rng(seed)
    points = chosen.draw(function, count or paper_count(function.num_inputs), rng)
    box = chosen.box(function, points)
    return Table(
        points, function(points), function.domain.names, function.name,
        lower=box.lower, upper=box.upper, sense=function.sense,
        source=f"{function.name} by {chosen!r}, seed {seed}",
        citation=function.citation,
    )  # fmt: skip


PROBLEMS = (*FUNCTIONS, *DATASETS)
"""Names of the six problems of the paper."""


def problem_table(
    name: str, *, sampling: Sampling | None = None, seed: int = 0
) -> Table:
    """The table of a problem by name: sampled from a function, or read from a file.

    Parameters
    ----------
    name
        One of `PROBLEMS`, or a function family with its dimension, as in
        ``styblinski12``.
    sampling, seed
        Used for functions only.
    """
    if name in DATASETS:
        return DATASETS[name]()
    try:
        function = function_named(name)
    except ValueError as error:
        raise ValueError(
            f"Expected one of {', '.join(PROBLEMS)}, styblinski<inputs>, "
            f"rosenbrock<inputs>, got {name!r}."
        ) from error
    return sample(function, sampling=sampling, seed=seed)
