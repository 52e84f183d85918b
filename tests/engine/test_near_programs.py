"""Boxes near rows of data that linear programs finish are covered."""

import numpy as np
import pytest

from ennopt import BoxSearch, NeuronSearch, Status, solve
from ennopt.domain import Domain
from ennopt.domain.regions import NearRows
from ennopt.domain.values import Values
from ennopt.problem import Problem
from oracles import random_ensemble


def problem_of(seed):
    rng, whole = np.random.default_rng(seed), seed % 2 == 0
    ensemble = random_ensemble(rng, 1, 2, (8,) if seed % 3 else (6, 5))
    data = rng.uniform(-2.5, 2.5, size=(int(rng.integers(3, 25)), 2))
    if whole:
        data[:, 0] = np.round(data[:, 0])
    near = NearRows.rows(data, radius=rng.uniform(0.05, 0.6, size=2))
    domain = Domain(
        [-3.0, -3.0], [3.0, 3.0], values=Values.of(2, [0] if whole else [], {}),
        regions=(near,),
    )  # fmt: skip
    return Problem(ensemble, domain)


@pytest.mark.parametrize("seed", [50604, 50065, 1458, *range(40)])
def test_both_searches_agree_near_rows_of_data(seed):
    """Programs of boxes split inputs whose ends their nodes do not have."""
    problem = problem_of(seed)
    boxes = BoxSearch(starts=0, polished=0)
    results = [
        solve(problem, method, gap=1e-6, threads=1)
        for method in (boxes, NeuronSearch())
    ]
    rng = np.random.default_rng(0)
    points = problem.domain.sample(200, rng)
    best = problem.values(points).max(initial=-np.inf)
    for result in results:
        assert result.status is Status.OPTIMAL
        assert result.bound >= max(best, *(one.value for one in results)) - 1e-9
