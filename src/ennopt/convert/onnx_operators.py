"""The operators of ONNX that networks are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ennopt.activations import GELU, GELUTanh, SiLU, Tanh
from ennopt.convert import graph
from ennopt.convert import piecewise as pw
from ennopt.convert.affine import as_value
from ennopt.convert.classes import Scores, softmax
from ennopt.convert.errors import refuse

Attributes = dict[str, Any]
Operator = Callable[[list[Any], Attributes], Any]

FOLDED = {
    "Abs", "Add", "And", "ArgMax", "ArgMin", "BatchNormalization", "Cast", "CastLike",
    "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape", "CumSum", "Div", "Dropout",
    "Elu", "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather",
    "GatherElements", "GatherND", "Gemm", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Log", "LogSoftmax", "MatMul", "Max", "Mean", "Min", "Mod",
    "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "Pad", "Pow", "Range", "Reciprocal",
    "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "Relu", "Reshape", "Round", "ScatterElements", "ScatterND", "Shape", "Sigmoid",
    "Sign", "Size", "Slice", "Softmax", "Softplus", "Split", "Sqrt", "Squeeze", "Sub",
    "Sum", "Tanh", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
}  # fmt: skip
"""Operators that are computed when all they read is constant. None of them needs much
more memory than its inputs and its output take, so that checking these suffices."""


def _ints(values: Any) -> list[int] | None:
    return None if values is None else [int(v) for v in np.ravel(values)]


def _axes(arguments: list[Any], attributes: Attributes) -> list[int] | None:
    """Axes from the second input (newer opsets) or the attribute (older ones)."""
    if len(arguments) > 1 and arguments[1] is not None:
        return _ints(arguments[1])
    return _ints(attributes.get("axes"))


def _gemm(arguments: list[Any], attributes: Attributes) -> Any:
    left, right, *rest = arguments
    if attributes.get("transA", 0):
        raise refuse("a Gemm", "transA=1", ("transA=0",))
    if attributes.get("transB", 0):
        right = graph.transpose(right)
    product = graph.matmul(left, right)
    if attributes.get("alpha", 1.0) != 1.0:
        product = graph.scale(product, attributes["alpha"])
    if rest and rest[0] is not None:
        beta = attributes.get("beta", 1.0)
        product = graph.add(product, graph.scale(as_value(rest[0]), beta))
    return product


def _batch_normalization(arguments: list[Any], attributes: Attributes) -> Any:
    value, scale, bias, mean, variance = arguments
    if attributes.get("training_mode", 0):
        raise refuse("a BatchNormalization", "training_mode=1", ("training_mode=0",))
    factor = scale / np.sqrt(variance.astype(float) + attributes.get("epsilon", 1e-5))
    shape = (1, -1) + (1,) * (len(value.shape) - 2)
    shift = (bias - factor * mean).reshape(shape)
    return graph.add(graph.multiply(value, factor.reshape(shape)), shift)


def _reshape(arguments: list[Any], attributes: Attributes) -> Any:
    value, shape = arguments
    sizes = _ints(shape) or []
    if not attributes.get("allowzero", 0):
        sizes = [value.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return graph.reshape(value, sizes)


def _flatten(arguments: list[Any], attributes: Attributes) -> Any:
    value = arguments[0]
    axis = attributes.get("axis", 1)
    axis = axis + len(value.shape) if axis < 0 else axis
    rows = int(np.prod(value.shape[:axis]))
    return graph.reshape(value, (rows, -1))


def _dropout(arguments: list[Any], attributes: Attributes) -> Any:
    if len(arguments) > 2 and arguments[2] is not None and bool(arguments[2]):
        raise refuse("a Dropout", "training_mode=True", ("training_mode=False",))
    return arguments[0]


def _cast(arguments: list[Any], attributes: Attributes) -> Any:
    if attributes["to"] not in (1, 10, 11, 16):  # float, float16, double, bfloat16
        raise refuse("a Cast", f"type number {attributes['to']}",
                     ("float", "double", "float16", "bfloat16"))  # fmt: skip
    return arguments[0]


def _slice(arguments: list[Any], attributes: Attributes) -> Any:
    value = arguments[0]
    if len(arguments) > 1:
        starts, ends, axes, steps = (
            _ints(a) for a in (*arguments[1:], None, None)[:4]
        )  # fmt: skip
    else:
        keys = ("starts", "ends", "axes")
        starts, ends, axes = (_ints(attributes.get(key)) for key in keys)
        steps = None
    key = [slice(None)] * len(value.shape)
    for i, (start, end) in enumerate(zip(starts or (), ends or (), strict=True)):
        axis, step = axes[i] if axes else i, steps[i] if steps else 1
        stop = None if step < 0 and end < -value.shape[axis] else end
        key[axis] = slice(start, stop, step)
    return graph.index(value, tuple(key))


def _split(arguments: list[Any], attributes: Attributes) -> list[Any]:
    value, axis = arguments[0], attributes.get("axis", 0)
    length = value.shape[axis]
    given = arguments[1] if len(arguments) > 1 else attributes.get("split")
    sizes = _ints(given)
    if sizes is None:
        size = -(-length // attributes["num_results"])
        ends = list(range(size, length, size))
    else:
        ends = [int(n) for n in np.cumsum(sizes)[:-1]]
    return [graph.take(value, b, axis) for b in np.split(np.arange(length), ends)]


def _gelu(arguments: list[Any], attributes: Attributes) -> Any:
    kinds = {b"none": GELU(), b"tanh": GELUTanh()}
    given = attributes.get("approximate", b"none")
    if given not in kinds:
        raise refuse("a Gelu", f"approximate={given!r}", ("none", "tanh"))
    return graph.activate(arguments[0], kinds[given])


def _swish(arguments: list[Any], attributes: Attributes) -> Any:
    alpha = float(attributes.get("alpha", 1.0))
    if alpha == 0.0:
        return graph.scale(as_value(arguments[0]), 0.5)
    inner = graph.scale(as_value(arguments[0]), alpha)
    return graph.scale(graph.activate(inner, SiLU()), 1.0 / alpha)


def _clip(arguments: list[Any], attributes: Attributes) -> Any:
    low, high = (*arguments[1:], None, None)[:2]
    low = attributes.get("min") if low is None else low
    high = attributes.get("max") if high is None else high
    return pw.clip(arguments[0], low, high)


def _shrink(arguments: list[Any], attributes: Attributes) -> Any:
    width, bias = attributes.get("lambd", 0.5), attributes.get("bias", 0.0)
    if width != bias:
        raise refuse("a Shrink", f"lambd={width}, bias={bias}", ("lambd = bias",),
                     remedy="Others jump.")  # fmt: skip
    return pw.soft_shrink(arguments[0], width)


def _window(
    attributes: Attributes, sizes: list[int], value: Any
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Strides, padding and dilations of a window that moves over the last axes."""
    rank = len(sizes)
    strides = _ints(attributes.get("strides")) or [1] * rank
    dilations = _ints(attributes.get("dilations")) or [1] * rank
    if attributes.get("ceil_mode", 0):
        raise refuse("a pooling", "ceil_mode=1", ("ceil_mode=0",))
    mode = attributes.get("auto_pad", b"NOTSET")
    if mode in (b"SAME_UPPER", b"SAME_LOWER"):
        pads = []
        for n, k, s, d in zip(value.shape[2:], sizes, strides, dilations, strict=True):
            total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
            half = total // 2 if mode == b"SAME_UPPER" else total - total // 2
            pads.append((half, total - half))
        return strides, pads, dilations
    given = _ints(attributes.get("pads")) or [0] * (2 * rank)
    if mode == b"VALID":
        given = [0] * (2 * rank)
    return strides, list(zip(given[:rank], given[rank:], strict=True)), dilations


def _conv(arguments: list[Any], attributes: Attributes) -> Any:
    value, kernel, bias = (*arguments, None)[:3]
    value = as_value(value)
    strides, pads, dilations = _window(attributes, list(kernel.shape[2:]), value)
    return pw.convolve(
        value, kernel, bias, strides=strides, pads=pads, dilations=dilations,
        groups=attributes.get("group", 1),
    )  # fmt: skip


def _average_pool(arguments: list[Any], attributes: Attributes) -> Any:
    sizes = _ints(attributes["kernel_shape"]) or []
    strides, pads, dilations = _window(attributes, sizes, arguments[0])
    if any(n != 1 for n in dilations):
        raise refuse("an AveragePool", f"dilations={dilations}", ("dilations of 1",))
    counted = bool(attributes.get("count_include_pad", 0))
    return pw.average_pool(arguments[0], sizes, strides=strides, pads=pads,
                           count_pads=counted)  # fmt: skip


def _max_pool(arguments: list[Any], attributes: Attributes) -> Any:
    if attributes["num_results"] > 1:
        raise refuse("a MaxPool", "the places of the maxima", ("their values",))
    sizes = _ints(attributes["kernel_shape"]) or []
    strides, pads, dilations = _window(attributes, sizes, arguments[0])
    return pw.max_pool(arguments[0], sizes, strides=strides, pads=pads,
                       dilations=dilations)  # fmt: skip


def _pad(arguments: list[Any], attributes: Attributes) -> Any:
    value, pads, constant, axes = (*arguments, None, None, None)[:4]
    given = _ints(attributes.get("pads") if pads is None else pads) or []
    if attributes.get("mode", b"constant") != b"constant" or np.any(
        attributes.get("value", 0.0) if constant is None else constant
    ):
        raise refuse("a Pad", "other values than zeros", ("a Pad with zeros",))
    every = [(0, 0)] * len(value.shape)
    half = len(given) // 2
    where = list(range(len(every))) if axes is None else _ints(axes) or []
    for axis, pair in zip(where, zip(given[:half], given[half:], strict=True),
                          strict=True):  # fmt: skip
        every[axis] = pair
    return pw.pad(value, every)


def _everywhere(reduce: Callable[..., Any]) -> Operator:
    """A pooling over all places of ``(batch, channels, *places)``."""
    return lambda a, _: reduce(a[0], list(range(2, len(a[0].shape))), True)


def _scaler(arguments: list[Any], attributes: Attributes) -> Any:
    shift = np.asarray(attributes.get("offset", [0.0]))
    moved = graph.subtract(arguments[0], shift)
    return graph.multiply(moved, np.asarray(attributes.get("scale", [1.0])))


def _linear_regressor(arguments: list[Any], attributes: Attributes) -> Any:
    if attributes.get("post_transform", b"NONE") != b"NONE":
        raise refuse("a LinearRegressor", str(attributes["post_transform"]), ("NONE",))
    matrix = np.reshape(attributes["coefficients"], (attributes.get("targets", 1), -1))
    product = graph.matmul(arguments[0], matrix.T)
    if "intercepts" in attributes:
        return graph.add(product, np.asarray(attributes["intercepts"]))
    return product


def _reduced(reduce: Callable[..., Any]) -> Operator:
    def apply(arguments: list[Any], attributes: Attributes) -> Any:
        axes = _axes(arguments, attributes)
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return arguments[0]
        return reduce(arguments[0], axes or None, bool(attributes.get("keepdims", 1)))

    return apply


def _gather(arguments: list[Any], attributes: Attributes) -> Any:
    return graph.take(arguments[0], arguments[1], attributes.get("axis", 0))


def _extract(arguments: list[Any], attributes: Attributes) -> Any:
    value, positions = arguments
    return graph.take(value, np.ravel(positions), -1)


def _shape(arguments: list[Any], attributes: Attributes) -> Any:
    shape = np.array(arguments[0].shape, dtype=np.int64)
    return shape[attributes.get("start", 0) : attributes.get("end")]


def _expand(arguments: list[Any], attributes: Attributes) -> Any:
    value, shape = arguments
    target = np.broadcast_shapes(value.shape, tuple(_ints(shape) or ()))
    return graph.broadcast(value, target)


OPERATORS: dict[str, Operator] = {
    "Gemm": _gemm,
    "MatMul": lambda a, _: graph.matmul(*a),
    "Add": lambda a, _: graph.add(*a),
    "Sub": lambda a, _: graph.subtract(*a),
    "Mul": lambda a, _: graph.multiply(*a),
    "Div": lambda a, _: graph.divide(*a),
    "Neg": lambda a, _: graph.scale(a[0], -1.0),
    "Relu": lambda a, _: graph.relu(a[0]),
    "LeakyRelu": lambda a, k: pw.leaky(a[0], k.get("alpha", 0.01)),
    "PRelu": lambda a, _: pw.leaky(a[0], a[1]),
    "Tanh": lambda a, _: graph.activate(a[0], Tanh()),
    "Sigmoid": lambda a, _: Scores(a[0], "sigmoid"),
    "Softmax": lambda a, k: softmax(a[0], k.get("axis", -1)),
    "Softplus": lambda a, _: graph.softplus(a[0]),
    "Elu": lambda a, k: graph.elu(a[0], k.get("alpha", 1.0)),
    "Gelu": _gelu,
    "Swish": _swish,
    "Abs": lambda a, _: pw.leaky(a[0], -1.0),
    "Max": lambda a, _: pw.maximum_of(a),
    "Min": lambda a, _: pw.minimum_of(a),
    "Clip": _clip,
    "HardSigmoid": lambda a, k: pw.hard_sigmoid(
        a[0], k.get("alpha", 0.2), k.get("beta", 0.5)
    ),
    "Shrink": _shrink,
    "Conv": _conv,
    "AveragePool": _average_pool,
    "MaxPool": _max_pool,
    "GlobalAveragePool": _everywhere(graph.mean),
    "GlobalMaxPool": _everywhere(pw.largest),
    "Pad": _pad,
    "BatchNormalization": _batch_normalization,
    "Identity": lambda a, _: a[0],
    "Dropout": _dropout,
    "Cast": _cast,
    "CastLike": lambda a, _: a[0],
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": lambda a, k: graph.squeeze(a[0], _axes(a, k)),
    "Unsqueeze": lambda a, k: graph.unsqueeze(a[0], _axes(a, k) or []),
    "Transpose": lambda a, k: graph.transpose(a[0], k.get("perm")),
    "Expand": _expand,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Concat": lambda a, k: graph.concatenate(a, k["axis"]),
    "Mean": lambda a, _: graph.mean_of(a),
    "Sum": lambda a, _: graph.sum_of(a),
    "ReduceMean": _reduced(graph.mean),
    "ReduceSum": _reduced(graph.total),
    "ReduceMax": _reduced(pw.largest),
    "ReduceMin": _reduced(pw.smallest),
    "Scaler": _scaler,
    "LinearRegressor": _linear_regressor,
    "ArrayFeatureExtractor": _extract,
    "FeatureVectorizer": lambda a, _: graph.concatenate(a, -1),
}
