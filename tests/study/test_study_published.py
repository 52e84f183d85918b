"""Every number of the published pages, computed again from the bare lines."""

import html
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ennopt.learn.instances import ensemble_digest, read_instance
from ennopt.study.finding import put_into
from ennopt.study.reading import (
    CONCLUSIONS,
    cuts,
    easy_ones,
    gaps,
    inequalities,
    lagrangian,
    phases,
    preprocessing,
    quality,
    read,
    reversions,
    setting,
    stability,
    superiority,
    targeted,
)
from ennopt.study.record import read_results
from ennopt.study.significance import in_words
from ennopt.study.table import written

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted(file.parent for file in (ROOT / "docs").glob("*/results.jsonl"))


@pytest.fixture(scope="module", params=PUBLISHED, ids=lambda folder: folder.name)
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def lines(folder):
    text = (folder / "results.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    keys = set([x for x in found if x["line"] == "plan"][-1]["runs"])
    last = {x["key"]: x for x in found if x["line"] == "run" and x["key"] in keys}
    return [x for x in last.values() if x["outcome"] == "done"]


@pytest.fixture(scope="module")
def items(folder):
    """What a record is to fill: that of a part of a study has fewer."""
    plan = read_results(folder).plan
    return {item for experiment in plan["experiments"] for item in experiment["items"]}


def demand(item, items):
    if item not in items:
        pytest.skip(f"the record is of runs without {item}")


def of(lines, experiment, label):
    return {
        x["subject"]["name"]: x["result"]
        for x in lines
        if x["experiment"] == experiment and x["label"] == label
    }


def proved(result):
    return result["status"] == "optimal"


def open_gap(result):
    return math.inf if result["gap"] is None else result["gap"]


def test_the_comparison_is_computed_again(lines):
    runs = [x for x in lines if x["experiment"] == "compare"]
    limit = runs[0]["limits"]["seconds"]
    ours, theirs = (of(lines, "compare", label) for label in ("E-NN", "B&C"))
    counts = [sum(map(proved, side.values())) for side in (ours, theirs)]
    times = [
        stats.gmean([r["seconds"]["total"] if proved(r) else limit
                     for r in side.values()])
        for side in (ours, theirs)
    ]  # fmt: skip
    told = superiority(runs).measured
    assert f"E-NN solves {counts[0]} of {len(ours)}, B&C {counts[1]} " in told
    assert " s against ".join(written(t, "seconds") for t in times) + " s" in told

    def measure(r):
        return r["seconds"]["total"] if proved(r) else limit + 3600 * open_gap(r)

    wins = sum(measure(ours[n]) < measure(theirs[n]) for n in ours)
    losses = sum(measure(ours[n]) > measure(theirs[n]) for n in ours)
    chance = in_words(stats.binomtest(wins, wins + losses).pvalue)
    assert f"E-NN {wins} to {losses}" in told and chance in told
    hard = [n for n in ours if not proved(ours[n]) and not proved(theirs[n])]
    smaller = sum(open_gap(ours[n]) < open_gap(theirs[n]) for n in hard)
    assert f"Neither solves {len(hard)}. Smaller gap: E-NN {smaller} to " in (
        gaps(runs).measured
    )
    middle = [np.median([open_gap(side[n]) for n in hard]) for side in (ours, theirs)]
    assert " against ".join(written(float(g), "percent") for g in middle) in (
        gaps(runs).measured
    )
    easy = [
        n for n in ours
        if any(proved(r) and r["seconds"]["total"] <= limit / 12
               for r in (ours[n], theirs[n]))
    ]  # fmt: skip
    before = sum(measure(theirs[n]) < measure(ours[n]) for n in easy)
    assert f"Of {len(easy)} ensembles" in easy_ones(runs).measured
    assert f"time-gap: {before} to {len(easy) - before}" in easy_ones(runs).measured
    names = ("lp_bounds", "survey", "milp_bounds")
    shares = [
        float(np.median([sum(r["seconds"].get(n, 0.0) for n in names)
                         / r["seconds"]["total"] for r in side.values()]))
        for side in (ours, theirs)
    ]  # fmt: skip
    assert (
        f"E-NN {written(shares[0], 'percent')}, B&C {written(shares[1], 'percent')}."
        in preprocessing(runs).measured
    )


def test_the_phases_are_computed_again(lines):
    runs = [x for x in lines if x["experiment"] == "compare"]
    details = [r["details"] for r in of(lines, "compare", "E-NN").values()]
    results = list(of(lines, "compare", "E-NN").values())
    second = [r for r in results if proved(r) and r["details"].get("phase_two_nodes")]
    first = sum(map(proved, results)) - len(second)
    told = phases(runs).measured
    assert f"solves {first} without a node of Phase Two and {len(second)} in it" in told
    starts = [
        (d["phase_two_start_gap"], d["phase_one_gap"])
        for d in details
        if d.get("phase_two_start_gap") is not None
    ]
    wins, losses = (sum(a < b for a, b in starts), sum(a > b for a, b in starts))
    medians = [
        written(float(np.median(x)), "percent") for x in zip(*starts, strict=True)
    ]
    told = lagrangian(runs).measured
    assert f"Of {len(starts)} runs" in told and f"{wins} to {losses}" in told
    assert f"Median gap {medians[1]} before, {medians[0]} after." in told
    nodes = sum(d.get("phase_two_nodes", 0) for d in details)
    back = sum(d.get("big_m_reversions", 0) for d in details)
    assert f"{back} of {nodes} nodes revert" in reversions(runs).measured
    deepest = max(d.get("phase_two_mean_depth", 0) for d in details)
    assert f"largest mean depth {deepest:.2g}" in reversions(runs).measured
    slowest = max(r["seconds"].get("subgradient", 0.0) for r in results)
    assert f"subgradient {written(slowest, 'seconds')} s." in reversions(runs).measured


def test_bounds_are_computed_again(lines, items):
    demand("table4", items)
    runs = [x for x in lines if x["experiment"] == "bounds"]
    by = {label: of(lines, "bounds", label) for label in ("LP", "MILP", "TBP")}
    lp = {n: r["details"]["root_bound"] for n, r in by["LP"].items()}

    def gain(label, name):
        return np.mean([
            abs(r["details"][name] - lp[n]) / abs(lp[n]) for n, r in by[label].items()
        ])  # fmt: skip

    told = targeted(runs).measured
    for label, word in (("TBP", "targeted"), ("MILP", "MILPs")):
        assert f"{word} {written(float(gain(label, 'root_bound')), 'percent')}" in told
    for label in by:
        added = gain(label, "root_bound_after_cuts") - gain(label, "root_bound")
        assert f"{label} {written(float(added), 'percent')}" in cuts(runs).measured
    neurons = [
        np.mean([r["details"]["milp_neurons"] for r in by[label].values()])
        for label in ("TBP", "MILP")
    ]
    assert " against ".join(written(float(n), "seconds") for n in neurons) in told


def test_inequalities_are_computed_again(lines, items):
    demand("table8", items)
    runs = [x for x in lines if x["experiment"] == "inequalities"]
    plain, more = (of(lines, "inequalities", label) for label in ("BigM", "BigM-VI"))
    told = inequalities(runs).measured
    counts = [sum(map(proved, side.values())) for side in (more, plain)]
    assert f"Solved: {counts[0]} with, {counts[1]} without, of {len(plain)}." in told
    both = [n for n in plain if not proved(plain[n]) and not proved(more[n])]
    moves = [abs(open_gap(plain[n]) - open_gap(more[n])) for n in both]
    change = max(moves, default=0.0)
    assert f"{written(change, 'percent')} over {len(both)} networks" in told
    made = np.mean([r["details"]["inequalities"] for r in more.values()])
    assert f"{written(float(made), 'seconds')} on average" in told


@pytest.mark.parametrize(
    ("finding", "sampling", "fact"),
    [(quality, "lhs", "true_value"), (stability, "lhs", "true_value"),
     ("closeness", "mvn", "distance")],
    ids=["quality", "stability", "closeness"],
)  # fmt: skip
def test_models_are_compared_again(lines, items, finding, sampling, fact):
    demand("figure1", items)
    runs = [x for x in lines if x["experiment"] == "quality"]
    found = {
        "closeness": next(f for item, f in CONCLUSIONS if item == "figure2")
    }.get(finding, finding)  # fmt: skip
    told = found(runs).measured
    for problem in {x["subject"]["problem"] for x in runs}:
        groups = {"ensemble": {}, "single": {}}
        for x in runs:
            s = x["subject"]
            if (s["problem"], s["sampling"]) == (problem, sampling):
                values = groups[s["kind"]].setdefault(s["number"], [])
                values.append(x["facts"][fact])
        flat = [[v for g in groups[k].values() for v in g] for k in groups]
        if found is stability:
            numbers = [
                np.mean([stats.iqr(g) for g in groups[k].values()]) for k in groups
            ]
            away = [
                [abs(v - np.median(g)) for g in groups[k].values() for v in g]
                for k in groups
            ]
            chance = stats.mannwhitneyu(*away, method="asymptotic").pvalue
        else:
            best = next(
                x["facts"]["optimum"] for x in runs
                if x["subject"]["problem"] == problem
            ) if found is quality else 0.0  # fmt: skip
            numbers = [np.median(values) - best for values in flat]
            chance = stats.mannwhitneyu(*flat, method="asymptotic").pvalue
        text = (
            f"{problem.capitalize()} {numbers[0]:.3g} against {numbers[1]:.3g} "
            f"({in_words(chance)})"
        )
        assert text in told


def test_every_published_page_has_the_reading_of_its_record(folder, items):
    findings = read(read_results(folder))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert len(findings) == sum(item in items for item, _ in CONCLUSIONS)
    for finding in findings:
        assert finding.measured in html.unescape(page)
        assert f">{finding.verdict}</b>" in page


def test_the_docs_have_the_reading_of_the_record_that_they_name():
    docs = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    (name,) = re.findall(r"\[the published record\]\((\w+)/results\.jsonl\)", docs)
    results = read_results(ROOT / "docs" / name)
    assert put_into(docs, read(results), setting(results)) == docs


def test_the_instances_of_published_records_are_published_too(lines):
    ready = ROOT / "experiments" / "instances"
    told = {
        (x["subject"]["name"], x["subject"].get("orientation", "one")): x["subject"]
        for x in lines
        if x["kind"] == "solve"
    }
    assert told
    for (name, orientation), subject in told.items():
        ensemble = read_instance(ready, name, orientation)
        assert ensemble_digest(ensemble) == subject["digest"]


# The tables of a page, cell by cell.


class Tables(HTMLParser):
    """``found[section]``: rows, from (source, group, column) to the kind and text."""

    def __init__(self):
        super().__init__()
        self.found, self.section, self.cell = {}, "", None

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "section":
            self.section = given["id"]
        elif tag == "table":
            self.groups, self.heads, self.rows = [], [], []
            self.found[self.section] = self.rows
        elif tag == "tr":
            self.row = []
        elif tag in ("td", "th"):
            self.cell, self.given = "", given

    def handle_data(self, text):
        if self.cell is not None:
            self.cell += text

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self.cell is not None:
            classes = self.given["class"].split()
            if "colspan" in self.given:
                self.groups += [self.cell] * int(self.given["colspan"])
            elif tag == "th":
                self.heads.append((classes[0], self.cell))
            else:
                self.row.append((classes, self.cell))
            self.cell = None
        elif tag == "tr" and self.row:
            groups = self.groups or [""] * len(self.row)
            self.rows.append({
                (classes[0], group, name): (classes[1], text)
                for (classes, text), group, (_, name)
                in zip(self.row, groups, self.heads, strict=True)
            })  # fmt: skip


def mean(values):
    values = [math.inf if v is None else v for v in values]
    return float(np.mean(values)) if values else None


def clock(x):
    return x["result"]["seconds"]["total"] if proved(x["result"]) else limit(x)


def limit(x):
    return x["limits"]["seconds"]


def open_gaps(runs):
    left = [open_gap(x["result"]) for x in runs if not proved(x["result"])]
    return mean(left) if left else 0.0


def all_gaps(runs):
    return mean(0.0 if proved(x["result"]) else open_gap(x["result"]) for x in runs)


def took(*names):
    def of(runs):
        return mean(
            sum(x["result"]["seconds"].get(name, 0.0) for name in names) for x in runs
        )

    return of


def counted(name, otherwise=None):
    def of(runs):
        details = [x["result"]["details"] for x in runs]
        if otherwise is None:
            return mean(d[name] for d in details if name in d)
        return mean(d.get(name, otherwise) for d in details)

    return of


def solved(runs):
    return sum(proved(x["result"]) for x in runs)


BEFORE = took("bounds", "lp_bounds", "survey", "milp_bounds")
COMMON = {"runs": len, "Time": lambda runs: mean(map(clock, runs)), "Solved": solved}
BASELINE = COMMON | {
    "Gap": open_gaps, "Preprocess": BEFORE, "B&B": took("branch_and_cut"),
    "Nodes": lambda runs: mean(x["result"]["nodes"] for x in runs),
}  # fmt: skip
ENHANCED = COMMON | {
    "Gap": all_gaps, "Preprocess": BEFORE, "Phase 1": took("phase_one"),
    "Phase 2": took("subgradient", "phase_two"),
    "BB nodes": counted("phase_two_nodes", 0),
}  # fmt: skip
PHASE_TWO = {
    "runs": len, "Time": COMMON["Time"], "Gap 1": counted("phase_one_gap"),
    "Gap 2": counted("phase_two_start_gap"), "Big-M": counted("big_m_reversions"),
    "Depth": counted("phase_two_mean_depth"), "Nodes": counted("phase_two_nodes"),
}  # fmt: skip
BY_RUN = {
    ("Bounds", "Points"): counted("surveyed_nodes"),
    ("Bounds", "Critical"): counted("critical_neurons"),
    ("Bounds", "Neurons"): counted("milp_neurons"),
    ("Bounds", "MILPs"): counted("milps"),
    ("Seconds", "LPs"): took("lp_bounds"),
    ("Seconds", "Survey"): took("survey"),
    ("Seconds", "MILPs"): took("milp_bounds"),
    ("Seconds", "Phase 1"): took("phase_one"),
    ("Seconds", "Steps"): took("subgradient"),
    ("Seconds", "Phase 2"): took("phase_two"),
    ("Phases", "Ineq."): counted("phase_one_inequalities"),
    ("Phases", "Gap 1"): counted("phase_one_gap"),
    ("Phases", "Gap 2"): counted("phase_two_start_gap"),
    ("Phases", "Nodes 2"): counted("phase_two_nodes"),
    ("Phases", "Gap"): all_gaps,
}
HEADS = {"e": "members", "L": "layers", "nodes": "width"}


def improved(lines, name):
    lp = {n: r["details"]["root_bound"] for n, r in of(lines, "bounds", "LP").items()}

    def share(runs):
        return mean(
            abs(x["result"]["details"][name] / lp[x["subject"]["name"]] - 1.0)
            for x in runs
        )

    return share


def in_phase_two(runs):
    reached = [
        x for x in runs
        if x["label"] == "E-NN" and x["result"]["details"].get("phase_two_nodes")
    ]  # fmt: skip
    return [x for x in reached if proved(x["result"])] or reached


def formulas(table, group, lines):
    if table in ("table2", "table6"):
        return BASELINE
    if table in ("table3", "table7"):
        return ENHANCED
    if table == "table5":
        return PHASE_TWO
    if table == "enn_by_run":
        return {name: of_ for (kind, name), of_ in BY_RUN.items() if kind == group}
    if table == "table4":
        return {
            "runs": len, "Time": BEFORE, "Root": improved(lines, "root_bound"),
            "Cuts": improved(lines, "root_bound_after_cuts"),
            "MILPs": counted("milp_neurons"),
        }  # fmt: skip
    nodes = BASELINE["Nodes"]
    more = {"Nodes": nodes, "Cuts": counted("inequalities")}
    return COMMON | {"Gap": open_gaps} | (more if table == "table8" else {})


def behind(table, lines):
    """The runs of a table, and which label its ungrouped columns are about."""
    experiment = {"table4": "bounds", "table8": "inequalities"}.get(table, "compare")
    runs = [x for x in lines if x["experiment"] == experiment]
    if table == "table5":
        runs = in_phase_two(runs)
    label = {"table1": "B&C", "table4": "LP", "table8": "BigM"}.get(table)
    if label is None:
        label = "B&C" if table in ("table2", "table6") else "E-NN"
    return runs, label


@pytest.mark.parametrize(
    "table",
    ["table1", "table2", "table3", "table4", "table5", "table6", "table7", "table8",
     "enn_by_run"],
)  # fmt: skip
def test_every_number_of_ours_in_a_table_is_computed_again(folder, lines, items, table):
    demand("table7" if table == "enn_by_run" else table, items)
    page = Tables()
    page.feed((folder / "report.html").read_text(encoding="utf-8"))
    runs, first = behind(table, lines)
    assert page.found[table]
    compared = 0
    for row in page.found[table]:
        place = {
            name: text for (kind, _, name), (_, text) in row.items() if kind == "label"
        }
        total = place["problem"] in ("all", "average")
        members = runs if total else [
            x for x in runs
            if all(str(x["subject"][HEADS.get(n, n)]) == v for n, v in place.items())
        ]  # fmt: skip
        for (kind, group, name), (unit, text) in row.items():
            if kind != "ours":
                continue
            label = group if group and table != "enn_by_run" else first
            formula = formulas(table, group, lines)[name]
            chosen = [x for x in members if x["label"] == label]
            if total and table in ("table4", "table8") and name not in (
                "runs", "Solved"
            ):  # fmt: skip
                problems = {x["subject"]["problem"]: 0 for x in chosen}
                expected = mean(
                    formula([x for x in chosen if x["subject"]["problem"] == p])
                    for p in problems
                )
            else:
                expected = formula(chosen)
            assert text == written(expected, unit), (place, group, name)
            compared += 1
    assert compared >= len(page.found[table])


def test_every_model_search_is_computed_again(folder, lines, items):
    demand("table9", items)
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Tables()
    page.feed(text)
    found = {
        (x["subject"]["problem"], x["subject"]["sampling"], x["subject"]["kind"], n): b
        for x in lines
        if x["kind"] == "selection"
        for n, b in enumerate(x["facts"]["best"], start=1)
    }
    names = ("members", "layers", "width", "learning_rate", "batch_size", "rmse")
    for row in page.found["table9"]:
        *place, rank = (v[1] for (kind, _, _), v in row.items() if kind == "label")
        best = found.pop((*place, int(rank)), None)
        ours = [v for (kind, _, _), v in row.items() if kind == "ours"]
        for name, (unit, told) in zip(names, ours, strict=True):
            assert told == written(best and best[name], unit)
    assert not found


def test_every_card_is_computed_again(folder, lines):
    text = (folder / "report.html").read_text(encoding="utf-8")
    compare = [x for x in lines if x["experiment"] == "compare"]
    for label in {x["label"]: 0 for x in compare}:
        runs = [x for x in compare if x["label"] == label]
        middle = written(
            float(stats.gmean([max(clock(x), 1e-3) for x in runs])), "seconds"
        )
        assert (
            f'<h3>{html.escape(label)}</h3><p class="big">{solved(runs)}<small> of '
            f"{len(runs)} solved within {limit(runs[0]):g} s</small>"
        ) in text
        assert f"geometric mean {middle} s" in text
