"""The paper's Phase Two: branch and bound on the inputs with Lagrangian bounds.

Each member has its own copy of the inputs; the relaxation of a node is one problem
per member, and the sum of their *proved bounds* bounds the ensemble on the node
whatever the multipliers. Where the copies disagree most the box is split between
them. What the paper leaves open is done the valid way:

- only the chosen input is split, so that the children cover their node;
- a child's bound is never above its parent's;
- a node whose copies agree but whose bound is still open splits its widest side;
- a member problem that hits its limit contributes its bound, one that fails the
  bound that its neurons already have.

Limits and risks are taken in by `ennopt.paper.mixing`: one weighted sum of outputs that
bounds the objective where limits hold, and limits that one member meets by itself as
rows of that member's problem. Small boxes are solved as one model that has them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import MODELLED, Canonical, Feature
from ennopt.domain import Domain
from ennopt.engine.search import RESTORE_GROWTH
from ennopt.milp.formulation import big_m
from ennopt.milp.highs import HotLp
from ennopt.milp.solver import MilpStatus
from ennopt.network import Array
from ennopt.paper.halving import (
    BoundedBox,
    Halving,
    OpenBoxes,
    best_first,
    parts,
    solve_whole,
)
from ennopt.paper.member_relaxation import (
    PaperUnits,
    branching,
    known_bounds,
    lagrangian_bound,
    member_problems,
)
from ennopt.paper.mixing import Mixing
from ennopt.paper.multipliers import Copies, Multipliers, StepRule, Subgradient, improve
from ennopt.paper.preparation import begin
from ennopt.paper.solving import PATIENCE, Trust, offer
from ennopt.paper.subproblems import (
    SUBPROBLEM_SHARE,
    Answer,
    ByMilp,
    Subproblem,
    SubproblemSolver,
    allowed,
    solve_all,
)
from ennopt.problem import Problem, relative_gap
from ennopt.result import Result, Status
from ennopt.run import Run, Tools

STALLED_SHARE, STALLED_DEPTH = 0.2, 1
"""With limits or risks, a node so deep whose relaxation takes less than this share of
the way from its parent's bound to the best value is solved as one model: what members
must do together, multipliers cannot always say."""


@dataclass(frozen=True, slots=True, eq=False)
class _Node(BoundedBox):
    """A box of Phase Two, with the multipliers of its parent."""

    multipliers: Multipliers | None = None


@dataclass(slots=True)
class _Counts:
    """What the paper's Table 5 reports of Phase Two."""

    nodes: int = 0
    depth: int = 0
    deepest: int = 0
    reversions: int = 0
    subproblems: int = 0
    relaxations: int = 0
    root_bound: float = math.inf
    root_gap: float = math.inf

    def as_details(self) -> dict[str, Any]:
        mean = self.depth / self.nodes if self.nodes else 0.0
        return {
            "phase_two_nodes": self.nodes,
            "phase_two_mean_depth": mean,
            "phase_two_max_depth": self.deepest,
            "phase_two_subproblems": self.subproblems,
            "big_m_reversions": self.reversions,
            "subgradient_relaxations": self.relaxations,
            "phase_two_start_gap": self.root_gap,
        }


@dataclass(frozen=True, slots=True)
class LagrangianSearch:
    """Branch and bound on the inputs, each node bounded member by member.

    Parameters
    ----------
    multipliers
        How multipliers are improved, before and during the search.
    fix_binaries
        Improve them with the binaries fixed at the incumbent, by linear programs;
        otherwise by solving the relaxation itself, which also proves bounds.
    from_gradients
        Start from multipliers that give all members the same slope at the incumbent,
        instead of from zero.
    inherit
        A node starts from the multipliers of its parent; otherwise, as in the paper,
        all nodes share and update one set.
    rounds
        Relaxations solved at each node, the multipliers updated between them.
    root_rounds
        The same at the root.
    heuristic
        epsilon: maximize the first member within this distance of its copy and
        evaluate the ensemble there; 0 for never. In scaled units.
    revert
        Delta: where all sides are at most this, the node is solved as one big-M
        model of the ensemble. In scaled units.
    members
        Solves the problems of single members.
    whole
        Solves the nodes that are not split any more.
    gap_share
        Share of the run's tolerance that the subproblems of a node may leave.
    accuracy
        Share of a node's distance to the best value that its member problems may
        leave in all: far from closing, an exact answer is worth little. 0, as in the
        paper, solves them all to the end.
    member_nodes
        Node limit of a member problem; at the limit its bound counts.
    output_unit
        What the paper's scaled output of 1 is worth; ``None`` takes the spread of the
        predictions at random points.
    patience
        Nodes in a row whose subproblems all fail before the search gives up.

    Examples
    --------
    >>> from ennopt.network import Ensemble, Network
    >>> nets = [Network([[[1.0]], [[s]]], [[0.5], [0.0]]) for s in (1.0, -0.5)]
    >>> problem = Problem(Ensemble(nets), Domain([-1.0], [1.0]))
    >>> LagrangianSearch().solve(problem, Tools()).value
    0.375
    """

    handles: ClassVar[frozenset[Feature]] = MODELLED
    multipliers: StepRule = field(default_factory=Subgradient)
    fix_binaries: bool = True
    from_gradients: bool = False
    inherit: bool = False
    rounds: int = 1
    root_rounds: int = 1
    heuristic: float = 0.02
    revert: float = 0.02
    members: SubproblemSolver = field(default_factory=ByMilp)
    whole: SubproblemSolver = field(default_factory=ByMilp)
    gap_share: float = SUBPROBLEM_SHARE
    accuracy: float = 0.0
    member_nodes: float = math.inf
    output_unit: float | None = None
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        for name in ("rounds", "root_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"Expected {name} >= 1, got {getattr(self, name)}: a node needs "
                    "a bound."
                )

    def solve(self, problem: Problem | Canonical, tools: Tools) -> Result:
        """Run the search alone, with linear relaxations as its neuron bounds."""
        status = None
        with (
            tools.with_workers() as tools,
            tools.start(problem, self, self.handles) as run,
        ):
            run.libraries += sorted({"highspy", *self.packages()})
            begin(run, run.problem.root)
            status = self.search(run, run.problem.root)
        return run.finish(status)

    def packages(self) -> set[str]:
        """Distributions whose versions a result records."""
        return {*self.members.packages, *self.whole.packages}

    def search(self, run: Run, bounds: NeuronBounds) -> Status | None:
        """Search within a run that has a point already.

        Parameters
        ----------
        run
            The record, with its best point.
        bounds
            Of all neurons on the whole domain.

        Returns
        -------
        Status or None
            An ending that the record cannot see by itself.
        """
        search = _PhaseTwo(self, run, bounds)
        try:
            with run.phase("subgradient"):
                search.improve()
            with run.phase("phase_two"):
                return search.run_to_the_end()
        finally:
            run.details.update(search.counts.as_details())
            run.levels["phase_two_root_bound"] = search.counts.root_bound
            run.details["phase_two_failures"] = search.trust.failures


class _PhaseTwo:
    """The state of one Phase Two: the tree, the multipliers, the counts."""

    def __init__(
        self, config: LagrangianSearch, run: Run, bounds: NeuronBounds
    ) -> None:
        self.config, self.run, self.bounds = config, run, bounds
        self.problem = run.problem
        self.units = PaperUnits.of(run.problem, config.output_unit, run.tools.seed)
        self.counts = _Counts()
        self.boxes: OpenBoxes[_Node] = OpenBoxes()
        self.trust = Trust(run, config.patience)
        self.halving = Halving(
            run, self.boxes, self._whole, self.trust, told=self._reverted
        )
        self.multipliers = Multipliers.zero(
            len(run.problem.networks), run.problem.num_inputs
        )
        self.mixed = not run.problem.is_sum
        at = run.problem.domain.centre if run.x is None else run.x
        self.mixing = Mixing.of(run.problem, at)
        self.due = 0  # nodes before points are moved to where limits hold

    # The multipliers.

    def improve(self) -> None:
        """The updates before the search: the paper's subgradient algorithm."""
        run, config = self.run, self.config
        if len(self.problem.networks) < 2 or run.x is None:
            return
        if config.from_gradients:
            self.multipliers = self._equal_slopes(run.x)
        if config.multipliers.steps < 1:
            return
        fixed = config.fix_binaries
        maximize = self._fixed_copies() if fixed else self._relaxed_copies
        last, best, solved = improve(
            config.multipliers, self.multipliers, maximize,
            run.value / self.units.output,
        )  # fmt: skip
        self.counts.relaxations = solved
        # The value with fixed binaries bounds nothing, so it cannot name the best.
        self.multipliers = last if fixed else best

    def _equal_slopes(self, x: Array) -> Multipliers:
        slopes = np.concatenate([part.gradients(x[None]) for part in self._parts()])
        costs = slopes.mean(axis=0) - slopes
        return Multipliers(-self.units.scaled_costs(costs[1:]))

    def _relaxed_copies(self, costs: Array) -> tuple[Array, float] | None:
        if self.run.ended() is not None:
            return None
        relaxed = self._relax(self.problem.domain, costs, self.run.bound)
        if relaxed is None or not math.isfinite(relaxed[1]):
            return None
        copies, bound = relaxed
        if bound < self.run.bound:
            self.run.prove(bound)
        return self.units.inputs(copies), bound / self.units.output

    def _fixed_copies(self) -> Copies:
        """Relaxations with the binaries of the incumbent: one linear program each."""
        run = self.run
        assert run.x is not None
        programs = []
        for i, part in enumerate(self._parts()):
            made = big_m(part, known_bounds(part, self.bounds, i, self.mixed))
            binaries = made.binaries
            lower, upper = made.model.lower.copy(), made.model.upper.copy()
            at = made.assignment(run.x)
            lower[binaries] = upper[binaries] = at[binaries]
            model = made.model.with_column_bounds(lower, upper)
            programs.append((made, model, HotLp(model)))

        def maximize(scaled: Array) -> tuple[Array, float] | None:
            costs = self.units.costs(scaled)
            copies, total = [], 0.0
            for (made, model, program), cost in zip(programs, costs, strict=True):
                if run.ended() is not None:
                    return None
                objective = model.objective.copy()
                objective[made.inputs] += cost
                found = program.maximize(objective, model.offset, run.remaining())
                if found.status is not MilpStatus.OPTIMAL or found.x is None:
                    return None
                copies.append(made.point(found.x))
                total += found.value
            return self.units.inputs(np.array(copies)), total / self.units.output

        return maximize

    # The relaxation of a node.

    def _parts(
        self, costs: Array | None = None, domain: Domain | None = None
    ) -> list[Canonical]:
        """The problems of the members, on the whole domain or on a part of it."""
        if costs is None:
            costs = np.zeros((len(self.problem.networks), self.problem.num_inputs))
        where = self.problem.domain if domain is None else domain
        return member_problems(self.problem, where, costs, self.mixing)

    def _relax(
        self, domain: Domain, scaled: Array, known: float
    ) -> tuple[Array, float] | None:
        """Maximizers of the members and the bound of the ensemble on `domain`."""
        costs = self.units.costs(scaled)
        problems = self._parts(costs, domain)
        constant = self.mixing.constant(self.problem) if self.mixed else 0.0
        answers = self._solve(
            [
                Subproblem(problem, known_bounds(problem, self.bounds, i, self.mixed))
                for i, problem in enumerate(problems)
            ],
            known,
        )
        if answers is None:
            return None
        bound = lagrangian_bound([a.bound for a in answers], costs, domain, constant)
        bound = self.trust.believed(domain, bound)
        copies = np.array([domain.centre if a.x is None else a.x for a in answers])
        if self.mixed:
            outputs = [
                network(x[None])[0]
                for network, x in zip(self.problem.networks, copies, strict=True)
            ]
            self.mixing = self.mixing.updated(self.problem, np.concatenate(outputs))
        return copies, bound

    def _solve(
        self, subproblems: list[Subproblem], bound: float
    ) -> list[Answer] | None:
        """Solve problems of single members on a node with this bound."""
        run, config = self.run, self.config
        slack = allowed(run, config.gap_share)
        if math.isfinite(bound - run.value):
            slack = max(slack, config.accuracy * (bound - run.value))
        most = config.member_nodes if math.isfinite(bound) else math.inf
        answers = solve_all(
            run, config.members, subproblems, slack / len(subproblems), most
        )
        if answers is None:
            return None
        self.counts.subproblems += len(answers)
        run.count(sum(answer.nodes for answer in answers))
        self.trust.heard([answer.failure for answer in answers])
        return answers

    # The tree.

    def run_to_the_end(self) -> Status | None:
        """Best-first branch and bound on the inputs."""
        domain, bound = self.problem.domain, self.run.bound
        self.boxes.push(_Node(domain, self.bounds, bound, 0, self.multipliers))
        return best_first(self.run, self.boxes, self._explore, self.trust)

    def _explore(self, node: _Node) -> Status | None:
        """Bound a node and close or split it; without time for it, it stays open."""
        sides = self.units.inputs(node.domain.upper)
        sides = sides - self.units.inputs(node.domain.lower)
        alone = len(self.problem.networks) < 2
        if alone or np.all(sides <= self.config.revert):
            return self.halving.explore(node)
        relaxed = self._improved(node)
        if relaxed is None:
            self.boxes.push(node)
            return None
        copies, bound, multipliers = relaxed
        run = self.run
        if self.mixed and node.depth >= STALLED_DEPTH:
            fall = STALLED_SHARE * (node.bound - run.value)
            if run.value + run.tolerance() < bound and bound > node.bound - fall:
                return self.halving.explore(replace(node, bound=bound))
        self._count(node, bound)
        if bound > run.value + run.tolerance():
            self._heuristic(copies[0])
        if bound <= run.value + run.tolerance():
            self.boxes.close(bound)
        else:
            self._split(node, bound, copies, multipliers)
        return None

    def _improved(self, node: _Node) -> tuple[Array, float, Multipliers] | None:
        """Relaxations of a node with better and better multipliers.

        Returns
        -------
        tuple or None
            The copies and multipliers of the best one and the bound; ``None`` if
            there was no time for any.
        """
        run, config = self.run, self.config
        bound, copies = node.bound, None
        if config.inherit and node.multipliers is not None:
            self.multipliers = node.multipliers
        best = self.multipliers
        for _ in range(config.rounds if node.depth else config.root_rounds):
            relaxed = self._relax(node.domain, self.multipliers.costs(), bound)
            if relaxed is None:
                break
            at = self.multipliers
            points, reached = relaxed
            run.offer(np.vstack([points, points.mean(axis=0)]))
            if self.problem.limits.count and self.counts.nodes >= self.due:
                self.due = int(RESTORE_GROWTH * self.counts.nodes) + 1
                offer(run, points.mean(axis=0))
            if reached < bound or copies is None:
                best, copies = at, points
            bound = min(bound, reached)
            excess = (reached - run.value) / self.units.output
            self.multipliers = config.multipliers.update(
                at, self.units.inputs(points), excess
            )
            if bound <= run.value + run.tolerance() or run.ended() is not None:
                break
        return None if copies is None else (copies, bound, best)

    def _count(self, node: _Node, bound: float) -> None:
        self.counts.nodes += 1
        self.counts.depth += node.depth
        self.counts.deepest = max(self.counts.deepest, node.depth)
        self.run.count(1)
        if node.depth == 0:
            self.counts.root_bound = bound
            self.counts.root_gap = relative_gap(self.run.value, bound)

    def _split(
        self, node: _Node, bound: float, copies: Array, multipliers: Multipliers
    ) -> None:
        at = branching(node.domain, copies, self.units)
        children = parts(node.domain, *at, self.problem.domain)
        if not children:
            self.boxes.close(bound)
        for child in children:
            self.boxes.push(
                _Node(child, self.bounds, bound, node.depth + 1, multipliers)
            )

    def _heuristic(self, copy: Array) -> None:
        """Maximize the first member near its copy; the value is the ensemble's."""
        reach = self.config.heuristic
        if reach <= 0 or self.run.ended() is not None:
            return
        whole, widths = self.problem.domain, self.problem.domain.widths
        near_copy = whole.within(
            np.clip(copy - reach * widths, whole.lower, whole.upper),
            np.clip(copy + reach * widths, whole.lower, whole.upper),
        )
        first = self._parts(domain=near_copy)[0]
        near = Subproblem(first, known_bounds(first, self.bounds, 0, self.mixed))
        answers = self._solve([near], math.inf)
        if answers is not None and answers[0].x is not None:
            offer(self.run, answers[0].x)

    def _whole(self, node: _Node) -> Answer | None:
        """A small box as one model of the whole ensemble."""
        answer = solve_whole(self.run, self.config.whole, node, self.config.gap_share)
        self.counts.subproblems += answer is not None
        return answer

    def _reverted(self, node: _Node, bound: float) -> None:
        self.counts.reversions += 1
        self._count(node, bound)
