"""Piecewise-linear functions, written exactly with ReLU neurons of our own.

Each is a sum ``linear + sum_k factor_k * relu(argument_k)``. The linear part of a
hidden layer is carried on by the neurons that it is made of; the linear part of the
input has no such neurons, so it becomes ``relu(x) - relu(-x)``, beside the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.convert import graph
from ennopt.convert.affine import Tensor, Value, as_value
from ennopt.network import ModelConfigurationError

Places = npt.NDArray[np.int64]


def leaky(value: Tensor, slope: Any) -> Value:
    """``value`` above zero and ``slope * value`` below; one slope, or an array.

    An absolute value has the slope -1.
    """
    value = as_value(value)
    slope = np.asarray(slope, dtype=np.float64)
    if _reads_input(value) or np.all(slope == -1.0):
        return _total(None, [(1.0, value), (-slope, graph.scale(value, -1.0))])
    return _total(graph.multiply(value, slope), [(1.0 - slope, value)])


def clip(value: Tensor, low: Any = None, high: Any = None) -> Value:
    """``min(max(value, low), high)``; either side may be ``None`` or infinite."""
    value = as_value(value)
    low, high = (None if _is_open(side) else np.asarray(side) for side in (low, high))
    if low is not None and high is not None:
        if np.any(low > high):
            raise ModelConfigurationError(
                f"Expected limits in order, got [{low}, {high}] to clip to."
            )
        above, beyond = graph.subtract(value, low), graph.subtract(value, high)
        return graph.add(_total(None, [(1.0, above), (-1.0, beyond)]), low)
    if low is not None:
        return graph.add(graph.relu(graph.subtract(value, low)), low)
    if high is not None:
        return graph.subtract(high, graph.relu(graph.subtract(high, value)))
    return value


def _is_open(side: Any) -> bool:
    return side is None or bool(np.all(np.isinf(side)))


def hard_sigmoid(value: Tensor, slope: float = 1 / 6, shift: float = 0.5) -> Value:
    """``slope * value + shift``, clipped to zero and one."""
    return clip(graph.add(graph.scale(as_value(value), slope), shift), 0.0, 1.0)


def soft_shrink(value: Tensor, width: float) -> Value:
    """The value moved towards zero by `width`, and zero where that would cross it."""
    value = as_value(value)
    above = graph.subtract(value, width)
    below = graph.subtract(graph.scale(value, -1.0), width)
    return _total(None, [(1.0, above), (-1.0, below)])


def maximum(left: Tensor | float, right: Tensor | float) -> Value:
    """The larger of two tensors, with broadcasting."""
    left, right = as_value(left), as_value(right)
    if not left.pieces:
        left, right = right, left
    shape = np.broadcast_shapes(left.shape, right.shape)
    left, right = graph.broadcast(left, shape), graph.broadcast(right, shape)
    difference = graph.subtract(left, right)
    if not right.pieces:
        return graph.add(graph.relu(difference), right)
    return _total(right, [(1.0, difference)])


def minimum(left: Tensor | float, right: Tensor | float) -> Value:
    """The smaller of two tensors, with broadcasting."""
    turned = [graph.scale(as_value(tensor), -1.0) for tensor in (left, right)]
    return graph.scale(maximum(*turned), -1.0)


def maximum_of(tensors: Sequence[Tensor]) -> Value:
    """The largest of several tensors, pair by pair."""
    found = [as_value(tensor) for tensor in tensors]
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        rest = found[-1:] if len(found) % 2 else []
        found = [maximum(left, right) for left, right in pairs] + rest
    return found[0]


def minimum_of(tensors: Sequence[Tensor]) -> Value:
    """The smallest of several tensors."""
    turned = [graph.scale(as_value(tensor), -1.0) for tensor in tensors]
    return graph.scale(maximum_of(turned), -1.0)


def largest(value: Tensor, axes: Sequence[int] | None, keepdims: bool) -> Value:
    """Maximum over axes, by default over all of them."""
    value = as_value(value)
    rank = len(value.shape)
    over = sorted(range(rank) if axes is None else {int(a) % rank for a in axes})
    kept = [a for a in range(rank) if a not in over]
    shape = [1 if a in over else n for a, n in enumerate(value.shape)]
    count = math.prod(value.shape[a] for a in over)
    moved = graph.transpose(value, [*over, *kept])
    rows = graph.reshape(moved, (count, *(value.shape[a] for a in kept)))
    found = maximum_of([graph.index(rows, k) for k in range(count)])
    return graph.reshape(found, shape if keepdims else [shape[a] for a in kept])


def smallest(value: Tensor, axes: Sequence[int] | None, keepdims: bool) -> Value:
    """Minimum over axes, by default over all of them."""
    turned = graph.scale(as_value(value), -1.0)
    return graph.scale(largest(turned, axes, keepdims), -1.0)


def _reads_input(value: Value) -> bool:
    return any(not s.level for p in value.pieces.values() for s in p.reads)


def _total(linear: Value | None, terms: list[tuple[Any, Value]]) -> Value:
    """``linear + sum factor * relu(argument)``, all neurons of a row in one layer."""
    if linear is not None and _reads_input(linear):
        terms = [*terms, (1.0, linear), (-1.0, graph.scale(linear, -1.0))]
        linear = None
    shape = terms[0][1].shape
    rows = [graph.reshape(v, v.shape or (1,)) for _, v in terms]
    width = rows[0].shape[-1]
    neurons = graph.relu(graph.concatenate(rows, -1))
    total = linear
    for k, (factor, _) in enumerate(terms):
        part = graph.index(neurons, (..., slice(k * width, (k + 1) * width)))
        part = graph.multiply(graph.reshape(part, shape), factor)
        total = part if total is None else graph.add(total, part)
    return as_value(total if total is not None else 0.0)


def pad(value: Tensor, pads: Sequence[tuple[int, int]]) -> Value:
    """Zeros before and behind each of the last axes."""
    value = as_value(value)
    if min((n for pair in pads for n in pair), default=0) < 0:
        raise ModelConfigurationError(f"Expected padding >= 0, got {list(pads)}.")
    every = [(0, 0)] * (len(value.shape) - len(pads)) + list(pads)
    if not any(n for pair in every for n in pair):
        return value
    sizes = zip(value.shape, every, strict=True)
    shape = [n + before + after for n, (before, after) in sizes]
    return value.mapped(lambda a: np.pad(a, [(0, 0), *every]), shape)


def convolve(
    value: Tensor,
    kernel: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    groups: int = 1,
) -> Value:
    """A convolution of ``(batch, channels, *places)``, as torch and ONNX define it.

    Parameters
    ----------
    value
        The image.
    kernel
        (num_outputs, channels / groups, *sizes)
    bias
        (num_outputs,)
    strides, pads, dilations
        For each axis of places; a pad is (before, behind).
    groups
        Parts of the channels that are convolved apart.
    """
    kernel = np.asarray(kernel, dtype=np.float64)
    wide = pad(value, pads)
    batch, channels, *places = wide.shape
    sizes = kernel.shape[2:]
    if channels != kernel.shape[1] * groups or len(kernel) % groups:
        raise ValueError(f"{channels} channels do not fit a kernel {kernel.shape}")
    counts = _counts(places, sizes, strides, dilations)
    outputs = len(kernel)
    weights = kernel.reshape(groups, outputs // groups, *kernel.shape[1:])

    def linear(a: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        parts = a.reshape(len(a), batch, groups, channels // groups, *places)
        total = np.zeros((len(a), batch, groups, outputs // groups, *counts))
        for offset in product(*map(range, sizes)):
            here = tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(offset, dilations, counts, strides, strict=True)
            )
            seen = parts[(slice(None),) * 4 + here]
            factors = weights[(slice(None),) * 3 + offset]
            total += np.einsum("abgc...,goc->abgo...", seen, factors, optimize=True)
        return total.reshape(len(a), batch, outputs, *counts)

    result = wide.mapped(linear, (batch, outputs, *counts))
    if bias is None:
        return result
    return graph.add(result, np.reshape(bias, (1, -1) + (1,) * len(counts)))


def average_pool(
    value: Tensor,
    sizes: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    count_pads: bool,
) -> Value:
    """Means of windows of ``(batch, channels, *places)``."""
    value = as_value(value)
    channels = value.shape[1]
    ones, no_pads = (1,) * len(sizes), [(0, 0)] * len(sizes)
    wide = pad(value, pads)
    counts = _counts(wide.shape[2:], sizes, strides, ones)
    wide.reserve((math.prod(sizes), channels, *counts))  # no file stores its weights
    total = convolve(
        wide, np.ones((channels, 1, *sizes)), strides=strides, pads=no_pads,
        dilations=ones, groups=channels,
    )  # fmt: skip
    if count_pads:
        return graph.scale(total, 1.0 / math.prod(sizes))
    counted = convolve(
        np.ones((1, 1, *value.shape[2:])), np.ones((1, 1, *sizes)), strides=strides,
        pads=pads, dilations=ones,
    )  # fmt: skip
    if not counted.shared.all():
        raise ValueError("a window lies in the padding alone")
    return graph.multiply(total, 1.0 / counted.shared)


def max_pool(
    value: Tensor,
    sizes: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
) -> Value:
    """Maxima of windows of ``(batch, channels, *places)``; padding never wins."""
    value = as_value(value)
    places = value.shape[2:]
    wide = [n + b + e for n, (b, e) in zip(places, pads, strict=True)]
    counts = _counts(wide, sizes, strides, dilations)
    each = [
        _windows(*numbers)
        for numbers in zip(
            places, counts, sizes, strides, (b for b, _ in pads), dilations, strict=True
        )
    ]
    seen = []
    for offset in product(*map(range, sizes)):
        part = value
        for axis, (windows, k) in enumerate(zip(each, offset, strict=True)):
            part = graph.take(part, windows[:, k], axis + 2)
        seen.append(part)
    return maximum_of(seen)


def _windows(
    length: int, count: int, size: int, stride: int, before: int, dilation: int
) -> Places:
    """The places that each window sees, (count, size).

    A place in the padding is replaced by another one of the same window.
    """
    starts = stride * np.arange(count)[:, None] - before
    found = starts + dilation * np.arange(size)
    inside = (found >= 0) & (found < length)
    if not inside.any(axis=1).all():
        raise ValueError("a window lies in the padding alone")
    first = found[np.arange(count), np.argmax(inside, axis=1)]
    return np.where(inside, found, first[:, None])


def _counts(
    places: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """How often a window fits into each axis."""
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(places, sizes, strides, dilations, strict=True)
    ]
    if min(counts, default=0) < 1 or min((*sizes, *strides, *dilations)) < 1:
        raise ValueError(f"a window of {tuple(sizes)} does not fit {tuple(places)}")
    return counts
