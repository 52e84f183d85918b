"""How the cost of a proof grows with members, layers, width, inputs and threads.

One size grows at a time; the others stay at three members, two layers of 20 neurons and
five inputs. The ensembles are trained on a function that is made for any number of
inputs, in `FOLDER`; so anyone can make them. Every run is a process of its own, and is
written to `FOLDER/runs.jsonl` when it ends: a command that was stopped goes on where it
was. Seconds are of the processor, so that other work on the machine changes little;
only the table of threads counts those of the wall, and needs a machine of its own.

    python benchmarks/scale.py out/scale --limit 60 --out benchmarks/scale.md
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engine import in_process, machine
from ennopt.learn.instances import Spec, make
from ennopt.version import VERSION

FAMILY = "styblinski"
EPOCHS = 100
MEMBERS, LAYERS, WIDTH, INPUTS = 3, 2, 20, 5
SIZES = {
    "members": (1, 2, 3, 5, 10, 20, 50),
    "layers": (1, 2, 3, 4, 6, 8),
    "width": (10, 20, 40, 80, 128, 256, 512),
    "inputs": (2, 3, 5, 8, 12, 20, 30, 60, 100),
    "threads": (1, 2, 4, 8),
}
THREADED = Spec(f"{FAMILY}{INPUTS}", 5, 4, 40, 0, EPOCHS)
"""What is searched with several threads: long enough for them."""


def spec_of(size: str, number: int) -> Spec:
    """The ensemble of one row of the table."""
    if size == "threads":
        return THREADED
    middle = Spec(f"{FAMILY}{INPUTS}", MEMBERS, LAYERS, WIDTH, 0, EPOCHS)
    if size == "inputs":
        return replace(middle, problem=f"{FAMILY}{number}")
    return replace(middle, **{size: number})


def rows(largest: dict[str, int]) -> Iterator[tuple[str, int, Spec]]:
    """All rows whose size is asked for."""
    for size, numbers in SIZES.items():
        for number in numbers:
            if number <= largest[size]:
                yield size, number, spec_of(size, number)


def solve_one(path: str, threads: int, limit: float, wall: bool) -> dict:
    """Solve one ensemble in this process."""
    from ennopt import clock, maximize
    from ennopt.network import read_npz

    if not wall:
        clock.count_processor_time()
    found = maximize(read_npz(path), threads=threads, time_limit=limit)
    return {
        "proved": found.proved,
        "gap": found.gap if math.isfinite(found.gap) else None,
        "nodes": found.nodes,
        "seconds": found.seconds["total"],
        "search": found.seconds.get("search", 0.0),
        "method": str(found.details.get("method", found.method)),
    }


def told(entry: dict) -> str:
    """The cells of a row."""
    if "error" in entry:
        return f"{entry['error']} | | |"
    gap = entry["gap"]
    left = f"gap {gap:.1%}" if gap is not None else "no value"
    result = f"{entry['seconds']:.2f} s" if entry["proved"] else left
    rate = entry["nodes"] / entry["search"] if entry["search"] > 0.01 else math.nan
    shown = f"{rate:,.0f}" if math.isfinite(rate) else ""
    return f"{result} | {entry['nodes']:,} | {shown} |"


def table(done: dict[str, dict], options: argparse.Namespace) -> str:
    """The report in Markdown, of the runs that are done."""
    lines = [
        "# How cost grows",
        "",
        machine(),
        "",
        f"ennopt {VERSION}, `auto`, gap 1e-4, limit {options.limit:g} s. Members of "
        f"ensembles are trained on {FAMILY} functions; unless a table says otherwise "
        f"there are {MEMBERS} of them with {LAYERS} layers of {WIDTH} neurons and "
        f"{INPUTS} inputs, and one thread. Seconds are of the processor; those of a "
        "table of threads are of the wall. `make bench-scale` repeats this with larger "
        "sizes.",
    ]
    for size, numbers in SIZES.items():
        body = [
            f"| {number} | {told(done[key_of(size, number, options)])}"
            for number in numbers
            if key_of(size, number, options) in done
        ]
        if size == "threads" and body:
            e, layers, n = THREADED.members, THREADED.layers, THREADED.width
            lines += ["", f"{e} members with {layers} layers of {n} neurons:"]
        heads = f"| {size} | result | nodes | nodes per second |"
        lines += ["", heads, "|---|---|---|---|", *body] if body else []
    return "\n".join(lines) + "\n"


def key_of(size: str, number: int, options: argparse.Namespace) -> str:
    """What a run is known by in the record."""
    return f"{VERSION} {options.limit:g} {size} {number}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "scale.md")
    for size, numbers in SIZES.items():
        parser.add_argument(
            f"--{size}", type=int, default=numbers[-1], help=f"most {size}, 0: none"
        )
    parser.add_argument("--one", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--wall", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        found = solve_one(str(options.folder), options.one, options.limit, options.wall)
        print(json.dumps(found))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    record = options.folder / "runs.jsonl"
    done: dict[str, dict] = {}
    if record.exists():
        for line in record.read_text(encoding="utf-8").splitlines():
            done |= json.loads(line)
    for size, number, spec in rows({size: getattr(options, size) for size in SIZES}):
        key = key_of(size, number, options)
        if key not in done:
            make(options.folder, [spec])
            threads = number if size == "threads" else 1
            entry = in_process(
                str(options.folder / f"{spec.name}.npz"), "--one", str(threads),
                "--limit", str(options.limit), *["--wall"] * (size == "threads"),
                script=__file__,
            )  # fmt: skip
            done[key] = entry
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps({key: entry}) + "\n")
            print(size, number, told(entry), flush=True)
        options.out.write_text(table(done, options), encoding="utf-8")


if __name__ == "__main__":
    main()
