"""One tightening after the other, within a deadline, for as long as it is worth it.

Every method that bounds neurons before it searches does it here: `tighten_by_steps`
starts from interval arithmetic, hands each step what is known, tells the caller about
new bounds at once and asks whether to go on. A run that ends in the middle keeps what
was proved so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.tightening.progressive import Progressive, Tightened, Tightening
from ennopt.tightening.relaxation import Interval

Phase: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Opens a span of time under a name, such as `ennopt.run.Run.phase`."""

Heard: TypeAlias = Callable[[NeuronBounds], object]
"""Told bounds as they become known."""


def never() -> bool:
    """Do not stop."""
    return False


def unheard(bounds: NeuronBounds) -> None:
    """Tell nobody."""


def unnamed(name: str) -> AbstractContextManager[None]:
    """Book time under no name."""
    return nullcontext()


@runtime_checkable
class Composite(Protocol):
    """A tightening of several parts, which it books under names of its own."""

    def run(
        self,
        problem: Canonical,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
        *,
        stop: Callable[[], object] = never,
        heard: Heard = unheard,
        phase: Phase = unnamed,
    ) -> Tightened:
        """As `Tightening.tighten`, with counts; the rest as `tighten_by_steps`."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Bounds of all neurons, and what each step did for them.

    Parameters
    ----------
    bounds
        The result.
    done
        One entry for each step that was begun, in order.
    """

    bounds: NeuronBounds
    done: tuple[Tightened, ...] = ()


def tighten_by_steps(
    steps: Sequence[Tightening],
    problem: Canonical,
    bounds: NeuronBounds | None = None,
    executor: Executor | None = None,
    deadline: float | None = None,
    *,
    stop: Callable[[], object] = never,
    heard: Heard = unheard,
    phase: Phase = unnamed,
) -> Steps:
    """Tighten by interval arithmetic, then by each step from the bounds before it.

    Parameters
    ----------
    steps
        What comes after interval arithmetic.
    problem, bounds, executor, deadline
        As for `Tightening.tighten`; `deadline_after` makes a deadline.
    stop
        Asked after each step, and by steps that take long. Return True to end the work
        with what is known.
    heard
        Told bounds as they become known: those of interval arithmetic, then those of
        each step, and of the parts of a composite step.
    phase
        Opens a span of time: ``"bounds"`` for a plain step, names of its own for a
        composite one.

    Examples
    --------
    >>> from ennopt import Crown, Domain, Network
    >>> net = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> problem, tops = Canonical.sum_of([net], Domain([-1.0], [1.0])), []
    >>> def tell(bounds):
    ...     tops.append(round(float(bounds.upper[0][1][0]), 9))
    >>> _ = tighten_by_steps([Crown()], problem, heard=tell)
    >>> tops
    [2.0, 1.0]
    """
    known = Interval().tighten(problem, bounds)
    heard(known)
    done: list[Tightened] = []
    for step in steps:
        if isinstance(step, Progressive):
            with phase("bounds"):
                made = step.run(problem, known, executor, deadline, stop=stop)
        elif isinstance(step, Composite):
            made = step.run(
                problem, known, executor, deadline,
                stop=stop, heard=heard, phase=phase,
            )  # fmt: skip
        else:
            with phase("bounds"):
                made = Tightened(step.tighten(problem, known, executor, deadline))
        known = made.bounds
        done.append(made)
        heard(known)
        if stop():
            break
    return Steps(known, tuple(done))
