"""Run a solver in a thread of its own, so that Ctrl-C and the clock can end it.

A solver's C code does not return to Python's signal handling until it is done. The
caller's thread waits here instead, where Ctrl-C arrives, and asks the solver to stop.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from ennopt import clock

WAKE_SECONDS = 0.1
GRACE_SECONDS = 0.5
"""How long past its own time limit a solver may run before it is asked to stop."""


def watched(
    work: Callable[[], None], stop: Callable[[], None], time_limit: float
) -> bool:
    """Run `work` to its end; true if Ctrl-C ended it.

    Parameters
    ----------
    work
        The solve. What it raises is raised here.
    stop
        Asks the solver to stop soon; called again and again until it does.
    time_limit
        Seconds that the solver was told to keep to.
    """
    begun, done = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def body() -> None:
        begun.set()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)
        finally:
            done.set()

    begin = clock.now()
    interrupted = False
    thread = threading.Thread(target=body, name="ennopt-solver", daemon=True)
    try:
        thread.start()
        while not done.is_set():
            try:
                done.wait(WAKE_SECONDS)
                late = clock.now() - begin > time_limit + GRACE_SECONDS
                if (interrupted or late) and not done.is_set():
                    stop()
            except KeyboardInterrupt:
                if interrupted:  # pressed twice: the solver does not listen
                    raise
                interrupted = True
    finally:
        _join(begun, done, stop)
        _listen_again()
    if errors:
        raise errors[0]
    return interrupted


def _join(
    begun: threading.Event, done: threading.Event, stop: Callable[[], None]
) -> None:
    """Wait for the end of the work, whatever happens: its caller frees the model.

    An exception may reach the waiting thread at any line of it, even while the other
    thread starts.
    """
    while not done.is_set():
        try:
            if not begun.wait(GRACE_SECONDS):
                return  # it never started
            if not done.wait(WAKE_SECONDS):
                stop()
        except KeyboardInterrupt:
            continue


def _listen_again() -> None:
    """Put Python's Ctrl-C handler back, should the solver have left one of its own."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
        if handler is not None:  # None: it was not set from Python
            signal.signal(signal.SIGINT, handler)
