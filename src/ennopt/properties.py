"""Does a network have a property? Holds, violated by an input, or unknown.

A property lists cases (`ennopt.convert.vnnlib`); it is violated if an input satisfies
all constraints of one of them. For a case with one constraint on the outputs the search
maximizes how well it is met, and stops when the sign of the maximum is known. A case
with several is excluded on a box when one of them cannot be met there; where none can
be excluded, the box is halved.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ennopt import clock
from ennopt.api import solve
from ennopt.convert import load_with_original
from ennopt.convert.verify import Loaded
from ennopt.convert.vnnlib import Property
from ennopt.domain import Domain
from ennopt.network import Array
from ennopt.problem import Problem

HOLDS, VIOLATED, UNKNOWN = "holds", "violated", "unknown"

BOX_NODES = 200
"""Nodes spent on one constraint of a box before the box is halved."""


@dataclass(frozen=True, slots=True, eq=False)
class PropertyResult:
    """What is known of a property.

    Parameters
    ----------
    verdict
        ``"holds"``: no input satisfies a case, proved. ``"violated"``: `x` does.
        ``"unknown"``: neither is known.
    x, y
        The counterexample and the outputs there, if there is one.
    replayed
        Who computed `y`: the original model in its own arithmetic, or our forward pass.
    reason
        Why it is unknown.
    """

    verdict: str
    x: Array | None = None
    y: Array | None = None
    replayed: str = ""
    reason: str = ""


def check_property(
    model: Any, stated: str | Path | Property, time_limit: float | None = None
) -> PropertyResult:
    """Decide whether a model has a property.

    Parameters
    ----------
    model
        Anything `ennopt.load` takes, usually an ONNX file.
    stated
        A VNN-LIB file, or what was read from one.
    time_limit
        Wall-clock seconds for all cases together.

    Examples
    --------
    >>> from ennopt import Network
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> text = '''(declare-const X_0 Real) (declare-const Y_0 Real)
    ... (assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= Y_0 {}))'''
    >>> check_property(absolute, Property.of(text.format(1.5))).verdict
    'holds'
    >>> check_property(absolute, Property.of(text.format(0.5))).verdict
    'violated'
    """
    end = clock.now() + (np.inf if time_limit is None else time_limit)
    wanted = stated if isinstance(stated, Property) else Property.read(stated)
    loaded = load_with_original(model)
    ensemble = loaded.ensemble
    for what in ("num_inputs", "num_outputs"):
        if getattr(ensemble, what) != getattr(wanted, what):
            raise ValueError(
                f"Expected {what} {getattr(ensemble, what)} as the model has, got "
                f"{getattr(wanted, what)} in the property."
            )
    reasons = []
    for number, case in enumerate(wanted.cases):
        domain = None if case.contradicts else case.domain(wanted.num_inputs)
        if domain is None:
            continue
        found = _case(loaded, domain, *case.outputs(wanted.num_outputs), end)
        if found.verdict == VIOLATED:
            return found
        if found.verdict == UNKNOWN:
            reasons.append(f"case {number}: {found.reason}")
    if reasons:
        return PropertyResult(UNKNOWN, reason=reasons[0])
    return PropertyResult(HOLDS)


def _case(
    loaded: Loaded, domain: Domain, matrix: Array, sides: Array, end: float
) -> PropertyResult:
    """Whether a point of `domain` satisfies ``matrix @ y <= sides``."""
    tried = _Replay(loaded, domain, matrix, sides)
    if not len(sides):  # a point of the set is all that is asked for
        matrix, sides = np.zeros((1, loaded.ensemble.num_outputs)), np.zeros(1)
    counter = itertools.count()
    waiting: list[tuple[float, int, Domain]] = [(-np.inf, next(counter), domain)]
    while waiting:
        if clock.now() >= end:
            return PropertyResult(UNKNOWN, reason="the time limit was reached")
        _, _, box = heapq.heappop(waiting)
        worst = np.inf
        nodes = None if len(sides) == 1 else BOX_NODES
        for row, side in zip(matrix, sides, strict=True):
            problem = Problem(loaded.ensemble, box, "min", row)
            left = end - clock.now()
            if left <= 0:
                worst = np.inf
                break
            answer = solve(
                problem, time_limit=None if np.isinf(left) else left, gap=1e-6,
                node_limit=nodes, threshold=float(side),
            )  # fmt: skip
            if answer.bound > side:
                worst = -np.inf
                break
            if answer.x is not None:
                witness = tried.at(answer.x)
                if witness is not None:
                    return witness
            worst = min(worst, side - answer.bound)
        if worst == -np.inf:
            continue
        if len(sides) == 1:
            again = _best(loaded, box, matrix[0], end)
            witness = None if again is None else tried.at(again)
            if witness is not None:
                return witness
            reason = tried.reason or "the time limit was reached"
            return PropertyResult(UNKNOWN, reason=reason)
        widths = box.widths / np.where(domain.widths > 0.0, domain.widths, 1.0)
        j = int(np.argmax(widths))
        middle = float(0.5 * (box.lower[j] + box.upper[j]))
        if not box.lower[j] < middle < box.upper[j]:
            return PropertyResult(UNKNOWN, reason="a box cannot be halved any more")
        upper, lower = box.upper.copy(), box.lower.copy()
        upper[j] = lower[j] = middle
        for part in (box.within(box.lower, upper), box.within(lower, box.upper)):
            heapq.heappush(waiting, (-worst, next(counter), part))
    return PropertyResult(HOLDS)


def _best(loaded: Loaded, box: Domain, row: Array, end: float) -> Array | None:
    """The point that satisfies a constraint best: its margin may survive float32."""
    left = end - clock.now()
    if left <= 0:
        return None
    limit = None if np.isinf(left) else left
    return solve(Problem(loaded.ensemble, box, "min", row), time_limit=limit).x


@dataclass(slots=True, eq=False)
class _Replay:
    """Tries points on the model itself."""

    loaded: Loaded
    domain: Domain
    matrix: Array
    sides: Array
    reason: str = ""

    def at(self, x: Array) -> PropertyResult | None:
        """The counterexample at a point, if it is one for the model itself."""
        original = self.loaded.original
        if original is not None and original.precision == "float32":
            x = _in_single(x, self.domain)
        if not self.domain.contains(x):
            self.reason = "a point leaves the set when it is rounded to float32"
            return None
        y, who = self.loaded.ensemble(x), "our forward pass in float64"
        if not np.all(self.matrix @ y <= self.sides):
            return None
        if original is not None:
            y = np.asarray(original.predict(x[None]), dtype=np.float64).reshape(y.shape)
            who = f"the model itself in {original.precision}"
        if not np.all(self.matrix @ y <= self.sides):
            self.reason = (
                "an input was found, but it is no counterexample in the arithmetic of "
                "the model itself"
            )
            return None
        return PropertyResult(VIOLATED, x, y, who)


def _in_single(x: Array, domain: Domain) -> Array:
    """A point of float32 numbers next to `x`, within the bounds if there is one."""
    single = x.astype(np.float32)
    low = np.where(
        single < domain.lower, np.nextafter(single, np.float32(np.inf)), single
    )
    return np.where(
        low > domain.upper, np.nextafter(low, np.float32(-np.inf)), low
    ).astype(np.float64)
