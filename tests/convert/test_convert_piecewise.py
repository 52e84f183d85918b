"""Piecewise-linear layers, convolutions and pooling: equal to the framework's own."""

import itertools

import keras
import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ennopt import BoxSearch, load, maximize
from ennopt.convert import piecewise as pw
from ennopt.convert.affine import Room, inputs
from ennopt.convert.lower import to_ensemble
from ennopt.network import ModelConfigurationError

SEEDS = range(3)
functional = nn.functional


def points(count, width, seed=1):
    return np.random.default_rng(seed).normal(0, 2, (count, width)).astype(np.float32)


def same(ensemble, x, theirs):
    ours = ensemble(x.astype(np.float64))
    size = 1.0 + float(np.abs(theirs).max())
    assert ours == pytest.approx(theirs.reshape(ours.shape), abs=2e-6 * size)


@pytest.mark.parametrize("hidden", [False, True], ids=["of the input", "of a layer"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda v: pw.leaky(v, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
        (lambda v: pw.leaky(v, -1.0), np.abs),
        (lambda v: pw.leaky(v, 1.5), lambda x: np.where(x > 0, x, 1.5 * x)),
        (lambda v: pw.leaky(v, [0.5, 0.0, -2.0]),
         lambda x: np.where(x > 0, x, [0.5, 0.0, -2.0] * x)),
        (lambda v: pw.clip(v, -1.0, 0.5), lambda x: np.clip(x, -1.0, 0.5)),
        (lambda v: pw.clip(v, None, 0.5), lambda x: np.minimum(x, 0.5)),
        (lambda v: pw.clip(v, -np.inf, np.inf), lambda x: x),
        (lambda v: pw.hard_sigmoid(v), lambda x: np.clip(x / 6 + 0.5, 0, 1)),
        (lambda v: pw.soft_shrink(v, 0.3),
         lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.3, 0)),
        (lambda v: pw.maximum(v, 0.3), lambda x: np.maximum(x, 0.3)),
        (lambda v: pw.minimum(v, pw.graph.take(v, [2, 0, 1], 1)),
         lambda x: np.minimum(x, x[:, [2, 0, 1]])),
        (lambda v: pw.largest(v, [1], True), lambda x: x.max(axis=1, keepdims=True)),
        (lambda v: pw.smallest(v, None, False), lambda x: x.min(axis=1)),
    ],
)  # fmt: skip
def test_each_function_is_exact(ours, theirs, hidden):
    room = Room(1000)
    source, (x,) = inputs([(1, 3)], room)
    value = pw.graph.relu(x) if hidden else x
    ensemble = to_ensemble(ours(value), source, room)
    at = points(200, 3).astype(np.float64)
    expected = theirs(np.maximum(at, 0) if hidden else at)
    assert ensemble(at) == pytest.approx(expected.reshape(200, -1), abs=1e-14)


class Calls(nn.Module):
    def __init__(self, call, width=6):
        super().__init__()
        self.call = call
        self.first, self.last = nn.Linear(3, width), nn.LazyLinear(2)
        self.slopes = nn.Parameter(torch.linspace(-0.5, 0.5, width))

    def forward(self, x):
        return self.last(self.call(self, self.first(x)))


LAYERS = {
    "LeakyReLU": nn.LeakyReLU(0.2),
    "PReLU": nn.PReLU(),
    "PReLU of channels": nn.PReLU(6),
    "RReLU": nn.RReLU(),
    "ReLU6": nn.ReLU6(),
    "Hardtanh": nn.Hardtanh(-0.5, 2.0),
    "Hardsigmoid": nn.Hardsigmoid(),
    "Softshrink": nn.Softshrink(0.1),
}
CALLS = {
    "leaky_relu": lambda s, h: functional.leaky_relu(h, 0.3),
    "prelu": lambda s, h: functional.prelu(h, s.slopes),
    "relu6": lambda s, h: functional.relu6(h),
    "hardtanh": lambda s, h: functional.hardtanh(h),
    "clamp": lambda s, h: h.clamp(-0.5, 0.5),
    "clamp_max": lambda s, h: torch.clamp_max(h, 0.2),
    "abs": lambda s, h: torch.abs(h) + h.abs(),
    "maxout": lambda s, h: h.view(-1, 2, 3).max(dim=1)[0],
    "values of a maximum": lambda s, h: h.view(-1, 2, 3).max(dim=1).values,
    "values of a minimum": lambda s, h: torch.min(h.view(-1, 2, 3), 2).values,
    "amax": lambda s, h: h.reshape(-1, 3, 2).amax(dim=2),
    "maximum": lambda s, h: torch.maximum(h[:, :3], h[:, 3:]),
    "max of two": lambda s, h: torch.max(h[:, :3], torch.min(h[:, 3:], h[:, 1:4])),
    "min of all": lambda s, h: h.amin(dim=1, keepdim=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_torch_layers_convert(name):
    torch.manual_seed(0)
    layer = LAYERS[name]
    module = nn.Sequential(nn.Linear(3, 6), layer, nn.Linear(6, 6), layer,
                           nn.Linear(6, 1)).eval()  # fmt: skip
    ensemble = load(module)
    assert ensemble.num_members == 1
    x = points(100, 3)
    with torch.no_grad():
        same(ensemble, x, module(torch.tensor(x)).numpy())


@pytest.mark.parametrize("name", CALLS)
def test_torch_functions_convert(name):
    torch.manual_seed(1)
    module = Calls(CALLS[name])
    module(torch.zeros(1, 3))
    x = points(100, 3)
    with torch.no_grad():
        same(load(module), x, module(torch.tensor(x)).numpy())


IMAGES = {
    "conv": nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(),
                          nn.LazyLinear(1)),
    "padded": nn.Sequential(nn.Conv2d(1, 2, (3, 2), stride=2, padding=1), nn.ReLU(),
                            nn.Conv2d(2, 2, 2, padding="same"), nn.ReLU6(),
                            nn.Flatten(), nn.LazyLinear(2)),
    "dilated": nn.Sequential(nn.Conv2d(1, 4, 2, dilation=2), nn.LeakyReLU(),
                             nn.Conv2d(4, 4, 2, groups=2, bias=False), nn.Flatten(),
                             nn.LazyLinear(1)),
    "max": nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.LazyLinear(1)),
    "max, padded": nn.Sequential(nn.MaxPool2d(3, stride=2, padding=1), nn.Flatten(),
                                 nn.LazyLinear(1)),
    "average": nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU(),
                             nn.AvgPool2d(2, padding=1, count_include_pad=False),
                             nn.Dropout2d(), nn.Flatten(), nn.LazyLinear(1)),
    "everywhere": nn.Sequential(nn.Conv2d(1, 3, 2), nn.ReLU(),
                                nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                nn.LazyLinear(1)),
    "largest": nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveMaxPool2d((1, 1)),
                             nn.Flatten(), nn.LazyLinear(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_convolutions_and_pools_of_torch_convert(name):
    torch.manual_seed(2)
    module = nn.Sequential(nn.Unflatten(1, (1, 5, 4)), IMAGES[name])
    module(torch.randn(7, 20))  # lazy layers and running statistics
    module.eval()
    x = points(60, 20)
    with torch.no_grad():
        same(load(module), x, module(torch.tensor(x)).numpy())


def test_a_sequence_convolves_in_one_dimension():
    torch.manual_seed(3)
    module = nn.Sequential(
        nn.Unflatten(1, (2, 6)), nn.Conv1d(2, 3, 3), nn.ReLU(), nn.MaxPool1d(2),
        nn.Flatten(), nn.Linear(6, 1),
    )  # fmt: skip
    x = points(60, 12)
    with torch.no_grad():
        same(load(module), x, module(torch.tensor(x)).numpy())


def test_members_stay_apart_behind_a_leaky_layer():
    members = [
        nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 1)) for _ in SEEDS
    ]

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.members = nn.ModuleList(members)

        def forward(self, x):
            return torch.stack([m(x) for m in self.members]).mean(0)

    ensemble = load(Mean())
    assert ensemble.num_members == 3
    assert ensemble.weights.tolist() == pytest.approx([1 / 3] * 3)


KERAS = {
    "leaky": [keras.layers.Dense(5), keras.layers.LeakyReLU(0.1)],
    "slopes": [keras.layers.Dense(5), keras.layers.PReLU("uniform")],
    "limited": [keras.layers.Dense(5), keras.layers.ReLU(1.0)],
    "limited, leaky": [keras.layers.Dense(5), keras.layers.ReLU(1.0, 0.25)],
    "words": [keras.layers.Dense(5, activation="leaky_relu"),
              keras.layers.Dense(5, activation="relu6"),
              keras.layers.Dense(5, activation="hard_tanh"),
              keras.layers.Activation("hard_sigmoid")],
    "conv": [keras.layers.Reshape((4, 3, 1)),
             keras.layers.Conv2D(3, 2, activation="relu", padding="same", strides=2),
             keras.layers.BatchNormalization(), keras.layers.Flatten()],
    "pools": [keras.layers.Reshape((4, 3, 1)), keras.layers.Conv2D(2, (2, 1)),
              keras.layers.MaxPooling2D(2, padding="same"),
              keras.layers.AveragePooling2D((2, 1), padding="same", strides=1),
              keras.layers.Flatten()],
    "sequence": [keras.layers.Reshape((6, 2)),
                 keras.layers.Conv1D(3, 2, dilation_rate=2),
                 keras.layers.ReLU(), keras.layers.GlobalAveragePooling1D()],
    "largest": [keras.layers.Reshape((6, 2)), keras.layers.GlobalMaxPooling1D()],
}  # fmt: skip


@pytest.mark.parametrize("saved", [False, True], ids=["given", "saved"])
@pytest.mark.parametrize("name", KERAS)
def test_keras_layers_convert(name, saved, tmp_path):
    keras.utils.set_random_seed(4)
    model = keras.Sequential(
        [keras.Input((12,)), *map(_copied, KERAS[name]), keras.layers.Dense(1)]
    )
    x = points(80, 12)
    source = model
    if saved:
        source = tmp_path / "model.keras"
        model.save(source)
    same(load(source), x, keras.ops.convert_to_numpy(model(x)))


def _copied(layer):
    return type(layer).from_config(layer.get_config())


def test_functions_of_keras_convert():
    given = keras.Input((4,))
    h = keras.layers.Dense(6)(given)
    parts = [
        keras.ops.abs(h),
        keras.ops.maximum(h, keras.ops.relu6(h) - 1.0),
        keras.ops.clip(h, -0.5, 0.5),
        keras.ops.leaky_relu(h, 0.3),
        keras.ops.max(h, axis=1, keepdims=True),
        keras.layers.Minimum()([h, keras.ops.hard_sigmoid(h)]),
    ]
    output = keras.layers.Dense(1)(keras.layers.Concatenate()(parts))
    model = keras.Model(given, output)
    x = points(80, 4)
    same(load(model), x, keras.ops.convert_to_numpy(model(x)))


def _stored(values):
    whole = isinstance(values, np.ndarray) and values.dtype.kind == "i"
    return values if whole else np.asarray(values, np.float32)


def onnx_model(nodes, constants, shape):
    graph = helper.make_graph(
        [helper.make_node(op, i.split(), o.split(), **k) for op, i, o, k in nodes],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(_stored(v), k)
         for k, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    return model


PADS = np.array([0, 0, 1, 0, 0, 0, 0, 2])
KERNEL = np.random.default_rng(0).normal(size=(2, 1, 2, 3))
OPERATORS = {
    "LeakyRelu": ([("LeakyRelu", "x", "y", {"alpha": 0.3})], {}),
    "PRelu": ([("PRelu", "x s", "y", {})], {"s": [0.1, -0.2, 0.3]}),
    "Abs": ([("Abs", "x", "y", {})], {}),
    "Clip": ([("Clip", "x a b", "y", {})], {"a": -0.5, "b": 1.0}),
    "Max": ([("Neg", "x", "t", {}), ("Max", "x t s", "y", {})], {"s": [0.1, 2, 0.3]}),
    "Min": ([("Relu", "x", "t", {}), ("Min", "t s", "y", {})], {"s": [0.1, 2, 0.3]}),
    "HardSigmoid": ([("HardSigmoid", "x", "y", {"alpha": 0.3})], {}),
    "Shrink": ([("Shrink", "x", "y", {"lambd": 0.5, "bias": 0.5})], {}),
    "ReduceMax": ([("ReduceMax", "x i", "y", {"keepdims": 0})], {"i": np.array([1])}),
}
PICTURES = {
    "Conv": [("Conv", "x k", "y", {"pads": [1, 0, 0, 2], "strides": [2, 1]})],
    "same": [("Conv", "x k", "y", {"auto_pad": "SAME_UPPER", "strides": [2, 2]})],
    "MaxPool": [("MaxPool", "x", "y", {"kernel_shape": [2, 2], "pads": [1, 0, 0, 0]})],
    "AveragePool": [("AveragePool", "x", "y",
                     {"kernel_shape": [2, 2], "pads": [0, 1, 1, 0]})],
    "GlobalAveragePool": [("GlobalAveragePool", "x", "y", {})],
    "GlobalMaxPool": [("Relu", "x", "t", {}), ("GlobalMaxPool", "t", "y", {})],
    "Pad": [("Pad", "x p", "t", {}), ("GlobalMaxPool", "t", "y", {})],
}  # fmt: skip


@pytest.mark.parametrize("name", [*OPERATORS, *PICTURES])
def test_operators_of_onnx_convert(name):
    if name in OPERATORS:
        nodes, constants = OPERATORS[name]
        shape = (3,)
    else:
        nodes, constants, shape = PICTURES[name], {"k": KERNEL, "p": PADS}, (1, 4, 3)
    model = onnx_model(nodes, constants, shape)
    x = points(40, int(np.prod(shape)))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    theirs = session.run(None, {"x": x.reshape(-1, *shape)})[0]
    same(load(model), x, theirs)


@pytest.mark.parametrize(
    ("operator", "settings"),
    [
        ("AveragePool", {"kernel_shape": [40_000, 40_000]}),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [0, 40_000, 0, 40_000]}),
        ("AveragePool", {"kernel_shape": [400, 400], "pads": [400, 400, 400, 400],
                         "count_include_pad": 1}),
        ("MaxPool", {"kernel_shape": [40_000, 40_000]}),
        ("Conv", {"pads": [40_000] * 4}),
    ],
)  # fmt: skip
def test_a_small_file_cannot_ask_for_a_giant_window(operator, settings):
    given = "x k" if operator == "Conv" else "x"
    model = onnx_model([(operator, given, "y", settings)], {"k": KERNEL}, (1, 4, 3))
    with pytest.raises(ModelConfigurationError, match=r"at most|fit|alone"):
        load(model)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_finds_the_maximum_of_a_leaky_network(seed):
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(2, 5), nn.LeakyReLU(0.2), nn.Linear(5, 5),
                           nn.Hardtanh(), nn.Linear(5, 1))  # fmt: skip
    result = maximize(module, (-1, 1), method=BoxSearch())
    side = np.linspace(-1, 1, 41)
    grid = torch.tensor(list(itertools.product(side, side)), dtype=torch.float32)
    with torch.no_grad():
        best = float(module(grid).max())
    assert result.proved
    assert best <= result.bound + 1e-5
    assert result.value >= best - 1e-5
