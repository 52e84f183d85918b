"""The open nodes of a search, compiled or in NumPy, behind one interface.

What a node is, a tree is told by a scheme (`ennopt.engine.schemes`).
"""

from __future__ import annotations

import enum
import heapq
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ennopt.canonical import Canonical
from ennopt.engine.nodes import Fate
from ennopt.network import Array
from ennopt.problem import ZERO_SHARE

CLOSING_SHARE = 1.0 - 1e-6
"""Share of the tolerance that nodes are pruned with: rounding needs the rest."""

NOISE_SHARE = 4.0
"""A gap below this many times the objective's noise is not asked for."""

POOL = 8
"""Incumbents that a tree keeps, the best first."""


class Kind(enum.IntEnum):
    """What a line of a tree's journal tells; each line is five numbers."""

    SPLIT = 0
    """Node, place (input or neuron), split point, number of the first child; the
    second child has the next number."""
    CLIP = 1
    """Node, input, new lower and new upper end of it."""
    CLOSE = 2
    """Node, -1, its bound, 0."""


class Tree(Protocol):
    """Open nodes and incumbents. Nodes are rows of numbers, their bounds first."""

    @property
    def open(self) -> int:
        """Number of open nodes."""

    @property
    def bound(self) -> float:
        """No point of the nodes this tree was given is better: proved."""

    @property
    def closed(self) -> float:
        """No point of what was closed or clipped away is better: proved."""

    @property
    def value(self) -> float:
        """Objective at the best incumbent, ``-inf`` without one."""

    @property
    def operations(self) -> float:
        """Floating-point operations of the kernel's matrix products; 0 in NumPy."""

    def points(self) -> Array:
        """The incumbents, (num_points, num_inputs), the best first."""

    def candidates(self) -> Array:
        """Points that would be better if they were feasible, each told once."""

    def plant(self) -> None:
        """Add the root: the whole domain."""

    def offer(self, x: Array) -> bool:
        """Take a feasible point as incumbent; true if it is better than all before."""

    def add(self, nodes: Array) -> None:
        """Add open nodes, (num_nodes, num_numbers)."""

    def take(self, most: int) -> Array:
        """Remove the open nodes of the largest bounds, at most so many."""

    def close(self, bound: float) -> None:
        """Hear what was proved elsewhere of nodes that were taken."""

    def snapshot(self) -> Array:
        """All open nodes, (num_nodes, num_numbers), which stay where they are."""

    def journal(self) -> Array:
        """Lines of five numbers since the last call: `Kind`, node and what it says.

        Empty unless the tree was opened with a journal.
        """

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
        What rounding leaves unprovable.
    """

    gap: float
    floor: float
    least: float

    @classmethod
    def of(cls, problem: Canonical, gap: float) -> Tolerance:
        """The tolerance of a problem, a little inside of what `Run` asks for."""
        floor = ZERO_SHARE * min(1.0, problem.scale)
        return cls(gap * CLOSING_SHARE, floor, NOISE_SHARE * problem.noise)

    def cutoff(self, value: float) -> float:
        """The bound at which a node is closed."""
        if not math.isfinite(value):
            return -math.inf
        return value + max(self.gap * max(abs(value), self.floor), self.least)


@dataclass(frozen=True, slots=True)
class Level:
    """A cutoff that is given, whatever values are found."""

    level: float

    def cutoff(self, value: float) -> float:
        """The bound at which a node is closed."""
        return self.level


@dataclass(frozen=True, slots=True, eq=False)
class Explored:
    """What became of a node.

    Parameters
    ----------
    fate
        Closed, to be split, to be bounded again, or a leaf that cannot be split.
    node
        The node with its new contents, (num_numbers,).
    place, at
        What to branch on, if it is to be split.
    dropped
        No point that was closed or left out is better; ``-inf`` if nothing was.
    """

    fate: Fate
    node: Array
    place: int = -1
    at: float = 0.0
    dropped: float = -math.inf


class PlainScheme(Protocol):
    """What a tree in NumPy must know of its nodes."""

    batch: int
    """Nodes to bound at once."""

    def root(self) -> Array:
        """The whole domain, (1, num_numbers)."""

    def explore(self, rows: Array, cutoff: float) -> tuple[list[Explored], Array]:
        """Bound nodes, (num_nodes, num_numbers).

        Returns what becomes of each, and points that may be good.
        """

    def split(self, node: Array, place: int, at: float) -> tuple[Array, Array]:
        """Both parts of a node."""

    def clips(self, before: Array, after: Array) -> Iterator[tuple[int, float, float]]:
        """Inputs whose range became smaller, with the new range."""


class PlainTree:
    """The tree in NumPy: slower, one thread."""

    operations = 0.0

    def __init__(
        self,
        problem: Canonical,
        scheme: PlainScheme,
        tolerance: Tolerance | Level,
        journal: bool = False,
    ) -> None:
        self._problem, self._scheme = problem, scheme
        self._tolerance = tolerance
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0
        self.closed = -math.inf
        self._pool: list[tuple[float, Array]] = []
        self._candidates: list[Array] = []
        self._lines: list[tuple[float, ...]] | None = [] if journal else None

    @property
    def open(self) -> int:
        """Number of open nodes."""
        return len(self._heap)

    @property
    def value(self) -> float:
        """Objective at the best incumbent, ``-inf`` without one."""
        return self._pool[0][0] if self._pool else -math.inf

    @property
    def cutoff(self) -> float:
        """What a node must beat."""
        return self._tolerance.cutoff(self.value)

    @property
    def bound(self) -> float:
        """No point of the nodes this tree was given is better: proved."""
        return max(self.closed, -self._heap[0][0] if self._heap else -math.inf)

    def points(self) -> Array:
        """The incumbents, (num_points, num_inputs), the best first."""
        found = [point for _, point in self._pool]
        return np.array(found).reshape(len(found), self._problem.num_inputs)

    def candidates(self) -> Array:
        """Points that would be better if they were feasible, each told once."""
        found, self._candidates = self._candidates, []
        return np.array(found).reshape(len(found), self._problem.num_inputs)

    def plant(self) -> None:
        """Add the root: the whole domain."""
        self.add(self._scheme.root())

    def offer(self, x: Array) -> bool:
        """Take a feasible point as incumbent; true if it is better than all before."""
        value = float(self._problem.values(x)[0])
        better = value > self.value
        if better or (len(self._pool) < POOL and value > -math.inf):
            self._pool.append((value, np.array(x)))
            self._pool.sort(key=lambda entry: -entry[0])
            del self._pool[POOL:]
        return better

    def add(self, nodes: Array) -> None:
        """Add open nodes, (num_nodes, num_numbers)."""
        for node in nodes:
            self._push(node)

    def _push(self, node: Array) -> int:
        self._count += 1
        heapq.heappush(self._heap, (-float(node[0]), self._count, node))
        return self._count

    def take(self, most: int) -> Array:
        """Remove the open nodes of the largest bounds, at most so many."""
        return self._rows(self._pop(most))

    def close(self, bound: float) -> None:
        """Hear what was proved elsewhere of nodes that were taken."""
        self.closed = max(self.closed, bound)

    def snapshot(self) -> Array:
        """All open nodes, (num_nodes, num_numbers), which stay where they are."""
        return self._rows(sorted(self._heap))

    def _pop(self, most: int) -> list[tuple[float, int, Any]]:
        count = min(most, len(self._heap))
        return [heapq.heappop(self._heap) for _ in range(count)]

    def _rows(self, entries: list[tuple[float, int, Any]]) -> Array:
        rows = [node for _, _, node in entries]
        return np.array(rows).reshape(len(rows), self._scheme.root().shape[1])

    def journal(self) -> Array:
        """Lines of five numbers since the last call: `Kind`, node and what it says."""
        found = self._lines or []
        if self._lines is not None:
            self._lines = []
        return np.array(found, dtype=np.float64).reshape(len(found), 5)

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
            before = self.value
            most = math.ceil(min(self._scheme.batch, nodes - done))
            done += self._explore_batch(most)
            if eager and self.value > before:
                break
        return done

    def _explore_batch(self, most: int) -> int:
        cutoff, taken = self.cutoff, []
        for entry in self._pop(most):
            if -entry[0] > cutoff:
                taken.append(entry)
            else:
                self._close(entry[1], -entry[0])
        if not taken:
            return 0
        try:
            found, points = self._scheme.explore(self._rows(taken), cutoff)
        except BaseException:  # Ctrl-C: what was taken is still open
            for entry in taken:
                heapq.heappush(self._heap, entry)
            raise
        for point in points:
            self._meet(point)
        for (_, number, row), fate in zip(taken, found, strict=True):
            self._follow(number, row, fate)
        return len(taken)

    def _meet(self, point: Array) -> None:
        """A point that may be good: an incumbent if feasible, else a candidate."""
        domain = self._problem.domain
        inside = domain.repair(point)
        if domain.contains(inside):
            self.offer(inside)
        elif float(self._problem.values(inside)[0]) > self.value:
            self._candidates = [*self._candidates[1 - POOL :], inside]

    def _follow(self, number: int, row: Array, found: Explored) -> None:
        """Keep the open parts of a node and what is proved of the rest."""
        self.closed = max(self.closed, found.dropped)
        if found.fate in (Fate.CLOSED, Fate.STUCK):
            stuck = float(found.node[0]) if found.fate is Fate.STUCK else -math.inf
            self._close(number, max(found.dropped, stuck))
            return
        if self._lines is not None:
            for place, low, high in self._scheme.clips(row, found.node):
                self._lines.append((Kind.CLIP, number, place, low, high))
        if found.fate is Fate.AGAIN:
            heapq.heappush(self._heap, (-float(found.node[0]), number, found.node))
            return
        left, right = self._scheme.split(found.node, found.place, found.at)
        first = self._push(left)
        self._push(right)
        if self._lines is not None:
            self._lines.append((Kind.SPLIT, number, found.place, found.at, first))

    def _close(self, number: int, bound: float) -> None:
        self.closed = max(self.closed, bound)
        if self._lines is not None:
            self._lines.append((Kind.CLOSE, number, -1, bound, 0.0))
