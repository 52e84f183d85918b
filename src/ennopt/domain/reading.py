"""Read a feasible set from whatever a user may give.

| given as `spec` | read as |
|---|---|
| ``None`` | the range of `data`, or the box recorded with the model |
| ``{"age": (1, 28), "dose": 3}`` | bounds by name; a number fixes an input |
| ``{"grade": [32.5, 42.5, 52.5]}`` | three or more values, or a set: no others |
| a path ending in ``.toml`` or ``.csv`` | bounds by name, and more, from a file |
| a list of pairs ``[(0, 1), (0, 5)]`` | one pair for each input, in order |
| a tuple of two sequences ``(lower, upper)`` | lower bounds, then upper bounds |
| a tuple of two numbers ``(low, high)`` | the same bounds for every input |
| an object with ``lb`` and ``ub`` | ``scipy.optimize.Bounds`` |
| a DataFrame of bounds | columns or rows ``lower, upper`` or ``min, max`` |
| a DataFrame, an array of rows | the range of that data |
| a `Domain` | itself, its inputs matched by name |

Bounds by name (a dictionary, a file, a DataFrame of bounds) may leave inputs out: the
range of `data`, or else the recorded box, gives those. What else is said about the
inputs (`Where`) narrows the set further, all of it together. A model that records the
columns of its user's table is asked about those, see `ennopt.domain.encoded`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from ennopt.domain.constraints import constrained, read_fixed
from ennopt.domain.data import Data
from ennopt.domain.discrete import (
    chosen,
    read_categories,
    read_integers,
    read_values,
    value_list,
    values_in,
    yes_or_no,
)
from ennopt.domain.encoded import read_encoded
from ennopt.domain.files import Stated, read_bounds, read_cells
from ennopt.domain.frames import (
    Ranges,
    check_names,
    column_in,
    is_plain,
    listed,
    named_entries,
    ranges_in,
    rows_in,
    unknown_name,
)
from ennopt.domain.sets import Domain
from ennopt.domain.values import Values
from ennopt.domain.where import Place, Where, narrowed
from ennopt.network import Array, Ensemble, frozen

Pairs: TypeAlias = Mapping[str, tuple[float, float]]


def read_domain(
    spec: Any,
    ensemble: Ensemble,
    data: Any = None,
    constraints: Any = None,
    fixed: Any = None,
) -> Domain:
    """Read whatever a user may give as a feasible set for the inputs of `ensemble`.

    Parameters
    ----------
    spec
        Bounds in any of the forms that the head of this module lists.
    ensemble
        Gives the number and the names of the inputs.
    data
        Training rows whose range bounds every input that `spec` does not: a DataFrame,
        an array (num_rows, num_inputs) or the path of a CSV file.
    constraints
        Linear constraints on the inputs, in any of the forms that
        `ennopt.domain.constraints` lists.
    fixed
        Values by name. A fixed input has this value whatever its range is elsewhere.

    Examples
    --------
    >>> from ennopt import Ensemble, Network
    >>> net = Network([[[1.0, -1.0]]], [[0.5]])
    >>> model = Ensemble([net], input_names=("dose", "age"))
    >>> read_domain({"age": 28}, model, data=np.array([[0.0, 10.0], [2.0, 30.0]]))
    Domain(dose in [0, 2], age in [28, 28])
    >>> read_domain((0, 40), model, constraints="dose + age <= 30", fixed={"dose": 3})
    Domain(dose in [3, 3], age in [0, 40], Rows(0 equations, 1 inequality))
    """
    where = Where(domain=spec, data=data, constraints=constraints, fixed=fixed)
    return read_place(where, ensemble).domain


def read_place(where: Where, ensemble: Ensemble) -> Place:
    """The feasible set that a user describes, and the rows of data given with it.

    Examples
    --------
    >>> from ennopt import Ensemble, Network
    >>> net = Network([[[1.0, -1.0]]], [[0.5]])
    >>> model = Ensemble([net], input_names=("dose", "age"))
    >>> rows = np.array([[0.0, 10.0], [2.0, 30.5]])
    >>> place = read_place(Where(data=rows, integers=["age"]), model)
    >>> place.domain.upper.tolist(), place.data.rows.shape
    ([2.0, 30.0], (2, 2))
    """
    if ensemble.columns is not None:
        return read_encoded(where, ensemble)
    names, spec, said = ensemble.input_names, where.domain, Stated({})
    box, data = None, None
    if (seen := _rows_of(spec, names, where)) is not None:
        spec, names = None, seen.names
    else:
        names = _named_by(spec, names)
    if where.data is not None:
        box, data = read_data(where.data, names, where.target)
    elif ensemble.lower is not None and ensemble.upper is not None:
        box = Domain(ensemble.lower, ensemble.upper, names)
    if seen is not None:
        box, data = seen.box, data or seen
    where.check_target(data)
    if isinstance(spec, str | os.PathLike):
        said = read_bounds(spec)
        spec = said.bounds
    names = names if box is None else box.names
    groups = read_categories(said.categories, names)
    groups += read_categories(where.categories, names)
    fixed = read_fixed(chosen(where.fixed, groups, names), names)
    # What bounds inputs that `spec` leaves out, the strongest last.
    rest = {names[j]: (0.0, 1.0) for group in groups for j in group.inputs}
    for j, entry in read_values(where.values, names).items():
        rest[names[j]] = (entry[0], entry[-1])
    if box is not None:
        rest |= dict(zip(names, zip(box.lower, box.upper, strict=True), strict=True))
    rest |= {name: (at, at) for name, at in fixed.items()}
    domain = box if spec is None and box is not None else _read_set(spec, names, rest)
    domain = constrained(domain, fixed=fixed)
    integers = read_integers(said.integers, names)
    integers += read_integers(where.integers, names)
    integers += yes_or_no(where.domain, where.data, names=names)
    return narrowed(domain, where, said, data, integers, where.values, groups)


def _named_by(spec: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the inputs: bounds may name those of a model that does not."""
    given: Sequence[str] | None = None
    if isinstance(spec, Domain):
        given = spec.names
    elif hasattr(spec, "columns") and (ranges := ranges_in(spec, names)) is not None:
        given = ranges.names
        if given is not None and set(given) <= set(names):
            given = None
    if given is None or not is_plain(names) or len(given) != len(names):
        return names
    return tuple(given)


def _rows_of(spec: Any, names: Sequence[str], where: Where) -> Data | None:
    """The rows of data that stand in the place of bounds, if they do."""
    target = where.target if where.data is None else None
    if hasattr(spec, "columns"):
        if ranges_in(spec, names) is not None:
            return None
        return _rows_in_table(spec, names, target)
    if hasattr(spec, "__array__") and named_entries(spec) is None:
        array = np.asarray(spec)
        if array.shape == (2, 2) and len(names) == 2:
            raise ValueError(
                "Expected bounds or data, got a 2 by 2 array, which may be either. "
                "Pass a list of (low, high) pairs, or data=array."
            )
        if array.ndim == 2 and array.shape[1] == len(names):
            return Data(array, tuple(names), _target(target))
    return None


def _read_set(spec: Any, names: Sequence[str], rest: Pairs) -> Domain:
    """The set before other statements; `rest` bounds inputs that `spec` leaves out."""
    if spec is None and not rest:
        raise ValueError(
            f"Expected bounds for the {len(names)} inputs, got none, and the model "
            "records no box. Give bounds or training data."
        )
    if spec is None:
        return _from_mapping({}, names, rest)
    if isinstance(spec, Domain):
        return _matched(spec, names)
    if isinstance(spec, Mapping):
        return _from_mapping(spec, names, rest)
    if hasattr(spec, "columns") and (ranges := ranges_in(spec, names)) is not None:
        return _from_ranges(ranges, names, rest)
    if (named := named_entries(spec)) is not None:
        return _from_mapping(named, names, rest)
    if hasattr(spec, "lb") and hasattr(spec, "ub"):
        return _from_sides((spec.lb, spec.ub), names)
    if isinstance(spec, tuple) and len(spec) == 2:
        return _from_sides(spec, names)
    return _from_pairs(np.asarray(spec) if hasattr(spec, "__array__") else spec, names)


def read_data(
    given: Any, names: Sequence[str], target: Any = None
) -> tuple[Domain, Data | None]:
    """The box around data, and the rows, unless only their ranges are given.

    Parameters
    ----------
    given
        A DataFrame, an array (num_rows, num_inputs) or the path of a CSV file. A
        DataFrame may state ranges, as ``describe()`` does.
    names
        Names of the inputs.
    target
        What was measured: the name of a column of `given`, or a number for each row.
    """
    if isinstance(given, str | os.PathLike):
        cells = read_cells(given, "a file of data")
        if all(_spells_a_number(name) for name in cells):
            raise ValueError(
                "Expected a header with the names of the columns, got numbers in "
                f"{os.fspath(given)}. Add a first line of names."
            )
        given = cells
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        if (ranges := ranges_in(given, names)) is not None:
            return _from_ranges(ranges, names, {}), None
        data = _rows_in_table(given, names, target)
        return data.box, data
    rows = frozen(given)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise ValueError(
            f"Expected data of {len(names)} columns, one for each input, got shape "
            f"{rows.shape}."
        )
    data = Data(rows, tuple(names), _target(target))
    return data.box, data


def _rows_in_table(table: Any, names: Sequence[str], target: Any) -> Data:
    column = target if isinstance(target, str) else None
    measured = _target(target) if column is None else column_in(table, column, names)
    found, rows = rows_in(table, names, column)
    if not len(rows):
        raise ValueError("Expected rows of data, got a table without any.")
    return Data(rows, found, measured)


def _target(given: Any) -> Array | None:
    """The target of rows that have no names of columns."""
    if isinstance(given, str):
        raise ValueError(
            f"Expected a target as numbers, got the name {given!r} of a column, and "
            "the data are an array without names. Pass the numbers."
        )
    return None if given is None else frozen(given)


def _spells_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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


def _from_mapping(spec: Mapping[Any, Any], names: Sequence[str], rest: Pairs) -> Domain:
    """Bounds by name; `rest` has those of the inputs that are not named."""
    given = {str(key): entry for key, entry in spec.items()}
    unknown = [key for key in given if key not in names]
    if unknown:
        raise ValueError(
            f"Expected bounds by input name, got unknown input {unknown[0]}. "
            f"{unknown_name(unknown[0], names)}"
        )
    missing = [name for name in names if name not in given and name not in rest]
    if missing:
        raise ValueError(
            f"Expected bounds for every input, got none for {listed(missing)}. Add "
            "them, or give training data whose ranges take their place."
        )
    lists = {
        j: value_list(values_in(given[name]), name)
        for j, name in enumerate(names)
        if name in given and values_in(given[name]) is not None
    }
    pairs = [
        (lists[j][0], lists[j][-1]) if j in lists
        else _pair(given[name], name) if name in given
        else rest[name]
        for j, name in enumerate(names)
    ]  # fmt: skip
    values = Values.of(len(names), lists=lists)
    return replace(_from_pairs(pairs, names), values=values)


def _pair(entry: Any, name: str) -> Any:
    """``(low, high)``; a number stands for both."""
    if isinstance(entry, Real):  # NumPy's numbers, too
        return (entry, entry)
    if not _is_pair(entry):
        raise ValueError(
            "Expected a pair (low, high), a list of at least three values or a set of "
            f"values, or a number that fixes it, got {entry!r:.60} at input {name}."
        )
    return entry


def _is_pair(entry: Any) -> bool:
    ordered = isinstance(entry, Sequence) or hasattr(entry, "__array__")
    if not ordered or isinstance(entry, str) or len(entry) != 2:
        return False
    return all(np.ndim(end) == 0 and end is not None for end in entry)


def _from_ranges(ranges: Ranges, names: Sequence[str], rest: Pairs) -> Domain:
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
    named = named_entries(given)
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
