"""How fast the engine proves, beside big-M on MILP solvers, in one run on one machine.

For each instance, in turn: our engine (`--engine`), then each solver that is asked for;
another of our own methods may stand among them. Every
solve is a process of its own, so that its peak memory is its own. Writes a table.
HiGHS and SCIP search in one thread: `--threads 1 --jobs 2` gives every method one core
and keeps two busy.

    python benchmarks/engine.py INSTANCES --limit 60 --solvers highs scip gurobi
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
OWN = ("auto", "box", "neurons")


def solve_one(
    path: str, method: str, limit: float, threads: int, gap: float, processor: bool
) -> dict:
    """Solve one instance in this process and report on it."""
    now = time.process_time if processor else time.perf_counter
    begin = now()
    from ennopt import clock

    if processor:
        clock.count_processor_time()
    from ennopt.domain import Domain
    from ennopt.methods import method_named
    from ennopt.network import read_npz
    from ennopt.problem import Problem
    from ennopt.result import Limits
    from ennopt.run import Tools

    ensemble = read_npz(path)
    problem = Problem(ensemble, Domain.of(None, ensemble))
    tools = Tools(Limits(seconds=limit, gap=gap), threads=threads)
    known = (method,) if method in OWN else ("bigm", method)
    asked = method_named(*known)
    if method in ("box", "neurons"):  # each by itself
        asked = replace(asked, gives_way=False)
    result = asked.solve(problem, tools)
    search = result.seconds.get("search", math.nan)
    return {
        "method": method,
        "proved": result.proved,
        "value": result.value,
        "bound": result.bound,
        "gap": result.gap,
        "nodes": result.nodes,
        "seconds": result.seconds["total"],
        "with_import": now() - begin,
        "rate": result.nodes / search if search else math.nan,
        "gigaflops": result.details.get("operations", 0.0) / search / 1e9
        if search
        else 0.0,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def matmul_peak() -> float:
    """Gigaflops of one thread's float64 matrix product, the best of a few."""
    import numpy as np

    a = np.random.default_rng(0).random((768, 768))
    best = math.inf
    for _ in range(8):
        begin = time.process_time()
        a @ a
        best = min(best, time.process_time() - begin)
    return 2 * 768**3 / best / 1e9


def in_process(*arguments: str, script: str = __file__) -> dict:
    """Run this file, or another one, again for one solve."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, *arguments],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"error": words[-1][:120]}
    answer: dict = json.loads(done.stdout.splitlines()[-1])
    return answer


def cell(entry: dict) -> str:
    """Seconds of a proof, or the gap at the limit."""
    if "error" in entry:
        licence = "icen" in entry["error"]
        return "beyond licence" if licence else f"failed: {entry['error']}"
    if entry["proved"]:
        return f"{entry['seconds']:.2f} s"
    return f"gap {entry['gap']:.1%}" if math.isfinite(entry["gap"]) else "no value"


def seconds(entry: dict, limit: float) -> float:
    """Time of a proof; the limit if there is none."""
    return max(entry["seconds"] if entry["proved"] else limit, 1e-3)


def geometric(numbers: Iterable[float]) -> float:
    """Geometric mean; nan of nothing."""
    logs = [math.log(max(number, 1e-3)) for number in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def mean_ratio(
    rows: list[dict], solvers: list[str], limit: float, own_limit: float
) -> float:
    """Geometric mean of the best solver's time over ours, where one accepts."""
    ratios = []
    for row in rows:
        theirs = [seconds(row[s], limit) for s in solvers if "error" not in row[s]]
        if theirs and "error" not in row["engine"]:
            ratios.append(min(theirs) / seconds(row["engine"], own_limit))
    return geometric(ratios)


def behind(rows: list[dict], solver: str) -> list[str]:
    """Instances on which a solver that takes more than a second is ahead of us."""

    def rank(entry: dict) -> tuple[bool, float]:
        proved = entry["proved"]
        return not proved, entry["seconds"] if proved else entry["gap"]

    return [
        row["name"]
        for row in rows
        if "error" not in row[solver]
        and row[solver]["seconds"] > 1
        and rank(row[solver]) < rank(row["engine"])
    ]


def machine() -> str:
    """The day, the processor and the versions that matter."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        names = [line.split(":")[1].strip() for line in lines if "model name" in line]
        model = names[0] if names else model
    packages = []
    for package in ("numpy", "highspy", "pyscipopt", "gurobipy"):
        try:
            packages.append(f"{package} {version(package)}")
        except ImportError:
            continue
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"{day}, {model}, {os.cpu_count()} cores; {', '.join(packages)}."


def table(rows: list[dict], options: argparse.Namespace, peak: float) -> str:
    """The whole report in Markdown."""
    heads = ["instance", "engine", "with import"]
    heads += ["nodes", "nodes/s", "Gflop/s", "of peak", "MB"]
    heads += list(options.solvers)
    lines = [
        "# Engine benchmark",
        "",
        machine(),
        "",
        f"Engine: `{options.engine}`. Gap {options.gap:g}, limit {options.limit:g} s, "
        f"threads of each method: {options.threads}, instances at a time: "
        f"{options.jobs}; matrix-multiply peak "
        f"of one thread {peak:.1f} Gflop/s."
        + " Seconds are of the processor." * options.processor
        + f" Solvers: big-M with the package's own bounds, {options.solver_limit:g} s."
        * bool(options.solvers),
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for row in rows:
        ours = row["engine"]
        if "error" in ours:
            lines.append(f"| {row['name']} | {ours['error']} |")
            continue
        share = ours["gigaflops"] / (peak * options.threads)
        entries = [
            row["name"], cell(ours), f"{ours['with_import']:.2f} s",
            str(ours["nodes"]), f"{ours['rate']:.0f}",
            f"{ours['gigaflops']:.1f}", f"{share:.0%}", f"{ours['megabytes']:.0f}",
            *(cell(row[s]) for s in options.solvers),
        ]  # fmt: skip
        lines.append("| " + " | ".join(entries) + " |")
    done = [r["engine"] for r in rows if r["engine"].get("proved")]
    if done:
        means = [
            geometric(e[key] for e in done) for key in ("seconds", "nodes", "rate")
        ]
        lines.append(
            "| geometric mean of the proved | {:.2f} s | | {:.0f} | {:.0f} |".format(
                *means
            )
            + " |" * (len(heads) - 5)
        )
    lines.append("")
    for limit in (1, 10, 60, 300, 3600):
        if limit > options.limit:
            break
        count = sum(entry["seconds"] <= limit for entry in done)
        lines.append(f"- proved within {limit} s: {count} of {len(rows)}")
    groups = [[solver] for solver in options.solvers]
    free = [s for s in options.solvers if s not in ("gurobi", *OWN)]
    if len(free) > 1:
        groups.append(free)
    for group in groups:
        ratio = mean_ratio(rows, group, options.solver_limit, options.limit)
        name = group[0] if len(group) == 1 else "the best of " + " and ".join(group)
        lines.append(f"- geometric mean of {name} / engine: {ratio:.1f}")
    for solver in options.solvers:
        late = behind(rows, solver)
        lines.append(
            f"- ahead of the engine among those that take {solver} over a second: "
            + (", ".join(late) or "none")
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("instances", type=Path, help="folder of .npz ensembles")
    parser.add_argument("--only", default="*", help="pattern of file names")
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--solver-limit", type=float, default=60.0)
    parser.add_argument("--gap", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--jobs", type=int, default=1, help="instances at a time")
    parser.add_argument(
        "--processor", action="store_true",
        help="count processor time, for one thread of the engine on a busy machine",
    )  # fmt: skip
    parser.add_argument("--engine", choices=OWN, default="auto")
    parser.add_argument("--solvers", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=HERE / "engine.md")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one == "peak":
        print(json.dumps({"peak": matmul_peak()}))
        return
    if options.one:
        print(json.dumps(solve_one(
            str(options.instances), options.one, options.limit, options.threads,
            options.gap, options.processor,
        )))  # fmt: skip
        return
    peak = in_process(str(options.instances), "--one", "peak")["peak"]

    def measure(path: Path) -> dict:
        row: dict = {"name": path.stem}
        for name in ("engine", *options.solvers):
            method = options.engine if name == "engine" else name
            limit = options.limit if name == "engine" else options.solver_limit
            row[name] = in_process(
                str(path), "--one", method, "--limit", str(limit),
                "--threads", str(options.threads), "--gap", str(options.gap),
                *["--processor"] * options.processor,
            )  # fmt: skip
            print(path.stem, method, cell(row[name]), flush=True)
        return row

    paths = sorted(options.instances.glob(f"{options.only}.npz"))
    rows: list[dict] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(measure, paths):
            rows.append(row)
            options.out.write_text(table(rows, options, peak), encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
