"""What a page tells in words and tables: plain data for the templates."""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np

from ennopt.domain import Domain
from ennopt.log import as_time
from ennopt.network import Array, shown
from ennopt.pages.charts import compact
from ennopt.pages.coordinates import Coordinate, coordinates
from ennopt.problem import Problem, Term
from ennopt.result import ENDINGS, LARGEST_SHOWN_GAP, Result, Status

AT_END = 1e-6
"""An input is at an end of its range within this share of it."""

SMALLEST_PERCENT = 1e-4
"""Smaller shares are not told in digits."""

FINGERPRINT = 12
"""Characters that identify a model or a table."""


class Verdict(NamedTuple):
    """What was found and what was proved, for a person.

    `kind` is ``"proved"``, ``"open"`` (a value, but a gap is left), ``"empty"`` (no
    point is allowed) or ``"none"`` (no point was found).
    """

    kind: str
    badge: str
    title: str
    number: str
    words: str


def is_prediction(result: Result) -> bool:
    """Whether the value is a prediction, not something made of predictions."""
    return result.asked is None or result.asked.problem.is_prediction


def objective(result: Result) -> str:
    """What the value is: a prediction, or what the user called it."""
    if name := result.details.get("objective"):
        return shown(str(name))
    return "prediction" if is_prediction(result) else "objective"


def predicted(result: Result) -> float:
    """What the model predicts at the answer, whatever is optimized."""
    if result.asked is None or is_prediction(result) or result.x is None:
        return result.value
    problem = result.asked.problem
    main = Term(problem.ensemble, output=problem.output)
    return float(main.values(result.x[None])[0])


def verdict(result: Result) -> Verdict:
    """The first thing on the page."""
    largest, limit = {
        "max": ("Largest", "exceed"), "min": ("Smallest", "fall below"),
    }[result.sense]  # fmt: skip
    largest += f" {objective(result)}"
    if result.status is Status.INFEASIBLE and "unreached" in result.details:
        missed = "; ".join(shown(str(text)) for text in result.details["unreached"])
        return Verdict(
            "empty", "Out of reach", "No input meets the limits", "",
            "There are inputs that satisfy every bound and constraint, but none of "
            f"them meets {missed}: that is proved.",
        )  # fmt: skip
    if result.status is Status.INFEASIBLE:
        what = "bound and constraint"
        if "limited" in result.details:
            what = "bound, constraint and limit"
        return Verdict(
            "empty", "Nothing is allowed", "No input satisfies everything", "",
            f"No input satisfies every {what} at once: that is proved.",
        )  # fmt: skip
    proof = "Nothing is proved about how good another input can be."
    if math.isfinite(result.bound):
        bound = compact(result.bound, 8)
        proof = f"No allowed input can {limit} {bound}: that is proved."
    if result.x is None:
        return Verdict(
            "none", "No input found", "The run ended before it found an input", "",
            f"{_ending(result)} {proof}",
        )  # fmt: skip
    number = compact(result.value, 8)
    if result.proved:
        words = (
            f"{proof} The recipe below reaches {number}, so nothing better is left to "
            f"find beyond {left(result)}."
        )
        return Verdict("proved", "Proved optimal", largest, number, words)
    words = f"{_ending(result)} {proof}"
    if math.isfinite(result.bound):
        words += f" So a better recipe may exist, but it gains at most {left(result)}."
    return Verdict("open", "Not proved optimal", "Best found so far", number, words)


def _ending(result: Result) -> str:
    if result.status is Status.PRECISION_LIMIT:
        return "Nothing is left to search; rounding leaves the gap."
    return f"The run {_was(ENDINGS[result.status])}."


def _was(ending: str) -> str:
    return f"was {ending}" if ending == "interrupted" else ending


def left(result: Result) -> str:
    """How far value and bound are apart."""
    distance = f"{abs(result.bound - result.value):.2g}"
    if result.gap > LARGEST_SHOWN_GAP:
        return distance
    return f"{distance} ({percent(result.gap)} of the value)"


def percent(share: float) -> str:
    """A share in percent.

    Examples
    --------
    >>> percent(0.5), percent(0.00012345), percent(12.0), percent(1e-12)
    ('50%', '0.012%', '1200%', 'under 0.0001%')
    """
    number = 100 * share
    if 0.0 < number < SMALLEST_PERCENT:
        return f"under {SMALLEST_PERCENT:g}%"
    return f"{number:.0f}%" if number >= 100 else f"{number:.2g}%"


def tiles(result: Result) -> list[dict[str, str]]:
    """The numbers that matter, each with what it is."""
    if result.x is None:
        return []
    limit = {"max": "exceed", "min": "fall below"}[result.sense]
    found = [{
        "name": "Value found", "number": compact(result.value, 7),
        "words": f"{objective(result)} at the recipe"
        if "objective" in result.details
        else "what the model predicts for the recipe" if is_prediction(result)
        else "what was optimized, at the recipe",
    }]  # fmt: skip
    if result.probability is not None:
        found[0]["words"] = f"{result.details['meaning']}"
        found.append({
            "name": "Probability", "number": compact(result.probability, 5),
            "words": f"none can {limit} {compact(result.probability_bound or 0.0, 5)}",
        })  # fmt: skip
    bounded = math.isfinite(result.bound)
    found.append({
        "name": "Bound proved", "number": compact(result.bound, 7),
        "words": f"no allowed input can {limit} it" if bounded else "none was proved",
    })  # fmt: skip
    if bounded:
        asked = result.asked_gap
        words = "how far the bound is from the value"
        if asked is not None:
            words += f"; {percent(asked)} was asked for"
        near_zero = result.gap > LARGEST_SHOWN_GAP
        number = f"{abs(result.bound - result.value):.2g}"
        number = number if near_zero else percent(result.gap)
        found.append({"name": "Gap", "number": number, "words": words})
    members = result.member_values
    if members.size > 1:
        found.append({
            "name": "Members disagree by", "number": compact(result.member_std, 3),
            "words": f"standard deviation of {members.size} {_whose(result)}, "
            f"{compact(members.min())} to {compact(members.max())}",
        })  # fmt: skip
    return found


def _whose(result: Result) -> str:
    """Whose predictions are told, if there are several that it could be."""
    name = result.details.get("members_of")
    return f"predictions of {shown(str(name))}" if name else "predictions"


def recipe(result: Result) -> list[dict[str, Any]]:
    """The answer, input by input, with its place in the range that was allowed."""
    if result.x is None:
        return []
    told = {name: _as_told(at) for name, at in (result.inputs or {}).items()}
    if result.asked is None:
        return [{"name": shown(name), "at": at} for name, at in told.items()]
    domain, narrowed_by = _narrowed(result.asked.problem.domain, result.x)
    rows = []
    for coordinate in coordinates(result.asked.problem):
        row: dict[str, Any] = {
            "name": shown(coordinate.name), "at": told.get(coordinate.name, "")
        }  # fmt: skip
        if coordinate.is_number:
            row |= _in_range(coordinate, coordinate.range(domain), result.x)
            j = coordinate.inputs[0]
            if "kind" in row:
                pass  # fixed, and that says all
            elif domain.values.whole[j]:
                row["kind"] = "whole number"
            elif domain.values.lists[j] is not None:
                row["kind"] = "from a list"
        else:
            count = len(coordinate.choices(domain, 0))
            row["kind"] = "fixed" if count == 1 else f"one of {count}"
        by = [text for j in coordinate.inputs for text in narrowed_by.get(j, ())]
        if by:
            row["by"] = by
        rows.append(row)
    return rows


def _narrowed(domain: Domain, x: Array) -> tuple[Domain, dict[int, list[str]]]:
    """The ranges that constraints on one input alone leave, and these constraints.

    The answer is in them, however it was rounded.
    """
    rows = domain.rows
    lower, upper = domain.lower.copy(), domain.upper.copy()
    by: dict[int, list[str]] = {}
    for slopes, least, most, text in zip(
        rows.matrix, rows.least, rows.most, rows.texts, strict=True
    ):
        (used,) = np.nonzero(slopes)
        if used.size != 1:
            continue
        j = int(used[0])
        low, high = sorted((least / slopes[j], most / slopes[j]))
        if low > lower[j] or high < upper[j]:
            by.setdefault(j, []).append(shown(" ".join(text.split())))
        lower[j], upper[j] = max(lower[j], low), min(upper[j], high)
    lower, upper = np.minimum(lower, x), np.maximum(upper, x)
    return Domain(lower, upper, domain.names, values=domain.values), by


def _as_told(at: Any) -> str:
    return compact(at, 7) if isinstance(at, float) else shown(str(at))


def _in_range(
    coordinate: Coordinate, ends: tuple[float, float], x: Array
) -> dict[str, Any]:
    low, high = ends
    if low == high:
        return {"kind": "fixed", "low": "", "high": ""}
    at = float(coordinate.told(x[None])[0])
    share = min(1.0, max(0.0, (at - low) / (high - low)))
    place = ""
    if share <= AT_END:
        place = "at the lower end"
    elif share >= 1 - AT_END:
        place = "at the upper end"
    return {
        "low": compact(low), "high": compact(high), "share": round(100 * share, 2),
        "place": place,
    }  # fmt: skip


def warnings(result: Result) -> dict[str, Any] | None:
    """Why the prediction may be wrong, and what to do; ``None`` if nothing is known."""
    away = result.extrapolation
    if away is None or not away.warnings:
        return None
    return {
        "sentences": [sentence(words) for words in away.warnings],
        "keyword": away.keyword,
        "trusted": away.trusted,
        "ends": len(away.at_bounds),
        "free": away.num_free,
    }


def sentence(words: str) -> str:
    """Words that begin large and end with a point."""
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def nearest_rows(result: Result) -> dict[str, Any] | None:
    """The answer beside the rows of data that are nearest to it."""
    asked, away = result.asked, result.extrapolation
    if asked is None or asked.data is None or away is None or result.x is None:
        return None
    data, found = asked.data, coordinates(asked.problem)
    points = np.concatenate([result.x[None], data.rows[list(away.nearest)]])
    spread = data.spread
    rows = []
    for coordinate in found:
        at = coordinate.told(points)
        cells: list[dict[str, Any]] = []
        for k, number in enumerate(at.tolist()):
            if coordinate.levels is not None:
                text = shown(str(coordinate.levels[int(number)]))
                far = k > 0 and number != at[0]
            else:
                text, j = compact(number, 5), coordinate.inputs[0]
                apart = abs(points[k, j] - points[0, j])
                far = k > 0 and spread[j] > 0 and apart > spread[j]
            cells.append({"text": text, "far": bool(far)})
        rows.append({"name": shown(coordinate.name), "cells": cells})
    measured = None
    if data.target is not None:
        measured = [compact(at, 5) for at in data.target[list(away.nearest)].tolist()]
    return {
        "rows": rows,
        "numbers": away.nearest,
        "distances": [compact(at, 3) for at in away.distances],
        "predicted": compact(predicted(result), 5),
        "measured": measured,
    }


def held_by(result: Result) -> dict[str, Any]:
    """What keeps the answer from being better: constraints and ends of ranges."""
    ends = [
        f"{row['name']} {row['place']} of its range, {row['at']}"
        for row in recipe(result)
        if row.get("place")
    ]
    constraints = [
        {
            "text": shown(" ".join(met.text.split())), "value": compact(met.value, 6),
            "words": met.words, "active": met.side is not None,
        }
        for met in sorted(result.constraints, key=lambda met: met.side is None)
    ]  # fmt: skip
    return {"ends": ends, "constraints": constraints}


def phases(result: Result) -> list[dict[str, Any]]:
    """How long each phase took, in the order in which they began."""
    total = result.seconds.get("total", 0.0)
    parts = {name: at for name, at in result.seconds.items() if name != "total"}
    rest = total - math.fsum(parts.values())
    if rest > 0.005 * total:
        parts["other"] = rest
    return [
        {
            "name": name.replace("_", " "), "seconds": seconds_in_words(at),
            "share": round(100 * at / total, 2) if total > 0 else 0.0,
        }
        for name, at in parts.items()
    ]  # fmt: skip


def seconds_in_words(seconds: float) -> str:
    """A duration.

    Examples
    --------
    >>> seconds_in_words(0.00213), seconds_in_words(0.294), seconds_in_words(7500)
    ('2.1 ms', '290 ms', '2 h 05 min')
    """
    if seconds < 1:
        return f"{float(f'{1000 * seconds:.2g}'):g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return as_time(seconds)


def facts(result: Result) -> list[tuple[str, str]]:
    """What a person needs to trust that two runs are the same."""
    found = [("method", result.method)]
    if "auto" in result.details:
        found.append(("chosen because", str(result.details["auto"])))
    asked = result.asked
    if asked is not None:
        found.append(("model", repr(asked.problem.ensemble)))
        found.append(("model fingerprint", fingerprint(asked.problem)))
        if asked.data is not None:
            rows = asked.data.rows
            found.append(("data", f"{len(rows):,} rows, fingerprint {digest(rows)}"))
    if result.original is not None:
        found.append((
            "original model",
            f"predicts {compact(result.original, 8)} at the recipe, "
            f"{result.deviation:.1g} from ours",
        ))  # fmt: skip
    versions = ", ".join(f"{name} {at}" for name, at in result.versions.items())
    found.append(("versions", versions))
    return [(name, shown(text)) for name, text in found]


def digest(*arrays: Array) -> str:
    """A short text that differs as soon as a number does."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(str(array.shape).encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:FINGERPRINT]


def fingerprint(problem: Problem) -> str:
    """Of the weights of a model."""
    ensemble = problem.ensemble
    arrays = [
        array
        for member in ensemble.members
        for pair in member.layers()
        for array in pair
    ]
    return digest(ensemble.weights, *arrays)
