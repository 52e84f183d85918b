"""Whole numbers, lists of values and categories, read from what a user may give.

| given as | read as |
|---|---|
| ``integers=["age"]``, ``integers=[3]`` | whole numbers, inputs by name or position |
| ``values={"grade": [32.5, 42.5]}`` | inputs that take the values of a list only |
| ``categories={"plant": ["plant_A", "plant_B"]}`` | exactly one of these inputs is 1 |
| ``categories={"plant": {"A": "plant_A", "B": None}}`` | with names of levels |

The other inputs of a category are 0. A level without an input (``None``, in a file an
empty text) is the base level, at which all inputs of the category are 0.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ennopt.columns import Group, find_level
from ennopt.domain.frames import listed, unknown_name
from ennopt.domain.values import Values
from ennopt.network import Array, frozen

if TYPE_CHECKING:
    from ennopt.domain.sets import Domain


def discretised(
    domain: Domain, integers: Any = None, values: Any = None, categories: Any = None
) -> Domain:
    """A domain some of whose inputs take whole numbers or listed values only.

    Parameters
    ----------
    domain
        Where the inputs may lie. Listed values beyond its bounds are left out.
    integers, values
        As the head of this module says.
    categories
        The same, or groups that were read already.

    Examples
    --------
    >>> from ennopt import Domain
    >>> mix = Domain([0, 32.5, 1], [500, 52.5, 90.5], ("cement", "grade", "age"))
    >>> mix = discretised(mix, integers="age", values={"grade": [32.5, 42.5, 60]})
    >>> mix.upper.tolist()
    [500.0, 42.5, 90.0]
    """
    names = domain.names
    whole, lists = domain.values.whole.copy(), list(domain.values.lists)
    whole[read_integers(integers, names)] = True
    for j, given in read_values(values, names).items():
        entry, known = given, lists[j]
        if known is not None:
            entry = np.intersect1d(given, known)
        inside = entry[(entry >= domain.lower[j]) & (entry <= domain.upper[j])]
        if not inside.size:
            allowed = f"the range [{domain.lower[j]:g}, {domain.upper[j]:g}]"
            if known is not None and not entry.size:
                allowed = f"the other list of it, {_numbers(known)},"
            raise ValueError(
                f"Expected a value within {allowed} in the list of input {names[j]}, "
                f"got {_numbers(given)}. Widen one of them."
            )
        lists[j] = entry
    for j, name in enumerate(names):
        entries = lists[j]
        if entries is None or not whole[j]:
            continue
        broken = entries[entries != np.rint(entries)]
        if broken.size:
            raise ValueError(
                f"Expected whole numbers in the list of {name}, which is an integer, "
                f"got {broken[0]:g}. Leave one of the two out."
            )
        whole[j] = False  # the list says it all
    groups = domain.groups + read_categories(categories, names)
    owners: dict[int, str] = {}
    for group in groups:
        for j in group.inputs:
            _check_column(domain, group, j, lists[j], owners.get(j))
            owners[j], whole[j] = group.name, True
    # A new set: its slack is its own.
    return type(domain)(
        domain.lower, domain.upper, names, domain.rows, Values(whole, tuple(lists)),
        groups, domain.regions, domain.convex,
    )  # fmt: skip


def read_integers(given: Any, names: Sequence[str]) -> list[int]:
    """Numbers of the inputs that take whole numbers, given by name or position.

    Examples
    --------
    >>> read_integers(["age", 0], ["cement", "age"])
    [1, 0]
    """
    if given is None:
        return []
    entries = [given] if isinstance(given, str) else given
    if not isinstance(entries, Iterable) or isinstance(entries, Mapping):
        raise TypeError(
            f"Expected names or positions of inputs, got {given!r:.60} at integers. "
            'Pass integers=["age"].'
        )
    return [_place(entry, names, "integers") for entry in entries]


def yes_or_no(*tables: Any, names: Sequence[str]) -> list[int]:
    """Numbers of the inputs whose column of a table is of truth values.

    Such an input takes the whole numbers 0 and 1.

    Examples
    --------
    >>> import pandas as pd
    >>> data = pd.DataFrame({"heated": [True, False], "age": [3, 28]})
    >>> yes_or_no(data, None, names=["age", "heated"])
    [1]
    """
    found = set()
    for table in tables:
        if not hasattr(table, "columns") or not hasattr(table, "dtypes"):
            continue
        kinds = zip(table.columns, table.dtypes, strict=True)
        found |= {
            str(column) for column, kind in kinds if getattr(kind, "kind", "") == "b"
        }
    return [j for j, name in enumerate(names) if name in found]


def read_values(given: Any, names: Sequence[str]) -> dict[int, Array]:
    """The values of inputs that have a list, ascending, by the number of the input.

    Examples
    --------
    >>> read_values({"grade": {42.5, 32.5}}, ["cement", "grade"])
    {1: array([32.5, 42.5])}
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"Expected lists of values as a dict by name, got {type(given).__name__}. "
            'Pass values={"grade": [32.5, 42.5]}.'
        )
    return {
        _place(name, names, "values"): value_list(entry, str(name))
        for name, entry in given.items()
    }


def value_list(entry: Any, name: str) -> Array:
    """The values that a sequence or a set lists, ascending; an error names the input.

    Examples
    --------
    >>> value_list([52.5, 32.5, 32.5], "grade")
    array([32.5, 52.5])
    """
    wrong = ValueError(
        f"Expected a list of finite numbers, got {entry!r:.60} at input {name}."
    )
    if isinstance(entry, str | Mapping) or not isinstance(entry, Iterable):
        raise wrong
    entry = list(entry)
    if not all(isinstance(v, Real) and not isinstance(v, bool) for v in entry):
        raise wrong
    found = np.unique(frozen(entry))
    if not (found.size and np.isfinite(found).all()):
        raise wrong
    return found


def values_in(entry: Any) -> Any:
    """The values that an entry of a domain lists, ``None`` for bounds and numbers.

    Examples
    --------
    >>> values_in([32.5, 42.5, 52.5]), values_in((0, 1))
    ([32.5, 42.5, 52.5], None)
    """
    if isinstance(entry, Mapping) and set(entry) == {"values"}:
        return entry["values"]
    if isinstance(entry, str | Mapping):
        return None
    ordered = isinstance(entry, Sequence) or getattr(entry, "shape", ()) != ()
    many = ordered and len(entry) > 2
    return entry if many or isinstance(entry, Set) else None


def read_categories(given: Any, names: Sequence[str]) -> tuple[Group, ...]:
    """Categories and their inputs, given by name or position.

    Examples
    --------
    >>> names = ["cement", "plant_A", "plant_B"]
    >>> read_categories({"plant": ["plant_A", "plant_B"]}, names)
    (Group(name='plant', inputs=(1, 2), levels=('plant_A', 'plant_B'), base=None,
    alike=()),)
    >>> read_categories({"plant": {"A": "plant_A", "B": 2, "C": None}}, names)
    (Group(name='plant', inputs=(1, 2), levels=('A', 'B'), base='C', alike=()),)
    """
    if given is None:
        return ()
    if isinstance(given, Sequence) and all(isinstance(g, Group) for g in given):
        return tuple(given)
    if not isinstance(given, Mapping):
        raise TypeError(
            f"Expected categories as a dict by name, got {type(given).__name__}. Pass "
            'categories={"plant": ["plant_A", "plant_B"]}.'
        )
    return tuple(_category(str(name), entry, names) for name, entry in given.items())


def chosen(fixed: Any, groups: Sequence[Group], names: Sequence[str]) -> Any:
    """Fixed inputs, a category among them replaced by its inputs.

    Examples
    --------
    >>> plant = Group("plant", (1, 2), ("A", "B"), base="C")
    >>> chosen({"plant": "B"}, [plant], ["cement", "plant_A", "plant_B"])
    {'plant_A': 0.0, 'plant_B': 1.0}
    """
    if not isinstance(fixed, Mapping):
        return fixed
    found: dict[Any, Any] = {}
    by_name = {group.name: group for group in groups}
    for name, at in fixed.items():
        group = by_name.get(str(name))
        if group is None:
            found[name] = at
            continue
        wanted = find_level(group, at)
        for j, level in zip(group.inputs, group.levels, strict=True):
            found[names[j]] = float(level == wanted)
    return found


def _category(name: str, entry: Any, names: Sequence[str]) -> Group:
    if name in names:
        raise ValueError(
            f"Expected a name for a category that no input has, got {name!r}. Choose "
            "another."
        )
    if isinstance(entry, str) or not isinstance(entry, Iterable):
        raise TypeError(
            f"Expected the inputs of category {name} as a list of names, or as a dict "
            f"of levels and names, got {entry!r:.60}."
        )
    columns: dict[str, Any]
    if isinstance(entry, Mapping):
        columns = {str(level): column for level, column in entry.items()}
    else:
        places = [_place(column, names, f"category {name}") for column in entry]
        columns = {names[j]: j for j in places}
        if len(columns) < len(places):
            raise ValueError(
                f"Expected different inputs, got one twice at category {name}."
            )
    bases = [level for level, column in columns.items() if column in (None, "")]
    if len(bases) > 1:
        raise ValueError(
            f"Expected at most one level without an input, got {listed(bases)} at "
            f"category {name}."
        )
    levels = [level for level in columns if level not in bases]
    if len(columns) < 2 or not levels:
        raise ValueError(
            f"Expected at least two levels, got {len(columns)} at category {name}."
        )
    inputs = [_place(columns[level], names, f"category {name}") for level in levels]
    return Group(name, tuple(inputs), tuple(levels), bases[0] if bases else None)


def _check_column(
    domain: Domain, group: Group, j: int, entry: Array | None, owner: str | None
) -> None:
    """Refuse an input that cannot be one of a category."""
    name, low, high = domain.names[j], domain.lower[j], domain.upper[j]
    if owner is not None:
        raise ValueError(
            f"Expected each input in one category, got {name} in {owner} and "
            f"{group.name}. Leave it out of one."
        )
    if entry is not None:
        raise ValueError(
            f"Expected inputs without lists of values in category {group.name}, got "
            f"{_numbers(entry)} at input {name}. Leave the list out."
        )
    if low < 0.0 or high > 1.0:
        raise ValueError(
            f"Expected inputs from 0 to 1 in category {group.name}, got [{low:g}, "
            f"{high:g}] at input {name}. Name the columns of zeros and ones that the "
            "model takes."
        )


def _place(entry: Any, names: Sequence[str], where: str) -> int:
    """The number of an input, given by name or position."""
    if isinstance(entry, str) and entry in names:
        return names.index(entry)
    if isinstance(entry, str):
        raise ValueError(
            f"Expected the name of an input, got {entry!r} at {where}. "
            f"{unknown_name(entry, names)}"
        )
    try:
        if isinstance(entry, bool | np.bool_):
            raise TypeError
        j = operator.index(entry)
    except TypeError:
        raise TypeError(
            f"Expected the name or position of an input, got {entry!r:.60} at {where}."
        ) from None
    if not 0 <= j < len(names):
        raise ValueError(
            f"Expected a position from 0 to {len(names) - 1}, got {j} at {where}."
        )
    return j


def _numbers(entry: Array) -> str:
    return listed(f"{value:g}" for value in entry)
