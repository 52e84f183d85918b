"""Files that describe far more than they store are refused before it is allocated."""

import contextlib
import importlib.util
import io
import json
import struct
import tracemalloc
import zipfile
from itertools import pairwise

import h5py
import keras
import numpy as np
import pytest
import torch
from keras import layers
from onnx import TensorProto, helper, numpy_helper

from ennopt.convert import PredictorNotSupportedError, graph, load
from ennopt.convert.affine import Room, inputs
from ennopt.convert.lower import to_ensemble
from ennopt.network import SIZE_LIMIT, Ensemble, ModelConfigurationError, Network

TOO_LARGE = r"Expected a model that takes at most [\d,]+ numbers .* got [\d,]+ "
NET = Network([[[1.0, 2.0], [-1.0, 0.5]], [[1.0, -3.0]]], [[0.1, 0.2], [0.3]])


@contextlib.contextmanager
def allocating_at_most(megabytes):
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < megabytes * 2**20


def onnx_model(nodes, constants=None, width=3, functions=(), batch="n"):
    """A model from nodes (operator, inputs, outputs, attributes, domain)."""
    built = [
        helper.make_node(op, ins.split(), outs.split(), domain=domain, **attributes)
        for op, ins, outs, attributes, domain in nodes
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, width))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [
        numpy_helper.from_array(a, name) for name, a in (constants or {}).items()
    ]
    graph = helper.make_graph(built, "test", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=9, functions=list(functions)
    )


def chain(count, operator="Identity", first="x", end="y", **attributes):
    """Nodes one after the other, from `first` to `end`."""
    names = [first, *(f"v{i}" for i in range(count - 1)), end]
    doubled = operator in ("Concat", "Add")
    return [
        (operator, f"{a} {a}" if doubled else a, b, attributes, "")
        for a, b in pairwise(names)
    ]


LARGE = 2 * 10**9
ONE = np.ones(1, np.float32)


def made_large(operator, reads):
    """A constant of two billion numbers, made from a few."""
    return [
        (operator, reads, "big", {}, ""),
        ("ReduceSum", "big", "s", {"keepdims": 0}, ""),
        ("Mul", "x s", "y", {}, ""),
    ]


def skipping(count):
    """ReLU layers, each of which reads all that came before."""
    sums = ["x", *(f"s{i}" for i in range(count - 1)), "y"]
    nodes = []
    for i, (old, new) in enumerate(pairwise(sums)):
        nodes.append(("Sub", f"{old} one", f"a{i}", {}, ""))
        nodes.append(("Relu", f"a{i}", f"r{i}", {}, ""))
        nodes.append(("Add", f"r{i} {old}", new, {}, ""))
    return nodes


# Nodes, constants and number of inputs.
BOMBS = {
    "a wide input": (chain(1), {}, 10**8),
    "concatenations": (chain(40, "Concat", axis=1), {}, 3),
    "concatenations of rows": (chain(40, "Concat", axis=0), {}, 3),
    "expansion": (
        [("Expand", "x n", "y", {}, "")], {"n": np.array([LARGE, 1, 3])}, 3
    ),
    "gathering": (
        [("Expand", "x n", "a", {}, ""), ("Gather", "a i", "y", {"axis": 2}, "")],
        {"n": np.array([10**5, 1, 3]), "i": np.zeros(10**5, dtype=np.int64)}, 3,
    ),
    "layers that all reach the end": (skipping(200), {"one": ONE}, 10),
    "a constant of a shape": (
        made_large("ConstantOfShape", "n"), {"n": np.array([LARGE])}, 3
    ),
    "a long range": (
        made_large("Range", "a n b"),
        {"a": np.array(0.0), "n": np.array(2e9), "b": np.array(1.0)}, 3
    ),
    "an expanded constant": (
        made_large("Expand", "one n"), {"one": ONE, "n": np.array([LARGE])}, 3
    ),
    "a tiled constant": (
        made_large("Tile", "one n"), {"one": ONE, "n": np.array([LARGE])}, 3
    ),
    "a padded constant": (
        made_large("Pad", "one n"), {"one": ONE, "n": np.array([0, LARGE])}, 3
    ),
    "copies of a constant": (
        [*chain(2000, "Neg", first="c", end="d"), ("Gather", "d i", "e", {}, ""),
         ("Mul", "x e", "y", {}, "")],
        {"c": np.ones(10**6, np.float32), "i": np.array(0)}, 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_graphs_that_explode_are_refused_before_they_do(name):
    nodes, constants, width = BOMBS[name]
    load(onnx_model(chain(1)))  # what is imported is no part of the bomb
    with (
        allocating_at_most(1.2 * SIZE_LIMIT * 8 / 2**20),
        pytest.raises(ModelConfigurationError, match=TOO_LARGE + ".* at (node|the)"),
    ):
        load(onnx_model(nodes, constants, width))


def test_a_value_added_to_itself_again_and_again_is_only_a_factor():
    x = np.array([1.0, 2.0, 3.0])
    assert load(onnx_model(chain(40, "Add")))(x) == pytest.approx(2.0**40 * x)


@pytest.mark.parametrize("start", ["x", "c"])
@pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
@pytest.mark.parametrize("batch", ["n", 1])
def test_thirty_thousand_nodes_load(start, runtime, batch, monkeypatch):
    if runtime == "reference":
        find = importlib.util.find_spec
        monkeypatch.setattr(
            "importlib.util.find_spec",
            lambda name, *rest: None if name == "onnxruntime" else find(name, *rest),
        )
    nodes = [*chain(30_000, first=start, end="d"), ("Add", "x d", "y", {}, "")]
    constants = {"c": ONE} if start == "c" else {}
    ensemble = load(onnx_model(nodes, constants, batch=batch))
    x = np.array([1.0, 2.0, 3.0])
    assert ensemble(x).tolist() == (x + (1 if start == "c" else x)).tolist()


def test_thousands_of_layers_load():
    names = ["x", *(f"v{i}" for i in range(2999)), "y"]
    nodes = []
    for i, (before, after) in enumerate(pairwise(names)):
        nodes += [
            ("Sub", f"{before} b", f"s{i}", {}, ""),
            ("Relu", f"s{i}", after, {}, ""),
        ]
    ensemble = load(onnx_model(nodes, {"b": np.array(0.5, np.float32)}))
    assert ensemble.num_neurons == 9000
    assert ensemble([0.0, 1500.0, 2000.0]).tolist() == [0.0, 0.0, 500.0]


def doubling(depth):
    """Functions that each call the one before twice."""
    functions = []
    for i in range(depth):
        before = ("Neg", "") if i == 0 else (f"f{i - 1}", "own")
        nodes = [
            helper.make_node(before[0], [a], [b], domain=before[1])
            for a, b in (("a", "b"), ("b", "c"))
        ]
        functions.append(
            helper.make_function(
                "own", f"f{i}", ["a"], ["c"], nodes,
                [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
            )
        )  # fmt: skip
    return functions


def test_functions_that_explode_are_refused_before_they_do():
    small = onnx_model([("f2", "x", "y", {}, "own")], functions=doubling(3))
    assert load(small)(np.ones(3)).tolist() == [1.0, 1.0, 1.0]
    large = onnx_model([("f39", "x", "y", {}, "own")], functions=doubling(40))
    with pytest.raises(ModelConfigurationError, match=r"got 1,099,511,627,776 when"):
        load(large)
    large.functions[0].node[0].op_type = "f1"
    large.functions[0].node[0].domain = "own"
    with pytest.raises(ModelConfigurationError, match="one that calls itself"):
        load(large)


def test_external_data_that_is_read_again_and_again_is_refused(tmp_path):
    model = onnx_model(chain(1), {f"w{i}": ONE for i in range(300)})
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.dims[:] = [10**6]
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "w.bin").write_bytes(bytes(4 * 10**6))
    with pytest.raises(ModelConfigurationError, match=TOO_LARGE + ".*tensor 'w"):
        load(tmp_path / "model.onnx")


def test_a_tensor_of_many_dimensions_and_little_data_is_refused():
    model = onnx_model([("Mul", "x w", "y", {}, "")], {"w": ONE})
    model.graph.initializer[0].dims[:] = [10**6, 10**6]
    with allocating_at_most(10), pytest.raises(ModelConfigurationError, match="'w'"):
        load(model)


# Archives of our own.


def npz_with_header(path, shape, dtype="<f8"):
    header = str({"descr": dtype, "fortran_order": False, "shape": shape})
    header = header.encode().ljust(118) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
        archive.writestr("net0.W0.npy", magic + header + bytes(8))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((10**6, 10**6), "<f8"), ((-1, -1), "<f8"), ((1,), f"<U{10**9}"), ((2,), "|O")],
)
def test_an_array_that_declares_more_than_it_holds_is_refused(tmp_path, shape, dtype):
    npz_with_header(tmp_path / "bad.npz", shape, dtype)
    with allocating_at_most(10), pytest.raises(ModelConfigurationError) as caught:
        load(tmp_path / "bad.npz")
    assert "declares" in str(caught.value) or "Python objects" in str(caught.value)
    assert "allow_pickle" not in str(caught.value)


def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path):
    path = tmp_path / "bad.npz"
    Ensemble((NET,)).save(path)
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")  # the first of the directory
    data[entry + 24 : entry + 28] = struct.pack("<I", 3 * 10**9)  # its size unpacked
    path.write_bytes(data)
    with (
        allocating_at_most(10),
        pytest.raises(ModelConfigurationError, match=TOO_LARGE + r".*bad\.npz"),
    ):
        load(path)


# State dicts of torch.


def test_a_tensor_that_repeats_what_is_stored_is_refused(tmp_path):
    state = {"0.weight": torch.ones(1, 1).expand(10**6, 10**6)}
    torch.save(state, tmp_path / "bad.pt")
    assert (tmp_path / "bad.pt").stat().st_size < 10**4
    with pytest.raises(ModelConfigurationError, match=TOO_LARGE + r".*bad\.pt"):
        load(tmp_path / "bad.pt")


def test_a_state_dict_repeated_without_end_is_refused(tmp_path):
    state = {"0.weight": torch.ones(100, 1000)}
    torch.save([state] * 10**5, tmp_path / "bad.pt")
    with pytest.raises(ModelConfigurationError, match=TOO_LARGE + r".*bad\.pt"):
        load(tmp_path / "bad.pt")


def test_lists_in_lists_and_dicts_in_themselves_are_refused(tmp_path):
    nested = {"0.weight": torch.ones(1, 3)}
    for _ in range(40):
        nested = [nested, nested]
    loop = {}
    loop["state_dict"] = loop
    for content in (nested, loop):
        torch.save(content, tmp_path / "bad.pt")
        with pytest.raises(ModelConfigurationError, match="a list of them, got"):
            load(tmp_path / "bad.pt")


def test_a_parameter_with_a_name_of_many_parts_is_refused(tmp_path):
    torch.save({"0." * 10**6 + "weight": torch.ones(1, 3)}, tmp_path / "bad.pt")
    with pytest.raises(ModelConfigurationError, match="1000000 deep"):
        load(tmp_path / "bad.pt")


# Files of Keras.


def saved(path, change=None, weights=None):
    """A model of two dense layers with its configuration or its weights changed."""
    model = keras.Sequential(
        [keras.Input((3,)), layers.Dense(4, "relu"), layers.Dense(1)]
    )
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    if change is not None:
        change(config["config"]["layers"])
    parts["config.json"] = json.dumps(config)
    if weights is not None:
        parts["model.weights.h5"] = weights
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def test_layers_that_are_too_large_are_refused_before_they_are_built(tmp_path):
    def widen(entries):
        entries[1]["config"]["units"] = 10**6
        entries[2]["config"]["units"] = 10**6
        entries[2]["build_config"]["input_shape"] = [None, 10**6]

    saved(tmp_path / "bad.keras", widen)
    with pytest.raises(ModelConfigurationError, match=TOO_LARGE + r".*bad\.keras"):
        load(tmp_path / "bad.keras")


def test_layers_that_do_not_tell_their_inputs_are_refused(tmp_path):
    saved(tmp_path / "bad.keras", lambda entries: entries[1].pop("build_config"))
    with pytest.raises(ModelConfigurationError, match="Call the model on data"):
        load(tmp_path / "bad.keras")


def test_other_layers_are_refused_before_they_are_built(tmp_path):
    def embed(entries):
        entries[1]["class_name"] = "Embedding"

    saved(tmp_path / "bad.keras", embed)
    with pytest.raises(PredictorNotSupportedError, match="got Embedding at 'dense"):
        load(tmp_path / "bad.keras")


def test_weights_that_declare_far_more_than_they_hold_are_refused(tmp_path):
    stream = io.BytesIO()
    with h5py.File(stream, "w") as weights:
        weights.create_dataset("w", (10**6, 10**6), "f4", chunks=(10, 10))
    saved(tmp_path / "bad.keras", weights=stream.getvalue())
    with pytest.raises(ModelConfigurationError, match=TOO_LARGE + r".*bad\.keras"):
        load(tmp_path / "bad.keras")


def test_models_that_call_each_other_too_often_are_refused(tmp_path):
    x = keras.Input((3,))
    inner = keras.Model(x, layers.Dense(3)(x))
    z = keras.Input((3,))
    keras.Model(z, inner(inner(z))).save(tmp_path / "good.keras")
    assert load(tmp_path / "good.keras").num_inputs == 3
    with zipfile.ZipFile(tmp_path / "good.keras") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    for _ in range(15):  # each wraps the last, which it calls twice
        outer = json.loads(parts["config.json"])
        entries = outer["config"]["layers"]
        at = next(i for i, e in enumerate(entries) if e["class_name"] == "Functional")
        calls = entries[at]["inbound_nodes"]
        entries[at] = config | {"name": entries[at]["name"], "inbound_nodes": calls}
        config = outer
    parts["config.json"] = json.dumps(config)
    with zipfile.ZipFile(tmp_path / "bad.keras", "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(ModelConfigurationError, match="call them at most"):
        load(tmp_path / "bad.keras")


# What is counted grows with the graph and no faster.


def growing(kind, count):
    """Numbers that a trace of `count` steps takes."""
    room = Room(stored=0)
    source, (x,) = inputs([(1, 3)], room)
    w = np.ones((3, 3))
    if kind == "sum of members":
        value = graph.sum_of([graph.relu(graph.matmul(x, w)) for _ in range(count)])
    elif kind == "chain of sums":
        value = x
        for _ in range(count):
            value = graph.add(graph.relu(graph.matmul(x, w)), value)
    elif kind == "concatenation":
        value = graph.concatenate([x] * count, 1)
    elif kind == "chain of layers":
        value = x
        for _ in range(count):
            value = graph.relu(graph.subtract(graph.matmul(value, w), 1.0))
    to_ensemble(value, source, room)
    return room.spent


@pytest.mark.parametrize(
    "kind", ["sum of members", "chain of sums", "concatenation", "chain of layers"]
)
def test_the_work_of_reading_is_proportional_to_the_graph(kind):
    assert growing(kind, 400) <= 2.1 * growing(kind, 200)


def test_a_wide_layer_takes_no_more_than_its_weights():
    room = Room(stored=0)
    source, (x,) = inputs([(1, 10)], room)
    first, second = np.ones((10, 20_000)), np.ones((20_000, 1))
    with allocating_at_most(100):
        hidden = graph.relu(graph.matmul(x, first))
        ensemble = to_ensemble(graph.matmul(hidden, second), source, room)
    assert ensemble.num_neurons == 20_000
    assert room.spent < 10 * first.size


def test_a_rescaling_of_many_neurons_is_refused_with_what_would_fit():
    wide = 60_100  # as a full matrix the rescaling takes 26.9 GiB
    module = torch.nn.Sequential(
        torch.nn.Linear(1, wide), torch.nn.ReLU(), torch.nn.BatchNorm1d(wide),
        torch.nn.ReLU(), torch.nn.Linear(wide, 1),
    )  # fmt: skip
    refused = r"got 3,6\d\d,.* a full matrix, .* two widths of 11,\d\d\d would just fit"
    with allocating_at_most(100), pytest.raises(ModelConfigurationError, match=refused):
        load(module)
