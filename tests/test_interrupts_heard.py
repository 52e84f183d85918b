"""Ctrl-C ends a run even where Python prints the exception and forgets it."""

import signal
import threading

import numpy as np
import pytest

from ennopt.engine.box_search import BoxSearch
from ennopt.interrupts import Ears
from ennopt.paper.bigm import BigM
from ennopt.paper.two_phase import TwoPhase
from ennopt.result import Status
from ennopt.run import Tools
from oracles import canonical, random_domain, random_ensemble


class Dying:
    """Ctrl-C comes while this object is destroyed."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        signal.raise_signal(self.number)


@pytest.fixture
def term():
    """SIGTERM as the command line takes it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("method", [BoxSearch(), BigM(), TwoPhase()])
def test_an_interruption_in_a_destructor_ends_the_run(method, number, rng, term):
    problem = canonical(random_ensemble(rng, 4, 3, (30, 30)), random_domain(rng, 3))
    told = []

    def callback(moment):
        told.append(moment)
        if len(told) == 1:
            Dying(number)

    handler = signal.getsignal(number)
    tools = Tools.of(threads=1, gap=1e-9, time_limit=60, callback=callback)
    result = method.solve(problem, tools)
    assert result.status is Status.INTERRUPTED
    assert result.value <= result.bound < np.inf
    assert signal.getsignal(number) is handler


def test_a_handler_that_does_not_raise_is_no_interruption():
    calls, heard = [], []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append("own"))
    try:
        ears = Ears(lambda: heard.append("ears"))
        ears.open()
        signal.raise_signal(signal.SIGINT)
        ears.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (calls, heard) == (["own"], [])


def test_a_handler_set_in_the_meantime_is_left_alone():
    before = signal.getsignal(signal.SIGINT)
    ears = Ears(lambda: None)
    ears.open()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ears.close()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_leaves_the_handlers_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def body():
        ears = Ears(lambda: None)
        ears.open()
        seen.append(signal.getsignal(signal.SIGINT))
        ears.close()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [before]
