"""The methods by name, for the command line and for ``method="..."``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ennopt.canonical import Canonical
from ennopt.engine.auto import Auto
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.paper.bigm import BigM
from ennopt.paper.branch_and_cut import BranchAndCut
from ennopt.paper.two_phase import TwoPhase
from ennopt.problem import Problem
from ennopt.result import Result
from ennopt.run import Tools


@runtime_checkable
class Method(Protocol):
    """A way to solve a problem; its ``repr`` is its configuration."""

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Search until a limit of `tools` or a proof."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A method's name, what it is, and how to make it for a MILP backend."""

    name: str
    description: str
    make: Callable[[str | None], Method]
    uses_backend: bool = True


def _auto(backend: str | None) -> Method:
    return Auto()


def _box(backend: str | None) -> Method:
    return BoxSearch()


def _neurons(backend: str | None) -> Method:
    return NeuronSearch()


def _bigm(backend: str | None) -> Method:
    return BigM() if backend is None else BigM(backend=backend)


def _bnc(backend: str | None) -> Method:
    return BranchAndCut(backend=backend)


def _enn(backend: str | None) -> Method:
    return TwoPhase() if backend is None else TwoPhase.on(backend)


METHODS = {
    entry.name: entry
    for entry in (
        Entry("auto", "our engine: box or neurons, whichever is faster", _auto, False),
        Entry("box", "branch and bound on the inputs", _box, False),
        Entry("neurons", "branch and bound on the neurons", _neurons, False),
        Entry("bigm", "the paper's big-M model, solved by a MILP solver", _bigm),
        Entry("bnc", "the paper's B&C: big-M with ideal cuts", _bnc),
        Entry("enn", "the paper's E-NN: the two-phase algorithm", _enn),
    )
}


def method_named(name: str, backend: str | None = None) -> Method:
    """The method called `name`, with its default settings.

    Examples
    --------
    >>> method_named("simplex")
    Traceback (most recent call last):
    ...
    ValueError: Expected a method among ..., got 'simplex'.
    """
    if name not in METHODS:
        raise ValueError(f"Expected a method among {', '.join(METHODS)}, got {name!r}.")
    entry = METHODS[name]
    if backend is not None and not entry.uses_backend:
        raise ValueError(
            f"Expected no backend for method {name!r}, which uses no MILP solver, got "
            f"{backend!r}. Leave it out."
        )
    return entry.make(backend)
