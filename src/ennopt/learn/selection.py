"""Model selection: a randomized search with K-fold validation, resumable.

The draws and the folds are those of scikit-learn's ``RandomizedSearchCV`` (they come
from its ``ParameterSampler`` and ``KFold``). The loop is our own, because a thousand
draws must survive an interruption and run on any executor, and because all folds and
members of a draw have one shape and can be trained together.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from ennopt.extras import require
from ennopt.learn.datasets import Table
from ennopt.learn.training import (
    Batched,
    Configuration,
    Rows,
    Scaling,
    Task,
    Toolkit,
    branches,
    training_rows,
)
from ennopt.network import Array

WINDOW = 64
"""Draws that wait in an executor at a time: each carries a copy of the rows."""

Report: TypeAlias = Callable[[int, int], None]
"""Called with the number of draws that are done and their total."""


class Submitter(Protocol):
    """Anything with ``submit``, such as an executor of ``concurrent.futures``."""

    def submit(self, function: Any, /, *arguments: Any) -> Any:
        """A future of the call."""
        ...


@dataclass(frozen=True, slots=True)
class Space:
    """What is drawn at random: every list evenly, the learning rate log-uniformly.

    Parameters
    ----------
    members, layers, widths, batch_sizes
        Values to draw from.
    learning_rates
        The smallest and the largest.
    base
        The rest of the configuration.
    """

    members: tuple[int, ...] = (2, 3, 4, 5)
    layers: tuple[int, ...] = (1, 2, 3, 4)
    widths: tuple[int, ...] = tuple(range(20, 251, 5))
    learning_rates: tuple[float, float] = (1e-4, 1e-2)
    batch_sizes: tuple[int, ...] = (32, 64, 128)
    base: Configuration = field(default_factory=Configuration)

    @classmethod
    def single(cls) -> Space:
        """The same for single networks."""
        return cls(members=(1,))

    def distributions(self) -> dict[str, Any]:
        """In the form that scikit-learn's searches take."""
        stats: Any = require("scipy.stats", "train")
        return {
            "members": list(self.members),
            "layers": list(self.layers),
            "width": list(self.widths),
            "learning_rate": stats.loguniform(*self.learning_rates),
            "batch_size": list(self.batch_sizes),
        }

    def draw(self, count: int, seed: int) -> list[Configuration]:
        """Configurations drawn at random, as ``RandomizedSearchCV`` would draw them."""
        selection: Any = require("sklearn.model_selection", "train")
        sampler = selection.ParameterSampler(
            self.distributions(), n_iter=count, random_state=seed
        )
        return [
            replace(
                self.base,
                members=int(drawn["members"]),
                layers=int(drawn["layers"]),
                width=int(drawn["width"]),
                learning_rate=float(drawn["learning_rate"]),
                batch_size=int(drawn["batch_size"]),
            )
            for drawn in sampler
        ]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration and its validation error.

    Parameters
    ----------
    configuration
        What was trained.
    rmse
        Root mean squared error on each fold, of the scaled target; infinite where
        training diverged.
    """

    configuration: Configuration
    rmse: tuple[float, ...]

    @property
    def score(self) -> float:
        """Mean error over the folds: less is better."""
        return float(np.mean(self.rmse))


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates of a search, in the order drawn."""

    candidates: tuple[Candidate, ...]

    def best(self, count: int = 4) -> tuple[Candidate, ...]:
        """The best candidates, the best one first; the paper keeps four."""
        return tuple(sorted(self.candidates, key=lambda c: c.score)[:count])


def search(
    table: Table,
    space: Space | None = None,
    *,
    draws: int = 1000,
    folds: int = 5,
    seed: int = 0,
    toolkit: Toolkit | None = None,
    executor: Submitter | None = None,
    checkpoint: str | Path | None = None,
    report: Report | None = None,
) -> Selection:
    """Search for good configurations on the training rows of a table.

    The rows that `train` with the same seed keeps for its test are never seen.

    Parameters
    ----------
    table
        The rows.
    space
        What is drawn; ensembles by default, `Space.single()` for single networks.
    draws
        Configurations to try; the paper tries 1000.
    folds
        Parts of the K-fold validation.
    seed
        Of the draws, the folds and the training.
    toolkit
        What trains.
    executor
        Anything with ``submit``; ``None`` is serial. Same answer either way.
    checkpoint
        File that receives one line for each draw that is done. When it exists, the
        search goes on from there.
    report
        Called with the number of draws that are done and their total.
    """
    space = Space() if space is None else space
    chosen = Batched() if toolkit is None else toolkit
    if draws < 1 or folds < 2:
        raise ValueError(
            f"Expected draws >= 1 and folds >= 2, got {draws} and {folds}."
        )
    rows = training_rows(table, seed)
    most = max(space.members)
    if len(rows) * (folds - 1) // folds < 2 * max(2, most):
        raise ValueError(
            f"Expected more rows than {len(rows)} to train {most} members on {folds} "
            "folds. Add rows, or use fewer folds or members."
        )
    scaling = Scaling.of(table)
    x, y = scaling.inputs(table.x[rows]), scaling.target(table.y[rows])
    configurations = space.draw(draws, seed)
    parts = _folds(len(rows), folds, seed)
    streams = branches(np.random.SeedSequence(seed, spawn_key=(0,)), draws)

    identity = _identity(table, space, draws, folds, seed, chosen)
    journal = None if checkpoint is None else _Journal(Path(checkpoint), identity)
    done = {} if journal is None else journal.read()
    calls = (
        (number, (x, y, parts, configurations[number], streams[number], chosen))
        for number in range(draws)
        if number not in done
    )
    if report is not None:
        report(len(done), draws)
    for number, errors in _in_order(calls, executor):
        done[number] = errors
        if journal is not None:
            journal.add(number, errors)
        if report is not None:
            report(len(done), draws)
    return Selection(
        tuple(Candidate(c, done[number]) for number, c in enumerate(configurations))
    )


def evaluate(
    x: Array,
    y: Array,
    folds: Sequence[tuple[Rows, Rows]],
    configuration: Configuration,
    stream: np.random.SeedSequence,
    toolkit: Toolkit,
) -> tuple[float, ...]:
    """Error of a configuration on each fold: trained on the rest, measured on it."""
    tasks = [
        Task(x[fit], y[fit], configuration, branch)
        for (fit, _), branch in zip(folds, branches(stream, len(folds)), strict=True)
    ]
    errors = []
    for (_, left_out), members in zip(folds, toolkit.fit(tasks), strict=True):
        values = [one.network(x[left_out])[:, 0] for one in members]
        residuals = np.mean(values, axis=0) - y[left_out]
        error = float(np.sqrt(np.mean(residuals**2)))
        errors.append(error if math.isfinite(error) else math.inf)
    return tuple(errors)


def _folds(num_rows: int, folds: int, seed: int) -> list[tuple[Rows, Rows]]:
    selection: Any = require("sklearn.model_selection", "train")
    split = selection.KFold(folds, shuffle=True, random_state=seed)
    return list(split.split(np.empty((num_rows, 1))))


def _in_order(
    calls: Iterator[tuple[int, tuple[Any, ...]]], executor: Submitter | None
) -> Iterator[tuple[int, tuple[float, ...]]]:
    """Results of `evaluate` in the order of the calls, a window of them under way."""
    if executor is None:
        for number, arguments in calls:
            yield number, evaluate(*arguments)
        return
    waiting: deque[tuple[int, Any]] = deque()
    try:
        for number, arguments in calls:
            waiting.append((number, executor.submit(evaluate, *arguments)))
            if len(waiting) >= WINDOW:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        for _, future in waiting:
            future.cancel()


def _identity(
    table: Table, space: Space, draws: int, folds: int, seed: int, toolkit: Toolkit
) -> dict[str, Any]:
    """What makes two searches the same search."""
    text = json.dumps(asdict(space), sort_keys=True)
    return {
        "data": table.sha256,
        "space": hashlib.sha256(text.encode()).hexdigest(),
        "draws": draws,
        "folds": folds,
        "seed": seed,
        "toolkit": repr(toolkit),
    }


class _Journal:
    """A file with one line that identifies the search and one for each draw done."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self._path = path
        self._identity = identity

    def read(self) -> dict[int, tuple[float, ...]]:
        """The draws that are done, by number; starts the file if there is none."""
        if not self._path.exists() or not self._path.stat().st_size:
            self._write(self._identity)
            return {}
        text = self._path.read_text(encoding="utf-8")
        complete = text[: text.rfind("\n") + 1]
        if complete != text:  # interrupted in the middle of a line
            self._path.write_text(complete, encoding="utf-8")
        try:
            header, *lines = [json.loads(line) for line in complete.splitlines()]
            done = {int(line["draw"]): tuple(line["rmse"]) for line in lines}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"Expected a checkpoint of a search, got {self._path.name}, which is "
                "none. Choose another file."
            ) from error
        for name, value in self._identity.items():
            if header.get(name) != value:
                raise ValueError(
                    f"Expected a checkpoint of this search, got another {name} "
                    f"({header.get(name)!r}, not {value!r}) in {self._path.name}. "
                    "Choose another file."
                )
        return done

    def add(self, number: int, errors: tuple[float, ...]) -> None:
        """Record a draw."""
        self._write({"draw": number, "rmse": list(errors)})

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
