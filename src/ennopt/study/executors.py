"""Where runs are done: processes of this machine, or a Dask cluster.

An executor yields the line of each run as it ends, in any order; the caller alone
writes. Closing the generator ends what is under way.
"""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, Protocol

from ennopt.api import available_cores
from ennopt.extras import require
from ennopt.learn.selection import Submitter
from ennopt.study import work
from ennopt.study.expression import modules
from ennopt.study.machine import versions
from ennopt.study.plan import Task
from ennopt.study.record import Line

GRACE = 60.0
"""Seconds beyond twice its time limit after which a run counts as hung."""

POLL = 0.5
"""Seconds between two looks at the clock."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What matrix libraries read about threads when they are loaded."""


SOLVERS = ("highspy", "pyscipopt")
"""Packages that a prepared process imports ahead, where they are installed."""


class Executor(Protocol):
    """Does tasks and yields their lines; `started` hears of each task that begins."""

    def execute(
        self,
        tasks: Sequence[Task],
        started: Callable[[Task], None],
        scratch: str | None = None,
    ) -> Iterator[Line]:
        """Lines of the tasks, as they end."""
        ...

    @property
    def slots(self) -> int:
        """How many runs go on at a time, about."""
        ...

    def trainers(self) -> AbstractContextManager[Submitter]:
        """What trains instances before the runs: anything with ``submit``."""
        ...


def executor_named(text: str) -> Executor:
    """The executor that `text` stands for.

    ``local:2`` is two processes, ``dask:2`` a Dask cluster of two processes on this
    machine, and ``dask:tcp://HOST:PORT`` a Dask scheduler that is running already.

    Examples
    --------
    >>> executor_named("local:2")
    Local(processes=2)
    >>> executor_named("dask:tcp://10.0.0.1:8786")
    Dask(address='tcp://10.0.0.1:8786', processes=2)
    >>> executor_named("slurm")
    Traceback (most recent call last):
        ...
    ValueError: Expected an executor local:N, dask:N or dask:ADDRESS, got 'slurm'.
    """
    kind, _, rest = text.partition(":")
    count = int(rest) if rest.isdecimal() else 0
    if kind == "local" and (count or not rest):
        return Local(count or available_cores())
    if kind == "dask" and (count or not rest):
        return Dask(None, count or available_cores())
    if kind == "dask" and ":" in rest:
        return Dask(rest)
    raise ValueError(
        f"Expected an executor local:N, dask:N or dask:ADDRESS, got {text!r}."
    )


def hung_after(task: Task) -> float:
    """Seconds after which a run that does not end is ended from outside."""
    if task.kind != "solve":  # it trains as well, for as long as it takes
        return math.inf
    return 2.0 * task.limits.seconds + GRACE


@dataclass(frozen=True)
class Local:
    """Each run in a process of its own, at most so many at a time.

    A process that dies, or does not end long after its limit, fails its own run and
    no other. All processes end when this one does, however it ends.
    """

    processes: int = 2

    @property
    def slots(self) -> int:
        """How many runs go on at a time."""
        return self.processes

    def trainers(self) -> AbstractContextManager[Submitter]:
        """A pool of as many processes."""
        return ProcessPoolExecutor(
            self.processes, mp_context=_context(), initializer=_obey
        )

    def execute(
        self,
        tasks: Sequence[Task],
        started: Callable[[Task], None],
        scratch: str | None = None,
    ) -> Iterator[Line]:
        """Lines of the tasks, as they end."""
        waiting = list(reversed(tasks))
        running: dict[Connection, _Process] = {}
        context = _context()
        try:
            while waiting or running:
                while waiting and len(running) < self.processes:
                    task = waiting.pop()
                    process = _Process(context, task, scratch)
                    running[process.answers] = process
                    started(task)
                for ready in multiprocessing.connection.wait(list(running), POLL):
                    assert isinstance(ready, Connection)
                    yield running.pop(ready).line()
                for answers, process in list(running.items()):
                    if process.elapsed() > hung_after(process.task):
                        del running[answers]
                        yield process.given_up()
        finally:
            for process in running.values():
                process.kill()


class _Process:
    """A run under way in a process of its own."""

    def __init__(self, context: BaseContext, task: Task, scratch: str | None) -> None:
        self.task = task
        self.answers, answer = context.Pipe(duplex=False)
        self._start = time.perf_counter()
        with _one_thread():
            self._process = context.Process(  # type: ignore[attr-defined]
                target=_serve, args=(task, scratch, answer), daemon=True
            )
            self._process.start()
        answer.close()  # the worker's end: when it dies, ours reads the end of file

    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self._start

    def line(self) -> Line:
        """The answer, or the line of a failure if the process died without one."""
        try:
            line: Line = self.answers.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            how = f"signal {-code}" if code < 0 else f"exit status {code}"
            return work.line(
                self.task,
                error=f"Expected a result, got the end of the process ({how}).",
                seconds=self.elapsed(),
            )
        self._process.join()
        self.answers.close()
        return line

    def given_up(self) -> Line:
        """End a process that does not end, and say so."""
        self.kill()
        return work.line(
            self.task,
            error=f"Expected an end within {self.task.limits.seconds:g} s, got none "
            f"after {self.elapsed():.0f} s.",
            seconds=self.elapsed(),
        )

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.join()
        self.answers.close()


def _serve(task: Task, scratch: str | None, answer: Connection) -> None:
    """The whole life of a worker process."""
    _obey()
    answer.send(work.run(task, scratch=scratch))
    answer.close()


def _obey() -> None:
    """Leave Ctrl-C to the parent, and end when it does, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _context() -> BaseContext:
    """Fresh processes, cheap where the system can fork a prepared one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__name__, *modules(), *SOLVERS])
    with _one_thread():  # what the prepared process reads now, its children have
        forkserver.ensure_running()
    return context


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started here get a matrix library that uses one thread.

    Several that use all cores each would wait for each other most of the time.
    """
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    for name, value in before.items():
        if value is None:
            os.environ[name] = "1"
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]


@dataclass(frozen=True)
class Dask:
    """A Dask cluster: one that is running at `address`, or one of our own.

    Workers may come and go. A run whose worker was lost is done again by another; a
    run that loses several workers counts as failed.

    Parameters
    ----------
    address
        Of a scheduler; ``None`` starts a cluster of processes on this machine.
    processes
        Of our own cluster.
    """

    address: str | None = None
    processes: int = 2

    @property
    def slots(self) -> int:
        """How many runs go on at a time, about."""
        return self.processes

    @contextmanager
    def trainers(self) -> Iterator[Submitter]:
        """The cluster, or processes of this machine if it is our own."""
        if self.address is None:
            with Local(self.processes).trainers() as pool:
                yield pool
        else:
            with self._client(require("distributed", "dask")) as client:
                yield client

    def execute(
        self,
        tasks: Sequence[Task],
        started: Callable[[Task], None],
        scratch: str | None = None,
    ) -> Iterator[Line]:
        """Lines of the tasks, as they end."""
        distributed: Any = require("distributed", "dask")
        with self._client(distributed) as client:
            waiting = list(reversed(tasks))
            under_way: dict[Any, Task] = {}
            ended = distributed.as_completed()
            try:
                while waiting or under_way:
                    # Twice as many as there are threads, so that no worker waits for
                    # us, and a worker that comes finds something to do.
                    room = 2 * max(1, sum(client.nthreads().values()))
                    while waiting and len(under_way) < room:
                        task = waiting.pop()
                        future = client.submit(
                            work.run, task, versions(), scratch, pure=False
                        )
                        under_way[future] = task
                        ended.add(future)
                        started(task)
                    future = next(ended)
                    yield _dask_line(future, under_way.pop(future))
            finally:
                client.cancel(list(under_way))

    @contextmanager
    def _client(self, distributed: Any) -> Iterator[Any]:
        if self.address is not None:
            with distributed.Client(self.address) as client:
                yield client
            return
        with (
            _one_thread(),
            distributed.LocalCluster(
                n_workers=self.processes, threads_per_worker=1, processes=True,
                dashboard_address=None, silence_logs=40,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):  # fmt: skip
            yield client


def _dask_line(future: Any, task: Task) -> Line:
    if future.status == "finished":
        line: Line = future.result()
        return line
    failure = future.exception() if future.status == "error" else None
    # KilledWorker, or whatever Dask could not send: `work.run` itself never raises.
    error = f"{type(failure).__name__}: {failure}" if failure else future.status
    return work.line(task, error=error)
