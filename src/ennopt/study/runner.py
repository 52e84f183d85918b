"""Run a study: what has ended is kept, the rest is done, each line as it arrives."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TextIO

from ennopt.study.executors import Executor
from ennopt.study.machine import machine, versions
from ennopt.study.plan import Task, describe, keys, tasks_of
from ennopt.study.progress import StudyProgress
from ennopt.study.record import FORMAT, Journal, Line, Results, ended, select
from ennopt.study.spec import Study

INSTANCES = "instances"
"""Folder in the directory of a study: trained instances."""

SEARCHES = "searches"
"""Folder in the directory of a study: checkpoints of searches."""


@dataclass(frozen=True)
class Tally:
    """What a call of `run_study` did.

    Parameters
    ----------
    results
        Everything that has ended, of this call and before.
    kept
        Runs that were kept from before.
    ran
        Runs that ended in this call.
    """

    results: Results
    kept: int
    ran: int


def run_study(
    study: Study,
    directory: Path,
    executor: Executor,
    *,
    retry: bool = False,
    instances: Path | None = None,
    only: str = "*",
    stream: TextIO | None = None,
    say: Callable[[str], None] | None = None,
) -> Tally:
    """Do the runs of a study that have not ended yet.

    Parameters
    ----------
    study
        What to run.
    directory
        Where the record is kept; made if it does not exist.
    executor
        Where the runs are done.
    retry
        Do runs again that failed before.
    instances
        Where trained instances are kept; by default, in `directory`.
    only
        Pattern of names of runs, such as ``wine_*`` or ``* E-NN``: the others wait for
        another call.
    stream
        Where progress goes; standard error by default.
    say
        Told in words what is prepared.
    """
    with Journal(directory) as journal:
        with executor.trainers() as trainers:
            place = instances or directory / INSTANCES
            tasks = tasks_of(study, place, executor=trainers, report=say)
        before = ended(journal.lines)
        left = [task for task in tasks if _is_open(before.get(task.key), retry)]
        waiting = [task for task in left if _is_chosen(task, only)]
        plan = plan_line(study, tasks)
        if _is_news(plan, journal.lines):
            journal.append(plan)
        scratch = directory / SEARCHES
        scratch.mkdir(exist_ok=True)
        kept = len(tasks) - len(left)
        _run(waiting, kept, journal, executor, str(scratch.resolve()), stream)
        return Tally(select(journal.lines), kept, len(waiting))


def _is_chosen(task: Task, only: str) -> bool:
    return any(fnmatchcase(name, only) for name in (task.subject["name"], task.name))


def _is_open(outcome: str | None, retry: bool) -> bool:
    return outcome is None or (outcome == "failed" and retry)


def _run(
    waiting: list[Task],
    kept: int,
    journal: Journal,
    executor: Executor,
    scratch: str,
    stream: TextIO | None,
) -> None:
    if not waiting:
        return
    progress = StudyProgress(kept + len(waiting), kept, executor.slots, stream)
    left = {task.key: task for task in waiting}
    lines = executor.execute(waiting, progress.started, scratch)
    try:
        # A generator: closing it ends the runs under way, whatever happens here.
        with closing(lines):  # type: ignore[type-var]
            for line in lines:
                journal.append(line)
                del left[line["key"]]
                progress.ended(line, list(left.values()))
    finally:
        progress.close()


def plan_line(study: Study, tasks: list[Task]) -> Line:
    """The line that says what is planned, and where it is run."""
    return {
        "line": "plan", "format": FORMAT, "title": study.title,
        "description": study.description, "profile": study.profile,
        "experiments": [describe(e) for e in study.experiments],
        "versions": versions(), "machine": machine(), "runs": keys(tasks),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def _is_news(plan: Line, lines: list[Line]) -> bool:
    """Whether the last plan of the record is another one (dates aside)."""
    plans = [line for line in lines if line["line"] == "plan"]
    if not plans:
        return True
    undated = [{k: v for k, v in p.items() if k != "date"} for p in (plan, plans[-1])]
    # As text: what was read back has lists where the plan may have tuples.
    return json.dumps(undated[0]) != json.dumps(undated[1])
