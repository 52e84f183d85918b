"""The linear programs of nodes of signs, by HiGHS: the reference of the kernel's own.

`src/kernel/program.hpp` solves the same programs by a simplex method that knows the
network. Without the extension this is what answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.nodes import Fate, States
from ennopt.engine.tree import Explored
from ennopt.milp.building import ABSENT
from ennopt.milp.formulation import big_m
from ennopt.milp.highs import HotLp
from ennopt.milp.model import Indices
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


class _Relaxation:
    """The linear program of a problem with triangles over bounds of its neurons."""

    def __init__(self, problem: Canonical, bounds: NeuronBounds) -> None:
        # Points of convex regions are found, and their half-spaces learned, elsewhere.
        problem = replace(problem, domain=replace(problem.domain, convex=()))
        self.scaled = normalized(problem, bounds)
        self.made = big_m(self.scaled.problem, self.scaled.bounds, relaxed=True)
        self.program = HotLp(self.made.model)
        self.low, self.high = self.scaled.bounds.flat()
        layers = [at for member in self.made.neurons for at in member]
        nowhere: Indices = np.zeros(0, np.int64)
        self.y = np.concatenate([nowhere, *(at.y for at in layers)])
        self.s = np.concatenate([nowhere, *(at.s for at in layers)])

    def inputs(self, found: Array) -> Array:
        """Where a solution of the program is, (num_inputs,)."""
        return found[self.made.inputs] * self.scaled.inputs


class SignPrograms:
    """Nodes of signs, their linear programs by HiGHS.

    Rows are as in the kernel: bound, flag, lower and upper ends of the inputs that do
    not take every value, and one byte for each input, neuron and half-space.
    """

    batch = 1

    def __init__(self, problem: Canonical, bounds: NeuronBounds) -> None:
        domain = problem.domain
        # The last sums of the networks, and their sum.
        self._margin = sum(float(errors[-1].sum()) for errors in problem.row_errors)
        self._problem, self._bounds = problem, bounds
        self._relaxed = _Relaxation(problem, bounds)
        low, high = bounds.flat()
        d, n = domain.num_inputs, low.size
        count = d + n + len(domain.half_spaces()[1])
        padded = np.zeros(-(-count // 8) * 8, dtype=np.uint8)
        padded[:count] = HELD_ON  # between two corners
        padded[d : d + n] = np.where(
            low >= 0.0, HELD_ON, np.where(high <= 0.0, HELD_OFF, FREE)
        )
        self._free = (low < 0.0) & (high > 0.0)
        self._num_inputs, self._num_neurons = d, n
        self._domain = domain
        self._places = np.flatnonzero(domain.values.discrete)
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
            solution, at = self.bound(row, states)
            if solution is not None:
                points.append(at.made.point(solution) * at.scaled.inputs)
            if row[0] <= cutoff:
                found.append(Explored(Fate.CLOSED, row, dropped=float(row[0])))
                continue
            place, middle = self._worst(solution, at, states, row[1] == 0.0), 0.0
            if place < 0:
                x = None if solution is None else at.inputs(solution)
                place, middle = self._discrete_place(x, row, row[1] == 1.0)
            if place >= 0:
                row[1] = 0.0
                found.append(Explored(Fate.SPLIT, row, place, middle))
            elif row[1] == 0.0:
                row[1] = 1.0  # if this point is its maximum, it closes the node
                found.append(Explored(Fate.AGAIN, row))
            else:
                found.append(Explored(Fate.STUCK, row))
        return found, np.array(points).reshape(-1, self._num_inputs)

    def guide(self, points: Array) -> None:
        """Nothing: a sum has no weights to choose."""

    def split(self, node: Array, place: int, at: float) -> tuple[Array, Array]:
        """The neuron held on, and held off; or an input up to a value, and above it."""
        on, off = node.copy(), node.copy()
        if (p := place - self._num_neurons) >= 0:
            k = int(np.searchsorted(self._places, p))
            self._ends(on)[1, k] = at
            self._ends(off)[0, k] = self._domain.values.above(p, at)
            return on, off
        self._states(on)[place], self._states(off)[place] = HELD_ON, HELD_OFF
        return on, off

    def narrow(self, slopes: Array, sides: Array) -> None:
        """Refused: a node of signs is on a box."""
        raise ValueError("Expected nodes of boxes to narrow, got nodes of signs.")

    def clips(self, before: Array, after: Array) -> Iterator[tuple[int, float, float]]:
        """None: a node of signs is on the whole domain."""
        yield from ()

    def _ends(self, row: Array) -> Array:
        """Lower and upper ends of the discrete inputs, (2, num_discrete)."""
        return row[2 : 2 + 2 * self._places.size].reshape(2, -1)

    def _states(self, row: Array) -> States:
        after = row[2 + 2 * self._places.size :].view(np.uint8)
        return after[self._num_inputs :][: self._num_neurons]

    def bound(self, row: Array, states: States) -> tuple[Array | None, _Relaxation]:
        """Lower the bound in `row`; returns a solution, if any, and of what program."""
        at = self._part(row, states) if self._places.size else self._relaxed
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

    def _part(self, row: Array, states: States) -> _Relaxation | None:
        """The program where discrete inputs are between the ends of a node.

        Its triangles are over bounds of the neurons there, by intervals. ``None`` if a
        neuron cannot have the sign that it is held at.
        """
        lower, upper = np.array(self._domain.lower), np.array(self._domain.upper)
        lower[self._places], upper[self._places] = self._ends(row)
        part = self._problem.on(self._domain.within(lower, upper))
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
        return _Relaxation(part, bounds.with_hidden(low, high))

    def _discrete_place(
        self, found: Array | None, row: Array, anywhere: bool
    ) -> tuple[int, float]:
        """The discrete input furthest from its values, and the value below it.

        Or, if `anywhere` and none is, the one with the widest range, and the value
        below its middle. Inputs are numbered behind the neurons; -1 if there is none.
        """
        low, high = self._ends(row)
        places, domain = self._places, self._domain
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
