"""Shared by all tests."""

import os

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
