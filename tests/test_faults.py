"""Workers that die, memory that runs out: the answer and a true bound stay."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ennopt
from ennopt import Problem, Status, solve
from ennopt.domain import Domain
from ennopt.engine.compiled import kernel
from ennopt.run import accident_of
from oracles import random_ensemble

pytestmark = [
    pytest.mark.skipif(kernel() is None, reason="no extension"),
    pytest.mark.skipif(sys.platform != "linux", reason="signals as in Linux"),
]


def hard():
    rng = np.random.default_rng(0)
    return Problem(random_ensemble(rng, 3, 7, (20, 20)), Domain([-1] * 7, [1] * 7))


class Killer:
    """A callback that kills a process once the search has so many nodes."""

    def __init__(self, victim, nodes):
        self.victim, self.nodes, self.killed = victim, nodes, 0

    def __call__(self, moment):
        if moment.nodes >= self.nodes and not self.killed:
            self.killed = self.victim()
            os.kill(self.killed, signal.SIGKILL)


def test_a_search_goes_on_when_a_worker_process_dies():
    problem = hard()
    serial = solve(problem, "box", threads=1)
    with ProcessPoolExecutor(2) as pool:
        pool.submit(os.getpid).result()
        killer = Killer(lambda: next(iter(pool._processes)), 300)
        options = {"executor": pool, "threads": 2, "callback": killer}
        answer = solve(problem, "box", time_limit=60, **options)
    assert killer.killed
    assert answer.status is Status.OPTIMAL
    assert answer.value == pytest.approx(serial.value, rel=2e-4)
    assert answer.bound >= serial.value
    assert any("A worker was lost" in note and "here" in note for note in answer.notes)


def test_a_search_survives_a_killed_dask_worker():
    distributed = pytest.importorskip("distributed")
    problem = hard()
    serial = solve(problem, "box", threads=1)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())
        killer = Killer(lambda: pids[0], 300)
        options = {"executor": client, "threads": 2, "callback": killer}
        options["time_limit"] = 60
        answer = solve(problem, "box", **options)
        assert killer.killed == pids[0]
        assert answer.status is Status.OPTIMAL  # another worker did its units
        assert answer.value == pytest.approx(serial.value, rel=2e-4)
        assert answer.bound >= serial.value


def test_errors_of_a_cluster_are_known_by_name():
    scheduler = pytest.importorskip("distributed.scheduler")
    error = scheduler.KilledWorker("unit", SimpleNamespace(address="here"), 3)
    assert accident_of(error).startswith("A worker was lost (KilledWorker")
    assert accident_of(RuntimeError("a defect")) == ""


def test_a_method_whose_solver_dies_in_a_worker_ends_with_what_is_proved(rng):
    ensemble = random_ensemble(rng, 2, 3, (6, 6))
    problem = Problem(ensemble, Domain([-1.0] * 3, [1.0] * 3))
    with ProcessPoolExecutor(1) as pool:
        pool.submit(os.getpid).result()
        (victim,) = pool._processes

        def crash():
            time.sleep(0.3)
            os.kill(victim, signal.SIGKILL)  # as a solver that crashes

        threading.Thread(target=crash).start()
        time.sleep(0.4)
        answer = solve(problem, "enn", executor=pool, threads=1, time_limit=60)
    assert answer.status is Status.INTERRUPTED
    assert any("A worker was lost (BrokenProcessPool" in note for note in answer.notes)
    exact = ennopt.maximize(ensemble, problem.domain)
    assert answer.bound >= exact.value
    if answer.x is not None:
        assert answer.value <= exact.bound


LIMITED = """
import resource, sys
import numpy as np
import ennopt
from oracles import random_ensemble

rng = np.random.default_rng(0)
model = random_ensemble(rng, 2, 12, (30, 30))
ennopt.maximize(random_ensemble(rng, 1, 2, (3,)), (-1, 1))  # loads everything
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 15 * 2**20, resource.RLIM_INFINITY))
box = ennopt.BoxSearch(vertex_lines=False, slope_steps=0)
answer = ennopt.maximize(
    model, (-1, 1), method=box, threads=1, gap=1e-9, memory_limit=None,
    time_limit=60, checkpoint=sys.argv[1],
)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(answer.status.value, answer.bound >= answer.value, answer.nodes > 0)
print(*answer.notes, sep="\\n")
points = rng.uniform(-1, 1, size=(20_000, 12))
assert answer.bound >= model(points).max()
assert answer.value == model(answer.x)[0]
"""


def test_a_run_that_is_out_of_memory_returns_answer_and_bound(tmp_path):
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "state")],
        capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": folder, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("interrupted True True\n")
    assert "Memory ran out." in done.stdout
