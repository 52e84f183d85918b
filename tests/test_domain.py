"""A domain is read from what users have, and a bad one names the input."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds

from ennopt.domain import Domain
from ennopt.network import Ensemble, Network

NAMES = ("dose", "heat", "flow")
LOWER, UPPER = np.array([0.0, -5.0, 1.0]), np.array([1.0, 5.0, 1.0])


@pytest.fixture
def model():
    return Ensemble((Network((np.ones((1, 3)),), ([0.0],)),), input_names=NAMES)


FRAME = pd.DataFrame({"heat": [-5, 5, 0], "flow": [1, 1, 1], "dose": [0, 1, 0.5]})


@pytest.mark.parametrize(
    "spec",
    [
        [(0, 1), (-5, 5), (1, 1)],
        ((0, 1), (-5, 5), (1, 1)),
        np.array([[0, 1], [-5, 5], [1, 1]]),
        (LOWER, UPPER),
        {"flow": (1, 1), "dose": (0, 1), "heat": [-5, 5]},
        Bounds(LOWER, UPPER),
        Domain(LOWER, UPPER, NAMES),
        Domain(LOWER, UPPER),
        Domain(LOWER[[2, 0, 1]], UPPER[[2, 0, 1]], ("flow", "dose", "heat")),
        FRAME,
        FRAME.assign(target=9.0),
        FRAME[["dose", "heat", "flow"]].to_numpy(),
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


def test_a_frame_names_the_inputs_of_a_model_without_names():
    model = Ensemble((Network((np.ones((1, 3)),), ([0.0],)),))
    assert Domain.of(FRAME, model).names == ("heat", "flow", "dose")


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
        ([(0, 1), 3, (1, 1)], r"pair \(low, high\).*heat"),
        ([(0, 1), ("a", "b"), (1, 1)], "array of numbers"),
        ((LOWER[:2], UPPER[:2]), "3 lower bounds"),
        (FRAME.assign(heat=[np.nan, 1, 2]), "NaN or infinity at input heat"),
        (FRAME.assign(heat=["a", "b", "c"]), "numeric columns"),
        (FRAME[["dose", "heat"]], "3 columns"),
    ],
)
def test_bad_bounds_give_one_error_that_names_the_input(model, spec, message):
    with pytest.raises(ValueError, match=message):
        Domain.of(spec, model)


def test_what_cannot_be_bounds_is_a_type_error(model):
    with pytest.raises(TypeError, match="list of"):
        Domain.of(3.0, model)


def test_a_two_by_two_array_is_refused_as_ambiguous():
    model = Ensemble((Network((np.ones((1, 2)),), ([0.0],)),))
    with pytest.raises(ValueError, match="may be either"):
        Domain.of(np.array([[0.0, 1.0], [0.0, 1.0]]), model)


def test_support_is_the_best_corner(rng):
    domain = Domain([-1, 0, 2], [1, 3, 2])
    corners = np.array(np.meshgrid([-1, 1], [0, 3], [2])).reshape(3, -1).T
    for direction in rng.normal(size=(20, 3)):
        value, point = domain.support(direction)
        assert value == pytest.approx(np.max(corners @ direction))
        assert domain.contains(point)


def test_children_cover_their_parent(rng):
    domain = Domain([-1, 0], [1, 3])
    left, right = domain.split(1, 1.25)
    for x in domain.sample(100, rng):
        assert left.contains(x) or right.contains(x)
    assert left.upper[1] == right.lower[1] == 1.25


def test_projected_points_lie_inside(rng):
    domain = Domain([-1, 0], [1, 3])
    points = domain.project(rng.normal(size=(50, 2)) * 9)
    assert all(domain.contains(x) for x in points)
    assert not domain.contains([1.1, 0])
    assert domain.contains([1.1, 0], slack=0.2)
