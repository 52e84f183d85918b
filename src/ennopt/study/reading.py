"""What of the paper's section 5 holds in a record: computed, conclusion by conclusion.

A conclusion is a sentence of the paper and a rule that reads a record: what was
measured, over how many runs, and a verdict. Nothing here is typed in from a run, so
that another record gives another reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ennopt.study import paper
from ennopt.study.figures import Box, boxes
from ennopt.study.finding import Finding, Pairs, Verdict, geometric, verdict_of
from ennopt.study.measures import (
    PAPER_LIMIT,
    detail,
    gap,
    improvement,
    labelled,
    mean,
    mean_gap,
    paired,
    solved,
    spent,
    stage,
    time_gap_of,
)
from ennopt.study.record import Line, Results
from ennopt.study.significance import (
    LEVEL,
    in_words,
    rank_test,
    spread_test,
)
from ennopt.study.table import written
from ennopt.study.tables import BASELINE, ENHANCED, PREPROCESSING

EASY = 300.0
"""Seconds within which the paper calls an instance easy; of a shorter limit, the same
share."""

DEEPEST = 16
"""Mean depth of nodes that the paper's Phase Two does not exceed."""

SIMILAR = 0.75
"""Share of an improvement from which two improvements count as similar."""


def read(results: Results) -> tuple[Finding, ...]:
    """The conclusions of the paper's section 5 in the order in which it draws them.

    Those that a record says nothing about, such as that of a study of other methods,
    are left out.
    """
    runs = {
        item: results.of(experiment["name"])
        for experiment in results.plan["experiments"]
        for item in experiment["items"]
    }
    found = [finding(runs[item]) for item, finding in CONCLUSIONS if runs.get(item)]
    return tuple(each for each in found if each.verdict != "not measured")


# Section 5.2: ensembles and single networks.


def _boxes(runs: Sequence[Line], sampling: str, fact: str) -> dict[str, list[Box]]:
    return boxes([r for r in runs if r["subject"]["sampling"] == sampling], fact)


def _quality(
    runs: Sequence[Line],
    sampling: str,
    fact: str,
    measure: Callable[[str, list[Box]], float],
    test: Callable[[list[Box], list[Box]], float],
) -> tuple[Verdict, str, int]:
    """Ensembles against single networks, problem by problem; smaller is better."""
    better, count = 0, 0
    told, chances, behind = [], [], []
    for problem, group in _boxes(runs, sampling, fact).items():
        kinds = [[b for b in group if b.kind == k] for k in ("ensemble", "single")]
        if not all(kinds):
            continue
        count += sum(len(box.values) for box in group)
        ours, theirs = (measure(problem, each) for each in kinds)
        chance = test(*kinds)
        better += ours < theirs
        if ours > theirs:
            behind.append(problem.capitalize())
        chances.append((chance, ours < theirs))
        told.append(
            f"{problem.capitalize()} {ours:.3g} against {theirs:.3g} "
            f"({in_words(chance)})"
        )
    if not told:
        return "not measured", "No problem has both kinds of models.", count
    clear = sum(chance < LEVEL and ahead for chance, ahead in chances)
    against = sum(chance < LEVEL and not ahead for chance, ahead in chances)
    verdict = verdict_of(
        better == len(told) and clear > 0 and not against,
        better > len(behind) or clear > 0,
    )
    words = (
        f"{'; '.join(told)}. Ensembles are ahead on {better} of {len(told)} problems, "
        f"by more than chance on {clear}, and behind on "
        f"{' and '.join(behind) or 'none'}, by more than chance on {against}."
    )
    return verdict, words, count


def _iqr(box: Box) -> float:
    low, high = np.quantile(box.values, [0.25, 0.75])
    return float(high - low)


def _few(runs: Sequence[Line]) -> tuple[str, ...]:
    replicas = len({run["seed"] for run in runs})
    if replicas >= paper.REPLICAS_OF_MODELS:
        return ()
    return (
        f"{replicas} replicas of each configuration, where the paper has "
        f"{paper.REPLICAS_OF_MODELS}: quartiles of so few say little.",
    )


def stability(runs: Sequence[Line]) -> Finding:
    """Figure 1: the boxes of ensembles are smaller."""
    verdict, words, count = _quality(
        runs, "lhs", "true_value",
        lambda _, group: float(np.mean([_iqr(box) for box in group])),
        lambda a, b: spread_test([x.values for x in a], [x.values for x in b]),
    )  # fmt: skip
    return Finding(
        "The true values at the optima of ensembles vary less than those of single "
        "networks.",
        "section 5.2.2, Figure 1", verdict,
        f"Mean interquartile range, ensembles against single networks: {words}",
        count, _few(runs),
    )  # fmt: skip


def quality(runs: Sequence[Line]) -> Finding:
    """Figure 1: the values of ensembles are closer to the optimum."""
    optima = {r["subject"]["problem"]: r["facts"]["optimum"] for r in runs}

    def distance(problem: str, group: list[Box]) -> float:
        values = [value for box in group for value in box.values]
        return float(np.median(values)) - float(optima[problem])

    verdict, words, count = _quality(
        runs, "lhs", "true_value", distance,
        lambda a, b: rank_test(_all(a), _all(b)),
    )  # fmt: skip
    errors = {
        kind: mean(
            float(r["facts"]["rmse"])
            for r in runs
            if r["subject"]["kind"] == kind and r["facts"]["rmse"] is not None
        )
        for kind in ("ensemble", "single")
    }
    told = ", ".join(f"{kind}s {error:.3f}" for kind, error in errors.items() if error)
    return Finding(
        "The optima of ensembles have true values closer to the known optimum.",
        "section 5.2.2, Figure 1", verdict,
        f"Median distance of the true value to the optimum: {words} Mean test RMSE of "
        f"the scaled target: {told}.",
        count, _few(runs),
    )  # fmt: skip


def closeness(runs: Sequence[Line]) -> Finding:
    """Figure 2: the optima of ensembles are closer to the data."""
    verdict, words, count = _quality(
        runs, "mvn", "distance",
        lambda _, group: float(np.median(_all(group))),
        lambda a, b: rank_test(_all(a), _all(b)),
    )  # fmt: skip
    return Finding(
        "The optima of ensembles lie closer to the data.",
        "section 5.2.2, Figure 2", verdict,
        f"Median Mahalanobis distance, ensembles against single networks: {words}",
        count, _few(runs),
    )  # fmt: skip


def _all(group: Iterable[Box]) -> list[float]:
    return [value for box in group for value in box.values]


# Section 5.3: E-NN and B&C.


def _pairs(runs: Sequence[Line]) -> list[tuple[Line, Line]]:
    return paired(runs, ENHANCED, BASELINE)


def superiority(runs: Sequence[Line]) -> Finding:
    """Figure 3, Table 1: E-NN solves more, in less time."""
    both = _pairs(runs)
    sides = [list(side) for side in zip(*both, strict=True)] or [[], []]
    counts = [sum(map(solved, side)) for side in sides]
    times = [geometric([spent(run) for run in side]) for side in sides]
    ahead = Pairs.of((time_gap_of(a), time_gap_of(b)) for a, b in both)
    more, faster = counts[0] > counts[1], times[0] < times[1]
    verdict = verdict_of(more and faster, more or faster, bool(both))
    theirs = [sum(row["solved"] for row in paper.rows(t)) for t in ("table7", "table6")]
    return Finding(
        "E-NN solves more ensembles than B&C, and is faster.",
        "section 5.3, Figure 3, Table 1", verdict,
        f"E-NN solves {counts[0]} of {len(both)}, B&C {counts[1]} (paper: {theirs[0]} "
        f"and {theirs[1]} of 144). Geometric mean of the time, unsolved runs at their "
        f"limit: {written(times[0], 'seconds')} s against "
        f"{written(times[1], 'seconds')} s. Smaller time-gap: E-NN {ahead}.",
        2 * len(both), _others(runs),
    )  # fmt: skip


def _others(runs: Sequence[Line]) -> tuple[str, ...]:
    """How methods that the paper does not have did on the same ensembles."""
    told = [
        f"{label} {sum(map(solved, group))}"
        for label, group in labelled(runs).items()
        if label not in (BASELINE, ENHANCED)
    ]
    return (f"Solved by methods of ours: {', '.join(told)}.",) if told else ()


def easy_ones(runs: Sequence[Line]) -> Finding:
    """Figures 3 and 4: B&C has the advantage on the easier instances."""
    both = _pairs(runs)
    within = EASY * _seconds(runs) / PAPER_LIMIT
    easy = [
        (a, b)
        for a, b in both
        if any(solved(run) and spent(run) <= within for run in (a, b))
    ]
    ahead = Pairs.of((time_gap_of(b), time_gap_of(a)) for a, b in easy)
    return Finding(
        "B&C has a minor advantage on the easier ensembles.",
        "section 5.3, Figures 3 and 4", ahead.verdict,
        f"Of {len(easy)} ensembles that one of the two solves within "
        f"{written(within, 'seconds')} s (the paper's five minutes, as a share of the "
        f"limit) B&C has the smaller time-gap: {ahead}.",
        2 * len(easy),
    )  # fmt: skip


def gaps(runs: Sequence[Line]) -> Finding:
    """Figure 4, Table 1: E-NN leaves smaller gaps on the hard instances."""
    hard = [(a, b) for a, b in _pairs(runs) if not solved(a) and not solved(b)]
    ahead = Pairs.of((gap(a), gap(b)) for a, b in hard)
    sides = [list(side) for side in zip(*hard, strict=True)] or [[], []]
    means = [written(mean_gap(side), "percent") for side in sides]
    medians = [
        written(float(np.median([gap(r) for r in side])) if side else None, "percent")
        for side in sides
    ]
    return Finding(
        "On ensembles that neither solves, E-NN leaves much smaller gaps.",
        "section 5.3, Table 1, Figure 4", ahead.verdict,
        f"Neither solves {len(hard)}. Smaller gap: E-NN {ahead}. Median gap "
        f"{medians[0]} against {medians[1]}, mean {means[0]} against {means[1]}.",
        2 * len(hard),
    )  # fmt: skip


def preprocessing(runs: Sequence[Line]) -> Finding:
    """Tables 2 and 3: preprocessing is cheap in B&C and dear in E-NN."""
    both = _pairs(runs)
    shares = [
        float(np.median([stage(r, *PREPROCESSING) / r["result"]["seconds"]["total"]
                         for r in side]))
        for side in zip(*both, strict=True)
    ]  # fmt: skip
    words = "No ensemble has both."
    if shares:
        told = [written(share, "percent") for share in shares]
        words = f"Median share of the time: E-NN {told[0]}, B&C {told[1]}."
    verdict = verdict_of(
        bool(shares) and shares[0] > shares[1] and shares[1] < 0.1,
        bool(shares) and shares[0] > shares[1], bool(both),
    )  # fmt: skip
    return Finding(
        "Preprocessing is a small part of B&C's time and a large part of E-NN's.",
        "section 5.3, Tables 2 and 3", verdict, words, 2 * len(both),
    )  # fmt: skip


def phases(runs: Sequence[Line]) -> Finding:
    """Table 3: Phase One solves the easy instances, Phase Two the harder ones."""
    own = [run for run in runs if run["label"] == ENHANCED]
    closed = [run for run in own if solved(run)]
    second = [run for run in closed if detail(run, "phase_two_nodes") > 0]
    first = [run for run in closed if run not in second]
    chance = rank_test([spent(r) for r in first], [spent(r) for r in second])
    times = [geometric([spent(run) for run in side]) for side in (first, second)]
    later = bool(first and second) and times[0] < times[1]
    verdict = verdict_of(later and chance < LEVEL, later or not second, bool(closed))
    rank = f" (rank test {in_words(chance)})" if first and second else ""
    middle = " and ".join(
        f"{written(time, 'seconds')} s" for time in times if math.isfinite(time)
    )
    return Finding(
        "Phase One solves the easy ensembles, Phase Two the harder ones.",
        "section 5.3, Table 3", verdict,
        f"Of {len(own)} runs E-NN solves {len(first)} without a node of Phase Two and "
        f"{len(second)} in it; geometric mean of their times {middle or 'none'}{rank}.",
        len(own),
        ("An ensemble that Phase One does not close is by that one of the harder "
         "ones: a part of this holds by construction.",),
    )  # fmt: skip


# Section 5.4: ingredients.


def targeted(runs: Sequence[Line]) -> Finding:
    """Table 4: targeted bounds give most of the gain of MILPs for fewer of them."""
    gains = {label: _gains(runs, label, "root_bound") for label in ("MILP", "TBP")}
    average = {label: mean(gain for _, gain in g) for label, g in gains.items()}
    milps, times = {}, {}
    for label in ("MILP", "TBP"):
        group = [run for run in runs if run["label"] == label]
        milps[label] = mean(detail(run, "milp_neurons") for run in group)
        times[label] = mean(stage(run, *PREPROCESSING) for run in group)
    full, some = average["MILP"], average["TBP"]
    known = full is not None and some is not None and math.isfinite(full)
    share = some / full if known and some is not None and full else math.nan
    fewer = _less(milps["TBP"], milps["MILP"])
    quicker = _less(times["TBP"], times["MILP"])
    verdict = verdict_of(
        share >= SIMILAR and fewer and quicker, fewer and share > 0, known
    )
    printed = paper.row("table4", problem="average")
    return Finding(
        "Targeted bounds improve the root bound nearly as much as MILPs for all "
        "neurons, with fewer MILPs and in less time.",
        "section 5.4.1, Table 4", verdict,
        f"Mean improvement of the root bound over LP bounds: targeted "
        f"{written(some, 'percent')}, MILPs {written(full, 'percent')} (paper: "
        f"{printed['tbp_root']}% and {printed['milp_root']}%). Neurons with MILPs: "
        f"{written(milps['TBP'], 'seconds')} against "
        f"{written(milps['MILP'], 'seconds')}; seconds for all bounds: "
        f"{written(times['TBP'], 'seconds')} against "
        f"{written(times['MILP'], 'seconds')}.",
        len(runs), _orientation(runs),
    )  # fmt: skip


def cuts(runs: Sequence[Line]) -> Finding:
    """Table 4: cuts add most where bounds are weak."""
    added = {}
    for label in ("LP", "MILP", "TBP"):
        places = {
            name: dict(_gains(runs, label, name))
            for name in ("root_bound", "root_bound_after_cuts")
        }
        after = places["root_bound_after_cuts"]
        added[label] = {
            place: after[place] - before
            for place, before in places["root_bound"].items()
        }
    duels = {
        label: Pairs.of(
            (-added["LP"][place], -added[label][place])
            for place in added["LP"].keys() & added[label].keys()
        )
        for label in ("MILP", "TBP")
    }
    means = {label: mean(values.values()) for label, values in added.items()}
    verdicts = [duel.verdict for duel in duels.values()]
    some = any(_less(means[label], means["LP"]) for label in duels)
    known = "not measured" not in verdicts
    verdict = verdict_of(set(verdicts) == {"holds"}, some, known)
    told = ", ".join(f"{k} {written(v, 'percent')}" for k, v in means.items())
    won = "; ".join(f"than {label} {duel}" for label, duel in duels.items())
    printed = paper.row("table4", problem="average")
    theirs = ", ".join(
        f"{label} {printed[f'{prefix}_cuts'] - printed[f'{prefix}_root']}%"
        for label, prefix in (("LP", "lp"), ("MILP", "milp"), ("TBP", "tbp"))
    )
    return Finding(
        "Ideal cuts add more to LP bounds than to MILP or targeted bounds.",
        "section 5.4.1, Table 4", verdict,
        f"Improvement added by the cuts, in parts of the root bound with LP bounds: "
        f"{told} (paper: {theirs}). More with LP bounds {won}.",
        len(runs), _orientation(runs),
    )  # fmt: skip


def inequalities(runs: Sequence[Line]) -> Finding:
    """Table 8: the valid inequalities change next to nothing."""
    both = paired(runs, "BigM-VI", "BigM")
    sides = [list(side) for side in zip(*both, strict=True)] or [[], []]
    counts = [sum(map(solved, side)) for side in sides]
    closed = [(a, b) for a, b in both if solved(a) and solved(b)]
    ahead = Pairs.of((spent(a), spent(b)) for a, b in closed)
    open_ = [(a, b) for a, b in both if not solved(a) and not solved(b)]
    moves = [abs(gap(a) - gap(b)) for a, b in open_]
    largest = max(moves, default=0.0)
    made = mean(detail(run, "inequalities") for run in sides[0])
    close = all(
        move <= 0.1 * max(gap(b), 0.01)
        for move, (_, b) in zip(moves, open_, strict=True)
    )
    same = abs(counts[0] - counts[1]) <= 1
    verdict = verdict_of(same and close, same, bool(both))
    return Finding(
        "The valid inequalities alone leave the gap as it is and cost some time.",
        "section 5.4.1, Table 8", verdict,
        f"Solved: {counts[0]} with, {counts[1]} without, of {len(both)}. Where both "
        f"solve, they are faster with them {ahead}. Largest change of a gap that stays "
        f"open: {written(largest, 'percent')} over {len(open_)} networks. Inequalities "
        f"of a run: {written(made, 'seconds')} on average (paper: "
        f"{paper.row('table8', problem='average')['vi_cuts']}).",
        2 * len(both),
        ("That they cannot help is a theorem: corrected, they follow from the linear "
         "relaxation.",),
    )  # fmt: skip


def lagrangian(runs: Sequence[Line]) -> Finding:
    """Table 5: the Lagrangian bound is better than that of Phase One."""
    reached = [
        run
        for run in runs
        if run["label"] == ENHANCED and detail(run, "phase_two_start_gap") >= 0
    ]
    gaps_ = [
        (detail(run, "phase_two_start_gap"), detail(run, "phase_one_gap"))
        for run in reached
    ]
    ahead = Pairs.of(gaps_)
    medians = [
        written(float(np.median(side)), "percent") for side in zip(*gaps_, strict=True)
    ] or ["none", "none"]
    return Finding(
        "The Lagrangian bound at the start of Phase Two is better than the bound at "
        "the end of Phase One.",
        "section 5.4.2, Table 5", ahead.verdict,
        f"Of {len(reached)} runs that reach Phase Two the gap is smaller at its start: "
        f"{ahead}. Median gap {medians[1]} before, {medians[0]} after.",
        len(reached),
        ("A node keeps the better of both bounds, so the start of Phase Two is never "
         "worse, where the paper's can be (Perm).",),
    )  # fmt: skip


def reversions(runs: Sequence[Line]) -> Finding:
    """Table 5: few nodes revert to big-M, trees are shallow, multipliers cheap."""
    reached = [
        run
        for run in runs
        if run["label"] == ENHANCED and detail(run, "phase_two_nodes") > 0
    ]
    nodes = sum(detail(run, "phase_two_nodes") for run in reached)
    back = sum(detail(run, "big_m_reversions") for run in reached)
    deepest = max((detail(run, "phase_two_mean_depth") for run in reached), default=0.0)
    slowest = max((stage(run, "subgradient") for run in reached), default=0.0)
    single = sum(detail(run, "phase_two_nodes") <= 1 for run in reached)
    rare = bool(nodes) and back <= 0.2 * nodes
    holds = rare and deepest <= DEEPEST and slowest < 1.0
    verdict = verdict_of(holds, rare, bool(reached))
    share = back / nodes if nodes else math.nan
    return Finding(
        "Few nodes of Phase Two revert to the big-M model, its tree is shallow, and "
        "the subgradient steps take less than a second.",
        "section 5.4.2, Table 5", verdict,
        f"{back:.0f} of {nodes:.0f} nodes revert ({written(share, 'percent')}); "
        f"largest mean depth {deepest:.2g} (paper: at most {DEEPEST}); longest "
        f"subgradient {written(slowest, 'seconds')} s.",
        len(reached),
        (f"{single} of these runs end at the root of Phase Two.",) if single else (),
    )  # fmt: skip


def _gains(
    runs: Sequence[Line], label: str, name: str
) -> list[tuple[tuple[str, int], float]]:
    """Improvements of a bound over the root bound with LP bounds, by network."""
    reference = {
        (run["subject"]["name"], run["seed"]): detail(run, "root_bound")
        for run in runs
        if run["label"] == "LP"
    }
    found = []
    for run in runs:
        place = (run["subject"]["name"], run["seed"])
        if run["label"] == label and place in reference:
            found.append((place, improvement(detail(run, name), reference[place])))
    return found


def _less(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and first < second


def _orientation(runs: Sequence[Line]) -> tuple[str, ...]:
    kinds = {run["subject"].get("orientation", "one") for run in runs}
    if kinds == {"zero"}:
        return ()
    return (
        "The best values of the four functions are near one here, near zero in the "
        "paper: percentages of bounds are smaller for that alone.",
    )


def _seconds(runs: Sequence[Line]) -> float:
    limits = [run["limits"]["seconds"] for run in runs]
    return float(max((s for s in limits if s is not None), default=PAPER_LIMIT))


def setting(results: Results) -> str:
    """Under which conditions the findings were made, in a sentence or two."""
    runs = [
        run
        for experiment in results.plan["experiments"]
        if "table1" in experiment["items"]
        for run in results.of(experiment["name"])
    ]
    text = f"Read from {len(results.done)} of {results.planned} runs"
    if not runs:
        return f"{text}."
    names = len({run["subject"]["name"] for run in runs})
    cores = max(run["threads"] for run in runs)
    processor = " of processor time" * (runs[0].get("seconds_of") == "processor")
    return (
        f"{text}. The comparison has {names} ensembles, "
        f"{written(_seconds(runs), 'seconds')} s{processor} and {cores} "
        f"{'core' if cores == 1 else 'cores'} a run; the paper has 144, "
        f"{PAPER_LIMIT:,.0f} s, six cores and another solver. A difference counts as "
        f"more than chance where p < {LEVEL:g}."
    )


CONCLUSIONS: tuple[tuple[str, Callable[[Sequence[Line]], Finding]], ...] = (
    ("figure1", stability), ("figure1", quality), ("figure2", closeness),
    ("table1", superiority), ("table1", easy_ones), ("table1", gaps),
    ("table6", preprocessing), ("table7", phases), ("table4", targeted),
    ("table4", cuts), ("table8", inequalities), ("table5", lagrangian),
    ("table5", reversions),
)  # fmt: skip
"""Each conclusion, and the item whose runs it is read from."""
