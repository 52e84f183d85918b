"""Decisions in terms of predictions and inputs: ``3 * strength - cost``, with limits.

Expressions are sums of predictions and inputs times numbers. Comparing one with a
number, or with another one, makes a condition, which `maximize` and `minimize` take as
a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NoReturn

import numpy as np

from ennopt.convert import load_with_original
from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.convert.verify import Original, has_default_names
from ennopt.domain.statements import read_statement
from ennopt.network import Ensemble, shown
from ennopt.problem import Combination, Limit, Output, Term
from ennopt.risk import Risk, risk_of

PREDICTION = "prediction"
"""What a prediction without a name is called."""


class Arithmetic:
    """What expressions, predictions and inputs have in common."""

    __array_priority__ = 1000.0  # NumPy scalars leave products to us
    __hash__ = object.__hash__

    def _expression(self) -> Expression:
        raise NotImplementedError

    def __add__(self, other: object) -> Expression:
        return self._expression().plus(_expression(other, "added"), 1.0)

    __radd__ = __add__

    def __sub__(self, other: object) -> Expression:
        return self._expression().plus(_expression(other, "subtracted"), -1.0)

    def __rsub__(self, other: object) -> Expression:
        return _expression(other, "subtracted").plus(self._expression(), -1.0)

    def __neg__(self) -> Expression:
        return self._expression().times(-1.0)

    def __mul__(self, factor: object) -> Expression:
        return self._expression().times(_number(factor, "multiplied by"))

    __rmul__ = __mul__

    def __truediv__(self, divisor: object) -> Expression:
        number = _number(divisor, "divided by")
        if number == 0.0:
            raise ValueError("Expected a divisor other than 0, got 0.")
        return self._expression().times(1.0 / number)

    def __ge__(self, other: object) -> Condition:
        return Condition(self - _expression(other, "compared"), f"{self} >= {other}")

    def __le__(self, other: object) -> Condition:
        return Condition(
            _expression(other, "compared") - self, f"{self} <= {other}", sign=-1.0
        )

    __gt__, __lt__ = __ge__, __le__

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "Expected an expression to be optimized or limited, got one to be true or "
            "false. Write two limits in place of low <= prediction <= high."
        )


class Prediction(Arithmetic):
    """What a model predicts, to be optimized, limited, or combined with others.

    Parameters
    ----------
    model
        Anything `ennopt.load` takes.
    output
        Of a model with several outputs, the index of one or coefficients of all.
    risk
        ``"worst"``, ``Cvar(0.4)``, ``MeanMinusStd(1.0)`` or ``MeanMinusMad(1.0)``:
        pessimistic, so low where the prediction shall be large, and high where it
        shall be small. ``None`` for the model's own prediction.
    name
        What it is called in messages and results.

    Examples
    --------
    >>> from ennopt import Network, minimize
    >>> strength = Prediction(Network([[[2.0, 1.0]]], [[0.0]]), name="strength")
    >>> cost = 3 * Input("x0") + Input("x1")
    >>> answer = minimize(cost, (0, 10), limits=[strength >= 12])
    >>> round(answer.value, 3), answer.x.round(3).tolist()
    (13.0, [1.0, 10.0])
    """

    def __init__(
        self, model: Any, *, output: Output = None, risk: Any = None,
        name: str = PREDICTION,
    ) -> None:  # fmt: skip
        self.name, self.output, self.risk = str(name), output, risk_of(risk)
        self.ensemble, self.original = load_with_original(model)
        if self.ensemble.target is not None:
            raise PredictorNotSupportedError(
                "Expected a model whose outputs are its predictions, got a classifier "
                f"or a transformed target ({self.ensemble.source}). Optimize it alone, "
                "by maximize or minimize."
            )
        members = len(self.ensemble.members)
        check_risk(self.risk, members)
        Term(self.ensemble, output=output, risk=self.risk)  # checks both

    def _expression(self) -> Expression:
        return Expression(((self, 1.0),), {}, 0.0)

    def with_risk(self, risk: Any) -> Prediction:
        """The same prediction with another risk."""
        own = object.__new__(Prediction)
        own.__dict__.update(self.__dict__)
        own.risk = risk_of(risk)
        check_risk(own.risk, len(self.ensemble.members))
        return own

    def __repr__(self) -> str:
        return self.name if self.risk is None else f"{self.name} ({self.risk.words})"


def check_risk(risk: Risk | None, members: int) -> None:
    """Refuse a risk of one network: there are no others that it could disagree with."""
    if risk is not None and members == 1:
        raise ValueError(
            f"Expected an ensemble of at least two networks for {risk!r}, got one "
            "network. Leave the risk out, or pass a list of models."
        )


class Input(Arithmetic):
    """An input by its name.

    Examples
    --------
    >>> 2 * Input("cement") - Input("slag") + 1
    2*cement - slag + 1
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"Expected the name of an input, got {name!r:.60}.")
        self.name = name

    def _expression(self) -> Expression:
        return Expression((), {self.name: 1.0}, 0.0)

    def __repr__(self) -> str:
        return shown(self.name)


def linear(prices: Mapping[str, float]) -> Expression:
    """A sum of inputs times numbers, by name.

    Examples
    --------
    >>> linear({"cement": 0.11, "slag": 0.05})
    0.11*cement + 0.05*slag
    """
    total = Expression((), {}, 0.0)
    for name, price in prices.items():
        total = total + _number(price, "multiplied by") * Input(name)
    return total


class Expression(Arithmetic):
    """A sum of predictions and inputs times numbers, and a constant.

    Users make these by arithmetic on `Prediction` and `Input`.
    """

    def __init__(
        self,
        predictions: tuple[tuple[Prediction, float], ...],
        inputs: Mapping[str, float],
        constant: float,
    ) -> None:
        self.predictions, self.inputs = predictions, dict(inputs)
        self.constant = constant

    def _expression(self) -> Expression:
        return self

    def plus(self, other: Expression, factor: float) -> Expression:
        """The sum with a multiple of another."""
        inputs = dict(self.inputs)
        for name, number in other.inputs.items():
            inputs[name] = inputs.get(name, 0.0) + factor * number
        more = tuple((one, factor * number) for one, number in other.predictions)
        return Expression(
            self.predictions + more, inputs, self.constant + factor * other.constant
        )

    def times(self, factor: float) -> Expression:
        """A multiple."""
        return Expression((), {}, 0.0).plus(self, factor)

    def __repr__(self) -> str:
        parts = [(f"{one}", number) for one, number in self.predictions]
        parts += [(shown(name), number) for name, number in self.inputs.items()]
        text = ""
        for name, number in parts:
            sign = "-" if number < 0.0 else "+"
            size = f"{abs(number):.6g}*" if abs(number) != 1.0 else ""
            text += f" {sign} {size}{name}"
        if self.constant or not parts:
            text += f" {'-' if self.constant < 0 else '+'} {abs(self.constant):.6g}"
        return text[3:] if text.startswith(" + ") else f"-{text[3:]}"


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """``expression >= 0``, as the user stated it.

    Parameters
    ----------
    expression
        What must not be negative.
    text
        The condition in the user's words.
    sign
        -1 if the user limits from above.
    """

    expression: Expression
    text: str
    sign: float = 1.0

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"Expected a limit, got one to be true or false: {self.text}. Write two "
            "limits in place of low <= prediction <= high."
        )


def _expression(given: object, done: str) -> Expression:
    if isinstance(given, Arithmetic):
        return given._expression()
    if isinstance(given, Condition):
        raise TypeError(
            f"Expected a number or an expression to be {done}, got the limit "
            f"{given.text}. Write two limits in place of low <= prediction <= high."
        )
    return Expression((), {}, _number(given, done))


def _number(given: object, done: str) -> float:
    if isinstance(given, Arithmetic):
        raise TypeError(
            f"Expected a number, got {given!r:.60}: an expression cannot be {done} "
            "another one. Expressions are linear in predictions and inputs."
        )
    if not isinstance(given, Real):
        raise TypeError(
            f"Expected a number or an expression, got {type(given).__name__} to be "
            f"{done}."
        )
    if not math.isfinite(float(given)):
        raise ValueError(f"Expected a finite number, got {float(given)} to be {done}.")
    return float(given)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Predictions, an objective and limits over one set of inputs.

    Parameters
    ----------
    ensemble
        The main one, whose inputs are those of all.
    output
        Of the main one.
    goal
        What is optimized.
    limits
        What must hold.
    originals
        The models that the ensembles were converted from, each with its prediction's
        name, its ensemble and its output.
    """

    ensemble: Ensemble
    output: Output
    goal: Combination
    limits: tuple[Limit, ...]
    originals: tuple[tuple[str, Ensemble, Output, Original], ...]


def given(limits: Any) -> bool:
    """Whether there are limits."""
    return limits is not None and not (
        isinstance(limits, list | tuple) and len(limits) == 0
    )


def read_decision(model: Any, output: Output, risk: Any, limits: Any) -> Decision:
    """What `maximize` and `minimize` are asked for.

    Parameters
    ----------
    model
        A model, or an expression.
    output, risk
        Of a model.
    limits
        A condition, a text, or a list of these.
    """
    if isinstance(model, Arithmetic):
        if output is not None or risk is not None:
            raise ValueError(
                "Expected output and risk with a model, got them with an expression. "
                "Pass them to Prediction(model, output=..., risk=...)."
            )
        goal, main = model, None
    else:
        goal = main = Prediction(model, output=output, risk=risk, name=PREDICTION)
    if not given(limits):
        limits = ()
    elif isinstance(limits, str | Condition) or not isinstance(limits, Sequence):
        limits = (limits,)
    found: list[Condition] = []
    for limit in limits:
        if isinstance(limit, str):
            found += _conditions(limit, main)
        elif isinstance(limit, Condition):
            found.append(limit)
        else:
            raise TypeError(
                f"Expected limits such as strength >= 40, got {limit!r:.60}. Compare a "
                "Prediction with a number, or write a text."
            )
    return decided(goal, found)


def _conditions(text: str, main: Prediction | None) -> Iterator[Condition]:
    """The conditions that a text makes on the prediction and the inputs of a model."""
    if main is None:
        raise ValueError(
            f"Expected limits on predictions of the objective, got the text {text!r}. "
            "Write them with a Prediction: strength >= 40."
        )
    names = (PREDICTION, *main.ensemble.input_names)
    rows = read_statement(text, names)
    for slopes, least, most in zip(rows.matrix, rows.least, rows.most, strict=True):
        form = float(slopes[0]) * main + linear(
            {
                name: float(slope)
                for name, slope in zip(names[1:], slopes[1:], strict=True)
                if slope != 0.0
            }
        )
        if slopes[0] == 0.0:
            raise ValueError(
                f"Expected a limit on the prediction, got {text!r}. Pass conditions on "
                "inputs alone as constraints."
            )
        if np.isfinite(least):
            yield Condition(form - float(least), text)
        if np.isfinite(most):
            yield Condition(float(most) - form, text, sign=-1.0)


def decided(goal: Arithmetic, limits: Sequence[Condition]) -> Decision:
    """Bring the models of all expressions to the same inputs."""
    expressions = [goal._expression(), *(limit.expression for limit in limits)]
    found = list(_predictions(expressions))
    if not found:
        raise ValueError(
            "Expected a prediction in the objective or in a limit, got none. Without "
            "one this is a linear program: use a solver for these."
        )
    names = _names([one.ensemble for one in found])
    known = {id(one): _on_inputs(one.ensemble, names) for one in found}
    functions = [_function(one, names, known) for one in expressions]
    main = found[0]
    return Decision(
        known[id(main)],
        main.output,
        functions[0],
        tuple(
            Limit(
                replace(function, constant=0.0), -function.constant, limit.text,
                limit.sign,
            )
            for function, limit in zip(functions[1:], limits, strict=True)
        ),
        tuple(
            (one.name, known[id(one)], one.output, one.original)
            for one in found
            if one.original is not None
        ),
    )  # fmt: skip


def _predictions(expressions: Sequence[Expression]) -> Iterator[Prediction]:
    """Each prediction once."""
    seen = set[int]()
    for expression in expressions:
        for one, _ in expression.predictions:
            if id(one) not in seen:
                seen.add(id(one))
                yield one


def _names(ensembles: Sequence[Ensemble]) -> tuple[str, ...]:
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


def _on_inputs(ensemble: Ensemble, names: tuple[str, ...]) -> Ensemble:
    """The ensemble on the inputs `names`, of which it reads its own."""
    if ensemble.input_names == names:
        return ensemble
    if has_default_names(ensemble) and ensemble.num_inputs == len(names):
        return replace(ensemble, input_names=names)
    places = [names.index(name) for name in ensemble.input_names]
    members = tuple(
        member.spread_inputs(places, len(names)) for member in ensemble.members
    )
    return replace(ensemble, members=members, input_names=names, lower=None, upper=None)


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
        Term(known[id(one)], number, one.output, one.risk)
        for one, number in expression.predictions
        if number != 0.0
    )
    return Combination(terms, slopes, expression.constant)
