"""Decisions as users write them, and what bad ones get."""

import numpy as np
import pytest

import ennopt
from ennopt import Cvar, Ensemble, Input, Network, Prediction, linear
from oracles import random_ensemble

RISING = Network([[[1.0, 0.0]]], [[0.0]])
SUM = Network([[[1.0, 1.0]]], [[0.5]])


@pytest.fixture
def trio(rng):
    return Ensemble(random_ensemble(rng, 3, 2, (5,)).members, input_names=["a", "b"])


def test_a_sum_of_predictions_and_inputs_is_what_is_optimized(trio):
    goal = 2 * Prediction(trio) - Prediction(SUM) / 4 + 3 * Input("a") - 1
    answer = ennopt.maximize(goal, (-1, 1))
    at = answer.x
    said = 2 * trio(at)[0] - SUM(at)[0] / 4 + 3 * at[0] - 1
    assert answer.value == pytest.approx(said, rel=1e-12)
    points = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
    values = 2 * trio(points) - SUM(points) / 4 + 3 * points[:, :1] - 1
    assert values.max() <= answer.bound


def test_limits_hold_at_the_answer_and_are_told(trio):
    both = Prediction(trio, name="yield")
    most = ennopt.maximize(trio, (-1, 1)).value
    answer = ennopt.minimize(
        linear({"a": 1.0, "b": 2.0}), (-1, 1), limits=[both >= most - 0.2]
    )
    assert answer.status is ennopt.Status.OPTIMAL
    assert trio(answer.x)[0] >= most - 0.2 - 1e-8
    assert answer.value == pytest.approx(answer.x @ [1.0, 2.0])
    (told,) = answer.constraints
    assert told.text.startswith("yield >= ")
    assert told.value == pytest.approx(trio(answer.x)[0])
    assert "yield" in answer.summary()


def test_limits_that_no_input_meets_are_infeasible(trio):
    most = ennopt.maximize(trio, (-1, 1)).bound
    answer = ennopt.maximize(trio, (-1, 1), limits=f"prediction >= {most + 0.1}")
    assert answer.status is ennopt.Status.INFEASIBLE
    assert any("reaches every limit" in note for note in answer.notes)


def test_models_are_matched_by_the_names_of_their_inputs():
    one = Prediction(Ensemble([RISING], input_names=["a", "b"]), name="one")
    other = Prediction(Ensemble([SUM], input_names=["c", "a"]), name="other")
    answer = ennopt.maximize(
        one + Input("b"), {"a": (0, 1), "b": (0, 1), "c": (0, 1)}, limits=other <= 1
    )
    assert answer.by_name["a"] == pytest.approx(0.5, abs=1e-3)
    assert answer.by_name["b"] == 1.0


def test_every_member_meets_a_limit_on_the_worst(trio):
    worst = Prediction(trio, risk="worst")
    mean = ennopt.maximize(trio, (-1, 1), risk="worst")
    answer = ennopt.maximize(Input("a"), (-1, 1), limits=[worst >= mean.value - 0.1])
    each = [member(answer.x)[0] for member in trio.members]
    assert min(each) >= mean.value - 0.1 - 1e-8


def test_pessimism_is_high_where_predictions_shall_be_small(trio):
    answer = ennopt.minimize(trio, (-1, 1), risk="worst")
    assert answer.value == max(member(answer.x)[0] for member in trio.members)
    assert answer.bound <= answer.value


def test_a_prediction_of_another_model_has_no_note_about_a_gap():
    linear_model = pytest.importorskip("sklearn.linear_model")
    points = np.random.default_rng(0).uniform(0, 9, (20, 1))
    model = linear_model.LinearRegression().fit(points, 7 * points[:, 0])
    answer = ennopt.minimize(
        linear({"x0": 1.0}), [(0, 9)], limits=[Prediction(model) >= 42]
    )
    assert answer.value == pytest.approx(6)
    assert answer.notes == ()


def bad(match, make, kind=(TypeError, ValueError)):
    with pytest.raises(kind, match=match) as error:
        make()
    assert "\n" not in str(error.value)


def test_bad_decisions_get_one_clear_sentence(trio):
    p = Prediction(trio, name="yield")
    bad("cannot be multiplied by another one", lambda: p * p)
    bad("cannot be divided by another one", lambda: 1.0 * p / p)
    bad("finite number, got nan", lambda: float("nan") * p)
    bad("finite number, got nan", lambda: linear({"a": float("nan")}))
    bad("two limits", lambda: 0 <= p <= 1)
    bad("divisor other than 0", lambda: p / 0)
    bad("at least two networks", lambda: Prediction(SUM, risk="worst"))
    bad("at least two networks", lambda: ennopt.maximize(SUM, (0, 1), risk=Cvar(0.5)))
    bad("Expected a risk", lambda: ennopt.maximize(trio, (0, 1), risk="bad"))
    bad("share of the members", lambda: Cvar(0.0))
    bad("among a, b, got dose", lambda: ennopt.maximize(p - Input("dose"), (0, 1)))
    bad("limits such as", lambda: ennopt.maximize(trio, (0, 1), limits=[3]))
    bad(
        "limit on the prediction",
        lambda: ennopt.maximize(trio, (0, 1), limits="a <= 1"),
    )
    bad("Prediction", lambda: ennopt.maximize(p, (0, 1), limits="prediction <= 1"))
    bad("with an expression", lambda: ennopt.maximize(p + 1, (0, 1), risk="worst"))
    bad("linear program", lambda: ennopt.maximize(Input("a"), (0, 1)))
    bad(
        "equal weights",
        lambda: ennopt.maximize(
            Ensemble(trio.members, [1, 2, 3]), (0, 1), risk="worst"
        ),
    )
    bad(
        "limits on predictions",
        lambda: ennopt.maximize(trio, (0, 1), limits="prediction <= 1", method="bigm"),
    )
    bad("an output in", lambda: Prediction(trio, output=3))
    curved = [Network([[[1.0, 1.0]], [[k]]], [[0.0], [0.0]], ["tanh"]) for k in (1, 2)]
    bad("Expected ReLU", lambda: ennopt.maximize(curved, (0, 1), risk="worst"))
