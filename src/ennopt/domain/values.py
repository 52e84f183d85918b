"""What values an input may take: any, whole numbers only, or those of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ennopt.network import Array, frozen

Flags = npt.NDArray[np.bool_]

LARGEST_WHOLE = 2.0**53
"""Beyond this not every whole number is a float."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values that each input may take.

    Parameters
    ----------
    whole
        Which inputs take whole numbers only, (num_inputs,).
    lists
        For each input the values it may take, ascending, ``None`` for no list.

    Examples
    --------
    >>> values = Values.of(3, whole=[0], lists={2: [52.5, 32.5, 42.5]})
    >>> values.up(np.array([0.2, 0.2, 40.0]))
    array([ 1. ,  0.2, 42.5])
    >>> values.nearest(np.array([0.6, 0.6, 33.0]))
    array([ 1. ,  0.6, 32.5])
    """

    whole: Flags
    lists: tuple[Array | None, ...]

    def __post_init__(self) -> None:
        whole = np.array(self.whole, dtype=bool)
        whole.setflags(write=False)
        object.__setattr__(self, "whole", whole)
        lists = tuple(
            None if entry is None else frozen(np.unique(frozen(entry)))
            for entry in self.lists
        )
        for j, entry in enumerate(lists):
            if entry is not None and not (entry.size and np.isfinite(entry).all()):
                raise ValueError(
                    f"Expected a list of numbers, got {entry.tolist()!r:.60} at input "
                    f"{j}."
                )
        object.__setattr__(self, "lists", lists)

    @classmethod
    def of(
        cls,
        num_inputs: int,
        whole: Sequence[int] = (),
        lists: Mapping[int, npt.ArrayLike] | None = None,
    ) -> Values:
        """Any value, but for some inputs by their number."""
        flags = np.zeros(num_inputs, dtype=bool)
        flags[list(whole)] = True
        given = dict(lists or {})
        return cls(flags, tuple(given.get(j) for j in range(num_inputs)))  # type: ignore[misc]

    @property
    def discrete(self) -> Flags:
        """Which inputs cannot take any value, (num_inputs,)."""
        listed = np.array([entry is not None for entry in self.lists])
        return np.asarray(self.whole | listed)

    @property
    def any(self) -> bool:
        """Whether every input may take any value."""
        return not bool(self.discrete.any())

    def up(self, x: Array) -> Array:
        """The least allowed value at or above each number, ``inf`` if there is none."""
        found = np.where(self.whole, np.ceil(x), x)
        for j, entry in self._listed():
            place = np.searchsorted(entry, x[..., j], side="left")
            found[..., j] = np.append(entry, np.inf)[place]
        return np.asarray(found)

    def down(self, x: Array) -> Array:
        """The largest allowed value at or below each number, ``-inf`` if none is."""
        found = np.where(self.whole, np.floor(x), x)
        for j, entry in self._listed():
            place = np.searchsorted(entry, x[..., j], side="right")
            found[..., j] = np.insert(entry, 0, -np.inf)[place]
        return np.asarray(found)

    def nearest(self, x: Array) -> Array:
        """The allowed value nearest to each number."""
        found = np.where(self.whole, np.rint(x), x)
        for j, entry in self._listed():
            place = np.searchsorted(0.5 * (entry[1:] + entry[:-1]), x[..., j])
            found[..., j] = entry[place]
        return np.asarray(found)

    def allowed(self, x: Array) -> Flags:
        """Which points (..., num_inputs) have allowed values only, exactly."""
        return np.asarray(np.all(self.nearest(x) == x, axis=-1))

    def above(self, j: int, x: float) -> float:
        """The next allowed value of input `j` above `x`; `x` itself on a continuum."""
        entry = self.lists[j]
        if entry is not None:
            place = int(np.searchsorted(entry, x, side="right"))
            return float(entry[place]) if place < entry.size else np.inf
        return float(np.floor(x) + 1.0) if self.whole[j] else x

    def reordered(self, order: Sequence[int]) -> Values:
        """The values of ``x[order]``."""
        return Values(self.whole[list(order)], tuple(self.lists[j] for j in order))

    def moved(self, shift: Array) -> Values:
        """The values of ``x - shift``, whole numbers for whole numbers."""
        if np.any(self.whole & (shift != np.rint(shift))):
            raise ValueError("Expected whole numbers to move by whole numbers.")
        lists = tuple(
            None if entry is None else entry - shift[j]
            for j, entry in enumerate(self.lists)
        )
        return replace(self, lists=lists)

    def on_units(self, units: Array) -> Values:
        """The values of ``x / units``; whole numbers keep their unit."""
        if np.any(self.whole & (units != 1.0)):
            raise ValueError("Expected whole numbers to keep their unit.")
        lists = tuple(
            None if entry is None else entry / units[j]
            for j, entry in enumerate(self.lists)
        )
        return replace(self, lists=lists)

    def _listed(self) -> list[tuple[int, Array]]:
        return [(j, e) for j, e in enumerate(self.lists) if e is not None]
