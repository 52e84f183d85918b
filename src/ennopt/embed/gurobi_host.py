"""Predictors inside gurobipy models."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from ennopt.embed.host import (
    BIG_M,
    SOS,
    Added,
    LinearRow,
    Objects,
    Pair,
    bound,
    new_columns,
    no_solution,
    row_entries,
)
from ennopt.extras import require
from ennopt.milp.model import LinearModel


class GurobiHost:
    """A ``gurobipy.Model``."""

    name = "Gurobi"
    formulations: tuple[str, ...] = (BIG_M, SOS)

    def __init__(self, model: Any) -> None:
        self.model = model
        self._gurobipy = require("gurobipy", "gurobi")
        self._variables: list[Any] = []

    def open(self) -> None:
        """Make Gurobi see what waits to be added: bounds are read only after that."""
        self.model.update()
        self._variables = self.model.getVars()

    def is_variable(self, thing: object) -> bool:
        """Whether this is one variable of such models."""
        return isinstance(thing, self._gurobipy.Var)

    def holds(self, variable: Any) -> bool:
        """Whether the variable belongs to this model."""
        at = variable.index  # negative before it is added and after it is removed
        inside = 0 <= at < len(self._variables)
        return bool(inside and self._variables[at].sameAs(variable))

    def key(self, variable: Any) -> Hashable:
        """The number of its column."""
        return int(variable.index)

    def title(self, variable: Any) -> str:
        """Its name, which Gurobi makes up where the user gives none."""
        return str(variable.VarName)

    def ends(self, variable: Any) -> tuple[float, float]:
        """Its lower and upper bound, infinite for none."""
        return bound(variable.LB), bound(variable.UB)

    def rows(self) -> Iterator[LinearRow]:
        """The linear constraints of the model."""
        for constraint in self.model.getConstrs():
            row, side = self.model.getRow(constraint), float(constraint.RHS)
            coefficients: dict[Hashable, float] = {}
            for t in range(row.size()):
                at = self.key(row.getVar(t))
                coefficients[at] = coefficients.get(at, 0.0) + row.getCoeff(t)
            yield LinearRow(
                coefficients,
                -math.inf if constraint.Sense == "<" else side,
                math.inf if constraint.Sense == ">" else side,
            )

    def num_variables(self) -> int:
        """How many variables the model has."""
        return int(self.model.NumVars)

    def add(
        self,
        model: LinearModel,
        pairs: Sequence[Pair],
        known: Sequence[Any],
        names: Sequence[str],
        name: str,
    ) -> Added:
        """Add the columns after the first ones, which are `known`, rows and pairs."""
        grb = self._gurobipy.GRB
        lower, upper, whole = new_columns(model, known)
        made = self.model.addVars(
            len(names), lb=lower.tolist(), ub=upper.tolist(), name=list(names),
            vtype=[grb.BINARY if one else grb.CONTINUOUS for one in whole],
        )  # fmt: skip
        columns = [*known, *made.values()]
        constraints = []
        for r in range(model.num_rows):
            expression = self._gurobipy.LinExpr()
            for column, coefficient in row_entries(model, r):
                expression.addTerms(coefficient, columns[column])
            low, high = float(model.row_lower[r]), float(model.row_upper[r])
            sides = [(grb.LESS_EQUAL, high), (grb.GREATER_EQUAL, low)]
            if low == high:
                sides = [(grb.EQUAL, low)]
            constraints += [
                self.model.addLConstr(expression, sense, side, f"{name}_row{r}")
                for sense, side in sides
                if math.isfinite(side)
            ]
        constraints += [
            self.model.addSOS(grb.SOS_TYPE1, [columns[one], columns[other]])
            for one, other in pairs
        ]
        self.model.update()
        return Added(columns[len(known) :], constraints)

    def remove(self, added: Added, outputs: Sequence[Any]) -> None:
        """Take out what was added; Gurobi drops variables from other constraints."""
        self.model.remove(added.constraints)
        self.model.remove(added.variables)
        self.model.update()

    def matrix(self, variables: Objects) -> Any:
        """An ``MVar``, or the array itself if there are numbers in it."""
        if all(self.is_variable(one) for one in variables.flat):
            return self._gurobipy.MVar.fromlist(variables.tolist())
        return variables

    def values(self, variables: Sequence[Any]) -> list[float]:
        """Their values in the solution of the model."""
        if self.model.SolCount == 0:
            raise no_solution()
        return [float(variable.X) for variable in variables]
