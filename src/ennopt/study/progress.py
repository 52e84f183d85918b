"""How far a study is: counts, an estimate of the time left, and what is running."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

from ennopt.log import BAR_SECONDS, Display, filled, one_line
from ennopt.log import as_time as as_time
from ennopt.study.plan import Task
from ennopt.study.record import Line


def estimate(
    waiting: Iterable[Task], ended: Sequence[Line], slots: int
) -> float | None:
    """Seconds until `waiting` will be done; ``None`` before anything has ended.

    A run is expected to take what ended runs of its experiment and label took in the
    mean, and where there are none, its time limit or the mean of all.
    """
    if not ended:
        return None
    times: dict[tuple[str, str], list[float]] = {}
    for line in ended:
        times.setdefault((line["experiment"], line["label"]), []).append(
            line["seconds"]
        )
    overall = sum(line["seconds"] for line in ended) / len(ended)
    total = 0.0
    for task in waiting:
        known = times.get((task.experiment, task.label))
        if known:
            total += sum(known) / len(known)
        elif math.isfinite(task.limits.seconds):
            total += task.limits.seconds
        else:
            total += overall
    return total / max(1, slots)


class StudyProgress:
    """Shows the state of a study: live in a terminal, in lines elsewhere.

    Parameters
    ----------
    total
        Runs that were asked for, those that ended before among them.
    done
        Those that ended before.
    slots
        Runs at a time.
    stream
        Where to write; standard error by default.
    """

    def __init__(
        self, total: int, done: int, slots: int, stream: TextIO | None = None
    ) -> None:
        self._display = Display(stream)
        self._total, self._done, self._slots = total, done, slots
        self._failed = 0
        self._running: dict[str, Task] = {}
        self._waiting: Sequence[Task] = ()
        self._ended: list[Line] = []
        self._written = -math.inf

    def started(self, task: Task) -> None:
        """A run began."""
        self._running[task.key] = task
        self._slots = max(self._slots, len(self._running))  # workers may come
        self._show()

    def ended(self, line: Line, waiting: Sequence[Task]) -> None:
        """A run ended; `waiting` have not, those under way among them."""
        self._running.pop(line["key"], None)
        self._ended.append(line)
        self._waiting = waiting
        self._done += 1
        if line["outcome"] == "failed":
            self._failed += 1
            name = f"{line['subject']['name']} {line['label']}".strip()
            self._display.line(f"failed: {name}: {line['error']}")
        self._show(last=self._done >= self._total)

    def close(self) -> None:
        """Leave the last state as a line."""
        self._display.close()
        if self._display.is_live:
            self._display.line(self.text())

    def text(self) -> str:
        """The state in one line."""
        share = self._done / max(1, self._total)
        words = [f"{filled(share)} {self._done}/{self._total}"]
        if self._failed:
            words.append(f"{self._failed} failed")
        left = estimate(self._waiting, self._ended, self._slots)
        if left is not None and self._waiting:
            words.append(f"about {as_time(left)} left")
        names = [task.name for task in self._running.values()]
        if names:
            more = f" and {len(names) - 2} more" if len(names) > 2 else ""
            words.append(f"running {', '.join(names[:2])}{more}")
        return "  ".join(words)

    def _show(self, last: bool = False) -> None:
        now = time.monotonic()
        if self._display.is_live:
            self._display.show(lambda: one_line(self.text()), now=True)
        elif last or now - self._written >= BAR_SECONDS:
            self._written = now
            self._display.line(self.text())
