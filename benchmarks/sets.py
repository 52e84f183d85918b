"""What each kind of feasible set costs, relative to the plain box on the same ensemble.

``python benchmarks/sets.py FOLDER --out benchmarks/sets.md`` solves twelve ensembles of
the instance library (``problem_e3_L2_n20_r0.npz``) over their box and over sets inside
it, on one thread, and writes nodes and seconds as multiples of the box's. Sets that are
drawn at random are drawn several times.
"""

import argparse
import itertools
import math
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ennopt
from ennopt.domain import Domain, Ellipsoid, Group, Hull, NearRows, Rows, Values

ENSEMBLES = (
    "peaks_e3_L2_n20", "beale_e3_L2_n20", "perm_e3_L2_n20", "spring_e3_L2_n20",
    "concrete_e3_L2_n20", "concrete_e5_L2_n20", "concrete_e3_L2_n40",
    "wine_e3_L2_n20", "wine_e5_L2_n20",
    "perm_e3_L4_n20", "spring_e3_L4_n20", "concrete_e3_L4_n20",
)  # fmt: skip

FEW_INPUTS = 5
"""Convex regions have a target up to so many inputs."""

CONVEX_SECONDS = 10.0
"""Most seconds of a convex region with more inputs, which no run proves."""

LEVELS = (6, 4)
"""Of the categories that take the place of the first two inputs."""

EACH = "each of 24 choices by itself"
"""The price of categories, if all choices of their levels are tried one by one."""

TARGETS = {
    "3 rows": 1.5,
    "5 rows": 4.0,
    "lists, 3 inputs": 1.0,
    "lists, all inputs": 1.0,
    "near 1 row, 0.05": 10.0,
    "near 1 row, 0.1": 10.0,
    "hull": 1.0,
    "categories": 0.2,
}
"""Nodes relative to the box's; those of categories
relative to trying each choice by itself."""


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    nodes: int
    seconds: float
    gap: float  # 0 if proved

    def __str__(self):
        if not self.nodes:
            return "not run"
        if not self.gap:
            return f"{self.nodes:,}"
        return f"{self.nodes:,}, gap {float(f'{100 * self.gap:.2g}'):g}%"


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


def listed(box, inputs, count=11):
    """Some inputs take so many values only."""
    ends = {j: (box.lower[j], box.upper[j]) for j in inputs}
    lists = {j: np.linspace(*ends[j], count) for j in inputs}
    return Values.of(box.num_inputs, lists=lists)


def drawn(box, best, seed):
    """Sets that depend on chance: name and domain of each."""
    rng = np.random.default_rng(seed)
    ends = (box.lower, box.upper)
    yield "3 rows", Domain(*ends, rows=rows(rng, box, best, 3))
    yield "5 rows", Domain(*ends, rows=rows(rng, box, best, 5))
    yield "an equation", Domain(*ends, rows=rows(rng, box, best, 1, 1))
    data = box.sample(1000, rng)
    for count, radius in ((1, 0.05), (1, 0.1), (3, 0.1)):
        near = NearRows.rows(data, radius * (box.upper - box.lower), count=count)
        name = f"near {count} row{'s' * (count > 1)}, {radius}"
        yield name, Domain(*ends, regions=(near,))


def fixed(box):
    """The other sets."""
    d, ends = box.num_inputs, (box.lower, box.upper)
    yield "lists, 3 inputs", Domain(*ends, values=listed(box, range(min(3, d))))
    yield "lists, all inputs", Domain(*ends, values=listed(box, range(d)))
    data = box.sample(1000, np.random.default_rng(0))
    yield "hull", Domain(*ends, convex=(Hull(data),))
    yield "mahalanobis", Domain(*ends, convex=(Ellipsoid.of(data, 2.0),))


def with_categories(ensemble):
    """The ensemble with its first two inputs given by categories, and the domain."""
    lower, upper = ensemble.lower, ensemble.upper
    total, count = sum(LEVELS), len(LEVELS)
    code = np.zeros((len(lower), total + len(lower) - count))
    code[count:, total:] = np.eye(len(lower) - count)
    groups, at = [], 0
    for j, levels in enumerate(LEVELS):
        code[j, at : at + levels] = np.linspace(lower[j], upper[j], levels)
        inputs = tuple(range(at, at + levels))
        groups.append(Group(f"first {j}", inputs, tuple(map(str, inputs))))
        at += levels
    members = [
        ennopt.Network((m.weights[0] @ code, *m.weights[1:]), m.biases)
        for m in ensemble.members
    ]
    low = np.concatenate([np.zeros(total), lower[count:]])
    high = np.concatenate([np.ones(total), upper[count:]])
    values = Values.of(low.size, range(total))
    domain = Domain(low, high, values=values, groups=tuple(groups))
    return ennopt.Ensemble(members, weights=ensemble.weights), domain


def solve(ensemble, domain, options, seconds=None):
    """The cost of a run, and where it found its value."""
    start = time.perf_counter()
    result = ennopt.maximize(
        ensemble, domain, method=ennopt.BoxSearch(), threads=1,
        node_limit=options.nodes, time_limit=seconds or options.seconds,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    proved = result.status in (ennopt.Status.OPTIMAL, ennopt.Status.INFEASIBLE)
    gap = 0.0 if proved else math.inf if result.x is None else result.gap
    return Cost(max(result.nodes, 1), seconds, gap), result.x


def choices_one_by_one(coded, domain, options):
    """The sum over all choices of levels."""
    costs = []
    for choice in itertools.product(*(group.inputs for group in domain.groups)):
        low, high = domain.lower.copy(), domain.upper.copy()
        low[: sum(LEVELS)] = high[: sum(LEVELS)] = 0.0
        low[list(choice)] = high[list(choice)] = 1.0
        costs.append(solve(coded, Domain(low, high), options)[0])
    return Cost(
        sum(cost.nodes for cost in costs),
        sum(cost.seconds for cost in costs),
        max(cost.gap for cost in costs),
    )


def costs_of(name, options):
    """Lists of costs by the kind of set, and the number of inputs."""
    ensemble = ennopt.load(options.folder / f"{name}_r0.npz")
    box = Domain(ensemble.lower, ensemble.upper)
    plain, best = solve(ensemble, box, options)
    found = {"box": [plain]}
    for seed in range(options.draws):
        for kind, domain in drawn(box, best, seed):
            found.setdefault(kind, []).append(solve(ensemble, domain, options)[0])
    for kind, domain in fixed(box):
        seconds = options.seconds
        if domain.convex and box.num_inputs > FEW_INPUTS:
            seconds = min(seconds, CONVEX_SECONDS)
        found[kind] = [solve(ensemble, domain, options, seconds)[0]]
    coded, domain = with_categories(ensemble)
    found["categories"] = [solve(coded, domain, options)[0]]
    # Where the box is too hard, so are the choices: 24 runs would end at their limits.
    choices = Cost(0, 0.0, math.inf)
    if not plain.gap:
        choices = choices_one_by_one(coded, domain, options)
    found[EACH] = [choices]
    print(name, {kind: cell(found, kind) for kind in found}, flush=True)
    return found | {"inputs": box.num_inputs}


def base_of(found, kind):
    """What the costs of a kind of set are compared with."""
    return found[EACH if kind == "categories" else "box"][0]


def ratios(found, kind, what):
    """Costs of a kind of set over those of what it is compared with, where proved."""
    base = base_of(found, kind)
    if base.gap:
        return []
    return [
        getattr(cost, what) / max(getattr(base, what), 1e-9)
        for cost in found[kind]
        if not cost.gap
    ]


def cell(found, kind):
    """Nodes relative to the box's: of several draws the mean, and the largest."""
    costs = found[kind]
    if kind in ("box", EACH):
        return str(costs[0])
    shares = ratios(found, kind, "nodes")
    open_ones = [str(cost) for cost in costs if cost.gap]
    if len(shares) < len(costs):
        return "; ".join(
            [*(f"{share:.2g}" for share in shares), *open_ones]
        ) or ", ".join(map(str, costs))
    mean = statistics.geometric_mean(shares)
    return f"{mean:.2g}" + (f" ({max(shares):.2g})" if len(shares) > 1 else "")


def summary(everything):
    """One line for each kind of set, with its target."""
    others = ("box", EACH, "inputs")
    kinds = [k for k in next(iter(everything.values())) if k not in others]
    heads = ("set", "nodes, mean", "largest", "seconds, mean", "proved", "target")
    yield "| " + " | ".join((*heads, "within it")) + " |"
    yield "|---|---|---|---|---|---|---|"
    for kind in kinds:
        few = kind in ("hull", "mahalanobis")
        some = [
            found
            for found in everything.values()
            if not few or found["inputs"] <= FEW_INPUTS
        ]
        runs = [cost for found in some for cost in found[kind]]
        nodes = [r for found in some for r in ratios(found, kind, "nodes")]
        seconds = [r for found in some for r in ratios(found, kind, "seconds")]
        proved = sum(not cost.gap for cost in runs)
        goal = within = ""
        if kind in TARGETS:
            goal = f"{TARGETS[kind]:g}"
            compared = sum(len(f[kind]) for f in some if not base_of(f, kind).gap)
            reached = sum(ratio <= TARGETS[kind] for ratio in nodes)
            within = f"{reached} of {compared}"
        name = kind + (f", up to {FEW_INPUTS} inputs" if few else "")
        mean = statistics.geometric_mean(nodes)
        times = statistics.geometric_mean(seconds)
        yield (
            f"| {name} | {mean:.2f} | {max(nodes):.2f} | {times:.1f} | "
            f"{proved} of {len(runs)} | {goal} | {within} |"
        )


def page(everything, options):
    """The file, in lines."""
    kinds = [kind for kind in next(iter(everything.values())) if kind != "inputs"]
    yield "# What each kind of feasible set costs"
    yield ""
    yield (
        "`make bench-sets` writes this file. Nodes and seconds are multiples of what "
        "the plain box of the same ensemble takes; means are geometric, over the "
        "ensembles on which both were proved. Two categories of six and four levels "
        "are compared with trying each choice by itself. One thread, gap 1e-4, at most "
        f"{options.nodes:,.0f} nodes and {options.seconds:g} s for each run; rows and "
        f"data are drawn {options.draws} times. The box takes hundredths of a second, "
        "so seconds say most about the first values, which are sought before the "
        "search and are dearer where points have to be moved into a set. The last "
        "column counts the runs within the target, of those whose box (or choices) "
        "was proved; a run that a limit ended is not within it, and is in no mean."
    )
    yield ""
    yield from summary(everything)
    yield ""
    yield (
        "By ensemble: nodes relative to the box's, the mean of the draws and the "
        "largest in parentheses; nodes and gap where a limit ended the run. Where the "
        "box itself was not proved, as on Wine, nodes are given as they are."
    )
    yield ""
    yield "| ensemble | " + " | ".join(kinds) + " |"
    yield "|---" * (len(kinds) + 1) + "|"
    for name, found in everything.items():
        cells = [cell(found, kind) for kind in kinds]
        yield f"| {name} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=ENSEMBLES)
    parser.add_argument("--nodes", type=float, default=3_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        costs = pool.map(costs_of, options.only, itertools.repeat(options))
        everything = dict(zip(options.only, costs, strict=True))
    lines = list(page(everything, options))
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
