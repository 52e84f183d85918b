"""The linear programs of nodes of signs, by HiGHS: the reference of the kernel's own.

`src/kernel/program.hpp` solves the same programs by a simplex method that knows the
network. Without the extension this is what answers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.lines_above import LineAbove, row_of
from ennopt.engine.nodes import Fate, States
from ennopt.engine.pool import (
    Pool,
    Row,
    fixed_rows,
    half_space,
    missed_weightings,
    num_learned,
    output_errors,
    output_ranges,
    risk_ranges,
)
from ennopt.engine.tree import Explored
from ennopt.milp.building import ABSENT
from ennopt.milp.formulation import Formulation, big_m, hidden_layers
from ennopt.milp.highs import HotLp
from ennopt.milp.model import Indices, LinearModel
from ennopt.milp.scaling import normalized
from ennopt.milp.solver import MilpStatus
from ennopt.network import Array
from ennopt.tightening.relaxation import Interval

O, U, L = 1, 2, 4  # noqa: E741 - the corners of a neuron, as in src/kernel/model.hpp
FREE, HELD_ON, HELD_OFF = (O | U | L) << 3, (O | U) << 3, (O | L) << 3
"""A neuron of a node of signs in one byte: the corners that are allowed to it, three
bits up; below, those tied in the last basis, which only the kernel uses."""

LEAN = 1e-9
"""Share of a neuron's range by which the triangle may miss ReLU unnoticed."""

LEARN_ROUNDS, LEARN_SHARE, LEAF_SHARE = 4, 0.05, 1e-9
"""Rounds in which a node learns rows, and what they must be missed by: a share of what
its bound is above the cutoff, or of a limit's spread; the same where no neuron is left
to branch on."""

MOST_WAITS = 200
"""Rounds in which a node learns rows where no neuron is left to branch on."""

OUTPUT_ROOM = 1e-6
"""Share of its size by which an output may leave its bounds in a program."""


class _Relaxation:
    """The linear program of a problem with triangles over bounds of its neurons.

    Parameters
    ----------
    problem, bounds
        What it is made from.
    rows
        Conditions beside the linear constraints of the domain: limits, weightings of
        risks, half-spaces.
    """

    def __init__(
        self, problem: Canonical, bounds: NeuronBounds, rows: Sequence[Row] = ()
    ) -> None:
        # Points of convex regions are found, and their half-spaces learned, elsewhere.
        problem = replace(problem, domain=replace(problem.domain, convex=()))
        self.scaled = normalized(problem, bounds)
        if problem.is_sum and not rows:
            self.made = big_m(self.scaled.problem, self.scaled.bounds, relaxed=True)
            self.outputs, self.extras = np.zeros((2, 0), np.int64)
        else:
            made = hidden_layers(self.scaled.problem, self.scaled.bounds, relaxed=True)
            model = self._with_rows(made, problem, bounds, rows)
            self.made = replace(made, model=model)
        self.program = HotLp(self.made.model)
        self.low, self.high = self.scaled.bounds.flat()
        layers = [at for member in self.made.neurons for at in member]
        nowhere: Indices = np.zeros(0, np.int64)
        self.y = np.concatenate([nowhere, *(at.y for at in layers)])
        self.s = np.concatenate([nowhere, *(at.s for at in layers)])

    def _with_rows(
        self, made: Formulation, problem: Canonical, bounds: NeuronBounds,
        rows: Sequence[Row],
    ) -> LinearModel:  # fmt: skip
        """The model with columns for outputs and risks, the objective, and rows."""
        model, unit = made.model, self.scaled.output
        ends = output_ranges(self.scaled.bounds)
        # As constraints, bounds so close to an equation would cut into the box as soon
        # as a solver drops a small coefficient.
        room = OUTPUT_ROOM * np.abs(ends).max(axis=0)
        risks = risk_ranges(problem, bounds) / unit
        count, outputs, extras = model.num_columns, ends.shape[1], risks.shape[1]
        self.outputs = np.arange(count, count + outputs)
        self.extras = np.arange(count + outputs, count + outputs + extras)
        objective = np.zeros(count + outputs + extras)
        # Powers of two: nothing is rounded.
        self.units = np.concatenate([own[-1] for own in self.scaled.neurons])
        nothing = np.zeros(0)
        hidden = [own[:-1] for own in self.scaled.neurons]
        hidden_units = np.concatenate([nothing, *(u for own in hidden for u in own)])
        places = np.concatenate(
            [nothing.astype(np.int64), *(at.y for own in made.neurons for at in own)]
        )
        objective[self.outputs] = problem.weighting.weights * (self.units / unit)
        objective[self.extras] = 1.0
        dense, sides, most = [], [], []
        output = 0
        for i, network in enumerate(made.problem.networks):
            for r in range(network.num_outputs):
                form, constant = made.preactivation(i, len(network.weights) - 1, r)
                dense.append(np.append(form, np.zeros(outputs + extras)))
                dense[-1][self.outputs[output]] = -1.0
                sides.append(-constant)
                most.append(-constant)
                output += 1
        for row in rows:
            form = np.zeros(objective.size)
            form[made.inputs] = row.slopes * self.scaled.inputs
            form[self.outputs] = row.shares * self.units
            if row.hidden is not None:  # a neuron without a column is zero
                kept = places != ABSENT
                form[places[kept]] += (row.hidden * hidden_units)[kept]
            if row.extra >= 0:
                form[self.extras[row.extra]] = -unit
            largest = float(np.abs(form).max())
            size = 2.0 ** -np.ceil(np.log2(largest)) if largest > 0.0 else 1.0
            dense.append(form * size)
            sides.append(row.side * size)
            most.append(np.inf)
        more = LinearModel.of(
            np.concatenate([model.lower, ends[0] - room, risks[0]]),
            np.concatenate([model.upper, ends[1] + room, risks[1]]),
            objective, np.array(dense), lower_rows=sides, upper_rows=most,
        )  # fmt: skip
        return replace(
            more,
            starts=np.concatenate([model.starts, model.num_entries + more.starts[1:]]),
            columns=np.concatenate([model.columns, more.columns]),
            coefficients=np.concatenate([model.coefficients, more.coefficients]),
            row_lower=np.concatenate([model.row_lower, more.row_lower]),
            row_upper=np.concatenate([model.row_upper, more.row_upper]),
        )

    def inputs(self, found: Array) -> Array:
        """Where a solution of the program is, (num_inputs,)."""
        return found[self.made.inputs] * self.scaled.inputs


class SignPrograms:
    """Nodes of signs, their linear programs by HiGHS.

    Rows are as in the kernel: bound, flag, lower and upper ends of the inputs that have
    ends of their own in a node, and one byte for each input, risk of the objective,
    neuron and row of the programs.
    """

    batch = 1

    def __init__(
        self, problem: Canonical, bounds: NeuronBounds, lines: Sequence[LineAbove] = ()
    ) -> None:
        domain, goal = problem.domain, problem.weighting
        # The last sums of the networks, and their sum.
        self._margin = float(np.abs(goal.weights) @ output_errors(problem))
        self._problem, self._bounds = problem, bounds
        fixed = fixed_rows(problem)
        fixed += [row_of(problem, line) for line in lines]
        self._limits = fixed[len(domain.half_spaces()[1]) :]
        self._pool = Pool(num_learned(problem))
        self._relaxed = _Relaxation(problem, bounds, self._limits)
        self._known = self._limits  # rows of that program
        low, high = bounds.flat()
        d, n = domain.num_inputs + len(goal.groups), low.size
        count = d + n + len(fixed) + num_learned(problem)
        padded = np.zeros(-(-count // 8) * 8, dtype=np.uint8)
        padded[:count] = HELD_ON  # between two corners
        padded[d : d + n] = np.where(
            low >= 0.0, HELD_ON, np.where(high <= 0.0, HELD_OFF, FREE)
        )
        self._free = (low < 0.0) & (high > 0.0)
        self._num_inputs, self._num_neurons = d, n
        self._domain = domain
        # Near data every input has ends of its own.
        narrowed = domain.values.discrete | bool(domain.regions)
        self._places = np.flatnonzero(narrowed)
        ends = domain.lower[self._places], domain.upper[self._places]
        head, signs = np.array([np.inf, 0.0]), padded.view(np.float64)
        self._root: Array = np.concatenate([head, *ends, signs])[None]

    def root(self) -> Array:
        """The whole domain, (1, num_numbers)."""
        return self._root

    def explore(self, rows: Array, cutoff: float) -> tuple[list[Explored], Array]:
        """Bound nodes, (num_nodes, num_numbers)."""
        found: list[Explored] = []
        points: list[Array] = []
        for row in np.array(rows):
            states = self._states(row)
            solution, at, place = self._learned(row, states, cutoff)
            if solution is not None:
                points.append(at.made.point(solution) * at.scaled.inputs)
            if row[0] <= cutoff:
                found.append(Explored(Fate.CLOSED, row, dropped=float(row[0])))
                continue
            x = None if solution is None else at.inputs(solution)
            middle = 0.0
            far, below = self._near_place(x, row)
            if far >= 0:
                place, middle = far, below
            if place < 0:
                place, middle = self._discrete_place(x, row, row[1] == 1.0)
            if place >= 0:
                row[1] = 0.0
                found.append(Explored(Fate.SPLIT, row, place, middle))
            elif row[1] == 0.0:
                row[1] = 1.0  # if this point is its maximum, it closes the node
                found.append(Explored(Fate.AGAIN, row))
            else:
                found.append(Explored(Fate.STUCK, row))
        return found, np.array(points).reshape(-1, self._domain.num_inputs)

    def _learned(
        self, row: Array, states: States, cutoff: float
    ) -> tuple[Array | None, _Relaxation, int]:
        """Bound a node, with rows that its points miss; and the neuron to hold."""
        for rounds in itertools.count():
            solution, at = self.bound(row, states)
            place = self._worst(solution, at, states, row[1] == 0.0)
            leaf = place < 0
            most = MOST_WAITS if leaf else LEARN_ROUNDS
            if solution is None or row[0] <= cutoff or rounds == most:
                break
            share = LEAF_SHARE if leaf else LEARN_SHARE
            if not self._learn(solution, at, float(row[0]) - cutoff, share):
                break
        return solution, at, place

    def _learn(self, found: Array, at: _Relaxation, over: float, share: float) -> bool:
        """Learn rows that a solution misses by more than a share of what counts.

        That is what the bound is above the cutoff, or the spread of a limit.
        """
        news, unit = [], at.scaled.output
        if self._problem.is_sum:
            outputs = extras = np.zeros(0)
        else:
            outputs, extras = found[at.outputs] * at.units, found[at.extras] * unit
            for row, missed, spread in missed_weightings(
                self._problem, outputs, extras
            ):
                least = share * (min(over, spread) if row.extra >= 0 else spread)
                news += [row] if missed > least else []
        for slopes, side in zip(
            *self._domain.separated(at.inputs(found)[None]), strict=True
        ):
            news.append(half_space(self._problem, slopes, float(side)))
        return any([self._pool.learn(row) for row in news])

    def guide(self, points: Array) -> None:
        """Learn the weightings that risks have at good points."""
        nothing = np.zeros(len(self._problem.weighting.groups))
        if not self._problem.is_sum:
            for outputs in self._problem.outputs(points):
                for row, _, _ in missed_weightings(self._problem, outputs, nothing):
                    self._pool.learn(row)

    def split(self, node: Array, place: int, at: float) -> tuple[Array, Array]:
        """The neuron held on, and held off; or an input up to a value, and above it."""
        on, off = node.copy(), node.copy()
        if (p := place - self._num_neurons) >= 0:
            k = int(np.searchsorted(self._places, p))
            values = self._domain.values
            self._ends(on)[1, k] = at
            self._ends(off)[0, k] = (
                values.above(p, at) if values.discrete[p] else np.nextafter(at, np.inf)
            )
            return on, off
        self._states(on)[place], self._states(off)[place] = HELD_ON, HELD_OFF
        return on, off

    def narrow(self, slopes: Array, sides: Array) -> None:
        """Learn half-spaces ``slopes @ x >= sides`` that hold on the feasible set."""
        if not num_learned(self._problem):
            raise ValueError(
                "Expected a problem with convex regions or risks to narrow, got none."
            )
        for slope, side in zip(slopes, sides, strict=True):
            self._pool.learn(half_space(self._problem, slope, float(side)))

    def clips(self, before: Array, after: Array) -> Iterator[tuple[int, float, float]]:
        """None: a node of signs is on the whole domain."""
        yield from ()

    def _ends(self, row: Array) -> Array:
        """Lower and upper ends of inputs that have their own, (2, num_ends)."""
        return row[2 : 2 + 2 * self._places.size].reshape(2, -1)

    def _states(self, row: Array) -> States:
        after = row[2 + 2 * self._places.size :].view(np.uint8)
        return after[self._num_inputs :][: self._num_neurons]

    def bound(self, row: Array, states: States) -> tuple[Array | None, _Relaxation]:
        """Lower the bound in `row`; returns a solution, if any, and of what program."""
        rows = [*self._limits, *self._pool.rows]
        at: _Relaxation | None = self._relaxed
        if self._places.size:
            at = self._part(row, states, rows)
        elif not (
            len(rows) == len(self._known)
            and all(a is b for a, b in zip(rows, self._known, strict=True))
        ):
            at = self._relaxed = _Relaxation(self._problem, self._bounds, rows)
            self._known = rows
        if at is None:
            row[0] = -math.inf
            return None, self._relaxed
        model = at.made.model
        upper = model.upper.copy()
        unstable = at.s != ABSENT
        upper[at.s[unstable & (states >> 3 == HELD_ON >> 3)]] = 0.0
        upper[at.y[unstable & (states >> 3 == HELD_OFF >> 3)]] = 0.0
        at.program.restrict(model.lower, upper)
        found = at.program.maximize(model.objective, model.offset)
        if found.status is MilpStatus.INFEASIBLE:
            if at.program.refuted():
                row[0] = -math.inf
            return None, at
        row[0] = min(row[0], found.bound * at.scaled.output + self._margin)
        return found.x, at

    def _part(
        self, row: Array, states: States, rows: Sequence[Row]
    ) -> _Relaxation | None:
        """The program where inputs are between the ends of a node.

        Its triangles are over bounds of the neurons there, by intervals. ``None`` if
        nothing is left of it: too few rows of data, or a neuron that cannot have the
        sign that it is held at.
        """
        box = self._clipped(row)
        if box is None:
            return None
        part = self._problem.on(self._domain.within(*box))
        on = self._free & (states >> 3 == HELD_ON >> 3)
        off = self._free & (states >> 3 == HELD_OFF >> 3)
        low, high = self._bounds.flat()
        known = self._bounds.with_hidden(
            np.where(on, 0.0, low), np.where(off, 0.0, high)
        )
        bounds = Interval().tighten(part, known)
        low, high = bounds.flat()
        if np.any(on & (low < 0.0)) or np.any(off & (high > 0.0)):
            return None  # two proofs crossed
        # A neuron that is off by its bounds has no columns to be held by.
        high = np.where(off, self._bounds.flat()[1], high)
        return _Relaxation(part, bounds.with_hidden(low, high), rows)

    def _box(self, row: Array) -> tuple[Array, Array]:
        """The box of a node."""
        lower, upper = np.array(self._domain.lower), np.array(self._domain.upper)
        lower[self._places], upper[self._places] = self._ends(row)
        return lower, upper

    def _clipped(self, row: Array) -> tuple[Array, Array] | None:
        """Clip the box of a node to regions around data; ``None`` if it is empty."""
        lower, upper = self._box(row)
        values, before = self._domain.values, None
        # Rows that are within reach of the box may not be any more once it is clipped.
        while before is None or not np.array_equal(before, [lower, upper]):
            before = np.array([lower, upper])
            for region in self._domain.regions:
                low, high, empty = region.clip(lower[None], upper[None])
                if empty[0]:
                    return None
                lower, upper = low[0], high[0]
            lower, upper = values.up(lower), values.down(upper)
            if np.any(lower > upper):
                return None
        self._ends(row)[:] = lower[self._places], upper[self._places]
        return lower, upper

    def _near_place(self, x: Array | None, row: Array) -> tuple[int, float]:
        """The input by which most rows of data within reach miss a point, and where.

        That is between the point and the first of those rows: one child loses these
        rows and the other the point; of several inputs the one by which the other child
        loses many rows, too. -1 if the point is near enough.
        """
        lower, upper = self._box(row)
        x = 0.5 * (lower + upper) if x is None else np.clip(x, lower, upper)
        for region in self._domain.regions:
            alive = np.all((region.lower <= upper) & (region.upper >= lower), axis=1)
            low, high = region.lower[alive], region.upper[alive]
            under, over = x < low, x > high
            if np.count_nonzero(~np.any(under | over, axis=1)) >= region.count:
                continue
            # The first end behind the point, and rows that the other child loses.
            after = np.where(under, low, np.inf).min(axis=0)
            before = np.where(over, high, -np.inf).max(axis=0)
            lost = 1 + (high < after).sum(axis=0), 1 + (low > before).sum(axis=0)
            counts = under.sum(axis=0) * lost[0], over.sum(axis=0) * lost[1]
            p, side = np.unravel_index(np.argmax(np.transpose(counts)), (x.size, 2))
            ends = x.copy()
            ends[p] = before[p] if side else np.nextafter(after[p], -np.inf)
            return self._num_neurons + int(p), float(self._domain.values.down(ends)[p])
        return -1, 0.0

    def _discrete_place(
        self, found: Array | None, row: Array, anywhere: bool
    ) -> tuple[int, float]:
        """The discrete input furthest from its values, and the value below it.

        Or, if `anywhere` and none is, the one with the widest range, and the value
        below its middle. Inputs are numbered behind the neurons; -1 if there is none.
        """
        domain = self._domain
        places = np.flatnonzero(domain.values.discrete)
        low, high = (end[places] for end in self._box(row))
        if not places.size:
            return -1, 0.0
        x = domain.centre.copy()
        if found is not None:
            x = found.copy()
            x[places] = np.clip(x[places], low, high)
            below, above = domain.values.down(x)[places], domain.values.up(x)[places]
            missed = np.minimum(x[places] - below, above - x[places])
            missed /= np.where(above > below, above - below, 1.0)
            k = int(np.argmax(missed))
            if missed[k] > LEAN:
                return self._num_neurons + int(places[k]), float(below[k])
        spans = domain.widths[places]
        widths = (high - low) / np.where(spans > 0.0, spans, 1.0)
        k = int(np.argmax(widths))
        if not anywhere or not high[k] > low[k]:
            return -1, 0.0
        x[places] = low + 0.5 * (high - low)
        value = float(domain.values.down(x)[places[k]])
        return self._num_neurons + int(places[k]), value

    def _worst(
        self, found: Array | None, at: _Relaxation, states: States, missed: bool
    ) -> int:
        """The free neuron where the triangle is furthest from ReLU, -1 for none.

        Unless only those count that miss it at the solution, any will do.
        """
        free = states >> 3 == FREE >> 3
        if not free.any():
            return -1
        error = np.zeros(states.size)
        if found is not None:
            padded = np.append(found, 0.0)  # ABSENT reads the zero at the end
            error = np.minimum(padded[at.y], padded[at.s])
        seen = free & (error > LEAN * (at.high - at.low))
        if not seen.any() and (missed and found is not None):
            return -1
        return int(np.argmax(np.where(seen if seen.any() else free, error, -1.0)))
