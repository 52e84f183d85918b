"""Flattening of nested ensembles, and the checks against the original model.

The original is asked twice: on random points when it is loaded, and at the answer
after a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ennopt.activations import RELU
from ennopt.columns import CHANGES, Number, Ordinal
from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.network import Array, Ensemble, ModelConfigurationError
from ennopt.problem import Problem
from ennopt.result import Result
from ennopt.targets import Classes, Link, Odds

NUM_POINTS = 64
RELATIVE_TOLERANCE = 1e-3  # far above float32 noise, far below a wrong layer
ROUNDING_TOLERANCE = 1e-5  # of the terms that the last layer adds up

UNITS = {"float64": 2**-53, "float32": 2**-24, "float16": 2**-11, "bfloat16": 2**-8}
"""Largest relative error of rounding to a number, by the name of its type."""

STEEPEST = 1.2
"""No activation is steeper."""

FUNCTION_UNITS = 16.0
"""Units in the last place by which frameworks may miss a function such as tanh."""

FOLDING_SLACK = 4.0
"""Scalers and averages, which we fold into the layers, round on their own."""


@dataclass(frozen=True, slots=True)
class Original:
    """The model that an ensemble was converted from.

    Parameters
    ----------
    predict
        Its own predictions for points (num_points, num_inputs), in its own
        arithmetic: an array of num_points * num_outputs elements.
    precision
        The arithmetic: a key of `UNITS`.
    """

    predict: Callable[[Array], npt.ArrayLike]
    precision: str


class Loaded(NamedTuple):
    """An ensemble and, if it was converted from one, the model it came from."""

    ensemble: Ensemble
    original: Original | None = None


def combine(
    ensembles: Sequence[Ensemble], weights: npt.ArrayLike | None = None
) -> Ensemble:
    """One ensemble of all members, with the products of outer and inner weights.

    Parameters
    ----------
    ensembles
        At least one, all with the same inputs and outputs.
    weights
        Factor of each ensemble, ``None`` for the mean.

    Examples
    --------
    >>> from ennopt.network import Network
    >>> one, two, three = (Ensemble([Network([[[k]]], [[0.0]])]) for k in (1, 2, 3))
    >>> combine([combine([one, two]), three]).weights.tolist()
    [0.25, 0.25, 0.5]
    """
    if not ensembles:
        raise ModelConfigurationError(
            "Expected at least one member, got an empty list. Pass a model."
        )
    count = len(ensembles)
    outer = np.full(count, 1.0 / count) if weights is None else np.asarray(weights)
    parts = [w * e.weights for w, e in zip(outer, ensembles, strict=True)]
    deviations = [e.deviation for e in ensembles if e.deviation is not None]
    named = {e.input_names for e in ensembles if not has_default_names(e)}
    if len(named) > 1:
        first, second = sorted(named)[:2]
        raise ModelConfigurationError(
            "Expected the same inputs in every member, got the names "
            f"{list(first)!r:.100} and {list(second)!r:.100}. Train the members on "
            "the same columns in the same order."
        )
    if len(ensembles) > 1 and any(e.target is not None for e in ensembles):
        raise PredictorNotSupportedError(
            "Expected a mean of predictions that are sums of neurons, got a mean of "
            "probabilities or of predictions that each member transforms back. Such a "
            "mean is no function of one sum, so that no bound can be mapped: average "
            "first and transform the mean."
        )
    if any(e.columns != ensembles[0].columns for e in ensembles):
        raise ModelConfigurationError(
            "Expected the same columns in every member, got members whose columns or "
            "categories differ. Fit their encoders on the same data."
        )
    sources = list(dict.fromkeys(e.source for e in ensembles if e.source))
    boxes = {
        (tuple(e.lower), tuple(e.upper))
        for e in ensembles
        if e.lower is not None and e.upper is not None
    }
    lower, upper = boxes.pop() if len(boxes) == 1 else (None, None)
    ranges = [e.target_range for e in ensembles if e.target_range is not None]
    # Of a mean alone: a sum is nothing that was measured.
    known = weights is None and len(ranges) == count
    return Ensemble(
        tuple(member for e in ensembles for member in e.members),
        weights=np.concatenate(parts),
        input_names=named.pop() if named else None,  # type: ignore[arg-type]
        lower=None if lower is None else np.array(lower),
        upper=None if upper is None else np.array(upper),
        columns=ensembles[0].columns,
        target=ensembles[0].target,
        target_range=(min(r[0] for r in ranges), max(r[1] for r in ranges))
        if known
        else None,
        source=", ".join(sources[:3]) + (", ..." if len(sources) > 3 else ""),
        deviation=max(deviations, default=None),
    )


def combined(parts: Sequence[Loaded]) -> Loaded:
    """The mean of several models, of their ensembles and of their originals.

    A part without an original is asked as the ensemble it is.
    """
    ensemble = combine([part.ensemble for part in parts])
    originals = [part.original for part in parts if part.original is not None]
    if not originals:
        return Loaded(ensemble)

    def predict(x: Array) -> Array:
        shape = (len(x), ensemble.num_outputs)
        own = (
            part.ensemble(x) if part.original is None else part.original.predict(x)
            for part in parts
        )
        return np.asarray(np.mean([np.reshape(v, shape) for v in own], axis=0))

    coarsest = max((o.precision for o in originals), key=lambda name: UNITS[name])
    return Loaded(ensemble, Original(predict, coarsest))


def has_default_names(ensemble: Ensemble) -> bool:
    """Whether the inputs go by ``x0, x1, ...``."""
    return ensemble.input_names == tuple(f"x{j}" for j in range(ensemble.num_inputs))


def verified(
    ensemble: Ensemble,
    original: Original,
    *,
    units: tuple[Array, Array] | None = None,
    source: str = "",
    num_points: int = NUM_POINTS,
) -> Loaded:
    """The ensemble with its largest deviation from the original on random points.

    Parameters
    ----------
    ensemble
        What the conversion gave.
    original
        What it was converted from.
    units
        Center and spread of the inputs, (num_inputs,) each, if the model tells;
        standard normal points otherwise.
    source
        What it was converted from, in words.
    num_points
        On how many points to compare.

    Raises
    ------
    ModelConfigurationError
        When the two disagree by more than rounding explains.
    """
    center, spread = units or (np.zeros(1), np.ones(1))
    rng = np.random.default_rng(0)
    points = rng.standard_normal((num_points, ensemble.num_inputs))
    # float32 numbers, so that rounding of the points is no part of the deviation
    x = (center + spread * points).astype(np.float32).astype(np.float64)
    x = _possible(x, ensemble, rng)
    ours = predictions(ensemble, x)
    theirs = np.asarray(original.predict(x), dtype=np.float64)
    if theirs.size != ours.size:
        raise ModelConfigurationError(
            f"Expected {ours.size} predictions for {num_points} points from the "
            f"original model, got {theirs.size}. It treats the points of a batch "
            "together; only models of one point at a time can be converted."
        )
    theirs = theirs.reshape(ours.shape)
    if isinstance(ensemble.target, Link):  # not defined, or infinite, in both
        same = (np.isnan(ours) & np.isnan(theirs)) | (ours == theirs)
        ours, theirs = np.where(same, 0.0, ours), np.where(same, 0.0, theirs)
    distance = np.abs(ours - theirs)
    allowed = RELATIVE_TOLERANCE * np.abs(theirs).max() + ROUNDING_TOLERANCE * (
        _magnitude(ensemble, x)
    )
    deviation = float(distance.max())
    if not deviation <= allowed:  # NaN is refused too
        raise ModelConfigurationError(
            f"Expected the converted ensemble to predict as the original {source}, "
            f"got a deviation of {deviation:.3g} with predictions up to "
            f"{np.abs(theirs).max():.3g}. It does something that its layers do not "
            "show, such as hooks or mixing the points of a batch."
        )
    checked = replace(ensemble, source=source or ensemble.source, deviation=deviation)
    return Loaded(checked, original)


def predictions(ensemble: Ensemble, x: Array) -> Array:
    """What the original is to predict at points, (num_points, num_outputs)."""
    outputs = ensemble(x)
    if isinstance(ensemble.target, Classes):
        return ensemble.target.probabilities(outputs)
    if isinstance(ensemble.target, Link):
        return np.asarray(ensemble.target.apply(outputs)).reshape(outputs.shape)
    if isinstance(ensemble.target, Odds):
        return ensemble.target.probability_at(x)[:, None]
    return outputs


def _possible(x: Array, ensemble: Ensemble, rng: np.random.Generator) -> Array:
    """Points with a random level of each category and numbers that inputs can be."""
    for column in ensemble.columns or ():
        places = list(column.inputs)
        if isinstance(column, Number):
            if column.change is not None and CHANGES[column.change].from_zero:
                x[:, places] = np.abs(x[:, places])
            if column.values is not None:
                x[:, places] = rng.choice(column.values, (len(x), 1))
            elif column.whole:
                x[:, places] = np.rint(x[:, places])
            continue
        level = rng.integers(len(column.known), size=len(x))
        if isinstance(column, Ordinal):
            x[:, places] = level[:, None]
        else:  # the base, if there is one, is number zero
            level = level - (column.base is not None)
            x[:, places] = level[:, None] == np.arange(len(places))
    return x


def _magnitude(ensemble: Ensemble, x: Array) -> float:
    """Size of the terms that cancel in a prediction."""
    size = 0.0
    for weight, member in zip(ensemble.weights, ensemble.members, strict=True):
        hidden = member.preactivations(x)[:-1]
        last = np.abs(member.activations[-1].value(hidden[-1]) if hidden else x)
        terms = last @ np.abs(member.weights[-1]).T + np.abs(member.biases[-1])
        size += abs(weight) * float(terms.max())
    return size


def rechecked(result: Result, problem: Problem, original: Original) -> Result:
    """The result with what the original model predicts at its answer.

    Whatever the original does, the answer is returned: what it cannot say, and what
    rounding does not explain, becomes a note.
    """
    if result.x is None:
        return result
    try:
        theirs = np.asarray(original.predict(result.x[None]), dtype=np.float64).ravel()
    except KeyboardInterrupt:
        return _noted(
            result, "The original model was interrupted when asked at the answer."
        )
    except Exception as error:  # noqa: BLE001 - foreign code may raise anything
        reason = f"{type(error).__name__}: {error}"
        return _noted(
            result, f"The original model failed at the answer ({reason:.200})."
        )
    if theirs.size != problem.ensemble.num_outputs or not np.isfinite(theirs).all():
        return _noted(
            result, f"The original model predicts {theirs!s:.100} at the answer."
        )
    coefficients = np.ones(1) if problem.output is None else np.asarray(problem.output)
    reach = _rounding(problem.ensemble, result.x, UNITS[original.precision])
    inside = float(problem.values(result.x[None])[0])
    predicted = float(coefficients @ theirs)
    result = replace(result, original=predicted)
    allowed = float(np.abs(coefficients) @ reach)
    target, shown = problem.ensemble.target, result.value
    if isinstance(target, Odds) and result.probability is not None:
        shown = result.probability
        allowed += 16 * UNITS[original.precision]
    elif isinstance(target, Link):
        allowed = max(
            abs(target.value(inside + side * allowed) - shown) for side in (1.0, -1.0)
        ) + 16 * UNITS[original.precision] * abs(shown)
    if abs(predicted - shown) <= allowed:
        return result
    return _noted(
        result,
        f"The original model predicts {predicted:.8g} at the answer, further "
        f"from {shown:.8g} than rounding in {original.precision} explains. It "
        "changed after it was loaded, or does something that its layers do not show: "
        "the proof holds for the layers.",
    )


def _noted(result: Result, note: str) -> Result:
    return replace(result, notes=(*result.notes, note))


def _rounding(ensemble: Ensemble, x: Array, unit: float) -> Array:
    """How far rounding may move each prediction at `x`, (num_outputs,).

    The error of a layer is that of its inputs, carried on by the absolute weights,
    and that of its own sums of n terms, ``n * unit`` of their absolute size.
    """
    unit += UNITS["float64"]  # we round too
    total = np.zeros(ensemble.num_outputs)
    for weight, member in zip(ensemble.weights, ensemble.members, strict=True):
        values, errors = x, unit * np.abs(x)
        for k, (w, b) in enumerate(member.layers()):
            terms = np.abs(w) @ np.abs(values) + np.abs(b)
            errors = np.abs(w) @ errors + (w.shape[1] + 1) * unit * terms
            sums = w @ values + b
            if k < len(member.activations):
                kind = member.activations[k]
                values = kind.value(sums)
                if kind != RELU:  # steeper than one, and rounded itself
                    errors = STEEPEST * errors + FUNCTION_UNITS * unit * np.abs(values)
        errors = errors + (ensemble.num_members + 1) * unit * np.abs(sums)
        total += abs(weight) * errors
    return FOLDING_SLACK * total
