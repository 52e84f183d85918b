"""What the nodes of a search are: boxes of inputs, or signs of neurons.

A scheme is plain data that opens a tree on a problem, compiled if the extension is
there, else in NumPy; units of work carry it to other processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.node import bound_nodes
from ennopt.engine.nodes import Fate, NodeModel, Nodes, NodeSettings
from ennopt.engine.program import SignPrograms
from ennopt.engine.tree import Explored, PlainTree, Tolerance, Tree
from ennopt.network import Array


class Scheme(Protocol):
    """What the nodes of a search are."""

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

    def open(
        self, problem: Canonical, gap: float, *, plain: bool = False,
        journal: bool = False,
    ) -> Tree:  # fmt: skip
        """An empty tree; see `Scheme`."""
        module, tolerance = kernel(), Tolerance.of(problem, gap)
        if module is None or plain:
            boxes = PlainBoxes(problem, self.settings)
            return PlainTree(problem, boxes, tolerance, journal)
        own = module.Settings()
        for name in NodeSettings.__slots__:
            setattr(own, name, getattr(self.settings, name))
        scheme = module.Boxes(compile_model(problem), own, self.instruction_set)
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
    """

    bounds: NeuronBounds
    instruction_set: str = ""

    def open(
        self, problem: Canonical, gap: float, *, plain: bool = False,
        journal: bool = False,
    ) -> Tree:  # fmt: skip
        """An empty tree; see `Scheme`."""
        module, tolerance = kernel(), Tolerance.of(problem, gap)
        if module is None or plain:
            programs = SignPrograms(problem, self.bounds)
            return PlainTree(problem, programs, tolerance, journal)
        model = compile_model(problem)
        scheme = module.Signs(model, *self.bounds.flat(), self.instruction_set)
        return compiled_tree(scheme, tolerance, journal)


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
        self._model = NodeModel(problem)
        self._root = Nodes.root(self._model).packed()
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
        return found, out.points[np.argsort(out.values)[-1:]]

    def split(self, node: Array, place: int, at: float) -> tuple[Array, Array]:
        """Both parts of a node."""
        lower, upper = self._ends()
        left, right = node.copy(), node.copy()
        left[upper + place] = right[lower + place] = at
        return left, right

    def clips(self, before: Array, after: Array) -> Iterator[tuple[int, float, float]]:
        """Inputs whose range became smaller, with the new range."""
        lower, upper = self._ends()
        for p in range(self._model.num_inputs):
            low, high = float(after[lower + p]), float(after[upper + p])
            if low > before[lower + p] or high < before[upper + p]:
                yield p, low, high

    def _ends(self) -> tuple[int, int]:
        d = self._model.num_inputs
        return 3 + d, 3 + 2 * d
