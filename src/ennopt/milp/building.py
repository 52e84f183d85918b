"""A linear model under construction: columns and rows as growing lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ennopt.milp.model import Flags, Indices, LinearModel
from ennopt.network import Array

ABSENT = -1
"""Column of a variable that does not exist, such as the binary of a stable neuron."""


class Building:
    """Columns and rows so far; `model` makes a `LinearModel` of them."""

    def __init__(self) -> None:
        self._lower: list[Array] = []
        self._upper: list[Array] = []
        self._whole: list[Flags] = []
        self.size = 0
        """Number of columns."""
        self._columns: list[Indices] = []
        self._values: list[Array] = []
        self._sides: list[tuple[float, float]] = []

    def add(self, lower: Array, upper: Array, whole: Flags | bool = False) -> Indices:
        """New columns with these bounds, (num_columns,)."""
        count = lower.size
        self._lower.append(lower)
        self._upper.append(upper)
        self._whole.append(np.broadcast_to(np.asarray(whole, np.bool_), count))
        self.size += count
        return np.arange(self.size - count, self.size, dtype=np.int64)

    def add_some(
        self, wanted: Flags, lower: Array, upper: Array, whole: bool = False
    ) -> Indices:
        """New columns where they are wanted, `ABSENT` elsewhere, (width,)."""
        columns = np.full(wanted.size, ABSENT, dtype=np.int64)
        columns[wanted] = self.add(lower[wanted], upper[wanted], whole)
        return columns

    def row(
        self,
        columns: Sequence[int] | Indices,
        values: Sequence[float] | Array,
        low: float = -np.inf,
        high: float = np.inf,
    ) -> None:
        """A new row ``low <= values @ v[columns] <= high``."""
        self._columns.append(np.array(columns, dtype=np.int64))
        self._values.append(np.array(values, dtype=np.float64))
        self._sides.append((float(low), float(high)))

    def model(self, objective: Array | None = None, offset: float = 0.0) -> LinearModel:
        """What has been built, and an objective, (num_columns,)."""
        sides = np.array(self._sides, dtype=np.float64).reshape(-1, 2)
        lengths = [columns.size for columns in self._columns]
        return LinearModel(
            lower=np.concatenate(self._lower),
            upper=np.concatenate(self._upper),
            objective=np.zeros(self.size) if objective is None else objective,
            integer=np.concatenate(self._whole),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            columns=np.concatenate([*self._columns, np.zeros(0, np.int64)]),
            coefficients=np.concatenate([*self._values, np.zeros(0)]),
            row_lower=sides[:, 0],
            row_upper=sides[:, 1],
            offset=offset,
        )
