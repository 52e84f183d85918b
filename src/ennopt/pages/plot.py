"""An answer drawn with matplotlib, on axes of the user's own if there are any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ennopt.extras import require
from ennopt.network import Array, shown
from ennopt.pages import drawn
from ennopt.pages.coordinates import Line
from ennopt.pages.told import objective, predicted
from ennopt.result import Result

VALUE, BOUND, MEMBER = "#0b7a70", "#b4501f", "#7f93a8"
"""Colours of the pages."""

COLUMNS = 3
"""Slices beside each other in a figure of our own."""

CELL = (3.4, 2.6)
"""Inches of a drawing in a figure of our own."""

FRONT = 1.6
"""Size of the drawing of a front, as a multiple of a cell."""


def draw(result: Result, what: str, axes: Any) -> Any:
    """Draw part of an answer; see `Result.plot`."""
    if what == "slices":
        return _slices(result, axes)
    if what not in ("members", "convergence", "overview"):
        raise ValueError(
            "Expected 'slices', 'members', 'convergence' or 'overview' to plot, got "
            f"{what!r}."
        )
    if what == "overview":
        if axes is not None:
            raise ValueError(
                "Expected no axes for an overview, got some. Draw its parts: slices, "
                "members, convergence."
            )
        return _overview(result)
    axes = _cells(1)[0] if axes is None else axes
    if what == "members":
        _members(result, axes)
    else:
        _convergence(result, axes)
    return axes


def _cells(count: int, scale: float = 1.0) -> Any:
    """Axes of a new figure, as many as asked for."""
    pyplot = require("matplotlib.pyplot", "plot")
    across = min(COLUMNS, count)
    down = math.ceil(count / across)
    size = (scale * CELL[0] * across, scale * CELL[1] * down)
    _, axes = pyplot.subplots(
        down, across, figsize=size, squeeze=False, layout="constrained"
    )
    for unused in axes.flat[count:]:
        unused.set_visible(False)
    return axes.flat[:count]


def _overview(result: Result) -> Any:
    lines = drawn.lines(result)
    cells = _cells(2 + len(lines))
    _convergence(result, cells[0])
    _members(result, cells[1])
    for one, axes in zip(lines, cells[2:], strict=True):
        _slice(one, result, axes)
    return cells


def _slices(result: Result, axes: Any) -> Any:
    lines = drawn.lines(result)
    if not lines:
        raise ValueError(
            "Expected a result with its problem and an answer, got one without. Plot "
            "what maximize, minimize or solve returned."
        )
    if axes is None:
        axes = _cells(len(lines))
    for one, cell in zip(lines, np.ravel(axes), strict=False):
        _slice(one, result, cell)
    return axes


def _slice(one: Line, result: Result, axes: Any) -> None:
    asked = result.asked
    assert asked is not None
    data, at = asked.data, one.at
    measured = asked.problem.is_prediction and data is not None
    if measured and data is not None and data.target is not None:
        across = one.coordinate.told(data.rows)
        axes.plot(across, data.target, ".", ms=2, color=MEMBER, alpha=0.3, zorder=0)
    look = "o" if one.labels else "-"
    if len(one.members) > 1:
        axes.plot(at, one.members.T, look, ms=3, lw=0.7, color=MEMBER)
    axes.plot(at, one.values, look, lw=1, color=VALUE, alpha=0.35)
    allowed = np.where(one.feasible, one.values, np.nan)
    axes.plot(at, allowed, look, lw=2, color=VALUE)
    axes.plot(at[one.here], one.values[one.here], "o", mfc="white", mec=BOUND, mew=2)
    axes.axvline(at[one.here], color=BOUND, lw=0.8, zorder=0)
    if one.labels:
        axes.set_xticks(at, one.labels)
    axes.set_title(shown(one.coordinate.name), fontsize="medium")


def _members(result: Result, axes: Any) -> None:
    values = result.member_values
    places = np.arange(1, values.size + 1)
    centre = predicted(result)
    axes.hlines(places, centre, values, color=MEMBER, lw=1)
    axes.plot(values, places, "o", color=VALUE)
    axes.axvline(centre, color=VALUE)
    axes.set_yticks(places)
    axes.invert_yaxis()
    axes.set(xlabel="prediction", ylabel="member")
    axes.set_title("Members", fontsize="medium")


def _convergence(result: Result, axes: Any) -> None:
    moments = [*result.history]
    times = [event.seconds for event in moments]
    for name, look in (("value", VALUE), ("bound", BOUND)):
        numbers = np.array([getattr(event, name) for event in moments])
        known = np.where(np.isfinite(numbers), numbers, np.nan)
        axes.step(times, known, where="post", color=look, label=name)
    axes.set(xlabel="seconds", ylabel=objective(result))
    axes.set_title("Value and bound", fontsize="medium")
    axes.legend(frameon=False)


def draw_front(
    values: Array,
    empty: Sequence[tuple[float, float]],
    names: tuple[str, str],
    senses: tuple[str, str],
    axes: Any,
) -> Any:
    """Draw points (num_points, 2) of a front, and what is proved to be out of reach.

    See `ennopt.pareto.Front`, of which these are parts.
    """
    axes = _cells(1, FRONT)[0] if axes is None else axes
    signs = np.array([1.0 if sense == "max" else -1.0 for sense in senses])
    if len(values):
        points = signs * values
        low, high = points.min(axis=0), points.max(axis=0)
        room = 0.06 * np.where(high > low, high - low, 1.0)
        low, high = low - room, high + room
        corners = np.clip(signs * np.array(empty).reshape(-1, 2), low, high)
        # What is excluded at each value of the first: all above the lowest corner.
        ends = np.unique(np.concatenate([corners[:, 0], [low[0], high[0]]]))
        limits = [corners[corners[:, 0] <= end, 1].min(initial=high[1]) for end in ends]
        axes.fill_between(
            signs[0] * ends, signs[1] * np.array(limits), signs[1] * high[1],
            step="post", color=BOUND, alpha=0.15, lw=0, label="proved out of reach",
        )  # fmt: skip
        axes.plot(*values.T, "o", color=VALUE, ms=5, label="best found")
        axes.legend(frameon=False)
    axes.set(xlabel=shown(names[0]), ylabel=shown(names[1]))
    return axes
