"""Exploring takes no memory from the system node by node."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COUNTER = r"""
#define _GNU_SOURCE
#include <stddef.h>
#include <stdatomic.h>
extern void* __libc_malloc(size_t);
static atomic_long count;
void* malloc(size_t size) { atomic_fetch_add(&count, 1); return __libc_malloc(size); }
long allocations(void) { return atomic_load(&count); }
"""
"""Counts what C++ asks for: operator new calls malloc."""

EXPLORE = r"""
import ctypes, json, math, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from ennopt import Domain
from ennopt.engine.schemes import Boxes, Signs
from oracles import canonical, random_ensemble
allocations = ctypes.CDLL(sys.argv[2]).allocations
allocations.restype = ctypes.c_long
rng = np.random.default_rng(5)
rows = Domain([-1.0] * 6, [1.0] * 6).constrained(["x0 + x1 <= 1", "x2 - x3 >= -1.5"])
found = {}
for name, scheme, domain in [
    ("boxes", Boxes, Domain([-1.0] * 6, [1.0] * 6)),
    ("boxes with constraints", Boxes, rows),
    ("signs", Signs, Domain([-1.0] * 6, [1.0] * 6)),
]:
    problem = canonical(random_ensemble(rng, 3, 6, (40, 40)), domain)
    tree = (Boxes() if scheme is Boxes else Signs(problem.root)).open(problem, 1e-9)
    tree.plant()
    tree.explore(300, math.inf, math.inf, 64, 1)  # buffers have their size by now
    before = allocations()
    nodes = tree.explore(2000, math.inf, math.inf, 64, 1)
    found[name] = (nodes, allocations() - before)
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD, glibc's malloc")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_nodes_need_no_memory_of_their_own(tmp_path):
    source, library = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(COUNTER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = subprocess.run(
        [sys.executable, "-c", EXPLORE, str(Path(__file__).parents[1]), str(library)],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name, (nodes, allocations) in json.loads(done.stdout).items():
        assert nodes >= 1000, name
        # The tree itself grows by chunks of a thousand nodes.
        assert allocations < 0.05 * nodes, (name, nodes, allocations)
