"""Shared by all tests."""

import os
import signal

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.fixture(autouse=True)
def ctrl_c_raises():
    """Give each test Python's own SIGINT handler: a solver may leave another one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
