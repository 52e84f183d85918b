"""What the four kinds of models that take a predictor have in common.

A host is the user's own optimization model. There is one adapter file per kind; it is
imported when such a model is met.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ennopt.milp.model import LinearModel
from ennopt.network import Array
from ennopt.result import NoSolutionError

Objects = npt.NDArray[np.object_]
"""Variables of a host, and numbers among them."""

Pair = tuple[int, int]
"""Two columns of which at most one is not zero: a special ordered set of type 1."""

BIG_M, SOS = "bigm", "sos"
"""A neuron by a binary variable, or by a special ordered set."""

INFINITE = 1e20
"""From here on, the solvers take a bound for none."""


@dataclass(frozen=True, slots=True)
class LinearRow:
    """A linear constraint of a host: ``least <= sum of coefficients <= most``.

    Parameters
    ----------
    coefficients
        By the key of the variable.
    least, most
        Infinite for a side that does not count.
    """

    coefficients: Mapping[Hashable, float]
    least: float
    most: float


@dataclass(frozen=True, slots=True, eq=False)
class Added:
    """What was added to a host, in the words of its own interface.

    Parameters
    ----------
    variables, constraints
        In the order of the new columns, and of the rows and pairs.
    container
        What holds them all, if the host has such a thing.
    """

    variables: list[Any]
    constraints: list[Any]
    container: Any = None


class Host(Protocol):
    """A user's model, whichever solver or modelling language it is made with."""

    name: str
    """How messages call it."""

    formulations: tuple[str, ...]
    """Ways to state a neuron, the one that suits its solver best first."""

    def open(self) -> None:
        """Bring the model up to date, and refuse one that cannot be changed now."""

    def is_variable(self, thing: object) -> bool:
        """Whether this is one variable of such models."""

    def holds(self, variable: Any) -> bool:
        """Whether the variable belongs to this model."""

    def key(self, variable: Any) -> Hashable:
        """The same for two objects that stand for one variable of the model."""

    def title(self, variable: Any) -> str:
        """How messages call it."""

    def ends(self, variable: Any) -> tuple[float, float]:
        """Its lower and upper bound, infinite for none."""

    def rows(self) -> Iterator[LinearRow]:
        """The linear constraints of the model."""

    def num_variables(self) -> int:
        """How many variables the model has."""

    def add(
        self,
        model: LinearModel,
        pairs: Sequence[Pair],
        known: Sequence[Any],
        names: Sequence[str],
        name: str,
    ) -> Added:
        """Add the columns after the first ones, which are `known`, rows and pairs.

        Parameters
        ----------
        model
            Its objective is ignored, and so are the bounds of known columns.
        pairs
            Columns of which at most one is not zero.
        known
            Variables of the host, one for each of the first columns.
        names
            Of the other columns.
        name
            Of all that is added.
        """

    def remove(self, added: Added, outputs: Sequence[Any]) -> None:
        """Take out what was added; `outputs` of it may occur in other constraints."""

    def matrix(self, variables: Objects) -> Any:
        """The variables in the kind of array that users of the host expect."""

    def values(self, variables: Sequence[Any]) -> list[float]:
        """Their values in the solution of the model."""


def host_of(model: object) -> Host:
    """The adapter for a user's model, by the names of its classes alone.

    Examples
    --------
    >>> host_of("model.lp")
    Traceback (most recent call last):
    ...
    TypeError: Expected a model of gurobipy, PySCIPOpt, highspy or Pyomo, got str. ...
    """
    for kind in type(model).__mro__:
        match kind.__module__.partition(".")[0], kind.__name__:
            case "gurobipy", "Model":
                from ennopt.embed.gurobi_host import GurobiHost

                return GurobiHost(model)
            case "pyscipopt", "Model":
                from ennopt.embed.scip_host import ScipHost

                return ScipHost(model)
            case "highspy", "Highs":
                from ennopt.embed.highs_host import HighsHost

                return HighsHost(model)
            case "pyomo", "BlockData" | "_BlockData":  # before Pyomo 6.8
                from ennopt.embed.pyomo_host import PyomoHost

                return PyomoHost(model)
    raise TypeError(
        "Expected a model of gurobipy, PySCIPOpt, highspy or Pyomo, got "
        f"{type(model).__name__}. Pass the model itself first, then the predictor."
    )


def bound(number: Any) -> float:
    """A bound as hosts state it; infinite where they mean none."""
    value = float(number)
    return float(np.copysign(np.inf, value)) if abs(value) >= INFINITE else value


def finite_or_none(side: float) -> float | None:
    """A bound as Pyomo and PySCIPOpt take it: ``None`` for none."""
    return float(side) if math.isfinite(side) else None


def no_solution() -> NoSolutionError:
    """What is raised if values are asked for too early."""
    return NoSolutionError(
        "Expected a solution of the solver's model, got none. Solve it first, and see "
        "whether it is feasible."
    )


def row_entries(model: LinearModel, r: int) -> Iterator[tuple[int, float]]:
    """Pairs (column, coefficient) of a row, in plain numbers."""
    columns, coefficients = model.row(r)
    yield from zip(columns.tolist(), coefficients.tolist(), strict=True)


def new_columns(model: LinearModel, known: Sequence[Any]) -> tuple[Array, Array, Any]:
    """Lower and upper bounds and integrality of the columns that are to be made."""
    first = len(known)
    return model.lower[first:], model.upper[first:], model.integer[first:]
