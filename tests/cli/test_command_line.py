"""The command line: answers, one-line errors, exit statuses."""

import builtins
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ennopt
from ennopt.__main__ import main as started
from ennopt.cli import main
from ennopt.domain import Domain, Values
from ennopt.network import Ensemble, Network, read_npz
from ennopt.result import Result, Status
from oracles import exact_maximum, random_domain, random_ensemble, random_network

ENNOPT = [sys.executable, "-m", "ennopt"]


@pytest.fixture
def case(tmp_path, rng):
    ensemble, domain = random_ensemble(rng), random_domain(rng)
    named = Ensemble(ensemble.members, input_names=("dose", "heat"))
    path = tmp_path / "model.npz"
    named.on_box(domain.lower, domain.upper).save(path)
    return path, named, domain


def run(*arguments):
    return subprocess.run(
        [*ENNOPT, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_solve_prints_one_json_object_with_the_fields_of_a_result(case):
    path, ensemble, domain = case
    done = run("solve", path, "--json")
    assert done.returncode == 0, done.stderr
    answer = Result.from_json(done.stdout)
    assert answer.status is Status.OPTIMAL
    exact, _ = exact_maximum(ensemble, domain)
    assert answer.value == pytest.approx(exact, rel=1e-4)
    data = json.loads(done.stdout)
    assert set(data["x_by_name"]) == {"dose", "heat"}
    assert {"gap", "member_std", "seconds", "history", "versions"} <= set(data)
    assert "bound" in done.stderr  # the log
    assert done.stdout.count("\n") == 1


def test_solve_minimizes_and_writes_its_output(case, tmp_path, capsys):
    path, ensemble, domain = case
    out = tmp_path / "answer.json"
    assert main(["solve", str(path), "--sense", "min", "--output", str(out)]) == 0
    exact, _ = exact_maximum(ensemble.negated(), domain)
    answer = Result.from_json(out.read_text())
    assert answer.value == pytest.approx(-exact, rel=1e-4, abs=1e-6)
    assert answer.bound <= answer.value + 1e-12
    assert "Minimum" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["options", "toml", "table", "csv", "one"])
def test_bounds_come_in_every_form(case, tmp_path, capsys, form):
    path, _, _ = case
    files = {
        "toml": ("b.toml", "heat = [-2, 1e-1]\ndose = [-1e-3, 2.5]\n"),
        "table": ("b.toml", "[bounds]\nheat = [-2, 1e-1]\ndose = [-1e-3, 2.5]\n"),
        "csv": ("b.csv", "name,lower,upper\ndose,-1e-3,2.5\nheat, -2, 1e-1\n"),
    }
    if form == "options":
        extra = ["--lower", "-1e-3", "-2", "--upper", "2.5", "1e-1"]
    elif form == "one":
        extra = ["--lower", "-2", "--upper", "2.5"]
    else:
        name, text = files[form]
        (tmp_path / name).write_text(text)
        extra = ["--bounds", str(tmp_path / name)]
    assert main(["solve", str(path), "--json", *extra]) == 0
    x = Result.from_json(capsys.readouterr().out).by_name
    assert -2 <= x["heat"] <= (2.5 if form == "one" else 0.1)
    assert (-2 if form == "one" else -1e-3) <= x["dose"] <= 2.5


FORMS = {
    "options": "",
    "top.toml": 'constraints = ["dose + heat <= 0.5", "-dose <= 0.2"]\ndose = [-1, 1]',
    "text.toml": 'constraints = "-0.2 <= dose <= 0.5 - heat"\nheat = 0.25\ndose = 0.25',
    "table.toml": '[bounds]\nconstraints = ["dose + heat <= 0.5", "dose >= -0.2"]',
    "beside.toml": (
        'constraints = ["dose + heat <= 0.5"]\n'
        '[bounds]\nconstraints = ["dose >= -0.2"]\nheat = 0.25\n'
    ),
    "c.csv": "name,lower,upper\ndose,-1,1\ndose + heat <= 0.5,,\n-dose <= 0.2, ,\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_constraints_come_in_every_form(case, tmp_path, capsys, form):
    path, ensemble, _ = case
    ensemble.on_box([-1, -1], [1, 1]).save(path)
    extra = ["--constraint", "dose + heat <= 0.5", "--constraint", "-dose <= 0.2"]
    if form != "options":
        (tmp_path / form).write_text(FORMS[form])
        extra = ["--bounds", str(tmp_path / form)]
    extra += ["--fix", "heat=0.25"]
    assert main(["solve", str(path), "--json", "--quiet", *extra]) == 0
    answer = Result.from_json(capsys.readouterr().out)
    assert answer.by_name["heat"] == 0.25
    assert -0.2 - 1e-6 <= answer.by_name["dose"] <= 0.25 + 1e-6
    low = 0.25 if form == "text.toml" else -0.2
    line = Domain([low, 0.25], [0.25, 0.25])
    exact, _ = exact_maximum(ensemble, line)
    assert answer.value == pytest.approx(exact, rel=1e-4, abs=1e-4)
    assert len(answer.constraints) == 2


def test_a_summary_says_how_constraints_are_met(tmp_path, capsys):
    net = Network([[[1.0, 1.0]]], [[0.0]])
    path = tmp_path / "sum.npz"
    Ensemble([net], input_names=("dose", "flow rate")).on_box([0, 0], [9, 9]).save(path)
    words = ["--constraint", "dose + 2*`flow rate` <= 12", "--constraint=-dose>=-100"]
    assert main(["solve", str(path), "--quiet", "--gap", "1e-9", *words]) == 0
    out = capsys.readouterr().out
    assert "  dose + 2*`flow rate` <= 12: at its limit\n" in out
    assert re.search(r"\n  -dose>=-100: 91\S* to spare\n", out)
    assert main(["inspect", str(path), *words, "--fix", "flow rate = -1"]) == 0
    assert "within the bounds of the inputs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--constraint", "dose + haet <= 1"], "got 'haet' .*Did you mean heat?"),
        (["--constraint", "dose < 1"], "got '<'"),
        (["--constraint", "-heat*dose <= 1"], "product of inputs"),
        (["--constraint", "dose + heat"], "a comparison"),
        (["--fix", "dose"], "Expected NAME=VALUE, got 'dose' at --fix"),
        (["--fix", "dose=high"], "Expected a number, got 'high' at --fix"),
        (["--fix", "dosis=1"], "got 'dosis'. Did you mean dose"),
        (["--fix", "dose=inf"], "finite number"),
        (["--fix", "dose=1", "--fix", "dose=2"], "got it twice for dose"),
        (["--risk", "cvar:0"], "above 0 and at most 1 after cvar:, got 'cvar:0' at"),
        (["--risk", "std:nan"], "at least 0 after std:, got 'std:nan' at --risk. Run"),
        (["--risk", "bad"], "Expected worst, cvar:SHARE, .* got 'bad' at --risk. Run"),
        (["--limit", "prediction*dose >= 1"], "product of predictions or inputs"),
    ],
)
def test_a_slip_in_a_constraint_is_one_line(case, capsys, extra, message):
    assert main(["solve", str(case[0]), *extra]) == 2
    err = capsys.readouterr().err
    assert err.startswith("ennopt: error: Expected ")
    assert err.count("\n") == 1
    assert re.search(message, err)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("b.toml", 'constraints = ["dose <= 1", 3]', "a list of texts"),
        ("b.toml", 'constraints = ["dose <= heta"]', "got 'heta'"),
        ("b.toml", "constraints = [0, 1]", "unknown input constraints"),
        ("b.csv", "name,lower,upper\ndose <= heta,,\n", "got 'heta'"),
        ("b.csv", "name,lower,upper\ndose,,\n", "two numbers"),
        ("b.csv", "name,lower,upper\ndose <= 3,0,1\n", "unknown input dose <= 3"),
    ],
)
def test_a_slip_in_a_file_of_constraints_is_told(
    case, tmp_path, capsys, name, text, message
):
    (tmp_path / name).write_text(text)
    assert main(["solve", str(case[0]), "--bounds", str(tmp_path / name)]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_one_objective_of_a_front_is_one_line(case, tmp_path, capsys):
    for words in (["--objectives", "prediction"], ["--objectives"]):
        assert main(["pareto", str(case[0]), *words]) == 2
        err = capsys.readouterr().err
        assert "Expected two objectives at --objectives, got fewer." in err
        assert "for one objective run ennopt solve." in err
        assert err.count("\n") == 1
    problem = tmp_path / "problem.toml"
    problem.write_text('objective = "m*m"\nmodels.m = "model.npz"\n')
    assert main(["solve", str(problem)]) == 2
    err = capsys.readouterr().err
    assert "a linear expression, got a product of predictions or inputs" in err


def test_convert_records_fixed_inputs_and_refuses_constraints(case, tmp_path, capsys):
    out = tmp_path / "out.npz"
    arguments = ["convert", str(case[0]), str(out), "--fix", "heat=3"]
    assert main(arguments) == 0
    assert read_npz(out).lower[1] == read_npz(out).upper[1] == 3
    (tmp_path / "b.toml").write_text('constraints = ["dose <= heat"]')
    assert main([*arguments, "--bounds", str(tmp_path / "b.toml")]) == 2
    assert "'dose <= heat': a model file records no" in capsys.readouterr().err


def test_constraints_need_bounds(tmp_path, rng, capsys):
    path = tmp_path / "bare.npz"
    random_ensemble(rng).save(path)
    for command in ("solve", "inspect"):
        assert main([command, str(path), "--constraint", "x0 <= x1"]) == 2
        assert "got none" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["solve", "inspect", "convert"])
def test_data_bounds_what_the_file_of_bounds_leaves_out(
    case, tmp_path, capsys, command
):
    (tmp_path / "rows.csv").write_text("y,heat,dose\n1,-4,0\n2,6,2\n")
    (tmp_path / "b.toml").write_text("dose = 1.5\n")
    bare, out = tmp_path / "bare.npz", tmp_path / "out.npz"
    case[1].save(bare)
    extra = ["--data", str(tmp_path / "rows.csv"), "--bounds", str(tmp_path / "b.toml")]
    if command == "convert":
        assert main(["convert", str(bare), str(out), *extra]) == 0
        assert read_npz(out).lower.tolist() == [1.5, -4.0]
        assert read_npz(out).upper.tolist() == [1.5, 6.0]
        return
    assert main([command, str(bare), "--json", *extra]) == 0
    answer = json.loads(capsys.readouterr().out)
    if command == "inspect":
        assert answer["lower"] == [1.5, -4.0]
    else:
        assert answer["x_by_name"]["dose"] == 1.5
        assert -4 <= answer["x_by_name"]["heat"] <= 6


def test_inspect_tells_the_shape_and_the_bounds(case, capsys):
    path, ensemble, _ = case
    assert main(["inspect", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["num_neurons"] == ensemble.num_neurons
    interval, crown = facts["bounds"]
    assert crown["mean_width"] <= interval["mean_width"]
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "neurons of fixed sign" in text
    assert "The method auto would take box: " in text
    assert "  member 1: 2 -> " in text and "member 0" not in text
    for word in ("Crown", "Interval", "stable", "BoxSearch("):
        assert word not in text


def test_inspect_abbreviates_many_inputs(tmp_path, rng, capsys):
    names = tuple(f"pixel_{k}" for k in range(784))
    net = random_network(rng, 784, (3,))
    box = {"lower": np.zeros(784), "upper": np.ones(784)}
    Ensemble((net,), input_names=names, **box).save(tmp_path / "m.npz")
    assert main(["inspect", str(tmp_path / "m.npz")]) == 0
    text = capsys.readouterr().out
    assert "pixel_5, ... 778 more" in text and "pixel_6" not in text
    assert main(["inspect", str(tmp_path / "m.npz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["input_names"] == list(names)
    values = Values.of(784, range(784))
    assert len(repr(Domain(np.zeros(784), np.ones(784), names, values=values))) < 400


def test_inspect_needs_no_box(tmp_path, rng, capsys):
    random_ensemble(rng).save(tmp_path / "m.npz")
    assert main(["inspect", str(tmp_path / "m.npz")]) == 0
    assert "no bounds recorded" in capsys.readouterr().out


def test_convert_records_the_box(case, tmp_path, capsys):
    path, ensemble, _ = case
    out = tmp_path / "copy.npz"
    arguments = ["convert", str(path), str(out), "--lower", "-1", "--upper", "1"]
    assert main(arguments) == 0
    again = read_npz(out)
    assert again.upper.tolist() == [1.0, 1.0]
    assert np.array_equal(again([0.3, 0.4]), ensemble([0.3, 0.4]))


def test_methods_are_listed(capsys):
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    assert "bigm" in text
    assert "highs" in text
    assert "activations other than ReLU: auto, box\n" in text


def bad_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


W, B = np.ones((1, 2)), np.zeros(1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "at least one member"),
        ({"net0.W0": np.full((1, 2), np.nan), "net0.b0": B}, "NaN or infinity"),
        ({"net0.W0": np.full((1, 2), np.inf), "net0.b0": B}, "NaN or infinity"),
        ({"net0.W0": W, "net0.b0": np.zeros(3)}, "bias of shape"),
        ({"net0.W0": W, "net0.b0": np.array([{}], dtype=object)}, "plain arrays"),
        (
            {"net0.W0": W, "net0.b0": B, "net1.W0": np.ones((1, 3)), "net1.b0": B},
            "num_inputs 2",
        ),
    ],
)
def test_hostile_models_give_one_line_and_status_2(tmp_path, capsys, arrays, message):
    path = bad_npz(tmp_path / "bad.npz", **arrays)
    for command in (["solve"], ["inspect"]):
        assert main([*command, str(path)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert error.startswith("ennopt: error: ")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--lower", "2", "2", "--upper", "1"], "lower <= upper"),
        (["--lower", "2", "2", "--upper", "1", "1"], "[2, 1] at input dose"),
        (["--lower", "0", "--upper", "nan"], "finite"),
        (["--lower", "0", "--upper", "inf"], "input dose"),
        (["--lower", "0", "0", "0", "--upper", "1"], "Expected 2 lower bounds"),
        (["--lower", "0"], "got no --upper"),
        (["--bounds", "absent.toml"], "absent.toml"),
        (["--bounds", "bounds.txt"], ".toml or .csv"),
        (["--bounds", "x.toml", "--lower", "0"], "got both"),
        (["--method", "magic"], "Expected a method among"),
        (["--method", "bigm", "--backend", "cplex"], "cplex"),
        (["--gap", "-1"], "finite number >= 0, got -1 at --gap"),
        (["--gap", "small"], "a number, got 'small' at --gap"),
        (["--time-limit", "0"], "positive number, got 0 at --time-limit"),
        (["--time-limit", "1m"], "a number, got '1m' at --time-limit"),
        (["--node-limit", "-5"], "positive number, got -5 at --node-limit"),
        (["--memory-limit", "2GB"], "a number, got '2GB' at --memory-limit"),
        (["--memory-limit", "0"], "positive number, got 0 at --memory-limit"),
        (["--threads", "0"], "whole number >= 1, got 0 at --threads"),
        (["--threads", "two"], "a whole number, got 'two' at --threads"),
        (["--seed", "-1"], "whole number >= 0, got -1 at --seed"),
        (["--sense", "best"], "Expected one of 'max', 'min', got 'best' at --sense"),
        (["--gap"], "Expected one argument, got none at --gap"),
        (["--lower", "low"], "a number, got 'low' at --lower"),
        (["--frobnicate"], "options that are known, got --frobnicate"),
        (["--method", "scip"], "Choose the method bigm and the backend scip"),
        (["--backend", "scip"], "Leave it out, or choose the method bigm"),
        (["--bounds", "absent.csv"], "a file of bounds, got none at absent.csv"),
        (["--data", "absent.csv"], "a file of data, got none at absent.csv"),
        (["--data", "."], "a file of data that can be read, got . (Is a directory)"),
        (["--output", "."], "Expected a file, got the folder ."),
        (["--lower", "-1e308", "--upper", "1e308"], "Narrow the bounds"),
        (["--output-index", "4"], "--output-index from 0 to 0, got 4"),
        (["--output", "no/such/folder/x.json"], "got no/such/folder at --output"),
    ],
)
def test_bad_options_give_one_line_and_status_2(case, capsys, extra, message):
    path, _, _ = case
    assert main(["solve", str(path), "--quiet", *extra]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert "Errno" not in error


def test_a_model_of_several_outputs_asks_for_an_index(tmp_path, rng, capsys):
    path = tmp_path / "two.npz"
    random_ensemble(rng, num_outputs=2).save(path)
    bounds = ["--lower", "0", "--upper", "1"]
    assert main(["solve", str(path), *bounds]) == 2
    assert "Add --output-index K, K from 0 to 1." in capsys.readouterr().err
    assert main(["solve", str(path), *bounds, "--output-index", "1"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,lower,upper\ndose,0,1\ndose,0,2\nheat,0,1\n", "got two for dose"),
        ("lower,upper,name\n0,1,dose\n0,1\n", "got 2 in row 2 of bounds.csv"),
        ("# ranges\nname,lower,upper\ndose,0,1\n", "got 3 in row 1 of bounds.csv"),
        ("name,lower,upper\ndose,0,\nheat,0,1\n", "at input dose"),
        ("name,lower,upper\ndose,0,1\nflow,0,1\n", "unknown input flow"),
        ("dose,heat\n0,0\n1,1\n", "A file of rows is data"),
    ],
)
def test_a_table_of_bounds_with_a_slip_gives_one_line(case, tmp_path, text, message):
    table = tmp_path / "bounds.csv"
    table.write_text(text, encoding="utf-8")
    done = run("solve", case[0], "--bounds", table, "--quiet")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("suffix", ["toml", "csv"])
def test_bounds_may_begin_with_a_byte_order_mark(case, tmp_path, capsys, suffix):
    text = {
        "toml": "dose = [0, 1]\r\nheat = [0, 1]\r\n",
        "csv": "name,lower,upper\r\ndose,0,1\r\nheat,0,1\r\n",
    }
    path = tmp_path / f"bounds.{suffix}"
    path.write_bytes(text[suffix].encode("utf-8-sig"))
    assert main(["solve", str(case[0]), "--bounds", str(path), "--quiet"]) == 0
    assert "dose" in capsys.readouterr().out


def test_names_that_a_terminal_cannot_show_do_not_cost_the_answer(case, tmp_path):
    path = tmp_path / "accents.npz"
    _, ensemble, domain = case
    named = Ensemble(ensemble.members, input_names=("température", "débit"))
    named.on_box(domain.lower, domain.upper).save(path)
    done = subprocess.run(
        [*ENNOPT, "solve", str(path)], capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Maximum" in done.stdout


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 truncated"])
@pytest.mark.parametrize("suffix", [".npz", ".onnx", ".keras", ".pt", ".txt", ""])
def test_files_of_rubbish_give_one_line(tmp_path, content, suffix, capsys):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(content)
    assert main(["solve", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ennopt: error: ")
    assert error.count("\n") == 1


def test_absent_files_and_folders_give_one_line(tmp_path, capsys):
    for path in (tmp_path / "absent.npz", tmp_path):
        assert main(["solve", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_usage_errors_leave_no_traceback():
    done = run("solve")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert run("--version").stdout.startswith("ennopt ")


@pytest.fixture
def hard_model(tmp_path, rng):
    members = tuple(random_network(rng, 12, (40, 40, 40)) for _ in range(5))
    path = tmp_path / "hard.npz"
    Ensemble(members).on_box(np.full(12, -2.0), np.full(12, 2.0)).save(path)
    return path


@pytest.mark.parametrize("method", ["auto", "bigm"])
def test_ctrl_c_prints_the_best_answer_and_exits_130(hard_model, method):
    process = subprocess.Popen(
        [*ENNOPT, "solve", str(hard_model), "--json", "--method", method],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stderr:  # wait for the first line of the log with a value
        if line.strip().split("s ")[0].replace(".", "").isdigit():
            break
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    answer = Result.from_json(out)
    assert answer.status is Status.INTERRUPTED
    assert "Traceback" not in err
    assert answer.bound >= answer.value
    assert np.isfinite(answer.bound) or method == "bigm"


def test_ctrl_c_while_the_command_line_is_loaded_gives_one_line(monkeypatch, capsys):
    given = builtins.__import__

    def interrupted(name, *rest, **keywords):
        if name == "ennopt.cli":
            raise KeyboardInterrupt
        return given(name, *rest, **keywords)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    status = started()
    monkeypatch.undo()
    assert status == 130
    assert capsys.readouterr().err == "ennopt: interrupted\n"


def test_a_time_limit_returns_an_answer(hard_model):
    done = run("solve", hard_model, "--json", "--time-limit", "1")
    assert done.returncode == 0, done.stderr
    answer = Result.from_json(done.stdout)
    assert answer.status is Status.TIME_LIMIT
    assert answer.bound > answer.value


def test_too_little_memory_is_told_with_what_is_needed(case, capsys, monkeypatch):
    def failing(*arguments):
        raise MemoryError

    monkeypatch.setattr("ennopt.engine.auto.Auto.solve", failing)
    path, ensemble, _ = case
    assert main(["solve", str(path), "--quiet"]) == 2
    err = capsys.readouterr().err
    assert "Expected enough memory to bound" in err and "GiB, got less. Close" in err
    assert f"{ensemble.num_neurons} neurons in all on 2 inputs" in err
    with pytest.raises(MemoryError, match="or fewer threads"):
        ennopt.maximize(ensemble, (0, 1))
    monkeypatch.setattr("ennopt.cli.models.load", failing)
    assert main(["inspect", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(
        "ennopt: error: Expected enough memory, got less (it ran out)"
    )
    assert err.count("\n") == 1


def test_a_report_says_where_it_is(case, tmp_path, capsys):
    file = tmp_path / "report.html"
    words = ["solve", str(case[0]), "--quiet", "--report", str(file)]
    assert main(words) == 0
    assert capsys.readouterr().out.endswith(f"\nThe report is in {file}\n")
    assert main([*words, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)
    assert str(file) in told.err


def test_the_list_of_methods_is_in_plain_words(capsys):
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    for word in ("the paper's", "our engine", "over a box", "B&C", "ideal cuts"):
        assert word not in text
    assert "neurons our own search: divides by neurons' signs" in text
    assert "MILP solvers installed, for --backend with bigm, bnc and enn: highs" in text


def test_limits_out_of_reach_are_the_reason_that_is_given(case, capsys):
    words = ["solve", str(case[0]), "--quiet", "--limit", "prediction >= 1e6"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "Infeasible: no allowed input meets the limit prediction >= 1e6\n"
    )
    assert main([*words, "--limit", "prediction - dose >= 1e5"]) == 1
    assert "meets all of the limits prediction >= 1e6; " in capsys.readouterr().out
