"""Two installations of ennopt in turn on the same ensembles: nodes, bounds, speed.

``python benchmarks/gate.py FOLDER --old OLD/bin/python --new NEW/bin/python`` runs each
ensemble of the folder with both interpreters, one thread, in turn, and prints nodes,
bound, seconds of the processor and the ratio of nodes per second; with `--out` it
writes a table. A change of the engine that claims to change nothing must show the same
nodes; the ratio is the geometric mean over ensembles whose runs are long enough to be
timed.
"""

import argparse
import json
import math
import subprocess
from pathlib import Path

from engine import machine

RUN = """
import json, sys, time
import ennopt
from ennopt import maximize
path, method, nodes, seconds = sys.argv[1:]
way = getattr(ennopt, {"box": "BoxSearch", "neurons": "NeuronSearch"}[method])()
model = ennopt.load(path)
maximize(model, method=way, threads=1, node_limit=8.0)  # loads what is needed
start = time.process_time()
r = maximize(model, method=way, threads=1, node_limit=float(nodes),
             time_limit=float(seconds))
total = time.process_time() - start
print(json.dumps({"nodes": r.nodes, "bound": r.bound, "value": r.value,
                  "status": r.status.value, "seconds": total}))
"""


def run(python, path, options):
    done = subprocess.run(
        [python, "-c", RUN, str(path), options.method, str(options.nodes),
         str(options.seconds)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


HEADS = ("ensemble", "old nodes", "new nodes", "old bound", "new bound", "old s",
         "new s", "speed")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--only", default="*.npz")
    parser.add_argument("--method", choices=("box", "neurons"), default="box")
    parser.add_argument("--nodes", type=float, default=20_000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--note", default="", help="which states these are")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ratios, differ, totals = [], [], {"old": 0, "new": 0}
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    print(*lines, sep="\n")
    paths = [p for folder in options.folder for p in sorted(folder.glob(options.only))]
    for path in paths:
        best = {}
        for _ in range(options.repeat):
            for side in ("old", "new"):
                found = run(getattr(options, side), path, options)
                if side not in best or found["seconds"] < best[side]["seconds"]:
                    best[side] = found
        old, new = best["old"], best["new"]
        for side in totals:
            totals[side] += best[side]["nodes"]
        rates = [r["nodes"] / max(r["seconds"], 1e-9) for r in (old, new)]
        ratio = rates[1] / rates[0]
        if min(old["seconds"], new["seconds"]) > 0.1:
            ratios.append(ratio)
        if old["nodes"] != new["nodes"]:
            differ.append(path.stem)
        told = [f"{r['bound']:.6g}{'' if r['status'] == 'optimal' else ' (open)'}"
                for r in (old, new)]  # fmt: skip
        lines.append(f"| {path.stem} | {old['nodes']:,} | {new['nodes']:,} "
                     f"| {told[0]} | {told[1]} | {old['seconds']:.2f} "
                     f"| {new['seconds']:.2f} | {ratio:.2f} |")  # fmt: skip
        print(lines[-1], flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    lines += [
        "",
        f"- nodes: {totals['old']:,} old, {totals['new']:,} new; "
        f"{len(differ)} of {len(paths)} ensembles differ",
        f"- nodes per second, new / old: {mean:.2f} (geometric mean of {len(ratios)} "
        "with more than 0.1 s)",
    ]
    print(*lines[-2:], sep="\n")
    if options.out is not None:
        head = [
            "# Before and after", "", machine(), "",
            f"`{options.method}`, gap 1e-4, at most {options.nodes:,.0f} nodes, one "
            "thread, seconds of the processor, both states in turn "
            f"(`benchmarks/gate.py`). {options.note}", "",
        ]  # fmt: skip
        options.out.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
