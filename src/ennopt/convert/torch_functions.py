"""The layers and functions of torch that networks are made of."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ennopt.activations import GELU, Activation, GELUTanh, SiLU, Tanh
from ennopt.convert import graph
from ennopt.convert import piecewise as pw
from ennopt.convert.affine import Tensor, Value, as_value
from ennopt.convert.classes import Scores, softmax
from ennopt.convert.errors import PredictorNotSupportedError, refuse

MODULES = (
    "Linear", "ReLU", "LeakyReLU", "PReLU", "RReLU", "ReLU6", "Hardtanh",
    "Hardsigmoid", "Softshrink", "Tanh", "Sigmoid", "Softplus", "ELU", "SiLU", "GELU",
    "Conv1d to 3d", "AvgPool1d to 3d", "MaxPool1d to 3d",
    "AdaptiveAvgPool and AdaptiveMaxPool (to one place)", "BatchNorm1d to 3d",
    "Dropout", "AlphaDropout", "Identity", "Flatten", "Unflatten", "Sequential",
    "Softmax (as the last step)",
)  # fmt: skip
FUNCTIONS = (
    "relu", "leaky_relu", "prelu", "relu6", "hardtanh", "hardsigmoid", "tanh",
    "sigmoid", "softplus", "elu", "silu", "gelu", "x * sigmoid(x)", "clamp", "abs",
    "maximum", "minimum", "max", "min", "amax", "amin", "linear", "matmul", "bmm",
    "addmm", "+", "-", "*", "/ by a constant", "mean", "sum", "stack", "cat",
    "dropout", "flatten", "reshape", "view", "squeeze", "unsqueeze", "transpose",
    "permute", "indexing",
)  # fmt: skip
_UNTOUCHED = {
    "Dropout", "AlphaDropout", "FeatureAlphaDropout", "Dropout1d", "Dropout2d",
    "Dropout3d", "Identity",
}  # fmt: skip
_ACTIVATIONS: dict[str, Callable[[Any, Tensor], Any]] = {
    "ReLU": lambda layer, v: graph.relu(v),
    "LeakyReLU": lambda layer, v: pw.leaky(v, layer.negative_slope),
    "PReLU": lambda layer, v: _prelu(v, numpy_of(layer.weight)),
    "RReLU": lambda layer, v: pw.leaky(v, (layer.lower + layer.upper) / 2),  # in eval
    "ReLU6": lambda layer, v: pw.clip(v, 0.0, 6.0),
    "Hardtanh": lambda layer, v: pw.clip(v, layer.min_val, layer.max_val),
    "Hardsigmoid": lambda layer, v: pw.hard_sigmoid(v),
    "Softshrink": lambda layer, v: pw.soft_shrink(v, layer.lambd),
    "Tanh": lambda layer, v: graph.activate(v, Tanh()),
    "Sigmoid": lambda layer, v: Scores(v, "sigmoid"),
    "Softplus": lambda layer, v: _softplus(v, layer.beta, layer.threshold),
    "ELU": lambda layer, v: graph.elu(v, float(layer.alpha)),
    "SiLU": lambda layer, v: graph.activate(v, SiLU()),
    "GELU": lambda layer, v: _gelu(v, layer.approximate),
    "Softmax": lambda layer, v: softmax(v, -1 if layer.dim is None else layer.dim),
}
_POOLS = {
    f"{kind}Pool{n}d"
    for kind in ("Avg", "Max", "AdaptiveAvg", "AdaptiveMax")
    for n in (1, 2, 3)
}


def numpy_of(tensor: Any) -> Any:
    """A tensor as an array, of float64 if it has fractions."""
    array = tensor.detach().cpu()
    return (array.double() if array.is_floating_point() else array).numpy()


def knows_layer(layer: Any, torch: Any) -> bool:
    """Whether `apply_layer` can read a module."""
    nn = torch.nn
    if isinstance(layer, (nn.Linear, *_norms(torch), *_convolutions(torch))):
        return True
    own = type(layer).__module__.startswith("torch.nn.")
    names = {"Flatten", "Unflatten", *_UNTOUCHED, *_ACTIVATIONS, *_POOLS}
    return own and type(layer).__name__ in names


def _norms(torch: Any) -> tuple[Any, ...]:
    return torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d


def _convolutions(torch: Any) -> tuple[Any, ...]:
    return torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d


def apply_layer(layer: Any, value: Tensor, name: str, torch: Any) -> Any:
    """Output of a module that is called with one tensor."""
    nn = torch.nn
    if isinstance(layer, nn.Linear):
        bias = None if layer.bias is None else numpy_of(layer.bias)
        return _linear(value, numpy_of(layer.weight), bias)
    if isinstance(layer, _norms(torch)):
        return _batch_norm(layer, as_value(value), name)
    if type(layer).__name__ in _ACTIVATIONS:
        return _ACTIVATIONS[type(layer).__name__](layer, value)
    if isinstance(layer, _convolutions(torch)):
        return _convolution(layer, value, name)
    if type(layer).__name__ in _POOLS:
        return _pooled(layer, as_value(value), name)
    if type(layer) is nn.Flatten:
        return graph.flatten(value, layer.start_dim, layer.end_dim)
    if type(layer) is nn.Unflatten:
        return _unflatten(value, layer.dim, layer.unflattened_size)
    return value  # dropout in eval mode, identity


def _prelu(value: Tensor, weight: Any) -> Any:
    """One slope, or one for each channel, which is the second axis."""
    rank = len(as_value(value).shape)
    slopes = np.asarray(weight, dtype=np.float64).ravel()
    if slopes.size > 1 and rank > 2:
        slopes = slopes.reshape(-1, *(1,) * (rank - 2))
    return pw.leaky(value, slopes if slopes.size > 1 else slopes.item())


def _softplus(value: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    # Torch takes x itself beyond the threshold, which differs by exp(-threshold).
    if threshold < 20.0:
        raise refuse("a softplus", f"threshold={threshold}", ("threshold=20",))
    return graph.softplus(value, float(beta))


def _gelu(value: Tensor, approximate: str = "none") -> Any:
    kinds: dict[str, Activation] = {"none": GELU(), "tanh": GELUTanh()}
    if approximate not in kinds:
        raise refuse("a GELU", f"approximate={approximate!r}", kinds)
    return graph.activate(value, kinds[approximate])


def _each(setting: Any, rank: int) -> list[int]:
    """A setting for each axis of places; one number stands for all."""
    return [int(n) for n in setting] if isinstance(setting, tuple) else [setting] * rank


def _convolution(layer: Any, value: Tensor, name: str) -> Any:
    rank = len(layer.kernel_size)
    kernel = numpy_of(layer.weight)
    if layer.padding_mode != "zeros":
        raise refuse("a padding of", layer.padding_mode, ("zeros",), where=f"'{name}'")
    pads: list[tuple[int, int]]
    if layer.padding == "valid":
        pads = [(0, 0)] * rank
    elif layer.padding == "same":
        reach = zip(layer.dilation, layer.kernel_size, strict=True)
        totals = [d * (k - 1) for d, k in reach]
        pads = [(total // 2, total - total // 2) for total in totals]
    else:
        pads = [(n, n) for n in _each(layer.padding, rank)]
    return pw.convolve(
        value, kernel, None if layer.bias is None else numpy_of(layer.bias),
        strides=layer.stride, pads=pads, dilations=layer.dilation, groups=layer.groups,
    )  # fmt: skip


def _pooled(layer: Any, value: Value, name: str) -> Any:
    kind, rank = type(layer).__name__, int(type(layer).__name__[-2])
    axes = list(range(-rank, 0))
    if kind.startswith("Adaptive"):
        sizes = layer.output_size
        sizes = _each(tuple(sizes) if isinstance(sizes, list) else sizes, rank)
        if any(n != 1 for n in sizes):
            raise refuse(f"an {kind}", f"output_size={sizes}", ("output_size=1",),
                         where=f"'{name}'")  # fmt: skip
        reduce = graph.mean if "Avg" in kind else pw.largest
        return reduce(value, axes, True)
    if layer.ceil_mode:
        raise refuse(f"a {kind}", "ceil_mode=True", ("ceil_mode=False",),
                     where=f"'{name}'")  # fmt: skip
    sizes, strides = _each(layer.kernel_size, rank), _each(layer.stride, rank)
    pads = [(n, n) for n in _each(layer.padding, rank)]
    if kind.startswith("Max"):
        if layer.return_indices:
            raise refuse(f"a {kind}", "return_indices=True", ("return_indices=False",),
                         where=f"'{name}'")  # fmt: skip
        return pw.max_pool(value, sizes, strides=strides, pads=pads,
                           dilations=_each(layer.dilation, rank))  # fmt: skip
    if getattr(layer, "divisor_override", None) is not None:
        raise refuse(f"a {kind}", "divisor_override", ("none",), where=f"'{name}'")
    return pw.average_pool(value, sizes, strides=strides, pads=pads,
                           count_pads=layer.count_include_pad)  # fmt: skip


def _linear(value: Tensor, weight: Any, bias: Any = None) -> Any:
    product = graph.matmul(value, np.swapaxes(weight, -1, -2))
    return product if bias is None else graph.add(product, bias)


def _batch_norm(layer: Any, value: Value, name: str) -> Any:
    if layer.running_mean is None:
        raise PredictorNotSupportedError(
            "Expected a batch norm with running statistics, got "
            f"track_running_stats=False at '{name}'. Its prediction for one point "
            "depends on the other points of the batch."
        )
    factor = 1.0 / np.sqrt(numpy_of(layer.running_var) + layer.eps)
    if layer.weight is not None:
        factor = factor * numpy_of(layer.weight)
    shift = -factor * numpy_of(layer.running_mean)
    if layer.bias is not None:
        shift = shift + numpy_of(layer.bias)
    shape = (1, -1) + (1,) * (len(value.shape) - 2)
    scaled = graph.multiply(value, factor.reshape(shape))
    return graph.add(scaled, shift.reshape(shape))


def _unflatten(value: Tensor, dim: int, sizes: Sequence[int]) -> Any:
    shape = as_value(value).shape
    dim %= len(shape)
    return graph.reshape(value, (*shape[:dim], *map(int, sizes), *shape[dim + 1 :]))


def _axes(dim: Any) -> list[int] | None:
    if dim is None:
        return None
    return [int(d) for d in dim] if isinstance(dim, list | tuple) else [int(dim)]


def _reshaped(value: Tensor, *shape: Any) -> Any:
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return graph.reshape(value, [int(n) for n in sizes])


def _permuted(value: Tensor, *dims: Any) -> Any:
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    return graph.transpose(value, order)


def _swapped(value: Tensor, dim0: int, dim1: int) -> Any:
    order = list(range(len(as_value(value).shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return graph.transpose(value, order)


def _clamped(value: Tensor, min: Any = None, max: Any = None) -> Any:
    return pw.clip(value, min, max)


def _largest(value: Tensor, *given: Any, **options: Any) -> Any:
    """``max`` of all elements, of an axis (values and places), or of two tensors."""
    return _extreme(pw.largest, pw.maximum, value, *given, **options)


def _smallest(value: Tensor, *given: Any, **options: Any) -> Any:
    """As `_largest`, for ``min``."""
    return _extreme(pw.smallest, pw.minimum, value, *given, **options)


@dataclass(frozen=True, slots=True)
class Extremes:
    """What ``max`` and ``min`` over an axis return: values, and places of no use."""

    values: Any

    def __getitem__(self, key: int) -> Any:
        return (self.values, None)[key]


def _extreme(
    over: Callable[..., Any],
    of_two: Callable[..., Any],
    value: Tensor,
    dim: Any = None,
    keepdim: bool = False,
    other: Any = None,
) -> Any:
    other = dim if isinstance(dim, Value | np.ndarray) else other
    if other is not None:
        return of_two(value, other)
    found = over(value, _axes(dim), keepdim)
    return found if dim is None else Extremes(found)


def _size(value: Value, dim: int | None = None) -> Any:
    return value.shape if dim is None else value.shape[dim]


def _attribute(value: Value | Extremes, name: str) -> Any:
    if isinstance(value, Extremes):
        if name == "values":
            return value.values
        raise refuse("an attribute of a maximum over an axis", name, ["values"])
    known: dict[str, Callable[[], Any]] = {
        "shape": lambda: value.shape,
        "T": lambda: graph.transpose(value),
        "mT": lambda: _swapped(value, -1, -2),
        "ndim": lambda: len(value.shape),
    }
    if name not in known:
        raise refuse("an attribute of a tensor", name, known)
    return known[name]()


def _dropout(
    value: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if training and p:
        raise PredictorNotSupportedError(
            "Expected dropout that follows the mode of its module, got dropout that "
            "is always on. Pass training=self.training to it."
        )
    return value


def method_table() -> dict[str, Callable[..., Any]]:
    """What the methods of a tensor do, by name."""
    g = graph
    table: dict[str, Callable[..., Any]] = {
        "relu": lambda v, inplace=False: g.relu(v),
        "clamp": _clamped,
        "clip": _clamped,
        "clamp_min": lambda v, min: _clamped(v, min),
        "clamp_max": lambda v, max: _clamped(v, None, max),
        "abs": lambda v: pw.leaky(v, -1.0),
        "tanh": lambda v: g.activate(v, Tanh()),
        "sigmoid": lambda v: Scores(v, "sigmoid"),
        "softmax": lambda v, dim=-1, dtype=None: softmax(v, dim),
        "maximum": pw.maximum,
        "minimum": pw.minimum,
        "max": _largest,
        "min": _smallest,
        "amax": lambda v, dim=(), keepdim=False: pw.largest(
            v, _axes(dim) or None, keepdim
        ),
        "amin": lambda v, dim=(), keepdim=False: pw.smallest(
            v, _axes(dim) or None, keepdim
        ),
        "add": lambda v, w, alpha=1: g.add(v, g.scale(as_value(w), alpha)),
        "sub": lambda v, w, alpha=1: g.subtract(v, g.scale(as_value(w), alpha)),
        "mul": g.multiply,
        "div": lambda v, w: g.divide(v, w),
        "neg": lambda v: g.scale(v, -1.0),
        "matmul": g.matmul,
        "mean": lambda v, dim=None, keepdim=False: g.mean(v, _axes(dim), keepdim),
        "sum": lambda v, dim=None, keepdim=False: g.total(v, _axes(dim), keepdim),
        "flatten": lambda v, start_dim=0, end_dim=-1: g.flatten(v, start_dim, end_dim),
        "unflatten": _unflatten,
        "reshape": _reshaped,
        "view": _reshaped,
        "squeeze": lambda v, dim=None: _squeezed(v, dim),
        "unsqueeze": lambda v, dim: g.unsqueeze(v, [dim]),
        "transpose": _swapped,
        "permute": _permuted,
        "t": g.transpose,
        "size": _size,
        "dim": lambda v: len(v.shape),
        "expand": _expanded,
        "unbind": lambda v, dim=0: [
            g.take(v, i, dim) for i in range(as_value(v).shape[dim])
        ],
        "chunk": _chunked,
        "split": _split,
    }
    table |= {"mm": table["matmul"], "bmm": table["matmul"]}
    table |= {f"{name}_": table[name] for name in ("relu", "add", "sub", "mul", "div")}
    for name in ("detach", "contiguous", "clone", "float", "double", "to", "cpu"):
        table[name] = lambda v, *ignored, **options: v
    return table


def _squeezed(value: Tensor, dim: Any) -> Any:
    """As torch: an axis that is longer than one stays."""
    value = as_value(value)
    axes = _axes(dim)
    if axes is not None:
        axes = [a for a in axes if value.shape[a] == 1]
    return graph.squeeze(value, axes)


def _expanded(value: Value, *sizes: Any) -> Any:
    wanted = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    own = (1,) * (len(wanted) - len(value.shape)) + value.shape
    return graph.broadcast(
        value, [n if s == -1 else s for s, n in zip(wanted, own, strict=True)]
    )


def _split(value: Value, sizes: Any, dim: int = 0) -> list[Any]:
    length = value.shape[dim]
    if isinstance(sizes, int):
        ends = list(range(sizes, length, sizes))
    else:
        ends = [int(n) for n in np.cumsum(sizes)[:-1]]
    blocks = np.split(np.arange(length), ends)
    return [graph.take(value, block, dim) for block in blocks]


def _chunked(value: Value, chunks: int, dim: int = 0) -> list[Any]:
    return _split(value, -(-value.shape[dim] // chunks), dim)


def function_table(torch: Any) -> dict[Any, Callable[..., Any]]:
    """What functions of tensors do."""
    g, methods = graph, method_table()
    functional = torch.nn.functional
    table: dict[Any, Callable[..., Any]] = {
        getattr(torch, name): methods[name]
        for name in (
            "relu", "clamp", "clamp_min", "add", "sub", "mul", "div", "neg", "matmul",
            "mm", "bmm", "mean", "sum", "flatten", "unflatten", "reshape", "squeeze",
            "unsqueeze", "transpose", "permute", "t", "unbind", "chunk", "split",
            "clip", "clamp_max", "abs", "maximum", "minimum", "max", "min", "amax",
            "amin", "tanh", "sigmoid", "softmax",
        )
    }  # fmt: skip
    return table | {
        torch.relu_: methods["relu"],
        torch.true_divide: methods["div"],
        torch.multiply: methods["mul"],
        torch.subtract: methods["sub"],
        torch.divide: methods["div"],
        torch.negative: methods["neg"],
        torch.stack: lambda tensors, dim=0: g.stack(tensors, dim),
        torch.cat: lambda tensors, dim=0: g.concatenate(tensors, dim),
        torch.concat: lambda tensors, dim=0: g.concatenate(tensors, dim),
        torch.hstack: lambda tensors: g.concatenate(tensors, 1),
        torch.addmm: lambda c, a, b: g.add(g.matmul(a, b), c),
        torch.baddbmm: lambda c, a, b: g.add(g.matmul(a, b), c),
        functional.relu: methods["relu"],
        functional.relu_: methods["relu"],
        functional.linear: lambda input, weight, bias=None: _linear(
            input, weight, bias
        ),
        torch.absolute: methods["abs"],
        operator.abs: methods["abs"],
        functional.leaky_relu: lambda input, negative_slope=0.01, inplace=False: (
            pw.leaky(input, negative_slope)
        ),
        functional.prelu: lambda input, weight: _prelu(input, weight),
        torch.prelu: lambda input, weight: _prelu(input, weight),
        functional.relu6: lambda input, inplace=False: pw.clip(input, 0.0, 6.0),
        functional.hardtanh: lambda input, min_val=-1.0, max_val=1.0, inplace=False: (
            pw.clip(input, min_val, max_val)
        ),
        functional.hardsigmoid: lambda input, inplace=False: pw.hard_sigmoid(input),
        functional.softshrink: lambda input, lambd=0.5: pw.soft_shrink(input, lambd),
        functional.tanh: methods["tanh"],
        functional.softplus: lambda input, beta=1, threshold=20: _softplus(
            input, beta, threshold
        ),
        functional.elu: lambda input, alpha=1.0, inplace=False: g.elu(input, alpha),
        functional.silu: lambda input, inplace=False: g.activate(input, SiLU()),
        functional.gelu: lambda input, approximate="none": _gelu(input, approximate),
        functional.sigmoid: methods["sigmoid"],
        torch.special.expit: methods["sigmoid"],
        functional.softmax: lambda input, dim=-1, _stacklevel=3, dtype=None: softmax(
            input, -1 if dim is None else dim
        ),
        functional.dropout: _dropout,
        functional.alpha_dropout: _dropout,
        operator.add: g.add,
        operator.sub: g.subtract,
        operator.mul: g.multiply,
        operator.truediv: g.divide,
        operator.neg: methods["neg"],
        operator.matmul: g.matmul,
        operator.getitem: _item,
        operator.iadd: g.add,
        operator.isub: g.subtract,
        operator.imul: g.multiply,
        operator.itruediv: g.divide,
        getattr: _attribute,
    }


def _item(value: Any, key: Any) -> Any:
    return graph.index(value, key) if isinstance(value, Value) else value[key]
