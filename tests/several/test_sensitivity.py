"""What an answer loses without each member, beside runs without it."""

import json
import math

import numpy as np
import pytest

import ennopt
from ennopt import Ensemble, Input, Prediction, Status, sensitivity
from oracles import random_ensemble, random_network


def without(trio, i):
    return Ensemble([m for k, m in enumerate(trio.members) if k != i])


@pytest.mark.parametrize("sense", ["max", "min"])
def test_regret_is_what_the_answer_loses_against_the_best_without_a_member(sense, rng):
    trio = Ensemble(random_ensemble(rng, 3, 2, (6,)).members)
    report = sensitivity(trio, (-1, 1), sense=sense)
    best = ennopt.maximize if sense == "max" else ennopt.minimize
    assert report.status is Status.OPTIMAL
    assert [row.member for row in report.rows] == [0, 1, 2]
    for i, row in enumerate(report.rows):
        alone = without(trio, i)
        assert row.result.value == pytest.approx(best(alone, (-1, 1)).value, rel=1e-3)
        there = alone(report.answer.x)[0]
        assert row.value == pytest.approx(there, rel=1e-9)
        assert row.regret == pytest.approx(abs(row.result.value - there), abs=1e-9)
        assert row.regret <= row.regret_bound
    assert report.most.regret == max(row.regret for row in report.rows)


def test_limits_that_the_answer_misses_without_a_member_are_named(rng):
    trio = Ensemble(random_ensemble(rng, 3, 2, (6,)).members)
    level = ennopt.maximize(trio, (-1, 1)).value - 0.3
    own = Prediction(trio, name="own")
    report = sensitivity(Input("x0"), (-1, 1), sense="min", limits=own >= level)
    x = report.answer.x
    for i, row in enumerate(report.rows):
        there = without(trio, i)(x)[0]
        assert bool(row.missed) == (there < level - 1e-6)
        line = report.summary().splitlines()[3 + i]
        assert line.startswith(f"  own, member {i + 1}")
        if row.missed:
            assert math.isinf(row.regret)
            infeasible = row.result.status is Status.INFEASIBLE
            told = "infeasible without it" if infeasible else "misses own >= "
            assert told in line
    assert any(row.missed for row in report.rows)


def test_weights_keep_their_sum(rng):
    nets = [random_network(rng, 1, (3,)) for _ in range(3)]
    weighted = Ensemble(nets, [1.0, 2.0, 3.0])
    report = sensitivity(weighted, (-1, 1))
    x = report.answer.x
    rest = 6.0 / 5.0 * (2.0 * nets[1](x) + 3.0 * nets[2](x))[0]
    assert report.rows[0].value == pytest.approx(rest, rel=1e-12)


def test_a_model_in_objective_and_limit_loses_the_member_in_both(rng):
    trio = Ensemble(random_ensemble(rng, 3, 2, (5,)).members)
    own = Prediction(trio, name="own")
    cap = ennopt.maximize(own, (-1, 1)).member_std / 2 + 0.05
    report = sensitivity(own, (-1, 1), limits=own.std() <= cap)
    assert len(report.rows) == 3
    for i, row in enumerate(report.rows):
        if row.result.x is not None:
            each = [m(row.result.x)[0] for m in without(trio, i).members]
            assert np.std(each) <= cap + 1e-7
            assert row.result.value == pytest.approx(np.mean(each), rel=1e-9)


def test_reports_are_told_in_tables_and_json(rng):
    report = sensitivity(random_ensemble(rng, 2, 2, (4,)), (-1, 1))
    assert len(report.to_frame()) == 2
    assert len(json.loads(report.to_json())["without"]) == 2
    assert "without" in report.summary()
    with pytest.raises(ValueError, match="at least two networks"):
        sensitivity(random_network(rng, 2, (4,)), (-1, 1))


def test_infeasible_decisions_have_no_report(rng):
    trio = random_ensemble(rng, 3, 2, (4,))
    most = ennopt.maximize(trio, (-1, 1)).bound
    report = sensitivity(trio, (-1, 1), limits=f"prediction >= {most + 1}")
    assert report.status is Status.INFEASIBLE
    assert report.rows == ()
    assert report.summary().startswith("Infeasible")
