"""Tables with named columns: rows of data, or bounds written as a table.

A table is a DataFrame (pandas, or anything with ``columns`` and items by name) or a
dictionary of columns, as `read_cells` gives it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ennopt.network import Array, shown

ENDS = (
    ("lower", "upper"),
    ("min", "max"),
    ("low", "high"),
    ("lb", "ub"),
    ("minimum", "maximum"),
)
"""Columns that hold bounds, however they are capitalised."""

ROW_ENDS = ENDS[:2]
"""Rows that hold bounds. Rows called low and high may well be rows of data."""

STATISTICS = {"count", "mean", "std", "25%", "50%", "75%"}
"""Other rows of what ``DataFrame.describe`` gives."""

LABELS = ("name", "statistic")
"""Columns that name the rows; polars writes ``statistic`` where pandas has an index."""

SHOWN = 6
"""Names that a message lists, at most."""


class Ranges(NamedTuple):
    """Bounds that a table states.

    `names` is ``None`` if the table names no inputs. `of_data` tells the smallest and
    largest values of data, target and all, from bounds that somebody wrote.
    """

    names: list[str] | None
    lower: list[Any]
    upper: list[Any]
    of_data: bool


def is_plain(names: Sequence[str]) -> bool:
    """Whether these are the names ``x0, x1, ...`` of inputs that nobody named."""
    return list(names) == [f"x{j}" for j in range(len(names))]


def listed(names: Iterable[str]) -> str:
    """Names for a message, the first few of many."""
    names = [shown(name) for name in names]
    more = [f"... {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return ", ".join([*names[:SHOWN], *more])


def unknown_name(name: str, names: Sequence[str], what: str = "inputs") -> str:
    """The remedy for a name that no input has: the nearest one, and the list.

    Examples
    --------
    >>> unknown_name("cemnt", ["cement", "slag"])
    'Did you mean cement? The inputs are cement, slag.'
    """
    by_letters = {other.lower(): other for other in reversed(names)}
    near = difflib.get_close_matches(name.lower(), list(by_letters), n=1)
    told = f"Did you mean {shown(by_letters[near[0]])}? " if near else ""
    unnamed = " (the model records no names)" * is_plain(names)
    return f"{told}The {what} are {listed(names)}{unnamed}."


def check_names(given: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a table or a set that lacks an input, as scikit-learn does."""
    missing = [name for name in names if name not in given]
    if not missing:
        return
    unexpected = [name for name in given if name not in names]
    told = f"unexpected {listed(unexpected)}; " * bool(unexpected)
    raise ValueError(
        f"Expected the names of the inputs, {listed(names)}, got others ({told}missing "
        f"{listed(missing)}). Rename the columns, or give the numbers without names."
    )


def ranges_in(table: Any, inputs: Sequence[str]) -> Ranges | None:
    """The bounds that a table states, ``None`` for a table of rows.

    Parameters
    ----------
    table
        With columns ``lower`` and ``upper`` (or ``min`` and ``max``) and one row for
        each input, or with such rows and one column for each input.
    inputs
        Names of the inputs, which may be words such as ``lower``.
    """
    columns = table_columns(table)
    names = [str(name) for name, _ in columns]
    label = next((n for n in LABELS if n in names and n not in inputs), None)
    rows = _row_names(table, columns, label)
    values = [(str(n), list(v)) for n, v in columns if str(n) != label]
    words = [row.lower() for row in rows or ()]
    if (STATISTICS | {w for ends in ROW_ENDS for w in ends}) & set(words):
        found = _ends(words, ROW_ENDS)
        if found is None:
            raise ValueError(
                f"Expected rows min and max, or lower and upper, got {listed(words)}. "
                "Add them, or pass the data itself."
            )
        low, high, of_data = found
        return Ranges(
            [name for name, _ in values],
            [column[low] for _, column in values],
            [column[high] for _, column in values],
            of_data,
        )
    found = _ends([name.lower() for name, _ in values], ENDS)
    if found is None or set(inputs) <= set(names):
        return None
    low, high, of_data = found
    return Ranges(rows, values[low][1], values[high][1], of_data)


def rows_in(
    table: Any, inputs: Sequence[str], target: str | None = None
) -> tuple[tuple[str, ...], Array]:
    """The names of the inputs, and the rows of data as an array.

    Columns are matched by name, others than the inputs are left out. A model whose
    inputs nobody named takes the columns but `target`, and their names, as they come.
    """
    columns = [(name, cells) for name, cells in table_columns(table) if name != target]
    d = len(inputs)
    if not all(isinstance(name, str) for name, _ in columns):
        return tuple(inputs), _stacked(columns, d)
    names = [name for name, _ in columns]
    if is_plain(inputs) and not set(inputs) <= set(names):
        return tuple(names), _stacked(columns, d)
    check_names(names, inputs)
    twice = [name for name in inputs if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"Expected one column for each input, got {names.count(twice[0])} for "
            f"{twice[0]}. Rename or drop one of them."
        )
    return tuple(inputs), _stacked([columns[names.index(n)] for n in inputs], d)


def column_in(table: Any, name: str, inputs: Sequence[str]) -> Array:
    """The numbers in a column that is no input."""
    columns = [(str(other), cells) for other, cells in table_columns(table)]
    if name in inputs:
        raise ValueError(f"Expected a target that is no input, got {name!r}.")
    names = [other for other, _ in columns]
    if name not in names:
        raise ValueError(
            f"Expected the name of a column of the data as target, got {name!r}. "
            f"{unknown_name(name, names, 'columns')}"
        )
    return numbers_in(columns[names.index(name)][1], name)


def named_entries(given: Any) -> dict[str, Any] | None:
    """The entries of a pandas Series whose index has names, ``None`` for others."""
    if not hasattr(given, "to_dict"):
        return None
    entries: dict[Any, Any] = given.to_dict()
    return entries if all(isinstance(name, str) for name in entries) else None


def table_columns(table: Any) -> list[tuple[Any, Any]]:
    """The columns of a table with their names."""
    if hasattr(table, "items"):
        return list(table.items())
    return [(name, table[name]) for name in table.columns]


def _row_names(
    table: Any, columns: list[tuple[Any, Any]], label: str | None
) -> list[str] | None:
    rows: Any = getattr(table, "index", None)
    if label is not None:
        rows = next(values for name, values in columns if str(name) == label)
    named = rows is not None and len(rows) and all(isinstance(r, str) for r in rows)
    return [row.strip() for row in rows] if named else None


def _ends(
    words: list[str], pairs: Sequence[tuple[str, str]]
) -> tuple[int, int, bool] | None:
    for low, high in pairs:
        if low in words and high in words:
            return words.index(low), words.index(high), low in ("min", "minimum")
    return None


def _stacked(columns: list[tuple[Any, Any]], d: int) -> Array:
    if len(columns) != d:
        raise ValueError(
            f"Expected {d} columns, one for each input, got {len(columns)}: "
            f"{listed(str(name) for name, _ in columns)}. Drop the target column."
        )
    return np.column_stack([numbers_in(values, name) for name, values in columns])


def numbers_in(values: Any, name: Any) -> Array:
    """A column of numbers, or an error that names the first cell that is none."""
    try:
        if any(isinstance(value, str) and "_" in value for value in values):
            raise ValueError  # only Python reads 1_000 as a number
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        row, cell = next(
            (row, cell) for row, cell in enumerate(values, 1) if not _is_number(cell)
        )
        raise ValueError(
            f"Expected numbers, got {cell!r:.40} in row {row} at column {name}. Encode "
            "the column as numbers, or fill or drop those rows."
        ) from error


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return not (isinstance(cell, str) and "_" in cell)
