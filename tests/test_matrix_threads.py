"""A run with one thread holds NumPy's matrix library to one thread, and lets it go."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import ennopt
from ennopt import run
from oracles import random_ensemble


def of_the_matrix_library():
    return {
        one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"
    }


def test_one_thread_holds_for_the_matrix_library_until_the_run_ends(rng, monkeypatch):
    monkeypatch.setattr(run, "available_cores", lambda: 2)
    ensemble = random_ensemble(rng, 2, 3, (8, 8)).on_box(-np.ones(3), np.ones(3))
    seen = set()

    def listen(progress):
        seen.update(of_the_matrix_library())

    with threadpool_limits(2, user_api="blas"):
        if of_the_matrix_library() != {2}:
            pytest.skip("the matrix library knows no threads")
        ennopt.maximize(ensemble, threads=1, callback=listen)
        assert seen == {1}
        assert of_the_matrix_library() == {2}
