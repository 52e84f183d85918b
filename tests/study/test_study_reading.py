"""Verdicts follow from the record; every number of the reading is computed again."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ennopt.study.finding import BEGIN, END, Pairs, put_into, to_markdown
from ennopt.study.reading import (
    gaps,
    inequalities,
    quality,
    read,
    stability,
    superiority,
)
from ennopt.study.record import select
from ennopt.study.significance import rank_test, sign_test, spread_test

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


def test_a_text_without_marks_is_refused():
    with pytest.raises(ValueError, match="Expected <!-- reading: begin"):
        put_into("nothing", (), "")
    assert put_into(f"a {BEGIN} old {END} b", (), "Lead.") == (
        f"a {BEGIN}\nLead.\n\n{END} b"
    )
    assert to_markdown((), "Lead.") == "Lead.\n\n"


def test_pairs_are_told_in_words():
    assert str(Pairs(9, 1, 2)) == "9 to 1, 2 equal, sign test p = 0.021"
