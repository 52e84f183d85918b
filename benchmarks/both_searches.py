"""Branching on inputs beside branching on neurons, for the rule of `method="auto"`.

``python benchmarks/both_searches.py --out benchmarks/both_searches.md`` makes random
ensembles of three members (two hidden layers of ten neurons, as in `many_inputs.py`),
and states one decision of each kind on them: constraints, whole numbers, limits, risks,
regions around data. Both searches solve it, on one thread. A cell tells nodes and
seconds of a proof, or the gap that is left.
"""

import argparse
import platform
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from many_inputs import network

import ennopt
from ennopt.domain import Domain, Ellipsoid, Hull, NearRows, Rows, Values
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.network import Ensemble
from ennopt.problem import Combination, Limit, Problem, Term
from ennopt.result import Limits, Result
from ennopt.run import Tools

INPUTS = (4, 8, 12, 16, 20)
MEMBERS, LAYERS, WIDTH = 3, 2, 10
ROWS_OF_DATA = 200
RISKS = {
    "worst member": ennopt.risk.Worst(),
    "CVaR 0.5": ennopt.risk.Cvar(0.5),
    "mean - std": ennopt.risk.MeanMinusStd(1.0),
    "mean - MAD": ennopt.risk.MeanMinusMad(1.0),
}
METHODS = {"boxes": BoxSearch(), "neurons": NeuronSearch()}


@dataclass(frozen=True)
class Draw:
    """A random ensemble with another one, and rows of data in their box."""

    ensemble: Ensemble
    other: Ensemble
    data: np.ndarray
    rng: np.random.Generator

    @classmethod
    def of(cls, inputs: int) -> "Draw":
        rng = np.random.default_rng(zlib.crc32(f"both{inputs}".encode()))
        box = {"lower": -np.ones(inputs), "upper": np.ones(inputs)}
        ensembles = [
            Ensemble(
                [network(inputs, LAYERS, WIDTH, rng) for _ in range(MEMBERS)], **box
            )
            for _ in range(2)
        ]
        # Inputs that depend on three others, as measured inputs do.
        hidden = rng.normal(size=(ROWS_OF_DATA, 3)) @ rng.normal(size=(3, inputs))
        data = np.tanh(0.5 * hidden + 0.3 * rng.normal(size=hidden.shape))
        return cls(*ensembles, data, rng)

    def decisions(self) -> dict[str, Problem]:
        d = self.ensemble.num_inputs
        box = Domain(-np.ones(d), np.ones(d))

        def problem(domain=box, risk=None, limits=()):
            goal = Combination((Term(self.ensemble, 1.0, risk=risk),), np.zeros(d), 0.0)
            return Problem(self.ensemble, domain, "max", None, goal, limits)

        matrix = self.rng.normal(size=(3, d))
        rows = Rows(matrix, np.full(3, -np.inf), 0.3 * np.abs(matrix).sum(axis=1))
        rowed = Domain(-np.ones(d), np.ones(d), rows=rows)
        whole = Domain(
            np.full(d, -1.0), np.ones(d), values=Values.of(d, whole=range(d // 2))
        )
        other = Combination((Term(self.other, 1.0),), np.zeros(d), 0.0)
        each = replace(
            other, terms=(Term(self.other, 1.0, risk=RISKS["worst member"]),)
        )
        at = box.sample(2000, self.rng)
        least, worst = (float(np.quantile(f.values(at), 0.9)) for f in (other, each))
        near = NearRows.rows(self.data, np.full(d, 0.15))
        return {
            "box": problem(),
            "3 rows": problem(rowed),
            "half whole": problem(whole),
            "limit": problem(limits=(Limit(other, least),)),
            "limit on each member": problem(limits=(Limit(each, worst),)),
            **{name: problem(risk=risk) for name, risk in RISKS.items()},
            "worst, limit, 3 rows": problem(
                rowed, RISKS["worst member"], (Limit(other, least),)
            ),
            "near data": problem(replace(box, regions=(near,))),
            "hull": problem(replace(box, convex=(Hull(self.data),))),
            "ellipsoid": problem(replace(box, convex=(Ellipsoid.of(self.data, 2.0),))),
        }


def told(result: Result) -> str:
    if result.status.value in ("optimal", "infeasible"):
        return f"{result.nodes:,} ({sum(result.seconds.values()):.1f} s)"
    if result.x is None:
        return f"no value ({result.nodes:,})"
    return f"{100 * result.gap:.2g}% left ({result.nodes:,})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--inputs", type=int, nargs="*", default=INPUTS)
    args = parser.parse_args()
    cells: dict[tuple[str, int, str], str] = {}
    kinds: list[str] = []
    for d in args.inputs:
        decisions = Draw.of(d).decisions()
        kinds = list(decisions)
        for kind, problem in decisions.items():
            for name, method in METHODS.items():
                tools = Tools(Limits(seconds=args.seconds), threads=1)
                cells[kind, d, name] = told(method.solve(problem, tools))
            print(d, kind, *(cells[kind, d, name] for name in METHODS), flush=True)
    lines = [
        "# Both searches on all kinds of decisions",
        "",
        f"Random ensembles of {MEMBERS} members, {LAYERS} x {WIDTH} neurons each.",
        "Nodes and seconds of a proof, or the gap and the nodes after",
        f"{args.seconds:g} s, one thread, on a {platform.machine()} machine that",
        "others used, too. In each cell branching on inputs, then on neurons.",
        "",
        "| decision | " + " | ".join(f"{d} inputs" for d in args.inputs) + " |",
        "|---" * (1 + len(args.inputs)) + "|",
    ]
    for kind in kinds:
        row = [
            "<br>".join(cells[kind, d, name] for name in METHODS) for d in args.inputs
        ]
        lines.append(f"| {kind} | " + " | ".join(row) + " |")
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
