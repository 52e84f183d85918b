"""Flattening of nested ensembles, and the check against the original model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ennopt.network import Array, Ensemble, ModelConfigurationError

NUM_POINTS = 64
RELATIVE_TOLERANCE = 1e-3  # far above float32 noise, far below a wrong layer
ROUNDING_TOLERANCE = 1e-5  # of the terms that the last layer adds up


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
    sources = list(dict.fromkeys(e.source for e in ensembles if e.source))
    boxes = {
        (tuple(e.lower), tuple(e.upper))
        for e in ensembles
        if e.lower is not None and e.upper is not None
    }
    lower, upper = boxes.pop() if len(boxes) == 1 else (None, None)
    return Ensemble(
        tuple(member for e in ensembles for member in e.members),
        weights=np.concatenate(parts),
        input_names=named.pop() if named else None,  # type: ignore[arg-type]
        lower=None if lower is None else np.array(lower),
        upper=None if upper is None else np.array(upper),
        source=", ".join(sources[:3]) + (", ..." if len(sources) > 3 else ""),
        deviation=max(deviations, default=None),
    )


def has_default_names(ensemble: Ensemble) -> bool:
    """Whether the inputs go by ``x0, x1, ...``."""
    return ensemble.input_names == tuple(f"x{j}" for j in range(ensemble.num_inputs))


def verified(
    ensemble: Ensemble,
    predict: Callable[[Array], npt.ArrayLike],
    *,
    units: tuple[Array, Array] | None = None,
    source: str = "",
) -> Ensemble:
    """The ensemble with its largest deviation from the original on random points.

    Parameters
    ----------
    ensemble
        What the conversion gave.
    predict
        The original's own prediction for points (num_points, num_inputs).
    units
        Center and spread of the inputs, (num_inputs,) each, if the model tells;
        standard normal points otherwise.
    source
        What it was converted from.

    Raises
    ------
    ModelConfigurationError
        When the two disagree by more than rounding explains.
    """
    center, spread = units or (np.zeros(1), np.ones(1))
    rng = np.random.default_rng(0)
    points = rng.standard_normal((NUM_POINTS, ensemble.num_inputs))
    # float32 numbers, so that rounding of the points is no part of the deviation
    x = (center + spread * points).astype(np.float32).astype(np.float64)
    ours = ensemble(x)
    theirs = np.asarray(predict(x), dtype=np.float64)
    if theirs.size != ours.size:
        raise ModelConfigurationError(
            f"Expected {ours.size} predictions for {NUM_POINTS} points from the "
            f"original model, got {theirs.size}. It treats the points of a batch "
            "together; only models of one point at a time can be converted."
        )
    distance = np.abs(ours - theirs.reshape(ours.shape))
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
    return replace(ensemble, source=source or ensemble.source, deviation=deviation)


def _magnitude(ensemble: Ensemble, x: Array) -> float:
    """Size of the terms that cancel in a prediction."""
    size = 0.0
    for weight, member in zip(ensemble.weights, ensemble.members, strict=True):
        hidden = member.preactivations(x)[:-1]
        last = np.maximum(hidden[-1], 0.0) if hidden else np.abs(x)
        terms = last @ np.abs(member.weights[-1]).T + np.abs(member.biases[-1])
        size += abs(weight) * float(terms.max())
    return size
