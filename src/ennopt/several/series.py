"""What everything that solves several problems in a row has in common."""

from __future__ import annotations

import abc
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ennopt import clock
from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.extras import require
from ennopt.network import Array
from ennopt.problem import Problem
from ennopt.question import Posed, Running
from ennopt.result import Result, Status
from ennopt.run import Callback
from ennopt.targets import Link

NOTHING = "Infeasible: no input satisfies every bound, constraint and limit"
"""What is said where there is no answer at all."""


@dataclass(slots=True, eq=False)
class Series:
    """Runs in a row that share the limits on time and nodes of one call.

    Parameters
    ----------
    posed
        Whose models and data answers are compared with.
    running
        How runs work; its limits are those of all of them together.
    """

    posed: Posed
    running: Running
    nodes: int = 0
    runs: int = 0
    interrupted: bool = False
    _begin: float = field(default_factory=clock.now)

    def __post_init__(self) -> None:
        if isinstance(self.posed.problem.ensemble.target, Link):
            raise PredictorNotSupportedError(
                "Expected a model whose output is its prediction, got a transformed "
                "target. Optimize it alone, by maximize or minimize."
            )

    @property
    def seconds(self) -> float:
        """Since the first run began."""
        return clock.now() - self._begin

    @property
    def spent(self) -> bool:
        """Whether a limit is reached, or somebody asked to stop."""
        limits = self.running.tools.limits
        return (
            self.interrupted
            or self.seconds >= limits.seconds
            or self.nodes >= limits.nodes
        )

    def solve(
        self,
        problem: Problem,
        known: Array | None = None,
        *,
        share: float = 1.0,
        callback: Callback | None = None,
    ) -> Result:
        """Solve a problem over the same inputs.

        Parameters
        ----------
        problem
            What is optimized now.
        known
            A feasible point, (num_inputs,).
        share
            Of the time and the nodes left that this run may take.
        callback
            In the place of the user's; return True to end the run.
        """
        tools = self.running.tools
        limits = replace(
            tools.limits,
            seconds=max(share * (tools.limits.seconds - self.seconds), 1e-3),
            nodes=max(share * (tools.limits.nodes - self.nodes), 1.0),
        )
        tools = replace(
            tools, limits=limits, known=known, callback=callback or tools.callback
        )
        posed = replace(
            self.posed, problem=problem, start=known, alone=False,
            explained=problem is self.posed.problem,
        )  # fmt: skip
        result = posed.solve(replace(self.running, tools=tools))
        self.nodes += result.nodes
        self.runs += 1
        if result.status is Status.INTERRUPTED and callback is None:
            self.interrupted = True
        return result


class Told(abc.ABC):
    """What several runs found, told in several ways."""

    __slots__ = ()

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `to_json` writes it; infinite numbers are ``None``."""

    @abc.abstractmethod
    def summary(self) -> str:
        """A table for a person."""

    def to_json(self, indent: int | None = None) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        return self.summary()


def known(number: float) -> float | None:
    """A number for JSON, which knows no infinity."""
    return float(number) if math.isfinite(number) else None


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as a DataFrame of pandas."""
    pandas = require("pandas", "sklearn")
    return pandas.DataFrame([dict(row) for row in rows])
