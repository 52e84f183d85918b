"""Runs that are told to end, and outputs that are combined, on the command line."""

import json
import signal
import subprocess
import sys

import pytest

from ennopt import Ensemble, Network, verify
from ennopt.cli.main import main
from oracles import random_network


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
def test_a_terminated_run_prints_its_answer_and_its_bound_is_certified(tmp_path, rng):
    model, file = tmp_path / "model.npz", tmp_path / "proof.cert"
    members = [random_network(rng, 10, [30, 30, 30]) for _ in range(3)]
    ensemble = Ensemble(members).on_box([-1.0] * 10, [1.0] * 10)
    ensemble.save(model)
    command = [sys.executable, "-m", "ennopt", "solve", str(model), "--method", "box"]
    command += ["--json", "--certificate", str(file), "--gap", "1e-9"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        for line in run.stderr:  # the log tells that the search is under way
            if "search" in line:
                break
        run.send_signal(signal.SIGTERM)
        out, _ = run.communicate(timeout=120)
    assert run.returncode == 130
    answer = json.loads(out)
    assert answer["status"] == "interrupted"
    assert answer["bound"] > answer["value"]
    assert answer["value"] == pytest.approx(ensemble(answer["x"])[0])
    verdict = verify(file, ensemble, most_pieces=200_000)
    assert verdict, verdict.reason


def test_outputs_may_be_combined(tmp_path, capsys):
    model = tmp_path / "model.npz"
    both = Network([[[1.0], [-3.0]]], [[0.0, 1.0]])
    Ensemble([both]).on_box([-1.0], [1.0]).save(model)
    given = ["solve", str(model), "--quiet", "--json"]
    assert main([*given, "--output-coefficients", "2", "-0.5"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == 3.0
    for wrong in (["1"], ["1", "2", "--output-index", "0"]):
        assert main([*given, "--output-coefficients", *wrong]) == 2
        assert "--output-coefficients" in capsys.readouterr().err
