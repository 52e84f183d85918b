"""Bounds, constraints and rows of data from files: TOML and CSV."""

from __future__ import annotations

import csv
import io
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ennopt.domain.trust import Near

BOUNDS_HEADER = ("name", "lower", "upper")


class Stated(NamedTuple):
    """What a file of bounds states.

    `bounds` has a pair ``(low, high)``, a number or a list of values for each input
    that the file names, or levels of a category, a text or a list of texts;
    `constraints` are texts.
    """

    bounds: dict[str, Any]
    constraints: tuple[str, ...] = ()
    integers: tuple[str, ...] = ()
    categories: Mapping[str, Any] = MappingProxyType({})
    trust: tuple[Any, ...] = ()


def read_bounds(path: str | os.PathLike[str]) -> Stated:
    """Bounds by input name, and linear constraints, from a TOML or CSV file.

    TOML: ``name = [low, high]``, or ``name = number`` to fix an input, or ``name =
    {values = [1.5, 2.5]}``, or ``name = "level"`` or a list of levels for a category of
    the model, at the top or in a table ``[bounds]``. In either place may
    stand ``constraints = ["2*a <= 900 + b"]``, ``integers = ["a"]``, ``trust =
    "near"`` or ``trust = {radius = 0.5, count = 3}``, and a table of categories,
    ``plant = ["plant_A", "plant_B"]``. CSV: a header ``name,lower,upper``
    and one row for each input; equal bounds fix it. A constraint stands in the place of
    a name, without bounds: ``2*a <= 900 + b,,``.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"Expected a file of bounds, got a folder: {path}.")
    readers = {".toml": _read_toml, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"Expected a file of bounds ending in .toml or .csv, got {path.name!r}."
        )
    found = readers[path.suffix.lower()](path)
    if not any(found):
        raise ValueError(
            f"Expected bounds of at least one input, got none in {path.name}."
        )
    return found


def read_cells(path: str | os.PathLike[str], what: str) -> dict[str, list[str]]:
    """The cells of a text table with a header line, by column, as they are written.

    Cells are separated by commas, semicolons or tabs: whichever the header has most of.

    Parameters
    ----------
    path
        The file.
    what
        What the file should hold, for the error that finds none: ``"a file of data"``.
    """
    path = Path(path)
    text = read_text(path, what)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"Expected a CSV file, got {error} in {path.name}.") from error
    if not rows:
        raise ValueError(
            f"Expected a header line and rows, got an empty file: {path.name}."
        )
    header = [name.strip() for name in rows[0]]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(
            f"Expected different column names, got {repeated[0]!r} more than once in "
            f"{path.name}. Rename one of them."
        )
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(header):
            raise ValueError(
                f"Expected {len(header)} cells as in the header, got {len(row)} in row "
                f"{number} of {path.name}."
            )
    return {name: [row[j] for row in rows[1:]] for j, name in enumerate(header)}


def read_text(path: Path, what: str) -> str:
    """The text of a file, or a sentence that says why there is none."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"Expected {what}, got none at {path}. Check the path."
        ) from error
    except OSError as error:
        raise OSError(
            f"Expected {what} that can be read, got {path} ({error.strerror})."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Expected a text file in UTF-8, got byte {error.object[error.start]:#x} "
            f"at {error.start} in {path.name}."
        ) from error


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The table of a TOML file; `what` the file should hold, for the error."""
    try:
        return tomllib.loads(read_text(path, what))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"Expected valid TOML, got {error} in {path.name}.") from error


def _read_toml(path: Path) -> Stated:
    return stated_in(read_toml(path, "a file of bounds"), path)


def stated_in(table: dict[str, Any], path: Path) -> Stated:
    """What the table of a file of bounds states; `read_bounds` tells its form."""
    said = _taken(table, path)
    if isinstance(table.get("bounds"), dict):
        bounds = table.pop("bounds")
        if table:
            raise ValueError(
                f"Expected every bound in the table [bounds], got {next(iter(table))} "
                f"outside of it in {path.name}. Move it there."
            )
        table = bounds
        inner = _taken(table, path)
        said = Stated(
            {},
            said.constraints + inner.constraints,
            said.integers + inner.integers,
            {**said.categories, **inner.categories},
            said.trust + inner.trust,
        )
    for name, entry in table.items():
        _check_entry(name, entry, path)
    return said._replace(bounds=table)


def _check_entry(name: str, entry: Any, path: Path) -> None:
    """Refuse what neither bounds an input nor lists its values, or levels."""
    levels = entry if isinstance(entry, list) else [entry]
    if levels and all(isinstance(level, str) for level in levels):
        return
    listing = isinstance(entry, dict) and set(entry) == {"values"}
    numbers = entry["values"] if listing else entry
    numbers = numbers if isinstance(numbers, list) else [numbers] * (2 - listing)
    few = 1 if listing else 2
    if len(numbers) < few or not all(type(end) in (int, float) for end in numbers):
        raise ValueError(
            f"Expected {name} = [low, high], {name} = number, {name} = "
            f"{{values = [...]}} or levels of a category, got {entry!r:.60} in "
            f"{path.name}."
        )


def _taken(table: dict[str, Any], path: Path) -> Stated:
    """Remove what is said beside bounds: constraints, integers, categories, trust.

    An input may have one of these names: what looks like bounds or values stays.
    """
    constraints = _taken_texts(table, "constraints", path)
    integers = _taken_texts(table, "integers", path)
    trust = _taken_trust(table, path)
    categories = table.get("categories")
    if not isinstance(categories, dict) or set(categories) == {"values"}:
        return Stated({}, constraints, integers, {}, trust)
    for name, levels in categories.items():
        inputs = list(levels.values()) if isinstance(levels, dict) else levels
        if not isinstance(inputs, list) or not all(type(i) is str for i in inputs):
            raise ValueError(
                f"Expected {name} = [names of inputs] or a table of levels and names, "
                f"got {levels!r:.60} at categories in {path.name}."
            )
    return Stated({}, constraints, integers, table.pop("categories"), trust)


def _taken_texts(table: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    """Remove a list of texts from a table; an input may have the same name."""
    given = table.get(key)
    entries = given if isinstance(given, list) else [given]
    texts = [entry for entry in entries if isinstance(entry, str)]
    if entries and not texts:
        return ()  # bounds of an input of this name, or nothing
    if len(texts) < len(entries):
        raise ValueError(
            f"Expected {key} as a list of texts, got {given!r:.60} in {path.name}."
        )
    del table[key]
    return tuple(texts)


def _taken_trust(table: dict[str, Any], path: Path) -> tuple[Any, ...]:
    """Remove the trust region: texts, or a table with a radius or a count."""
    given = table.get("trust")
    if not isinstance(given, dict) or set(given) == {"values"}:
        return _taken_texts(table, "trust", path)
    if set(given) - {"radius", "count"}:
        raise ValueError(
            f"Expected a radius and a count at trust, got {', '.join(given)!r:.60} in "
            f"{path.name}."
        )
    return (Near(**table.pop("trust")),)


def _read_csv(path: Path) -> Stated:
    cells = read_cells(path, "a file of bounds")
    if not set(BOUNDS_HEADER) <= set(cells):
        raise ValueError(
            f"Expected the header {','.join(BOUNDS_HEADER)}, got "
            f"{', '.join(cells)!r:.80} in {path.name}. A file of rows is data, not "
            "bounds."
        )
    bounds: dict[str, Any] = {}
    constraints: list[str] = []
    for name, low, high in zip(*(cells[word] for word in BOUNDS_HEADER), strict=True):
        name = name.strip()
        if not (low.strip() or high.strip()) and re.search("[<>=≤≥]", name):
            constraints.append(name)
            continue
        if name in bounds:
            raise ValueError(
                f"Expected one row for each input, got two for {name} in {path.name}."
            )
        try:
            bounds[name] = (float(low), float(high))
        except ValueError as error:
            raise ValueError(
                f"Expected two numbers, got {low!r} and {high!r} at input {name} of "
                f"{path.name}."
            ) from error
    return Stated(bounds, tuple(constraints))
