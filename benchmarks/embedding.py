"""A predictor inside a solver's model: ours beside the calls of other packages.

    python benchmarks/embedding.py --inputs 3 --members 3 --width 10 --limit 20

trains scikit-learn networks on a function and states two decisions in several ways: the
largest mean prediction, and the least cost of inputs whose mean prediction reaches a
limit. All ways of a solver solve the same decision, one thread, gap 1e-4; a package
states it as it does by default. The table has geometric means over the seeds. Packages
that are not installed are left out: gurobi-machinelearning, pyscipopt-ml, omlt. They
are no extras of ennopt: ``make bench-embedding`` installs them into an environment of
their own. `--out` writes the table to a file, `--note` adds a sentence to it.
"""

import argparse
import importlib.util
import time
import warnings
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numpy as np
from sklearn.neural_network import MLPRegressor

import ennopt
from ennopt.embed import add_predictor_constr

GAP = 1e-4


def trained(inputs, members, layers, width, seed):
    """Networks fitted to a rugged function on [-1, 1]^inputs."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(400, inputs))
    y = np.sin(4.0 * x).sum(axis=1) - (x**2).sum(axis=1) + np.prod(1.0 + x, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that have not converged
        return [
            MLPRegressor(
                hidden_layer_sizes=(width,) * layers, solver="lbfgs", max_iter=500,
                random_state=seed + i,
            ).fit(x, y)
            for i in range(members)
        ]  # fmt: skip


class Gurobi:
    """gurobipy."""

    def __init__(self, limit):
        import gurobipy

        env = gurobipy.Env(params={"OutputFlag": 0, "Threads": 1, "TimeLimit": limit})
        self.model = gurobipy.Model(env=env)
        self.model.Params.MIPGap = GAP

    def variables(self, count, low, high):
        return list(self.model.addVars(count, lb=low, ub=high).values())

    def constrain(self, constraint):
        self.model.addConstr(constraint)

    def solve(self, objective, sense):
        self.model.setObjective(objective, -1 if sense == "max" else 1)
        self.model.optimize()
        return self.model.ObjVal, self.model.ObjBound, int(self.model.NodeCount)


class Scip:
    """PySCIPOpt."""

    def __init__(self, limit):
        import pyscipopt

        self.model = pyscipopt.Model()
        self.model.hideOutput()
        self.model.setParam("limits/gap", GAP)
        self.model.setParam("limits/time", limit)

    def variables(self, count, low, high):
        return [self.model.addVar(f"v{j}_{low}", lb=low, ub=high) for j in range(count)]

    def constrain(self, constraint):
        self.model.addCons(constraint)

    def solve(self, objective, sense):
        self.model.setObjective(objective, f"{sense}imize")
        self.model.optimize()
        model = self.model
        return model.getObjVal(), model.getDualbound(), model.getNTotalNodes()


class PyomoHighs:
    """Pyomo, solved by HiGHS."""

    def __init__(self, limit):
        import pyomo.environ as pyo

        self.pyo, self.limit = pyo, limit
        self.model = pyo.ConcreteModel()
        self.model.rows = pyo.ConstraintList()

    def variables(self, count, low, high):
        made = self.pyo.Var(range(count), bounds=(low, high))
        self.model.add_component(f"v{len(list(self.model.component_objects()))}", made)
        return list(made.values())

    def constrain(self, constraint):
        self.model.rows.add(constraint)

    def solve(self, objective, sense):
        kind = self.pyo.maximize if sense == "max" else self.pyo.minimize
        self.model.goal = self.pyo.Objective(expr=objective, sense=kind)
        solver = self.pyo.SolverFactory("appsi_highs")
        solver.config.time_limit = self.limit
        solver.highs_options = {"mip_rel_gap": GAP, "threads": 1}
        solver.solve(self.model)
        info = solver._solver_model.getInfo()
        return info.objective_function_value, info.mip_dual_bound, info.mip_node_count


def ours(bounds):
    def state(host, networks, x):
        made = add_predictor_constr(host.model, networks, x, bounds=bounds)
        return made.output[0, 0]

    return state


def mean(outputs):
    return sum(outputs[1:], start=1.0 * outputs[0]) * (1.0 / len(outputs))


def gurobi_ml(host, networks, x):
    from gurobi_ml import add_predictor_constr as add

    outputs = [add(host.model, network, x).output[0, 0] for network in networks]
    return mean([output.item() for output in outputs])


def pyscipopt_ml(host, networks, x):
    from pyscipopt_ml.add_predictor import add_predictor_constr as add

    return mean(
        [
            add(host.model, network, x, unique_naming_prefix=f"p{i}_").output[0][0]
            for i, network in enumerate(networks)
        ]
    )


def omlt(host, networks, x):
    from omlt import OmltBlock
    from omlt.neuralnet import NetworkDefinition, ReluBigMFormulation
    from omlt.neuralnet.layer import DenseLayer, InputLayer

    outputs = []
    for i, network in enumerate(networks):
        ends = {j: tuple(map(float, variable.bounds)) for j, variable in enumerate(x)}
        definition = NetworkDefinition(scaled_input_bounds=ends)
        before = InputLayer([len(x)])
        definition.add_layer(before)
        for k, (weights, biases) in enumerate(
            zip(network.coefs_, network.intercepts_, strict=True)
        ):
            last = k == len(network.coefs_) - 1
            layer = DenseLayer(
                before.output_size, [len(biases)], weights=weights, biases=biases,
                activation="linear" if last else "relu",
            )  # fmt: skip
            definition.add_layer(layer)
            definition.add_edge(before, layer)
            before = layer
        block = OmltBlock()
        host.model.add_component(f"net{i}", block)
        block.build_formulation(ReluBigMFormulation(definition))
        for j, variable in enumerate(x):
            host.constrain(block.inputs[j] == variable)
        outputs.append(block.outputs[0])
    return mean(outputs)


PEERS = [
    (Gurobi, "gurobipy", "gurobi_ml", "gurobi-machinelearning", gurobi_ml),
    (Scip, "pyscipopt", "pyscipopt_ml", "PySCIPOpt-ML", pyscipopt_ml),
    (PyomoHighs, "pyomo", "omlt", "OMLT, big-M", omlt),
]


def ways(bounds):
    """Solver, name and way to state the predictor, of what is installed."""
    for host, package, peer, label, state in PEERS:
        if importlib.util.find_spec(package) is None:
            continue
        for one in bounds:
            yield host, f"ennopt, {one}", ours(one)
        if importlib.util.find_spec(peer) is not None:
            yield host, label, state


def decisions(ensemble, inputs):
    """Title, sense, limit on the prediction, and what our own engine proves."""
    box = [(-1.0, 1.0)] * inputs
    best, least = (f(ensemble, box).value for f in (ennopt.maximize, ennopt.minimize))
    yield "largest prediction", "max", None, best
    yield "least cost", "min", least + 0.8 * (best - least), None


@dataclass
class Cell:
    """What one way took on all seeds."""

    state: list[float] = field(default_factory=list)
    solve: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    proved: int = 0

    def __str__(self):
        state, solve, nodes = (
            np.exp(np.mean(np.log(np.maximum(own, least))))
            for own, least in ((self.state, 1e-3), (self.solve, 1e-3), (self.nodes, 1))
        )
        done = f"{self.proved} of {len(self.solve)}"
        return f"{state:.2f} | {solve:.2f} | {nodes:,.0f} | {done}"


def measure(options, seed, cells):
    """All ways on the networks of one seed."""
    networks = trained(
        options.inputs, options.members, options.layers, options.width, seed
    )
    prices = np.linspace(1.0, 2.0, options.inputs)
    ensemble = ennopt.load(networks)
    for title, sense, limit, known in decisions(ensemble, options.inputs):
        for kind, label, state in ways(options.bounds):
            host = kind(options.limit)
            x = host.variables(options.inputs, -1.0, 1.0)
            begin = time.perf_counter()
            output = state(host, networks, x)
            stated = time.perf_counter() - begin
            objective = output
            if limit is not None:
                host.constrain(output >= limit)
                objective = sum(float(p) * v for p, v in zip(prices, x, strict=True))
            begin = time.perf_counter()
            value, bound, nodes = host.solve(objective, sense)
            cell = cells.setdefault((title, kind.__doc__[:-1], label), Cell())
            cell.state.append(stated)
            cell.solve.append(time.perf_counter() - begin)
            cell.nodes.append(nodes)
            cell.proved += abs(bound - value) <= 2 * GAP * max(1.0, abs(value))
            slack = 1e-3 * max(1.0, abs(value))
            if known is not None and not value - slack <= known <= bound + slack:
                raise AssertionError(
                    f"Expected {known} as our engine proves, got {value} and the bound "
                    f"{bound} from {label} at seed {seed}."
                )


def versions():
    """Of solvers and packages, those that are installed."""
    names = (
        "gurobipy", "gurobi-machinelearning", "PySCIPOpt", "PySCIPOpt-ML", "pyomo",
        "omlt", "highspy",
    )  # fmt: skip
    known = {found.name.lower(): found.version for found in metadata.distributions()}
    return ", ".join(f"{n} {known[n.lower()]}" for n in names if n.lower() in known)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (
        ("inputs", 3), ("members", 3), ("layers", 2), ("width", 10), ("seeds", 3),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of a solver")
    parser.add_argument("--bounds", nargs="+", default=["crown", "lp", "search"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--note", default="")
    options = parser.parse_args()
    cells = {}
    for seed in range(options.seeds):
        measure(options, seed, cells)
        print(f"seed {seed} done", flush=True)
    lines = [
        "# A predictor inside a solver's model",
        "",
        "`make bench-embedding` writes this file; `benchmarks/embedding.py` says what "
        f"is measured: ensembles of {options.members}",
        f"networks with {options.inputs} inputs and {options.layers} x {options.width} "
        f"neurons, {options.seeds} seeds, {options.limit:g} seconds, one thread.",
        f"{versions()}. {options.note}".rstrip(),
        "",
        "| decision | solver | stated by | s to state | s to solve | nodes | proved |",
        "|---|---|---|---:|---:|---:|---:|",
        *(f"| {' | '.join(key)} | {cell} |" for key, cell in cells.items()),
    ]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
