"""Listens to a box search, and makes a certificate of what it heard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ennopt.canonical import Canonical, Feature, each_alone
from ennopt.certificate.record import Certificate, Tree
from ennopt.engine.tree import Kind
from ennopt.network import Array
from ennopt.options import check_place
from ennopt.problem import Problem
from ennopt.result import Result

NOT_CERTIFIED = {Feature.ACTIVATIONS, Feature.CONVEX}
"""What the checker has no bounds for."""

Whole = npt.NDArray[np.int64]


class Recorder:
    """The splits of a search, and the certificate that they make.

    Parameters
    ----------
    problem
        What is solved.
    path
        Where the certificate will be written: refused now if that cannot be.
    """

    def __init__(self, problem: Problem, path: str | Path) -> None:
        canonical = Canonical.of(problem)
        missing = sorted(f.value for f in canonical.features & NOT_CERTIFIED)
        if missing:
            raise ValueError(
                f"Expected a problem whose proof can be certified, got one with "
                f"{' and '.join(missing)}. Leave the certificate out."
            )
        self.path = Path(path)
        check_place(self.path, "certificate")
        self._problem, self._canonical = problem, canonical
        self._splits: list[Whole] = []

    def hear(self, lines: Array) -> None:
        """Take what a tree's journal told since the last time, (num_lines, 6)."""
        splits = lines[lines[:, 0] == Kind.SPLIT]
        if len(splits):
            self._splits.append(splits[:, [1, 2, 4]].astype(np.int64))

    def told(self) -> Whole:
        """The splits heard so far: node, input, first child; (num_splits, 3)."""
        return np.concatenate([np.zeros((0, 3), np.int64), *self._splits])

    def remember(self, splits: Whole) -> None:
        """Take the splits of an earlier run that this one goes on from."""
        self._splits = [splits]

    def write(self, result: Result, gap: float) -> Certificate:
        """Write the certificate of a finished or interrupted run.

        The bound claimed is the result's, or what the gap allows if that is more: the
        checker's bounds are weaker than the search's, and the status `optimal` says no
        more than that.
        """
        problem, sign = self._problem, self._canonical.sign
        bound = sign * result.bound
        if result.x is not None:
            value = sign * result.value
            bound = max(bound, value + self._canonical.tolerance(value, gap))
        else:
            bound = max(bound, -np.inf)
        made = Certificate(
            problem=problem,
            slack=self._slack(),
            x=result.x,
            value=float("nan") if result.x is None else result.value,
            bound=sign * bound,
            tree=Tree(level_order(self._splits)),
        )
        made.save(self.path)
        return made

    def _slack(self) -> Array:
        """How far a point may miss each limit that the user stated, (num_limits,).

        The worst member's is a limit on each member here, and the widest slack counts.
        """
        found, at = [], 0
        for limit in self._problem.limits:
            parts = len(each_alone(limit.function))
            found.append(float(self._canonical.slack[at : at + parts].max()))
            at += parts
        return np.array(found)


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
