"""A domain is read from what users have, and a bad one names the input."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds

from ennopt.domain import Domain
from ennopt.domain.reading import read_domain
from ennopt.network import Ensemble, Network

NAMES = ("dose", "heat", "flow")
LOWER, UPPER = np.array([0.0, -5.0, 1.0]), np.array([1.0, 5.0, 1.0])


@pytest.fixture
def model():
    return Ensemble((Network((np.ones((1, 3)),), ([0.0],)),), input_names=NAMES)


FRAME = pd.DataFrame({"heat": [-5, 5, 0], "flow": [1, 1, 1], "dose": [0, 1, 0.5]})
BOX = pd.DataFrame(
    {"name": ["flow", "dose", "heat"], "lower": [1, 0, -5], "upper": [1, 1, 5]}
)


@pytest.mark.parametrize(
    "spec",
    [
        [(0, 1), (-5, 5), (1, 1)],
        ((0, 1), (-5, 5), (1, 1)),
        np.array([[0, 1], [-5, 5], [1, 1]]),
        (LOWER, UPPER),
        ([0, -5, 1], [1, 5, 1]),
        ((0, -5, 1), np.array([1, 5, 1])),
        {"flow": (1, 1), "dose": (0, 1), "heat": [-5, 5]},
        {"flow": 1, "dose": (0, 1), "heat": np.array([-5, 5])},
        pd.Series({"flow": 1, "dose": (0, 1), "heat": (-5, 5)}),
        (FRAME.min(), FRAME.max()),
        (pd.Series(LOWER), pd.Series(UPPER)),
        pd.Series([(0, 1), (-5, 5), (1, 1)]),
        Bounds(LOWER, UPPER),
        Domain(LOWER, UPPER, NAMES),
        Domain(LOWER, UPPER),
        Domain(LOWER[[2, 0, 1]], UPPER[[2, 0, 1]], ("flow", "dose", "heat")),
        FRAME,
        FRAME.assign(target=9.0),
        FRAME[["dose", "heat", "flow"]].to_numpy(),
        FRAME[["dose", "heat", "flow"]].set_axis([0, 1, 2], axis=1),
        FRAME.describe(),
        FRAME.assign(target=9.0).describe().T,
        FRAME.agg(["min", "max"]),
        BOX,
        BOX.set_index("name"),
        BOX.set_index("name").T,
        BOX.drop(columns="name").iloc[[1, 2, 0]].reset_index(drop=True),
        BOX.set_axis(["name", "Min", "Max"], axis=1),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_every_form_of_bounds_gives_the_same_box(model, spec):
    domain = Domain.of(spec, model)
    assert np.array_equal(domain.lower, LOWER)
    assert np.array_equal(domain.upper, UPPER)
    assert domain.names == NAMES


def test_two_numbers_bound_every_input(model):
    assert np.array_equal(Domain.of((-1, 2), model).upper, [2, 2, 2])


def test_the_recorded_box_is_the_default(model):
    domain = Domain.of(None, model.on_box(LOWER, UPPER))
    assert np.array_equal(domain.lower, LOWER)
    with pytest.raises(ValueError, match="records no box"):
        Domain.of(None, model)


def plain_model(d):
    return Ensemble((Network((np.ones((1, d)),), ([0.0],)),))


@pytest.mark.parametrize("frame", [FRAME, FRAME.describe(), FRAME.describe().T])
def test_a_frame_names_the_inputs_of_a_model_without_names(frame):
    domain = Domain.of(frame, plain_model(3))
    assert domain.names == ("heat", "flow", "dose")
    assert domain.upper.tolist() == [5.0, 1.0, 1.0]


@pytest.mark.parametrize("words", [("lower", "upper"), ("low", "high"), ("min", "max")])
def test_a_frame_of_bounds_is_never_read_as_data(words):
    frame = pd.DataFrame([[0, 9], [2, 5]], columns=words)
    domain = Domain.of(frame, plain_model(2))
    assert domain.lower.tolist() == [0.0, 2.0]
    assert domain.upper.tolist() == [9.0, 5.0]
    with pytest.raises(ValueError, match="bounds for 2 inputs, got 3"):
        Domain.of(frame.iloc[[0, 1, 1]].reset_index(drop=True), plain_model(2))


def test_inputs_may_be_called_lower_and_upper():
    model = Ensemble(plain_model(2).members, input_names=("lower", "upper"))
    frame = pd.DataFrame({"upper": [3, 4], "lower": [1, 9]})
    assert Domain.of(frame, model).upper.tolist() == [9.0, 4.0]


def test_a_tuple_of_two_sequences_is_lower_and_upper():
    domain = Domain.of(([0, 0], [1, 1]), plain_model(2))
    assert domain.lower.tolist() == [0.0, 0.0]
    assert domain.upper.tolist() == [1.0, 1.0]
    assert Domain.of((0, [1, 2]), plain_model(2)).upper.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("spec", [[(2, 3), (0, 1)], [[2, 3], [0, 1]]])
def test_a_list_of_pairs_is_one_pair_for_each_input(spec):
    domain = Domain.of(spec, plain_model(2))
    assert domain.lower.tolist() == [2.0, 0.0]
    assert domain.upper.tolist() == [3.0, 1.0]


@pytest.mark.parametrize("spec", [((0, 1), (0, 1)), ((0, 5), (-1, 1))])
def test_pairs_in_a_tuple_are_told_to_be_a_list(spec):
    with pytest.raises(ValueError, match=r"tuple of two .* is \(lower, upper\)"):
        Domain.of(spec, plain_model(2))


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.rename(columns={"flow": "strength"}),
        FRAME.rename(columns={"flow": "strength"}).describe(),
        FRAME.rename(columns={"flow": "strength"}).describe().T,
        FRAME.rename(columns={"flow": "strength"}).assign(target=1.0),
    ],
    ids=["data", "describe", "transposed", "more"],
)
def test_columns_of_other_names_are_refused(model, frame):
    with pytest.raises(ValueError, match=r"unexpected strength.*missing flow"):
        Domain.of(frame, model)


def test_a_domain_of_other_names_is_refused(model):
    with pytest.raises(ValueError, match=r"unexpected strength.*missing flow"):
        Domain.of(Domain(LOWER, UPPER, ("dose", "heat", "strength")), model)
    named = Domain(LOWER, UPPER, ("a", "b", "c"))
    assert Domain.of(named, plain_model(3)).names == ("a", "b", "c")


@pytest.mark.parametrize("rows", [["mean", "std"], ["min", "mean"], ["lower"]])
def test_statistics_without_both_ends_are_refused(model, rows):
    frame = pd.DataFrame(1.0, index=rows, columns=list(NAMES))
    with pytest.raises(ValueError, match="rows min and max"):
        Domain.of(frame, model)


def test_partial_bounds_are_filled_from_the_box_or_from_data(model):
    boxed = model.on_box(LOWER, UPPER)
    domain = Domain.of({"heat": (1, 2)}, boxed)
    assert domain.lower.tolist() == [0.0, 1.0, 1.0]
    assert domain.upper.tolist() == [1.0, 2.0, 1.0]
    domain = read_domain({"heat": 3}, boxed, FRAME.assign(dose=7.0, target=0.0))
    assert domain.lower.tolist() == [7.0, 3.0, 1.0]
    assert domain.upper.tolist() == [7.0, 3.0, 1.0]
    domain = read_domain(BOX.iloc[[1]], model, FRAME.assign(dose=7.0))
    assert domain.upper.tolist() == [1.0, 5.0, 1.0]
    assert np.array_equal(read_domain(None, model, FRAME).lower, LOWER)


def test_statistics_may_be_named_in_a_column(model):
    table = {"statistic": ["mean", "min", "max"], "heat": [0, -5, 5]}
    table |= {"dose": [0.5, 0, 1], "flow": [1, 1, 1], "target": [9, 9, 9]}
    domain = read_domain(None, model, table)
    assert np.array_equal(domain.lower, LOWER)
    assert np.array_equal(domain.upper, UPPER)


def test_data_gives_the_names_by_which_bounds_are_told():
    domain = read_domain({"heat": 3}, plain_model(3), FRAME)
    assert domain.names == ("heat", "flow", "dose")
    assert domain.upper.tolist() == [3.0, 1.0, 1.0]


def test_files_give_bounds_and_data(model, tmp_path):
    toml, table, rows = (tmp_path / name for name in ("b.toml", "b.csv", "x.csv"))
    toml.write_text("heat = 2\n", encoding="utf-8")
    table.write_text("name,lower,upper\nheat,2,2\n", encoding="utf-8")
    rows.write_text(
        "kind,heat,dose,flow,target\na,-5,0,1,?\nb,5,1,1,\n", encoding="utf-8"
    )
    for path in (toml, str(table)):
        domain = read_domain(path, model, rows)
        assert domain.lower.tolist() == [0.0, 2.0, 1.0]
        assert domain.upper.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("absent.toml", None, "Expected a file of bounds, got none at"),
        ("bounds.txt", "", "ending in .toml or .csv, got .bounds.txt"),
        ("b.toml", "dose = [1", "valid TOML"),
        ("b.toml", "dose = 'a'\nheat = 1\nflow = 1", "a pair .*, got 'a' at input"),
        ("b.toml", "dose = ['a', 3]", "dose = .low, high., dose = .*, got .'a'"),
        ("b.toml", "dose = [1]", "dose = .low, high., dose = number, "),
        ("b.toml", "", "bounds of at least one input"),
        ("b.csv", "", "empty file: b.csv"),
        ("b.csv", "name,lower,upper\n", "bounds of at least one input"),
        ("b.csv", "dose,heat,flow\n0,0,0\n", "header name,lower,upper, got .dose"),
        ("b.csv", "name,lower,upper\ndose,0\n", "3 cells.*got 2 in row 1"),
        ("b.csv", "name,lower,upper\ndose,0,\n", "two numbers, got '0' and ''"),
        ("b.csv", "name,lower,upper\ndose,0,1\ndose,0,2\n", "two for dose"),
    ],
)
def test_bad_files_of_bounds_give_a_sentence(model, tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        Domain.of(tmp_path / name, model)
    assert "Errno" not in str(caught.value)


def test_a_folder_is_no_file_of_bounds(model, tmp_path):
    with pytest.raises(ValueError, match="Expected a file of bounds, got a folder"):
        Domain.of(tmp_path, model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "Expected a file of data, got none at"),
        ("0.5,1,2\n0,0,0\n", "names of the columns, got numbers"),
        ("dose,heat,flow\n", "rows of data"),
        ("dose,heat,flow\n0,0,0\n1,wet,0\n", "numbers, got 'wet' in row 2.*heat"),
        ("dose,heat,flow\n0,0,0\n1,,0\n", "numbers, got '' in row 2.*heat"),
        ("dose,heat,rate\n0,0,0\n", "unexpected rate.*missing flow"),
    ],
)
def test_bad_files_of_data_give_a_sentence(model, tmp_path, text, message):
    path = tmp_path / "x.csv"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        read_domain(None, model, path)
    assert "Errno" not in str(caught.value)


def test_data_of_another_shape_is_refused(model):
    for data in (np.zeros((5, 2)), np.zeros(3), [(0, 1), (0, 1)]):
        with pytest.raises(ValueError, match="3 columns, one for each input"):
            read_domain(None, model, data)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([(0, 1), (-5, 5)], r"3 \(low, high\) pairs.*got 2 \(none for flow\)"),
        ([(0, 1)] * 4, "got 4"),
        ({"dose": (0, 1), "heat": (0, 1)}, "none for flow"),
        ({"dose": (0, 1), "heta": (0, 1)}, "unknown input heta"),
        ([(0, 1), (5, -5), (1, 1)], "lower <= upper, got .5, -5. at input heat"),
        ([(0, 1), (0, np.inf), (1, 1)], "finite bounds.*input heat"),
        ([(0, 1), (np.nan, 1), (1, 1)], "finite bounds.*input heat"),
        ([(0, 1), (None, 1), (1, 1)], r"pair \(low, high\).*heat"),
        ([(0, 1), (1, [2]), (1, 1)], r"pair \(low, high\).*heat"),
        ([(0, 1), {1, 2}, (1, 1)], r"pair \(low, high\).*heat"),
        ([(0, 1), 3, (1, 1)], r"pair \(low, high\).*heat"),
        ([(0, 1), ("a", "b"), (1, 1)], "array of numbers"),
        ((LOWER[:2], UPPER[:2]), "3 lower bounds"),
        (FRAME.assign(heat=[np.nan, 1, 2]), "NaN or infinity at input heat"),
        (FRAME.assign(heat=["a", "b", "c"]), "numbers, got .a. in row 1.*heat"),
        (FRAME[["dose", "heat"]], "missing flow"),
        (BOX.assign(name=["flow", "dose", "heta"]), "unknown input heta"),
        (BOX.iloc[:2], "none for heat"),
        (FRAME.set_axis([0, 1, 1], axis=1).iloc[:, :2], "3 columns"),
        (FRAME.set_axis(["dose", "heat", "heat"], axis=1), "missing flow"),
        (
            FRAME.assign(more=1).set_axis(["dose", "heat", "flow", "heat"], axis=1),
            "one column for each input, got 2 for heat",
        ),
        ((FRAME[["dose"]].min(), FRAME.max()), "missing heat, flow"),
        ({"dose": "low", "heat": 1, "flow": 1}, "fixes it, got 'low' at input dose"),
    ],
)
def test_bad_bounds_give_one_error_that_names_the_input(model, spec, message):
    with pytest.raises(ValueError, match=message):
        Domain.of(spec, model)


def test_what_cannot_be_bounds_is_a_type_error(model):
    for spec in (3.0, {(0, 1), (-5, 5), (1, 1)}):
        with pytest.raises(TypeError, match="list of"):
            Domain.of(spec, model)


def test_a_two_by_two_array_is_refused_as_ambiguous():
    with pytest.raises(ValueError, match="may be either"):
        Domain.of(np.array([[0.0, 1.0], [0.0, 1.0]]), plain_model(2))


def test_children_cover_their_parent(rng):
    domain = Domain([-1, 0], [1, 3])
    left, right = domain.split(1, 1.25)
    for x in domain.sample(100, rng):
        assert left.contains(x) or right.contains(x)
    assert left.upper[1] == right.lower[1] == 1.25


def test_projected_points_lie_inside(rng):
    domain = Domain([-1, 0], [1, 3])
    points = domain.repair(rng.normal(size=(50, 2)) * 9)
    assert all(domain.contains(x) for x in points)
    assert not domain.contains([1.1, 0])
