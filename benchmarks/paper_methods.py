"""The paper's methods beside plain big-M and our engine, on one thread, one by one.

    python benchmarks/paper_methods.py INSTANCES --output docs/paper-methods.md

INSTANCES is a folder of ensembles named ``problem_e3_L2_n20_r0.npz``. Every solve runs
alone, in a process of its own. The table replaces what stands between the two marks of
the output file; the reading around it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ennopt import Problem

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

SMALL = [
    f"{problem}_e{members}_L2_n20_r0"
    for members in (3, 5)
    for problem in ("peaks", "beale", "perm", "spring", "concrete", "wine")
]
BEYOND = [
    "peaks_e3_L2_n40_r0", "spring_e3_L2_n40_r0", "wine_e3_L2_n40_r0",
    "beale_e3_L4_n20_r0", "perm_e3_L4_n20_r0", "concrete_e3_L4_n20_r0",
]  # fmt: skip
METHODS = ("bigm", "bnc", "enn", "tuned", "box")
TITLES = {
    "bigm": "big-M",
    "bnc": "B&C",
    "enn": "E-NN",
    "tuned": "E-NN tuned",
    "box": "engine",
}
BOUNDS = ("lp", "targeted", "milp")


def methods(limit: float) -> dict[str, Callable[[], object]]:
    """The methods; the paper's time limits in proportion to the limit of a run."""
    from ennopt import BigM, BoxSearch, BranchAndCut, Targeted, TwoPhase
    from ennopt.paper.two_phase import PhaseOne

    # 5 s of 3,600 for a MILP would be 0.02 s here: too short to start a solver.
    targeted = Targeted(milp_seconds=min(5.0, 0.02 * limit))
    return {
        "bigm": lambda: BigM(backend="scip"),
        "bnc": lambda: BranchAndCut(backend="scip"),
        "enn": lambda: TwoPhase((targeted,), phase_one=PhaseOne(share=0.5)),
        "tuned": TwoPhase.tuned,
        "box": BoxSearch,
    }


def solve_one(path: str, name: str, limit: float) -> dict[str, object]:
    """Solve one instance in this process."""
    from ennopt import Domain, Limits, Problem, Tools
    from ennopt.network import read_npz

    ensemble = read_npz(path)
    problem = Problem(ensemble, Domain.of(None, ensemble))
    if name in BOUNDS:
        return root_bounds(problem, name, limit)
    method = methods(limit)[name]()
    result = method.solve(problem, Tools(Limits(seconds=limit)))  # type: ignore[attr-defined]
    return {
        "proved": result.proved,
        "value": result.value,
        "bound": result.bound,
        "gap": result.gap,
        "seconds": result.seconds,
        "nodes": result.nodes,
        "details": result.details,
        "versions": result.versions,
    }


def root_bounds(problem: Problem, name: str, limit: float) -> dict[str, object]:
    """Table 4: bound of the linear relaxation for one way to bound neurons."""
    import time

    from ennopt import LpTightening, MilpTightening, Targeted
    from ennopt.canonical import Canonical
    from ennopt.milp.formulation import big_m
    from ennopt.paper.strengthened import root_rounds

    seen = Canonical.of(problem)
    begin = time.perf_counter()
    bounds, milps = LpTightening().tighten(seen), 0
    seconds = min(5.0, 0.02 * limit)
    if name == "targeted":
        done = Targeted(milp_seconds=seconds).run(seen)
        bounds, milps = done.bounds, done.solves
    elif name == "milp":
        slow = MilpTightening(seconds, backend="scip", outputs=False)
        tight = slow.run(seen, bounds)
        bounds, milps = tight.bounds, tight.solves
    spent = time.perf_counter() - begin
    rounds = root_rounds(big_m(seen, bounds), 25_000)
    return {
        "seconds": spent,
        "milps": milps,
        "unstable": bounds.num_unstable,
        "root": rounds.before,
        "cut": rounds.after,
    }


def apart(path: Path, name: str, limit: float) -> dict[str, object]:
    """The same in a process of its own, on one thread."""
    command = [
        sys.executable,
        __file__,
        str(path),
        "--one",
        name,
        "--limit",
        str(limit),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{path.name} {name} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


# The tables.


def cell(line: dict, limit: float) -> str:
    if line["proved"]:
        return f"{line['seconds']['total']:.1f} s"
    gap = 100 * line["gap"]
    if not math.isfinite(gap):
        return "no bound"
    return f"{gap:.1f}%" if gap >= 1 else f"{gap:.2g}%"


def shown(name: str) -> str:
    problem, members, layers, width, _ = name.split("_")
    return f"{problem.title()} {members[1:]}x{layers[1:]}x{width[1:]}"


def time_gap(line: dict, limit: float) -> float:
    """The paper's time-gap: seconds, and the limit times the gap that is left."""
    if line["proved"]:
        return max(line["seconds"]["total"], 0.01)
    return limit * (1.0 + min(line["gap"], 100.0))


def comparison(lines: dict[str, dict[str, dict]], limit: float) -> list[str]:
    rows = ["| instance | " + " | ".join(TITLES[m] for m in METHODS) + " |"]
    rows.append("|---" * (len(METHODS) + 1) + "|")
    for name, line in lines.items():
        cells = [cell(line[m], limit) for m in METHODS]
        rows.append(f"| {shown(name)} | " + " | ".join(cells) + " |")
    proved = [sum(line[m]["proved"] for line in lines.values()) for m in METHODS]
    rows.append("| proved | " + " | ".join(map(str, proved)) + " |")
    means = [
        geometric_mean([time_gap(line[m], limit) for line in lines.values()])
        for m in METHODS
    ]
    rows.append("| time-gap | " + " | ".join(f"{m:.2f}" for m in means) + " |")
    return rows


def break_down(lines: dict[str, dict[str, dict]]) -> list[str]:
    rows = [
        "| instance | LPs s | survey s | MILPs s | Phase One s | Phase Two s "
        "| critical | MILPs | inequalities | gap after One | gap at start of Two "
        "| nodes of Two | reversions |",
        "|---" * 13 + "|",
    ]
    for name, line in lines.items():
        e = line["enn"]
        seconds, details = e["seconds"], e["details"]
        spent = [
            f"{seconds.get(p, 0.0):.1f}"
            for p in ("lp_bounds", "survey", "milp_bounds", "phase_one", "phase_two")
        ]
        counts = [
            str(details.get(k, "-"))
            for k in ("critical_neurons", "milps", "phase_one_inequalities")
        ]
        gaps = [
            "-" if details.get(k) is None else f"{100 * details[k]:.1f}%"
            for k in ("phase_one_gap", "phase_two_start_gap")
        ]
        tail = [
            str(details.get(k, "-")) for k in ("phase_two_nodes", "big_m_reversions")
        ]
        rows.append(
            f"| {shown(name)} | " + " | ".join(spent + counts + gaps + tail) + " |"
        )
    return rows


def roots(lines: dict[str, dict[str, dict]]) -> list[str]:
    rows = [
        "| instance | LP root | targeted root | MILP root | LP after cuts | targeted "
        "after cuts | MILP after cuts | MILPs targeted / all | seconds LP / targeted / "
        "all |",
        "|---" * 9 + "|",
    ]
    for name, line in lines.items():
        entries = [f"{line[b]['root']:.3f}" for b in BOUNDS]
        entries += [f"{line[b]['cut']:.3f}" for b in BOUNDS]
        entries.append(f"{line['targeted']['milps']} / {line['milp']['milps']}")
        entries.append(" / ".join(f"{line[b]['seconds']:.1f}" for b in BOUNDS))
        rows.append(f"| {shown(name)} | " + " | ".join(entries) + " |")
    return rows


def write(path: Path, text: str) -> None:
    """Replace what stands between the marks."""
    old = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    head, _, rest = old.partition(BEGIN)
    tail = rest.partition(END)[2]
    path.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("instances", type=Path)
    parser.add_argument("--limit", type=float, default=15.0, help="seconds of a run")
    parser.add_argument("--output", type=Path, help="Markdown file with the marks")
    parser.add_argument("--record", type=Path, help="JSON file; runs in it are kept")
    parser.add_argument("--small-only", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(solve_one(str(options.instances), options.one, options.limit)))
        return
    names = SMALL if options.small_only else SMALL + BEYOND
    record: dict[str, dict[str, dict]] = {}
    if options.record and options.record.exists():
        record = json.loads(options.record.read_text(encoding="utf-8"))
    for name in names:
        wanted = (*METHODS, *(BOUNDS if name in SMALL[:6] else ()))
        for method in wanted:
            if method in record.setdefault(name, {}):
                continue
            path = options.instances / f"{name}.npz"
            record[name][method] = apart(path, method, options.limit)
            print(name, method, json.dumps(record[name][method])[:160], flush=True)
            if options.record:
                options.record.write_text(json.dumps(record), encoding="utf-8")
    lines = {name: record[name] for name in names}
    versions = lines[names[0]]["enn"]["versions"]
    stated = ", ".join(f"{key} {value}" for key, value in sorted(versions.items()))
    text = "\n".join(
        [
            f"Limit {options.limit:g} s a run, gap 1e-4, one thread, "
            f"{platform.machine()}, {stated}. Time if proved, else the gap left; "
            "`time-gap` is the geometric mean of the paper's measure.",
            "",
            *comparison(lines, options.limit),
            "",
            "What E-NN did:",
            "",
            *break_down(lines),
            "",
            "Bound of the linear relaxation by the way neurons are bounded (the "
            "paper's Table 4), before and after rounds of ideal cuts:",
            "",
            *roots({name: lines[name] for name in SMALL[:6]}),
        ]
    )
    print(text)
    if options.output:
        write(options.output, text)


if __name__ == "__main__":
    main()
