"""Numbers drawn from lines of the record: pure functions, nothing else.

A `run` is a line of ``results.jsonl`` that ended with a result. Unknown numbers are
``None`` there and infinite here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ennopt.study.record import Line

Clock: TypeAlias = Literal["seconds", "nodes"]

PAPER_LIMIT = 3600.0
"""Seconds that the paper allows each run, and the weight of a gap in `time_gap`."""

SMALLEST_GAP = 1e-4
"""A gap of this much counts as closed."""


def solved(run: Line) -> bool:
    """Whether the run ended with a proof of optimality."""
    return bool(run["result"]["status"] == "optimal")


def gap(run: Line) -> float:
    """Relative gap of value and bound; 0 for a solved run, infinite if unknown."""
    if solved(run):
        return 0.0
    found = run["result"]["gap"]
    return math.inf if found is None else float(found)


def spent(run: Line, clock: Clock = "seconds") -> float:
    """Seconds (or nodes) of a run; one that was not solved counts its own limit."""
    limit = run["limits"][clock]
    used = (
        run["result"]["nodes"]
        if clock == "nodes"
        else run["result"]["seconds"]["total"]
    )
    return float(used if solved(run) or limit is None else limit)


def time_gap(seconds: float, gap: float) -> float:
    """The paper's time-gap ``t + 3600 alpha``: time and gap in one number.

    Parameters
    ----------
    seconds
        Time of the run.
    gap
        Relative gap alpha at its end, 0 if it was solved.

    Examples
    --------
    >>> time_gap(12.0, 0.0), time_gap(3600.0, 0.25)
    (12.0, 4500.0)
    """
    return seconds + PAPER_LIMIT * gap


def time_gap_of(run: Line, clock: Clock = "seconds") -> float:
    """The time-gap of a run: its time if it was solved, else its limit and the gap."""
    return time_gap(spent(run, clock), gap(run))


def stage(run: Line, *names: str) -> float:
    """Seconds in the stages of those names, together; 0 where one was not reached."""
    return float(sum(run["result"]["seconds"].get(name, 0.0) for name in names))


def detail(run: Line, name: str) -> float:
    """A number among the details of a run; not a number where a run has no such."""
    details = run["result"]["details"]
    if name not in details:
        return math.nan
    return math.inf if details[name] is None else float(details[name])


def mean(values: Iterable[float]) -> float | None:
    """Mean of the numbers that are known; ``None`` when there is none.

    An infinite number makes an infinite mean: what is unknown is not left out.

    Examples
    --------
    >>> mean([1.0, 3.0, float("nan")]), mean([]), mean([1.0, float("inf")])
    (2.0, None, inf)
    """
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None


def mean_gap(
    runs: Sequence[Line], over: Literal["unsolved", "all"] = "unsolved"
) -> float | None:
    """Mean gap of the runs that were not solved (0 if all were), or of all."""
    chosen = [run for run in runs if over == "all" or not solved(run)]
    if not runs:
        return None
    return mean(gap(run) for run in chosen) if chosen else 0.0


def improvement(bound: float, reference: float) -> float:
    """The paper's percent bound improvement, as a share of the reference.

    A bound that is not known is infinitely worse; without a reference there is no
    improvement.

    Examples
    --------
    >>> improvement(2.0, 8.0), improvement(math.inf, 8.0)
    (0.75, -inf)
    """
    if math.isnan(bound) or not math.isfinite(reference) or reference == 0:
        return math.nan
    if math.isinf(bound):
        return -math.inf
    return abs(bound - reference) / abs(reference)


def grouped(runs: Iterable[Line], *names: str) -> dict[tuple[Any, ...], list[Line]]:
    """Runs by some facts of their subject, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for run in runs:
        key = tuple(run["subject"].get(name) for name in names)
        groups.setdefault(key, []).append(run)
    return groups


def labelled(runs: Iterable[Line]) -> dict[str, list[Line]]:
    """Runs by the label of their method, in order of appearance."""
    groups: dict[str, list[Line]] = {}
    for run in runs:
        groups.setdefault(run["label"], []).append(run)
    return groups


def uneven(runs: Iterable[Line]) -> str:
    """Which methods lack runs that others have, in words; empty if none does.

    Averages over other runs do not compare: the hardest may be those that failed.
    """
    places = {
        label: {(run["subject"]["name"], run["seed"]) for run in group}
        for label, group in labelled(runs).items()
    }
    every = set[tuple[str, int]]().union(*places.values())
    lacking = [
        f"{label} {len(found)}" for label, found in places.items() if found != every
    ]
    if not lacking:
        return ""
    return (
        f"Of {len(every)} runs there are only: {', '.join(lacking)}. Each method is "
        "averaged over its own."
    )


def paired(runs: Iterable[Line], first: str, second: str) -> list[tuple[Line, Line]]:
    """Runs of two methods on the same instance with the same seed."""
    ours = [run for run in runs if run["label"] in (first, second)]
    by_place: dict[tuple[str, int], dict[str, Line]] = {}
    for run in ours:
        place = (run["subject"]["name"], run["seed"])
        by_place.setdefault(place, {})[run["label"]] = run
    return [(pair[first], pair[second]) for pair in by_place.values() if len(pair) == 2]


def cumulative(
    runs: Sequence[Line], measure: Callable[[Line], float]
) -> tuple[list[float], list[int]]:
    """How many runs have at most each measured value: a staircase.

    Ties make one step; infinite values none.

    Examples
    --------
    >>> lines = [{"t": 2.0}, {"t": 1.0}, {"t": 2.0}, {"t": float("inf")}]
    >>> cumulative(lines, lambda line: line["t"])
    ([1.0, 2.0], [1, 3])
    """
    values = sorted(v for v in map(measure, runs) if math.isfinite(v))
    steps: list[float] = []
    counts: list[int] = []
    for count, value in enumerate(values, start=1):
        if steps and steps[-1] == value:
            counts[-1] = count
        else:
            steps.append(value)
            counts.append(count)
    return steps, counts


class MeanInterval(NamedTuple):
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap(
    values: Sequence[float], *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> MeanInterval:
    """Mean and percentile bootstrap interval; the same seed gives the same interval.

    Examples
    --------
    >>> bootstrap([4.0])
    MeanInterval(mean=4.0, low=4.0, high=4.0)
    """
    known = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = rng.choice(known, size=(draws, known.size)).mean(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return MeanInterval(float(known.mean()), float(low), float(high))
