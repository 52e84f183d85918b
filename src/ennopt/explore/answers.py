"""Answers side by side, and what can be downloaded of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ennopt.domain.extrapolation import Extrapolation
from ennopt.network import shown
from ennopt.pages import told
from ennopt.pages.charts import compact
from ennopt.pages.coordinates import coordinates
from ennopt.pages.render import filled, page
from ennopt.question import MORE_ROOM, NOT_NEAR
from ennopt.result import Result

FILES = {
    "report.html": ("Report", "text/html; charset=utf-8"),
    "answer.json": ("JSON", "application/json"),
    "answer.py": ("Python", "text/x-python; charset=utf-8"),
}
"""What each answer has: the name of the file, what it is called, and its type."""


IN_THE_FORM = {
    NOT_NEAR: "Ranges and constraints do not seem to contradict each other, but "
    'nothing near the data meets them: raise "Radius of trust", or loosen them.',
    MORE_ROOM: 'For answers further from the data raise "Radius of trust".',
}
"""Notes that name a keyword, in the words of the form."""


def warned(away: Extrapolation) -> list[str]:
    """Why a prediction may be wrong, and the field that keeps it closer to the data."""
    if not away.warnings:
        return []
    if away.trusted:
        remedy = 'for a smaller region lower "Radius of trust"'
    else:
        remedy = 'to stay close to the data, set "Stay where the data are"'
    return [*away.warnings, remedy]


def content(result: Result, file: str) -> str:
    """The text of a file of `FILES`."""
    if file == "report.html":
        return page(result)
    if file == "answer.json":
        return result.to_json(indent=2) + "\n"
    assert result.asked is not None
    return f"{result.asked.command}\n"


def table(answers: Mapping[str, Result], names: Sequence[str]) -> str:
    """Answers as the columns of a table, in the order of `names`: HTML."""
    columns = [_column(name, k, answers[name]) for k, name in enumerate(names)]
    inputs: dict[str, list[dict[str, Any]]] = {}
    for k, column in enumerate(columns):
        for row in column["recipe"]:
            cells = inputs.setdefault(row["name"], [{} for _ in columns])
            cells[k] = row
    return filled("explore_answers.html", columns=columns, inputs=inputs, files=FILES)


def _column(name: str, number: int, result: Result) -> dict[str, Any]:
    asked, away = result.asked, result.extrapolation
    assert asked is not None
    near = ""
    if away is not None:
        distance = compact(away.distances[0], 3)
        near = f"row {away.nearest[0]}, {distance} standard deviations away"
    return {
        "name": name,
        "letter": letter(number),
        "verdict": told.verdict(result),
        "sense": {"max": "largest", "min": "smallest"}[result.sense],
        "value": compact(result.value, 7) if result.x is not None else "none",
        "bound": compact(result.bound, 7),
        "gap": told.left(result) if result.x is not None else "",
        "members": compact(result.member_std, 3)
        if result.member_values.size > 1
        else "",
        "near": near,
        "warnings": [] if away is None else warned(away),
        "asked": _asked(result),
        "recipe": told.recipe(result),
        "time": told.seconds_in_words(result.seconds.get("total", 0.0)),
        "conflict": result.contradictory,
        "notes": [shown(IN_THE_FORM.get(note, note)) for note in result.notes],
        "point": _point(result),
    }


def _asked(result: Result) -> list[str]:
    """What was asked beyond bounds, in a few words each."""
    assert result.asked is not None
    problem = result.asked.problem
    found = [shown(met.text) for met in result.constraints]
    risk = problem.goal.terms[0].risk if problem.goal.terms else None
    if risk is not None:
        found.append(risk.words)
    if problem.domain.regions or problem.domain.convex:
        found.append("trust region")
    return found


def _point(result: Result) -> dict[str, str]:
    """Where the sliders are at the answer, by their names."""
    if result.x is None or result.asked is None:
        return {}
    found = {}
    for one in coordinates(result.asked.problem):
        at = float(one.told(result.x[None])[0])
        level = one.levels[int(at)] if one.levels is not None else None
        text = repr(at).removesuffix(".0") if level is None else str(level)
        found[f"at-{one.inputs[0]}"] = text
    return found


def letter(number: int) -> str:
    """A name for a column: A, B, ..., Z, A2, B2, ...

    Examples
    --------
    >>> letter(0), letter(27)
    ('A', 'B2')
    """
    round_, place = divmod(number, 26)
    return chr(ord("A") + place) + (str(round_ + 1) if round_ else "")
