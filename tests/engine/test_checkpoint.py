"""A search goes on from where it was saved, with what was proved."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import ennopt
from ennopt.checkpoint import VERSION, Checkpoint, CheckpointError
from ennopt.domain import Domain
from ennopt.domain.convex import Ellipsoid, Hull
from ennopt.engine.box_search import BoxSearch
from ennopt.engine.neuron_search import NeuronSearch
from ennopt.result import Status
from ennopt.sealed import digest, write_sealed
from oracles import random_ensemble

BOX = Domain([-1.0] * 4, [1.0] * 4)
SETS = {
    "box": BOX,
    "rows": BOX.constrained(["x0 + x1 + x2 + x3 == 0.5", "x0 - x1 <= 0.7"]),
    "a wider box": Domain([-2.0] * 4, [2.0] * 4).constrained(["x0 + x1 <= 1"]),
}


def ensemble(widths=(16, 16), seed=3):
    return random_ensemble(np.random.default_rng(seed), 2, 4, widths)


def hard():
    """An ensemble with 7 inputs that takes a hundred thousand nodes."""
    return random_ensemble(np.random.default_rng(5), 3, 7, (20, 20, 20))


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("method", [BoxSearch(), NeuronSearch()])
def test_a_run_in_pieces_ends_like_one_in_a_whole(method, kind, tmp_path):
    model, domain, file = ensemble(), SETS[kind], tmp_path / "state"
    whole = ennopt.maximize(model, domain, method=method, threads=1, gap=1e-6)
    assert whole.status is Status.OPTIMAL
    bound, value, pieces, nodes = math.inf, -math.inf, 0, 0
    step = whole.nodes // 5
    while True:
        pieces += 1
        result = ennopt.maximize(
            model, domain, method=method, threads=1, gap=1e-6, checkpoint=file,
            node_limit=nodes + step,
        )  # fmt: skip
        assert result.bound <= bound and result.value >= value  # nothing is lost
        assert result.nodes >= nodes
        bound, value, nodes = result.bound, result.value, result.nodes
        assert (pieces > 1) == any("Went on from state" in n for n in result.notes)
        if result.status is not Status.NODE_LIMIT:
            break
        assert pieces < 60
    assert pieces > 2
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(whole.value, abs=2e-6 * abs(whole.value))
    again = ennopt.maximize(
        model, domain, method=method, threads=1, gap=1e-6, checkpoint=file
    )
    assert (again.status, again.value, again.nodes) == (
        Status.OPTIMAL, result.value, result.nodes
    )  # fmt: skip


def test_nodes_that_are_handed_out_are_saved(tmp_path):
    model, file = hard(), tmp_path / "state"
    domain = Domain([-1.0] * 7, [1.0] * 7)
    states = []

    class Watching(Checkpoint):
        def save(self, state):
            super().save(state)
            states.append((state.nodes.copy(), state.closed))

    with ThreadPoolExecutor(2) as pool:
        result = ennopt.maximize(
            model, domain, method="box", threads=2, executor=pool, gap=1e-6,
            checkpoint=Watching(file, 1e-9),
        )  # fmt: skip
    assert result.status is Status.OPTIMAL
    assert len(states) > 2
    rng = np.random.default_rng(0)
    points = rng.uniform(-1.0, 1.0, (2000, 7))
    values = model(points).ravel()
    from ennopt.canonical import Canonical
    from ennopt.engine.nodes import NodeModel, Nodes
    from ennopt.problem import Problem

    shape = NodeModel(Canonical.of(Problem(model, domain)))
    for rows, closed in states:
        nodes, inside = Nodes.unpacked(rows, shape), np.zeros(len(points), dtype=bool)
        for lower, upper in zip(nodes.lower, nodes.upper, strict=True):
            inside |= np.all((points >= lower) & (points <= upper), axis=1)
        assert np.all(inside | (values <= closed))


@pytest.mark.parametrize("method", ["box", "neurons"])
def test_risk_and_limits_go_on_too(method, tmp_path):
    model, file = ensemble((8, 8)), tmp_path / "state"
    asked = dict(
        risk="worst", limits="prediction >= -5", gap=1e-4, threads=1, method=method
    )
    whole = ennopt.maximize(model, BOX, **asked)
    first = ennopt.maximize(model, BOX, **asked, checkpoint=file, node_limit=10)
    assert first.status is Status.NODE_LIMIT
    last = ennopt.maximize(model, BOX, **asked, checkpoint=file)
    assert last.status is Status.OPTIMAL and last.bound <= first.bound
    assert last.value == pytest.approx(whole.value, rel=3e-4)
    with pytest.raises(CheckpointError, match="this problem, got one of another prob"):
        ennopt.maximize(model, BOX, **asked | {"risk": None}, checkpoint=file)


@pytest.mark.parametrize("kind", ["hull", "ellipsoid"])
@pytest.mark.parametrize(
    "method", [BoxSearch(gives_way=False), NeuronSearch(gives_way=False)]
)
def test_what_was_learned_of_a_convex_region_is_kept(method, kind, tmp_path):
    """Short pieces learned the same half-spaces again and again, and never ended."""
    data = np.random.default_rng(0).normal(size=(20, 4))
    convex = Hull(data) if kind == "hull" else Ellipsoid.of(data, 1.0)
    model, domain = ensemble((8, 8)), Domain(*convex.box(), convex=(convex,))
    asked = dict(method=method, threads=1, gap=1e-4)
    whole = ennopt.maximize(model, domain, **asked)
    assert whole.status is Status.OPTIMAL
    nodes, file = 0, tmp_path / "state"
    while True:
        result = ennopt.maximize(
            model, domain, **asked, checkpoint=file, node_limit=nodes + 20
        )
        nodes = result.nodes
        if result.status is not Status.NODE_LIMIT:
            break
        assert nodes < 2 * whole.nodes
    assert result.status is Status.OPTIMAL
    assert result.value == pytest.approx(whole.value, rel=2e-4)


COMMAND = [
    sys.executable, "-m", "ennopt", "solve", "model.npz", "--method", "box", "--quiet",
    "--json", "--checkpoint", "state", "--checkpoint-interval", "0.05", "--gap", "1e-3",
    "--threads", "1",
]  # fmt: skip


def test_a_killed_run_goes_on(tmp_path):
    model = hard()
    model.on_box([-1.0] * 7, [1.0] * 7).save(tmp_path / "model.npz")
    file, bounds = tmp_path / "state", []
    for _ in range(2):
        before = file.read_bytes() if file.exists() else b""
        run = subprocess.Popen(COMMAND, cwd=tmp_path, stdout=subprocess.PIPE)
        while run.poll() is None and (not file.exists() or file.read_bytes() == before):
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        head = json.loads(file.read_bytes().split(b"\n")[2])
        bounds.append((head["count"], float(head["closed"])))
    assert bounds[1][0] >= bounds[0][0] > 0
    done = subprocess.run(COMMAND, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["status"] == "optimal" and answer["nodes"] > bounds[1][0]
    assert any("Went on from state" in note for note in answer["notes"])
    whole = ennopt.maximize(model, [(-1, 1)] * 7, method="box", threads=1)
    assert answer["value"] == pytest.approx(whole.value, rel=1e-3)


def test_the_proof_of_a_run_in_pieces_is_whole(tmp_path):
    model, file, proof = ensemble(), tmp_path / "state", tmp_path / "proof"
    asked = dict(method="box", threads=1, checkpoint=file, certificate=proof)
    first = ennopt.maximize(model, BOX, **asked, node_limit=100)
    assert first.status is Status.NODE_LIMIT
    assert ennopt.maximize(model, BOX, **asked).status is Status.OPTIMAL
    verdict = ennopt.verify(proof, model)
    assert verdict, verdict.reason


def test_certificates_and_checkpoints_belong_together(tmp_path):
    model, file = ensemble(), tmp_path / "state"
    asked = dict(method="box", threads=1, checkpoint=file, gap=1e-6)
    proof = tmp_path / "proof"
    ennopt.maximize(model, BOX, **asked, node_limit=60)
    with pytest.raises(CheckpointError, match="with a certificate, got one without"):
        ennopt.maximize(model, BOX, **asked, certificate=proof)
    file.unlink()
    ennopt.maximize(model, BOX, **asked, node_limit=60, certificate=proof)
    done = ennopt.maximize(model, BOX, **asked)  # the numbers are no longer needed
    assert done.status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gap": 1e-5}, "this gap, got one of another gap .1e-06, and now 1e-05"),
        ({"method": BoxSearch(slope_steps=2)}, "this method, got one of another"),
        ({"domain": Domain([-1.0] * 4, [1.0, 1.0, 1.0, 0.9])}, "another problem"),
        ({"model": ensemble(seed=4)}, "another problem"),
        ({"method": "bigm"}, "state can be saved, got BigM"),
        ({"checkpoint": "/no/such/folder/state"}, "Expected a folder that exists"),
    ],
)
def test_what_does_not_fit_is_refused(change, words, tmp_path):
    asked = dict(
        model=ensemble(), domain=BOX, method="box", threads=1, gap=1e-6,
        checkpoint=tmp_path / "state", node_limit=50,
    )  # fmt: skip
    ennopt.maximize(**asked)
    with pytest.raises(ValueError, match=words):
        ennopt.maximize(**asked | change)


def test_damaged_and_hostile_files_are_refused(tmp_path):
    file = tmp_path / "state"
    asked = dict(model=ensemble(), domain=BOX, method="neurons", checkpoint=file)
    ennopt.maximize(**asked, node_limit=50, threads=1)
    whole = file.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(40):  # a byte changed, or the end missing
        data = bytearray(whole)
        at = int(rng.integers(len(data)))
        data[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(data if rng.random() < 0.7 else data[:at])
        with pytest.raises(CheckpointError):
            ennopt.maximize(**asked)
    head, _, rest = whole.split(b"\n", 2)[2].partition(b"\n")
    plain = json.loads(head)
    for change in (
        {"arrays": [["nodes", [2**40, 2**20]]]},
        {"arrays": [["nodes", [-1, -1]]]},
        {"arrays": [["nodes", [1, 1]], ["points", [0, 4]], ["bounds", [2, 0]]]},
        {"arrays": 3},
        {"closed": "x"},
        {"count": None},
        {"turn": ["0.0", "0.0", "nan", "inf"]},
        {"turn": ["-1.0", "0.0", "1.0", "inf"]},
        {"turn": []},
        {
            "arrays": [
                [name, [1, 2] if name == "half_spaces" else shape]
                for name, shape in plain["arrays"]
            ]
        },
    ):
        more = bytes(16) if "half_spaces" in repr(change) else b""
        body = json.dumps(plain | change).encode() + b"\n" + rest + more
        write_sealed(file, "checkpoint", VERSION, body)
        with pytest.raises(CheckpointError):
            ennopt.maximize(**asked)
    write_sealed(file, "checkpoint", VERSION + 1, whole)
    with pytest.raises(
        CheckpointError, match=f"begins with 'ennopt checkpoint {VERSION}'"
    ):
        ennopt.maximize(**asked)


def limited(size):
    """No file may become larger than this: what a full disk does to a writer."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_state_that_cannot_be_saved_ends_no_run(tmp_path):
    model = random_ensemble(np.random.default_rng(5), 3, 4, (20, 20))
    model.on_box([-1.0] * 4, [1.0] * 4).save(tmp_path / "model.npz")
    done = subprocess.run(
        COMMAND, cwd=tmp_path, capture_output=True, text=True, preexec_fn=limited(64)
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["status"] == "optimal"
    assert any("not saved in state: File too large" in n for n in answer["notes"])
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_ends_no_run(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True
    )
    if made.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (disk / "ballast").write_bytes(bytes(64 * 1024))
        result = ennopt.maximize(
            ensemble(), BOX, method="box", checkpoint=disk / "state", gap=1e-6
        )
        assert result.status is Status.OPTIMAL
        assert any("No space left on device" in note for note in result.notes)
        assert [path.name for path in disk.iterdir()] == ["ballast"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_saving_takes_no_second_copy_of_the_nodes(tmp_path):
    """Of many open nodes a search has little memory to spare for its file."""
    model, states = ensemble((8, 8)), []

    class Keeping(Checkpoint):
        def save(self, state):
            states.append(state)
            super().save(state)

    file = Keeping(tmp_path / "state")
    ennopt.maximize(model, BOX, method="box", node_limit=5, checkpoint=file)
    many = replace(states[-1], nodes=np.tile(states[-1].nodes, (20_000, 1)))
    tracemalloc.start()
    file.save(many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not file.failure
    assert (tmp_path / "state").stat().st_size > many.nodes.nbytes > 10 * peak


def test_digests_tell_values_apart():
    told = [
        None, 0, 0.0, -0.0, "0", (0,), ((),), (), np.zeros(1), np.zeros(1, int), True,
        np.array([-0.0]), BOX, SETS["rows"], BoxSearch(), NeuronSearch(),
        Status.OPTIMAL,
    ]  # fmt: skip
    assert len({digest(value) for value in told}) == len(told)
    with pytest.raises(TypeError, match="plain values, got function"):
        digest(digest)
