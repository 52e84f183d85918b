"""The part of the checker that must be trusted: all that a verdict rests on.

A point *counts* if it is in the feasible set and every function of the claim is above
its level there: the objective above the bound that is claimed, each limit above what it
must reach, less its slack. The claim is true if no point counts. Sets are covered by
pieces, and a piece is proved if it holds no point that counts.

**Pieces.** A piece is a box of inputs, with an interval for the pre-activation of every
neuron. It is split into two halves of an input's range, or at zero of a neuron's: both
parts cover it. *Cuts* come with it: linear functions that are not negative at any of
its points that count. Constraints of the set are such functions, too.

**Majorants.** Take coefficients r of the outputs ``y = relu(h)`` of a layer, and any
numbers a. With ``l <= h <= u`` on the piece, ``r relu(h) - a h`` is linear between l, 0
and u, so it is at most its largest value t at these, and ``r y <= a h + t``. With ``h =
W y' + b`` this gives coefficients ``a W`` of the outputs of the layer before, and in
the end a linear function of the inputs that is nowhere below the sum: a *majorant*. A
majorant less the level is a cut. A multiple of a cut may be added to a majorant, if it
is not negative: where points count, that only raises it. What is below its level on the
whole box leaves no point that counts. No choice of a, of multiples or of weights of
risks can make that wrong; `ennopt.certificate.advice` makes them, and certificates
bring them.

**Rounding.** Let ``e = 2**-53``. A computed sum of n products is off by at most ``n e``
times the sum of their absolute values, up to terms of order ``e**2``. We count what
each step may move a majorant on the set, in units of e times

    size = sum over layers j of |a_j| . m_j + sum |t|,   m_j = |W_j| Y_(j-1) + |b_j|,

where ``Y_j`` bounds the outputs of layer j on the whole set, and ``Y_0`` the absolute
inputs. So ``m_j`` bounds ``|h_j|``, and no neuron's ends are taken beyond it.

| step | units |
|---|---|
| coefficients ``r s + r q``, and ``s W``, ``s b`` | 6 |
| ``a W`` and ``a b``: sums of n, or of 2 n for rows of neurons | 4 n + 2 |
| sums of ``r t``, for rows of neurons 2 n terms of at most 2 size | 4 n + 2 |
| adding up L layers, and E outputs of members | 3 (L + E) |
| the corner: products with centre and radius, which are rounded, too | 6 d + 12 |

For rows of neurons the sizes are those of all pieces at once. Their coefficients are
``r s`` or ``r q`` with lines ``relu(h) <= s h + t`` and ``relu(h) >= q h``, where s and
q are at most one and t is at most m, or those of a line above. So ``|a_j|`` and
``|r_j|`` are at most ``|a_(j+1)| |W_(j+1)|``, and the size of a row of layer k is at
most ``C_k = m_k + |W_k| C_(k-1)``, without neurons that are off on the whole set. With
lines of the first layer a row takes more steps, all of them in units of its size:

| step | units |
|---|---|
| S, disagreeing and undecided parts: sums of d, their differences, and T | 12 d + 48 |
| shares times r, and three products with weights | 4 n + 8 |
| what differs from the lines before: slopes, and three sums of n constants | 8 n + 8 |
| mixing, sums of d absolute slopes | 4 d + 24 |

The margin is twice the sum, which pays for terms of order ``e**2`` and the rounding of
the size itself. ``t`` is a product of a number with a rounded difference: off by a
share of 2 e of itself. Numbers below the normal range are off by 2**-1075, and
denominators are at least 2**-1022: times anything that a problem may hold (1e150), and
summed over a million terms, that is below `FLOOR`, which every margin includes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ennopt.certificate import advice
from ennopt.certificate.lines import (
    FLOOR,
    UNIT,
    Box,
    Cut,
    Layer,
    Stack,
    largest_error,
    upper_lines,
)
from ennopt.domain import Domain
from ennopt.network import Array
from ennopt.problem import Combination, Problem
from ennopt.risk import Worst
from ennopt.weighting import Weighting

Flags = npt.NDArray[np.bool_]
Lines = Callable[[slice, Array], Array]
"""Slopes a of some neurons for their coefficients, (num_pieces, num_neurons) both."""

LARGEST = 1e150
"""Numbers beyond this are refused: `FLOOR` would not cover what underflows."""

CACHED = 2**17
"""Numbers in an array of rows of neurons, at most: more rows are bounded in turn."""

STEPS = 1
"""Times that slopes and weights are chosen anew for a function."""


def functions_of(problem: Problem) -> tuple[list[Stack], list[Weighting], int]:
    """The objective, to be maximized, and the limits, as functions of outputs.

    Members with equal hidden layers share a stack. Also returns how many numbers were
    added up, at most, to a coefficient of an output.
    """
    goal = problem.goal if problem.sense == "max" else problem.goal.negated()
    stacks: dict[bytes, tuple[Any, list[list[Any]]]] = {}
    told: list[tuple[dict[bytes, int], list[Any]]] = []
    added = 8
    for function in (goal, *(limit.function for limit in problem.limits)):
        fixed: dict[bytes, int] = {}
        groups = []
        for hidden, own, group in _outputs(function):
            arrays = (*hidden[0], *hidden[1])
            key = repr([array.shape for array in arrays]).encode()
            key += b"".join(array.tobytes() for array in arrays)
            outputs = stacks.setdefault(key, (hidden, []))[1]
            added += 1
            if group is None and key in fixed:
                before = outputs[fixed[key]]
                outputs[fixed[key]] = [a + b for a, b in zip(before, own, strict=True)]
                continue
            outputs.append(own)
            if group is None:
                fixed[key] = len(outputs) - 1
            else:
                groups.append((group, key, len(outputs) - 1))
        told.append((fixed, groups))
        added += sum(term.ensemble.num_outputs for term in function.terms)
    starts = dict(
        zip(stacks, _sums(len(own) for _, own in stacks.values()), strict=False)
    )
    count = sum(len(own) for _, own in stacks.values())
    weightings = []
    for (fixed, groups), function in zip(
        told, (goal, *(limit.function for limit in problem.limits)), strict=True
    ):
        weights = np.zeros(count)
        weights[[starts[key] + at for key, at in fixed.items()]] = 1.0
        risks = tuple(
            (tuple(starts[key] + at for i, key, at in groups if i == k), term.own_risk)
            for k, term in enumerate(function.terms) if term.own_risk is not None
        )  # fmt: skip
        weightings.append(Weighting(weights, risks))
    made, first = [], 0
    for hidden, outputs in stacks.values():
        ends = [first + end for end in _sums(len(b) for b in hidden[1])]
        columns = tuple(slice(i, k) for i, k in pairwise(ends))
        rows, shifts, sizes, others = (
            np.array(part) for part in zip(*outputs, strict=True)
        )
        made.append(Stack(hidden[0], hidden[1], rows, shifts, sizes, others, columns))
        first = ends[-1]
    return made, weightings, added


def each_alone(function: Weighting) -> list[Weighting]:
    """Functions that are all above a level where this one is, and only there.

    The worst of some outputs is above it if each of them is.
    """
    if len(function.groups) != 1 or not isinstance(function.groups[0][1], Worst):
        return [function]
    eye = np.eye(function.weights.size)
    return [Weighting(function.weights + eye[at]) for at in function.groups[0][0]]


def _outputs(function: Combination) -> Iterator[tuple[Any, list[Any], int | None]]:
    """Hidden layers, output and number of the risk, if any, of all that is added."""
    for k, term in enumerate(function.terms):
        members, risky = term.ensemble.members, term.own_risk is not None
        chosen = np.ones(1) if term.output is None else np.asarray(term.output)
        for weight, member in zip(term.ensemble.weights, members, strict=True):
            factor = term.factor * float(weight) * (len(members) if risky else 1)
            last, shift = member.weights[-1], member.biases[-1]
            size = abs(factor) * np.abs(chosen)
            own = [factor * (chosen @ last), factor * (chosen @ shift)]
            own += [size @ np.abs(last), size @ np.abs(shift)]
            yield (member.weights[:-1], member.biases[:-1]), own, k if risky else None
    if function.inputs.any() or function.constant:
        linear, constant = function.inputs, function.constant
        yield ((), ()), [linear, constant, np.abs(linear), abs(constant)], None


def _sums(lengths: Iterable[int]) -> list[int]:
    return [0, *accumulate(lengths)]


class Model:
    """Bounds of the outputs of stacks and of all their neurons, on boxes of a root box.

    Parameters
    ----------
    stacks, added
        As `functions_of` gives them.
    lower, upper
        Corners of the root box, (num_inputs,).
    """

    def __init__(
        self, stacks: Sequence[Stack], added: int, lower: Array, upper: Array
    ) -> None:
        self.stacks, self.added = list(stacks), added
        self.reach = np.maximum(np.abs(lower), np.abs(upper))
        shapes = [w.shape for s in stacks for w in (*s.weights, s.rows)]
        longest = max(max(shape) for shape in shapes)
        layers = max(len(s.weights) for s in stacks) + 1
        counted = 6 + 8 * longest + 3 * (layers + added) + 6 * lower.size + 12
        self.gamma = 2.0 * counted * UNIT
        by_line = self.gamma + 2.0 * (12 * longest + 16 * lower.size + 88) * UNIT
        # Sizes need bounds of the outputs before, layer by layer, on the root.
        count = sum(len(b) for stack in stacks for b in stack.biases)
        self.sizes, self.errors, outputs = np.zeros(count), np.zeros(count), []
        root = Box(lower[None], upper[None], self.reach)
        self.low, self.high = np.zeros((1, count)), np.zeros((1, count))
        for stack in self.stacks:
            before, costs = self.reach, np.zeros_like(self.reach)
            below: list[Layer] = []
            for k, own in enumerate(stack.columns):
                absolute = np.abs(stack.weights[k])
                size = absolute @ before + np.abs(stack.biases[k])
                self.sizes[own] = size = size * (1.0 + 1e-9) + FLOOR
                costs = size + absolute @ costs * (1.0 + 1e-9)
                self.errors[own] = by_line * costs + FLOOR
                self.low[:, own], self.high[:, own] = -size, size
                every = np.arange(size.size)
                self._bound_layer(stack, k, below, root, self.low, self.high, every)
                below.append(Layer(stack, k, below, root, self.low, self.high))
                before = np.maximum(self.high[0, own], 0.0)
                costs = np.where(before > 0.0, costs, 0.0)
            size = stack.row_sizes @ before + stack.shift_sizes
            outputs.append(size * (1.0 + 1e-9) + FLOOR)
        self.output_sizes = np.concatenate(outputs)
        every = np.concatenate([self.reach, self.sizes, self.output_sizes])
        self.largest = float(every.max())

    def forward(self, points: Array) -> tuple[Array, Array, Array]:
        """Outputs, how far rounding may have moved them, and which neurons are on.

        The first two are (num_points, num_outputs), the last zeros and ones. The error
        of a layer is what the weights make of the error before, and n + 2 units of the
        sum of absolute values; all of it twice, for the rounding of the error itself.
        """
        values, errors, signs = [], [], np.empty((len(points), self.sizes.size))
        for stack in self.stacks:
            y, error = points, np.zeros_like(points)
            for w, b, own in zip(
                stack.weights, stack.biases, stack.columns, strict=True
            ):
                units = 2.0 * (w.shape[1] + 2) * UNIT
                magnitude = np.abs(y) @ np.abs(w).T + np.abs(b)
                error = error @ np.abs(w).T * (1.0 + 1e-9) + units * magnitude
                signs[:, own] = (h := y @ w.T + b) > 0.0
                y = np.maximum(h, 0.0)
            units = 2.0 * (stack.rows.shape[1] + 2 * self.added + 8) * UNIT
            values.append(y @ stack.rows.T + stack.shifts)
            error = error @ np.abs(stack.rows).T * (1.0 + 1e-9) + FLOOR
            errors.append(error + units * (np.abs(y) @ stack.row_sizes.T
                                           + stack.shift_sizes))  # fmt: skip
        return np.concatenate(values, axis=1), np.concatenate(errors, axis=1), signs

    def majorants(
        self, weights: Array, low: Array, high: Array, lines: Lines
    ) -> tuple[Array, Array, Array]:
        """Majorants of weighted sums of outputs, one for each piece.

        Parameters
        ----------
        weights
            (num_pieces, num_outputs)
        low, high
            Ends of the neurons, (num_pieces, num_neurons).
        lines
            Chooses the slopes a.

        Returns
        -------
        Slopes (num_pieces, num_inputs), constants (num_pieces,) with the margin, and
        the coefficients r of all neurons.
        """
        slopes = np.zeros((len(weights), self.reach.size))
        constants, at = np.zeros(len(weights)), 0
        size, passed = np.abs(weights) @ self.output_sizes, np.empty_like(low)
        for stack in self.stacks:
            chosen = weights[:, at : at + len(stack.shifts)]
            at += len(stack.shifts)
            r, constants = chosen @ stack.rows, constants + chosen @ stack.shifts
            for j in range(len(stack.weights) - 1, -1, -1):
                own = stack.columns[j]
                passed[:, own], a = r, lines(own, r)
                t = largest_error(r, a, low[:, own], high[:, own])
                constants += t.sum(axis=1) + a @ stack.biases[j]
                size += np.abs(a) @ self.sizes[own] + np.abs(t).sum(axis=1)
                r = a @ stack.weights[j]
            slopes += r
        return slopes, constants + (self.gamma * size + FLOOR), passed

    def bound_neurons(
        self, lower: Array, upper: Array, low: Array, high: Array, cut: Cut,
        chosen: Flags,
    ) -> None:  # fmt: skip
        """Narrow the ends of neurons, (num_pieces, num_neurons), in place.

        They hold where the `cut` of each piece is not negative: only such points count.
        Those that are not `chosen`, (num_neurons,), keep the ends that they have.
        """
        box = Box(lower, upper, self.reach, cut)
        for stack in self.stacks:
            layers: list[Layer] = []
            for k, own in enumerate(stack.columns):
                rows = np.flatnonzero(chosen[own])
                self._bound_layer(stack, k, layers, box, low, high, rows)
                if k + 1 < len(stack.weights):
                    layers.append(Layer(stack, k, layers, box, low, high))

    def _bound_layer(
        self, stack: Stack, k: int, layers: Sequence[Layer], box: Box, low: Array,
        high: Array, rows: npt.NDArray[np.intp],
    ) -> None:  # fmt: skip
        """Narrow the ends of some neurons of layer k, whose layers before are given."""
        widest = max(max(w.shape) for w in stack.weights)
        some = max(1, CACHED // (len(low) * widest))
        for start in range(0, rows.size, some):
            part = rows[start : start + some]
            places, count = stack.columns[k].start + part, part.size
            w, b = stack.weights[k][part], stack.biases[k][part]
            # A lower bound of a row is an upper one of minus the row.
            r, c = np.concatenate([w, -w])[:, None], np.concatenate([b, -b])[:, None]
            top = box.tops(r, c, layers) + np.tile(self.errors[places], 2)[:, None]
            # What overflowed is no number, and the ends stay.
            high[:, places] = np.fmin(high[:, places], top[:count].T)
            low[:, places] = np.fmax(low[:, places], -top[count:].T)


@dataclass(slots=True, eq=False)
class Pieces:
    """Many pieces, one per row.

    Parameters
    ----------
    lower, upper
        Corners, (num_pieces, num_inputs).
    slopes, sides
        Cuts ``slopes @ x + sides``, one for each function, (num_pieces, num_functions,
        num_inputs) and (num_pieces, num_functions).
    low, high
        Ends of all neurons, (num_pieces, num_neurons).
    place
        Node of the certificate's tree, -1 below its leaves.
    """

    lower: Array
    upper: Array
    slopes: Array
    sides: Array
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
    """Says which pieces hold no point that counts, and shrinks and splits the others.

    Parameters
    ----------
    model, functions
        The stacks, and functions of their outputs: the objective, then the limits.
    levels
        A point counts if each function is above its level.
    domain
        The feasible set.
    """

    def __init__(
        self, model: Model, functions: Sequence[Weighting], levels: Sequence[float],
        domain: Domain,
    ) -> None:  # fmt: skip
        self.model, self.functions, self.domain = model, list(functions), domain
        self.levels = [float(level) for level in levels]
        self.rows, sides = domain.half_spaces()
        self.row_sides = -sides
        self.needed = advice.needed(model, self.functions)

    def root(self) -> Pieces:
        """The whole set."""
        lower, upper = self.domain.lower[None].copy(), self.domain.upper[None].copy()
        shape = 1, len(self.functions)
        return Pieces(
            lower, upper, np.zeros((*shape, lower.size)), np.zeros(shape),
            self.model.low.copy(), self.model.high.copy(), np.zeros(1, dtype=np.int64),
        )  # fmt: skip

    def values(self, points: Array) -> tuple[Array, Array]:
        """All functions at points, and their errors, (num_functions, num_points)."""
        outputs, errors, _ = self.model.forward(points)
        found = np.array([function.values(outputs) for function in self.functions])
        units = 4.0 * (outputs.shape[1] + 4) * UNIT
        spread = [
            (errors + units * np.abs(outputs)) @ f.heaviest + self._risk_margin(f)
            for f in self.functions
        ]
        return found, np.array(spread)

    def _risk_margin(self, function: Weighting) -> float:
        """What weights may add that are those of a risk up to rounding."""
        heavy = function.heaviest
        return sum(
            64.0 * (len(at) + 4) * UNIT * float(
                heavy[list(at)] @ self.model.output_sizes[list(at)])
            for at, _ in function.groups
        )  # fmt: skip

    def prove(
        self, pieces: Pieces, every: bool = False
    ) -> tuple[Flags, Array, Array, Array]:
        """Which pieces are proved; the others are made smaller, in place.

        If `every`, neurons whose sign is known are bounded, too: where signs are held,
        or were found where other points counted, their ends may cross.

        Also returns bounds of the objective, points where its majorants are largest,
        and a score for each input, the largest being the one to split: all advice.
        """
        proved = self._clip(pieces)
        deep = self._deepest(pieces)
        open_ = (pieces.low < 0.0) & (pieces.high > 0.0)
        chosen = open_.any(axis=0) & self.needed | every
        ends = pieces.low, pieces.high
        self.model.bound_neurons(pieces.lower, pieces.upper, *ends, deep, chosen)
        # Ends hold where points count. If two ends cross, no such point is left.
        proved |= np.any(pieces.low > pieces.high, axis=1)
        points, scores = pieces.lower.copy(), np.zeros_like(pieces.lower)
        best = np.full(len(pieces), np.inf)
        for k in reversed(range(len(self.functions))):
            left = np.flatnonzero(~proved)
            if left.size and self.levels[k] > -np.inf:
                best[left], points[left], scores[left] = self._cut(pieces, k, left)
                proved[left] |= best[left] <= self.levels[k]
        proved |= self._clip(pieces)
        return proved, best, points, scores

    def _cut(
        self, pieces: Pieces, k: int, left: npt.NDArray[np.intp]
    ) -> tuple[Array, Array, Array]:
        """Cuts by function k for some pieces; its bounds, points and scores."""
        part, function, level = pieces[left], self.functions[k], self.levels[k]
        best, points = np.full(left.size, np.inf), part.lower.copy()
        s, _, q = upper_lines(part.low, part.high)
        outputs, _, signs = self.model.forward(0.5 * (part.lower + part.upper))
        q = np.where(self.needed | (s == q), q, signs)
        weights, scores = function.respond(outputs), np.zeros_like(part.lower)
        going = np.arange(left.size)
        for step in range(1 + STEPS):
            rest = part[going] if step else part

            def lines(own: slice, r: Array, s: Array = s, q: Array = q) -> Array:
                above = np.maximum(r, 0.0)
                return np.asarray(above * s[:, own] + (r - above) * q[:, own])

            found = self.model.majorants(weights, rest.low, rest.high, lines)
            slopes, constants = self._lowered(rest, found[0], found[1])
            constants += self._risk_margin(function)
            top, corner = self._top(slopes, constants, rest)
            if step == 0:
                scores = advice.scores(self.model, rest, found[2], self.needed)
            better = top < best[going]
            places = going[better]
            best[places], points[places] = top[better], corner[better]
            pieces.slopes[left[places], k] = slopes[better]
            sizes = np.abs(constants) + abs(level)
            above = constants - level + (2.0 * UNIT * sizes + FLOOR)
            pieces.sides[left[places], k] = above[better]
            stays = best[going] > level
            going = going[stays]
            if not going.size or step == STEPS:
                break
            # Weights between two of a risk are weights of it.
            outputs, _, signs = self.model.forward(corner[stays])
            share, s, q, weights = 1.0 / (step + 2), s[stays], q[stays], weights[stays]
            free = (part.low[going] < 0.0) & (part.high[going] > 0.0)
            q = q + free * np.where(self.needed, share, 1.0) * (signs - q)
            weights = weights + share * (function.respond(outputs) - weights)
        return best, points, scores

    def glance(self, pieces: Pieces, lines: Lines, by: Array) -> Array:
        """Bounds of the objective with slopes and multipliers of rows that are given.

        (num_pieces,); for an objective without a risk. `by` is (num_pieces, num_rows).
        """
        weights = np.tile(self.functions[0].weights, (len(pieces), 1))
        slopes, constants, _ = self.model.majorants(
            weights, pieces.low, pieces.high, lines
        )
        for k, (row, side) in enumerate(zip(self.rows, self.row_sides, strict=True)):
            every = np.broadcast_to(row, slopes.shape)
            slopes, constants = self._raised(
                slopes, constants, by[:, k], every, np.full(len(pieces), side)
            )
        top, _ = self._top(slopes, constants, pieces)
        return np.where(np.isnan(top), np.inf, top)

    def _half_spaces(self, pieces: Pieces) -> Iterator[tuple[Array, Array]]:
        """All cuts and constraints, (num_pieces, num_inputs) and (num_pieces,) each."""
        for k, level in enumerate(self.levels):
            if level > -np.inf:
                yield pieces.slopes[:, k], pieces.sides[:, k]
        for row, side in zip(self.rows, self.row_sides, strict=True):
            yield np.broadcast_to(row, pieces.lower.shape), np.full(len(pieces), side)

    def _deepest(self, pieces: Pieces) -> Cut:
        """For each piece the half-space that leaves least of it."""
        chosen, sides = np.zeros_like(pieces.lower), np.zeros(len(pieces))
        depth, centre = (
            np.full(len(pieces), np.inf),
            0.5 * (pieces.lower + pieces.upper),
        )
        for a, s in self._half_spaces(pieces):
            length = np.abs(a * (pieces.upper - pieces.lower)).sum(axis=1) + FLOOR
            own = (np.einsum("bp,bp->b", a, centre) + s) / length
            deeper = own < depth
            chosen[deeper], sides[deeper] = a[deeper], s[deeper]
            depth[deeper] = own[deeper]
        return chosen, sides

    def _lowered(
        self, pieces: Pieces, slopes: Array, constants: Array
    ) -> tuple[Array, Array]:
        """Majorants with multiples of half-spaces added that lower their maximum."""
        centre = 0.5 * (pieces.lower + pieces.upper)
        radius = 0.5 * (pieces.upper - pieces.lower)
        for _ in range(advice.SWEEPS if len(self.rows) + len(self.levels) > 1 else 1):
            for a, s in self._half_spaces(pieces):
                by = advice.multiple(slopes, a, s, centre, radius)
                if by.any():
                    slopes, constants = self._raised(slopes, constants, by, a, s)
        return slopes, constants

    def _raised(
        self, slopes: Array, constants: Array, by: Array, a: Array, s: Array
    ) -> tuple[Array, Array]:
        """Linear functions plus multiples of half-spaces: 4 units for each term."""
        by = np.where(np.isfinite(by) & (by > 0.0), by, 0.0)
        sizes = np.abs(slopes) @ self.model.reach + np.abs(constants)
        sizes += by * (np.abs(a) @ self.model.reach + np.abs(s))
        constants = constants + by * s + (8.0 * UNIT * sizes + FLOOR)
        return slopes + by[:, None] * a, constants

    def _top(
        self, slopes: Array, constants: Array, pieces: Pieces
    ) -> tuple[Array, Array]:
        """Upper bounds of ``slopes . x + constants`` on the boxes, and the corners."""
        centre = 0.5 * (pieces.lower + pieces.upper)
        radius = 0.5 * (pieces.upper - pieces.lower)
        top = np.einsum("bp,bp->b", slopes, centre) + constants
        top += np.einsum("bp,bp->b", np.abs(slopes), radius)
        sizes = np.abs(slopes) @ self.model.reach + np.abs(constants)
        top += (12.0 * self.model.reach.size + 24.0) * UNIT * sizes + FLOOR
        return top, np.where(slopes > 0.0, pieces.upper, pieces.lower)

    def _clip(self, pieces: Pieces) -> Flags:
        """Shrink boxes to where points can count, in place; which hold none."""
        empty = np.zeros(len(pieces), dtype=bool)
        for a, s in self._half_spaces(pieces):
            empty |= self._clip_by(pieces, a, s)
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
        """Shrink boxes to where ``a . x + s`` can be zero or more.

        If its largest value on a box is U, then ``a_p x_p`` is at most U below its own
        largest value wherever the sum is not negative.
        """
        top, _ = self._top(a, s, pieces)
        empty = np.asarray(top < 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            room = np.maximum(top, 0.0)[:, None] / np.abs(a)
            # Rounding of the quotient and of the difference, four units each.
            room = room * (1.0 + 8.0 * UNIT) + 8.0 * UNIT * self.model.reach + FLOOR
        room = np.where(np.isfinite(room), room, np.inf)
        lower = np.where(a > 0.0, pieces.upper - room, -np.inf)
        upper = np.where(a < 0.0, pieces.lower + room, np.inf)
        good = ~empty
        # Both ends come from one box of which something is left: they cannot cross.
        lower, upper = np.maximum(pieces.lower, lower), np.minimum(pieces.upper, upper)
        pieces.lower[good], pieces.upper[good] = lower[good], upper[good]
        return empty

    def split(self, pieces: Pieces, at: npt.NDArray[np.intp]) -> tuple[Pieces, Flags]:
        """Both parts of each piece, the first parts first, and which can be split.

        `at` is an input, or the number of inputs plus a neuron.
        """
        each, d = np.arange(len(pieces)), pieces.lower.shape[1]
        first, second = pieces[each], pieces[each]
        signs = np.flatnonzero(at >= d)
        neurons = at[signs] - d
        can = np.ones(len(pieces), dtype=bool)
        can[signs] = pieces.low[signs, neurons] < 0.0
        can[signs] &= pieces.high[signs, neurons] > 0.0
        first.low[signs, neurons] = np.maximum(first.low[signs, neurons], 0.0)
        second.high[signs, neurons] = np.minimum(second.high[signs, neurons], 0.0)
        boxes = np.flatnonzero(at < d)
        inputs, lower, upper = at[boxes], pieces.lower[boxes], pieces.upper[boxes]
        row = np.arange(boxes.size)
        low, high = lower[row, inputs], upper[row, inputs]
        left = right = low + 0.5 * (high - low)
        values = self.domain.values
        if not values.any:
            lower[row, inputs] = left
            down = values.down(lower)[row, inputs]
            lower[row, inputs] = np.nextafter(down, np.inf)
            up, discrete = values.up(lower)[row, inputs], values.discrete[inputs]
            left, right = np.where(discrete, down, left), np.where(discrete, up, right)
        first.upper[boxes, inputs], second.lower[boxes, inputs] = left, right
        can[boxes] = (low <= left) & (right <= high) & (left < high) & (right > low)
        return Pieces.joined([first, second]), can
