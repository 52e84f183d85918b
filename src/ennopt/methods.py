"""The methods by name, for the command line and for ``method="..."``.

A method is imported when it is made: nobody waits for methods that are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ennopt.canonical import Canonical
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
    from ennopt.engine.auto import Auto

    return Auto()


def _box(backend: str | None) -> Method:
    from ennopt.engine.box_search import BoxSearch

    return BoxSearch()


def _neurons(backend: str | None) -> Method:
    from ennopt.engine.neuron_search import NeuronSearch

    return NeuronSearch()


def _bigm(backend: str | None) -> Method:
    from ennopt.paper.bigm import BigM

    return BigM() if backend is None else BigM(backend=backend)


def _bnc(backend: str | None) -> Method:
    from ennopt.paper.branch_and_cut import BranchAndCut

    return BranchAndCut(backend=backend)


def _enn(backend: str | None) -> Method:
    from ennopt.paper.two_phase import TwoPhase

    return TwoPhase() if backend is None else TwoPhase.on(backend)


METHODS = {
    entry.name: entry
    for entry in (
        Entry("auto", "box or neurons, whichever is faster (default)", _auto, False),
        Entry("box", "our own search: divides the ranges of the inputs", _box, False),
        Entry("neurons", "our own search: divides by neurons' signs", _neurons, False),
        Entry("bigm", "one mixed-integer program (MILP), given to a solver", _bigm),
        Entry("bnc", "the same program with cutting planes added", _bnc),
        Entry("enn", "E-NN, the two-phase method of Wang et al.", _enn),
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
        from ennopt.milp import BACKENDS

        told = f"Expected a method among {', '.join(METHODS)}, got {name!r}"
        if name in BACKENDS:
            raise ValueError(
                f"{told}, a MILP solver. Choose the method bigm and the backend {name}."
            )
        raise ValueError(f"{told}.")
    entry = METHODS[name]
    if backend is not None and not entry.uses_backend:
        raise ValueError(
            f"Expected no backend for method {name!r}, which uses no MILP solver, got "
            f"{backend!r}. Leave it out, or choose the method bigm."
        )
    return entry.make(backend)


def method_of(method: str | Method, backend: str | None = None) -> Method:
    """The method that a user gives by name or as a value."""
    if isinstance(method, str):
        return method_named(method, backend)
    if isinstance(method, type):
        name = method.__name__
        raise TypeError(f"Expected a method, got the class {name}. Write {name}().")
    if not isinstance(method, Method):
        raise TypeError(f"Expected a method or its name, got {type(method).__name__}.")
    if backend is not None:
        raise ValueError(
            f"Expected no backend beside the method {method!r}, got {backend!r}. "
            "Give the method its backend."
        )
    return method
