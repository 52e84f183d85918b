"""Bounds on the pre-activations of every neuron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ennopt.bounds.rounding import UNIT
from ennopt.network import Array, Network, frozen


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NeuronBounds:
    """Proved ``lower <= pre-activation <= upper`` of every neuron of every member.

    Parameters
    ----------
    lower, upper
        ``lower[i][k]`` is the vector of bounds of affine layer k of member i, of
        shape (width,); the last layer of a member is its output.
    """

    lower: tuple[tuple[Array, ...], ...]
    upper: tuple[tuple[Array, ...], ...]

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            own = tuple(
                tuple(frozen(layer) for layer in member)
                for member in getattr(self, name)
            )
            object.__setattr__(self, name, own)
        shapes = [
            [[layer.shape for layer in member] for member in side]
            for side in (self.lower, self.upper)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"Expected lower and upper of one shape, got {shapes[0]} and "
                f"{shapes[1]}."
            )
        for i, (lows, highs) in enumerate(zip(self.lower, self.upper, strict=True)):
            for k, (low, high) in enumerate(zip(lows, highs, strict=True)):
                if not np.all(low <= high):
                    j = int(np.argmin(high - low))
                    raise ValueError(
                        f"Expected lower <= upper, got [{low[j]}, {high[j]}] at member "
                        f"{i}, layer {k}, neuron {j}."
                    )

    @classmethod
    def unknown(cls, networks: Sequence[Network]) -> NeuronBounds:
        """Nothing proved yet: infinite bounds."""
        high = [[np.full(b.size, np.inf) for b in n.biases] for n in networks]
        low = [[-layer for layer in member] for member in high]
        return cls(low, high)  # type: ignore[arg-type]

    def intersect(self, other: NeuronBounds) -> NeuronBounds:
        """The tighter of two valid bounds, neuron by neuron."""
        lower = [
            [np.maximum(a, b) for a, b in zip(mine, yours, strict=True)]
            for mine, yours in zip(self.lower, other.lower, strict=True)
        ]
        upper = [
            [np.minimum(a, b) for a, b in zip(mine, yours, strict=True)]
            for mine, yours in zip(self.upper, other.upper, strict=True)
        ]
        # Two proofs of one number may cross by their rounding margins. Each is true,
        # so the number is between them.
        for lows, highs in zip(lower, upper, strict=True):
            for low, high in zip(lows, highs, strict=True):
                crossed = low > high
                low[crossed], high[crossed] = high[crossed], low[crossed]
        return NeuronBounds(lower, upper)  # type: ignore[arg-type]

    def with_layer(self, i: int, k: int, lower: Array, upper: Array) -> NeuronBounds:
        """A copy with other bounds for layer k of member i."""

        def put(
            side: tuple[tuple[Array, ...], ...], layer: Array
        ) -> tuple[tuple[Array, ...], ...]:
            member = (*side[i][:k], layer, *side[i][k + 1 :])
            return (*side[:i], member, *side[i + 1 :])

        return NeuronBounds(put(self.lower, lower), put(self.upper, upper))

    def with_hidden(self, lower: Array, upper: Array) -> NeuronBounds:
        """A copy with other bounds of all hidden neurons, in the order of `flat`."""
        sides = []
        for flat, side in ((lower, self.lower), (upper, self.upper)):
            at, members = 0, []
            for member in side:
                layers = []
                for layer in member[:-1]:
                    layers.append(flat[at : at + layer.size])
                    at += layer.size
                members.append((*layers, member[-1]))
            sides.append(tuple(members))
        return NeuronBounds(*sides)

    def member(self, i: int) -> NeuronBounds:
        """The bounds of member i alone."""
        return NeuronBounds((self.lower[i],), (self.upper[i],))

    def prediction(self, weights: Array) -> tuple[float, float]:
        """Range of ``sum_i weights[i] * output of member i``, rounding included.

        Parameters
        ----------
        weights
            Factors of the members' first outputs, (num_members,).
        """
        ends = np.array(
            [
                sorted((float(weight) * low[-1][0], float(weight) * high[-1][0]))
                for weight, low, high in zip(
                    weights, self.lower, self.upper, strict=True
                )
            ]
        )
        rounding = 4.0 * len(ends) * UNIT * float(np.abs(ends).max(axis=1).sum())
        return math.fsum(ends[:, 0]) - rounding, math.fsum(ends[:, 1]) + rounding

    def contains(
        self, preactivations: Sequence[Sequence[Array]], slack: float = 0.0
    ) -> bool:
        """Whether values ``preactivations[i][k]`` (..., width) lie in the bounds."""
        return all(
            bool(np.all(h >= low - slack) and np.all(h <= high + slack))
            for lows, highs, member in zip(
                self.lower, self.upper, preactivations, strict=True
            )
            for low, high, h in zip(lows, highs, member, strict=True)
        )

    def unstable(self, i: int, k: int) -> np.ndarray:
        """Which neurons of hidden layer k of member i may be on or off, (width,)."""
        return (self.lower[i][k] < 0) & (self.upper[i][k] > 0)

    def flat(self) -> tuple[Array, Array]:
        """Lower and upper of all hidden neurons, member by member, layer by layer."""
        sides = [
            [layer for member in side for layer in member[:-1]]
            for side in (self.lower, self.upper)
        ]
        lower, upper = (np.concatenate([np.zeros(0), *side]) for side in sides)
        return lower, upper

    @property
    def num_unstable(self) -> int:
        """Number of hidden neurons whose sign is not decided."""
        return sum(
            int(self.unstable(i, k).sum())
            for i, member in enumerate(self.lower)
            for k in range(len(member) - 1)
        )

    @property
    def num_hidden(self) -> int:
        """Number of hidden neurons."""
        return sum(layer.size for member in self.lower for layer in member[:-1])

    @property
    def mean_width(self) -> float:
        """Mean of ``upper - lower`` over the hidden neurons; 0 without any."""
        widths = [
            high - low
            for lows, highs in zip(self.lower, self.upper, strict=True)
            for low, high in zip(lows[:-1], highs[:-1], strict=True)
        ]
        return float(np.mean(np.concatenate(widths))) if widths else 0.0

    def __repr__(self) -> str:
        return (
            f"NeuronBounds({self.num_hidden} hidden neurons, {self.num_unstable} "
            f"unstable, mean width {self.mean_width:.4g})"
        )
