"""Lines above neurons that lower the bound of a search on neurons at its root."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical
from ennopt.engine.compiled import kernel
from ennopt.engine.lines_above import LineAbove, separated
from ennopt.engine.pool import fixed_rows
from ennopt.engine.schemes import compiled_signs

LINE_ROUNDS = 2
"""How often lines are sought that a program's point is above."""

WORTH = 0.02
"""Share of the distance from bound to value by which all lines must lower the bound."""


def lines_at_root(
    problem: Canonical, bounds: NeuronBounds, value: float,
    instruction_set: str, stop: Callable[[], bool],
) -> tuple[LineAbove, ...]:  # fmt: skip
    """Lines that are tight where the root's program ends, if they are worth it.

    Parameters
    ----------
    problem, bounds
        What is searched. Sums over a box and linear constraints only: elsewhere there
        are none.
    value
        The best value known.
    instruction_set
        ``""`` for the best of this machine.
    stop
        Whether to give up.
    """
    domain, module = problem.domain, kernel()
    others = domain.values.discrete.any() or domain.regions or domain.convex
    if module is None or not problem.is_sum or others:
        return ()
    lines: tuple[LineAbove, ...] = ()
    node, first = np.zeros(0), math.inf
    for rounds in range(LINE_ROUNDS + 1):
        signs = compiled_signs(problem, bounds, instruction_set, lines)
        while True:  # a program that pauses has a negative flag
            node, x, y, multipliers = module.sign_solution(signs, node, -math.inf)
            if node[1] >= 0.0 or stop():
                break
        first = min(first, float(node[0])) if rounds == 0 else first
        more = separated(problem, bounds, x, y) if rounds < LINE_ROUNDS else ()
        if not more or stop():
            break
        lines += more
    if not first - node[0] >= WORTH * (first - value):
        return ()
    tight = multipliers[problem.num_neurons + len(fixed_rows(problem)) :] > 0.0
    return tuple(line for line, kept in zip(lines, tight, strict=True) if kept)
