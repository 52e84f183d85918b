"""Models in plain data: weak duality, cuts, refusals."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ennopt.milp import available_backends, backend
from ennopt.milp.highs import HotLp
from ennopt.milp.model import Inequality, LinearModel
from ennopt.milp.solver import Separation, SolveHooks

seeds = st.integers(0, 2**32 - 1)


def random_model(rng: np.random.Generator, n: int = 6, m: int = 5) -> LinearModel:
    """A feasible, bounded model with rows of all kinds."""
    rows = rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.7)
    inside = rows @ rng.uniform(-1, 1, n)
    low, high = inside - rng.random(m), inside + rng.random(m)
    low[0], high[1] = -np.inf, np.inf
    low[2] = high[2] = inside[2]
    return LinearModel.of(
        -np.ones(n), np.ones(n), rng.normal(size=n), rows,
        lower_rows=low, upper_rows=high, offset=float(rng.normal()),
    )  # fmt: skip


def scipy_maximum(model: LinearModel) -> float:
    dense = np.zeros((model.num_rows, model.num_columns))
    for r in range(model.num_rows):
        columns, values = model.row(r)
        dense[r, columns] = values
    up, down = np.isfinite(model.row_upper), np.isfinite(model.row_lower)
    found = linprog(
        -model.objective,
        A_ub=np.vstack([dense[up], -dense[down]]),
        b_ub=np.concatenate([model.row_upper[up], -model.row_lower[down]]),
        bounds=list(zip(model.lower, model.upper, strict=True)),
    )
    return model.offset - found.fun


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_any_multipliers_bound_the_maximum(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    best = scipy_maximum(model)
    for scale in (0.0, 0.1, 1.0, 100.0):
        assert best - 1e-9 <= model.dual_bound(scale * rng.normal(size=5)) < np.inf


@pytest.mark.parametrize("seed", range(200))
def test_the_bound_is_above_the_maximum_in_exact_arithmetic(seed):
    """A continuous knapsack, whose optimum and multiplier are known as fractions."""
    rng = np.random.default_rng(seed)
    gains, weights = rng.random(6), rng.random(6) + 0.1
    room = float(rng.random() * weights.sum())
    order = sorted(range(6), key=lambda j: -Fraction(gains[j]) / Fraction(weights[j]))
    left, best, price = Fraction(room), Fraction(0), 0.0
    for j in order:
        part = min(Fraction(1), left / Fraction(weights[j]))
        best += part * Fraction(gains[j])
        left -= part * Fraction(weights[j])
        if part < 1:
            price = gains[j] / weights[j]
            break
    model = LinearModel.of(np.zeros(6), np.ones(6), gains, [weights], upper_rows=[room])
    bound = Fraction(model.dual_bound(np.array([price])))
    assert best <= bound <= best + Fraction(1e-12)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_multipliers_that_have_no_side_count_as_zero(seed):
    """Row 0 has no lower side and row 1 no upper one; NaN and infinity say nothing."""
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    duals = rng.normal(size=5)
    wrong, zero = duals.copy(), duals.copy()
    wrong[:2] = -abs(duals[0]), abs(duals[1])
    wrong[3:] = np.nan, np.inf
    zero[[0, 1, 3, 4]] = 0.0
    assert model.dual_bound(wrong) == model.dual_bound(zero)
    one, other = model.weak_duality(wrong), model.weak_duality(zero)
    np.testing.assert_array_equal(one.reduced, other.reduced)
    np.testing.assert_array_equal(one.of_rows, other.of_rows)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_the_objective_is_what_columns_and_rows_take_of_it(seed):
    rng = np.random.default_rng(seed)
    model, duals = random_model(rng), rng.normal(size=5)
    dual = model.weak_duality(duals)
    found = HotLp(model).maximize(rng.normal(size=model.num_columns))
    assert found.x is not None
    taken = dual.reduced @ found.x + dual.of_rows.sum()  # each row at its best side
    assert model.objective @ found.x <= taken + 1e-7


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_multipliers_of_the_solver_give_the_maximum(seed):
    model = random_model(np.random.default_rng(seed))
    found = HotLp(model).maximize(model.objective, model.offset)
    assert found.bound == pytest.approx(scipy_maximum(model), abs=1e-8)
    assert found.bound >= found.value - 1e-9


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_a_hot_start_changes_no_answer(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    hot = HotLp(model)
    for _ in range(6):
        objective = rng.normal(size=model.num_columns)
        cold = HotLp(model).maximize(objective, 1.0)
        assert hot.maximize(objective, 1.0).bound == pytest.approx(cold.bound, abs=1e-8)


def test_an_unbounded_column_leaves_the_bound_unknown():
    model = LinearModel.of([0, 0], [1, np.inf], [1, 1], [[1, 1]], upper_rows=[2])
    assert model.dual_bound(np.zeros(1)) == np.inf
    assert model.dual_bound(np.array([-1.0])) == np.inf  # clipped: wrong sign


def test_columns_without_any_coefficient_may_be_unbounded():
    model = LinearModel.of([0, -np.inf], [1, np.inf], [3, 0])
    assert model.dual_bound(np.zeros(0)) == pytest.approx(3.0)


def test_cuts_become_rows():
    model = random_model(np.random.default_rng(0))
    cuts = [Inequality([0, 3], [1.0, 2.0], 0.25), Inequality([5], [-1.0], 0.5)]
    grown = model.with_inequalities(cuts)
    v = np.linspace(-1, 1, model.num_columns)
    extra = grown.activities(v)[model.num_rows :] - grown.row_upper[model.num_rows :]
    np.testing.assert_allclose(extra, [cut.violation(v) for cut in cuts])
    np.testing.assert_allclose(
        grown.activities(v)[: model.num_rows], model.activities(v)
    )


def test_violation_sees_bounds_rows_and_integrality():
    model = LinearModel.of([0], [3], [1], [[2]], upper_rows=[4], integer=[1])
    assert model.violation(np.array([2.0])) == 0
    assert model.violation(np.array([3.0])) == 2.0
    assert model.violation(np.array([-1.0])) == 1.0
    assert model.violation(np.array([1.5])) == 0.5


def test_models_are_frozen_and_survive_pickling():
    model = random_model(np.random.default_rng(1))
    with pytest.raises(ValueError, match="read-only"):
        model.lower[0] = 5.0
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.coefficients, model.coefficients)
    assert repr(twin) == repr(model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"upper": [1, 1]}, "upper of shape"),
        ({"objective": [np.nan]}, "finite"),
        ({"columns": [3]}, "columns in"),
        ({"starts": [0]}, "starts"),
    ],
)
def test_malformed_models_are_refused(change, words):
    parts = {
        "lower": [0], "upper": [1], "objective": [1], "integer": [False],
        "starts": [0, 1], "columns": [0], "coefficients": [1.0],
        "row_lower": [0], "row_upper": [1],
    }  # fmt: skip
    LinearModel(**parts)
    with pytest.raises(ValueError, match=words):
        LinearModel(**(parts | change))


def test_required_inequalities_must_be_asked_for_at_solutions():
    with pytest.raises(ValueError, match="at_integral"):
        Separation(lambda v, integral: [], required=True)


def test_a_start_of_the_wrong_length_is_refused():
    model = random_model(np.random.default_rng(2))
    with pytest.raises(ValueError, match=r"start of shape \(6,\)"):
        backend("highs").solve(model, hooks=SolveHooks(start=np.zeros(3)))


def test_unknown_backends_are_refused_and_known_ones_installed():
    with pytest.raises(ValueError, match="among highs, scip, gurobi"):
        backend("cbc")
    assert available_backends() == ("highs", "scip", "gurobi")
