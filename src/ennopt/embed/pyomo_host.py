"""Predictors inside Pyomo models: one block for each."""

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
    finite_or_none,
    new_columns,
    no_solution,
    row_entries,
)
from ennopt.extras import require
from ennopt.milp.model import LinearModel


class PyomoHost:
    """A ``pyomo.environ.ConcreteModel``, or a block of one."""

    name = "Pyomo"
    formulations: tuple[str, ...] = (BIG_M, SOS)

    def __init__(self, model: Any) -> None:
        self.model = model
        self._pyo = require("pyomo.environ", "pyomo")

    def open(self) -> None:
        """Refuse an abstract model: its variables have no bounds yet."""
        if not self.model.is_constructed():
            raise ValueError(
                "Expected a Pyomo model that is constructed, got an abstract one. Call "
                "create_instance() and pass what it returns."
            )

    def is_variable(self, thing: object) -> bool:
        """Whether this is one variable of such models."""
        kind = getattr(thing, "is_variable_type", None)
        return kind is not None and bool(kind())

    def holds(self, variable: Any) -> bool:
        """Whether the variable belongs to this model."""
        return variable.model() is self.model.model()

    def key(self, variable: Any) -> Hashable:
        """The identity of the object: Pyomo has one for each variable."""
        return id(variable)

    def title(self, variable: Any) -> str:
        """Its name."""
        return str(variable.name)

    def ends(self, variable: Any) -> tuple[float, float]:
        """Its lower and upper bound; a variable fixed without any has its value."""
        lower, upper = variable.bounds
        ends = (
            -math.inf if lower is None else bound(lower),
            math.inf if upper is None else bound(upper),
        )
        if variable.fixed and not all(math.isfinite(end) for end in ends):
            return float(variable.value), float(variable.value)
        return ends

    def rows(self) -> Iterator[LinearRow]:
        """The linear constraints of the model, without those on fixed variables."""
        standard = require("pyomo.repn", "pyomo").generate_standard_repn
        variables_of = require("pyomo.core.expr", "pyomo").identify_variables
        for constraint in self.model.model().component_data_objects(
            self._pyo.Constraint, active=True
        ):
            if any(variable.fixed for variable in variables_of(constraint.body)):
                continue  # they may be freed again, the bounds of neurons stay
            form = standard(constraint.body)
            if form.is_linear():
                entries = zip(form.linear_vars, form.linear_coefs, strict=True)
                least, most = constraint.lb, constraint.ub
                yield LinearRow(
                    {self.key(variable): float(value) for variable, value in entries},
                    -math.inf if least is None else float(least - form.constant),
                    math.inf if most is None else float(most - form.constant),
                )

    def num_variables(self) -> int:
        """How many variables the model has."""
        found = self.model.model().component_data_objects(self._pyo.Var)
        return sum(1 for _ in found)

    def add(
        self,
        model: LinearModel,
        pairs: Sequence[Pair],
        known: Sequence[Any],
        names: Sequence[str],
        name: str,
    ) -> Added:
        """Add the columns after the first ones, which are `known`, rows and pairs."""
        pyo = self._pyo
        ends = [side.tolist() for side in new_columns(model, known)]
        unique = require("pyomo.common.modeling", "pyomo").unique_component_name
        block = pyo.Block(concrete=True)
        self.model.add_component(unique(self.model, name), block)
        block.columns = pyo.Var(list(names))
        for own, low, high, whole in zip(names, *ends, strict=True):
            variable = block.columns[own]
            variable.domain = pyo.Binary if whole else pyo.Reals
            variable.setlb(finite_or_none(low))
            variable.setub(finite_or_none(high))
        columns = [*known, *block.columns.values()]
        block.rows = pyo.ConstraintList()
        for r in range(model.num_rows):
            body = pyo.quicksum(
                coefficient * columns[column]
                for column, coefficient in row_entries(model, r)
            )
            low, high = (
                finite_or_none(model.row_lower[r]),
                finite_or_none(model.row_upper[r]),
            )
            block.rows.add((low, body, high))
        both = [[columns[one], columns[other]] for one, other in pairs]
        block.pairs = pyo.SOSConstraint(
            range(len(both)), rule=lambda _, k: both[k], sos=1
        )
        constraints = [*block.rows.values(), *block.pairs.values()]
        return Added(columns[len(known) :], constraints, block)

    def remove(self, added: Added, outputs: Sequence[Any]) -> None:
        """Delete the block; `outputs` count as zero in other constraints."""
        for variable in outputs:
            variable.fix(0.0)
        self.model.del_component(added.container)

    def matrix(self, variables: Objects) -> Any:
        """The array itself: Pyomo has no kind of its own."""
        return variables

    def values(self, variables: Sequence[Any]) -> list[float]:
        """Their values, as the solver has left them in the model."""
        values = [variable.value for variable in variables]
        if any(value is None for value in values):
            raise no_solution()
        return [float(value) for value in values]
