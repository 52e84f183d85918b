"""Hand-made lines of a record, and a study of small ensembles."""

from dataclasses import replace

import numpy as np
import pytest

from oracles import random_ensemble


def line(
    name="peaks_e3_L2_n20_r0", label="B&C", status="optimal", seconds=1.0, gap=0.0,
    nodes=10, limit=3600.0, node_limit=None, details=None, stages=None, seed=0,
    experiment="compare", facts=None, subject=None,
):  # fmt: skip
    problem, e, layers, n, r = name.split("_")[:5] if subject is None else [""] * 5
    if subject is None:
        subject = {
            "name": name, "problem": problem, "members": int(e[1:]),
            "layers": int(layers[1:]), "width": int(n[1:]), "replica": int(r[1:]),
        }  # fmt: skip
    return {
        "line": "run", "key": f"{subject['name']} {label} {seed}", "label": label,
        "experiment": experiment, "subject": subject, "seed": seed, "kind": "solve",
        "method": "M()", "outcome": "done", "error": None, "threads": 1,
        "limits": {"seconds": limit, "nodes": node_limit, "gap": 1e-4, "memory": 1.0},
        "result": {
            "status": status, "gap": gap, "nodes": nodes, "value": 1.0, "bound": 1.0,
            "seconds": {"total": seconds, **(stages or {})}, "details": details or {},
        },
        "facts": facts or {}, "seconds": seconds, "memory": 2**20, "host": "here",
        "finished": "2024-05-01T10:00:00+00:00",
    }  # fmt: skip


def plan(lines, experiments, **changes):
    return {
        "line": "plan", "format": 1, "title": "A study", "description": "Of lines.",
        "profile": "smoke", "experiments": experiments,
        "runs": [x["key"] for x in lines],
        "versions": {"ennopt": "0", "numpy": "2"}, "machine": {"cores": 2},
        "date": "2024-05-01T09:00:00+00:00",
    } | changes  # fmt: skip


@pytest.fixture(scope="session")
def make_line():
    return line


@pytest.fixture(scope="session")
def make_plan():
    return plan


STUDY = """
title = "Small ensembles"
[experiments.compare]
items = ["table1", "figure3", "figure4"]
methods = { "HiGHS" = "BigM()", "SCIP" = "BigM(backend='scip')" }
instances = { files = "nets/*.npz" }
limits = { nodes = 50 }
"""


@pytest.fixture
def folder(tmp_path):
    """A study of six runs: three small ensembles, two solvers."""
    (tmp_path / "nets").mkdir()
    for i in range(3):
        save(tmp_path / "nets" / f"net_e2_L2_n6_r{i}.npz", i)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def save(path, seed, widths=(6, 6), num_inputs=2, members=2, boxed=True):
    ensemble = random_ensemble(np.random.default_rng(seed), members, num_inputs, widths)
    if boxed:
        ones = np.ones(num_inputs)
        ensemble = replace(ensemble, lower=-ones, upper=ones)
    ensemble.save(path)


@pytest.fixture
def save_ensemble():
    return save
