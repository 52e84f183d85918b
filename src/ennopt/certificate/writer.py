"""Listens to a search, and makes a certificate of what it heard."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.canonical import Canonical, Feature, UnsupportedProblemError, each_alone
from ennopt.certificate.record import Certificate, Lemma, Tree
from ennopt.certificate.splits import NONE, Whole, level_order, splits_of
from ennopt.engine.compiled import kernel
from ennopt.engine.neuron_search import CERTIFIED
from ennopt.engine.schemes import Scheme, Signs
from ennopt.network import Array
from ennopt.options import check_place
from ennopt.problem import Problem
from ennopt.result import Result, Status

NOT_CERTIFIED = {Feature.ACTIVATIONS, Feature.CONVEX}
"""What the checker has no bounds for."""

LEAST = 1e-140
"""How much room a claim leaves at least: numbers below have no relative precision."""


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
        self._splits: list[npt.NDArray[np.signedinteger[Any]]] = []
        self._scheme: Scheme | None = None

    def plant(self, scheme: Scheme) -> None:
        """A tree begins, of such nodes: forget what was heard of others."""
        self._scheme, self._splits = scheme, []
        if not isinstance(scheme, Signs):
            return
        more = self._canonical.features - CERTIFIED
        if more:
            told = " and ".join(sorted(feature.value for feature in more))
            raise UnsupportedProblemError(
                f"Expected a sum over a box with linear constraints for a certificate "
                f"of a search on neurons, got {told}. Use method='box', or leave the "
                "certificate out."
            )
        if kernel() is None:
            raise UnsupportedProblemError(
                "Expected the compiled kernel for the certificate of a search on "
                "neurons, got none. Use method='box', or leave the certificate out."
            )

    def hear(self, lines: Array) -> None:
        """Take what a tree's journal told since the last time, (num_lines, 6)."""
        splits = splits_of(lines)
        if len(splits):  # in few bytes: long searches have many
            fits = int(splits.max()) < 2**31
            self._splits.append(splits.astype(np.int32) if fits else splits)

    def told(self) -> Whole:
        """The splits heard so far: node, input, first child; (num_splits, 3)."""
        return np.concatenate([NONE, *self._splits])

    def remember(self, splits: Whole) -> None:
        """Take the splits of an earlier run that this one goes on from."""
        self._splits = [splits]

    def write(self, result: Result, gap: float) -> Certificate:
        """Write the certificate of a finished or interrupted run.

        The bound claimed is the result's, or what the gap allows if that is more, which
        is all that the status `optimal` says; of an interrupted run, what the gap
        allows above its bound. The checker's bounds are weaker than the search's.
        """
        problem, sign = self._problem, self._canonical.sign
        bound = sign * result.bound
        room = partial(self._canonical.tolerance, gap=gap)
        if bound > -np.inf and result.status is not Status.OPTIMAL:
            bound += max(room(bound), LEAST)
        if result.x is not None:
            value = sign * result.value
            bound = max(bound, value + max(room(value), LEAST))
        tree, lemmas = Tree(level_order([self.told()])), tuple[Lemma, ...]()
        if isinstance(self._scheme, Signs):
            from ennopt.certificate.sign_writer import certified_signs

            tree, lemmas = certified_signs(
                problem, self._canonical, self._scheme, self.told(), sign * result.bound
            )
        made = Certificate(
            problem=problem,
            slack=self._slack(),
            x=result.x,
            value=float("nan") if result.x is None else result.value,
            bound=sign * bound,
            tree=tree,
            lemmas=lemmas,
        )
        made.save(self.path)
        return made

    def _slack(self) -> tuple[Array, ...]:
        """How far a point may miss each limit that the user stated.

        A limit on the worst member is one on each member for the search, and each has
        a slack of its own: the largest of them would let points count that the search
        excludes.
        """
        parts = [len(each_alone(limit.function)) for limit in self._problem.limits]
        ends = np.cumsum([0, *parts])
        return tuple(self._canonical.slack[i:k] for i, k in pairwise(ends))
