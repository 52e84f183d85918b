"""Activations other than ReLU, from every framework, against its own predictions."""

import warnings

import keras
import numpy as np
import onnxruntime
import pytest
import torch
from keras import layers
from onnx import TensorProto, helper, numpy_helper
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn import functional

from ennopt import maximize
from ennopt.activations import GELU, RELU, GELUTanh, Mixed, Sigmoid, SiLU, Tanh
from ennopt.convert import PredictorNotSupportedError, load
from ennopt.network import ModelConfigurationError


def kinds_of(ensemble):
    return [kind for member in ensemble.members for kind in member.activations]


@pytest.mark.parametrize(("name", "kind"), [("tanh", Tanh()), ("logistic", Sigmoid())])
def test_scikit_learn(name, kind, rng):
    x = rng.uniform(-1, 1, (200, 2)) * [100.0, 0.1]
    y = np.sin(x[:, 0] / 40) + 20 * x[:, 1]
    net = MLPRegressor(
        hidden_layer_sizes=(8, 6), activation=name, max_iter=300, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make_pipeline(StandardScaler(), net).fit(x, y)
    ensemble = load(model)
    assert kinds_of(ensemble) == [kind, kind]
    assert ensemble(x)[:, 0] == pytest.approx(model.predict(x), abs=1e-12)
    answer = maximize(model, x)
    assert answer.status.value == "optimal"
    assert answer.value >= model.predict(x).max()
    assert answer.original == pytest.approx(answer.value, abs=1e-12)
    assert not answer.notes


LAYERS = {
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "softplus": nn.Softplus(beta=2.0),
    "elu": nn.ELU(0.7),
    "steep elu": nn.ELU(1.8),
    "silu": nn.SiLU(),
    "gelu": nn.GELU(),
    "gelu by tanh": nn.GELU(approximate="tanh"),
}


class Function(nn.Module):
    """A layer, a function, a layer."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 1)
        self.function = function

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def check_torch(module, rng):
    ensemble = load(module)
    x = torch.tensor(2 * rng.standard_normal((50, 3)), dtype=torch.float32)
    with torch.no_grad():
        theirs = module.eval()(x).double().numpy()
    assert ensemble(x.double().numpy()) == pytest.approx(theirs, abs=1e-5)
    return ensemble


@pytest.mark.parametrize("name", LAYERS)
def test_torch_layers(name, rng):
    torch.manual_seed(0)
    check_torch(
        nn.Sequential(nn.Linear(3, 6), LAYERS[name], nn.Linear(6, 4), LAYERS[name],
                      nn.Linear(4, 1)), rng,
    )  # fmt: skip


FUNCTIONS = {
    "tanh": torch.tanh,
    "method": lambda h: h.tanh(),
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "elu": lambda h: functional.elu(h, alpha=0.5),
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu by tanh": lambda h: functional.gelu(h, approximate="tanh"),
    "x * sigmoid(x)": lambda h: h * torch.sigmoid(h),
    "sigmoid(x) * x": lambda h: torch.sigmoid(h) * h,
    "skip": lambda h: h + torch.tanh(h),
    "relu of tanh": lambda h: torch.relu(torch.tanh(h)),
    "relu of sigmoid": lambda h: torch.relu(torch.sigmoid(h)),
    "twice": lambda h: torch.sigmoid(torch.tanh(h)),
    "side by side": lambda h: torch.cat(
        [torch.relu(h[:, :2]), torch.tanh(h[:, 2:])], 1
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_torch_functions(name, rng):
    check_torch(Function(FUNCTIONS[name]), rng)


def test_a_gate_becomes_one_layer(rng):
    ensemble = check_torch(Function(FUNCTIONS["x * sigmoid(x)"]), rng)
    assert kinds_of(ensemble) == [SiLU()]


@pytest.mark.parametrize(
    "function",
    [
        lambda h: h * torch.sigmoid(2.0 * h),
        lambda h: (h + 1.0) * torch.sigmoid(h),
        lambda h: h * (2.0 * torch.sigmoid(h)),
        lambda h: h * torch.tanh(h),
        lambda h: h * torch.sigmoid(h.flip(1)),
    ],
)
def test_other_products_are_refused(function):
    with pytest.raises(PredictorNotSupportedError, match=r"product|flip"):
        load(Function(function))


def test_a_sigmoid_is_one_layer_for_all_steps_that_read_it(rng):
    def steps(h):
        s = torch.sigmoid(h)
        return 2.0 * s - torch.cat([s[:, 1:], s[:, :1]], dim=1)

    ensemble = check_torch(Function(steps), rng)
    assert kinds_of(ensemble) == [Sigmoid()]
    assert ensemble.num_neurons == 5
    assert ensemble.target is None


def test_a_mean_of_sigmoids_has_a_member_for_each(rng):
    class Vote(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.nets = nn.ModuleList(nn.Linear(3, 1) for _ in range(3))

        def forward(self, x):
            return torch.stack([torch.sigmoid(net(x)) for net in self.nets]).mean(0)

    ensemble = check_torch(Vote(), rng)
    assert ensemble.num_members == 3
    assert ensemble.target is None


def test_what_may_be_negative_is_carried_as_it_is(rng):
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            y = torch.tanh(self.a(x))
            return self.c(y + torch.sigmoid(self.b(y)))

    ensemble = check_torch(Skip(), rng)
    assert kinds_of(ensemble) == [Tanh(), Mixed(((Sigmoid(), 4), (RELU, 8)))]


def test_a_softplus_that_is_cut_short_is_refused():
    module = nn.Sequential(nn.Linear(3, 2), nn.Softplus(threshold=2), nn.Linear(2, 1))
    with pytest.raises(PredictorNotSupportedError, match="threshold=2"):
        load(module)


def test_an_elu_of_negative_alpha_is_refused():
    module = nn.Sequential(nn.Linear(3, 2), nn.ELU(-1.0), nn.Linear(2, 1))
    with pytest.raises(ModelConfigurationError, match="positive alpha"):
        load(module)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "elu", "silu", "gelu"])
def test_keras_activations(name, rng, tmp_path):
    keras.utils.set_random_seed(11)
    model = keras.Sequential(
        [keras.Input((3,)), layers.Dense(5, name), layers.Dense(4),
         layers.Activation(name), layers.Dense(1)]
    )  # fmt: skip
    x = (2 * rng.standard_normal((40, 3))).astype(np.float32)
    theirs = keras.ops.convert_to_numpy(model(x, training=False))
    assert load(model)(x) == pytest.approx(theirs, abs=1e-5)
    model.save(tmp_path / "model.keras")
    assert load(tmp_path / "model.keras")(x) == pytest.approx(theirs, abs=1e-5)


OPERATIONS = {
    "tanh": keras.ops.tanh,
    "sigmoid": keras.ops.sigmoid,
    "softplus": keras.ops.softplus,
    "silu": keras.ops.silu,
    "elu": lambda h: keras.ops.elu(h, alpha=0.5),
    "ELU": lambda h: layers.ELU(1.5)(h),
    "gelu": lambda h: keras.ops.gelu(h, approximate=False),
    "gelu by tanh": lambda h: keras.ops.gelu(h),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_keras_operations(name, rng):
    keras.utils.set_random_seed(11)
    inputs = keras.Input((3,))
    hidden = OPERATIONS[name](layers.Dense(5)(inputs))
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    x = (2 * rng.standard_normal((40, 3))).astype(np.float32)
    theirs = keras.ops.convert_to_numpy(model(x, training=False))
    assert load(model)(x) == pytest.approx(theirs, abs=1e-5)


OPERATORS = {
    "Tanh": ([("Tanh", "h", "a", {})], None),
    "Sigmoid": ([("Sigmoid", "h", "a", {})], Sigmoid()),
    "Softplus": ([("Softplus", "h", "a", {})], None),
    "Elu": ([("Elu", "h", "a", {"alpha": 0.5})], None),
    "Elu 2": ([("Elu", "h", "a", {"alpha": 2.0})], None),
    "Gelu": ([("Gelu", "h", "a", {})], GELU()),
    "Gelu by tanh": ([("Gelu", "h", "a", {"approximate": "tanh"})], GELUTanh()),
    "Silu": ([("Sigmoid", "h", "s", {}), ("Mul", "h s", "a", {})], SiLU()),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_onnx_operators(name, rng):
    nodes, kind = OPERATORS[name]
    weights = {"w": rng.normal(size=(3, 4)), "v": rng.normal(size=(4, 1))}
    tensors = [
        numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()
    ]
    built = [
        helper.make_node(op, ins.split(), outs.split(), **attributes)
        for op, ins, outs, attributes in [
            ("MatMul", "x w", "h", {}), *nodes, ("MatMul", "a v", "y", {})
        ]
    ]  # fmt: skip
    ends = [
        helper.make_tensor_value_info(end, TensorProto.FLOAT, shape)
        for end, shape in (("x", ("n", 3)), ("y", None))
    ]
    graph = helper.make_graph(built, "test", ends[:1], ends[1:], tensors)
    opset = helper.make_opsetid("", 20)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    ensemble = load(model)
    x = (2 * rng.standard_normal((30, 3))).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    theirs = session.run(None, {"x": x})[0]
    assert ensemble(x) == pytest.approx(theirs, abs=1e-5)
    assert kind is None or kinds_of(ensemble) == [kind]
