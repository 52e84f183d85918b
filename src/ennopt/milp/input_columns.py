"""The feasible set in a model: columns of the inputs, and what conditions add to them.

Linear constraints are rows. An input that takes the values of a list has a binary for
each of them, a region near data one for each row of data. A point of a convex hull is a
mixture of the rows: one column for the share of each. An ellipsoid is known by
half-spaces that touch it, some from the start, others where a solution lies outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ennopt.domain import Domain
from ennopt.domain.convex import CLOSE, Convex, Hull
from ennopt.domain.rows import CHECK_ROUNDING
from ennopt.milp.building import Building
from ennopt.milp.model import Indices, Inequality
from ennopt.network import Array


@dataclass(frozen=True, slots=True, eq=False)
class ListColumns:
    """The binaries by which an input chooses from a list of values.

    Parameters
    ----------
    input
        Its number.
    values, columns
        Each value, and the column that is one if it is chosen.
    """

    input: int
    values: Array
    columns: Indices

    def assign(self, v: Array, x: Array) -> None:
        """Set the columns of a vector at the point x."""
        v[self.columns[np.argmin(np.abs(self.values - x[self.input]))]] = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class NearColumns:
    """The binaries of a region around data: which rows' boxes hold the point.

    Parameters
    ----------
    lower, upper
        The boxes, (num_rows, num_inputs).
    columns
        One for each row, (num_rows,).
    count
        How many of them are ones.
    """

    lower: Array
    upper: Array
    columns: Indices
    count: int

    def assign(self, v: Array, x: Array) -> None:
        """Set the columns of a vector at the point x."""
        met = np.all((x >= self.lower) & (x <= self.upper), axis=1)
        v[self.columns[np.flatnonzero(met)[: self.count]]] = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class HullColumns:
    """The shares of the rows of data in a point of their convex hull.

    Parameters
    ----------
    hull
        The region.
    columns
        One share for each row, (num_rows,).
    """

    hull: Hull
    columns: Indices

    def assign(self, v: Array, x: Array) -> None:
        """Set the columns of a vector at the point x."""
        v[self.columns] = self.hull.shares(x)


@dataclass(frozen=True, slots=True, eq=False)
class InputColumns:
    """The feasible set in a model.

    Parameters
    ----------
    inputs
        Columns of x, (num_inputs,).
    more
        What conditions add.
    rounded
        Convex regions that are known by half-spaces which touch them.
    """

    inputs: Indices
    more: tuple[ListColumns | NearColumns | HullColumns, ...] = ()
    rounded: tuple[Convex, ...] = ()

    def assign(self, v: Array, x: Array) -> None:
        """Set the columns of a vector at the point x."""
        v[self.inputs] = x
        for part in self.more:
            part.assign(v, x)

    def half_spaces(self, x: Array) -> list[Inequality]:
        """Those that touch rounded regions on the way from a point outside.

        They hold for all points of the regions, whatever the point.
        """
        return [
            touching(convex, x, self.inputs)
            for convex in self.rounded
            if convex.distance(x[None])[0] > 0.0
        ]


def touching(convex: Convex, x: Array, inputs: Indices) -> Inequality:
    """The half-space of a region that a point gives, its largest slope one."""
    slopes, side = convex.separate(x)
    size = float(np.abs(slopes).max())
    return Inequality(inputs, slopes / size, side / size)


def add_inputs(building: Building, domain: Domain, relaxed: bool) -> InputColumns:
    """Columns and rows of the feasible set, which come first in a model.

    Parameters
    ----------
    building
        Empty.
    domain
        The set; its constraints are wider by what a point may miss them.
    relaxed
        Without whole numbers, lists and regions near data.
    """
    whole = domain.values.whole
    inputs = building.add(
        domain.lower, domain.upper, np.zeros_like(whole) if relaxed else whole
    )
    rows = domain.linear
    least, most = rows.least - domain.slack, rows.most + domain.slack
    for k in range(rows.count):
        (used,) = np.nonzero(rows.matrix[k])
        building.row(inputs[used], rows.matrix[k, used], least[k], most[k])
    more: list[ListColumns | NearColumns | HullColumns] = []
    if not relaxed:
        more += _add_lists(building, domain)
        more += _add_near(building, domain)
    rounded = []
    for convex in domain.convex:
        if isinstance(convex, Hull):
            more.append(_add_hull(building, convex))
        else:
            rounded.append(convex)
            for x in _around(convex):
                cut = touching(convex, x, inputs)
                building.row(cut.columns, cut.coefficients, high=cut.limit)
    return InputColumns(inputs, tuple(more), tuple(rounded))


def _add_lists(building: Building, domain: Domain) -> Iterator[ListColumns]:
    """A binary for each value that an input may choose from."""
    for j, values in enumerate(domain.values.lists):
        if values is None or domain.lower[j] == domain.upper[j]:
            continue
        inside = (values >= domain.lower[j]) & (values <= domain.upper[j])
        values = values[inside]
        ones = np.ones(values.size)
        columns = building.add(0.0 * ones, ones, whole=True)
        building.row(columns, ones, 1.0, 1.0)
        building.row([j, *columns], [-1.0, *values], 0.0, 0.0)
        yield ListColumns(j, values, columns)


def _add_near(building: Building, domain: Domain) -> Iterator[NearColumns]:
    """A binary for each row of data whose box may be one that a point lies in."""
    for region in domain.within(domain.lower, domain.upper).regions:
        lower = np.maximum(region.lower, domain.lower)
        upper = np.minimum(region.upper, domain.upper)
        ones = np.ones(len(lower))
        columns = building.add(0.0 * ones, ones, whole=True)
        building.row(columns, ones, region.count, region.count)
        for j in range(domain.num_inputs):
            if region.count == 1:
                building.row([j, *columns], [1.0, *-lower[:, j]], low=0.0)
                building.row([j, *columns], [1.0, *-upper[:, j]], high=0.0)
                continue
            low, high = domain.lower[j], domain.upper[j]
            for r, column in enumerate(columns):
                up, down = lower[r, j] - low, high - upper[r, j]
                if up > 0.0:
                    building.row([j, column], [1.0, -up], low=low)
                if down > 0.0:
                    building.row([j, column], [1.0, down], high=high)
        yield NearColumns(lower, upper, columns, region.count)


def _add_hull(building: Building, hull: Hull) -> HullColumns:
    """A share for each row of data: the point is their mixture, or close to it."""
    data = hull.data
    ones = np.ones(len(data))
    columns = building.add(0.0 * ones, ones)
    building.row(columns, ones, 1.0, 1.0)
    rounding = (len(data) + 2) * CHECK_ROUNDING * np.abs(data).max(axis=0)
    room = 1.01 * CLOSE * hull.scale + rounding
    for j in range(data.shape[1]):
        (used,) = np.nonzero(data[:, j])
        entries = [-1.0, *data[used, j]]
        building.row([j, *columns[used]], entries, -room[j], room[j])
    return HullColumns(hull, columns)


def _around(convex: Convex) -> Iterator[Array]:
    """Points outside of a region, two along each input from its middle."""
    low, high = convex.box()
    middle = 0.5 * (low + high)
    for j in range(low.size):
        for end in (low, high):
            x = middle.copy()
            x[j] = 2.0 * end[j] - middle[j]
            yield x
