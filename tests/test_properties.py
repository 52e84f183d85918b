"""Properties of networks: parsed without trust, decided like a dense grid does."""

import numpy as np
import pytest

from ennopt import Network
from ennopt.cli.main import main
from ennopt.convert.vnnlib import Property, PropertyError
from ennopt.properties import HOLDS, UNKNOWN, VIOLATED, check_property
from oracles import random_ensemble

HEAD = """; a comment
(declare-const X_0 Real) (declare-const X_1 Real)
(declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 -1.0)) (assert (<= X_0 1.0))
(assert (and (<= -1 X_1) (<= X_1 1e0)))
"""


def grid(count):
    line = np.linspace(-1.0, 1.0, count)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def two_outputs(seed):
    rng = np.random.default_rng(seed)
    first, second = (random_ensemble(rng, 1, 2, (6, 5)).members[0] for _ in range(2))
    zero = np.zeros((5, 5))
    weights = (
        np.concatenate([first.weights[0], second.weights[0]]),
        np.block([[first.weights[1], np.zeros((5, 6))],
                  [np.zeros((5, 6)), second.weights[1]]]),
        np.block([[first.weights[2], zero[:1]], [zero[:1], second.weights[2]]]),
    )  # fmt: skip
    biases = [
        np.concatenate(pair) for pair in zip(first.biases, second.biases, strict=True)
    ]
    return Network(weights, biases)


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_agree_with_a_grid(seed):
    net = two_outputs(seed)
    y = net(grid(201))
    spread = np.ptp(y, axis=0)
    gap = y[:, 0] - y[:, 1]
    for share, expected in ((0.02, HOLDS), (-0.02, VIOLATED)):
        most = float(y[:, 0].max() + share * spread[0])
        least = float(y[:, 1].min() - share * spread[1])
        apart = float(gap.max() + share * np.ptp(gap))
        for text in (
            f"(assert (>= Y_0 {most!r}))",
            f"(assert (<= Y_1 {least!r}))",
            f"(assert (>= (- Y_0 Y_1) {apart!r}))",
            f"(assert (or (>= Y_0 {most!r}) (and (<= Y_1 {least!r}))))",
        ):
            found = check_property(net, Property.of(HEAD + text))
            assert found.verdict == expected, text
            assert (found.x is None) == (expected == HOLDS)


@pytest.mark.parametrize("seed", range(3))
def test_a_conjunction_is_decided_by_halving(seed):
    """Each constraint alone can be met, both together perhaps not."""
    net = two_outputs(seed)
    y = net(grid(201))
    both = np.minimum(y[:, 0] - y[:, 0].mean(), y[:, 1] - y[:, 1].mean())
    for share, expected in ((0.05, HOLDS), (-0.05, VIOLATED)):
        level = both.max() + share * np.ptp(both)
        sides = (y.mean(axis=0) + level).tolist()
        text = f"(assert (and (>= Y_0 {sides[0]!r}) (>= Y_1 {sides[1]!r})))"
        found = check_property(net, Property.of(HEAD + text))
        assert found.verdict == expected
        if found.x is not None:
            assert np.all(net(found.x) >= sides)


def test_a_limit_leaves_it_unknown():
    net = two_outputs(1)
    text = HEAD + "(assert (>= Y_0 -1e9)) (assert (>= Y_1 1e9)) (assert (<= Y_0 0))"
    assert check_property(net, Property.of(text), time_limit=1e-9).verdict == UNKNOWN
    assert check_property(net, Property.of(text)).verdict == HOLDS


def test_cases_may_have_boxes_of_their_own():
    net = Network([[[1.0]]], [[0.0]])
    text = """(declare-fun X_0 () Real) (declare-const Y_0 Real)
    (assert (or (and (<= X_0 1) (>= X_0 0) (>= Y_0 1.5))
                (and (<= X_0 (* 3 1)) (>= X_0 2) (>= Y_0 2.5))
                (and (<= X_0 -3) (>= X_0 3) (>= Y_0 0))))"""
    found = check_property(net, Property.of(text))
    assert found.verdict == VIOLATED
    assert found.x[0] >= 2.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(assert (>= Z_0 1))", "variable"),
        ("(assert (>= X_9 1))", "declared"),
        ("(assert (>= (* X_0 X_1) 1))", "product"),
        ("(assert (=> (>= X_0 1) (>= X_1 1)))", "connectives"),
        ("(assert (>= X_0 nan))", "variable"),
        ("(assert (>= X_0 1e999))", "finite"),
        ("(assert (>= X_0 1)", "too few"),
        (")", "before"),
        ("hello", "brackets"),
        ("(import os)", "declare-const"),
        ("()", "nothing"),
        ("(" * 1000 + ")" * 1000, "nested"),
        ("(assert (>= X_0 " + "(- " * 99 + "1" + ")" * 99 + "))", "nested"),
    ],
)
def test_other_texts_are_refused(text, words):
    with pytest.raises(PropertyError, match=words):
        Property.of(HEAD + text)


def test_too_many_cases_are_refused():
    choice = "(assert (or " + "(>= Y_0 1) " * 30 + "))"
    with pytest.raises(PropertyError, match="cases"):
        Property.of(HEAD + 5 * choice)


def test_random_damage_is_an_error_or_another_property(rng):
    text = HEAD + "(assert (or (and (>= Y_0 1.5)) (<= (+ Y_0 (* -2 Y_1)) 3)))"
    letters = "()XY_01.e-<>=* andor;"
    for _ in range(400):
        broken = list(text)
        for at in rng.integers(len(broken), size=3):
            broken[at] = letters[rng.integers(len(letters))]
        try:
            found = Property.of("".join(broken))
        except PropertyError:
            continue
        assert found.num_inputs in (1, 2, 3)


def test_the_command_line_has_a_word_and_a_status_for_each_verdict(tmp_path, capsys):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    weights = onnx.numpy_helper.from_array(np.array([[1.0, -1.0]], np.float32), "W")
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "W"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
        ],
        "absolute",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 2])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path, stated = tmp_path / "model.onnx", tmp_path / "p.vnnlib"
    onnx.save(model, str(path))
    head = """(declare-const X_0 Real) (declare-const Y_0 Real)
    (declare-const Y_1 Real) (assert (<= X_0 0.7)) (assert (>= X_0 -0.1))"""
    for text, status, words in (
        ("(assert (>= Y_0 0.71))", 0, ("holds", "unsat")),
        ("(assert (>= Y_0 0.6))", 10, ("violated", "sat")),
        ("(assert (and (>= Y_0 0.01) (>= Y_1 0.01)))", 0, ("holds", "unsat")),
    ):
        stated.write_text(head + text, encoding="utf-8")
        for form, word in zip(("text", "vnncomp"), words, strict=True):
            assert main(["check", str(path), str(stated), "--format", form]) == status
            assert capsys.readouterr().out.splitlines()[0] == word
    stated.write_text("(assert", encoding="utf-8")
    assert main(["check", str(path), str(stated)]) == 2
    assert "p.vnnlib" in capsys.readouterr().err


def test_a_witness_is_replayed_by_the_model_itself(tmp_path):
    """The bound 0.7 of an input is no float32 number: the witness is one below it."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    one = onnx.numpy_helper.from_array(np.array([[1.0]], np.float32), "W")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        "identity",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1])],
        [one],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    text = """(declare-const X_0 Real) (declare-const Y_0 Real)
    (assert (<= X_0 0.7)) (assert (>= X_0 0)) (assert (>= Y_0 {}))"""
    found = check_property(model, Property.of(text.format(0.69)))
    assert found.verdict == VIOLATED
    assert "float32" in found.replayed
    assert found.x[0] == np.float32(found.x[0]) <= 0.7
    close = check_property(model, Property.of(text.format(0.69999999)))
    assert close.verdict == UNKNOWN
    assert close.reason


def test_networks_as_the_field_ships_them(tmp_path, capsys):
    """Sub and Div of constants, Conv, LeakyReLU, Flatten: decided and replayed."""
    onnx = pytest.importorskip("onnx")
    make, kinds = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(0)
    arrays = {
        "m": 0.5, "s": 2.0, "k": rng.normal(size=(2, 1, 2, 2)),
        "kb": rng.normal(size=2), "w": rng.normal(size=(3, 8)),
        "wb": rng.normal(size=3),
        "v": rng.normal(size=(2, 3)), "vb": np.zeros(2),
    }  # fmt: skip
    graph = make.make_graph(
        [
            make.make_node("Sub", ["x", "m"], ["a"]),
            make.make_node("Div", ["a", "s"], ["b"]),
            make.make_node("Conv", ["b", "k", "kb"], ["c"], kernel_shape=[2, 2]),
            make.make_node("LeakyRelu", ["c"], ["d"], alpha=0.1),
            make.make_node("Flatten", ["d"], ["e"], axis=1),
            make.make_node("Gemm", ["e", "w", "wb"], ["r"], transB=1),
            make.make_node("Relu", ["r"], ["q"]),
            make.make_node("Gemm", ["q", "v", "vb"], ["y"], transB=1),
        ],
        "net",
        [make.make_tensor_value_info("x", kinds.FLOAT, [1, 1, 3, 3])],
        [make.make_tensor_value_info("y", kinds.FLOAT, [1, 2])],
        [
            onnx.numpy_helper.from_array(np.asarray(a, np.float32), name)
            for name, a in arrays.items()
        ],
    )
    opset = [make.make_opsetid("", 13)]
    model, stated = tmp_path / "net.onnx", tmp_path / "stated.vnnlib"
    onnx.save(make.make_model(graph, opset_imports=opset, ir_version=8), model)
    names = [*(f"X_{i}" for i in range(9)), "Y_0", "Y_1"]
    head = "".join(f"(declare-const {name} Real)\n" for name in names)
    head += "".join(f"(assert (>= X_{i} 0))(assert (<= X_{i} 1))" for i in range(9))
    for claim, word, status in (
        ("(assert (or (and (>= Y_0 -50) (<= Y_1 50)) (>= Y_0 1e5)))", "sat", 10),
        ("(assert (>= Y_0 1000))", "unsat", 0),
    ):
        stated.write_text(head + claim)
        given = ["check", str(model), str(stated), "--format", "vnncomp"]
        assert main(given) == status
        assert capsys.readouterr().out.split()[0] == word
