"""The loop of our own searches: hand out work, look at the clock, tell the record."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ennopt import clock
from ennopt.canonical import Canonical, Feature
from ennopt.checkpoint import CheckpointError, State
from ennopt.engine.members import Members
from ennopt.engine.restore import RESTORED, restore_best
from ennopt.engine.schemes import Scheme
from ennopt.engine.slices import in_slices
from ennopt.engine.tree import Tree
from ennopt.engine.units import NODES_BEFORE_UNITS, Unit, explore_with
from ennopt.engine.values import corners, first_values, polish
from ennopt.network import Array
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import Run, Tools

FIRST_SLICE = 32
"""Nodes before half-spaces of convex regions are sought for the first time, and before
points are moved to where limits hold once more."""

FEW_STARTS = 4
"""With fewer points to start from, corners of the feasible set are sought."""


RESTORE_GROWTH = 1.3
"""By how much nodes have to grow before points are moved to where limits hold again."""

VALUES_SHARE = 0.2
"""Share of the time left that the first values may take."""


def halted(run: Run) -> bool:
    """Let the caller know how far the run is; whether it must end."""
    run.tick()
    return run.ended() is not None


@dataclass(slots=True, eq=False)
class Search:
    """A search under way: its record, and the tree as soon as there is one."""

    run: Run
    scheme: Scheme | None = None
    tree: Tree | None = None
    polished: float = -math.inf  # the value when points were last polished
    seconds: float = 0.0  # of runs that this one goes on from
    due: float = 0.0  # nodes at which points are moved to where limits hold again
    learned: list[Array] = field(default_factory=list)  # as `State.half_spaces`
    nodes: float = 0.0  # of the turns of this search, until `begun`
    begun: float = 0.0  # the nodes of the run then
    others: float = 0.0  # nodes of the turns of the other search
    look: float = math.inf  # how many of them there are when progress is looked at
    distance: float = math.inf  # between bound and value at the last look
    reserved: float = 0.0  # bytes that a search which waits for its turn keeps
    members: Members | None = None  # of a search on neurons, once it makes use of them

    def plant(self, scheme: Scheme) -> Tree:
        """A tree of the whole domain, with the best point known."""
        recorded = self.run.tools.recorder is not None
        tree = scheme.open(self.run.problem, self.run.limits.gap, journal=recorded)
        tree.plant()
        if self.run.x is not None:
            tree.offer(self.run.x)
        if self.run.tools.recorder is not None:
            self.run.tools.recorder.plant(scheme)
        self.scheme, self.tree, self.polished = scheme, tree, self.run.value
        self.begun = self.run.nodes
        return tree

    def go_on(self, scheme: Scheme, state: State) -> Tree:
        """A tree of what an earlier run left open, with what it had found."""
        run, nodes = self.run, state.nodes
        recorder = run.tools.recorder
        tree = scheme.open(run.problem, run.limits.gap, journal=recorder is not None)
        for x in state.points:
            tree.offer(x)
        if recorder is not None:
            if state.splits is None:
                raise CheckpointError(
                    "Expected a checkpoint of a run with a certificate, got one "
                    "without. Leave the certificate out, or begin anew."
                )
            recorder.plant(scheme)
            recorder.remember(state.splits)
            tree.number_from(int(state.splits.max(initial=0)) + 1)
        elif state.splits is not None:
            nodes = nodes[:, :-1]  # the numbers of the nodes
        tree.close(state.closed)
        if len(state.half_spaces):
            self.narrow(tree, state.half_spaces)
        tree.add(np.ascontiguousarray(nodes))
        self.scheme, self.tree, self.seconds = scheme, tree, state.seconds
        self.nodes, self.others, self.look, self.distance = state.turn
        return tree

    def narrow(self, tree: Tree, half_spaces: Array) -> None:
        """Tell the tree half-spaces, as in a state, and remember them."""
        inputs = self.run.problem.num_inputs
        if half_spaces.shape != (len(half_spaces), inputs + 1):
            raise ValueError("half-spaces of another number of inputs")
        slopes, sides = half_spaces[:, :-1], half_spaces[:, -1]
        tree.narrow(np.ascontiguousarray(slopes), np.ascontiguousarray(sides))
        self.learned.append(half_spaces)

    def keep(self, more: Sequence[Array] = (), *, last: bool = False) -> None:
        """Save the state, if it is time to; `more` are open nodes handed out."""
        checkpoint, tree = self.run.tools.checkpoint, self.tree
        if checkpoint is None or tree is None or not (last or checkpoint.due()):
            return
        assert self.scheme is not None
        recorder, points = self.run.tools.recorder, tree.points()
        if self.run.x is not None:  # the tree may have met it in another rounding
            points = np.vstack([self.run.x, points])
        try:
            nodes = tree.snapshot()
            if more:
                nodes = np.concatenate([nodes, *more])
        except MemoryError:
            checkpoint.failure = "no memory for a copy of the open nodes"
            return
        # In its turns the other search may have proved more.
        nodes[:, 0] = np.minimum(nodes[:, 0], self.run.bound)
        none = np.zeros((0, self.run.problem.num_inputs + 1))
        done = self.nodes + self.run.nodes - self.begun
        checkpoint.save(
            State(
                nodes=nodes,
                points=points,
                closed=min(tree.closed, self.run.bound),
                count=self.run.nodes,
                seconds=self.seconds + self.run.elapsed(),
                bounds=self.scheme.kept,
                half_spaces=np.vstack([none, *self.learned]),
                turn=(done, self.others, self.look, self.distance),
                lines=self.scheme.kept_lines,
                splits=None if recorder is None else recorder.told(),
            )
        )

    def bytes(self) -> float:
        """What the open nodes take."""
        tree = self.tree
        return 0.0 if tree is None else 8.0 * tree.open * tree.take(0).shape[1]

    def memory(self) -> float:
        """What open nodes may take; at least half, whatever else is kept."""
        most = self.run.limits.memory
        return max(most - self.reserved, 0.5 * most)

    def record(self) -> None:
        """Tell the recorder, if there is one, what happened in the tree."""
        if self.run.tools.recorder is not None and self.tree is not None:
            self.run.tools.recorder.hear(self.tree.journal())


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
    gives_way
        Whether the other search takes over when the bound hardly moves.
    """

    handles: ClassVar[frozenset[Feature]] = frozenset()
    restored: ClassVar[tuple[int, float]] = (RESTORED, RESTORE_GROWTH)
    """Points of nodes that are moved to where limits hold, each time; and by how much
    the nodes have to grow before the next time."""
    continues: ClassVar[bool] = True
    patience: ClassVar[int]
    """Nodes before it is looked at for the first time how the bound moves."""
    starts: int = 256
    polished: int = 3
    dive: int = 256
    instruction_set: str = ""
    gives_way: bool = True

    def __post_init__(self) -> None:
        for name, least in (("starts", 0), ("polished", 0), ("dive", 1)):
            value = getattr(self, name)
            if value != int(value) or value < least:
                raise ValueError(
                    f"Expected a whole number >= {least}, got {value} at {name}."
                )

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        from ennopt.engine.turns import Turns, owner_of  # they need both searches

        run = tools.start(problem, self, self.handles)
        turns = Turns(self, run)  # made here: Ctrl-C on the first line must find it
        with run:
            with run.phase("bounds"):
                run.offer(run.problem.domain.centre)
                root = run.problem.root
                if tools.recorder is None:
                    run.prove(run.problem.ceiling(root))
                else:  # what limits say without a tree is not in a record of the tree
                    run.prove(run.problem.range(root)[1])
                run.tick()
            state = self._saved(run)
            if state is None:
                self._begin(turns.search)
            else:
                turns.engine = owner_of(self, state)
                turns.engine._go_on(turns.search, state)
            turns.explore()
        return self._finish(turns.search)

    def _saved(self, run: Run) -> State | None:
        """Where an earlier run stopped, if there was one."""
        checkpoint = run.tools.checkpoint
        if checkpoint is None:
            return None
        return checkpoint.begin(run.problem, repr(self), run.limits.gap)

    def _go_on(self, search: Search, state: State) -> None:
        """Begin where an earlier run stopped."""
        run, checkpoint = search.run, search.run.tools.checkpoint
        assert checkpoint is not None
        with run.phase("search"):
            try:
                tree = search.go_on(self._scheme_of(run.problem, state), state)
            except (ValueError, TypeError, IndexError) as error:
                raise CheckpointError(
                    f"Expected a state of this problem, got one that does not fit at "
                    f"{checkpoint.path.name}: {error}"
                ) from error
            run.count(state.count)
            if len(state.points):
                run.offer(state.points)
            run.prove(tree.bound)
            run.tick()
        run.notes.append(
            f"Went on from {checkpoint.path.name}: {state.count:,} nodes and "
            f"{state.seconds:.0f} s before."
        )

    @abc.abstractmethod
    def _scheme_of(self, problem: Canonical, state: State) -> Scheme:
        """What the nodes of a state are."""

    @abc.abstractmethod
    def _begin(self, search: Search) -> None:
        """A first value, and a tree of what is left to explore."""

    @abc.abstractmethod
    def _prepare(self, search: Search, seconds: float) -> None:
        """A tree, if values are known; take no longer than about so many seconds."""

    def _first_values(self, run: Run) -> None:
        """Climb from random points and polish the best."""
        with run.phase("values"):
            rng = np.random.default_rng(run.tools.seed)
            domain = run.problem.domain
            # Moving points into a set takes longer than the ascent itself.
            share = 16 if domain.convex else 1 if domain.is_box else 4
            count = self.starts // share
            if not run.problem.is_sum:
                count *= 8  # the best of them are moved to where limits hold
            starts = domain.sample(count, rng)
            if not domain.is_box and len(starts) < FEW_STARTS:
                slopes = run.problem.gradients(domain.centre[None])
                others = rng.normal(size=(FEW_STARTS, domain.num_inputs))
                others /= np.where(domain.widths > 0.0, domain.widths, 1.0)
                directions = np.concatenate([slopes, others])
                seconds = VALUES_SHARE * run.remaining() / len(directions)
                more = corners(domain, directions, seconds, lambda: halted(run))
                starts = np.concatenate([starts, more])
            if run.x is not None:
                starts = np.concatenate([run.x[None], starts])
            end = clock.now() + VALUES_SHARE * run.remaining()

            def stop() -> bool:
                return halted(run) or clock.now() >= end

            if run.problem.is_sum:
                first_values(run.problem, starts, self.polished, run.offer, stop)
            else:
                restore_best(run.problem, starts, run.offer, stop)
            run.tick()

    def _search(self, search: Search, nodes: float) -> None:
        """Let the tree work until the run has so many nodes, and tell the record."""
        run, tree, scheme = search.run, search.tree, search.scheme
        assert tree is not None
        assert scheme is not None
        if run.x is not None:
            tree.offer(run.x)
            search.polished = run.value
        # Half-spaces of convex regions are learned, and proofs recorded, in one place.
        alone = run.problem.domain.convex or run.tools.recorder is not None
        executor = None if alone else run.tools.executor
        threads = run.tools.threads if executor is None else 1
        first = nodes if executor is None else min(nodes, NODES_BEFORE_UNITS)
        # One thread polishes at the same node every time.
        self._explore(search, first, threads, eager=threads == 1)
        if executor is None or not tree.open or run.ended() is not None:
            return

        def unit(some: Array, limit: float, seconds: float) -> Unit:
            return Unit(
                run.problem, scheme, run.limits.gap, self.dive, some, tree.points(),
                limit, seconds, search.memory() / run.tools.threads,
            )  # fmt: skip

        def improve(candidates: Array) -> None:
            self._improve(search, candidates)

        lost = explore_with(executor, run, tree, unit, improve, search.keep, nodes)
        if lost:
            run.notes.append(f"{lost} The search went on here.")
            self._explore(search, nodes, run.tools.threads)

    def _explore(
        self, search: Search, nodes: float, threads: int, *, eager: bool = False,
        late: bool = False,
    ) -> None:  # fmt: skip
        """Explore until the run has so many nodes, in slices, and tell the record.

        Better points are polished after each slice; if `eager`, as soon as they are
        met; if `late`, at the end. The last two do not depend on the clock.
        """
        run, tree = search.run, search.tree
        assert tree is not None
        if run.ended() is not None:
            return
        learning = run.problem.domain.convex or not run.problem.is_sum
        for count in in_slices(
            tree,
            nodes=min(nodes, run.limits.nodes) - run.nodes,
            remaining=run.remaining,
            bytes=search.memory(),
            dive=self.dive,
            threads=threads,
            eager=eager,
            shortest=FIRST_SLICE if learning else math.inf,
        ):
            run.count(count)
            run.open_nodes = int(tree.open)
            search.record()
            if not late:
                self._improve(search, tree.candidates())
            elif tree.value > run.value:
                run.offer(tree.points()[0])
            run.prove(tree.bound)
            search.keep()
            if halted(run):
                break
        if late:
            self._improve(search, tree.candidates())

    def _improve(self, search: Search, candidates: Array) -> None:
        """Better points since the last time: polish the best and tell both sides."""
        run, tree = search.run, search.tree
        assert tree is not None
        if len(candidates):
            run.offer(candidates)
            if not run.problem.is_sum and run.nodes >= search.due:
                most, growth = self.restored
                search.due = max(run.nodes + FIRST_SLICE, growth * run.nodes)
                with run.phase("values"):
                    restore_best(run.problem, candidates, run.offer, run.ended, most)
            slopes, sides = run.problem.domain.separated(candidates)
            if len(sides):
                search.narrow(tree, np.column_stack([slopes, sides]))
        if tree.value > run.value:
            run.offer(tree.points()[0])
        if run.value > search.polished:
            x = np.asarray(run.x)
            if self.polished and run.problem.is_sum:
                with run.phase("values"):
                    run.offer(polish(run.problem, x, stop=run.ended))
            search.polished = run.value
            tree.offer(np.asarray(run.x))

    def _finish(self, search: Search) -> Result:
        """Take what an interrupted search had found, and close the record."""
        run, tree, status = search.run, search.tree, None
        if tree is not None:
            search.record()
            if tree.value > run.value:
                run.offer(tree.points()[0])
            run.prove(tree.bound)
            search.keep(last=True)
            checkpoint = run.tools.checkpoint
            if checkpoint is not None and checkpoint.failure:
                run.notes.append(
                    f"The state was not saved in {checkpoint.path.name}: "
                    f"{checkpoint.failure}."
                )
            run.details["open_nodes"] = int(tree.open)
            run.details["operations"] = float(tree.operations)
            if tree.open == 0 and not run.closed() and run.ended() is None:
                status = Status.OPTIMAL
                run.notes.append(_leftover(run))
        return run.finish(status)


def _leftover(run: Run) -> str:
    """Why a search that has nothing left to do did not close the gap."""
    if run.x is None:
        return (
            "Nothing is left to search, but no point was found that meets every "
            "constraint; whether there is one is not decided."
        )
    what = "rounding"
    if not run.problem.domain.is_box:
        what += ", or what constraints may be missed by,"
    return (
        f"Nothing is left to search, and {what} leaves a distance of "
        f"{run.bound - run.value:.2g} between bound and value, above the gap asked for."
    )
