"""Objectives and limits as text: ``"3*strength - cement"``, ``"std(strength) <= 2"``.

One parser reads these and the constraints on inputs, see `ennopt.domain.statements`.
Nothing of a text is ever evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ennopt.domain.statements import read_statement, read_sum
from ennopt.expressions.arithmetic import (
    FUNCTIONS,
    Arithmetic,
    Condition,
    Expression,
    Input,
    Prediction,
    Probability,
)
from ennopt.network import Array, shown

THINGS = "predictions and inputs"


def read_expression(
    text: str, predictions: Mapping[str, Arithmetic], inputs: Sequence[str]
) -> Expression:
    """What a text says is optimized.

    Parameters
    ----------
    text
        Such as ``"3*strength - 0.1*cement"``.
    predictions
        By the names that stand in the text; expressions may be among them.
    inputs
        Names of the inputs.

    Examples
    --------
    >>> from ennopt import Network
    >>> known = {"strength": Prediction(Network([[[1.0]]], [[0.0]]), name="strength")}
    >>> read_expression("3*strength - 0.1*(cement + 2)", known, ["cement"])
    3*strength - 0.1*cement - 0.2
    """
    names = _names(predictions, inputs)
    slopes, constant = read_sum(text, names, THINGS)
    return _sum(slopes, names, predictions, text) + constant


def read_condition(
    text: str, predictions: Mapping[str, Arithmetic], inputs: Sequence[str]
) -> Iterator[Condition]:
    """The conditions that a text makes on predictions and inputs.

    Examples
    --------
    >>> from ennopt import Network
    >>> known = {"strength": Prediction(Network([[[1.0]]], [[0.0]]), name="strength")}
    >>> for one in read_condition("1 <= strength <= 2 - cement", known, ["cement"]):
    ...     print(one.expression)
    strength - 1
    -strength - cement + 2
    """
    names = _names(predictions, inputs)
    rows = read_statement(text, names, THINGS)
    for slopes, least, most, said in zip(
        rows.matrix, rows.least.tolist(), rows.most.tolist(), rows.texts, strict=True
    ):
        if (chance := _probability(slopes, names, predictions)) is not None:
            factor = float(slopes[np.flatnonzero(slopes)[0]])
            low, high = sorted((least / factor, most / factor))
            if np.isfinite(low):
                yield chance >= low
            if np.isfinite(high):
                yield chance <= high
            continue
        form = _sum(slopes, names, predictions, text)
        if np.isfinite(least):
            yield Condition(form - least, said)
        if np.isfinite(most):
            yield Condition(most - form, said, sign=-1.0)


def _names(predictions: Mapping[str, Arithmetic], inputs: Sequence[str]) -> list[str]:
    """All names that a text may use, functions of predictions last."""
    both = [name for name in predictions if name in inputs]
    if both:
        raise ValueError(
            f"Expected different names of predictions and inputs, got {shown(both[0])} "
            "for both. Rename the prediction."
        )
    called = [
        f"{word}({name})"
        for name, one in predictions.items()
        if isinstance(one, Prediction)
        for word in FUNCTIONS
    ]
    return [*predictions, *inputs, *(name for name in called if name not in inputs)]


def _sum(
    slopes: Array,
    names: Sequence[str],
    predictions: Mapping[str, Arithmetic],
    text: str,
) -> Expression:
    """The sum of all names times slopes."""
    total = Expression((), {}, 0.0)
    for name, slope in zip(names, slopes.tolist(), strict=True):
        if slope:
            part = _part(name, predictions)
            if isinstance(part, Probability):
                raise ValueError(
                    f"Expected a probability alone beside a number, got {part!r} in "
                    f"{text!r:.80}. Optimize and add the prediction, its log-odds."
                )
            total = total + slope * part
    return total


def _part(name: str, predictions: Mapping[str, Arithmetic]) -> Arithmetic | Probability:
    """What a name stands for."""
    if name in predictions:
        return predictions[name]
    word, _, rest = name.partition("(")
    one = predictions.get(rest.removesuffix(")"))
    if word in FUNCTIONS and isinstance(one, Prediction):
        return FUNCTIONS[word](one)
    return Input(name)


def _probability(
    slopes: Array, names: Sequence[str], predictions: Mapping[str, Arithmetic]
) -> Probability | None:
    """The probability that a row is about, if it is about one alone."""
    used = np.flatnonzero(slopes)
    if len(used) != 1:
        return None
    part = _part(names[used[0]], predictions)
    return part if isinstance(part, Probability) else None
