"""What a search hands around: nodes in batches, and what bounding them tells."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ennopt.bounds.rounding import magnitudes, margins
from ennopt.domain import Domain
from ennopt.engine.objective import Objective
from ennopt.network import Array, Ensemble

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


class NodeModel:
    """A one-output ensemble with its rounding margins, ready for `bound_nodes`."""

    def __init__(self, ensemble: Ensemble, domain: Domain) -> None:
        objective = Objective.of(ensemble, domain)
        self.members, self.reach = objective.members, objective.reach
        self.margin, self.unit = objective.margin, objective.unit
        self.spread = objective.spread
        self.margins = [margins(member, self.reach) for member in self.members]
        self.sizes = [magnitudes(member, self.reach) for member in self.members]
        self.num_inputs = domain.num_inputs
        self.num_neurons = sum(member.num_neurons for member in self.members)
        below = [
            (np.arange(len(member.hidden_widths)) + 1 == len(member.hidden_widths))
            & (np.arange(len(member.hidden_widths)) > 0)
            for member in self.members
        ]
        parts = [
            (member.weights[-1][0] <= 0.0) if below[i][k] else np.zeros(n, dtype=bool)
            for i, member in enumerate(self.members)
            for k, n in enumerate(member.hidden_widths)
        ]
        self.only_below: Flags = np.concatenate(parts) if parts else np.zeros(0, bool)


@dataclass(slots=True, eq=False)
class Nodes:
    """A batch of nodes.

    Parameters
    ----------
    bound
        Proved for each node, (num_nodes,).
    flag
        1 if the node was bounded once already and only clipped since, (num_nodes,).
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
    def root(cls, model: NodeModel, domain: Domain) -> Nodes:
        """The whole domain."""
        d = model.num_inputs
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
    def unpacked(cls, rows: Array, num_inputs: int, num_neurons: int) -> Nodes:
        """The inverse of `packed`."""
        d = num_inputs
        tail = np.ascontiguousarray(rows[:, 3 + 3 * d :])
        states = tail.view(np.uint8).reshape(len(rows), 8 * tail.shape[1])[
            :, :num_neurons
        ]
        return cls(
            rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy(),
            rows[:, 3 : 3 + d].copy(), rows[:, 3 + d : 3 + 2 * d].copy(),
            rows[:, 3 + 2 * d : 3 + 3 * d].copy(), states.copy(),
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Outcome:
    """What bounding a batch tells besides the new contents of the nodes.

    Parameters
    ----------
    fate, split, middle
        What becomes of each node, the input to branch on and where, (num_nodes,).
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
    points: Array
    values: Array
    lower: Array
    upper: Array
    scores: Array
