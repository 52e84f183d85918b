"""The tables of the paper, computed from the lines of a record.

Each function takes the runs of one experiment and returns a `Table` with the paper's
own numbers beside ours; nothing is read or written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ennopt.learn.hyperparameters import paper_configurations
from ennopt.study import paper
from ennopt.study.measures import (
    PAPER_LIMIT,
    Clock,
    detail,
    grouped,
    improvement,
    labelled,
    mean,
    mean_gap,
    solved,
    spent,
    stage,
    uneven,
)
from ennopt.study.record import Line
from ennopt.study.table import Cell, Column, Kind, Table

BASELINE = "B&C"
ENHANCED = "E-NN"
"""Labels of the two methods of the paper in a study."""

BOUNDS = {"LP": "lp", "MILP": "milp", "TBP": "tbp"}
"""Labels of the three ways to bound neurons (Table 4), and their names in the data."""

INEQUALITIES = {"BigM": "bigm", "BigM-VI": "vi"}
"""Labels of the big-M model without and with inequalities (Table 8)."""

PREPROCESSING = ("bounds", "lp_bounds", "survey", "milp_bounds")
"""Stages before the search, by the names that methods give them."""

PLACE = ("problem", "members", "layers", "width")


@dataclass(frozen=True)
class Measure:
    """A column: its heading, its kind, and its number for a group of runs."""

    name: str
    kind: Kind
    of: Callable[[list[Line]], Cell]
    paper: str = ""


def table1(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 1: time, solved instances and gap of each method.

    The time of an unsolved instance is the limit; the gap is the mean over those that
    were not solved.
    """
    labels = list(labelled(runs))
    prefixes = {BASELINE: "bnc", ENHANCED: "enn"}
    measures = (_time(clock), _solved(), _gap("unsolved"))
    columns = [*_labels("problem", "members", "layers"), Column("runs", "", "count")]
    for label in labels:
        columns += _columns(label, measures)
        if label in prefixes:
            columns += _columns(f"{label}, paper", measures, "paper")
    rows = []
    for place, members in _sorted(runs, "problem", "members", "layers"):
        by_label = labelled(members)
        printed = paper.row(
            "table1", **dict(zip(("problem", "members", "layers"), place, strict=True))
        )
        if not {run["subject"].get("width") for run in members} <= BENCHMARK["width"]:
            printed = {}  # the paper has no such networks
        cells: list[Cell] = [*place, max(map(len, by_label.values()))]
        for label in labels:
            cells += _cells(by_label.get(label, []), measures)
            if label in prefixes:
                cells += _printed(printed, measures, f"{prefixes[label]}_")
        rows.append(tuple(cells))
    rows.append(_totals(runs, labels, measures, prefixes, len(rows)))
    return Table(
        "table1",
        "Table 1. Consolidated results",
        tuple(columns),
        tuple(rows),
        (
            "Time is the mean in seconds, an unsolved run counting its whole limit. "
            "Solved counts proofs of optimality. Gap is the mean over the runs that "
            "were not solved. Runs is the number of ours. The paper's rows have six "
            f"instances each, its last row all {6 * len(paper.rows('table1'))}.",
        ),
    )


def _totals(
    runs: Sequence[Line], labels: list[str], measures: Sequence[Measure],
    prefixes: dict[str, str], places: int,
) -> tuple[Cell, ...]:  # fmt: skip
    by_label = labelled(runs)
    cells: list[Cell] = ["all", None, None, max(map(len, by_label.values()), default=0)]
    printed = paper.rows("table1")
    for label in labels:
        cells += _cells(by_label[label], measures)
        if label not in prefixes:
            continue
        if places != len(printed):  # other instances: a total would compare nothing
            cells += [None] * len(measures)
            continue
        prefix = prefixes[label]
        solved_there = sum(entry[f"{prefix}_solved"] for entry in printed)
        time_there = mean(float(entry[f"{prefix}_time"]) for entry in printed)
        cells += [time_there, solved_there, None]
    return tuple(cells)


def table2(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 2: stages of the baseline on three problems."""
    return _baseline("table2", "Table 2. Time break-down of the baseline", runs, True)


def table3(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 3: stages of the enhanced algorithm on three problems."""
    return _enhanced("table3", "Table 3. Time break-down of E-NN", runs, True)


def table6(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 6: all results of the baseline."""
    return _baseline("table6", "Table 6. Complete results of the baseline", runs)


def table7(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 7: all results of the enhanced algorithm."""
    return _enhanced("table7", "Table 7. Complete results of E-NN", runs)


def _baseline(name: str, title: str, runs: Sequence[Line], some: bool = False) -> Table:
    measures = (
        _solved(),
        _time("seconds"),
        _gap("unsolved"),
        Measure("Preprocess", "seconds", _stage(*PREPROCESSING), "preprocess"),
        Measure("B&B", "seconds", _stage("branch_and_cut"), "search"),
        Measure("Nodes", "count", _mean(lambda run: run["result"]["nodes"])),
    )
    return _breakdown(name, title, runs, BASELINE, "table6", measures, some)


def _enhanced(name: str, title: str, runs: Sequence[Line], some: bool = False) -> Table:
    measures = (
        _solved(),
        _time("seconds"),
        _gap("all"),
        Measure("Preprocess", "seconds", _stage(*PREPROCESSING), "preprocess"),
        Measure("Phase 1", "seconds", _stage("phase_one"), "phase_one"),
        Measure("Phase 2", "seconds", _stage("subgradient", "phase_two"), "phase_two"),
        Measure("BB nodes", "count", _mean(_phase_two_nodes), "nodes"),
    )
    return _breakdown(name, title, runs, ENHANCED, "table7", measures, some)


def _phase_two_nodes(run: Line) -> float:
    """Nodes of Phase Two: none where a run ended before it."""
    return float(run["result"]["details"].get("phase_two_nodes", 0))


def _breakdown(
    name: str, title: str, runs: Sequence[Line], label: str, source: str,
    measures: Sequence[Measure], some: bool,
) -> Table:  # fmt: skip
    chosen = [
        run
        for run in runs
        if run["label"] == label
        and (not some or run["subject"]["problem"] in paper.BREAKDOWN)
    ]
    printed = [measure for measure in measures if measure.paper]
    columns = [
        *_labels(*PLACE),
        Column("runs", "", "count"),
        *_columns(label, measures),
        *_columns(f"{label}, paper", printed, "paper"),
    ]
    rows = []
    for place, members in _sorted(chosen, *PLACE):
        entry = paper.row(source, **dict(zip(PLACE, place, strict=True)))
        rows.append(
            (
                *place,
                len(members),
                *_cells(members, measures),
                *_printed(entry, printed),
            )
        )
    notes = ["Means over the replicas of each configuration; times in seconds."]
    if not rows:
        notes.append(f"This study has no run of {label} on these problems.")
    return Table(name, title, tuple(columns), tuple(rows), tuple(notes))


def table4(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 4: bounds by LPs, MILPs and targeted MILPs on single networks.

    Improvements are relative to the root bound with LP bounds on the same instance.
    """
    reference = {
        (run["subject"]["name"], run["seed"]): detail(run, "root_bound")
        for run in runs
        if run["label"] == "LP"
    }

    def improved(name: str) -> Callable[[list[Line]], Cell]:
        def of(group: list[Line]) -> Cell:
            return mean(
                improvement(
                    detail(run, name),
                    reference.get((run["subject"]["name"], run["seed"]), math.nan),
                )
                for run in group
            )

        return of

    common = (
        Measure("Time", "seconds", _stage(*PREPROCESSING), "time"),
        Measure("Root", "percent", improved("root_bound"), "root"),
        Measure("Cuts", "percent", improved("root_bound_after_cuts"), "cuts"),
    )
    milps = Measure("MILPs", "count", _detail("milp_neurons"), "milps")
    wanted: dict[str, tuple[Measure, ...]] = {
        label: common if label == "LP" else (*common, milps) for label in BOUNDS
    }
    return _by_problem(
        "table4",
        "Table 4. Bounds on single networks: LP, MILP and targeted",
        runs,
        wanted,
        BOUNDS,
        (
            "Time to bound all neurons, in seconds. Root and Cuts: improvement of the "
            "bound at the root, without and with ideal cuts, over the root bound with "
            "LP bounds; minus infinity where no bound was reached. MILPs: neurons "
            "bounded by MILPs.",
            "The first hidden layer needs no MILP on a box: its interval bounds are "
            "exact. The paper counts it (151 neurons on average).",
        ),
    )


def table8(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 8: big-M without and with the valid inequalities."""
    common = (
        Measure("Solved", "count", _count_solved, "solved"),
        Measure("Time", "seconds", _mean(spent), "time"),
        Measure("Gap", "percent", lambda group: mean_gap(group), "gap"),
    )
    cuts = Measure("Cuts", "count", _detail("inequalities"), "cuts")
    nodes = Measure("Nodes", "count", _mean(lambda run: run["result"]["nodes"]))
    wanted: dict[str, tuple[Measure, ...]] = {
        "BigM": (*common, nodes),
        "BigM-VI": (*common, nodes, cuts),
    }
    return _by_problem(
        "table8",
        "Table 8. Effect of the valid inequalities",
        runs,
        wanted,
        INEQUALITIES,
        (
            "Gap is the mean over the runs that were not solved. The last row has the "
            "sum of Solved and the mean of the rows above.",
        ),
    )


def _by_problem(
    name: str, title: str, runs: Sequence[Line], wanted: dict[str, tuple[Measure, ...]],
    prefixes: dict[str, str], notes: tuple[str, ...],
) -> Table:  # fmt: skip
    """One row for each problem, and their average; a group of columns per label."""
    chosen = [run for run in runs if run["label"] in wanted]
    columns = [Column("problem", "", "text", "label"), Column("runs", "", "count")]
    for label, measures in wanted.items():
        printed = [measure for measure in measures if measure.paper]
        columns += _columns(label, measures)
        columns += _columns(f"{label}, paper", printed, "paper")
    rows: list[list[Cell]] = []
    for (problem,), members in _sorted(chosen, "problem"):
        by_label = labelled(members)
        row: list[Cell] = [problem, max(map(len, by_label.values()))]
        for label, measures in wanted.items():
            printed = [measure for measure in measures if measure.paper]
            row += _cells(by_label.get(label, []), measures)
            entry = paper.row(name, problem=problem)
            row += _printed(entry, printed, f"{prefixes[label]}_")
        rows.append(row)
    if rows:
        rows.append(_average(name, rows, wanted, prefixes))
    return Table(name, title, tuple(columns), tuple(map(tuple, rows)), notes)


def _average(
    name: str, rows: list[list[Cell]], wanted: dict[str, tuple[Measure, ...]],
    prefixes: dict[str, str],
) -> list[Cell]:  # fmt: skip
    cells: list[Cell] = ["average", _sum([row[1] for row in rows])]
    entry = paper.row(name, problem="average")
    position = 2
    for label, measures in wanted.items():
        printed = [measure for measure in measures if measure.paper]
        for measure in measures:
            column = [row[position] for row in rows]
            cells.append(_sum(column) if measure.name == "Solved" else _mean_of(column))
            position += 1
        cells += _printed(entry, printed, f"{prefixes[label]}_")
        position += len(printed)
    return cells


def table5(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 5: the Lagrangian phase, on the runs that it solved."""
    reached = [
        run
        for run in runs
        if run["label"] == ENHANCED and detail(run, "phase_two_nodes") > 0
    ]
    closed = [run for run in reached if solved(run)]
    chosen = closed or reached
    measures = (
        Measure("Time", "seconds", _mean(spent), "time"),
        Measure("Gap 1", "percent", _detail("phase_one_gap"), "gap_one"),
        Measure("Gap 2", "percent", _detail("phase_two_start_gap"), "gap_two"),
        Measure("Big-M", "count", _detail("big_m_reversions"), "bigm"),
        Measure("Depth", "count", _detail("phase_two_mean_depth"), "depth"),
        Measure("Nodes", "count", _detail("phase_two_nodes"), "nodes"),
    )
    columns = [
        Column("problem", "", "text", "label"),
        Column("runs", "", "count"),
        *_columns(ENHANCED, measures),
        *_columns(f"{ENHANCED}, paper", measures, "paper"),
    ]
    groups: list[tuple[str, list[Line]]] = [
        (problem, members) for (problem,), members in _sorted(chosen, "problem")
    ]
    rows = [
        (
            problem,
            len(members),
            *_cells(members, measures),
            *_printed(paper.row("table5", problem=problem), measures),
        )
        for problem, members in [*groups, ("average", list(chosen))]
        if members
    ]
    notes = [
        "Gap 1 at the end of Phase One, Gap 2 at the root of Phase Two, Big-M the "
        "nodes that revert to the big-M model, Depth the mean depth of nodes. The "
        "average is over runs.",
        "Gap 2 is that of the first proved bound of Phase Two, the root's Lagrangian "
        "with MILPs: the subgradient's own value, with fixed binaries, proves nothing.",
    ]
    if closed:
        notes.append("Runs that were solved in Phase Two, as in the paper.")
    elif chosen:
        notes.append("No run was solved in Phase Two: these are all that reached it.")
    else:
        notes.append("No run reached Phase Two.")
    return Table(
        "table5", "Table 5. The Lagrangian phase", tuple(columns), tuple(rows),
        tuple(notes),
    )  # fmt: skip


BY_RUN = "enn_by_run"
"""Name of the table that the paper does not have."""


def enhanced_by_run(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """What each run of E-NN did: points surveyed, MILPs, phases, inequalities."""
    measures = (
        Measure("Points", "count", _detail("surveyed_nodes")),
        Measure("Critical", "count", _detail("critical_neurons")),
        Measure("Neurons", "count", _detail("milp_neurons")),
        Measure("MILPs", "count", _detail("milps")),
        Measure("LPs", "seconds", _stage("lp_bounds")),
        Measure("Survey", "seconds", _stage("survey")),
        Measure("MILPs", "seconds", _stage("milp_bounds")),
        Measure("Phase 1", "seconds", _stage("phase_one")),
        Measure("Steps", "seconds", _stage("subgradient")),
        Measure("Phase 2", "seconds", _stage("phase_two")),
        Measure("Ineq.", "count", _detail("phase_one_inequalities")),
        Measure("Gap 1", "percent", _detail("phase_one_gap")),
        Measure("Gap 2", "percent", _detail("phase_two_start_gap")),
        Measure("Nodes 2", "count", _detail("phase_two_nodes")),
        Measure("Gap", "percent", lambda group: mean_gap(group, "all")),
    )
    groups = ("Bounds",) * 4 + ("Seconds",) * 6 + ("Phases",) * 5
    columns = [
        *_labels(*PLACE, "replica"),
        *(Column(m.name, g, m.kind) for m, g in zip(measures, groups, strict=True)),
    ]
    rows = [
        (*place, *_cells(group, measures))
        for place, group in _sorted(
            [run for run in runs if run["label"] == ENHANCED], *PLACE, "replica"
        )
    ]
    table = Table(
        BY_RUN,
        "E-NN, run by run",
        tuple(columns),
        tuple(rows),
        (
            "Points: fractional solutions that the survey saw. Critical: neurons whose "
            "mean discrepancy reaches the threshold. Neurons: those with MILPs of "
            "their own. Steps: subgradient steps. Ineq.: inequalities of Proposition "
            "1. Gap 1 at the end of Phase One, Gap 2 at the start of Phase Two. The "
            "paper prints no such table.",
        ),
    )
    if clock == "nodes":
        table = table.without(lambda column: column.kind == "seconds")
    return table


def table9(runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """Table 9: hyper-parameters that the searches found, the paper's beside them."""
    fields = ("members", "layers", "width", "learning_rate", "batch_size")
    names = ("e", "L", "nodes", "rate", "batch")
    kinds: tuple[Kind, ...] = ("count", "count", "count", "number", "count")
    columns = [*_labels("problem", "sampling"), Column("kind", "", "text", "label")]
    columns.append(Column("rank", "", "count", "label"))
    columns += [Column(n, "ours", k) for n, k in zip(names, kinds, strict=True)]
    columns.append(Column("RMSE", "ours", "number"))
    columns += [
        Column(n, "paper", k, "paper") for n, k in zip(names, kinds, strict=True)
    ]
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        place = [run["subject"][name] for name in ("problem", "sampling", "kind")]
        printed = paper_configurations(*place)
        best = run["facts"]["best"]
        for rank in range(max(len(best), len(printed))):
            ours: list[Cell] = [None] * 6
            if rank < len(best):
                error = best[rank]["rmse"]  # none: a training diverged
                ours = [best[rank][field] for field in fields]
                ours.append(math.inf if error is None else error)
            theirs: list[Cell] = [None] * 5
            if rank < len(printed):
                theirs = [getattr(printed[rank], field) for field in fields]
            rows.append((*place, rank + 1, *ours, *theirs))
    draws = sorted({run["facts"]["draws"] for run in runs})
    return Table(
        "table9",
        "Table 9. Hyper-parameters found by the search",
        tuple(columns),
        tuple(rows),
        (
            f"Draws of each search: {', '.join(map(str, draws)) or 'none'}; the paper "
            "has 1000. RMSE is the validation error of the scaled target. The paper "
            "does not rank its four configurations.",
        ),
    )


TABLES: dict[str, Callable[[Sequence[Line], Clock], Table]] = {
    f"table{n}": function
    for n, function in enumerate(
        (table1, table2, table3, table4, table5, table6, table7, table8, table9),
        start=1,
    )
}
"""Each table of the paper, by name."""


def compute(name: str, runs: Sequence[Line], clock: Clock = "seconds") -> Table:
    """A table; by nodes, nothing that a clock measured is in it."""
    table = TABLES[name](runs, clock)
    if name in COMPARED:
        labels = COMPARED[name] or labelled(runs)
        note = uneven(run for run in runs if run["label"] in labels)
        table = replace(table, notes=table.notes + (note,) * bool(note))
    if any(column.source == "paper" for column in table.columns):
        table = replace(table, notes=table.notes + unlike_the_paper(name, runs))
    if clock == "nodes":
        table = table.without(lambda column: column.kind == "seconds")
    return table


COMPARED: dict[str, dict[str, str]] = {
    "table1": {}, "table4": BOUNDS, "table8": INEQUALITIES,
}  # fmt: skip
"""Tables that have methods side by side: which, or all."""

BENCHMARK = {"members": {3, 5}, "layers": {2, 4}, "width": {20, 40}}
SINGLES = {"members": {1}, "layers": {2, 4}, "width": {50}}
SIZES = {f"table{n}": SINGLES if n in (4, 8) else BENCHMARK for n in range(1, 9)}
"""Sizes of the instances behind each table of the paper."""


def unlike_the_paper(name: str, runs: Sequence[Line]) -> tuple[str, ...]:
    """Notes on sizes and limits that are not those of the paper's columns."""
    if name not in SIZES:
        return ()
    notes = []
    words = {"members": "e", "layers": "L", "width": "nodes"}
    for fact, theirs in SIZES[name].items():
        ours = {run["subject"].get(fact) for run in runs} - {None}
        if ours != theirs:
            told = [", ".join(map(str, sorted(sizes))) for sizes in (ours, theirs)]
            notes.append(f"{words[fact]} {told[0] or 'unknown'} (paper: {told[1]})")
    limits = {run["limits"]["seconds"] for run in runs}
    if limits != {PAPER_LIMIT}:
        told = [
            f"{s:g} s" if s else "none" for s in sorted(limits, key=lambda s: s or 0)
        ]
        notes.append(f"time limit {', '.join(told)} (paper: {PAPER_LIMIT:g} s)")
    if not notes:
        return ()
    return (f"Unlike the paper's columns: {'; '.join(notes)}.",)


# Parts of tables.


def _sorted(
    runs: Sequence[Line], *names: str
) -> list[tuple[tuple[Any, ...], list[Line]]]:
    """Groups of runs: problems in order of appearance, sizes from small to large."""
    groups = grouped(runs, *names)
    order = {run["subject"]["problem"]: n for n, run in enumerate(reversed(runs))}
    return sorted(
        groups.items(),
        key=lambda item: (-order[item[0][0]], *(v or 0 for v in item[0][1:])),
    )


def _labels(*names: str) -> list[Column]:
    heads = {"members": "e", "layers": "L", "width": "nodes"}
    return [
        Column(
            heads.get(name, name),
            "",
            "text" if name in ("problem", "sampling") else "count",
            "label",
        )
        for name in names
    ]


def _columns(
    group: str, measures: Sequence[Measure], source: Any = "ours"
) -> list[Column]:
    return [Column(m.name, group, m.kind, source) for m in measures]


def _cells(runs: list[Line], measures: Sequence[Measure]) -> list[Cell]:
    return [measure.of(runs) if runs else None for measure in measures]


def _printed(
    entry: dict[str, Any], measures: Sequence[Measure], prefix: str = ""
) -> list[Cell]:
    cells: list[Cell] = []
    for measure in measures:
        name = f"{prefix}{measure.paper}"
        if measure.kind == "percent":
            cells.append(paper.share(entry, name))
        else:
            cells.append(entry.get(name))
    return cells


def _time(clock: Clock) -> Measure:
    def of(runs: list[Line]) -> Cell:
        return mean(spent(run, clock) for run in runs)

    if clock == "nodes":
        return Measure("Nodes", "count", of, "no such column")
    return Measure("Time", "seconds", of, "time")


def _solved() -> Measure:
    return Measure("Solved", "count", _count_solved, "solved")


def _count_solved(runs: list[Line]) -> Cell:
    return sum(map(solved, runs))


def _gap(over: Any) -> Measure:
    return Measure("Gap", "percent", lambda runs: mean_gap(runs, over), "gap")


def _mean(measure: Callable[[Line], float]) -> Callable[[list[Line]], Cell]:
    return lambda runs: mean(map(measure, runs))


def _stage(*names: str) -> Callable[[list[Line]], Cell]:
    return lambda runs: mean(stage(run, *names) for run in runs)


def _detail(name: str) -> Callable[[list[Line]], Cell]:
    return lambda runs: mean(detail(run, name) for run in runs)


def _sum(cells: list[Cell]) -> Cell:
    return sum(cell for cell in cells if isinstance(cell, int | float))


def _mean_of(cells: list[Cell]) -> Cell:
    return mean(float(cell) for cell in cells if isinstance(cell, int | float))
