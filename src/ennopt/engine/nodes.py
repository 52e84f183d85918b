"""What a search on boxes hands around: nodes in batches, and what becomes of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ennopt.canonical import Canonical
from ennopt.network import Array

Flags = npt.NDArray[np.bool_]
States = npt.NDArray[np.uint8]

SLOPE_MAX, FRESH, ON, OFF = 250, 251, 254, 255
"""A neuron in one byte: unstable with slope ``byte / 250`` below ReLU, or none chosen
yet; on; off."""


class Fate(enum.IntEnum):
    """What becomes of a bounded node."""

    CLOSED = 0
    SPLIT = 1
    AGAIN = 2
    STUCK = 3


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What the bound of a node spends its time on; see `BoxSearch`."""

    max_steps: int = 30
    row_slopes: bool = True
    vertex_lines: bool = True
    output_lines: bool = True
    again: float = 0.8
    programs: int = 64


class NodeModel:
    """A canonical problem in the arrays that `bound_nodes` needs.

    Networks have one output each; the objective is their sum.
    """

    def __init__(self, problem: Canonical) -> None:
        self.networks, self.domain = problem.networks, problem.domain
        self.reach, self.unit = problem.domain.reach, problem.unit
        self.errors, self.sizes = problem.row_errors, problem.row_sizes
        self.spread, self.noise = problem.spread, problem.noise
        self.slopes, self.sides = problem.domain.half_spaces()
        self.num_inputs = problem.num_inputs
        self.num_neurons = problem.num_neurons
        # Of a last hidden layer, neurons that no output rewards: they only ever need
        # the line below ReLU, which holds without bounds.
        parts = []
        for network in self.networks:
            depth = len(network.hidden_widths)
            for k, width in enumerate(network.hidden_widths):
                last = 0 < k == depth - 1
                below = np.all(network.weights[-1] <= 0.0, axis=0)
                parts.append(below if last else np.zeros(width, dtype=bool))
        self.only_below: Flags = np.concatenate([np.zeros(0, bool), *parts])


@dataclass(slots=True, eq=False)
class Nodes:
    """A batch of nodes.

    Parameters
    ----------
    bound
        Proved for each node, (num_nodes,).
    flag
        1 if the node was bounded once already and only clipped since; else minus the
        number of generations in which only rounding kept it open, (num_nodes,).
    constant, cut
        The inherited majorant, (num_nodes,) and (num_nodes, num_inputs).
    lower, upper
        The boxes, (num_nodes, num_inputs).
    states
        One byte per neuron, (num_nodes, num_neurons).
    """

    bound: Array
    flag: Array
    constant: Array
    cut: Array
    lower: Array
    upper: Array
    states: States

    @classmethod
    def root(cls, model: NodeModel) -> Nodes:
        """The whole domain."""
        d, domain = model.num_inputs, model.domain
        return cls(
            bound=np.full(1, np.inf), flag=np.zeros(1), constant=np.full(1, np.inf),
            cut=np.zeros((1, d)), lower=domain.lower[None].copy(),
            upper=domain.upper[None].copy(),
            states=np.full((1, model.num_neurons), FRESH, dtype=np.uint8),
        )  # fmt: skip

    def packed(self) -> Array:
        """One row of numbers per node, as the kernel stores them."""
        count, neurons = self.states.shape
        padded = np.zeros((count, -(-neurons // 8) * 8), dtype=np.uint8)
        padded[:, :neurons] = self.states
        numbers = [self.bound, self.flag, self.constant, self.cut, self.lower]
        return np.ascontiguousarray(
            np.column_stack([*numbers, self.upper, padded.view(np.float64)])
        )

    @classmethod
    def unpacked(cls, rows: Array, model: NodeModel) -> Nodes:
        """The inverse of `packed`."""
        d = model.num_inputs
        tail = np.ascontiguousarray(rows[:, 3 + 3 * d :])
        states = tail.view(np.uint8).reshape(len(rows), 8 * tail.shape[1])[
            :, : model.num_neurons
        ]
        return cls(
            rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy(),
            rows[:, 3 : 3 + d].copy(), rows[:, 3 + d : 3 + 2 * d].copy(),
            rows[:, 3 + 2 * d : 3 + 3 * d].copy(), states.copy(),
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Bounded:
    """What bounding a batch tells besides the new contents of the nodes.

    Parameters
    ----------
    fate, split, middle
        What becomes of each node, the input to branch on and where, (num_nodes,).
    doubted
        Whether the signs of its neurons were forgotten, (num_nodes,).
    dropped
        No point that was closed, clipped away or excluded by the cut here is better,
        (num_nodes,); ``-inf`` if nothing was.
    points, values
        Where each majorant is largest, (num_nodes, num_inputs), and the objective
        there.
    lower, upper
        Bounds of the neurons, (num_nodes, num_neurons); of stable ones unspecified.
    scores
        Branching scores, (num_nodes, num_inputs).
    """

    fate: npt.NDArray[np.int64]
    split: npt.NDArray[np.int64]
    middle: Array
    doubted: Flags
    dropped: Array
    points: Array
    values: Array
    lower: Array
    upper: Array
    scores: Array
