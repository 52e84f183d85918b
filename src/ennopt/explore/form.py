"""The fields of the page read: a problem to look at and to solve, or what is wrong.

Every field is read by itself, with the readers and the messages of the library, so
that a message can stand beside the field that it is about.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ennopt import options
from ennopt.convert.classes import choose_class
from ennopt.domain import Domain
from ennopt.domain.data import Data
from ennopt.domain.discrete import discretised, read_categories
from ennopt.domain.reading import read_place
from ennopt.domain.trust import Mahalanobis, Near
from ennopt.domain.where import Where
from ennopt.explore.subject import Form, Subject
from ennopt.expressions import Condition, Prediction
from ennopt.expressions.arithmetic import PREDICTION
from ennopt.expressions.text import read_condition
from ennopt.network import Ensemble, shown
from ennopt.pages.coordinates import Coordinate, coordinates
from ennopt.problem import Problem, Sense
from ennopt.question import Posed, Question, Running
from ennopt.result import Result
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Worst
from ennopt.run import Callback

Read = TypeVar("Read")

WRONG = (ValueError, TypeError, argparse.ArgumentTypeError)
"""What the readers of the library raise."""

RISKS: dict[str, tuple[str, Callable[[float], Any], float]] = {
    "cvar": ("mean of the worst share of the members", Cvar, 0.5),
    "std": ("mean less so many standard deviations", MeanMinusStd, 1.0),
    "mad": ("mean less so many mean absolute deviations", MeanMinusMad, 1.0),
}
"""Risks with a number: what they are, what makes them, and the number at first."""

TRUSTS = {
    "near": "near rows of data",
    "box": "in the range of the data",
    "hull": "in the convex hull of the data",
    "mahalanobis": "within the usual Mahalanobis distance",
}
"""Trust regions, in words."""


class FormError(ValueError):
    """Fields that cannot be read: a message for each, by the name of the field.

    What is about the form as a whole has the name ``""``.
    """

    def __init__(self, wrong: dict[str, str]) -> None:
        super().__init__(" ".join(wrong.values()))
        self.wrong = wrong


@dataclass(frozen=True, slots=True, eq=False)
class Inquiry:
    """What the fields ask.

    Parameters
    ----------
    posed
        What is to be solved, with its data.
    time_limit, gap
        Of the run.
    script
        The lines of Python that ask the same.
    """

    posed: Posed
    time_limit: float | None
    gap: float
    script: str

    @property
    def problem(self) -> Problem:
        """What is to be solved."""
        return self.posed.problem

    @property
    def data(self) -> Data | None:
        """The rows of data, if there are any."""
        return self.posed.data

    def solve(self, callback: Callback) -> Result:
        """The answer; `callback` sees the progress and may stop the run."""
        said = {"time_limit": self.time_limit, "gap": self.gap, "callback": callback}
        result = self.posed.solve(Running.of(said))
        if result.asked is None:
            return result
        return replace(result, asked=replace(result.asked, command=self.script))


class Fields:
    """Reads fields, and keeps what is wrong with each."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.wrong: dict[str, str] = {}

    def text(self, field: str) -> str:
        """What was typed, without space around it."""
        return self.form.get(field, "").strip()

    def read(self, field: str, reader: Callable[[str], Read]) -> Read | None:
        """A field that may be empty."""
        text = self.text(field)
        return self.tried(field, lambda: reader(text)) if text else None

    def lines(self, field: str, reader: Callable[[str], Any]) -> list[str]:
        """The lines of a field, each of which `reader` accepts."""
        found = [line.strip() for line in self.text(field).splitlines()]
        found = [line for line in found if line]
        for line in found:
            self.tried(field, partial(reader, line))
        return found

    def tried(self, field: str, action: Callable[[], Read]) -> Read | None:
        """What an action gives, ``None`` if it finds something wrong."""
        try:
            return action()
        except WRONG as error:
            message = shown(" ".join(str(error).split()))
            self.wrong.setdefault(
                field, message if message[-1:] == "." else f"{message}."
            )
            return None

    def check(self) -> None:
        """Raise if anything was wrong so far."""
        if self.wrong:
            raise FormError(self.wrong)


def read_form(subject: Subject, form: Form) -> Inquiry:
    """What fields ask.

    Raises
    ------
    FormError
        With a message for each field that cannot be read.
    """
    fields, model = Fields(form), subject.loaded.ensemble
    output = _output(subject, fields)
    loaded = fields.tried("output", lambda: choose_class(subject.loaded, output))
    fields.check()
    assert loaded is not None
    (ensemble, original), _ = loaded
    risk = _risk(fields)
    if risk is not None:
        fields.tried("risk", lambda: Prediction(model, output=output, risk=risk))
    limits = fields.lines("limits", lambda line: _limit(model, output, line))
    seconds = fields.read("time_limit", options.positive_number)
    gap = fields.read("gap", options.gap)
    said = _statements(subject, fields, ensemble)
    fields.check()
    sense: Sense = "min" if fields.text("sense") == "min" else "max"
    more = {"output": output, "risk": risk, "limits": limits or None}
    said |= {name: at for name, at in more.items() if at is not None}
    domain = said.pop("domain")
    posed = fields.tried(
        "", lambda: Question.of([(model, sense)], domain, said, sense).posed()
    )
    fields.check()
    assert posed is not None
    models = tuple(replace(one, original=original) for one in posed.models)
    gap = 1e-4 if gap is None else gap
    said |= {"time_limit": seconds} if seconds is not None else {}
    lines = script(subject.path, sense, {"domain": domain} | said | {"gap": gap})
    return Inquiry(replace(posed, models=models), seconds, gap, lines)


def _limit(model: Ensemble, output: int | None, line: str) -> list[Condition]:
    """The conditions of a line, which must be about the prediction."""
    known = {PREDICTION: Prediction(model, output=output)}
    found = list(read_condition(line, known, model.input_names))
    if not any(condition.expression.predictions for condition in found):
        raise ValueError(
            f"Expected a limit on the prediction, got {line!r}. Write conditions on "
            "inputs alone as constraints."
        )
    return found


def _output(subject: Subject, fields: Fields) -> int | None:
    """Number of the output or the class."""
    if not subject.outputs:
        return None
    last = len(subject.outputs) - 1
    found = fields.read("output", options.whole_number(0))
    return 0 if found is None else min(found, last)


def shown_coordinates(subject: Subject, form: Form) -> list[Coordinate]:
    """The inputs as the page shows them, with the categories that a form states."""
    problem = subject.problem
    box = _unit_box(problem.ensemble)
    recorded = {column.inputs for column in problem.ensemble.columns or ()}
    kept = [group for group in problem.domain.groups if group.inputs in recorded]
    groups = read_categories(_categories(Fields(form), problem.ensemble), box.names)
    return coordinates(
        replace(problem, domain=discretised(box, None, None, (*kept, *groups)))
    )


def _unit_box(ensemble: Ensemble) -> Domain:
    """A box to ask about the names of inputs alone."""
    count = ensemble.num_inputs
    return Domain(np.zeros(count), np.ones(count), ensemble.input_names)


def _categories(fields: Fields, ensemble: Ensemble) -> dict[str, Any]:
    """Categories by lines ``plant = plant_A, plant_B`` or with ``level: input``."""
    found: dict[str, Any] = {}
    box = _unit_box(ensemble)

    def read(line: str) -> None:
        name, sign, rest = line.partition("=")
        entries = [entry.strip() for entry in rest.split(",")]
        if not (sign and name.strip() and all(entries)):
            raise ValueError(f"Expected NAME = INPUT, INPUT, ..., got {line!r}.")
        levels: Any = entries
        if any(":" in entry for entry in entries):
            pairs = [entry.partition(":") for entry in entries]
            levels = {level.strip(): one.strip() or None for level, _, one in pairs}
        discretised(box, categories=found | {name.strip(): levels})
        found[name.strip()] = levels

    fields.lines("categories", read)
    return found


def _statements(subject: Subject, fields: Fields, ensemble: Ensemble) -> dict[str, Any]:
    """The arguments that say where to look, each field checked."""
    said: dict[str, Any] = {"domain": {}}
    if subject.data is not None:
        said["data"] = subject.data
    if subject.target is not None:
        said["target"] = subject.target
    categories = _categories(fields, ensemble)
    fixed: dict[str, Any] = {}
    whole: list[str] = []
    values: dict[str, list[float]] = {}
    for one in shown_coordinates(subject, fields.form):
        j = one.inputs[0]
        if one.levels is not None:
            place = fields.read(f"level-{j}", options.whole_number(0))
            if place is not None and place < len(one.levels):
                fixed[one.name] = one.levels[place]
            continue
        at = fields.read(f"fixed-{j}", options.number)
        if at is not None:
            fields.tried(f"fixed-{j}", partial(interval, at, at, one.name))
            fixed[one.name] = at
        elif (ends := _ends(fields, one.name, j)) is not None:
            said["domain"][one.name] = ends
        if fields.text(f"whole-{j}"):
            whole.append(one.name)
        if (listed := fields.read(f"values-{j}", _numbers)) is not None:
            values[one.name] = listed
    more = {
        "categories": categories, "fixed": fixed, "integers": whole, "values": values,
    }  # fmt: skip
    fields.check()

    def tried(field: str, **further: Any) -> None:
        fields.tried(field, lambda: read_place(Where(**(said | further)), ensemble))

    said["categories"] = categories or None
    said["fixed"] = fixed or None
    said = {part: given for part, given in said.items() if given is not None}
    tried("")
    fields.check()
    numbers = {
        one.name: one.inputs[0] for one in shown_coordinates(subject, fields.form)
    }
    for name in whole:
        tried(f"whole-{numbers[name]}", integers=[name])
    for name, listed in values.items():
        tried(
            f"values-{numbers[name]}", values={name: listed},
            integers=[name] if name in whole else [],
        )  # fmt: skip
    said |= {part: more[part] for part in ("integers", "values") if more[part]}
    fields.check()
    constraints = fields.lines(
        "constraints", lambda line: read_place(
            Where(**(said | {"constraints": [line]})), ensemble
        ),
    )  # fmt: skip
    if constraints and "constraints" not in fields.wrong:
        said["constraints"] = constraints
    if (trust := _trust(fields)) is not None:
        tried("trust", trust=trust)
        said["trust"] = trust
    return said


def _ends(fields: Fields, name: str, j: int) -> tuple[float, float] | None:
    """The bounds of an input; both fields have to be filled."""
    found: list[float] = []
    for end in ("low", "high"):
        field = f"{end}-{j}"
        if not fields.text(field):
            fields.wrong[field] = (
                "Expected a number, got nothing. Give a bound, or fix the input."
            )
        elif (at := fields.read(field, options.number)) is not None:
            found.append(at)
    if len(found) < 2:
        return None
    low, high = found
    fields.tried(f"low-{j}", partial(interval, low, high, name))
    return low, high


def interval(low: float, high: float, name: str) -> Domain:
    """The bounds of one input, which a `Domain` accepts or refuses."""
    return Domain(np.array([low]), np.array([high]), (name,))


def _numbers(text: str) -> list[float]:
    """Numbers with commas, semicolons or spaces between them."""
    return [
        options.number(part)
        for part in text.replace(";", ",").replace(",", " ").split()
    ]


def _risk(fields: Fields) -> Any:
    """The risk that is chosen, with its number."""
    name = fields.text("risk")
    if name == "worst":
        return Worst()
    if name not in RISKS:
        return None
    _, kind, first = RISKS[name]
    given = fields.read("risk_number", options.number)
    return fields.tried("risk_number", lambda: kind(first if given is None else given))


def _trust(fields: Fields) -> Any:
    """The trust region that is chosen."""
    name = fields.text("trust")
    if name not in TRUSTS:
        return None
    radius = fields.read("trust_radius", options.number)
    count = fields.read("trust_count", options.whole_number(1))
    if name == "near" and (radius is not None or count is not None):
        return fields.tried("trust_radius", lambda: Near(radius, count or 1))
    if name == "mahalanobis" and radius is not None:
        return fields.tried("trust_radius", lambda: Mahalanobis(radius))
    return name


def script(path: str, sense: Sense, keywords: dict[str, Any]) -> str:
    """Lines of Python that ask the same.

    Examples
    --------
    >>> print(script("m.npz", "min", {"domain": {"a": (0.0, 1.0)}, "risk": Worst()}))
    import ennopt
    <BLANKLINE>
    answer = ennopt.minimize(
        'm.npz',
        {
            'a': (0.0, 1.0),
        },
        risk=ennopt.Worst(),
    )
    print(answer)
    """
    verb = "maximize" if sense == "max" else "minimize"
    lines = [f"{path!r},"]
    for name, at in keywords.items():
        start = "" if name == "domain" else f"{name}="
        if isinstance(at, dict) and at:
            inside = [f"    {key!r}: {entry!r}," for key, entry in at.items()]
            lines += [f"{start}{{", *inside, "},"]
        elif isinstance(at, list):
            lines += [f"{start}[", *(f"    {entry!r}," for entry in at), "],"]
        else:
            ours = type(at).__module__.partition(".")[0] == "ennopt"
            lines.append(f"{start}{'ennopt.' * ours}{at!r},")
    body = "\n".join(f"    {line}" for line in lines)
    return f"import ennopt\n\nanswer = ennopt.{verb}(\n{body}\n)\nprint(answer)"
