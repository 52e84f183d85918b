"""Gurobi, optional: all capabilities, within what its licence allows.

The package brings a licence for at most 2000 columns and 2000 rows. Which one is in
force is found out once, before any model is solved.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import queue
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ennopt import clock
from ennopt.extras import require
from ennopt.milp.model import Inequality, LinearModel
from ennopt.milp.solver import (
    PROGRESS_SECONDS,
    Capabilities,
    InequalityCounter,
    LicenceError,
    MilpProgress,
    MilpResult,
    MilpStatus,
    SolveHooks,
    SolveOptions,
    demand,
)
from ennopt.milp.watch import watched
from ennopt.network import Array

FREE_SIZE = 2000
"""Most columns, and most rows, under the licence that the package brings."""

SIZE_LIMIT_EXCEEDED = 10010

STATUSES = {
    "OPTIMAL": MilpStatus.OPTIMAL,
    "INFEASIBLE": MilpStatus.INFEASIBLE,
    "UNBOUNDED": MilpStatus.UNBOUNDED,
    "TIME_LIMIT": MilpStatus.TIME_LIMIT,
    "NODE_LIMIT": MilpStatus.NODE_LIMIT,
    "INTERRUPTED": MilpStatus.INTERRUPTED,
}
"""Every other word of Gurobi is a failure."""


@dataclass(frozen=True, slots=True)
class Gurobi:
    """The Gurobi backend."""

    name = "gurobi"
    package = "gurobipy"

    @property
    def capabilities(self) -> Capabilities:
        """What it can do under the licence in force."""
        return Capabilities(
            cuts=True, lazy_constraints=True, node_survey=True, user_solutions=True,
            size_limit=_size_limit(), margin=1e-7,
        )  # fmt: skip

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
        gurobipy = require("gurobipy", "gurobi")
        with _environment() as env, gurobipy.Model(env=env) as solver:
            session = _Session(gurobipy, solver, model, options, hooks)
            interrupted = watched(session.run, solver.terminate, options.time_limit)
            return session.result(begin, interrupted).heard(interrupted)


class _Session:
    """One solve: the solver's object, its variables and what callbacks collect."""

    def __init__(
        self,
        gurobipy: Any,
        solver: Any,
        model: LinearModel,
        options: SolveOptions,
        hooks: SolveHooks,
    ) -> None:
        self.gurobipy, self.grb, self.solver = gurobipy, gurobipy.GRB, solver
        self.model, self.options, self.hooks = model, options, hooks
        self.counters = [InequalityCounter(s) for s in hooks.separations]
        self.error: Exception | None = None
        self.failure = ""  # what Gurobi itself raised
        self.stopped = False  # by the progress callback
        self.full = False  # a separation that ends the solve is used up
        self.cuts = 0
        self.points: dict[int, Array] = {}  # by node: the root is seen many times
        self._spoken = -math.inf
        self._build()
        self._configure()

    def _build(self) -> None:
        model, solver, grb = self.model, self.solver, self.grb
        kinds = [grb.INTEGER if whole else grb.CONTINUOUS for whole in model.integer]
        made = solver.addVars(
            model.num_columns, lb=model.lower.tolist(), ub=model.upper.tolist(),
            obj=model.objective.tolist(), vtype=kinds,
        )  # fmt: skip
        self.variables = list(made.values())
        self.rows: list[tuple[int, Any]] = []
        for r in range(model.num_rows):
            columns, values = model.row(r)
            body = self._expression(Inequality(columns, values, 0.0))
            low, high = float(model.row_lower[r]), float(model.row_upper[r])
            sides = [(grb.LESS_EQUAL, high), (grb.GREATER_EQUAL, low)]
            if low == high:
                sides = [(grb.EQUAL, low)]
            for sense, side in sides:
                if math.isfinite(side):
                    self.rows.append((r, solver.addLConstr(body, sense, side)))
        solver.ModelSense = grb.MAXIMIZE
        solver.ObjCon = model.offset
        if self.hooks.start is not None:
            for variable, entry in zip(
                self.variables, self.hooks.start.tolist(), strict=True
            ):
                variable.Start = entry

    def _configure(self) -> None:
        options, parameters = self.options, self.solver.Params
        parameters.Threads = options.threads
        parameters.Seed = options.seed % 2_000_000_000
        parameters.MIPGap = options.gap
        parameters.MIPGapAbs = options.absolute_gap
        parameters.FeasibilityTol = max(1e-9, min(1e-6, options.tolerance))
        parameters.OptimalityTol = max(1e-9, min(1e-6, options.tolerance))
        parameters.IntFeasTol = max(1e-9, min(1e-5, options.tolerance))
        if math.isfinite(options.time_limit):
            parameters.TimeLimit = options.time_limit
        if math.isfinite(options.node_limit):
            parameters.NodeLimit = options.node_limit
        brisk = options.brisk or options.survey > 0
        if brisk or not options.presolve:
            parameters.Presolve = 0
        if brisk:
            parameters.Heuristics = 0
        if options.survey:
            parameters.Cuts = 0
            parameters.VarBranch = 0  # pseudo costs, no strong branching
        if any(s.at_fractional for s in self.hooks.separations):
            parameters.PreCrush = 1
        if any(s.at_integral for s in self.hooks.separations):
            parameters.LazyConstraints = 1

    def _expression(self, cut: Inequality) -> Any:
        chosen = [self.variables[j] for j in cut.columns.tolist()]
        return self.gurobipy.LinExpr(cut.coefficients.tolist(), chosen)

    # What Gurobi calls.

    def called(self, solver: Any, where: int) -> None:
        """The callback; its exceptions are kept and raised after the solve."""
        if self.error is not None:
            return
        try:
            self._called(where)
        except Exception as error:  # noqa: BLE001 - raised again after the solve
            self.error = error
            self.solver.terminate()

    def _called(self, where: int) -> None:
        codes, solver = self.grb.Callback, self.solver
        if where == codes.MIPSOL:
            self._solution_found()
        elif where == codes.MIPNODE:
            optimal = solver.cbGet(codes.MIPNODE_STATUS) == self.grb.OPTIMAL
            if optimal and (self.options.survey or self.counters):
                self._node_solved()
        elif where == codes.MIP and self.hooks.progress is not None:
            now = solver.cbGet(codes.RUNTIME)
            if now - self._spoken >= PROGRESS_SECONDS:
                self._spoken = now
                self._report(
                    MilpProgress(
                        seconds=now,
                        value=_known(solver.cbGet(codes.MIP_OBJBST)),
                        bound=_known(solver.cbGet(codes.MIP_OBJBND)),
                        nodes=int(solver.cbGet(codes.MIP_NODCNT)),
                    )
                )

    def _solution_found(self) -> None:
        codes, solver = self.grb.Callback, self.solver
        point = np.array(solver.cbGetSolution(self.variables))
        rejected = False
        for counter in self.counters:
            if counter.separation.at_integral:
                cuts = counter.take(counter.ask(point, True))
                rejected |= bool(cuts) and counter.separation.required
                for cut in cuts:
                    solver.cbLazy(self._expression(cut) <= cut.limit)
                self.cuts += len(cuts) if counter.separation.required else 0
        if self.hooks.progress is not None and not rejected:
            self._report(
                MilpProgress(
                    seconds=solver.cbGet(codes.RUNTIME),
                    value=float(solver.cbGet(codes.MIPSOL_OBJ)),
                    bound=_known(solver.cbGet(codes.MIPSOL_OBJBND)),
                    nodes=int(solver.cbGet(codes.MIPSOL_NODCNT)),
                    x=point,
                )
            )

    def _node_solved(self) -> None:
        codes, solver = self.grb.Callback, self.solver
        point = np.array(solver.cbGetNodeRel(self.variables))
        if self.options.survey:
            whole = point[self.model.integer]
            distance = np.abs(whole - np.round(whole)).max(initial=0.0)
            if distance > self.options.tolerance:
                node = int(solver.cbGet(codes.MIPNODE_NODCNT))
                if len(self.points) < self.options.survey or node in self.points:
                    self.points[node] = point
                else:
                    solver.terminate()
        for counter in self.counters:
            if counter.separation.at_fractional:
                cuts = counter.take(counter.ask(point, False))
                for cut in cuts:
                    solver.cbCut(self._expression(cut) <= cut.limit)
                self.cuts += len(cuts)
                if not cuts and counter.used_up():
                    self.full = True
                    solver.terminate()

    def _report(self, moment: MilpProgress) -> None:
        assert self.hooks.progress is not None
        if self.hooks.progress(moment):
            self.stopped = True
            self.solver.terminate()

    # The solve.

    def run(self) -> None:
        solver, grb = self.solver, self.grb
        try:
            solver.optimize(self.called)
            if solver.Status == grb.INF_OR_UNBD:
                solver.Params.DualReductions = 0
                solver.optimize(self.called)
        except self.gurobipy.GurobiError as error:
            self.failure = str(error)

    def result(self, begin: float, interrupted: bool) -> MilpResult:
        if self.error is not None:
            raise self.error
        if self.failure:
            seconds = clock.now() - begin
            return MilpResult(
                MilpStatus.FAILED, seconds=seconds, cuts=self.cuts, message=self.failure
            )
        solver, model = self.solver, self.model
        word = _word(self.grb, solver.Status)
        status = STATUSES.get(word, MilpStatus.FAILED)
        seconds = clock.now() - begin
        if status is MilpStatus.INTERRUPTED and not (interrupted or self.stopped):
            if self.full or 0 < self.options.survey <= len(self.points):
                status = MilpStatus.NODE_LIMIT
            elif seconds >= self.options.time_limit:
                status = MilpStatus.TIME_LIMIT
        value, x, bound, duals = -math.inf, None, math.inf, None
        if status is MilpStatus.INFEASIBLE:
            bound = -math.inf
        elif status not in (MilpStatus.UNBOUNDED, MilpStatus.FAILED):
            if solver.SolCount:
                x = np.array(solver.getAttr("X", self.variables))
                value = model.value(x)
            if solver.IsMIP:
                bound = _known(solver.ObjBound)
            elif status is MilpStatus.OPTIMAL:
                duals = np.zeros(model.num_rows)
                for r, row in self.rows:
                    duals[r] += row.Pi
                bound = model.dual_bound(duals)
        return MilpResult(
            status=status,
            value=value,
            x=x,
            bound=bound,
            nodes=int(solver.NodeCount) if solver.IsMIP else 0,
            seconds=seconds,
            cuts=self.cuts,
            surveyed=np.array(list(self.points.values())).reshape(
                -1, model.num_columns
            ),
            duals=duals,
            message=word,
        )


_idle: dict[int, queue.SimpleQueue[Any]] = {}


@contextlib.contextmanager
def _environment() -> Iterator[Any]:
    """An environment of our own: they are not to be shared between threads.

    Kept for the next solve, by process: with some licences opening one is slow.
    """
    gurobipy = require("gurobipy", "gurobi")
    pool = _idle.setdefault(os.getpid(), queue.SimpleQueue())
    try:
        env = pool.get_nowait()
    except queue.Empty:
        try:
            env = gurobipy.Env(params={"OutputFlag": 0})
        except gurobipy.GurobiError as error:
            raise LicenceError(
                f"Expected a valid Gurobi licence, got: {error}. Renew it, or use the "
                "backend 'scip' or 'highs'."
            ) from error
    try:
        yield env
    finally:
        pool.put(env)


@functools.lru_cache(maxsize=1)
def _size_limit() -> float:
    """Try a model one column too large for the licence that the package brings."""
    gurobipy = require("gurobipy", "gurobi")
    with _environment() as env, gurobipy.Model(env=env) as probe:
        probe.addVars(FREE_SIZE + 1, ub=1.0)
        try:
            probe.optimize()
        except gurobipy.GurobiError as error:
            if error.errno != SIZE_LIMIT_EXCEEDED:
                raise LicenceError(
                    f"Expected a valid Gurobi licence, got: {error}. Renew it, or use "
                    "the backend 'scip' or 'highs'."
                ) from error
            return FREE_SIZE
    return math.inf


def _word(grb: Any, status: int) -> str:
    names = {
        getattr(grb.Status, name): name
        for name in dir(grb.Status)
        if not name.startswith("_")
    }
    return names.get(status, str(status))


def _known(bound: float) -> float:
    """Gurobi's 1e100 is infinity."""
    return math.copysign(math.inf, bound) if abs(bound) >= 1e100 else float(bound)
