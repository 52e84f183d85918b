"""SCIP: MILPs with cuts, required inequalities and a survey of nodes.

Its own separation is off unless asked for: on big-M models it costs far more than it
brings (9 to 50 times fewer nodes per second were measured).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    "optimal": MilpStatus.OPTIMAL,
    "gaplimit": MilpStatus.OPTIMAL,
    "infeasible": MilpStatus.INFEASIBLE,
    "unbounded": MilpStatus.UNBOUNDED,
    "timelimit": MilpStatus.TIME_LIMIT,
    "nodelimit": MilpStatus.NODE_LIMIT,
    "totalnodelimit": MilpStatus.NODE_LIMIT,
    "userinterrupt": MilpStatus.INTERRUPTED,
}
"""Every other word of SCIP is a failure."""

LITTLE_STRONG_BRANCHING = {
    "branching/relpscost/sbiterquot": 0.1,
    "branching/relpscost/sbiterofs": 0,
    "branching/relpscost/maxreliable": 1.0,
    "branching/relpscost/initcand": 8,
}
"""At most a tenth of the simplex iterations, on few candidates, one try for each."""

NO_LOSS_OF_BETTER_SOLUTIONS = {
    "propagating/pseudoobj/maxprerounds": 0,
    "misc/allowstrongdualreds": False,
}
"""With a solution known, SCIP 10's presolve narrowed columns to what can beat it, fixed
others by duality within that, and called the known solution optimal though another was
better. Each of the two settings prevents what was seen; both together keep these kinds
of reductions apart."""

FIRST_CHOICE = 1_000_000
"""Above the priority of every branching rule that SCIP brings."""


@dataclass(frozen=True, slots=True)
class Scip:
    """The SCIP backend; one thread.

    Parameters
    ----------
    own_separation
        Whether SCIP's own cutting planes stay on.
    """

    own_separation: bool = False

    name = "scip"
    package = "pyscipopt"
    capabilities = Capabilities(
        cuts=True, lazy_constraints=True, node_survey=True, user_solutions=True,
        margin=1e-7,
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
        pyscipopt = require("pyscipopt", "scip")
        solver = pyscipopt.Model()
        try:
            session = _Session(pyscipopt, solver, model, options, hooks)
            session.configure(self.own_separation)
            interrupted = session.run()
            return session.result(begin, interrupted).heard(interrupted)
        finally:
            solver.freeProb()  # plugins written in Python keep the model alive


class _Session:
    """One solve: the solver's object, its variables and what callbacks collect."""

    def __init__(
        self,
        pyscipopt: Any,
        solver: Any,
        model: LinearModel,
        options: SolveOptions,
        hooks: SolveHooks,
    ) -> None:
        self.scip, self.solver = pyscipopt, solver
        self.model, self.options, self.hooks = model, options, hooks
        self.error: BaseException | None = None
        self.failure = ""  # what SCIP itself raised
        self.stopped = False  # by the progress callback
        self.full = False  # a separation that ends the solve is used up
        self.rows = 0  # made of inequalities
        self.points: list[Array] = []
        solver.hideOutput()
        self._build()
        self._start()

    def _build(self) -> None:
        model, solver = self.model, self.solver
        inner = self.scip.scip
        expr, term, row = inner.Expr, inner.Term, inner.ExprCons
        self.variables = [
            solver.addVar(
                f"v{j}",
                vtype="I" if model.integer[j] else "C",
                lb=_side(model.lower[j]),
                ub=_side(model.upper[j]),
            )
            for j in range(model.num_columns)
        ]
        terms = [term(v) for v in self.variables]
        for r in range(model.num_rows):
            columns, values = model.row(r)
            if columns.size == 0:
                columns, values = np.zeros(1, dtype=np.int64), np.zeros(1)
            body: dict[Any, float] = {}
            for j, a in zip(columns.tolist(), values.tolist(), strict=True):
                body[terms[j]] = body.get(terms[j], 0.0) + a
            solver.addCons(
                row(expr(body), _side(model.row_lower[r]), _side(model.row_upper[r])),
                name=f"r{r}",
            )
        goal = {terms[j]: float(model.objective[j]) for j in range(len(terms))}
        solver.setObjective(expr(goal), "maximize")
        solver.addObjoffset(model.offset)

    def _start(self) -> None:
        if self.hooks.start is None:
            return
        solution = self.solver.createSol()
        for variable, entry in zip(
            self.variables, self.hooks.start.tolist(), strict=True
        ):
            self.solver.setSolVal(solution, variable, entry)
        self.solver.addSol(solution)

    def configure(self, own_separation: bool) -> None:
        solver, options = self.solver, self.options
        if not own_separation:
            solver.setSeparating(self.scip.SCIP_PARAMSETTING.OFF)
        settings: dict[str, Any] = {
            "misc/catchctrlc": False,  # the waiting thread hears Ctrl-C
            "limits/gap": options.gap,
            "limits/absgap": options.absolute_gap,
            "numerics/feastol": options.tolerance,
            "numerics/dualfeastol": min(1e-7, options.tolerance),
            "randomization/randomseedshift": options.seed % 2**31,
            **NO_LOSS_OF_BETTER_SOLUTIONS,
        }
        if clock.seconds_of() == "processor":
            settings["timing/clocktype"] = 1
        if math.isfinite(options.time_limit):
            settings["limits/time"] = options.time_limit
        if math.isfinite(options.node_limit):
            settings["limits/totalnodes"] = int(options.node_limit)
        brisk = options.brisk or options.survey > 0
        if brisk or not options.presolve:
            solver.setPresolve(self.scip.SCIP_PARAMSETTING.OFF)
        if brisk:  # otherwise the root alone may take seconds
            solver.setHeuristics(self.scip.SCIP_PARAMSETTING.OFF)
            settings |= LITTLE_STRONG_BRANCHING
        if options.survey:
            settings["presolving/maxrestarts"] = 0
            settings["branching/pscost/priority"] = FIRST_CHOICE
        for name, value in settings.items():
            solver.setParam(name, value)
        self._plug_in()

    def _plug_in(self) -> None:
        solver, event = self.solver, self.scip.SCIP_EVENTTYPE
        if self.hooks.progress is not None:
            kinds = [event.BESTSOLFOUND, event.NODEFOCUSED, event.NODESOLVED]
            handler = _events(self.scip, kinds, self.guarded(self._report))
            solver.includeEventhdlr(handler, "ennopt-progress", "progress")
        if self.options.survey:
            visit = self.guarded(self._survey)
            handler = _events(self.scip, [event.NODEBRANCHED], visit)
            solver.includeEventhdlr(handler, "ennopt-survey", "survey of nodes")
        for index, separation in enumerate(self.hooks.separations):
            counter = InequalityCounter(separation)
            if separation.at_fractional:
                plugin = _separator(self, counter)
                solver.includeSepa(
                    plugin, f"ennopt-cuts-{index}", "cuts", priority=1000, freq=1
                )
            if separation.at_integral:
                plugin = _handler(self, counter)
                solver.includeConshdlr(
                    plugin, f"ennopt-rows-{index}", "inequalities at solutions",
                    sepapriority=1000, enfopriority=-1000, chckpriority=-1000,
                    sepafreq=1, needscons=False,
                )  # fmt: skip

    # What callbacks call.

    def guarded(self, act: Callable[..., Any], otherwise: Any = None) -> Any:
        """`act`, with its exceptions kept: SCIP would swallow them."""

        def safe(*arguments: Any) -> Any:
            if self.error is not None or self.stopped:
                self.interrupt()
                return otherwise
            try:
                return act(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised after the solve
                self.error = error
                self.interrupt()
                return otherwise

        return safe

    def interrupt(self) -> None:
        """Ask SCIP to stop, if it is at a stage where it listens; else ask again."""
        stage, stages = self.solver.getStage(), self.scip.SCIP_STAGE
        if stage in (stages.PRESOLVING, stages.PRESOLVED, stages.SOLVING):
            self.solver.interruptSolve()

    def read(self, solution: Any = None) -> Array:
        """All columns of a solution, or of the LP solution of the current node."""
        value = self.solver.getSolVal
        return np.array([value(solution, v) for v in self.variables])

    def add_row(self, cut: Inequality, force: bool = False) -> bool:
        """Offer an inequality to the LP; true if it makes the node infeasible."""
        with self._row(cut) as row:
            return bool(self.solver.addCut(row, forcecut=force))

    def pool_row(self, cut: Inequality) -> None:
        """Keep an inequality beside the LP, where SCIP looks for violated ones."""
        with self._row(cut) as row:
            self.solver.addPoolCut(row)

    @contextmanager
    def _row(self, cut: Inequality) -> Iterator[Any]:
        solver = self.solver
        row = solver.createEmptyRowUnspec(
            f"cut{self.rows}", lhs=None, rhs=cut.limit, local=False
        )
        solver.cacheRowExtensions(row)
        pairs = zip(cut.columns.tolist(), cut.coefficients.tolist(), strict=True)
        for j, a in pairs:
            solver.addVarToRow(row, self.variables[j], a)
        solver.flushRowExtensions(row)
        yield row
        self.rows += 1
        solver.releaseRow(row)

    def applied(self) -> int:
        """Inequalities that SCIP has taken into an LP: a part of those offered."""
        solver, stages = self.solver, self.scip.SCIP_STAGE
        begun = solver.getStage() in (stages.SOLVING, stages.SOLVED)
        return int(solver.getNCutsApplied()) if begun else 0

    def _report(self, event: Any) -> None:
        solver = self.solver
        found = event.getType() == self.scip.SCIP_EVENTTYPE.BESTSOLFOUND
        now = solver.getSolvingTime()
        if not found and now - getattr(self, "_spoken", -math.inf) < PROGRESS_SECONDS:
            return
        self._spoken = now
        x, value = None, -math.inf
        if (best := solver.getBestSol()) is not None and solver.getNSols():
            value = float(solver.getSolObjVal(best))
            x = self.read(best) if found else None
        assert self.hooks.progress is not None
        moment = MilpProgress(
            seconds=now,
            value=value,
            bound=_bound(solver.getDualbound()),
            nodes=int(solver.getNTotalNodes()),
            x=x,
        )
        if self.hooks.progress(moment):
            self.stopped = True
            self.interrupt()

    def _survey(self, event: Any) -> None:
        solver = self.solver
        if len(self.points) >= self.options.survey:
            return
        if solver.getLPSolstat() != self.scip.SCIP_LPSOLSTAT.OPTIMAL:
            return
        self.points.append(self.read())
        if len(self.points) == self.options.survey:
            self.interrupt()

    # The solve.

    def run(self) -> bool:
        solver = self.solver

        def work() -> None:
            try:
                solver.optimizeNogil()
                if solver.getStatus() == "inforunbd":
                    solver.freeTransform()
                    solver.setPresolve(self.scip.SCIP_PARAMSETTING.OFF)
                    solver.optimizeNogil()
            except Exception as error:  # noqa: BLE001 - PySCIPOpt has no type of its own
                self.failure = str(error)

        def stop() -> None:
            try:
                self.interrupt()
            except Exception:  # noqa: BLE001 - SCIP just left the stage: ask again
                return

        return watched(work, stop, self.options.time_limit)

    def result(self, begin: float, interrupted: bool) -> MilpResult:
        if self.error is not None:
            raise self.error
        if self.failure:
            seconds = clock.now() - begin
            return MilpResult(MilpStatus.FAILED, seconds=seconds, message=self.failure)
        solver, model = self.solver, self.model
        word = solver.getStatus()
        status = STATUSES.get(word, MilpStatus.FAILED)
        seconds = clock.now() - begin
        if status is MilpStatus.INTERRUPTED and not (interrupted or self.stopped):
            if self.full or 0 < self.options.survey <= len(self.points):
                status = MilpStatus.NODE_LIMIT
            elif seconds >= self.options.time_limit:
                status = MilpStatus.TIME_LIMIT
        value, x, bound = -math.inf, None, math.inf
        if status is MilpStatus.INFEASIBLE:
            bound = -math.inf
        elif status not in (MilpStatus.UNBOUNDED, MilpStatus.FAILED):
            bound = _bound(solver.getDualbound())
            if solver.getNSols():
                x = self.read(solver.getBestSol())
                value = model.value(x)
        return MilpResult(
            status=status,
            value=value,
            x=x,
            bound=bound,
            nodes=int(solver.getNTotalNodes()),
            seconds=seconds,
            cuts=self.applied(),
            surveyed=np.array(self.points).reshape(-1, model.num_columns),
            message=word,
        )


def _events(pyscipopt: Any, kinds: list[Any], act: Callable[[Any], None]) -> Any:
    class Events(pyscipopt.Eventhdlr):  # type: ignore[misc]
        def eventinit(self) -> None:
            for kind in kinds:
                self.model.catchEvent(kind, self)

        def eventexit(self) -> None:
            for kind in kinds:
                self.model.dropEvent(kind, self)

        def eventexec(self, event: Any) -> None:
            act(event)

    return Events()


def _separator(session: _Session, counter: InequalityCounter) -> Any:
    """Ask the cut source at the LP solutions of nodes."""
    result = session.scip.SCIP_RESULT

    def separate() -> dict[str, Any]:
        point = session.read()
        counter.taken(session.applied())
        if counter.used_up():
            session.full = True
            session.interrupt()
            return {"result": result.DIDNOTFIND}
        cuts = counter.take(counter.ask(point, False))
        for cut in cuts:
            if session.add_row(cut):
                return {"result": result.CUTOFF}
        return {"result": result.SEPARATED if cuts else result.DIDNOTFIND}

    class Separator(session.scip.Sepa):  # type: ignore[misc,name-defined]
        def sepaexeclp(self) -> Any:
            return act()

    act = session.guarded(separate, {"result": result.DIDNOTRUN})
    return Separator()


def _handler(session: _Session, counter: InequalityCounter) -> Any:
    """Ask the cut source at integer solutions.

    Inequalities that are not required wait for the next LP and join the pool, from
    which SCIP takes what an LP solution violates. Required ones reject the solution,
    so no variable may be rounded or fixed against them: locks.
    """
    result, required = session.scip.SCIP_RESULT, counter.separation.required
    waiting: list[Inequality] = []

    def check(solution: Any) -> dict[str, Any]:
        point = session.read(solution)
        cuts = counter.ask(point, True)
        if required:
            return {"result": result.INFEASIBLE if cuts else result.FEASIBLE}
        waiting.extend(counter.take(cuts))
        return {"result": result.FEASIBLE}

    def enforce() -> dict[str, Any]:
        cuts = counter.take(counter.ask(session.read(), True)) if required else []
        for cut in cuts:
            if session.add_row(cut, force=True):
                return {"result": result.CUTOFF}
        return {"result": result.SEPARATED if cuts else result.FEASIBLE}

    def enforce_pseudo() -> dict[str, Any]:
        cuts = counter.ask(session.read(), True) if required else []
        return {"result": result.SOLVELP if cuts else result.FEASIBLE}

    def flush() -> dict[str, Any]:
        cuts, waiting[:] = waiting[:], []
        for cut in cuts:
            session.pool_row(cut)
        return {"result": result.DIDNOTFIND}

    class Handler(session.scip.Conshdlr):  # type: ignore[misc,name-defined]
        def conscheck(self, constraints: Any, solution: Any, *others: Any) -> Any:
            return checked(solution)

        def consenfolp(self, *arguments: Any) -> Any:
            return enforced()

        def consenfops(self, *arguments: Any) -> Any:
            return enforced_pseudo()

        def conssepalp(self, *arguments: Any) -> Any:
            return flushed()

        def conslock(self, constraint: Any, kind: Any, up: int, down: int) -> None:
            if required:
                for variable in session.variables:
                    moved = self.model.getTransformedVar(variable)
                    self.model.addVarLocksType(moved, kind, up + down, up + down)

    checked = session.guarded(check, {"result": result.INFEASIBLE})
    enforced = session.guarded(enforce, {"result": result.INFEASIBLE})
    enforced_pseudo = session.guarded(enforce_pseudo, {"result": result.INFEASIBLE})
    flushed = session.guarded(flush, {"result": result.DIDNOTRUN})
    return Handler()


def _side(side: float) -> float | None:
    return float(side) if math.isfinite(side) else None


def _bound(bound: float) -> float:
    return math.inf if not bound < 1e20 else float(bound)
