"""The clock that limits and phases of a run are read from.

It shows seconds of the wall. On a machine that others use these measure the others,
too; a process that does a single run with one thread may count its own processor time
instead (`count_processor_time`), and then does nearly the same whatever the load. SCIP
follows. HiGHS and Gurobi have no such clock: limits given to them stay seconds of the
wall, which can end their work early.
"""

from __future__ import annotations

import time
from typing import Literal

SecondsOf = Literal["wall", "processor"]

_seconds_of: SecondsOf = "wall"


def now() -> float:
    """A reading in seconds; only differences mean something."""
    return time.perf_counter() if _seconds_of == "wall" else time.process_time()


def seconds_of() -> SecondsOf:
    """What `now` counts: seconds of the wall or of the processor."""
    return _seconds_of


def count_processor_time() -> None:
    """Read the processor time of this process, in all its threads, from now on."""
    global _seconds_of
    _seconds_of = "processor"
