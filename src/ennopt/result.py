"""What a method returns: a value found, a bound proved, and how it went."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ennopt.domain.data import Data
from ennopt.domain.extrapolation import Extrapolation
from ennopt.met import Met
from ennopt.network import Array, frozen, shown
from ennopt.problem import Problem, Sense, relative_gap
from ennopt.targets import Link, Odds, Target

MEMORY = 2.0 * 2**30
"""Bytes that a search may use for its open nodes, unless a user says otherwise."""


class Status(enum.Enum):
    """How a run ended.

    `PRECISION_LIMIT`: nothing is left to search, but rounding errors or a solver's
    tolerances leave a gap above the one asked for; `bound` says what was proved.
    `THRESHOLD`: whether the threshold can be reached is known; the optimum is not.
    """

    OPTIMAL = "optimal"
    TIME_LIMIT = "time_limit"
    NODE_LIMIT = "node_limit"
    PRECISION_LIMIT = "precision_limit"
    INTERRUPTED = "interrupted"
    INFEASIBLE = "infeasible"
    THRESHOLD = "threshold"


class NoSolutionError(RuntimeError):
    """A point was asked of a result that has none."""


def is_positive(number: object) -> bool:
    """Whether this is a number above zero, infinity among them."""
    return isinstance(number, Real) and float(number) > 0


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop.

    Parameters
    ----------
    seconds
        Wall-clock limit of the whole run.
    nodes
        Limit on search nodes, for runs that repeat exactly.
    gap
        Gap at which a value counts as optimal; see `ennopt.maximize`.
    memory
        Bytes that a search may use for its open nodes.
    threshold
        Stop as soon as a value reaches it, or no value can, in the user's sense.
    """

    seconds: float = math.inf
    nodes: float = math.inf
    gap: float = 1e-4
    memory: float = MEMORY
    threshold: float | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "nodes", "memory"):
            limit = getattr(self, name)
            if not is_positive(limit):
                raise ValueError(f"Expected a positive limit, got {limit!r} at {name}.")
        if not (isinstance(self.gap, Real) and 0 <= self.gap < math.inf):
            raise ValueError(f"Expected gap >= 0, got {self.gap!r}.")
        limit = self.threshold
        if limit is not None and not (isinstance(limit, Real) and math.isfinite(limit)):
            raise ValueError(f"Expected a finite threshold or None, got {limit!r}.")

    def plain(self) -> dict[str, float | None]:
        """For a record: ``None`` for no limit, and a threshold only if there is one."""
        found = {
            name: None if value is None or math.isinf(value) else value
            for name, value in asdict(self).items()
        }
        if self.threshold is None:
            del found["threshold"]
        return found


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a run, as handed to a callback.

    Parameters
    ----------
    seconds
        Since the run began.
    value, bound
        What was found and what was proved so far.
    nodes
        Search nodes so far.
    phase
        What the run is doing.
    open_nodes
        Nodes that wait to be explored; ``None`` if the method does not tell.
    limit
        When the run ends at the latest, in seconds since it began.
    """

    seconds: float
    value: float
    bound: float
    nodes: int
    phase: str = ""
    open_nodes: int | None = None
    limit: float = math.inf

    @property
    def gap(self) -> float:
        """Relative gap."""
        return relative_gap(self.value, self.bound)


class Event(NamedTuple):
    """A line of a history: when the value or the bound changed."""

    seconds: float
    value: float
    bound: float


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What a run was asked, for those who show its result.

    Parameters
    ----------
    problem
        What was solved.
    data
        The rows of data that were given, if any.
    method
        ``repr`` of the method that was asked for.
    limits, seed, threads
        Of the run.
    command
        The lines that ask the same again, if they are known: those of a command line,
        or of a script. ``None`` for a call from Python.
    boxes
        The boxes of a search on two inputs, their lower and upper ends, (num_boxes, 2,
        2); ``None`` if they are not known.
    trust
        The trust region as the user said it; ``None`` if that is not known.
    """

    problem: Problem
    data: Data | None = None
    method: str = ""
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    threads: int = 1
    command: str | None = None
    boxes: Array | None = None
    trust: Any = None


ENDINGS = {
    Status.OPTIMAL: "optimal",
    Status.TIME_LIMIT: "stopped at the time limit",
    Status.NODE_LIMIT: "stopped at the node limit",
    Status.PRECISION_LIMIT: "nothing is left to search, rounding leaves this gap,",
    Status.INTERRUPTED: "interrupted",
    Status.INFEASIBLE: "ended",
    Status.THRESHOLD: "stopped, for the threshold is decided,",
}
"""How a run ended, in words that go on with a time."""

SHOWN_CONSTRAINTS = 12
"""Constraints that a summary lists, at most."""

SHOWN_CONFLICT = 20
"""Contradictory statements that a summary lists, at most."""

LONGEST_SHOWN = 70
"""Characters of a constraint that a summary shows."""

LARGEST_SHOWN_GAP = 10.0
"""Above this, a value is so near zero that a gap in percent tells nothing."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Result:
    """The answer of a method.

    Parameters
    ----------
    status
        How the run ended.
    sense
        ``"max"`` or ``"min"``.
    x
        Best point found in original units, (num_inputs,), or ``None``.
    names
        Name of each input.
    value
        Prediction of the ensemble at `x`, from the forward pass.
    bound
        No feasible point predicts better: proved. Infinite if nothing was.
    member_values
        Prediction of each member at `x`, (num_members,).
    original
        What the model that was given predicts at `x`, in its own arithmetic;
        ``None`` when there is no other model than the ensemble.
    nodes
        Search nodes.
    seconds
        Wall-clock time by phase, ``total`` among them.
    history
        The value and the bound over time.
    method
        ``repr`` of the method.
    versions
        Of ennopt, Python, NumPy and the solvers used.
    details
        What only this method tells: counts, and under ``auto`` why it was chosen.
        ``objective`` is what was optimized, if it is not the one prediction, and
        ``members_of`` the prediction whose members are told. If
        nothing is feasible, ``conflict`` lists bounds and constraints that contradict
        each other, none of them needlessly unless a note says so; it is empty if that
        could not be told. ``unreached`` lists the limits on predictions, if they alone
        are out of reach, and ``limited`` those that perhaps are.
    notes
        Sentences a reader should know, such as a capability that was missing.
    asked_gap
        The gap at which the run was to count the value as optimal.
    constraints
        How `x` meets each linear constraint.
    extrapolation
        How far `x` is from the rows of data that were given; ``None`` without data or
        without an answer.
    inputs
        `x` in the columns of the user, with original units and the names of
        categories: ``{"cement": 312.4, "grade": "52.5"}``. By default the inputs by
        name; ``None`` without a point.
    probability, probability_bound
        Of the class that a classifier is asked for: its probability at `x`, and what
        the probability of no feasible point exceeds (or falls below, for ``"min"``).
        `value` and `bound` are log-odds then. ``None`` for other models.
    asked
        What the run was asked: reports and plots need it. A result that was read from
        JSON, or that came from another process, has ``None``.
    """

    status: Status
    sense: Sense
    x: Array | None
    names: tuple[str, ...]
    value: float
    bound: float
    member_values: Array
    original: float | None = None
    nodes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    history: tuple[Event, ...] = ()
    method: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    asked_gap: float | None = None
    constraints: tuple[Met, ...] = ()
    extrapolation: Extrapolation | None = None
    inputs: dict[str, Any] | None = None
    probability: float | None = None
    probability_bound: float | None = None
    asked: Asked | None = None

    def __post_init__(self) -> None:
        if self.x is not None:
            object.__setattr__(self, "x", frozen(self.x))
            if self.inputs is None:
                object.__setattr__(self, "inputs", self.by_name)
        object.__setattr__(self, "member_values", frozen(self.member_values))
        note = self._near_zero()
        if note and note not in self.notes:
            object.__setattr__(self, "notes", (*self.notes, note))

    @property
    def gap(self) -> float:
        """``|bound - value| / max(|value|, 1e-10)``."""
        return relative_gap(self.value, self.bound)

    @property
    def proved(self) -> bool:
        """Whether the value is proved optimal within the gap asked for."""
        return self.status is Status.OPTIMAL

    @property
    def member_std(self) -> float:
        """Standard deviation of the members' predictions: do they agree?"""
        return float(np.std(self.member_values)) if self.member_values.size else 0.0

    @property
    def deviation(self) -> float | None:
        """How far the original's prediction is from ours, if there is an original."""
        if self.original is None:
            return None
        ours = self.value if self.probability is None else self.probability
        return abs(self.original - ours)

    @property
    def by_name(self) -> dict[str, float]:
        """The best point by input name, in original units."""
        if self.x is None:
            remedy = "Raise the limit."
            if self.status is Status.INFEASIBLE:
                remedy = "Widen the bounds or loosen the constraints."
            raise NoSolutionError(
                f"Expected a point, got none: the run ended with status "
                f"{self.status.value}. {remedy}"
            )
        return dict(zip(self.names, self.x.tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `to_json` writes it; unknown numbers are ``None``."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        del plain["asked"]  # the problem, not the answer
        plain |= {
            "status": self.status.value,
            "x": None if self.x is None else self.x.tolist(),
            "x_by_name": None if self.x is None else self.by_name,
            "names": list(self.names),
            "gap": self.gap,
            "deviation": self.deviation,
            "member_values": self.member_values.tolist(),
            "member_std": self.member_std,
            "history": [list(event) for event in self.history],
            "notes": list(self.notes),
            "constraints": [met._asdict() for met in self.constraints],
            "extrapolation": self.extrapolation and self.extrapolation.to_dict(),
        }
        return {key: _finite(entry) for key, entry in plain.items()}

    def to_json(self, indent: int | None = None) -> str:
        """One JSON object; numbers survive the round trip exactly."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read back what `to_json` wrote."""
        try:
            return cls._from(json.loads(text))
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"Expected what Result.to_json wrote, got another text "
                f"({type(error).__name__}: {error})."
            ) from error

    @classmethod
    def _from(cls, data: dict[str, Any]) -> Result:
        """A result of the table that `to_json` wrote."""
        worst = -math.inf if data["sense"] == "max" else math.inf
        for derived in ("deviation", "gap", "member_std", "x_by_name"):
            data.pop(derived, None)

        def known(entry: float | None, unknown: float) -> float:
            return unknown if entry is None else entry

        data |= {
            "status": Status(data["status"]),
            "names": tuple(data["names"]),
            "value": known(data["value"], worst),
            "bound": known(data["bound"], -worst),
            "history": tuple(
                Event(t, known(value, worst), known(bound, -worst))
                for t, value, bound in data["history"]
            ),
            "notes": tuple(data["notes"]),
            "constraints": tuple(
                Met(
                    met["text"],
                    known(met["value"], math.nan),
                    known(met["least"], -math.inf),
                    known(met["most"], math.inf),
                    met["side"],
                )
                for met in data.get("constraints", ())
            ),
            "extrapolation": data.get("extrapolation")
            and Extrapolation.from_dict(data["extrapolation"]),
        }
        return cls(**data)

    def __getstate__(self) -> list[Any]:
        """All but `asked`: a model may have functions that no other process knows."""
        return [
            None if f.name == "asked" else getattr(self, f.name) for f in fields(self)
        ]

    def report(self, path: str | Path) -> Path:
        """Write the answer as one HTML page that needs no network.

        It tells the recipe, what was found and what was proved, what each member
        predicts, where the answer lies in the data, slices through it, and how to
        repeat the run. What needs the problem or data is left out if they are not
        known, and the page says so. Returns the path of the file.
        """
        from ennopt.pages.render import page

        path = Path(path)
        path.write_text(page(self), encoding="utf-8")
        return path

    def plot(self, what: str = "overview", *, axes: Any = None) -> Any:
        """Draw the answer with matplotlib.

        Parameters
        ----------
        what
            ``"slices"`` (the prediction along each input through the answer),
            ``"members"`` (what each member predicts), ``"convergence"`` (how value and
            bound met) or ``"overview"``, all of them.
        axes
            Where to draw: one of matplotlib's axes or, for slices, as many as there are
            slices to see. ``None`` makes a figure.

        Returns
        -------
        axes
            Those that were drawn on: one, or an array of them.
        """
        from ennopt.pages.plot import draw

        return draw(self, what, axes)

    def _repr_html_(self) -> str:
        """The answer in a notebook."""
        from ennopt.pages.render import card

        return card(self)

    def summary(self) -> str:
        """A few lines for a person."""
        total = self.seconds.get("total", 0.0)
        lines = [
            self.headline,
            f"  {ENDINGS[self.status]} after {total:.2f} s and {self.nodes:,} "
            f"node{'s' * (self.nodes != 1)}",
        ]
        lines += self._meaning_lines()
        if self.x is not None:
            told = {shown(name): at for name, at in (self.inputs or {}).items()}
            width = max(map(len, told))
            lines += [
                f"  {name:<{width}} = "
                + (f"{at:.8g}" if type(at) is float else shown(str(at)))
                for name, at in told.items()
            ]
            low, high = self.member_values.min(), self.member_values.max()
            members = "members"
            if "members_of" in self.details:
                members += f" of {shown(str(self.details['members_of']))}"
            lines.append(
                f"  {members} predict {low:.6g} to {high:.6g} "
                f"(standard deviation {self.member_std:.3g})"
            )
            lines += self._constraint_lines()
        if self.extrapolation is not None:
            lines += [f"  {line}" for line in self.extrapolation.lines()]
        if contradictory := self.contradictory:
            lines.append("  these contradict each other; loosen or drop one of them:")
            lines += [f"    {text}" for text in contradictory]
        if self.original is not None:
            lines.append(
                f"  the original model predicts {self.original:.8g} there "
                f"(deviation {self.deviation:.1g})"
            )
        elif "import_deviation" in self.details:
            deviation = self.details["import_deviation"]
            lines.append(
                f"  compared with the original model when loaded: deviation "
                f"{deviation:.1g}"
            )
        if "auto" in self.details:
            chosen = self.method.partition("(")[0]
            lines.append(f"  auto chose {chosen}: {self.details['auto']}")
        lines += [f"  note: {shown(note)}" for note in self.notes]
        return "\n".join(lines)

    @property
    def contradictory(self) -> list[str]:
        """Statements that contradict each other, to be shown; many end "and N more"."""
        texts = self.details.get("conflict", ())
        lines = [_shortened(str(text)) for text in texts[:SHOWN_CONFLICT]]
        others = len(texts) - SHOWN_CONFLICT
        return [*lines, f"and {others} more"] if others > 0 else lines

    def _meaning_lines(self) -> list[str]:
        """What the value is, if it is no prediction, and what was optimized."""
        limit = {"max": "exceed", "min": "fall below"}[self.sense]
        lines = []
        if self.probability_bound is not None:
            found = ""
            if self.probability is not None:
                found = f"probability {self.probability:.6g}; "
            lines.append(
                f"  this is {shown(str(self.details['meaning']))} ({found}none can "
                f"{limit} {self.probability_bound:.6g})"
            )
        if inside := self.details.get("inside"):
            lines.append(
                f"  optimized before {shown(str(inside['link']))}: value "
                f"{_shown(inside['value'])}, bound {_shown(inside['bound'])}"
            )
        return lines

    def _constraint_lines(self) -> list[str]:
        """How the answer meets its constraints; of many, those at their limits."""
        listed = self.constraints
        if len(listed) > SHOWN_CONSTRAINTS:
            listed = tuple(met for met in listed if met.side is not None)
            listed = listed[:SHOWN_CONSTRAINTS]
        lines = [f"  {_shortened(met.text)}: {met.words}" for met in listed]
        others = len(self.constraints) - len(listed)
        return [*lines, f"  {others} other constraints hold"] if others else lines

    @property
    def headline(self) -> str:
        """What was found and what was proved, one sentence."""
        noun, limit = {
            "max": ("Maximum", "no input can exceed"),
            "min": ("Minimum", "no input can fall below"),
        }[self.sense]
        if self.status is Status.INFEASIBLE:
            missed = [_shortened(text) for text in self.details.get("unreached", ())]
            if len(missed) == 1:
                return f"Infeasible: no allowed input meets the limit {missed[0]}"
            if missed:
                return (
                    "Infeasible: no allowed input meets all of the limits "
                    f"{'; '.join(missed)}"
                )
            what = "bound and constraint"
            if "limited" in self.details:
                what = "bound, constraint and limit"
            return f"Infeasible: no input satisfies every {what}"
        proved = "no bound proved"
        if math.isfinite(self.bound):
            proved = f"{limit} {_shown(self.bound)}"
        if self.x is None:
            return f"No input found; {proved}"
        if math.isfinite(self.gap):
            proved += f" ({self._distance()})"
        best = "Best found"
        if "objective" in self.details:
            objective = _shortened(str(self.details["objective"]))
            noun, best = f"{noun} of {objective}:", f"Best {objective} found:"
        if self.status is Status.OPTIMAL:
            return f"{noun} {_shown(self.value)}, proved: {proved}"
        return f"{best} {_shown(self.value)}; {proved}"

    def _distance(self) -> str:
        """The gap in percent or, for a value near zero, how far the bound is away."""
        if self.gap > LARGEST_SHOWN_GAP:
            return f"distance {abs(self.bound - self.value):.2g}"
        percent = 100 * self.gap
        return f"gap {percent:.0f}%" if percent >= 100 else f"gap {percent:.2g}%"

    def _near_zero(self) -> str | None:
        """Why an optimum may have a larger gap than the one asked for."""
        if self.status is not Status.OPTIMAL or self.asked_gap is None:
            return None
        if "inside" in self.details:
            return None  # the gap asked for holds for what was optimized
        distance, size = abs(self.bound - self.value), abs(self.value)
        if distance <= self.asked_gap * size + 4 * np.finfo(float).eps * size:
            return None  # rounding aside, the gap asked for
        return (
            f"The relative gap is above the {self.asked_gap:g} asked for because the "
            "value is near zero, where the distance decides: value and bound are "
            f"{distance:.2g} apart."
        )

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return (
            f"Result(status={self.status.value}, value={self.value:.8g}, "
            f"bound={self.bound:.8g}, gap={self.gap:.2e}, nodes={self.nodes}, "
            f"seconds={self.seconds.get('total', 0.0):.2f})"
        )


def reported(result: Result, target: Target | None) -> Result:
    """The result in terms of what a model predicts.

    For the log-odds of a class the probability is added; for a transformed target value
    and bound are mapped, and `details` keeps those that were optimized.
    """
    if isinstance(target, Odds):
        found = most = None
        if result.x is not None:
            found = float(target.probability_at(result.x[None])[0])
        if result.status is not Status.INFEASIBLE:  # else there is nothing to bound
            most = target.bound(result.bound, result.sense)
        return replace(
            result, probability=found, probability_bound=most,
            details=result.details | {"meaning": target.words},
        )  # fmt: skip
    if not isinstance(target, Link):
        return result
    inside = {"link": target.name, "value": result.value, "bound": result.bound}
    value = target.value(result.value)
    about_inside = result._near_zero()
    notes = tuple(note for note in result.notes if note != about_inside)
    if math.isnan(value):
        note = f"The model predicts no number there: {target.name} is not defined."
        return replace(result, notes=(*result.notes, note))
    return replace(
        result, value=value, bound=target.bound(result.bound, result.sense),
        member_values=frozen([target.value(v) for v in result.member_values]),
        history=tuple(
            Event(e.seconds, target.value(e.value), target.bound(e.bound, result.sense))
            for e in result.history
        ),
        details=result.details | {"inside": inside}, notes=notes,
    )  # fmt: skip


def _shortened(text: str) -> str:
    """A text as it can be printed in one line."""
    if len(text) > LONGEST_SHOWN:
        half = (LONGEST_SHOWN - 5) // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return shown(" ".join(text.split()))


def _shown(number: float) -> str:
    return f"{number + 0.0:.8g}"  # the sum turns -0.0 into 0.0


def _finite(entry: Any) -> Any:
    """JSON has no infinity: ``None`` stands for a number that is not known."""
    if isinstance(entry, dict):
        return {str(key): _finite(value) for key, value in entry.items()}
    if isinstance(entry, list | tuple):
        return [_finite(value) for value in entry]
    if isinstance(entry, np.generic):
        entry = entry.item()
    if isinstance(entry, float) and not math.isfinite(entry):
        return None
    return entry
