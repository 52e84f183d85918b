"""What bounds of neurons give at the root, against the exact optimum."""

import numpy as np
import pytest

from ennopt.paper.root_bound import RootBound
from ennopt.paper.targeted import Targeted
from ennopt.problem import Problem
from ennopt.result import Limits
from ennopt.run import Tools
from ennopt.tightening.lp import LpTightening
from ennopt.tightening.milp import MilpTightening
from oracles import exact_maximum, random_domain, random_ensemble

WAYS = {
    "LP": (LpTightening(),),
    "MILP": (LpTightening(), MilpTightening(outputs=False)),
    "TBP": (Targeted(nodes=50, threshold=1e-4, backend="highs"),),
}


@pytest.mark.parametrize("seed", range(4))
def test_every_way_bounds_the_optimum_and_milps_bound_no_worse_than_lps(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = random_ensemble(rng, 2, 2, (5, 5)), random_domain(rng)
    best, _ = exact_maximum(ensemble, domain)
    roots, milps = {}, {}
    for name, tightening in WAYS.items():
        result = RootBound(tightening).solve(Problem(ensemble, domain), Tools())
        root = result.details["root_bound"]
        cut = result.details["root_bound_after_cuts"]
        assert best <= cut + 1e-6 and cut <= root + 1e-9
        assert result.bound <= cut + 1e-9 and result.value <= best + 1e-9
        roots[name], milps[name] = root, result.details["milps"]
    assert milps["LP"] == 0 < milps["MILP"]
    assert milps["TBP"] <= milps["MILP"]
    assert roots["MILP"] <= roots["LP"] + 1e-6
    assert roots["MILP"] - 1e-6 <= roots["TBP"] <= roots["LP"] + 1e-6


def test_milps_of_all_neurons_are_those_of_the_deeper_layers():
    ensemble = random_ensemble(np.random.default_rng(0), 1, 2, (6, 6))
    problem = Problem(ensemble, random_domain(np.random.default_rng(1)))
    details = RootBound(WAYS["MILP"]).solve(problem, Tools()).details
    assert 0 < details["milp_neurons"] <= 6
    assert details["milp_neurons"] <= details["milps"] <= 2 * details["milp_neurons"]


@pytest.mark.parametrize("backend", ["highs", "scip", "gurobi"])
def test_cuts_along_the_tree_lower_the_bound_within_their_limit(backend):
    rng = np.random.default_rng(5)
    ensemble, domain = random_ensemble(rng, 2, 2, (5, 4)), random_domain(rng)
    best, _ = exact_maximum(ensemble, domain)
    for limit in (0, 3, 25_000):
        method = RootBound(cut_limit=limit, backend=backend)
        details = method.solve(Problem(ensemble, domain), Tools()).details
        after = details["root_bound_after_cuts"]
        assert details["cuts"] <= limit
        assert best - 1e-6 <= after <= details["root_bound"] + 1e-9
        if limit == 0:
            assert details["solver_nodes"] == 0
    if backend != "highs":  # the tree ended before it had so many cuts
        assert after == pytest.approx(best, rel=1e-3)


def test_a_time_limit_still_gives_a_bound():
    ensemble = random_ensemble(np.random.default_rng(2), 3, 3, (12, 12))
    problem = Problem(ensemble, random_domain(np.random.default_rng(3), 3))
    tools = Tools(Limits(seconds=1e-3))
    result = RootBound(WAYS["MILP"]).solve(problem, tools)
    assert np.isfinite(result.bound) and result.value <= result.bound


def test_negative_limits_are_refused():
    with pytest.raises(ValueError, match="cut_limit >= 0"):
        RootBound(cut_limit=-1)
