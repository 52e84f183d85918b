"""``ennopt study``: run a study, see how far it is, and read its report.

What does the work is imported when it is asked for: every other command reads this
module, too, and starts without it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ennopt.study.record import Results
    from ennopt.study.spec import Study


EXIT_FAILED_RUNS = 1


def add_study(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``ennopt study`` and what it does."""
    parser = commands.add_parser(
        "study",
        help="run many instances and methods; tables and figures of the paper",
        description="A study is a TOML file of instances, methods, limits and seeds. "
        "Runs are recorded as they end: run it again to continue.",
    )
    verbs = parser.add_subparsers(title="commands", metavar="VERB", required=True)
    run = verbs.add_parser("run", help="do the runs that have not ended yet")
    _add_place(run)
    run.add_argument(
        "--executor",
        default="local",
        metavar="WHERE",
        help="local:N for N processes (default: one for each core), dask:N for a Dask "
        "cluster of N processes, dask:ADDRESS for a Dask scheduler",
    )
    run.add_argument(
        "--tls",
        nargs=3,
        metavar=("CA", "CERTIFICATE", "KEY"),
        help="files for a scheduler at dask:tls://HOST:PORT",
    )
    run.add_argument(
        "--instances",
        type=Path,
        metavar="DIR",
        help="where trained instances are kept (default: beside the results)",
    )
    run.add_argument(
        "--only",
        default="*",
        metavar="PATTERN",
        help="runs of such names, for example 'wine_*' or '* E-NN'; the rest may "
        "follow later",
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="say how many runs are left and how long they take at most; do none",
    )
    run.add_argument("--retry", action="store_true", help="do failed runs again")
    run.add_argument("--no-report", action="store_true", help="write no report")
    run.set_defaults(run=run_run)
    status = verbs.add_parser("status", help="how far a study is")
    _add_place(status)
    status.set_defaults(run=run_status)
    report = verbs.add_parser("report", help="write tables, figures and the page")
    _add_place(report)
    report.add_argument(
        "--clock",
        choices=("seconds", "nodes"),
        default="seconds",
        help="nodes leaves out whatever a clock measured, so that a study with node "
        "limits gives the same page every time",
    )
    report.add_argument(
        "--into",
        type=Path,
        metavar="FILE",
        help="put the reading of the paper's conclusions between its marks in this "
        "Markdown file, too",
    )
    report.set_defaults(run=run_report)


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "study", type=Path, metavar="STUDY", help="a .toml file, or its results' folder"
    )
    parser.add_argument(
        "--profile",
        default="paper",
        help="smoke, desk, evening or paper, as the file has them (default: paper)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="of the results (default: out/STUDY-PROFILE)",
    )


def place(options: argparse.Namespace) -> Path:
    """The directory of the results."""
    study: Path = options.study
    if options.output is not None:
        return Path(options.output)
    if study.is_dir():
        return study
    return Path("out") / f"{study.stem}-{options.profile}"


def run_run(options: argparse.Namespace) -> int:
    """Run a study."""
    from ennopt.study.executors import executor_named
    from ennopt.study.needs import check_needs
    from ennopt.study.report import make_report
    from ennopt.study.runner import INSTANCES, run_study
    from ennopt.study.spec import read_study

    study = read_study(options.study, options.profile)
    tls = None if options.tls is None else (*options.tls,)
    executor = executor_named(options.executor, tls)
    directory = place(options)
    instances = options.instances or directory / INSTANCES
    check_needs(study, executor, instances, report=not options.no_report)
    if options.dry_run:
        print(forecast(study, directory, instances, executor.slots))
        return 0
    tally = run_study(
        study, directory, executor, retry=options.retry, say=_say, instances=instances,
        only=options.only,
    )  # fmt: skip
    results = tally.results
    print(f"{tally.ran} runs done, {tally.kept} kept from before", file=sys.stderr)
    if not options.no_report and results.done:
        print(make_report(results).write(directory))
    return EXIT_FAILED_RUNS if results.failed else 0


def forecast(study: Study, directory: Path, instances: Path, slots: int) -> str:
    """What is left of a study, and how long it takes at most.

    Instances that are not there yet are trained for it, as for a run.
    """
    from ennopt.study.plan import longest, tasks_of
    from ennopt.study.progress import as_time
    from ennopt.study.record import FILE, ended, parse

    tasks = tasks_of(study, instances, report=_say)
    file = directory / FILE
    before = ended(parse(file.read_bytes())[0]) if file.is_file() else {}
    left = [task for task in tasks if task.key not in before]
    lines = []
    for experiment in study.experiments:
        own = [task for task in tasks if task.experiment == experiment.name]
        open_ = [task for task in left if task.experiment == experiment.name]
        most = longest(open_, slots)
        time = f"at most {as_time(most)}" if math.isfinite(most) else "no time limit"
        lines.append(f"{experiment.name}: {len(open_)} of {len(own)} runs left, {time}")
    limited = [task for task in left if math.isfinite(task.limits.seconds)]
    lines.append(
        f"all: {len(left)} of {len(tasks)} runs left, {slots} at a time: at most "
        f"{as_time(longest(limited, slots))}, and what training takes"
    )
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def run_status(options: argparse.Namespace) -> int:
    """Say how far a study is."""
    from ennopt.study.record import read_results

    results = read_results(place(options))
    print(state(results))
    return 0


def state(results: Results) -> str:
    """How far a study is, experiment by experiment."""
    from ennopt.study.machine import versions
    from ennopt.study.record import FILE

    plan = results.plan
    left = results.planned - len(results.runs)
    lines = [
        f"{plan['title']} ({plan['profile']})",
        f"{len(results.done)} of {results.planned} runs done, "
        f"{len(results.failed)} failed, {left} left",
    ]
    counts = Counter((run["experiment"], run["outcome"]) for run in results.runs)
    for experiment in plan["experiments"]:
        name = experiment["name"]
        failed = counts[name, "failed"]
        lines.append(
            f"  {name}: {counts[name, 'done']} done"
            + f", {failed} failed" * (failed > 0)
        )
    for run in results.failed:
        lines.append(
            f"  failed: {run['subject']['name']} {run['label']}: {run['error']}"
        )
    if results.others:
        lines.append(
            f"{results.others} runs in {FILE} are of other versions, methods or "
            "profiles and are not used"
        )
    if plan["versions"] != versions():
        lines.append(
            "The versions or the code here are not those of the plan: a new run "
            "repeats what they can change."
        )
    return "\n".join(lines)


def run_report(options: argparse.Namespace) -> int:
    """Write the report of a study."""
    from ennopt.study.finding import put_into
    from ennopt.study.reading import read, setting
    from ennopt.study.record import read_results
    from ennopt.study.report import make_report

    directory = place(options)
    results = read_results(directory)
    print(make_report(results, options.clock).write(directory))
    if options.into is not None:
        file: Path = options.into
        text = put_into(
            file.read_text(encoding="utf-8"), read(results), setting(results)
        )
        file.write_text(text, encoding="utf-8")
    return 0
