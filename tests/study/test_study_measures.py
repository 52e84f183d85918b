"""Numbers of hand-made runs, checked by hand."""

import math

import numpy as np
import pytest

from ennopt.study.measures import (
    bootstrap,
    cumulative,
    detail,
    gap,
    grouped,
    improvement,
    mean,
    mean_gap,
    paired,
    solved,
    spent,
    time_gap,
    time_gap_of,
    uneven,
)

INF = math.inf


def test_a_solved_run_has_no_gap_whatever_small_distance_is_left(make_line):
    assert gap(make_line(gap=5e-5)) == 0.0


def test_an_unsolved_run_keeps_its_gap_even_a_tiny_one(make_line):
    assert gap(make_line(status="time_limit", gap=2e-4)) == 2e-4


def test_an_unknown_gap_is_infinite(make_line):
    assert gap(make_line(status="time_limit", gap=None)) == INF


def test_an_unsolved_run_spends_its_whole_limit(make_line):
    assert spent(make_line(status="time_limit", seconds=3601.7)) == 3600.0
    assert spent(make_line(status="time_limit", seconds=3598.0)) == 3600.0


def test_a_solved_run_spends_its_own_time(make_line):
    assert spent(make_line(seconds=12.5)) == 12.5
    assert spent(make_line(seconds=3600.4)) == 3600.4


def test_without_a_time_limit_the_measured_time_counts(make_line):
    run = make_line(status="node_limit", seconds=3.0, limit=None, node_limit=100)
    assert spent(run) == 3.0
    assert spent(run, "nodes") == 100


@pytest.mark.parametrize(
    ("seconds", "alpha", "expected"),
    [
        (17.0, 0.0, 17.0),  # solved: the time itself
        (3600.0, 0.0, 3600.0),
        (3600.0, 0.01, 3636.0),
        (3600.0, 2.69, 3600 + 3600 * 2.69),
        (20.0, 0.5, 1820.0),  # a shorter limit keeps the paper's weight
        (3600.0, INF, INF),
    ],
)
def test_the_time_gap_is_time_plus_3600_alpha(seconds, alpha, expected):
    assert time_gap(seconds, alpha) == expected


def test_the_time_gap_of_a_solved_run_is_its_time(make_line):
    assert time_gap_of(make_line(seconds=40.0, gap=9e-5)) == 40.0
    late = {"status": "time_limit", "gap": 0.5}
    assert time_gap_of(make_line(seconds=3605.0, **late)) == 5400.0


def test_the_time_gap_caps_unsolved_runs_at_their_own_limit_and_no_others(make_line):
    late = {"status": "time_limit", "gap": 0.5}
    assert time_gap_of(make_line(seconds=5000.0, limit=7200.0)) == 5000.0
    assert time_gap_of(make_line(seconds=7300.0, limit=7200.0, **late)) == 9000.0
    assert time_gap_of(make_line(nodes=9000, node_limit=10_000), "nodes") == 9000.0


def test_a_detail_that_was_not_finite_is_infinite_and_one_that_lacks_is_unknown(
    make_line,
):
    run = make_line(details={"phase_one_gap": None})
    assert detail(run, "phase_one_gap") == INF
    assert math.isnan(detail(run, "phase_two_start_gap"))


def test_methods_that_lack_runs_of_others_are_told(make_line):
    names = [f"peaks_e3_L2_n20_r{r}" for r in range(3)]
    runs = [make_line(name, label) for name in names for label in ("A", "B")]
    assert uneven(runs) == ""
    assert uneven([]) == ""
    assert "Of 3 runs there are only: A 2." in uneven(runs[1:])


def test_the_mean_gap_is_over_unsolved_runs_or_over_all(make_line):
    runs = [
        make_line(),
        make_line(),
        make_line(status="time_limit", gap=0.05),
    ]
    assert mean_gap(runs) == 0.05
    assert mean_gap(runs, "all") == pytest.approx(0.05 / 3)


def test_the_mean_gap_is_zero_when_all_are_solved_and_missing_without_runs(make_line):
    assert mean_gap([make_line()]) == 0.0
    assert mean_gap([]) is None


def test_one_unknown_gap_makes_the_mean_infinite(make_line):
    runs = [make_line(status="time_limit", gap=g) for g in (0.1, None)]
    assert mean_gap(runs) == INF


def test_improvement_is_relative_to_the_reference():
    assert improvement(-3.0, -4.0) == 0.25
    assert math.isnan(improvement(1.0, math.nan))
    assert math.isnan(improvement(1.0, 0.0))
    assert math.isnan(improvement(INF, INF))
    assert improvement(INF, 4.0) == -INF


def test_ties_make_one_step_of_the_staircase(make_line):
    runs = [make_line(seconds=s) for s in (2.0, 1.0, 2.0, 2.0)]
    assert cumulative(runs, spent) == ([1.0, 2.0], [1, 4])


def test_a_staircase_counts_what_is_at_most_each_value(make_line):
    rng = np.random.default_rng(0)
    values = rng.integers(1, 9, 50).astype(float)
    steps, counts = cumulative([make_line(seconds=v) for v in values], spent)
    assert counts == [int((values <= step).sum()) for step in steps]


def test_pairs_match_by_instance_and_seed(make_line):
    a, b = "peaks_e3_L2_n20_r0", "peaks_e3_L2_n20_r1"
    runs = [
        make_line(a, "B&C", seconds=1.0),
        make_line(b, "B&C", seconds=2.0),
        make_line(b, "E-NN", seconds=3.0),
        make_line(b, "E-NN", seconds=4.0, seed=1),
    ]
    pairs = paired(runs, "B&C", "E-NN")
    assert [(x["seconds"], y["seconds"]) for x, y in pairs] == [(2.0, 3.0)]


def test_groups_keep_their_order(make_line):
    runs = [make_line(f"{p}_e3_L2_n20_r0") for p in ("wine", "beale", "wine")]
    assert [k for k, _ in grouped(runs, "problem").items()] == [("wine",), ("beale",)]


def test_the_mean_of_nothing_known_is_missing():
    assert mean([math.nan]) is None


def test_a_bootstrap_interval_repeats_and_contains_the_mean():
    values = np.random.default_rng(1).normal(size=20)
    first, second = bootstrap(values), bootstrap(values)
    assert first == second
    assert first.low < first.mean < first.high
    assert first.mean == pytest.approx(values.mean())


def test_a_bootstrap_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(300):
        interval = bootstrap(rng.normal(size=40), draws=500)
        hits += interval.low <= 0.0 <= interval.high
    assert 0.90 <= hits / 300 <= 0.98


def test_solved_means_proved(make_line):
    assert solved(make_line())
    assert not solved(make_line(status="node_limit", gap=0.0))
