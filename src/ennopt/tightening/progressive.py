"""Tighten layer by layer, so that later layers profit; neurons of a layer in parallel.

The work on a layer is cut into jobs of a fixed number of neurons, each of which starts
afresh: the answer does not depend on who runs them, or in which order.
"""

from __future__ import annotations

import abc
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from ennopt import clock
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.bounds.rounding import inherited_errors
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.milp.model import Flags, Indices
from ennopt.milp.scaling import centred, normalized
from ennopt.network import Array, Network
from ennopt.tightening.relaxation import Interval

LOGGER = logging.getLogger(__name__)

WITNESSES = 256
"""Random points whose pre-activations every new bound must contain."""

CONVEX_SHARE = 16
"""In a convex region one point is drawn where elsewhere there would be so many."""


def few_if_convex(domain: Domain, count: int) -> int:
    """How many points to draw from a set: moving them into a hull takes long."""
    return -(-count // CONVEX_SHARE) if domain.convex else count


def deadline_after(seconds: float) -> float | None:
    """The reading of ``clock.now()`` in so many seconds; ``None`` for never."""
    return clock.now() + max(0.0, seconds) if math.isfinite(seconds) else None


def seconds_left(deadline: float | None) -> float:
    """Seconds until a deadline, perhaps infinite, never negative."""
    return math.inf if deadline is None else max(0.0, deadline - clock.now())


def workers(executor: Executor | None) -> float:
    """How many jobs are worked on side by side: one without an executor.

    The pools of the standard library know, though they keep it to themselves. Any
    other executor is taken to have workers enough.
    """
    if executor is None:
        return 1
    return float(getattr(executor, "_max_workers", math.inf))


@dataclass(slots=True, eq=False)
class Shares:
    """Time that is divided over pieces of work which wait for their turn.

    Each gets an equal part of the time left when it starts, so that those that need
    less leave the rest to the others. May be asked by several threads.

    Parameters
    ----------
    left
        Tells the seconds left, perhaps infinite.
    waiting
        Pieces that have not started.
    workers
        How many are worked on side by side.

    Examples
    --------
    >>> shares = Shares(lambda: 12.0, waiting=3)
    >>> [shares.take() for _ in range(3)]
    [4.0, 6.0, 12.0]
    """

    left: Callable[[], float]
    waiting: int
    workers: float = 1
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def take(self) -> float:
        """Seconds of the piece that starts now."""
        with self._lock:
            part = min(1.0, self.workers / max(1, self.waiting))
            self.waiting -= 1
        return part * self.left()


class Tightening(Protocol):
    """A way to tighten the bounds of neurons."""

    def tighten(
        self,
        problem: Canonical,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
    ) -> NeuronBounds:
        """Bounds no looser than `bounds`, valid on the problem's domain.

        Parameters
        ----------
        problem
            Whose neurons are bounded, and where.
        bounds
            What is already proved.
        executor
            Anything with ``submit``; ``None`` works serially, with the same answer.
        deadline
            Reading of ``clock.now()`` after which no further work begins.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Some neurons of one layer of one network, in units of order one.

    Parameters
    ----------
    problem, bounds
        The network alone; bounds of the layers before are what counts.
    layer
        Affine layer of the neurons.
    neurons
        Which, (num_neurons,).
    hidden
        Whether only the sign matters once it is decided.
    deadline
        Reading of ``clock.now()``, or ``None``.
    stop
        Asked now and then where the job is done in the process that made it; if true,
        no time is left.
    share
        Asked, there, when work on a neuron begins: the seconds that it may take.
    """

    problem: Canonical
    bounds: NeuronBounds
    layer: int
    neurons: Indices
    hidden: bool
    deadline: float | None
    stop: Callable[[], object] | None = None
    share: Callable[[], float] | None = None

    @property
    def network(self) -> Network:
        """The network."""
        return self.problem.networks[0]

    def stopped(self) -> bool:
        """Whether whoever made the job wants no more of it."""
        return self.stop is not None and bool(self.stop())

    def remaining(self) -> float:
        """Seconds left, perhaps infinite, never negative."""
        return 0.0 if self.stopped() else seconds_left(self.deadline)


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """Proved bounds of the neurons of a job, and what they took.

    Parameters
    ----------
    lower, upper
        One entry per neuron of the job; infinite where nothing was proved.
    neurons
        Neurons that were worked on: a deadline may leave out some.
    solves
        Programs solved.
    """

    lower: Array
    upper: Array
    neurons: int = 0
    solves: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Tightened:
    """New bounds, and what they took.

    Parameters
    ----------
    bounds
        No looser than before.
    neurons
        Neurons that were worked on.
    solves
        Linear or integer programs solved.
    """

    bounds: NeuronBounds
    neurons: int = 0
    solves: int = 0


Chosen = Sequence[Sequence[Flags]]
"""``chosen[i][k]``: which neurons of layer k of member i to work on, (width,)."""


class Progressive(abc.ABC):
    """A tightening that bounds neurons one by one.

    Subclasses say how, and whether predictions count as neurons (`outputs`).
    """

    __slots__ = ()
    outputs: bool

    @abc.abstractmethod
    def _work(self) -> tuple[Callable[[Job], Done], int]:
        """What bounds the neurons of a job (picklable), and how many make one."""

    def tighten(
        self,
        problem: Canonical,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
    ) -> NeuronBounds:
        """Bounds no looser than `bounds`, valid on the problem's domain."""
        return self.run(problem, bounds, executor, deadline).bounds

    def run(
        self,
        problem: Canonical,
        bounds: NeuronBounds | None = None,
        executor: Executor | None = None,
        deadline: float | None = None,
        chosen: Chosen | None = None,
        stop: Callable[[], object] = lambda: None,
    ) -> Tightened:
        """As `tighten`, with counts, over the unstable neurons of all but first layers.

        The first layer is linear in the inputs: interval arithmetic is exact there.

        Parameters
        ----------
        problem, bounds, executor, deadline
            As for `Tightening.tighten`.
        chosen
            Work on these neurons only, still only if unstable; ``None`` for all.
        stop
            Asked before the answer of each job, and by jobs that are not handed out;
            if true, what is known so far is returned.
        """
        problem.expect_relu(type(self).__name__)
        work, size = self._work()
        outputs = self.outputs
        networks = problem.networks
        known = Interval().tighten(problem, bounds)
        worked = solves = 0
        slack = _slack(replace(problem, known=known))
        count = few_if_convex(problem.domain, WITNESSES)
        points = problem.domain.sample(count, np.random.default_rng(0))
        seen = [network.preactivations(points) for network in networks]
        alone = [
            centred(Canonical.sum_of([network], problem.domain)) for network in networks
        ]
        for k in range(1, max(len(network.weights) for network in networks)):
            pending: list[tuple[int, Indices, Array, _Pending]] = []
            ended = threading.Event()  # what jobs in other threads look at
            listen = stop if executor is None else None
            if isinstance(executor, ThreadPoolExecutor):
                listen = ended.is_set
            here = listen is not None  # closures do not travel to other processes
            count = _count_wanted(known, k, chosen, outputs)
            shares = Shares(lambda: seconds_left(deadline), count, workers(executor))
            try:
                for i, network in enumerate(networks):
                    if k >= len(network.weights):
                        continue
                    wanted = _wanted(known, i, k, chosen, outputs)
                    if not wanted.size:
                        continue
                    scaled = normalized(alone[i].problem, known.member(i))
                    for begin in range(0, wanted.size, size):
                        some = wanted[begin : begin + size]
                        job = Job(
                            scaled.problem, scaled.bounds, k, some,
                            k < len(network.weights) - 1, deadline, listen,
                            shares.take if here else None,
                        )  # fmt: skip
                        start = _started(work, job, executor)
                        pending.append((i, some, scaled.neurons[0][k][some], start))
                for i, some, unit, future in pending:
                    if stop():
                        return Tightened(known, worked, solves)
                    done = future.result()
                    known = _kept(
                        known, i, k, some, unit, done, slack[i][k], seen[i][k]
                    )
                    worked += done.neurons
                    solves += done.solves
            finally:
                ended.set()
                for _, _, _, future in pending:
                    future.cancel()
            if pending:
                known = Interval().tighten(problem, known)
        return Tightened(known, worked, solves)


def _slack(problem: Canonical) -> list[list[Array]]:
    """``[network][layer]``: how far a proved bound may be off, by all that was rounded.

    Centring rounds the biases of the first layer, each layer its own sums.
    """
    return [
        [
            own + before
            for own, before in zip(
                problem.row_errors[i],
                inherited_errors(network, problem.row_sizes[i]),
                strict=True,
            )
        ]
        for i, network in enumerate(problem.networks)
    ]


def _kept(
    known: NeuronBounds, i: int, k: int, some: Indices, unit: Array, done: Done,
    slack: Array, seen: Array,
) -> NeuronBounds:  # fmt: skip
    """What is known with the answer of a job, in units of `unit`, to some neurons.

    Widened by `slack`, and dropped where a value of `seen` contradicts it.
    """
    low, high = known.lower[i][k].copy(), known.upper[i][k].copy()
    least = done.lower * unit - slack[some]
    most = done.upper * unit + slack[some]
    smallest = seen[:, some].min(axis=0, initial=np.inf)
    largest = seen[:, some].max(axis=0, initial=-np.inf)
    wrong = (least > smallest) | (most < largest)
    if wrong.any():
        LOGGER.warning(
            "Dropped bounds of %d neurons of member %d, layer %d: a solver "
            "claims what a point contradicts.", wrong.sum(), i, k,
        )  # fmt: skip
    low[some] = np.where(wrong, low[some], np.maximum(low[some], least))
    high[some] = np.where(wrong, high[some], np.minimum(high[some], most))
    crossed = low > high  # two proofs of one number, by their margins
    low[crossed], high[crossed] = high[crossed], low[crossed]
    return known.with_layer(i, k, low, high)


def _wanted(
    known: NeuronBounds, i: int, k: int, chosen: Chosen | None, outputs: bool
) -> Indices:
    if k == len(known.lower[i]) - 1:
        everything = known.lower[i][k] < known.upper[i][k]
        flags = everything if outputs else np.zeros_like(everything)
    else:
        flags = known.unstable(i, k)
    if chosen is not None and k < len(chosen[i]):
        flags = flags & chosen[i][k]
    return np.flatnonzero(flags)


def _count_wanted(
    known: NeuronBounds, first: int, chosen: Chosen | None, outputs: bool
) -> int:
    """Neurons to work on in a layer and all after it, as far as is known now."""
    return sum(
        _wanted(known, i, k, chosen, outputs).size
        for i, layers in enumerate(known.lower)
        for k in range(first, len(layers))
    )


class _Pending(Protocol):
    """A job under way, as `concurrent.futures` has it."""

    def result(self) -> Done: ...

    def cancel(self) -> object: ...


@dataclass(frozen=True, slots=True)
class _Later:
    """A job that is done when its answer is asked for."""

    work: Callable[[Job], Done]
    job: Job

    def result(self) -> Done:
        return self.work(self.job)

    def cancel(self) -> None:
        pass


def _started(
    work: Callable[[Job], Done], job: Job, executor: Executor | None
) -> _Pending:
    return _Later(work, job) if executor is None else executor.submit(work, job)
