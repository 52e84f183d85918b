"""A log like a MIP solver's: time, value, bound, gap, nodes."""

from __future__ import annotations

import math
import sys
from typing import TextIO

from ennopt.result import Progress

PLAIN_SECONDS = 5.0
"""Without news, a plain log still shows a line this often."""


class ProgressLog:
    """A callback that writes a table of progress.

    A line stays when the value improved or the gap fell much; in a terminal the
    current state is shown below it, live.

    Parameters
    ----------
    title
        What is solved and how: the lines above the table.
    stream
        Where to write; standard error by default.
    live
        Whether to keep a live line; by default, if `stream` is a terminal.
    """

    HEADER = f"{'time':>9}  {'value':>14}  {'bound':>14}  {'gap':>9}  {'nodes':>11}"

    def __init__(
        self, title: str = "", stream: TextIO | None = None, live: bool | None = None
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty() if live is None else live
        self._value = math.nan
        self._gap = math.inf
        self._time = -math.inf
        self._shown = ""
        self._stream.write(f"{title}\n{self.HEADER}\n".lstrip("\n"))

    def __call__(self, moment: Progress) -> None:
        """Show a moment of a run."""
        line = self._format(moment)
        news = (
            moment.value != self._value
            or moment.gap <= 0.5 * self._gap
            or moment.seconds - self._time >= PLAIN_SECONDS
        )
        if news:
            self._value, self._gap = moment.value, moment.gap
            self._time = moment.seconds
            self._write(line + "\n")
        elif self._live:
            self._write(line)
        self._stream.flush()

    def close(self) -> None:
        """Leave the last live line in place."""
        if self._shown:
            self._stream.write("\n")
            self._shown = ""

    def _write(self, line: str) -> None:
        if self._shown:  # overwrite the live line
            self._stream.write("\r" + " " * len(self._shown) + "\r")
        self._stream.write(line)
        self._shown = "" if line.endswith("\n") else line

    @staticmethod
    def _format(moment: Progress) -> str:
        gap = f"{moment.gap:.3%}" if moment.gap < 100 else "large"
        gap = gap if math.isfinite(moment.gap) else "-"
        value, bound = (
            f"{number:.8g}" if math.isfinite(number) else "-"
            for number in (moment.value, moment.bound)
        )
        line = (
            f"{moment.seconds:>8.2f}s  {value:>14}  {bound:>14}  {gap:>9}  "
            f"{moment.nodes:>11,}"
        )
        return f"{line}  {moment.phase}".rstrip()
