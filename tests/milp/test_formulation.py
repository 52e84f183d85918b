"""The big-M model says what the forward pass says, in any units."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.domain import Domain
from ennopt.milp.building import ABSENT
from ennopt.milp.formulation import big_m, sub_network
from ennopt.milp.highs import HotLp
from ennopt.milp.scaling import normalized
from ennopt.network import Network
from ennopt.tightening.relaxation import Interval
from oracles import canonical

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_assignments_are_feasible_and_have_the_predicted_value(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_case(rng)
    problem = canonical(ensemble, domain)
    made = big_m(problem, Interval().tighten(problem))
    for x in domain.sample(10, rng):
        v = made.assignment(x)
        scale = max(1.0, np.abs(v).max())
        assert made.model.violation(v) <= 1e-12 * scale
        assert made.model.value(v) == pytest.approx(float(ensemble(x)[0]), abs=1e-10)
        np.testing.assert_array_equal(made.point(v), x)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_columns_are_read_as_the_activations_of_the_network(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_case(rng)
    problem = oracles.members(ensemble, domain)
    made = big_m(problem, problem.root)
    x = domain.sample(1, rng)[0]
    read = made.activations(made.assignment(x))
    for member, layers in zip(ensemble.members, read, strict=True):
        for h, at in zip(member.preactivations(x)[:-1], layers, strict=True):
            known = ~np.isnan(at.h)
            np.testing.assert_allclose(at.h[known], h[known], atol=1e-10)
            np.testing.assert_allclose(at.y, np.maximum(h, 0), atol=1e-10)
            np.testing.assert_array_equal(at.z[known], (h > 0)[known])
            assert np.all(h[~known] <= 0)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_fixed_binaries_leave_nothing_but_the_network(seed):
    """With x and z fixed by the forward pass, the model has one solution."""
    rng = np.random.default_rng(seed)
    problem = canonical(*oracles.random_case(rng))
    made = big_m(problem, Interval().tighten(problem))
    v = made.assignment(problem.domain.sample(1, rng)[0])
    lower, upper = made.model.lower.copy(), made.model.upper.copy()
    for columns in (made.inputs, made.binaries):
        lower[columns] = upper[columns] = v[columns]
    fixed = HotLp(made.model.with_column_bounds(lower, upper))
    for sign in (1.0, -1.0):
        found = fixed.maximize(sign * made.model.objective, sign * made.model.offset)
        assert sign * found.value == pytest.approx(made.model.value(v), abs=1e-6)


def test_stable_neurons_take_no_binary_and_off_neurons_vanish():
    first = np.array([[1.0], [1.0], [1.0]])
    net = Network((first, np.ones((1, 3))), ([5.0, -5.0, 0.0], [0.0]))
    problem = Canonical.sum_of([net], Domain([-1.0], [1.0]))
    made = big_m(problem, Interval().tighten(problem))
    at = made.neurons[0][0]
    assert (at.z != ABSENT).tolist() == [False, False, True]
    assert (at.y != ABSENT).tolist() == [True, False, True]
    assert (at.s != ABSENT).tolist() == [False, False, True]
    assert made.model.num_integer == made.binaries.size == 1


def test_infinite_bounds_are_refused_by_name():
    ensemble = oracles.random_ensemble(np.random.default_rng(0))
    problem = canonical(ensemble, Domain([0, 0], [1, 1]))
    bounds = NeuronBounds.unknown(problem.networks)
    with pytest.raises(ValueError, match="member 0, layer 0, neuron 0"):
        big_m(problem, bounds)


def test_several_outputs_are_added_up():
    ensemble = oracles.random_ensemble(np.random.default_rng(0), num_outputs=2)
    problem = oracles.members(ensemble, Domain([0, 0], [1, 1]))
    made = big_m(problem, problem.root)
    x = np.array([0.3, 0.8])
    total = sum(member(x).sum() for member in ensemble.members)
    assert made.model.value(made.assignment(x)) == pytest.approx(total)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_the_triangle_is_the_relaxation_with_binaries_projected_out(seed):
    rng = np.random.default_rng(seed)
    problem = canonical(*oracles.random_case(rng))
    bounds = Interval().tighten(problem)
    values = []
    for relaxed in (False, True):
        model = big_m(problem, bounds, relaxed=relaxed).model
        values.append(HotLp(model).maximize(model.objective, model.offset).bound)
    assert values[0] == pytest.approx(values[1], rel=1e-6, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_sub_networks_state_the_neuron_after_their_layers(seed):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_case(rng)
    bounds = Interval().tighten(oracles.members(ensemble, domain))
    for i, member in enumerate(ensemble.members):
        for k in range(len(member.weights)):
            alone = Canonical.sum_of([member], domain)
            made = sub_network(alone, k, bounds.member(i))
            x = domain.sample(1, rng)[0]
            v = made.assignment(x)
            for j, h in enumerate(member.preactivations(x)[k]):
                form, constant = made.preactivation(0, k, j)
                assert form @ v + constant == pytest.approx(h, abs=1e-10)


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(-60, 60), st.integers(-60, 60))
def test_units_change_no_prediction_at_all(seed, input_exponent, output_exponent):
    rng = np.random.default_rng(seed)
    ensemble, domain = oracles.random_case(rng)
    ensemble = ensemble.fold_input(math.ldexp(1.0, input_exponent), 0.0)
    ensemble = ensemble.fold_output(math.ldexp(1.0, output_exponent), 0.0)
    factor = math.ldexp(1.0, -input_exponent)
    domain = Domain(domain.lower * factor, domain.upper * factor)
    problem = canonical(ensemble, domain)
    same = normalized(problem, problem.root)
    x = domain.sample(5, rng)
    values = ensemble(x)[:, 0]
    np.testing.assert_allclose(
        same.problem.values(x / same.inputs) * same.output, values, rtol=1e-12
    )
    sizes = [np.abs(side).max() for part in same.bounds.upper for side in part]
    assert max(sizes) <= 1.0
    assert np.abs(same.problem.domain.upper).max() <= 1.0
    for i, network in enumerate(same.problem.networks):
        own = problem.networks[i].preactivations(x)
        for k, h in enumerate(network.preactivations(x / same.inputs)):
            np.testing.assert_allclose(h * same.neurons[i][k], own[k], rtol=1e-12)
