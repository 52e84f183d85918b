"""A threshold is decided by a point or by a bound, whichever comes first."""

import numpy as np
import pytest

from ennopt import Domain, Problem, Status, solve
from ennopt.cli.main import main
from oracles import random_ensemble

DECIDED = (Status.THRESHOLD, Status.OPTIMAL)


@pytest.mark.parametrize("method", ["box", "neurons", "bigm"])
@pytest.mark.parametrize("sense", ["max", "min"])
def test_a_threshold_is_decided_truly(method, sense, rng):
    ensemble = random_ensemble(rng, 2, 2, (5,))
    problem = Problem(ensemble, Domain([-1.0] * 2, [1.0] * 2), sense)
    best = solve(problem)
    sign = 1.0 if sense == "max" else -1.0
    size = max(abs(best.value), 0.1)
    for away in (-0.1, 0.01):
        threshold = best.value + sign * away * size
        found = solve(problem, method, threshold=threshold)
        assert found.status in DECIDED
        reached = sign * found.value >= sign * threshold
        excluded = sign * found.bound < sign * threshold
        assert reached == (away < 0)
        assert excluded == (away > 0)
        assert found.nodes <= solve(problem, method).nodes


def test_a_threshold_is_a_finite_number(rng):
    problem = Problem(random_ensemble(rng, 1, 2, (4,)), Domain([-1] * 2, [1] * 2))
    for wrong in (np.nan, np.inf, "much"):
        with pytest.raises(ValueError, match="threshold"):
            solve(problem, threshold=wrong)


def test_the_command_line_says_that_the_threshold_is_decided(tmp_path, rng, capsys):
    path = tmp_path / "model.npz"
    random_ensemble(rng, 2, 4, (10, 10)).save(path)
    options = ["--lower", "-1", "--upper", "1", "--threshold", "-100", "--quiet"]
    assert main(["solve", str(path), *options]) == 0
    assert "threshold is decided" in capsys.readouterr().out
