"""Computation graphs of affine maps and ReLU, traced once and split into members.

The readers of torch, keras and ONNX walk their graph on one point and call the
functions below in place of the framework's. What flows through is a `Value`: a
tensor that is known as an affine function of `Source` vectors, the input and the
outputs of ReLU layers. Reshaping, stacking, averaging, scaling and matrix products
only change its coefficients; `relu` makes a new source. At the end the sources that
depend on each other are collected into one member each, see `ennopt.convert.lower`.

A value keeps apart the *pieces* that will become members, with the constant and the
factor each was given, so that the mean of three networks becomes three members of
weight 1/3 and not three networks with a third of their last layer:

    value = outer * sum_i weight_i * piece_i + shared
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.network import Array, ModelConfigurationError

_serial = itertools.count()


class Source:
    """The input vector (level 0) or the output of one ReLU layer."""

    __slots__ = ("constant", "level", "parent", "reads", "serial", "units", "width")

    def __init__(self, width: int, reads: dict[Source, Array], constant: Array) -> None:
        self.width = width
        self.reads = reads  # {source: (source.width, width)}, before the ReLU
        self.constant = constant  # (width,), before the ReLU
        self.level: int = 1 + max((s.level for s in reads), default=-1)
        self.serial = next(_serial)
        self.units: tuple[Array, Array] | None = None  # center and spread, if seen
        self.parent: Source = self
        for source in reads:
            if source.level:
                source.root().parent = self

    def root(self) -> Source:
        """One representative of all ReLU layers that share a network with this."""
        while self.parent is not self:
            self.parent = self.parent.parent
            self = self.parent
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Affine function of sources that belong to one member.

    Coefficients have shape (source.width, *shape), the constant has `shape`.
    `layer` tells linear members apart: the matrix product a piece of the input
    went through last, ``None`` for the input itself.
    """

    weight: float
    reads: dict[Source, Array]
    constant: Array
    layer: int | None

    def key(self) -> tuple[Source, int | None]:
        """Pieces with the same key go into the same member."""
        source = next(iter(self.reads))
        return source.root(), None if source.level else self.layer


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the graph: ``outer * sum_i weight_i * piece_i + shared``."""

    pieces: tuple[Piece, ...]
    shared: Array
    outer: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape for one point; a batch axis is there, with length one."""
        return self.shared.shape

    def mapped(self, linear: Callable[[Array], Array]) -> Value:
        """Apply a linear map, given as a function of arrays (any, *shape)."""
        pieces = [
            replace(
                p,
                reads={s: linear(a) for s, a in p.reads.items()},
                constant=linear(p.constant[None])[0],
            )
            for p in self.pieces
        ]
        return replace(self, pieces=tuple(pieces), shared=linear(self.shared[None])[0])


Tensor: TypeAlias = Value | npt.NDArray[np.generic]


def inputs(shapes: Sequence[tuple[int, ...]]) -> tuple[Source, list[Value]]:
    """The input of the graph, cut into one value for each shape.

    A shape includes the batch axis, of length one, where there is one.
    """
    sizes = [math.prod(shape) for shape in shapes]
    source = Source(sum(sizes), {}, np.zeros(0))
    eye, start, values = np.eye(source.width), 0, []
    for shape, size in zip(shapes, sizes, strict=True):
        block = eye[:, start : start + size].reshape(-1, *shape)
        values.append(
            Value((Piece(1.0, {source: block}, np.zeros(shape), None),), block[0] * 0)
        )
        start += size
    return source, values


def constant(array: npt.ArrayLike) -> Value:
    """A value that depends on nothing."""
    return Value((), np.asarray(array, dtype=np.float64))


def as_value(tensor: Tensor | float) -> Value:
    """The tensor itself, or a number as a value."""
    return tensor if isinstance(tensor, Value) else constant(tensor)


def merged(pieces: Iterable[Piece], by: Callable[[Piece], object]) -> list[Piece]:
    """Add up the pieces that share a key."""
    groups: dict[object, Piece] = {}
    for new in pieces:
        old = groups.setdefault(by(new), new)
        if old is new:
            continue
        same = old.weight == new.weight
        f, g, weight = (1.0, 1.0, old.weight) if same else (old.weight, new.weight, 1.0)
        reads = {s: f * a for s, a in old.reads.items()}
        for s, a in new.reads.items():
            reads[s] = reads[s] + g * a if s in reads else g * a
        total = f * old.constant + g * new.constant
        groups[by(new)] = Piece(weight, reads, total, old.layer)
    return list(groups.values())


def add(left: Tensor | float, right: Tensor | float) -> Value:
    """Sum, with broadcasting."""
    left, right = as_value(left), as_value(right)
    shape = np.broadcast_shapes(left.shape, right.shape)
    left, right = broadcast(left, shape), broadcast(right, shape)
    for value, other in ((left, right), (right, left)):
        if not other.pieces:
            if len(value.pieces) != 1:
                return replace(value, shared=value.shared + other.shared)
            (piece,) = value.pieces  # the bias of a layer belongs to its member
            shift = other.shared / (piece.weight * value.outer)
            return replace(
                value, pieces=(replace(piece, constant=piece.constant + shift),)
            )
    pieces = [
        replace(p, weight=p.weight * value.outer)
        for value in (left, right)
        for p in value.pieces
    ]
    return Value(tuple(merged(pieces, Piece.key)), left.shared + right.shared)


def scale(value: Value, factor: float) -> Value:
    """Multiply by one number."""
    factor = float(factor)
    if factor == 0.0:
        return constant(np.zeros(value.shape))
    return replace(value, shared=value.shared * factor, outer=value.outer * factor)


def subtract(left: Tensor | float, right: Tensor | float) -> Value:
    """Difference, with broadcasting."""
    return add(left, scale(as_value(right), -1.0))


def multiply(left: Tensor | float, right: Tensor | float) -> Value:
    """Product with a constant, element by element, with broadcasting."""
    left, right = as_value(left), as_value(right)
    if left.pieces and right.pieces:
        raise PredictorNotSupportedError(
            "Expected a product with a constant, got a product of two values that "
            "both depend on the input. Such a model is not piecewise linear."
        )
    value, factor = (left, right.shared) if left.pieces else (right, left.shared)
    shape = np.broadcast_shapes(value.shape, factor.shape)
    if factor.size == 1:
        return scale(broadcast(value, shape), factor.item())
    return broadcast(value, shape).mapped(lambda a: a * factor)


def divide(left: Tensor | float, right: Tensor | float) -> Value:
    """Quotient by a constant."""
    right = as_value(right)
    if right.pieces:
        raise PredictorNotSupportedError(
            "Expected a division by a constant, got a division by a value that "
            "depends on the input. Such a model is not piecewise linear."
        )
    return multiply(left, 1.0 / right.shared)


def matmul(left: Tensor, right: Tensor) -> Value:
    """Matrix product of a value and a constant, on either side."""
    left, right = as_value(left), as_value(right)
    if left.pieces and right.pieces:
        raise PredictorNotSupportedError(
            "Expected a matrix product with a constant, got one of two values that "
            "both depend on the input. Such a model is not piecewise linear."
        )
    if right.pieces:
        if len(right.shape) == 1:
            product = matmul(left, unsqueeze(right, [1]))
            return squeeze(product, [-1])
        matrix, value = left.shared, _as_one_layer(right)
        return _raised(value, matrix.ndim).mapped(lambda a: np.matmul(matrix, a))
    if len(left.shape) == 1:
        axis = -2 if right.shared.ndim > 1 else -1
        return squeeze(matmul(unsqueeze(left, [0]), right), [axis])
    _note_units(left)
    matrix, value = right.shared, _as_one_layer(left)
    return _raised(value, matrix.ndim).mapped(lambda a: _product(a, matrix))


def _product(a: Array, matrix: Array) -> Array:
    """``a @ matrix`` with the sources, the first axis of `a`, as rows of one product.

    Left to numpy, each source would be a product of its own: slow on wide layers.
    """
    if matrix.ndim == 1:
        return np.asarray(a @ matrix)
    rows = np.moveaxis(a, 0, -3)  # (*lead, sources, rows, columns)
    *lead, num_sources, num_rows, width = rows.shape
    product = rows.reshape(*lead, num_sources * num_rows, width) @ matrix
    unfolded = product.reshape(*product.shape[:-2], num_sources, num_rows, -1)
    return np.moveaxis(unfolded, -3, 0)


def _raised(value: Value, rank: int) -> Value:
    """The value with as many leading axes of length one as `rank` asks for."""
    missing = rank - len(value.shape)
    return unsqueeze(value, range(missing)) if missing > 0 else value


def _as_one_layer(value: Value) -> Value:
    """What a matrix product sees of its operand.

    A layer on top of one piece starts a new unit of measure, so factors collected
    so far are no member weights. Pieces of the input alone become one linear piece.
    """
    layer = next(_serial)
    linear = [p for p in value.pieces if not p.key()[0].level]
    rest = [p for p in value.pieces if p.key()[0].level]
    pieces = [replace(p, layer=layer) for p in merged(linear, lambda _: None)] + rest
    if len(pieces) == 1 and (factor := pieces[0].weight * value.outer) != 1.0:
        reads = {s: a * factor for s, a in pieces[0].reads.items()}
        pieces = [Piece(1.0, reads, pieces[0].constant * factor, layer)]
        return Value(tuple(pieces), value.shared)
    return replace(value, pieces=tuple(pieces))


def _note_units(value: Value) -> None:
    """Remember the scaling that a model applies to its input before its first layer."""
    if len(value.pieces) != 1 or value.pieces[0].layer is not None:
        return
    ((source, block), *others) = value.pieces[0].reads.items()
    if others or source.level or source.units is not None:
        return
    factor = value.outer * value.pieces[0].weight
    matrix = factor * block.reshape(source.width, -1)
    shift = (factor * value.pieces[0].constant + value.shared).ravel()
    center, spread = np.zeros(source.width), np.ones(source.width)
    for column, moved in zip(matrix.T, shift, strict=True):
        rows = np.flatnonzero(column)
        if rows.size == 1:
            center[rows[0]] = -moved / column[rows[0]]
            spread[rows[0]] = 1.0 / abs(column[rows[0]])
    source.units = center, spread


def relu(value: Tensor) -> Value:
    """Element-wise ``max(value, 0)``: one new source per row of the last axis."""
    value = as_value(value)
    total = value.shared.copy()
    reads: dict[Source, Array] = {}
    for piece in value.pieces:
        factor = value.outer * piece.weight
        total += factor * piece.constant
        for s, a in piece.reads.items():
            reads[s] = reads[s] + factor * a if s in reads else factor * a
    if not reads:
        return constant(np.maximum(total, 0.0))
    if total.min(initial=0.0) >= 0 and all(
        s.level and a.min(initial=0.0) >= 0 for s, a in reads.items()
    ):
        return value  # a ReLU of what cannot be negative changes nothing
    shape = value.shape
    width = shape[-1] if shape else 1
    rows = total.reshape(-1, width)
    zero = np.zeros(shape)
    parts: list[Piece] = []
    for i, row in enumerate(rows):
        own = {
            s: block
            for s, a in reads.items()
            if (block := a.reshape(s.width, -1, width)[:, i]).any()
        }
        if not own:  # a constant row: the caller's tensor has it, no neuron needed
            zero.reshape(-1, width)[i] = np.maximum(row, 0.0)
            continue
        source = Source(width, own, row)
        block = np.zeros((width, len(rows), width))
        block[:, i] = np.eye(width)
        block = block.reshape(width, *shape)
        parts.append(Piece(1.0, {source: block}, np.zeros(shape), None))
    return Value(tuple(merged(parts, Piece.key)), zero)


def reshape(value: Tensor, shape: Sequence[int]) -> Value:
    """Another shape for the same elements; one entry may be -1."""
    value = as_value(value)
    target = np.zeros(value.shape).reshape(tuple(int(n) for n in shape)).shape
    return value.mapped(lambda a: a.reshape(-1, *target))


def broadcast(value: Value, shape: Sequence[int]) -> Value:
    """Repeat along axes of length one, and along new leading axes."""
    target = tuple(int(n) for n in shape)
    if value.shape == target:
        return value
    lead = (1,) * (len(target) - len(value.shape))
    return value.mapped(
        lambda a: np.broadcast_to(
            a.reshape(a.shape[0], *lead, *value.shape), (a.shape[0], *target)
        )
    )


def flatten(value: Tensor, start: int = 1, end: int = -1) -> Value:
    """Merge the axes `start` to `end`, both included."""
    value = as_value(value)
    rank = len(value.shape)
    if rank == 0:
        return reshape(value, (1,))
    first, last = start % rank if rank > 1 else 0, end % rank
    merged = math.prod(value.shape[first : last + 1])
    return reshape(value, (*value.shape[:first], merged, *value.shape[last + 1 :]))


def transpose(value: Tensor, axes: Sequence[int] | None = None) -> Value:
    """Permute the axes; reverse them by default."""
    value = as_value(value)
    rank = len(value.shape)
    order = [int(a) % rank for a in (range(rank)[::-1] if axes is None else axes)]
    return value.mapped(lambda a: a.transpose(0, *(axis + 1 for axis in order)))


def squeeze(value: Tensor, axes: Sequence[int] | None = None) -> Value:
    """Drop the given axes of length one, by default every one."""
    value = as_value(value)
    rank = len(value.shape)
    drop = {a % rank for a in axes} if axes is not None else set(range(rank))
    if axes is not None and any(value.shape[a] != 1 for a in drop):
        raise ModelConfigurationError(
            f"Expected axes of length one to remove, got shape {value.shape} "
            f"and axes {sorted(drop)}."
        )
    kept = [n for a, n in enumerate(value.shape) if a not in drop or n != 1]
    return reshape(value, kept)


def unsqueeze(value: Tensor, axes: Sequence[int]) -> Value:
    """Add axes of length one, numbered in the result."""
    value = as_value(value)
    rank = len(value.shape) + len(axes)
    new = {int(a) % rank for a in axes}
    old = iter(value.shape)
    return reshape(value, [1 if a in new else next(old) for a in range(rank)])


def index(value: Tensor, key: object) -> Value:
    """``value[key]`` for a key of numbers, slices, ``None`` and index arrays."""
    value = as_value(value)
    parts = key if isinstance(key, tuple) else (key,)
    return value.mapped(lambda a: a[(slice(None), *parts)])


def take(value: Tensor, positions: npt.ArrayLike, axis: int) -> Value:
    """Elements at `positions` of an axis."""
    value = as_value(value)
    where = np.asarray(positions).astype(np.int64)
    axis %= len(value.shape)
    return value.mapped(lambda a: np.take(a, where, axis=axis + 1))


def total(value: Tensor, axes: Sequence[int] | None, keepdims: bool) -> Value:
    """Sum over axes, by default over all of them."""
    value = as_value(value)
    rank = len(value.shape)
    over = tuple(range(rank)) if axes is None else tuple(int(a) % rank for a in axes)
    shifted = tuple(a + 1 for a in over)
    return value.mapped(lambda a: a.sum(axis=shifted, keepdims=keepdims))


def mean(value: Tensor, axes: Sequence[int] | None, keepdims: bool) -> Value:
    """Mean over axes, by default over all of them."""
    value = as_value(value)
    rank = len(value.shape)
    over = range(rank) if axes is None else {int(a) % rank for a in axes}
    count = math.prod(value.shape[a] for a in over)
    return scale(total(value, axes, keepdims), 1.0 / count)


def concatenate(tensors: Sequence[Tensor], axis: int) -> Value:
    """Join along an existing axis."""
    values = [as_value(t) for t in tensors]
    shape = list(values[0].shape)
    axis %= len(shape)
    shape[axis] = sum(v.shape[axis] for v in values)
    result, start = constant(np.zeros(shape)), 0
    for value in values:
        here = slice(start, start := start + value.shape[axis])

        def place(a: Array, here: slice = here) -> Array:
            wide = np.zeros((a.shape[0], *shape))
            wide[(slice(None),) * (axis + 1) + (here,)] = a
            return wide

        result = _join(result, value.mapped(place))
    return result


def _join(left: Value, right: Value) -> Value:
    """Sum of values that are zero where the other is not."""
    if not left.pieces or not right.pieces:  # a constant column is no one's bias
        rest = left if left.pieces else right
        return replace(rest, shared=left.shared + right.shared)
    return add(left, right)


def stack(tensors: Sequence[Tensor], axis: int) -> Value:
    """Join along a new axis."""
    return concatenate([unsqueeze(t, [axis]) for t in tensors], axis)


def sum_of(tensors: Sequence[Tensor]) -> Value:
    """Sum of several tensors."""
    result = as_value(tensors[0])
    for tensor in tensors[1:]:
        result = add(result, tensor)
    return result


def mean_of(tensors: Sequence[Tensor]) -> Value:
    """Mean of several tensors."""
    return scale(sum_of(tensors), 1.0 / len(tensors))
