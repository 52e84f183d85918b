"""A predictor inside a solver's model is the predictor."""

import io

import numpy as np
import pandas as pd
import pytest
from desks import (
    DESKS,
    GurobiDesk,
    HighsDesk,
    PyomoDesk,
    ScipDesk,
    constrain,
    inputs,
    rough,
    total,
)

import ennopt
from ennopt import Domain, Ensemble, Network
from ennopt.embed import add_predictor_constr
from ennopt.embed.addition import STEPS
from oracles import mixed, random_domain, random_ensemble, random_network

every_desk = pytest.mark.parametrize("make", DESKS, ids=lambda make: make.name)

ABSOLUTE = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])


# The same answers as everywhere else.


@every_desk
@pytest.mark.parametrize("seed", range(3))
def test_the_largest_prediction_is_that_of_our_own_engine(make, seed):
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 2, 2, (5, 4), weighted=seed > 0)
    domain, desk = random_domain(rng), make()
    added = add_predictor_constr(desk.model, ensemble, inputs(desk, domain))
    for sense, own in (("max", ennopt.maximize), ("min", ennopt.minimize)):
        found = desk.solve(added.output[0, 0], sense)
        proved = own(ensemble, domain, gap=1e-7).value
        assert found == pytest.approx(proved, abs=rough(proved))
        assert added.get_error().shape == (1, 1)
        assert added.get_error().max() <= rough(proved)
        point = added.input_values[0]
        assert ensemble(point)[0] == pytest.approx(proved, abs=rough(proved))
        desk.reopen()


@every_desk
@pytest.mark.parametrize("seed", range(2))
def test_the_least_cost_with_a_limit_on_the_prediction_is_proved_by_our_engine(
    make, seed
):
    """Below the least cost, no input reaches the limit."""
    rng = np.random.default_rng(10 + seed)
    ensemble, domain = random_ensemble(rng, 2, 3, (6,)), random_domain(rng, 3)
    best, least = (
        f(ensemble, domain).value for f in (ennopt.maximize, ennopt.minimize)
    )
    limit = least + 0.7 * (best - least)
    prices = rng.uniform(0.5, 2.0, 3)
    desk = make()
    variables = inputs(desk, domain)
    fee = desk.variable(0.0, 5.0, "fee")
    added = add_predictor_constr(desk.model, ensemble, variables)
    desk.constrain(added.output[0, 0] >= limit)
    desk.constrain(fee - 2.0 * variables[0] >= 0.5)
    cost = desk.solve(total(prices, variables) + 0.1 * fee, "min")
    point = added.input_values[0]
    assert ensemble(point)[0] >= limit - rough(limit)
    paid = max(0.0, 2.0 * point[0] + 0.5)
    assert prices @ point + 0.1 * paid == pytest.approx(cost, abs=1e-5)
    # The engine takes the fee as two cases, with it and without.
    for rows in (
        ([prices, [2.0, 0, 0]], [-np.inf, -np.inf], [cost - 1e-3, -0.5]),
        (
            [prices + np.array([0.2, 0, 0]), [2.0, 0, 0]],
            [-np.inf, -0.5],
            [cost - 0.05 - 1e-3, 4.5],
        ),
    ):
        cheaper = ennopt.maximize(ensemble, domain, constraints=[rows])
        assert cheaper.status.value == "infeasible" or cheaper.bound < limit


@every_desk
def test_two_predictors_share_a_model(make, rng):
    first, second = random_ensemble(rng, 2, 2, (4,)), random_ensemble(rng, 1, 2, (5,))
    domain, desk = random_domain(rng), make()
    variables = inputs(desk, domain)
    one = add_predictor_constr(desk.model, first, variables)
    two = add_predictor_constr(desk.model, second, variables)
    found = desk.solve(one.output[0, 0] - 2.0 * two.output[0, 0])
    both = Ensemble([*first.members, *second.members], weights=[0.5, 0.5, -2.0])
    proved = ennopt.maximize(both, domain).value
    assert found == pytest.approx(proved, abs=rough(proved))
    assert max(one.get_error().max(), two.get_error().max()) <= 1e-5


@every_desk
def test_a_prediction_may_be_an_input_of_another_predictor(make, rng):
    first, second = random_network(rng, 1, (5, 4)), random_network(rng, 1, (4,))
    desk = make()
    x = desk.variable(-2.0, 2.0, "x")
    inner = add_predictor_constr(desk.model, first, [x])
    outer = add_predictor_constr(desk.model, second, inner.output)
    found = desk.solve(outer.output[0, 0])
    grid = second(first(np.linspace(-2.0, 2.0, 4001)[:, None])).max()
    assert grid - 1e-5 <= found <= grid + 1e-2
    reached = second(first(inner.input_values))[0, 0]
    assert reached == pytest.approx(found, abs=1e-5)


@every_desk
def test_samples_are_predicted_side_by_side(make, rng):
    """Three samples share a budget; each has several outputs."""
    ensemble, desk = random_ensemble(rng, 2, 2, (4, 3), num_outputs=2), make()
    rows = [
        [desk.variable(-1.0, 1.0 + r, f"in{r}{j}") for j in range(2)] for r in range(3)
    ]
    added = add_predictor_constr(desk.model, ensemble, rows)
    desk.constrain(sum((row[0] for row in rows[1:]), start=1.0 * rows[0][0]) <= 0.5)
    desk.solve(
        total(np.ones(6), [added.output[r, k] for r in range(3) for k in (0, 1)])
    )
    assert added.input_values.shape == (3, 2)
    assert added.output_values == pytest.approx(ensemble(added.input_values), abs=1e-5)
    assert added.input_values[:, 0].sum() <= 0.5 + 1e-6


@every_desk
def test_given_output_variables_become_the_predictions(make, rng):
    ensemble, domain, desk = random_ensemble(rng), random_domain(rng), make()
    out = desk.variable(name="out")
    add_predictor_constr(desk.model, ensemble, inputs(desk, domain), [out])
    proved = ennopt.maximize(ensemble, domain).value
    assert desk.solve(1.0 * out) == pytest.approx(proved, abs=rough(proved))


@every_desk
@pytest.mark.parametrize("seed", range(2))
def test_no_point_of_the_box_is_cut_off(make, seed):
    rng = np.random.default_rng(20 + seed)
    ensemble = random_ensemble(rng, 2, 2, (5, 4, 3))
    domain = random_domain(rng)
    points = np.concatenate(
        [domain.sample(6, rng), [domain.lower, domain.upper]]
    ).tolist()
    desk = make()
    variables = [
        [desk.variable(low, high, f"in{r}{j}") for j, (low, high) in enumerate(
            zip(domain.lower.tolist(), domain.upper.tolist(), strict=True)
        )]
        for r in range(len(points))
    ]  # fmt: skip
    added = add_predictor_constr(desk.model, ensemble, variables, bounds="search")
    for row, point in zip(variables, points, strict=True):
        for variable, value in zip(row, point, strict=True):
            desk.constrain(variable == value)
    desk.solve(1.0 * variables[0][0])
    assert added.output_values == pytest.approx(ensemble(np.array(points)), abs=1e-5)


@pytest.mark.parametrize("bounds", [*STEPS, ennopt.Crown(), [ennopt.LpTightening()]])
def test_every_way_to_bound_neurons_gives_the_same_optimum(bounds, rng):
    ensemble, domain = random_ensemble(rng, 2, 2, (5, 4), num_outputs=2), mixed(rng, 2)
    proved = ennopt.maximize(ensemble, domain, output=[1.0, -1.0]).value
    desk = HighsDesk()
    variables = inputs(desk, domain)
    constrain(desk, domain, variables)
    added = add_predictor_constr(
        desk.model, ensemble, variables, bounds=bounds, constraints=True
    )
    found = desk.solve(added.output[0, 0] - added.output[0, 1])
    assert found == pytest.approx(proved, abs=rough(proved))


@pytest.mark.parametrize("formulation", ["bigm", "sos"])
@pytest.mark.parametrize("make", [GurobiDesk, ScipDesk, PyomoDesk])
def test_neurons_may_be_binaries_or_sets(make, formulation, rng):
    ensemble, domain = random_ensemble(rng, 2, 2, (5, 4)), random_domain(rng)
    desk = make()
    if make is PyomoDesk:
        desk.solver = "appsi_gurobi"
    added = add_predictor_constr(
        desk.model, ensemble, inputs(desk, domain), formulation=formulation
    )
    proved = ennopt.minimize(ensemble, domain).value
    found = desk.solve(added.output[0, 0], "min")
    assert found == pytest.approx(proved, abs=rough(proved))
    assert added.get_error().max() <= rough(proved)
    desk.reopen()
    added.remove()
    assert desk.size()[1] == 0


@every_desk
def test_constraints_of_the_model_make_bounds_closer(make, rng):
    ensemble, domain = random_ensemble(rng, 1, 2, (6, 6)), Domain([0, 0], [4.0, 4.0])
    widths = []
    for constraints in (False, True):
        desk = make()
        variables = inputs(desk, domain)
        other = desk.variable(0.0, 1.0, "other")
        desk.constrain(variables[0] + variables[1] <= 1.0)
        desk.constrain(variables[0] - 2.0 * variables[1] == 0.1)
        desk.constrain(variables[0] + other >= 1.0)  # says nothing about inputs alone
        added = add_predictor_constr(
            desk.model, ensemble, variables, constraints=constraints
        )
        widths.append(added.bounds[0].mean_width)
    assert widths[1] < 0.9 * widths[0]


def test_scip_rows_whose_variables_share_a_name_are_left_alone(rng):
    desk = ScipDesk()
    variables = [desk.variable(0.0, 4.0, "same") for _ in range(2)]
    desk.constrain(variables[0] + 100.0 * variables[1] <= 4.0)
    ensemble = random_ensemble(rng)
    added = add_predictor_constr(desk.model, ensemble, variables, constraints=True)
    desk.solve(added.output[0, 0])
    proved = ennopt.maximize(ensemble, (0, 4), constraints="x0 + 100*x1 <= 4").value
    assert ensemble(added.input_values)[0, 0] == pytest.approx(proved, rel=1e-3)


@pytest.mark.parametrize("seed", range(32))
def test_random_decisions_agree_with_our_engine(seed):
    """Sets, shapes, weights, ways to bound and to state neurons, all mixed."""
    rng = np.random.default_rng(seed)
    desk, d, m = DESKS[seed % 4](), *rng.integers(1, 4, 2).tolist()
    widths = rng.integers(1, 6, size=rng.integers(0, 4)).tolist()
    ensemble = random_ensemble(
        rng, int(rng.integers(1, 4)), d, widths, m, weighted=bool(seed % 2),
        scale=float(10 ** rng.uniform(-1, 1)),
    )  # fmt: skip
    domain = mixed(rng, d, 2, equal=bool(rng.random() < 0.3))
    variables = inputs(desk, domain)
    constrain(desk, domain, variables)
    options = {
        "bounds": str(rng.choice(list(STEPS))), "constraints": bool(rng.random() < 0.6)
    }  # fmt: skip
    if desk.name in ("gurobi", "scip"):
        options["formulation"] = str(rng.choice(["bigm", "sos"]))
    added = add_predictor_constr(desk.model, ensemble, variables, **options)
    mix = rng.normal(size=m)
    found = desk.solve(total(mix, added.output[0]))
    proved = ennopt.maximize(ensemble, domain, output=mix).value
    size = max(1.0, abs(proved), np.abs(added.output_values).max())
    assert found == pytest.approx(proved, abs=3e-4 * size)
    assert added.get_error().max() <= 1e-4 * size


def test_an_optimum_on_the_proved_range_of_the_prediction_stays_feasible():
    """HiGHS called this model infeasible when the range had no room."""
    rng = np.random.default_rng(5342)
    rng.integers(1, 4), rng.integers(1, 3), rng.integers(1, 4)
    widths = rng.integers(1, 6, size=rng.integers(0, 4)).tolist()
    weighted, scale = bool(rng.random() < 0.5), float(10 ** rng.uniform(-1, 1))
    ensemble = random_ensemble(rng, 1, 2, widths, weighted=weighted, scale=scale)
    domain = mixed(rng, 2, int(rng.integers(1, 3)), bool(rng.random() < 0.3))
    desk = HighsDesk()
    variables = inputs(desk, domain)
    constrain(desk, domain, variables)
    added = add_predictor_constr(
        desk.model, ensemble, variables, bounds="search", constraints=True
    )
    for factor in (-3.0, -1.0, -0.3, 0.3, 1.0, 3.0):
        desk.solve(factor * added.output[0, 0])
        assert desk.model.getModelStatus().name == "kOptimal"
    proved = ennopt.minimize(ensemble, domain).value
    found = desk.solve(added.output[0, 0], "min")
    assert found == pytest.approx(proved, abs=1e-5)


def test_a_search_bounds_the_prediction_itself():
    desk = HighsDesk()
    x, out = desk.variable(-1.0, 2.0), desk.variable(name="out")
    ensemble = Ensemble([ABSOLUTE, ABSOLUTE], weights=[3.0, -1.0])
    add_predictor_constr(desk.model, ensemble, [x], [out], bounds="search")
    desk.model.setOptionValue("solve_relaxation", True)
    assert desk.solve(1.0 * out) == pytest.approx(4.0, abs=1e-3)
    assert desk.solve(1.0 * out, "min") == pytest.approx(0.0, abs=1e-3)


def test_units_far_from_one_do_not_matter(rng):
    """Weights of mixed magnitudes, inputs in thousands, a prediction in millionths."""
    base = random_network(rng, 2, (5, 4))
    first = base.weights[0] * [1e-3, 1e3]
    network = Network(
        (first * 1e-5, base.weights[1] * 1e5, base.weights[2] * 1e-6),
        (base.biases[0] * 1e-5, base.biases[1], base.biases[2] * 1e-6),
    )
    desk = ScipDesk()
    variables = [desk.variable(-1e3, 1e3, "a"), desk.variable(-1e-3, 1e-3, "b")]
    added = add_predictor_constr(desk.model, network, variables)
    desk.solve(1e6 * added.output[0, 0])
    proved = ennopt.maximize(network, [(-1e3, 1e3), (-1e-3, 1e-3)]).value
    assert network(added.input_values)[0, 0] == pytest.approx(proved, rel=1e-3)


# What a user may pass.


def test_forms_of_inputs_mean_the_same(rng):
    network = random_network(rng)
    named = Ensemble([network], input_names=("heat", "dose"))
    domain = Domain([-1.0, -1.0], [1.0, 1.0])
    proved = ennopt.maximize(network, domain).value
    forms = {
        "list": list,
        "tuple": tuple,
        "rows": lambda v: [v],
        "array": lambda v: np.array(v, dtype=object),
        "table": lambda v: pd.DataFrame(
            [[v[1], 7, v[0]]], columns=["dose", "x", "heat"]
        ),
        "series": lambda v: pd.Series({"dose": v[1], "heat": v[0]}),
        "names": lambda v: {"dose": v[1], "heat": v[0]},
        "numbers": lambda v: {0: v[0], 1: v[1]},
        "pairs": lambda v: {(0, "dose"): v[1], (0, "heat"): v[0]},
    }
    for name, form in forms.items():
        desk = HighsDesk()
        added = add_predictor_constr(desk.model, named, form(inputs(desk, domain)))
        found = desk.solve(added.output[0, 0])
        assert found == pytest.approx(proved, abs=1e-5), name


def test_matrices_of_solvers_are_taken_and_given(rng):
    network = random_network(rng, 3)
    desk = GurobiDesk()
    matrix = desk.model.addMVar((2, 3), lb=-1, ub=1)
    added = add_predictor_constr(desk.model, network, matrix)
    desk.model.addConstr(added.output >= -100)  # all of them at once
    assert type(added.input) is type(added.output) is type(matrix)
    assert added.output.shape == (2, 1)
    single = add_predictor_constr(desk.model, network, matrix[0])
    assert single.input.shape == (1, 3)

    desk = ScipDesk()
    matrix = desk.model.addMatrixVar((2, 3), lb=-1, ub=1)
    added = add_predictor_constr(desk.model, network, matrix)
    assert isinstance(added.output, type(matrix))
    desk.model.addMatrixCons(added.output >= -100)

    desk = HighsDesk()
    vector = desk.model.addVariables(3, lb=-1, ub=1)
    added = add_predictor_constr(desk.model, network, vector)
    assert isinstance(added.output, type(vector))

    pyo = pytest.importorskip("pyomo.environ")
    desk = PyomoDesk()
    desk.model.x = pyo.Var(["x0", "x1", "x2"], bounds=(-1, 1))
    desk.model.y = pyo.Var([0, 1], [0, 1, 2], bounds=(-1, 1))
    assert len(add_predictor_constr(desk.model, network, desk.model.x).inputs) == 1
    assert len(add_predictor_constr(desk.model, network, desk.model.y).inputs) == 2


def test_a_pyomo_predictor_may_live_in_a_block(rng):
    pyo = pytest.importorskip("pyomo.environ")
    desk = PyomoDesk()
    desk.model.plant = pyo.Block()
    x = desk.variable(-1.0, 2.0, "x")
    added = add_predictor_constr(desk.model.plant, ABSOLUTE, x, name="net")
    assert "plant.net" in added.output[0, 0].name
    assert desk.solve(added.output[0, 0]) == pytest.approx(2.0)
    fixed = desk.variable(name="fixed")
    fixed.fix(-3.0)
    added = add_predictor_constr(desk.model, ABSOLUTE, fixed)
    assert desk.solve(added.output[0, 0]) == pytest.approx(3.0, abs=1e-5)


@every_desk
def test_a_number_is_a_constant_input(make, rng):
    network, desk = random_network(rng, 3), make()
    x = desk.variable(-1.0, 1.0, "x")
    added = add_predictor_constr(desk.model, network, [0.3, x, np.int64(1)])
    proved = ennopt.maximize(network, {"x0": 0.3, "x1": (-1.0, 1.0), "x2": 1}).value
    found = desk.solve(added.output[0, 0])
    assert found == pytest.approx(proved, abs=rough(proved))
    assert added.input_values[0, [0, 2]].tolist() == [0.3, 1.0]


@every_desk
def test_a_variable_may_be_several_inputs(make, rng):
    network, desk = random_network(rng, 2), make()
    x = desk.variable(-1.0, 1.0, "x")
    added = add_predictor_constr(desk.model, network, [x, x])
    proved = ennopt.maximize(network, [(-1, 1)] * 2, constraints="x0 == x1").value
    found = desk.solve(added.output[0, 0])
    assert found == pytest.approx(proved, abs=rough(proved))


@every_desk
def test_categories_are_variables_of_zeros_and_ones(make, rng):
    ensemble, desk = random_ensemble(rng, 2, 4, (6,)), make()
    x = desk.variable(-1.0, 1.0, "x")
    levels = [desk.variable(0.0, 1.0, f"level{k}", whole=True) for k in range(3)]
    desk.constrain(levels[0] + levels[1] + levels[2] == 1)
    added = add_predictor_constr(desk.model, ensemble, [x, *levels], constraints=True)
    proved = ennopt.maximize(
        ensemble,
        [(-1, 1), *[(0, 1)] * 3],
        categories={"level": ["x1", "x2", "x3"]},
    ).value
    found = desk.solve(added.output[0, 0])
    assert found == pytest.approx(proved, abs=rough(proved))


def test_scalers_and_bagging_are_folded_in(rng):
    neural = pytest.importorskip("sklearn.neural_network")
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import BaggingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = pd.DataFrame(
        {"temperature": rng.uniform(600, 900, 60), "dose": rng.uniform(0, 0.01, 60)}
    )
    target = 1e4 * np.sin(table["temperature"] / 60) + 1e6 * table["dose"]
    member = neural.MLPRegressor(
        hidden_layer_sizes=(6, 5), solver="lbfgs", max_iter=2000, random_state=0
    )
    model = make_pipeline(
        StandardScaler(),
        TransformedTargetRegressor(
            BaggingRegressor(member, 3, random_state=0), transformer=StandardScaler()
        ),
    ).fit(table, target)
    for make in DESKS:
        desk = make()
        variables = pd.DataFrame(
            {"dose": [desk.variable(0, 0.01, "d")],
             "temperature": [desk.variable(600, 900, "t")]}
        )  # fmt: skip
        added = add_predictor_constr(desk.model, model, variables)
        desk.solve(added.output[0, 0])
        place = {"temperature": (600, 900), "dose": (0, 0.01)}
        proved = ennopt.maximize(model, place).value
        point = pd.DataFrame(added.input_values, columns=table.columns)
        said = model.predict(point)[0]
        assert said == pytest.approx(proved, rel=1e-3)
        assert added.get_error()[0, 0] == abs(said - added.output_values[0, 0])
        assert added.get_error()[0, 0] <= 1e-4 * abs(said)


def test_models_of_frameworks_and_files_are_taken(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)
    )
    net.eval()
    ennopt.load(net).save(tmp_path / "net.npz")
    proved = ennopt.maximize(net, (-1, 1)).value
    torch.onnx.export(
        net, (torch.zeros(1, 2),), tmp_path / "net.onnx", dynamo=True, verbose=False
    )
    keras = pytest.importorskip("keras")
    twin = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]
    )
    twin.set_weights([part.detach().numpy().T for part in net.parameters()])
    paths = [tmp_path / "net.npz", str(tmp_path / "net.onnx")]
    for predictor in (net, twin, *paths, [net, twin, net]):
        desk = HighsDesk()
        variables = inputs(desk, Domain([-1, -1], [1, 1]))
        added = add_predictor_constr(desk.model, predictor, variables)
        assert desk.solve(added.output[0, 0]) == pytest.approx(proved, abs=1e-5)


@every_desk
def test_a_linear_model_needs_no_neurons(make):
    desk, line = make(), Network([[[3.0]]], [[1.0]])
    x, out = desk.variable(-1.0, 2.0, "x"), desk.variable(name="out")
    added = add_predictor_constr(desk.model, line, [x])
    assert len(added.vars) == len(added.constrs) == 1
    nothing_new = add_predictor_constr(desk.model, line, [x], out)
    assert (len(nothing_new.vars), len(nothing_new.constrs)) == (0, 1)
    assert desk.solve(added.output[0, 0] + out) == pytest.approx(14.0)


@pytest.mark.parametrize("bounds", STEPS)
def test_constraints_that_contradict_each_other_leave_an_infeasible_model(bounds, rng):
    desk = HighsDesk()
    x, y = inputs(desk, Domain([0.0, 0.0], [1.0, 1.0]))
    desk.constrain(x + y >= 1.5)
    desk.constrain(x + y <= 1.2)
    network = random_network(rng, 2, (5, 4))
    added = add_predictor_constr(
        desk.model, network, [x, y], bounds=bounds, constraints=True
    )
    desk.solve(added.output[0, 0])
    assert desk.model.getModelStatus().name == "kInfeasible"
    with pytest.raises(ennopt.NoSolutionError):
        added.get_error()


# What is returned.


@every_desk
def test_what_was_added_can_be_removed(make, rng):
    """The later constraint on the output then speaks of zero."""
    desk, domain = make(), Domain([-1.0, -1.0], [1.0, 1.0])
    variables = inputs(desk, domain)
    before = desk.size()
    added = add_predictor_constr(desk.model, random_network(rng), variables)
    after = desk.size()
    assert after[0] == before[0] + len(added.vars)
    assert after[1] == before[1] + len(added.constrs)
    late = desk.variable(0.0, 3.0, "late")
    desk.constrain(late + added.output[0, 0] <= 2.5)
    desk.solve(1.0 * late)
    desk.reopen()
    added.remove()
    added.remove()
    assert desk.solve(1.0 * late + variables[0]) == pytest.approx(3.5)
    desk.reopen()
    again = add_predictor_constr(desk.model, ABSOLUTE, [variables[0]])
    assert desk.solve(again.output[0, 0]) == pytest.approx(1.0)


@every_desk
@pytest.mark.parametrize("shift", [-10.0, 10.0])
def test_a_removed_output_is_zero_wherever_its_predictions_were(make, shift):
    desk = make()
    x = desk.variable(-1.0, 2.0, "x")
    added = add_predictor_constr(desk.model, ABSOLUTE.fold_output(1.0, shift), [x])
    late = desk.variable(0.0, 3.0, "late")
    desk.constrain(late + added.output[0, 0] <= 2.5)
    added.remove()
    assert desk.solve(1.0 * late) == pytest.approx(2.5)


@every_desk
def test_removing_the_last_thing_leaves_the_model_as_it_was(make, rng):
    desk, domain = make(), Domain([-1.0, -1.0], [1.0, 1.0])
    variables = inputs(desk, domain)
    out = desk.variable(name="out")
    before = desk.size()
    rows = [variables, variables]
    outs = [[out], [desk.variable(name="other")]]
    add_predictor_constr(desk.model, random_network(rng), rows, outs).remove()
    assert desk.size() == (before[0] + 1, before[1])


def test_statistics_count_what_was_added(rng):
    desk = GurobiDesk()
    matrix = desk.model.addMVar((2, 2), lb=-1, ub=1)
    added = add_predictor_constr(desk.model, random_ensemble(rng), matrix, name="net")
    desk.model.update()
    text, short = io.StringIO(), io.StringIO()
    added.print_stats(file=text)
    added.print_stats(True, short)
    binary = sum(v.VType == "B" for v in desk.model.getVars())
    total = desk.model.NumVars - 4
    assert f"{total} variables, {desk.model.NumConstrs} constr" in text.getvalue()
    assert f"neurons, {binary} of them with an open sign" in text.getvalue()
    assert "inputs (2, 2), outputs (2, 1)" in text.getvalue()
    assert short.getvalue().count("\n") == 1
    assert all(v.VarName.startswith("net_") for v in added.vars)
    assert repr(added).startswith("PredictorConstr(net: Ensemble(2 x Network(2 -> 4")


def test_errors_above_a_threshold_are_printed(capsys):
    desk = HighsDesk()
    added = add_predictor_constr(desk.model, ABSOLUTE, [desk.variable(-1.0, 2.0)])
    desk.solve(added.output[0, 0])
    added.get_error(1e-3)
    assert capsys.readouterr().out == ""
    added.get_error(-1.0)
    assert "the predictor says 2, the solution has 2." in capsys.readouterr().out


# Refusals.


@every_desk
def test_values_need_a_solution(make):
    desk = make()
    added = add_predictor_constr(desk.model, ABSOLUTE, [desk.variable(-1.0, 2.0)])
    with pytest.raises(ennopt.NoSolutionError, match="got none"):
        added.get_error()


@every_desk
def test_an_unbounded_input_is_named(make):
    desk = make()
    variables = [desk.variable(0.0, 1.0, "heat"), desk.variable(0.0, name="dose")]
    with pytest.raises(ValueError, match=r"\[0, inf\] at variable dose \(input x1\)"):
        add_predictor_constr(desk.model, Network([[[1, 1]]], [[0]]), variables)
    with pytest.raises(ValueError, match=r"variable dose \(input x0, sample 1\)"):
        rows = [[variable] for variable in variables]
        add_predictor_constr(desk.model, ABSOLUTE, rows)


@every_desk
def test_variables_of_another_model_are_refused(make):
    desk, other = make(), make()
    desk.variable(0.0, 1.0, "own")
    foreign = other.variable(0.0, 1.0, "foreign")
    other.size()
    with pytest.raises(ValueError, match="got one of another model or a removed one"):
        add_predictor_constr(desk.model, ABSOLUTE, [foreign])


@every_desk
def test_an_expression_is_no_variable(make):
    desk = make()
    x = desk.variable(0.0, 1.0, "x")
    with pytest.raises(TypeError, match="add a variable that equals it"):
        add_predictor_constr(desk.model, ABSOLUTE, [2.0 * x + 1.0])
    with pytest.raises(TypeError, match="Expected a variable of the model, got float"):
        add_predictor_constr(desk.model, ABSOLUTE, [x], [1.0])


def refused(match, kind=ValueError, **given):
    desk = HighsDesk()
    x = desk.variable(0.0, 1.0, "x")
    words = {"model": desk.model, "predictor": ABSOLUTE, "input_vars": [x], **given}
    model, predictor = words.pop("model"), words.pop("predictor")
    with pytest.raises(kind, match=match) as error:
        add_predictor_constr(model, predictor, **words)
    assert str(error.value).startswith("Expected ")
    assert "\n" not in str(error.value)
    assert desk.size() == (1, 0)  # nothing was added


def test_bad_input_is_refused_in_one_sentence():
    desk = HighsDesk()
    x, y = desk.variable(0.0, 1.0), desk.variable(0.0, 1.0)
    refused("Expected 1 input variables, .* got 2", input_vars=[x, y])
    refused("got 2 in sample 1", input_vars=[[x], [x, y]])
    refused("Expected 1 input variables, .* got 0", input_vars=[])
    refused("one dimension or two, got 3", input_vars=np.zeros((1, 1, 1), object))
    refused("Expected variables as a list", TypeError, input_vars="x")
    refused("got NoneType at input x0", TypeError, input_vars=[None])
    refused("Expected a finite number, got nan", input_vars=[np.nan])
    refused("for 1 samples and 1 outputs, got 1 x 2", output_vars=[x, y])
    refused("gurobipy, PySCIPOpt, highspy or Pyomo, got dict", TypeError, model={})
    refused("got 'loose'", bounds="loose")
    refused(r"such as Crown\(\), got <class", TypeError, bounds=ennopt.Crown)
    refused("'bigm' for HiGHS, got 'sos'", formulation="sos")
    refused("Expected time_limit > 0, got 0", time_limit=0)
    tanh = Network(ABSOLUTE.weights, ABSOLUTE.biases, ["tanh"])
    refused("got tanh at hidden layer 0 of member 1", predictor=[ABSOLUTE, tanh])
    named = Ensemble([ABSOLUTE], input_names=["heat"])
    refused("got none for heat among dose", predictor=named, input_vars={"dose": x})
    refused("Expected a trained model, got float", TypeError, predictor=1.0)


def test_a_classifier_is_refused_by_name(rng):
    neural = pytest.importorskip("sklearn.neural_network")
    x = rng.normal(size=(20, 1))
    model = neural.MLPClassifier(hidden_layer_sizes=(2,), solver="lbfgs")
    refused(
        "classifier sklearn MLPClassifier",
        TypeError,
        predictor=model.fit(x, x[:, 0] > 0),
    )


def test_a_scip_model_that_was_solved_must_be_freed_first():
    desk = ScipDesk()
    x = desk.variable(-1.0, 2.0)
    added = add_predictor_constr(desk.model, ABSOLUTE, [x])
    desk.solve(added.output[0, 0])
    with pytest.raises(ValueError, match=r"stage SOLVED. Call freeTransform\(\)"):
        add_predictor_constr(desk.model, ABSOLUTE, [x])
    with pytest.raises(ValueError, match=r"Call freeTransform\(\)"):
        added.remove()


def test_an_abstract_pyomo_model_is_refused():
    pyo = pytest.importorskip("pyomo.environ")
    refused("got an abstract one", model=pyo.AbstractModel())
