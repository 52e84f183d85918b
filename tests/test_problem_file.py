"""A whole decision in one file, in Python and on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

import ennopt
from ennopt import Ensemble, Prediction, linear, read_problem
from ennopt.cli.main import main
from oracles import random_ensemble

NAMES = ["cement", "fly ash"]
PROBLEM = """
sense = "min"
objective = "cost"
limits = ["worst(strength) >= {level}", "std(strength) <= 3"]
constraints = ["cement + `fly ash` <= 1.9"]

[models]
strength = "models/strength.npz"
slump = {{file = "slump.npz", risk = "cvar:0.5"}}

[expressions]
cost = {{cement = 2.0, "fly ash" = 1.0}}
profit = "3*strength - cost"

[bounds]
cement = [-1, 1]
"fly ash" = [-1, 1]

[run]
time_limit = 60
gap = 1e-3

[pareto]
objectives = ["cost", "strength"]
senses = ["min", "max"]
points = 3

[alternatives]
count = 2
distance = {{cement = 0.2}}
"""


@pytest.fixture
def decision(tmp_path):
    rng = np.random.default_rng(3)
    (tmp_path / "models").mkdir()
    strength, slump = (
        Ensemble(random_ensemble(rng, count, 2, (5,)).members, input_names=NAMES)
        for count in (3, 2)
    )
    strength.save(tmp_path / "models" / "strength.npz")
    slump.save(tmp_path / "slump.npz")
    Ensemble(slump.members[:1], input_names=NAMES).save(tmp_path / "single.npz")
    level = ennopt.maximize(strength, (-1, 1), risk="worst").value - 1
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM.format(level=level), encoding="utf-8")
    return path, strength, level


def test_a_file_asks_what_the_same_call_asks(decision):
    path, strength, level = decision
    own = Prediction(strength, name="strength")
    call = ennopt.minimize(
        linear({"cement": 2.0, "fly ash": 1.0}), (-1, 1),
        limits=[own.with_risk("worst") >= level, own.std() <= 3],
        constraints="cement + `fly ash` <= 1.9",
    )  # fmt: skip
    answer = read_problem(path).solve()
    assert answer.proved
    assert answer.value == pytest.approx(call.value, rel=1e-3)
    assert min(m(answer.x)[0] for m in strength.members) >= level - 1e-7
    assert read_problem(path).solve(node_limit=1, gap=0).status is not call.status


def test_a_file_states_fronts_alternatives_and_sensitivity(decision):
    stated = read_problem(decision[0])
    front = stated.pareto()
    assert front.names == ("cost", "strength")
    assert len(front.points) == 3
    assert front.points[0].first == pytest.approx(stated.solve().value, rel=1e-3)
    other = stated.pareto(["profit", "std(strength)"], senses=("max", "min"), points=2)
    assert other.proved
    found = stated.alternatives()
    assert len(found) == 2
    assert abs(found[0].x[0] - found[1].x[0]) >= 0.2 - 1e-9
    assert len(stated.alternatives(count=1)) == 1
    assert len(stated.sensitivity().rows) == 3


def test_the_command_line_solves_a_file(decision, capsys, tmp_path):
    path, *_ = decision
    out = tmp_path / "out.json"
    assert main(["solve", str(path), "--quiet", "--json", "--output", str(out)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "optimal"
    assert main(["solve", str(path), "--quiet", "--start", str(out)]) == 0
    assert "optimal" in capsys.readouterr().out
    picture = tmp_path / "front.svg"
    assert main(["pareto", str(path), "--quiet", "--plot", str(picture)]) == 0
    assert "Front of 3 points" in capsys.readouterr().out
    assert picture.read_text().lstrip().startswith("<?xml")
    assert main(["alternatives", str(path), "--quiet", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["alternatives"]) == 2
    assert main(["alternatives", str(path), "--quiet", "--distance", "0.1"]) == 0
    assert main(["sensitivity", str(path), "--quiet"]) == 0
    assert "strength, member 2" in capsys.readouterr().out


def test_the_command_line_takes_a_model_and_options(decision, capsys):
    model = decision[0].parent / "slump.npz"
    box = ["--lower", "-1", "--upper", "1", "--quiet"]
    sums = [
        "--objectives",
        "cement + `fly ash`",
        "prediction",
        "--senses",
        "min",
        "max",
    ]
    assert main(["pareto", str(model), *box, *sums, "--points", "2"]) == 0
    assert "prediction, maximized" in capsys.readouterr().out
    named = ["--distance", "cement=0.5", "--count", "2", "--sense", "min"]
    assert main(["alternatives", str(model), *box, *named]) == 0
    assert "2 answers" in capsys.readouterr().out
    assert main(["sensitivity", str(model), *box, "--limit", "prediction <= 9"]) == 0
    capsys.readouterr()
    most = ["--limit", "prediction >= 1e6"]
    for command in ("alternatives", "sensitivity"):
        assert main([command, str(model), *box, *most]) == 1
    assert main(["pareto", str(model), *box, *sums, *most]) == 1


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('objective = "cost"', 'objectve = "cost"', "Did you mean objective?"),
        ("gap =", "gapp =", "got gapp in [run]"),
        ("risk =", "rsk =", "got rsk in models.slump"),
        ("points =", "point =", "got point in [pareto]"),
        ("count =", "counts =", "got counts in [alternatives]"),
        ("cement = 2.0", "cement = nan", "finite number, got nan"),
        ("cement = 2.0", "cment = 2.0", "an input among"),
        ("3*strength", "strength*strength", "(At expressions.profit in problem.toml.)"),
        ("3*strength", "3*strngth", "Did you mean strength?"),
        ("std(strength) <= 3", "std(strength) >= 3", "made large"),
        ("std(strength) <= 3", "strength <= -9", "hold together"),
        ("std(strength) <= 3", "strngth <= 3", "Did you mean strength?"),
        ('file = "slump.npz"', 'file = "single.npz"', "at least two networks"),
        ("std(strength) <= 3", "dose <= 3", "(At limits in problem.toml.)"),
        ('"min"', '"least"', "sense = 'max' or 'min'"),
        ("cvar:0.5", "cvar:2", "above 0 and at most 1 after cvar:, got 'cvar:2'"),
        ("cvar:0.5", "bar:2", "worst, cvar:SHARE"),
        ('file = "slump.npz"', 'file = "absent.npz"', "absent.npz"),
        ('file = "slump.npz"', 'output = 1, file = "slump.npz"', "an output in 0..0"),
        ('file = "slump.npz"', 'file = "../slump.npz"', "--folder"),
        ('file = "slump.npz"', 'file = "/etc/passwd"', "in the folder of problem.toml"),
        ('file = "slump.npz", ', "", "Expected a file at models.slump"),
        ("time_limit = 60", 'time_limit = "x"', "at time_limit"),
        ("cement = [-1, 1]", "cemnt = [-1, 1]", "unknown input cemnt"),
        ("[models]", "[models", "valid TOML"),
        ('"min"', '"min"\nbounds = 3', "TOML"),
        ("cost = {", "strength = {", "that of a model"),
    ],
)
def test_a_mistake_in_a_file_gets_one_line_that_names_it(
    decision, capsys, old, new, told
):
    path, *_ = decision
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    limit = "worst(strength)"
    if "hold together" in told:
        path.write_text(path.read_text().replace(limit, "strength"))
    assert main(["solve", str(path), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_files_may_be_in_a_folder_that_the_user_names(decision, capsys):
    path, *_ = decision
    inner = path.parent / "inner"
    inner.mkdir()
    moved = inner / "problem.toml"
    text = path.read_text().replace("slump.npz", "../slump.npz")
    moved.write_text(text.replace("models/", "../models/"))
    assert main(["solve", str(moved), "--quiet"]) == 2
    assert main(["solve", str(moved), "--quiet", "--folder", str(path.parent)]) == 0
    link = path.parent / "link.npz"
    link.symlink_to(Path(ennopt.__file__))  # a link leads out of the folder
    path.write_text(path.read_text().replace("slump.npz", "link.npz"))
    with pytest.raises(ValueError, match="in the folder of"):
        read_problem(path)
    capsys.readouterr()


def test_options_that_a_file_states_itself_are_refused(decision, capsys):
    path, *_ = decision
    for extra in (["--risk", "worst"], ["--lower", "0"], ["--limit", "strength >= 1"]):
        assert main(["solve", str(path), "--quiet", *extra]) == 2
        assert f"got {extra[0]} beside it" in capsys.readouterr().err
    assert main(["solve", str(path), "--quiet", "--node-limit", "1"]) in (0, 1)
    model = str(path.parent / "slump.npz")
    assert main(["solve", model, "--folder", "."]) == 2


def test_data_bounds_and_one_model_are_enough(tmp_path):
    rng = np.random.default_rng(0)
    model = Ensemble(random_ensemble(rng, 2, 2, (4,)).members, input_names=NAMES)
    model.save(tmp_path / "m.npz")
    rows = rng.uniform(0, 1, (50, 2))
    table = "\n".join(["cement,fly ash", *(f"{a},{b}" for a, b in rows)])
    (tmp_path / "rows.csv").write_text(table)
    (tmp_path / "bounds.csv").write_text("name,lower,upper\ncement,0.2,0.4\n")
    file = tmp_path / "problem.toml"
    file.write_text(
        'data = "rows.csv"\nbounds = "bounds.csv"\ntrust = "near"\n'
        'models.strength = ["m.npz", "m.npz"]\nstart = {cement = 0.3, "fly ash" = 9}'
    )
    with pytest.raises(ValueError, match="fly ash = 9, outside of"):
        read_problem(file).solve()
    answer = read_problem(file).solve(start=None)
    assert answer.proved
    assert 0.2 <= answer.x[0] <= 0.4
    assert answer.extrapolation is not None
