"""What each kind of feasible set costs, relative to the plain box on the same ensemble.

``python benchmarks/sets.py FOLDER --out benchmarks/sets.md`` solves the ensembles of
the folder (files of the instance library, ``problem_e3_L2_n20_r0.npz``) over their box
and over sets inside it, one thread, gap 1e-4, and writes nodes and seconds. Runs that
the limits end show their gap.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np

import ennopt
from ennopt.domain import Domain, Group, NearRows, Rows, Values

ENSEMBLES = (
    "peaks_e3_L2_n20", "beale_e3_L2_n20", "perm_e3_L2_n20", "spring_e3_L2_n20",
    "concrete_e3_L2_n20", "concrete_e5_L2_n20", "concrete_e3_L2_n40",
    "wine_e3_L2_n20", "wine_e5_L2_n20",
    "perm_e3_L4_n20", "spring_e3_L4_n20", "concrete_e3_L4_n20",
)  # fmt: skip


def rows(rng, box, best, count, equations=0):
    """Half-spaces that cut off the best point of the box, half-way to its middle."""
    widths = box.upper - box.lower
    at = 0.5 * (best + box.centre)
    matrix = rng.normal(size=(count, box.num_inputs)) / widths
    matrix *= np.where(matrix @ (best - at) < 0.0, -1.0, 1.0)[:, None]
    most = matrix @ at
    least = np.full(count, -np.inf)
    least[:equations] = most[:equations]
    return Rows(matrix, least, most)


def whole(box, inputs, steps=10):
    """Some inputs in whole steps: the box is stretched so that each has so many."""
    return Values.of(
        box.num_inputs,
        lists={j: np.linspace(box.lower[j], box.upper[j], steps + 1) for j in inputs},
    )


def sets(box, best, seed=0):
    """Name and domain of each kind of set."""
    rng = np.random.default_rng(seed)
    d, ends = box.num_inputs, (box.lower, box.upper)
    some = range(min(3, d))
    yield "3 rows", Domain(*ends, rows=rows(rng, box, best, 3))
    yield "5 rows", Domain(*ends, rows=rows(rng, box, best, 5))
    yield "an equation", Domain(*ends, rows=rows(rng, box, best, 1, 1))
    yield "lists of 11 values, 3 inputs", Domain(*ends, values=whole(box, some))
    yield "lists of 11 values, all", Domain(*ends, values=whole(box, range(d)))
    data = box.sample(1000, rng)
    for radius in (0.05, 0.1, 0.2):
        near = NearRows.rows(data, radius * (box.upper - box.lower))
        yield f"near 1 of 1,000 rows, {radius}", Domain(*ends, regions=(near,))
    near = NearRows.rows(data, 0.1 * (box.upper - box.lower), count=3)
    yield "near 3 of 1,000 rows, 0.1", Domain(*ends, regions=(near,))


def with_category(ensemble, levels=6):
    """The ensemble with its first input given by a category of so many levels."""
    lower, upper = ensemble.lower, ensemble.upper
    worth = np.linspace(lower[0], upper[0], levels)
    members = []
    for member in ensemble.members:
        first = member.weights[0]
        coded = np.concatenate([first[:, :1] * worth, first[:, 1:]], axis=1)
        members.append(ennopt.Network((coded, *member.weights[1:]), member.biases))
    d = levels + len(lower) - 1
    low = np.concatenate([np.zeros(levels), lower[1:]])
    high = np.concatenate([np.ones(levels), upper[1:]])
    names = tuple(str(k) for k in range(levels))
    group = Group("first", tuple(range(levels)), names)
    domain = Domain(low, high, values=Values.of(d, range(levels)), groups=(group,))
    return ennopt.Ensemble(members, weights=ensemble.weights), domain


def solve(ensemble, domain, options):
    start = time.perf_counter()
    result = ennopt.maximize(
        ensemble, domain, method=ennopt.BoxSearch(), threads=1,
        node_limit=options.nodes, time_limit=options.seconds,
    )  # fmt: skip
    return result, time.perf_counter() - start


def cell(result, seconds, box=None):
    if result.status is ennopt.Status.INFEASIBLE:
        return f"empty, {result.nodes:,}"
    told = f"{result.nodes:,}"
    if box is not None:
        told += f" ({result.nodes / box:.2f})"
    told += f" {seconds:.2f} s"
    if result.status is not ennopt.Status.OPTIMAL:
        gap = math.inf if result.x is None else result.gap
        told += f", gap {gap:.1%}"
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=ENSEMBLES)
    parser.add_argument("--nodes", type=float, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines, head = [], None
    for name in options.only:
        ensemble = ennopt.load(options.folder / f"{name}_r0.npz")
        box = Domain(ensemble.lower, ensemble.upper)
        plain, seconds = solve(ensemble, box, options)
        row = {"ensemble": name, "box": cell(plain, seconds)}
        for kind, domain in sets(box, np.asarray(plain.x)):
            row[kind] = cell(*solve(ensemble, domain, options), plain.nodes)
        row["category of 6 levels"] = cell(
            *solve(*with_category(ensemble), options), plain.nodes
        )
        if head is None:
            head = list(row)
            lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
            print("\n".join(lines), flush=True)
        lines.append("| " + " | ".join(row.values()) + " |")
        print(lines[-1], flush=True)
    if options.out is not None:
        limits = f"{options.nodes:,.0f} nodes and {options.seconds:g} s each"
        body = [
            "# What each kind of feasible set costs",
            "",
            f"Nodes (relative to the box) and seconds; at most {limits}.",
            "",
        ]
        options.out.write_text("\n".join([*body, *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
