"""What limits on predictions and risks cost, relative to the plain box.

``python benchmarks/decisions.py FOLDER --out benchmarks/decisions.md`` solves twelve
ensembles of the instance library (``problem_e3_L2_n20_r0.npz``), on one thread, plainly
and with risks, limits and costs, and writes the nodes as multiples of the box's. What
is asked of an ensemble does not depend on chance.
"""

import argparse
import math
import statistics
import time
from pathlib import Path

import numpy as np
from sets import ENSEMBLES, Cost

import ennopt
from ennopt import Cvar, Ensemble, MeanMinusMad, MeanMinusStd, Network, Prediction

MORE = 10
"""How many times more nodes the plain box, and that of a sum, may have than others."""

POINTS = 2_000
"""Points on which levels of predictions and disagreement are measured."""

RISKS = {
    "worst": "worst",
    "cvar 0.4": Cvar(0.4),
    "mean - std": MeanMinusStd(1.0),
    "mean - mad": MeanMinusMad(1.0),
}

TOGETHER = "sum with another"
"""With a multiplier of one, what bounds an ensemble subject to another."""

EASY_COST, HARD_COST, ANOTHER = 2.0, 20.0, 2.5


def target(kind, name):
    """Most nodes relative to the box's that we aim at; infinite for none."""
    if kind in RISKS:
        return 1.3
    if kind.startswith("another"):
        return ANOTHER
    if kind.startswith("cost"):
        return HARD_COST if name.startswith(("concrete", "wine")) else EASY_COST
    return math.inf


def mirrored(ensemble):
    """The ensemble with its inputs mirrored in the middle of their ranges."""
    shift = ensemble.lower + ensemble.upper
    members = [
        Network(
            (-m.weights[0], *m.weights[1:]),
            (m.biases[0] + m.weights[0] @ shift, *m.biases[1:]),
        )
        for m in ensemble.members
    ]
    return Ensemble(members, ensemble.weights, input_names=ensemble.input_names)


def questions(ensemble, best):
    """Name, objective, sense, risk and limits of each decision."""
    rng = np.random.default_rng(0)
    lower, upper = ensemble.lower, ensemble.upper
    points = lower + rng.random((POINTS, lower.size)) * (upper - lower)
    values = ensemble(points)[:, 0]
    spread = np.stack([m(points)[:, 0] for m in ensemble.members]).std(axis=0)
    for kind, risk in RISKS.items():
        yield kind, ensemble, "max", risk, None
    own = Prediction(ensemble, name="own")
    other = Prediction(mirrored(ensemble), name="other")
    low = float(values.min())
    yield TOGETHER, own + other, "max", None, None
    for share in (0.5, 0.8):
        level = low + share * (best - low)
        yield f"another at {share}", own, "max", None, [other >= level]
    prices = np.linspace(1.0, 2.0, lower.size) / (upper - lower)
    cost = ennopt.linear(dict(zip(ensemble.input_names, prices, strict=True)))
    for share in (0.5, 0.8):
        level = low + share * (best - low)
        yield f"cost at {share}", cost, "min", None, [own >= level]
    level = low + 0.8 * (best - low)
    yield (
        "cost, worst at 0.5",
        cost,
        "min",
        None,
        [own.with_risk("worst") >= low + 0.5 * (best - low)],
    )
    cap = float(np.median(spread))
    yield "std capped", own, "max", None, [own.std() <= cap]
    yield "out of reach", cost, "min", None, [own >= best + 0.05 * (best - low)]


def solve(goal, sense, box, risk, limits, options, nodes):
    """The cost of a run of at most so many nodes, and its value."""
    start = time.perf_counter()
    best = ennopt.maximize if sense == "max" else ennopt.minimize
    result = best(
        goal, box, risk=risk, limits=limits, method=ennopt.BoxSearch(), threads=1,
        node_limit=nodes, time_limit=options.seconds,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    proved = result.status in (ennopt.Status.OPTIMAL, ennopt.Status.INFEASIBLE)
    gap = 0.0 if proved else math.inf if result.x is None else result.gap
    return Cost(max(result.nodes, 1), seconds, gap), result.value


def costs_of(name, options):
    """The cost of each decision about an ensemble."""
    ensemble = ennopt.load(options.folder / f"{name}_r0.npz")
    box = ennopt.Domain(ensemble.lower, ensemble.upper, ensemble.input_names)
    most = MORE * options.nodes
    plain, best = solve(ensemble, "max", box, None, None, options, most)
    found = {"box": plain}
    for kind, goal, sense, risk, limits in questions(ensemble, best):
        if kind == TOGETHER:
            nodes = most
        else:  # what ends a run that has a target is that it missed it
            allowed = target(kind, name) * plain.nodes
            nodes = max(options.nodes, allowed if allowed < math.inf else 0.0)
        found[kind], _ = solve(goal, sense, box, risk, limits, options, nodes)
        print(name, kind, found[kind], f"{found[kind].seconds:.1f} s", flush=True)
    return found


def ratio(found, kind):
    """Nodes relative to the box's, if both are proved."""
    box, cost = found["box"], found[kind]
    return None if box.gap or cost.gap else cost.nodes / box.nodes


def cell(found, kind, name):
    """What the table says of a run; bold if it misses its target."""
    share = ratio(found, kind)
    if kind == "box" or share is None:
        return str(found[kind])
    return f"**{share:.2g}**" if share > target(kind, name) else f"{share:.2g}"


def summary(everything):
    """One line for each kind of decision, with its target."""
    kinds = [kind for kind in next(iter(everything.values())) if kind != "box"]
    yield "| decision | nodes, mean | largest | proved | target | within it |"
    yield "|---|---|---|---|---|---|"
    for kind in kinds:
        shares = {name: ratio(found, kind) for name, found in everything.items()}
        known = [share for share in shares.values() if share is not None]
        proved = sum(not found[kind].gap for found in everything.values())
        goals = sorted({target(kind, name) for name in everything})
        goal = within = ""
        if goals[0] < math.inf:
            goal = " or ".join(f"{one:g}" for one in goals)
            compared = [n for n, found in everything.items() if not found["box"].gap]
            met = sum(
                shares[n] is not None and shares[n] <= target(kind, n) for n in compared
            )
            within = f"{met} of {len(compared)}"
        mean = f"{statistics.geometric_mean(known):.2f}" if known else ""
        most = f"{max(known):.2f}" if known else ""
        yield (
            f"| {kind} | {mean} | {most} | {proved} of {len(shares)} | {goal} | "
            f"{within} |"
        )


def page(everything, options):
    """The file, in lines."""
    kinds = list(next(iter(everything.values())))
    yield "# What limits and risks cost"
    yield ""
    yield (
        "`make bench-decisions` writes this file. Nodes are multiples of what the "
        "plain box of the same ensemble takes; means are geometric, over the "
        "ensembles on which both were proved. Another: the prediction is maximized "
        "where the one of a mirrored ensemble reaches so much of the way from the "
        f"least of {POINTS:,} random points to the maximum. Sum with another: the sum "
        "of both is maximized, without a limit. Cost: a sum of inputs is minimized "
        "where the prediction, or every member, reaches that. Std capped: the members "
        "disagree by no more than the median of these points. Out of reach: a level "
        "5% above the maximum, so that nothing is feasible. One thread, gap 1e-4, at "
        f"most {options.seconds:g} s for each run, and at most {options.nodes:,.0f} "
        "nodes, or as many as its target allows; for the box and the sum "
        f"{MORE * options.nodes:,.0f}. The target of costs is 20 on Concrete and Wine, "
        "else 2. The last "
        "column counts runs within the target, of the ensembles whose box was proved; "
        "a run that a limit ended is not within it, and is in no mean."
    )
    yield ""
    yield from summary(everything)
    yield ""
    yield (
        "By ensemble: nodes relative to the box's, bold beyond the target; nodes and "
        "gap where a limit ended the run, or nodes alone where the box was not proved."
    )
    yield ""
    yield "| ensemble | " + " | ".join(kinds) + " |"
    yield "|---" * (len(kinds) + 1) + "|"
    for name, found in everything.items():
        yield f"| {name} | " + " | ".join(cell(found, k, name) for k in kinds) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=ENSEMBLES)
    parser.add_argument("--nodes", type=float, default=20_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    everything = {}
    for name in options.only:
        everything[name] = costs_of(name, options)
        if options.out is not None:  # what is there is there, whatever happens next
            lines = [*page(everything, options), ""]
            options.out.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(page(everything, options)))


if __name__ == "__main__":
    main()
