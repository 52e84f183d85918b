"""Certificates of problems with limits on predictions and risks."""

from dataclasses import replace

import numpy as np
import pytest

import ennopt
from ennopt import (
    Cvar,
    Domain,
    Ensemble,
    MeanMinusMad,
    MeanMinusStd,
    Network,
    Prediction,
    verify,
)
from ennopt.certificate.checker import check
from ennopt.certificate.record import Certificate, CertificateError
from oracles import random_ensemble

RISKS = ["worst", Cvar(0.6), MeanMinusStd(1.0), MeanMinusMad(0.7)]


def decided(path, seed, **keywords):
    """A risky maximum with a limit that costs something, certified."""
    rng = np.random.default_rng(seed)
    model = random_ensemble(rng, 3, 2, (5, 4))
    other = random_ensemble(rng, 2, 2, (4,))
    domain = Domain([-1.0] * 2, [1.0] * 2)
    ranges = other(domain.sample(200, rng))[:, 0]
    limit = Prediction(other, name="other") <= float(np.quantile(ranges, 0.4))
    answer = ennopt.maximize(
        model, domain, limits=[limit], certificate=path, threads=1, gap=1e-3, **keywords
    )
    return model, other, answer


@pytest.mark.parametrize("risk", [None, *RISKS], ids=repr)
@pytest.mark.parametrize("seed", [0, 1])
def test_limits_and_risks_are_verified_and_wrong_ones_are_not(risk, seed, tmp_path):
    path = tmp_path / "proof.cert"
    model, other, answer = decided(path, seed, risk=risk)
    assert answer.status is ennopt.Status.OPTIMAL
    verdict = verify(path, model, others=[other])
    assert verdict, verdict.reason
    assert sum("<=" in line for line in verdict.claim) == 1
    claim = Certificate.read(path, [model, other])
    size = abs(claim.value) + 1e-3
    assert not check(replace(claim, bound=claim.value - 1e-6 * size))
    assert not check(replace(claim, value=claim.value + 1e-8 * size))
    alone = replace(claim, x=None, value=float("nan"))
    assert not check(replace(alone, bound=claim.value - 0.01 * size))
    # A tighter limit makes the point infeasible.
    (limit,) = claim.problem.limits
    tight = replace(limit, least=limit.least + 0.5 * (1.0 + abs(limit.least)))
    assert not check(replace(claim, problem=replace(claim.problem, limits=(tight,))))
    # A slack that is as wide as the limit makes it another limit.
    for wide in (1.0, float("inf")):
        loose = check(replace(claim, slack=(np.array([wide]),)))
        assert "another limit" in loose.reason
    # The models belong to the claim.
    assert "another model" in verify(path, model).reason


def test_without_its_limit_or_with_another_risk_a_claim_is_wrong(tmp_path):
    path = tmp_path / "proof.cert"
    model, other, answer = decided(path, 0, risk="worst")
    free = ennopt.maximize(model, answer.asked.problem.domain, risk="worst")
    assert free.value > answer.value + 0.01  # the limit costs something here
    claim = Certificate.read(path, [model, other])
    assert check(claim)
    unlimited = replace(claim.problem, limits=())
    assert not check(replace(claim, problem=unlimited, slack=()))
    (term,) = claim.problem.goal.terms
    for risk in (None, Cvar(0.9)):
        goal = replace(claim.problem.goal, terms=(replace(term, risk=risk),))
        assert not check(replace(claim, problem=replace(claim.problem, goal=goal)))
    with pytest.raises(CertificateError, match="for your limits"):
        verify(path, model, unlimited, others=[other])
    assert verify(path, model, claim.problem, others=[other])


def test_limits_that_nothing_meets_are_certified(tmp_path, rng):
    model = random_ensemble(rng, 2, 2, (5,))
    most = float(ennopt.maximize(model, [(-1, 1)] * 2).bound)
    path = tmp_path / "proof.cert"
    answer = ennopt.maximize(
        ennopt.linear({"x0": 1.0}), Domain([-1.0] * 2, [1.0] * 2), certificate=path,
        limits=[Prediction(model) >= most + 0.1],
    )  # fmt: skip
    assert answer.status is ennopt.Status.INFEASIBLE
    assert verify(path, model).reason == "No input is feasible."
    claim = Certificate.read(path, model)
    (limit,) = claim.problem.limits
    met = replace(claim.problem, limits=(replace(limit, least=most - 1.0),))
    assert not check(replace(claim, problem=met), most_pieces=500)


def members_of_scales(scales):
    """Members ``scale * (|x0| - |x1|)`` and so on, of very different sizes."""
    weights = [
        [[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]],
         [[scale, scale, turn * scale, turn * scale]]]
        for scale, turn in zip(scales, (-1.0, 0.5), strict=True)
    ]  # fmt: skip
    return Ensemble([Network(w, [np.zeros(4), np.zeros(1)]) for w in weights])


@pytest.mark.parametrize("scales", [(1.0, 1e6), (1e6, 1.0), (1.0, 1.0)], ids=repr)
def test_each_member_has_its_own_slack_in_a_limit_on_the_worst(scales, tmp_path):
    """The largest slack of all would let points count that the search excludes."""
    path = tmp_path / "proof.cert"
    model = members_of_scales(scales)
    worst = Prediction(model, risk="worst", name="worst")
    answer = ennopt.minimize(
        ennopt.linear({"x0": 1.0}), Domain([0.1, 0.2], [1.0, 1.0]), limits=[worst >= 0],
        certificate=path, gap=1e-6, threads=1,
    )  # fmt: skip
    assert answer.status is ennopt.Status.OPTIMAL
    verdict = verify(path, model)
    assert verdict, verdict.reason
    claim = Certificate.read(path, model)
    (slack,) = claim.slack
    assert slack.shape == (2,)
    assert (slack[0] < slack[1]) == (scales[0] < scales[1])
    # A slack for each member belongs to the worst of so many members only.
    (limit,) = claim.problem.limits
    (term,) = limit.function.terms
    for other in (replace(term, risk=Cvar(0.9)), replace(term, risk=None)):
        function = replace(limit.function, terms=(other,))
        problem = replace(claim.problem, limits=(replace(limit, function=function),))
        assert not check(replace(claim, problem=problem))
    assert not check(replace(claim, slack=(np.zeros(3),)))
