"""A kernel out of memory says so and loses no node: a lost one is a wrong bound."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ennopt.engine.compiled import kernel

pytestmark = [
    pytest.mark.skipif(kernel() is None, reason="no extension"),
    pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as in Linux"),
]

EXHAUST = """
import math, resource, sys
import numpy as np
from ennopt.domain import Domain
from ennopt.engine.compiled import compile_model, kernel
from ennopt.engine.nodes import NodeModel, Nodes
from ennopt.engine.schemes import compiled_tree
from ennopt.engine.tree import Tolerance
from oracles import canonical, random_ensemble

threads, journal, dive = int(sys.argv[1]), sys.argv[2] == "True", int(sys.argv[3])
rng = np.random.default_rng(0)
problem = canonical(random_ensemble(rng, 1, 8, (6,)), Domain([-1] * 8, [1] * 8))
settings = kernel().Settings()
settings.max_steps, settings.programs = 0, 0
boxes = kernel().Boxes(compile_model(problem), settings)
# The cutoff is out of reach: nothing is ever closed or clipped.
tree = compiled_tree(boxes, Tolerance(-1.0, math.inf, -1e6), journal)
tree.offer(problem.domain.centre)
tree.plant()


def explore(nodes):
    return tree.explore(nodes, math.inf, 1e12, dive, threads)


def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()


explore(2000)
model, whole, failures = NodeModel(problem), 2.0**8, 0
for megabytes in np.linspace(0.1, 3.0, 12):
    limit = int(used() + megabytes * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        explore(200_000)
    except MemoryError:
        failures += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    rows = tree.snapshot()
    assert len(rows) == tree.open
    nodes = Nodes.unpacked(rows[:, :-1] if journal else rows, model)
    volume = np.prod(nodes.upper - nodes.lower, axis=1).sum()
    assert abs(volume - whole) <= 1e-9 * whole, (megabytes, volume)
    if journal:
        assert len(set(rows[:, -1])) == len(rows)
    assert tree.bound == nodes.bound.max()
assert failures > 0
print("nothing lost")
"""


@pytest.mark.parametrize(
    ("threads", "journal", "dive"),
    # One thread: with two, the C library itself may abort for want of memory.
    [(1, False, 64), (1, False, 10**6), (1, True, 64)],
)
def test_no_node_is_lost_when_memory_runs_out(threads, journal, dive):
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", EXHAUST, str(threads), str(journal), str(dive)],
        env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "nothing lost" in done.stdout
