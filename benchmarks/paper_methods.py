"""E-NN and B&C by processor time: the table of docs/paper-methods.md, one row a line.

On a machine that others use, a time limit in seconds of the wall measures the others.
Here every clock that a run looks at, that of SCIP among them, counts the processor time
of this process instead; what a run does then hardly depends on the load. One run at a
time, one thread (NumPy's threads would count, too). A study does the same where it says
`seconds_of = "processor"`; this makes a table of a few ensembles.

    OMP_NUM_THREADS=1 python benchmarks/paper_methods.py 'perm_e3_*' 'wine_e3_*'
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from pathlib import Path

from ennopt import maximize
from ennopt.clock import count_processor_time
from ennopt.learn.instances import read_instance, read_manifest
from ennopt.result import Result
from ennopt.study.expression import read_method
from ennopt.study.spec import Solve, read_study

STUDY = Path(__file__).parents[1] / "experiments" / "paper.toml"
HEADS = (
    "instance", "B&C", "E-NN", "points", "MILPs", "survey", "MILP bounds", "Phase One",
    "Phase Two (nodes)", "inequalities",
)  # fmt: skip


def ended(result: Result) -> str:
    if result.status.value == "optimal":
        return f"{result.seconds['total']:.1f} s"
    return f"{100 * result.gap:,.{0 if result.gap >= 0.1 else 1}f}%"


def row(name: str, baseline: Result, enhanced: Result) -> str:
    problem, members, layers, width, _ = name.split("_")
    seconds, details = enhanced.seconds, enhanced.details
    stages = [
        f"{seconds[stage]:.1f}" if stage in seconds else "-"
        for stage in ("survey", "milp_bounds", "phase_one", "phase_two")
    ]
    if "phase_two" in seconds:
        stages[-1] += f" ({details['phase_two_nodes']})"
    cells = [
        f"{problem.capitalize()} {members[1:]}x{layers[1:]}x{width[1:]}",
        ended(baseline), ended(enhanced),
        f"{details.get('surveyed_nodes', 0):,}", f"{details.get('milps', 0)}",
        *stages, f"{details.get('phase_one_inequalities', 0)}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="+", metavar="NAME")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--profile", default="evening", help="whose methods are run")
    parser.add_argument("--instances", type=Path, default=STUDY.parent / "instances")
    options = parser.parse_args()
    (compare,) = (
        experiment
        for experiment in read_study(STUDY, options.profile).experiments
        if isinstance(experiment, Solve) and "table1" in experiment.items
    )
    methods = {label: read_method(text) for label, text in compare.methods}
    count_processor_time()
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for name in read_manifest(options.instances)["instances"]:
        if not any(fnmatchcase(name, pattern) for pattern in options.patterns):
            continue
        ensemble = read_instance(options.instances, name, "zero")
        found = [
            maximize(
                ensemble, method=methods[label], time_limit=options.limit, threads=1
            )
            for label in ("B&C", "E-NN")
        ]
        print(row(name, *found), flush=True)


if __name__ == "__main__":
    main()
