"""The front of two objectives: what must be given up of one for more of the other.

One objective is optimized while the other one has a limit, for one limit after another
(the epsilon-constraint method). Each run gives a point, and its bound proves a part of
the plane empty: no feasible input meets that limit and is better than the bound. The
next limit is placed where most is unknown, so steep parts and jumps get more points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple, Unpack

import numpy as np

from ennopt.expressions.joined import row_of
from ennopt.network import Array, shown
from ennopt.problem import Combination, Limit, Problem, Sense
from ennopt.question import Posed, Question, Words
from ennopt.result import Result, Status
from ennopt.several.series import Series, Told, frame_of, known

POINTS = 9
"""How many points of a front are sought, unless a user says otherwise."""

RESOLUTION = 1e-3
"""Where the unknown is narrower than this share of the front, no point is sought."""

CLOSEST = 0.01
"""Points closer than this share of the front, in both objectives, count as one."""

RUNS_PER_POINT = 4
"""Runs for each point asked for, at most: of some we learn that nothing is there."""

LONGEST_NAME = 32
"""Characters of an expression that stands for an objective in tables and pictures."""


class Empty(NamedTuple):
    """A part of the plane that is proved empty, and the run that proved it.

    No feasible input is better than `first` in the first objective and, at the same
    time, better than `second` in the second one. Infinite where there is no condition.
    """

    first: float
    second: float


@dataclass(frozen=True, slots=True, eq=False)
class FrontPoint:
    """A point of a front.

    Parameters
    ----------
    first, second
        Both objectives at the answer, by the forward pass.
    result
        The answer, optimal for one objective under a limit on the other.
    """

    first: float
    second: float
    result: Result


@dataclass(frozen=True, slots=True, eq=False)
class Front(Told):
    """What `pareto` returns.

    Parameters
    ----------
    names, senses
        Of the first and the second objective.
    points
        None is better than another one in both objectives, and no two are equal within
        the gap in both; sorted by the first.
    empty
        What is proved to be out of reach.
    status
        `OPTIMAL` if every point is proved, `INFEASIBLE` if there is none, or why the
        work ended early.
    nodes, runs, seconds
        Of all runs together.
    """

    names: tuple[str, str]
    senses: tuple[Sense, Sense]
    points: tuple[FrontPoint, ...]
    empty: tuple[Empty, ...]
    status: Status
    nodes: int = 0
    runs: int = 0
    seconds: float = 0.0

    @property
    def results(self) -> tuple[Result, ...]:
        """The answers, in the order of the points."""
        return tuple(point.result for point in self.points)

    @property
    def proved(self) -> bool:
        """Whether every point is proved optimal under its limit."""
        return self.status is Status.OPTIMAL

    @property
    def values(self) -> Array:
        """Both objectives at each point, (num_points, 2)."""
        found = [(point.first, point.second) for point in self.points]
        return np.array(found).reshape(len(found), 2)

    def excludes(self, first: float, second: float) -> bool:
        """Whether it is proved that no feasible input reaches both numbers.

        Examples
        --------
        >>> parts = (Empty(3, 1),)
        >>> front = Front(("a", "b"), ("max", "min"), (), parts, Status.OPTIMAL)
        >>> front.excludes(4, 0.5), front.excludes(2, 0.5)
        (True, False)
        """
        one, two = (1.0 if sense == "max" else -1.0 for sense in self.senses)
        return any(
            one * (first - part.first) > 0.0 and two * (second - part.second) > 0.0
            for part in self.empty
        )

    @property
    def unknown(self) -> float:
        """Share of the rectangle around the points of which nothing is known."""
        if len(self.points) < 2:
            return 0.0
        signs = np.array([1.0 if sense == "max" else -1.0 for sense in self.senses])
        points = signs * self.values
        parts = signs * np.array(self.empty).reshape(-1, 2)
        low, high = points.min(axis=0), points.max(axis=0)
        boxes = _unknown(points, parts, low[0], high[0])
        area = sum((b.to - b.since) * (b.most - b.least) for b in boxes)
        whole = float(np.prod(high - low))
        return float(area / whole) if whole > 0.0 else 0.0

    def plot(self, axes: Any = None) -> Any:
        """Draw the front with matplotlib; returns the axes.

        Shaded is what is proved to be out of reach.
        """
        from ennopt.pages.plot import draw_front

        return draw_front(self.values, self.empty, self.names, self.senses, axes)

    def to_frame(self) -> Any:
        """A DataFrame with a row for each point: objectives, then inputs."""
        return frame_of(
            [
                {
                    self.names[0]: point.first,
                    self.names[1]: point.second,
                    **(point.result.inputs or {}),
                    "status": point.result.status.value,
                    "bound": point.result.bound,
                }
                for point in self.points
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `to_json` writes it; infinite numbers are ``None``."""
        return {
            "names": list(self.names),
            "senses": list(self.senses),
            "status": self.status.value,
            "points": [
                {
                    "first": point.first,
                    "second": point.second,
                    "result": point.result.to_dict(),
                }
                for point in self.points
            ],
            "empty": [[known(part.first), known(part.second)] for part in self.empty],
            "unknown": self.unknown,
            "nodes": self.nodes,
            "runs": self.runs,
            "seconds": self.seconds,
        }

    def summary(self) -> str:
        """A table for a person."""
        if not self.points:
            if self.status is Status.INFEASIBLE:
                return (
                    "Infeasible: no input satisfies every bound, constraint and limit"
                )
            return f"No point of the front was found ({self.status.value})"
        words = {"max": "maximized", "min": "minimized"}
        names = [shown(name) for name in self.names]
        heads = [f"{n}, {words[s]}" for n, s in zip(names, self.senses, strict=True)]
        widths = [max(len(head), 12) for head in heads]
        count = sum(point.result.proved for point in self.points)
        lines = [
            f"Front of {len(self.points)} point{'s' * (len(self.points) != 1)}, "
            f"{count} of them proved; {100 * self.unknown:.3g}% of the rectangle "
            "around them is unknown",
            f"  after {self.seconds:.2f} s, {self.runs} runs and {self.nodes:,} nodes",
            f"  {heads[0]:>{widths[0]}}  {heads[1]:>{widths[1]}}  ",
        ]
        lines += [
            f"  {point.first:>{widths[0]}.8g}  {point.second:>{widths[1]}.8g}  "
            f"{point.result.status.value}"
            for point in self.points
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"Front({len(self.points)} points, {self.names[0]} and {self.names[1]}, "
            f"status={self.status.value})"
        )


def pareto(
    objectives: Sequence[Any],
    domain: Any = None,
    *,
    senses: Sequence[Sense] = ("max", "max"),
    points: int = POINTS,
    names: Sequence[str] | None = None,
    **said: Unpack[Words],
) -> Front:
    """Find proved points of the front of two objectives.

    Parameters
    ----------
    objectives
        Two models or expressions: predictions, costs, how far members disagree.
    domain
        As `ennopt.maximize` takes it.
    senses
        ``"max"`` or ``"min"`` for each objective.
    points
        How many points to find. Fewer are found if there are no more that differ.
    names
        What the objectives are called, by default as they are written.
    said
        Keywords of `ennopt.maximize`. Limits on time and nodes are those of all runs
        together; the gap is that of each.

    Returns
    -------
    Front
        After Ctrl-C or at a limit, what was found so far.

    Examples
    --------
    >>> from ennopt import Network, Prediction, linear, pareto
    >>> net = Network([[[1.0], [1.0]], [[2.0, -1.5]]], [[0.0, -1.0], [0.0]])
    >>> strength = Prediction(net, name="strength")  # grows slower from 1 on
    >>> front = pareto(
    ...     (linear({"x0": 1.0}), strength), (0, 3), senses=("min", "max"), points=4
    ... )
    >>> front.proved, front.values.round(2).tolist()
    (True, [[0.0, 0.0], [0.75, 1.5], [1.5, 2.25], [3.0, 3.0]])
    """
    goals = paired(objectives, senses)
    if names is None:
        names = [_named(goal, k) for k, (goal, _) in enumerate(goals)]
    question = Question.of(goals, domain, said, "pareto")
    return find_front(question, points, names)


def paired(objectives: Any, senses: Sequence[Any]) -> list[tuple[Any, Sense]]:
    """Two objectives with their senses, or an error."""
    count = len(objectives) if isinstance(objectives, list | tuple) else 1
    if count != 2:
        raise ValueError(
            f"Expected two objectives, got {'one' if count == 1 else count}. Pass a "
            "pair such as (strength, cost); for one objective call maximize or "
            "minimize."
        )
    if len(senses) != 2 or isinstance(senses, str):
        raise ValueError(
            f"Expected two senses, one for each objective, got {senses!r:.60}. Pass a "
            'pair such as ("max", "min").'
        )
    for sense in senses:
        if sense not in ("max", "min"):
            raise ValueError(f"Expected sense 'max' or 'min', got {sense!r}.")
    return list(zip(objectives, senses, strict=True))


def find_front(question: Question, points: int, names: Sequence[str]) -> Front:
    """The front of the two goals of a question; see `pareto`."""
    if not (isinstance(points, Integral) and points >= 2):
        raise ValueError(f"Expected at least 2 points, a whole number, got {points!r}.")
    posed = question.posed()
    (_, first), (_, second) = question.goals
    search = _Search(
        posed, Series(posed, question.running), (str(names[0]), str(names[1])),
        (first, second), int(points),
    )  # fmt: skip
    return search.front()


def _named(goal: Any, k: int) -> str:
    """What an objective is called in tables."""
    text = repr(goal)
    return text if len(text) <= LONGEST_NAME else ("first", "second")[k]


class _Box(NamedTuple):
    """Where points may be that are not known: levels, and values of the other one."""

    since: float
    to: float
    least: float
    most: float


def _unknown(points: Array, parts: Array, low: float, high: float) -> Iterator[_Box]:
    """What neither a point dominates nor a proof excludes.

    Both objectives are to be large: `points` are (num_points, 2), `parts` (num_parts,
    2); the first column is the level, from `low` to `high`.
    """
    ends = np.unique(np.concatenate([points[:, 0], parts[:, 0], [low, high]]))
    ends = ends[(ends >= low) & (ends <= high)]
    for since, to in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        most = float(parts[parts[:, 0] <= since, 1].min(initial=np.inf))
        least = float(points[points[:, 0] >= to, 1].max(initial=-np.inf))
        if most > least:
            yield _Box(since, to, least, most)


class _Found(NamedTuple):
    """A point: both objectives, to be large, and where it is from."""

    level: float
    value: float
    result: Result


@dataclass(slots=True, eq=False)
class _Search:
    """A front in the making. Inside, both objectives are to be large.

    One objective, the level, has a limit; the other one is optimized. An objective
    without predictions is the level: its limit is a linear constraint, which is much
    easier than a limit on predictions.
    """

    posed: Posed
    series: Series
    names: tuple[str, str]
    senses: tuple[Sense, Sense]
    wanted: int
    found: list[_Found] = field(default_factory=list)
    parts: list[tuple[float, float]] = field(default_factory=list)

    @property
    def level(self) -> int:
        """Which objective has the limits."""
        first, second = self.posed.goals
        return 0 if not first.terms and second.terms else 1

    def front(self) -> Front:
        """Do the work."""
        status = self._ends()
        while status is Status.OPTIMAL and not self.series.spent:
            if (level := self._next()) is None:
                break
            self._solve(level)
        kept = self._kept()
        if self.series.interrupted:
            status = Status.INTERRUPTED
        elif not all(point.result.proved for point in kept):
            status = next(p.result.status for p in kept if not p.result.proved)
        points = [
            FrontPoint(*self._in_user_sense(level, value), result)
            for level, value, result in kept
        ]
        points.sort(key=lambda point: point.first)
        return Front(
            self.names, self.senses, tuple(points),
            tuple(Empty(*self._in_user_sense(*part)) for part in self.parts),
            status, self.series.nodes, self.series.runs, self.series.seconds,
        )  # fmt: skip

    def _in_user_sense(self, level: float, value: float) -> tuple[float, float]:
        """First and second objective as the user knows them."""
        both = [value, value]
        both[self.level] = level
        signs = (1.0 if sense == "max" else -1.0 for sense in self.senses)
        first, second = (s * b + 0.0 for s, b in zip(signs, both, strict=True))
        return first, second

    def _toward(self, which: int) -> Combination:
        """An objective, to be made large."""
        goal = self.posed.goals[which]
        return goal if self.senses[which] == "max" else goal.negated()

    def _ask(self, which: int, least: float | None) -> Result:
        """The best of one objective where the other one is at least so large."""
        problem, other = self.posed.problem, self._toward(1 - which)
        domain, limits = problem.domain, problem.limits
        if least is not None:
            sign = 1.0 if self.senses[1 - which] == "max" else -1.0
            side = ">=" if sign > 0 else "<="
            text = f"{self.names[1 - which]} {side} {sign * least + 0.0:.6g}"
            needed = least - other.constant
            if other.terms:
                plain = replace(other, constant=0.0)
                limits = (*limits, Limit(plain, needed, text, sign))
            else:
                domain = domain.constrained(row_of(other.inputs, needed, text, sign))
        asked = Problem(
            problem.ensemble, domain, self.senses[which], problem.output,
            self.posed.goals[which], limits,
        )  # fmt: skip
        left = max(1, self.wanted + 2 - self.series.runs)
        return self.series.solve(asked, self._known(which, least), share=1.0 / left)

    def _known(self, which: int, least: float | None) -> Array | None:
        """The best point known for a run, if it is feasible there."""
        leveled = which == self.level
        fitting = [
            p for p in self.found
            if least is None or (p.value if leveled else p.level) >= least
        ]  # fmt: skip
        if fitting:
            best = max(fitting, key=lambda p: p.level if leveled else p.value)
            return best.result.x
        return self.posed.start if least is None else None

    def _take(self, result: Result) -> None:
        """Add the point of a result."""
        if result.x is not None:
            at = result.x[None]
            level, value = (
                float(self._toward(which).values(at)[0])
                for which in (self.level, 1 - self.level)
            )
            self.found.append(_Found(level, value, result))

    def _bound(self, result: Result) -> float:
        """What no input exceeds, to be large; minus infinity if there is none."""
        if result.status is Status.INFEASIBLE:
            return -math.inf
        return result.bound if result.sense == "max" else -result.bound

    def _ends(self) -> Status:
        """Both ends of the front: the best of each, then the best of the other.

        Returns how the first run ended, if that found no point.
        """
        value, level = 1 - self.level, self.level
        best = self._ask(value, None)
        self.parts.append((-math.inf, self._bound(best)))
        self._take(best)
        if best.x is None:
            return best.status
        if not self.series.spent:
            highest = self._ask(level, None)
            self.parts.append((self._bound(highest), -math.inf))
            self._take(highest)
        for which in (level, value):
            if self.series.spent:
                break
            most = max(p.value if which == level else p.level for p in self.found)
            # A little less, so that the point that reached it is among them.
            least = most - self.series.running.tools.limits.gap * abs(most)
            result = self._ask(which, least)
            bound = self._bound(result)
            self.parts.append((bound, least) if which == level else (least, bound))
            self._take(result)
        return Status.OPTIMAL

    def _kept(self) -> list[_Found]:
        """Points of which none is dominated by another one, or close to it.

        Of points that are close, a proved one stays rather than one that is not, and an
        end of the front, which is the best of its objective, rather than another one.
        """
        kept: list[_Found] = []
        for point in sorted(self.found, key=lambda p: (-p[0], -p[1])):
            if not kept or point[1] > kept[-1][1]:
                kept.append(point)
        if not kept:
            return []
        widths = np.ptp(np.array([p[:2] for p in kept]), axis=0)
        step = min(CLOSEST, 0.25 / self.wanted) * widths
        apart: list[_Found] = []
        ends = (kept[0], kept[-1])
        order = sorted(kept, key=lambda p: (not p.result.proved, p not in ends))
        for point in order:
            if not any(self._is_close(point[:2], p[:2], step) for p in apart):
                apart.append(point)
        apart.sort(key=lambda p: -p.level)
        while len(apart) > max(2, self.wanted):  # those that say least
            places = np.array([p[:2] for p in apart]) / np.where(widths, widths, 1.0)
            steps = np.abs(np.diff(places, axis=0)).sum(axis=1)
            apart.pop(1 + int(np.argmin(steps[1:] + steps[:-1])))
        return apart

    def _is_close(
        self, one: Sequence[float], two: Sequence[float], step: Array | float = 0.0
    ) -> bool:
        """Whether two points of the plane differ in neither objective.

        A difference counts if it is larger than `step` and than the gap: within the gap
        a smaller value counts as optimal, so that nobody knows which one is better.
        """
        size = np.maximum(np.abs(one), np.abs(two))
        least = np.maximum(step, self.series.running.tools.limits.gap * size)
        return bool((np.abs(np.subtract(one, two)) <= least).all())

    def _next(self) -> float | None:
        """The level at which most is unknown; ``None`` when enough is known."""
        kept = np.array([p[:2] for p in self._kept()])
        most_runs = RUNS_PER_POINT * self.wanted + 4
        if len(kept) >= self.wanted or self.series.runs >= most_runs:
            return None
        low, high = kept.min(axis=0), kept.max(axis=0)
        widths = high - low
        if not (widths > 0.0).all():
            return None
        best, at = 0.0, None
        points, parts = np.array([p[:2] for p in self.found]), np.array(self.parts)
        for box in _unknown(points, parts, float(low[0]), float(high[0])):
            wide = (box.to - box.since) / widths[0]
            most = min(box.most, float(high[1]))
            tall = (most - box.least) / widths[1]
            if self._is_close((box.since, box.least), (box.to, most)):
                continue
            if min(wide, tall) > RESOLUTION and wide * tall > best:
                best, at = wide * tall, self._placed(box, float(widths[0]))
        return at

    def _placed(self, box: _Box, width: float) -> float:
        """Where in a box the next level is: mostly in the middle.

        If the run at the box's end met its limit with room to spare, there is a jump
        below. Unless a run reached just the box's begin, all of the box may be empty,
        as between whole numbers: one run just above its begin tells.
        """
        step = 0.5 * RESOLUTION * width

        def asked(end: float) -> bool:
            return any(abs(part[0] - end) <= 1e-12 * width for part in self.parts)

        def reached(end: float) -> bool:
            return any(abs(point.level - end) <= step for point in self.found)

        jump = asked(box.to) and not reached(box.to)
        if jump and not (asked(box.since) and reached(box.since)):
            return box.since + step
        return 0.5 * (box.since + box.to)

    def _solve(self, level: float) -> None:
        result = self._ask(1 - self.level, level)
        self.parts.append((level, self._bound(result)))
        self._take(result)
