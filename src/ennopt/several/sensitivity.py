"""How much an answer rests on single members: the optimum without each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from ennopt.met import Met, limits_at
from ennopt.network import Array, Ensemble, shown
from ennopt.problem import Combination, Problem, Sense
from ennopt.question import Posed, Question, Words
from ennopt.result import Result, Status
from ennopt.several.series import Series, Told, frame_of, known


@dataclass(frozen=True, slots=True, eq=False)
class Without:
    """What is best without one member.

    Parameters
    ----------
    model, member
        The prediction's name and the number of the member, from 0 on.
    result
        The answer of the decision without that member.
    value
        What the decision without that member makes of the whole ensemble's answer.
    missed
        Limits that the whole ensemble's answer misses without that member.
    """

    model: str
    member: int
    result: Result
    value: float
    missed: tuple[Met, ...] = ()

    @property
    def regret(self) -> float:
        """What the whole ensemble's answer loses against the best one found here.

        Infinite if that answer misses a limit, or if nothing is feasible here.
        """
        return self._loss(self.result.value)

    @property
    def regret_bound(self) -> float:
        """What the regret is proved not to exceed."""
        return self._loss(self.result.bound)

    def _loss(self, best: float) -> float:
        if self.missed or self.result.x is None:
            return math.inf
        sign = 1.0 if self.result.sense == "max" else -1.0
        return max(0.0, sign * (best - self.value))


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity(Told):
    """What `sensitivity` returns.

    Parameters
    ----------
    answer
        Of the whole ensembles.
    rows
        The decision without each member.
    moved
        How far the answer moves without each member: the largest change of an input as
        a share of its range, (num_rows,).
    status
        `OPTIMAL` if every run is proved, or why the work ended early.
    nodes, seconds
        Of all runs together.
    """

    answer: Result
    rows: tuple[Without, ...]
    moved: Array
    status: Status
    nodes: int = 0
    seconds: float = 0.0

    @property
    def most(self) -> Without | None:
        """The member without which the answer loses most."""
        return max(self.rows, key=lambda row: row.regret, default=None)

    def to_frame(self) -> Any:
        """A DataFrame with a row for each member that is left out."""
        return frame_of(self._plain())

    def _plain(self) -> list[dict[str, Any]]:
        return [
            {
                "model": row.model,
                "member": row.member,
                "value": row.result.value,
                "bound": row.result.bound,
                "value_of_answer": row.value,
                "regret": row.regret,
                "regret_bound": row.regret_bound,
                "moved": float(moved),
                "status": row.result.status.value,
                "missed": [met.text for met in row.missed],
            }
            for row, moved in zip(self.rows, self.moved, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `to_json` writes it; infinite numbers are ``None``."""
        return {
            "status": self.status.value,
            "answer": self.answer.to_dict(),
            "without": [
                {k: known(e) if isinstance(e, float) else e for k, e in row.items()}
                | {"x": own.result.to_dict()["x_by_name"]}
                for row, own in zip(self._plain(), self.rows, strict=True)
            ],
            "nodes": self.nodes,
            "seconds": self.seconds,
        }

    def summary(self) -> str:
        """The answer, and a line for each member that is left out."""
        lines = [self.answer.headline]
        if self.answer.x is None:
            return lines[0]
        lines.append(
            f"  {len(self.rows)} runs without one member each, {self.seconds:.2f} s "
            f"and {self.nodes:,} nodes in all"
        )
        heads = ("without", "best there", "this answer", "regret", "moves by", "")
        table = [heads]
        for row, moved in zip(self.rows, self.moved, strict=True):
            table.append(
                (
                    f"{shown(row.model)}, member {row.member + 1}",
                    f"{row.result.value:.6g}" if row.result.x is not None else "-",
                    f"{row.value:.6g}",
                    f"{row.regret:.3g}" if math.isfinite(row.regret) else "-",
                    f"{100 * moved:.0f}%" if math.isfinite(moved) else "-",
                    _told(row),
                )
            )
        widths = [max(len(line[k]) for line in table) for k in range(len(heads))]
        for line in table:
            cells = [line[0].ljust(widths[0])]
            cells += [c.rjust(w) for c, w in zip(line[1:5], widths[1:5], strict=True)]
            lines.append(f"  {'  '.join([*cells, line[5]])}".rstrip())
        lines.append(
            "  regret: what this answer loses against the best one without the member"
        )
        return "\n".join(lines)


def _told(row: Without) -> str:
    """What is to be said of a row beside its numbers."""
    if row.result.status is Status.INFEASIBLE:
        return "infeasible without it"
    if row.missed:
        met = row.missed[0]
        return f"this answer misses {shown(met.text)}: {met.value:.6g}"
    return "" if row.result.proved else row.result.status.value


def sensitivity(
    model: Any, domain: Any = None, *, sense: Sense = "max", **said: Unpack[Words]
) -> Sensitivity:
    """Solve a decision again without each member of its ensembles.

    Parameters
    ----------
    model, domain
        As `ennopt.maximize` takes them; at least one ensemble has several members.
    sense
        ``"max"`` or ``"min"``.
    said
        Keywords of `ennopt.maximize`. Limits on time and nodes are those of all runs
        together.

    Returns
    -------
    Sensitivity
        With the optimum without each member, and the regret: what the answer of the
        whole ensemble loses there. The other members' weights grow, so that their sum
        stays.

    Examples
    --------
    >>> from ennopt import Network, sensitivity
    >>> falling, rising = (Network([[[k]]], [[0.0]]) for k in (-1.0, 3.0))
    >>> report = sensitivity([falling, rising], (0, 1))
    >>> [round(row.regret, 6) for row in report.rows]
    [0.0, 1.0]
    """
    return leave_members_out(Question.of([(model, sense)], domain, said, "sensitivity"))


def leave_members_out(question: Question) -> Sensitivity:
    """The answer of a question without each member; see `sensitivity`."""
    posed = question.posed()
    ensembles: dict[int, tuple[str, Ensemble]] = {}
    for one in posed.models:
        if len(one.ensemble.members) > 1:
            ensembles.setdefault(id(one.ensemble), (one.name, one.ensemble))
    if not ensembles:
        raise ValueError(
            "Expected an ensemble of at least two networks, got one network. There is "
            "no member to leave out."
        )
    series = Series(posed, question.running)
    runs = 1 + sum(len(ensemble.members) for _, ensemble in ensembles.values())
    answer = series.solve(posed.problem, posed.start, share=1.0 / runs)
    rows: list[Without] = []
    for name, ensemble in ensembles.values():
        for i in range(len(ensemble.members)):
            if answer.x is None or series.spent:
                break
            left = max(1, runs - series.runs)
            rows.append(_without(posed, series, answer, name, ensemble, i, 1.0 / left))
    results = [answer, *(row.result for row in rows)]
    sure = (Status.OPTIMAL, Status.INFEASIBLE)
    status = next((r.status for r in results if r.status not in sure), Status.OPTIMAL)
    if answer.x is None:
        status = answer.status
    elif len(rows) < runs - 1 and status is Status.OPTIMAL:
        status = Status.INTERRUPTED if series.interrupted else Status.TIME_LIMIT
    moved = np.array([_moved(answer, row.result, posed) for row in rows])
    return Sensitivity(answer, tuple(rows), moved, status, series.nodes, series.seconds)


def _without(
    posed: Posed, series: Series, answer: Result, name: str, ensemble: Ensemble, i: int,
    share: float,
) -> Without:  # fmt: skip
    """The decision without a member."""
    problem = _on(posed.problem, _leaving_out(ensemble, i))
    x = np.asarray(answer.x)
    missed = tuple(
        met
        for met in limits_at(problem, x)
        if not met.least - _slack(met.least) <= met.value <= met.most + _slack(met.most)
    )
    known = None if missed else x
    result = series.solve(problem, known, share=share)
    return Without(name, i, result, float(problem.values(x[None])[0]), missed)


def _slack(end: float) -> float:
    """What a limit may be missed by and count as met."""
    return 1e-9 * abs(end) if math.isfinite(end) else 0.0


def _leaving_out(ensemble: Ensemble, i: int) -> Callable[[Ensemble], Ensemble]:
    """A function that takes a member out of this ensemble, and leaves others alone."""
    kept = [k for k in range(len(ensemble.members)) if k != i]
    weights = ensemble.weights[kept]
    total = float(weights.sum())
    if total:
        weights = weights * (float(ensemble.weights.sum()) / total)
    own = replace(
        ensemble, members=tuple(ensemble.members[k] for k in kept), weights=weights
    )
    return lambda other: own if other is ensemble else other


def _on(problem: Problem, change: Callable[[Ensemble], Ensemble]) -> Problem:
    """The problem with other ensembles."""

    def changed(function: Combination) -> Combination:
        terms = tuple(replace(t, ensemble=change(t.ensemble)) for t in function.terms)
        return replace(function, terms=terms)

    limits = tuple(
        replace(one, function=changed(one.function)) for one in problem.limits
    )
    return Problem(
        change(problem.ensemble), problem.domain, problem.sense, problem.output,
        changed(problem.goal), limits,
    )  # fmt: skip


def _moved(answer: Result, other: Result, posed: Posed) -> float:
    """The largest change of an input, as a share of its range."""
    if answer.x is None or other.x is None:
        return math.nan
    widths = posed.problem.domain.widths
    off = np.abs(answer.x - other.x)[widths > 0.0] / widths[widths > 0.0]
    return float(off.max(initial=0.0))
