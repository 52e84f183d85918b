"""What the model predicts at a point that a person chooses, and around it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ennopt.columns import CHANGES
from ennopt.domain.extrapolation import Extrapolation
from ennopt.explore.answers import warned
from ennopt.explore.form import Inquiry
from ennopt.explore.subject import Form, written
from ennopt.met import limits_at, met_at, told_at
from ennopt.network import Array, shown
from ennopt.pages import drawn, told
from ennopt.pages.charts import compact
from ennopt.pages.coordinates import Coordinate, coordinates, line, predictions
from ennopt.pages.render import filled
from ennopt.problem import Problem
from ennopt.question import measured_range
from ennopt.result import Asked, Result, Status, reported

STEPS = 200
"""Steps of a slider from end to end."""

MOST_SLICES = 24
"""Inputs whose slices are shown; of more, the first."""

UNMET = 1e-9
"""A condition is missed if its value is beyond its side by this share of its size."""


def place_of(problem: Problem, form: Form) -> tuple[Array, list[dict[str, Any]]]:
    """The point where the sliders are, (num_inputs,), and the sliders.

    A slider that was not moved, or whose place is no longer allowed, is moved to the
    nearest place that is; at first to the middle.
    """
    domain = problem.domain
    x = 0.5 * (domain.lower + domain.upper)
    sliders = []
    for one in coordinates(problem):
        slider, mine = _slider(problem, one, form.get(f"at-{one.inputs[0]}", ""))
        x[list(one.inputs)] = mine
        sliders.append(slider)
    return x, sliders


def _slider(
    problem: Problem, one: Coordinate, given: str
) -> tuple[dict[str, Any], Array]:
    """A slider, and the values of its inputs."""
    domain, j = problem.domain, one.inputs[0]
    slider: dict[str, Any] = {"id": j, "name": shown(one.name)}
    listed = None if one.levels is not None else domain.values.lists[j]
    if one.levels is not None or listed is not None:
        choices = one.choices(domain, 0)
        points = np.zeros((len(choices), domain.num_inputs))
        points[:, list(one.inputs)] = choices
        at = one.told(points)
        names = [
            written(float(a)) if one.levels is None else str(one.levels[int(a)])
            for a in at
        ]
        k = names.index(given) if given in names else len(names) // 2
        slider |= {"choices": [shown(name) for name in names], "at": names[k]}
        return slider, choices[k]
    low, high = one.range(domain)
    at_ = _number(given, 0.5 * (low + high))
    at_ = min(max(at_, low), high)
    whole = bool(domain.values.whole[j])
    if whole:
        at_ = float(np.rint(at_))
    step = 1.0 if whole else (high - low) / STEPS
    mine = (
        at_ if one.change is None else float(CHANGES[one.change].forward(np.array(at_)))
    )
    mine = min(max(mine, float(domain.lower[j])), float(domain.upper[j]))
    slider |= {
        "low": low, "high": high, "step": step, "at": written(_rounded(at_, step)),
        "ends": (compact(low), compact(high)),
    }  # fmt: skip
    return slider, np.array([mine])


def _number(text: str, otherwise: float) -> float:
    try:
        found = float(text)
    except ValueError:
        return otherwise
    return found if math.isfinite(found) else otherwise


def _rounded(number: float, step: float) -> float:
    """Without digits that a step of the slider cannot mean."""
    if not step > 0.0:
        return number
    return round(number, max(0, 2 - math.floor(math.log10(step))))


def looked_at(question: Inquiry, x: Array) -> Result:
    """The prediction at a point, as a result that proves nothing."""
    problem, data = question.problem, question.data
    values, members = predictions(problem, x[None])
    value = float(values[0])
    result = Result(
        status=Status.INTERRUPTED,
        sense=problem.sense,
        x=x,
        names=problem.domain.names,
        value=value,
        bound=math.inf if problem.sense == "max" else -math.inf,
        member_values=members[:, 0],
        constraints=met_at(problem.domain.rows, x) + limits_at(problem, x),
        inputs=told_at(problem.domain, problem.ensemble, x),
        asked=Asked(problem, data),
    )
    if data is not None:
        own = measured_range(problem) if problem.is_prediction else None
        away = Extrapolation.at(x, value, problem.domain, data, own)
        result = replace(result, extrapolation=away)
    probability = reported(result, problem.ensemble.target).probability
    return replace(result, probability=probability)


def unmet(result: Result) -> list[str]:
    """Why a point is not allowed, in sentences; nothing if it is."""
    assert result.asked is not None
    assert result.x is not None
    problem = result.asked.problem
    found = []
    for met in result.constraints:
        missed = max(met.least - met.value, met.value - met.most)
        ends = [abs(end) for end in (met.least, met.most) if math.isfinite(end)]
        if missed > UNMET * max(1.0, *ends):
            found.append(f"{shown(met.text)} is missed by {compact(missed, 3)}")
    if not found and not problem.domain.contains(result.x):
        found.append(
            "the point is outside of the trust region"
            if problem.domain.regions or problem.domain.convex
            else "a value is not one that its input may take"
        )
    return found


def response(question: Inquiry, x: Array) -> str:
    """What is shown beside the sliders: HTML."""
    result = looked_at(question, x)
    problem = question.problem
    moved = [line(problem, one, x) for one in coordinates(problem)[:MOST_SLICES]]
    slices = drawn.slices(result, [one for one in moved if one is not None])
    for chart in slices:
        chart.note = ""  # the slider says where it is
    return filled(
        "explore_response.html",
        result=result,
        risk=_risk_words(problem),
        unmet=unmet(result),
        members=drawn.members(result),
        nearest=told.nearest_rows(result),
        warning=None
        if result.extrapolation is None
        else [told.sentence(words) for words in warned(result.extrapolation)],
        slices=slices,
        compact=compact,
    )


def _risk_words(problem: Problem) -> str:
    risk = problem.goal.terms[0].risk if problem.goal.terms else None
    return "" if risk is None else risk.words
