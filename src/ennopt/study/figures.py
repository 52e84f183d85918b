"""The figures of the paper, drawn from the lines of a record with matplotlib.

The data of each figure is computed by pure functions first (`boxes`, and those of
`measures`); drawing only draws. Same lines, same bytes.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ennopt.extras import require
from ennopt.study.measures import (
    SMALLEST_GAP,
    Clock,
    MeanInterval,
    bootstrap,
    cumulative,
    gap,
    grouped,
    labelled,
    mean,
    paired,
    solved,
    spent,
    time_gap_of,
    uneven,
)
from ennopt.study.record import Line
from ennopt.study.table import MISSING

COLOURS = ("#0f766e", "#c2410c", "#4338ca", "#a16207", "#be185d", "#475569")
"""Of the methods, in order of appearance: distinct, also without full colour vision."""

MARKERS = ("o", "s", "D", "^", "v", "P")
ALPHA = "\u03b1"
ENSEMBLE, SINGLE, OPTIMUM, MEAN = "#2563eb", "#ea7317", "#dc2626", "#15803d"

TALL = 3.4
"""Inches across a drawing for a narrow screen: its letters can be read on a phone."""

SMALLEST_TALL = 8.5
"""Points of its smallest letters."""

Drawn: TypeAlias = tuple[bytes, bytes, bytes]
"""SVG, PNG, and SVG for a narrow screen."""

STYLE = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.edgecolor": "#64748b", "axes.labelcolor": "#334155",
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlecolor": "#1e293b",
    "xtick.color": "#475569", "ytick.color": "#475569", "grid.color": "#e2e8f0",
    "grid.linewidth": 0.7, "legend.frameon": False, "figure.facecolor": "white",
    "svg.hashsalt": "ennopt", "svg.fonttype": "path", "figure.dpi": 100,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A drawn figure.

    Parameters
    ----------
    name
        A short name, also that of its files.
    title, caption
        For the reader.
    svg, png
        The drawing.
    tall
        The same for a narrow screen, its parts one below the other.
    notes
        What a reader should know.
    """

    name: str
    title: str
    caption: str
    svg: bytes
    png: bytes
    tall: bytes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Box:
    """One box of Figures 1 and 2: the replicas of a configuration.

    Parameters
    ----------
    shape
        Members, layers and width.
    kind
        ``ensemble`` or ``single``.
    values
        One number for each replica that has one.
    interval
        Their mean and its bootstrap interval.
    rmse
        Mean test error of the scaled target.
    """

    shape: tuple[int, int, int]
    kind: str
    values: tuple[float, ...]
    interval: MeanInterval
    rmse: float


def boxes(runs: Sequence[Line], fact: str) -> dict[str, list[Box]]:
    """The boxes of each problem: ensembles first, in the order of the paper's table.

    Parameters
    ----------
    runs
        Of a quality experiment, one sampling only.
    fact
        ``true_value`` or ``distance``. A replica whose number is not finite is in no
        box, and a configuration without any number has none.
    """
    found: dict[str, list[Box]] = {}
    for (problem, kind, _), group in grouped(runs, "problem", "kind", "number").items():
        subject = group[0]["subject"]
        values = tuple(known(run, fact) for run in group)
        values = tuple(value for value in values if not math.isnan(value))
        if not values:
            continue
        rmse = mean(known(run, "rmse") for run in group)
        found.setdefault(problem, []).append(
            Box(
                (subject["members"], subject["layers"], subject["width"]),
                kind,
                values,
                bootstrap(values),
                math.nan if rmse is None else rmse,
            )
        )
    return found


def known(run: Line, fact: str) -> float:
    """A fact of a run; not a number where it was not finite."""
    found = run["facts"][fact]
    return math.nan if found is None else float(found)


def figure1(runs: Sequence[Line], clock: Clock = "seconds") -> Figure:
    """Figure 1: true value at the optimum of the model, trained on LHS data."""
    chosen = [run for run in runs if run["subject"]["sampling"] == "lhs"]
    optima = {r["subject"]["problem"]: float(r["facts"]["optimum"]) for r in chosen}
    drawn = _boxplots(boxes(chosen, "true_value"), "true value", optima)
    return Figure(
        "figure1",
        "Figure 1. True value at the model's optimum (LHS data)",
        "Each box holds the replicas of one configuration (e, L, nodes), told with its "
        "mean test RMSE; blue: ensembles, orange: single networks; green: mean and its "
        "95% bootstrap interval; red: the known minimum. Lower is better.",
        *drawn,
        _quality_notes(chosen, "true_value"),
    )


def figure2(runs: Sequence[Line], clock: Clock = "seconds") -> Figure:
    """Figure 2: Mahalanobis distance of the optimum to the data, MVN data."""
    chosen = [run for run in runs if run["subject"]["sampling"] == "mvn"]
    drawn = _boxplots(boxes(chosen, "distance"), "Mahalanobis distance", {})
    return Figure(
        "figure2",
        "Figure 2. Distance of the model's optimum to the data (MVN data)",
        "As Figure 1, with the Mahalanobis distance to the training data on the "
        "vertical axis. Closer to the data is more reliable.",
        *drawn,
        _quality_notes(chosen, "distance"),
    )


def _quality_notes(runs: Sequence[Line], fact: str) -> tuple[str, ...]:
    late = sum(not solved(run) for run in runs)
    rest = f", {late} stopped at the limit with the best point found" if late else ""
    notes = [
        "The paper prints this figure as an image, without numbers. Its text finds "
        "that ensembles vary less and lie closer to the optimum and to the data.",
        f"{len(runs)} models, {len(runs) - late} optimized with proof{rest}.",
    ]
    unknown = sum(math.isnan(known(run, fact)) for run in runs)
    if unknown:
        notes.append(f"{unknown} models have no finite number and are not drawn.")
    return tuple(notes)


def _boxplots(
    data: dict[str, list[Box]], label: str, optima: dict[str, float]
) -> Drawn:
    def draw(plt: Any, tall: bool) -> Any:
        columns = 1 if tall else min(2, max(1, len(data)))
        rows = max(1, math.ceil(len(data) / columns))
        most = max((len(group) for group in data.values()), default=1)
        height = 0.9 + 0.3 * most if tall else 3.1
        figure, axes = plt.subplots(
            rows, columns, squeeze=False,
            figsize=(TALL if tall else 4.6 * columns, height * rows),
        )  # fmt: skip
        for axis in list(axes.flat)[len(data) :]:
            axis.set_visible(False)
        for axis, (problem, group) in zip(axes.flat, data.items(), strict=False):
            _draw_boxes(axis, group, lying=tall)
            if problem in optima:
                line = axis.axvline if tall else axis.axhline
                line(optima[problem], color=OPTIMUM, ls=":", lw=1.4)
            axis.set_title(problem.capitalize(), loc="left")
            (axis.set_xlabel if tall else axis.set_ylabel)(label)
        figure.tight_layout()
        return figure

    return _drawn(draw)


def _draw_boxes(axis: Any, group: list[Box], *, lying: bool) -> None:
    """Boxes side by side, or lying one below the other with room for their labels."""
    places = range(1, len(group) + 1)
    drawn = axis.boxplot(
        [box.values for box in group], positions=list(places), widths=0.55,
        patch_artist=True, medianprops={"color": "#0f172a"},
        flierprops={"markersize": 3, "markeredgecolor": "#94a3b8"},
        **_direction(lying),
    )  # fmt: skip
    for patch, box in zip(drawn["boxes"], group, strict=True):
        colour = ENSEMBLE if box.kind == "ensemble" else SINGLE
        patch.set_facecolor(colour + "40")
        patch.set_edgecolor(colour)
    for place, box in zip(places, group, strict=True):
        interval = box.interval
        across = [place + 0.36], [interval.mean]
        error = [[interval.mean - interval.low], [interval.high - interval.mean]]
        axis.errorbar(
            *(reversed(across) if lying else across),
            **{"xerr" if lying else "yerr": error},
            color=MEAN, marker="o", ms=3, capsize=2.5, lw=1.2,
        )  # fmt: skip
    between = "  " if lying else "\n"
    labels = [
        f"({e}, {layers}, {n}){between}{_error(box.rmse)}"
        for box in group
        for e, layers, n in [box.shape]
    ]
    if lying:
        axis.set_yticks(list(places), labels, fontsize=SMALLEST_TALL)
        axis.invert_yaxis()
    else:
        axis.set_xticks(list(places), labels, fontsize=6.5 if len(group) > 4 else 8)
    axis.grid(axis="y" if lying else "x", visible=False)


def _direction(lying: bool) -> dict[str, Any]:
    """The argument that lays boxes down, by the version of matplotlib."""
    matplotlib: Any = require("matplotlib", "plot")
    major, minor = map(int, matplotlib.__version__.split(".")[:2])
    if (major, minor) < (3, 10):
        return {"vert": not lying}
    return {"orientation": "horizontal" if lying else "vertical"}


def _error(rmse: float) -> str:
    return MISSING if math.isnan(rmse) else f"{rmse:.3f}"


def figure3(runs: Sequence[Line], clock: Clock = "seconds") -> Figure:
    """Figure 3: how many instances are solved within a time, or within a gap."""
    by_label = labelled(runs)
    notes = [note] if (note := uneven(runs)) else []

    times, gaps = {}, {}
    for label, group in by_label.items():
        closed = [run for run in group if solved(run)]
        times[label] = cumulative(closed, lambda run: max(spent(run, clock), 1e-3))
        gaps[label] = cumulative(group, lambda run: max(gap(run), SMALLEST_GAP))

    def draw(plt: Any, tall: bool) -> Any:
        figure, (left, right) = plt.subplots(
            *((2, 1) if tall else (1, 2)), figsize=(TALL, 6.0) if tall else (9.2, 3.6),
            sharey=True,
        )  # fmt: skip
        for axis, curves in ((left, times), (right, gaps)):
            reached = [x for steps, _ in curves.values() for x in steps]
            start, end = min(reached, default=0.1), max(reached, default=1.0)
            end = max(1.3 * end, 10 * start)  # at least a decade to look at
            for (label, curve), colour in zip(curves.items(), _colours(), strict=False):
                _stairs(axis, *curve, end, colour, label)
            axis.set_xscale("log")
            axis.set_xlim(start / 1.5, end * 1.1)
            axis.yaxis.get_major_locator().set_params(integer=True)
        left.set_xlabel("seconds" if clock == "seconds" else "nodes")
        left.set_ylabel("instances")
        left.set_title("Solved within a time", loc="left")
        right.set_xlabel("gap")
        right.set_title("Within a gap", loc="left")
        (left if tall else right).legend(
            loc="upper left" if tall else "lower right", fontsize=SMALLEST_TALL
        )
        if tall:
            right.set_ylabel("instances")
        for axis in (left, right):
            axis.set_ylim(bottom=0)
        figure.tight_layout()
        return figure

    drawn = _drawn(draw)
    return Figure(
        "figure3",
        "Figure 3. Cumulative performance",
        "Left: instances solved to proved optimality within the time on the horizontal "
        "axis. Right: instances whose gap at the end is at most that on the horizontal "
        f"axis (a gap of {SMALLEST_GAP:.2%} counts as closed). Higher is better.",
        *drawn,
        ("The paper prints this figure as an image, without numbers.", *notes),
    )


def _stairs(
    axis: Any, steps: list[float], counts: list[int], end: float, colour: str,
    label: str,
) -> None:  # fmt: skip
    """A staircase from its first step to the end of the axis."""
    if not steps:
        axis.plot([], [], color=colour, lw=1.8, label=f"{label} (none)")
        return
    axis.step(
        [steps[0], *steps, end], [0, *counts, counts[-1]], where="post",
        color=colour, lw=1.8, label=label,
    )  # fmt: skip


def figure4(runs: Sequence[Line], clock: Clock = "seconds") -> Figure:
    """Figure 4: the time-gap of two methods, instance by instance."""
    labels = list(labelled(runs))
    # The first two, as in the paper, and then every other one against the last.
    pairs = [(labels[0], labels[1])] if len(labels) > 1 else []
    pairs += [(label, labels[-1]) for label in labels[1:-1]][-2:]
    problems = list(dict.fromkeys(run["subject"]["problem"] for run in runs))
    notes = ["The paper prints this figure as an image, without numbers."]
    unknown = sum(not math.isfinite(time_gap_of(run, clock)) for run in runs)
    if unknown:
        notes.append(
            f"{unknown} runs ended without a value or a bound: their time-gap is "
            "infinite, and their points lie on the upper or right edge."
        )

    def draw(plt: Any, tall: bool) -> Any:
        count = max(1, len(pairs))
        figure, axes = plt.subplots(
            *((count, 1) if tall else (1, count)), squeeze=False,
            figsize=(TALL, 3.5 * count + 0.5) if tall else (3.3 * count + 0.6, 3.7),
        )  # fmt: skip
        finite = [
            value
            for run in runs
            if math.isfinite(value := max(time_gap_of(run, clock), 1e-3))
        ]
        low, high = min(finite, default=1e-3) / 2, max(finite, default=1.0) * 3
        for axis, (first, second) in zip(axes.flat, pairs, strict=False):
            for problem, marker, colour in zip(
                problems, MARKERS * 9, COLOURS * 9, strict=False
            ):
                points = [
                    (_inside(a, low, high, clock), _inside(b, low, high, clock))
                    for a, b in paired(runs, first, second)
                    if a["subject"]["problem"] == problem
                ]
                axis.scatter(
                    [x for x, _ in points], [y for _, y in points], s=18, lw=0.9,
                    marker=marker, facecolor=colour + "55", edgecolor=colour,
                    label=problem, zorder=3,
                )  # fmt: skip
            axis.plot([low, high], [low, high], color="#94a3b8", ls="--", lw=1)
            axis.set(
                xscale="log", yscale="log", xlim=(low, high), ylim=(low, high),
                xlabel=f"time-gap of {first}", ylabel=f"time-gap of {second}",
                aspect="equal",
            )  # fmt: skip
        if pairs:
            handles, names = axes.flat[0].get_legend_handles_labels()
            figure.legend(
                handles, names, loc="upper center", ncols=3 if tall else 6,
                fontsize=SMALLEST_TALL if tall else 8, handletextpad=0.2,
            )  # fmt: skip
        top = 1 - 0.6 / figure.get_figheight() if tall else 0.93
        figure.tight_layout(rect=(0, 0, 1, top))
        return figure

    drawn = _drawn(draw)
    unit = "seconds" if clock == "seconds" else "nodes"
    return Figure(
        "figure4",
        "Figure 4. Time-gap, instance by instance",
        f"The time-gap t + 3600 {ALPHA} joins the {unit} t of a run and the gap "
        f"{ALPHA} at its end (0 if solved). Below the diagonal the method of the "
        "vertical axis is better. Both axes are logarithmic.",
        *drawn,
        tuple(notes),
    )


def _inside(run: Line, low: float, high: float, clock: Clock) -> float:
    return min(max(time_gap_of(run, clock), low), high)


def _colours() -> list[str]:
    return list(COLOURS) * 9


def _drawn(draw: Callable[[Any, bool], Any]) -> Drawn:
    """What `draw` draws, wide and tall, without dates: same data, same bytes."""
    matplotlib: Any = require("matplotlib", "plot")
    matplotlib.use("Agg")
    plt: Any = require("matplotlib.pyplot", "plot")
    svg, png, tall = io.BytesIO(), io.BytesIO(), io.BytesIO()
    undated = {"Date": None, "Creator": None}
    with matplotlib.rc_context(STYLE):
        figure = draw(plt, False)
        figure.savefig(svg, format="svg", metadata=undated)
        figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
        plt.close(figure)
        figure = draw(plt, True)
        figure.savefig(tall, format="svg", metadata=undated)
        plt.close(figure)
    return svg.getvalue(), png.getvalue(), tall.getvalue()


FIGURES: dict[str, Callable[[Sequence[Line], Clock], Figure]] = {
    f"figure{n}": function
    for n, function in enumerate((figure1, figure2, figure3, figure4), start=1)
}
"""Each figure of the paper, by name."""
