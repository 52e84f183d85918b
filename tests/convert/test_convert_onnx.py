"""ONNX graphs, hand-made and by the real exporters, against onnxruntime."""

from contextlib import suppress

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from ennopt.convert import PredictorNotSupportedError, load
from ennopt.network import ModelConfigurationError

RNG = np.random.default_rng(8)
W0, B0 = RNG.normal(size=(3, 4)), RNG.normal(size=4)
W1, B1 = RNG.normal(size=(4, 1)), RNG.normal(size=1)


def model_of(nodes, constants=None, shape=("n", 3), outputs=("y",), extra=(), opset=18):
    """A model from nodes (operator, inputs, outputs, attributes)."""
    built = [
        helper.make_node(op, ins.split(), outs.split(), **attributes)
        for op, ins, outs, attributes in nodes
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    ys = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in outputs]
    tensors = [
        numpy_helper.from_array(
            np.asarray(
                a, dtype=np.float32 if np.asarray(a).dtype.kind == "f" else None
            ),
            name,
        )
        for name, a in (constants or {}).items()
    ]
    graph = helper.make_graph(built, "test", [x, *extra], ys, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(model, abs=1e-5):
    ensemble = load(model)
    assert ensemble.deviation < abs
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = RNG.standard_normal((30, 3)).astype(np.float32)
    theirs = session.run(None, {"x": x})[0]
    assert ensemble(x) == pytest.approx(theirs.reshape(30, -1), abs=abs)
    return ensemble


NET = {"w0": W0, "b0": B0, "w1": W1, "b1": B1}
HIDDEN = [
    ("MatMul", "x w0", "h0", {}), ("Add", "h0 b0", "h1", {}), ("Relu", "h1", "h", {}),
]  # fmt: skip
OUTPUT = [("MatMul", "h w1", "o", {}), ("Add", "b1 o", "y", {})]

GRAPHS = {
    "matmul": (HIDDEN + OUTPUT, {}),
    "gemm": ([("Gemm", "x w0 b0", "g", {"alpha": 0.5, "beta": 2.0}),
              ("Relu", "g", "h", {}),
              ("Gemm", "h v1 b1", "y", {"transB": 1})], {"v1": W1.T}),
    "gemm without bias": ([("Gemm", "x w0", "y", {})], {}),
    "arithmetic": ([("Sub", "x mean", "a", {}), ("Div", "a std", "b", {}),
                    ("Mul", "b two", "c", {}), ("Sub", "one c", "d", {}),
                    ("Neg", "d", "e", {}), ("MatMul", "e w0", "y", {})],
                   {"mean": [1.0, 2.0, 3.0], "std": [2.0, -3.0, 0.5], "two": 2.0,
                    "one": [1.0]}),
    "identity": ([*HIDDEN, ("Identity", "h", "i", {}), ("Dropout", "i", "j", {}),
                  ("Cast", "j", "k", {"to": TensorProto.DOUBLE}),
                  ("Cast", "k", "l", {"to": TensorProto.FLOAT}),
                  ("Flatten", "l", "m", {}), ("Reshape", "m s", "n", {}),
                  ("MatMul", "n w1", "y", {})], {"s": np.array([0, -1])}),
    "mean of members": ([("MatMul", "x w0", "h0", {}), ("Relu", "h0", "a", {}),
                         ("Gemm", "x w0 b0", "h1", {}), ("Relu", "h1", "b", {}),
                         ("MatMul", "a w1", "c", {}), ("Gemm", "b w1 b1", "d", {}),
                         ("Mean", "c d", "y", {})], {}),
    "concat and reduce": ([("Gemm", "x w0 b0", "h1", {}), ("Relu", "h1", "b", {}),
                           ("Gemm", "b w1 b1", "d", {}), ("MatMul", "x w0", "h0", {}),
                           ("Relu", "h0", "a", {}), ("MatMul", "a w1", "c", {}),
                           ("Concat", "c d", "e", {"axis": 1}),
                           ("ReduceMean", "e ax", "y", {"keepdims": 1})],
                          {"ax": np.array([1])}),
    "slices": ([("Slice", "x st en ax", "a", {}), ("Gather", "x id", "b", {"axis": 1}),
                ("Concat", "a b", "c", {"axis": -1}), ("MatMul", "c w0", "y", {})],
               {"st": np.array([-2]), "en": np.array([9]), "ax": np.array([1]),
                "id": np.array([0])}),
    "split": ([("Split", "x sp", "a b", {"axis": 1}),
               ("Concat", "b a", "c", {"axis": 1}), ("MatMul", "c w0", "y", {})],
              {"sp": np.array([1, 2])}),
    "max and clip": ([("Gemm", "x w0 b0", "g", {}), ("Max", "g zero", "h", {}),
                      ("Gemm", "h w2", "i", {}), ("Clip", "i zero", "j", {}),
                      ("MatMul", "j w1", "y", {})],
                     {"zero": np.array(0.0), "w2": RNG.normal(size=(4, 4))}),
    "batch norm": ([("Gemm", "x w0 b0", "g", {}),
                    ("BatchNormalization", "g s b m v", "h", {"epsilon": 0.01}),
                    ("Relu", "h", "i", {}), ("MatMul", "i w1", "y", {})],
                   {"s": RNG.normal(size=4), "b": RNG.normal(size=4),
                    "m": RNG.normal(size=4), "v": RNG.uniform(1, 2, size=4)}),
    "shape arithmetic": ([*HIDDEN, ("Shape", "h", "sh", {}),
                          ("Gather", "sh i0", "n", {}),
                          ("Unsqueeze", "n a0", "n1", {}),
                          ("Concat", "n1 four", "t", {"axis": 0}),
                          ("Reshape", "h t", "r", {}), ("MatMul", "r w1", "y", {})],
                         {"i0": np.array(0), "a0": np.array([0]),
                          "four": np.array([4])}),
    "folded constants": ([("Constant", "", "k", {"value_float": 3.0}),
                          ("Mul", "w0 k", "w", {}), ("Transpose", "w", "t", {}),
                          ("Transpose", "t", "u", {"perm": [1, 0]}),
                          ("MatMul", "x u", "y", {})], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_followed(name):
    nodes, constants = GRAPHS[name]
    used = {i for node in nodes for i in node[1].split()}
    check(model_of(nodes, {k: v for k, v in (NET | constants).items() if k in used}))


@pytest.mark.parametrize("name", ["mean of members", "concat and reduce"])
def test_branches_that_average_become_members(name):
    nodes, constants = GRAPHS[name]
    ensemble = load(model_of(nodes, NET | constants))
    assert [m.hidden_widths for m in ensemble.members] == [(4,), (4,)]
    assert ensemble.weights.tolist() == [0.5, 0.5]


def test_operators_of_classical_models_are_followed():
    nodes = [
        ("Scaler", "x", "a", {"offset": [1.0, 2.0, 3.0], "scale": [0.5, -2.0, 1.0]}),
        ("ArrayFeatureExtractor", "a ids", "b", {}),
        ("LinearRegressor", "b", "y",
         {"coefficients": [2.0, 3.0], "intercepts": [1.0]}),
    ]  # fmt: skip
    model = model_of(nodes, {"ids": np.array([[2, 0]])})
    for node in model.graph.node:
        node.domain = "ai.onnx.ml"
    check(model)


def test_a_batch_of_one_and_no_batch_are_accepted():
    nodes = GRAPHS["matmul"][0]
    expected = load(model_of(nodes, NET))([0.5, -1.0, 2.0])
    for shape in ((1, 3), (3,)):
        ensemble = load(model_of(nodes, NET, shape=shape))
        assert ensemble([0.5, -1.0, 2.0]) == pytest.approx(expected)


def test_an_open_input_size_needs_input_names():
    model = model_of(GRAPHS["matmul"][0], NET, shape=("n", "m"))
    with pytest.raises(ModelConfigurationError, match="Pass input_names"):
        load(model)
    assert load(model, input_names=["a", "b", "c"]).num_inputs == 3


def test_the_reference_evaluator_stands_in_for_onnxruntime(monkeypatch):
    find = __import__("importlib.util").util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *rest: None if name == "onnxruntime" else find(name, *rest),
    )
    assert load(model_of(GRAPHS["matmul"][0], NET)).deviation < 1e-5


REFUSED = {
    "Mish": [("Mish", "x", "y", {})],
    "softmax": [("Softmax", "x", "t", {}), ("Relu", "t", "y", {})],
    "HardSwish": [("HardSwish", "x", "y", {})],
    "transA": [("Gemm", "x w0", "y", {"transA": 1})],
    "product of two values": [("Mul", "x x", "y", {})],
    "division by a value": [("Div", "x x", "y", {})],
    "two values": [("Transpose", "x", "t", {}), ("MatMul", "x t", "y", {})],
    "type number 7": [("Cast", "x", "y", {"to": TensorProto.INT64})],
    "ConvTranspose": [("ConvTranspose", "x w0", "y", {})],
    "lambd=1.0": [("Shrink", "x", "y", {"lambd": 1.0})],
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_operators_are_refused_by_name(name):
    with pytest.raises(PredictorNotSupportedError, match=name):
        load(model_of(REFUSED[name], NET))


def test_operators_of_unknown_domains_are_refused():
    model = model_of([("Relu", "x", "y", {})])
    model.graph.node[0].domain = "com.example"
    with pytest.raises(PredictorNotSupportedError, match=r"com\.example\.Relu"):
        load(model)


def test_control_flow_is_refused():
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])], "branch", [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [("If", "c", "y", {"then_branch": branch, "else_branch": branch})]
    with pytest.raises(PredictorNotSupportedError, match="got If"):
        load(model_of(nodes, {"c": np.array(True)}))


BROKEN = {
    "NaN or infinity": (HIDDEN + OUTPUT, NET | {"w1": W1 * np.nan}, {}),
    "inputs that fit": (HIDDEN + OUTPUT, NET | {"w1": W1.T}, {}),
    "got 'nothing'": ([("Add", "x nothing", "y", {})], {}, {}),
    "computes the output": ([("Relu", "x", "z", {})], {}, {}),
    "one output": ([("Relu", "x", "y", {})], {}, {"outputs": ("y", "x")}),
    "dynamic batch axis": (HIDDEN + OUTPUT, NET, {"shape": (5, 3)}),
    "constants that Reshape": ([("Reshape", "w0 s", "r", {}),
                                ("MatMul", "x r", "y", {})],
                               {"w0": W0, "s": np.array([5, 5])}, {}),
}  # fmt: skip


@pytest.mark.parametrize("reason", BROKEN)
def test_broken_graphs_give_one_error(reason):
    nodes, constants, options = BROKEN[reason]
    with pytest.raises(ModelConfigurationError, match=reason):
        load(model_of(nodes, constants, **options))


@pytest.mark.parametrize("content", ["cut", "text", "empty"])
def test_a_damaged_file_gives_one_error(content, tmp_path):
    path = tmp_path / "bad.onnx"
    whole = model_of(HIDDEN + OUTPUT, NET).SerializeToString()
    data = {"cut": whole[: len(whole) // 2], "text": b"not a model", "empty": b""}
    path.write_bytes(data[content])
    with pytest.raises(ModelConfigurationError, match=r"bad\.onnx"):
        load(path)


def test_no_damage_gives_another_kind_of_error(tmp_path):
    nodes, constants = GRAPHS["shape arithmetic"]
    whole = model_of(nodes, NET | constants).SerializeToString()
    loaded = 0
    path = tmp_path / "bad.onnx"
    for seed in range(150):
        rng = np.random.default_rng(seed)
        data = bytearray(whole)
        for position in rng.integers(len(data), size=3):
            data[position] = rng.integers(256)
        path.write_bytes(data)
        with suppress(ModelConfigurationError, PredictorNotSupportedError):
            loaded += load(path).num_members
    assert 0 < loaded < 150


ESCAPE = "\x1b]0;owned\x07"


@pytest.mark.parametrize("where", ["operator", "node", "tensor", "output", "producer"])
def test_names_of_a_file_are_not_printed_raw(where):
    model = model_of(HIDDEN + OUTPUT, NET)
    if where == "operator":
        model.graph.node[0].op_type = ESCAPE
    elif where == "node":
        model.graph.node[0].name = ESCAPE
        model.graph.node[0].op_type = "Sin"
    elif where == "tensor":
        model.graph.initializer[0].name = ESCAPE
        model.graph.initializer[0].dims[:] = [7]
    elif where == "output":
        model.graph.output[0].name = ESCAPE
    else:
        model.producer_name = ESCAPE
    try:
        text = repr(load(model))
    except (ModelConfigurationError, PredictorNotSupportedError) as error:
        text = str(error)
    assert "owned" in text
    assert text.isprintable()


# External data.


def external(folder, location):
    """A model whose first tensor lies in another file."""
    model = model_of(HIDDEN + OUTPUT, NET)
    tensor = model.graph.initializer[0]
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return raw


def test_external_data_beside_the_model_is_read(tmp_path):
    (tmp_path / "w.bin").write_bytes(external(tmp_path, "w.bin"))
    x = np.ones((1, 3))
    expected = load(model_of(HIDDEN + OUTPUT, NET))(x)
    assert load(tmp_path / "model.onnx")(x) == pytest.approx(expected)


@pytest.mark.parametrize("way", ["parent", "absolute", "symlink", "empty"])
def test_external_data_elsewhere_is_refused(way, tmp_path):
    folder = tmp_path / "inner"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    location = {
        "parent": "../secret.bin", "absolute": str(secret), "symlink": "link.bin",
        "empty": "",
    }[way]  # fmt: skip
    secret.write_bytes(external(folder, location))
    if way == "symlink":
        (folder / "link.bin").symlink_to(secret)
    with pytest.raises(ModelConfigurationError, match="inside the folder"):
        load(folder / "model.onnx")


def test_missing_or_short_external_data_is_refused(tmp_path):
    raw = external(tmp_path, "w.bin")
    with pytest.raises(ModelConfigurationError, match=r"w\.bin"):
        load(tmp_path / "model.onnx")
    (tmp_path / "w.bin").write_bytes(raw[:8])
    with pytest.raises(ModelConfigurationError, match="initializer 'w0'"):
        load(tmp_path / "model.onnx")
