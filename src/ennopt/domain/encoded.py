"""Read a feasible set in the columns of a user's table, for a model that encodes them.

| given for a column | read as |
|---|---|
| numbers: ``(low, high)``, a number | bounds, a fixed value, in its own units |
| numbers: three or more, or a set | no other values |
| a category: ``"52.5"`` | that level |
| a category: ``["42.5", "52.5"]`` | one of these levels |

A category that is not named may take every level that the model knows. Data gives the
ranges of the columns of numbers and the levels that occur in it; its rows are encoded
as the model does it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from ennopt.columns import CHANGES, Column, Group, Level, Number, Ordinal, find_level
from ennopt.domain.data import Data
from ennopt.domain.discrete import (
    chosen,
    discretised,
    read_categories,
    read_integers,
    read_values,
    value_list,
    values_in,
    yes_or_no,
)
from ennopt.domain.files import Stated, read_bounds, read_cells
from ennopt.domain.frames import (
    column_in,
    listed,
    named_entries,
    numbers_in,
    ranges_in,
    table_columns,
    unknown_name,
)
from ennopt.domain.sets import Domain
from ennopt.domain.statements import names_in
from ennopt.domain.values import Values
from ennopt.domain.where import Place, Where, narrowed
from ennopt.network import Array, Ensemble, frozen

Entries = dict[str, Any]


def read_encoded(where: Where, ensemble: Ensemble) -> Place:
    """The feasible set of an ensemble that records its columns, and the rows of data.

    Takes what `ennopt.domain.reading.read_place` takes, by the names of columns.

    Examples
    --------
    >>> from ennopt import Network
    >>> model = Ensemble(
    ...     [Network([[[1.0, 2.0, 3.0]]], [[0.0]])],
    ...     input_names=("age", "grade=A", "grade=B"),
    ...     columns=[Number("age", 0), Group("grade", (1, 2), ("A", "B"))],
    ... )
    >>> where = Where(domain={"age": (1, 28), "grade": "B"})
    >>> read_encoded(where, model).domain
    Domain(age in [1, 28], grade=A in [0, 0], grade=B in [1, 1],
    whole or listed: grade=A grade=B)
    """
    columns, spec, said = ensemble.columns or (), where.domain, Stated({})
    names = [column.name for column in columns]
    reader = _Table(columns, ensemble.input_names)
    entries, data = _recorded(ensemble), None
    if where.data is not None:
        found, data = reader.read(where.data, where.target)
        entries |= found
    if isinstance(spec, str | os.PathLike):
        said = read_bounds(spec)
        entries |= _by_name(said.bounds, columns)
    elif spec is not None and not isinstance(spec, Domain):
        target = where.target if where.data is None else None
        found, rows = _of_spec(spec, reader, target)
        entries |= found
        data = data or rows
    where.check_target(data)
    groups = read_categories(said.categories, names)
    groups += read_categories(where.categories, names)
    fixed = _fixed(chosen(where.fixed, groups, names), columns)
    lists = {
        name: value_list(values_in(entry), name)
        for name, entry in entries.items()
        if isinstance(columns[names.index(name)], Number)
        and values_in(entry) is not None
        and name not in fixed
    }
    for name in where.values if isinstance(where.values, Mapping) else ():
        if name in names:
            _check_numbers(columns[names.index(name)])
    values = {names[k]: entry for k, entry in read_values(where.values, names).items()}
    # What bounds columns that nothing else does, the strongest last.
    rest = {names[k]: (0.0, 1.0) for group in groups for k in group.inputs}
    rest |= {name: (entry[0], entry[-1]) for name, entry in values.items()}
    ends = {name: (entry[0], entry[-1]) for name, entry in lists.items()}
    entries = rest | entries | ends | fixed
    integers = read_integers(said.integers, names)
    integers += read_integers(where.integers, names)
    truths = [
        column.input
        for column in (columns[k] for k in yes_or_no(spec, where.data, names=names))
        if isinstance(column, Number) and column.is_plain
    ]
    _check_constraints([said.constraints, where.constraints], columns)
    if not isinstance(spec, Domain):
        domain = _domain(entries, ensemble)
    elif fixed:
        raise ValueError(
            "Expected fixed columns within the Domain given, got both. Build the "
            "Domain with them."
        )
    else:
        _check_domain(spec, ensemble)
        domain = spec
    return narrowed(
        discretised(domain, values=_on_inputs(lists, ensemble)), where, said, data,
        [_plain(columns[k], "integers").input for k in integers] + truths,
        _on_inputs(values, ensemble),
        [
            replace(group, inputs=tuple(
                _plain(columns[k], f"category {group.name}").input for k in group.inputs
            ))
            for group in groups
        ],
    )  # fmt: skip


def _plain(column: Column, where: str) -> Number:
    """A column of numbers that the model takes as they are, or an error."""
    if isinstance(column, Number) and column.is_plain:
        return column
    what, remedy = _encoding(column)
    raise ValueError(
        f"Expected a column that the model reads as numbers, got {column.name!r}, "
        f"{what}, at {where}. {remedy}"
    )


def _encoding(column: Column) -> tuple[str, str]:
    """What a model makes of a column, and how to narrow the column instead."""
    if isinstance(column, Number):
        return (
            f"which the model reads as {column.input_names[0]}",
            f'Bound it in the domain: {{"{column.name}": (low, high)}}.',
        )
    levels = f'{{"{column.name}": [{column.known[0]!r}]}}'
    return "a category", f"Choose its levels in the domain: {levels}."


def _check_numbers(column: Column) -> Number:
    """A column of numbers, or an error: levels are chosen in the domain."""
    if isinstance(column, Number):
        return column
    raise ValueError(
        f"Expected values of a column of numbers, got the category {column.name}. "
        f"{_encoding(column)[1]}"
    )


def _on_inputs(lists: Mapping[str, Array], ensemble: Ensemble) -> Entries:
    """Values of columns of numbers, as values of the inputs by name."""
    found: Entries = {}
    by_name = {column.name: column for column in ensemble.columns or ()}
    for name, entry in lists.items():
        column = _check_numbers(by_name[name])
        inputs = [column.changed(value, value)[0] for value in entry.tolist()]
        found[ensemble.input_names[column.input]] = inputs
    return found


def _check_domain(domain: Domain, ensemble: Ensemble) -> None:
    """Refuse a set of other inputs, or one that leaves a category between levels."""
    if domain.names != ensemble.input_names:
        raise ValueError(
            f"Expected a Domain of the inputs {listed(ensemble.input_names)}, got one "
            f"of {listed(domain.names)}. Make it with Domain.of(bounds, model)."
        )
    for column in ensemble.columns or ():
        if isinstance(column, Group):
            kept = any(group.inputs == column.inputs for group in domain.groups)
        else:
            kept = isinstance(column, Number) or bool(
                domain.values.discrete[column.input]
            )
        if not kept:
            raise ValueError(
                f"Expected a Domain that knows the category {column.name}, got one "
                "without it. Make it with Domain.of(bounds, model)."
            )


def _of_spec(spec: Any, reader: _Table, target: Any) -> tuple[Entries, Data | None]:
    if isinstance(spec, Mapping):
        return _by_name(spec, reader.columns), None
    if hasattr(spec, "columns"):
        return reader.read(spec, target)
    if (named := named_entries(spec)) is not None:
        return _by_name(named, reader.columns), None
    if getattr(spec, "ndim", 0) == 2:
        return reader.read(spec, target)
    raise ValueError(
        "Expected bounds by name for a model that encodes its columns, got "
        f"{type(spec).__name__}. Pass a dict of columns or the training data."
    )


def _by_name(given: Mapping[Any, Any], columns: tuple[Column, ...]) -> Entries:
    names = [column.name for column in columns]
    entries = {str(name): entry for name, entry in given.items()}
    for name in entries:
        if name in names:
            continue
        parts = [c.name for c in columns if name in c.input_names]
        if parts:
            raise ValueError(
                f"Expected a column of the table, got {name!r}, an input that the "
                f"model makes of it. Give bounds or levels for {parts[0]}."
            )
        raise ValueError(
            f"Expected bounds by column name, got unknown column {name}. "
            f"{unknown_name(name, names)}"
        )
    return entries


def _fixed(given: Any, columns: tuple[Column, ...]) -> Entries:
    """Columns that have one value; ranges are refused."""
    if given is None:
        return {}
    entries = given if isinstance(given, Mapping) else named_entries(given)
    if entries is None:
        raise TypeError(
            f"Expected fixed columns as a dict by name, got {type(given).__name__}."
            ' Pass fixed={"age": 28, "grade": "A"}.'
        )
    for name, entry in entries.items():
        if not isinstance(entry, Real | str | np.generic):
            raise ValueError(
                f"Expected one value that fixes it, got {entry!r:.60} at column {name}."
            )
    return _by_name(entries, columns)


def _recorded(ensemble: Ensemble) -> Entries:
    """What the box recorded with a model says of each column, as a part of a domain."""
    if ensemble.lower is None or ensemble.upper is None:
        return {}
    return {
        c.name: _Part(ensemble.lower[list(c.inputs)], ensemble.upper[list(c.inputs)])
        for c in ensemble.columns or ()
    }


class _Table:
    """Reads rows of data, or a table of bounds, with the columns of a model."""

    def __init__(self, columns: tuple[Column, ...], input_names: Sequence[str]) -> None:
        self.columns, self.input_names = columns, tuple(input_names)
        self.names = [column.name for column in columns]

    def read(self, given: Any, target: Any) -> tuple[Entries, Data | None]:
        """Ranges of numbers and the levels that occur; rows as the model sees them."""
        if isinstance(given, str | os.PathLike):
            given = read_cells(given, "a file of data")
        if not (isinstance(given, Mapping) or hasattr(given, "columns")):
            rows = np.asarray(given)
            if rows.ndim != 2 or rows.shape[1] != len(self.columns):
                raise ValueError(
                    f"Expected data with the columns {listed(self.names)}, got shape "
                    f"{rows.shape}. Pass a DataFrame with their names."
                )
            given = dict(zip(self.names, rows.T, strict=True))
        ranges = ranges_in(given, self.names)
        if ranges is not None and ranges.names is not None:
            pairs = zip(ranges.lower, ranges.upper, strict=True)
            found = dict(zip(ranges.names, pairs, strict=True))
            if ranges.of_data:  # the target is among them
                found = {name: found[name] for name in self.names if name in found}
            return _by_name(found, self.columns), None
        table = {str(name): values for name, values in table_columns(given)}
        missing = [name for name in self.names if name not in table]
        if missing:
            raise ValueError(
                f"Expected data with the columns {listed(self.names)}, got none for "
                f"{listed(missing)}. Add them."
            )
        cells = [_cells(column, table[column.name]) for column in self.columns]
        seen = zip(self.columns, cells, strict=True)
        if isinstance(target, str):
            target = column_in(given, target, self.names)
        measured = None if target is None else frozen(target)
        data = Data(self._encoded(cells), self.input_names, measured)
        return {column.name: _seen(column, values) for column, values in seen}, data

    def _encoded(self, cells: Sequence[Any]) -> Array:
        """The rows of a table as points of the inputs, (num_rows, num_inputs)."""
        rows = np.zeros((len(cells[0]), len(self.input_names)))
        for column, values in zip(self.columns, cells, strict=True):
            places = list(column.inputs)
            if isinstance(column, Number):
                rows[:, column.input] = _changed(column, values)
                continue
            codes = {level: k for k, level in enumerate(column.levels)}
            codes_here = np.array([codes.get(level, -1) for level in values])
            if isinstance(column, Ordinal):
                rows[:, column.input] = codes_here
            else:  # the base, which has no input, is none of them
                rows[:, places] = codes_here[:, None] == np.arange(len(places))
        return rows


def _changed(column: Number, numbers: Array) -> Array:
    """A column of data as the input that the model makes of it."""
    if column.change is None:
        return numbers
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = np.asarray(CHANGES[column.change].forward(numbers))
    if not np.isfinite(found).all():
        wrong = numbers[~np.isfinite(found)][0]
        raise ValueError(
            f"Expected data of which the model can take the {column.change}, got "
            f"{wrong:g} at column {column.name}. Drop those rows."
        )
    return found


def _cells(column: Column, values: Any) -> Any:
    """The numbers of a column of data, or the level that each cell stands for."""
    if not len(values):
        raise ValueError("Expected rows of data, got a table without any.")
    if isinstance(column, Number):
        numbers = numbers_in(values, column.name)
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"Expected finite data, got NaN or infinity at column {column.name}. "
                "Fill or drop those rows."
            )
        return numbers
    cells = np.asarray(values, dtype=object).tolist()
    levels: dict[Any, Level] = {}
    for cell in dict.fromkeys(cells):
        if cell is None or cell != cell:  # a missing cell
            raise ValueError(
                f"Expected data without missing cells, got one at column {column.name}."
                " Fill or drop those rows."
            )
        levels[cell] = find_level(column, cell)
    return [levels[cell] for cell in cells]


def _seen(column: Column, cells: Any) -> Any:
    """The range of a column of numbers, or the levels that occur in a category."""
    if isinstance(column, Number):
        return float(cells.min()), float(cells.max())
    return list(dict.fromkeys(cells))


class _Part:
    """What a domain says of one column: bounds of its inputs, and maybe its group."""

    def __init__(
        self, lower: Array, upper: Array, values: Any = None, group: Group | None = None
    ) -> None:
        self.lower, self.upper = lower, upper
        self.values, self.group = values, group


def _domain(entries: Entries, ensemble: Ensemble) -> Domain:
    columns = ensemble.columns or ()
    missing = [c.name for c in columns if isinstance(c, Number)]
    missing = [name for name in missing if name not in entries]
    if missing:
        raise ValueError(
            f"Expected bounds for every column of numbers, got none for "
            f"{listed(missing)}. Add them, or give training data whose ranges take "
            "their place."
        )
    d = ensemble.num_inputs
    lower, upper, whole = np.zeros(d), np.zeros(d), []
    lists: dict[int, Any] = {}
    groups = []
    for column in columns:
        part = _part(column, entries.get(column.name))
        places = list(column.inputs)
        lower[places], upper[places] = part.lower, part.upper
        if part.values is not None:
            lists[places[0]] = part.values
        if part.group is not None:
            groups.append(part.group)
            whole += places
        if isinstance(column, Number) and column.whole:
            whole += places
    return Domain(
        lower, upper, ensemble.input_names, values=Values.of(d, whole, lists),
        groups=tuple(groups),
    )  # fmt: skip


def _part(column: Column, entry: Any) -> _Part:
    if isinstance(column, Number):
        if isinstance(entry, _Part):
            return _Part(entry.lower, entry.upper, column.values)
        low, high = column.changed(*_pair(entry, column.name))
        return _Part(np.array([low]), np.array([high]), column.values)
    if isinstance(entry, _Part):
        entry = _levels_within(column, entry)
    levels = _levels(column, entry)
    if isinstance(column, Ordinal):
        codes = np.array(sorted(column.levels.index(level) for level in levels), float)
        return _Part(codes[:1], codes[-1:], codes)
    upper = np.array([float(level in levels) for level in column.levels])
    lower = upper if len(levels) == 1 else np.zeros(len(upper))
    # without the base, one input is a one
    base = column.base if column.base in levels else None
    return _Part(lower, upper, group=replace(column, base=base))


def _levels_within(column: Group | Ordinal, box: _Part) -> list[Level]:
    """The levels that a recorded box leaves."""
    if isinstance(column, Ordinal):
        codes = np.arange(len(column.levels))
        kept = codes[(codes >= box.lower[0]) & (codes <= box.upper[0])]
        return [column.levels[k] for k in kept]
    forced = [k for k in range(len(column.levels)) if box.lower[k] > 0.5]
    if forced:
        return [column.levels[forced[0]]]
    kept_levels = [
        level for level, most in zip(column.levels, box.upper, strict=True) if most >= 1
    ]
    return kept_levels if column.base is None else [column.base, *kept_levels]


def _levels(column: Group | Ordinal, entry: Any) -> list[Level]:
    """The levels that an entry allows."""
    if entry is None:
        return list(column.known)
    many = isinstance(entry, list | tuple | Set) or getattr(entry, "ndim", 0) == 1
    found = [find_level(column, level) for level in (entry if many else [entry])]
    if not found:
        raise ValueError(
            f"Expected at least one level, got none at category {column.name}. Leave "
            "it out to allow all of them."
        )
    return found


def _pair(entry: Any, name: str) -> tuple[float, float]:
    if isinstance(entry, Real):
        return float(entry), float(entry)
    pair = isinstance(entry, list | tuple) or getattr(entry, "ndim", 0) == 1
    if not pair or len(entry) != 2 or not all(isinstance(e, Real) for e in entry):
        raise ValueError(
            "Expected a pair (low, high), or a number that fixes it, got "
            f"{entry!r:.60} at column {name}, which the model reads as numbers."
        )
    low, high = map(float, entry)
    if not low <= high:
        raise ValueError(
            f"Expected lower <= upper, got [{low:g}, {high:g}] at column {name}. "
            "Exchange them."
        )
    return low, high


def _check_constraints(given: Any, columns: tuple[Column, ...]) -> None:
    """Refuse texts on columns that the model does not read as the numbers they are."""
    encoded = {c.name: c for c in columns if not c.is_plain}
    encoded |= {name: c for c in encoded.values() for name in c.input_names}
    for text in _texts(given):
        for name in names_in(text):
            column = encoded.get(name)
            if column is None:
                continue
            what, remedy = _encoding(column)
            raise ValueError(
                f"Expected a constraint on columns that the model reads as numbers, "
                f"got {name!r}, {what}, in {text!r:.80}. {remedy}"
            )


def _texts(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, list | tuple):
        for part in given:
            yield from _texts(part)
