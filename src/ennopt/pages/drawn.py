"""The charts of a page, made from a result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ennopt.domain.extrapolation import mahalanobis
from ennopt.network import Array, shown
from ennopt.pages.charts import (
    BOTTOM,
    TOP,
    Chart,
    coloured,
    compact,
    contours,
    data_url,
    framed,
    png,
    widened,
)
from ennopt.pages.coordinates import (
    Coordinate,
    Line,
    Plane,
    coordinates,
    line,
    plane,
)
from ennopt.pages.told import predicted
from ennopt.problem import Problem
from ennopt.result import Event, Result

MOST_LINES = 12
"""Slices along one input that a page shows: those along which most happens."""

MOST_PLANES = 3
"""Inputs of which all pairs are shown as surfaces."""

MOST_MEMBERS = 12
"""Of more members, the range is drawn instead of each."""

MOST_ROWS = 400
"""Rows of data in a drawing: of more, evenly spaced ones."""

MOST_HISTOGRAMS = 24
"""Histograms that a page shows."""

SMALL, BARE = 150, 10
"""Height of a histogram, and the room at the left of one: it has no numbers there."""

MOST_EVENTS = 300
"""Moments of a history in a drawing."""

BINS = 24
"""Of a histogram."""

LEVELS = 7
"""Contour lines of a surface."""

LEAST_GAP = 1e-9
"""Smaller gaps are drawn as this."""


def convergence(result: Result) -> list[Chart]:
    """How value and bound met, and the gap on the way."""
    end = result.seconds.get("total", 0.0)
    return meeting(result.history, end, result.sense, result.asked_gap)


def meeting(
    history: Sequence[Event], end: float, sense: str, asked_gap: float | None
) -> list[Chart]:
    """How value and bound met so far, and the gap on the way.

    Parameters
    ----------
    history
        When the value or the bound changed.
    end
        The time until which they are known, in seconds.
    sense
        ``"max"`` or ``"min"``.
    asked_gap
        At which gap the run ends.
    """
    events = [e for e in history if math.isfinite(e.value + e.bound)]
    if len(events) < 2:
        return []
    step = max(1, len(events) // MOST_EVENTS)
    kept = (
        events[::step]
        if events[-1] in events[::step]
        else [*events[::step], events[-1]]
    )
    times = [event.seconds for event in kept]
    end = max(times[-1], end)
    times.append(end)
    values = [event.value for event in kept] + [kept[-1].value]
    bounds = [event.bound for event in kept] + [kept[-1].bound]
    unit, factor = ("milliseconds", 1e3) if end < 1 else ("seconds", 1.0)
    times = [factor * at for at in times]
    both = framed(
        "Value and bound over time", (0.0, times[-1]),
        widened(*_window(values, bounds)), x_label=unit,
    )  # fmt: skip
    both.steps("bound", times, bounds)
    both.steps("value", times, values)
    above = sense == "max"
    both.words("bound", times[-1], bounds[-1], "bound", -4, -6 if above else 14, "end")
    both.words("value", times[-1], values[-1], "value", -4, 14 if above else -6, "end")
    gaps = [
        max(LEAST_GAP, abs(b - v) / max(abs(v), 1e-10))
        for v, b in zip(values, bounds, strict=True)
    ]
    low = 10.0 ** math.floor(math.log10(min(gaps)))
    high = 10.0 ** math.ceil(math.log10(max(gaps)) + 1e-9)
    gap = framed(
        "Gap over time", (0.0, times[-1]), (low, high if high > low else 10 * low),
        x_label=unit, log=True,
    )  # fmt: skip
    gap.y_ticks = [(at, f"{100 * float(text):g}%") for at, text in gap.y_ticks or []]
    if asked_gap is not None and low < asked_gap < high:
        gap.level("asked", asked_gap, "the gap asked for")
        gap.words("quiet", times[-1], asked_gap, "asked for", -4, -4, "end")
    gap.steps("gap", times, gaps)
    return [both, gap]


def _window(values: Sequence[float], bounds: Sequence[float]) -> tuple[float, float]:
    """The range of a drawing: all values, and of the bounds those not too far away."""
    last = [*values, *bounds[len(bounds) // 2 :]]
    low, high = min(last), max(last)
    reach = 3.0 * (high - low) or 1.0
    near = [b for b in bounds if low - reach <= b <= high + reach]
    return min(low, *near), max(high, *near)


def members(result: Result) -> Chart | None:
    """What each member predicts at the answer."""
    found = result.member_values
    if found.size < 2:
        return None
    centre = predicted(result)
    measured = result.extrapolation.target_range if result.extrapolation else None
    reach = [*found.tolist(), centre, *(measured or ())]
    listed = found.size <= MOST_MEMBERS
    height = TOP + BOTTOM + (22 * found.size if listed else 90)
    chart = framed(
        "Each member's prediction", widened(min(reach), max(reach)),
        (-0.5, found.size - 0.5) if listed else (0.0, 1.0), height=height,
        left=74 if listed else BARE, x_label="prediction", y_ticks=[],
    )  # fmt: skip
    if measured is not None:
        top, bottom = chart.y.high, chart.y.low
        chart.bar("seen", *measured, bottom, top, tip="the range that was measured")
    chart.upright("value", centre, tip=f"the ensemble: {compact(centre)}")
    rng = np.random.default_rng(0)  # of many, heights keep them apart
    for i, at in enumerate(found.tolist()):
        y = found.size - 1.0 - i if listed else 0.15 + 0.7 * float(rng.random())
        if listed:
            chart.curve("stem", [centre, at], [y, y])
        chart.dot("member", at, y, 4.0, tip=f"member {i + 1}: {compact(at, 6)}")
    if listed:
        chart.y_ticks = [
            (chart.y(found.size - 1 - i), f"member {i + 1}") for i in range(found.size)
        ]
    return chart


# Where the answer lies in the data.


def histograms(result: Result) -> list[Chart]:
    """How often each value occurs in the data, with the answer marked."""
    asked = result.asked
    if asked is None or asked.data is None or result.x is None:
        return []
    charts = []
    for coordinate in coordinates(asked.problem)[:MOST_HISTOGRAMS]:
        at = coordinate.told(asked.data.rows)
        own = float(coordinate.told(result.x[None])[0])
        if coordinate.levels is not None:
            charts.append(_counts(coordinate, at, own))
            continue
        ends = coordinate.range(asked.problem.domain)
        charts.append(_histogram(shown(coordinate.name), at, own, ends))
    return charts


def distances(result: Result) -> list[Chart]:
    """The prediction among the targets, and the answer's distance among the rows'."""
    asked, away = result.asked, result.extrapolation
    if asked is None or asked.data is None or away is None or result.x is None:
        return []
    charts = []
    target = asked.data.target
    if target is not None:
        title = "The prediction among what was measured"
        charts.append(_histogram(title, target, predicted(result)))
    own, others = mahalanobis(result.x, asked.data)
    title = "Mahalanobis distance from the mean"
    return [*charts, _histogram(title, others, own)]


def _histogram(
    title: str, numbers: Array, own: float, *more: tuple[float, float]
) -> Chart:
    """Counts of numbers, with one number marked; it also shows the ranges `more`."""
    every = [*numbers.tolist(), own, *(end for ends in more for end in ends)]
    low, high = min(every), max(every)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(numbers, bins=BINS, range=(low, high))
    chart = framed(
        title, widened(low, high, 0.02), (0.0, 1.25 * max(1, counts.max())),
        height=SMALL, left=BARE, y_ticks=[],
    )  # fmt: skip
    for count, left, right in zip(
        counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True
    ):
        if count:
            tip = f"{compact(left)} to {compact(right)}: {count} rows"
            chart.bar("count", left, right, 0.0, count, tip)
    chart.upright("answer", own, tip=f"the answer: {compact(own, 6)}")
    right_half = own > 0.5 * (low + high)
    chart.words(
        "answer", own, chart.y.high, f"answer {compact(own)}", -5 if right_half else 5,
        9, "end" if right_half else "start",
    )  # fmt: skip
    chart.note = _place(numbers, own)
    return chart


def _counts(coordinate: Coordinate, at: Array, own: float) -> Chart:
    """Counts of the levels of a choice."""
    levels = [shown(str(level)) for level in coordinate.levels or ()]
    counts = np.bincount(at.astype(int), minlength=len(levels)).tolist()
    chart = framed(
        shown(coordinate.name), (-0.6, len(levels) - 0.4), (0.0, 1.15 * max(counts)),
        height=SMALL, left=BARE, x_ticks=[], y_ticks=[],
    )  # fmt: skip
    for k, (level, count) in enumerate(zip(levels, counts, strict=True)):
        look = "count here" if k == own else "count"
        chart.bar(look, k - 0.38, k + 0.38, 0.0, count, f"{level}: {count} rows")
    _name_levels(chart, range(len(levels)), levels)
    same = counts[int(own)]
    chart.note = f"answer {levels[int(own)]}: {same:,} of {len(at):,} rows"
    return chart


def _name_levels(chart: Chart, places: Sequence[float], levels: Sequence[str]) -> None:
    """The names of levels as ticks, shortened to the room there is."""
    room = max(3, int((chart.x.end - chart.x.start) / 6.5 / max(1, len(levels))))
    chart.x_ticks = [
        (chart.x(at), name if len(name) <= room else f"{name[: room - 1]}…")
        for at, name in zip(places, levels, strict=True)
    ]


def _place(numbers: Array, own: float) -> str:
    """Where a number lies among others, in words."""
    below, above = float(np.mean(numbers < own)), float(np.mean(numbers > own))
    if below == 1.0:
        return "above every row of the data"
    if above == 1.0:
        return "below every row of the data"
    if above == 0.0:
        return f"the largest of the data, as in {_share(1.0 - below)} of the rows"
    if below == 0.0:
        return f"the smallest of the data, as in {_share(1.0 - above)} of the rows"
    return f"{_share(below)} of the rows are below, {_share(above)} above"


def _share(share: float) -> str:
    number = 100 * share
    return f"{number:.0f}%" if number >= 1 else f"{number:.1g}%"


# Slices.


def lines(result: Result, problem: Problem | None = None) -> list[Line]:
    """Slices through the answer along each input, those with most influence first.

    Of what was optimized, or of the goal of another problem over the same inputs.
    """
    if result.asked is None or result.x is None:
        return []
    problem = result.asked.problem if problem is None else problem
    found = [line(problem, coordinate, result.x) for coordinate in coordinates(problem)]
    moving = [one for one in found if one is not None]
    return sorted(moving, key=lambda one: -one.influence)[:MOST_LINES]


def slices(
    result: Result,
    shown_lines: Sequence[Line],
    problem: Problem | None = None,
    levels: Sequence[tuple[float, str]] = (),
) -> list[Chart]:
    """Each line as a chart; all have the same heights, so that they compare.

    `problem` is the one whose goal the lines are of; `levels` are limits on it, each
    with its words.
    """
    asked = result.asked
    if asked is None or not shown_lines:
        return []
    problem = asked.problem if problem is None else problem
    target = None
    if asked.data is not None and problem.is_prediction:
        target = asked.data.target
    heights = [one.members for one in shown_lines] + [one.values for one in shown_lines]
    every = np.concatenate([each.ravel() for each in heights])
    ends = [np.nanmin(every), np.nanmax(every)]
    if target is not None:
        ends += [target.min(), target.max()]
    ends += [level for level, _ in levels]
    reach = widened(float(min(ends)), float(max(ends)), 0.04)
    charts = [_slice(one, reach, result, target) for one in shown_lines]
    for chart in charts:
        for level, words in levels:
            chart.level("asked", level, words)
    return charts


def _slice(
    one: Line, reach: tuple[float, float], result: Result, target: Array | None
) -> Chart:
    coordinate, at = one.coordinate, one.at
    name = shown(coordinate.name)
    asked = result.asked
    assert asked is not None
    own, value = float(at[one.here]), float(one.values[one.here])
    if one.labels:
        chart = framed(
            name, (float(at.min()) - 0.6, float(at.max()) + 0.6), reach, x_ticks=[]
        )
        _name_levels(chart, at.tolist(), [shown(label) for label in one.labels])
    else:
        chart = framed(name, widened(float(at.min()), float(at.max()), 0.02), reach)
    if target is not None and asked.data is not None:
        rows = _thinned(asked.data.rows)
        across = coordinate.told(asked.data.rows[rows])
        inside = (across >= chart.x.low) & (across <= chart.x.high)
        chart.dots("row", across[inside], target[rows][inside])
    if one.labels:
        for k, label in enumerate(one.labels):
            allowed = "" if one.feasible[k] else " barred"
            for predicted in one.members[:, k]:
                chart.dot(f"member{allowed}", at[k], float(predicted), 2.4)
            tip = f"{label}: {compact(float(one.values[k]), 6)}"
            chart.dot(f"mean{allowed}", at[k], float(one.values[k]), 4.5, tip)
    else:
        if len(one.members) > MOST_MEMBERS:
            chart.band("spread", at, one.members.min(axis=0), one.members.max(axis=0))
        else:
            for member in one.members if len(one.members) > 1 else ():
                chart.curve("member", at, member)
        chart.curve("mean barred", at, one.values)
        chart.curve("mean", at, np.where(one.feasible, one.values, np.nan))
    chart.upright("answer", own)
    chart.dot("here", own, value, 4.5, f"the answer: {compact(own, 6)}")
    chart.note = (
        f"answer {compact(own, 6)}"
        if not one.labels
        else f"answer {one.labels[one.here]}"
    )
    if np.count_nonzero(one.feasible) <= 1:
        chart.note += "; no other value is allowed while the other inputs stay"
    return chart


def _thinned(rows: Array) -> Any:
    """Numbers of some rows, evenly spaced."""
    return np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int)


def planes(result: Result, shown_lines: Sequence[Line]) -> list[Plane]:
    """Slices along pairs of the numbers that have most influence."""
    if result.asked is None or result.x is None:
        return []
    numbers = [one.coordinate for one in shown_lines if one.coordinate.is_number]
    pairs = combinations(numbers[:MOST_PLANES], 2)
    return [plane(result.asked.problem, *pair, result.x) for pair in pairs]


def surfaces(result: Result, shown_planes: Sequence[Plane]) -> list[Chart]:
    """Each plane as a chart, all with the same colours."""
    if not shown_planes:
        return []
    low = min(float(np.nanmin(one.values)) for one in shown_planes)
    high = max(float(np.nanmax(one.values)) for one in shown_planes)
    return [_surface(one, result, (low, high)) for one in shown_planes]


def _empty_surface(one: Plane, ends: tuple[float, float], title: str) -> Chart:
    """Predictions as colours, and nothing on them yet."""
    low, high = ends
    chart = framed(
        title, (float(one.xs[0]), float(one.xs[-1])),
        (float(one.ys[0]), float(one.ys[-1])), height=300,
        x_label=shown(one.across.name),
    )  # fmt: skip
    shares = (one.values - low) / (high - low if high > low else 1.0)
    chart.picture(coloured(shares, one.feasible))
    return chart


def _mark_answer(chart: Chart, one: Plane, x: Array) -> None:
    """A ring around the answer."""
    own = [float(c.told(x[None])[0]) for c in (one.across, one.up)]
    tip = f"the answer: {compact(own[0])}, {compact(own[1])}"
    chart.dot("here", own[0], own[1], 5.5, tip)


def _surface(one: Plane, result: Result, ends: tuple[float, float]) -> Chart:
    assert result.asked is not None
    assert result.x is not None
    low, high = ends
    title = f"{shown(one.up.name)} against {shown(one.across.name)}"
    chart = _empty_surface(one, ends, title)
    for level in np.linspace(low, high, LEVELS + 2)[1:-1]:
        for x0, y0, x1, y1 in contours(one.values, float(level)):
            chart.curve(
                "contour",
                np.interp([x0, x1], np.arange(len(one.xs)), one.xs),
                np.interp([y0, y1], np.arange(len(one.ys)), one.ys),
            )
    data = result.asked.data
    if data is not None:
        rows = data.rows[_thinned(data.rows)]
        xs, ys = one.across.told(rows), one.up.told(rows)
        inside = (xs >= one.xs[0]) & (xs <= one.xs[-1])
        inside &= (ys >= one.ys[0]) & (ys <= one.ys[-1])
        chart.dots("on-surface", xs[inside], ys[inside], 1.5)
    _mark_answer(chart, one, result.x)
    allowed = float(one.feasible.mean())
    if allowed < 1.0:
        chart.note = f"{_share(allowed)} of this plane is allowed; the rest is faint"
    return chart


def searched(result: Result, shown_planes: Sequence[Plane]) -> Chart | None:
    """For two inputs the boxes of the search over the surface."""
    asked = result.asked
    if asked is None or asked.boxes is None or result.x is None or not shown_planes:
        return None
    one = shown_planes[0]
    low, high = float(np.nanmin(one.values)), float(np.nanmax(one.values))
    chart = _empty_surface(one, (low, high), "Where the search had to look closer")
    ends = asked.boxes.reshape(-1, 2)
    sides = [c.told(ends).reshape(-1, 2) for c in (one.across, one.up)]
    chart.boxes("box", *sides)
    _mark_answer(chart, one, result.x)
    count = len(asked.boxes)
    chart.note = (
        f"{count:,} box{'es' * (count != 1)}: in each, a bound excludes anything "
        "better. Small boxes are where that was hard to prove; what lies in no box was "
        "excluded on the way."
    )
    return chart


def colour_scale(shown_planes: Sequence[Plane]) -> dict[str, str] | None:
    """What the colours of the surfaces mean."""
    if not shown_planes:
        return None
    ramp = coloured(np.linspace(0.0, 1.0, 64)[None], np.ones((1, 64), dtype=bool))
    return {
        "picture": data_url("image/png", png(ramp)),
        "low": compact(min(float(np.nanmin(one.values)) for one in shown_planes)),
        "high": compact(max(float(np.nanmax(one.values)) for one in shown_planes)),
    }
