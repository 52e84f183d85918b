"""The variables that a user names, in whatever form, as a matrix of samples."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ennopt.embed.host import Host, Objects
from ennopt.network import shown

FORMS = (
    "a list, an array, a DataFrame, a dictionary, or the matrix or indexed variable of "
    "the solver"
)


def input_matrix(
    host: Host, given: Any, names: Sequence[str] | None, count: int
) -> Objects:
    """The inputs of each sample, (num_samples, num_inputs).

    Parameters
    ----------
    host
        Whose variables they are.
    given
        Variables, and numbers among them: one sample, or one in each row.
    names
        Names of the model's inputs, if it has recorded any. Labelled variables are
        then matched by name, and others of them are ignored.
    count
        Number of inputs of the model.
    """
    rows = [[given]] if host.is_variable(given) else _rows(given, names)
    for r, row in enumerate(rows):
        if len(row) != count:
            where = f" in sample {r}" if len(rows) > 1 else ""
            raise ValueError(
                f"Expected {count} input variables, one for each input of the "
                f"predictor, got {len(row)}{where}. Pass one row for each sample."
            )
    return _filled(rows, count)


def output_matrix(host: Host, given: Any, num_samples: int, count: int) -> Objects:
    """The outputs of each sample, (num_samples, num_outputs)."""
    rows = [[given]] if host.is_variable(given) else _rows(given, None)
    if len(rows) == 1 and num_samples > 1 and count == 1:
        rows = [[one] for one in rows[0]]
    if len(rows) != num_samples or any(len(row) != count for row in rows):
        widths = sorted({len(row) for row in rows})
        got = f"{len(rows)} x {' or '.join(map(str, widths)) or 0}"
        raise ValueError(
            f"Expected output variables for {num_samples} samples and {count} outputs, "
            f"got {got}. Leave output_vars out to have them made."
        )
    return _filled(rows, count)


def check_variables(
    host: Host, matrix: Objects, what: Callable[[int], str], numbers_too: bool
) -> None:
    """Refuse what is neither a variable of the host nor, for inputs, a number."""
    for (r, j), one in np.ndenumerate(matrix):
        where = f"{what(j)} of sample {r}" if len(matrix) > 1 else what(j)
        if host.is_variable(one):
            if not host.holds(one):
                raise ValueError(
                    "Expected variables of the model that is passed first, got one of "
                    f"another model or a removed one at {where}."
                )
        elif not numbers_too or not is_number(one):
            kinds = "a variable of the model" + " or a number" * numbers_too
            raise TypeError(
                f"Expected {kinds}, got {type(one).__name__} at {where}. For an "
                "expression, add a variable that equals it."
            )
        elif not np.isfinite(float(one)):
            raise ValueError(f"Expected a finite number, got {one} at {where}.")


def is_number(thing: object) -> bool:
    """Whether this is a plain number."""
    return isinstance(thing, numbers.Real)


def _rows(given: Any, names: Sequence[str] | None) -> list[list[Any]]:
    """Samples as lists of what was given for them."""
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):  # a DataFrame
        labels = [str(label) for label in given.columns]
        order = _order(labels, names)
        return [[row[j] for j in order] for row in given.to_numpy(dtype=object)]
    if hasattr(given, "keys") and hasattr(given, "values"):
        return _labelled(given, names)
    if isinstance(given, np.ndarray):
        given = _listed(given)
    elif hasattr(given, "tolist"):  # an MVar
        given = given.tolist()
    if not isinstance(given, list | tuple):
        raise TypeError(f"Expected variables as {FORMS}, got {type(given).__name__}.")
    if any(isinstance(row, list | tuple | np.ndarray) for row in given):
        return [_sequence(row, r) for r, row in enumerate(given)]
    return [list(given)]


def _labelled(given: Any, names: Sequence[str] | None) -> list[list[Any]]:
    """Variables by label: a dictionary, a Series, a tupledict, an indexed variable."""
    keys = list(given.keys())
    if keys and all(isinstance(key, tuple) and len(key) == 2 for key in keys):
        samples = list(dict.fromkeys(first for first, _ in keys))
        labels = list(dict.fromkeys(second for _, second in keys))
        if len(keys) != len(samples) * len(labels):
            raise ValueError(
                f"Expected a variable for each of {len(samples)} samples and "
                f"{len(labels)} inputs, got {len(keys)}. Pass rows of equal length."
            )
        order = [labels[j] for j in _order([str(label) for label in labels], names)]
        return [[given[first, second] for second in order] for first in samples]
    return [[given[keys[j]] for j in _order([str(key) for key in keys], names)]]


def _order(labels: Sequence[str], names: Sequence[str] | None) -> list[int]:
    """Where each input of the model stands among the labels."""
    if names is None or all(label.isdecimal() for label in labels):
        return list(range(len(labels)))
    missing = [name for name in names if name not in labels]
    if missing:
        raise ValueError(
            f"Expected a variable for each input of the predictor, got none for "
            f"{shown(missing[0])} among {shown(', '.join(labels)[:200])}. Name it so, "
            "or pass a list in the order of the inputs."
        )
    return [labels.index(name) for name in names]


def _listed(array: Any) -> list[Any]:
    """The rows of an array, or its entries, as they are."""
    if array.ndim > 2:
        raise ValueError(
            f"Expected variables in one dimension or two, got {array.ndim}. Pass one "
            "row for each sample."
        )
    plain = np.asarray(array)  # arrays of solvers answer in kinds of their own
    if plain.ndim == 2:
        return [[plain[r, j] for j in range(plain.shape[1])] for r in range(len(plain))]
    return [one for one in plain.ravel()]


def _sequence(row: Any, r: int) -> list[Any]:
    if isinstance(row, list | tuple):
        return list(row)
    if isinstance(row, np.ndarray) and row.ndim == 1:
        return _listed(row)
    raise ValueError(
        f"Expected rows of variables, got {type(row).__name__} at row {r}. Pass one "
        "list for each sample."
    )


def _filled(rows: Sequence[Sequence[Any]], count: int) -> Objects:
    """Entry by entry: some variables look like sequences to NumPy."""
    matrix = np.empty((len(rows), count), dtype=object)
    for r, row in enumerate(rows):
        for j, one in enumerate(row):
            matrix[r, j] = one
    return matrix
