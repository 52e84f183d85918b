"""A report of a decision tells its risk and its limits, too."""

import pytest

import ennopt
from ennopt import Ensemble
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
