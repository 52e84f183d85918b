"""A table as a value, and the ways to write it: Markdown, LaTeX, CSV, cells of a page.

Cells hold numbers as computed; rounding happens when a table is written for a reader.
CSV keeps the numbers whole.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

Cell: TypeAlias = str | float | int | None
Kind: TypeAlias = Literal["text", "count", "seconds", "percent", "number"]
Source: TypeAlias = Literal["label", "ours", "paper"]

MISSING = "\u2013"
"""What stands where there is no number."""

UNITS = {"percent": " (share)", "seconds": " (s)"}
"""Of the numbers in CSV: a percentage is stored as a share of one."""

SMALLEST_SHARE = 5e-6
"""Shares below this are written as 0%."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Parameters
    ----------
    name
        Its heading.
    group
        Heading above it, shared with its neighbours.
    kind
        What its numbers are, which decides how they are written.
    source
        Whether it labels rows, was computed from runs, or is printed in the paper.
    """

    name: str
    group: str = ""
    kind: Kind = "text"
    source: Source = "ours"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns.

    Parameters
    ----------
    name
        A short name, also that of its files.
    title
        For the reader.
    columns, rows
        One cell of each row for each column.
    notes
        What a reader should know.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Expected {len(self.columns)} cells in each row of {self.name}, "
                    f"got {len(row)}: {row}."
                )

    def without(self, drop: Callable[[Column], bool]) -> Table:
        """The same table without some columns."""
        kept = [i for i, column in enumerate(self.columns) if not drop(column)]
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
        )

    def column(self, name: str, group: str = "") -> list[Cell]:
        """The cells under a heading, from the top."""
        for i, column in enumerate(self.columns):
            if (column.name, column.group) == (name, group):
                return [row[i] for row in self.rows]
        raise KeyError(f"{group} {name}".strip())

    # Writers.

    def to_csv(self) -> str:
        """Comma-separated values with whole numbers; the heading tells their unit."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            _heading(column) + UNITS.get(column.kind, "") for column in self.columns
        )
        for row in self.rows:
            writer.writerow("" if cell is None else cell for cell in row)
        return stream.getvalue()

    def to_markdown(self) -> str:
        """A pipe table, notes below."""
        lines = [
            _pipes(_heading(column) for column in self.columns),
            _pipes("---" if c.kind == "text" else "---:" for c in self.columns),
        ]
        lines += [
            _pipes(
                written(cell, column.kind)
                for cell, column in zip(row, self.columns, strict=True)
            )
            for row in self.rows
        ]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join([f"**{self.title}**", "", *lines]) + "\n"

    def to_latex(self) -> str:
        """A ``tabular`` with rules of the booktabs package, in a ``table``."""
        spec = "".join("l" if c.kind == "text" else "r" for c in self.columns)
        groups = [
            rf"\multicolumn{{{span}}}{{c}}{{{_tex(name)}}}"
            for name, span in spans(self.columns)
        ]
        lines = [
            r"\begin{table}", r"\centering", rf"\caption{{{_tex(self.title)}}}",
            rf"\label{{tab:{self.name}}}", rf"\begin{{tabular}}{{{spec}}}", r"\toprule",
        ]  # fmt: skip
        if any(column.group for column in self.columns):
            lines.append(" & ".join(groups) + r" \\")
        lines.append(" & ".join(_tex(c.name) for c in self.columns) + r" \\")
        lines.append(r"\midrule")
        for row in self.rows:
            cells = (
                _tex(written(cell, column.kind))
                for cell, column in zip(row, self.columns, strict=True)
            )
            lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\footnotesize {_tex(note)}" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def shown(self) -> dict[str, Any]:
        """For a page: headings, and cells as a reader sees them with their looks."""
        groups, start = [], 0
        if any(column.group for column in self.columns):
            for name, width in spans(self.columns):
                source = self.columns[start].source
                groups.append({"name": name, "width": width, "source": source})
                start += width
        rows = [
            {
                "total": isinstance(row[0], str) and row[0] in ("all", "average"),
                "cells": [
                    {"text": written(cell, c.kind), "look": f"{c.source} {c.kind}"}
                    for cell, c in zip(row, self.columns, strict=True)
                ],
            }
            for row in self.rows
        ]
        return {"spans": groups, "columns": self.columns, "rows": rows}


def spans(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Neighbours of the same group, as heading and width."""
    found: list[tuple[str, int]] = []
    for column in columns:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found


def written(cell: Cell, kind: Kind) -> str:
    """A cell as a reader sees it.

    Examples
    --------
    >>> written(0.0123, "seconds"), written(3600.0, "seconds"), written(3.0, "count")
    ('0.012', '3600', '3')
    >>> written(0.41, "percent"), written(float("inf"), "percent")
    ('41%', '∞')
    """
    if cell is None:
        return MISSING
    if isinstance(cell, str):
        return cell
    if math.isnan(cell):
        return MISSING
    if math.isinf(cell):
        return "∞" if cell > 0 else "-∞"
    match kind:
        case "percent":
            return "0%" if abs(cell) < SMALLEST_SHARE else f"{_short(100 * cell)}%"
        case "number":
            return f"{cell:.4g}"
        case "count" if float(cell).is_integer():
            return f"{cell:.0f}"
        case _:
            return _short(cell)


def _short(number: float) -> str:
    """Two digits, or the whole part of a longer number."""
    if number == 0:
        return "0"
    if abs(number) >= 9.95:
        return f"{number:.0f}"
    if abs(number) < 1e-3:
        return f"{number:.0e}".replace("e-0", "e-")
    digits = 1 - math.floor(math.log10(abs(number)))
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _heading(column: Column) -> str:
    return f"{column.group}: {column.name}" if column.group else column.name


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "$": r"\$", "{": r"\{", "}": r"\}", "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "∞": r"$\infty$", MISSING: "--",
}  # fmt: skip
"""What LaTeX would not print as it stands."""


def _tex(text: str) -> str:
    return "".join(TEX.get(letter, letter) for letter in text)
