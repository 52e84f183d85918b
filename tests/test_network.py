"""Networks and ensembles are checked at the door and compute what they say."""

import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from ennopt.activations import RELU, Tanh
from ennopt.convert.verify import combine
from ennopt.network import (
    Ensemble,
    ModelConfigurationError,
    Network,
    check_size,
    read_npz,
    shown,
)
from oracles import random_ensemble, random_network

SEEDS = range(5)


def slow_forward(network, x):
    y = list(x)
    for k, (w, b) in enumerate(network.layers()):
        h = [
            sum(w[i, j] * y[j] for j in range(w.shape[1])) + b[i]
            for i in range(w.shape[0])
        ]
        y = h if k == len(network.weights) - 1 else [max(0.0, v) for v in h]
    return np.array(y)


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_pass_equals_a_loop_over_neurons(seed):
    rng = np.random.default_rng(seed)
    network = random_network(rng, 3, (5, 4), num_outputs=2)
    points = rng.normal(size=(7, 3))
    expected = [slow_forward(network, x) for x in points]
    np.testing.assert_allclose(network(points), expected, atol=1e-13)
    np.testing.assert_allclose(network(points[0]), expected[0], atol=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_equals_central_differences(seed):
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng, 3, 4, (6, 5), num_outputs=2, weighted=True)
    points, step = rng.normal(size=(5, 4)), 1e-6
    jacobian = ensemble.gradient(points)
    assert jacobian.shape == (5, 2, 4)
    for j in range(4):
        shift = step * np.eye(4)[j]
        slope = (ensemble(points + shift) - ensemble(points - shift)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, :, j], slope, atol=1e-6)


def test_ensemble_is_the_weighted_sum_of_its_members(rng):
    ensemble = random_ensemble(rng, 3, weighted=True)
    x = rng.normal(size=(4, 2))
    total = sum(
        w * m(x) for w, m in zip(ensemble.weights, ensemble.members, strict=True)
    )
    np.testing.assert_allclose(ensemble(x), total, atol=1e-14)
    np.testing.assert_allclose(
        random_ensemble(rng, 4).weights, np.full(4, 0.25), atol=0
    )


def test_folding_moves_scalers_into_the_first_and_last_layers(rng):
    ensemble = random_ensemble(rng, 2, 3, num_outputs=2, weighted=True)
    scale, shift = np.array([-2.0, 0.5, 3.0]), np.array([1.0, -1.0, 0.25])
    x = rng.normal(size=(6, 3))
    np.testing.assert_allclose(
        ensemble.fold_input(scale, shift)(x), ensemble(scale * x + shift), atol=1e-12
    )
    np.testing.assert_allclose(
        ensemble.fold_output([-3.0, 2.0], [5.0, 1.0])(x),
        ensemble(x) * [-3.0, 2.0] + [5.0, 1.0],
        atol=1e-12,
    )
    np.testing.assert_allclose(ensemble.negated()(x), -ensemble(x), atol=0)
    np.testing.assert_allclose(
        ensemble.combine_outputs([0.5, -1.0])(x)[:, 0],
        ensemble(x) @ [0.5, -1.0],
        atol=1e-13,
    )


def test_a_constant_folds_even_where_member_weights_cancel(rng):
    net = random_network(rng)
    ensemble = Ensemble((net, net), weights=[1.0, -1.0]).fold_output(1.0, 4.0)
    np.testing.assert_allclose(ensemble([0.3, 0.1]), [4.0], atol=1e-12)


@pytest.mark.parametrize("kind", [RELU, Tanh()], ids=repr)
def test_a_network_after_a_map_is_the_network_of_its_result(rng, kind):
    net = random_network(rng, 3, (5,), 2)
    net = replace(net, activations=(kind,))
    matrix, shift = rng.normal(size=(3, 4)), rng.normal(size=3)
    u = rng.normal(size=(20, 4))
    assert net.after(matrix, shift)(u) == pytest.approx(net(u @ matrix.T + shift))
    wide = net.spread_inputs([2, 0, 1], 4)
    assert wide(u) == pytest.approx(net(u[:, [2, 0, 1]]))


def test_spread_inputs_read_their_positions(rng):
    net = random_network(rng, 3)
    x = rng.normal(size=(5, 4))
    wide = net.spread_inputs([3, 0, 3], 4)
    np.testing.assert_allclose(wide(x), net(x[:, [3, 0, 3]]), atol=1e-13)


def test_values_are_read_only_copies(rng):
    weight = rng.normal(size=(1, 2))
    net = Network((weight,), ([0.0],))
    weight[:] = 0.0
    assert net.weights[0].any()
    with pytest.raises(ValueError, match="read-only"):
        net.weights[0][:] = 1.0


@pytest.mark.parametrize(
    ("weights", "biases", "message"),
    [
        ([], [], "at least one weight matrix"),
        ([[[1.0]]], [], "one bias vector"),
        ([[1.0]], [[0.0]], "non-empty matrix"),
        ([np.zeros((0, 2))], [[]], "non-empty matrix"),
        ([[[1.0]]], [[0.0, 1.0]], "bias of shape"),
        ([[[1.0]], [[1.0, 2.0]]], [[0.0], [0.0]], "columns to follow layer 0"),
        ([[[np.nan]]], [[0.0]], "NaN or infinity at layer 0"),
        ([[[1.0]]], [[np.inf]], "NaN or infinity at layer 0"),
    ],
)
def test_broken_networks_are_refused(weights, biases, message):
    with pytest.raises(ModelConfigurationError, match=message):
        Network(tuple(weights), tuple(biases))


def test_broken_ensembles_are_refused(rng):
    net = random_network(rng)
    with pytest.raises(ModelConfigurationError, match="at least one member"):
        Ensemble(())
    with pytest.raises(ModelConfigurationError, match=r"num_inputs 2 .* at member 2"):
        Ensemble((net, random_network(rng, 3)))
    with pytest.raises(ModelConfigurationError, match="num_outputs 1"):
        Ensemble((net, random_network(rng, num_outputs=2)))
    with pytest.raises(ModelConfigurationError, match="member weights"):
        Ensemble((net,), weights=[1.0, 2.0])
    with pytest.raises(ModelConfigurationError, match="different input names"):
        Ensemble((net,), input_names=("a", "a"))
    with pytest.raises(ModelConfigurationError, match="both lower and upper"):
        Ensemble((net,), lower=[0.0, 0.0])
    with pytest.raises(TypeError, match=r"ennopt\.load"):
        Ensemble(("net",))
    with pytest.raises(ValueError, match="Expected 2 inputs"):
        net([1.0, 2.0, 3.0])


def test_saving_and_reading_is_exact(tmp_path, rng):
    members = (random_network(rng, 3, (4,)), random_network(rng, 3, (2, 5)))
    ensemble = Ensemble(
        members, [0.3, 0.7], ("dose", "heat", "flow µ"), [0, 0, 0], [1, 2, 3]
    )
    path = tmp_path / "model.npz"
    ensemble.save(path)
    again = read_npz(path)
    x = rng.normal(size=(20, 3))
    assert np.array_equal(again(x), ensemble(x))
    assert again.input_names == ensemble.input_names
    assert np.array_equal(again.upper, ensemble.upper)
    assert np.array_equal(again.weights, ensemble.weights)
    first = path.read_bytes()
    again.save(path)
    assert path.read_bytes() == first


def test_the_range_of_the_target_is_kept_until_the_outputs_change(tmp_path, rng):
    ensemble = Ensemble((random_network(rng, 2, (3,)),), target_range=(2, 5))
    ensemble.save(tmp_path / "model.npz")
    again = read_npz(tmp_path / "model.npz")
    assert again.target_range == (2.0, 5.0)
    assert again.fold_input(2.0, 0.0).target_range == (2.0, 5.0)
    for other in (again.fold_output(2.0, 0.0), again.negated()):
        assert other.target_range is None
    other = Ensemble(ensemble.members, target_range=(1, 4))
    assert combine([ensemble, other]).target_range == (1.0, 5.0)
    assert combine([ensemble, other], [1.0, 1.0]).target_range is None
    assert combine([ensemble, Ensemble(ensemble.members)]).target_range is None


def test_pickling_keeps_an_ensemble(rng):
    ensemble = random_ensemble(rng)
    again = pickle.loads(pickle.dumps(ensemble))
    assert np.array_equal(again([0.1, 0.2]), ensemble([0.1, 0.2]))
    assert repr(again) == repr(ensemble)


def write(path, **arrays):
    np.savez(path, **arrays)
    return path


GOOD = {"net0.W0": np.ones((1, 2)), "net0.b0": np.zeros(1)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "at least one member"),
        ({"net0.W0": np.ones((1, 2))}, r"net0\.b0 beside net0\.W0"),
        (GOOD | {"net2.W0": np.ones((1, 2))}, "numbered from 0 without holes"),
        (GOOD | {"net0.W2": np.ones((1, 1))}, r"got 'net0\.W2'"),
        (GOOD | {"wieghts": np.ones(1)}, "got 'wieghts'"),
        (GOOD | {"net0.b0": np.zeros(2)}, r"In net0 of"),
        (GOOD | {"net0.W0": np.array([["a", "b"]])}, "Expected real numbers"),
        (GOOD | {"net0.W0": np.full((1, 2), np.nan)}, "NaN or infinity"),
        (GOOD | {"lower": np.zeros(2)}, "both lower and upper"),
        (GOOD | {"lower": np.zeros(3), "upper": np.ones(3)}, r"shape \(2,\)"),
        (GOOD | {"net1.W0": np.ones((1, 3)), "net1.b0": np.ones(1)}, "num_inputs 2"),
        (GOOD | {"target_range": np.array([2.0, 1.0])}, "target_range of two finite"),
        (GOOD | {"target_range": np.ones(3)}, "target_range of two finite"),
        (GOOD | {"member_weights": np.ones(3)}, "1 finite member weights"),
        (GOOD | {"net0.b0": np.array([{}], dtype=object)}, "plain arrays"),
    ],
)
def test_damaged_files_give_one_clear_error(tmp_path, arrays, message):
    path = write(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ModelConfigurationError, match=message):
        read_npz(path)


def test_files_that_are_no_archives_are_refused(tmp_path, rng):
    path = tmp_path / "model.npz"
    random_ensemble(rng).save(path)
    whole = path.read_bytes()
    for broken in (b"", b"hello", whole[: len(whole) // 2], b"PK\x03\x04" + whole[9:]):
        path.write_bytes(broken)
        with pytest.raises(ModelConfigurationError, match=r"Expected an \.npz"):
            read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net0.W0.npy", b"not an array")
    with pytest.raises(ModelConfigurationError):
        read_npz(path)
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(ModelConfigurationError, match="single array"):
        read_npz(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "absent.npz")


def test_a_file_with_a_damaged_array_inside_is_refused(tmp_path, rng):
    path = tmp_path / "model.npz"
    random_ensemble(rng).save(path)
    data = bytearray(path.read_bytes())
    for position in range(60, len(data), 97):
        data[position] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ModelConfigurationError):
        read_npz(path)


@pytest.mark.parametrize(
    "text", ["red\x1b[31m", "line\nbreak", "\u202egnp.exe", "\x9bcontrol", "half\ud800"]
)
def test_what_cannot_be_seen_is_shown_escaped(text):
    assert shown(text).isprintable()
    assert shown(text) == repr(text)[1:-1]
    assert shown(shown(text)) == shown(text)


def test_what_can_be_seen_is_shown_as_it_is():
    for text in ("température", "débit µ", "流量", "a b", "C:\\temp", "it's", ""):
        assert shown(text) == text


def test_errors_and_summaries_do_not_print_names_raw(rng):
    name = "heat\x1b]0;owned\x07"
    ensemble = Ensemble((random_network(rng, 1),), input_names=(name,), source=name)
    assert ensemble.input_names == (name,)
    assert repr(ensemble).isprintable()
    assert str(ModelConfigurationError(f"Expected one, got {name}.")).isprintable()
    again = pickle.loads(pickle.dumps(ModelConfigurationError(name)))
    assert str(again) == shown(name)


def test_sizes_are_refused_with_the_place_and_the_limit():
    check_size(2**27 + 16 * 100, 100, "node 'a'")
    with pytest.raises(
        ModelConfigurationError,
        match=r"at most 134,219,328 numbers \(1 GiB\) to read, got 134,219,329 "
        r"\(100 of them stored\) at node 'a'",
    ):
        check_size(2**27 + 16 * 100 + 1, 100, "node 'a'")
