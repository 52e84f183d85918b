"""What is explored: a model, rows of data, and what the fields show at first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from ennopt.convert import Loaded
from ennopt.convert.classes import choose_class
from ennopt.domain.files import Stated
from ennopt.domain.trust import Near, region_of
from ennopt.domain.where import Place
from ennopt.pages.coordinates import Coordinate, coordinates
from ennopt.problem import Problem
from ennopt.targets import Classes

Form = Mapping[str, str]
"""The fields of the page by name, as they were typed."""

TIME_LIMIT = 60.0
"""Seconds that a run may take, unless a person says otherwise."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and its data.

    Parameters
    ----------
    path
        Of the model, as it was given: what the lines say that repeat a run.
    loaded
        The model.
    place
        The set of inputs that the page begins with, and the rows of data.
    data, target
        Path of the table, and the name of the column that was measured.
    stated
        What a file of bounds says beside them.
    """

    path: str
    loaded: Loaded
    place: Place
    data: str | None = None
    target: str | None = None
    stated: Stated = field(default_factory=partial(Stated, {}))

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """What there is to choose from; nothing for a model of one output."""
        ensemble = self.loaded.ensemble
        if isinstance(ensemble.target, Classes):
            return tuple(str(name) for name in ensemble.target.names)
        count = ensemble.num_outputs
        return tuple(f"output {k}" for k in range(count)) if count > 1 else ()

    @property
    def problem(self) -> Problem:
        """A problem on the inputs that the page begins with."""
        first = 0 if self.outputs else None
        (ensemble, _), output = choose_class(self.loaded, first)
        return Problem(ensemble, self.place.domain, "max", output)

    def start(self) -> dict[str, str]:
        """The fields as they are at first."""
        domain = self.place.domain
        form = {
            "sense": "max", "output": "0" if self.outputs else "",
            "categories": "\n".join(
                f"{name} = {_levels(entry)}"
                for name, entry in self.stated.categories.items()
            ),
            "constraints": "\n".join(domain.rows.texts), "limits": "",
            "risk": "", "risk_number": "", "trust": "", "trust_radius": "",
            "trust_count": "", "time_limit": f"{TIME_LIMIT:g}", "gap": "0.0001",
        }  # fmt: skip
        for region in map(region_of, self.stated.trust[:1]):
            form["trust"] = "near" if isinstance(region, Near) else str(region)
            if isinstance(region, Near) and isinstance(region.radius, float | int):
                form["trust_radius"] = f"{region.radius:g}"
            if isinstance(region, Near) and region.count > 1:
                form["trust_count"] = f"{region.count}"
        for one in coordinates(self.problem):
            form |= _fields(one, self.place)
        return form


def _levels(entry: Any) -> str:
    """A category of a file of bounds as the field for categories has it."""
    if isinstance(entry, Mapping):
        return ", ".join(f"{level}: {name or ''}" for level, name in entry.items())
    return ", ".join(map(str, entry))


def _fields(one: Coordinate, place: Place) -> dict[str, str]:
    """The fields of an input, named after the number of its first column."""
    domain, j = place.domain, one.inputs[0]
    if one.levels is not None and one.codes is not None:
        allowed = one.choices(domain, 0)
        level = ""
        if len(allowed) == 1:
            level = str(abs(one.codes - allowed[0]).sum(axis=1).argmin())
        return {f"level-{j}": level}
    low, high = one.range(domain)
    if one.change is not None:  # there and back again, by logarithms, leaves dust
        low, high = (float(f"{end:.12g}") for end in (low, high))
    found = {f"low-{j}": written(low), f"high-{j}": written(high), f"fixed-{j}": ""}
    if low == high:
        found[f"fixed-{j}"] = written(low)
        if place.data is not None:
            ends = one.told(place.data.rows)
            found[f"low-{j}"] = written(float(ends.min()))
            found[f"high-{j}"] = written(float(ends.max()))
    listed = domain.values.lists[j]
    found[f"values-{j}"] = ""
    if listed is not None and one.change is None:
        found[f"values-{j}"] = ", ".join(map(written, listed.tolist()))
    found[f"whole-{j}"] = "on" if domain.values.whole[j] else ""
    return found


def written(number: float) -> str:
    """A number in digits that are read back as the same number.

    Examples
    --------
    >>> written(540.0), written(0.1)
    ('540', '0.1')
    """
    return repr(number).removesuffix(".0")
