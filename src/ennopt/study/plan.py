"""From a study to its runs, each with a key that says what would change its result."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import ennopt
from ennopt.learn.hyperparameters import Kind, paper_configurations
from ennopt.learn.instances import Spec, make, oriented
from ennopt.learn.instances import versions as made_with
from ennopt.learn.selection import Submitter
from ennopt.network import Ensemble, read_npz
from ennopt.result import Limits
from ennopt.study.expression import read_method
from ennopt.study.machine import training_digest, versions
from ennopt.study.spec import (
    Experiment,
    Files,
    Library,
    Quality,
    Search,
    Solve,
    Study,
    limits_as_text,
)

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
            case Search():
                tasks = _searches(experiment)
        for task in tasks:
            found.setdefault(task.key, task)
    return list(found.values())


def _task(
    experiment: str, label: str, subject: dict[str, Any], seed: int, kind: str,
    method: str, limits: Limits, threads: int, work: dict[str, Any],
    identity: dict[str, Any],
) -> Task:  # fmt: skip
    """A task with its key: `identity` stands for the content of `work`."""
    parts = {
        "experiment": experiment, "label": label, "subject": subject["name"],
        "kind": kind, "method": method, "limits": repr(limits), "threads": threads,
        "seed": seed, "versions": versions(), "work": identity,
    }  # fmt: skip
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
    return Task(
        key, experiment, label, subject, seed, kind, method, limits, threads, work
    )


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
            subjects = _trained(library, directory, executor, report)
            sense = "max"
        case Files(pattern, sense):
            subjects = _found(folder, pattern)
    tasks = []
    for subject, ensemble in subjects:
        identity = {"digest": ensemble_digest(ensemble), "sense": sense}
        for label, text in experiment.methods:
            method = repr(read_method(text))
            for seed in experiment.seeds:
                tasks.append(
                    _task(
                        experiment.name, label, subject | identity, seed, "solve",
                        method, experiment.limits, experiment.threads,
                        {"expression": text, "ensemble": ensemble, "sense": sense},
                        identity,
                    )
                )  # fmt: skip
    return tasks


def ensemble_digest(ensemble: Ensemble) -> str:
    """Digest of the arrays of an ensemble and its box, however they were stored."""
    digest = hashlib.sha256()

    def add(array: Any) -> None:
        values = np.ascontiguousarray(array, dtype=np.float64)
        digest.update(f"{values.shape}".encode())
        digest.update(values.tobytes())

    for member in ensemble.members:
        for weights, biases in member.layers():
            add(weights)
            add(biases)
    add(ensemble.weights)
    for side in (ensemble.lower, ensemble.upper):
        if side is not None:
            add(side)
    return digest.hexdigest()


def _trained(
    library: Library,
    directory: Path,
    executor: Submitter | None,
    report: Callable[[str], None] | None,
) -> list[tuple[dict[str, Any], Ensemble]]:
    specs = [
        Spec(problem, members, layers, width, replica, library.max_epochs)
        for problem in library.problems
        for members in library.members
        for layers in library.layers
        for width in library.widths
        for replica in range(library.replicas)
    ]
    source = training_digest(Path(ennopt.__file__).parent)
    made = made_with() | {"source": source}
    made_by = hashlib.sha256(json.dumps(made, sort_keys=True).encode())
    folder = directory / (
        f"seed{library.seed}-epochs{library.max_epochs}-{made_by.hexdigest()[:8]}"
    )

    def tell(done: int, total: int) -> None:
        if report is not None:
            report(f"instances {done} of {total}")

    records = make(folder, specs, seed=library.seed, executor=executor, report=tell)
    return [
        (
            _subject(spec.name)
            | {
                "rmse": records[spec.name]["rmse"],
                "orientation": library.orientation,
            },
            oriented(
                read_npz(folder / records[spec.name]["file"]),
                bool(records[spec.name]["negated"]),
                library.orientation,
            ),
        )
        for spec in specs
    ]


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
                tasks.append(
                    _task(
                        experiment.name, label, subject, replica, "quality",
                        repr(read_method(text)), experiment.limits, experiment.threads,
                        work | {"expression": text}, work,
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


def _searches(experiment: Search) -> list[Task]:
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
                        Limits(), 1, work, work,
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
        case Quality():
            keys = ("problems", "samplings", "singles", "ensembles", "replicas")
            plain["data"] = {k: getattr(experiment, k) for k in (*keys, *_TRAINING)}
        case Search():
            keys = ("problems", "samplings", "draws", "folds", "keep")
            plain["data"] = {k: getattr(experiment, k) for k in (*keys, "rows",
                             "max_epochs", "widths", "layers")}  # fmt: skip
    if not isinstance(experiment, Search):
        plain["methods"] = {
            label: repr(read_method(text)) for label, text in experiment.methods
        }
        limits = experiment.limits
        plain["limits"] = {
            name: value if math.isfinite(value) else None
            for name, value in asdict(limits).items()
        }
        plain["limits_text"] = limits_as_text(limits)
        plain["threads"] = experiment.threads
    return plain


_TRAINING = ("rows", "max_epochs", "width")


def keys(tasks: Sequence[Task]) -> list[str]:
    """The keys, in order."""
    return [task.key for task in tasks]
