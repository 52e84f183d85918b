"""Solve a model that lacks rows: cuts inside the tree, or rounds of solves.

The rows of some conditions are too many to be stated: a risk with standard deviations
is the least of infinitely many weighted sums, an ellipsoid the common part of many
half-spaces. A model that has some of them has too many points, so its bound is
valid; `Formulation.cuts` gives those that a solution violates. A solver that takes
required inequalities gets them while it works. Another solves again and again, with the
cuts of its last solution added, until its solution obeys them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ennopt import clock
from ennopt.milp.highs import Highs
from ennopt.milp.model import Inequality, LinearModel
from ennopt.milp.scaling import ScaledModel
from ennopt.milp.solver import (
    TIGHT_TOLERANCE,
    Backend,
    MilpProgress,
    MilpResult,
    MilpStatus,
    Separation,
    SolveHooks,
    SolveOptions,
)
from ennopt.network import Array

OBEYED = 2e-7
"""Violation of a cut, in units of order one, that counts as none: about what HiGHS
allows itself."""

ROUGH = 1e-4
"""Smallest violation of a cut that is added before whole numbers are asked for."""

INSIDE_SECONDS = 1.0
"""Most time of the linear program that moves a solution to where limits hold."""

SOLVE_ROUNDS = 40
"""Most rounds of solves. Few need ten; a box that is not closed then is halved."""


def solve_refined(
    solver: Backend,
    scaled: ScaledModel,
    model: LinearModel,
    options: SolveOptions,
    hooks: SolveHooks,
    learned: Callable[[Array], object] = lambda x: None,
) -> MilpResult:
    """Maximize the model of `scaled`, perhaps with more rows, and those that it lacks.

    Parameters
    ----------
    solver
        The backend.
    scaled, model
        What to solve.
    options, hooks
        As for `Backend.solve`.
    learned
        Told points, in the problem's units, at which a model should be sharp.
    """
    made = scaled.formulation
    if not made.lacks_rows:
        return solver.solve(model, options, hooks)

    def note(columns: Array) -> None:
        learned(columns[made.inputs] * scaled.units.inputs + scaled.origin.shift)

    if not solver.capabilities.lazy_constraints:
        return _in_rounds(solver, scaled, model, options, hooks, note)

    def source(point: Array, integral: bool) -> list[Inequality]:
        if integral:
            note(point)
        return made.cuts(point)

    required = Separation(source, at_integral=True, required=True, violation=OBEYED)
    hooks = replace(hooks, separations=(*hooks.separations, required))
    return solver.solve(model, options, hooks)


def met_inside(scaled: ScaledModel, model: LinearModel, columns: Array) -> Array | None:
    """The best point with the signs of a solution that surely meets all limits.

    Solvers meet limits up to their tolerances; this point meets them by more. In the
    problem's units, (num_inputs,), or ``None`` if those signs have no such point.
    """
    inside = scaled.formulation.inside(model, columns)
    options = SolveOptions(time_limit=INSIDE_SECONDS, tolerance=TIGHT_TOLERANCE)
    found = solve_refined(Highs(), scaled, inside, options, SolveHooks())
    return None if found.x is None else scaled.point(found.x)


def _in_rounds(
    solver: Backend,
    scaled: ScaledModel,
    model: LinearModel,
    options: SolveOptions,
    hooks: SolveHooks,
    note: Callable[[Array], object],
) -> MilpResult:
    """Solve, add the cuts of the solution, and again."""
    begin, nodes, made = clock.now(), 0, scaled.formulation
    bound = np.inf

    def left() -> float:
        return options.time_limit - (clock.now() - begin)

    def told(moment: MilpProgress) -> object:
        assert hooks.progress is not None
        return hooks.progress(
            replace(moment, nodes=nodes + moment.nodes, bound=min(moment.bound, bound))
        )

    own = replace(hooks, progress=None if hooks.progress is None else told)
    for _ in range(SOLVE_ROUNDS):  # linear programs are cheap: most cuts come from them
        relaxed = Highs().solve(model.relaxed(), SolveOptions(time_limit=left()))
        cuts = _violated(scaled, relaxed, ROUGH)
        model = model.with_inequalities(cuts)
        if not cuts:
            break
    found = MilpResult(MilpStatus.TIME_LIMIT)
    for _ in range(SOLVE_ROUNDS):
        limits = replace(
            options, time_limit=left(), node_limit=options.node_limit - nodes
        )
        found = solver.solve(model, limits, own)
        nodes += found.nodes
        if found.status.has_bound:
            bound = min(bound, found.bound)
            found = replace(found, bound=bound)
        if found.x is not None:
            note(found.x)
        cuts = _violated(scaled, found, OBEYED)
        out_of_nodes = nodes >= options.node_limit
        if found.status is not MilpStatus.OPTIMAL or not cuts or out_of_nodes:
            break
        at = made.assignment(made.point(np.asarray(found.x)))
        value = model.value(at)
        slack = max(options.absolute_gap, options.gap * abs(value))
        if found.bound - value <= slack and model.violation(at) <= OBEYED:
            break  # the point that it stands for is as good, and obeys all cuts
        model = model.with_inequalities(cuts)
    return replace(found, nodes=nodes, seconds=clock.now() - begin)


def _violated(
    scaled: ScaledModel, found: MilpResult, violation: float
) -> list[Inequality]:
    """Cuts that a solution violates by more than a tolerance."""
    if found.x is None:
        return []
    cuts = scaled.formulation.cuts(found.x)
    return [cut for cut in cuts if cut.violation(found.x) > violation]
