"""Runs that the page started, each in a thread of its own, and their answers."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ennopt.explore.form import Inquiry
from ennopt.log import as_time
from ennopt.network import shown
from ennopt.pages import drawn
from ennopt.pages.charts import compact
from ennopt.pages.render import filled
from ennopt.pages.told import percent
from ennopt.result import ENDINGS, Event, Progress, Result
from ennopt.targets import Link

MOST_RUNS = 4
"""Runs at once: a browser keeps six connections to a host, and each run has one."""

MOST_ANSWERS = 200
"""Answers that are kept for tables and downloads; of more, the last."""

SHOW_SECONDS = 0.2
"""Between two states that are sent."""

LOGGER = logging.getLogger(__name__)


class Live:
    """A run: what it was asked, its progress, and whether it is to stop."""

    def __init__(self, name: str, question: Inquiry) -> None:
        self.name, self.question = name, question
        self.events: list[Event] = []
        self.moment: Progress | None = None
        self.stopped = False

    def __call__(self, moment: Progress) -> bool:
        """Hear of progress, in the thread of the run; true stops it."""
        seen = self._in_units(moment)
        if not self.events or self.events[-1][1:] != seen[1:]:
            self.events.append(seen)
        self.moment = moment
        return self.stopped

    def _in_units(self, moment: Progress) -> Event:
        """Value and bound as a result tells them."""
        target, sense = (
            self.question.problem.ensemble.target,
            self.question.problem.sense,
        )
        value, bound = moment.value, moment.bound
        if isinstance(target, Link):
            value, bound = target.value(value), target.bound(bound, sense)
        return Event(moment.seconds, value, bound)

    def told(self) -> dict[str, Any]:
        """The state for the page."""
        moment, events = self.moment, [*self.events]
        if moment is None or not events:
            return {"kind": "progress", "status": "The run has begun."}
        seconds, value, bound = moment.seconds, events[-1].value, events[-1].bound
        problem = self.question.problem
        charts = drawn.meeting(events, seconds, problem.sense, self.question.gap)
        numbers = {
            "value": compact(value, 7), "bound": compact(bound, 7),
            "gap": percent(moment.gap) if math.isfinite(moment.gap) else "unknown",
            "nodes": f"{moment.nodes:,}", "time": as_time(seconds),
        }  # fmt: skip
        return {
            "kind": "progress",
            "numbers": numbers,
            "chart": filled("explore_charts.html", charts=charts),
            "status": f"After {numbers['time']} the best value is {numbers['value']}, "
            f"the bound {numbers['bound']}, the gap {numbers['gap']}.",
        }


class Runs:
    """All runs of a server. No run sees another one, and each has a name of its own."""

    def __init__(self) -> None:
        self.live: dict[str, Live] = {}
        self.answers: OrderedDict[str, Result] = OrderedDict()
        self._pool = ThreadPoolExecutor(MOST_RUNS, thread_name_prefix="ennopt-run")
        self._ended = False

    def open(self, question: Inquiry) -> Live:
        """A new run, which `follow` begins."""
        if len(self.live) >= MOST_RUNS:
            raise ValueError(
                f"Expected at most {MOST_RUNS} runs at once, got another one. Stop one "
                "of them, or wait."
            )
        run = Live(secrets.token_urlsafe(9), question)
        run.stopped = self._ended
        self.live[run.name] = run
        return run

    async def follow(self, run: Live) -> AsyncIterator[bytes]:
        """Solve, and tell the state in lines of JSON; the answer is the last.

        Whoever reads the lines owns the run: if they are read no further, because the
        page was closed, the run is stopped.
        """
        loop = asyncio.get_running_loop()
        task = loop.run_in_executor(self._pool, run.question.solve, run)
        try:
            yield _line({"kind": "begun", "run": run.name})
            while True:
                done, _ = await asyncio.wait([task], timeout=SHOW_SECONDS)
                if done:
                    break
                yield _line(run.told())
            error = task.exception()
            if error is not None:
                LOGGER.error("a run of the page failed", exc_info=error)
                message = shown(" ".join(str(error).split()))
                yield _line({"kind": "failed", "message": message})
                return
            result = task.result()
            self.answers[run.name] = result
            while len(self.answers) > MOST_ANSWERS:
                self.answers.popitem(last=False)
            if run.events:
                yield _line(run.told())
            yield _line({"kind": "ended", "run": run.name, "status": _ended(result)})
        finally:
            run.stopped = True
            self.live.pop(run.name, None)

    def stop(self, name: str) -> None:
        """Ask a run to end; its best answer so far is its answer."""
        if name in self.live:
            self.live[name].stopped = True

    def stop_all(self) -> None:
        """Ask every run to end, and each that is opened from now on."""
        self._ended = True
        for run in list(self.live.values()):  # others may open one meanwhile
            run.stopped = True


def _ended(result: Result) -> str:
    """How a run ended, for a screen reader and a status line."""
    return f"{result.headline}. The run: {ENDINGS[result.status].rstrip(',')}."


def _line(state: dict[str, Any]) -> bytes:
    return json.dumps(state).encode() + b"\n"
