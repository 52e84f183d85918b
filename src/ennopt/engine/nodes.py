"""What a search on boxes hands around: nodes in batches, and what becomes of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ennopt.bounds.rounding import UNIT
from ennopt.canonical import (
    INPUT_SETS,
    Canonical,
    Feature,
    UnsupportedProblemError,
)
from ennopt.network import Array
from ennopt.weighting import Weighting

Flags = npt.NDArray[np.bool_]
States = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]

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
    single: bool = False


FUNCTIONS = frozenset({Feature.LIMITS, Feature.RISK, Feature.WEIGHTS, Feature.OUTPUTS})
"""What an objective and limits may have beside a plain sum."""


class Piece(NamedTuple):
    """An output, or minus an output: what functions are sums of with weights >= 0.

    Parameters
    ----------
    network, row
        Which output of which network.
    output
        Its number among all outputs.
    sign
        Plus or minus one.
    """

    network: int
    row: int
    output: int
    sign: float


class NodeModel:
    """A canonical problem in the arrays that `bound_nodes` needs."""

    def __init__(self, problem: Canonical) -> None:
        mixed = problem.features & FUNCTIONS
        if mixed and not problem.is_relu:
            told = " and ".join(sorted(feature.value for feature in mixed))
            raise UnsupportedProblemError(
                f"Expected ReLU networks for {told}, got other activations. Train with "
                "ReLU, or leave limits and risk out."
            )
        others = FUNCTIONS if problem.is_relu else {Feature.ACTIVATIONS}
        problem.expect(INPUT_SETS | others, "a search on boxes")
        self.problem, self.is_sum = problem, problem.is_sum
        self.networks, self.domain = problem.networks, problem.domain
        self.reach, self.unit = problem.domain.reach, problem.unit
        self.errors, self.sizes = problem.row_errors, problem.row_sizes
        self.spread, self.noise = problem.spread, problem.noise
        self.slopes, self.sides = problem.domain.half_spaces()
        self.values, self.regions = problem.domain.values, problem.domain.regions
        self.num_inputs = problem.num_inputs
        self.gamma, self.is_relu = problem.gamma, problem.is_relu
        # Other neurons than ReLU have no signs to remember.
        self.num_neurons = problem.num_neurons if self.is_relu else 0
        self.pieces = pieces_of(problem)
        self.group_rounding = [
            group_rounding(problem, function)
            for function in (problem.weighting, *problem.limits.functions)
        ]
        self.num_limits = problem.limits.count
        self.guides: list[Array] = []
        self.layout = BoxLayout(self.num_inputs, self.num_neurons, 1 + self.num_limits)
        # Of a last hidden layer, neurons that no output rewards: they only ever need
        # the line below ReLU, which holds without bounds.
        parts = []
        for i, network in enumerate(self.networks):
            used = [
                (piece.row, piece.sign) for piece in self.pieces if piece.network == i
            ]
            rows = np.array([sign * network.weights[-1][row] for row, sign in used])
            depth = len(network.hidden_widths)
            for k, width in enumerate(network.hidden_widths if self.is_relu else ()):
                last = 0 < k == depth - 1
                below = np.all(rows <= 0.0, axis=0) if last else np.zeros(width, bool)
                parts.append(below)
        self.only_below: Flags = np.concatenate([np.zeros(0, bool), *parts])

    def guide(self, points: Array) -> None:
        """Learn what weights of the outputs risks have at good points."""
        outputs = self.problem.outputs(points)
        functions = (self.problem.weighting, *self.problem.limits.functions)
        self.guides = [function.respond(outputs) for function in functions]

    def narrow(self, slopes: Array, sides: Array) -> None:
        """Learn half-spaces ``slopes @ x >= sides`` that hold on the feasible set."""
        self.slopes = np.concatenate([self.slopes, slopes])
        self.sides = np.concatenate([self.sides, sides])


def pieces_of(problem: Canonical) -> tuple[Piece, ...]:
    """The outputs that functions have with a weight above zero, or below."""
    functions = (problem.weighting, *problem.limits.functions)
    found, output = [], 0
    for i, network in enumerate(problem.networks):
        for row in range(network.num_outputs):
            if any(function.rewarded[output] for function in functions):
                found.append(Piece(i, row, output, 1.0))
            if any(function.lowest[output] < 0.0 for function in functions):
                found.append(Piece(i, row, output, -1.0))
            output += 1
    return tuple(found)


def group_rounding(problem: Canonical, function: Weighting) -> float:
    """What weights that are in their set up to rounding may add to a function."""
    sizes = np.concatenate([sizes[-1] for sizes in problem.row_sizes])
    total = 0.0
    for places, risk in function.groups:
        heavy = 1.0 + len(places) * max(0.0, -risk.lowest(len(places)))
        total += 32.0 * len(places) * UNIT * heavy * float(sizes[list(places)].sum())
    return total


@dataclass(frozen=True, slots=True)
class BoxLayout:
    """Where the numbers of a box are in its row, as in src/kernel/model.hpp.

    Bound, past, the constant and the slopes of each cut that it inherits, lower, upper,
    and one byte for each neuron.

    Parameters
    ----------
    num_inputs, num_neurons
        Of the problem.
    num_cuts
        Linear functions that a box inherits: the majorant of the objective, and one for
        each other function that its nodes may have to bound.
    """

    num_inputs: int
    num_neurons: int
    num_cuts: int = 1

    @property
    def lower(self) -> int:
        """Place of the lower ends; the upper ones are behind them."""
        return 2 + self.num_cuts * (1 + self.num_inputs)

    @property
    def upper(self) -> int:
        """Place of the upper ends."""
        return self.lower + self.num_inputs

    @property
    def states(self) -> int:
        """Place of the neurons' bytes."""
        return self.upper + self.num_inputs

    @property
    def stride(self) -> int:
        """Numbers of a row."""
        return self.states + -(-self.num_neurons // 8)

    def pack(
        self, heads: Array, cuts: Array, lower: Array, upper: Array, states: States
    ) -> Array:
        """Rows, (num_nodes, stride).

        Parameters
        ----------
        heads
            Bounds and pasts, (num_nodes, 2).
        cuts
            Constants, then slopes, (num_nodes, num_cuts, 1 + num_inputs).
        lower, upper
            (num_nodes, num_inputs)
        states
            (num_nodes, num_neurons)
        """
        rows = np.zeros((len(heads), self.stride))
        rows[:, :2] = heads
        rows[:, 2 : self.lower] = cuts.reshape(len(heads), self.lower - 2)
        rows[:, self.lower : self.upper] = lower
        rows[:, self.upper : self.states] = upper
        rows.view(np.uint8)[:, 8 * self.states :][:, : self.num_neurons] = states
        return rows

    def unpack(self, rows: Array) -> tuple[Array, Array, Array, Array, States]:
        """The inverse of `pack`; copies."""
        rows = np.ascontiguousarray(rows)
        shape = len(rows), self.num_cuts, 1 + self.num_inputs
        states = rows.view(np.uint8)[:, 8 * self.states :][:, : self.num_neurons]
        return (
            rows[:, :2].copy(),
            rows[:, 2 : self.lower].reshape(shape).copy(),
            rows[:, self.lower : self.upper].copy(),
            rows[:, self.upper : self.states].copy(),
            states.copy(),
        )


class Past(NamedTuple):
    """What each box of a batch remembers of itself and its parents.

    Parameters
    ----------
    again
        Whether it was bounded once already and only clipped since, (num_nodes,).
    generations
        How many in a row only rounding kept it open, (num_nodes,).
    """

    again: Flags
    generations: Counts

    @classmethod
    def of(cls, packed: Array) -> Past:
        """From one number for each box."""
        bits = packed.astype(np.int64)
        return cls(bits % 2 == 1, bits // 2)

    def packed(self) -> Array:
        """One number for each box, as in src/kernel/model.hpp."""
        again = self.again.astype(np.float64)
        return np.asarray(again + 2.0 * self.generations)


@dataclass(slots=True, eq=False)
class Nodes:
    """A batch of nodes.

    Parameters
    ----------
    bound
        Proved for each node, (num_nodes,).
    past
        `Past` of each node, packed, (num_nodes,).
    constant, cut
        The inherited majorant, (num_nodes,) and (num_nodes, num_inputs).
    limits
        Inherited majorants of how far limits are exceeded: constants, then slopes,
        (num_nodes, num_limits, 1 + num_inputs).
    lower, upper
        The boxes, (num_nodes, num_inputs).
    states
        One byte per neuron, (num_nodes, num_neurons).
    """

    bound: Array
    past: Array
    constant: Array
    cut: Array
    limits: Array
    lower: Array
    upper: Array
    states: States

    @classmethod
    def root(cls, model: NodeModel) -> Nodes:
        """The whole domain."""
        d, domain = model.num_inputs, model.domain
        limits = np.zeros((1, model.num_limits, 1 + d))
        limits[..., 0] = np.inf
        return cls(
            bound=np.full(1, np.inf), past=np.zeros(1), constant=np.full(1, np.inf),
            cut=np.zeros((1, d)), limits=limits, lower=domain.lower[None].copy(),
            upper=domain.upper[None].copy(),
            states=np.full((1, model.num_neurons), FRESH, dtype=np.uint8),
        )  # fmt: skip

    @property
    def num_unstable(self) -> Counts:
        """Unstable neurons of each node, (num_nodes,)."""
        return np.asarray(np.count_nonzero(self.states < ON, axis=1))

    def packed(self) -> Array:
        """One row of numbers per node, as the kernel stores them."""
        cuts = np.column_stack([self.constant, self.cut])[:, None]
        cuts = np.concatenate([cuts, self.limits], axis=1)
        layout = BoxLayout(self.lower.shape[1], self.states.shape[1], cuts.shape[1])
        heads = np.column_stack([self.bound, self.past])
        return layout.pack(heads, cuts, self.lower, self.upper, self.states)

    @classmethod
    def unpacked(cls, rows: Array, model: NodeModel) -> Nodes:
        """The inverse of `packed`."""
        heads, cuts, lower, upper, states = model.layout.unpack(rows)
        return cls(
            heads[:, 0], heads[:, 1], cuts[:, 0, 0], cuts[:, 0, 1:], cuts[:, 1:],
            lower, upper, states,
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
