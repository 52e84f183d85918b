"""Predictors inside highspy models."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from ennopt.embed.host import (
    BIG_M,
    Added,
    LinearRow,
    Objects,
    Pair,
    bound,
    new_columns,
    no_solution,
)
from ennopt.milp.model import LinearModel

FEASIBLE = 2
"""What HiGHS calls the status of a solution that is feasible."""


class HighsHost:
    """A ``highspy.Highs``, which knows no special ordered sets."""

    name = "HiGHS"
    formulations: tuple[str, ...] = (BIG_M,)

    def __init__(self, model: Any) -> None:
        import highspy  # here, so that importing ennopt stays fast

        self.model = model
        self._highspy = highspy

    def open(self) -> None:
        """Nothing to do: HiGHS takes changes at any time."""

    def is_variable(self, thing: object) -> bool:
        """Whether this is one variable of such models."""
        return isinstance(thing, self._highspy.highs.highs_var)

    def holds(self, variable: Any) -> bool:
        """Whether the variable belongs to this model."""
        same = bool(variable.highs == self.model)  # a weak reference to its model
        return same and variable.index < self.model.getNumCol()

    def key(self, variable: Any) -> Hashable:
        """The number of its column."""
        return int(variable.index)

    def title(self, variable: Any) -> str:
        """Its name, or its number if it has none."""
        _, name = self.model.getColName(variable.index)
        return str(name) or f"column {variable.index}"

    def ends(self, variable: Any) -> tuple[float, float]:
        """Its lower and upper bound, infinite for none."""
        _, _, lower, upper, _ = self.model.getCol(variable.index)
        return bound(lower), bound(upper)

    def rows(self) -> Iterator[LinearRow]:
        """The linear constraints of the model."""
        for r in range(self.model.getNumRow()):
            _, least, most, _ = self.model.getRow(r)
            _, columns, coefficients = self.model.getRowEntries(r)
            entries = zip(columns.tolist(), coefficients.tolist(), strict=True)
            yield LinearRow(dict(entries), bound(least), bound(most))

    def num_variables(self) -> int:
        """How many variables the model has."""
        return int(self.model.getNumCol())

    def add(
        self,
        model: LinearModel,
        pairs: Sequence[Pair],
        known: Sequence[Any],
        names: Sequence[str],
        name: str,
    ) -> Added:
        """Add the columns after the first ones, which are `known`, rows and pairs."""
        core, solver = self._highspy, self.model
        first_column, first_row = solver.getNumCol(), solver.getNumRow()
        lower, upper, whole = new_columns(model, known)
        made = np.arange(first_column, first_column + lower.size, dtype=np.int32)
        self._done(solver.addVars(made.size, lower, upper))
        kinds = (core.HighsVarType.kContinuous, core.HighsVarType.kInteger)
        self._done(
            solver.changeColsIntegrality(
                made.size, made, np.array([kinds[int(one)] for one in whole])
            )
        )
        for column, own in zip(made.tolist(), names, strict=True):
            self._done(solver.passColName(column, own))
        places = np.concatenate(
            [np.array([v.index for v in known], dtype=np.int32), made]
        )
        self._done(
            solver.addRows(
                model.num_rows, model.row_lower, model.row_upper, model.num_entries,
                model.starts[:-1].astype(np.int32), places[model.columns],
                model.coefficients,
            )
        )  # fmt: skip
        rows = range(first_row, first_row + model.num_rows)
        for r, row in enumerate(rows):
            self._done(solver.passRowName(row, f"{name}_row{r}"))
        return Added(
            [core.highs.highs_var(column, solver) for column in made.tolist()],
            [core.highs.highs_cons(row, solver) for row in rows],
        )

    def remove(self, added: Added, outputs: Sequence[Any]) -> None:
        """Delete the newest columns and rows; older ones are emptied.

        HiGHS numbers columns and rows. To delete one would renumber those that came
        later, and the user's own objects would then mean others. So what is not at the
        end stays: variables fixed at zero, rows without limits.
        """
        solver = self.model
        columns = np.array([v.index for v in added.variables], dtype=np.int32)
        rows = np.array([c.index for c in added.constraints], dtype=np.int32)
        if rows.size and rows[-1] == solver.getNumRow() - 1:
            self._done(solver.deleteRows(rows.size, rows))
        else:
            for row in rows.tolist():
                self._done(solver.changeRowBounds(row, -np.inf, np.inf))
        if columns.size and columns[-1] == solver.getNumCol() - 1:
            self._done(solver.deleteCols(columns.size, columns))
        else:
            continuous = self._highspy.HighsVarType.kContinuous
            for column in columns.tolist():
                self._done(solver.changeColIntegrality(column, continuous))
                self._done(solver.changeColBounds(column, 0.0, 0.0))

    def matrix(self, variables: Objects) -> Any:
        """A ``HighspyArray``."""
        return variables.view(self._highspy.highs.HighspyArray)

    def values(self, variables: Sequence[Any]) -> list[float]:
        """Their values in the solution of the model."""
        solution = self.model.getSolution()
        feasible = self.model.getInfo().primal_solution_status == FEASIBLE
        if not (feasible and solution.value_valid):
            raise no_solution()
        values = solution.col_value
        return [float(values[variable.index]) for variable in variables]

    def _done(self, status: Any) -> None:
        """Refuse to go on after a call that HiGHS could not carry out."""
        if status == self._highspy.HighsStatus.kError:
            raise RuntimeError(
                "Expected HiGHS to accept a change of the model, got an error. Its log "
                "says more."
            )
