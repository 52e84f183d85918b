"""Trust regions: where the data say that a model may be believed.

| given as `trust` | a point must lie |
|---|---|
| ``"near"`` | near a row of data, each input within a radius of the row's |
| ``Near(radius=0.5, count=3)`` | near three rows, half a standard deviation away |
| ``"box"`` | in the range of the data, whatever the bounds are |
| ``"hull"`` | in the convex hull of the data: a mixture of rows |
| ``"mahalanobis"`` | no further from the mean, by covariance, than 95% of the rows |
| ``Mahalanobis(radius=2)`` | within two standard deviations in every direction |
| ``"near:radius=0.5,count=3"`` | the same as text, also ``"mahalanobis:radius=2"`` |
| a list of these | in all of them |

The default radius is the *usual distance* of the data: of all rows, 95% have another
row that is no further away in any input, measured in standard deviations of the input.
So a row that was left out of the data would be accepted 95 times in a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from ennopt.domain.convex import Ellipsoid, Hull
from ennopt.domain.data import USUAL_SHARE, Data
from ennopt.domain.frames import unknown_name
from ennopt.domain.regions import NearRows
from ennopt.domain.rows import Rows
from ennopt.domain.sets import Domain
from ennopt.domain.statements import stated
from ennopt.network import Array


@dataclass(frozen=True, slots=True)
class Mahalanobis:
    """Trust a model within a Mahalanobis distance of the mean of the data.

    Parameters
    ----------
    radius
        In standard deviations; ``None`` for the distance that 95% of the rows keep.

    Examples
    --------
    >>> Mahalanobis(2.0)
    Mahalanobis(radius=2.0)
    """

    radius: float | None = None

    def __post_init__(self) -> None:
        radius = self.radius
        if radius is not None and not (
            isinstance(radius, Real) and 0.0 < float(radius) < np.inf
        ):
            raise ValueError(f"Expected a radius above 0, got {radius!r:.60} at trust.")

    def region(self, data: Data) -> Ellipsoid:
        """The region around rows of data."""
        if not np.ptp(data.rows, axis=0).any():
            raise ValueError(
                'Expected at least two different rows for trust="mahalanobis", '
                "got one. "
                'Give more rows, or use trust="near" with a radius.'
            )
        radius = self.radius
        if radius is None:
            lengths = np.linalg.norm(
                Ellipsoid.of(data.rows, 1.0).spread(data.rows), axis=1
            )
            radius = float(np.percentile(lengths, 100.0 * USUAL_SHARE))
        return Ellipsoid.of(data.rows, float(radius))


@dataclass(frozen=True, slots=True)
class Near:
    """Trust a model near rows of data.

    Parameters
    ----------
    radius
        How far each input may be from that of a row. A number counts standard
        deviations of the input in the data. A dict has distances by name in the units
        of the inputs; inputs that it leaves out have the default, ``None``: the usual
        distance of the data, see the head of this module. The radius of an input that
        takes whole numbers is rounded to a whole number, and so is the row there. A
        category must have the level of the row, unless a dict says ``{"plant": 1}``.
    count
        How many rows must be so near. Rows that are equal count once. The default
        radius does not depend on it: more rows make a smaller region.

    Examples
    --------
    >>> Near(radius=0.5, count=3)
    Near(radius=0.5, count=3)
    >>> Near(radius=-1)
    Traceback (most recent call last):
    ...
    ValueError: Expected a radius of at least 0, got -1 at trust.
    """

    radius: float | Mapping[str, float] | None = None
    count: int = 1

    def __post_init__(self) -> None:
        radii = self.radius
        if radii is None:
            radii = {}
        elif not isinstance(radii, Mapping):
            radii = {"": radii}
        for name, radius in radii.items():
            if not (isinstance(radius, Real) and 0.0 <= float(radius) < np.inf):
                told = f" for {name}" * bool(name)
                raise ValueError(
                    f"Expected a radius of at least 0, got {radius!r:.60}{told} at "
                    "trust."
                )
        if not isinstance(self.count, Integral) or self.count < 1:
            raise ValueError(
                f"Expected a count of at least 1 row, got {self.count!r:.60} at trust."
            )

    def radii(self, data: Data, domain: Domain) -> Array:
        """The radius of each input, in its own units, (num_inputs,)."""
        groups = domain.groups
        if isinstance(self.radius, Real):
            radii = float(self.radius) * data.spread
        else:
            radii = data.usual_distance(groups) * data.spread
        radii = np.where(domain.values.whole, np.rint(radii), radii)
        places = {name: [j] for j, name in enumerate(domain.names)}
        for group in groups:
            places[group.name] = list(group.inputs)
            radii[places[group.name]] = 0.0
        by_name = self.radius if isinstance(self.radius, Mapping) else {}
        for name, radius in by_name.items():
            if name not in places:
                raise ValueError(
                    f"Expected the name of an input, got {name!r} at the radius of "
                    f"trust. {unknown_name(str(name), list(places))}"
                )
            radii[places[name]] = float(radius)
        return np.asarray(radii)

    def region(self, data: Data, domain: Domain) -> NearRows:
        """The region around rows of data in a domain."""
        # Where whole numbers are asked for, rows between them stand for the nearest.
        rows = np.where(domain.values.whole, np.rint(data.rows), data.rows)
        rows = np.unique(rows, axis=0)
        if self.count > len(rows):
            raise ValueError(
                f"Expected a count of at most the {len(rows)} different rows of data, "
                f"got {self.count} at trust."
            )
        return NearRows.rows(rows, self.radii(data, domain), self.count)


def trusted(domain: Domain, trust: Any, data: Data | None) -> Domain:
    """The part of a domain in which a model is trusted.

    Parameters
    ----------
    domain
        What else is said about the inputs.
    trust
        In any of the forms that the head of this module lists.
    data
        The rows of data.

    Examples
    --------
    >>> data = Data([[1, 5], [2, 5], [9, 8]], ("dose", "heat"))
    >>> near = trusted(Domain([0, 0], [10, 10]), Near(radius=0.1), data)
    >>> near.contains([1.9, 5.1]), near.contains([5, 5])
    (True, False)
    """
    parts = trust if isinstance(trust, list | tuple) else [trust]
    parts = [part for part in parts if part is not None]
    if not parts:
        return domain
    if data is None:
        raise ValueError(
            f"Expected rows of data to trust the model near, got none with trust="
            f"{trust!r:.60}. Pass the rows as data=X (on the command line --data FILE)."
        )
    for part in map(region_of, parts):
        if isinstance(part, Near):
            domain = _near(domain, part, data)
        elif part == "near":
            domain = _near(domain, Near(), data)
        elif part == "box":
            domain = _boxed(domain, data.rows.min(axis=0), data.rows.max(axis=0), part)
        elif part == "hull":
            domain = _convex(domain, Hull(data.rows), part)
        elif part == "mahalanobis" or isinstance(part, Mahalanobis):
            own = part if isinstance(part, Mahalanobis) else Mahalanobis()
            domain = _convex(domain, own.region(data), "mahalanobis")
        else:
            raise _unknown(part)
    return domain


def region_of(given: Any) -> Any:
    """A trust region; a text with numbers becomes what it says, all else stays.

    Examples
    --------
    >>> region_of("near:radius=0.3,count=3")
    Near(radius=0.3, count=3)
    >>> region_of("mahalanobis:radius=2")
    Mahalanobis(radius=2.0)
    >>> region_of("hull")
    'hull'
    """
    if not (isinstance(given, str) and ":" in given):
        return given
    name, _, rest = given.partition(":")
    kinds: dict[str, tuple[Callable[..., Any], dict[str, Callable[[str], Any]]]] = {
        "near": (Near, {"radius": float, "count": int}),
        "mahalanobis": (Mahalanobis, {"radius": float}),
    }
    wrong = ValueError(
        "Expected trust with its numbers as near:radius=R,count=N or "
        f"mahalanobis:radius=R, got {given!r:.60}."
    )
    if name not in kinds:
        raise wrong
    kind, readers = kinds[name]
    said: dict[str, Any] = {}
    for entry in rest.split(","):
        word, _, number = (part.strip() for part in entry.partition("="))
        if word not in readers or word in said:
            raise wrong
        try:
            said[word] = readers[word](number)
        except ValueError:
            raise wrong from None
    return kind(**said)


def _near(domain: Domain, near: Near, data: Data) -> Domain:
    region = near.region(data, domain).within(domain.lower, domain.upper)
    return replace(domain, regions=(*domain.regions, region))


def _convex(domain: Domain, region: Hull | Ellipsoid, name: str) -> Domain:
    boxed = _boxed(domain, *region.box(), name)
    return replace(boxed, convex=(*boxed.convex, region))


def _boxed(domain: Domain, low: Array, high: Array, trust: str) -> Domain:
    """The part of a domain in a box.

    If the box has no value that a discrete input may take, the input keeps its range
    and gets the box as a constraint: so the set is empty, and an answer can say why.
    """
    values = domain.values
    lower, upper = np.maximum(domain.lower, low), np.minimum(domain.upper, high)
    missed = values.discrete & (values.up(lower) > values.down(upper))
    for j, name in enumerate(domain.names):
        if missed[j]:
            continue
        if lower[j] > upper[j]:
            raise ValueError(
                f"Expected bounds that meet the range [{low[j]:g}, {high[j]:g}] of the "
                f'data, as trust="{trust}" asks, got [{domain.lower[j]:g}, '
                f"{domain.upper[j]:g}] at input {name}. Widen them, or leave trust out."
            )
    rows = domain.rows
    for j in np.flatnonzero(missed).tolist():
        unit = np.eye(domain.num_inputs)[j]
        text = f'{stated(unit, low[j], high[j], domain.names)} (trust="{trust}")'
        rows = rows.and_(Rows(unit[None], low[[j]], high[[j]], (text,)))
    # A new set: its slack is its own.
    return Domain(
        np.where(missed, domain.lower, lower), np.where(missed, domain.upper, upper),
        domain.names, rows, values, domain.groups, domain.regions, domain.convex,
    )  # fmt: skip


def _unknown(part: Any) -> ValueError | TypeError:
    """What is said of regions that there are not."""
    if isinstance(part, str):
        return ValueError(
            f'Expected trust "near", "box", "hull" or "mahalanobis", got {part!r:.60}.'
        )
    return TypeError(
        'Expected trust "near", "box", "hull", "mahalanobis", ennopt.Near(...), '
        f"ennopt.Mahalanobis(...) or a list of these, got {type(part).__name__}."
    )
