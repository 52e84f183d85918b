"""What limits keep in check, for a page: numbers and slices of each limited function.

The least cost of a strength tells little about the strength. So a page shows what is
limited as it shows what is optimized.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from ennopt.met import Met, limits_at
from ennopt.network import shown
from ennopt.pages.charts import Chart, compact
from ennopt.pages.drawn import lines, slices
from ennopt.problem import Limit, Problem, Term
from ennopt.result import Result

MOST_LIMITED = 4
"""Limited functions that have slices on a page; of more, the first."""

SIDES = re.compile(r"<=|>=|==")


@dataclass(frozen=True, slots=True, eq=False)
class Limited:
    """A function that has limits, at an answer.

    Parameters
    ----------
    name
        What the user calls it.
    problem
        One in which it is the goal, over the same inputs and with the same limits.
    met
        How its limits are met.
    """

    name: str
    problem: Problem
    met: tuple[Met, ...]

    @property
    def tile(self) -> dict[str, str]:
        """Its value, with its limits."""
        told = "; ".join(
            dict.fromkeys(f"{shown(met.text)}: {met.words}" for met in self.met)
        )
        number = compact(self.met[0].value, 7)
        return {"name": self.name, "number": number, "words": told}

    def slices(self, result: Result) -> list[Chart]:
        """How it changes along each input, with its limits as lines."""
        levels = [
            (end, shown(met.text))
            for met in self.met
            for end in (met.least, met.most)
            if np.isfinite(end)
        ]
        return slices(result, lines(result, self.problem), self.problem, levels)


def limited(result: Result) -> list[Limited]:
    """What is limited and is not what is optimized, each function once."""
    if result.asked is None or result.x is None:
        return []
    problem = result.asked.problem
    found: dict[object, Limited] = {}
    goal = _key(problem.goal.terms, problem.goal.inputs.tobytes(), 1.0)
    for limit, met in zip(problem.limits, limits_at(problem, result.x), strict=True):
        inputs = limit.sign * limit.function.inputs + 0.0
        key = _key(limit.function.terms, inputs.tobytes(), limit.sign)
        if key == goal:
            continue
        if key in found:
            found[key] = replace(found[key], met=(*found[key].met, met))
        else:
            found[key] = Limited(_name(limit), _as_goal(problem, limit), (met,))
    return list(found.values())[:MOST_LIMITED]


def _key(terms: tuple[Term, ...], inputs: bytes, sign: float) -> object:
    """Equal for functions that are the same, as a user states them."""
    return inputs, tuple(
        (
            id(term.ensemble), sign * term.factor, repr(term.output),
            # A risk is low in a lower limit and high in an upper one.
            None if term.own_risk is None else (repr(term.own_risk), sign),
        )
        for term in terms
    )  # fmt: skip


def _as_goal(problem: Problem, limit: Limit) -> Problem:
    """The limited function as what is optimized."""
    function, sense = limit.function, problem.sense
    if limit.sign > 0:
        sense = "max"
    else:
        function, sense = function.negated(), "min"
    first = function.terms[0]
    return replace(
        problem, ensemble=first.ensemble, output=first.output, goal=function,
        sense=sense,
    )  # fmt: skip


def _name(limit: Limit) -> str:
    """What is limited, as the user writes it; all of the limit if that is not plain.

    Examples
    --------
    >>> from ennopt.problem import Combination
    >>> nothing = Combination((), np.zeros(1))
    >>> _name(Limit(nothing, 1.0, "std(strength) <= 2"))
    'std(strength)'
    >>> _name(Limit(nothing, 1.0, "strength >= 2*cement"))
    'strength >= 2*cement, left side less right side'
    """
    sides = [side.strip() for side in SIDES.split(limit.text)]
    numbers = [_is_number(side) for side in sides]
    if len(sides) - sum(numbers) == 1:
        return shown(sides[numbers.index(False)])
    return f"{shown(limit.text)}, left side less right side"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
