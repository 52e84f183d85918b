"""The one display of progress: lines like a MIP solver's, and live parts below them.

In a terminal and in a notebook the state is shown live, by rich, which follows
``NO_COLOR`` and is imported only then. In files and pipes there are lines.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

from ennopt.result import Progress

PLAIN_SECONDS = 5.0
"""Without news, a plain log still shows a line this often."""

BAR_SECONDS = 10.0
"""Without a terminal, a bar is a line at least this far from the one before."""

LIVE_SECONDS = 0.08
"""Between two drawings of a live part: faster than that nobody reads."""

WINDOW_SECONDS = 3.0
"""Nodes per second are those of this long."""

SPARKS = "▁▂▃▄▅▆▇█"
SPARK_COUNT = 32
"""Heights of a sparkline, and its length."""

BAR_WIDTH = 24
"""Of a bar, in characters."""


def as_time(seconds: float) -> str:
    """A duration in words.

    Examples
    --------
    >>> as_time(8.2), as_time(192), as_time(7500)
    ('8 s', '3 min 12 s', '2 h 05 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def sparkline(numbers: list[float]) -> str:
    """The course of numbers above zero in one line, by their logarithms.

    Examples
    --------
    >>> sparkline([1.0, 0.1, 0.01])
    '█▄▁'
    """
    logs = [math.log(max(number, 1e-12)) for number in numbers]
    low, high = min(logs), max(logs)
    step = (high - low) / (len(SPARKS) - 1) or 1.0
    return "".join(SPARKS[int((log - low) / step)] for log in logs)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows what is displayed.

    Examples
    --------
    >>> in_notebook()
    False
    """
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


class Display:
    """A stream of lines with, in a terminal or a notebook, a live part with them.

    Parameters
    ----------
    stream
        Where to write; standard error by default.
    live
        Whether to have a live part; by default, if `stream` is a terminal that can, or
        the output of a notebook.
    """

    def __init__(self, stream: TextIO | None = None, live: bool | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        able = os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
        own = self._stream in (sys.stdout, sys.stderr)
        self._notebook = live is not False and own and in_notebook()
        self.is_live = self._stream.isatty() and able if live is None else live
        self.is_live = self.is_live or self._notebook
        self._live: Any = None
        self._handle: Any = None
        self._drawn = -math.inf

    def line(self, text: str) -> None:
        """Write a line that stays."""
        if self._live is None:
            self._stream.write(text + "\n")
            self._stream.flush()
        else:
            self._live.console.print(text, markup=False, highlight=False)

    def show(self, make: Callable[[], Any], *, now: bool = False) -> None:
        """Draw the live part, if there is one and it is time."""
        moment = time.monotonic()
        if not self.is_live or (moment - self._drawn < LIVE_SECONDS and not now):
            return
        self._drawn = moment
        if self._notebook:
            self._show_in_notebook(make())
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, force_terminal=True)
            self._live = Live(
                console=console, auto_refresh=False, transient=True,
                # What others print goes above the live part, unless it goes elsewhere.
                redirect_stdout=sys.stdout.isatty(),
                redirect_stderr=self._stream is sys.stderr,
            )  # fmt: skip
            self._live.start()
        self._live.update(make(), refresh=True)

    def _show_in_notebook(self, part: Any) -> None:
        """Put the live part below the cell, in the place of the last one."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(part, display_id=True)
        else:
            self._handle.update(part)

    def close(self) -> None:
        """Remove the live part. Lines stay, and in a notebook the last state."""
        self._handle = None
        if self._live is not None:
            self._live.stop()
            self._live = None


class ProgressLog:
    """A callback that writes a table of progress.

    A line stays when the value improved or the gap fell much. In a terminal a panel
    below shows the state, live.

    Parameters
    ----------
    title
        What is solved and how: the lines above the table.
    stream
        Where to write; standard error by default.
    live
        Whether to keep a live panel; by default, if `stream` is a terminal.
    """

    HEADER = (
        f"{'time':>9}  {'value':>14}  {'bound':>14}  {'gap':>9}  {'nodes':>11}  "
        f"{'open':>9}"
    )

    def __init__(
        self, title: str = "", stream: TextIO | None = None, live: bool | None = None
    ) -> None:
        self._display = Display(stream, live)
        self._value = math.nan
        self._gap = math.inf
        self._time = -math.inf
        self._recent: deque[tuple[float, int]] = deque()
        self._gaps: list[tuple[float, float]] = []
        for text in (title, self.HEADER):
            if text:
                self._display.line(text)

    def __call__(self, moment: Progress) -> None:
        """Show a moment of a run."""
        news = (
            moment.value != self._value
            or moment.gap <= 0.5 * self._gap
            or moment.seconds - self._time >= PLAIN_SECONDS
        )
        if news:
            self._value, self._gap = moment.value, moment.gap
            self._time = moment.seconds
            self._display.line(self._format(moment))
        self._remember(moment)
        self._display.show(lambda: self._panel(moment))

    def close(self) -> None:
        """Leave the lines in place, and no panel."""
        self._display.close()

    def _remember(self, moment: Progress) -> None:
        """Keep what a rate and a sparkline need."""
        self._recent.append((moment.seconds, moment.nodes))
        while moment.seconds - self._recent[0][0] > WINDOW_SECONDS:
            self._recent.popleft()
        if math.isfinite(moment.gap):
            self._gaps.append((moment.seconds, moment.gap))
            if len(self._gaps) > 8 * SPARK_COUNT:  # half as dense, the same time
                self._gaps = self._gaps[::2]

    def _rate(self) -> float | None:
        """Nodes per second of the last few seconds."""
        (start, before), (end, after) = self._recent[0], self._recent[-1]
        return (after - before) / (end - start) if end > start else None

    def _course(self) -> str:
        """The gap so far as a sparkline, evenly in time."""
        if len(self._gaps) < 2:
            return ""
        first, last = self._gaps[0][0], self._gaps[-1][0]
        found, k = [], 0
        for i in range(SPARK_COUNT):
            at = first + (last - first) * i / (SPARK_COUNT - 1)
            while k + 1 < len(self._gaps) and self._gaps[k + 1][0] <= at:
                k += 1
            found.append(self._gaps[k][1])
        return sparkline(found)

    def _panel(self, moment: Progress) -> Any:
        """The state, for a terminal."""
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        rate = self._rate()
        cells = [
            ("value", _number(moment.value), "bold green"),
            ("bound", _number(moment.bound), "bold dark_orange"),
            ("gap", _gap(moment.gap), "bold"),
            ("nodes", f"{moment.nodes:,}", ""),
            ("nodes/s", "-" if rate is None else f"{rate:,.0f}", ""),
            ("open", _count(moment.open_nodes), ""),
            ("time", f"{moment.seconds:.1f} s", ""),
        ]
        if math.isfinite(moment.limit):
            left = max(0.0, moment.limit - moment.seconds)
            cells.append(("time left", as_time(left), ""))
        table = Table.grid(padding=(0, 2))
        for _ in cells:
            table.add_column(justify="right", no_wrap=True)
        table.add_row(*(Text(name, style="dim") for name, _, _ in cells))
        table.add_row(*(Text(text, style=style) for _, text, style in cells))
        whole = Table.grid()
        whole.add_row(table)
        whole.add_row(Text.assemble(("gap ", "dim"), (self._course(), "green")))
        return Panel(
            whole, title=moment.phase or None, expand=False, border_style="dim"
        )

    @staticmethod
    def _format(moment: Progress) -> str:
        line = (
            f"{moment.seconds:>8.2f}s  {_number(moment.value):>14}  "
            f"{_number(moment.bound):>14}  {_gap(moment.gap):>9}  "
            f"{moment.nodes:>11,}  {_count(moment.open_nodes):>9}"
        )
        return f"{line}  {moment.phase}".rstrip()


def _number(number: float) -> str:
    return f"{number:.8g}" if math.isfinite(number) else "-"


def _gap(gap: float) -> str:
    if not math.isfinite(gap):
        return "-"
    return f"{gap:.3%}" if gap < 100 else "large"


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


class Bar:
    """How much of some work is done, and about how long the rest takes.

    Use it in a ``with`` statement. In files and pipes it is a line now and then.

    Parameters
    ----------
    what
        What is counted.
    total
        How much of it there is.
    stream
        Where to draw; standard error by default.
    """

    def __init__(self, what: str, total: int, stream: TextIO | None = None) -> None:
        self._what, self._total = what, total
        self._display = Display(stream)
        self._done = 0.0
        self._start = self._written = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._display.close()

    def add(self, share: float) -> None:
        """Count some more."""
        self.set(self._done + share, self._total)

    def set(self, done: float, total: int) -> None:
        """Show `done` of `total`."""
        self._done, self._total = done, total
        if done > total - 1e-6:
            self._display.close()
            if self._display.is_live:
                self._display.line(self.text())
            return
        self._display.show(lambda: one_line(self.text()))
        now = time.monotonic()
        if not self._display.is_live and now - self._written >= BAR_SECONDS:
            self._written = now
            self._display.line(self.text())

    def text(self) -> str:
        """The state in one line."""
        share = 1.0 if self._done > self._total - 1e-6 else self._done / self._total
        count = f"{math.floor(self._done + 1e-9)}/{self._total}"
        words = f"{self._what} {filled(share)} {share:6.1%} {count}"
        spent = time.monotonic() - self._start
        if 0.0 < share < 1.0 and spent > 1.0:
            words += f"  about {as_time(spent * (1 - share) / share)} left"
        return words


def filled(share: float) -> str:
    """A bar of characters.

    Examples
    --------
    >>> filled(0.5)
    '████████████░░░░░░░░░░░░'
    """
    count = round(BAR_WIDTH * share)
    return "█" * count + "░" * (BAR_WIDTH - count)


def one_line(text: str) -> Any:
    """A text as a live part that never wraps."""
    from rich.text import Text

    return Text(text, no_wrap=True, overflow="ellipsis")
