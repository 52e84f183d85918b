"""What a certificate claims, in plain words.

All words are made from the numbers that the checker reads. Texts of a certificate, such
as a limit as its author wrote it, prove nothing and are not repeated. Names of inputs
are the certificate's; those of models come from who asks for the check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ennopt.certificate.record import ensembles_of, fingerprint
from ennopt.domain import Domain
from ennopt.network import Array, Ensemble, shown
from ennopt.problem import Combination, Problem, Term
from ennopt.risk import MeanMinusMad, MeanMinusStd

Names = Mapping[str, str]
"""What models are called, by their fingerprints."""


def claim_words(problem: Problem, names: Names) -> tuple[str, ...]:
    """What a claim is about: sense and objective, limits, feasible set.

    Examples
    --------
    >>> from ennopt import Network
    >>> model = Ensemble([Network([[[1.0, 2.0]]], [[0.0]])])
    >>> for line in claim_words(Problem(model, Domain([0, 4], [1.5, 4]), "min"), {}):
    ...     print(line)
    the minimum of model 1
    where x0 in [0, 1.5]
    where x1 = 4
    """
    sense = "maximum" if problem.sense == "max" else "minimum"
    inputs = _inputs(problem)
    found = []
    for limit in problem.limits:
        if limit.sign < 0.0:  # a limit from above, as the user knows it
            text = _function(limit.function.negated(), problem, inputs, names, True)
            found.append(f"{text} <= {number(-limit.least)}")
        else:
            text = _function(limit.function, problem, inputs, names)
            found.append(f"{text} >= {number(limit.least)}")
    found += _set(problem.domain, inputs)
    goal = _function(problem.goal, problem, inputs, names, problem.sense == "min")
    return (f"the {sense} of {goal}", *(f"where {text}" for text in found))


def set_words(domain: Domain) -> tuple[str, ...]:
    """A feasible set, line by line."""
    return tuple(f"where {text}" for text in _set(domain, domain.names))


def _inputs(problem: Problem) -> list[str]:
    """Names of the inputs; where the model has another name, that, too."""
    pairs = zip(problem.domain.names, problem.ensemble.input_names, strict=True)
    return [
        name if name == own else f"{name} ({own} of the model)" for name, own in pairs
    ]


def _set(domain: Domain, names: Sequence[str]) -> list[str]:
    """What each input may be, then what they must meet together."""
    found = []
    for j, name in enumerate(names):
        low, high = number(domain.lower[j]), number(domain.upper[j])
        listed = domain.values.lists[j]
        text = f"{shown(name)} = {low}" if low == high else (
            f"{shown(name)} in [{low}, {high}]"
        )  # fmt: skip
        if listed is not None:
            text += f", one of {', '.join(number(at) for at in listed)}"
        if domain.values.whole[j]:
            text += ", a whole number"
        found.append(text)
    rows = domain.linear
    usual = rows.slack(domain.lower, domain.upper)
    for row, least, most, slack, own in zip(
        rows.matrix, rows.least, rows.most, domain.slack, usual, strict=True
    ):
        text = _sum(row, names) or "0"
        if least == most:
            text += f" = {number(least)}"
        else:
            text = f"{number(least)} <= {text}" if np.isfinite(least) else text
            text += f" <= {number(most)}" if np.isfinite(most) else ""
        found.append(text + (f", missed by {slack:.3g} at most" * bool(slack > own)))
    for region in domain.regions:
        boxes = len(region.lower)
        found.append(f"near {region.count} of {boxes} rows of data at least")
    return found


def number(value: float) -> str:
    """A number, exactly, in as few digits as that takes.

    Examples
    --------
    >>> number(40.0), number(0.1)
    ('40', '0.1')
    """
    return repr(float(value)).removesuffix(".0")


def _function(
    function: Combination, problem: Problem, inputs: Sequence[str], names: Names,
    small: bool = False,
) -> str:  # fmt: skip
    """A sum of predictions, inputs and a constant, which is to be small or large."""
    parts = [_multiple(term, problem, names, small) for term in function.terms]
    text = _joined(_added(parts), _sum(function.inputs, inputs))
    if function.constant or not text:
        text = _joined(text, number(function.constant))
    return text


def _prediction(term: Term, problem: Problem, names: Names) -> str:
    """What a term is a multiple of, with its risk."""
    text = _called(term.ensemble, problem, names)
    if term.output is not None:
        outputs = [f"output {k}" for k in range(term.ensemble.num_outputs)]
        chosen = _sum(np.asarray(term.output), outputs) or "0"
        several = np.count_nonzero(np.asarray(term.output)) > 1
        text = f"({chosen}) of {text}" if several else f"{chosen} of {text}"
    risk = term.own_risk
    return text if risk is None else f"[{text}: {risk.words}]"


def _multiple(
    term: Term, problem: Problem, names: Names, small: bool
) -> tuple[float, str]:
    """Factor and name of a term. How far members disagree counts against the sum."""
    if not term.is_disagreement:
        return term.factor, _prediction(term, problem, names)
    assert isinstance(term.risk, MeanMinusStd | MeanMinusMad)
    kind = "standard" if isinstance(term.risk, MeanMinusStd) else "mean absolute"
    factor = abs(term.factor) * term.risk.kappa
    alone = _prediction(replace(term, risk=None), problem, names)
    text = f"[the {kind} deviation of the members of {alone}]"
    return factor if small else -factor, text


def _called(ensemble: Ensemble, problem: Problem, names: Names) -> str:
    """The name of a model, or its number in order of appearance."""
    order = list(dict.fromkeys(fingerprint(one) for one in ensembles_of(problem)))
    own = fingerprint(ensemble)
    return shown(names[own]) if own in names else f"model {order.index(own) + 1}"


def _sum(factors: Array, names: Sequence[str]) -> str:
    pairs = zip(factors.tolist(), names, strict=True)
    return _added([(factor, shown(name)) for factor, name in pairs if factor])


def _added(parts: list[tuple[float, str]]) -> str:
    """Multiples of what is named, added up."""
    text = ""
    for factor, name in parts:
        times = "" if abs(factor) == 1.0 else f"{number(abs(factor))} * "
        text = _joined(text, f"{'-' * (factor < 0)}{times}{name}")
    return text


def _joined(text: str, more: str) -> str:
    if not text or not more:
        return text or more
    return f"{text} - {more[1:]}" if more.startswith("-") else f"{text} + {more}"
