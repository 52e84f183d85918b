"""The open nodes of a search, compiled or in NumPy, behind one interface.

What a node is, a tree is told by a scheme (`ennopt.engine.schemes`).
"""

from __future__ import annotations

import enum
import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ennopt import clock
from ennopt.canonical import Canonical
from ennopt.engine.nodes import Fate
from ennopt.engine.values import apart
from ennopt.network import Array
from ennopt.problem import ZERO_SHARE

CLOSING_SHARE = 1.0 - 1e-6
"""Share of the tolerance that nodes are pruned with: rounding needs the rest."""

NOISE_SHARE = 4.0
"""A gap below this many times the objective's noise is not asked for."""

POOL = 8
"""Incumbents that a tree keeps: the best of those that it was told and that differ, the
best first. As many candidates."""


class Kind(enum.IntEnum):
    """What a line of a tree's journal tells.

    A line is six numbers: the kind, the number of the node, three that depend on the
    kind (-1, 0 and 0 where nothing is said below), and a bound: no point of what the
    line removes is better. It is ``-inf`` where nothing is removed, or no feasible
    point. So the largest bound of all lines is `Tree.closed`.
    """

    SPLIT = 0
    """The node became two. Place (input; of a node of signs the neuron, or, behind all
    neurons, the input), split point, number of the first child; the second child has
    the next number."""
    CLIP = 1
    """Input, its new lower and new upper end; what lies between old and new ends is
    removed."""
    CLOSE = 2
    """The whole node is removed. Node 0 stands for what `Tree.close` was told."""
    EXCLUDE = 3
    """Points of the node that its cut excludes are removed; its box stays."""
    ADD = 4
    """The node is open from now on: a root, or one that was taken before."""
    TAKE = 5
    """The node was handed out by `Tree.take`."""


LINE_NUMBERS = 6
"""Numbers in a line of a journal."""


class Tree(Protocol):
    """Open nodes and incumbents.

    Nodes are rows of numbers, their bounds first. In a tree with a journal their last
    number says which node it is, and a node that is taken and added again keeps it; 0
    is a new one.
    """

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

    def narrow(self, slopes: Array, sides: Array) -> None:
        """Learn half-spaces ``slopes @ x >= sides`` that hold on the feasible set.

        (num_half_spaces, num_inputs) and (num_half_spaces,). For trees of boxes.
        """

    def number_from(self, last: int) -> None:
        """Number new nodes of the journal above `last`: an earlier tree had these."""

    def journal(self) -> Array:
        """Lines since the last call, (num_lines, 6): see `Kind`.

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

    def narrow(self, slopes: Array, sides: Array) -> None:
        """Learn half-spaces that hold on the feasible set; see `Tree.narrow`."""

    def guide(self, points: Array) -> None:
        """Learn what weights risks have at good points, (num_points, num_inputs)."""


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
        number = self._push(self._scheme.root()[0])
        self._write(Kind.ADD, number, -math.inf)

    def offer(self, x: Array) -> bool:
        """Take a feasible point as incumbent; true if it is better than all before."""
        value = float(self._problem.values(x)[0])
        if not value > -math.inf:
            return False
        best, domain = value > self.value, self._problem.domain
        near = [kept for kept in self._pool if not apart(x, kept[1], domain)]
        if any(kept[0] >= value for kept in near):
            return False
        others = [kept for kept in self._pool if apart(x, kept[1], domain)]
        others.append((value, np.array(x)))
        self._pool = sorted(others, key=lambda kept: -kept[0])[:POOL]
        if best:
            self._scheme.guide(np.array(x)[None])
        return best

    def add(self, nodes: Array) -> None:
        """Add open nodes, (num_nodes, num_numbers)."""
        for row in nodes:
            number = 0
            if self._lines is not None:
                row, number = row[:-1], int(row[-1])
            self._write(Kind.ADD, self._push(row, number), -math.inf)

    def _push(self, node: Array, number: int = 0) -> int:
        """Open a node; returns its number, a new one for 0."""
        number = number or self._count + 1
        self._count = max(self._count, number)
        heapq.heappush(self._heap, (-float(node[0]), number, node))
        return number

    def take(self, most: int) -> Array:
        """Remove the open nodes of the largest bounds, at most so many."""
        taken = heapq.nsmallest(most, self._heap)
        rows = self._handed_out(taken)
        for _, number, _ in taken:
            self._write(Kind.TAKE, number, -math.inf)
        for _ in taken:
            heapq.heappop(self._heap)
        return rows

    def close(self, bound: float) -> None:
        """Hear what was proved elsewhere of nodes that were taken."""
        self._close(0, bound)

    def snapshot(self) -> Array:
        """All open nodes, (num_nodes, num_numbers), which stay where they are."""
        return self._handed_out(sorted(self._heap))

    def _rows(self, entries: list[tuple[float, int, Any]]) -> Array:
        rows = [node for _, _, node in entries]
        return np.array(rows).reshape(len(rows), self._scheme.root().shape[1])

    def _handed_out(self, entries: list[tuple[float, int, Any]]) -> Array:
        """Nodes as rows, with their numbers if there is a journal."""
        rows = self._rows(entries)
        if self._lines is None:
            return rows
        return np.column_stack([rows, [number for _, number, _ in entries]])

    def narrow(self, slopes: Array, sides: Array) -> None:
        """Learn half-spaces ``slopes @ x >= sides`` that hold on the feasible set."""
        self._scheme.narrow(slopes, sides)

    def number_from(self, last: int) -> None:
        """Number new nodes of the journal above `last`: an earlier tree had these."""
        self._count = max(self._count, last)

    def journal(self) -> Array:
        """Lines since the last call, (num_lines, 6): see `Kind`."""
        found = self._lines or []
        if self._lines is not None:
            self._lines = []
        return np.array(found, dtype=np.float64).reshape(len(found), LINE_NUMBERS)

    def _write(self, kind: Kind, number: int, bound: float, *told: float) -> None:
        """A line of the journal, if there is one."""
        if self._lines is not None:
            self._lines.append((kind, number, *(told or (-1, 0.0, 0.0)), bound))

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
        done, end = 0, clock.now() + seconds
        while self._heap and done < nodes and clock.now() < end:
            before = self.value
            most = math.ceil(min(self._scheme.batch, nodes - done))
            done += self._explore_batch(most)
            if eager and self.value > before:
                break
        return done

    def _explore_batch(self, most: int) -> int:
        """Bound and branch at most so many nodes; returns how many.

        Ctrl-C may come at any line. A node is first put down elsewhere and then removed
        here: it may be known twice for a moment, but it is never lost.
        """
        cutoff = self.cutoff
        waiting: deque[tuple[float, int, Any]] = deque()
        try:
            while self._heap and len(waiting) < most:
                bound, number, _ = entry = self._heap[0]
                if -bound > cutoff:
                    waiting.append(entry)
                else:
                    self._close(number, -bound)
                heapq.heappop(self._heap)
            count = len(waiting)
            if not count:
                return 0
            found, points = self._scheme.explore(self._rows(list(waiting)), cutoff)
            for point in points:
                self._meet(point)
            for fate in found:
                _, number, row = waiting[0]
                self._follow(number, row, fate)
                waiting.popleft()
        except BaseException:  # what was taken is still open
            known = {number for _, number, _ in self._heap}
            for entry in waiting:
                if entry[1] not in known:
                    heapq.heappush(self._heap, entry)
            raise
        return count

    def _meet(self, point: Array) -> None:
        """A point that may be good: an incumbent if feasible, else a candidate."""
        inside = self._problem.domain.repair(point)
        if self._problem.contains(inside):
            self.offer(inside)
        elif float(self._problem.values(inside)[0]) > self.value:
            self._candidates = [*self._candidates[1 - POOL :], inside]

    def _follow(self, number: int, row: Array, found: Explored) -> None:
        """Keep the open parts of a node and what is proved of the rest."""
        if found.fate in (Fate.CLOSED, Fate.STUCK):
            stuck = float(found.node[0]) if found.fate is Fate.STUCK else -math.inf
            self._close(number, max(found.dropped, stuck))
            return
        self.closed = max(self.closed, found.dropped)
        if found.dropped > -math.inf:
            self._write(Kind.EXCLUDE, number, found.dropped)
        for clipped in self._scheme.clips(row, found.node):
            self._write(Kind.CLIP, number, found.dropped, *clipped)
        if found.fate is Fate.AGAIN:
            heapq.heappush(self._heap, (-float(found.node[0]), number, found.node))
            return
        left, right = self._scheme.split(found.node, found.place, found.at)
        first = self._push(left)
        self._push(right)
        self._write(Kind.SPLIT, number, -math.inf, found.place, found.at, first)

    def _close(self, number: int, bound: float) -> None:
        self.closed = max(self.closed, bound)
        self._write(Kind.CLOSE, number, bound)
