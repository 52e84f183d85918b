"""What a method is handed (`Tools`) and the record it keeps while it works (`Run`).

A `Run` is the one place that knows the clock, the best value, the proved bound, the
history and the callback, so that every method reports alike and Ctrl-C is handled
once. Methods maximize; what leaves the record is in the user's sense: this is the one
place where a minimization is undone.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    ThreadPoolExecutor,
)
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

from ennopt import clock
from ennopt.canonical import Canonical, Feature, UnsupportedProblemError
from ennopt.checkpoint import Checkpoint, Whole
from ennopt.interrupts import Ears
from ennopt.met import Met, limits_at, met_at, told_at
from ennopt.network import Array
from ennopt.problem import Problem
from ennopt.result import (
    MEMORY,
    Event,
    Limits,
    Progress,
    Result,
    Status,
    is_positive,
)
from ennopt.version import VERSION

Callback: TypeAlias = Callable[[Progress], Any]
"""Called with a moment of a run. Return True to stop the run."""

REPORT_SECONDS = 0.2
"""At least this long between two calls of the callback that bring no news."""

LOGGER = logging.getLogger("ennopt")
"""Hears of the beginning, of every better value or bound and of the end of a run."""

SOUNDNESS_SLACK = 1e-6
"""A proved bound this far below a value, relatively, is a contradiction."""

ROUNDING_SLACK = 1e-10
"""A bound this far below a value, relatively, is no more than rounding."""


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def matrix_threads(count: int) -> Iterator[None]:
    """Hold NumPy's matrix library back, which takes every core by itself.

    What it may take is a setting of the whole process, so that of two threads the one
    that ends last would leave the other's setting: only the main thread sets it.
    """
    alone = threading.current_thread() is threading.main_thread()
    if not alone or count >= available_cores():
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(count, user_api="blas"):
        yield


def accident_of(error: BaseException) -> str:
    """What happened, if it is no defect but memory or workers that are gone.

    Errors of a cluster are known by their names: its package need not be installed.

    Examples
    --------
    >>> accident_of(MemoryError())
    'Memory ran out.'
    >>> accident_of(ValueError("a defect"))
    ''
    """
    if isinstance(error, MemoryError):
        return "Memory ran out."
    lost = isinstance(error, BrokenExecutor | CancelledError)
    if lost or type(error).__name__ in ("KilledWorker", "CommClosedError"):
        told = " ".join(str(error).split())
        return (
            f"A worker was lost ({type(error).__name__}{': ' * bool(told)}{told:.200})."
        )
    return ""


def needed_memory(problem: Problem) -> float:
    """Bytes that bounds of a problem take at least: more than any search can do with.

    The weights twice, as they were given and as the search has them, and for the widest
    pair of layers of any member two matrices of lines, above and below its neurons.

    Examples
    --------
    >>> from ennopt import Domain, Ensemble, Network
    >>> line = Ensemble([Network([[[3.0]]], [[1.0]])])
    >>> needed_memory(Problem(line, Domain([-1], [1])))
    48.0
    """
    ensembles = {
        id(term.ensemble): term.ensemble
        for function in problem.functions()
        for term in function.terms
    }
    members = [m for one in ensembles.values() for m in one.members]
    weights = sum(member.num_parameters for member in members)
    widest = max((max(w.size for w in member.weights) for member in members), default=0)
    return 8.0 * (2 * weights + 2 * widest)


def memory_words(problem: Problem) -> str:
    """What is said if the memory is too small even to begin."""
    members = problem.ensemble.num_members
    return (
        f"Expected enough memory to bound {members} network{'s' * (members != 1)} of "
        f"{problem.ensemble.num_neurons:,} neurons in all on "
        f"{problem.domain.num_inputs:,} inputs, which takes at least "
        f"{needed_memory(problem) / 2**30:.3g} GiB, got less. Close other programs or "
        "take a computer with more memory; or take fewer members, a smaller network, "
        "or fewer threads."
    )


class Listener(Protocol):
    """Listens to a search."""

    def plant(self, scheme: Any) -> None:
        """A tree begins, of such nodes: forget what was heard of others."""

    def hear(self, lines: Array) -> None:
        """Take new lines of the journal of a tree; see `ennopt.engine.tree.Kind`."""

    def told(self) -> Whole:
        """What it has to remember if the search is to go on elsewhere."""

    def remember(self, splits: Whole) -> None:
        """Take what another one was told."""


class UnsoundBoundError(RuntimeError):
    """A bound was claimed that a point beats: a defect, never a result."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a method needs from outside.

    Parameters
    ----------
    limits
        When to stop.
    threads
        Threads that the run may use.
    seed
        Of everything random: same seed, same answer.
    executor
        Anything with ``submit``; ``None`` leaves it to the method, which may use
        threads.
    callback
        Called with a `Progress` now and then. Return True to stop the run.
    recorder
        What listens to the search, if its proof is to be certified.
    checkpoint
        Where the state of the search is saved, and from where it goes on.
    known
        A point that is known, (num_inputs,): the first value of the run.
    """

    limits: Limits = field(default_factory=Limits)
    threads: int = 1
    seed: int = 0
    executor: Executor | None = None
    callback: Callback | None = None
    recorder: Listener | None = None
    checkpoint: Checkpoint | None = None
    known: Array | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.threads, Integral) and self.threads >= 1):
            raise ValueError(
                f"Expected a whole number of threads >= 1, got {self.threads!r}."
            )
        if not (isinstance(self.seed, Integral) and self.seed >= 0):
            raise ValueError(
                f"Expected a whole number as seed >= 0, got {self.seed!r}."
            )
        if not (self.executor is None or hasattr(self.executor, "submit")):
            raise TypeError(
                f"Expected an executor with a method submit, got {self.executor!r}."
            )
        if not (self.callback is None or callable(self.callback)):
            raise TypeError(
                f"Expected a callback that can be called, got {self.callback!r}."
            )

    @classmethod
    def of(
        cls,
        *,
        time_limit: float | None = None,
        node_limit: float | None = None,
        memory_limit: float | None = MEMORY,
        gap: float = 1e-4,
        threads: int | None = None,
        seed: int = 0,
        executor: Executor | None = None,
        callback: Callback | None = None,
        threshold: float | None = None,
        checkpoint: str | Path | Checkpoint | None = None,
    ) -> Tools:
        """The tools that the keywords of `ennopt.maximize` stand for.

        Examples
        --------
        >>> Tools.of(time_limit=60, threads=2).limits.seconds
        60
        >>> Tools.of(time_limit=0)
        Traceback (most recent call last):
        ...
        ValueError: Expected a positive number or None, got 0 at time_limit.
        """
        return cls(
            Limits(
                seconds=_limit(time_limit, "time_limit"),
                nodes=_limit(node_limit, "node_limit"),
                gap=gap,
                memory=_limit(memory_limit, "memory_limit"),
                threshold=threshold,
            ),
            available_cores() if threads is None else threads,
            seed,
            executor,
            callback,
            checkpoint=_checkpoint(checkpoint),
        )

    @contextmanager
    def with_workers(self) -> Iterator[Tools]:
        """These tools with an executor of threads, where several threads are allowed.

        The caller's own executor is kept, and one thread alone needs none.
        """
        if self.executor is not None or self.threads == 1:
            yield self
            return
        pool = ThreadPoolExecutor(self.threads)
        try:
            yield replace(self, executor=pool)
        finally:
            pool.shutdown(cancel_futures=True)

    def start(
        self,
        problem: Problem | Canonical,
        method: object,
        handles: frozenset[Feature] = frozenset(),
    ) -> Run:
        """Open the record of a run of `method`; use it in a ``with`` statement.

        Parameters
        ----------
        problem
            What the user says, or its canonical form.
        method
            Whose ``repr`` the result names.
        handles
            What the method can handle beyond a weighted sum over a box.

        Raises
        ------
        UnsupportedProblemError
            When the problem has more than that: nothing is ever left out silently.
        """
        if isinstance(problem, Problem):
            problem = Canonical.of(problem)
        problem.expect(handles, type(method).__name__)
        if self.recorder is not None and not getattr(method, "certifies", False):
            raise UnsupportedProblemError(
                "Expected a method whose proof can be certified, got "
                f"{type(method).__name__}. Use method='box', or leave the certificate "
                "out."
            )
        if self.checkpoint is not None and not getattr(method, "continues", False):
            raise UnsupportedProblemError(
                "Expected a method whose state can be saved, got "
                f"{type(method).__name__}. Use method='auto', 'box' or 'neurons', or "
                "leave the checkpoint out."
            )
        run = Run(problem, self, repr(method))
        if self.known is not None and self.known.size == problem.num_inputs:
            run.offer(self.known)
        return run


def _checkpoint(given: str | Path | Checkpoint | None) -> Checkpoint | None:
    if given is None or isinstance(given, Checkpoint):
        return given
    return Checkpoint(given)


def _limit(limit: float | None, name: str) -> float:
    if limit is None:
        return math.inf
    if not is_positive(limit):
        raise ValueError(
            f"Expected a positive number or None, got {limit!r} at {name}."
        )
    return limit


class Run:
    """The record of a run: clock, best value, proved bound, history.

    Ctrl-C inside the ``with`` block ends the block, not the program::

        with tools.start(problem, self) as run:
            ...
        return run.finish()
    """

    def __init__(self, problem: Canonical, tools: Tools, method: str) -> None:
        self.problem = problem
        self.tools = tools
        self.method = method
        self.limits = tools.limits
        self.x: Array | None = None
        self.value = -np.inf
        self.bound = np.inf
        self.nodes = 0
        self.open_nodes: int | None = None
        self.history: list[Event] = []
        self.phases: dict[str, float] = {}
        self.details: dict[str, Any] = {}
        self.levels: dict[str, float] = {}  # details in units of the objective
        self.notes: list[str] = []
        self.libraries: list[str] = ["numpy"]
        self._phase = ""
        self._start = self._turned = clock.now()
        self._reported = -np.inf
        self._interrupted = False
        self._ears = Ears(self.interrupt)
        self._open = ExitStack()
        LOGGER.info("%s on %r", method, problem)

    def __enter__(self) -> Self:
        self._ears.open()
        self._open.enter_context(matrix_threads(self.tools.threads))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._open.close()
        self._ears.close()
        accident = "" if error is None else accident_of(error)
        if accident:
            self.notes.append(f"{accident} What was found and proved until then holds.")
        if accident or isinstance(error, KeyboardInterrupt):
            self._interrupted = True
            return True
        return False

    # The clock.

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return clock.now() - self._start

    def remaining(self) -> float:
        """Seconds left, never negative, perhaps infinite."""
        return max(0.0, self.limits.seconds - self.elapsed())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Book the time spent in the block under `name`, and under no other phase."""
        outer = self._phase
        self._turn_to(name)
        try:
            yield
        finally:
            self._turn_to(outer)

    def _turn_to(self, name: str) -> None:
        now = clock.now()
        if self._phase:
            spent = now - self._turned
            self.phases[self._phase] = self.phases.get(self._phase, 0.0) + spent
        self._phase, self._turned = name, now

    # What was found and what was proved.

    def offer(self, points: Array) -> bool:
        """Evaluate points and keep the best feasible one; true if the value rose.

        Points are moved into the domain first: a solver's tolerance must not make an
        answer infeasible. Those that cannot be are left out.
        """
        domain = self.problem.domain
        inside = domain.repair(np.atleast_2d(points))
        inside = inside[self.problem.feasible(inside)]
        if not len(inside):
            return False
        values = self.problem.values(inside)
        best = int(np.argmax(values))
        # One point alone may round differently from a batch: keep its own value.
        value = float(self.problem.values(inside[best])[0])
        if not value > self.value:
            return False
        self._contradiction(value, self.bound)
        self.x, self.value = inside[best].copy(), value
        return True

    def _contradiction(self, value: float, bound: float) -> None:
        """Raise if a value beats a bound by more than tolerances explain."""
        if bound >= value:  # the size of the problem takes bounds of all its neurons
            return
        if bound < value - SOUNDNESS_SLACK * self._size(value):
            raise UnsoundBoundError(
                f"Expected a bound of at least the value {value!r} found, got "
                f"{bound!r} from {self.method}. This is a defect of ennopt or of a "
                "solver: please report it."
            )

    def _size(self, value: float) -> float:
        """What slacks are measured by; no smaller than what counts as close to zero."""
        problem = self.problem
        return max(abs(value), problem.size, min(1.0, problem.scale))

    def prove(self, bound: float) -> bool:
        """Lower the proved bound; true if it fell. `nan` proves nothing.

        A bound below the value found is wrong: by rounding, and then the value takes
        its place; by a solver's tolerance, and then it proves nothing; or by a defect.
        """
        if not bound < self.bound:
            return False
        self._contradiction(self.value, bound)
        if bound < self.value - ROUNDING_SLACK * self._size(self.value):
            return False
        self.bound = max(bound, self.value)
        return True

    def count(self, nodes: int) -> None:
        """Add search nodes."""
        self.nodes += int(nodes)

    def tick(self) -> None:
        """Record what is new and let the callback see it."""
        event = Event(self.elapsed(), self.value, max(self.bound, self.value))
        news = not self.history or self.history[-1][1:] != event[1:]
        if news:
            self.history.append(event)
            seconds, value, bound = self._in_user_sense(event)
            LOGGER.info("%.2f s: value %g, bound %g, %d nodes", seconds, value, bound,
                        self.nodes)  # fmt: skip
        due = event.seconds - self._reported >= REPORT_SECONDS
        if self.tools.callback is not None and (news or due):
            self._reported = event.seconds
            own = self._in_user_sense(event)
            moment = Progress(
                *own, self.nodes, self._phase, self.open_nodes, self.limits.seconds
            )
            if self.tools.callback(moment):
                self._interrupted = True

    def interrupt(self) -> None:
        """Ask the run to end."""
        self._interrupted = True

    # The end.

    def tolerance(self) -> float:
        """How far above the value a bound may stay when the gap counts as closed."""
        if self.x is None:
            return 0.0
        return self.problem.tolerance(self.value, self.limits.gap)

    def closed(self) -> bool:
        """Whether the value is proved optimal within the gap."""
        return self.x is not None and self.bound - self.value <= self.tolerance()

    def ended(self) -> Status | None:
        """Why the run must stop now, or ``None``."""
        if self.closed():
            return Status.OPTIMAL
        if self.bound == -np.inf:
            return Status.INFEASIBLE  # no point at all is left
        if self._interrupted:
            return Status.INTERRUPTED
        if self.limits.threshold is not None:
            wanted = self.problem.sign * self.limits.threshold
            if self.value >= wanted or self.bound < wanted:
                return Status.THRESHOLD
        if self.elapsed() >= self.limits.seconds:
            return Status.TIME_LIMIT
        if self.nodes >= self.limits.nodes:
            return Status.NODE_LIMIT
        return None

    def finish(self, status: Status | None = None) -> Result:
        """Close the record.

        `status` is the method's word for an ending that the record cannot see, such
        as a solver that stopped at its own limit; a closed gap and an interruption
        go first.
        """
        self.tick()
        ended = self.ended()
        sure = (
            Status.OPTIMAL, Status.INFEASIBLE, Status.INTERRUPTED, Status.THRESHOLD
        )  # fmt: skip
        if ended in sure or status is None:
            status = ended
        if status is None:
            raise RuntimeError(
                f"Expected a reason to stop, got none from {self.method} with value "
                f"{self.value!r} and bound {self.bound!r}."
            )
        if status is Status.OPTIMAL and not self.closed():
            status = Status.PRECISION_LIMIT  # only value and bound make an optimum
        problem, sign = self.problem, self.problem.sign
        members, inputs = np.empty(0), None
        if self.x is not None:
            ensemble = None if problem.origin is None else problem.origin.ensemble
            inputs = told_at(problem.domain, ensemble, self.x)
            members = (
                problem.outputs(self.x[None])[0]
                if problem.origin is None
                else problem.origin.member_values(self.x)
            )
        levels = {name: sign * level + 0.0 for name, level in self.levels.items()}
        LOGGER.info("%s after %.2f s", status.value, self.elapsed())
        return Result(
            status=status,
            sense="max" if sign > 0 else "min",
            x=self.x,
            names=problem.domain.names,
            value=sign * self.value + 0.0,
            bound=sign * max(self.bound, self.value) + 0.0,
            member_values=members,
            nodes=self.nodes,
            seconds=self.phases | {"total": self.elapsed()},
            history=tuple(self._in_user_sense(event) for event in self.history),
            method=self.method,
            versions=_versions(self.libraries),
            details=self.details | levels,
            notes=tuple(self.notes),
            asked_gap=self.limits.gap,
            constraints=self._conditions(),
            inputs=inputs,
        )

    def _conditions(self) -> tuple[Met, ...]:
        """How the answer meets constraints and limits."""
        met = met_at(self.problem.domain.rows, self.x)
        if self.problem.origin is None:
            return met
        return met + limits_at(self.problem.origin, self.x)

    def _in_user_sense(self, event: Event) -> Event:
        """The way out of a minimization; plus zero makes no negative zeros."""
        sign = self.problem.sign
        return Event(event.seconds, sign * event.value + 0.0, sign * event.bound + 0.0)


def _versions(libraries: list[str]) -> dict[str, str]:
    found = {"ennopt": VERSION, "python": platform.python_version()}
    for name in libraries:
        # An imported module knows its version; asking the installation takes longer.
        known = getattr(sys.modules.get(name), "__version__", None)
        if known is None:
            from importlib import metadata

            known = metadata.version(name)
        found[name] = known
    return found
