"""The lines that ask the same again: a command, or Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ennopt.domain import Domain
from ennopt.domain.constraints import constrained
from ennopt.domain.statements import names_in
from ennopt.pages.coordinates import Coordinate, coordinates
from ennopt.problem import Limit, Problem
from ennopt.result import Asked
from ennopt.risk import Risk
from ennopt.targets import Odds


def repeat(asked: Asked, sense: str) -> str:
    """A command, or a call from Python that has `model`, and with data `X` and `y`."""
    if asked.command is not None:
        return asked.command
    problem = asked.problem
    verb = "maximize" if sense == "max" else "minimize"
    first = "model," if problem.is_prediction else "goal,  # the expression given"
    lines = [first, *_inputs(problem), *_constraints(problem.domain)]
    lines += [*_categories(problem), *_decision(problem), *_settings(asked)]
    return "\n".join([f"ennopt.{verb}(", *(f"    {text}" for text in lines), ")"])


def _inputs(problem: Problem) -> list[str]:
    """Bounds, values, whole numbers and fixed levels."""
    domain = problem.domain
    bounds: list[str] = []
    fixed: dict[str, Any] = {}
    whole: list[str] = []
    others: list[str] = []
    recorded = {column.name for column in problem.ensemble.columns or ()}
    for coordinate in coordinates(problem):
        if coordinate.is_number:
            bounds.append(f"    {coordinate.name!r}: {_range(coordinate, domain)},")
            if domain.values.whole[coordinate.inputs[0]]:
                whole += [coordinate.name] * (coordinate.name not in recorded)
            continue
        codes, levels = coordinate.codes, coordinate.levels
        assert codes is not None
        assert levels is not None
        allowed = coordinate.choices(domain, 0)
        if len(allowed) == 1:
            place = int(np.abs(codes - allowed[0]).sum(axis=1).argmin())
            fixed[coordinate.name] = levels[place]
        elif len(allowed) < len(levels):
            others.append(f"# {coordinate.name}: {len(allowed)} of its levels only")
    lines = ["{", *bounds, "},", *others]
    if fixed:
        lines.append(f"fixed={fixed!r},")
    return [*lines, f"integers={whole!r},"] if whole else lines


def _range(coordinate: Coordinate, domain: Domain) -> str:
    low, high = coordinate.range(domain)
    listed = domain.values.lists[coordinate.inputs[0]]
    if low == high:
        return repr(low)
    if listed is not None and coordinate.change is None:
        return repr(set(listed[(listed >= low) & (listed <= high)].tolist()))
    return f"({low!r}, {high!r})"


def _constraints(domain: Domain) -> list[str]:
    """Each constraint as its text, or in numbers if the text alone says too little."""
    rows, lines = domain.rows, []
    box = Domain(domain.lower, domain.upper, domain.names)
    for text, slopes, least, most in zip(
        rows.texts, rows.matrix, rows.least.tolist(), rows.most.tolist(), strict=True
    ):
        try:
            read = constrained(box, text).rows
            same = (
                np.array_equal(read.matrix, slopes[None])
                and read.least.tolist() == [least]
                and read.most.tolist() == [most]
            )
        except ValueError:
            same = False
        sides = ", ".join(_number(side) for side in (least, most))
        numbers = f"([{slopes.tolist()!r}], {sides})"
        lines.append(f"    {text!r}," if same else f"    {numbers},")
    return ["constraints=[", *lines, "],"] if lines else []


def _number(number: float) -> str:
    return repr(number) if math.isfinite(number) else f"float('{number}')"


def _categories(problem: Problem) -> list[str]:
    """Categories that the model does not record."""
    domain = problem.domain
    recorded = {column.inputs for column in problem.ensemble.columns or ()}
    lines = []
    for group in domain.groups:
        if group.inputs in recorded:
            continue
        names = (domain.names[j] for j in group.inputs)
        levels: dict[Any, Any] = dict(zip(group.levels, names, strict=True))
        if group.base is not None:
            levels[group.base] = None
        lines.append(f"    {group.name!r}: {levels!r},")
    return ["categories={", *lines, "},"] if lines else []


def _decision(problem: Problem) -> list[str]:
    """The risk of a prediction, and limits, if their texts say it all."""
    lines = []
    risk = problem.goal.terms[0].risk if problem.is_prediction else None
    if risk is not None:
        lines.append(f"risk=ennopt.{risk!r},")
    if problem.limits:
        texts = dict.fromkeys(limit.text for limit in problem.limits)
        if all(_is_own(limit, problem, risk) for limit in problem.limits):
            lines.append(f"limits={list(texts)!r},")
        else:
            lines.append(f"limits=[...],  # {'; '.join(texts)}")
    return lines


def _is_own(limit: Limit, problem: Problem, risk: Risk | None) -> bool:
    """Whether the text of a limit says it all: it is on what is optimized."""
    terms = limit.function.terms
    return (
        problem.is_prediction
        and len(terms) == 1
        and terms[0].ensemble is problem.goal.terms[0].ensemble
        and terms[0].risk == risk
        and np.array_equal(terms[0].output, problem.goal.terms[0].output)  # type: ignore[arg-type]
        and "prediction" in names_in(limit.text)
        and "(" not in limit.text
    )


def _written(trust: Any) -> str:
    """A trust region, or several, as Python has them."""
    if isinstance(trust, list | tuple):
        return f"[{', '.join(map(_written, trust))}]"
    return repr(trust) if isinstance(trust, str) else f"ennopt.{trust!r}"


def _settings(asked: Asked) -> list[str]:
    """Data, output, method, limits and seed."""
    problem, limits, lines = asked.problem, asked.limits, []
    if problem.domain.regions or problem.domain.convex:
        known = asked.trust is not None
        words = "...,  # the region around the data that was given"
        lines.append(f"trust={_written(asked.trust)}," if known else f"trust={words}")
    if asked.data is not None:
        target = ", target=y" if asked.data.target is not None else ""
        lines.append(f"data=X{target},  # {len(asked.data.rows)} rows")
    if isinstance(problem.ensemble.target, Odds):
        lines.append(f"output={problem.ensemble.target.name!r},")
    elif problem.output is not None:
        lines.append(f"output={np.asarray(problem.output).tolist()!r},")
    if not asked.method.startswith("Auto("):
        lines.append(f"method=ennopt.{asked.method},")
    if math.isfinite(limits.seconds):
        lines.append(f"time_limit={limits.seconds!r},")
    if math.isfinite(limits.nodes):
        lines.append(f"node_limit={limits.nodes!r},")
    gap, seed, threads = limits.gap, asked.seed, asked.threads
    return [*lines, f"gap={gap!r}, seed={seed!r}, threads={threads!r},"]
