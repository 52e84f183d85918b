"""The same study on a real Dask cluster of two processes."""

import io
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter

import pytest

from ennopt.study import executors
from ennopt.study.executors import Dask, Local
from ennopt.study.plan import tasks_of
from ennopt.study.record import FILE, parse, read_results
from ennopt.study.report import make_report
from ennopt.study.runner import run_study
from ennopt.study.spec import read_study

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


def two_workers():
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
        silence_logs=50,
    )  # fmt: skip


@pytest.fixture(scope="module")
def shared():
    """A cluster for tests that leave it as it is: starting one takes seconds."""
    with two_workers() as cluster:
        yield cluster


@pytest.fixture
def cluster():
    """A cluster whose workers may be killed, changed or lost."""
    with two_workers() as cluster:
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


def test_a_failed_run_does_not_stop_a_cluster(folder, shared, save_ensemble):
    save_ensemble(folder / "nets" / "net_e2_L2_n6_r1.npz", 1, boxed=False)
    tally = run_all(folder, Dask(shared.scheduler_address))
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


# Workers of other versions.


def pretend(cluster, change, count=1):
    """Change something on the first workers of a cluster."""
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        client.run(change, workers=sorted(client.nthreads())[:count])


def have_an_old_library():
    from ennopt.study import machine, work

    def refuse(*_):
        raise AssertionError("such a worker must not be asked")

    machine.versions = lambda compiled=True: {"numpy": "1.0"}
    work.run = refuse


def have_an_old_library_later():
    from ennopt.study import work

    work.versions = lambda compiled=True: {"numpy": "1.0"}


def test_runs_are_threads_of_the_scheduler_at_a_time(shared):
    assert Dask(shared.scheduler_address, processes=5).slots == 2


def test_workers_of_other_versions_are_not_used_and_none_left_are_refused(
    folder, cluster
):
    pretend(cluster, have_an_old_library)
    executor = Dask(cluster.scheduler_address)
    assert executor.slots == 1
    tally = run_all(folder, executor)
    assert [run["error"] for run in tally.results.failed] == []
    assert len(tally.results.done) == 6
    pretend(cluster, have_an_old_library, 2)
    with pytest.raises(ValueError, match=r"got none\. Expected ennopt .* got none\."):
        run_all(folder, executor, "other")
    lines, _ = parse((folder / "other" / FILE).read_bytes())
    assert [line for line in lines if line["line"] == "run"] == []


def test_a_worker_that_became_another_does_not_fail_runs(folder, cluster):
    pretend(cluster, have_an_old_library_later)
    tally = run_all(folder, Dask(cluster.scheduler_address))
    assert [run["error"] for run in tally.results.failed] == []
    assert len(tally.results.done) == 6
    pretend(cluster, have_an_old_library_later, 2)
    with pytest.raises(ValueError, match=r"got none\. Expected ennopt"):
        run_all(folder, Dask(cluster.scheduler_address), "other")
    assert not read_results(folder / "other").runs


# Runs that do not end, and schedulers that do.


def test_a_run_that_does_not_end_fails_and_frees_its_worker(
    folder, shared, monkeypatch
):
    tasks = tasks_of(read_study(folder / "study.toml"), folder)
    executor = Dask(shared.scheduler_address)
    with monkeypatch.context() as patched:
        patched.setattr(executors, "hung_after", lambda task: 0.0)
        patched.setattr(executors, "POLL", 0.0)
        (line,) = executor.execute(tasks[:1], lambda task: None)
    assert line["outcome"] == "failed"
    assert "got none after" in line["error"]
    lines = list(executor.execute(tasks, lambda task: None))
    assert [line["outcome"] for line in lines] == ["done"] * 6


def test_runs_of_a_lost_scheduler_are_not_recorded(folder, cluster):
    tasks = tasks_of(read_study(folder / "study.toml"), folder)
    lines = []

    def lose(task):
        cluster.close()

    settings = {"distributed.comm.timeouts.connect": "1s"}
    with (
        dask.config.set(settings),
        pytest.raises(ConnectionError, match="Run the study again"),
    ):
        lines += Dask(cluster.scheduler_address).execute(tasks, lose)
    assert lines == []


@pytest.fixture
def tls(tmp_path):
    """An authority of our own, a certificate that it signed, and its key."""
    key, own, request = (str(tmp_path / n) for n in ("key.pem", "own.pem", "own.csr"))
    authority, secret = str(tmp_path / "ca.pem"), str(tmp_path / "ca-key.pem")
    make = ["openssl", "req", "-newkey", "rsa:2048", "-nodes"]
    for command in (
        [*make, "-x509", "-keyout", secret, "-out", authority, "-subj", "/CN=ours"],
        [*make, "-keyout", key, "-out", request, "-subj", "/CN=localhost"],
        ["openssl", "x509", "-req", "-in", request, "-CA", authority, "-CAkey", secret,
         "-CAcreateserial", "-out", own],
    ):  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
    return authority, own, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_an_encrypted_scheduler_is_reached_with_its_files_and_not_without(tls):
    authority, own, key = tls
    security = distributed.Security(
        tls_ca_file=authority, require_encryption=True,
        **{f"tls_{who}_cert": own for who in ("client", "scheduler", "worker")},
        **{f"tls_{who}_key": key for who in ("client", "scheduler", "worker")},
    )  # fmt: skip
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None,
        security=security, protocol="tls://", silence_logs=50,
    ) as cluster:  # fmt: skip
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        assert executors.executor_named(f"dask:{address}", tls).slots == 1
    with pytest.raises(ValueError, match="three files of --tls"):
        executors.executor_named("dask:tls://here:1")
    with pytest.raises(ValueError, match="with --tls"):
        executors.executor_named("dask:tcp://here:1", tls)
