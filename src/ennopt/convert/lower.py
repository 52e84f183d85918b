"""From a traced graph to an ensemble: one network per group of dependent layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ennopt.activations import RELU, Activation, Mixed
from ennopt.convert.affine import ARRAY_COST, Piece, Room, Source, Tensor, merged
from ennopt.convert.graph import reshape
from ennopt.network import Array, Ensemble, ModelConfigurationError, Network

AVERAGE_TOLERANCE = 1e-6  # factors stored as float32 add up to 1 only this closely


def to_ensemble(value: Tensor, source: Source, room: Room) -> Ensemble:
    """The members whose weighted sum is `value`.

    Parameters
    ----------
    value
        Output of the graph for one point.
    source
        Input of the graph, as `inputs` returned it.
    room
        Where the numbers of the members are counted.
    """
    room.where = "the output"
    value = reshape(value, (-1,))
    if not value.shape[0]:
        raise ModelConfigurationError("Expected at least one output, got none.")
    pieces = []
    for piece in merged(value.pieces.values(), Piece.key, room):
        reads = {s: a for s, a in piece.reads.items() if a.any()}
        if reads:
            pieces.append(replace(piece, reads=reads))
        else:
            moved = value.outer * piece.weight * piece.constant
            value = replace(value, shared=value.shared + moved)
    if not pieces:
        room.spend(value.shape[0] * source.width)
        zero = np.zeros((value.shape[0], source.width))
        return Ensemble((Network((zero,), (value.shared,)),))
    members = tuple(_lower(piece, source, room) for piece in pieces)
    weights = np.array([p.weight for p in pieces])
    factor = value.outer
    if len(pieces) == 1:
        weights, factor = np.ones(1), value.outer * weights[0]
    elif abs(value.outer * weights.sum() - 1.0) <= AVERAGE_TOLERANCE:
        weights, factor = weights * value.outer, 1.0
    elif weights.min() > 0 and value.outer != 1.0:  # an average, then rescaled
        factor, weights = value.outer * weights.sum(), weights / weights.sum()
    if factor != 1.0:
        members = tuple(m.fold_output(factor, 0.0) for m in members)
    ensemble = Ensemble(members, weights=weights)
    return ensemble.fold_output(1.0, value.shared) if value.shared.any() else ensemble


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a layer of the lowered network holds a source: units from `start` on.

    A source that is carried is held in part: only the elements `kept` are. If it may
    be negative, a second unit for each of them holds the opposite.
    """

    start: int
    num_units: int
    kept: npt.NDArray[np.intp] | None = None

    def read(self, coefficients: Array, rows: Array) -> None:
        """Add to `rows`, coefficients of units, what reads the source itself.

        Parameters
        ----------
        coefficients
            (width of the source, number of rows)
        rows
            (number of rows, number of units of the layer)
        """
        if self.kept is None:
            rows[:, self.start : self.start + self.num_units] += coefficients.T
            return
        part, half = coefficients[self.kept].T, len(self.kept)
        rows[:, self.start : self.start + half] += part
        if self.num_units > half:
            rows[:, self.start + half : self.start + self.num_units] -= part

    def carried(self, start: int, used: npt.NDArray[np.bool_], signed: bool) -> _Place:
        """Where the next layer holds the source, if it is carried there."""
        if self.kept is not None:
            return replace(self, start=start)
        kept = np.flatnonzero(used)
        return _Place(start, len(kept) * (2 if signed else 1), kept)

    def copy(self, new: _Place, matrix: Array) -> None:
        """Write the rows of `matrix` that carry the source to its `new` place."""
        rows = new.start + np.arange(new.num_units)
        if self.kept is not None or new.kept is None:
            matrix[rows, self.start + np.arange(self.num_units)] = 1.0
        else:
            half = len(new.kept)
            matrix[rows[:half], self.start + new.kept] = 1.0
            matrix[rows[half:], self.start + new.kept[: len(rows) - half]] = -1.0


def _lower(piece: Piece, source: Source, room: Room) -> Network:
    """Turn the sources that a piece reads into consecutive layers.

    A source that is read further on than by the next layer is carried there by
    ReLU neurons of its own. Outputs of ReLU are not negative, so ReLU leaves them as
    they are; what may be negative, inputs among it, takes two neurons each,
    ``x = relu(x) - relu(-x)``.
    """
    sources = _ancestors(piece.reads)
    made: list[list[Source]] = [[] for _ in range(1 + max(s.level for s in sources))]
    for s in sources:
        if s.level:
            made[s.level - 1].append(s)
    readers = [[(s.reads, s.constant) for s in layer] for layer in made]
    readers[-1] = [(piece.reads, piece.constant)]
    last_reader = {source: 0} | {s: s.level for s in sources}
    used = {s: np.zeros(s.width, dtype=bool) for s in last_reader}
    for level, blocks in enumerate(readers):  # layer `level` feeds level + 1
        for reads, _ in blocks:
            for s, a in reads.items():
                if level > s.level:
                    last_reader[s] = max(last_reader[s], level)
                    used[s] |= a.any(axis=1)

    # where each source is held by the input and by every hidden layer
    places = [{source: _Place(0, source.width)}]
    widths, kinds = [source.width], []
    for level, layer in enumerate(made[:-1]):
        start, held = 0, {}
        for s in layer:
            held[s] = _Place(start, s.width)
            start += s.width
        made_here = start
        for s, old in places[-1].items():
            if last_reader[s] > level:
                held[s] = old.carried(start, used[s], not s.never_negative)
                start += held[s].num_units
        room.spend(start * widths[-1] + ARRAY_COST * len(held))
        places.append(held)
        widths.append(start)
        kinds.append(_side_by_side(layer, start - made_here))
    room.spend(piece.constant.size * widths[-1])
    places.append({})
    widths.append(piece.constant.size)

    weights, biases = [], []
    for level, blocks in enumerate(readers):
        matrix, shift = np.zeros((widths[level + 1], widths[level])), []
        row = 0
        for reads, constant in blocks:
            rows = matrix[row : row + constant.size]
            for s, a in reads.items():
                places[level][s].read(a, rows)
            shift.append(constant)
            row += constant.size
        for s, new in places[level + 1].items():
            if s in places[level]:
                places[level][s].copy(new, matrix)
        weights.append(matrix)
        biases.append(np.concatenate([*shift, np.zeros(len(matrix) - row)]))
    return Network(tuple(weights), tuple(biases), tuple(kinds))


def _side_by_side(sources: Iterable[Source], carried: int) -> Activation:
    """The activation of a layer that makes some sources and carries so many units."""
    parts: list[tuple[Activation, int]] = []
    for kind, count in (*((s.kind, s.width) for s in sources), (RELU, carried)):
        if parts and parts[-1][0] == kind:
            parts[-1] = kind, parts[-1][1] + count
        elif count:
            parts.append((kind, count))
    return parts[0][0] if len(parts) == 1 else Mixed(tuple(parts))


def _ancestors(reads: Iterable[Source]) -> list[Source]:
    """The sources that `reads` depend on, with themselves, in order of making."""
    found: set[Source] = set()
    queue = list(reads)
    while queue:
        source = queue.pop()
        if source not in found:
            found.add(source)
            queue.extend(source.reads)
    return sorted(found, key=lambda s: s.serial)
