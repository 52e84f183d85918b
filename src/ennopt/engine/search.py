"""The loop of our own searches: hand out work, look at the clock, tell the record."""

from __future__ import annotations

import abc
import math
import time
from dataclasses import dataclass

import numpy as np

from ennopt.engine.schemes import Scheme
from ennopt.engine.tree import Tree
from ennopt.engine.units import FIRST_NODES, Unit, explore_with
from ennopt.engine.values import ascend, distinct, polish
from ennopt.network import Array
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools

SLICE_SECONDS = 0.1
"""How long the kernel works between two looks at limits, callback and Ctrl-C."""

VALUES_SHARE = 0.2
"""Share of the time left that the first values may take."""


def halted(run: Run) -> bool:
    """Let the caller know how far the run is; whether it must end."""
    run.tick()
    return run.ended() is not None


@dataclass(frozen=True, slots=True)
class Engine(abc.ABC):
    """Branch and bound in a tree of our own; what its nodes are, subclasses say.

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
    """

    starts: int = 256
    polished: int = 3
    dive: int = 256
    instruction_set: str = ""

    def __post_init__(self) -> None:
        for name, least in (("starts", 0), ("polished", 0), ("dive", 1)):
            value = getattr(self, name)
            if value != int(value) or value < least:
                raise ValueError(
                    f"Expected a whole number >= {least}, got {value} at {name}."
                )

    def solve(self, problem: Problem, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        tree: Tree | None = None
        with tools.start(problem, self) as run:
            scheme, tree = self._begin(run)
            with run.phase("search"):
                if run.x is not None:
                    tree.offer(run.x)
                self._search(run, scheme, tree)
        return self._finish(run, tree)

    @abc.abstractmethod
    def _begin(self, run: Run) -> tuple[Scheme, Tree]:
        """A first value, and a tree of what is left to explore."""

    def _first_values(self, run: Run) -> None:
        """Climb from random points and polish the best."""
        with run.phase("values"):
            ensemble, domain = run.problem.ensemble, run.problem.domain
            rng = np.random.default_rng(run.tools.seed)
            starts = domain.sample(self.starts, rng)
            if run.x is not None:
                starts = np.concatenate([run.x[None], starts])
            end = time.perf_counter() + VALUES_SHARE * run.remaining()

            def stop() -> bool:
                return halted(run) or time.perf_counter() >= end

            points, _ = ascend(ensemble, domain, starts, stop=stop)
            run.offer(points[:1])
            for point in distinct(points, domain, self.polished):
                if stop():
                    break
                run.offer(polish(ensemble, domain, point, stop=stop))
            run.tick()

    def _search(self, run: Run, scheme: Scheme, tree: Tree) -> None:
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
                run.problem, scheme, run.limits.gap, self.dive, nodes,
                np.asarray(run.x), limit, seconds,
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
        ensemble, domain = run.problem.ensemble, run.problem.domain
        if tree.value > run.value and run.offer(tree.best_point()):
            if self.polished:
                with run.phase("values"):
                    x = np.asarray(run.x)
                    run.offer(polish(ensemble, domain, x, stop=run.ended))
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
