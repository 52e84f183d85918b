"""A solver runs in a thread of its own and leaves nothing behind."""

import _thread
import ctypes
import signal
import threading
import time

import pytest

from ennopt.milp.watch import watched


def wait_for(event: threading.Event):
    """Work that ends when it is asked to."""
    return lambda: event.wait(30) and None


def test_ctrl_c_stops_the_work():
    asked = threading.Event()
    threading.Timer(0.2, _thread.interrupt_main).start()
    assert watched(wait_for(asked), asked.set, 60.0)
    assert asked.is_set()


def test_work_past_its_limit_is_stopped():
    asked = threading.Event()
    assert not watched(wait_for(asked), asked.set, 0.1)
    assert asked.is_set()


def test_what_the_work_raises_is_raised():
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watched(fail, lambda: None, 60.0)


def test_ctrl_c_works_after_a_solver_that_took_it():
    c = ctypes.CDLL(None)
    c.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    ignore = 1  # SIG_IGN

    def take() -> None:
        c.signal(signal.SIGINT, ignore)

    watched(take, lambda: None, 60.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_solve_in_another_thread_leaves_handlers_alone():
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=watched, args=(time.time, lambda: None, 1.0))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before
