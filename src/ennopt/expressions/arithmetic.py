"""Sums of predictions and inputs times numbers, and conditions on them.

Comparing an expression with a number, or with another one, makes a condition, which
`maximize` and `minimize` take as a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn, TypeAlias

from ennopt.convert import load_with_original
from ennopt.convert.classes import choose_class
from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.network import Ensemble, shown
from ennopt.problem import Output, Term
from ennopt.risk import MeanMinusMad, MeanMinusStd, Risk, Worst, risk_of
from ennopt.targets import Odds

PREDICTION = "prediction"
"""What a prediction without a name is called."""


class Arithmetic:
    """What expressions, predictions and inputs have in common."""

    __array_priority__ = 1000.0  # NumPy scalars leave products to us
    __hash__ = object.__hash__

    def _expression(self) -> Expression:
        raise NotImplementedError

    def named(self, name: str) -> Expression:
        """The same with a name, by which answers, reports and limits call it.

        Examples
        --------
        >>> cost = (3 * Input("cement") + Input("slag")).named("cost")
        >>> cost
        cost
        >>> (cost <= 90).text
        'cost <= 90'
        >>> cost + 1  # what is made of it is a sum again
        3*cement + slag + 1
        """
        one = self._expression()
        return Expression(one.predictions, one.inputs, one.constant, str(name))

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
        Of a model with several outputs, the index of one or coefficients of all. Of a
        classifier, the number or the name of a class; the prediction is its log-odds.
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
        self.name, self.risk = str(name), risk_of(risk)
        loaded, self.output = choose_class(load_with_original(model), output)
        self.ensemble, self.original = loaded
        target = self.ensemble.target
        if not (target is None or isinstance(target, Odds)):
            raise PredictorNotSupportedError(
                "Expected a model whose outputs are its predictions, got a transformed "
                f"target ({self.ensemble.source}). Optimize it alone, by maximize or "
                "minimize."
            )
        check_risk(self.risk, self.ensemble)
        Term(self.ensemble, output=self.output, risk=self.risk)  # checks both

    @property
    def prediction(self) -> Prediction:
        """Itself: what stands in a sum may also be a function of a prediction."""
        return self

    @property
    def key(self) -> Hashable:
        """Equal for what may be added up to one multiple."""
        return id(self)

    def terms(self, ensemble: Ensemble, factor: float) -> Iterator[Term]:
        """Of a combination: the factor times this prediction by `ensemble`."""
        yield Term(ensemble, factor, self.output, self.risk)

    def _expression(self) -> Expression:
        return Expression(((self, 1.0),), {}, 0.0)

    def std(self) -> Deviation:
        """The standard deviation of the members: how far they disagree.

        Like `mad` and `spread` it can be made small, by a limit ``<=``, a penalty or a
        minimization, not large.

        Examples
        --------
        >>> from ennopt import Network, maximize
        >>> one, two = (Network([[[k]]], [[0.0]]) for k in (1.0, 3.0))
        >>> yields = Prediction([one, two], name="yields")
        >>> answer = maximize(yields, (0, 10), limits=yields.std() <= 2)
        >>> round(answer.value, 3), answer.x.round(3).tolist()
        (4.0, [2.0])
        """
        return Deviation(self, "std")

    def mad(self) -> Deviation:
        """The mean absolute deviation of the members from their mean."""
        return Deviation(self, "mad")

    def spread(self) -> Deviation:
        """The largest less the smallest prediction of the members."""
        return Deviation(self, "spread")

    def probability(self) -> Probability:
        """The probability of a classifier's class, to be limited."""
        return Probability(self)

    def with_risk(self, risk: Any) -> Prediction:
        """The same prediction with another risk."""
        own = object.__new__(Prediction)
        own.__dict__.update(self.__dict__)
        own.risk = risk_of(risk)
        check_risk(own.risk, self.ensemble)
        return own

    def __repr__(self) -> str:
        return self.name if self.risk is None else f"{self.name} ({self.risk.words})"


def check_risk(risk: Risk | str | None, ensemble: Ensemble) -> None:
    """Refuse a risk of one network: there are no others that it could disagree with."""
    if risk is not None and len(ensemble.members) == 1:
        raise ValueError(
            f"Expected an ensemble of at least two networks for {risk}, got one "
            "network. Leave it out, or pass a list of models."
        )


class Deviation(Arithmetic):
    """How far the members of an ensemble disagree; see `Prediction.std`.

    Parameters
    ----------
    prediction
        Of the ensemble.
    kind
        ``"std"``, ``"mad"`` or ``"spread"``.
    """

    def __init__(self, prediction: Prediction, kind: str) -> None:
        self.prediction, self.kind = prediction, kind
        check_risk(f"{self!r}", prediction.ensemble)
        Term(prediction.ensemble, output=prediction.output, risk=Worst())  # checks it

    @property
    def key(self) -> Hashable:
        """Equal for what may be added up to one multiple."""
        return self.kind, self.prediction.key

    def terms(self, ensemble: Ensemble, factor: float) -> Iterator[Term]:
        """Of a combination, in which it is a penalty whatever the factor's sign is."""
        output, size = self.prediction.output, abs(factor)
        if self.kind == "std":
            yield Term(ensemble, size, output, MeanMinusStd(1.0, mean=0.0))
        elif self.kind == "mad":
            yield Term(ensemble, size, output, MeanMinusMad(1.0, mean=0.0))
        else:  # the least of all members, less the largest of all
            yield Term(ensemble, size, output, Worst())
            yield Term(ensemble, -size, output, Worst())

    def _expression(self) -> Expression:
        return Expression(((self, 1.0),), {}, 0.0)

    def __repr__(self) -> str:
        return f"{self.kind}({self.prediction.name})"


class Probability:
    """The probability of a class, which can be compared with a number.

    It rises with the log-odds, so that a limit on one is a limit on the other. What is
    optimized is the log-odds: the `Prediction` itself.

    Parameters
    ----------
    prediction
        Of a classifier.
    """

    def __init__(self, prediction: Prediction) -> None:
        self.prediction, odds = prediction, prediction.ensemble.target
        if not isinstance(odds, Odds):
            raise TypeError(
                "Expected a classifier whose probability is limited, got "
                f"{prediction.name}, which predicts a number. Limit the prediction."
            )
        if odds.rivals > 1:
            raise PredictorNotSupportedError(
                f"Expected two classes, got {odds.rivals + 1} at "
                f"probability({prediction.name}): the probability is no function of "
                "the log-odds then. Limit these: they are against the likeliest other "
                "class."
            )

    def __ge__(self, other: object) -> Condition:
        return self._limited(other, ">=")

    def __le__(self, other: object) -> Condition:
        return self._limited(other, "<=")

    __gt__, __lt__ = __ge__, __le__
    __hash__ = object.__hash__

    def _limited(self, other: object, sign: str) -> Condition:
        share = _number(other, "compared")
        if not 0.0 < share < 1.0:
            raise ValueError(
                f"Expected a probability above 0 and below 1, got {share:g} at "
                f"{self!r} {sign} {share:g}."
            )
        odds = math.log(share) - math.log1p(-share)
        found = self.prediction >= odds if sign == ">=" else self.prediction <= odds
        text = f"{self!r} {sign} {share:g} (log-odds {sign} {odds:.6g})"
        return Condition(found.expression, text, found.sign)

    def __repr__(self) -> str:
        return f"probability({self.prediction.name})"


Part: TypeAlias = Prediction | Deviation
"""What stands in an expression beside inputs."""

FUNCTIONS: dict[str, Callable[[Prediction], Arithmetic | Probability]] = {
    "std": Prediction.std,
    "mad": Prediction.mad,
    "spread": Prediction.spread,
    "worst": lambda one: one.with_risk("worst"),
    "probability": Prediction.probability,
}
"""Functions of a prediction that a text may call: ``std(strength) <= 2``."""


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
        predictions: tuple[tuple[Part, float], ...],
        inputs: Mapping[str, float],
        constant: float,
        name: str | None = None,
    ) -> None:
        self.predictions, self.inputs = predictions, dict(inputs)
        self.constant, self.name = constant, name

    def _expression(self) -> Expression:
        return self

    def plus(self, other: Expression, factor: float) -> Expression:
        """The sum with a multiple of another."""
        inputs = dict(self.inputs)
        for name, number in other.inputs.items():
            inputs[name] = inputs.get(name, 0.0) + factor * number
        parts = {one.key: (one, number) for one, number in self.predictions}
        for one, number in other.predictions:
            known = parts.get(one.key, (one, 0.0))
            parts[one.key] = known[0], known[1] + factor * number
        constant = self.constant + factor * other.constant
        return Expression(tuple(parts.values()), inputs, constant)

    def times(self, factor: float) -> Expression:
        """A multiple."""
        return Expression((), {}, 0.0).plus(self, factor)

    def __repr__(self) -> str:
        if self.name is not None:
            return shown(self.name)
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
    if isinstance(given, Probability):
        raise TypeError(
            f"Expected a number or an expression, got {given!r} to be {done}. A "
            "probability can be limited alone; what can be optimized and added is the "
            "prediction, its log-odds."
        )
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
