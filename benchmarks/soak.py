"""A long run of the engine: memory, bounds and how soon it stops.

Solves one ensemble for the given time, with a certificate and a checkpoint, samples
memory, file handles, value and bound all the while, and ends the run by Ctrl-C. Before
that, short runs measure how far past a limit, a callback's stop and Ctrl-C the engine
goes. Exits with 1 if a bound went up, a value went down, a bound fell below a value, a
stop took a second or more (with a certificate and a checkpoint to write: ten), or the
memory or the number of open files passed the limit.

    python benchmarks/soak.py ENSEMBLE.npz --seconds 1800 --threads 2
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from ennopt.certificate.writer import Recorder
from ennopt.checkpoint import Checkpoint
from ennopt.domain import Domain
from ennopt.engine.box_search import BoxSearch
from ennopt.network import read_npz
from ennopt.problem import Problem
from ennopt.result import Limits, Progress, Result
from ennopt.run import Callback, Tools

PROMPT_SECONDS = 5.0
"""Length of a run that measures how soon it stops."""

SPARE_MEGABYTES = 200.0
"""What the process may hold beside the open nodes."""


SAVED_SECONDS = 20.0
"""Seconds between two checkpoints."""

SPLIT_BYTES, MORE_HANDLES = 12, 8
"""What a certificate keeps in memory of a node, and files that may be opened later."""


class Watch:
    """A callback that keeps moments and memory; true once it is time to stop."""

    def __init__(self, stop_after: float = float("inf")) -> None:
        self.begin, self.stop_after = time.perf_counter(), stop_after
        self.asked = float("nan")
        self.moments: list[Progress] = []
        self.megabytes: list[float] = []
        self.handles: list[int] = []

    def __call__(self, moment: Progress) -> bool:
        self.moments.append(moment)
        self.megabytes.append(resident())
        self.handles.append(len(list(Path("/proc/self/fd").iterdir())))
        if time.perf_counter() - self.begin < self.stop_after:
            return False
        self.asked = time.perf_counter()
        return True

    def faults(self) -> int:
        """How often a bound rose, a value fell, or they crossed."""
        pairs = zip(self.moments, self.moments[1:], strict=False)
        moved = sum(b.bound > a.bound or b.value < a.value for a, b in pairs)
        return moved + sum(m.bound < m.value for m in self.moments)


def resident() -> float:
    """Megabytes that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def run(
    path: Path, limits: Limits, threads: int, callback: Callback,
    folder: Path | None = None,
) -> Result:  # fmt: skip
    """Search; with a folder, certificate and checkpoint are written there."""
    ensemble = read_npz(path)
    problem = Problem(ensemble, Domain.of(None, ensemble))
    tools = Tools(limits, callback=callback, threads=threads)
    if folder is None:
        return BoxSearch().solve(problem, tools)
    recorder = Recorder(problem, folder / "proof.cert")
    kept = Checkpoint(folder / "state", interval=SAVED_SECONDS)
    tools = replace(tools, recorder=recorder, checkpoint=kept)
    result = BoxSearch().solve(problem, tools)
    recorder.write(result, limits.gap)
    return result


def press_ctrl_c(after: float, pressed: list[float]) -> threading.Timer:
    def press() -> None:
        pressed.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, press)
    timer.daemon = True
    timer.start()
    return timer


def prompt(path: Path, threads: int) -> dict[str, float]:
    """Seconds from being told to stop to the answer."""
    delays = {}
    limits = Limits(seconds=PROMPT_SECONDS)
    begin = time.perf_counter()
    run(path, limits, threads, Watch())
    delays["time limit"] = time.perf_counter() - begin - PROMPT_SECONDS
    watch = Watch(stop_after=PROMPT_SECONDS)
    run(path, Limits(), threads, watch)
    delays["callback"] = time.perf_counter() - watch.asked
    pressed: list[float] = []
    press_ctrl_c(PROMPT_SECONDS, pressed)
    run(path, Limits(), threads, Watch())
    if not pressed:
        raise SystemExit(f"Expected a harder ensemble than {path.name}.")
    delays["Ctrl-C"] = time.perf_counter() - pressed[0]
    return delays


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ensemble", type=Path)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--megabytes", type=float, default=1024.0, help="of nodes")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores
    print(f"# Soak: {options.ensemble.stem}, {options.threads} threads\n")
    delays = prompt(options.ensemble, options.threads)
    watch, pressed = Watch(), []
    press_ctrl_c(options.seconds, pressed)
    limits = Limits(memory=options.megabytes * 2**20)
    with tempfile.TemporaryDirectory() as folder:
        result = run(options.ensemble, limits, options.threads, watch, Path(folder))
        sizes = {
            name: (Path(folder) / name).stat().st_size
            for name in ("proof.cert", "state")
        }
    if pressed:
        late = time.perf_counter() - pressed[0]
        delays[f"Ctrl-C at {options.seconds:.0f} s"] = late
    for name, delay in delays.items():
        print(f"- stopped {delay:.2f} s after {name}")
    print(f"- {len(watch.moments)} moments, {watch.faults()} of them contradict")
    print(f"- {result.status}, {result.nodes} nodes")
    print(
        f"- bytes: certificate {sizes['proof.cert']:,}, checkpoint {sizes['state']:,}\n"
    )
    print("| seconds | value | bound | nodes | MB | open files |")
    print("|---|---|---|---|---|---|")
    for share in range(0, 11):
        at = min(len(watch.moments) - 1, share * len(watch.moments) // 10)
        m = watch.moments[at]
        print(
            f"| {m.seconds:.0f} | {m.value:.6f} | {m.bound:.6f} | {m.nodes} "
            f"| {watch.megabytes[at]:.0f} | {watch.handles[at]} |"
        )
    most = max(watch.megabytes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(
        f"\nAt most {most:.0f} MB, between two moments {peak:.0f} MB; "
        f"{options.megabytes:.0f} MB for open nodes allowed."
    )
    told = SPLIT_BYTES * result.nodes / 2**20
    sound = watch.faults() == 0 and most < options.megabytes + SPARE_MEGABYTES + told
    sound = sound and max(watch.handles) <= watch.handles[0] + MORE_HANDLES
    last = delays.pop(f"Ctrl-C at {options.seconds:.0f} s", 0.0)
    return 0 if sound and max(delays.values()) < 1.0 and last < 10.0 else 1


if __name__ == "__main__":
    sys.exit(main())
