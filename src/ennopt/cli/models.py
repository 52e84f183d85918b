"""``ennopt inspect``, ``convert`` and ``methods``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from ennopt.bounds.neuron_bounds import NeuronBounds
from ennopt.canonical import Canonical, Feature
from ennopt.cli.bounds import add_statements, given_place
from ennopt.cli.question import add_model
from ennopt.columns import Group, Number
from ennopt.convert import load
from ennopt.domain import Domain
from ennopt.domain.frames import listed
from ennopt.engine.auto import Auto
from ennopt.methods import METHODS
from ennopt.milp import available_backends
from ennopt.network import Ensemble
from ennopt.options import check_place
from ennopt.problem import Problem
from ennopt.tightening.relaxation import Crown, Interval

BOUNDED_BY = {"Interval": "interval arithmetic", "Crown": "linear bounds"}
"""What bounds are made by, in words."""

CHOSEN = {"BoxSearch": "box", "NeuronSearch": "neurons"}
"""Names of the methods among which ``auto`` chooses."""


def add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``ennopt inspect``."""
    parser = commands.add_parser(
        "inspect",
        help="what a model is, and how hard it looks",
        description="Members, layers and parameters of a model and, on its box, how "
        "many neurons have a fixed sign and how wide the proved bounds are.",
    )
    add_model(parser)
    add_statements(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run_inspect)


def add_convert(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``ennopt convert``."""
    parser = commands.add_parser(
        "convert",
        help="write a model as an .npz file of plain arrays",
        description="Convert any supported model file to ennopt's own .npz form, "
        "scalers folded in. Bounds given here are recorded with it.",
    )
    add_model(parser)
    parser.add_argument("out", type=Path, metavar="OUT.npz")
    parser.set_defaults(run=run_convert)


def add_methods(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``ennopt methods``."""
    parser = commands.add_parser("methods", help="list the methods and the solvers")
    parser.set_defaults(run=run_methods)


def run_inspect(options: argparse.Namespace) -> int:
    """Describe a model."""
    ensemble = load(options.model)
    facts = describe(ensemble)
    place = given_place(options, ensemble)
    if place is not None:
        facts |= describe_on(ensemble, place.domain)
    if options.json:
        print(json.dumps(facts))
        return 0
    print(f"{ensemble!r}")
    for i, member in enumerate(facts["members"], start=1):
        print(
            f"  member {i}: {' -> '.join(map(str, member['widths']))}, "
            f"{member['parameters']} parameters, weight {member['weight']:.4g}"
        )
    print(
        f"  {facts['num_inputs']} inputs ({listed(facts['input_names'])}), "
        f"{facts['num_outputs']} output{'s' * (facts['num_outputs'] > 1)}, "
        f"{facts['num_neurons']} hidden neurons, {facts['num_parameters']} parameters"
    )
    if ensemble.target_range is not None:
        low, high = ensemble.target_range
        print(f"  trained on targets from {low:.6g} to {high:.6g}")
    if "bounds" not in facts:
        print("  no bounds recorded: add --lower and --upper to see what they prove")
        return 0
    print("  within the bounds of the inputs, proved by")
    heads = ("neurons of fixed sign", "mean range of a neuron", "prediction between")
    print(f"    {'':<20}{heads[0]:>22}{heads[1]:>24}{heads[2]:>28}")
    for row in facts["bounds"]:
        stable = f"{row['stable']} of {facts['num_neurons']}"
        reach = f"{row['output'][0]:.6g} and {row['output'][1]:.6g}"
        print(
            f"    {BOUNDED_BY[row['by']]:<20}{stable:>22}{row['mean_width']:>24.5g}"
            f"{reach:>28}"
        )
    print("  The more neurons have a fixed sign, the shorter is the proof.")
    if "auto" in facts:
        choice = facts["auto"]
        name = CHOSEN[choice["method"].partition("(")[0]]
        reason = choice["reason"].replace("unstable neurons", "neurons of either sign")
        print(f"  The method auto would take {name}: {reason}")
    return 0


def describe(ensemble: Ensemble) -> dict[str, Any]:
    """Plain facts about an ensemble."""
    members = [
        {
            "widths": [member.num_inputs, *member.hidden_widths, member.num_outputs],
            "parameters": member.num_parameters,
            "weight": float(weight),
        }
        for weight, member in zip(ensemble.weights, ensemble.members, strict=True)
    ]
    return {
        "source": ensemble.source,
        "deviation": ensemble.deviation,
        "num_inputs": ensemble.num_inputs,
        "num_outputs": ensemble.num_outputs,
        "num_neurons": ensemble.num_neurons,
        "num_parameters": sum(member["parameters"] for member in members),
        "target_range": ensemble.target_range and list(ensemble.target_range),
        "input_names": list(ensemble.input_names),
        "members": members,
    }


def describe_on(ensemble: Ensemble, domain: Domain) -> dict[str, Any]:
    """What cheap bounds tell about an ensemble on a domain."""
    rows = []
    bounds: NeuronBounds | None = None
    members = Canonical.sum_of(ensemble.members, domain)
    for tightener in (Interval(), Crown()):
        bounds = tightener.tighten(members, bounds)
        low, high = bounds.prediction(ensemble.weights)
        rows.append(
            {
                "by": type(tightener).__name__,
                "stable": bounds.num_hidden - bounds.num_unstable,
                "mean_width": bounds.mean_width,
                "output": [low, high],
            }
        )
    facts: dict[str, Any] = {
        "lower": domain.lower.tolist(),
        "upper": domain.upper.tolist(),
        "bounds": rows,
    }
    if ensemble.num_outputs == 1:
        choice = Auto().choose(Problem(ensemble, domain))
        facts["auto"] = {"method": repr(choice.method), "reason": choice.reason}
    return facts


def run_convert(options: argparse.Namespace) -> int:
    """Convert a model file."""
    if options.out.suffix != ".npz":
        raise ValueError(
            f"Expected an output file ending in .npz, got {options.out.name}."
        )
    ensemble = load(options.model)
    place = given_place(options, ensemble)
    check_place(options.out, "OUT.npz")
    if place is not None:
        _check_recordable(place.domain, ensemble)
        ensemble = ensemble.on_box(place.domain.lower, place.domain.upper)
    ensemble.save(options.out)
    print(f"{ensemble!r}\nwritten to {options.out}")
    return 0


def _check_recordable(domain: Domain, ensemble: Ensemble) -> None:
    """Refuse a set that a box of inputs cannot record."""
    what = _beyond_bounds(domain, ensemble)
    if what is not None:
        raise ValueError(
            f"Expected bounds alone, got {what}: a model file records nothing else. "
            "Give it to ennopt solve."
        )


def _beyond_bounds(domain: Domain, ensemble: Ensemble) -> str | None:
    """What a set says beside bounds and beside the columns that a model records."""
    if domain.rows.count:
        return f"the constraint {domain.rows.texts[0]!r}"
    if domain.regions or domain.convex:
        return "a trust region"
    discrete = domain.values.discrete.copy()
    groups = {group.inputs: group for group in domain.groups}
    for column in ensemble.columns or ():
        places = list(column.inputs)
        if isinstance(column, Number):
            discrete[places] &= not (column.whole or column.values is not None)
            continue
        discrete[places] = False
        if isinstance(column, Group):
            group = groups.pop(column.inputs)
            several = domain.lower[places].max() < 1
            if column.base is not None and group.base is None and several:
                return f"a choice without {column.base!r} at category {column.name}"
        else:
            codes = domain.values.lists[column.input]
            if codes is not None and np.any(np.diff(codes) != 1):
                return f"levels that are not neighbours at category {column.name}"
    if groups:
        return f"the category {next(iter(groups.values())).name}"
    return "discrete inputs" if discrete.any() else None


def run_methods(options: argparse.Namespace) -> int:
    """List methods and solvers."""
    for entry in METHODS.values():
        print(f"{entry.name:<8}{entry.description}")
    print(
        "All of them find the best prediction of an ensemble of ReLU networks within "
        "bounds.\nWhich of them can handle more than that:"
    )
    methods = {entry.name: entry.make(None) for entry in METHODS.values()}
    for feature in Feature:
        able = [n for n, m in methods.items() if feature in getattr(m, "handles", ())]
        if able:
            print(f"  {feature.value}: {', '.join(able)}")
    print(
        "MILP solvers installed, for --backend with bigm, bnc and enn: "
        f"{', '.join(available_backends())}"
    )
    return 0
