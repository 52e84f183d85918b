"""What a user asks, as one value, and how it is answered.

`maximize`, `minimize` and all that asks several questions in a row make a `Question` of
their keywords. `Question.posed` reads models, data and texts once; `Posed.solve` solves
the problem they make, or another one over the same inputs, and compares the answer with
data and with the models as they were given.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypedDict

import numpy as np

from ennopt.canonical import Canonical
from ennopt.checkpoint import Checkpoint
from ennopt.convert import load_with_original
from ennopt.convert.classes import choose_class
from ennopt.convert.verify import rechecked
from ennopt.domain.data import Data
from ennopt.domain.extrapolation import Extrapolation, beyond
from ennopt.domain.files import read_bounds
from ennopt.domain.reading import read_place
from ennopt.domain.statements import names_in
from ennopt.domain.where import Place, Where
from ennopt.expressions import Arithmetic, Condition, Prediction, Probability
from ennopt.expressions.arithmetic import PREDICTION
from ennopt.expressions.joined import Model, decided, shared_names
from ennopt.expressions.text import read_condition
from ennopt.log import ProgressLog
from ennopt.met import limits_at, told_at
from ennopt.methods import Method, method_of
from ennopt.network import Array, Ensemble, frozen, shown
from ennopt.problem import Combination, Output, Problem, Sense, Term
from ennopt.result import (
    Asked,
    Progress,
    Result,
    Status,
    reported,
)
from ennopt.run import Callback, Listener, Tools, memory_words
from ennopt.targets import Odds

DRAWN_INPUTS = 2
"""Searches on so many inputs keep their boxes for a drawing."""

NOT_NEAR = (
    "Bounds and constraints do not seem to contradict each other, but nothing near the "
    "data meets them: try a larger trust region, such as "
    "trust=ennopt.Near(radius=...), or loosen them."
)
"""What is said if a trust region holds no feasible point."""

MORE_ROOM = (
    "For answers further from the data try a larger trust region, such as "
    "trust=ennopt.Near(radius=...), on the command line --trust near:radius=R."
)
"""What is said if a trust region near data contradicts something else."""

EXTRAPOLATES = "warning: the model extrapolates, so its prediction may be wrong:"
"""What is said if a prediction is beyond what its model was trained on."""

ON_A_SOLVER = (
    "the point and its value; the bound rests on a MILP solver being right within its "
    "tolerances and cannot be certified"
)
"""What of a result others can verify, if its method has no certificates."""


NOT_REACHED = (
    "There are inputs that meet every bound and constraint, but none of them meets "
    "what is asked of the predictions: loosen a limit, or widen the bounds."
)
"""What is said if limits on predictions cannot be met, though the set has points."""

MAYBE_NOT_REACHED = (
    "Bounds and constraints do not seem to contradict each other, so it may be the "
    "limits on predictions that are out of reach: loosen one of them."
)
"""What is said if no point of the set is known."""

REASON_STOPPED = (
    "The search for the reason was stopped after {seconds:.0f} s: some of the "
    "statements listed may have nothing to do with the contradiction."
)
"""What is said if the statements that contradict each other are perhaps too many."""

TRIED_POINTS = 64
"""Random points that are moved into a set to learn whether it has any."""


class RunWords(TypedDict, total=False):
    """Keywords that say how a run works; see `ennopt.maximize`."""

    backend: str | None
    time_limit: float | None
    node_limit: float | None
    memory_limit: float | None
    gap: float
    threads: int | None
    seed: int
    callback: Callback | None
    executor: Executor | None
    verbose: bool


class SingleWords(RunWords, total=False):
    """Those that make sense for one run alone."""

    certificate: str | Path | None
    checkpoint: str | Path | Checkpoint | None
    threshold: float | None


class Words(RunWords, total=False):
    """Keywords of what asks one or several questions; see `ennopt.maximize`."""

    data: Any
    target: Any
    constraints: Any
    fixed: Mapping[str, Any] | None
    integers: Any
    values: Mapping[str, Any] | None
    categories: Mapping[str, Any] | None
    trust: Any
    output: Output
    risk: Any
    limits: Any
    start: Any
    method: str | Method


class OneWords(Words, SingleWords, total=False):
    """All keywords of `ennopt.maximize`."""


WHERE = tuple(field.name for field in fields(Where) if field.name != "domain")
OWN = ("output", "risk", "limits", "start")
RUNNING = ("method", *RunWords.__annotations__)


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """How runs work: the method, what it is handed, and whether there is a log."""

    method: Method
    tools: Tools
    verbose: bool = False
    certificate: str | Path | None = None

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """From keywords."""
        others = ("method", "backend", "verbose", "certificate")
        return cls(
            method_of(said.get("method", "auto"), said.get("backend")),
            Tools.of(**{word: at for word, at in said.items() if word not in others}),
            bool(said.get("verbose", False)),
            said.get("certificate"),
        )


def check_words(said: Mapping[str, Any], known: Sequence[str], who: str) -> None:
    """Refuse a keyword that nobody knows, and name the one that may be meant."""
    for word in said:
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            remedy = f"Did you mean {near[0]}?" if near else "Leave it out."
            raise TypeError(f"Expected a keyword of {who}, got {word!r}. {remedy}")


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is optimized, where, subject to what, and how.

    Parameters
    ----------
    goals
        Models or expressions, each with its sense; mostly one.
    where
        The inputs allowed.
    running
        How runs work.
    output, risk
        Of goals that are models.
    limits
        Conditions, texts, or a list of these.
    start
        A point that is known.
    placed
        Reads the feasible set for an ensemble; ``None`` for what `where` says.
    """

    goals: tuple[tuple[Any, Sense], ...]
    where: Where
    running: Running
    output: Output = None
    risk: Any = None
    limits: Any = None
    start: Any = None
    placed: Callable[[Ensemble], Place] | None = None

    @classmethod
    def of(
        cls,
        goals: Sequence[tuple[Any, Sense]],
        domain: Any,
        said: Mapping[str, Any],
        who: str,
        *,
        single: bool = False,
    ) -> Self:
        """From the keywords of a function called `who`."""
        single_words = tuple(SingleWords.__annotations__) if single else ()
        running = (*RUNNING, *single_words)
        check_words(said, (*WHERE, *OWN, *running), who)
        return cls(
            tuple(goals),
            Where(domain=domain, **{w: said[w] for w in WHERE if w in said}),
            Running.of({word: said[word] for word in running if word in said}),
            **{word: said[word] for word in OWN if word in said},
        )

    def posed(self) -> Posed:
        """Read models, texts and data."""
        model, sense = self.goals[0]
        plain = not isinstance(model, Arithmetic | Probability) and self.risk is None
        if plain and len(self.goals) == 1 and not self._conditions():
            return self._posed_alone(model, sense)
        goals = [(self._goal(goal), sense) for goal, sense in self.goals]
        joined = decided(goals, self._read_limits([goal for goal, _ in goals]))
        main = joined.models[0]
        place = self._place(main.ensemble)
        domain = place.domain
        if joined.rows.count:
            domain = domain.constrained(joined.rows)
        problem = Problem(
            main.ensemble, domain, sense, main.output, joined.goals[0], joined.limits
        )
        posed = Posed(
            problem, place.data, joined.models, goals=joined.goals,
            trust=self.where.trust,
        )  # fmt: skip
        return replace(posed, start=read_start(self.start, problem, self.where))

    def _posed_alone(self, model: Any, sense: Sense) -> Posed:
        """One model, and nothing said about its predictions."""
        loaded = load_with_original(model)
        (ensemble, original), output = choose_class(loaded, self.output)
        place = self._place(ensemble)
        problem = Problem(ensemble, place.domain, sense, output)
        alone = Model(PREDICTION, ensemble, output, original)
        posed = Posed(problem, place.data, (alone,), alone=True, trust=self.where.trust)
        return replace(posed, start=read_start(self.start, problem, self.where))

    def _place(self, ensemble: Ensemble) -> Place:
        if self.placed is not None:
            return self.placed(ensemble)
        return read_place(self.where, ensemble)

    def _goal(self, goal: Any) -> Arithmetic:
        """What is optimized, as an expression."""
        if isinstance(goal, Probability):
            raise TypeError(
                f"Expected an expression to be optimized, got {goal!r}. Optimize the "
                "prediction, its log-odds: the probability rises with it."
            )
        if not isinstance(goal, Arithmetic):
            return Prediction(goal, output=self.output, risk=self.risk)
        if self.output is not None or self.risk is not None:
            raise ValueError(
                "Expected output and risk with a model, got them with an expression. "
                "Pass them to Prediction(model, output=..., risk=...)."
            )
        return goal

    def _conditions(self) -> list[Any]:
        """The limits, as a list."""
        if self.limits is None:
            return []
        if isinstance(self.limits, list | tuple):
            return list(self.limits)
        return [self.limits]

    def _read_limits(self, goals: Sequence[Arithmetic]) -> list[Condition]:
        """The limits as conditions; texts are about predictions of all the others."""
        given = self._conditions()
        for limit in given:
            if not isinstance(limit, str | Condition):
                raise TypeError(
                    f"Expected limits such as strength >= 40, got {limit!r:.60}. "
                    "Compare a Prediction with a number, or write a text."
                )
        expressions = [goal._expression() for goal in goals]
        expressions += [one.expression for one in given if isinstance(one, Condition)]
        known: dict[str, Prediction] = {}
        twice: set[str] = set()
        for expression in expressions:
            for part, _ in expression.predictions:
                one = part.prediction
                if known.setdefault(one.name, one).ensemble is not one.ensemble:
                    twice.add(one.name)
        found: list[Condition] = []
        for limit in given:
            if isinstance(limit, Condition):
                found.append(limit)
                continue
            if not known:
                raise ValueError(
                    f"Expected a prediction in the objective, got the text {limit!r} "
                    "without one. Write the limit with a Prediction: strength >= 40."
                )
            for name in twice.intersection(names_in(limit)):
                raise ValueError(
                    f"Expected one prediction called {shown(name)}, got two in "
                    f"{limit!r:.80}. Name them: Prediction(model, name=...)."
                )
            names = shared_names([one.ensemble for one in known.values()])
            found += read_condition(limit, known, names)
        return found


def read_start(given: Any, problem: Problem, where: Where) -> Array | None:
    """A known point as the search sees it, (num_inputs,), if it is feasible.

    Parameters
    ----------
    given
        A dict by name, numbers in the order of the inputs, a `Result`, or ``None``.
    problem
        What it is a start of.
    where
        What the user said about the inputs: categories and fixed inputs count.
    """
    if given is None:
        return None
    if isinstance(given, Result):
        given = given.inputs if given.x is None else given.x
    if hasattr(given, "to_dict") and hasattr(given, "index"):
        given = given.to_dict()  # a row of a DataFrame
    if isinstance(given, Mapping):
        x = _point_by_name(given, problem, where)
    else:
        x, count = frozen(given), problem.domain.num_inputs
        if x.shape != (count,):
            raise ValueError(
                f"Expected a start of {count} numbers or a dict by name, got "
                f"{given!r:.60}."
            )
    if (reason := why_infeasible(problem, x)) is not None:
        raise ValueError(f"Expected a start that is feasible, got {reason}.")
    return x


def _point_by_name(given: Mapping[str, Any], problem: Problem, where: Where) -> Array:
    """A point with the names and levels of the user's columns.

    It is read as a set in which every input is fixed.
    """
    domain, ensemble = problem.domain, problem.ensemble
    entries = {**(where.fixed or {}), **given}
    by_input = {
        group.name: {domain.names[j] for j in group.inputs} for group in domain.groups
    }
    for name in told_at(domain, ensemble, domain.lower):
        if name not in entries and not by_input.get(name, {name}) <= set(entries):
            raise ValueError(
                f"Expected a value for every input, got none for {shown(name)} at "
                "start."
            )
    if ensemble.columns is None:
        ensemble = replace(ensemble, input_names=domain.names)
    groups = dict(where.categories or {})
    if isinstance(where.domain, str | os.PathLike):
        groups = {**read_bounds(where.domain).categories, **groups}
    fixed = Where(categories=groups or None, fixed=entries)
    bare = replace(ensemble, lower=None, upper=None)
    return read_place(fixed, bare).domain.lower


def why_infeasible(problem: Problem, x: Array) -> str | None:
    """What a point (num_inputs,) misses, in words; ``None`` if it is feasible."""
    domain = problem.domain
    for name, at, low, high in zip(
        domain.names, x.tolist(), domain.lower, domain.upper, strict=True
    ):
        if not low <= at <= high:
            return f"{shown(name)} = {at:g}, outside of [{low:g}, {high:g}]"
    allowed = domain.values.allowed(x[None])
    if not allowed.all():
        return "a value that an input of whole numbers or listed values may not take"
    missed = ~np.all(domain.linear.violation(x[None]) <= domain.slack, axis=0)
    if missed.any():
        text = domain.linear.texts[int(np.argmax(missed))]
        return f"a point that misses the constraint {shown(text)}"
    if not domain.contains(x):
        return "a point outside of the trust region"
    canonical = Canonical.of(problem)
    if canonical.contains(x):
        return None
    for met in limits_at(problem, x):
        if not met.least <= met.value <= met.most:
            return f"a point that misses the limit {shown(met.text)}: {met.value:.6g}"
    return "a point that misses a limit"


@dataclass(frozen=True, slots=True, eq=False)
class Posed:
    """A problem, and all that its answers are compared with.

    Parameters
    ----------
    problem
        What is optimized, and where.
    data
        The rows of data that were given, if any.
    models
        Of all predictions.
    goals
        All that is optimized, in the order of the question; the first is the problem's.
    start
        A feasible point that is known, (num_inputs,).
    alone
        Whether the problem is to optimize the prediction of its one model.
    explained
        Whether bounds and constraints that contradict each other are named, which
        takes longer than most proofs that there is no feasible point.
    trust
        The trust region as the user said it, to be repeated.
    """

    problem: Problem
    data: Data | None = None
    models: tuple[Model, ...] = ()
    goals: tuple[Combination, ...] = ()
    start: Array | None = None
    alone: bool = False
    explained: bool = True
    trust: Any = None

    def solve(self, running: Running) -> Result:
        """Solve the problem; compare the answer with models and data."""
        problem, tools = self.problem, running.tools
        if self.start is not None:
            tools = replace(tools, known=self.start)
        if running.verbose:
            log = ProgressLog(heading(problem, running.method))
            tools = replace(tools, callback=_logging(log, tools.callback))
            try:
                return self._solve(replace(running, tools=tools))
            finally:
                log.close()
        return self._solve(replace(running, tools=tools))

    def _solve(self, running: Running) -> Result:
        problem, tools, data = self.problem, running.tools, self.data
        try:
            result, boxes = _recorded(problem, running)
        except MemoryError as error:
            raise MemoryError(memory_words(problem)) from error
        plain = problem.is_prediction and problem.goal.terms[0].own_risk is None
        if plain:
            result = reported(result, problem.ensemble.target)
        if not getattr(running.method, "certifies", False):
            told = result.details | {"verifiable": ON_A_SOLVER}
            result = replace(result, details=told)
        names = {"objective": problem.goal.text, "members_of": self.models[0].name}
        if names["members_of"] == PREDICTION:
            del names["members_of"]
        if names["objective"]:
            result = replace(result, details=result.details | names)
        if problem.ensemble.deviation is not None:
            origin = {"import_deviation": problem.ensemble.deviation}
            result = replace(result, details=result.details | origin)
        if result.status is Status.INFEASIBLE and self.explained:
            result = _explained(result, problem)
        if result.x is not None and data is not None:
            data, result = self._compared_with(data, result)
        if result.x is not None:
            result = self._compared(result)
        asked = Asked(
            problem, data, repr(running.method), tools.limits, tools.seed,
            tools.threads, boxes=boxes, trust=self.trust,
        )  # fmt: skip
        result = replace(result, asked=asked)
        return self._asked_originals(result)

    def _compared_with(self, data: Data, result: Result) -> tuple[Data, Result]:
        """The data, and the result with how far its answer is from them.

        The target is that of the prediction: of the one that is optimized, or of the
        only one there is beside a cost. Log-odds, and what is made of predictions, are
        nothing that was measured.
        """
        assert result.x is not None
        problem, value = self.problem, result.value
        beside_cost = not problem.goal.terms and len(self.models) == 1
        if beside_cost:
            main = Term(problem.ensemble, output=problem.output)
            value = float(main.values(result.x[None])[0])
        known = problem.is_prediction or beside_cost
        if not known or isinstance(problem.ensemble.target, Odds):
            data = replace(data, target=None)
        own = measured_range(problem) if known else None
        away = Extrapolation.at(result.x, value, problem.domain, data, own)
        return data, replace(result, extrapolation=away)

    def _compared(self, result: Result) -> Result:
        """The result, with notes on predictions beyond what models were trained on."""
        assert result.x is not None
        away = result.extrapolation
        for place, model in enumerate(self.models):
            if not place and away is not None and away.target_range is not None:
                continue  # said beside the data
            alone = Problem(model.ensemble, self.problem.domain, "max", model.output)
            measured = measured_range(alone)
            if measured is None:
                continue
            value = float(alone.values(result.x[None])[0])
            words = beyond(value, measured, "anything in the training data")
            if words is not None:
                whose = "" if model.name == PREDICTION else f"{shown(model.name)}: "
                result = _noted(result, f"{whose}{EXTRAPOLATES} {words}.")
        return result

    def _asked_originals(self, result: Result) -> Result:
        """The result, with what the original models say of it."""
        if self.alone:
            (model,) = self.models
            if model.original is None:
                return result
            return rechecked(result, self.problem, model.original)
        for model in self.models if result.x is not None else ():
            assert result.x is not None
            if model.original is None:
                continue
            alone = Problem(model.ensemble, self.problem.domain, "max", model.output)
            at = result.x[None]
            # It has no bound of its own, so nothing is to be said about a gap.
            value = float(alone.values(at)[0])
            own = replace(result, value=value, asked_gap=None, notes=())
            if isinstance(model.ensemble.target, Odds):
                chance = float(model.ensemble.target.probability_at(at)[0])
                own = replace(own, probability=chance)
            notes = rechecked(own, alone, model.original).notes
            notes = tuple(f"{model.name}: {note}" for note in notes)
            result = replace(result, notes=(*result.notes, *notes))
        return result


def measured_range(problem: Problem) -> tuple[float, float] | None:
    """The range of targets that a problem's model was trained on, if it is known.

    The prediction must be the model's own, not a multiple of it.
    """
    if problem.output is not None and np.any(problem.output != 1.0):
        return None
    return problem.ensemble.target_range


def heading(problem: Problem, method: Method) -> str:
    """What is solved and how: the lines above a log."""
    return f"{problem.ensemble!r}\n{problem.domain!r}\n{method!r}"


def _recorded(problem: Problem, running: Running) -> tuple[Result, Array | None]:
    """Solve a problem, and write the certificate of its proof if one is asked for.

    Also told are the boxes of the search, if it is one on two inputs in one place, for
    those who draw them.
    """
    method, tools, certificate = running.method, running.tools, running.certificate
    recorder = None
    if certificate is not None:
        from ennopt.certificate.writer import Recorder  # few runs ask for it

        recorder = Recorder(problem, certificate)
    cover = None
    elsewhere = tools.executor is not None or tools.checkpoint is not None
    if problem.domain.num_inputs == DRAWN_INPUTS and not elsewhere:
        from ennopt.engine.auto import Auto  # methods are loaded when they are used
        from ennopt.engine.box_search import BoxSearch
        from ennopt.engine.cover import Cover

        chosen = method.choose(problem).method if isinstance(method, Auto) else method
        if isinstance(chosen, BoxSearch):
            cover = Cover(problem.domain, recorder)
    listener: Listener | None = recorder if cover is None else cover
    tools = replace(tools, recorder=listener)
    result = method.solve(problem, tools)
    if recorder is not None:
        made = recorder.write(result, tools.limits.gap)
        claim = {"certificate": str(certificate), "certified_bound": made.bound}
        result = replace(result, details=result.details | claim)
    return result, None if cover is None else cover.boxes()


def _explained(result: Result, problem: Problem) -> Result:
    """Why nothing is feasible, as far as that can be told."""
    from ennopt.milp.conflict import conflict  # HiGHS is loaded when it is needed

    domain = problem.domain
    rng = np.random.default_rng(0)
    if problem.limits and len(domain.sample(TRIED_POINTS, rng)):
        missed = {"conflict": [], "unreached": [one.text for one in problem.limits]}
        return _noted(replace(result, details=result.details | missed), NOT_REACHED)
    reason = conflict(domain)
    told = {"conflict": list(reason.statements)}
    result = replace(result, details=result.details | told)
    if reason.statements:
        if reason.near_data:
            return _noted(result, MORE_ROOM)
        if reason.is_irreducible:
            return result
        return _noted(result, REASON_STOPPED.format(seconds=reason.seconds))
    if domain.regions or domain.convex:
        result = _noted(result, NOT_NEAR)
    if not problem.limits:
        return result
    perhaps = {"limited": [one.text for one in problem.limits]}
    result = replace(result, details=result.details | perhaps)
    return _noted(result, MAYBE_NOT_REACHED)


def _noted(result: Result, note: str) -> Result:
    return replace(result, notes=(*result.notes, note))


def _logging(log: ProgressLog, callback: Callback | None) -> Callback:
    def logged(moment: Progress) -> Any:
        log(moment)
        return callback is not None and callback(moment)

    return logged
