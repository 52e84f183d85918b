"""What the nodes of a search are: boxes of inputs, or signs of neurons.

A scheme is plain data that opens a tree on a problem, compiled if the extension is
there, else in NumPy; units of work carry it to other processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import INPUT_SETS, Canonical
from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.lines_above import LineAbove, packed
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import (
    FUNCTIONS,
    OFF,
    ON,
    Fate,
    NodeModel,
    Nodes,
    NodeSettings,
)
from ennopt.engine.pool import num_learned, num_weightings, output_ranges, room
from ennopt.engine.tree import Explored, Level, PlainTree, Tolerance, Tree
from ennopt.network import Array

SLOW, VERY_FEW_NEURONS, FEW_NEURONS = 0.8, 8, 32
"""A box is finished by linear programs if very few of its neurons are unstable, or if
few are and its bound keeps more than the share `SLOW` of its parent's distance to the
cutoff. As in src/kernel/scheme.cpp."""


class Scheme(Protocol):
    """What the nodes of a search are."""

    @property
    def kept(self) -> Array:
        """What a checkpoint must have beside the nodes, (2, num_numbers)."""

    @property
    def kept_lines(self) -> Array:
        """And of lines above neurons: the neuron, then slopes, (num_lines, numbers)."""

    def open(
        self, problem: Canonical, gap: float, *, plain: bool = False,
        journal: bool = False,
    ) -> Tree:  # fmt: skip
        """An empty tree.

        Parameters
        ----------
        problem
            What is maximized.
        gap
            Relative gap at which a node is closed.
        plain
            In NumPy, whatever is installed.
        journal
            Whether the tree keeps a journal of splits, clips and closings.
        """


SINGLE_GAP, SINGLE_NEURONS = 1e-6, 64
"""Neurons are bounded in float64 for finer gaps, and where there are fewer of them: a
plateau would be split until margins of float32 are as small as the tolerance."""


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

    @property
    def kept(self) -> Array:
        """Nothing: the settings are the method's own."""
        return np.zeros((0, 0))

    @property
    def kept_lines(self) -> Array:
        """None."""
        return np.zeros((0, 0))

    def open(
        self, problem: Canonical, gap: float, *, plain: bool = False,
        journal: bool = False,
    ) -> Tree:  # fmt: skip
        """An empty tree; see `Scheme`."""
        module, tolerance = kernel(), Tolerance.of(problem, gap)
        # Functions of outputs behind other activations than ReLU are bounded in NumPy.
        compiled = problem.is_sum or problem.is_relu
        if module is None or plain or not compiled:
            boxes = PlainBoxes(problem, replace(self.settings, single=False))
            return PlainTree(problem, boxes, tolerance, journal)
        own = module.Settings()
        for name in NodeSettings.__slots__:
            setattr(own, name, getattr(self.settings, name))
        own.single = bool(
            self.settings.single
            and gap >= SINGLE_GAP
            and problem.num_neurons >= SINGLE_NEURONS
            and problem.spread > 0.0
        )
        known: tuple[Array, int] | tuple[()] = ()
        if not problem.is_sum:  # programs that finish a box learn weightings of risks
            known = output_ranges(problem.root), num_weightings(problem)
        scheme = module.Boxes(compile_model(problem), own, self.instruction_set, *known)
        return compiled_tree(scheme, tolerance, journal)


@dataclass(frozen=True, slots=True, eq=False)
class Signs:
    """Neurons held on or off, on the whole domain, bounded by linear programs.

    Parameters
    ----------
    bounds
        Of the neurons of the problem's networks, valid on its domain.
    instruction_set
        ``""`` for the best of this machine.
    lines
        Lines above neurons, valid on the domain, that programs have as rows.
    """

    bounds: NeuronBounds
    instruction_set: str = ""
    lines: tuple[LineAbove, ...] = ()

    @property
    def kept(self) -> Array:
        """The bounds of the neurons."""
        return np.array(self.bounds.flat())

    @property
    def kept_lines(self) -> Array:
        """The neurons and slopes of the lines above neurons."""
        return packed(self.lines)

    def open(
        self, problem: Canonical, gap: float, *, plain: bool = False,
        journal: bool = False,
    ) -> Tree:  # fmt: skip
        """An empty tree; see `Scheme`."""
        problem.expect(INPUT_SETS | FUNCTIONS, type(self).__name__)
        tolerance = Tolerance.of(problem, gap)
        if kernel() is None or plain:
            from ennopt.engine.program import SignPrograms

            programs = SignPrograms(problem, self.bounds, self.lines)
            return PlainTree(problem, programs, tolerance, journal)
        return compiled_tree(self.compiled(problem), tolerance, journal)

    def compiled(self, problem: Canonical) -> Any:
        """The kernel's scheme; it must be there."""
        return compiled_signs(problem, self.bounds, self.instruction_set, self.lines)


def compiled_signs(
    problem: Canonical, bounds: NeuronBounds, instruction_set: str = "",
    lines: Sequence[LineAbove] = (),
) -> Any:  # fmt: skip
    """Nodes of signs of the kernel, with bounds of the neurons and outputs."""
    module = kernel()
    assert module is not None
    return module.Signs(
        compile_model(problem), *bounds.flat(), instruction_set,
        output_ranges(bounds), num_learned(problem), room(problem),
        [(line.neuron, line.constant, line.slopes.tolist()) for line in lines],
    )  # fmt: skip


def compiled_tree(scheme: Any, tolerance: Tolerance, journal: bool = False) -> Tree:
    """A tree of the kernel for a scheme of the kernel."""
    module = kernel()
    assert module is not None
    tree: Tree = module.Tree(
        scheme, tolerance.gap, tolerance.floor, tolerance.least, journal
    )
    return tree


class PlainBoxes:
    """Boxes in NumPy: rows are `Nodes.packed`."""

    batch = 64

    def __init__(self, problem: Canonical, settings: NodeSettings) -> None:
        self._problem, self._model = problem, NodeModel(problem)
        self._root = Nodes.root(self._model).packed()
        if not self._model.is_relu:  # these refine lines of ReLU
            settings = replace(settings, max_steps=0, output_lines=False, programs=0)
        self._settings = settings

    def root(self) -> Array:
        """The whole domain, (1, num_numbers)."""
        return self._root

    def explore(self, rows: Array, cutoff: float) -> tuple[list[Explored], Array]:
        """Bound nodes, (num_nodes, num_numbers)."""
        batch = Nodes.unpacked(rows, self._model)
        out = bound_nodes(self._model, self._settings, batch, cutoff)
        found = [
            Explored(Fate(fate), node, int(place), float(at), float(dropped))
            for fate, node, place, at, dropped in zip(
                out.fate, batch.packed(), out.split, out.middle, out.dropped,
                strict=True,
            )
        ]  # fmt: skip
        points = [out.points[np.argsort(out.values)[-1:]]]
        if self._model.domain.convex:
            # The points of boxes too thin to split may be outside of a convex region:
            # half-spaces come first, then these boxes are bounded for the last time.
            middles = 0.5 * (batch.lower + batch.upper)
            thick = np.any((batch.lower < middles) & (middles < batch.upper), axis=1)
            waiting = out.points[(out.fate == Fate.AGAIN) & ~thick]
            self.narrow(*self._model.domain.separated(waiting))
        was, most = rows[:, 0] - cutoff, np.full(len(rows), VERY_FEW_NEURONS)
        with np.errstate(invalid="ignore"):
            most[batch.bound - cutoff > SLOW * was] = FEW_NEURONS
        few = batch.num_unstable <= most
        chosen = (out.fate == Fate.SPLIT) & np.isfinite(was) & few & ~out.doubted
        chosen &= self._settings.programs > 0
        for i in np.flatnonzero(chosen).tolist():
            found[i], more = self._finished(found[i], cutoff)
            points.append(more)
        return found, np.concatenate(points)

    def _finished(self, found: Explored, cutoff: float) -> tuple[Explored, Array]:
        """Close a box by linear programs that branch on its few unstable neurons.

        Where the objective is flat along an oblique kink, boxes around it would have
        to be as thin as the tolerance; these programs are exact. If they do not end
        soon, the box is split as it would have been.
        """
        own = Nodes.unpacked(found.node[None], self._model)
        box = self._model.domain.within(own.lower[0], own.upper[0])
        # The bounds of its neurons, once more. They hold under the cut of the box only:
        # what it excludes is below the cutoff.
        out = bound_nodes(self._model, self._settings, own, cutoff)
        found = replace(found, dropped=max(found.dropped, float(out.dropped[0])))
        if out.fate[0] == Fate.CLOSED:
            return replace(found, fate=Fate.CLOSED, node=own.packed()[0]), out.points
        if out.doubted[0]:  # what is known of stable neurons is not written down
            return found, out.points
        state = own.states[0]
        sizes = np.concatenate([s for sizes in self._model.sizes for s in sizes[:-1]])
        low = np.where(state == ON, 0.0, np.where(state == OFF, -sizes, out.lower[0]))
        high = np.where(state == ON, sizes, np.where(state == OFF, 0.0, out.upper[0]))
        from ennopt.engine.program import SignPrograms  # with the kernel none is needed

        known = self._problem.root.with_hidden(low, high)
        alone = replace(self._problem.on(box, known), origin=None)
        tree = PlainTree(alone, SignPrograms(alone, known), Level(cutoff))
        tree.plant()
        tree.explore(self._settings.programs, math.inf, math.inf, dive=1, threads=1)
        if tree.open or tree.bound > cutoff:
            return found, tree.points()[:1]
        bound = min(float(found.node[0]), tree.bound)
        closed = replace(
            found, fate=Fate.CLOSED, dropped=max(found.dropped, bound)
        )  # fmt: skip
        return closed, tree.points()[:1]

    def split(self, node: Array, place: int, at: float) -> tuple[Array, Array]:
        """Both parts of a node."""
        lower, upper = self._model.layout.lower, self._model.layout.upper
        left, right = node.copy(), node.copy()
        left[upper + place] = at
        right[lower + place] = self._model.values.above(place, at)
        return left, right

    def clips(self, before: Array, after: Array) -> Iterator[tuple[int, float, float]]:
        """Inputs whose range became smaller, with the new range."""
        lower, upper = self._model.layout.lower, self._model.layout.upper
        for p in range(self._model.num_inputs):
            low, high = float(after[lower + p]), float(after[upper + p])
            if low > before[lower + p] or high < before[upper + p]:
                yield p, low, high

    def guide(self, points: Array) -> None:
        """Learn what weights risks have at good points."""
        if not self._model.is_sum:
            self._model.guide(points)

    def narrow(self, slopes: Array, sides: Array) -> None:
        """Learn half-spaces that hold on the feasible set; see `Tree.narrow`."""
        self._model.narrow(slopes, sides)
