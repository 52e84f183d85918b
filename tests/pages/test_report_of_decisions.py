"""A report of a decision tells its risk and its limits, too."""

import numpy as np
import pytest

import ennopt
from ennopt import Ensemble
from ennopt.pages import drawn, told
from ennopt.pages.drawn import lines, slices
from ennopt.pages.limited import limited
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
    assert told.verdict(answer).title == "Smallest a + 100"
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
    assert "The line is a + 100, what was optimized." in text
    assert "prediction for" not in text and "best prediction" not in text


def test_an_objective_with_a_name_is_called_by_it(trio):
    strength = ennopt.Prediction(trio, name="strength")
    cost = ennopt.linear({"a": 1.0, "b": 2.0}).named("cost")
    answer = ennopt.minimize(cost, (-1, 1), limits=[strength >= -0.1, cost >= -2])
    assert answer.headline.startswith("Minimum of cost: ")
    assert "\n  members of strength predict " in answer.summary()
    assert "\n  cost >= -2: " in answer.summary()
    assert told.verdict(answer).title == "Smallest cost"
    assert told.tiles(answer)[0]["words"] == "cost at the recipe"
    assert "the smallest cost found so far" in page(answer)
    again = ennopt.Result.from_json(answer.to_json())
    assert again.summary() == answer.summary()
    plain = ennopt.maximize(trio, (-1, 1))
    assert plain.headline.startswith(f"Maximum {plain.value:.8g}, proved")
    assert told.verdict(plain).title == "Largest prediction"


def test_limits_and_trust_that_say_it_all_are_repeated_as_they_were(trio, rng):
    rows = rng.uniform(-1, 1, size=(12, 2))
    given = {
        "limits": ["prediction <= 0.25", "prediction - a >= -3"],
        "trust": ["box", ennopt.Near(radius=0.5, count=2)],
        "risk": ennopt.Cvar(0.5),
    }
    answer = ennopt.maximize(trio, data=rows, threads=1, gap=1e-2, **given)
    text = repeat(answer.asked, "max")
    assert "..." not in text
    again = eval(text, {"ennopt": ennopt, "model": trio, "X": rows})
    assert (again.value, again.bound) == (answer.value, answer.bound)
    other = ennopt.Prediction(trio, risk="worst") >= -9
    mixed = ennopt.maximize(trio, (-1, 1), limits=[other])
    assert "limits=[...]," in repeat(mixed.asked, "max")  # another risk than the goal


def test_what_is_limited_is_shown_as_what_is_optimized_is(trio):
    strength = ennopt.Prediction(trio, name="strength")
    cost = ennopt.linear({"a": 1.0, "b": 2.0}).named("cost")
    limits = [strength >= -0.1, strength <= 90, strength.std() <= 9, cost >= -50]
    answer = ennopt.minimize(cost, (-1, 1), limits=limits)
    found = limited(answer)
    assert [one.name for one in found] == ["strength", "std(strength)"]
    own = float(trio(answer.x[None])[0, 0])
    assert float(found[0].tile["number"]) == pytest.approx(own, rel=1e-5, abs=1e-5)
    assert "strength >= -0.1" in found[0].tile["words"]
    assert "strength <= 90" in found[0].tile["words"]
    assert len(lines(answer, found[0].problem)[0].members) == 3
    one = lines(answer, found[1].problem)[0]
    points = np.tile(answer.x, (len(one.at), 1))
    points[:, one.coordinate.inputs[0]] = one.at
    assert one.values == pytest.approx(trio.member_values(points)[:, :, 0].std(axis=0))
    levels = [m for chart in found[0].slices(answer) for m in chart.marks]
    assert "asked" in str([m.attributes for m in levels])
    text = page(answer)
    assert "What is limited: strength" in text
    assert "better" not in text.replace("nothing better", "").replace(
        "anything better", ""
    )
    assert "What each member predicts of strength" in text
    assert limited(ennopt.maximize(trio, (-1, 1), limits="prediction <= 1")) == []


def test_a_constraint_on_one_input_narrows_the_range_that_is_shown(trio):
    answer = ennopt.minimize(
        ennopt.Input("a"), (-1, 1), constraints=["a >= 0.25", "-4*b >= -2"],
        limits=ennopt.Prediction(trio) >= -100,
    )  # fmt: skip
    one, two = told.recipe(answer)
    assert (one["low"], one["high"], one["place"]) == ("0.25", "1", "at the lower end")
    assert one["by"] == ["a >= 0.25"]
    assert (two["low"], two["high"]) == ("-1", "0.5")
    assert "by <code>a &gt;= 0.25</code>" in page(answer)


def test_a_cost_is_compared_with_data_by_its_one_prediction(trio, rng):
    rows = rng.uniform(-1, 1, size=(30, 2))
    strength = ennopt.Prediction(trio, name="strength")
    y = trio(rows)[:, 0]
    given = {"data": rows, "target": y, "limits": [strength >= float(np.median(y))]}
    answer = ennopt.minimize(ennopt.Input("a") + 100, [(-9, 9)] * 2, **given)
    away = answer.extrapolation
    assert away.value == pytest.approx(float(trio(answer.x[None])[0, 0]))
    assert away.target_range == (y.min(), y.max())
    assert away.measured == y[away.nearest[0]]
    text = page(answer)
    assert "was measured; the prediction is" in text
    assert "Do not believe the predictions behind this yet" in text
    assert all(
        "row" not in str(m.attributes)
        for c in slices(answer, lines(answer))
        for m in c.marks
    )  # dots would be in another unit
