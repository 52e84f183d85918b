"""What networks compute with tensors, on affine functions of hidden layers.

The readers call these functions in place of the framework's. Reshaping, stacking,
averaging, scaling and matrix products only change the coefficients of a `Value`;
`activate` makes a new source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ennopt.activations import ELU, RELU, Activation, Sigmoid, SiLU, Softplus
from ennopt.convert.affine import (
    ARRAY_COST,
    Key,
    Piece,
    Room,
    Source,
    Tensor,
    Value,
    as_value,
    common_weight,
    identities,
    is_identity,
    joined,
    merged,
    serial,
)
from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.network import Array, ModelConfigurationError


def add(left: Tensor | float, right: Tensor | float) -> Value:
    """Sum, with broadcasting."""
    left, right = as_value(left), as_value(right)
    shape = np.broadcast_shapes(left.shape, right.shape)
    left, right = broadcast(left, shape), broadcast(right, shape)
    room = left.room or right.room
    if room is not None:
        room.spend(max(math.prod(shape), ARRAY_COST))
    for value, other in ((left, right), (right, left)):
        if not other.pieces:
            if len(value.pieces) != 1:
                shared = value.shared + other.shared
                return replace(value, shared=shared, room=room)
            ((key, piece),) = value.pieces.items()  # a bias belongs to its member
            shift = other.shared / (piece.weight * value.outer)
            moved = replace(piece, constant=piece.constant + shift)
            return replace(value, pieces={key: moved}, room=room)
    left, right = left.unscaled(), right.unscaled()
    pieces = left.pieces | right.pieces
    for key in left.pieces.keys() & right.pieces.keys():
        pieces[key] = joined([left.pieces[key], right.pieces[key]], room)
    return Value(pieces, left.shared + right.shared, room=room)


def scale(value: Value, factor: float) -> Value:
    """Multiply by one number."""
    factor = float(factor)
    if value.room is not None:
        value.room.spend(max(value.shared.size, ARRAY_COST))
    if factor == 0.0:
        return Value({}, np.zeros(value.shape), room=value.room)
    return replace(value, shared=value.shared * factor, outer=value.outer * factor)


def subtract(left: Tensor | float, right: Tensor | float) -> Value:
    """Difference, with broadcasting."""
    return add(left, scale(as_value(right), -1.0))


def multiply(left: Tensor | float, right: Tensor | float) -> Value:
    """Product with a constant, element by element, with broadcasting."""
    left, right = as_value(left), as_value(right)
    if left.pieces and right.pieces:
        for value, gate in ((left, right), (right, left)):
            if (silu := _gated(value, gate)) is not None:
                return silu
        raise PredictorNotSupportedError(
            "Expected a product with a constant, got a product of two values that "
            "both depend on the input. Only x * sigmoid(x) is known."
        )
    value, factor = (left, right.shared) if left.pieces else (right, left.shared)
    shape = np.broadcast_shapes(value.shape, factor.shape)
    if factor.size == 1:
        return scale(broadcast(value, shape), factor.item())
    return broadcast(value, shape).mapped(lambda a: a * factor, shape)


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
        matrix = left.shared
        value = _raised(_as_one_layer(right), matrix.ndim)
        shape = _product_shape(matrix.shape, value.shape)
        return value.mapped(lambda a: np.matmul(matrix, a), shape)
    if len(left.shape) == 1:
        axis = -2 if right.shared.ndim > 1 else -1
        return squeeze(matmul(unsqueeze(left, [0]), right), [axis])
    _note_units(left)
    matrix = right.shared
    value = _raised(_as_one_layer(left), matrix.ndim)
    shape = _product_shape(value.shape, matrix.shape)
    return value.mapped(lambda a: _product(a, matrix), shape)


def _product_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a matrix product of which one factor may be a vector."""
    lead = np.broadcast_shapes(left[:-2], right[:-2])
    return (*lead, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def _product(a: Array, matrix: Array) -> Array:
    """``a @ matrix`` with the sources, the first axis of `a`, as rows of one product.

    Left to numpy, each source would be a product of its own: slow on wide layers.
    """
    if matrix.ndim == 1:
        return np.asarray(a @ matrix)
    if matrix.ndim == 2 and a.shape[-1] == matrix.shape[0] and is_identity(a):
        return matrix.reshape(*a.shape[:-1], -1)
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
    layer = next(serial)
    pieces = list(value.pieces.values())
    linear = [p for p in pieces if not p.key()[0].level]
    rest = [p for p in pieces if p.key()[0].level]
    pieces = [
        replace(p, layer=layer) for p in merged(linear, lambda _: None, value.room)
    ] + merged(rest, Piece.key, value.room)
    if len(pieces) == 1 and (factor := pieces[0].weight * value.outer) != 1.0:
        value.reserve(value.shape)
        reads = {s: a * factor for s, a in pieces[0].reads.items()}
        pieces = [Piece(1.0, reads, pieces[0].constant * factor, layer)]
        value = replace(value, outer=1.0)
    return replace(value, pieces={p.key(): p for p in pieces})


def _note_units(value: Value) -> None:
    """Remember the scaling that a model applies to its input before its first layer."""
    if len(value.pieces) != 1:
        return
    (piece,) = value.pieces.values()
    ((source, block), *others) = piece.reads.items()
    if piece.layer is not None or others or source.level or source.units is not None:
        return
    factor = value.outer * piece.weight
    shift = (factor * piece.constant + value.shared).ravel()
    if is_identity(block):
        rows, slopes = np.arange(source.width), np.full(source.width, factor)
    else:
        matrix = factor * block.reshape(source.width, -1)
        (columns,) = np.nonzero(np.count_nonzero(matrix, axis=0) == 1)
        rows = np.argmax(matrix[:, columns] != 0, axis=0)
        slopes, shift = matrix[rows, columns], shift[columns]
    center, spread = np.zeros(source.width), np.ones(source.width)
    center[rows] = -shift / slopes
    spread[rows] = 1.0 / np.abs(slopes)
    source.units = center, spread


def relu(value: Tensor) -> Value:
    """Element-wise ``max(value, 0)``."""
    return activate(value, RELU)


def elu(value: Tensor, alpha: float = 1.0) -> Value:
    """Element-wise ELU; an alpha above one makes it a sum with ReLU."""
    if not 0.0 < alpha < math.inf:
        raise ModelConfigurationError(
            f"Expected a positive alpha of an ELU, got {alpha!r}."
        )
    if alpha <= 1.0:
        return activate(value, ELU(alpha))
    return add(scale(activate(value, ELU()), alpha), scale(relu(value), 1.0 - alpha))


def softplus(value: Tensor, beta: float = 1.0) -> Value:
    """Element-wise ``log(1 + exp(beta * value)) / beta``."""
    if not 0.0 < beta < math.inf:
        raise ModelConfigurationError(
            f"Expected a positive beta of a softplus, got {beta!r}."
        )
    return scale(activate(scale(as_value(value), beta), Softplus()), 1.0 / beta)


def _gated(value: Value, gate: Value) -> Value | None:
    """``value * gate`` if the gate is the sigmoid of the value, else nothing."""
    if not all(s.kind == Sigmoid() for p in gate.pieces.values() for s in p.reads):
        return None
    found = activate(value, SiLU())
    if gate.shape != found.shape or not _same(gate.shared, found.shared):
        return None
    ours, theirs = (
        [
            (v.outer * p.weight, source, block, p.constant)
            for p in v.pieces.values()
            for source, block in p.reads.items()
        ]
        for v in (found, gate)
    )
    equal = len(ours) == len(theirs) and all(
        f == g and _same(a, b) and _same(c, d) and _same(s.constant, t.constant)
        and s.reads.keys() == t.reads.keys()
        and all(_same(s.reads[key], t.reads[key]) for key in s.reads)
        for (f, s, a, c), (g, t, b, d) in zip(ours, theirs, strict=True)
    )  # fmt: skip
    return found if equal else None


def _same(left: Array, right: Array) -> bool:
    return left is right or bool(np.array_equal(left, right))


def activate(value: Tensor, kind: Activation) -> Value:
    """Element-wise activation: one new source per row of the last axis."""
    value = as_value(value)
    value.reserve(value.shape)
    total = value.shared.copy()
    reads: dict[Source, Array] = {}
    for piece in value.pieces.values():
        factor = value.outer * piece.weight
        total += factor * piece.constant
        for s, a in piece.reads.items():
            scaled = a if factor == 1.0 else factor * a
            reads[s] = reads[s] + scaled if s in reads else scaled
    if not reads:
        return Value({}, kind.value(total), room=value.room)
    if (
        kind == RELU
        and total.min(initial=0.0) >= 0
        and all(s.never_negative and a.min(initial=0.0) >= 0 for s, a in reads.items())
    ):
        return value  # a ReLU of what cannot be negative changes nothing
    shape = value.shape
    width = shape[-1] if shape else 1
    rows = total.reshape(-1, width)
    if value.room is not None:
        value.room.spend(ARRAY_COST * len(rows) * len(reads) + 2 * rows.size)
    zero, blank = np.zeros(shape), np.broadcast_to(0.0, shape)
    parts: list[Piece] = []
    for i, (row, block) in enumerate(
        zip(rows, identities(width, len(rows)), strict=True)
    ):
        own = {
            s: part
            for s, a in reads.items()
            if (part := a.reshape(s.width, -1, width)[:, i]).any()
        }
        if not own:  # a constant row: the caller's tensor has it, no neuron needed
            zero.reshape(-1, width)[i] = kind.value(row)
            continue
        placed = {Source(width, own, row, kind): block.reshape(width, *shape)}
        parts.append(Piece(1.0, placed, blank, None))
    pieces = merged(parts, Piece.key, value.room)
    return Value({p.key(): p for p in pieces}, zero, room=value.room)


def reshape(value: Tensor, shape: Sequence[int]) -> Value:
    """Another shape for the same elements; one entry may be -1."""
    value = as_value(value)
    size, target = math.prod(value.shape), [int(n) for n in shape]
    if target.count(-1) == 1:
        rest = -math.prod(target)
        target[target.index(-1)] = size // rest if rest else -1
    if math.prod(target) != size or min(target, default=0) < 0:
        raise ValueError(f"cannot reshape {value.shape} into {tuple(shape)}")
    return value.mapped(lambda a: a.reshape(a.shape[0], *target), target)


def broadcast(value: Value, shape: Sequence[int]) -> Value:
    """Repeat along axes of length one, and along new leading axes."""
    target = tuple(int(n) for n in shape)
    if value.shape == target:
        return value
    lead = (1,) * (len(target) - len(value.shape))
    return value.mapped(
        lambda a: np.broadcast_to(
            a.reshape(a.shape[0], *lead, *value.shape), (a.shape[0], *target)
        ),
        target,
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
    return value.mapped(
        lambda a: a.transpose(0, *(axis + 1 for axis in order)),
        [value.shape[axis] for axis in order],
    )


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
    shape = np.broadcast_to(0.0, value.shape)[parts].shape
    return value.mapped(lambda a: a[(slice(None), *parts)], shape)


def take(value: Tensor, positions: npt.ArrayLike, axis: int) -> Value:
    """Elements at `positions` of an axis."""
    value = as_value(value)
    where = np.asarray(positions).astype(np.int64)
    axis %= len(value.shape)
    shape = (*value.shape[:axis], *where.shape, *value.shape[axis + 1 :])
    return value.mapped(lambda a: np.take(a, where, axis=axis + 1), shape)


def total(value: Tensor, axes: Sequence[int] | None, keepdims: bool) -> Value:
    """Sum over axes, by default over all of them."""
    value = as_value(value)
    rank = len(value.shape)
    over = tuple(range(rank)) if axes is None else tuple(int(a) % rank for a in axes)
    shifted = tuple(a + 1 for a in over)
    sizes = [1 if a in over else n for a, n in enumerate(value.shape)]
    shape = [n for a, n in enumerate(sizes) if keepdims or a not in over]
    return value.mapped(lambda a: a.sum(axis=shifted, keepdims=keepdims), shape)


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
    room = next((v.room for v in values if v.room is not None), None)
    groups: dict[Key, list[tuple[tuple[slice, ...], Piece]]] = {}
    blocks, start = [], 0
    for value in values:
        here = (slice(None),) * axis + (
            slice(start, start := start + value.shape[axis]),
        )
        blocks.append((here, value.shared))
        for key, piece in value.unscaled().pieces.items():
            groups.setdefault(key, []).append((here, piece))
    if room is not None:
        room.elements += math.prod(shape)
    pieces = {key: _placed(parts, shape, room) for key, parts in groups.items()}
    return Value(pieces, _filled(blocks, shape, room), room=room)


def _placed(
    parts: list[tuple[tuple[slice, ...], Piece]],
    shape: Sequence[int],
    room: Room | None,
) -> Piece:
    """One piece from pieces of one member, each with its place in `shape`."""
    weight = common_weight(piece for _, piece in parts)
    blocks: dict[Source, list[tuple[tuple[slice, ...], Array]]] = {}
    constants = []
    for here, piece in parts:
        factor = 1.0 if piece.weight == weight else piece.weight
        constants.append((here, factor * piece.constant))
        for s, a in piece.reads.items():
            scaled = a if factor == 1.0 else factor * a
            blocks.setdefault(s, []).append(((slice(None), *here), scaled))
    reads = {s: _filled(b, (s.width, *shape), room) for s, b in blocks.items()}
    return Piece(weight, reads, _filled(constants, shape, room), parts[0][1].layer)


def _filled(
    blocks: Iterable[tuple[tuple[slice, ...], Array]],
    shape: Sequence[int],
    room: Room | None,
) -> Array:
    """An array of zeros with the blocks in their places."""
    if room is not None:
        room.spend(max(math.prod(shape), ARRAY_COST))
    array = np.zeros(shape)
    for here, block in blocks:
        array[here] = block
    return array


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
