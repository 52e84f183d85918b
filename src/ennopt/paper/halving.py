"""Solve a box of inputs as one model; where that leaves a gap, halve it, and again.

A solver that is done may leave a gap open all the same: it failed, a known point
contradicts it, or its margin is too wide for the gap asked for. On the halves of its
box the big-M constants are smaller and the model is easier. `BigM` solves all its boxes
this way, B&C and Phase One do so at their end, and Phase Two with the boxes that it
does not split between the copies of its members any more.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.domain import Domain
from ennopt.paper.solving import PATIENCE, Trust, blurred, offer
from ennopt.paper.subproblems import (
    SUBPROBLEM_SHARE,
    Answer,
    Subproblem,
    SubproblemSolver,
    allowed,
    solve_all,
)
from ennopt.result import Status
from ennopt.run import Run

NARROWEST = 2.0**-40
"""A side this share of the domain's is not split any more: 40 halvings of each side
have left to rounding what they could not close."""


@dataclass(frozen=True, slots=True, eq=False)
class BoundedBox:
    """A box of inputs with what is proved about it.

    Parameters
    ----------
    domain
        The box.
    bounds
        Of the neurons, valid on it.
    bound
        Of the prediction on it.
    depth
        How many times the domain was split to get there.
    """

    domain: Domain
    bounds: NeuronBounds
    bound: float
    depth: int = 0


B = TypeVar("B", bound=BoundedBox)


class OpenBoxes(Generic[B]):
    """Boxes still open, largest bound first, and what was proved about closed ones."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, B]] = []
        self._order = itertools.count()
        self._closed = -math.inf

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, box: B) -> None:
        """Add a box."""
        heapq.heappush(self._heap, (-box.bound, next(self._order), box))

    def pop(self) -> B:
        """Take out the box with the largest bound, of equal ones the oldest."""
        return heapq.heappop(self._heap)[2]

    def close(self, bound: float) -> None:
        """Be done with a box that was taken out, and that has this bound."""
        self._closed = max(self._closed, bound)

    def bound(self) -> float:
        """No box, open or closed, has more than this."""
        return max(self._closed, -self._heap[0][0] if self._heap else -math.inf)


def best_first(
    run: Run,
    boxes: OpenBoxes[B],
    explore: Callable[[B], Status | None],
    trust: Trust,
) -> Status | None:
    """Explore open boxes, the largest bound first, until the run ends.

    Parameters
    ----------
    run
        Told what is proved.
    boxes
        With the first of them in it; together they cover the domain.
    explore
        Bounds a box, then closes it, puts it back or puts its parts in; may name a
        limit that the record cannot see.
    trust
        Ends the search when its patience does.

    Returns
    -------
    Status or None
        An ending that the record cannot see by itself.
    """
    while boxes:
        if run.ended() is not None or trust.gave_up():
            return None
        box = boxes.pop()
        if box.bound <= run.value + run.tolerance():
            boxes.close(box.bound)  # no open box has more
            break
        limit = explore(box)
        run.prove(max(boxes.bound(), run.value))
        run.tick()
        if limit is not None:
            return limit
    run.prove(max(boxes.bound(), run.value))
    if run.ended() is not None:
        return None
    run.notes.append("The gap asked for is below what the solver can prove.")
    return Status.OPTIMAL


def middle(domain: Domain, whole: Domain) -> tuple[int, float]:
    """The input in which a box is widest, as a share of the whole, and its middle."""
    shares = domain.widths / np.where(whole.widths > 0, whole.widths, 1.0)
    j = int(np.argmax(shares))
    return j, float(domain.lower[j] + 0.5 * domain.widths[j])


def parts(
    domain: Domain, j: int, at: float, whole: Domain
) -> tuple[Domain, Domain] | tuple[()]:
    """Both sides of ``x[j] == at``; nothing where the box is too thin to be split."""
    thin = domain.widths[j] <= NARROWEST * whole.widths[j]
    if thin or not domain.lower[j] < at < domain.upper[j]:
        return ()
    return domain.split(j, at)


@dataclass(slots=True, eq=False)
class Halving(Generic[B]):
    """Solve each box as one model, and halve those whose answer leaves a gap.

    Parameters
    ----------
    run
        Points are offered to it and nodes counted.
    boxes
        Where the halves go.
    solve
        The answer to a box, or ``None`` if the run had to end before.
    trust
        Judges the answers.
    prepare
        Makes something of a half before it waits for its turn, such as tighter bounds.
    told
        Told each box that was solved, and its bound.
    explored
        How many boxes were solved.
    """

    run: Run
    boxes: OpenBoxes[B]
    solve: Callable[[B], Answer | None]
    trust: Trust
    prepare: Callable[[B], B] = lambda box: box
    told: Callable[[B, float], object] = lambda box, bound: None
    explored: int = 0

    def explore(self, box: B) -> Status | None:
        """Solve a box, then close it, halve it, or keep it for want of time."""
        run, boxes = self.run, self.boxes
        answer = self.solve(box)
        if answer is None:
            boxes.push(box)
            return None
        self.explored += 1
        run.count(answer.nodes)
        if answer.x is not None:
            offer(run, answer.x)
        self.trust.heard([answer.failure])
        bound = min(box.bound, self.trust.believed(box.domain, answer.bound))
        self.told(box, bound)
        if bound <= run.value + run.tolerance():
            boxes.close(bound)
        elif bound == -math.inf:
            boxes.close(bound)  # no point of the box meets the constraints
        elif blurred(run, answer.x, bound):
            boxes.close(bound)
        elif answer.limit is not None or run.ended() is not None:
            boxes.push(replace(box, bound=bound))
        else:
            self._halve(replace(box, bound=bound))
        return answer.limit

    def _halve(self, box: B) -> None:
        whole = self.run.problem.domain
        halves = parts(box.domain, *middle(box.domain, whole), whole)
        if not halves:
            self.boxes.close(box.bound)
        # Both are prepared before either waits: the run may end in between.
        deeper = box.depth + 1
        made = [self.prepare(replace(box, domain=h, depth=deeper)) for h in halves]
        for half in made:
            self.boxes.push(half)


def solve_whole(
    run: Run, solver: SubproblemSolver, box: BoundedBox, share: float = SUBPROBLEM_SHARE
) -> Answer | None:
    """The ensemble on a box as one subproblem; ``None`` if the run had to end before.

    Parameters
    ----------
    run
        Whose limits hold.
    solver
        Solves it.
    box
        What to solve.
    share
        Of the run's tolerance, which the answer may leave.
    """
    problem = run.problem.on(box.domain)
    subproblem = Subproblem(problem, box.bounds)
    answers = solve_all(run, solver, [subproblem], allowed(run, share))
    return None if answers is None else answers[0]


def halve_to_the_end(
    run: Run, solver: SubproblemSolver, bounds: NeuronBounds
) -> Status | None:
    """Whole models on smaller and smaller boxes, until the gap is closed.

    Parameters
    ----------
    run
        The record, with its bound.
    solver
        Solves each box.
    bounds
        Of all neurons on the whole domain.
    """
    boxes: OpenBoxes[BoundedBox] = OpenBoxes()
    boxes.push(BoundedBox(run.problem.domain, bounds, run.bound))
    halving = Halving(
        run, boxes, lambda box: solve_whole(run, solver, box), Trust(run, PATIENCE),
        told=lambda box, bound: run.count(1),  # beside the nodes of its solver
    )  # fmt: skip
    try:
        return best_first(run, boxes, halving.explore, halving.trust)
    finally:
        run.details["halved_boxes"] = halving.explored
