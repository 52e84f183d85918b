"""How far an answer is from the data: a prediction is only as good as its data.

An optimizer looks for large predictions, and a model is often largest where it has seen
nothing. The record here says how far an answer is from the rows that a user gave, in
numbers and in plain words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ennopt.domain.convex import Ellipsoid
from ennopt.domain.data import Data
from ennopt.domain.sets import Domain
from ennopt.network import Array, shown

NEAREST = 3
"""Rows that are named as the nearest ones."""

FAR_PERCENT = 99.0
"""An answer is called unusual if so many percent of the rows are nearer to the mean."""

AT_BOUND = 1e-6
"""An input is at a bound within this share of its range."""


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """How far an answer is from rows of data.

    Parameters
    ----------
    nearest
        Numbers of the nearest rows, from 0 on, the nearest first.
    distances
        How far each of them is: in the input that differs most, in standard deviations
        of that input. Rows with other categories count only if no row has the same.
    usual_distance
        95% of the rows have another row within this distance.
    mahalanobis
        Distance from the mean of the rows, in standard deviations along the axes of
        their scatter.
    percentile
        Percent of the rows whose `mahalanobis` is at most that of the answer.
    at_bounds
        Inputs at a bound. Fixed inputs and those of categories do not count.
    num_free
        How many inputs could be at a bound.
    unseen
        Inputs with a value, and categories with a level, that no row has, though the
        data show nothing else of them: what they do was never observed.
    value
        The prediction at the answer.
    target_range
        The smallest and largest target of the rows, if the targets were given, or else
        of what the model was trained on, if it records that.
    trusted
        Whether a trust region was asked for.
    measured
        The target of the nearest row, if the targets were given.
    """

    nearest: tuple[int, ...]
    distances: tuple[float, ...]
    usual_distance: float
    mahalanobis: float
    percentile: float
    at_bounds: tuple[str, ...]
    num_free: int
    unseen: tuple[str, ...]
    value: float
    target_range: tuple[float, float] | None = None
    trusted: bool = False
    measured: float | None = None

    @classmethod
    def at(
        cls,
        x: Array,
        value: float,
        domain: Domain,
        data: Data,
        target_range: tuple[float, float] | None = None,
    ) -> Extrapolation:
        """The record of a point (num_inputs,) and the prediction there.

        `target_range` is that of the rows if these have no target.

        Examples
        --------
        >>> data = Data([[1, 5], [2, 6], [3, 8]], ("dose", "heat"), [4, 5, 7])
        >>> box = Domain([0, 5], [9, 7])
        >>> far = Extrapolation.at(np.array([9.0, 6.0]), 11.0, box, data)
        >>> far.nearest, far.at_bounds
        ((2, 1, 0), ('x0',))
        """
        away = data.distances(x, domain.groups)
        nearest = np.argsort(away, kind="stable")[
            : min(NEAREST, np.isfinite(away).sum())
        ]
        own, others = mahalanobis(x, data)
        free = domain.upper > domain.lower
        for group in domain.groups:
            free[list(group.inputs)] = False
        reach = AT_BOUND * domain.widths
        ends = free & ((x <= domain.lower + reach) | (x >= domain.upper - reach))
        target = data.target
        return cls(
            nearest=tuple(nearest.tolist()),
            distances=tuple(away[nearest].tolist()),
            usual_distance=data.usual_distance(domain.groups),
            mahalanobis=own,
            percentile=float(100.0 * np.mean(others <= own)),
            at_bounds=tuple(domain.names[j] for j in np.flatnonzero(ends)),
            num_free=int(free.sum()),
            unseen=_unseen(x, domain, data),
            value=value,
            target_range=target_range
            if target is None
            else (float(target.min()), float(target.max())),
            trusted=bool(domain.regions or domain.convex),
            measured=None if target is None else float(target[nearest[0]]),
        )

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Extrapolation:
        """Read back what `to_dict` wrote, lists for tuples as JSON has them."""
        lists = {key: tuple(v) for key, v in plain.items() if isinstance(v, list)}
        return cls(**{**plain, **lists})

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know before believing the prediction, in sentences."""
        found = []
        away = self.distances[0]
        if away > self.usual_distance * (1.0 + 1e-9):
            found.append(
                f"the nearest row of data is {away:.3g} standard deviations away in "
                f"the input that differs most; 95% of the rows have another row within "
                f"{self.usual_distance:.3g}"
            )
        if away > 0.0 and self.percentile >= FAR_PERCENT:
            rest = 100.0 - self.percentile
            others = f"only {rest:.2g}% of the rows are" if rest > 0.0 else "no row is"
            found.append(
                f"its Mahalanobis distance from the mean of the data is "
                f"{self.mahalanobis:.3g}; {others} further away"
            )
        if self.unseen:
            found.append(f"no row of data has {', '.join(map(shown, self.unseen))}")
        above = None
        if self.target_range is not None:
            above = beyond(self.value, self.target_range, "everything measured")
        if (found or above) and self.measured is not None:
            found.append(
                f"in the nearest row of data {self.measured:.6g} was measured; the "
                f"prediction is {self.value:.6g}"
            )
        return (*found, above) if above else tuple(found)

    def lines(self) -> list[str]:
        """The record for a person, line by line."""
        row, away = self.nearest[0], self.distances[0]
        ends = f"{len(self.at_bounds)} of {self.num_free} inputs at their bounds"
        how = _away(away) + " in all inputs that vary" * (
            not away and bool(self.unseen)
        )
        lines = [f"nearest row of data: number {row}, {how}; {ends}"]
        if not self.warnings:
            return lines
        lines.append("warning: the model extrapolates, so its prediction may be wrong:")
        lines += [f"  {words}" for words in self.warnings]
        return [*lines, f"  {self.remedy}"]

    @property
    def remedy(self) -> str:
        """What keeps an answer closer to the data."""
        if self.trusted:
            return (
                f"for a smaller region pass {self.keyword} (--trust near:radius=R), a "
                "radius in standard deviations"
            )
        return f"to stay close to the data pass {self.keyword} (--trust near)"

    @property
    def keyword(self) -> str:
        """The argument that keeps an answer closer to the data."""
        return "trust=ennopt.Near(radius=...)" if self.trusted else 'trust="near"'


def beyond(value: float, measured: tuple[float, float], all_of_it: str) -> str | None:
    """That a prediction is beyond all that was measured; ``None`` if it is not.

    Examples
    --------
    >>> print(beyond(93.0, (2.5, 82.5), "everything measured"))
    the prediction 93 is above everything measured, 2.5 to 82.5
    """
    low, high = measured
    if low <= value <= high:
        return None
    side = "above" if value > high else "below"
    return f"the prediction {value:.6g} is {side} {all_of_it}, {low:.6g} to {high:.6g}"


def mahalanobis(x: Array, data: Data) -> tuple[float, Array]:
    """Mahalanobis distances of a point, and of each row, from the mean of the rows.

    By `Ellipsoid`; inputs that are constant in the data do not count.
    """
    spread = data.spread
    used = spread > 0.0
    if not used.any():
        return 0.0, np.zeros(len(data.rows))
    unit = Ellipsoid.of(data.rows[:, used], 1.0)
    own = float(np.linalg.norm(unit.spread(x[None, used])))
    return own, np.linalg.norm(unit.spread(data.rows[:, used]), axis=1)


def _unseen(x: Array, domain: Domain, data: Data) -> tuple[str, ...]:
    """What the data show nothing of: constant inputs moved, levels without a row."""
    levels = {j for group in domain.groups for j in group.inputs}
    found = [
        f"{domain.names[j]} = {x[j]:g}"
        for j in np.flatnonzero(data.spread == 0.0).tolist()
        if j not in levels and x[j] != data.rows[0, j]
    ]
    alike = [(group, data.alike(x, group)) for group in domain.groups]
    missing = [group for group, same in alike if not same.any()]
    found += [f"{group.name} = {group.level(x)}" for group in missing]
    if alike and not missing and not np.all([same for _, same in alike], axis=0).any():
        found.append(" with ".join(f"{g.name} = {g.level(x)}" for g, _ in alike))
    return tuple(found)


def _away(distance: float) -> str:
    if distance == 0.0:
        return "equal to it"
    return f"{distance:.3g} standard deviations away"
