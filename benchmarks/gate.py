"""Two installations of ennopt in turn on the same ensembles: nodes, bounds, speed.

``python benchmarks/gate.py FOLDER --old OLD/bin/python --new NEW/bin/python`` runs each
ensemble of the folder with both interpreters, one thread, in turn, and prints the
nodes, the bound reached and the ratio of nodes per second. A change of the engine that
claims to change nothing must show the same nodes; the ratio is the geometric mean over
ensembles whose runs are long enough to be timed.
"""

import argparse
import json
import math
import subprocess
from pathlib import Path

RUN = """
import json, sys, time
import ennopt
from ennopt import BoxSearch, NeuronSearch, maximize
path, method, nodes, seconds = sys.argv[1:]
way = BoxSearch() if method == "box" else NeuronSearch()
model = ennopt.load(path)
start = time.perf_counter()
r = maximize(model, method=way, threads=1, node_limit=float(nodes),
             time_limit=float(seconds))
total = time.perf_counter() - start
print(json.dumps({"nodes": r.nodes, "bound": r.bound, "value": r.value,
                  "status": r.status.value, "search": r.seconds.get("search", 0.0),
                  "total": total}))
"""


def run(python, path, options):
    done = subprocess.run(
        [python, "-c", RUN, str(path), options.method, str(options.nodes),
         str(options.seconds)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--only", default="*.npz")
    parser.add_argument("--method", choices=("box", "neurons"), default="box")
    parser.add_argument("--nodes", type=float, default=20_000)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    ratios, differ, totals = [], [], {"old": 0, "new": 0}
    print(f"{'ensemble':<28}{'old nodes':>10}{'new nodes':>10}{'old bound':>13}"
          f"{'new bound':>13}{'old s':>8}{'new s':>8}{'speed':>7}")  # fmt: skip
    for path in sorted(options.folder.glob(options.only)):
        best = {}
        for _ in range(options.repeat):
            for side in ("old", "new"):
                found = run(getattr(options, side), path, options)
                if side not in best or found["search"] < best[side]["search"]:
                    best[side] = found
        old, new = best["old"], best["new"]
        for side in totals:
            totals[side] += best[side]["nodes"]
        rates = [r["nodes"] / max(r["search"], 1e-9) for r in (old, new)]
        ratio = rates[1] / rates[0]
        if min(old["search"], new["search"]) > 0.1:
            ratios.append(ratio)
        if old["nodes"] != new["nodes"]:
            differ.append(path.stem)
        print(f"{path.stem:<28}{old['nodes']:>10}{new['nodes']:>10}"
              f"{old['bound']:>13.6g}{new['bound']:>13.6g}{old['search']:>8.2f}"
              f"{new['search']:>8.2f}{ratio:>7.3f}", flush=True)  # fmt: skip
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    print(f"nodes: {totals['old']} old, {totals['new']} new; "
          f"{len(differ)} ensembles differ: {', '.join(differ)}")  # fmt: skip
    print(f"nodes per second, new / old: {mean:.3f} (geometric mean of {len(ratios)})")


if __name__ == "__main__":
    main()
