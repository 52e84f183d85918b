"""``results.jsonl``: what was planned and how each run ended, one line each.

Lines are only ever appended, each in one write that reaches the disk before the next
run is recorded. A process killed at any moment leaves at most a torn last line, which
the next writer cuts off; readers pass over it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeAlias

try:
    import fcntl
except ImportError:  # not POSIX: there, two writers are not kept apart
    fcntl = None  # type: ignore[assignment]

Line: TypeAlias = dict[str, Any]

FILE = "results.jsonl"
"""Name of the record in the directory of a study."""

FORMAT = 1
"""Version of the lines."""


@dataclass(frozen=True)
class Results:
    """A plan and the runs of it that ended, in the order of the plan.

    Parameters
    ----------
    plan
        The last plan of the record: experiments, versions, machine and keys.
    runs
        The last line of each planned run that ended, in the order of the plan.
    others
        How many runs the record holds that the plan does not ask for: those of other
        versions, methods or profiles.
    """

    plan: Line
    runs: tuple[Line, ...]
    others: int = 0

    @property
    def done(self) -> tuple[Line, ...]:
        """The runs that ended with a result."""
        return tuple(run for run in self.runs if run["outcome"] == "done")

    @property
    def failed(self) -> tuple[Line, ...]:
        """The runs that ended with an error."""
        return tuple(run for run in self.runs if run["outcome"] == "failed")

    @property
    def planned(self) -> int:
        """How many runs the plan asks for."""
        return len(self.plan["runs"])

    def of(self, experiment: str) -> list[Line]:
        """The runs of one experiment that ended with a result."""
        return [run for run in self.done if run["experiment"] == experiment]


def select(lines: Iterable[Line]) -> Results:
    """The results of the last plan among `lines`; later lines go before earlier.

    Examples
    --------
    >>> results = select([
    ...     {"line": "plan", "runs": ["b", "a"]},
    ...     {"line": "run", "key": "a", "outcome": "failed"},
    ...     {"line": "run", "key": "a", "outcome": "done"},
    ...     {"line": "run", "key": "old", "outcome": "done"},
    ... ])
    >>> [run["key"] for run in results.done], results.planned, results.others
    (['a'], 2, 1)
    """
    plan: Line | None = None
    last: dict[str, Line] = {}
    for line in lines:
        if line["line"] == "plan":
            plan = line
        else:
            last[line["key"]] = line
    if plan is None:
        raise ValueError(
            f"Expected a plan in {FILE}, got none. Run: ennopt study run STUDY.toml"
        )
    runs = tuple(last[key] for key in plan["runs"] if key in last)
    return Results(plan, runs, len(last) - len(runs))


def read_results(directory: Path) -> Results:
    """The results in the directory of a study."""
    file = directory / FILE
    if not file.is_file():
        raise ValueError(
            f"Expected {FILE} in {directory}, got none. Run: ennopt study run "
            "STUDY.toml"
        )
    lines, _ = parse(file.read_bytes())
    return select(lines)


def parse(content: bytes) -> tuple[list[Line], int]:
    """The lines of a record, and how many bytes of it are whole.

    What follows the last line end is what a killed writer left behind.

    Examples
    --------
    >>> parse(b'{"line": "run", "key": "a"}\\n{"line": "ru')
    ([{'line': 'run', 'key': 'a'}], 28)
    """
    whole = content.rfind(b"\n") + 1
    lines: list[Line] = []
    pieces = content[:whole].split(b"\n")[:-1]
    position = 0
    for number, piece in enumerate(pieces, start=1):
        try:
            line = json.loads(piece)
            known = isinstance(line, dict) and line.get("line") in ("plan", "run")
        except (ValueError, RecursionError):  # not UTF-8, not JSON, or hostile
            known = False
        if known:
            lines.append(line)
        elif number == len(pieces):
            # A crash of the machine can leave a last line of the right length whose
            # bytes never arrived.
            return lines, position
        else:
            raise ValueError(
                f"Expected a line of a study's record, got {piece[:40]!r} at line "
                f"{number} of {FILE}. Remove that line: its run will be repeated."
            )
        position += len(piece) + 1
    return lines, whole


class Journal:
    """The one writer of a record.

    Parameters
    ----------
    directory
        Of the study; made if it does not exist.

    Raises
    ------
    ValueError
        When another process is writing this record.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = (directory / FILE).open("a+b", buffering=0)
        if fcntl is not None:
            try:  # released by the system, however this process ends
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self._file.close()
                raise ValueError(
                    f"Expected to be the only writer of {directory / FILE}, got "
                    "another process that is. Wait for it, or choose another --output."
                ) from error
        self._file.seek(0)
        self.lines, whole = parse(self._file.read())
        self._file.truncate(whole)

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line; it is on the disk when this returns."""
        text = json.dumps(line, allow_nan=False, separators=(",", ":"))
        rest = text.encode() + b"\n"
        while rest:
            rest = rest[self._file.write(rest) :]
        os.fsync(self._file.fileno())
        self.lines.append(json.loads(text))  # as a reader of the file will see it

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def ended(lines: Sequence[Line]) -> dict[str, str]:
    """How the last attempt at each key ended: ``done`` or ``failed``."""
    return {line["key"]: line["outcome"] for line in lines if line["line"] == "run"}
