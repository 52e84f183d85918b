import json

import numpy as np
import pytest

from ennopt.cli import main
from ennopt.network import read_npz


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "table.csv"
    rows = ["dose,heat,colour,yield"]
    for dose, heat in rng.random((60, 2)) * [10, 100] + [5, 20]:
        rows.append(f"{dose},{heat},red,{200 - (dose - 9) ** 2 + heat}")
    path.write_text("\n".join(rows) + "\n")
    return path


QUICK = ["--members", "2", "--width", "6", "--max-epochs", "5"]


def test_train_writes_an_ensemble_in_original_units(table, tmp_path, capsys):
    model = tmp_path / "model.npz"
    arguments = ["train", "--data", str(table), "--target", "yield", "--drop", "colour"]
    assert main([*arguments, *QUICK, "-o", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "60 rows, 2 inputs" in shown
    assert "rmse" in shown and "12 test rows" in shown and str(model) in shown
    ensemble = read_npz(model)
    assert ensemble.input_names == ("dose", "heat")
    assert ensemble.num_members == 2
    middle = (ensemble.lower + ensemble.upper) / 2
    assert 5 <= ensemble.lower[0] < ensemble.upper[0] <= 15
    assert 100 < ensemble(middle)[0] < 400  # yields lie around 250
    first = model.read_bytes()
    assert main([*arguments, *QUICK, "-o", str(model)]) == 0
    assert model.read_bytes() == first


def test_a_trained_model_knows_its_targets_and_warns_without_data(
    table, tmp_path, capsys
):
    model = tmp_path / "model.npz"
    arguments = ["train", "--data", str(table), "--target", "yield", "--drop", "colour"]
    assert main([*arguments, *QUICK, "-o", str(model)]) == 0
    targets = [float(row.split(",")[-1]) for row in table.read_text().split()[1:]]
    assert read_npz(model).target_range == (min(targets), max(targets))
    wide = ["--lower", "0", "--upper", "9999", "--quiet"]
    assert main(["solve", str(model), *wide]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "is above anything in the training data" in told
    assert f"{min(targets):.6g} to {max(targets):.6g}" in told
    assert main(["inspect", str(model)]) == 0
    assert f"trained on targets from {min(targets):.6g}" in capsys.readouterr().out


@pytest.mark.parametrize("extra", [["--toolkit", "sklearn"], ["--no-bagging"], []])
def test_train_takes_a_problem_by_name(extra, tmp_path, capsys):
    model = tmp_path / "beale.npz"
    arguments = ["--problem", "beale", "--points", "100", *QUICK, *extra]
    assert main(["train", *arguments, "-o", str(model)]) == 0
    assert "100 rows, 2 inputs" in capsys.readouterr().out
    assert read_npz(model).upper.tolist() == [4.5, 4.5]


def test_train_takes_a_configuration_of_the_paper(tmp_path, capsys):
    model = tmp_path / "perm.npz"
    arguments = ["--problem", "perm", "--paper", "3", "--max-epochs", "1"]
    arguments += ["--points", "60", "--sampling", "lhs"]
    assert main(["train", *arguments, "-o", str(model)]) == 0
    assert read_npz(model).num_members == 4
    assert read_npz(model).members[0].hidden_widths == (45, 45)


def test_train_searches_and_trains_the_best(tmp_path, capsys):
    model, journal = tmp_path / "model.npz", tmp_path / "search.jsonl"
    arguments = ["--problem", "beale", "--points", "80", "--members", "2"]
    arguments += ["--max-epochs", "2", "--search", "3", "--folds", "2"]
    arguments += ["--checkpoint", str(journal), "-o", str(model)]
    assert main(["train", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "best 3 of 3 draws" in shown and shown.count("learning rate") == 3
    assert len(journal.read_text().splitlines()) == 4
    assert main(["train", *arguments, "--jobs", "2"]) == 0  # all draws are done
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "price"], "Expected a column 'price', got 'dose', 'heat'"),
        (["--target", "yield"], "got 'red' at column colour"),
        ([], "Expected --target with --data, got none"),
        (["--target", "yield", "--paper", "1"], "--paper with --problem only"),
        (
            ["--target", "yield", "--drop", "colour", "--members", "50"],
            "Expected at least as many rows to fit as members (50), got 38 of 60",
        ),
        (["--target", "yield", "--width", "0"], "number >= 1, got 0 at --width"),
        (["--target", "yield", "--batch-size", "x"], "got 'x' at --batch-size"),
        (["--target", "yield", "--learning-rate", "0"], "got 0 at --learning-rate"),
        (["--target", "yield", "--checkpoint", "c"], "--checkpoint with --search"),
    ],
)
def test_bad_input_is_one_line_and_status_two(arguments, message, table, capsys):
    output = ["-o", str(table.with_suffix(".npz"))]
    assert main(["train", "--data", str(table), *arguments, *output]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--problem", "rum"], "Expected one of peaks"),
        (["--problem", "peaks", "--points", "0"], "number >= 1, got 0 at --points"),
        (["--problem", "peaks", "--paper", "9"], "Expected --paper from 1 to 8"),
        (["--problem", "peaks", "--drop", "x1"], "with --data only"),
        (["--problem", "wine", "--points", "9"], "wine, which is a table"),
        (
            ["--data", "missing.csv", "--target", "y"],
            "got none at missing.csv",
        ),
        (["--problem", "peaks", "--seed", "-1"], "number >= 0, got -1 at --seed"),
        (["--problem", "peaks", "--search", "2", "--jobs", "0"], "got 0 at --jobs"),
    ],
)
def test_contradictions_are_refused(arguments, message, tmp_path, capsys):
    output = ["-o", str(tmp_path / "model.npz")]
    assert main(["train", *arguments, *output]) == 2
    assert message in capsys.readouterr().err


def test_the_output_is_checked_before_training(tmp_path, capsys):
    for output, message in (
        (tmp_path / "model.txt", "ending in .npz"),
        (tmp_path / "none" / "model.npz", "Expected a folder that exists"),
        (tmp_path / "folder.npz", "Expected a file, got the folder"),
    ):
        (tmp_path / "folder.npz").mkdir(exist_ok=True)
        assert main(["train", "--problem", "peaks", "-o", str(output)]) == 2
        assert message in capsys.readouterr().err


def test_instances_are_made_listed_and_shown(tmp_path, capsys):
    folder = tmp_path / "library"
    make = ["instances", "make", str(folder), "--profile", "smoke"]
    assert main([*make, "--problem", "peaks", "--problem", "perm"]) == 0
    assert "2 instances" in capsys.readouterr().out
    assert main(["instances", "list", str(folder)]) == 0
    assert capsys.readouterr().out.count("_e2_L2_n8_r0") == 2
    assert main(["instances", "show", str(folder), "perm_e2_L2_n8_r0"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["problem"] == "perm" and record["num_inputs"] == 3
    assert "2 x Network(3 -> 8 -> 8 -> 1)" in record["ensemble"]
    ready = tmp_path / "published"
    assert main(["instances", "publish", str(folder), str(ready)]) == 0
    assert f"2 instances in {ready}" in capsys.readouterr().out
    assert main(["instances", "list"]) == 0
    assert "144 instances of 6 problems" in capsys.readouterr().out
    assert main(["instances", "list", str(tmp_path)]) == 2


def test_worker_processes_make_the_same_bytes(tmp_path, capsys):
    for jobs in ("1", "2"):
        folder = tmp_path / jobs
        make = ["instances", "make", str(folder), "--profile", "smoke"]
        make += ["--problem", "peaks", "--problem", "beale", "--jobs", jobs]
        assert main(make) == 0
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / jobs).iterdir()}
        for jobs in ("1", "2")
    )
    assert one == two and len(one) == 3
