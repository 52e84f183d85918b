"""The state of a search in a file, so that the same call goes on after a crash."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.canonical import Canonical
from ennopt.network import Array
from ennopt.options import check_place
from ennopt.sealed import digest, read_sealed, write_sealed

VERSION = 3
LARGEST_FILE = 2**36

INTERVAL = 60.0
"""Seconds between two states that are saved."""

MOST_SHARE = 0.05
"""Saving takes no more than this share of the time: large trees wait longer."""

Whole = npt.NDArray[np.int64]


class CheckpointError(ValueError):
    """A file is damaged, is no checkpoint, or belongs to something else."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Where a search stands.

    Parameters
    ----------
    nodes
        Open nodes, (num_nodes, num_numbers).
    points
        The best points, (num_points, num_inputs).
    closed
        No point outside of the open nodes is better.
    count, seconds
        Nodes bounded, and time, so far.
    bounds
        Lower and upper ends of all hidden neurons, (2, num_neurons), if nodes are
        nodes of signs; else none, (0, 0).
    half_spaces
        Those learned of convex regions, (num_half_spaces, num_inputs + 1): slopes, and
        the side that ``slopes @ x`` is at least.
    turn
        Of the search under way, as in `ennopt.engine.search.Search`: `nodes`, `others`,
        `look` and `distance`.
    lines
        Lines above neurons that nodes of signs have bytes for: the neuron, then its
        slopes, (num_lines, num_numbers).
    splits
        What the certificate has heard, (num_splits, 3); ``None`` without one.
    """

    nodes: Array
    points: Array
    closed: float
    count: int
    seconds: float
    bounds: Array
    half_spaces: Array
    turn: tuple[float, float, float, float]
    lines: Array
    splits: Whole | None = None


class Checkpoint:
    """Saves the state of a search now and then, and finds it again.

    Parameters
    ----------
    path
        The file. If it exists and belongs to the same problem, method and gap, the
        search goes on from there.
    interval
        Seconds between two states that are saved. The last state is always saved.

    Examples
    --------
    >>> Checkpoint("run.checkpoint", interval=0)
    Traceback (most recent call last):
    ...
    ValueError: Expected a positive interval, got 0.
    """

    def __init__(self, path: str | Path, interval: float = INTERVAL) -> None:
        if not interval > 0:
            raise ValueError(f"Expected a positive interval, got {interval!r}.")
        self.path, self.interval = Path(path), interval
        check_place(self.path, "checkpoint")
        self.failure = ""
        """Why the state could not be saved the last time, if so."""
        self._identity: dict[str, Any] = {}
        self._due = math.inf

    def begin(self, problem: Canonical, method: str, gap: float) -> State | None:
        """The state that an earlier run of the same kind left, if there is one.

        Raises
        ------
        CheckpointError
            When the file is damaged, is something else, or belongs to another problem,
            method or gap.
        """
        # Values of points come from what the user said; nodes from its canonical form.
        plain = replace(problem, origin=None, known=None)
        self._identity = {"problem": digest(plain), "method": method, "gap": gap}
        self._due = time.perf_counter() + self.interval
        return _read(self.path, self._identity) if self.path.exists() else None

    def due(self) -> bool:
        """Whether it is time to save."""
        return time.perf_counter() >= self._due

    def save(self, state: State) -> None:
        """Write the state; if that fails, the search goes on without."""
        begin = time.perf_counter()
        try:
            _write(self.path, self._identity, state)
            self.failure = ""
        except (OSError, MemoryError) as error:
            self.failure = getattr(error, "strerror", None) or "memory ran out"
        now = time.perf_counter()
        self._due = now + max(self.interval, (now - begin) / MOST_SHARE)


def _write(path: Path, identity: dict[str, Any], state: State) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "nodes": state.nodes, "points": state.points, "bounds": state.bounds,
        "half_spaces": state.half_spaces,
        "lines": state.lines,
    }  # fmt: skip
    if state.splits is not None:
        arrays["splits"] = state.splits
    head = identity | {
        "closed": repr(state.closed),
        "count": state.count,
        "seconds": state.seconds,
        "turn": [repr(number) for number in state.turn],
        "arrays": [[name, list(array.shape)] for name, array in arrays.items()],
    }
    kinds = ["<i8" if name == "splits" else "<f8" for name in arrays]
    parts = [
        np.ascontiguousarray(array, kind).reshape(-1).data
        for array, kind in zip(arrays.values(), kinds, strict=True)
    ]
    write_sealed(path, "checkpoint", VERSION, json.dumps(head).encode() + b"\n", *parts)


def _read(path: Path, identity: dict[str, Any]) -> State:
    body = read_sealed(
        path, "checkpoint", VERSION, largest=LARGEST_FILE, option="checkpoint=",
        error=CheckpointError,
    )  # fmt: skip
    text, _, rest = body.partition(b"\n")
    try:
        head = json.loads(text)
        for name, own in identity.items():
            if head[name] != own:
                was = f" ({head[name]}, and now {own})" if name != "problem" else ""
                raise CheckpointError(
                    f"Expected a checkpoint of this {name}, got one of another "
                    f"{name}{was} at {path.name}. Give another file, or remove it."
                )
        arrays = _arrays(head["arrays"], rest)
        if np.isnan(arrays["nodes"][:, 0]).any():
            raise ValueError("a bound that is not a number")
        if not np.isfinite(arrays["half_spaces"]).all():
            raise ValueError("a half-space that is not finite")
        done, others, look, distance = (float(number) for number in head["turn"])
        if not (done >= 0.0 and others >= 0.0 and look >= 0.0) or math.isnan(distance):
            raise ValueError("a turn of no length")
        return State(
            nodes=arrays["nodes"],
            points=arrays["points"],
            closed=float(head["closed"]),
            count=int(head["count"]),
            seconds=float(head["seconds"]),
            bounds=arrays["bounds"],
            half_spaces=arrays["half_spaces"],
            turn=(done, others, look, distance),
            lines=arrays["lines"],
            splits=arrays.get("splits"),
        )
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise CheckpointError(
            f"Expected a complete state, got one that cannot be read ({error}) at "
            f"{path.name}. Remove it, or give another file."
        ) from error


def _arrays(shapes: Any, data: bytes) -> dict[str, Any]:
    """Arrays one after the other; never more numbers than the file has."""
    found, at = {}, 0
    for name, shape in shapes:
        size = math.prod(int(length) for length in shape)
        if not 0 <= 8 * size <= len(data) - at:
            raise ValueError(f"{size} numbers of {name}, which the file does not have")
        kind = "<i8" if name == "splits" else "<f8"
        part = np.frombuffer(data, kind, size, at)
        found[str(name)] = part.reshape([int(length) for length in shape]).copy()
        at += 8 * size
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes too many")
    return found
