"""From a study to its runs, each with a key that says what would change its result."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import ennopt
from ennopt.clock import SecondsOf
from ennopt.learn.hyperparameters import Kind, paper_configurations
from ennopt.learn.instances import (
    Spec,
    ensemble_digest,
    find,
    make,
    oriented,
    published,
)
from ennopt.learn.instances import versions as made_with
from ennopt.learn.selection import Submitter
from ennopt.network import Ensemble, read_npz
from ennopt.result import Limits
from ennopt.study.expression import read_method
from ennopt.study.machine import code_digest, training_digest, versions
from ennopt.study.spec import (
    Experiment,
    Files,
    Library,
    Quality,
    Solve,
    Study,
    Tuning,
    limits_as_text,
)

LEARNING = frozenset({"ennopt.learn.training", "ennopt.learn.sampling"})
"""Code that samples and trains, beside the method that then optimizes."""

NAMED = re.compile(r"([a-z]+\d*)_e(\d+)_L(\d+)_n(\d+)_r(\d+)")
"""Names of instances that tell problem, members, layers, width and replica."""


@dataclass(frozen=True)
class Task:
    """One run, ready to be sent to a worker: plain data, nothing of this machine.

    Parameters
    ----------
    key
        Digest of everything that would change the result.
    experiment, label, subject, seed
        What the run is called in tables.
    kind
        ``solve``, ``quality`` or ``selection``.
    method
        ``repr`` of the method, or of the search.
    limits
        Of the run.
    threads
        Of the run.
    work
        What the worker needs beside these, by name.
    seconds_of
        What its seconds mean.
    """

    key: str
    experiment: str
    label: str
    subject: dict[str, Any]
    seed: int
    kind: str
    method: str
    limits: Limits
    threads: int
    work: dict[str, Any]
    seconds_of: SecondsOf = "wall"

    @property
    def name(self) -> str:
        """For progress and logs."""
        return f"{self.subject['name']} {self.label}".strip()


def tasks_of(
    study: Study,
    directory: Path,
    *,
    executor: Submitter | None = None,
    report: Callable[[str], None] | None = None,
) -> list[Task]:
    """Every run of a study; trains the instances that `directory` does not have yet.

    Parameters
    ----------
    study
        What to run.
    directory
        Where the instances of the study are kept.
    executor
        Trains instances in parallel.
    report
        Told in words what is being made.
    """
    found: dict[str, Task] = {}
    for experiment in study.experiments:
        match experiment:
            case Solve():
                tasks = _solves(experiment, study.folder, directory, executor, report)
            case Quality():
                tasks = _qualities(experiment)
            case Tuning():
                tasks = _searches(experiment)
        for task in tasks:
            found.setdefault(task.key, task)
    return list(found.values())


def _task(
    experiment: str, label: str, subject: dict[str, Any], seed: int, kind: str,
    method: str, limits: Limits, threads: int, work: dict[str, Any],
    identity: dict[str, Any], modules: Iterable[str], seconds_of: SecondsOf = "wall",
) -> Task:  # fmt: skip
    """A task with its key.

    `identity` stands for the content of `work`, and `modules` for the code that does
    it: an edit elsewhere leaves the key as it is.
    """
    installed = {name: v for name, v in versions().items() if name != "source"}
    installed["code"] = code_digest(Path(ennopt.__file__).parent, modules)
    parts = {
        "experiment": experiment, "label": label, "subject": subject["name"],
        "kind": kind, "method": method, "limits": repr(limits), "threads": threads,
        "seed": seed, "versions": installed, "work": identity, "seconds_of": seconds_of,
    }  # fmt: skip
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
    return Task(
        key,
        experiment,
        label,
        subject,
        seed,
        kind,
        method,
        limits,
        threads,
        work,
        seconds_of,
    )


def modules_of(value: Any) -> set[str]:
    """The modules that define a method and its ingredients.

    Examples
    --------
    >>> sorted(modules_of(read_method("BigM()")))
    ['ennopt.paper.bigm', 'ennopt.tightening.lp', 'ennopt.tightening.relaxation']
    """
    if isinstance(value, tuple | list):
        return set[str]().union(*map(modules_of, value))
    if not is_dataclass(value):
        return set()
    parts = [modules_of(getattr(value, part.name)) for part in fields(value)]
    return {type(value).__module__}.union(*parts)


# Instances and methods.


def _solves(
    experiment: Solve,
    folder: Path,
    directory: Path,
    executor: Submitter | None,
    report: Callable[[str], None] | None,
) -> list[Task]:
    match experiment.instances:
        case Library() as library:
            subjects = _library(library, folder, directory, executor, report)
            sense = "max"
        case Files(pattern, sense):
            subjects = _found(folder, pattern)
    tasks = []
    for subject, ensemble in subjects:
        identity = {"digest": ensemble_digest(ensemble), "sense": sense}
        for label, text in experiment.methods:
            method = read_method(text)
            for seed in experiment.seeds:
                tasks.append(
                    _task(
                        experiment.name, label, subject | identity, seed, "solve",
                        repr(method), experiment.limits, experiment.threads,
                        {"expression": text, "ensemble": ensemble, "sense": sense},
                        identity, modules_of(method), experiment.seconds_of,
                    )
                )  # fmt: skip
    return tasks


def _library(
    library: Library,
    folder: Path,
    directory: Path,
    executor: Submitter | None,
    report: Callable[[str], None] | None,
) -> list[tuple[dict[str, Any], Ensemble]]:
    """Every instance of a library: published, or trained in `directory`."""
    specs = specs_of(library)
    ready = folder / library.published if library.published else None
    names = published(ready, specs, library.seed) if ready is not None else set()
    others = [spec for spec in specs if spec.name not in names]
    records: dict[str, dict[str, Any]] = {}
    place = directory
    if others:
        records, place = _trained(library, others, directory, executor, report)
    subjects = []
    for spec in specs:
        if ready is not None and spec.name in names:
            record, home = find(ready, spec.name), ready
        else:
            record, home = records[spec.name], place
        ensemble = read_npz(home / record["file"])
        facts = {
            "rmse": record["rmse"],
            "orientation": library.orientation,
            "published": spec.name in names,
        }
        moved = oriented(ensemble, bool(record["negated"]), library.orientation)
        subjects.append((_subject(spec.name) | facts, moved))
    return subjects


def specs_of(library: Library) -> list[Spec]:
    """What the instances of a library are."""
    return [
        Spec(problem, members, layers, width, replica, library.max_epochs)
        for problem in library.problems
        for members in library.members
        for layers in library.layers
        for width in library.widths
        for replica in range(library.replicas)
    ]


def _trained(
    library: Library,
    specs: Sequence[Spec],
    directory: Path,
    executor: Submitter | None,
    report: Callable[[str], None] | None,
) -> tuple[dict[str, dict[str, Any]], Path]:
    """The records of instances that are trained here, and where their files are."""
    source = training_digest(Path(ennopt.__file__).parent)
    made = made_with() | {"source": source}
    made_by = hashlib.sha256(json.dumps(made, sort_keys=True).encode())
    folder = directory / (
        f"seed{library.seed}-epochs{library.max_epochs}-{made_by.hexdigest()[:8]}"
    )

    def tell(done: int, total: int) -> None:
        if report is not None:
            report(f"instances {done} of {total}")

    return make(
        folder, specs, seed=library.seed, executor=executor, report=tell
    ), folder


def _found(folder: Path, pattern: str) -> list[tuple[dict[str, Any], Ensemble]]:
    start = Path(pattern).anchor or folder
    relative = os.path.relpath(pattern, start) if Path(pattern).anchor else pattern
    paths = sorted(Path(start).glob(relative))
    if not paths:
        raise ValueError(
            f"Expected files that match {pattern!r}, got none in {folder}."
        )
    return [(_subject(path.stem), read_npz(path)) for path in paths]


def _subject(name: str) -> dict[str, Any]:
    """What the name of an instance tells about it."""
    told = NAMED.fullmatch(name)
    if told is None:
        return {"name": name, "problem": name}
    return {
        "name": name, "problem": told[1], "members": int(told[2]),
        "layers": int(told[3]), "width": int(told[4]), "replica": int(told[5]),
    }  # fmt: skip


# Models trained for their optimum.


def _qualities(experiment: Quality) -> list[Task]:
    tasks = []
    for problem, sampling, kind, number, settings in _configurations(experiment):
        for replica in range(experiment.replicas):
            shape = f"e{settings['members']}_L{settings['layers']}_n{settings['width']}"
            subject = {
                "name": f"{problem}_{sampling}_{kind}{number}_{shape}_r{replica}",
                "problem": problem, "sampling": sampling, "kind": kind,
                "number": number, "replica": replica, "members": settings["members"],
                "layers": settings["layers"], "width": settings["width"],
            }  # fmt: skip
            work = {"configuration": settings, "rows": experiment.rows}
            for label, text in experiment.methods:
                method = read_method(text)
                tasks.append(
                    _task(
                        experiment.name, label, subject, replica, "quality",
                        repr(method), experiment.limits, experiment.threads,
                        work | {"expression": text}, work,
                        modules_of(method) | LEARNING,
                    )
                )  # fmt: skip
    return tasks


def _configurations(
    experiment: Quality,
) -> list[tuple[str, str, Kind, int, dict[str, Any]]]:
    counts: tuple[tuple[Kind, int], ...] = (
        ("ensemble", experiment.ensembles),
        ("single", experiment.singles),
    )
    found = []
    for problem in experiment.problems:
        for sampling in experiment.samplings:
            for kind, count in counts:
                chosen = paper_configurations(problem, sampling, kind)[:count]
                for number, configuration in enumerate(chosen, start=1):
                    width = min(configuration.width, experiment.width or 10**9)
                    settings = asdict(
                        replace(
                            configuration,
                            width=width,
                            max_epochs=experiment.max_epochs,
                        )
                    )
                    found.append((problem, sampling, kind, number, settings))
    return found


# Searches for hyper-parameters.


def _searches(experiment: Tuning) -> list[Task]:
    tasks = []
    work = {
        name: getattr(experiment, name)
        for name in ("draws", "folds", "keep", "rows", "max_epochs", "widths", "layers")
    }
    for problem in experiment.problems:
        for sampling in experiment.samplings:
            for kind in ("ensemble", "single"):
                subject = {
                    "name": f"{problem}_{sampling}_{kind}", "problem": problem,
                    "sampling": sampling, "kind": kind,
                }  # fmt: skip
                method = f"search(draws={experiment.draws}, folds={experiment.folds})"
                tasks.append(
                    _task(
                        experiment.name, "search", subject, 0, "selection", method,
                        Limits(), 1, work, work, LEARNING | {"ennopt.learn.selection"},
                    )
                )  # fmt: skip
    return tasks


def describe(experiment: Experiment) -> dict[str, Any]:
    """An experiment in plain data, for the plan and for the reader of the report."""
    plain: dict[str, Any] = {
        "name": experiment.name, "kind": experiment.kind,
        "items": list(experiment.items), "note": experiment.note,
    }  # fmt: skip
    match experiment:
        case Solve():
            plain["instances"] = asdict(experiment.instances)
            plain["seeds"] = list(experiment.seeds)
            plain["seconds_of"] = experiment.seconds_of
        case Quality():
            keys = ("problems", "samplings", "singles", "ensembles", "replicas")
            plain["data"] = {k: getattr(experiment, k) for k in (*keys, *_TRAINING)}
        case Tuning():
            keys = ("problems", "samplings", "draws", "folds", "keep")
            plain["data"] = {k: getattr(experiment, k) for k in (*keys, "rows",
                             "max_epochs", "widths", "layers")}  # fmt: skip
    if not isinstance(experiment, Tuning):
        plain["methods"] = {
            label: repr(read_method(text)) for label, text in experiment.methods
        }
        limits = experiment.limits
        plain["limits"] = limits.plain()
        plain["limits_text"] = limits_as_text(limits)
        plain["threads"] = experiment.threads
    return plain


_TRAINING = ("rows", "max_epochs", "width")


def longest(tasks: Iterable[Task], slots: int) -> float:
    """Seconds that tasks may take at most, so many at a time; training not counted."""
    return math.fsum(task.limits.seconds for task in tasks) / slots


def keys(tasks: Sequence[Task]) -> list[str]:
    """The keys, in order."""
    return [task.key for task in tasks]
