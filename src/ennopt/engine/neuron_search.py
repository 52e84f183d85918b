"""Branch and bound on the signs of neurons with exact linear programs."""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import ClassVar

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import INPUT_SETS, Canonical, Feature
from ennopt.checkpoint import State
from ennopt.engine.compiled import kernel
from ennopt.engine.lines_above import LineAbove, unpacked
from ennopt.engine.nodes import FUNCTIONS
from ennopt.engine.root_lines import lines_at_root
from ennopt.engine.schemes import Signs
from ennopt.engine.search import Engine, Search, halted
from ennopt.engine.sign_tightening import SignTightening
from ennopt.engine.tree import Tree
from ennopt.run import Run
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.progressive import Progressive, deadline_after

NODES_BEFORE_TIGHTENING = 500
"""Nodes explored before bounds are tightened by searches: easy problems end there."""

TIGHTENING_SHARE = 0.25
"""Share of the time left that the tightening of bounds may take."""


CERTIFIED = frozenset({Feature.LINEAR_ROWS})
"""What a problem may have beside a sum over a box if its proof on neurons is to be
certified."""


@dataclass(frozen=True, slots=True)
class NeuronSearch(Engine):
    """Branch and bound on the neurons: our own exact method for many inputs.

    A node holds some neurons on and some off on the whole domain, or on the part of it
    where inputs that do not take every value are between certain ends. Its bound is the
    optimum of the linear program that relaxes all others to triangles, found by a dual
    simplex method made for networks and proved by its multipliers. The triangles come
    from bounds that are first sharpened by one such search per neuron. Lines above
    neurons that lower the bound of the root are rows of all programs.

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
    gives_way
        Whether branching on inputs takes over when the bound hardly moves.
    tightening_nodes
        Most nodes of a search that bounds a neuron; 0 to do without.

    Examples
    --------
    >>> from ennopt import Ensemble, Network, maximize
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> maximize(Ensemble([absolute]), [(-2, 1)], method=NeuronSearch()).value
    2.0
    """

    handles: ClassVar[frozenset[Feature]] = INPUT_SETS | FUNCTIONS
    certifies: ClassVar[bool] = True
    patience: ClassVar[int] = 1_000
    restored: ClassVar[tuple[int, float]] = (1, 2.0)
    # Its nodes are fewer, and where all signs are held their points need no help.
    dive: int = 1
    tightening_nodes: int = 1000

    def __post_init__(self) -> None:
        Engine.__post_init__(self)
        if self.tightening_nodes:
            SignTightening(self.tightening_nodes)

    def _scheme_of(self, problem: Canonical, state: State) -> Signs:
        bounds = problem.root.with_hidden(*state.bounds)
        lines = unpacked(problem, bounds, state.lines)
        return Signs(bounds, self.instruction_set, lines)

    def _begin(self, search: Search) -> None:
        self._first_values(search.run)
        self._prepare(search, math.inf)

    def _prepare(self, search: Search, seconds: float) -> None:
        run = search.run
        with run.tools.with_workers() as tools:
            executor = tools.executor
            # By linear relaxations, then linear programs.
            lps = LpTightening(outputs=False)
            bounds = self._tightened(run, run.problem.root, lps, executor, seconds)
            tree = self._first_nodes(search, bounds)
            if tree.open and run.ended() is None and self._sharpens():
                # By a search for each neuron.
                searches = SignTightening(
                    self.tightening_nodes, outputs=False,
                    instruction_set=self.instruction_set,
                )  # fmt: skip
                bounds = self._tightened(run, bounds, searches, executor, seconds)
                first, recorder = search.scheme, run.tools.recorder
                told = None if recorder is None else recorder.told()
                second = self._first_nodes(
                    search, bounds, self._lines(run, bounds) if told is None else ()
                )
                # With sharper bounds the search holds other neurons, rarely worse ones.
                if tree.bound < second.bound:
                    search.scheme, search.tree = first, tree
                    if recorder is not None and told is not None:
                        recorder.plant(first)
                        recorder.remember(told)
        run.details["unstable"] = bounds.num_unstable

    def _sharpens(self) -> bool:
        return self.tightening_nodes > 0 and kernel() is not None

    def _tightened(
        self,
        run: Run,
        bounds: NeuronBounds,
        step: Progressive,
        executor: Executor | None,
        seconds: float,
    ) -> NeuronBounds:
        most = min(TIGHTENING_SHARE * run.remaining(), seconds)
        deadline = deadline_after(most)
        # What holds on a wider set holds on this one; points of it are easy to find.
        domain = replace(run.problem.domain, regions=(), convex=())
        with run.phase("bounds"):
            return step.run(
                run.problem.on(domain), bounds, executor, deadline,
                stop=lambda: halted(run),
            ).bounds  # fmt: skip

    def _lines(self, run: Run, bounds: NeuronBounds) -> tuple[LineAbove, ...]:
        with run.phase("bounds"):
            return lines_at_root(
                run.problem, bounds, run.value, self.instruction_set,
                lambda: halted(run),
            )  # fmt: skip

    def _first_nodes(
        self, search: Search, bounds: NeuronBounds, lines: tuple[LineAbove, ...] = ()
    ) -> Tree:
        """A tree with these bounds of and lines above neurons, and its first nodes."""
        run = search.run
        with run.phase("search"):
            tree = search.plant(Signs(bounds, self.instruction_set, lines))
            self._explore(
                search, run.nodes + NODES_BEFORE_TIGHTENING, threads=1, eager=True
            )
        return tree
