"""A report of a decision tells its risk and its limits, too."""

import numpy as np
import pytest

import ennopt
from ennopt import Ensemble
from ennopt.pages import drawn, told
from ennopt.pages.render import page
from ennopt.pages.repeat import repeat
from oracles import random_ensemble


@pytest.fixture
def trio(rng):
    return Ensemble(random_ensemble(rng, 3, 2, (5,)).members, input_names=["a", "b"])


def test_the_lines_that_ask_again_name_risk_and_limits(trio, tmp_path):
    worst = ennopt.maximize(trio, (-1, 1), risk=ennopt.Cvar(0.5))
    assert "risk=ennopt.Cvar(share=0.5)," in repeat(worst.asked, "max")
    limit = ennopt.Prediction(trio, name="yield") >= -100
    least = ennopt.minimize(ennopt.Input("a"), (-1, 1), limits=[limit])
    lines = repeat(least.asked, "min")
    assert "goal,  # the expression given" in lines
    assert "limits=[...],  # yield >= -100" in lines
    least.report(tmp_path / "report.html")
    assert "yield &gt;= -100" in (tmp_path / "report.html").read_text("utf-8")


def test_a_report_of_a_cost_does_not_call_it_a_prediction(trio):
    limit = ennopt.Prediction(trio, name="yield") >= -0.1
    cost = ennopt.Input("a") + 100
    answer = ennopt.minimize(cost, (-1, 1), limits=[limit])
    assert told.verdict(answer).title == "Smallest objective"
    own = float(trio(answer.x[None])[0, 0])
    assert told.predicted(answer) == pytest.approx(own)
    chart = drawn.members(answer)
    assert chart.x.high < 90  # the cost, about 100, is in another unit
    for one in drawn.lines(answer):
        assert len(one.members) == 0
        problem = answer.asked.problem
        points = np.tile(answer.x, (len(one.at), 1))
        points[:, one.coordinate.inputs[0]] = one.at
        reached = trio(points)[:, 0] >= -0.1 - 1e-6
        assert np.array_equal(one.feasible, reached & problem.domain.feasible(points))
    text = page(answer)
    assert "The line is what was optimized." in text and "prediction for" not in text
