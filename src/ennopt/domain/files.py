"""Bounds and rows of data from files: TOML and CSV."""

from __future__ import annotations

import csv
import io
import os
import tomllib
from pathlib import Path
from typing import Any

BOUNDS_HEADER = ("name", "lower", "upper")


def read_bounds(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Bounds by input name from a TOML or CSV file.

    TOML: ``name = [low, high]``, or ``name = number`` to fix an input, at the top or in
    a table ``[bounds]``. CSV: a header ``name,lower,upper`` and one row for each input;
    equal bounds fix it.

    Returns
    -------
    dict
        A pair ``(low, high)`` or a number for each input that the file names.
    """
    path = Path(path)
    readers = {".toml": _read_toml, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"Expected a file of bounds ending in .toml or .csv, got {path.name!r}."
        )
    bounds = readers[path.suffix.lower()](path)
    if not bounds:
        raise ValueError(
            f"Expected bounds of at least one input, got none in {path.name}."
        )
    return bounds


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


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(read_text(path, "a file of bounds"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"Expected valid TOML, got {error} in {path.name}.") from error
    if isinstance(table.get("bounds"), dict):
        table = table["bounds"]
    for name, entry in table.items():
        pair = entry if isinstance(entry, list) else [entry, entry]
        if len(pair) != 2 or not all(type(end) in (int, float) for end in pair):
            raise ValueError(
                f"Expected {name} = [low, high] or {name} = number, got {entry!r:.60} "
                f"in {path.name}."
            )
    return table


def _read_csv(path: Path) -> dict[str, Any]:
    cells = read_cells(path, "a file of bounds")
    if not set(BOUNDS_HEADER) <= set(cells):
        raise ValueError(
            f"Expected the header {','.join(BOUNDS_HEADER)}, got "
            f"{', '.join(cells)!r:.80} in {path.name}. A file of rows is data, not "
            "bounds."
        )
    bounds: dict[str, Any] = {}
    for name, low, high in zip(*(cells[word] for word in BOUNDS_HEADER), strict=True):
        name = name.strip()
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
    return bounds
