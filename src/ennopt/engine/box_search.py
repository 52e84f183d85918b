"""Branch and bound on the inputs with compiled linear-relaxation bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ennopt.canonical import INPUT_SETS, Canonical, Feature
from ennopt.checkpoint import State
from ennopt.engine.compiled import kernel
from ennopt.engine.nodes import FUNCTIONS, NodeSettings
from ennopt.engine.schemes import Boxes
from ennopt.engine.search import Engine, Search

FIRST_LOOK = 500_000
"""Nodes times neurons before values are sought: easy problems end there."""


FEW_NODES = 8
"""Nodes that are always explored first."""


@dataclass(frozen=True, slots=True)
class BoxSearch(Engine):
    """Branch and bound on the inputs: our own exact method for up to a dozen of them.

    A node is a box; its bound comes from linear majorants of the members that are
    summed before they are maximized. The kernel explores thousands of nodes per
    second; the method only hands out work.

    Parameters
    ----------
    starts
        Random points from which a value is sought, unless the first few hundred nodes
        already finish the proof.
    polished
        How many of the best points are polished by linear programs.
    dive
        Nodes explored below one popped node before the best open node is popped again.
    instruction_set
        ``""`` for the best of this machine, or one of the kernel's.
    gives_way
        Whether branching on neurons takes over when the bound hardly moves.
    row_slopes, vertex_lines
        The two rules for deep networks; worth their price beyond one hidden layer.
    slope_steps
        Most steps that improve the slopes of a node close to the cutoff.

    Examples
    --------
    >>> from ennopt import Ensemble, Network, maximize
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> maximize(Ensemble([absolute]), [(-2, 1)], method=BoxSearch()).value
    2.0
    """

    handles: ClassVar[frozenset[Feature]] = (
        INPUT_SETS | FUNCTIONS | {Feature.ACTIVATIONS}
    )
    certifies: ClassVar[bool] = True
    patience: ClassVar[int] = 10_000
    row_slopes: bool = True
    vertex_lines: bool = True
    slope_steps: int = 30

    @property
    def scheme(self) -> Boxes:
        """Boxes, and what their bounds spend their time on."""
        settings = NodeSettings(
            max_steps=self.slope_steps,
            row_slopes=self.row_slopes,
            vertex_lines=self.vertex_lines,
            output_lines=self.vertex_lines,
            single=True,
        )
        return Boxes(settings, self.instruction_set)

    def _scheme_of(self, problem: Canonical, state: State) -> Boxes:
        return self.scheme

    def _begin(self, search: Search) -> None:
        run = search.run
        with run.phase("search"):
            tree = search.plant(self.scheme)
            if kernel() is not None and run.problem.is_sum:
                # A few nodes of the kernel, which climbs from what it meets.
                neurons = max(1, run.problem.num_neurons)
                nodes = max(FEW_NODES, FIRST_LOOK // neurons)
                if not run.problem.domain.is_box:
                    nodes = FEW_NODES  # its points are rarely feasible
                # Boxes of one point wait for half-spaces of convex regions.
                late = not run.problem.domain.convex
                self._explore(search, nodes, threads=1, late=late)
        if tree.open and run.ended() is None:
            self._first_values(run)

    def _prepare(self, search: Search, seconds: float) -> None:
        search.plant(self.scheme)
