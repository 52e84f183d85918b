"""Two searches in turn: one whose bound hardly moves gives way to the other.

Both searches end, but how soon depends on the problem. A box of 12 inputs is halved for
very long where some hundred nodes of signs suffice, and a network of 400 neurons has
more signs than boxes. So a search is looked at whenever its nodes have doubled. If its
bound has hardly come closer to the value since the last look, or if the other search
has proved more in its own turns, the other one takes over, from its own root or from
where it stopped. Turns get longer and longer, so neither is lost.

Each tree covers the whole feasible set. So the lower of both bounds is proved, a better
point serves both. A checkpoint keeps the state of the one under way, and how long both
have had.
"""

from __future__ import annotations

import math

from ennopt.checkpoint import State
from ennopt.engine.auto import Auto
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.engine.search import Engine, Search
from ennopt.run import Run

SLOW, FROZEN = 0.8, 0.99
"""A search gives way if more than this share of the distance between bound and value is
left when its nodes have doubled: the first if `Auto` prefers the other search, else the
second. Searches that are the better choice leave 0.8 to 0.93 where they take longest.
"""

BRANCHING = {BoxSearch: "inputs", NeuronSearch: "neurons"}


def other_of(engine: Engine) -> Engine:
    """The search that branches on what this one does not."""
    kind = NeuronSearch if isinstance(engine, BoxSearch) else BoxSearch
    return kind(
        starts=engine.starts,
        polished=engine.polished,
        instruction_set=engine.instruction_set,
    )


def owner_of(engine: Engine, state: State) -> Engine:
    """The search of the two whose nodes a state has."""
    signs = state.bounds.shape[0] > 0  # without hidden neurons, too
    return engine if signs == isinstance(engine, NeuronSearch) else other_of(engine)


class Turns:
    """The searches of a run, and whose turn it is.

    Parameters
    ----------
    engine
        The search that was asked for.
    run
        The record of both.

    Attributes
    ----------
    engine, search
        Those whose turn it is.
    """

    def __init__(self, engine: Engine, run: Run) -> None:
        self.engine, self.search, self.run = engine, Search(run), run
        self._waiting: tuple[Engine, Search] | None = None
        self._told = -1  # which note tells of changes

    def explore(self) -> None:
        """Search until a limit or a proof."""
        run, search = self.run, self.search
        if not self._may_change():
            search.look = math.inf
        elif not search.nodes < search.look < math.inf:  # else it is a checkpoint's
            search.look = max(self.engine.patience, 2.0 * search.nodes)
        while True:
            search = self.search
            search.begun = run.nodes
            nodes = run.nodes + search.look - search.nodes
            with run.phase("search"):
                self.engine._search(search, nodes)
            search.nodes += run.nodes - search.begun
            search.begun = run.nodes
            assert search.tree is not None
            if not search.tree.open or run.ended() is not None:
                return
            if search.nodes >= search.look and (reason := self._reason()):
                self._change(reason)

    def _may_change(self) -> bool:
        """Whether the other search can take over; a certificate is of one of them."""
        other = other_of(self.engine)
        able = self.run.problem.features <= other.handles
        return self.engine.gives_way and able and self.run.tools.recorder is None

    def _prefers_other(self) -> bool:
        """Whether `Auto` would have begun with the other search."""
        return not isinstance(Auto().choose(self.run.problem).method, type(self.engine))

    def _reason(self) -> str:
        """Why the search under way should give way; empty if it should not."""
        run, search = self.run, self.search
        assert search.tree is not None
        least = run.value
        if run.x is None:
            least = run.problem.range(run.problem.root)[0]
        bound = search.tree.bound
        last, search.distance = search.distance, bound - least
        search.look = 2.0 * search.nodes
        if self._waiting is not None:
            other = self._waiting[1].tree
            if other is not None and other.bound < bound:
                return "the other search has proved more"
        most = SLOW if self._prefers_other() else FROZEN
        if not search.distance > most * last:  # also at the first look
            return ""
        return (
            f"with twice as many nodes the bound came only "
            f"{1.0 - search.distance / last:.1%} closer to the value"
        )

    def _change(self, reason: str) -> None:
        """Let the other search take over, with the best points known."""
        run, leaving = self.run, (self.engine, self.search)
        first = self._waiting is None
        engine, search = self._waiting or (other_of(self.engine), Search(run))
        if first:
            # An attempt must not take longer to prepare than the run has taken.
            seconds = math.inf if self._prefers_other() else run.elapsed()
            engine._prepare(search, seconds)
            # It may have had turns before a checkpoint: the next is no shorter.
            search.look = max(engine.patience, self.search.others)
            search.seconds = self.search.seconds
        assert search.tree is not None
        assert self.search.tree is not None
        for x in self.search.tree.points():
            search.tree.offer(x)
        search.reserved = self.search.bytes()
        search.others = max(search.others, self.search.nodes)
        self.search.others = max(self.search.others, search.nodes)
        self._waiting, self.engine, self.search = leaving, engine, search
        where = f"after {run.nodes:,} nodes"
        if first:
            to = BRANCHING[type(engine)]
            self._told = len(run.notes)
            run.notes.append(f"Changed to branching on {to} {where}, because {reason}.")
        else:
            run.notes[self._told] = f"{run.notes[self._told][:-1]}; changed {where}."
