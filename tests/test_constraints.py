"""Constraints and fixed inputs as users give them."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint
from scipy.sparse import coo_array, csr_matrix

import ennopt
from ennopt.domain import Domain, Rows
from ennopt.domain.reading import read_domain
from ennopt.network import Ensemble, Network
from oracles import exact_on, mixed, random_ensemble

NAMES = ("cement", "slag", "age")
BOX = Domain([0, 0, 1], [500, 300, 90], NAMES)
MATRIX = [[1.0, 1.0, 0.0], [2.0, -1.0, 0.0]]
LEAST, MOST = [400.0, -np.inf], [400.0, 900.0]


@pytest.fixture
def model():
    return Ensemble((Network((np.ones((1, 3)),), ([0.0],)),), input_names=NAMES)


FRAME = pd.DataFrame([[1.0, 1.0], [-1.0, 2.0]], columns=["slag", "cement"])


@pytest.mark.parametrize(
    "constraints",
    [
        ["cement + slag == 400", "2*cement <= 900 + slag"],
        ("cement + slag = 400", "2*cement - slag <= 900"),
        LinearConstraint(MATRIX, LEAST, MOST),
        LinearConstraint(csr_matrix(MATRIX), LEAST, MOST),
        LinearConstraint(coo_array(MATRIX), LEAST, MOST),
        [LinearConstraint(MATRIX[0], 400, 400), "2*cement <= 900 + slag"],
        [LinearConstraint([MATRIX[0]], [400], [400]), (MATRIX[1], None, 900)],
        LinearConstraint([*MATRIX, [1, 1, 1]], [*LEAST, -np.inf], [*MOST, np.inf]),
        (MATRIX, LEAST, MOST),
        (np.array(MATRIX), np.array(LEAST), MOST),
        [(csr_matrix(MATRIX), LEAST, MOST)],
        (FRAME, LEAST, MOST),
        Rows(MATRIX, LEAST, MOST),
        ["cement + slag == 400", None, (Rows(MATRIX[1:], LEAST[1:], MOST[1:]),)],
    ],
    ids=range(14),
)
def test_every_form_gives_the_same_rows(constraints):
    rows = BOX.constrained(constraints).rows
    assert rows.matrix.tolist() == MATRIX
    assert rows.least.tolist() == LEAST
    assert rows.most.tolist() == MOST


def test_bounds_may_name_the_inputs_of_a_model_that_does_not():
    plain = Ensemble((Network((np.ones((1, 3)),), ([0.0],)),))
    table = pd.DataFrame({"name": NAMES, "lower": BOX.lower, "upper": BOX.upper})
    for spec in (BOX, table):
        domain = read_domain(spec, plain, constraints="slag <= 9", fixed={"age": 28})
        assert domain.names == NAMES
        assert domain.upper.tolist() == [500, 300, 28]


def test_constraints_of_scipy_accept_the_points_that_scipy_accepts(rng):
    for k in range(20):
        domain = mixed(rng, 4, 3, equal=k % 2 == 0)
        rows = domain.rows
        given = LinearConstraint(rows.matrix, rows.least, rows.most)
        read = Domain(domain.lower, domain.upper).constrained(given)
        again = Domain(domain.lower, domain.upper).constrained(list(read.rows.texts))
        points = np.vstack([domain.sample(20, rng), rng.normal(size=(20, 4))])
        for point in points:
            inside = np.all((point >= domain.lower) & (point <= domain.upper))
            margins = np.concatenate(given.residual(point))
            if inside and np.abs(margins).min() > 1e-6:
                assert read.contains(point) == bool(margins.min() > 0)
        assert np.array_equal(read.feasible(points), domain.feasible(points))
        assert np.array_equal(again.rows.matrix, rows.matrix)
        assert np.array_equal(again.rows.least, rows.least)
        assert np.array_equal(again.rows.most, rows.most)


def test_rows_of_a_matrix_are_told_as_texts():
    rows = BOX.constrained((MATRIX, LEAST, MOST)).rows
    assert rows.texts == ("cement + slag == 400", "2*cement - slag <= 900")


def test_constraints_add_up():
    once = BOX.constrained("cement <= slag")
    twice = once.constrained("age <= cement", {"age": 28})
    assert twice.rows.texts == ("cement <= slag", "age <= cement")
    assert twice.contains([100, 200, 28])
    assert not twice.contains([20, 200, 28])
    assert BOX.constrained() is BOX


def test_bounds_narrow_the_box():
    narrow = BOX.constrained(Bounds([10, -np.inf, 1], [np.inf, 100, 28]))
    assert narrow.is_box
    assert narrow.lower.tolist() == [10, 0, 1]
    assert narrow.upper.tolist() == [500, 100, 28]
    assert BOX.constrained([Bounds(1, 50)]).upper.tolist() == [50, 50, 50]
    with pytest.raises(ValueError, match=r"meet the range \[0, 300\].*at input slag"):
        BOX.constrained(Bounds([0, 301, 1], [1, 302, 1]))


@pytest.mark.parametrize(
    "given",
    [
        NonlinearConstraint(lambda x: x[0] ** 2, 0, 1),
        lambda x: x[0],
        {"type": "ineq", "fun": lambda x: x[0]},
        3,
        [1.0, 1.0, 0.0],
        [[1.0, 1.0, 0.0], [0.0], [1.0]],
    ],
    ids=["NonlinearConstraint", "function", "dict", "int", "float", "list"],
)
def test_what_is_not_linear_is_refused_by_name(given, request):
    name = request.node.callspec.id
    with pytest.raises(TypeError, match=f"got {name}.*LinearConstraint") as caught:
        BOX.constrained(given)
    assert "linear cannot be" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([[1, 1]], 0, 1), "3 coefficients"),
        (Rows([[1, 1]], [0], [1]), "3 coefficients"),
        (LinearConstraint(np.eye(2), 0, 1), "3 coefficients"),
        ((MATRIX, [0, 0, 0], 1), "one number or 2"),
        ((MATRIX, 2, 1), "Exchange them"),
        (([[np.nan, 1, 1]], 0, 1), "finite coefficients"),
        ((FRAME.rename(columns={"slag": "slg"}), 0, 1), "'slg'.*Did you mean slag"),
        (([["a", 1, 1]], 0, 1), "array of numbers"),
        ("cemnt <= 3", "Did you mean cement"),
        (["cement <= 3", "slag"], "Expected a comparison"),
    ],
)
def test_a_slip_in_a_constraint_is_told(given, message):
    with pytest.raises(ValueError, match=message):
        BOX.constrained(given)


def test_scipy_is_not_imported_for_constraints():
    code = (
        "import sys, ennopt\n"
        "net = ennopt.Network([[[1.0, -1.0]]], [[0.5]])\n"
        "ennopt.maximize(net, (0, 1), constraints=['x0 <= x1', ([[1, 1]], 0, 1)])\n"
        "print('scipy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# Fixed inputs.


def test_a_fixed_input_has_its_value_whatever_its_range(model):
    for spec, data in (
        (BOX, None),
        ((0, 90), None),
        ({"cement": (0, 500), "slag": (0, 300)}, None),
        ({"cement": (0, 500), "slag": (0, 300), "age": (1, 2)}, None),
        (None, np.array([[0.0, 0.0, 1.0], [500.0, 300.0, 9.0]])),
        (pd.DataFrame({"lower": [0, 0], "upper": [5, 3]}, index=NAMES[:2]), None),
    ):
        for fixed in ({"age": 100}, pd.Series({"age": 100.0})):
            domain = read_domain(spec, model, data, fixed=fixed)
            assert (domain.lower[2], domain.upper[2]) == (100, 100)
            assert domain.upper[0] > domain.lower[0]


def test_the_recorded_box_gives_what_is_not_fixed(model):
    boxed = model.on_box(BOX.lower, BOX.upper)
    domain = read_domain(None, boxed, fixed={"slag": 7})
    assert domain.upper.tolist() == [500, 7, 90]
    domain = read_domain(None, model, fixed={"slag": 7, "cement": 1, "age": 2})
    assert domain.lower.tolist() == domain.upper.tolist() == [1, 7, 2]


@pytest.mark.parametrize(
    ("fixed", "error", "message"),
    [
        ({"agee": 28}, ValueError, "got 'agee'. Did you mean age"),
        ({"age": "28"}, ValueError, "finite number .*'28' at input age"),
        ({"age": np.nan}, ValueError, "finite number .*nan at input age"),
        ({"age": (1, 28)}, ValueError, "finite number"),
        ([28], TypeError, 'fixed=."age": 28'),
    ],
)
def test_a_slip_in_a_fixed_input_is_told(model, fixed, error, message):
    with pytest.raises(error, match=message):
        ennopt.maximize(model, BOX, fixed=fixed)
    with pytest.raises(error, match=message):
        ennopt.maximize(model, {"cement": (0, 1)}, fixed=fixed)


def test_what_is_neither_fixed_nor_bounded_is_missed_by_name(model):
    with pytest.raises(ValueError, match="got none for cement, slag"):
        read_domain(None, model, fixed={"age": 28})


# Optimization.


def test_the_proved_optimum_is_that_of_the_constrained_set(rng):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        ensemble, domain = random_ensemble(rng, 2, 3, (4, 3)), mixed(rng, 3, 2)
        rows = domain.rows
        box = Domain(domain.lower, domain.upper)
        exact = exact_on(ensemble, domain)
        for constraints in (
            list(box.constrained((rows.matrix, rows.least, rows.most)).rows.texts),
            LinearConstraint(rows.matrix, rows.least, rows.most),
        ):
            answer = ennopt.maximize(ensemble, box, constraints=constraints)
            assert answer.proved
            assert answer.value == pytest.approx(exact, rel=2e-4, abs=2e-4)
        fixed = {"x1": float(domain.sample(1, rng)[0, 1])}
        answer = ennopt.minimize(ensemble, box, fixed=fixed)
        assert answer.x[1] == fixed["x1"]
        line = {"x1": (fixed["x1"], fixed["x1"])}
        pairs = zip(("x0", "x2"), box.lower[[0, 2]], box.upper[[0, 2]], strict=True)
        line |= {name: (low, high) for name, low, high in pairs}
        other = ennopt.minimize(ensemble, line)
        assert answer.value == pytest.approx(other.value, rel=2e-4, abs=1e-6)
