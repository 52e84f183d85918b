"""The linear programs of nodes of signs, by HiGHS: the reference of the kernel's own.

`src/kernel/program.hpp` solves the same programs by a simplex method that knows the
network. Without the extension this is what answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.nodes import Fate, States
from ennopt.engine.tree import Explored
from ennopt.milp.formulation import ABSENT, big_m
from ennopt.milp.highs import HotLp
from ennopt.milp.model import Indices
from ennopt.milp.scaling import normalized
from ennopt.milp.solver import MilpStatus
from ennopt.network import Array

O, U, L = 1, 2, 4  # noqa: E741 - the corners of a neuron, as in src/kernel/model.hpp
FREE, HELD_ON, HELD_OFF = (O | U | L) << 3, (O | U) << 3, (O | L) << 3
"""A neuron of a node of signs in one byte: the corners that are allowed to it, three
bits up; below, those tied in the last basis, which only the kernel uses."""

LEAN = 1e-9
"""Share of a neuron's range by which the triangle may miss ReLU unnoticed."""


class SignPrograms:
    """Nodes of signs, their linear programs by HiGHS.

    Rows are as in the kernel: bound, flag, and one byte for each input and neuron.
    """

    batch = 1

    def __init__(self, problem: Canonical, bounds: NeuronBounds) -> None:
        domain = problem.domain
        # The last sums of the networks, and their sum.
        self._margin = sum(float(errors[-1].sum()) for errors in problem.row_errors)
        self._scaled = normalized(problem, bounds)
        self._made = big_m(self._scaled.problem, self._scaled.bounds, relaxed=True)
        self._program = HotLp(self._made.model)
        self._low, self._high = self._scaled.bounds.flat()
        layers = [at for member in self._made.neurons for at in member]
        nowhere: Indices = np.zeros(0, np.int64)
        self._y = np.concatenate([nowhere, *(at.y for at in layers)])
        self._s = np.concatenate([nowhere, *(at.s for at in layers)])
        d, n = domain.num_inputs, self._low.size
        padded = np.zeros(-(-(d + n) // 8) * 8, dtype=np.uint8)
        padded[:d] = HELD_ON  # between two corners
        padded[d : d + n] = np.where(
            self._low >= 0.0, HELD_ON, np.where(self._high <= 0.0, HELD_OFF, FREE)
        )
        self._num_inputs, self._num_neurons = d, n
        self._root = np.concatenate([[np.inf, 0.0], padded.view(np.float64)])[None]

    def root(self) -> Array:
        """The whole domain, (1, num_numbers)."""
        return self._root

    def explore(self, rows: Array, cutoff: float) -> tuple[list[Explored], Array]:
        """Bound nodes, (num_nodes, num_numbers)."""
        found: list[Explored] = []
        points: list[Array] = []
        for row in np.array(rows):
            states = self._states(row)
            solution = self.bound(row, states)
            if solution is not None:
                points.append(self._made.point(solution) * self._scaled.inputs)
            if row[0] <= cutoff:
                found.append(Explored(Fate.CLOSED, row, dropped=float(row[0])))
                continue
            neuron = self._worst(solution, states, row[1] == 0.0)
            if neuron >= 0:
                row[1] = 0.0
                found.append(Explored(Fate.SPLIT, row, neuron))
            elif row[1] == 0.0:
                row[1] = 1.0  # if this point is its maximum, it closes the node
                found.append(Explored(Fate.AGAIN, row))
            else:
                found.append(Explored(Fate.STUCK, row))
        return found, np.array(points).reshape(-1, self._num_inputs)

    def split(self, node: Array, place: int, at: float) -> tuple[Array, Array]:
        """The neuron held on, and held off."""
        on, off = node.copy(), node.copy()
        self._states(on)[place], self._states(off)[place] = HELD_ON, HELD_OFF
        return on, off

    def clips(self, before: Array, after: Array) -> Iterator[tuple[int, float, float]]:
        """None: a node of signs is on the whole domain."""
        yield from ()

    def _states(self, row: Array) -> States:
        return row[2:].view(np.uint8)[self._num_inputs :][: self._num_neurons]

    def bound(self, row: Array, states: States) -> Array | None:
        """Lower the bound in `row`; returns the program's solution, if any."""
        model = self._made.model
        upper = model.upper.copy()
        unstable = self._s != ABSENT
        upper[self._s[unstable & (states >> 3 == HELD_ON >> 3)]] = 0.0
        upper[self._y[unstable & (states >> 3 == HELD_OFF >> 3)]] = 0.0
        self._program.restrict(model.lower, upper)
        found = self._program.maximize(model.objective, model.offset)
        if found.status is MilpStatus.INFEASIBLE:
            if self._program.refuted():
                row[0] = -math.inf
            return None
        row[0] = min(row[0], found.bound * self._scaled.output + self._margin)
        return found.x

    def _worst(self, found: Array | None, states: States, missed: bool) -> int:
        """The free neuron where the triangle is furthest from ReLU, -1 for none.

        Unless only those count that miss it at the solution, any will do.
        """
        free = states >> 3 == FREE >> 3
        if not free.any():
            return -1
        error = np.zeros(states.size)
        if found is not None:
            padded = np.append(found, 0.0)  # ABSENT reads the zero at the end
            error = np.minimum(padded[self._y], padded[self._s])
        seen = free & (error > LEAN * (self._high - self._low))
        if not seen.any() and (missed and found is not None):
            return -1
        return int(np.argmax(np.where(seen if seen.any() else free, error, -1.0)))
