"""The same study on a real Dask cluster of two processes."""

import io
import os
import signal
import threading
import time
from collections import Counter

import pytest

from ennopt.study.executors import Dask, Local
from ennopt.study.record import FILE, parse, read_results
from ennopt.study.report import make_report
from ennopt.study.runner import run_study
from ennopt.study.spec import read_study

distributed = pytest.importorskip("distributed")


@pytest.fixture
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
        silence_logs=50,
    ) as cluster:  # fmt: skip
        yield cluster


def run_all(folder, executor, output="out"):
    study = read_study(folder / "study.toml")
    return run_study(study, folder / output, executor, stream=io.StringIO())


def test_a_cluster_of_our_own_gives_the_report_of_local_processes(folder):
    run_all(folder, Local(2), "local")
    tally = run_all(folder, Dask(None, 2), "dask")
    assert len(tally.results.done) == 6
    pages = [
        make_report(read_results(folder / name), "nodes").page
        for name in ("local", "dask")
    ]
    assert pages[0] == pages[1]


def test_a_failed_run_does_not_stop_a_cluster(folder, cluster, save_ensemble):
    save_ensemble(folder / "nets" / "net_e2_L2_n6_r1.npz", 1, boxed=False)
    tally = run_all(folder, Dask(cluster.scheduler_address))
    assert len(tally.results.done) == 4
    assert all("Expected" in run["error"] for run in tally.results.failed)


def test_the_run_of_a_killed_worker_is_repeated_by_another(
    folder, cluster, save_ensemble
):
    # Runs long enough to be killed in the middle: each takes its two seconds.
    for path in (folder / "nets").glob("*.npz"):
        path.unlink()
    for i in range(2):
        save_ensemble(folder / "nets" / f"net_e3_L2_n40_r{i}.npz", i, (40, 40), 6, 3)
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("nodes = 50", "seconds = 2"))
    address = cluster.scheduler_address
    killed = []

    def kill_one_at_work():
        with distributed.Client(address, set_as_default=False) as client:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                for worker, calls in client.call_stack().items():
                    if calls:  # it is in the middle of these runs
                        pid = client.run(os.getpid, workers=[worker])[worker]
                        os.kill(pid, signal.SIGKILL)
                        killed.append((worker, sorted(calls)))
                        return
                time.sleep(0.05)

    killer = threading.Thread(target=kill_one_at_work)
    killer.start()
    tally = run_all(folder, Dask(address))
    killer.join()
    assert len(killed) == 1 and killed[0][1]
    assert [run["error"] for run in tally.results.failed] == []
    assert len(tally.results.done) == 4
    lines, _ = parse((folder / "out" / FILE).read_bytes())
    counts = Counter(line["key"] for line in lines if line["line"] == "run")
    assert set(counts.values()) == {1} and len(counts) == 4
