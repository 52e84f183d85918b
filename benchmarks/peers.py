"""ennopt beside other packages that optimize over trained networks.

    python benchmarks/peers.py INSTANCES --limit 60 --out benchmarks/peers.md

For each ensemble, each way in turn, each in a process of its own on one core, all with
the same gap. A package is called through its own public interface, as its documentation
tells, with its defaults; an ensemble is stated as the mean of its members. Seconds are
those of stating and solving, without imports. The value of every way is computed again
by the forward pass at the input that it returns. `make bench-peers` sets up an
environment with all packages and runs this.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ennopt.network import Ensemble, read_npz

GAP = 1e-4
LEAST_SECONDS = 0.01
"""Shorter times are rounding, and count as this in ratios."""
OWN = ("auto", "bigm", "bnc", "enn")
PACKAGES = (
    "ennopt", "numpy", "highspy", "pyscipopt", "gurobipy", "omlt", "pyomo",
    "pyscipopt-ml", "gurobi-machinelearning", "scikit-learn",
)  # fmt: skip


# Each way takes an ensemble and seconds, and returns an input, a bound and nodes.


def ennopt_by(method):
    def run(ensemble, limit):
        import ennopt

        found = ennopt.maximize(
            ensemble, method=method, time_limit=limit, gap=GAP, threads=1
        )
        return found.x, found.bound, found.nodes

    return run


def perceptrons(ensemble):
    """The members as scikit-learn's networks, which both packages below take."""
    from sklearn.neural_network import MLPRegressor

    for net in ensemble.members:
        widths = [len(b) for b in net.biases]
        model = MLPRegressor(hidden_layer_sizes=widths[:-1], activation="relu")
        model.coefs_ = [np.array(w.T) for w in net.weights]
        model.intercepts_ = [np.array(b) for b in net.biases]
        model.n_layers_, model.n_outputs_ = len(widths) + 1, 1
        model.n_features_in_ = net.num_inputs
        model.out_activation_ = "identity"
        yield model


def gurobi_ml(ensemble, limit):
    import gurobipy
    from gurobi_ml import add_predictor_constr

    settings = {"OutputFlag": 0, "Threads": 1, "TimeLimit": limit, "MIPGap": GAP}
    model = gurobipy.Model(env=gurobipy.Env(params=settings))
    x = model.addMVar(ensemble.num_inputs, lb=ensemble.lower, ub=ensemble.upper)
    goal = sum(
        float(weight) * add_predictor_constr(model, net, x).output.sum()
        for weight, net in zip(ensemble.weights, perceptrons(ensemble), strict=True)
    )
    model.setObjective(goal, gurobipy.GRB.MAXIMIZE)
    model.optimize()
    point = x.X if model.SolCount else None
    return point, model.ObjBound, int(model.NodeCount)


def pyscipopt_ml(formulation):
    def run(ensemble, limit):
        import pyscipopt
        from pyscipopt_ml.add_predictor import add_predictor_constr

        model = pyscipopt.Model()
        model.hideOutput()
        model.setParam("limits/gap", GAP)
        model.setParam("limits/time", limit)
        ends = zip(ensemble.lower.tolist(), ensemble.upper.tolist(), strict=True)
        x = [model.addVar(f"x{j}", lb=low, ub=up) for j, (low, up) in enumerate(ends)]
        inputs = np.array(x).reshape(1, -1)
        goal = pyscipopt.quicksum(
            float(weight)
            * add_predictor_constr(
                model, net, inputs, unique_naming_prefix=f"p{i}_",
                formulation=formulation,
            ).output[0][0]
            for i, (weight, net) in enumerate(
                zip(ensemble.weights, perceptrons(ensemble), strict=True)
            )
        )  # fmt: skip
        model.setObjective(goal, "maximize")
        model.optimize()
        point = [model.getVal(v) for v in x] if model.getNSols() else None
        return point, model.getDualbound(), model.getNTotalNodes()

    return run


def omlt_model(ensemble):
    """The inputs and the mean of OMLT's blocks in a Pyomo model."""
    import pyomo.environ as pyo
    from omlt import OmltBlock
    from omlt.neuralnet import NetworkDefinition, ReluBigMFormulation
    from omlt.neuralnet.layer import DenseLayer, InputLayer

    model = pyo.ConcreteModel()
    ends = dict(
        enumerate(zip(ensemble.lower.tolist(), ensemble.upper.tolist(), strict=True))
    )
    model.x = pyo.Var(range(ensemble.num_inputs), bounds=lambda _, j: ends[j])
    model.net = OmltBlock(range(ensemble.num_members))
    model.same = pyo.ConstraintList()
    for i, member in enumerate(ensemble.members):
        definition = NetworkDefinition(scaled_input_bounds=ends)
        before = InputLayer([ensemble.num_inputs])
        definition.add_layer(before)
        layers = list(zip(member.weights, member.biases, strict=True))
        for k, (weights, biases) in enumerate(layers):
            layer = DenseLayer(
                before.output_size, [len(biases)], weights=np.array(weights.T),
                biases=np.array(biases),
                activation="linear" if k == len(layers) - 1 else "relu",
            )  # fmt: skip
            definition.add_layer(layer)
            definition.add_edge(before, layer)
            before = layer
        model.net[i].build_formulation(ReluBigMFormulation(definition))
        for j in range(ensemble.num_inputs):
            model.same.add(model.net[i].inputs[j] == model.x[j])
    weights = ensemble.weights.tolist()
    model.goal = pyo.Objective(
        expr=sum(w * model.net[i].outputs[0] for i, w in enumerate(weights)),
        sense=pyo.maximize,
    )
    return model


def omlt(solver):
    def run(ensemble, limit):
        from pyomo.contrib.solver.common.factory import SolverFactory

        model = omlt_model(ensemble)
        results = SolverFactory(solver).solve(
            model, time_limit=limit, rel_gap=GAP, threads=1, load_solutions=False,
            raise_exception_on_nonoptimal_result=False,
        )  # fmt: skip
        point = None
        if results.incumbent_objective is not None:
            found = results.solution_loader.get_vars([*model.x.values()])
            point = [found[v] for v in model.x.values()]
        bound, more = results.objective_bound, results.extra_info
        told = {"highs": "mip_node_count", "scip_direct": "NNodes"}[solver]
        nodes = int(more[told]) if told in more else -1
        return point, math.inf if bound is None else bound, nodes

    return run


WAYS = {f"ennopt {method}": ennopt_by(method) for method in OWN} | {
    "OMLT + HiGHS": omlt("highs"),
    "OMLT + SCIP": omlt("scip_direct"),
    "PySCIPOpt-ML, SOS1": pyscipopt_ml("sos"),
    "PySCIPOpt-ML, big-M": pyscipopt_ml("bigm"),
    "gurobi-ml": gurobi_ml,
}


def solve_one(path: str, way: str, limit: float) -> dict:
    """One way on one ensemble, in this process."""
    ensemble = read_npz(path)
    begin = time.process_time()
    try:
        point, bound, nodes = WAYS[way](ensemble, limit)
    except Exception as error:  # noqa: BLE001 - a package may fail in any way
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    seconds = time.process_time() - begin
    value = -math.inf
    if point is not None:
        inside = np.clip(np.asarray(point), ensemble.lower, ensemble.upper)
        value = float(mean_prediction(ensemble, inside))
    return {"value": value, "bound": bound, "nodes": nodes, "seconds": seconds}


def mean_prediction(ensemble: Ensemble, x: np.ndarray) -> float:
    return ensemble(x)[0]


def in_its_own_process(path: Path, way: str, limit: float) -> dict:
    """One core, one thread; a way that does not end is ended."""
    command = [sys.executable, __file__, str(path), "--one", way, "--limit", str(limit)]
    if sys.platform == "linux":
        command = ["taskset", "-c", str(os.cpu_count() - 1), *command]
    threads = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | threads,
            timeout=2 * limit + 120,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": "did not end long after its limit"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith('{"'):
            return json.loads(line)
    return {"failed": done.stderr.strip()[-200:] or f"exit status {done.returncode}"}


def gap_of(run: dict) -> float:
    if "failed" in run or not math.isfinite(run["value"]):
        return math.inf
    return abs(run["bound"] - run["value"]) / max(abs(run["value"]), 1e-10)


def is_proved(run: dict) -> bool:
    """Within the gap; solvers stop at it by their own value, so a little above."""
    return gap_of(run) <= 1.5 * GAP


def cell(run: dict, best: float) -> str:
    """What a table says of a run."""
    if "failed" in run:
        text = run["failed"].lower()
        return "beyond licence" if "size-limited" in text else "failed"
    if run["bound"] < best - 2 * GAP * abs(best):
        return f"wrong bound {run['bound']:.5g}"
    nodes = f", {run['nodes']:,} nodes" if run["nodes"] >= 0 else ""
    if is_proved(run):
        return f"{run['seconds']:.2f} s{nodes}"
    gap = gap_of(run)
    told = f"gap {100 * gap:.3g}%" if math.isfinite(gap) else "no value"
    return f"{told} after {run['seconds']:.0f} s{nodes}"


def ratio_lines(runs: dict[str, dict[str, dict]]) -> list[str]:
    """Geometric means of the time of each way over that of `auto`."""
    base, lines = f"ennopt {OWN[0]}", []
    for way in WAYS:
        if way == base:
            continue
        pairs, unsolved, left_out = [], 0, 0
        for found in runs.values():
            if "failed" in found[way] or not is_proved(found[base]):
                left_out += 1
                continue
            unsolved += not is_proved(found[way])
            own, auto = (
                max(found[which]["seconds"], LEAST_SECONDS) for which in (way, base)
            )
            pairs.append(own / auto)
        if not pairs:
            continue
        mean = math.exp(sum(map(math.log, pairs)) / len(pairs))
        least = "at least " if unsolved else ""
        lines.append(
            f"| {way} | {least}{mean:,.1f} | {len(pairs)} | {len(pairs) - unsolved} | "
            f"{unsolved} | {left_out} |"
        )
    return lines


PROTOCOL = """\
`make bench-peers` writes this file. One ensemble after the other, each way in turn, \
each in a process of its own on one core with one thread; gap {gap:g}, limit \
{limit:g} s by the clock. Seconds in the tables are those of the processor, for \
stating and solving, without imports. Each package is called as its documentation \
tells, with its defaults. Values are forward passes at the inputs returned; a bound \
below a value that another way has found is told as wrong. *SOS1* (its default) and \
*big-M* are the two ways in which PySCIPOpt-ML states a ReLU neuron. `bigm`, `bnc` \
and `enn` are the paper's methods as ennopt has them, with the MILP solver that it \
chooses."""

RATIOS = """\
Time relative to `ennopt auto`: geometric means over the ensembles that `auto` \
proves. An unsolved run counts with the seconds that it had, so a mean with unsolved \
runs is a lower bound. Times below a hundredth of a second count as that. Runs that \
failed, or that are beyond a size-limited licence, are left out."""


def page(runs: dict[str, dict[str, dict]], options: argparse.Namespace) -> str:
    """The table and how it was made."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    lines = [
        "# Beside other packages",
        "",
        f"{datetime.date.today()}, {machine}, Python {platform.python_version()}; "
        f"{versions}. {options.note}".strip(),
        "",
        PROTOCOL.format(gap=GAP, limit=options.limit),
        "",
        "| ensemble | " + " | ".join(WAYS) + " |",
        "|---" * (len(WAYS) + 1) + "|",
    ]
    for name, found in runs.items():
        best = max(run.get("value", -math.inf) for run in found.values())
        cells = [cell(found[way], best) for way in WAYS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        RATIOS,
        "",
        "| way | times as long | ensembles | proved | unsolved | left out |",
        "|---|---|---|---|---|---|",
        *ratio_lines(runs),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("instances", type=Path, help="a folder of .npz files, or one")
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of names")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a run")
    parser.add_argument("--note", default="", help="a sentence about the machine")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        found = solve_one(str(options.instances), options.one, options.limit)
        print(json.dumps(found), flush=True)
        return
    paths = dict.fromkeys(
        path
        for pattern in options.only
        for path in sorted(options.instances.glob(f"{pattern}.npz"))
    )
    runs: dict[str, dict[str, dict]] = {}
    for path in paths:
        found = {}
        for way in WAYS:
            found[way] = in_its_own_process(path, way, options.limit)
            print(path.stem, way, found[way], flush=True)
        runs[path.stem] = found
        if options.out is not None:  # what is done is kept if the rest is cut short
            options.out.write_text(page(runs, options), encoding="utf-8")
    print(page(runs, options))


if __name__ == "__main__":
    main()
