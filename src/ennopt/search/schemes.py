"""What the nodes of a search are: boxes of inputs, or signs of neurons.

A scheme is plain data that opens a tree on a problem, compiled if the extension is
there, else in NumPy; units of work carry it to other processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ennopt.bounds.compiled import compile_model, kernel
from ennopt.bounds.neurons import NeuronBounds
from ennopt.bounds.node import bound_nodes
from ennopt.bounds.nodes import Fate, NodeModel, Nodes, NodeSettings, States
from ennopt.bounds.objective import Objective
from ennopt.milp.formulation import ABSENT, big_m
from ennopt.milp.highs import HotLp
from ennopt.milp.model import Indices, MilpStatus
from ennopt.network import Array, Ensemble
from ennopt.problem import Problem
from ennopt.search.tree import Explored, PlainTree, Tree, tolerance_of

O, U, L = 1, 2, 4  # noqa: E741 - the corners of a neuron, as in src/kernel/program.hpp
FREE, HELD_ON, HELD_OFF = (O | U | L) << 3, (O | U) << 3, (O | L) << 3
"""A neuron of a node of signs in one byte: the corners that are allowed to it, three
bits up; below, those tied in the last basis, which only the kernel uses."""

BETWEEN, FIXED, ON, OFF = (O | U) << 3, O, O | U, O | L
"""Inputs that may move or not; neurons that are on or off on the whole domain."""

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

    def __init__(self, problem: Problem, bounds: NeuronBounds) -> None:
        ensemble, domain = summands(problem), problem.domain
        self.margin = Objective.of(problem.ensemble, domain).margin
        self._low, self._high = bounds.flat()
        self._made = big_m(ensemble, domain, bounds, relaxed=True)
        self._program = HotLp(self._made.model)
        layers = [at for member in self._made.neurons for at in member]
        nowhere: Indices = np.zeros(0, np.int64)
        self._y = np.concatenate([nowhere, *(at.y for at in layers)])
        self._s = np.concatenate([nowhere, *(at.s for at in layers)])
        inputs = np.where(domain.lower < domain.upper, BETWEEN, FIXED)
        neurons = np.where(self._low >= 0.0, ON, np.where(self._high <= 0.0, OFF, FREE))
        states = np.concatenate([inputs, neurons]).astype(np.uint8)
        padded = np.zeros(-(-states.size // 8) * 8, dtype=np.uint8)
        padded[: states.size] = states
        self._num_inputs, self._num_neurons = inputs.size, neurons.size
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
                points.append(self._made.point(found))
            if row[0] <= cutoff:
                continue
            neuron = self._worst(found, states, row[1] == 0.0)
            if neuron >= 0:
                row[1] = 0.0
                for held in (HELD_ON, HELD_OFF):
                    states[neuron] = held
                    parts.append(row.copy())
            elif row[1] == 0.0:
                row[1] = 1.0  # the point is the node's maximum: known, it closes it
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
        upper[self._s[states >> 3 == HELD_ON >> 3]] = 0.0
        upper[self._y[states >> 3 == HELD_OFF >> 3]] = 0.0
        self._program.restrict(model.lower, upper)
        found = self._program.maximize(model.objective, model.offset)
        if found.status is MilpStatus.INFEASIBLE:
            if self._program.refuted():
                row[0] = -math.inf
            return None
        row[0] = min(row[0], found.bound + self.margin)
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
            padded = np.append(found, 0.0)
            there = self._s != ABSENT
            error = np.where(there, np.minimum(padded[self._y], padded[self._s]), 0.0)
        seen = free & (error > LEAN * (self._high - self._low))
        if not seen.any() and (missed and found is not None):
            return -1
        return int(np.argmax(np.where(seen if seen.any() else free, error, -1.0)))
