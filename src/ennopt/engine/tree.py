"""The open nodes of a search, compiled or in NumPy, behind one interface.

What a node is, a tree is told by a scheme (`ennopt.engine.schemes`).
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ennopt.network import Array
from ennopt.problem import ZERO_SHARE, Problem

CLOSING_SHARE = 1.0 - 1e-6
"""Share of the tolerance that nodes are pruned with: rounding needs the rest."""

MARGIN_SHARE = 16.0
"""Rounding margins of the objective below which no gap can be proved."""


class Tree(Protocol):
    """Open nodes and an incumbent. Nodes are rows of numbers, their bounds first."""

    @property
    def open(self) -> int:
        """Number of open nodes."""

    @property
    def bound(self) -> float:
        """No point of the nodes this tree was given is better: proved."""

    @property
    def value(self) -> float:
        """Objective at the incumbent, ``-inf`` without one."""

    @property
    def operations(self) -> float:
        """Floating-point operations of the kernel's matrix products; 0 in NumPy."""

    def best_point(self) -> Array:
        """The incumbent, (num_inputs,), empty without one."""

    def plant(self) -> None:
        """Add the root: the whole domain."""

    def offer(self, x: Array) -> bool:
        """Take a feasible point as incumbent if it is better."""

    def add(self, nodes: Array) -> None:
        """Add open nodes, (num_nodes, num_numbers)."""

    def take(self, most: int) -> Array:
        """Remove the open nodes of the largest bounds, at most so many."""

    def explore(
        self,
        nodes: float,
        seconds: float,
        bytes: float,
        dive: int,
        threads: int,
        eager: bool = False,
    ) -> int:
        """Bound and branch until a limit; returns the number of nodes bounded.

        If `eager`, a better point ends it, too.
        """


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What counts as proved: ``value + max(gap * max(|value|, floor), least)``.

    Parameters
    ----------
    gap
        Relative gap.
    floor
        Smallest absolute value that the gap refers to.
    least
        What rounding margins leave unprovable.
    """

    gap: float
    floor: float
    least: float

    def cutoff(self, value: float) -> float:
        """The bound at which a node is closed."""
        if not math.isfinite(value):
            return -math.inf
        return value + max(self.gap * max(abs(value), self.floor), self.least)


def tolerance_of(problem: Problem, gap: float, margin: float) -> Tolerance:
    """The tolerance of a problem, a little inside of what `Run` asks for."""
    floor = ZERO_SHARE * min(1.0, problem.scale())
    return Tolerance(gap * CLOSING_SHARE, floor, MARGIN_SHARE * margin)


@dataclass(frozen=True, slots=True, eq=False)
class Explored:
    """What became of some nodes.

    Parameters
    ----------
    open
        Their parts that are still open, (num_nodes, num_numbers).
    points
        Points met on the way that may be good, (num_points, num_inputs).
    stuck
        Largest bound of a node that cannot be branched on, ``-inf`` without one.
    """

    open: Array
    points: Array
    stuck: float = -math.inf


class PlainScheme(Protocol):
    """What a tree in NumPy must know of its nodes."""

    margin: float
    """Rounding margin of a bound of the objective."""

    batch: int
    """Nodes to bound at once."""

    def root(self) -> Array:
        """The whole domain, (1, num_numbers)."""

    def explore(self, rows: Array, cutoff: float) -> Explored:
        """Bound nodes, (num_nodes, num_numbers), and branch."""


class PlainTree:
    """The tree in NumPy: slower, one thread."""

    operations = 0.0

    def __init__(self, problem: Problem, scheme: PlainScheme, gap: float) -> None:
        self._problem, self._scheme = problem, scheme
        self._tolerance = tolerance_of(problem, gap, scheme.margin)
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0
        self._stuck = -math.inf
        self._point: Array = np.zeros(0)
        self._value = -math.inf

    @property
    def open(self) -> int:
        """Number of open nodes."""
        return len(self._heap)

    @property
    def value(self) -> float:
        """Objective at the incumbent, ``-inf`` without one."""
        return self._value

    @property
    def cutoff(self) -> float:
        """What a node must beat."""
        return self._tolerance.cutoff(self._value)

    @property
    def bound(self) -> float:
        """No point of the nodes this tree was given is better: proved."""
        top = -self._heap[0][0] if self._heap else -math.inf
        return max(self.cutoff, self._stuck, top)

    def best_point(self) -> Array:
        """The incumbent, (num_inputs,), empty without one."""
        return self._point

    def plant(self) -> None:
        """Add the root: the whole domain."""
        self.add(self._scheme.root())

    def offer(self, x: Array) -> bool:
        """Take a feasible point as incumbent if it is better."""
        value = float(self._problem.values(x)[0])
        if not value > self._value:
            return False
        self._value, self._point = value, np.array(x)
        return True

    def add(self, nodes: Array) -> None:
        """Add open nodes, (num_nodes, num_numbers)."""
        for node in nodes:
            self._count += 1
            heapq.heappush(self._heap, (-float(node[0]), self._count, node))

    def take(self, most: int) -> Array:
        """Remove the open nodes of the largest bounds, at most so many."""
        count = min(most, len(self._heap))
        rows = [heapq.heappop(self._heap)[2] for _ in range(count)]
        return np.array(rows).reshape(count, self._scheme.root().shape[1])

    def explore(
        self,
        nodes: float,
        seconds: float,
        bytes: float,
        dive: int,
        threads: int,
        eager: bool = False,
    ) -> int:
        """Bound and branch until a limit; returns the number of nodes bounded.

        `bytes`, `dive` and `threads` are the compiled tree's; here they are ignored.
        """
        done, end = 0, time.perf_counter() + seconds
        while self._heap and done < nodes and time.perf_counter() < end:
            if -self._heap[0][0] <= self.cutoff:
                self._heap.clear()
                break
            before = self._value
            most = math.ceil(min(self._scheme.batch, nodes - done))
            done += self._explore_batch(most)
            if eager and self._value > before:
                break
        return done

    def _explore_batch(self, most: int) -> int:
        rows = self.take(most)
        rows = rows[rows[:, 0] > self.cutoff]
        found = self._scheme.explore(rows, self.cutoff)
        for point in found.points:
            self.offer(self._problem.domain.project(point))
        self._stuck = max(self._stuck, found.stuck)
        self.add(found.open)
        return len(rows)
