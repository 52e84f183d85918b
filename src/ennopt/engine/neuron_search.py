"""Branch and bound on the signs of neurons with exact linear programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import INPUT_SETS, Canonical, Feature
from ennopt.checkpoint import State
from ennopt.engine.compiled import kernel
from ennopt.engine.lines_above import LineAbove, unpacked
from ennopt.engine.members import Members
from ennopt.engine.nodes import FUNCTIONS
from ennopt.engine.root_lines import lines_at_root
from ennopt.engine.schemes import Signs
from ennopt.engine.search import Engine, Search, halted
from ennopt.engine.sign_tightening import SignTightening
from ennopt.engine.tree import PlainTree, Tolerance, Tree
from ennopt.engine.units import Unit, explore_unit
from ennopt.network import Array
from ennopt.run import Run
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.progressive import Progressive, deadline_after

NODES_BEFORE_TIGHTENING = 500
"""Nodes explored before bounds are tightened by searches: easy problems end there."""

TIGHTENING_SHARE = 0.25
"""Share of the time left that the tightening of bounds may take."""


NODES_BEFORE_MEMBERS, USUAL_SIZE = 4000, 120
"""Nodes before the members are searched by themselves for the first time, with so many
neurons; the time of a node rises with their square. That is tried again when all nodes
have doubled."""

ROOT_SHARE, TRIAL_SHARE = 4.0, 2.0
"""Nodes of searches in the members each time, as shares of all nodes so far: for the
bound of the root, and to find out whether open nodes can be closed."""

TRIED = 8
"""Open nodes that are tried at once."""

LATER_SHARE = 0.25
"""The same for the root, as a share of all such nodes, while open nodes are closed."""

RACED = 4
"""Open nodes that are left to the tree for comparison, before nodes are closed by the
members and whenever what that took has doubled."""

ROOT_STEPS, NODE_STEPS, NODE_NODES = 40, 9, 20_000
"""How often slopes are tried for the root and for a node, and most nodes for a node."""

SPLIT_NODES = 3
"""Nodes by which a node is divided that the members do not close."""

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

    def _search(self, search: Search, nodes: float) -> None:
        run, tree, scheme = search.run, search.tree, search.scheme
        alone = run.tools.recorder is None and run.tools.executor is None
        if not alone or isinstance(tree, PlainTree) or not Members.suit(run.problem):
            Engine._search(self, search, nodes)
            return
        assert tree is not None
        assert isinstance(scheme, Signs)
        if search.members is None:
            search.members = Members(
                run.problem, scheme.bounds, scheme.lines, self.instruction_set,
                NODES_BEFORE_MEMBERS * (USUAL_SIZE / run.problem.num_neurons) ** 2,
            )  # fmt: skip
        members, before = search.members, search.nodes - search.begun
        while tree.open and run.nodes < nodes and run.ended() is None:
            joint = before + run.nodes - members.nodes
            if joint < members.due:
                most = min(nodes, run.nodes + members.due - joint)
                Engine._search(self, search, most)
                continue
            self._bound_by_members(
                search, members, ROOT_SHARE * joint + LATER_SHARE * members.price
            )
            most = math.inf if members.closing else TRIAL_SHARE * joint
            members.closing = self._close_by_members(search, members, most)
            members.due = joint = before + run.nodes - members.nodes
            if not members.closing:
                members.due = max(2.0 * joint, joint + 1.0)

    def _bound_by_members(self, search: Search, members: Members, nodes: float) -> None:
        """The bound that searches in the members prove at the root."""
        run, cutoff = search.run, self._cutoff(search)
        before = members.nodes
        spent = 0.0 if members.root is None else members.root.price
        nodes = min(nodes - spent, run.limits.nodes - run.nodes)
        if nodes <= 0.0:
            return
        with run.phase("members"):
            members.root = members.prove(
                np.zeros(0), cutoff, ROOT_STEPS, nodes, lambda: halted(run),
                members.root,
            )  # fmt: skip
        run.count(members.nodes - before)
        run.prove(members.root.bound)

    def _close_by_members(self, search: Search, members: Members, nodes: float) -> bool:
        """Try to close the open nodes of the largest bounds; whether to go on so.

        Nodes that stay open are divided, and tried again when it is their turn. Now
        and then some are left to the tree instead, for as many nodes as take as long:
        if that closes more than half of them, the members are of no use.
        """
        run, tree = search.run, search.tree
        assert tree is not None
        tried = failures = 0
        price = 0.0

        def close(node: Array) -> None:
            nonlocal tried, failures, price
            cutoff, bound = self._cutoff(search), float(node[0])
            if bound > cutoff:
                with run.phase("members"):
                    bundle = members.prove(
                        node, cutoff, NODE_STEPS,
                        min(NODE_NODES, run.limits.nodes - run.nodes),
                        lambda: halted(run),
                    )  # fmt: skip
                run.count(bundle.nodes)
                price += bundle.price
                bound = min(bound, bundle.bound)
            tried += 1
            if bound <= cutoff:
                tree.close(bound)
                return
            failures += 1
            node = node.copy()
            node[0] = bound
            self._divide(search, node, SPLIT_NODES)

        self._each(search, TRIED, close, lambda: price >= nodes or 2 * failures > TRIED)
        most_failures = tried // 2 if members.closing else tried // 4
        better = tried > 0 and failures <= most_failures
        due = not members.closing or members.price >= 2.0 * members.raced
        if better and price and due:
            members.raced = members.price
            most = math.ceil(price / tried / len(run.problem.networks) ** 2)
            closed = 0

            def race(node: Array) -> None:
                nonlocal closed
                closed += self._divide(search, node, most)

            self._each(search, RACED, race, lambda: False)
            better = 2 * closed <= RACED
        self._improve(search, tree.candidates())
        run.prove(tree.bound)
        run.open_nodes = int(tree.open)
        search.keep()
        return better

    def _each(
        self, search: Search, count: int, work: Callable[[Array], None],
        enough: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Take the open nodes of the largest bounds and do some work on each."""
        run, tree = search.run, search.tree
        assert tree is not None
        # Ctrl-C may come at any line: what was taken is still open.
        bound, left = tree.bound, None
        try:
            left = list(tree.take(count))
            while left and not enough() and not halted(run):
                work(left[-1])
                left.pop()
        finally:
            if left is None:
                tree.close(bound)  # taken or not: this holds
            elif left:
                tree.add(np.array(left))

    def _divide(self, search: Search, node: Array, nodes: int) -> bool:
        """Replace a node that was taken by what is open after so many nodes below it.

        Whether nothing is.
        """
        run, tree, scheme = search.run, search.tree, search.scheme
        assert tree is not None
        assert scheme is not None
        found = explore_unit(
            Unit(
                run.problem, scheme, run.limits.gap, self.dive, node[None],
                tree.points(), nodes, run.remaining(),
            )
        )  # fmt: skip
        tree.close(found.closed)
        tree.add(found.nodes)
        for x in found.points:
            tree.offer(x)
        run.count(found.count)
        return not len(found.nodes)

    def _cutoff(self, search: Search) -> float:
        """The bound at which a node is closed."""
        tree, run = search.tree, search.run
        assert tree is not None
        return Tolerance.of(run.problem, run.limits.gap).cutoff(tree.value)

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
