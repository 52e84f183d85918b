"""What the fields of the page ask is what the same keywords ask."""

from dataclasses import replace

import numpy as np
import pytest
from exploring import NAMES, subject_of

import ennopt
from ennopt.columns import Group, Number
from ennopt.domain import Domain
from ennopt.domain.data import Data
from ennopt.domain.extrapolation import Extrapolation
from ennopt.explore import look
from ennopt.explore.answers import IN_THE_FORM, content, warned
from ennopt.explore.form import FormError, read_form, shown_coordinates
from oracles import random_ensemble

ASKED = {
    "bounds": {"low-0": "-0.5", "high-1": "2.25"},
    "smallest": {"sense": "min", "fixed-1": "2"},
    "constraints": {"constraints": "cement + 2*`water <b>` <= 3\n\ncement >= -0.75"},
    "discrete": {"whole-1": "on", "values-0": "-0.5, 0 0.25"},
    "categories": {"categories": "plant = plant_A, plant_B", "level-2": "1"},
    "levels": {"categories": "plant = A: plant_A, B: plant_B"},
    "near": {"trust": "near", "trust_radius": "0.4", "trust_count": "2"},
    "hull": {"trust": "box"},
    "risk": {"risk": "cvar", "risk_number": "0.7"},
    "worst": {"risk": "worst", "sense": "min"},
    "limits": {"limits": "prediction - cement <= 0.25"},
}


@pytest.mark.parametrize("fields", ASKED.values(), ids=ASKED)
def test_the_script_of_a_form_gives_the_answer_of_the_form(fields, subject):
    form = subject.start() | fields
    question = read_form(subject, form)
    answer = question.solve(lambda moment: False)
    space = {}
    exec(content(answer, "answer.py").replace("print(answer)", ""), space)
    again = space["answer"]
    left = max(abs(one.bound - one.value) for one in (answer, again))
    assert again.proved and answer.proved  # threads may end at either end of the gap
    assert abs(again.value - answer.value) <= left
    assert repr(again.asked.problem.domain) == repr(answer.asked.problem.domain)
    assert again.sense == form["sense"]


def test_fields_reach_the_problem(subject):
    form = subject.start() | {
        "low-0": "-0.5", "whole-1": "on", "categories": "plant = plant_A, plant_B",
        "level-2": "0", "trust": "near", "limits": "prediction >= -50",
        "constraints": "cement <= 0.5", "risk": "std", "risk_number": "2",
        "time_limit": "9", "gap": "0.01",
    }  # fmt: skip
    question = read_form(subject, form)
    domain = question.problem.domain
    assert domain.lower[0] == -0.5
    assert domain.values.whole[1]
    assert domain.lower[2:].tolist() == [1.0, 0.0] and len(domain.groups) == 1
    assert domain.regions and domain.rows.texts == ("cement <= 0.5",)
    assert question.problem.limits[0].text == "prediction >= -50"
    assert question.problem.goal.terms[0].risk == ennopt.MeanMinusStd(2.0)
    assert (question.time_limit, question.gap) == (9.0, 0.01)
    names = [one.name for one in shown_coordinates(subject, form)]
    assert names == [*NAMES[:2], "plant"]


WRONG = {
    "low-0": ("abc", "Expected a number, got 'abc'."),
    "high-0": ("-7", None),
    "fixed-1": ("nan", None),
    "values-0": ("1 two", "Expected a number, got 'two'."),
    "constraints": ("cement*cement <= 1", "Expected a linear constraint"),
    "categories": ("plant = plant_A, plant_C", "plant_C"),
    "limits": ("prediction <= strong", "strong"),
    "trust_radius": ("-1", "Expected a radius of at least 0, got -1.0 at trust."),
    "trust_count": ("0", "Expected a whole number >= 1, got 0."),
    "risk_number": ("3", "Expected a share of the members"),
    "time_limit": ("0", "Expected a positive number, got 0."),
    "gap": ("-1", "Expected a finite number >= 0, got -1."),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_bad_field_has_the_message_of_the_library(field, subject):
    text, message = WRONG[field]
    form = subject.start() | {"trust": "near", "risk": "cvar", field: text}
    with pytest.raises(FormError) as caught:
        read_form(subject, form)
    place = "low-0" if field == "high-0" else field  # bounds the wrong way round
    assert set(caught.value.wrong) == {place}
    told = caught.value.wrong[place]
    assert told.startswith("Expected") and told.endswith(".")
    assert message is None or message in told


def test_several_bad_fields_are_told_at_once(subject):
    form = subject.start() | {"low-0": "", "gap": "x", "limits": "prediction"}
    with pytest.raises(FormError) as caught:
        read_form(subject, form)
    assert set(caught.value.wrong) == {"low-0", "gap", "limits"}


def test_a_value_that_its_bounds_exclude_is_told_beside_its_list(subject):
    with pytest.raises(FormError) as caught:
        read_form(subject, subject.start() | {"values-0": "99"})
    assert set(caught.value.wrong) == {"values-0"}


def test_columns_of_a_table_have_their_levels_and_their_units(tmp_path, rng):
    columns = (Number("dose", 0, change="log"), Group("grade", (1, 2), ("A", "B")))
    inner = random_ensemble(rng, 2, 3, (5,))
    model = ennopt.Ensemble(inner.members, inner.weights, columns=columns)
    model.save(tmp_path / "m.npz")
    own = subject_of(tmp_path / "m.npz", domain={"dose": (1, 100)})
    start = own.start()
    assert (start["low-0"], start["high-0"], start["level-1"]) == ("1", "100", "")
    question = read_form(own, start | {"level-1": "1", "at-0": "10"})
    assert question.solve(lambda moment: False).inputs["grade"] == "B"
    x, sliders = look.place_of(question.problem, {"at-0": "10"})
    assert x[0] == pytest.approx(np.log(10.0)) and x[1:].tolist() == [0.0, 1.0]
    assert sliders[1]["choices"] == ["B"]


def test_a_look_is_the_forward_pass_and_says_what_is_missed(subject):
    form = subject.start() | {"constraints": "cement >= 0.5"}
    question = read_form(subject, form)
    x, _ = look.place_of(question.problem, {"at-0": "0.25", "at-1": "3"})
    result = look.looked_at(question, x)
    model = subject.loaded.ensemble
    assert x[:2].tolist() == [0.25, 3.0]
    assert result.value == pytest.approx(float(model(x[None])[0, 0]))
    assert np.allclose(result.member_values, model.member_values(x)[:, 0])
    assert look.unmet(result) == ["cement >= 0.5 is missed by 0.25"]
    away = np.abs((result.asked.data.rows - x) / result.asked.data.spread).max(axis=1)
    assert result.extrapolation.nearest[0] == int(away.argmin())
    html = look.response(question, x)
    assert "cement &gt;= 0.5 is missed by 0.25" in html and "water <b>" not in html


def test_warnings_and_notes_name_the_fields_of_the_form():
    data = Data([[1, 5], [2, 6], [3, 8]], ("a", "b"), [4, 5, 7])
    box = Domain([0, 5], [90, 7], ("a", "b"))
    away = Extrapolation.at(np.array([90.0, 6.0]), 11.0, box, data)
    words = " ".join(warned(away))
    assert "was measured" in words
    assert 'set "Stay where the data are"' in words
    trusted = replace(away, trusted=True)
    assert 'lower "Radius of trust"' in warned(trusted)[-1]
    near = Extrapolation.at(np.array([2.0, 6.0]), 5.0, box, data)
    assert warned(near) == []
    for note in IN_THE_FORM.values():
        assert "Radius of trust" in note
        assert "trust=" not in note and "--trust" not in note
