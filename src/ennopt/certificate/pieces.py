"""Pieces of the feasible set, and the proof that the objective is low on each of them.

A piece is a box. A *cut* comes with it: a linear function ``c . x + k`` such that every
point of the piece that is feasible and beats the claimed bound has ``c . x + k > 0``.
Points where it is not positive satisfy the claim already, so a piece may be clipped to
where the cut can be positive, and the cut may be used when a function is maximized.
Cuts are majorants of the piece or of one that contains it, less the claimed bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ennopt.certificate.relaxation import (
    FLOOR,
    UNIT,
    Majorants,
    Relaxation,
    multiplier,
    relu_lines,
)
from ennopt.domain import Domain
from ennopt.network import Array

Flags = npt.NDArray[np.bool_]

SWEEPS = 2
"""Times that the multiplier of every half-space is improved."""

SLOPE_STEPS = 3
"""Times that the lines below ReLU are chosen anew for the objective."""

EVERY = 8
"""In every so many rounds neurons with a known sign are bounded, too."""

CLIPPED_SHARE = 0.25
"""A piece whose volume a clip reduced to less is bounded again before it is split."""


@dataclass(slots=True, eq=False)
class Pieces:
    """Many pieces, one per row.

    Parameters
    ----------
    lower, upper
        Corners, (num_pieces, num_inputs).
    slopes, constants
        Their cuts, (num_pieces, num_inputs) and (num_pieces,).
    low, high
        Ends of all neurons, (num_pieces, num_neurons).
    place
        Node of the certificate's tree, -1 below its leaves.
    """

    lower: Array
    upper: Array
    slopes: Array
    constants: Array
    low: Array
    high: Array
    place: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.place)

    def __getitem__(self, chosen: slice | npt.NDArray[np.generic]) -> Pieces:
        return Pieces(*(getattr(self, name)[chosen] for name in self.__slots__))

    @classmethod
    def joined(cls, parts: list[Self]) -> Pieces:
        """All pieces of several lists."""
        if len(parts) == 1:
            return parts[0]
        return Pieces(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in cls.__slots__
            )
        )


class Prover:
    """Bounds pieces; says which are proved, and shrinks and splits the others.

    Parameters
    ----------
    relaxation
        Bounds of the objective.
    domain
        The feasible set.
    bound
        What no feasible point is to exceed.
    """

    def __init__(self, relaxation: Relaxation, domain: Domain, bound: float) -> None:
        self.relaxation, self.domain, self.bound = relaxation, domain, bound
        self.reach, self._rounds = relaxation.reach, 0
        self._rows, sides = domain.half_spaces()
        self._sides = -sides
        # What each input is worth to each neuron, for splits that nobody advises.
        self._worth = []
        for stack in relaxation.stacks:
            product = np.eye(self.reach.size)
            for w in stack.weights:
                product = np.abs(w) @ product
                self._worth.append(product)

    def root(self) -> Pieces:
        """The whole set."""
        lower, upper = self.domain.lower[None], self.domain.upper[None]
        d = lower.size
        return Pieces(
            lower.copy(), upper.copy(), np.zeros((1, d)), np.zeros(1),
            self.relaxation.low.copy(), self.relaxation.high.copy(),
            np.zeros(1, dtype=np.int64),
        )  # fmt: skip

    # One round: which pieces are proved, and the others smaller.

    def prove(self, pieces: Pieces) -> tuple[Flags, Flags, Array, Array, Array]:
        """Bound pieces and shrink those that are not proved, in place.

        Returns which are proved; which are worth being bounded again before a split;
        a bound of each; a score of each input (num_pieces, num_inputs), the largest
        being the one to split; and the points where the majorants are largest.
        """
        volume = _volume(pieces)
        proved = self._clip(pieces)
        # Ends hold where all cuts so far do. Now and then all of them are made anew:
        # if two ends cross, the cuts leave no point of the piece that counts.
        self._rounds += 1
        self.relaxation.bound_neurons(
            pieces.lower, pieces.upper, pieces.low, pieces.high,
            (pieces.slopes, pieces.constants), every=self._rounds % EVERY == 0,
        )  # fmt: skip
        proved |= np.any(pieces.low > pieces.high, axis=1)
        points = pieces.lower.copy()
        best = np.full(len(pieces), np.inf)
        scores = np.zeros_like(pieces.lower)
        left = np.flatnonzero(~proved)
        part = pieces[left]
        slope, intercept, below = relu_lines(part.low, part.high)
        free = (part.low < 0.0) & (part.high > 0.0)
        for step in range(1 + SLOPE_STEPS):
            found = self.relaxation.majorants(slope, intercept, below)
            slopes, constants, top = self._lowered(part, found)
            corner = np.where(slopes > 0.0, part.upper, part.lower)
            lower = top < best[left]
            better = left[lower]
            best[better], points[better] = top[lower], corner[lower]
            if np.isfinite(self.bound):
                pieces.slopes[better] = slopes[lower]
                pieces.constants[better] = self._above_bound(constants[lower])
            if step == 0:
                scores[left] = self._scores(part, found)
            if step == SLOPE_STEPS:
                break
            going = best[left] > self.bound
            if not going.all():
                left, part, corner = left[going], part[going], corner[going]
                slope, intercept = slope[going], intercept[going]
                below, free = below[going], free[going]
            if not left.size:
                break
            change = (self.relaxation.signs(corner) - below) / (step + 2)
            below = below + np.where(free, change, 0.0)
        proved |= best <= self.bound
        empty = self._clip(pieces)
        proved |= empty
        again = ~proved & (_volume(pieces) < CLIPPED_SHARE * volume)
        return proved, again, best, scores, points

    def _lowered(self, part: Pieces, found: Majorants) -> tuple[Array, Array, Array]:
        """Majorants with multiples of the half-spaces added that lower their maximum.

        A half-space ``a . x + s >= 0`` holds at every point that matters, so a multiple
        of it by any number that is not negative may be added. The margin is 4 units for
        each product and sum.
        """
        centre = 0.5 * (part.lower + part.upper)
        radius = 0.5 * (part.upper - part.lower)
        slopes, constants = found.slopes, found.constants
        for _ in range(SWEEPS if len(self._rows) else 1):
            for k in range(-1, len(self._rows)):
                if k < 0:
                    a, s = part.slopes, part.constants
                else:
                    a = np.broadcast_to(self._rows[k], slopes.shape)
                    s = np.broadcast_to(self._sides[k], constants.shape)
                by = multiplier(slopes, a, s, centre, radius)
                if not by.any():
                    continue
                sizes = np.abs(slopes) @ self.reach + np.abs(constants)
                sizes += by * (np.abs(a) @ self.reach + np.abs(s))
                slopes = slopes + by[:, None] * a
                constants = constants + by * s + (8.0 * UNIT * sizes + FLOOR)
        return slopes, constants, self._tops(slopes, constants, part)

    def _above_bound(self, constants: Array) -> Array:
        """Constants less the bound, rounded up."""
        sizes = np.abs(constants) + abs(self.bound)
        return np.asarray(constants - self.bound + (2.0 * UNIT * sizes + FLOOR))

    def _tops(self, slopes: Array, constants: Array, part: Pieces) -> Array:
        """Upper bounds of ``slopes . x + constants`` on the boxes, (num_pieces,)."""
        centre = 0.5 * (part.lower + part.upper)
        radius = 0.5 * (part.upper - part.lower)
        top = np.einsum("bp,bp->b", slopes, centre) + constants
        top += np.einsum("bp,bp->b", np.abs(slopes), radius)
        sizes = np.abs(slopes) @ self.reach + np.abs(constants)
        return np.asarray(top + (12.0 * self.reach.size + 24.0) * UNIT * sizes + FLOOR)

    def _clip(self, pieces: Pieces) -> Flags:
        """Shrink boxes to where points can matter, in place; which hold none.

        If the largest value of ``a . x + s`` on the box is U, then ``a_p x_p`` is at
        most U below its own largest value wherever the sum is not negative.
        """
        empty = np.zeros(len(pieces), dtype=bool)
        count = len(pieces)
        if np.any(pieces.slopes):
            empty |= self._clip_by(pieces, pieces.slopes, pieces.constants)
        for row, side in zip(self._rows, self._sides, strict=True):
            a = np.broadcast_to(row, (count, row.size))
            empty |= self._clip_by(pieces, a, np.full(count, side))
        values = self.domain.values
        if not values.any:
            lower, upper = values.up(pieces.lower), values.down(pieces.upper)
            none = np.any(lower > upper, axis=1)
            empty |= none
            pieces.lower[~none], pieces.upper[~none] = lower[~none], upper[~none]
        for region in self.domain.regions:
            pieces.lower, pieces.upper, none = region.clip(pieces.lower, pieces.upper)
            empty |= none
        return empty

    def _clip_by(self, pieces: Pieces, a: Array, s: Array) -> Flags:
        top = self._tops(a, s, pieces)
        empty = np.asarray(top < 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            room = np.maximum(top, 0.0)[:, None] / np.abs(a)
            # Rounding of the quotient and of the difference, four units each.
            room = room * (1.0 + 8.0 * UNIT) + 8.0 * UNIT * self.reach + FLOOR
        room = np.where(np.isfinite(room), room, np.inf)
        lower = np.where(a > 0.0, pieces.upper - room, -np.inf)
        upper = np.where(a < 0.0, pieces.lower + room, np.inf)
        lower = np.maximum(pieces.lower, lower)
        upper = np.minimum(pieces.upper, upper)
        good = ~empty
        # Both ends come from one box of which something is left: they cannot cross.
        pieces.lower[good], pieces.upper[good] = lower[good], upper[good]
        return empty

    # Splits.

    def _scores(self, part: Pieces, found: Majorants) -> Array:
        """How much each input has to do with what the lines are off, (B, d)."""
        width = part.upper - part.lower
        scores = 1e-9 * self.shares(part)
        place = 0
        for stack, layers in zip(self.relaxation.stacks, found.passed, strict=True):
            for own, r in zip(stack.columns, layers, strict=True):
                low, high = part.low[:, own], part.high[:, own]
                unstable = (low < 0.0) & (high > 0.0)
                span = np.where(unstable, high - low, 1.0)
                height = np.where(unstable, -high * low / span, 0.0)
                worth = self._worth[place]
                share = width @ worth.T
                off = np.abs(r) * height / np.maximum(share, FLOOR)
                scores += width * (off @ worth)
                place += 1
        return scores

    def shares(self, pieces: Pieces) -> Array:
        """Width of each input as a share of the set's, (num_pieces, num_inputs)."""
        widths = np.maximum(self.domain.widths, FLOOR)
        return np.asarray((pieces.upper - pieces.lower) / widths)

    def split(
        self, pieces: Pieces, inputs: npt.NDArray[np.intp]
    ) -> tuple[Pieces, Flags]:
        """Both halves of each piece, the first halves first, and which can be split."""
        each = np.arange(len(pieces))
        low, high = pieces.lower[each, inputs], pieces.upper[each, inputs]
        middle = low + 0.5 * (high - low)
        first, second = middle, middle
        values = self.domain.values
        if not values.any:
            points = pieces.lower.copy()
            points[each, inputs] = middle
            down = values.down(points)[each, inputs]
            points[each, inputs] = np.nextafter(down, np.inf)
            up = values.up(points)[each, inputs]
            discrete = values.discrete[inputs]
            first, second = (
                np.where(discrete, down, middle),
                np.where(discrete, up, middle),
            )
        left, right = pieces[each], pieces[each]
        left.upper[each, inputs] = first
        right.lower[each, inputs] = second
        can = (low <= first) & (second <= high) & ((first < high) & (second > low))
        return Pieces.joined([left, right]), can


def _volume(pieces: Pieces) -> Array:
    """Product of the widths, in units of nothing: only shares are asked for."""
    width = pieces.upper - pieces.lower
    return np.asarray(np.prod(np.where(width > 0.0, width, 1.0), axis=1))
