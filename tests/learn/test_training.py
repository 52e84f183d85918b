from dataclasses import replace

import numpy as np
import pytest

from ennopt.learn.datasets import Table
from ennopt.learn.functions import BEALE, PEAKS
from ennopt.learn.hyperparameters import paper_configurations
from ennopt.learn.sampling import sample
from ennopt.learn.training import (
    Batched,
    Configuration,
    Order,
    ScikitLearn,
    Trained,
    train,
    train_all,
    training_rows,
)

QUICK = Configuration(members=3, layers=2, width=8, max_epochs=5)
TOOLKITS = [Batched(), ScikitLearn()]


def same(a: Trained, b: Trained) -> bool:
    return all(
        np.array_equal(w, v)
        for m, n in zip(a.scaled.members, b.scaled.members, strict=True)
        for w, v in zip(
            (*m.weights, *m.biases), (*n.weights, *n.biases), strict=True
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def peaks():
    return sample(PEAKS, count=300, seed=1)


@pytest.mark.parametrize("toolkit", TOOLKITS, ids=repr)
def test_same_seed_same_ensemble(toolkit, peaks):
    first = train(peaks, QUICK, seed=7, toolkit=toolkit)
    assert same(first, train(peaks, QUICK, seed=7, toolkit=toolkit))
    assert not same(first, train(peaks, QUICK, seed=8, toolkit=toolkit))


def test_same_seed_same_bytes(peaks, tmp_path):
    for name in ("a.npz", "b.npz"):
        train(peaks, QUICK, seed=3).ensemble.save(tmp_path / name)
    a, b = ((tmp_path / name).read_bytes() for name in ("a.npz", "b.npz"))
    assert a == b


def test_ensembles_trained_together_are_those_trained_alone(peaks):
    orders = [
        Order(peaks, replace(QUICK, members=e), np.random.SeedSequence(s))
        for e in (2, 3)
        for s in (0, 1)
    ]
    together = train_all(orders)
    assert all(same(a, b) for a, b in zip(together, train_all(orders), strict=True))
    for order, one in zip(orders, together, strict=True):
        alone = train(peaks, order.configuration, seed=int(order.stream.entropy))
        assert same(one, alone)


@pytest.mark.parametrize("toolkit", TOOLKITS, ids=repr)
def test_the_error_is_that_of_the_forward_pass_on_test_rows(toolkit, peaks):
    trained = train(peaks, QUICK, seed=2, toolkit=toolkit)
    test = list(trained.test)
    residuals = trained.ensemble(peaks.x[test])[:, 0] - peaks.y[test]
    assert trained.rmse_in_units == pytest.approx(np.sqrt(np.mean(residuals**2)))
    spread = peaks.y.max() - peaks.y.min()
    assert trained.rmse == pytest.approx(trained.rmse_in_units / spread)
    assert len(test) == 60
    assert set(test).isdisjoint(training_rows(peaks, seed=2).tolist())
    assert len(test) + len(training_rows(peaks, seed=2)) == peaks.num_rows


def test_scalers_are_folded_into_original_units():
    rng = np.random.default_rng(0)
    x = rng.random((200, 2)) * [5.0, 0.01] + [100.0, -3.0]
    table = Table(x, 1e4 + 50 * x[:, 0] - 900 * x[:, 1], ("dose", "heat"), "y")
    trained = train(table, QUICK)
    ensemble = trained.ensemble
    assert ensemble.input_names == ("dose", "heat")
    assert np.array_equal(ensemble.lower, x.min(axis=0))
    assert np.array_equal(ensemble.upper, x.max(axis=0))
    unit = (x - x.min(axis=0)) / np.ptp(x, axis=0)
    expected = table.y.min() + np.ptp(table.y) * trained.scaled(unit)[:, 0]
    assert np.allclose(ensemble(x)[:, 0], expected, rtol=1e-9)


def test_a_minimized_target_is_turned_around_only_on_demand(peaks):
    stream = np.random.SeedSequence(0)
    plain = train_all([Order(peaks, QUICK, stream)])[0]
    turned = train_all([Order(peaks, QUICK, stream, maximized=True)])[0]
    assert turned.scaling.negated and not plain.scaling.negated
    lowest, highest = int(np.argmin(peaks.y)), int(np.argmax(peaks.y))
    assert turned.scaling.target(peaks.y)[[lowest, highest]].tolist() == [1, 0]
    assert plain.scaling.target(peaks.y)[[lowest, highest]].tolist() == [0, 1]
    # Both predict the target itself in original units.
    unit = turned.scaling.inputs(peaks.x)
    low, high = peaks.y.min(), peaks.y.max()
    expected = high - (high - low) * turned.scaled(unit)[:, 0]
    assert np.allclose(turned.ensemble(peaks.x)[:, 0], expected)


@pytest.mark.parametrize("toolkit", TOOLKITS, ids=repr)
def test_both_toolkits_learn(toolkit):
    x = np.random.default_rng(0).random((300, 2))
    table = Table(x, np.abs(x[:, 0] - 0.4) + x[:, 1] ** 2, ("a", "b"), "y")
    c = Configuration(members=2, width=20, max_epochs=60, learning_rate=5e-3)
    trained = train(table, c, toolkit=toolkit)
    spread = np.std(trained.scaling.target(table.y))
    assert trained.rmse < 0.3 * spread
    assert trained.rmse <= max(trained.member_rmse)  # averaging never hurts the worst
    assert trained.ensemble.num_members == 2


def test_networks_of_the_paper_sizes_reach_a_small_error():
    trained = train(sample(PEAKS), Configuration(members=3, layers=4, width=20))
    assert trained.rmse < 0.02
    assert max(trained.epochs) <= 500


def test_without_bagging_members_differ_by_their_start_only(peaks):
    trained = train(peaks, replace(QUICK, bagging=False))
    values = trained.scaled.member_values(np.full(2, 0.5))
    assert len(set(values.ravel().tolist())) == 3
    assert not same(trained, train(peaks, QUICK))


def test_fewer_rows_than_members_are_refused():
    table = sample(BEALE, count=12)
    with pytest.raises(ValueError, match=r"as many rows to fit as members .9., got 8"):
        train(table, replace(QUICK, members=9))
    assert train(table, replace(QUICK, members=8)).ensemble.num_members == 8


@pytest.mark.parametrize(
    ("name", "value"),
    [("members", 0), ("width", 2.5), ("patience", -1), ("learning_rate", 0.0)],
)
def test_a_bad_configuration_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}.*got {value}"):
        replace(QUICK, **{name: value})


def test_the_paper_has_four_single_networks_and_four_ensembles_each():
    for problem in ("peaks", "beale", "perm", "spring"):
        for sampling in ("lhs", "mvn"):
            assert len(paper_configurations(problem, sampling, "single")) == 4
            ensembles = paper_configurations(problem, sampling, "ensemble")
            assert len(ensembles) == 4
            assert all(c.layers == 2 and c.members > 1 for c in ensembles)
    last = paper_configurations("spring", "mvn")[-1]
    assert (last.members, last.width, last.learning_rate) == (1, 175, 0.0015953)
    with pytest.raises(ValueError, match="one of peaks"):
        paper_configurations("wine")
