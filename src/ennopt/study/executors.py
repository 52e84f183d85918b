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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from ennopt import clock
from ennopt.extras import require
from ennopt.learn.selection import Submitter
from ennopt.run import available_cores
from ennopt.study import work
from ennopt.study.expression import modules
from ennopt.study.machine import difference, versions
from ennopt.study.plan import Task
from ennopt.study.record import Line

GRACE = 60.0
"""Seconds beyond twice its time limit after which a run counts as hung."""

BUSY = 10.0
"""The same factor for runs that count processor time: how busy a machine may be."""

LOSSES = 3
"""Workers that a run may lose before it counts as failed."""

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


def executor_named(text: str, tls: tuple[str, str, str] | None = None) -> Executor:
    """The executor that `text` stands for; `tls` as in `Dask`.

    ``local:2`` is two processes, ``dask:2`` a Dask cluster of two processes on this
    machine, and ``dask:tcp://HOST:PORT`` a Dask scheduler that is running already.

    Examples
    --------
    >>> executor_named("local:2")
    Local(processes=2)
    >>> executor_named("dask:tcp://10.0.0.1:8786")
    Dask(address='tcp://10.0.0.1:8786', processes=2, tls=None)
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
        if (tls is not None) != rest.startswith("tls://"):
            raise ValueError(
                f"Expected the three files of --tls together with an address tls://, "
                f"got {text!r}{'' if tls is None else ' with --tls'}."
            )
        return Dask(rest, tls=tls)
    raise ValueError(
        f"Expected an executor local:N, dask:N or dask:ADDRESS, got {text!r}."
    )


def hung_after(task: Task) -> float:
    """Seconds after which a run that does not end is ended from outside."""
    if task.kind != "solve":  # it trains as well, for as long as it takes
        return math.inf
    patience = BUSY if task.seconds_of == "processor" else 2.0
    return patience * task.limits.seconds + GRACE


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

    @contextmanager
    def trainers(self) -> Iterator[Submitter]:
        """A pool of as many processes; an error or Ctrl-C ends what it is doing."""
        context = _context()
        told, tell = context.Pipe(duplex=False)
        with (
            told,
            ProcessPoolExecutor(
                self.processes, mp_context=context, initializer=_obey, initargs=(told,)
            ) as pool,
            tell,
        ):  # closed first: the pool would wait for trainings under way
            yield pool

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
        except (EOFError, OSError):  # it died before, or while it was sending
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
        return _hung(self.task, self.elapsed())

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.join()
        self.answers.close()


def _hung(task: Task, elapsed: float) -> Line:
    """The line of a run that did not end."""
    return work.line(
        task,
        error=f"Expected an end within {task.limits.seconds:g} s, got none after "
        f"{elapsed:.0f} s.",
        seconds=elapsed,
    )


def _serve(task: Task, scratch: str | None, answer: Connection) -> None:
    """The whole life of a worker process."""
    _obey()
    if task.seconds_of == "processor":
        clock.count_processor_time()
    answer.send(work.run(task, scratch=scratch))
    answer.close()


def _obey(*told: Connection) -> None:
    """Leave Ctrl-C to the parent, and end when it does, however it ends.

    End as well when the other end of one of the connections is closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=told, daemon=True).start()


def _end_with_parent(*told: Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel, *told])
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

    Workers may come and go; those of other versions are not used. Each thread has one
    run at a time. A run whose worker was lost is done again by another; a run that
    loses several workers counts as failed.

    Parameters
    ----------
    address
        Of a scheduler; ``None`` starts a cluster of processes on this machine.
    processes
        Of our own cluster.
    tls
        Files for a scheduler at a ``tls://`` address: certificates of the authority,
        our own certificate and its key.
    """

    address: str | None = None
    processes: int = 2
    tls: tuple[str, str, str] | None = None

    @property
    def slots(self) -> int:
        """How many runs go on at a time, about: the scheduler is asked."""
        if self.address is None:
            return self.processes
        with self._client(require("distributed", "dask")) as client:
            return max(1, sum(_Crew(client).threads().values()))

    @contextmanager
    def trainers(self) -> Iterator[Submitter]:
        """The cluster, or processes of this machine if it is our own."""
        if self.address is None:
            with Local(self.processes).trainers() as pool:
                yield pool
        else:
            with self._client(require("distributed", "dask")) as client:
                yield _Crew(client)

    def execute(
        self,
        tasks: Sequence[Task],
        started: Callable[[Task], None],
        scratch: str | None = None,
    ) -> Iterator[Line]:
        """Lines of the tasks, as they end."""
        if any(task.seconds_of == "processor" for task in tasks):
            raise ValueError(
                "Expected --executor local:N for runs that count processor time, got "
                "a Dask cluster, whose processes may do several runs at once."
            )
        with self._client(require("distributed", "dask")) as client:
            crew = _Crew(client)
            waiting = list(reversed(tasks))
            under_way: dict[str, _Sent] = {}
            ended: SimpleQueue[str] = SimpleQueue()
            try:
                while waiting or under_way:
                    threads = crew.threads()
                    busy = Counter(sent.worker for sent in under_way.values())
                    for worker, count in threads.items():
                        for _ in range(min(count - busy[worker], len(waiting))):
                            sent = crew.send(waiting.pop(), worker, scratch, ended)
                            under_way[sent.future.key] = sent
                            started(sent.task)
                    for key in _over(under_way, threads, ended):
                        sent = under_way.pop(key)
                        line = crew.outcome(sent)
                        if line is None:
                            waiting.append(sent.task)
                        else:
                            yield line
            finally:
                client.cancel([sent.future for sent in under_way.values()])

    def _security(self) -> Any:
        """What Dask is told about encryption; ``None`` leaves it to its own files."""
        if self.tls is None:
            return None
        authority, certificate, key = self.tls
        return require("distributed.security", "dask").Security(
            tls_ca_file=authority, tls_client_cert=certificate, tls_client_key=key,
            require_encryption=True,
        )  # fmt: skip

    @contextmanager
    def _client(self, distributed: Any) -> Iterator[Any]:
        if self.address is not None:
            with distributed.Client(self.address, security=self._security()) as client:
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


@dataclass(frozen=True)
class _Sent:
    """A run under way on a worker."""

    task: Task
    worker: str
    future: Any
    start: float

    def elapsed(self) -> float:
        """Seconds since it was sent."""
        return time.perf_counter() - self.start


def _over(
    under_way: dict[str, _Sent], threads: dict[str, int], ended: SimpleQueue[str]
) -> list[str]:
    """Runs that ended, that lost their worker, or that do not end; waits a little."""
    try:
        answered = ended.get(timeout=POLL)
    except Empty:
        answered = ""
    return [
        key
        for key, sent in under_way.items()
        if key == answered
        or sent.worker not in threads
        or sent.elapsed() > hung_after(sent.task)
    ]


class _Crew:
    """The workers of a cluster that have the versions of the plan."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._expected = versions(compiled=False)
        self._differences: dict[str, str] = {}  # empty text: none
        self._met = False  # a worker that can be used: it may come back
        self._blocked: Counter[str] = Counter()  # threads whose run does not end
        self._losses: Counter[str] = Counter()
        client.wait_for_workers(1)

    def threads(self) -> dict[str, int]:
        """Threads of each worker that can be used; new workers are asked first."""
        try:
            present: dict[str, int] = self._client.nthreads()
        except OSError as error:
            raise ConnectionError(
                f"Expected an answer of the scheduler, got none: {error}. Run the "
                "study again to continue."
            ) from error
        new = [worker for worker in present if worker not in self._differences]
        if new:
            self._ask(new)
        told = {w: self._differences[w] for w in present if w in self._differences}
        equal = [worker for worker, text in told.items() if not text]
        used = {worker: present[worker] - self._blocked[worker] for worker in equal}
        self._met = self._met or bool(used)
        if told and not self._met:
            raise ValueError(
                "Expected a worker with the versions of the plan, got none. "
                f"{next(iter(told.values()))} Install the same versions."
            )
        if used and not any(used.values()):
            raise ConnectionError(
                "Expected a free worker, got only such whose run does not end. Start "
                "the workers and the study again."
            )
        return used

    def _ask(self, workers: list[str]) -> None:
        answers = self._client.run(
            versions, compiled=False, workers=workers, on_error="return"
        )
        for worker, found in answers.items():
            if isinstance(found, dict):
                self._differences[worker] = difference(self._expected, found)
            elif not isinstance(found, OSError):  # that one has left already
                self._differences[worker] = f"{type(found).__name__}: {found}."

    def submit(self, function: Any, /, *arguments: Any) -> Any:
        """A future of the call, on one of the workers."""
        return self._client.submit(function, *arguments, workers=list(self.threads()))

    def send(
        self, task: Task, worker: str, scratch: str | None, ended: SimpleQueue[str]
    ) -> _Sent:
        """Start a run on a worker; `ended` will hear its key."""
        future = self._client.submit(
            work.run, task, self._expected, scratch, pure=False, workers=[worker]
        )
        future.add_done_callback(lambda done: ended.put(done.key))
        return _Sent(task, worker, future, time.perf_counter())

    def outcome(self, sent: _Sent) -> Line | None:
        """The line of a run that is over; ``None`` when it is to be done again."""
        future, task = sent.future, sent.task
        match future.status:
            case "finished":
                try:
                    line: Line = future.result(timeout=GRACE)
                except (OSError, CancelledError):  # lost with its worker
                    return self._lost(sent)
                return line
            case "error":
                failure = future.exception()
                if isinstance(failure, work.DifferentWorkerError):
                    self._differences[sent.worker] = str(failure)
                    self._met = False
                    return None
                return work.line(task, error=f"{type(failure).__name__}: {failure}")
            case "pending" if sent.elapsed() > hung_after(task):
                self._client.cancel([future])
                self._free(sent.worker)
                return _hung(task, sent.elapsed())
            case "pending":
                return self._lost(sent)
            case _:  # cancelled: the scheduler was lost
                return None

    def _lost(self, sent: _Sent) -> Line | None:
        self._client.cancel([sent.future])
        self._losses[sent.task.key] += 1
        if self._losses[sent.task.key] < LOSSES:
            return None
        return work.line(
            sent.task, error=f"Expected a result, got the end of {LOSSES} workers."
        )

    def _free(self, worker: str) -> None:
        """Restart a worker whose run does not end, or leave its thread alone."""
        try:
            ends = self._client.restart_workers([worker], raise_for_error=False)
        except ValueError:  # nothing watches over this worker
            ends = {}
        if ends.get(worker) not in ("OK", "removed"):
            self._blocked[worker] += 1
