"""Branch and bound on the signs of neurons with exact linear programs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.relaxation import Crown
from ennopt.engine.compiled import kernel
from ennopt.engine.schemes import Scheme, Signs, summands
from ennopt.engine.search import SLICE_SECONDS, Engine, halted
from ennopt.engine.sign_tightening import SignTightening
from ennopt.engine.tree import Tree
from ennopt.run import Run
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.progressive import Progressive

GLANCE_NODES = 500
"""Nodes explored before bounds are tightened by searches: easy problems end there."""

TIGHTENING_SHARE = 0.25
"""Share of the time left that the tightening of bounds may take."""


@dataclass(frozen=True, slots=True)
class NeuronSearch(Engine):
    """Branch and bound on the neurons: our own exact method for many inputs.

    A node holds some neurons on and some off on the whole domain; its bound is the
    optimum of the linear program that relaxes all others to triangles, found by a dual
    simplex method made for networks and proved by its multipliers. The triangles come
    from bounds that are first sharpened by one such search per neuron.

    Parameters
    ----------
    starts
        Random points from which a value is sought.
    polished
        How many of the best points are polished by linear programs.
    dive
        Nodes explored below one popped node before the best open node is popped again.
    instruction_set
        ``""`` for the best of this machine, or one of the kernel's.
    tightening_nodes
        Most nodes of a search that bounds a neuron; 0 to do without.

    Examples
    --------
    >>> from ennopt import Ensemble, Network, maximize
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> maximize(Ensemble([absolute]), [(-2, 1)], method=NeuronSearch()).value
    2.0
    """

    dive: int = 1
    tightening_nodes: int = 1000

    def __post_init__(self) -> None:
        Engine.__post_init__(self)
        if self.tightening_nodes:
            SignTightening(self.tightening_nodes)

    def _begin(self, run: Run) -> tuple[Scheme, Tree]:
        domain = run.problem.domain
        run.offer(0.5 * (domain.lower + domain.upper))
        with run.phase("bounds"):
            ensemble = run.problem.ensemble
            first = Crown().tighten(ensemble, domain)
            run.prove(first.prediction(ensemble.weights)[1])
        self._first_values(run)
        with _executor(run) as executor:
            with run.phase("bounds"):
                bounds = self._quick_bounds(run, executor)
            scheme = Signs(bounds, self.instruction_set)
            tree = self._glance(run, scheme)
            if tree.open and run.ended() is None and self._sharpens():
                with run.phase("bounds"):
                    bounds = self._sharp_bounds(run, bounds, executor)
                scheme = Signs(bounds, self.instruction_set)
                tree = self._glance(run, scheme)
        run.details["unstable"] = bounds.num_unstable
        return scheme, tree

    def _sharpens(self) -> bool:
        return self.tightening_nodes > 0 and kernel() is not None

    def _quick_bounds(self, run: Run, executor: Executor | None) -> NeuronBounds:
        """By linear relaxations, then linear programs."""
        bounds = Crown().tighten(summands(run.problem), run.problem.domain)
        return self._tightened(run, bounds, LpTightening(outputs=False), executor)

    def _sharp_bounds(
        self, run: Run, bounds: NeuronBounds, executor: Executor | None
    ) -> NeuronBounds:
        """By a search for each neuron."""
        step = SignTightening(
            self.tightening_nodes, outputs=False, instruction_set=self.instruction_set
        )
        return self._tightened(run, bounds, step, executor)

    def _tightened(
        self,
        run: Run,
        bounds: NeuronBounds,
        step: Progressive,
        executor: Executor | None,
    ) -> NeuronBounds:
        return step.run(
            summands(run.problem), run.problem.domain, bounds, executor,
            self._deadline(run), stop=lambda: halted(run),
        ).bounds  # fmt: skip

    @staticmethod
    def _deadline(run: Run) -> float | None:
        share = TIGHTENING_SHARE * run.remaining()
        return time.perf_counter() + share if math.isfinite(share) else None

    def _glance(self, run: Run, scheme: Signs) -> Tree:
        """A tree, and its first nodes."""
        with run.phase("search"):
            tree = scheme.open(run.problem, run.limits.gap)
            tree.plant()
            if run.x is not None:
                tree.offer(np.asarray(run.x))
            end = min(run.nodes + GLANCE_NODES, run.limits.nodes)
            while tree.open and run.nodes < end and run.ended() is None:
                seconds = min(SLICE_SECONDS, run.remaining())
                self._explore(run, tree, end - run.nodes, seconds, 1, eager=True)
        return tree


@contextmanager
def _executor(run: Run) -> Iterator[Executor | None]:
    """Who bounds neurons: the caller's executor, or threads of our own, or nobody."""
    if run.tools.executor is not None or run.tools.threads == 1:
        yield run.tools.executor
        return
    pool = ThreadPoolExecutor(run.tools.threads)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
