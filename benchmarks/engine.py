"""How fast the engine proves, beside big-M on MILP solvers, in one run on one machine.

For each instance, in turn: our engine, then each solver that is asked for. Every
solve is a process of its own, so that its peak memory is its own. Writes a table.

    python benchmarks/engine.py INSTANCES --limit 60 --solvers highs scip gurobi
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def solve_one(path: str, method: str, limit: float, threads: int, gap: float) -> dict:
    """Solve one instance in this process and report on it."""
    begin = time.perf_counter()
    from ennopt.domain import Domain
    from ennopt.network import read_npz
    from ennopt.problem import Problem
    from ennopt.result import Limits
    from ennopt.run import Tools
    from ennopt.search.bigm import BigM
    from ennopt.search.box import BoxSearch

    ensemble = read_npz(path)
    problem = Problem(ensemble, Domain.of(None, ensemble)).maximized()
    tools = Tools(Limits(seconds=limit, gap=gap), threads=threads)
    chosen = BoxSearch() if method == "box" else BigM(backend=method)
    result = chosen.solve(problem, tools)
    search = result.seconds.get("search", math.nan)
    return {
        "method": method,
        "proved": result.proved,
        "value": result.value,
        "bound": result.bound,
        "gap": result.gap,
        "nodes": result.nodes,
        "seconds": result.seconds["total"],
        "with_import": time.perf_counter() - begin,
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
        begin = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - begin)
    return 2 * 768**3 / best / 1e9


def in_process(*arguments: str) -> dict:
    """Run this file again for one solve."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1][:120]}
    answer: dict = json.loads(done.stdout.splitlines()[-1])
    return answer


def cell(entry: dict) -> str:
    """Seconds of a proof, or the gap at the limit."""
    if "error" in entry:
        return "refused"
    if entry["proved"]:
        return f"{entry['seconds']:.2f} s"
    return f"gap {entry['gap']:.1%}" if math.isfinite(entry["gap"]) else "no value"


def mean_ratio(rows: list[dict], solver: str, limit: float) -> float:
    """Geometric mean of solver time over ours; unsolved counts as the limit."""
    logs = []
    for row in rows:
        ours, theirs = row["box"], row.get(solver)
        if theirs is None or "error" in theirs or "error" in ours:
            continue
        mine = ours["seconds"] if ours["proved"] else limit
        other = theirs["seconds"] if theirs["proved"] else limit
        logs.append(math.log(max(other, 1e-3) / max(mine, 1e-3)))
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def table(rows: list[dict], options: argparse.Namespace, peak: float) -> str:
    """The whole report in Markdown."""
    heads = ["instance", "engine", "nodes", "nodes/s", "Gflop/s", "of peak", "MB"]
    heads += list(options.solvers)
    lines = [
        "# Engine benchmark",
        "",
        f"Gap {options.gap:g}, limit {options.limit:g} s, {options.threads} threads "
        f"for the engine and for the solvers; matrix-multiply peak of one thread "
        f"{peak:.1f} Gflop/s. Solvers: big-M with the package's own bounds, limit "
        f"{options.solver_limit:g} s.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for row in rows:
        ours = row["box"]
        if "error" in ours:
            lines.append(f"| {row['name']} | {ours['error']} |")
            continue
        share = ours["gigaflops"] / (peak * options.threads)
        entries = [
            row["name"], cell(ours), str(ours["nodes"]), f"{ours['rate']:.0f}",
            f"{ours['gigaflops']:.1f}", f"{share:.0%}", f"{ours['megabytes']:.0f}",
            *(cell(row[s]) for s in options.solvers),
        ]  # fmt: skip
        lines.append("| " + " | ".join(entries) + " |")
    done = [r["box"] for r in rows if r["box"].get("proved")]
    lines.append("")
    for seconds in (1, 10, 60, 300, 3600):
        count = sum(entry["seconds"] <= seconds for entry in done)
        lines.append(f"- proved within {seconds} s: {count} of {len(rows)}")
    for solver in options.solvers:
        ratio = mean_ratio(rows, solver, options.solver_limit)
        lines.append(f"- geometric mean of {solver} / engine: {ratio:.1f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("instances", type=Path, help="folder of .npz ensembles")
    parser.add_argument("--only", default="*", help="pattern of file names")
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--solver-limit", type=float, default=60.0)
    parser.add_argument("--gap", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--solvers", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=HERE / "engine.md")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one == "peak":
        print(json.dumps({"peak": matmul_peak()}))
        return
    if options.one:
        limit = options.limit
        print(json.dumps(solve_one(
            str(options.instances), options.one, limit, options.threads, options.gap
        )))  # fmt: skip
        return
    peak = in_process(str(options.instances), "--one", "peak")["peak"]
    rows = []
    for path in sorted(options.instances.glob(f"{options.only}.npz")):
        row: dict = {"name": path.stem}
        for method in ("box", *options.solvers):
            limit = options.limit if method == "box" else options.solver_limit
            row[method] = in_process(
                str(path), "--one", method, "--limit", str(limit),
                "--threads", str(options.threads), "--gap", str(options.gap),
            )  # fmt: skip
            print(path.stem, method, cell(row[method]), flush=True)
        rows.append(row)
        options.out.write_text(table(rows, options, peak), encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
