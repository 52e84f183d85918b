"""Explore a tree in slices of time, so that limits, callbacks and Ctrl-C are heard."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ennopt.engine.tree import Tree

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

    Yields
    ------
    int
        Nodes bounded in a slice.
    """
    while tree.open and nodes > 0:
        seconds = min(SLICE_SECONDS, remaining())
        if seconds <= 0:
            return
        done = tree.explore(
            nodes=nodes, seconds=seconds, bytes=bytes, dive=dive, threads=threads,
            eager=eager,
        )  # fmt: skip
        nodes -= done
        yield done
