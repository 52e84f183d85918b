"""Splits that the journal of a tree tells, and the tree that they make."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ennopt.engine.tree import Kind
from ennopt.network import Array

Whole = npt.NDArray[np.int64]

NONE: Whole = np.zeros((0, 3), np.int64)
"""No splits."""


def splits_of(lines: Array) -> Whole:
    """Node, place and first child of each split in lines of a journal."""
    return np.asarray(lines[lines[:, 0] == Kind.SPLIT][:, [1, 2, 4]], np.int64)


def level_order(splits: list[Whole]) -> npt.NDArray[np.uint32]:
    """The tree of splits (node, input, first child) level by level; node 1 is the root.

    Examples
    --------
    >>> level_order([np.array([[1, 3, 2], [3, 0, 4]])])
    array([4, 0, 1, 0, 0], dtype=uint32)
    """
    told = np.concatenate([np.zeros((0, 3), np.int64), *splits])
    last = int(told.max(initial=1)) + 2
    place, child = np.full(last, -1), np.zeros(last, np.int64)
    place[told[:, 0]], child[told[:, 0]] = told[:, 1], told[:, 2]
    nodes, levels = np.array([1]), []
    while nodes.size:
        levels.append(place[nodes] + 1)
        first = child[nodes[place[nodes] >= 0]]
        nodes = np.stack([first, first + 1], axis=1).ravel()
    return np.concatenate(levels).astype(np.uint32)
