"""Verdicts follow from the record; every number of the reading is computed again."""

import html
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ennopt.study.finding import BEGIN, END, Pairs, put_into, to_markdown
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
from ennopt.study.record import read_results, select
from ennopt.study.significance import in_words, rank_test, sign_test, spread_test
from ennopt.study.table import written

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "desk"


# The tests of significance, against SciPy.


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (9, 1), (5, 5), (32, 2), (1, 0)])
def test_the_sign_test_is_the_binomial_test(wins, losses):
    theirs = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("digits", [0, 8], ids=["ties", "no ties"])
def test_the_rank_test_is_that_of_mann_and_whitney(seed, digits):
    rng = np.random.default_rng(seed)
    first = np.round(rng.normal(size=11), digits)
    second = np.round(rng.normal(0.7, size=8), digits)
    theirs = stats.mannwhitneyu(first, second, method="asymptotic").pvalue
    assert rank_test(first, second) == pytest.approx(theirs, rel=1e-9)


def test_ranks_of_equal_infinite_and_missing_values_are_no_evidence():
    assert rank_test([1.0, 1.0], [1.0]) == 1.0
    assert rank_test([], [1.0]) == 1.0
    assert rank_test([math.inf] * 9, [1.0] * 9) < 0.001


def test_a_wider_spread_is_seen_whatever_the_medians():
    rng = np.random.default_rng(0)
    tight = [10.0 + 0.1 * rng.normal(size=20), -4.0 + 0.1 * rng.normal(size=20)]
    wide = [rng.normal(size=20), 3.0 + rng.normal(size=20)]
    assert spread_test(tight, wide) < 1e-6
    assert spread_test(wide, [x + 100.0 for x in wide]) > 0.9


# Verdicts on hand-made lines.


def duel(make_line, enhanced, baseline):
    """One line of each method for each pair of (status, seconds, gap)."""
    return [
        make_line(f"peaks_e3_L2_n20_r{r}", label, status, seconds, gap, limit=10.0)
        for r, both in enumerate(zip(enhanced, baseline, strict=True))
        for label, (status, seconds, gap) in zip(("E-NN", "B&C"), both, strict=True)
    ]


QUICK, SLOW, OPEN = ("optimal", 1.0, 0.0), ("optimal", 9.0, 0.0), ("time_limit", 9, 0.5)


@pytest.mark.parametrize(
    ("enhanced", "baseline", "verdict"),
    [
        ([QUICK] * 3, [SLOW, SLOW, OPEN], "holds"),
        ([SLOW] * 3, [QUICK, QUICK, OPEN], "holds partly"),
        ([SLOW] * 3, [QUICK] * 3, "does not hold"),
        ([OPEN, SLOW], [QUICK, QUICK], "does not hold"),
    ],
)
def test_more_solved_and_faster_must_both_be_true(
    make_line, enhanced, baseline, verdict
):
    found = superiority(duel(make_line, enhanced, baseline))
    assert found.verdict == verdict
    assert found.runs == 2 * len(enhanced)


@pytest.mark.parametrize(
    ("count", "verdict"), [(8, "holds"), (3, "holds partly"), (0, "not measured")]
)
def test_an_advantage_within_chance_holds_partly_only(make_line, count, verdict):
    worse = ("time_limit", 9, 0.9)
    runs = duel(make_line, [OPEN] * count, [worse] * count)
    assert gaps(runs).verdict == verdict
    back = gaps(duel(make_line, [worse] * 3, [OPEN] * 3))
    assert back.verdict == "does not hold"


def test_unknown_gaps_count_as_the_largest(make_line):
    runs = duel(make_line, [OPEN] * 8, [("time_limit", 9, None)] * 8)
    assert gaps(runs).verdict == "holds"


def models(make_line, problem, ensembles, singles):
    lines = []
    for kind, values in (("ensemble", ensembles), ("single", singles)):
        for r, value in enumerate(values):
            subject = {
                "name": f"{problem}_{kind}_{r}", "problem": problem, "kind": kind,
                "sampling": "lhs", "number": 1, "members": 1, "layers": 2, "width": 9,
            }  # fmt: skip
            facts = {"true_value": value, "optimum": 0.0, "distance": value, "rmse": 1}
            lines.append(make_line(subject=subject, facts=facts, seed=r))
    return lines


def test_ensembles_must_be_ahead_on_every_problem_and_once_by_more_than_chance(
    make_line,
):
    near, far = [1.0 + 0.01 * i for i in range(9)], [5.0 + i for i in range(9)]
    first = models(make_line, "peaks", near, far)
    assert quality(first).verdict == stability(first).verdict == "holds"
    both = first + models(make_line, "perm", far, near)
    assert quality(both).verdict == "holds partly"
    assert quality(models(make_line, "perm", far, near)).verdict == "does not hold"


def test_conclusions_without_runs_are_left_out(make_line, make_plan):
    runs = [
        make_line("perm_e1_L2_n50_r0", label, experiment="inequalities",
                  details={"inequalities": 4})
        for label in ("BigM", "BigM-VI")
    ]  # fmt: skip
    named = {"compare": ["table1"], "inequalities": ["table8"]}
    experiments = [{"name": n, "items": items} for n, items in named.items()]
    (finding,) = read(select([make_plan(runs, experiments), *runs]))
    assert finding == inequalities(runs)
    assert finding.verdict == "holds" and "4 on average" in finding.measured
    others = [make_line(label="SCIP"), make_line(label="HiGHS")]
    assert read(select([make_plan(others, experiments), *others])) == ()


# Every number of the published reading, from the bare lines.


@pytest.fixture(scope="module")
def lines():
    text = (RECORD / "results.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    keys = set(found[-1]["runs"] if found[-1]["line"] == "plan" else found[0]["runs"])
    return [x for x in found if x["line"] == "run" and x["key"] in keys]


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


def test_bounds_and_inequalities_are_computed_again(lines):
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
    runs = [x for x in lines if x["experiment"] == "inequalities"]
    plain, more = (of(lines, "inequalities", label) for label in ("BigM", "BigM-VI"))
    told = inequalities(runs).measured
    counts = [sum(map(proved, side.values())) for side in (more, plain)]
    assert f"Solved: {counts[0]} with, {counts[1]} without, of {len(plain)}." in told
    both = [n for n in plain if not proved(plain[n]) and not proved(more[n])]
    change = max(abs(open_gap(plain[n]) - open_gap(more[n])) for n in both)
    assert f"{written(change, 'percent')} over {len(both)} networks" in told
    made = np.mean([r["details"]["inequalities"] for r in more.values()])
    assert f"{written(float(made), 'seconds')} on average" in told


@pytest.mark.parametrize(
    ("finding", "sampling", "fact"),
    [(quality, "lhs", "true_value"), (stability, "lhs", "true_value"),
     ("closeness", "mvn", "distance")],
    ids=["quality", "stability", "closeness"],
)  # fmt: skip
def test_models_are_compared_again(lines, finding, sampling, fact):
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


def test_the_published_page_and_the_docs_have_this_reading():
    results = read_results(RECORD)
    findings = read(results)
    assert len(findings) == len(CONCLUSIONS)
    docs = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    assert put_into(docs, findings, setting(results)) == docs
    page = (RECORD / "report.html").read_text(encoding="utf-8")
    for finding in findings:
        assert finding.measured in html.unescape(page)
        assert f">{finding.verdict}</b>" in page


def test_a_text_without_marks_is_refused():
    with pytest.raises(ValueError, match="Expected <!-- reading: begin"):
        put_into("nothing", (), "")
    assert put_into(f"a {BEGIN} old {END} b", (), "Lead.") == (
        f"a {BEGIN}\nLead.\n\n{END} b"
    )
    assert to_markdown((), "Lead.") == "Lead.\n\n"


def test_pairs_are_told_in_words():
    assert str(Pairs(9, 1, 2)) == "9 to 1, 2 equal, sign test p = 0.021"
