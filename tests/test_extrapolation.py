"""How far answers are from the data."""

import json

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis as scipy_mahalanobis
from sklearn.covariance import EmpiricalCovariance

import ennopt
from ennopt.domain import Domain
from ennopt.domain.data import Data
from ennopt.domain.discrete import discretised
from ennopt.domain.extrapolation import Extrapolation, mahalanobis
from ennopt.network import Ensemble, Network

NAMES = ("a", "b", "c")


def some_rows(seed, count=70):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)) @ rng.normal(size=(3, 3)) * [1, 50, 0.01] + 7


@pytest.mark.parametrize("seed", range(5))
def test_mahalanobis_distances_are_those_of_scipy_and_scikit_learn(seed):
    rows = some_rows(seed)
    x = rows[0] + [1, 20, 0.05]
    own, others = mahalanobis(x, Data(rows, NAMES))
    inverse = np.linalg.inv(np.cov(rows.T, ddof=0))
    assert own == pytest.approx(scipy_mahalanobis(x, rows.mean(axis=0), inverse))
    squares = EmpiricalCovariance().fit(rows).mahalanobis(rows)
    assert others == pytest.approx(np.sqrt(squares), rel=1e-6)


def test_constant_and_dependent_inputs_leave_distances_finite():
    rows = some_rows(3)
    more = np.column_stack([rows, np.full(70, 0.1), rows[:, 0] + 2 * rows[:, 1]])
    names = (*NAMES, "constant", "sum")
    along = np.append(rows[3] + [1, 20, 0.05], [0.1, 0.0])
    along[4] = along[0] + 2 * along[1]
    plain, _ = mahalanobis(along[:3], Data(rows, NAMES))
    own, others = mahalanobis(along, Data(more, names))
    assert own == pytest.approx(plain, rel=0.2)  # the sum adds no new direction
    assert np.isfinite(others).all()
    off = along + np.array([0, 0, 0, 0, more[:, 4].std()])
    assert mahalanobis(off, Data(more, names))[0] > 20
    assert mahalanobis(np.ones(2), Data(np.ones((4, 2)), ("a", "b")))[0] == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_rows_are_the_nearest(seed):
    rows = some_rows(seed)
    data = Data(np.vstack([rows, rows[:2]]), NAMES, np.arange(72.0))
    rng = np.random.default_rng(seed)
    x = rows[5] + rng.normal(size=3) * rows.std(axis=0)
    found = Extrapolation.at(x, 3.0, data.box, data)
    away = (np.abs(data.rows - x) / data.rows.std(axis=0)).max(axis=1)
    assert found.distances == pytest.approx(tuple(np.sort(away)[:3]))
    assert away[list(found.nearest)] == pytest.approx(found.distances)
    own, others = mahalanobis(x, data)
    assert found.percentile == pytest.approx(100 * sum(others <= own) / 72)
    assert found.target_range == (0.0, 71.0)


def test_a_row_of_the_data_is_no_extrapolation():
    data = Data(some_rows(1), NAMES, np.linspace(0, 1, 70))
    middle = data.rows[np.argmin(mahalanobis(data.rows[0], data)[1])]
    found = Extrapolation.at(middle, 0.5, data.box, data)
    assert found.distances[0] == 0.0
    assert found.warnings == ()
    assert found.at_bounds == ()
    (line,) = found.lines()
    assert "equal to it; 0 of 3 inputs at their bounds" in line


def test_the_outermost_row_is_no_extrapolation_either():
    """Even where no row is further away, as with a single row."""
    data = Data(some_rows(1)[:5], NAMES)
    last = data.rows[np.argmax(mahalanobis(data.rows[0], data)[1])]
    for rows in (data, Data([last], NAMES)):
        found = Extrapolation.at(last, 0.5, rows.box, rows)
        assert found.percentile == 100.0
        assert found.warnings == ()


def test_a_row_whose_constant_inputs_were_moved_is_not_called_equal():
    data = Data(np.column_stack([some_rows(1)[:, :2], [4.0] * 70]), NAMES)
    domain = Domain(data.box.lower, [*data.box.upper[:2], 9], NAMES)
    found = Extrapolation.at(np.array([*data.rows[3, :2], 5.0]), 0.5, domain, data)
    assert found.nearest[0] == 3
    assert "number 3, equal to it in all inputs that vary;" in found.lines()[0]
    assert found.warnings == ("no row of data has " + NAMES[2] + " = 5",)


def test_every_way_to_be_far_is_told_in_words():
    data = Data(np.column_stack([some_rows(1)[:, :2], [4.0] * 70]), NAMES, [0, 1] * 35)
    domain = Domain(data.box.lower, [1e3, 1e3, 9], NAMES)
    found = Extrapolation.at(np.array([1e3, 0, 9.0]), 2.0, domain, data)
    text = " ".join(found.lines())
    for words in (
        "standard deviations away in the input that differs most; 95% of the rows",
        "Mahalanobis distance from the mean of the data",
        "; no row is further away",
        "no row of data has c = 9",
        "the prediction 2 is above everything measured, 0 to 1",
        f"in the nearest row of data {found.nearest[0] % 2} was measured; the "
        "prediction is 2",
        "2 of 3 inputs at their bounds",
        'pass trust="near" (--trust near)',
    ):
        assert words in text


def test_categories_that_were_never_seen_are_named():
    rows = np.array([[1, 1, 0, 0, 1, 0], [2, 0, 1, 0, 0, 1], [3, 1, 0, 0, 1, 0.0]])
    names = ("a", "A", "B", "C", "D", "E")
    categories = {"plant": ["A", "B", "C"], "day": {"D": "D", "E": "E", "none": None}}
    domain = discretised(
        Domain([0] * 6, [5, 1, 1, 1, 1, 1], names), None, None, categories
    )
    data = Data(rows, names)
    at = [
        Extrapolation.at(np.array(x, dtype=float), 0.0, domain, data)
        for x in ([1, 0, 0, 1, 1, 0], [1, 0, 1, 0, 0, 0], [1, 0, 1, 0, 1, 0], rows[1])
    ]
    assert [found.unseen for found in at] == [
        ("plant = C",), ("day = none",), ("plant = B with day = D",), (),
    ]  # fmt: skip
    assert at[3].nearest == (1,)  # the others have other categories
    assert at[0].num_free == 1


@pytest.mark.parametrize("far", [False, True])
def test_a_result_keeps_the_record_through_json(far):
    rows = some_rows(2)
    model = Ensemble((Network((np.ones((1, 3)),), ([0.0],)),), input_names=NAMES)
    bounds = {"b": (-1e4, 1e4)} if far else None
    answer = ennopt.maximize(model, bounds, data=rows, target=rows.sum(axis=1))
    record = answer.extrapolation
    assert record.value == answer.value
    assert record.at_bounds == NAMES
    assert ("warning: the model extrapolates" in answer.summary()) == bool(
        record.warnings
    )
    assert far <= bool(record.warnings)
    again = ennopt.Result.from_json(answer.to_json())
    assert again.extrapolation == record
    assert again.summary() == answer.summary()
    old = answer.to_dict()
    del old["extrapolation"], old["inputs"]
    assert ennopt.Result.from_json(json.dumps(old)).extrapolation is None


def test_without_rows_there_is_no_record():
    model = Ensemble((Network((np.ones((1, 3)),), ([0.0],)),), input_names=NAMES)
    answer = ennopt.maximize(model, [(0, 1)] * 3)
    assert answer.extrapolation is None
    assert "nearest row" not in answer.summary()


def test_what_a_model_was_trained_on_is_compared_with_every_prediction():
    layer = ((np.ones((1, 3)),), ([0.0],))
    model = Ensemble((Network(*layer),), input_names=NAMES, target_range=(0.0, 2.0))
    inside = ennopt.maximize(model, [(0, 0.5)] * 3)
    assert not any("training data" in note for note in inside.notes)
    outside = ennopt.maximize(model, [(0, 1)] * 3)
    told = "the prediction 3 is above anything in the training data, 0 to 2"
    assert told in outside.summary()
    assert told in ennopt.Result.from_json(outside.to_json()).summary()
    beside_rows = ennopt.maximize(model, [(0, 1)] * 3, data=np.eye(3))
    assert beside_rows.extrapolation.target_range == (0.0, 2.0)
    assert "training data" not in beside_rows.summary()
    assert "the prediction 3 is above everything measured" in beside_rows.summary()
    yields = ennopt.Prediction(model, name="yield")
    dear = ennopt.maximize(
        ennopt.Input("a"), [(0, 1)] * 3, limits=[yields >= 2.5], fixed={"b": 1}
    )
    assert "yield: warning: the model extrapolates" in dear.summary()
