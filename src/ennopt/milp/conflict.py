"""Which bounds and constraints of an empty set contradict each other.

That the set is empty is proved elsewhere. Here we look for a reason that a person can
read: an *irreducible* part of the statements, which no input meets although every
smaller part of it can be met. HiGHS says of a part whether it can be met; QuickXplain
(Junker 2004) asks about few parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ennopt import clock
from ennopt.domain import Domain
from ennopt.domain.regions import NearRows
from ennopt.domain.statements import stated
from ennopt.milp.highs import Highs
from ennopt.milp.model import LinearModel
from ennopt.milp.solver import TIGHT_TOLERANCE, MilpStatus, SolveOptions
from ennopt.network import Array

Entry = TypeVar("Entry")

SECONDS = 5.0
"""Time for the search of a reason. What is left by then is true, but may be more than
is needed."""

SHOWN_VALUES = 10
"""Values of a list that a statement shows."""

SOLVES = 2000
"""Questions to HiGHS, at most: fifty statements that contradict each other, of a
hundred thousand, take fewer."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a set is empty.

    Parameters
    ----------
    statements
        Constraints as the user stated them, and bounds such as ``"cement <= 540"``,
        that contradict each other. Nothing if HiGHS, with its tolerance and in its
        time, cannot tell that the set is empty.
    is_irreducible
        Whether every smaller part of them can be met. Not known to be so if the search
        was stopped at a limit.
    seconds
        How long the search took.
    near_data
        Whether a region near rows of data is among the statements.
    """

    statements: tuple[str, ...]
    is_irreducible: bool
    seconds: float
    near_data: bool = False


@dataclass(frozen=True, slots=True)
class _Statement:
    """A constraint, or one or both bounds of an input: what can be left out."""

    text: str
    row: int | None = None
    lower: int | None = None
    upper: int | None = None


def conflict(domain: Domain, seconds: float = SECONDS, solves: int = SOLVES) -> Reason:
    """Statements that contradict each other, though no part of them does.

    Parameters
    ----------
    domain
        A set without points.
    seconds, solves
        After this time, or so many questions to HiGHS, the statements that are left
        are returned as they are.

    Examples
    --------
    >>> mix = Domain([0, 0, 0], [540, 360, 90], ("cement", "slag", "age"))
    >>> found = conflict(mix.constrained(["age <= slag", "cement + slag == 2400"]))
    >>> found.statements
    ('cement + slag == 2400', 'cement <= 540', 'slag <= 360')
    """
    whole = domain.values.whole
    begin = clock.now()
    asked, is_stopped = 0, False
    # HiGHS has absolute tolerances: every input and every row is measured in its size.
    half = np.where(domain.widths > 0.0, 0.5 * domain.widths, 1.0)
    shift = np.where(whole, np.round(domain.centre), domain.centre)
    unit = domain.moved(shift).on_units(np.where(whole, 1.0, half))
    rows = unit.rows
    sizes = np.abs(rows.matrix).max(axis=1, initial=0.0)
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    matrix = rows.matrix / sizes[:, None]
    least, most = rows.least / sizes, rows.most / sizes

    def empty(part: Sequence[_Statement]) -> bool:
        nonlocal asked, is_stopped
        left = begin + seconds - clock.now()
        if is_stopped or left <= 0.0 or asked >= solves:
            is_stopped = True
            return False  # not known to be empty, so that nothing more is dropped
        asked += 1
        lower = np.full(domain.num_inputs, -np.inf)
        upper = np.full(domain.num_inputs, np.inf)
        for statement in part:
            if statement.lower is not None:
                lower[statement.lower] = unit.lower[statement.lower]
            if statement.upper is not None:
                upper[statement.upper] = unit.upper[statement.upper]
        used = [s.row for s in part if s.row is not None]
        model = LinearModel.of(
            lower, upper, np.zeros_like(lower), matrix[used],
            lower_rows=least[used], upper_rows=most[used], integer=whole,
        )  # fmt: skip
        options = SolveOptions(time_limit=left, tolerance=TIGHT_TOLERANCE)
        status = Highs().solve(model, options).status
        is_stopped = status is MilpStatus.TIME_LIMIT
        return status is MilpStatus.INFEASIBLE

    if alone := of_one_input(domain):
        taken = clock.now() - begin
        near = any(one.region is not None for one in alone)
        return Reason(tuple(one.text for one in alone), True, taken, near)
    statements = _statements(domain)
    found = irreducible(statements, empty) if empty(statements) else []
    return Reason(
        tuple(statement.text for statement in found),
        not is_stopped,
        clock.now() - begin,
    )


def irreducible(
    statements: Sequence[Entry], empty: Callable[[Sequence[Entry]], bool]
) -> list[Entry]:
    """A part of contradictory statements of which every smaller part can be met.

    Statements at the end of the list are dropped first. If `empty` is wrong in saying
    that a part can be met, the result may be larger than necessary, but contradicts
    itself still.

    Parameters
    ----------
    statements
        Contradictory together.
    empty
        Whether some statements contradict each other; true of more of them, then.

    Examples
    --------
    >>> irreducible([3, 1, 4, 1, 5], lambda part: sum(part) > 7)
    [3, 1, 4]
    """

    def among(known: list[Entry], new: bool, rest: list[Entry]) -> list[Entry]:
        """The part of `rest` that contradicts itself together with `known`."""
        if new and empty(known):
            return []
        if len(rest) <= 1:
            return rest
        middle = len(rest) // 2
        first, second = rest[:middle], rest[middle:]
        of_second = among([*known, *first], True, second)
        of_first = among([*known, *of_second], bool(of_second), first)
        return [*of_first, *of_second]

    return among([], False, list(statements))


@dataclass(frozen=True, slots=True)
class _OfOne:
    """What one statement says about one input."""

    text: str
    least: float = -np.inf
    most: float = np.inf
    is_kind: bool = False
    region: NearRows | None = None


def of_one_input(domain: Domain) -> list[_OfOne]:
    """Statements on one input alone that contradict each other, or nothing.

    Unlike HiGHS this knows lists of values and regions near data.

    Examples
    --------
    >>> from ennopt.domain.discrete import discretised
    >>> grades = discretised(Domain([0, 0], [9, 9]), None, {"x1": [2, 4]}, None)
    >>> found = of_one_input(grades.constrained("2.5 <= x1 <= 3.5"))
    >>> [one.text for one in found]
    ['2.5 <= x1 <= 3.5', 'x1 is one of 2, 4']
    """
    used = domain.rows.matrix != 0.0
    alone = used.sum(axis=1) == 1
    for j in range(domain.num_inputs):
        said = _said_of(domain, j, np.flatnonzero(alone & used[:, j]))

        def empty(part: Sequence[_OfOne], j: int = j) -> bool:
            return _is_empty(part, j, domain)

        if empty(said):
            return irreducible(said, empty)
    return []


def _said_of(domain: Domain, j: int, own: npt.NDArray[np.intp]) -> list[_OfOne]:
    """What is said of an input alone: constraints (`own`), regions, values, bounds."""
    rows, name, found = domain.rows, domain.names[j], []
    for k in own.tolist():
        slope, slack = float(rows.matrix[k, j]), float(domain.slack[k])
        ends = ((rows.least[k] - slack) / slope, (rows.most[k] + slack) / slope)
        found.append(_OfOne(rows.texts[k], min(ends), max(ends)))
    for region in domain.regions:
        low, high = float(region.lower[:, j].min()), float(region.upper[:, j].max())
        text = f"{name} close to rows of data, which takes it to [{low:g}, {high:g}]"
        found.append(_OfOne(text, region=region))
    low, high = float(domain.lower[j]), float(domain.upper[j])
    listed = domain.values.lists[j]
    if listed is not None and low < high:
        listed = listed[(listed >= low) & (listed <= high)]
        told = ", ".join(f"{at:g}" for at in listed[:SHOWN_VALUES])
        more = len(listed) - SHOWN_VALUES
        told += f" and {more} more" if more > 0 else ""
        return [*found, _OfOne(f"{name} is one of {told}", low, high, is_kind=True)]
    if low == high:
        text = stated(np.ones(1), low, high, [name])
        return [*found, _OfOne(text, low, high)]
    if domain.values.whole[j]:
        found.append(_OfOne(f"{name} is a whole number", is_kind=True))
    return [
        *found,
        _OfOne(stated(np.ones(1), low, np.inf, [name]), least=low),
        _OfOne(stated(np.ones(1), -np.inf, high, [name]), most=high),
    ]


def _is_empty(part: Sequence[_OfOne], j: int, domain: Domain) -> bool:
    """Whether it is sure that no number is what all of these say of input `j`."""
    least = max((one.least for one in part), default=-np.inf)
    most = min((one.most for one in part), default=np.inf)
    values = domain.values.reordered([j]) if any(one.is_kind for one in part) else None

    def met(low: Array, high: Array) -> npt.NDArray[np.bool_]:
        """Which intervals, (num_intervals,), hold a number."""
        if values is not None:
            low, high = values.up(low[:, None])[:, 0], values.down(high[:, None])[:, 0]
        return np.asarray(low <= high)

    if not met(np.array([least]), np.array([most]))[0]:
        return True
    return any(
        met(
            np.maximum(one.region.lower[:, j], least),
            np.minimum(one.region.upper[:, j], most),
        ).sum()
        < one.region.count
        for one in part
        if one.region is not None
    )


def _statements(domain: Domain) -> list[_Statement]:
    """The constraints, then the bounds: these are the first to be dropped."""
    found = [_Statement(text, row=k) for k, text in enumerate(domain.linear.texts)]
    for j, name in enumerate(domain.names):
        low, high = float(domain.lower[j]), float(domain.upper[j])

        def told(least: float, most: float, name: str = name) -> str:
            return stated(np.ones(1), least, most, [name])

        if low == high:
            found.append(_Statement(told(low, high), lower=j, upper=j))
        else:
            found.append(_Statement(told(low, np.inf), lower=j))
            found.append(_Statement(told(-np.inf, high), upper=j))
    return found
