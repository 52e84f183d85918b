"""Tensors known as affine functions of the input and of hidden layers.

The readers of torch, keras and ONNX walk their graph on one point and compute with
`Value` in place of the framework's tensors: a tensor that is known as an affine
function of `Source` vectors, the input and the outputs of hidden layers. At the end the
sources that depend on each other are collected into one member each, see
`ennopt.convert.lower`.

A value keeps apart the *pieces* that will become members, with the constant and the
factor each was given, so that the mean of three networks becomes three members of
weight 1/3 and not three networks with a third of their last layer:

    value = outer * sum_i weight_i * piece_i + shared

What a trace writes is counted in a `Room`, before it is written: a small file can
describe a value of any size, by joining one with itself again and again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ennopt.activations import RELU, Activation, ReLU, Sigmoid, Softplus
from ennopt.network import Array, ModelConfigurationError, check_size

ARRAY_COST = 128
"""Handling an array, however small, takes as long as writing so many numbers."""

Key: TypeAlias = "tuple[Source, int | None]"

serial = itertools.count()


class Room:
    """Counts the numbers that reading a model takes, and ends it when they are many.

    Parameters
    ----------
    stored
        How many numbers are stored of the model.
    """

    __slots__ = ("elements", "spent", "stored", "where")

    def __init__(self, stored: int) -> None:
        self.stored = stored
        self.spent = 0
        self.elements = 0  # of all values, at one point
        self.where = "the input"  # readers say where in the model they are

    def spend(self, numbers: int) -> None:
        """Count numbers that are about to be written, or refuse to go on."""
        self.spent += numbers
        check_size(self.spent, self.stored, self.where)


class Source:
    """The input vector (level 0) or the output of one hidden layer."""

    __slots__ = (
        "constant", "kind", "level", "parent", "reads", "serial", "units", "width"
    )  # fmt: skip

    def __init__(
        self, width: int, reads: dict[Source, Array], constant: Array,
        kind: Activation = RELU,
    ) -> None:  # fmt: skip
        self.width = width
        self.reads = reads  # {source: (source.width, width)}, before the activation
        self.constant = constant  # (width,), before the activation
        self.kind = kind
        self.level: int = 1 + max((s.level for s in reads), default=-1)
        self.serial = next(serial)
        self.units: tuple[Array, Array] | None = None  # center and spread, if seen
        self.parent: Source = self
        for source in reads:
            if source.level:
                source.root().parent = self

    @property
    def never_negative(self) -> bool:
        """Whether ReLU would leave it as it is."""
        return bool(self.level) and isinstance(self.kind, ReLU | Sigmoid | Softplus)

    def root(self) -> Source:
        """One representative of all hidden layers that share a network with this."""
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

    def key(self) -> Key:
        """Pieces with the same key go into the same member.

        Keys become out of date as ReLU layers join networks; `merged` renews them.
        """
        source = next(iter(self.reads))
        return source.root(), None if source.level else self.layer

    @property
    def width(self) -> int:
        """Number of coefficients for each element, the constant among them."""
        return 1 + sum(s.width for s in self.reads)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the graph: ``outer * sum_i weight_i * piece_i + shared``."""

    pieces: dict[Key, Piece]
    shared: Array
    outer: float = 1.0
    room: Room | None = None  # of the trace; a constant belongs to none

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape for one point; a batch axis is there, with length one."""
        return self.shared.shape

    def mapped(self, linear: Callable[[Array], Array], shape: Sequence[int]) -> Value:
        """Apply a linear map, given as a function of arrays (any, *self.shape).

        Parameters
        ----------
        linear
            Returns an array (any, *shape).
        shape
            Shape of the result, which is asked for before the map is applied.
        """
        self.reserve(shape)
        pieces = {
            key: replace(
                p,
                reads={s: linear(a) for s, a in p.reads.items()},
                constant=linear(p.constant[None])[0],
            )
            for key, p in self.pieces.items()
        }
        return replace(self, pieces=pieces, shared=linear(self.shared[None])[0])

    def reserve(self, shape: Sequence[int]) -> None:
        """Ask for the room that this value takes in another shape."""
        if self.room is not None:
            size = math.prod(shape)
            width = 1 + sum(p.width for p in self.pieces.values())
            arrays = 1 + sum(1 + len(p.reads) for p in self.pieces.values())
            self.room.spend(max(width * size, ARRAY_COST * arrays))
            self.room.elements += size

    def unscaled(self) -> Value:
        """The same with its factor moved into the weights of its pieces."""
        if self.outer == 1.0:
            return self
        if self.room is not None:
            self.room.spend(ARRAY_COST * len(self.pieces))
        pieces = {
            key: replace(p, weight=p.weight * self.outer)
            for key, p in self.pieces.items()
        }
        return replace(self, pieces=pieces, outer=1.0)


Tensor: TypeAlias = Value | npt.NDArray[np.generic]


def inputs(shapes: Sequence[tuple[int, ...]], room: Room) -> tuple[Source, list[Value]]:
    """The input of the graph, cut into one value for each shape.

    A shape includes the batch axis, of length one, where there is one.
    """
    sizes = [math.prod(shape) for shape in shapes]
    if not sum(sizes):
        raise ModelConfigurationError("Expected at least one input, got none.")
    room.spend(3 * sum(sizes))
    source = Source(sum(sizes), {}, np.zeros(0))
    eye, start, values = identities(source.width, 1)[0][:, 0], 0, []
    for shape, size in zip(shapes, sizes, strict=True):
        block = eye[:, start : start + size].reshape(source.width, *shape)
        piece = Piece(1.0, {source: block}, np.zeros(shape), None)
        values.append(Value({piece.key(): piece}, np.zeros(shape), room=room))
        start += size
    return source, values


def identities(width: int, num_rows: int) -> list[Array]:
    """For each row, the array (width, num_rows, width) that is the identity there.

    It is zero in the other rows. All are views into one vector with a single one:
    the entry ``[a, r, b]`` of the i-th is found ``(r - i) * width + b - a`` after it.
    """
    zeros = np.zeros(2 * num_rows * width - 1)
    center = num_rows * width - 1
    zeros[center] = 1.0
    zeros.flags.writeable = False
    step = zeros.itemsize
    return [
        np.ndarray(
            (width, num_rows, width), zeros.dtype, zeros,
            (center - i * width) * step, (-step, width * step, step),
        )
        for i in range(num_rows)
    ]  # fmt: skip


def is_identity(block: Array) -> bool:
    """Whether this is a view by `identities` of a single row."""
    n = block.shape[0]
    if block.size != n * n or block.shape[-1] != n or block.strides[-1] == 0:
        return False
    if block.strides[0] != -block.strides[-1]:
        return False  # else an entry depends on column - row alone
    square = block.reshape(n, n)
    return bool(square[0, 0] == 1 and not (square[0, 1:].any() or square[1:, 0].any()))


def constant(array: npt.ArrayLike) -> Value:
    """A value that depends on nothing."""
    return Value({}, np.asarray(array, dtype=np.float64))


def as_value(tensor: Tensor | float) -> Value:
    """The tensor itself, or a number as a value."""
    return tensor if isinstance(tensor, Value) else constant(tensor)


def merged(
    pieces: Iterable[Piece], by: Callable[[Piece], object], room: Room | None
) -> list[Piece]:
    """Add up the pieces that share a key."""
    groups: dict[object, list[Piece]] = {}
    for piece in pieces:
        groups.setdefault(by(piece), []).append(piece)
    return [joined(group, room) for group in groups.values()]


def joined(pieces: Sequence[Piece], room: Room | None) -> Piece:
    """The sum of pieces of one member."""
    if len(pieces) == 1:
        return pieces[0]
    if room is not None:
        size = pieces[0].constant.size * sum(p.width for p in pieces)
        room.spend(max(size, ARRAY_COST * sum(1 + len(p.reads) for p in pieces)))
    weight = common_weight(pieces)
    reads: dict[Source, Array] = {}
    total = np.zeros(pieces[0].constant.shape)
    for piece in pieces:
        factor = 1.0 if piece.weight == weight else piece.weight
        total += factor * piece.constant
        for s, a in piece.reads.items():
            scaled = a if factor == 1.0 else factor * a
            reads[s] = reads[s] + scaled if s in reads else scaled
    return Piece(weight, reads, total, pieces[0].layer)


def common_weight(pieces: Iterable[Piece]) -> float:
    """The weight of all pieces if they have the same, else one."""
    weights = {piece.weight for piece in pieces}
    return weights.pop() if len(weights) == 1 else 1.0
