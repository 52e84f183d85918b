"""What the inputs of a model mean: the columns of the table that its user has.

A column of numbers is one input, maybe changed by a monotone function on the way in. A
category is several inputs of zeros and ones, or one input that takes the numbers of a
list. Searches see inputs; users give and get columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Level: TypeAlias = str | int | float | bool

DIGITS = (12, 13, 14, 15)
"""Decimal digits to which a number is rounded when it is told, the fewest that change
nothing but the last bits of the input: bounds are told as they were given."""


class Change(NamedTuple):
    """A function that grows with its argument, and its inverse.

    Results are all numbers, or those at or above zero, `from_zero`.
    """

    forward: Callable[[Any], Any]
    backward: Callable[[Any], Any]
    from_zero: bool = False


CHANGES = {
    "log": Change(np.log, np.exp),
    "log1p": Change(np.log1p, np.expm1),
    "log2": Change(np.log2, np.exp2),
    "log10": Change(np.log10, lambda u: np.power(10.0, u)),
    "exp": Change(np.exp, np.log, from_zero=True),
    "sqrt": Change(np.sqrt, np.square, from_zero=True),
}
"""Changes of a column that a model may begin with, by the name NumPy gives them."""


@dataclass(frozen=True, slots=True)
class Number:
    """A column of numbers that the model reads as one input.

    Parameters
    ----------
    name
        What the user calls it.
    input
        Number of its input.
    change
        The function of the column that the input is, a key of `CHANGES`; ``None`` if
        it is the column itself.
    whole
        Whether the input takes whole numbers only.
    values
        The values that the input may take, ``None`` for any.

    Examples
    --------
    >>> Number("dose", 0, change="log").told(np.log([250.0]))
    250.0
    """

    name: str
    input: int
    change: str | None = None
    whole: bool = False
    values: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.change is not None and self.change not in CHANGES:
            raise ValueError(
                f"Expected a change among {', '.join(CHANGES)}, got {self.change!r} at "
                f"column {self.name}."
            )

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of its inputs."""
        return (self.input,)

    @property
    def is_plain(self) -> bool:
        """Whether the input is the column itself."""
        return self.change is None

    @property
    def input_names(self) -> tuple[str, ...]:
        """A name for each input."""
        return (self.name if self.change is None else f"{self.change}({self.name})",)

    def told(self, x: Array) -> float:
        """The number that a point (num_inputs,) has in this column."""
        u = float(x[self.input])
        if self.change is None:
            return u
        forward, backward, _ = CHANGES[self.change]
        number = float(backward(u))
        near = 4 * np.spacing(abs(u))
        for digits in DIGITS:
            rounded = float(f"{number:.{digits}g}")
            with np.errstate(invalid="ignore", divide="ignore"):
                if abs(float(forward(rounded)) - u) <= near:
                    return rounded
        return number

    def changed(self, low: float, high: float) -> tuple[float, float]:
        """Bounds of the input that hold every number from `low` to `high`."""
        if self.change is None:
            return low, high
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            ends = [float(CHANGES[self.change].forward(end)) for end in (low, high)]
        for end, u in zip((low, high), ends, strict=True):
            if not np.isfinite(u):
                raise ValueError(
                    f"Expected bounds of which the model can take the {self.change}, "
                    f"got {end:g} at column {self.name}. Narrow them."
                )
        if low == high:
            return ends[0], ends[0]
        least = 0.0 if CHANGES[self.change].from_zero else -np.inf
        return (
            max(float(np.nextafter(ends[0], -np.inf)), min(least, ends[0])),
            float(np.nextafter(ends[1], np.inf)),
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A category that the model sees as inputs of zeros and ones, one for each level.

    Parameters
    ----------
    name
        What the user calls it: ``"grade"``.
    inputs
        Numbers of its inputs.
    levels
        Name of each of them.
    base
        The level that no input stands for, all of them zero; ``None`` if there is none
        and exactly one input is a one.
    alike
        Pairs of another level and the one of `levels` that the model treats alike.

    Examples
    --------
    >>> grade = Group("grade", (3, 4), ("32.5", "42.5"), base="52.5")
    >>> grade.level(np.array([0.0, 0.0, 0.0, 1.0, 0.0])), grade.level(np.zeros(5))
    ('32.5', '52.5')
    """

    name: str
    inputs: tuple[int, ...]
    levels: tuple[Level, ...]
    base: Level | None = None
    alike: tuple[tuple[Level, Level], ...] = ()

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.levels) or not self.inputs:
            raise ValueError(
                f"Expected a level for each input, got {len(self.levels)} for "
                f"{len(self.inputs)} at category {self.name}."
            )
        if len(set(self.inputs)) != len(self.inputs):
            raise ValueError(
                f"Expected different inputs, got one twice at category {self.name}."
            )

    @property
    def is_plain(self) -> bool:
        """Whether the input is the column itself: never."""
        return False

    @property
    def input_names(self) -> tuple[str, ...]:
        """A name for each input."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    @property
    def known(self) -> tuple[Level, ...]:
        """Every level, the base first."""
        return (*(() if self.base is None else (self.base,)), *self.levels)

    def level(self, x: Array) -> Level:
        """The level that a point (num_inputs,) stands for."""
        of_inputs = x[list(self.inputs)]
        if self.base is not None and not np.any(of_inputs > 0.5):
            return self.base
        return self.levels[int(np.argmax(of_inputs))]

    def told(self, x: Array) -> Level:
        """What a point (num_inputs,) has in this column."""
        return self.level(x)

    def snapped(self, x: Array, lower: Array, upper: Array) -> Array:
        """Points (num_points, num_inputs) with the level nearest to each.

        `lower` and `upper` tell which levels are left, (num_inputs,).
        """
        places = list(self.inputs)
        found, wanted = x.copy(), x[:, places]
        possible = upper[places] >= 1.0
        wanted = np.where(possible, wanted, -np.inf) + 1e3 * (lower[places] >= 1.0)
        best = np.argmax(wanted, axis=1)
        least = -np.inf if self.base is None else 0.5
        some = wanted[np.arange(len(x)), best] > least
        found[:, places] = 0.0
        chosen = np.array(places)[best]
        found[np.arange(len(x))[some], chosen[some]] = 1.0
        return found

    def reordered(self, order: list[int]) -> Group:
        """The same category of ``x[order]``."""
        inputs = tuple(order.index(j) for j in self.inputs)
        return Group(self.name, inputs, self.levels, self.base, self.alike)


@dataclass(frozen=True, slots=True)
class Ordinal:
    """A category that the model sees as one input: 0 for the first level, 1, 2, ...

    Parameters
    ----------
    name
        What the user calls it.
    input
        Number of its input.
    levels
        Name of each level.
    alike
        Pairs of another level and the one of `levels` that the model treats alike.

    Examples
    --------
    >>> Ordinal("size", 0, ("small", "large")).told(np.array([1.0]))
    'large'
    """

    name: str
    input: int
    levels: tuple[Level, ...]
    alike: tuple[tuple[Level, Level], ...] = ()

    def __post_init__(self) -> None:
        if not self.levels:
            raise ValueError(f"Expected levels, got none at category {self.name}.")

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of its inputs."""
        return (self.input,)

    @property
    def is_plain(self) -> bool:
        """Whether the input is the column itself: never."""
        return False

    @property
    def input_names(self) -> tuple[str, ...]:
        """A name for each input."""
        return (self.name,)

    @property
    def known(self) -> tuple[Level, ...]:
        """Every level."""
        return self.levels

    def told(self, x: Array) -> Level:
        """What a point (num_inputs,) has in this column."""
        return self.levels[round(float(x[self.input]))]


Column: TypeAlias = Number | Group | Ordinal
KINDS = {"number": Number, "group": Group, "ordinal": Ordinal}


def find_level(column: Group | Ordinal, given: Any) -> Level:
    """The level that a user means, or an error that lists the known ones.

    Examples
    --------
    >>> grade = Group("grade", (0, 1), ("A", "B"), alike=(("C", "B"),))
    >>> find_level(grade, "C")
    'B'
    >>> find_level(grade, "D")
    Traceback (most recent call last):
    ...
    ValueError: Expected a level of category grade, got 'D', which is unknown. Known
    are 'A', 'B', 'C'.
    """
    alike = dict(column.alike)
    every = [*column.known, *alike]
    plain = given.item() if isinstance(given, np.generic) else given
    same = [level for level in every if level == plain]
    same = same or [level for level in every if str(level) == str(plain)]
    if not same:
        known = sorted((repr(level) for level in every), key=str)
        more = [f"... {len(known) - 20} more"] if len(known) > 20 else []
        raise ValueError(
            f"Expected a level of category {column.name}, got {plain!r:.60}, which is "
            f"unknown. Known are {', '.join([*known[:20], *more])}."
        )
    return alike.get(same[0], same[0])


def check_columns(columns: Sequence[Column], num_inputs: int) -> None:
    """Refuse columns that do not have each input once, or share a name."""
    inputs = sorted(j for column in columns for j in column.inputs)
    if inputs != list(range(num_inputs)):
        raise ValueError(
            f"Expected each of {num_inputs} inputs in one column, got {inputs!r:.80}."
        )
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        raise ValueError(f"Expected different column names, got {names!r:.200}.")


def to_text(columns: Sequence[Column]) -> str:
    """Columns as JSON, which `from_text` reads back."""
    kinds = {kind: word for word, kind in KINDS.items()}
    entries = [
        {"kind": kinds[type(c)]} | {key: getattr(c, key) for key in c.__slots__}
        for c in columns
    ]
    return json.dumps(entries)


def from_text(text: str) -> tuple[Column, ...]:
    """Columns from what `to_text` wrote; raises ValueError on anything else.

    Examples
    --------
    >>> columns = (Number("age", 0), Group("grade", (1, 2), ("A", "B"), base="C"))
    >>> from_text(to_text(columns)) == columns
    True
    """
    try:
        entries = json.loads(text)
        return tuple(_column(dict(entry)) for entry in entries)
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"Expected columns as JSON, got {text!r:.80}.") from error


def _column(entry: dict[str, Any]) -> Column:
    kind: Any = KINDS[entry.pop("kind")]
    for key in ("inputs", "levels", "values"):
        if entry.get(key) is not None:
            entry[key] = tuple(entry[key])
    if "alike" in entry:
        entry["alike"] = tuple((a, b) for a, b in entry["alike"])
    numbers = [*entry.get("inputs", ()), entry.get("input", 0)]
    levels = [*entry.get("levels", ()), *(x for p in entry.get("alike", ()) for x in p)]
    if not (
        isinstance(entry["name"], str)
        and all(type(j) is int and j >= 0 for j in numbers)
        and all(isinstance(level, str | int | float) for level in levels)
    ):
        raise TypeError("entries of another kind")
    found: Column = kind(**entry)
    return found
