"""Expressions over one set of inputs: the models of all of them, brought together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ennopt.convert.verify import Original, has_default_names
from ennopt.domain import Rows
from ennopt.expressions.arithmetic import (
    PREDICTION,
    Arithmetic,
    Condition,
    Deviation,
    Expression,
    Prediction,
)
from ennopt.network import Array, Ensemble, shown
from ennopt.problem import Combination, Limit, Output, Sense
from ennopt.targets import Odds


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A prediction's model on the inputs of all.

    Parameters
    ----------
    name
        Of the prediction.
    ensemble
        What predicts.
    output
        Which of its outputs.
    original
        The model that the ensemble was converted from, if there is one.
    """

    name: str
    ensemble: Ensemble
    output: Output
    original: Original | None


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Predictions, objectives and limits over one set of inputs.

    Parameters
    ----------
    models
        Of all predictions. The first is the main one, whose members a result tells.
    goals
        What is optimized.
    limits
        What must hold of predictions.
    rows
        What must hold of inputs alone.
    """

    models: tuple[Model, ...]
    goals: tuple[Combination, ...]
    limits: tuple[Limit, ...]
    rows: Rows


def decided(
    goals: Sequence[tuple[Arithmetic, Sense]], limits: Sequence[Condition]
) -> Joined:
    """Bring the models of all expressions to the same inputs.

    Parameters
    ----------
    goals
        What is optimized, each with its sense.
    limits
        What must hold.
    """
    aims = [goal._expression() for goal, _ in goals]
    expressions = [*aims, *(limit.expression for limit in limits)]
    found = list(_predictions(expressions))
    if not found:
        raise ValueError(
            "Expected a prediction in the objective or in a limit, got none. Without "
            "one this is a linear program: use a solver for these."
        )
    for aim, (_, sense) in zip(aims, goals, strict=True):
        _check_penalties(aim, f"{aim!r:.80}", 1.0 if sense == "max" else -1.0)
    for limit in limits:
        _check_penalties(limit.expression, limit.text, 1.0)
    _check_together(limits)
    names = shared_names([one.ensemble for one in found])
    known: dict[int, Ensemble] = {}
    for one in found:  # a model that two predictions share stays one
        known.setdefault(id(one.ensemble), _on_inputs(one.ensemble, names))
    functions = [_function(one, names, known) for one in expressions]
    told, rows = list[Limit](), Rows.none(len(names))
    for function, limit in zip(functions[len(goals) :], limits, strict=True):
        least = -function.constant
        if function.terms:
            function = replace(function, constant=0.0)
            told.append(Limit(function, least, limit.text, limit.sign))
        else:
            rows = rows.and_(row_of(function.inputs, least, limit.text, limit.sign))
    return Joined(
        tuple(
            Model(
                one.name, known[id(one.ensemble)], one.output,
                _original_on(one, names),
            )
            for one in found
        ),
        tuple(
            replace(function, text="" if f"{goal}" == PREDICTION else f"{goal}")
            for function, (goal, _) in zip(functions, goals, strict=False)
        ),
        tuple(told), rows,
    )  # fmt: skip


def _predictions(expressions: Sequence[Expression]) -> Iterator[Prediction]:
    """Each prediction once."""
    seen = set[int]()
    for expression in expressions:
        for part, _ in expression.predictions:
            one = part.prediction
            if id(one) not in seen:
                seen.add(id(one))
                yield one


def _check_penalties(expression: Expression, text: str, sign: float) -> None:
    """Refuse disagreements that shall be large: no function of ours bounds them."""
    for part, number in expression.predictions:
        if isinstance(part, Deviation) and sign * number > 0.0:
            raise ValueError(
                f"Expected {part!r} to be made small, got it to be made large in "
                f"{shown(text)}. A disagreement can be minimized, be subtracted from "
                "what is maximized, or have an upper limit."
            )


def _check_together(limits: Sequence[Condition]) -> None:
    """Refuse two limits on the same expression of which one excludes the other."""
    for one, other in itertools.combinations(limits, 2):
        both = one.expression + other.expression
        numbers = [number for _, number in both.predictions]
        numbers += both.inputs.values()
        if not any(numbers) and both.constant < 0.0:
            raise ValueError(
                f"Expected limits that can hold together, got {shown(one.text)} and "
                f"{shown(other.text)}. Loosen one of them."
            )


def row_of(slopes: Array, least: float, text: str, sign: float) -> Rows:
    """The constraint ``slopes @ x >= least``; a negative sign: stated from above."""
    if not slopes.any():
        raise ValueError(
            f"Expected a limit on predictions or inputs, got {shown(text)}, which no "
            "input changes. Leave it out."
        )
    side, none = np.array([sign * least]), np.array([sign * np.inf])
    sides = (side, none) if sign > 0 else (none, side)
    return Rows(sign * slopes[None], *sides, (text,))


def shared_names(ensembles: Sequence[Ensemble]) -> tuple[str, ...]:
    """The inputs of all models: those of the first, then what others have beyond."""
    first = ensembles[0]
    names = list(first.input_names)
    for other in ensembles[1:]:
        if other.columns is not None or first.columns is not None:
            if other.input_names != first.input_names:
                raise ValueError(
                    "Expected models with the same inputs, because one of them has "
                    f"encoded columns, got {list(first.input_names)!r:.80} and "
                    f"{list(other.input_names)!r:.80}. Train both on the same columns."
                )
        elif has_default_names(other) or has_default_names(first):
            if other.num_inputs != first.num_inputs:
                raise ValueError(
                    f"Expected models with {first.num_inputs} inputs each, because one "
                    f"of them knows no names, got {other.num_inputs}. Load it with "
                    "input_names=[...]."
                )
            if has_default_names(first):
                names = list(other.input_names)
        else:
            names += [name for name in other.input_names if name not in names]
    return tuple(names)


def _places(ensemble: Ensemble, names: tuple[str, ...]) -> list[int] | None:
    """Where a model's inputs are among `names`; ``None`` if it reads them as they are.

    A model without names takes the inputs as they come.
    """
    unnamed = has_default_names(ensemble) and ensemble.num_inputs == len(names)
    if unnamed or ensemble.input_names == names:
        return None
    return [names.index(name) for name in ensemble.input_names]


def _on_inputs(ensemble: Ensemble, names: tuple[str, ...]) -> Ensemble:
    """The ensemble on the inputs `names`, of which it reads its own."""
    places = _places(ensemble, names)
    if places is None:
        same = ensemble.input_names == names
        return ensemble if same else replace(ensemble, input_names=names)
    members = tuple(
        member.spread_inputs(places, len(names)) for member in ensemble.members
    )
    target = ensemble.target
    if isinstance(target, Odds):
        at = _reading(target.probability_at, places)
        target = replace(target, probability_at=at)
    return replace(
        ensemble, members=members, input_names=names, lower=None, upper=None,
        target=target,
    )  # fmt: skip


def _original_on(one: Prediction, names: tuple[str, ...]) -> Original | None:
    """The original of a prediction's model, on the inputs `names`."""
    places = _places(one.ensemble, names)
    if one.original is None or places is None:
        return one.original
    return replace(one.original, predict=_reading(one.original.predict, places))


def _reading(
    function: Callable[[Array], npt.ArrayLike], places: list[int]
) -> Callable[[Array], Array]:
    """A function of some inputs, as a function of all."""

    def reading(points: Array) -> Array:
        return np.asarray(function(points[:, places]))

    return reading


def _function(
    expression: Expression, names: tuple[str, ...], known: Mapping[int, Ensemble]
) -> Combination:
    slopes = np.zeros(len(names))
    for name, number in expression.inputs.items():
        if name not in names:
            raise ValueError(
                f"Expected an input among {', '.join(map(shown, names))}, got "
                f"{shown(name)} in {expression!r:.80}."
            )
        slopes[names.index(name)] += number
    terms = tuple(
        term
        for part, number in expression.predictions
        if number != 0.0
        for term in part.terms(known[id(part.prediction.ensemble)], number)
    )
    return Combination(terms, slopes, expression.constant)
