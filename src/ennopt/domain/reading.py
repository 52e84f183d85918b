"""Read a feasible set from whatever a user may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ennopt.domain.sets import Domain
from ennopt.network import Ensemble, frozen


def read_domain(spec: Any, ensemble: Ensemble) -> Domain:
    """Read whatever a user may give as bounds for the inputs of `ensemble`.

    Parameters
    ----------
    spec
        A `Domain`; ``{name: (low, high)}``; a list of pairs, one per input; a
        tuple of two vectors ``(lower, upper)``; two numbers ``(low, high)`` for
        all inputs; an object with ``lb`` and ``ub`` (``scipy.optimize.Bounds``);
        a DataFrame or a 2-D array of training rows (its range); or ``None`` for
        the box recorded with the ensemble.
    ensemble
        Gives the number and the names of the inputs.
    """
    d, names = ensemble.num_inputs, ensemble.input_names
    if spec is None:
        if ensemble.lower is None or ensemble.upper is None:
            raise ValueError(
                f"Expected bounds for the {d} inputs, got none, and the model "
                "records no box. Pass the domain, for example a list of "
                "(low, high) pairs."
            )
        return Domain(ensemble.lower, ensemble.upper, names)
    if isinstance(spec, Domain):
        lower, upper, own = spec.lower, spec.upper, spec.names
        plain = own == tuple(f"x{j}" for j in range(len(own)))
        if len(own) == d and set(own) == set(names) and own != names:
            order = [own.index(name) for name in names]
            lower, upper, own = lower[order], upper[order], names
        return _checked(lower, upper, names if plain else own, d)
    if isinstance(spec, Mapping):
        return _from_mapping(spec, names)
    if hasattr(spec, "columns"):
        return _from_frame(spec, ensemble)
    if hasattr(spec, "lb") and hasattr(spec, "ub"):
        return _checked(
            np.broadcast_to(spec.lb, (d,)) if np.ndim(spec.lb) == 0 else spec.lb,
            np.broadcast_to(spec.ub, (d,)) if np.ndim(spec.ub) == 0 else spec.ub,
            names, d,
        )  # fmt: skip
    if isinstance(spec, tuple) and len(spec) == 2:
        if all(np.ndim(side) == 0 for side in spec):
            low, high = spec
            return _checked(np.full(d, low), np.full(d, high), names, d)
        if all(isinstance(side, np.ndarray) and side.ndim == 1 for side in spec):
            return _checked(spec[0], spec[1], names, d)
    if isinstance(spec, np.ndarray) and spec.ndim == 2:
        if spec.shape == (2, 2) and d == 2:
            raise ValueError(
                "Expected bounds or data, got a 2 by 2 array, which may be "
                "either. Pass a list of (low, high) pairs, or "
                "Domain.from_data(array)."
            )
        if spec.shape[1] == d:
            return Domain.from_data(spec, names)
    return _from_pairs(spec, names)


def _checked(lower: Any, upper: Any, names: Sequence[str], d: int) -> Domain:
    lower, upper = frozen(lower), frozen(upper)
    for side, values in (("lower", lower), ("upper", upper)):
        if values.shape != (d,):
            missing = ", ".join(names[values.size : d]) if values.ndim == 1 else ""
            missing = f" (none for {missing})" if missing else ""
            raise ValueError(
                f"Expected {d} {side} bounds, one for each input, got "
                f"{values.size}{missing}."
            )
    return Domain(lower, upper, tuple(names))


def _from_mapping(spec: Mapping[Any, Any], names: Sequence[str]) -> Domain:
    unknown = [str(key) for key in spec if str(key) not in names]
    if unknown:
        raise ValueError(
            f"Expected bounds by input name, got unknown input {unknown[0]}. "
            f"The inputs are {', '.join(names)}."
        )
    given = {str(key): pair for key, pair in spec.items()}
    missing = [name for name in names if name not in given]
    if missing:
        raise ValueError(
            f"Expected bounds for every input, got none for {', '.join(missing)}. "
            f'Add {{"{missing[0]}": (low, high)}}.'
        )
    return _from_pairs([given[name] for name in names], names)


def _from_pairs(spec: Any, names: Sequence[str]) -> Domain:
    try:
        pairs = list(spec)
    except TypeError as error:
        raise TypeError(
            "Expected a domain as a list of (low, high) pairs, a dict by name, a tuple "
            f"(lower, upper) of arrays or training data, got {type(spec).__name__}."
        ) from error
    if len(pairs) != len(names):
        missing = ", ".join(names[len(pairs) :])
        missing = f" (none for {missing})" if missing else ""
        raise ValueError(
            f"Expected {len(names)} (low, high) pairs, one for each input, got "
            f"{len(pairs)}{missing}."
        )
    for name, pair in zip(names, pairs, strict=True):
        if np.shape(pair) != (2,) or None in list(pair):
            raise ValueError(
                f"Expected a pair (low, high), got {pair!r:.60} at input {name}."
            )
    low, high = frozen([p[0] for p in pairs]), frozen([p[1] for p in pairs])
    return Domain(low, high, tuple(names))


def _from_frame(frame: Any, ensemble: Ensemble) -> Domain:
    d, names = ensemble.num_inputs, ensemble.input_names
    columns = [str(column) for column in frame.columns]
    if set(names) <= set(columns):
        order = [columns.index(name) for name in names]
        return Domain.from_data(frame.iloc[:, order], names)
    if len(columns) != d:
        raise ValueError(
            f"Expected a table with {d} columns, one for each input, got "
            f"{len(columns)}: {', '.join(columns)}. Drop the target column."
        )
    return Domain.from_data(frame)
