"""Which bounds and constraints of an empty set contradict each other.

That the set is empty is proved elsewhere. Here we look for a reason that a person can
read: an *irreducible* part of the statements, which no input meets although every
smaller part of it can be met. HiGHS says of a part whether it can be met; QuickXplain
(Junker 2004) asks about few parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ennopt.domain import Domain
from ennopt.domain.statements import stated
from ennopt.milp.highs import Highs
from ennopt.milp.model import LinearModel
from ennopt.milp.solver import TIGHT_TOLERANCE, MilpStatus, SolveOptions

Entry = TypeVar("Entry")

SECONDS = 5.0
"""Time for the search of a reason. What it finds later is not irreducible, but true."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """A constraint, or one or both bounds of an input: what can be left out."""

    text: str
    row: int | None = None
    lower: int | None = None
    upper: int | None = None


def conflict(domain: Domain, seconds: float = SECONDS) -> tuple[str, ...]:
    """Statements that contradict each other, though no part of them does.

    Parameters
    ----------
    domain
        A set without points.
    seconds
        After this time the statements that are left are returned as they are.

    Returns
    -------
    tuple
        Constraints as the user stated them, and bounds such as ``"cement <= 540"``.
        Nothing if HiGHS, with its tolerance, cannot tell that the set is empty.

    Examples
    --------
    >>> mix = Domain([0, 0, 0], [540, 360, 90], ("cement", "slag", "age"))
    >>> conflict(mix.constrained(["age <= slag", "cement + slag == 2400"]))
    ('cement + slag == 2400', 'cement <= 540', 'slag <= 360')
    """
    whole = domain.values.whole
    end = time.perf_counter() + seconds
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
        left = end - time.perf_counter()
        options = SolveOptions(time_limit=left, tolerance=TIGHT_TOLERANCE)
        return Highs().solve(model, options).status is MilpStatus.INFEASIBLE

    statements = _statements(domain)
    if not empty(statements):
        return ()
    return tuple(statement.text for statement in irreducible(statements, empty))


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
