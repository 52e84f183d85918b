"""Explore a tree in slices of time, so that limits, callbacks and Ctrl-C are heard."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ennopt.engine.tree import Tree

GROWTH = 0.1
"""Nodes of a slice that is not to be longer, as a share of all nodes before."""

SLICE_SECONDS = 0.1
"""How long the kernel works between two looks at limits, callback and Ctrl-C."""


def in_slices(
    tree: Tree,
    *,
    nodes: float,
    remaining: Callable[[], float],
    bytes: float,
    dive: int,
    threads: int,
    eager: bool = False,
    shortest: float = math.inf,
) -> Iterator[int]:
    """Explore until the tree is empty, so many nodes are bounded or no time is left.

    Parameters
    ----------
    tree
        What to explore.
    nodes
        Most nodes.
    remaining
        Seconds left; asked before each slice.
    bytes, dive, threads, eager
        As for `Tree.explore`.
    shortest
        Nodes of the first slice; later ones have a share `GROWTH` of all before.

    Yields
    ------
    int
        Nodes bounded in a slice.
    """
    total = 0
    while tree.open and nodes > 0:
        seconds = min(SLICE_SECONDS, remaining())
        if seconds <= 0:
            return
        done = tree.explore(
            nodes=min(nodes, max(shortest, GROWTH * total)), seconds=seconds,
            bytes=bytes, dive=dive, threads=threads, eager=eager,
        )  # fmt: skip
        nodes -= done
        total += done
        yield done
