"""HiGHS: every linear program, hot-started, and MILPs that need no licence.

HiGHS has no user cuts, no lazy constraints and no look at its node LPs; it takes an
initial solution, can be interrupted, and its dual bound at a limit is valid.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from ennopt import clock
from ennopt.milp.model import LinearModel
from ennopt.milp.solver import (
    PROGRESS_SECONDS,
    TIGHT_TOLERANCE,
    Capabilities,
    MilpProgress,
    MilpResult,
    MilpStatus,
    SolveHooks,
    SolveOptions,
    demand,
)
from ennopt.milp.watch import watched
from ennopt.network import Array

STATUSES = {
    "kOptimal": MilpStatus.OPTIMAL,
    "kModelEmpty": MilpStatus.OPTIMAL,
    "kInfeasible": MilpStatus.INFEASIBLE,
    "kUnbounded": MilpStatus.UNBOUNDED,
    "kTimeLimit": MilpStatus.TIME_LIMIT,
    "kSolutionLimit": MilpStatus.NODE_LIMIT,
    "kIterationLimit": MilpStatus.NODE_LIMIT,
    "kInterrupt": MilpStatus.INTERRUPTED,
    "kHighsInterrupt": MilpStatus.INTERRUPTED,
}
"""Every other word of HiGHS is a failure."""


SMALLEST_MIP_TOLERANCE = 1e-7
"""With 1e-9, HiGHS 1.15 was seen to lose the optimum of MILPs of 16 columns."""


@dataclass(frozen=True, slots=True)
class Highs:
    """The HiGHS backend.

    Examples
    --------
    >>> model = LinearModel.of([0, 0], [3, 3], [2, 1], [[1, 1]], upper_rows=[3.5],
    ...                        integer=[1, 1])
    >>> Highs().solve(model).value
    6.0
    """

    name = "highs"
    package = "highspy"
    capabilities = Capabilities(hot_start=True, user_solutions=True, margin=1e-6)

    def solve(
        self,
        model: LinearModel,
        options: SolveOptions = SolveOptions(),  # noqa: B008 - frozen
        hooks: SolveHooks = SolveHooks(),  # noqa: B008 - frozen
    ) -> MilpResult:
        """Maximize the model."""
        demand(self, model, options, hooks)
        if options.time_limit <= 0:
            return MilpResult(MilpStatus.TIME_LIMIT)
        begin = clock.now()
        solver = _loaded(model)
        _configure(solver, options)
        if hooks.start is not None:
            import highspy

            solution = highspy.HighsSolution()
            solution.col_value = hooks.start
            solver.setSolution(solution)
        stopped, halted = threading.Event(), threading.Event()
        errors: list[Exception] = []
        _listen(solver, hooks, stopped, halted, errors)

        def run() -> None:
            solver.run()
            if solver.getModelStatus().name == "kUnboundedOrInfeasible":
                solver.setOptionValue("presolve", "off")
                solver.run()

        interrupted = watched(run, halted.set, options.time_limit)
        if errors:
            raise errors[0]
        stop = interrupted or stopped.is_set()
        return _result(model, solver, options, begin, stop).heard(interrupted)


class HotLp:
    """One linear program whose objective changes, solved from the last basis.

    Parameters
    ----------
    model
        The feasible set; integrality is ignored.
    tolerance
        Primal and dual feasibility tolerance. Bounds do not depend on it: they are
        recomputed from the duals.
    """

    def __init__(self, model: LinearModel, tolerance: float = TIGHT_TOLERANCE) -> None:
        self._model = model.relaxed()
        self._solver = _loaded(self._model)
        for option in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self._solver.setOptionValue(option, tolerance)
        self._columns = np.arange(model.num_columns, dtype=np.int32)

    def restrict(self, lower: Array, upper: Array) -> None:
        """Other bounds of the columns, (num_columns,); the basis is kept."""
        self._model = self._model.with_column_bounds(lower, upper)
        self._solver.changeColsBounds(
            self._model.num_columns, self._columns, self._model.lower, self._model.upper
        )

    def maximize(
        self, objective: Array, offset: float = 0.0, seconds: float = math.inf
    ) -> MilpResult:
        """The largest value of ``objective @ v + offset``; the bound is rigorous."""
        begin = clock.now()
        if seconds <= 0:
            return MilpResult(MilpStatus.TIME_LIMIT)
        solver = self._solver
        model = self._model.with_objective(objective, offset)
        solver.changeColsCost(model.num_columns, self._columns, model.objective)
        solver.changeObjectiveOffset(model.offset)
        # The clock of a HiGHS object runs on from solve to solve.
        solver.setOptionValue("time_limit", solver.getRunTime() + seconds)
        solver.run()
        return _result(model, solver, SolveOptions(), begin, False)

    def refuted(self) -> bool:
        """Whether the solver's last word, that nothing is feasible, is proved.

        Its ray must bound the zero function by something negative.
        """
        _, found, ray = self._solver.getDualRay()
        if not found:
            return False
        nothing = self._model.with_objective(np.zeros(self._model.num_columns), 0.0)
        return min(nothing.dual_bound(ray), nothing.dual_bound(-ray)) < 0.0


def _loaded(model: LinearModel) -> Any:
    import highspy  # here, so that importing ennopt stays fast

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = model.num_columns, model.num_rows
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_, lp.offset_ = model.objective, model.offset
    lp.col_lower_, lp.col_upper_ = model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = model.starts.astype(np.int32)
    lp.a_matrix_.index_ = model.columns.astype(np.int32)
    lp.a_matrix_.value_ = model.coefficients
    if model.num_integer:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(whole)] for whole in model.integer]
    solver.passModel(lp)
    return solver


def _configure(solver: Any, options: SolveOptions) -> None:
    settings: dict[str, Any] = {
        "threads": options.threads,
        "parallel": "off" if options.threads == 1 else "choose",
        "random_seed": options.seed % 2**31,
        "mip_rel_gap": options.gap,
        "mip_abs_gap": options.absolute_gap,
        "mip_feasibility_tolerance": max(SMALLEST_MIP_TOLERANCE, options.tolerance),
        "primal_feasibility_tolerance": min(1e-7, options.tolerance),
        "dual_feasibility_tolerance": min(1e-7, options.tolerance),
    }
    if not options.presolve:
        settings["presolve"] = "off"
    if math.isfinite(options.time_limit):
        settings["time_limit"] = options.time_limit
    if math.isfinite(options.node_limit):
        settings["mip_max_nodes"] = int(options.node_limit)
    for name, value in settings.items():
        solver.setOptionValue(name, value)


def _listen(
    solver: Any,
    hooks: SolveHooks,
    stopped: threading.Event,
    halted: threading.Event,
    errors: list[Exception],
) -> None:
    """Let the caller see progress and the solver see that it must stop.

    `stopped` is set by the caller's answer, `halted` by the waiting thread.
    """
    import highspy

    kinds = highspy.cb.HighsCallbackType
    told, spoken = hooks.progress, -math.inf

    def heard(kind: Any, _: str, out: Any, back: Any, __: Any) -> None:
        nonlocal spoken
        found = kind == kinds.kCallbackMipImprovingSolution
        due = found or (
            kind == kinds.kCallbackMipInterrupt
            and out.running_time - spoken >= PROGRESS_SECONDS
        )
        if told is not None and due:
            spoken = out.running_time
            moment = MilpProgress(
                seconds=out.running_time,
                value=out.objective_function_value if found else out.mip_primal_bound,
                bound=out.mip_dual_bound,
                nodes=max(int(out.mip_node_count), 0),
                x=np.array(out.mip_solution) if found else None,
            )
            try:
                if told(moment):
                    stopped.set()
            except Exception as error:  # noqa: BLE001 - raised again after the solve
                errors.append(error)
                stopped.set()
        if (stopped.is_set() or halted.is_set()) and back is not None:
            back.user_interrupt = True

    solver.setCallback(heard, None)
    solver.startCallback(kinds.kCallbackMipInterrupt)
    solver.startCallback(kinds.kCallbackSimplexInterrupt)
    if told is not None:
        solver.startCallback(kinds.kCallbackMipImprovingSolution)


def _result(
    model: LinearModel, solver: Any, options: SolveOptions, begin: float, stopped: bool
) -> MilpResult:
    word = solver.getModelStatus().name
    status = STATUSES.get(word, MilpStatus.FAILED)
    seconds = clock.now() - begin
    late = seconds >= options.time_limit
    if status is MilpStatus.INTERRUPTED and late and not stopped:
        status = MilpStatus.TIME_LIMIT
    info, solution = solver.getInfo(), solver.getSolution()
    value, x, bound, duals = -math.inf, None, math.inf, None
    if status is MilpStatus.INFEASIBLE:
        bound = -math.inf
    elif status is not MilpStatus.UNBOUNDED and status is not MilpStatus.FAILED:
        if info.primal_solution_status == 2 and solution.value_valid:
            x = np.array(solution.col_value)
            value = model.value(x)
        if model.num_integer:
            bound = float(info.mip_dual_bound)
        elif solution.dual_valid:
            duals = np.array(solution.row_dual)
            bound = model.dual_bound(duals)
    return MilpResult(
        status=status,
        value=value,
        x=x,
        bound=math.inf if math.isnan(bound) or bound >= 1e200 else bound,
        nodes=max(int(info.mip_node_count), 0) if model.num_integer else 0,
        seconds=seconds,
        duals=duals,
        message=word,
    )
