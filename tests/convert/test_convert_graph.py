"""Traced graphs against the same computation in numpy."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ennopt.convert import PredictorNotSupportedError, graph
from ennopt.convert.affine import Room, identities, inputs, is_identity
from ennopt.convert.lower import to_ensemble
from ennopt.convert.verify import Original, combine, verified
from ennopt.network import Ensemble, ModelConfigurationError, Network


class Numbers:
    """The functions of `graph`, in numpy, on a batch of one point."""

    relu = staticmethod(lambda a: np.maximum(a, 0.0))
    add = staticmethod(np.add)
    subtract = staticmethod(np.subtract)
    multiply = staticmethod(np.multiply)
    matmul = staticmethod(np.matmul)
    concatenate = staticmethod(np.concatenate)
    mean_of = staticmethod(lambda tensors: sum(tensors) / len(tensors))
    stack = staticmethod(np.stack)
    mean = staticmethod(lambda a, axes, keep: a.mean(axis=tuple(axes), keepdims=keep))
    index = staticmethod(lambda a, key: a[key])


def traced(program, num_inputs=3):
    room = Room(stored=0)
    source, (x,) = inputs([(1, num_inputs)], room)
    return to_ensemble(program(graph, x), source, room)


def check(program, rng, num_inputs=3):
    ensemble = traced(program, num_inputs)
    for point in 3 * rng.standard_normal((20, num_inputs)):
        expected = np.ravel(program(Numbers, point[None]))
        assert ensemble(point) == pytest.approx(expected, abs=1e-9)
    return ensemble


def layer(rng, inputs, outputs):
    return rng.normal(size=(inputs, outputs)), rng.normal(size=outputs)


def mlp(rng, widths):
    layers = [layer(rng, a, b) for a, b in pairwise(widths)]

    def program(g, x):
        for k, (w, b) in enumerate(layers):
            x = g.add(g.matmul(x, w), b)
            x = g.relu(x) if k < len(layers) - 1 else x
        return x

    return program


def test_a_chain_keeps_its_layers_exactly(rng):
    w, b = layer(rng, 3, 5)
    v, c = layer(rng, 5, 2)
    ensemble = traced(
        lambda g, x: g.add(g.matmul(g.relu(g.add(g.matmul(x, w), b)), v), c)
    )
    (member,) = ensemble.members
    for ours, theirs in zip(member.weights, (w.T, v.T), strict=True):
        assert np.array_equal(ours, theirs)
    for ours, theirs in zip(member.biases, (b, c), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("how", ["mean_of", "stack", "concatenate", "scaled"])
def test_an_average_becomes_members_with_their_own_biases(how, rng):
    nets = [mlp(rng, w) for w in ([3, 4, 1], [3, 5, 2, 1], [3, 1])]
    combined = {
        "mean_of": lambda g, outs: g.mean_of(outs),
        "stack": lambda g, outs: g.mean(g.stack(outs, 0), [0], False),
        "concatenate": lambda g, outs: g.mean(g.concatenate(outs, 1), [1], True),
        "scaled": lambda g, outs: g.add(
            g.multiply(outs[0], 1 / 3),
            g.add(g.multiply(outs[1], 1 / 3), g.multiply(outs[2], 1 / 3)),
        ),
    }[how]
    ensemble = check(lambda g, x: combined(g, [net(g, x) for net in nets]), rng)
    assert ensemble.weights == pytest.approx(np.full(3, 1 / 3))
    x = rng.normal(size=3)
    for member, net in zip(ensemble.members, nets, strict=True):
        assert member(x) == pytest.approx(net(Numbers, x[None])[0], abs=1e-12)


def test_a_rescaled_average_rescales_each_member(rng):
    nets = [mlp(rng, [3, 4, 1]) for _ in range(3)]

    def program(g, x):
        mean = g.mean_of([net(g, x) for net in nets])
        return g.add(g.multiply(mean, np.array(7.0)), np.array([[2.0]]))

    ensemble = check(program, rng)
    assert ensemble.weights == pytest.approx(np.full(3, 1 / 3))
    x = rng.normal(size=3)
    for member, net in zip(ensemble.members, nets, strict=True):
        assert member(x) == pytest.approx(7 * net(Numbers, x[None])[0] + 2, abs=1e-9)


def test_averages_of_averages_multiply_their_weights(rng):
    a, b, c = (mlp(rng, [3, 4, 1]) for _ in range(3))

    def program(g, x):
        return g.mean_of([g.mean_of([a(g, x), b(g, x)]), c(g, x)])

    assert check(program, rng).weights == pytest.approx([0.25, 0.25, 0.5])


def test_a_sum_of_members_keeps_weights_of_one(rng):
    a, b = (mlp(rng, [3, 4, 1]) for _ in range(2))
    ensemble = check(lambda g, x: g.subtract(a(g, x), b(g, x)), rng)
    assert ensemble.weights.tolist() == [1.0, -1.0]


def test_skipped_values_are_carried_through_relu(rng):
    first, second, third = (layer(rng, n, 4) for n in (3, 4, 4))
    out = rng.normal(size=(4, 1))
    skip = rng.normal(size=(3, 4))

    def program(g, x):
        h = g.relu(g.add(g.matmul(x, first[0]), first[1]))
        k = g.relu(g.add(g.matmul(h, second[0]), second[1]))
        m = g.add(g.add(g.matmul(k, third[0]), third[1]), g.add(h, g.matmul(x, skip)))
        return g.add(g.matmul(g.relu(m), out), g.index(x, (slice(None), slice(0, 1))))

    ensemble = check(program, rng)
    assert ensemble.num_members == 2  # the network, and the linear skip to the output


def test_members_with_a_shared_trunk_are_one_network(rng):
    trunk, heads = mlp(rng, [3, 4]), [mlp(rng, [4, 3, 1]) for _ in range(2)]

    def program(g, x):
        h = g.relu(trunk(g, x))
        return g.mean_of([head(g, h) for head in heads])

    ensemble = check(program, rng)
    assert [m.hidden_widths for m in ensemble.members] == [(4, 6)]


def test_stacked_weights_become_one_member_each(rng):
    w, v = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 5, 2))

    def program(g, x):
        return g.mean(g.matmul(g.relu(g.matmul(x, w)), v), [0], False)

    ensemble = check(program, rng)
    assert [m.hidden_widths for m in ensemble.members] == [(5,)] * 4


def test_relu_of_what_is_not_negative_adds_no_neurons(rng):
    net = mlp(rng, [3, 4, 2])

    def program(g, x):
        return g.multiply(g.relu(g.relu(net(g, x))), 0.5)

    assert check(program, rng).num_neurons == 6


def test_a_constant_graph_predicts_its_constant(rng):
    ensemble = check(lambda g, x: g.add(g.multiply(x, 0.0), np.ones((1, 3))), rng)
    assert ensemble([5.0, 6.0, 7.0]).tolist() == [1.0, 1.0, 1.0]


def test_a_product_of_two_values_is_refused():
    with pytest.raises(PredictorNotSupportedError, match="product of two values"):
        traced(lambda g, x: g.multiply(x, x))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_random_graphs_predict_as_numpy_does(seed):
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 6, size=6).tolist()
    constants = [layer(rng, 3, 3) for _ in steps]
    picks = rng.integers(0, 100, size=(len(steps), 2)).tolist()

    def program(g, x):
        values = [x]
        for step, (w, b), (i, j) in zip(steps, constants, picks, strict=True):
            left, right = values[i % len(values)], values[j % len(values)]
            values.append(
                {
                    0: lambda p, q, w, b: g.relu(g.add(g.matmul(p, w), b)),
                    1: lambda p, q, w, b: g.add(p, q),
                    2: lambda p, q, w, b: g.multiply(g.subtract(p, b), b),
                    3: lambda p, q, w, b: g.mean_of([p, q]),
                    4: lambda p, q, w, b: g.relu(p),
                    5: lambda p, q, w, b: g.matmul(
                        g.concatenate([p, q], 1), np.vstack([w, -w])
                    ),
                }[step](left, right, w, b)
            )
        return g.add(values[-1], values[len(values) // 2])

    ensemble = traced(program)
    points = rng.normal(size=(5, 3))
    expected = np.stack([np.ravel(program(Numbers, p[None])) for p in points])
    size = 1.0 + np.abs(expected).max()
    assert ensemble(points) == pytest.approx(expected, abs=1e-9 * size)


def compared(ensemble, predict):
    return verified(ensemble, Original(predict, "float64")).ensemble


def test_a_wrong_conversion_is_never_returned(rng):
    ensemble = traced(mlp(rng, [3, 4, 1]))
    with pytest.raises(ModelConfigurationError, match="deviation"):
        compared(ensemble, lambda x: ensemble(x) + 0.1 * np.abs(ensemble(x)).max())
    with pytest.raises(ModelConfigurationError, match="deviation"):
        compared(ensemble, lambda x: ensemble(x) * np.nan)
    with pytest.raises(ModelConfigurationError, match="of a batch together"):
        compared(ensemble, lambda x: ensemble(x).mean())


def test_the_deviation_is_the_largest_distance(rng):
    ensemble = traced(mlp(rng, [3, 4, 1]))
    moved = compared(ensemble, lambda x: ensemble(x) + 1e-6 * (x[:, :1] > 0))
    assert moved.deviation == pytest.approx(1e-6, rel=1e-6)


def test_members_with_different_inputs_do_not_combine():
    one = Ensemble((Network([[[1.0]]], [[0.0]]),))
    two = Ensemble((Network([[[1.0, 1.0]]], [[0.0]]),))
    with pytest.raises(ModelConfigurationError, match="num_inputs 1 as in member 1"):
        combine([one, two])


def test_members_with_different_input_names_do_not_combine():
    net = Network([[[1.0, 2.0]]], [[0.0]])
    one = Ensemble((net,), input_names=("a", "b"))
    two = Ensemble((net,), input_names=("b", "a"))
    with pytest.raises(ModelConfigurationError, match="same inputs"):
        combine([one, two])
    assert combine([one, Ensemble((net,))]).input_names == ("a", "b")


@pytest.mark.parametrize(
    ("width", "num_rows"), [(1, 1), (1, 4), (3, 1), (3, 2), (4, 5)]
)
def test_identities_are_placed_in_their_rows(width, num_rows):
    for i, block in enumerate(identities(width, num_rows)):
        expected = np.zeros((width, num_rows, width))
        expected[:, i] = np.eye(width)
        assert np.array_equal(block, expected)
        assert not block.flags.writeable
        if width > 1:
            assert is_identity(block) == (num_rows == 1)


def test_only_identities_pass_for_one():
    (eye,) = identities(4, 1)
    for other in (eye[::-1], eye[..., ::-1], 2 * eye, eye[:3], eye[..., 1:], 0 * eye):
        assert not is_identity(other)
    assert not is_identity(eye[1:, :, :-1])  # a diagonal beside the main one
    assert not is_identity(identities(4, 2)[0][:, 1])  # a row of zeros
    assert is_identity(eye[:, 0])


@pytest.mark.parametrize("shape", [(1, 4), (4,), (1, 1, 4)])
def test_a_layer_on_the_input_keeps_its_weights_whatever_its_rank(shape, rng):
    room = Room(stored=0)
    source, (x,) = inputs([shape], room)
    w = rng.normal(size=(4, 3))
    (member,) = to_ensemble(graph.matmul(x, w), source, room).members
    assert np.array_equal(member.weights[0], w.T)
