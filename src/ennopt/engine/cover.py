"""The boxes that a search on inputs ended with, heard from the journal of its tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from ennopt.checkpoint import Whole
from ennopt.domain import Domain
from ennopt.engine.tree import Kind
from ennopt.network import Array
from ennopt.run import Listener

MOST_LINES = 60_000
"""Lines of a journal that are kept: more boxes than that nobody can see."""


class Cover:
    """Listens to a search, and tells the boxes that it left: a cover of the domain.

    Parts that a search clipped away, because nothing better can be there, belong to no
    box.

    Parameters
    ----------
    domain
        What is searched.
    then
        Another listener, who is told everything as well.
    """

    def __init__(self, domain: Domain, then: Listener | None = None) -> None:
        self._domain, self._then = domain, then
        self._lines: list[Array] = []
        self._count = 0

    def plant(self, scheme: Any) -> None:
        """A tree begins: forget what was heard of another one."""
        if self._then is not None:
            self._then.plant(scheme)
        self._lines, self._count = [], 0

    def hear(self, lines: Array) -> None:
        """Take new lines of the journal, (num_lines, 6)."""
        if self._then is not None:
            self._then.hear(lines)
        if self._count < MOST_LINES:
            kind = lines[:, 0]
            kept = lines[(kind == Kind.SPLIT) | (kind == Kind.CLIP)]
            kept = kept[: MOST_LINES - self._count]
            self._lines.append(kept)
            self._count += len(kept)

    def told(self) -> Whole:
        """What the other listener has to remember."""
        return np.zeros((0, 3), np.int64) if self._then is None else self._then.told()

    def remember(self, splits: Whole) -> None:
        """Let the other listener remember an earlier search."""
        if self._then is not None:
            self._then.remember(splits)

    def boxes(self) -> Array:
        """Lower and upper ends of the boxes, (num_boxes, 2, num_inputs)."""
        found = {1: np.stack([self._domain.lower, self._domain.upper])}
        for line in np.concatenate([np.zeros((0, 6)), *self._lines]):
            kind, node = int(line[0]), int(line[1])
            if node not in found:  # of a part that another search was given
                continue
            j = int(line[2])
            if kind == Kind.CLIP:
                found[node][:, j] = line[3], line[4]
                continue
            left = found.pop(node)
            right = left.copy()
            left[1, j] = right[0, j] = line[3]
            first = int(line[4])
            found[first], found[first + 1] = left, right
        return np.stack(list(found.values()))
