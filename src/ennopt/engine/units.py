"""Units of work: explore these nodes, for at most so many nodes, knowing this point.

A unit is plain data and its result too, so the same unit runs here, in a thread, in
another process or on a cluster. The incumbent is shared between rounds: a unit starts
with the best point known when it was handed out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from ennopt.canonical import Canonical
from ennopt.engine.schemes import Scheme
from ennopt.engine.tree import Tree
from ennopt.network import Array
from ennopt.run import Run

UNIT_SECONDS = 0.5
"""Longest time of a unit: how long a limit or Ctrl-C may have to wait."""

NODES_BEFORE_UNITS = 256
"""Nodes explored here before units are handed out: easy problems need no more."""

NODES_PER_UNIT = 64
"""Most open nodes handed out in one unit."""

POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Explore `nodes` for at most `limit` nodes and `seconds`.

    Parameters
    ----------
    problem, scheme, gap, dive
        What the tree is made from.
    nodes
        Open nodes of the scheme, (num_nodes, num_numbers).
    points
        Best points known, (num_points, num_inputs); perhaps none.
    limit, seconds, bytes
        When to return.
    """

    problem: Canonical
    scheme: Scheme
    gap: float
    dive: int
    nodes: Array
    points: Array
    limit: float = math.inf
    seconds: float = UNIT_SECONDS
    bytes: float = 2.0 * 2**30

    @property
    def bound(self) -> float:
        """Largest bound among the nodes handed out."""
        return float(self.nodes[:, 0].max())


@dataclass(frozen=True, slots=True, eq=False)
class UnitResult:
    """What a unit returns.

    Parameters
    ----------
    points
        Best points known at its end, (num_points, num_inputs).
    candidates
        Points that would be better if they could be made feasible.
    closed
        Bound proved for everything in the unit that is not in `nodes`.
    nodes
        The open nodes left.
    count
        Nodes bounded.
    """

    points: Array
    candidates: Array
    closed: float
    nodes: Array
    count: int


def explore_unit(unit: Unit) -> UnitResult:
    """Do the work of a unit: a pure function."""
    tree = unit.scheme.open(unit.problem, unit.gap)
    for x in unit.points:
        tree.offer(x)
    tree.add(unit.nodes)
    count = tree.explore(unit.limit, unit.seconds, unit.bytes, unit.dive, 1)
    left = tree.take(tree.open)
    return UnitResult(tree.points(), tree.candidates(), tree.closed, left, count)


def explore_with(
    executor: Executor,
    run: Run,
    tree: Tree,
    make: Callable[[Array, float, float], Unit],
    improve: Callable[[Array], None],
    keep: Callable[[Sequence[Array]], None] = lambda _: None,
    nodes: float = math.inf,
) -> None:
    """Hand out the open nodes of `tree` in units until a limit or a proof.

    Parameters
    ----------
    executor
        Anything whose ``submit`` returns futures with ``done`` and ``result``.
    run
        The record; its number of threads is the number of units in flight.
    tree
        The open nodes and the incumbent; nothing is explored in it.
    make
        ``make(nodes, limit, seconds)`` is the unit for some nodes.
    improve
        Called with candidates when the tree may have better points than the record.
    keep
        Called after each round with the nodes that are handed out.
    nodes
        Hand out no more when the run has so many nodes.
    """
    pending: dict[Any, Unit] = {}
    try:
        _hand_out(executor, run, tree, make, improve, keep, nodes, pending)
    finally:
        for unit in pending.values():
            tree.add(unit.nodes)  # unfinished work stays open
        for future in pending:
            future.cancel()


def _hand_out(
    executor: Executor,
    run: Run,
    tree: Tree,
    make: Callable[[Array, float, float], Unit],
    improve: Callable[[Array], None],
    keep: Callable[[Sequence[Array]], None],
    most_nodes: float,
    pending: dict[Any, Unit],
) -> None:
    """The loop of `explore_with`; `pending` holds what is under way."""
    flights = 2 * run.tools.threads

    def waiting() -> bool:
        return tree.open > 0 and run.nodes < most_nodes

    while (waiting() or pending) and run.ended() is None:
        while waiting() and len(pending) < flights:
            limit = math.inf
            if math.isfinite(run.limits.nodes):
                flying = sum(unit.limit for unit in pending.values())
                left = run.limits.nodes - run.nodes - flying
                if left <= 0:
                    break
                limit = math.ceil(left / flights)
            # Ctrl-C may come at any line: what was taken is still open.
            most = min(NODES_PER_UNIT, math.ceil(tree.open / flights))
            before, nodes = tree.bound, None
            try:
                nodes = tree.take(most)
                unit = make(nodes, limit, min(UNIT_SECONDS, run.remaining()))
                pending[executor.submit(explore_unit, unit)] = unit
            except BaseException:
                if nodes is None:
                    tree.close(before)  # taken or not: this holds
                elif not any(unit.nodes is nodes for unit in pending.values()):
                    tree.add(nodes)
                raise
        finished = [future for future in pending if future.done()]
        if not finished:
            time.sleep(POLL_SECONDS)
            run.tick()
            continue
        for future in finished:
            result = future.result()
            # First what keeps the bound valid: Ctrl-C may come at any line.
            tree.close(result.closed)
            tree.add(result.nodes)
            del pending[future]
            run.count(result.count)
            for x in result.points:
                tree.offer(x)
            improve(result.candidates)
        improve(tree.candidates())
        run.prove(max([tree.bound, *(u.bound for u in pending.values())]))
        run.open_nodes = int(tree.open)
        keep([unit.nodes for unit in pending.values()])
        run.tick()
