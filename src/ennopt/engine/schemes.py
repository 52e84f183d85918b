"""What the nodes of a search are: boxes of inputs, or signs of neurons.

A scheme is plain data that opens a tree on a problem, compiled if the extension is
there, else in NumPy; units of work carry it to other processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import Fate, NodeModel, Nodes, NodeSettings, States
from ennopt.engine.objective import Objective
from ennopt.engine.tree import Explored, PlainTree, Tree, tolerance_of
from ennopt.milp.formulation import ABSENT, big_m
from ennopt.milp.highs import HotLp
from ennopt.milp.model import Indices
from ennopt.milp.scaling import normalized
from ennopt.milp.solver import MilpStatus
from ennopt.network import Array, Ensemble
from ennopt.problem import Problem

O, U, L = 1, 2, 4  # noqa: E741 - the corners of a neuron, as in src/kernel/model.hpp
FREE, HELD_ON, HELD_OFF = (O | U | L) << 3, (O | U) << 3, (O | L) << 3
"""A neuron of a node of signs in one byte: the corners that are allowed to it, three
bits up; below, those tied in the last basis, which only the kernel uses."""

LEAN = 1e-9
"""Share of a neuron's range by which the triangle may miss ReLU unnoticed."""


class Scheme(Protocol):
    """What the nodes of a search are."""

    def open(self, problem: Problem, gap: float, plain: bool = False) -> Tree:
        """An empty tree; `plain` for one in NumPy whatever is installed."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of inputs, halved, and bounded by linear relaxations.

    Parameters
    ----------
    settings
        What the bound of a node spends its time on.
    instruction_set
        ``""`` for the best of this machine.
    """

    settings: NodeSettings = NodeSettings()  # noqa: RUF009 - frozen
    instruction_set: str = ""

    def open(self, problem: Problem, gap: float, plain: bool = False) -> Tree:
        """An empty tree; `plain` for one in NumPy whatever is installed."""
        module, domain = kernel(), problem.domain
        if module is None or plain:
            return PlainTree(problem, _PlainBoxes(problem, self.settings), gap)
        own = module.Settings()
        for name in NodeSettings.__slots__:
            setattr(own, name, getattr(self.settings, name))
        model = compile_model(problem.ensemble, domain)
        scheme = module.Boxes(
            model, own, domain.lower, domain.upper, self.instruction_set
        )
        return _compiled(scheme, problem, gap, model.margin)


@dataclass(frozen=True, slots=True, eq=False)
class Signs:
    """Neurons held on or off, on the whole domain, bounded by linear programs.

    Parameters
    ----------
    bounds
        Of the neurons of `summands`, valid on the domain.
    instruction_set
        ``""`` for the best of this machine.
    """

    bounds: NeuronBounds
    instruction_set: str = ""

    def open(self, problem: Problem, gap: float, plain: bool = False) -> Tree:
        """An empty tree; `plain` for one in NumPy whatever is installed."""
        module, domain = kernel(), problem.domain
        if module is None or plain:
            return PlainTree(problem, _PlainSigns(problem, self.bounds), gap)
        model = compile_model(problem.ensemble, domain)
        scheme = module.Signs(
            model, domain.lower, domain.upper, *self.bounds.flat(), self.instruction_set
        )
        return _compiled(scheme, problem, gap, model.margin)


def summands(problem: Problem) -> Ensemble:
    """The ensemble as a plain sum: what the bounds of `Signs` are about."""
    members = Objective.of(problem.ensemble, problem.domain).members
    return Ensemble(members, weights=np.ones(len(members)))


def _compiled(scheme: Any, problem: Problem, gap: float, margin: float) -> Tree:
    module, rule = kernel(), tolerance_of(problem, gap, margin)
    assert module is not None
    tree: Tree = module.Tree(scheme, rule.gap, rule.floor, rule.least)
    return tree


class _PlainBoxes:
    """Boxes in NumPy: rows are `Nodes.packed`."""

    batch = 64

    def __init__(self, problem: Problem, settings: NodeSettings) -> None:
        self._model = NodeModel(problem.ensemble, problem.domain)
        self._root = Nodes.root(self._model, problem.domain).packed()
        self._settings, self.margin = settings, self._model.margin

    def root(self) -> Array:
        """The whole domain, (1, num_numbers)."""
        return self._root

    def explore(self, rows: Array, cutoff: float) -> Explored:
        """Bound nodes, (num_nodes, num_numbers), and branch."""
        d = self._model.num_inputs
        batch = Nodes.unpacked(rows, d, self._model.num_neurons)
        out = bound_nodes(self._model, self._settings, batch, cutoff)
        kept = batch.packed()
        split = np.flatnonzero(out.fate == Fate.SPLIT)
        left, right, inputs = kept[split], kept[split].copy(), out.split[split]
        left[np.arange(len(split)), 3 + 2 * d + inputs] = out.middle[split]
        right[np.arange(len(split)), 3 + d + inputs] = out.middle[split]
        again = kept[out.fate == Fate.AGAIN]
        stuck = batch.bound[out.fate == Fate.STUCK]
        best = np.argsort(out.values)[-1:]
        return Explored(
            np.concatenate([again, left, right]),
            out.points[best],
            float(stuck.max(initial=-math.inf)),
        )


class _PlainSigns:
    """Signs of neurons, their linear programs by HiGHS.

    Rows are as in the kernel: bound, flag, and one byte for each input and neuron.
    """

    batch = 1

    def __init__(self, problem: Problem, bounds: NeuronBounds) -> None:
        ensemble, domain = summands(problem), problem.domain
        self.margin = Objective.of(problem.ensemble, domain).margin
        self._scaled = normalized(ensemble, domain, bounds)
        self._made = big_m(
            self._scaled.ensemble, self._scaled.domain, self._scaled.bounds,
            relaxed=True,
        )  # fmt: skip
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

    def explore(self, rows: Array, cutoff: float) -> Explored:
        """Bound nodes, (num_nodes, num_numbers), and branch."""
        parts: list[Array] = []
        points: list[Array] = []
        stuck = -math.inf
        for row in np.array(rows):
            states = row[2:].view(np.uint8)[self._num_inputs :][: self._num_neurons]
            found = self._bound(row, states)
            if found is not None:
                points.append(self._made.point(found) * self._scaled.inputs)
            if row[0] <= cutoff:
                continue
            neuron = self._worst(found, states, row[1] == 0.0)
            if neuron >= 0:
                row[1] = 0.0
                for held in (HELD_ON, HELD_OFF):
                    states[neuron] = held
                    parts.append(row.copy())
            elif row[1] == 0.0:
                row[1] = 1.0  # if this point is its maximum, it closes the node
                parts.append(row)
            else:
                stuck = max(stuck, float(row[0]))
        width, d = rows.shape[1], self._num_inputs
        return Explored(
            np.array(parts).reshape(-1, width), np.array(points).reshape(-1, d), stuck
        )

    def _bound(self, row: Array, states: States) -> Array | None:
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
        row[0] = min(row[0], found.bound * self._scaled.output + self.margin)
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
