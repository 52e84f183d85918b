"""Predictors inside PySCIPOpt models."""

from __future__ import annotations

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
    finite_or_none,
    new_columns,
    no_solution,
    row_entries,
)
from ennopt.extras import require
from ennopt.milp.model import LinearModel


class ScipHost:
    """A ``pyscipopt.Model``.

    Its neurons are special ordered sets: SCIP spends far more on cuts for big-M rows
    than they bring, and its settings are the user's.
    """

    name = "SCIP"
    formulations: tuple[str, ...] = (SOS, BIG_M)

    def __init__(self, model: Any) -> None:
        self.model = model
        self._pyscipopt = require("pyscipopt", "scip")
        self._keys: set[Hashable] = set()

    def open(self) -> None:
        """Refuse a model that SCIP has begun to solve: it must be freed first."""
        stage = self.model.getStageName()
        if stage != "PROBLEM":
            raise ValueError(
                "Expected a SCIP model that is not being solved, got one in stage "
                f"{stage}. Call freeTransform() on it first."
            )
        self._keys = {self.key(variable) for variable in self.model.getVars()}

    def is_variable(self, thing: object) -> bool:
        """Whether this is one variable of such models."""
        return isinstance(thing, self._pyscipopt.scip.Variable)

    def holds(self, variable: Any) -> bool:
        """Whether the variable belongs to this model."""
        return self.key(variable) in self._keys

    def key(self, variable: Any) -> Hashable:
        """Its address inside SCIP."""
        return int(variable.ptr())

    def title(self, variable: Any) -> str:
        """Its name."""
        return str(variable.name)

    def ends(self, variable: Any) -> tuple[float, float]:
        """Its lower and upper bound, infinite for none."""
        return bound(variable.getLbOriginal()), bound(variable.getUbOriginal())

    def rows(self) -> Iterator[LinearRow]:
        """The linear constraints of the model."""
        for constraint in self.model.getConss():
            if constraint.getConshdlrName() != "linear":
                continue
            variables = self.model.getConsVars(constraint)
            by_name = self.model.getValsLinear(constraint)
            if len(by_name) != len(variables):
                continue  # two variables of one name: whose number is it?
            coefficients = {
                self.key(variable): by_name[variable.name] for variable in variables
            }
            yield LinearRow(
                coefficients,
                bound(self.model.getLhs(constraint)),
                bound(self.model.getRhs(constraint)),
            )

    def num_variables(self) -> int:
        """How many variables the model has."""
        return int(self.model.getNVars(transformed=False))

    def add(
        self,
        model: LinearModel,
        pairs: Sequence[Pair],
        known: Sequence[Any],
        names: Sequence[str],
        name: str,
    ) -> Added:
        """Add the columns after the first ones, which are `known`, rows and pairs."""
        ends = [side.tolist() for side in new_columns(model, known)]
        columns = list(known)
        for own, low, high, whole in zip(names, *ends, strict=True):
            columns.append(
                self.model.addVar(
                    own,
                    vtype="B" if whole else "C",
                    lb=finite_or_none(low),
                    ub=finite_or_none(high),
                )
            )
        constraints = []
        for r in range(model.num_rows):
            body = self._pyscipopt.quicksum(
                coefficient * columns[column]
                for column, coefficient in row_entries(model, r)
            )
            row = self._pyscipopt.scip.ExprCons(
                body,
                finite_or_none(model.row_lower[r]),
                finite_or_none(model.row_upper[r]),
            )
            constraints.append(self.model.addCons(row, name=f"{name}_row{r}"))
        for k, (one, other) in enumerate(pairs):
            both = [columns[one], columns[other]]
            constraints.append(self.model.addConsSOS1(both, name=f"{name}_pair{k}"))
        return Added(columns[len(known) :], constraints)

    def remove(self, added: Added, outputs: Sequence[Any]) -> None:
        """Delete all but `outputs`, which are fixed at zero.

        SCIP cannot delete a variable that other constraints use.
        """
        self.open()
        self.model.getConss()  # PySCIPOpt forgets them after freeTransform
        for constraint in added.constraints:
            self.model.delCons(constraint)
        kept = {self.key(variable) for variable in outputs}
        for variable in added.variables:
            if self.key(variable) in kept:
                changes = [self.model.chgVarLb, self.model.chgVarUb]
                if variable.getUbOriginal() < 0.0:  # a bound must not pass the other
                    changes.reverse()
                for change in changes:
                    change(variable, 0.0)
            else:
                self.model.delVar(variable)

    def matrix(self, variables: Objects) -> Any:
        """A ``MatrixVariable``, or the array itself if there are numbers in it."""
        if all(self.is_variable(one) for one in variables.flat):
            return variables.view(self._pyscipopt.MatrixVariable)
        return variables

    def values(self, variables: Sequence[Any]) -> list[float]:
        """Their values in the best solution of the model."""
        if self.model.getNSols() == 0:
            raise no_solution()
        return [float(self.model.getVal(variable)) for variable in variables]
