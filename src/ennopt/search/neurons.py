"""Branch and bound on the signs of neurons with exact linear programs."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.neurons import NeuronBounds
from ennopt.bounds.relaxation import Crown
from ennopt.run import Run
from ennopt.search.engine import Engine
from ennopt.search.schemes import Scheme, Signs, summands
from ennopt.search.tree import Tree
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.signs import SignTightening

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

    def _begin(self, run: Run) -> tuple[Scheme, Tree]:
        domain = run.problem.domain
        run.offer(0.5 * (domain.lower + domain.upper))
        self._first_values(run)
        with run.phase("bounds"):
            bounds = self._quick_bounds(run)
        scheme = Signs(bounds, self.instruction_set)
        tree = self._glance(run, scheme)
        if tree.open and run.ended() is None and self.tightening_nodes:
            with run.phase("bounds"):
                bounds = self._sharp_bounds(run, bounds)
            scheme = Signs(bounds, self.instruction_set)
            tree = self._glance(run, scheme)
        run.details["unstable"] = bounds.num_unstable
        return scheme, tree

    def _quick_bounds(self, run: Run) -> NeuronBounds:
        """By linear relaxations, then linear programs."""
        ensemble, domain = summands(run.problem), run.problem.domain
        bounds = Crown().tighten(ensemble, domain)
        run.tick()
        if run.ended() is not None:
            return bounds
        step = LpTightening(outputs=False)
        executor, deadline = run.tools.executor, self._deadline(run)
        return step.tighten(ensemble, domain, bounds, executor, deadline)

    def _sharp_bounds(self, run: Run, bounds: NeuronBounds) -> NeuronBounds:
        """By a search for each neuron."""
        ensemble, domain = summands(run.problem), run.problem.domain
        step = SignTightening(self.tightening_nodes, outputs=False)
        executor, own = run.tools.executor, None
        if executor is None and run.tools.threads > 1:
            executor = own = ThreadPoolExecutor(run.tools.threads)

        def stop() -> bool:
            run.tick()
            return run.ended() is not None

        try:
            return step.run(
                ensemble, domain, bounds, executor, self._deadline(run), stop=stop
            ).bounds
        finally:
            if own is not None:
                own.shutdown(cancel_futures=True)

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
            if run.ended() is None:
                nodes = min(GLANCE_NODES, run.limits.nodes - run.nodes)
                self._explore(run, tree, nodes, run.remaining(), threads=1)
        return tree
