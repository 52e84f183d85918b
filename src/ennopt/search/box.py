"""Branch and bound on the inputs with compiled linear-relaxation bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.compiled import kernel
from ennopt.bounds.nodes import NodeSettings
from ennopt.network import Array
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools
from ennopt.search.heuristics import ascend, distinct, polish
from ennopt.search.tree import Tree, open_tree
from ennopt.search.units import FIRST_NODES, Unit, explore_with

SLICE_SECONDS = 0.1
"""How long the kernel works between two looks at limits, callback and Ctrl-C."""

GLANCE_NEURONS = 500_000
"""Nodes times neurons before values are sought: easy problems end there."""

FEW_INPUTS = 16
"""Up to this many inputs, branching on inputs alone is faster."""


@dataclass(frozen=True, slots=True)
class BoxSearch:
    """Branch and bound on the inputs: our own exact method.

    A node is a box; its bound comes from linear majorants of the members that are
    summed before they are maximized. The kernel explores thousands of nodes per
    second; the method only hands out work.

    Parameters
    ----------
    starts
        Random points from which a value is sought before the search.
    polished
        How many of the best points are polished by linear programs.
    row_slopes, vertex_lines
        The two rules for deep networks; worth their price beyond one hidden layer.
    branch_neurons
        Branch on neurons as well as on inputs, their signs enforced by multipliers;
        ``None`` does so beyond 16 inputs.
    slope_steps
        Most steps that improve the slopes of a node close to the cutoff.
    dive
        Nodes explored below one popped node before the best open node is popped again.
    instruction_set
        ``""`` for the best of this machine, or one of `instruction_sets`.

    Examples
    --------
    >>> from ennopt import Ensemble, Network, maximize
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> maximize(Ensemble([absolute]), [(-2, 1)], method=BoxSearch()).value
    2.0
    """

    starts: int = 256
    polished: int = 3
    row_slopes: bool = True
    vertex_lines: bool = True
    branch_neurons: bool | None = None
    slope_steps: int = 30
    dive: int = 256
    instruction_set: str = ""

    def solve(self, problem: Problem, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        tree: Tree | None = None
        with tools.start(problem, self) as run:
            with run.phase("search"):
                tree = self.tree(problem, tools.limits.gap)
                tree.plant()
                self._glance(run, tree)
            if tree.open and run.ended() is None:
                with run.phase("values"):
                    self._first_values(run)
                    run.tick()
            with run.phase("search"):
                if run.x is not None:
                    tree.offer(run.x)
                self._search(run, tree)
        return self._finish(run, tree)

    def settings(self, problem: Problem) -> NodeSettings:
        """What the bound of a node spends its time on."""
        neurons = self.branch_neurons
        if neurons is None:
            neurons = problem.domain.num_inputs > FEW_INPUTS
        return NodeSettings(
            branch_neurons=neurons,
            max_steps=self.slope_steps,
            row_slopes=self.row_slopes,
            vertex_lines=self.vertex_lines,
            output_lines=self.vertex_lines,
        )

    def tree(self, problem: Problem, gap: float) -> Tree:
        """An empty tree with this method's settings."""
        return open_tree(problem, self.settings(problem), gap, self.instruction_set)

    def _glance(self, run: Run, tree: Tree) -> None:
        """A few nodes of the kernel, which climbs from what it meets."""
        domain = run.problem.domain
        run.offer(0.5 * (domain.lower + domain.upper))
        if kernel() is None or run.x is None:
            return
        tree.offer(run.x)
        neurons = max(1, run.problem.ensemble.num_neurons)
        nodes = min(max(8, GLANCE_NEURONS // neurons), run.limits.nodes)
        self._explore(run, tree, nodes, run.remaining(), threads=1)

    def _first_values(self, run: Run) -> None:
        ensemble, domain = run.problem.ensemble, run.problem.domain
        rng = np.random.default_rng(run.tools.seed)
        starts = domain.sample(self.starts, rng)
        if run.x is not None:
            starts = np.concatenate([run.x[None], starts])
        points, _ = ascend(ensemble, domain, starts, stop=run.ended)
        run.offer(points[:1])
        for point in distinct(points, domain, self.polished):
            if run.ended() is not None:
                return
            run.offer(polish(ensemble, domain, point))

    def _search(self, run: Run, tree: Tree) -> None:
        """The outer loop: let the tree work, look at the clock, tell the record."""
        executor = run.tools.executor
        threads = run.tools.threads if executor is None else 1
        first = math.inf if executor is None else FIRST_NODES
        while tree.open and run.ended() is None and run.nodes < first:
            nodes = min(first, run.limits.nodes) - run.nodes
            seconds = min(SLICE_SECONDS, run.remaining())
            # One thread polishes at the same node every time.
            self._explore(run, tree, nodes, seconds, threads, eager=threads == 1)
        if executor is None or not tree.open:
            return

        def unit(nodes: Array, limit: float, seconds: float) -> Unit:
            return Unit(
                run.problem, self.settings(run.problem), run.limits.gap, self.dive,
                self.instruction_set, nodes, np.asarray(run.x), limit, seconds,
                run.limits.memory / run.tools.threads,
            )  # fmt: skip

        explore_with(executor, run, tree, unit, lambda: self._improve(run, tree))

    def _explore(
        self,
        run: Run,
        tree: Tree,
        nodes: float,
        seconds: float,
        threads: int,
        eager: bool = False,
    ) -> None:
        """A slice of work, and what came of it."""
        done = tree.explore(
            nodes=nodes,
            seconds=seconds,
            bytes=run.limits.memory,
            dive=self.dive,
            threads=threads,
            eager=eager,
        )
        run.count(done)
        self._improve(run, tree)
        run.prove(tree.bound)
        run.tick()

    def _improve(self, run: Run, tree: Tree) -> None:
        """A better point of the kernel: polish it and tell both sides."""
        if tree.value > run.value and run.offer(tree.best_point()):
            if self.polished:
                x = np.asarray(run.x)
                with run.phase("values"):
                    run.offer(polish(run.problem.ensemble, run.problem.domain, x))
            tree.offer(np.asarray(run.x))

    def _finish(self, run: Run, tree: Tree | None) -> Result:
        status = None
        if tree is not None:
            run.details["open_nodes"] = int(tree.open)
            run.details["operations"] = float(tree.operations)
            if tree.open == 0 and not run.closed() and run.ended() is None:
                status = Status.OPTIMAL
                run.notes.append(
                    f"The gap asked for is below what float64 can prove here; proved "
                    f"to {run.bound - run.value:.2g}."
                )
        return run.finish(status)
