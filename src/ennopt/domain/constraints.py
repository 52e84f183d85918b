"""Linear constraints and fixed inputs, read from whatever a user may give.

| given as `constraints` | read as |
|---|---|
| ``"2*cement <= 900 + slag"`` | a text, see `ennopt.domain.statements` |
| an object with ``A``, ``lb`` and ``ub`` | ``scipy.optimize.LinearConstraint`` |
| an object with ``lb`` and ``ub`` | ``scipy.optimize.Bounds``: narrows the box |
| `Rows` | themselves |
| a tuple of three ``(matrix, least, most)`` | ``least <= matrix @ x <= most`` |
| a list of these | all of them together |

A matrix has one column for each input, in the order of the inputs; the columns of a
DataFrame are matched by name, and inputs without a column do not count.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ennopt.domain.frames import named_entries, unknown_name
from ennopt.domain.rows import Rows
from ennopt.domain.statements import read_statement, stated
from ennopt.network import Array, frozen

if TYPE_CHECKING:  # `Domain.constrained` calls what is here
    from ennopt.domain.sets import Domain

Box: TypeAlias = tuple[Array, Array]


def constrained(domain: Domain, constraints: Any = None, fixed: Any = None) -> Domain:
    """A domain with further constraints and fixed inputs.

    Parameters
    ----------
    domain
        Where the inputs may lie.
    constraints
        In any of the forms that the head of this module lists.
    fixed
        Values by name. They take the place of the ranges in `domain`, even outside
        them; constraints must still hold.

    Examples
    --------
    >>> from ennopt import Domain
    >>> mix = Domain([0, 0, 1], [500, 300, 90], ("cement", "slag", "age"))
    >>> constrained(mix, ["cement + slag == 400", "slag <= 2*cement"], {"age": 28})
    Domain(cement in [0, 500], slag in [0, 300], age in [28, 28], Rows(1 equation,
    1 inequality))
    """
    if constraints is None and fixed is None:
        return domain
    names = domain.names
    lower, upper = domain.lower.copy(), domain.upper.copy()
    for name, at in read_fixed(fixed, names).items():
        lower[names.index(name)] = upper[names.index(name)] = at
    found = [domain.rows]
    for part in _parts(constraints, names):
        if isinstance(part, Rows):
            found.append(part)
        else:
            lower, upper = _met((lower, upper), part, names)
    rows = functools.reduce(Rows.and_, found)
    # A new set: its slack is its own.
    return type(domain)(
        lower, upper, names, rows, domain.values, domain.groups, domain.regions,
        domain.convex,
    )  # fmt: skip


def read_fixed(fixed: Any, names: Sequence[str]) -> dict[str, float]:
    """The values of fixed inputs, by name.

    Examples
    --------
    >>> read_fixed({"age": 28}, ["cement", "age"])
    {'age': 28.0}
    """
    if fixed is None:
        return {}
    entries = fixed if isinstance(fixed, Mapping) else named_entries(fixed)
    if entries is None:
        raise TypeError(
            f"Expected fixed inputs as a dict by name, got {type(fixed).__name__}. "
            'Pass fixed={"age": 28}.'
        )
    values = {str(name): at for name, at in entries.items()}
    for name, at in values.items():
        if name not in names:
            raise ValueError(
                f"Expected the name of an input to fix, got {name!r}. "
                f"{unknown_name(name, names)}"
            )
        if not (isinstance(at, Real) and np.isfinite(float(at))):
            raise ValueError(
                f"Expected a finite number that fixes it, got {at!r:.60} at input "
                f"{name}."
            )
    return {name: float(at) for name, at in values.items()}


def _parts(given: Any, names: Sequence[str]) -> Iterator[Rows | Box]:
    """Rows and boxes that are to hold together."""
    if given is None:
        return
    if isinstance(given, str):
        yield read_statement(given, names)
    elif isinstance(given, Rows):
        yield _on(given, names)
    elif callable(given) or hasattr(given, "fun") or isinstance(given, Mapping):
        raise _unknown(given)
    elif hasattr(given, "lb") and hasattr(given, "ub"):
        if hasattr(given, "A"):
            yield _rows(given.A, given.lb, given.ub, names)
        else:
            yield _sides(given.lb, given.ub, len(names))
    elif isinstance(given, tuple) and len(given) == 3 and _is_matrix(given[0]):
        yield _rows(*given, names)
    elif isinstance(given, list | tuple):
        for part in given:
            if isinstance(part, list):
                raise _unknown(part)
            yield from _parts(part, names)
    else:
        raise _unknown(given)


def _unknown(given: Any) -> TypeError:
    """What is said of functions, of ``NonlinearConstraint`` and of mere numbers."""
    what = type(given).__name__
    return TypeError(
        f"Expected linear constraints, got {what}. Give texts such as "
        '"2*cement <= 900 + slag", scipy.optimize.LinearConstraint or Bounds, '
        "ennopt.Rows or (matrix, least, most), or a list of these. Functions of the "
        "inputs that are not linear cannot be constrained."
    )


def _is_matrix(given: Any) -> bool:
    """Whether this may be the matrix of a triple, and not a constraint itself."""
    if isinstance(given, list | tuple):
        return not any(isinstance(entry, str) for entry in given)
    return hasattr(given, "__array__") or hasattr(given, "toarray")


def _rows(matrix: Any, least: Any, most: Any, names: Sequence[str]) -> Rows:
    """A matrix and its sides; rows without sides are left out."""
    if hasattr(matrix, "toarray"):  # a sparse matrix
        matrix = matrix.toarray()
    elif hasattr(matrix, "columns"):
        matrix = _by_name(matrix, names)
    slopes = np.atleast_2d(frozen(matrix))
    low, high = _sides(least, most, len(slopes))
    counts = ~(np.isneginf(low) & np.isposinf(high))
    slopes, low, high = slopes[counts], low[counts], high[counts]
    rows = _on(Rows(slopes.reshape(-1, slopes.shape[-1]), low, high), names)
    texts = map(stated, slopes, low, high, [names] * len(low))
    return replace(rows, texts=tuple(texts))


def _by_name(table: Any, names: Sequence[str]) -> Array:
    """Coefficients in the order of the inputs, from a DataFrame with their names."""
    columns = [str(name) for name in table.columns]
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise ValueError(
            f"Expected columns named as the inputs, got {unknown[0]!r} in a matrix of "
            f"constraints. {unknown_name(unknown[0], names)}"
        )
    values = frozen(table)
    slopes = np.zeros((len(values), len(names)))
    slopes[:, [names.index(name) for name in columns]] = values
    return slopes


def _sides(least: Any, most: Any, count: int) -> Box:
    """Both sides of `count` rows; one number is the same for all, ``None`` is none."""
    low = frozen(-np.inf if least is None else least)
    high = frozen(np.inf if most is None else most)
    for side in (low, high):
        if side.shape not in ((), (1,), (count,)):
            raise ValueError(
                f"Expected one number or {count} for each side of a constraint, got "
                f"{side.size}."
            )
    return np.broadcast_to(low, count), np.broadcast_to(high, count)


def _on(rows: Rows, names: Sequence[str]) -> Rows:
    """Rows that have a column for each input, or an error."""
    if rows.matrix.shape[1] != len(names):
        raise ValueError(
            f"Expected {len(names)} coefficients in each linear constraint, one for "
            f"each input, got {rows.matrix.shape[1]}."
        )
    return rows


def _met(box: Box, other: Box, names: Sequence[str]) -> Box:
    """The box that two boxes share."""
    lower = np.maximum(box[0], other[0])
    upper = np.minimum(box[1], other[1])
    for j, name in enumerate(names):
        if not lower[j] <= upper[j]:
            raise ValueError(
                f"Expected bounds that meet the range [{box[0][j]:g}, {box[1][j]:g}], "
                f"got [{other[0][j]:g}, {other[1][j]:g}] at input {name}. Widen one of "
                "them."
            )
    return lower, upper
