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
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.domain import Domain
from ennopt.milp.formulation import big_m
from ennopt.milp.highs import HotLp
from ennopt.milp.model import MilpStatus
from ennopt.network import Array, Ensemble, Network
from ennopt.paper.multipliers import (
    Multipliers,
    StepRule,
    Subgradient,
    improve,
)
from ennopt.paper.subproblems import (
    ByMilp,
    Piece,
    SubproblemSolver,
    Work,
    begin,
    solve_all,
)
from ennopt.problem import Problem
from ennopt.result import Result, Status
from ennopt.run import SOUNDNESS_SLACK, Run, Tools
from ennopt.tightening.relaxation import Crown

NARROWEST = 2.0**-40
"""Boxes narrower than this share of the domain are not split."""

AGREEMENT = 1e-6
"""Copies this close, in scaled units, agree: splitting between them leads nowhere."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """The paper's units: each input in [0, 1], the prediction in units of its spread.

    Parameters
    ----------
    lower, width
        Of the feasible box, (num_inputs,).
    unit
        Of the prediction.
    """

    lower: Array
    width: Array
    unit: float

    @classmethod
    def of(cls, problem: Problem, unit: float | None, seed: int = 0) -> Scaling:
        """Units of a problem; without `unit`, the spread of random predictions."""
        domain = problem.domain
        if unit is None:
            rng = np.random.default_rng(seed)
            values = problem.values(domain.sample(1000, rng))
            unit = float(np.ptp(values)) or 1.0
        return cls(domain.lower, domain.widths, unit)

    def inputs(self, x: Array) -> Array:
        """Points in scaled units; an input of no width is 0."""
        width = np.where(self.width > 0, self.width, 1.0)
        return np.where(self.width > 0, (x - self.lower) / width, 0.0)

    def costs(self, scaled: Array) -> Array:
        """Linear costs for the inputs as they are, from costs in scaled units."""
        width = np.where(self.width > 0, self.width, 1.0)
        return np.where(self.width > 0, scaled * (self.unit / width), 0.0)

    def scaled_costs(self, costs: Array) -> Array:
        """The inverse of `costs`."""
        return costs * (self.width / self.unit)


def member_problems(problem: Problem, domain: Domain, costs: Array) -> list[Problem]:
    """The relaxation on `domain`: for each member, its prediction plus its cost.

    Parameters
    ----------
    problem
        Canonical.
    domain
        The box of a node.
    costs
        Linear cost of each member's copy, (num_members, num_inputs).
    """
    ensemble = problem.ensemble
    return [
        Problem(
            Ensemble(
                (member, Network((cost[None],), (np.zeros(1),))),
                weights=np.array([weight, 1.0]),
                input_names=ensemble.input_names,
            ),
            domain,
        )
        for member, weight, cost in zip(
            ensemble.members, ensemble.weights, costs, strict=True
        )
    ]


def lagrangian_bound(bounds: Sequence[float], costs: Array, domain: Domain) -> float:
    """Bound of the ensemble on `domain` from bounds of the member problems.

    At one common point the costs add up to nothing, but for rounding, which is
    charged here.
    """
    total = np.array([math.fsum(column) for column in costs.T])
    reach = np.maximum(np.abs(domain.lower), np.abs(domain.upper))
    sizes = math.fsum(abs(bound) for bound in bounds)
    rounding = 4.0 * len(bounds) * 2.0**-53 * sizes
    return math.fsum(bounds) + float(np.abs(total) @ reach) + rounding


def known_bounds(problem: Problem, bounds: NeuronBounds, i: int) -> NeuronBounds:
    """Bounds of member i and, after it, of the linear cost beside it.

    Parameters
    ----------
    problem
        Of `member_problems`.
    bounds
        Of the whole ensemble, valid on the problem's box.
    i
        The member.
    """
    cost = Ensemble((problem.ensemble.members[1],), weights=np.ones(1))
    beside = Crown().tighten(cost, problem.domain)
    return NeuronBounds(
        (bounds.lower[i], beside.lower[0]), (bounds.upper[i], beside.upper[0])
    )


def branching(domain: Domain, copies: Array, scaling: Scaling) -> tuple[int, float]:
    """Input with the largest disagreement, and the middle between its extreme copies.

    Where the copies agree, the middle of the widest side.

    Parameters
    ----------
    domain
        The box of the node.
    copies
        Maximizers of the members in it, (num_members, num_inputs).
    scaling
        Units in which inputs are compared.
    """
    high, low = copies.max(axis=0), copies.min(axis=0)
    disagreement = scaling.inputs(high) - scaling.inputs(low)
    j = int(np.argmax(disagreement))
    if disagreement[j] > AGREEMENT:
        at = float(0.5 * (high[j] + low[j]))
        if domain.lower[j] < at < domain.upper[j]:
            return j, at
    sides = scaling.inputs(domain.upper) - scaling.inputs(domain.lower)
    j = int(np.argmax(sides))
    return j, float(0.5 * (domain.lower[j] + domain.upper[j]))


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    domain: Domain
    bound: float
    depth: int
    multipliers: Multipliers | None = None


@dataclass(slots=True)
class _Counts:
    """What the paper's Table 5 reports of Phase Two."""

    nodes: int = 0
    depth: int = 0
    deepest: int = 0
    reversions: int = 0
    subproblems: int = 0
    failures: int = 0
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
            "phase_two_failures": self.failures,
            "big_m_reversions": self.reversions,
            "subgradient_relaxations": self.relaxations,
            "phase_two_root_bound": self.root_bound,
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
    >>> from ennopt.run import Tools
    >>> nets = [Network([[[1.0]], [[s]]], [[0.5], [0.0]]) for s in (1.0, -0.5)]
    >>> problem = Problem(Ensemble(nets), Domain([-1.0], [1.0]))
    >>> LagrangianSearch().solve(problem, Tools()).value
    0.375
    """

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
    gap_share: float = 0.25
    accuracy: float = 0.0
    member_nodes: float = math.inf
    output_unit: float | None = None
    patience: int = 5

    def __post_init__(self) -> None:
        for name in ("rounds", "root_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"Expected {name} >= 1, got {getattr(self, name)}: a node needs "
                    "a bound."
                )

    def solve(self, problem: Problem, tools: Tools) -> Result:
        """Run the search alone, with linear relaxations as its neuron bounds."""
        status = None
        with tools.start(problem, self) as run:
            run.libraries += sorted({"highspy", *self.packages()})
            bounds = Crown().tighten(problem.ensemble, problem.domain)
            begin(run, bounds)
            status = self.search(run, bounds)
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
        scaling = Scaling.of(run.problem, self.output_unit, run.tools.seed)
        search = _Search(self, run, bounds, scaling)
        try:
            with run.phase("subgradient"):
                search.improve()
            with run.phase("phase_two"):
                return search.explore()
        finally:
            run.details.update(search.counts.as_details())

    def halve(self, run: Run, bounds: NeuronBounds) -> Status | None:
        """Search without multipliers: whole models on smaller and smaller boxes."""
        scaling = Scaling.of(run.problem, 1.0)
        search = _Search(replace(self, revert=math.inf), run, bounds, scaling)
        try:
            return search.explore()
        finally:
            run.details["halved_boxes"] = search.counts.nodes


class _Search:
    """The state of one Phase Two: the tree, the multipliers, the counts."""

    def __init__(
        self, config: LagrangianSearch, run: Run, bounds: NeuronBounds, scaling: Scaling
    ) -> None:
        self.config, self.run, self.bounds = config, run, bounds
        self.problem, self.scaling = run.problem, scaling
        self.counts = _Counts()
        self.closed = -math.inf  # largest bound of a node that is done
        self.tree: list[tuple[float, int, _Node]] = []
        self.order = itertools.count()
        self.failed = 0  # nodes in a row without any answer
        ensemble = run.problem.ensemble
        self.multipliers = Multipliers.zero(ensemble.num_members, ensemble.num_inputs)

    # The multipliers.

    def improve(self) -> None:
        """The updates before the search: the paper's subgradient algorithm."""
        run, config = self.run, self.config
        if self.problem.ensemble.num_members < 2 or run.x is None:
            return
        if config.from_gradients:
            self.multipliers = self._equal_slopes(run.x)
        if config.multipliers.steps < 1:
            return
        fixed = config.fix_binaries
        maximize = self._fixed_copies() if fixed else self._relaxed_copies
        last, best, solved = improve(
            config.multipliers, self.multipliers, maximize,
            run.value / self.scaling.unit,
        )  # fmt: skip
        self.counts.relaxations = solved
        # The value with fixed binaries bounds nothing, so it cannot name the best.
        self.multipliers = last if fixed else best

    def _equal_slopes(self, x: Array) -> Multipliers:
        ensemble = self.problem.ensemble
        slopes = np.stack([m.gradient(x)[0] for m in ensemble.members])
        slopes = slopes * ensemble.weights[:, None]
        costs = slopes.mean(axis=0) - slopes
        return Multipliers(-self.scaling.scaled_costs(costs[1:]))

    def _relaxed_copies(self, costs: Array) -> tuple[Array, float] | None:
        if self.run.ended() is not None:
            return None
        relaxed = self._relax(self.problem.domain, costs, self.run.bound)
        if relaxed is None or not math.isfinite(relaxed[1]):
            return None
        copies, bound = relaxed
        if bound < self.run.bound:
            self.run.prove(bound)
        return self.scaling.inputs(copies), bound / self.scaling.unit

    def _fixed_copies(self) -> Any:
        """Relaxations with the binaries of the incumbent: one linear program each."""
        run = self.run
        assert run.x is not None
        programs = []
        ensemble = self.problem.ensemble
        for i, member in enumerate(ensemble.members):
            alone = Ensemble((member,), weights=ensemble.weights[i : i + 1])
            made = big_m(alone, self.problem.domain, self.bounds.member(i))
            binaries = made.binaries
            lower, upper = made.model.lower.copy(), made.model.upper.copy()
            at = made.assignment(run.x)
            lower[binaries] = upper[binaries] = at[binaries]
            model = made.model.with_column_bounds(lower, upper)
            programs.append((made, model, HotLp(model)))

        def maximize(scaled: Array) -> tuple[Array, float] | None:
            costs = self.scaling.costs(scaled)
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
            return self.scaling.inputs(np.array(copies)), total / self.scaling.unit

        return maximize

    # The relaxation of a node.

    def _relax(
        self, domain: Domain, scaled: Array, known: float
    ) -> tuple[Array, float] | None:
        """Maximizers of the members and the bound of the ensemble on `domain`."""
        costs = self.scaling.costs(scaled)
        problems = member_problems(self.problem, domain, costs)
        pieces = self._solve(
            [
                Work(problem, known_bounds(problem, self.bounds, i))
                for i, problem in enumerate(problems)
            ],
            self.config.members,
            known,
        )
        if pieces is None:
            return None
        bound = lagrangian_bound([p.bound for p in pieces], costs, domain)
        bound = self._believed(domain, bound)
        centre = 0.5 * (domain.lower + domain.upper)
        copies = np.array([centre if p.x is None else p.x for p in pieces])
        return copies, bound

    def _solve(
        self, works: list[Work], solver: SubproblemSolver, bound: float
    ) -> list[Piece] | None:
        """Solve subproblems of a node with this bound."""
        run = self.run
        slack = self.config.gap_share * run.tolerance()
        if math.isfinite(bound - run.value):
            slack = max(slack, self.config.accuracy * (bound - run.value))
        most = self.config.member_nodes if math.isfinite(bound) else math.inf
        pieces = solve_all(run, solver, works, slack / len(works), most)
        if pieces is None:
            return None
        self.counts.subproblems += len(pieces)
        run.count(sum(piece.nodes for piece in pieces))
        for piece in pieces:
            if piece.failure:
                self.counts.failures += 1
                note = f"A subproblem of Phase Two failed: {piece.failure}"
                if note not in run.notes:
                    run.notes.append(note)
        lost = all(piece.failure for piece in pieces)
        self.failed = self.failed + 1 if lost else 0
        return pieces

    def _believed(self, domain: Domain, bound: float) -> float:
        """The bound of a box, unless the best point lies in the box and beats it."""
        run = self.run
        slack = SOUNDNESS_SLACK * max(1.0, abs(run.value))
        if run.x is None or bound >= run.value - slack or not domain.contains(run.x):
            return bound
        self.counts.failures += 1
        note = "A bound of a solver was beaten by a known point and not used."
        if note not in run.notes:
            run.notes.append(note)
        return math.inf

    # The tree.

    def explore(self) -> Status | None:
        """Best-first branch and bound on the inputs."""
        run = self.run
        self._push(_Node(self.problem.domain, run.bound, 0, self.multipliers))
        while self.tree:
            if run.ended() is not None or self._gave_up():
                return None
            node = heapq.heappop(self.tree)[2]
            if node.bound <= run.value + run.tolerance():
                self.closed = max(self.closed, node.bound)
                break  # the largest bound that was open
            if not self._explore(node):
                self._push(node)  # no time left for it: it stays open
                return None
            run.prove(self._bound())
            run.tick()
        run.prove(self._bound())
        if run.ended() is not None:
            return None
        run.notes.append("The gap asked for is below what the solver can prove.")
        return Status.OPTIMAL

    def _gave_up(self) -> bool:
        if self.failed < self.config.patience:
            return False
        self.run.notes.append(
            f"Phase Two ended after {self.failed} nodes in a row without an answer of "
            "the solver; the bound is what was proved before."
        )
        self.run.interrupt()
        return True

    def _bound(self) -> float:
        top = -self.tree[0][0] if self.tree else -math.inf
        return max(self.closed, top, self.run.value)

    def _push(self, node: _Node) -> None:
        heapq.heappush(self.tree, (-node.bound, next(self.order), node))

    def _explore(self, node: _Node) -> bool:
        """Bound a node and close or split it; false if there was no time to."""
        run, config = self.run, self.config
        sides = self.scaling.inputs(node.domain.upper)
        sides = sides - self.scaling.inputs(node.domain.lower)
        alone = self.problem.ensemble.num_members < 2
        if alone or np.all(sides <= config.revert):
            return self._revert(node)
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
            if reached < bound or copies is None:
                best, copies = at, points
            bound = min(bound, reached)
            excess = (reached - run.value) / self.scaling.unit
            self.multipliers = config.multipliers.update(
                at, self.scaling.inputs(points), excess
            )
            if bound <= run.value + run.tolerance() or run.ended() is not None:
                break
        if copies is None:
            return False
        self._count(node, bound)
        if bound > run.value + run.tolerance():
            self._heuristic(node.domain, copies[0])
        if bound <= run.value + run.tolerance():
            self.closed = max(self.closed, bound)
            return True
        self._split(node, bound, copies, best)
        return True

    def _count(self, node: _Node, bound: float) -> None:
        self.counts.nodes += 1
        self.counts.depth += node.depth
        self.counts.deepest = max(self.counts.deepest, node.depth)
        self.run.count(1)
        if node.depth == 0:
            self.counts.root_bound = bound
            value = self.run.value
            self.counts.root_gap = abs(bound - value) / max(abs(value), 1e-10)

    def _split(
        self, node: _Node, bound: float, copies: Array, multipliers: Multipliers
    ) -> None:
        j, at = branching(node.domain, copies, self.scaling)
        side = node.domain.widths[j]
        if side <= NARROWEST * self.problem.domain.widths[j]:
            self.closed = max(self.closed, bound)  # nothing left to split
            return
        for child in node.domain.split(j, at):
            self._push(_Node(child, bound, node.depth + 1, multipliers))

    def _heuristic(self, domain: Domain, copy: Array) -> None:
        """Maximize the first member near its copy; the value is the ensemble's."""
        reach = self.config.heuristic
        if reach <= 0 or self.run.ended() is not None:
            return
        whole = self.problem.domain
        box = Domain(
            whole.repair(copy - reach * self.scaling.width),
            whole.repair(copy + reach * self.scaling.width),
            domain.names,
        )
        ensemble = self.problem.ensemble
        first = Ensemble(
            ensemble.members[:1], weights=ensemble.weights[:1],
            input_names=ensemble.input_names,
        )  # fmt: skip
        work = Work(Problem(first, box), self.bounds.member(0))
        pieces = self._solve([work], self.config.members, math.inf)
        if pieces is not None and pieces[0].x is not None:
            self.run.offer(pieces[0].x)

    def _revert(self, node: _Node) -> bool:
        """Solve a small box as one model of the whole ensemble."""
        run = self.run
        work = Work(Problem(self.problem.ensemble, node.domain), self.bounds)
        pieces = self._solve([work], self.config.whole, math.inf)
        if pieces is None:
            return False
        self.counts.reversions += 1
        (piece,) = pieces
        if piece.x is not None:
            run.offer(piece.x)
        bound = min(node.bound, self._believed(node.domain, piece.bound))
        self._count(node, bound)
        if bound <= run.value + run.tolerance():
            self.closed = max(self.closed, bound)
        elif run.ended() is None:  # it stopped early: halves are easier
            copies = node.domain.lower[None].repeat(2, axis=0)
            self._split(node, bound, copies, self.multipliers)
        else:
            self._push(_Node(node.domain, bound, node.depth, node.multipliers))
        return True
