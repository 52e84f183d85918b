"""Read a feasible set from whatever a user may give.

| given as `spec` | read as |
|---|---|
| ``None`` | the range of `data`, or the box recorded with the model |
| ``{"age": (1, 28), "dose": 3}`` | bounds by name; a number fixes an input |
| a path ending in ``.toml`` or ``.csv`` | bounds by name from that file |
| a list of pairs ``[(0, 1), (0, 5)]`` | one pair for each input, in order |
| a tuple of two sequences ``(lower, upper)`` | lower bounds, then upper bounds |
| a tuple of two numbers ``(low, high)`` | the same bounds for every input |
| an object with ``lb`` and ``ub`` | ``scipy.optimize.Bounds`` |
| a DataFrame of bounds | columns or rows ``lower, upper`` or ``min, max`` |
| a DataFrame, an array of rows | the range of that data |
| a `Domain` | itself, its inputs matched by name |

Bounds by name (a dictionary, a file, a DataFrame of bounds) may leave inputs out: the
range of `data`, or else the recorded box, gives those.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from ennopt.domain.files import read_bounds, read_cells
from ennopt.domain.frames import (
    Ranges,
    check_names,
    is_plain,
    listed,
    ranges_in,
    rows_in,
)
from ennopt.domain.sets import Domain
from ennopt.network import Array, Ensemble, frozen


def read_domain(spec: Any, ensemble: Ensemble, data: Any = None) -> Domain:
    """Read whatever a user may give as bounds for the inputs of `ensemble`.

    Parameters
    ----------
    spec
        Bounds in any of the forms that the head of this module lists.
    ensemble
        Gives the number and the names of the inputs.
    data
        Training rows whose range bounds every input that `spec` does not: a DataFrame,
        an array (num_rows, num_inputs) or the path of a CSV file.

    Examples
    --------
    >>> from ennopt import Ensemble, Network
    >>> net = Network([[[1.0, -1.0]]], [[0.5]])
    >>> model = Ensemble([net], input_names=("dose", "age"))
    >>> read_domain({"age": 28}, model, data=np.array([[0.0, 10.0], [2.0, 30.0]]))
    Domain(dose in [0, 2], age in [28, 28])
    """
    names = ensemble.input_names
    rest = None
    if data is not None:
        rest = read_data(data, ensemble)
        names = rest.names
    elif ensemble.lower is not None and ensemble.upper is not None:
        rest = Domain(ensemble.lower, ensemble.upper, names)
    if spec is None:
        if rest is None:
            raise ValueError(
                f"Expected bounds for the {len(names)} inputs, got none, and the model "
                "records no box. Give bounds or training data."
            )
        return rest
    if isinstance(spec, Domain):
        return _matched(spec, names)
    if isinstance(spec, str | os.PathLike):
        return _from_mapping(read_bounds(spec), names, rest)
    if isinstance(spec, Mapping):
        return _from_mapping(spec, names, rest)
    if hasattr(spec, "columns"):
        return _from_table(spec, names, rest)
    if (named := _series(spec)) is not None:
        return _from_mapping(named, names, rest)
    if hasattr(spec, "lb") and hasattr(spec, "ub"):
        return _from_sides((spec.lb, spec.ub), names)
    if isinstance(spec, tuple) and len(spec) == 2:
        return _from_sides(spec, names)
    if hasattr(spec, "__array__"):
        spec = np.asarray(spec)
        if spec.shape == (2, 2) and len(names) == 2:
            raise ValueError(
                "Expected bounds or data, got a 2 by 2 array, which may be either. "
                "Pass a list of (low, high) pairs, or data=array."
            )
        if spec.ndim == 2 and spec.shape[1] == len(names):
            return Domain.from_data(spec, names)
    return _from_pairs(spec, names)


def read_data(data: Any, ensemble: Ensemble) -> Domain:
    """The box around rows of data: a DataFrame, an array or the path of a CSV file."""
    names = ensemble.input_names
    if isinstance(data, str | os.PathLike):
        cells = read_cells(data, "a file of data")
        if all(_spells_a_number(name) for name in cells):
            raise ValueError(
                "Expected a header with the names of the columns, got numbers in "
                f"{os.fspath(data)}. Add a first line of names."
            )
        data = cells
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        return _from_table(data, names, None)
    rows = frozen(data)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise ValueError(
            f"Expected data of {len(names)} columns, one for each input, got shape "
            f"{rows.shape}."
        )
    return Domain.from_data(rows, names)


def _spells_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _series(given: Any) -> dict[str, Any] | None:
    """The entries of a pandas Series whose index has names."""
    if not hasattr(given, "to_dict"):
        return None
    entries: dict[Any, Any] = given.to_dict()
    return entries if all(isinstance(name, str) for name in entries) else None


def _matched(domain: Domain, names: Sequence[str]) -> Domain:
    """The same set with its inputs in the order of `names`."""
    own = domain.names
    if len(own) != len(names):
        raise ValueError(
            f"Expected a domain of {len(names)} inputs, got {len(own)}: {listed(own)}."
        )
    if own == tuple(names) or is_plain(names):
        return domain
    if is_plain(own):
        return replace(domain, names=tuple(names))
    check_names(own, names)
    return domain.reordered([own.index(name) for name in names], names)


def _from_mapping(
    spec: Mapping[Any, Any], names: Sequence[str], rest: Domain | None
) -> Domain:
    """Bounds by name; `rest` has those of the inputs that are not named."""
    given = {str(key): entry for key, entry in spec.items()}
    unknown = [key for key in given if key not in names]
    if unknown:
        unnamed = " (the model records no names)" * is_plain(names)
        raise ValueError(
            f"Expected bounds by input name, got unknown input {unknown[0]}. The "
            f"inputs are {listed(names)}{unnamed}."
        )
    missing = [name for name in names if name not in given]
    if missing and rest is None:
        raise ValueError(
            f"Expected bounds for every input, got none for {listed(missing)}. Add "
            "them, or give training data whose ranges take their place."
        )
    pairs = [
        _pair(given[name], name) if name in given else (rest.lower[j], rest.upper[j])  # type: ignore[union-attr]
        for j, name in enumerate(names)
    ]
    return _from_pairs(pairs, names)


def _pair(entry: Any, name: str) -> Any:
    """``(low, high)``; a number stands for both."""
    if isinstance(entry, Real):  # NumPy's numbers, too
        return (entry, entry)
    if not _is_pair(entry):
        raise ValueError(
            "Expected a pair (low, high), or a number that fixes it, got "
            f"{entry!r:.60} at input {name}."
        )
    return entry


def _is_pair(entry: Any) -> bool:
    ordered = isinstance(entry, Sequence) or hasattr(entry, "__array__")
    if not ordered or isinstance(entry, str) or len(entry) != 2:
        return False
    return all(np.ndim(end) == 0 and end is not None for end in entry)


def _from_table(table: Any, names: Sequence[str], rest: Domain | None) -> Domain:
    """A table of bounds, or the range of a table of rows."""
    ranges = ranges_in(table, names)
    if ranges is not None:
        return _from_ranges(ranges, names, rest)
    found, rows = rows_in(table, names)
    if not len(rows):
        raise ValueError("Expected rows of data, got a table without any.")
    return Domain.from_data(rows, found)


def _from_ranges(ranges: Ranges, names: Sequence[str], rest: Domain | None) -> Domain:
    """Bounds that a table states."""
    given, lower, upper, of_data = ranges
    if given is None or (is_plain(names) and not set(given) <= set(names)):
        if len(lower) != len(names):
            raise ValueError(
                f"Expected bounds for {len(names)} inputs, got {len(lower)}. Name the "
                "inputs, or leave the others out."
            )
        return Domain(frozen(lower), frozen(upper), tuple(given or names))
    pairs = dict(zip(given, zip(lower, upper, strict=True), strict=True))
    if of_data and not set(given) <= set(names):  # the target is among them
        check_names(given, names)
        pairs = {name: pairs[name] for name in names}
    return _from_mapping(pairs, names, rest)


def _from_sides(sides: tuple[Any, Any], names: Sequence[str]) -> Domain:
    """``(lower, upper)``, each one number for all inputs or one for each."""
    lower = _one_for_each(sides[0], "lower", names)
    upper = _one_for_each(sides[1], "upper", names)
    might_be_pairs = len(names) == 2 and all(isinstance(s, list | tuple) for s in sides)
    if might_be_pairs and ((lower > upper).any() or (lower == upper).all()):
        raise ValueError(
            f"Expected lower <= upper and not one point, got {sides!r:.80}. A tuple of "
            "two sequences is (lower, upper); pass a list for one (low, high) pair for "
            "each input."
        )
    return Domain(lower, upper, tuple(names))


def _one_for_each(given: Any, side: str, names: Sequence[str]) -> Array:
    named = _series(given)
    if named is not None and not is_plain(names):
        check_names(list(named), names)
        given = [named[name] for name in names]
    values = frozen(given)
    if values.ndim == 0:
        return np.full(len(names), values)
    if values.shape != (len(names),):
        lacking = names[values.size :] if values.ndim == 1 else ()
        told = f" (none for {listed(lacking)})" if lacking else ""
        raise ValueError(
            f"Expected {len(names)} {side} bounds, one for each input, got "
            f"{values.size}{told}."
        )
    return values


def _from_pairs(spec: Any, names: Sequence[str]) -> Domain:
    if not isinstance(spec, Iterable) or isinstance(spec, Set):
        raise TypeError(
            "Expected a domain as a list of (low, high) pairs, a dict by name, a tuple "
            "(lower, upper), a path or training data, got "
            f"{type(spec).__name__}."
        )
    pairs = list(spec)
    if len(pairs) != len(names):
        lacking = f" (none for {listed(names[len(pairs) :])})"
        raise ValueError(
            f"Expected {len(names)} (low, high) pairs, one for each input, got "
            f"{len(pairs)}{lacking * (len(pairs) < len(names))}."
        )
    for name, pair in zip(names, pairs, strict=True):
        if not _is_pair(pair):
            raise ValueError(
                f"Expected a pair (low, high), got {pair!r:.60} at input {name}."
            )
    low, high = frozen([p[0] for p in pairs]), frozen([p[1] for p in pairs])
    return Domain(low, high, tuple(names))
