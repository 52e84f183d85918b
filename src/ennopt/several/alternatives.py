"""The best answers that differ: each is proved best among what is left.

An answer excludes the box of all points that are closer to it than the stated distance.
What is left of a feasible set is the union of slabs beside that box: below it or above
it along one input, and within its reach along the inputs before. Each slab is a
feasible set like any other, which the search solves as it is. A slab inherits the bound
of the set that it is a part of, so most slabs need no run of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Unpack

import numpy as np

from ennopt.canonical import Canonical
from ennopt.columns import Number
from ennopt.domain import Domain
from ennopt.domain.frames import unknown_name
from ennopt.met import told_at
from ennopt.network import Array, shown
from ennopt.problem import Problem, Sense
from ennopt.question import Posed, Question, Words
from ennopt.result import Progress, Result, Status
from ennopt.several.series import Series, Told, frame_of, known

COUNT, DISTANCE = 3, 0.1
"""How many answers are sought, and how far apart, unless a user says otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives(Told):
    """What `alternatives` returns: a sequence of results, the best first.

    Parameters
    ----------
    results
        Each is the best of all inputs that differ from those before.
    reach
        How far two answers must be apart in one of the inputs at least, (num_inputs,);
        infinite for inputs that do not count.
    status
        `OPTIMAL` if each is proved, `INFEASIBLE` if nothing is left after the last of
        them, or why the work ended early.
    nodes, runs, seconds
        Of all runs together.
    """

    results: tuple[Result, ...]
    reach: Array
    status: Status
    nodes: int = 0
    runs: int = 0
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __getitem__(self, k: int) -> Result:
        return self.results[k]

    @property
    def proved(self) -> bool:
        """Whether each is proved best among what is left."""
        return all(result.proved for result in self.results)

    def to_frame(self) -> Any:
        """A DataFrame with a row for each answer: inputs, value, bound, status."""
        return frame_of(
            [
                {
                    **(result.inputs or {}),
                    "value": result.value,
                    "bound": result.bound,
                    "status": result.status.value,
                }
                for result in self.results
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `to_json` writes it."""
        return {
            "status": self.status.value,
            "alternatives": [result.to_dict() for result in self.results],
            "reach": [known(r) for r in self.reach],
            "nodes": self.nodes,
            "runs": self.runs,
            "seconds": self.seconds,
        }

    def summary(self) -> str:
        """The answers beside each other, for a person."""
        if not self.results:
            if self.status is Status.INFEASIBLE:
                return (
                    "Infeasible: no input satisfies every bound, constraint and limit"
                )
            return f"No input found ({self.status.value})"
        count = sum(result.proved for result in self.results)
        lines = [
            f"{len(self.results)} answers that differ, {count} of them proved best of "
            "what is left",
            f"  after {self.seconds:.2f} s, {self.runs} runs and {self.nodes:,} nodes",
        ]
        if self.status is Status.INFEASIBLE:
            lines.append("  no further input differs enough from all of them")
        columns = [_cells(result) for result in self.results]
        heads = ["", *(f"{k + 1}." for k in range(len(columns)))]
        rows = [heads, *([name, *(c[name] for c in columns)] for name in columns[0])]
        widths = [max(len(row[k]) for row in rows) for k in range(len(heads))]
        for row in rows:
            cells = [row[0].ljust(widths[0])]
            cells += [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
            lines.append(f"  {'  '.join(cells)}".rstrip())
        return "\n".join(lines)


def _cells(result: Result) -> dict[str, str]:
    """The column of a result in the table of all."""
    cells = {"value": f"{result.value:.6g}", "proved": f"{result.bound:.6g}"}
    for name, at in (result.inputs or {}).items():
        cells[shown(name)] = f"{at:.6g}" if type(at) is float else shown(str(at))
    return cells


def alternatives(
    model: Any,
    domain: Any = None,
    *,
    count: int = COUNT,
    distance: float | Mapping[str, float] = DISTANCE,
    sense: Sense = "max",
    **said: Unpack[Words],
) -> Alternatives:
    """Find the best answers that differ, each proved best among what is left.

    Parameters
    ----------
    model, domain
        As `ennopt.maximize` takes them.
    count
        How many answers to find.
    distance
        Two answers differ if they are at least so far apart in at least one input: a
        share of each input's range, or numbers in the input's own units by its name,
        ``{"cement": 50, "age": 7}``; other inputs do not count then. A category
        differs when its level does, ``{"plant": 1}``.
    sense
        ``"max"`` or ``"min"``.
    said
        Keywords of `ennopt.maximize`. Limits on time and nodes are those of all runs
        together.

    Returns
    -------
    Alternatives
        Fewer than `count` if nothing else differs enough, or at a limit.

    Examples
    --------
    >>> from ennopt import Network, alternatives
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> found = alternatives(absolute, [(-2, 3)], count=3, distance=0.2)
    >>> [round(answer.value, 6) for answer in found]
    [3.0, 2.0, 2.0]
    """
    question = Question.of([(model, sense)], domain, said, "alternatives")
    return find_alternatives(question, count, distance)


def find_alternatives(
    question: Question, count: int, distance: float | Mapping[str, float]
) -> Alternatives:
    """The best answers of a question that differ; see `alternatives`."""
    if not (isinstance(count, Integral) and count >= 1):
        raise ValueError(f"Expected at least 1 answer, got {count!r} at count.")
    posed = question.posed()
    reach, canonical = _reach(distance, posed.problem), Canonical.of(posed.problem)
    series = Series(posed, question.running)
    return _Search(posed, series, reach, int(count), canonical).run()


def _reach(distance: float | Mapping[str, float], problem: Problem) -> Array:
    """How far apart answers must be, by input; infinite for those that do not count."""
    domain = problem.domain
    if isinstance(distance, Mapping):
        return _named_reach(distance, problem)
    if not (isinstance(distance, Real) and 0.0 < float(distance) <= 1.0):
        raise ValueError(
            "Expected a distance above 0 and at most 1, a share of the inputs' ranges, "
            f"or numbers by name, got {distance!r:.60}."
        )
    widths = np.where(domain.widths > 0.0, domain.widths, np.inf)
    reach = np.asarray(float(distance) * widths)
    for group in domain.groups:
        reach[list(group.inputs)] = 1.0
    return reach


def _named_reach(distance: Mapping[str, float], problem: Problem) -> Array:
    domain = problem.domain
    places = {name: [j] for j, name in enumerate(domain.names)}
    places |= {group.name: list(group.inputs) for group in domain.groups}
    levels = {j for group in domain.groups for j in group.inputs}
    for column in problem.ensemble.columns or ():
        if not isinstance(column, Number):
            places[column.name] = list(column.inputs)
            levels |= set(column.inputs)
    known = list(told_at(domain, problem.ensemble, domain.lower))
    reach = np.full(domain.num_inputs, np.inf)
    for name, far in distance.items():
        if name not in places:
            raise ValueError(
                f"Expected a distance for an input or a category, got {name!r}. "
                f"{unknown_name(str(name), known)}"
            )
        if not (isinstance(far, Real) and 0.0 < float(far) < math.inf):
            raise ValueError(
                f"Expected a positive distance, got {far!r:.60} at {shown(name)}."
            )
        for j in places[name]:
            codes = domain.values.lists[j]
            own = 1.0 if codes is None else float(np.diff(codes).min(initial=np.inf))
            reach[j] = own if j in levels else float(far)
    if not np.isfinite(reach).any():
        raise ValueError("Expected a distance for at least one input, got none.")
    return reach


@dataclass(slots=True, eq=False)
class _Part:
    """A part of what is left, what is proved of it and the best point known there."""

    domain: Domain
    bound: float
    result: Result | None = None
    solved: bool = False


@dataclass(slots=True, eq=False)
class _Search:
    """Answers in the making. Inside, the objective is to be large."""

    posed: Posed
    series: Series
    reach: Array
    wanted: int
    canonical: Canonical
    parts: list[_Part] = field(default_factory=list)

    @property
    def sign(self) -> float:
        return 1.0 if self.posed.problem.sense == "max" else -1.0

    def run(self) -> Alternatives:
        """Do the work."""
        self.parts = [_Part(self.posed.problem.domain, math.inf)]
        found: list[Result] = []
        status = Status.OPTIMAL
        while len(found) < self.wanted:
            if self.series.spent or (best := self._best()) is None:
                break
            if best.x is None:
                status = best.status
                break
            found.append(best)
            if not best.proved:
                status = best.status
                break
            self._exclude(np.asarray(best.x))
        if status is Status.OPTIMAL and len(found) < self.wanted:
            status = self._ending()
        return Alternatives(
            tuple(found), self.reach, status, self.series.nodes, self.series.runs,
            self.series.seconds,
        )  # fmt: skip

    def _ending(self) -> Status:
        """Why there are fewer answers than asked for."""
        if self.series.interrupted:
            return Status.INTERRUPTED
        if not self.series.spent:  # nothing is left, or nothing that can be decided
            return Status.PRECISION_LIMIT if self.parts else Status.INFEASIBLE
        limits = self.series.running.tools.limits
        late = self.series.seconds >= limits.seconds
        return Status.TIME_LIMIT if late else Status.NODE_LIMIT

    def _best(self) -> Result | None:
        """The best of all parts; ``None`` if they are all empty."""
        before = self.series.nodes, self.series.seconds
        while not self.series.spent:
            best = self._incumbent()
            self.parts = [p for p in self.parts if p.bound > -math.inf]
            open_parts = [p for p in self.parts if not p.solved]
            floor = -math.inf if best is None else self._floor(best)
            open_parts = [p for p in open_parts if p.bound > floor]
            if not open_parts:
                break
            self._explore(max(open_parts, key=lambda part: part.bound), floor)
        best = self._incumbent()
        if best is None:
            return self._unfinished() if self.parts else None
        return self._told(best, before)

    def _incumbent(self) -> Result | None:
        found = [p.result for p in self.parts if p.result is not None]
        return max(found, key=lambda r: self.sign * r.value, default=None)

    def _floor(self, best: Result) -> float:
        """A part whose bound is not above this holds nothing that counts as better."""
        value = self.sign * best.value
        gap = self.series.running.tools.limits.gap
        return value + self.canonical.tolerance(value, gap)

    def _explore(self, part: _Part, floor: float) -> None:
        """Solve a part, or prove that it holds nothing above the floor."""
        stopped = False

        def enough(moment: Progress) -> bool:
            nonlocal stopped
            stopped = self.sign * moment.bound <= floor
            theirs = self.series.running.tools.callback
            asked = theirs is not None and bool(theirs(moment))
            self.series.interrupted |= asked
            return stopped or asked

        problem = replace(self.posed.problem, domain=part.domain)
        known = None if part.result is None else part.result.x
        start = self.posed.start
        if known is None and start is not None and part.domain.contains(start):
            known = start
        result = self.series.solve(problem, known, callback=enough)
        if result.status is Status.INTERRUPTED and not stopped:
            self.series.interrupted = True
        ends = (Status.OPTIMAL, Status.INFEASIBLE, Status.PRECISION_LIMIT)
        part.solved = result.status in ends  # else there is more to find, later
        if result.status is Status.INFEASIBLE:
            part.bound = -math.inf
        else:
            part.bound = min(part.bound, self.sign * result.bound)
        if result.x is not None:
            part.result = result

    def _told(self, best: Result, before: tuple[int, float]) -> Result:
        """The best of all parts, with what is proved of all of them."""
        bound = max(self.sign * best.value, *(part.bound for part in self.parts))
        value = self.sign * best.value
        asked = best.asked
        if asked is not None:
            asked = replace(asked, problem=self.posed.problem)
        status, notes = Status.OPTIMAL, best.notes
        if bound > self._floor(best):
            status = self._ending()
        elif best.status is not Status.OPTIMAL:
            notes = ()  # about the end of a run that was cut short
        seconds = {"total": self.series.seconds - before[1]}
        return replace(
            best, status=status, bound=self.sign * max(bound, value) + 0.0,
            nodes=self.series.nodes - before[0], seconds=seconds, asked=asked,
            notes=notes,
        )  # fmt: skip

    def _unfinished(self) -> Result:
        """No point was found before a limit."""
        bound = max(part.bound for part in self.parts)
        problem = self.posed.problem
        return Result(
            status=self._ending(), sense=problem.sense, x=None,
            names=problem.domain.names, value=-self.sign * math.inf,
            bound=self.sign * bound, member_values=np.empty(0),
        )  # fmt: skip

    def _exclude(self, x: Array) -> None:
        """Take all points that are too close to `x` out of the parts."""
        self.parts = [slab for part in self.parts for slab in self._left(part, x)]

    def _left(self, part: _Part, x: Array) -> Iterator[_Part]:
        """What is left of a part: itself, or slabs beside the box around `x`."""
        counting = np.isfinite(self.reach)
        below, above = x - self.reach, x + self.reach
        low, high = part.domain.lower, part.domain.upper
        apart = (high <= below) | (low >= above)
        if apart[counting].any():
            yield part
            return
        for j in np.flatnonzero(counting).tolist():
            for lower, upper in ((low[j], below[j]), (above[j], high[j])):
                slab = _within(part.domain, low, high, j, lower, upper)
                if slab is not None:
                    yield self._inherited(slab, part)
            low, high = low.copy(), high.copy()
            # The next slabs are within reach of this input, up to the ends.
            low[j], high[j] = max(low[j], below[j]), min(high[j], above[j])

    def _inherited(self, slab: Domain, part: _Part) -> _Part:
        """A part of a part: its bound holds, and perhaps its point."""
        result = part.result
        if result is not None and result.x is not None and slab.contains(result.x):
            return _Part(slab, part.bound, result, part.solved)
        return _Part(slab, part.bound)


def _within(
    domain: Domain, low: Array, high: Array, j: int, lower: float, upper: float
) -> Domain | None:
    """The part of a domain where input j is in a range; ``None`` if it is empty."""
    if lower > upper:
        return None
    low, high = low.copy(), high.copy()
    low[j], high[j] = lower, upper
    inner, outer = domain.values.up(low), domain.values.down(high)
    if np.any(inner > outer):
        return None
    return domain.within(low, high)
