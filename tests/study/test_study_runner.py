"""Runs in real processes: nothing lost, nothing repeated, one failure is one run's."""

import io
import math
import multiprocessing
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ennopt import clock
from ennopt.learn.functions import FUNCTIONS
from ennopt.network import read_npz
from ennopt.study import executors, work
from ennopt.study.cli import forecast
from ennopt.study.executors import Local, executor_named
from ennopt.study.machine import machine, versions
from ennopt.study.plan import tasks_of
from ennopt.study.progress import StudyProgress, estimate
from ennopt.study.record import FILE, Journal, parse, read_results
from ennopt.study.report import ORDER, PAGE, make_report
from ennopt.study.runner import run_study
from ennopt.study.spec import read_study, study_from

# The source is held fixed: these tests are about kills, not about changed code.
PROGRAM = (
    "import argparse, sys\n"
    "from ennopt.study import machine\n"
    "machine.source_digest = lambda root, compiled=True: 'fixed'\n"
    "machine._code_digest = lambda root, modules, compiled: 'fixed'\n"
    "from ennopt.study.cli import add_study\n"
    "parser = argparse.ArgumentParser()\n"
    "add_study(parser.add_subparsers())\n"
    "options = parser.parse_args()\n"
    "sys.exit(options.run(options))\n"
)


def command(folder, *arguments):
    return [sys.executable, "-c", PROGRAM, "study", *arguments, "--output",
            str(folder / "out")]  # fmt: skip


def run_all(folder, executor=None, **settings):
    study = read_study(folder / "study.toml")
    stream = io.StringIO()
    tally = run_study(
        study, folder / "out", executor or Local(2), stream=stream, **settings
    )
    return tally, stream.getvalue()


def run_keys(folder):
    lines, _ = parse((folder / "out" / FILE).read_bytes())
    return Counter(line["key"] for line in lines if line["line"] == "run")


def test_every_run_ends_with_the_value_of_the_forward_pass(folder):
    tally, shown = run_all(folder)
    assert (tally.ran, tally.kept) == (6, 0)
    assert "6/6" in shown
    for run in tally.results.done:
        net = read_npz(folder / "nets" / f"{run['subject']['name']}.npz")
        x = np.array(run["result"]["x"])
        assert float(net(x)[0]) == run["result"]["value"]
        assert run["result"]["bound"] >= run["result"]["value"]
        assert run["machine"] == machine() and run["host"] and run["memory"] > 0
    assert not tally.results.failed


def test_a_second_run_repeats_nothing_and_writes_nothing(folder):
    run_all(folder)
    before = (folder / "out" / FILE).read_bytes()
    tally, _ = run_all(folder)
    assert (tally.ran, tally.kept) == (0, 6)
    assert (folder / "out" / FILE).read_bytes() == before


def test_a_pattern_chooses_runs_and_the_next_call_does_the_rest(folder):
    first, shown = run_all(folder, only="* SCIP")
    assert (first.ran, first.kept) == (3, 0)
    assert "3/3" in shown and "/6" not in shown  # nobody asked for the others
    assert {run["label"] for run in first.results.done} == {"SCIP"}
    study = read_study(folder / "study.toml")
    said = forecast(study, folder / "out", folder / "instances", 2)
    assert "all: 3 of 6 runs left, 2 at a time" in said
    rest, shown = run_all(folder)
    assert (rest.ran, rest.kept) == (3, 3)
    assert "6/6" in shown and "/3" not in shown


def test_a_changed_method_does_not_reuse_old_results(folder):
    run_all(folder)
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("nodes = 50", "nodes = 49"))
    tally, _ = run_all(folder)
    assert (tally.ran, tally.kept) == (6, 0)
    assert tally.results.others == 6


def test_a_failed_run_is_recorded_and_does_not_stop_the_others(folder, save_ensemble):
    save_ensemble(folder / "nets" / "net_e2_L2_n6_r1.npz", 1, boxed=False)
    tally, shown = run_all(folder)
    assert len(tally.results.done) == 4
    assert {run["subject"]["name"] for run in tally.results.failed} == {
        "net_e2_L2_n6_r1"
    }
    for run in tally.results.failed:
        assert "Expected" in run["error"] and "Traceback" in run["trace"]
    assert "failed: net_e2_L2_n6_r1" in shown
    assert run_all(folder)[0].ran == 0  # not retried unless asked
    assert run_all(folder, retry=True)[0].ran == 2


def test_numbers_that_json_lacks_are_unknown_in_the_line(folder, tmp_path):
    task = tasks_of(read_study(folder / "study.toml"), folder)[0]
    task = replace(task, subject=task.subject | {"rmse": math.nan})
    facts = {"best": [{"rmse": math.inf}, {"rmse": 0.5}], "distance": -math.inf}
    line = work.line(task, facts=facts, seconds=1.0)
    with Journal(tmp_path / "record") as journal:
        journal.append(line)
    assert line["facts"] == {"best": [{"rmse": None}, {"rmse": 0.5}], "distance": None}
    assert line["subject"]["rmse"] is None


def test_a_process_that_dies_fails_its_own_run_and_can_be_retried(folder):
    study = read_study(folder / "study.toml")
    tasks = tasks_of(study, folder)
    victim = tasks[2].key

    def kill(task):
        if task.key == victim:
            known = multiprocessing.active_children()
            os.kill(max(known, key=lambda p: p.pid).pid, signal.SIGKILL)

    lines = list(Local(1).execute(tasks, kill))
    failed = [line for line in lines if line["outcome"] == "failed"]
    assert [line["key"] for line in failed] == [victim]
    assert "signal 9" in failed[0]["error"]
    assert failed[0]["memory"] is None  # that of this process would not be its own
    assert len(lines) == 6


def half_an_answer(task, scratch, answer):
    os.write(answer.fileno(), struct.pack("!i", 1000) + b"half")


def test_a_process_that_dies_while_it_answers_fails_its_own_run(folder, monkeypatch):
    monkeypatch.setattr(executors, "_serve", half_an_answer)
    tasks = tasks_of(read_study(folder / "study.toml"), folder)[:2]
    lines = list(Local(2).execute(tasks, lambda task: None))
    assert [line["outcome"] for line in lines] == ["failed"] * 2
    assert "got the end of the process" in lines[0]["error"]


def test_a_run_that_does_not_end_is_ended_and_recorded(folder, monkeypatch):
    monkeypatch.setattr(executors, "hung_after", lambda task: 0.0)
    monkeypatch.setattr(executors, "POLL", 0.01)
    tasks = tasks_of(read_study(folder / "study.toml"), folder)[:1]
    (line,) = Local(1).execute(tasks, lambda task: None)
    assert line["outcome"] == "failed"
    assert "got none after" in line["error"]
    assert not multiprocessing.active_children()


def test_closing_an_executor_ends_its_processes(folder, save_ensemble):
    save_ensemble(folder / "nets" / "net_e3_L2_n30_r0.npz", 5, (30, 30), 4, 3)
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("nodes = 50", "seconds = 100"))
    tasks = [
        task
        for task in tasks_of(read_study(file), folder)
        if task.subject["width"] in (6, 30)
    ]
    tasks.sort(key=lambda task: -task.subject["width"])
    lines = Local(2).execute(tasks[1:], lambda task: None)
    next(lines)
    lines.close()
    assert not multiprocessing.active_children()


def test_a_worker_of_other_versions_does_not_answer_for_the_plan(folder):
    task = tasks_of(read_study(folder / "study.toml"), folder)[0]
    with pytest.raises(work.DifferentWorkerError, match=r"Expected numpy 1\.0 on"):
        work.run(task, versions(compiled=False) | {"numpy": "1.0"})
    assert work.run(task, versions(compiled=False))["outcome"] == "done"


def test_one_process_and_two_give_the_same_report(folder):
    run_all(folder, Local(1))
    one = make_report(read_results(folder / "out"), "nodes")
    (folder / "out" / FILE).unlink()
    run_all(folder, Local(2))
    two = make_report(read_results(folder / "out"), "nodes")
    assert one.page == two.page
    assert one.tables == two.tables and one.figures == two.figures


# Killed, and continued.


def lines_written(folder):
    file = folder / "out" / FILE
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_killed_at_any_moment_and_continued_the_report_is_the_same(folder):
    one = command(
        folder, "run", str(folder / "study.toml"), "--executor", "local:1",
        "--no-report",
    )  # fmt: skip
    subprocess.run(one, check=True, capture_output=True)
    expected = make_report(read_results(folder / "out"), "nodes").page
    order = list(run_keys(folder))
    (folder / "out").rename(folder / "calm")

    kills = 0
    for wanted in (1, 3, 5):  # after the plan, and after two and four runs
        process = subprocess.Popen(
            one, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and lines_written(folder) < wanted:
            time.sleep(0.002)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        with (folder / "out" / FILE).open("ab") as stream:
            stream.write(b'{"line":"run","key":"torn')
    assert kills >= 2  # the last may have ended by itself
    done = subprocess.run(
        command(folder, "run", str(folder / "study.toml"), "--executor", "local:2"),
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert run_keys(folder) == Counter(dict.fromkeys(order, 1))
    assert make_report(read_results(folder / "out"), "nodes").page == expected
    assert "kept from before" in done.stderr
    assert done.stdout.strip().endswith(PAGE)


TRAINED = """
title = "Trained"
[experiments.compare]
methods = { "HiGHS" = "BigM()" }
limits = { nodes = 1 }
[experiments.compare.instances]
problems = ["peaks", "spring"]
layers = [2]
widths = [100, 110]
max_epochs = 100000
"""


@pytest.mark.parametrize("doing", ["running", "training"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_workers_end_with_their_parent_and_nothing_half_done_is_recorded(
    folder, save_ensemble, doing, how
):
    for path in (folder / "nets").glob("*.npz"):
        path.unlink()
    save_ensemble(folder / "nets" / "net_e3_L2_n40_r0.npz", 5, (40, 40), 6, 3)
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("nodes = 50", "seconds = 60"))
    if doing == "training":
        file.write_text(TRAINED)
    process = subprocess.Popen(
        command(folder, "run", str(file), "--executor", "local:2"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while len(group(process.pid)) < 4:  # parent, fork server, two workers at least
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, how) if how == signal.SIGINT else process.kill()
    process.wait(timeout=60)
    end = time.monotonic() + 30
    while group(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not group(process.pid)
    assert lines_written(folder) == (doing == "running")  # the plan, and no run


def group(leader):
    """Living processes of a session, from the system's own list."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


# The command line.


def test_status_tells_counts_failures_and_what_is_left(folder, save_ensemble):
    save_ensemble(folder / "nets" / "net_e2_L2_n6_r1.npz", 1, boxed=False)
    run_all(folder)
    done = subprocess.run(
        command(folder, "status", str(folder / "study.toml")),
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "4 of 6 runs done, 2 failed, 0 left" in done.stdout
    assert "failed: net_e2_L2_n6_r1 HiGHS: " in done.stdout


def test_the_report_is_written_with_every_file_of_its_items(folder):
    run_all(folder)
    subprocess.run(
        command(folder, "report", str(folder / "study.toml")), check=True,
        capture_output=True,
    )  # fmt: skip
    written = {path.name for path in (folder / "out" / "report").iterdir()}
    assert written == {
        "table1.md", "table1.tex", "table1.csv", "figure3.svg", "figure3.png",
        "figure4.svg", "figure4.png", "figure3-tall.svg", "figure4-tall.svg",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "local:", "local:x", "dask:nowhere", "local:0"])
def test_an_executor_must_be_known(text):
    if text == "local:":
        assert isinstance(executor_named(text), Local)
        return
    with pytest.raises(ValueError, match="Expected an executor"):
        executor_named(text)


# Other kinds of runs.


def test_quality_evaluates_the_true_function_at_the_optimum_of_the_model(tmp_path):
    study = study_from({
        "experiments": {
            "quality": {
                "kind": "quality", "items": ["figure1", "figure2"],
                "methods": {"big": "BigM()"}, "problems": ["beale"], "singles": 1,
                "samplings": ["lhs"], "ensembles": 1, "replicas": 2, "rows": 60,
                "max_epochs": 3, "width": 5,
            },
            "search": {
                "kind": "selection", "items": ["table9"], "problems": ["beale"],
                "samplings": ["lhs"], "draws": 2, "folds": 2, "keep": 2, "rows": 60,
                "max_epochs": 2, "widths": [5, 10], "layers": [1],
            },
        }
    })  # fmt: skip
    tally = run_study(study, tmp_path, Local(2), stream=io.StringIO())
    assert not tally.results.failed
    runs = tally.results.of("quality")
    assert len(runs) == 4
    for run in runs:
        x = np.array(run["result"]["x"])
        assert run["facts"]["true_value"] == float(FUNCTIONS["beale"](x))
        assert run["facts"]["optimum"] == 0.0
    points = {tuple(run["result"]["x"]) for run in runs}
    assert len(points) > 1  # replicas are trained apart
    searches = tally.results.of("search")
    assert len(searches) == 2
    for run in searches:
        errors = [best["rmse"] for best in run["facts"]["best"]]
        assert errors == sorted(errors) and len(errors) == 2
    report = make_report(tally.results)
    assert {item.name for item in (*report.figures, *report.tables)} == {
        "figure1", "figure2", "table9"
    }  # fmt: skip


def test_mahalanobis_distance_is_the_norm_after_whitening():
    rng = np.random.default_rng(3)
    data = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3)) + [1.0, 2.0, 3.0]
    point = np.array([2.0, -1.0, 0.5])
    values, vectors = np.linalg.eigh(np.cov(data.T))
    white = (vectors.T @ (point - data.mean(axis=0))) / np.sqrt(values)
    assert work.mahalanobis(data, point) == pytest.approx(np.linalg.norm(white))
    assert work.mahalanobis(data, data.mean(axis=0)) == pytest.approx(0.0)


# Progress.


def test_the_estimate_takes_the_mean_of_the_same_method_and_else_the_limit(
    folder, make_line
):
    tasks = tasks_of(read_study(folder / "study.toml"), folder)
    ended = [
        make_line(label="HiGHS", seconds=2.0), make_line(label="HiGHS", seconds=4.0)
    ]  # fmt: skip
    assert estimate(tasks, [], 2) is None
    assert estimate(tasks, ended, 2) == pytest.approx((3 * 3 + 3 * 3) / 2)
    limited = [
        replace(task, limits=replace(task.limits, seconds=10.0)) for task in tasks
    ]
    assert estimate(limited, ended, 1) == pytest.approx(3 * 3 + 3 * 10)


def test_progress_shows_counts_time_left_and_what_is_running(folder, make_line):
    tasks = tasks_of(read_study(folder / "study.toml"), folder)
    progress = StudyProgress(6, 1, 2, io.StringIO())
    progress.started(tasks[0])
    progress.started(tasks[1])
    progress.ended(make_line(label="HiGHS") | {"key": tasks[0].key}, tasks[2:])
    text = progress.text()
    assert " 2/6 " in text and "left" in text
    assert "running net_e2_L2_n6_r0 SCIP" in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("columns", [40, 100])
def test_in_a_terminal_the_estimate_stays_when_the_next_run_starts(
    folder, make_line, monkeypatch, columns
):
    monkeypatch.setenv("COLUMNS", str(columns))
    tasks = tasks_of(read_study(folder / "study.toml"), folder)
    screen = Terminal()
    progress = StudyProgress(6, 0, 1, screen)
    progress.started(tasks[0])
    progress.ended(make_line(label="HiGHS") | {"key": tasks[0].key}, tasks[1:])
    progress.started(tasks[1])
    seen = re.split(
        r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    )
    assert all(len(line) <= columns for line in seen)
    assert columns == 40 or "about" in seen[-1]
    progress.close()
    assert "about" in screen.getvalue().splitlines()[-1]


# The shipped study.


@pytest.mark.timeout(900)
def test_the_smoke_profile_of_the_paper_s_study_fills_every_item(tmp_path):
    for package in ("pyscipopt", "sklearn", "matplotlib"):
        pytest.importorskip(package)
    study = Path(__file__).parents[2] / "experiments" / "paper.toml"
    done = subprocess.run(
        command(tmp_path, "run", str(study), "--profile", "smoke", "--executor",
                "local:2"),
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr  # 1 if a run failed
    results = read_results(tmp_path / "out")
    assert [run["error"] for run in results.failed] == []
    assert len(results.done) == results.planned
    written = {path.name for path in (tmp_path / "out" / "report").iterdir()}
    tables = [item for item in ORDER if item.startswith("table")] + ["enn_by_run"]
    figures = [item for item in ORDER if item.startswith("figure")]
    assert written == {
        *(f"{item}.{suffix}" for item in tables for suffix in ("md", "tex", "csv")),
        *(f"{item}{end}" for item in figures for end in (".svg", ".png", "-tall.svg")),
        "reading.md",
    }
    assert len(ORDER) == 13


def test_runs_by_processor_time_say_so_in_record_and_page(folder):
    """And leave the clock of this process as it is."""
    file = folder / "study.toml"
    line = "[experiments.compare]"
    file.write_text(file.read_text().replace(line, f'{line}\nseconds_of = "processor"'))
    tally, _ = run_all(folder, Local(4))
    assert len(tally.results.done) == 6
    for run in tally.results.done:
        assert run["seconds_of"] == "processor"
    (experiment,) = tally.results.plan["experiments"]
    assert experiment["seconds_of"] == "processor"
    page = make_report(tally.results).write(folder / "out").read_text()
    assert "of the processor" in page
    assert clock.seconds_of() == "wall"  # here nothing has changed


def test_the_clock_of_the_processor_stands_still_in_sleep():
    code = (
        "import time; from ennopt import clock; clock.count_processor_time(); "
        "begin = clock.now(); time.sleep(0.3); print(clock.now() - begin < 0.1)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout == "True\n"


def test_a_cluster_refuses_to_count_processor_time(folder):
    tasks = tasks_of(read_study(folder / "study.toml"), folder)
    counted = [replace(task, seconds_of="processor") for task in tasks]
    with pytest.raises(ValueError, match="Expected --executor local:N"):
        list(executor_named("dask:1").execute(counted, lambda task: None))
