"""What a worker does: one run, from plain data to plain data."""

from __future__ import annotations

import json
import platform
import sys
import traceback
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ennopt import clock
from ennopt.api import solve
from ennopt.domain import Domain
from ennopt.learn.datasets import Table
from ennopt.learn.functions import FUNCTIONS
from ennopt.learn.sampling import SAMPLINGS, sample
from ennopt.learn.selection import Space, search
from ennopt.learn.training import Configuration, train
from ennopt.network import Array
from ennopt.problem import Problem
from ennopt.result import Result
from ennopt.study.expression import read_method
from ennopt.study.machine import difference, machine, versions
from ennopt.study.plan import Task
from ennopt.study.record import Line

HISTORY = 100
"""Most moments of a run's history that are recorded."""

DATA_SEED = 0
"""Of the sampled tables: replicas differ in the split and the training only."""


class DifferentWorkerError(RuntimeError):
    """A worker has other versions than the plan."""


def run(
    task: Task, expected: dict[str, str] | None = None, scratch: str | None = None
) -> Line:
    """Do one run and return its line of the record; an error is part of the line.

    Parameters
    ----------
    task
        What to do.
    expected
        The versions of the plan, for a worker of another installation.
    scratch
        Directory for checkpoints of long searches, if this worker can see it.

    Raises
    ------
    DifferentWorkerError
        When the versions here are others: such a worker must not answer for the plan.
    """
    if expected is not None and expected != versions(compiled=False):
        raise DifferentWorkerError(difference(expected, versions(compiled=False)))
    start = clock.now()
    facts: dict[str, Any] = {}
    result: dict[str, Any] | None = None
    error = trace = None
    try:
        match task.kind:
            case "solve":
                result = _solved(task)
            case "quality":
                result, facts = _quality(task)
            case "selection":
                facts = _selection(task, scratch)
    except Exception as failure:  # noqa: BLE001 - recorded, so that the others go on
        error = f"{type(failure).__name__}: {failure}"
        trace = "".join(traceback.format_exception(failure))
    found = line(
        task, error=error, trace=trace, result=result, facts=facts,
        seconds=clock.now() - start,
    )  # fmt: skip
    here = {"memory": _peak_memory(), "host": platform.node(), "machine": machine()}
    return found | here


def line(
    task: Task,
    *,
    error: str | None = None,
    trace: str | None = None,
    result: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    seconds: float = 0.0,
) -> Line:
    """The line of the record for a run that ended, wherever it was done.

    JSON has no infinity: ``None`` stands for a number that is not known.
    """
    found: Line = {
        "line": "run", "key": task.key, "experiment": task.experiment,
        "label": task.label, "subject": task.subject, "seed": task.seed,
        "kind": task.kind, "method": task.method,
        "limits": task.limits.plain(),
        "threads": task.threads, "seconds_of": task.seconds_of,
        "outcome": "done" if error is None else "failed",
        "result": result, "facts": facts or {}, "error": error,
        "seconds": seconds, "memory": None, "host": None,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    if trace is not None:
        found["trace"] = trace
    known: Line = json.loads(json.dumps(found), parse_constant=lambda name: None)
    return known


def _solved(task: Task) -> dict[str, Any]:
    ensemble = task.work["ensemble"]
    problem = Problem(ensemble, Domain.of(None, ensemble), task.work["sense"])
    return _plain(_solve(problem, task))


def _solve(problem: Problem, task: Task) -> Result:
    limits = task.limits
    return solve(
        problem,
        read_method(task.work["expression"]),
        time_limit=limits.seconds,
        node_limit=limits.nodes,
        memory_limit=limits.memory,
        gap=limits.gap,
        threads=task.threads,
        seed=task.seed,
    )


def _plain(result: Result) -> dict[str, Any]:
    """A result without what can be computed again, its history thinned."""
    plain = result.to_dict()
    for derived in ("x_by_name", "names", "member_std", "method"):
        plain.pop(derived)
    history = plain["history"]
    if len(history) > HISTORY:
        kept = np.linspace(0, len(history) - 1, HISTORY).round().astype(int)
        plain["history"] = [history[i] for i in kept]
    return plain


# The optimum of a trained model, judged by the function behind its data.


def _quality(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    subject = task.subject
    function = FUNCTIONS[subject["problem"]]
    table = _sampled(subject["problem"], subject["sampling"], task.work["rows"])
    configuration = Configuration(**task.work["configuration"])
    start = clock.now()
    trained = train(table, configuration, seed=task.seed)
    training = clock.now() - start
    ensemble = trained.ensemble
    problem = Problem(ensemble, Domain.of(None, ensemble), table.sense)
    result = _solve(problem, task)
    if result.x is None:
        raise RuntimeError(f"Expected a point, got none: {result!r}.")
    facts = {
        "true_value": float(function(result.x)),
        "optimum": function.optimum,
        "distance": mahalanobis(table.x, result.x),
        "rmse": trained.rmse,
        "rmse_in_units": trained.rmse_in_units,
        "epochs": list(trained.epochs),
        "training_seconds": training,
    }
    return _plain(result), facts


def _sampled(problem: str, sampling: str, rows: int) -> Table:
    return sample(
        FUNCTIONS[problem],
        sampling=SAMPLINGS[sampling],
        count=rows or None,
        seed=DATA_SEED,
    )


def mahalanobis(data: Array, point: Array) -> float:
    """Mahalanobis distance of a point to data (num_rows, num_inputs).

    Examples
    --------
    >>> mahalanobis(np.array([[1., 0], [-1, 0], [0, 2], [0, -2]]), np.array([0, 4.]))
    2.449489742783178
    """
    offset = point - data.mean(axis=0)
    covariance = np.atleast_2d(np.cov(data, rowvar=False))
    return float(np.sqrt(offset @ np.linalg.solve(covariance, offset)))


def _selection(task: Task, scratch: str | None) -> dict[str, Any]:
    subject, work = task.subject, task.work
    table = _sampled(subject["problem"], subject["sampling"], work["rows"])
    space = Space() if subject["kind"] == "ensemble" else Space.single()
    low, high = work["widths"]
    space = replace(
        space,
        layers=tuple(work["layers"]),
        widths=tuple(range(low, high + 1, 5)),
        base=Configuration(max_epochs=work["max_epochs"]),
    )
    checkpoint = None
    if scratch is not None and Path(scratch).is_dir():
        checkpoint = Path(scratch) / f"{task.key}.jsonl"
    found = search(
        table, space, draws=work["draws"], folds=work["folds"], seed=task.seed,
        checkpoint=checkpoint,
    )  # fmt: skip
    return {
        "best": [
            asdict(candidate.configuration) | {"rmse": candidate.score}
            for candidate in found.best(work["keep"])
        ],
        "draws": len(found.candidates),
    }


def _peak_memory() -> int | None:
    """Most bytes this process has used, where the system tells."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
