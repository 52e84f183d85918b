"""One big-M model, strengthened by inequalities while it is solved.

What branch and cut and Phase One have in common: the ideal cuts of Anderson et al. at
fractional solutions, the Benders-dual inequalities of the paper at integer ones, and
the record of what they did. A solver without callbacks gets rounds of ideal cuts at
the root instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ennopt import clock
from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.milp.cuts import BendersCuts, IdealCuts
from ennopt.milp.formulation import Formulation
from ennopt.milp.highs import Highs
from ennopt.milp.model import Inequality, LinearModel
from ennopt.milp.scaling import ScaledModel
from ennopt.milp.solver import (
    SMALLEST_VIOLATION,
    Backend,
    MilpResult,
    MilpStatus,
    Separation,
    SolveOptions,
)
from ennopt.network import Array
from ennopt.paper.solving import Guides, LiveSolve, offer
from ennopt.run import Run

CUT_LIMIT = 25_000
"""Most ideal cuts of a model: the paper's."""

ROUNDS = 50
"""Most rounds at the root; they slow down long before (`SLOWEST_ROUND`)."""

SLOWEST_ROUND = 1e-4
"""Rounds at the root end when the bound falls by less than this, relatively."""

ROOT_SHARE = 0.2
"""Share of the time left that rounds at the root may take."""


@dataclass(frozen=True, slots=True)
class Strengthening:
    """Which inequalities are added, and how many.

    Parameters
    ----------
    ideal_cuts
        Most ideal single-neuron cuts in all; 0 for none.
    benders
        Whether integer solutions give Benders-dual inequalities.
    violation
        Smallest violation of an ideal cut that is worth a row, in units in which
        neurons are of order one.
    rounds
        Most rounds at the root of a solver that takes no cuts inside its tree.
    presolve
        Whether the solver may simplify the model first.
    """

    ideal_cuts: int = 0
    benders: bool = False
    violation: float = SMALLEST_VIOLATION
    rounds: int = ROUNDS
    presolve: bool = True

    def __post_init__(self) -> None:
        for name in ("ideal_cuts", "rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"Expected {name} >= 0, got {getattr(self, name)}.")


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """What rounds of cuts at the root did.

    Parameters
    ----------
    before, after
        Bound of the linear relaxation without and with cuts, rigorous.
    cuts
        Those that bind at the end.
    generated
        Cuts added in all.
    rounds
        Linear programs solved after the first.
    """

    before: float
    after: float
    cuts: list[Inequality]
    generated: int
    rounds: int


def root_rounds(
    formulation: Formulation, limit: int, rounds: int = ROUNDS,
    violation: float = SMALLEST_VIOLATION, seconds: float = math.inf,
) -> Rounds:  # fmt: skip
    """Solve the linear relaxation, add the violated ideal cuts, and again.

    Parameters
    ----------
    formulation
        A big-M model.
    limit
        Most cuts in all.
    rounds
        Most rounds.
    violation
        Smallest violation of a cut that is added.
    seconds
        Time limit.
    """
    begin = clock.now()
    relaxed, source = formulation.model.relaxed(), IdealCuts(formulation, violation)
    found = _solved(relaxed, seconds)
    before = after = found.bound_of_feasible
    cuts: list[Inequality] = []
    done = 0
    while found.x is not None and done < rounds and len(cuts) < limit:
        new = source.separate(found.x)[: limit - len(cuts)]
        left = seconds - (clock.now() - begin)
        if not new or left <= 0:
            break
        cuts += new
        done += 1
        found = _solved(relaxed.with_inequalities(cuts), left)
        fall = after - found.bound_of_feasible
        after = min(after, found.bound_of_feasible)
        if fall < SLOWEST_ROUND * max(1.0, abs(after)):
            break
    binding = cuts
    if found.x is not None:
        at = found.x
        binding = [cut for cut in cuts if cut.violation(at) > -violation]
    return Rounds(before, after, binding, len(cuts), done)


def _solved(model: LinearModel, seconds: float) -> MilpResult:
    found = Highs().solve(model, SolveOptions(time_limit=seconds))
    if found.status is MilpStatus.INTERRUPTED:
        raise KeyboardInterrupt
    return found


@dataclass(slots=True, eq=False)
class IncumbentInequalities:
    """Benders-dual inequalities at solutions that beat those before, one per pattern.

    A solver also checks solutions that improve nothing, by the hundred; the paper's
    solver calls back at new incumbents.

    Parameters
    ----------
    source
        Makes the inequality of a pattern.
    run
        Offered the best point of each pattern.
    scaled
        The model that is solved.
    best
        The largest value of a solution so far.
    seen
        Patterns so far.
    count
        Inequalities made.
    """

    source: BendersCuts
    run: Run
    scaled: ScaledModel
    best: float = -math.inf
    seen: set[bytes] = field(default_factory=set)
    count: int = 0

    def separate(self, point: Array, integral: bool) -> list[Inequality]:
        if not integral or self.run.ended() is not None:
            return []
        value = float(self.run.problem.values(self.scaled.point(point))[0])
        if not value > self.best:
            return []
        self.best = value
        pattern = self.source.pattern(point)
        key = np.packbits(pattern > 0.5).tobytes()
        if key in self.seen:
            return []
        self.seen.add(key)
        made = self.source.at(pattern)
        if made is None:
            return []
        cut, columns = made
        self.count += 1
        offer(self.run, self.scaled.point(columns))  # the best of the same pattern
        return [cut]


def solve_strengthened(
    run: Run,
    solver: Backend,
    bounds: NeuronBounds,
    strengthening: Strengthening,
    seconds: float = math.inf,
    prefix: str = "",
) -> MilpStatus:
    """Solve the big-M model of the whole problem; tell the run what happens.

    Parameters
    ----------
    run
        Points are offered to it, bounds proved, nodes counted, details recorded.
    solver
        The backend.
    bounds
        Of all neurons.
    strengthening
        Which inequalities.
    seconds
        Time limit of its own, beside that of the run.
    prefix
        Of the names of the details.

    Returns
    -------
    MilpStatus
        How the solver ended; ``FAILED`` also if its bound contradicts a point.
    """
    scaled = ScaledModel.of(run.problem, bounds, Guides().known(run))
    solve = _StrengthenedSolve(run, solver, scaled, strengthening, prefix)
    return solve.run_to_the_end(min(seconds, run.remaining()))


@dataclass(slots=True, eq=False)
class _StrengthenedSolve:
    run: Run
    solver: Backend
    scaled: ScaledModel
    config: Strengthening
    prefix: str

    def run_to_the_end(self, seconds: float) -> MilpStatus:
        begin, run, scaled = clock.now(), self.run, self.scaled
        inside = self.solver.capabilities.cuts
        first = self.config.ideal_cuts and not inside
        rounds = root_rounds(
            scaled.formulation, self.config.ideal_cuts if first else 0,
            self.config.rounds, self.config.violation, ROOT_SHARE * seconds,
        )  # fmt: skip
        run.prove(scaled.proved(rounds.after))
        model = scaled.model.with_inequalities(rounds.cuts)
        source = BendersCuts(scaled.formulation)
        inequalities = IncumbentInequalities(source, run, scaled)
        live = LiveSolve(
            run, self.solver, scaled, run.problem.domain, run.prove,
            self.config.presolve,
        )  # fmt: skip
        left = seconds - (clock.now() - begin)
        chosen = self.separations(inequalities) if inside else ()
        found = live.solve(model, left, chosen)
        after = live.root_bound if inside else rounds.after
        self.record(
            columns=model.num_columns,
            rows=scaled.model.num_rows,
            binaries=model.num_integer,
            solver_nodes=found.nodes,
            cuts=found.cuts + rounds.generated,
            inequalities=inequalities.count,
        )
        self.run.levels |= {
            self.prefix + "root_bound_before_cuts": scaled.proved(rounds.before),
            self.prefix + "root_bound_after_cuts": scaled.proved(
                min(after, rounds.before)
            ),
        }
        self.notes(inside)
        if found.status.has_bound and not live.contradictory:
            return found.status
        if run.bound == -math.inf:
            return MilpStatus.OPTIMAL  # proved: no point meets the constraints
        run.notes.append(
            f"{self.solver.name} failed ({found.message or found.status.value}); its "
            "bound was not used."
        )
        return MilpStatus.FAILED

    def separations(
        self, inequalities: IncumbentInequalities
    ) -> tuple[Separation, ...]:
        config, chosen = self.config, []
        if config.ideal_cuts:
            source = IdealCuts(self.scaled.formulation, config.violation)
            chosen.append(
                Separation(
                    source.separate,
                    limit=config.ideal_cuts,
                    violation=config.violation,
                )
            )
        if config.benders:
            # Implied by the relaxation, so never violated: added all the same, as
            # the paper does.
            chosen.append(
                Separation(
                    inequalities.separate,
                    at_fractional=False,
                    at_integral=True,
                    violation=-math.inf,
                )
            )
        return tuple(chosen)

    def record(self, **details: float) -> None:
        self.run.details |= {self.prefix + key: entry for key, entry in details.items()}

    def notes(self, inside: bool) -> None:
        if inside:
            return
        if self.config.ideal_cuts:
            self.run.notes.append(
                f"{self.solver.name} takes no cuts inside its tree: ideal cuts were "
                "added in rounds at the root only."
            )
        if self.config.benders:
            self.run.notes.append(
                f"{self.solver.name} takes no inequalities inside its tree: none of "
                "Proposition 1 were added. They follow from the linear relaxation."
            )
