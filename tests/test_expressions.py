"""Decisions as users write them, and what bad ones get."""

import numpy as np
import pytest

import ennopt
from ennopt import (
    Cvar,
    Ensemble,
    Input,
    MeanMinusStd,
    Network,
    Prediction,
    linear,
)
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
    assert any("none of them meets" in note for note in answer.notes)


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
    bad("finite kappa of at least 0, got nan", lambda: MeanMinusStd(float("nan")))
    for text, allowed in (
        ("cvar:0", "a share of the members above 0 and at most 1 after cvar:"),
        ("cvar:x", "above 0 and at most 1 after cvar:, got 'cvar:x'"),
        ("std:nan", "a finite number of at least 0 after std:, got 'std:nan'"),
        ("mad:-1", "a finite number of at least 0 after mad:"),
    ):
        bad(allowed, lambda text=text: ennopt.maximize(trio, (0, 1), risk=text))
    bad("among a, b, got dose", lambda: ennopt.maximize(p - Input("dose"), (0, 1)))
    bad("limits such as", lambda: ennopt.maximize(trio, (0, 1), limits=[3]))
    bad(
        "predictions and inputs are yield, a, b",
        lambda: ennopt.maximize(p, (0, 1), limits="prediction <= 1"),
    )
    bad("with an expression", lambda: ennopt.maximize(p + 1, (0, 1), risk="worst"))
    bad("linear program", lambda: ennopt.maximize(Input("a"), (0, 1)))
    bad(
        "equal weights",
        lambda: ennopt.maximize(
            Ensemble(trio.members, [1, 2, 3]), (0, 1), risk="worst"
        ),
    )
    bad("an output in", lambda: Prediction(trio, output=3))
    curved = [Network([[[1.0, 1.0]], [[k]]], [[0.0], [0.0]], ["tanh"]) for k in (1, 2)]
    bad("Expected ReLU", lambda: ennopt.maximize(curved, (0, 1), risk="worst"))


GRID = np.stack(np.meshgrid(*[np.linspace(-1, 1, 101)] * 2), axis=-1).reshape(-1, 2)


def disagreement(ensemble, kind, points=GRID):
    each = np.stack([member(points)[:, 0] for member in ensemble.members])
    return {
        "std": each.std(axis=0),
        "mad": np.abs(each - each.mean(axis=0)).mean(axis=0),
        "spread": np.ptp(each, axis=0),
    }[kind]


@pytest.mark.parametrize("kind", ["std", "mad", "spread"])
def test_the_disagreement_of_members_can_be_capped(kind, trio):
    own = Prediction(trio, name="yield")
    off = disagreement(trio, kind)
    cap = float(np.median(off))
    answer = ennopt.maximize(own, (-1, 1), limits=getattr(own, kind)() <= cap)
    assert answer.proved
    assert disagreement(trio, kind, answer.x[None])[0] <= cap + 1e-7
    assert answer.bound >= trio(GRID[off <= cap]).max()
    (told,) = answer.constraints
    assert told.text == f"{kind}(yield) <= {cap}"
    assert told.value == pytest.approx(disagreement(trio, kind, answer.x[None])[0])
    text = ennopt.maximize(own, (-1, 1), limits=f"{kind}(yield) <= {cap!r}")
    assert text.value == answer.value
    least = ennopt.minimize(getattr(own, kind)(), (-1, 1))
    assert least.bound <= off.min()
    assert least.value == pytest.approx(disagreement(trio, kind, least.x[None])[0])
    none = ennopt.maximize(own, (-1, 1), limits=getattr(own, kind)() <= -0.1)
    assert none.status is ennopt.Status.INFEASIBLE


def test_a_penalty_on_disagreement_is_the_risk_of_mean_less_deviation(trio):
    own = Prediction(trio)
    penalty = ennopt.maximize(own - 0.7 * own.std(), (-1, 1))
    risk = ennopt.maximize(trio, (-1, 1), risk=ennopt.MeanMinusStd(0.7))
    assert penalty.value == pytest.approx(risk.value, rel=1e-4)
    dear = ennopt.minimize(own + 2 * own.mad(), (-1, 1))
    values = trio(GRID)[:, 0] + 2 * disagreement(trio, "mad")
    assert dear.bound <= values.min()
    assert dear.value <= values.min() + 1e-3


def test_multiples_of_a_part_are_added_up(trio):
    own = Prediction(trio, name="y")
    assert repr(own + 2 * own - own.std() - 2 * own.std()) == "3*y - 3*std(y)"
    with pytest.raises(ValueError, match="made large"):
        ennopt.maximize(own + 3 * own.std() - 2 * own.std(), (-1, 1))


def test_limits_on_inputs_alone_are_constraints(trio):
    answer = ennopt.maximize(
        Prediction(trio), (-1, 1), limits=["a + b <= 0.5", Input("a") >= -0.25]
    )
    assert answer.x[0] >= -0.25 - 1e-8
    assert answer.asked.problem.limits == ()
    assert [met.text for met in answer.constraints] == ["a + b <= 0.5", "a >= -0.25"]


def test_texts_name_the_predictions_of_the_objective(trio):
    both = Prediction(trio, name="yield") + Prediction(SUM, name="waste") / 4
    answer = ennopt.maximize(both, (-1, 1), limits="worst(yield) >= waste - 3")
    assert answer.proved
    least = min(member(answer.x)[0] for member in trio.members)
    assert least >= SUM(answer.x)[0] - 3 - 1e-7


def classifier(seed=0):
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (300, 2))
    y = np.where(x[:, 0] ** 2 + x[:, 1] > 0.2, "good", "bad")
    model = MLPClassifier((5,), solver="lbfgs", alpha=0.1, max_iter=300, random_state=0)
    return model.fit(x, y)


def test_a_probability_can_be_limited():
    model = classifier()
    good = Prediction(model, output="good", name="good")
    for condition in (good.probability() >= 0.9, "probability(good) >= 0.9"):
        answer = ennopt.minimize(Input("x1") + 0 * good, (-1, 1), limits=[condition])
        assert answer.proved
        chance = model.predict_proba(answer.x[None])[
            0, list(model.classes_).index("good")
        ]
        assert chance >= 0.9 - 1e-7
        assert answer.probability is None  # the cost is no log-odds
        likely = model.predict_proba(GRID)[:, 1] >= 0.9
        assert GRID[likely, 1].min() >= answer.bound
        assert answer.constraints[0].text.startswith("probability(good) >= 0.9")
    rare = ennopt.maximize(model, (-1, 1), limits="probability(prediction) <= 0.5")
    assert rare.probability <= 0.5 + 1e-7


def test_no_probability_is_told_where_no_input_is_feasible():
    for best in (ennopt.maximize, ennopt.minimize):
        answer = best(classifier(), (-1, 1), limits="prediction >= 1e6")
        assert answer.status is ennopt.Status.INFEASIBLE
        assert answer.probability is answer.probability_bound is None
        assert "none can" not in str(answer)


def test_more_than_two_classes_have_log_odds_but_no_probability_to_limit():
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 2))
    model = MLPClassifier((5,), random_state=0, max_iter=300)
    model.fit(x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0))
    top = Prediction(model, output=2, name="top")
    bad("Expected two classes, got 3", top.probability)
    bad(
        "Expected two classes, got 3",
        lambda: ennopt.minimize(
            Input("x0") + 0 * top, (-1, 1), limits="probability(top) >= 0.5"
        ),
    )
    answer = ennopt.minimize(Input("x0") + 0 * top, (-1, 1), limits=[top >= 0])
    assert answer.proved
    likely = model.predict_proba(GRID).argmax(axis=1) == 2
    assert answer.bound <= GRID[likely, 0].min()
    chances = model.predict_proba(answer.x[None])[0]
    assert chances[2] >= chances.max() - 1e-6


def test_classes_and_their_probabilities_are_checked(trio):
    good = Prediction(classifier(), name="good")
    bad("above 0 and below 1", lambda: good.probability() >= 1)
    bad("can be limited alone", lambda: 2 * good + good.probability())
    bad("its log-odds", lambda: ennopt.maximize(good.probability(), (-1, 1)))
    bad(
        "alone beside a number",
        lambda: ennopt.maximize(good, (-1, 1), limits="probability(good) + x0 >= 1"),
    )
    bad("predicts a number", lambda: Prediction(trio).probability())


def test_more_bad_decisions_get_one_clear_sentence(trio):
    p = Prediction(trio, name="yield")
    for match, limits in (
        ("can hold together", [p >= 2, p <= 1]),
        ("can hold together", ["yield - a >= 2", "yield - a <= 1"]),
        ("made large", [p.std() >= 1]),
        ("a function at 'log\\('", "log(yield) >= 1"),
        ("worst\\(\\) of a prediction", "log(a) <= 1"),
        ("name of a prediction, got 'a' in", "std(a) <= 1"),
        ("got 'yeld' in .* Did you mean yield\\?", "worst(yeld) >= 1"),
        ("got 'yeld' in .* predictions are yield\\.", "a + 2*std(yeld) <= 1"),
        ("Did you mean worst\\(\\)\\?", "wrst(yield) >= 1"),
        ("linear constraint, got a product of predictions or", "yield*yield >= 1"),
        ("a division", "yield/yield >= 1"),
        ("Did you mean yield", "yeld >= 1"),
        ("no input changes", [Input("a") - Input("a") >= 1]),
    ):
        bad(match, lambda limits=limits: ennopt.maximize(p, (0, 1), limits=limits))
    bad("made large", lambda: ennopt.maximize(p.std(), (0, 1)))
    bad(
        "one prediction called yield, got two",
        lambda: ennopt.maximize(
            p + Prediction(SUM, name="yield"), (0, 1), limits="yield >= 0"
        ),
    )
    bad("made large", lambda: ennopt.minimize(p - p.mad(), (0, 1)))
    bad("at least two networks", lambda: Prediction(SUM).std())
    bad("Did you mean time_limit", lambda: ennopt.minimize(p, (0, 1), time_limt=1))
    same = Prediction(Ensemble([RISING], input_names=["yield", "b"]), name="yield")
    bad(
        "different names",
        lambda: ennopt.maximize(same, (0, 1), limits="yield >= 0.1"),
    )


def test_a_known_start_is_the_first_value(trio):
    best = ennopt.maximize(trio, (-1, 1))
    for start in (best, best.inputs, best.x, best.x.tolist()):
        again = ennopt.maximize(trio, (-1, 1), start=start)
        assert again.history[0].value == best.value
    stopped = ennopt.maximize(
        trio, (-1, 1), start=[0.25, -0.5], callback=lambda moment: True
    )
    assert stopped.value >= trio([0.25, -0.5])[0]
    problem = ennopt.Problem(trio, ennopt.Domain([-1, -1], [1, 1], ("a", "b")))
    assert ennopt.solve(problem, start=best).history[0].value == best.value
    milp = ennopt.maximize(trio, (-1, 1), start=best, method="bigm")
    assert milp.history[0].value == best.value


def test_levels_of_categories_and_fixed_inputs_make_a_start(rng):
    net = Network([rng.normal(size=(1, 4))], [[0.0]])
    plants = {"plant": {"A": "x0", "B": "x1", "C": None}}
    asked = {"domain": {"x2": (0, 1)}, "categories": plants, "fixed": {"x3": 0.25}}
    best = ennopt.maximize(net, **asked)
    told = {name: best.inputs[name] for name in ("plant", "x2")}
    again = ennopt.maximize(net, **asked, start=told, callback=lambda moment: True)
    assert again.history[0].value == best.value


def test_an_infeasible_start_is_refused_with_its_reason(trio):
    p = Prediction(trio, name="yield")
    most = ennopt.maximize(trio, (-1, 1)).value
    for match, start, more in (
        ("a = 2, outside of", {"a": 2, "b": 0}, {}),
        ("none for b", {"a": 0}, {}),
        ("got 'c'", {"a": 0, "b": 0, "c": 1}, {}),
        ("2 numbers or a dict", [0.0, 0.0, 0.0], {}),
        ("constraint a \\+ b <= -1", [0, 0], {"constraints": "a + b <= -1"}),
        ("limit yield >= ", [0, 0], {"limits": p >= most}),
        ("may not take", [0.5, 0], {"integers": ["a"]}),
    ):
        bad(
            match,
            lambda s=start, m=more: ennopt.maximize(p, (-1, 1), start=s, **m),
        )
