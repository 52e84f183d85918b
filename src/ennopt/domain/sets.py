"""The feasible set: what a search and a model may ask of it.

Today a box. Linear rows, integers and categories join here: a search only asks for
`support` (the largest value of a linear function on a node), `split`, `sample`,
`project` and `contains`, so a new kind of set needs no new search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.network import Array, Ensemble, frozen


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Box ``lower <= x <= upper`` in original units. An empty one cannot be built.

    Parameters
    ----------
    lower, upper
        (num_inputs,), finite.
    names
        Name of each input, ``None`` for ``x0, x1, ...``.

    Examples
    --------
    >>> box = Domain([0, -1], [1, 1], names=("dose", "heat"))
    >>> box.support(np.array([2.0, -1.0]))
    (3.0, array([ 1., -1.]))
    >>> Domain([0, 0], [1, -1], names=("dose", "heat"))
    Traceback (most recent call last):
    ...
    ValueError: Expected lower <= upper, got [0, -1] at input heat. ...
    """

    lower: Array
    upper: Array
    names: tuple[str, ...] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        lower, upper = frozen(self.lower), frozen(self.upper)
        if lower.ndim != 1 or lower.size == 0 or upper.shape != lower.shape:
            raise ValueError(
                "Expected lower and upper as vectors of one length, got shapes "
                f"{lower.shape} and {upper.shape}. Give one bound for each input."
            )
        names = self.names
        if names is None:
            names = tuple(f"x{j}" for j in range(lower.size))
        names = tuple(str(name) for name in names)
        if len(names) != lower.size or len(set(names)) != len(names):
            raise ValueError(
                f"Expected {lower.size} different names, got {list(names)!r:.200}."
            )
        for j, name in enumerate(names):
            low, high = lower[j], upper[j]
            if not (np.isfinite(low) and np.isfinite(high)):
                raise ValueError(
                    f"Expected finite bounds, got [{low:g}, {high:g}] at input {name}. "
                    "Give the range in which the model may be trusted."
                )
            if low > high:
                raise ValueError(
                    f"Expected lower <= upper, got [{low:g}, {high:g}] at input "
                    f"{name}. Exchange them."
                )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "names", names)

    @classmethod
    def from_data(cls, data: Any, names: Sequence[str] | None = None) -> Domain:
        """The range of training data.

        Parameters
        ----------
        data
            (num_rows, num_inputs), an array or a DataFrame; the columns of a
            DataFrame give the names.
        names
            Names of the columns of an array.
        """
        columns = getattr(data, "columns", None)
        if columns is not None and names is None:
            names = [str(column) for column in columns]
        try:
            table = np.asarray(data, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Expected numeric columns, got {error}. Encode or drop other columns."
            ) from error
        if table.ndim != 2 or 0 in table.shape:
            raise ValueError(
                f"Expected data of shape (num_rows, num_inputs), got {table.shape}."
            )
        bad = ~np.isfinite(table).all(axis=0)
        if bad.any():
            j = int(np.argmax(bad))
            name = names[j] if names is not None and j < len(names) else f"x{j}"
            raise ValueError(
                f"Expected finite data, got NaN or infinity at input {name}. "
                "Fill or drop those rows."
            )
        return cls(table.min(axis=0), table.max(axis=0), names and tuple(names))  # type: ignore[arg-type]

    @classmethod
    def of(cls, spec: Any, ensemble: Ensemble) -> Domain:
        """Read whatever a user may give; see `ennopt.domain.reading.read_domain`."""
        from ennopt.domain.reading import read_domain

        return read_domain(spec, ensemble)

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return int(self.lower.size)

    @property
    def widths(self) -> Array:
        """``upper - lower``, (num_inputs,)."""
        return self.upper - self.lower

    def contains(self, x: npt.ArrayLike, slack: float = 0.0) -> bool:
        """Whether `x` lies in the set, `slack` beyond its bounds allowed."""
        point = np.asarray(x, dtype=np.float64)
        return bool(
            np.all(point >= self.lower - slack) and np.all(point <= self.upper + slack)
        )

    def project(self, x: npt.ArrayLike) -> Array:
        """The nearest point of the set, of each row of `x`."""
        return np.clip(np.asarray(x, dtype=np.float64), self.lower, self.upper)

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Uniform random points, (count, num_inputs)."""
        return self.project(
            self.lower + rng.random((count, self.num_inputs)) * self.widths
        )

    def support(self, direction: Array) -> tuple[float, Array]:
        """Largest value of ``direction @ x`` on the set, and where."""
        point = np.where(direction > 0, self.upper, self.lower)
        return float(direction @ point), point

    def split(self, j: int, at: float) -> tuple[Domain, Domain]:
        """Two sets that cover this one and meet at ``x[j] == at``."""
        left_upper, right_lower = self.upper.copy(), self.lower.copy()
        left_upper[j] = right_lower[j] = at
        return (
            Domain(self.lower, left_upper, self.names),
            Domain(right_lower, self.upper, self.names),
        )

    def __repr__(self) -> str:
        shown = [
            f"{name} in [{low:g}, {high:g}]"
            for name, low, high in zip(self.names, self.lower, self.upper, strict=True)
        ]
        if len(shown) > 6:
            shown = [*shown[:5], f"... {len(shown) - 5} more"]
        return f"Domain({', '.join(shown)})"
