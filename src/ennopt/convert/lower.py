"""From a traced graph to an ensemble: one network per group of dependent layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ennopt.convert.graph import Piece, Source, Tensor, merged, reshape
from ennopt.network import Array, Ensemble, ModelConfigurationError, Network

AVERAGE_TOLERANCE = 1e-6  # factors stored as float32 add up to 1 only this closely


def to_ensemble(value: Tensor, source: Source) -> Ensemble:
    """The members whose weighted sum is `value`.

    Parameters
    ----------
    value
        Output of the graph for one point.
    source
        Input of the graph, as `inputs` returned it.
    """
    value = reshape(value, (-1,))
    if not value.shape[0]:
        raise ModelConfigurationError("Expected at least one output, got none.")
    pieces = []
    for piece in merged(value.pieces, Piece.key):
        reads = {s: a for s, a in piece.reads.items() if a.any()}
        if reads:
            pieces.append(replace(piece, reads=reads))
        else:
            moved = value.outer * piece.weight * piece.constant
            value = replace(value, shared=value.shared + moved)
    if not pieces:
        zero = np.zeros((value.shape[0], source.width))
        return Ensemble((Network((zero,), (value.shared,)),))
    members = tuple(_lower(piece, source) for piece in pieces)
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
    """Where a layer of the lowered network holds a source.

    ``source == recombine @ units[where]``; ``None`` is the identity.
    """

    where: slice
    recombine: Array | None


def _lower(piece: Piece, source: Source) -> Network:
    """Turn the sources that a piece reads into consecutive layers.

    A source that is read further on than by the next layer is carried there by
    neurons of its own. Outputs of ReLU are not negative, so ReLU leaves them as they
    are; inputs take two neurons each, ``x = relu(x) - relu(-x)``.
    """
    reads = {s: a.T for s, a in piece.reads.items()}
    sources = _ancestors(reads)
    depth = max(s.level for s in sources)
    readers: list[list[tuple[dict[Source, Array], Array]]] = [
        [({t: a.T for t, a in s.reads.items()}, s.constant)
         for s in sources if s.level == level]
        for level in range(1, depth + 1)
    ]  # fmt: skip
    readers.append([(reads, piece.constant)])
    last_reader = {source: 0} | {s: s.level for s in sources}
    used = {s: np.zeros(s.width, dtype=bool) for s in last_reader}
    for level, blocks in enumerate(readers):  # layer `level` feeds level + 1
        for block, _ in blocks:
            for s, a in block.items():
                if level > s.level:
                    last_reader[s] = max(last_reader[s], level)
                    used[s] |= a.any(axis=0)

    place = {source: _Place(slice(0, source.width), None)}
    num_units, weights, biases = source.width, [], []
    for level, blocks in enumerate(readers):
        rows = [_assemble(block, place, num_units) for block, _ in blocks]
        shifts = [shift for _, shift in blocks]
        following: dict[Source, _Place] = {}
        start = 0
        for s in (s for s in sources if s.level == level + 1):
            following[s] = _Place(slice(start, start + s.width), None)
            start += s.width
        for s, old in place.items():
            if level < len(readers) - 1 and last_reader[s] > level:
                copies, recombine = _carry(s, old, used[s], num_units)
                rows.append(copies)
                shifts.append(np.zeros(len(copies)))
                following[s] = _Place(slice(start, start + len(copies)), recombine)
                start += len(copies)
        weights.append(np.concatenate(rows))
        biases.append(np.concatenate(shifts))
        place, num_units = following, start
    return Network(tuple(weights), tuple(biases))


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


def _assemble(
    block: dict[Source, Array], place: dict[Source, _Place], num_units: int
) -> Array:
    """Rows of a layer: coefficients of sources as coefficients of units."""
    rows = np.zeros((next(iter(block.values())).shape[0], num_units))
    for source, a in block.items():
        held = place[source]
        rows[:, held.where] += a if held.recombine is None else a @ held.recombine
    return rows


def _carry(
    source: Source, held: _Place, used: npt.NDArray[np.bool_], num_units: int
) -> tuple[Array, Array]:
    """Rows of neurons that hold `source` one layer further, and how to read them."""
    units = np.eye(num_units)[held.where]
    if held.recombine is not None:
        return units, held.recombine
    eye = np.eye(source.width)[used]
    if source.level:
        return units[used], eye.T
    return np.concatenate([units[used], -units[used]]), np.concatenate([eye, -eye]).T
