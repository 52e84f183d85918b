"""An ensemble that records the columns of its user's table."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ennopt import Ensemble, Network, Result, load, maximize
from ennopt.cli.main import main
from ennopt.columns import CHANGES, Group, Number, Ordinal
from ennopt.network import ModelConfigurationError

COLUMNS = (
    Number("count", 0, whole=True),
    Number("size", 1, values=(0.5, 1.5, 4.0)),
    Ordinal("kind", 2, ("a", "b")),
    Group("grade", (3, 4), ("32.5", "42.5"), base="52.5", alike=(("62.5", "42.5"),)),
    Number("dose", 5, change="log"),
)
NAMES = tuple(name for column in COLUMNS for name in column.input_names)
BOUNDS = {"count": (0, 2.7), "size": (0, 2), "dose": (1, 50)}


def model(grade=(-2.0, -1.0)):
    net = Network([[[1.0, 5.0, 1.0, *grade, 1.0]]], [[0.0]])
    return Ensemble([net], input_names=NAMES, columns=COLUMNS)


@pytest.mark.parametrize("method", ["auto", "box", "bigm"])
def test_whole_numbers_lists_levels_and_changes_are_found_and_told(method):
    result = maximize(model(), BOUNDS, method=method)
    assert result.inputs == {
        "count": 2.0, "size": 1.5, "kind": "b", "grade": "52.5", "dose": 50.0
    }  # fmt: skip
    assert "grade = 52.5" in result.summary()
    assert Result.from_json(result.to_json()).inputs == result.inputs


def test_the_base_level_can_be_left_out_or_be_the_only_one():
    result = maximize(model(), BOUNDS | {"grade": ["32.5", "62.5"]})
    assert result.inputs["grade"] == "42.5"
    result = maximize(model((2.0, 3.0)), BOUNDS | {"grade": "52.5"})
    assert result.inputs["grade"] == "52.5"
    assert result.x[[3, 4]].tolist() == [0.0, 0.0]


def test_a_plain_result_tells_its_inputs_by_name():
    line = Ensemble([Network([[[2.0]]], [[1.0]])], input_names=("dose",))
    assert maximize(line, [(0, 3)]).inputs == {"dose": 3.0}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_column_keeps_its_bounds_and_is_told_as_it_was_given(name):
    column = Number("dose", 0, change=name)
    forward = CHANGES[name].forward
    for low, high in [(0.1, 0.7), (1.0, 100.0), (2.5, 2.5), (1e-3, 17.3)]:
        least, most = column.changed(low, high)
        inside = forward(np.linspace(low, high, 101))
        assert least <= inside.min()
        assert inside.max() <= most
        assert column.told(np.array([least])) == low
        assert column.told(np.array([most])) == high


def test_columns_that_miss_an_input_are_refused():
    with pytest.raises(ModelConfigurationError, match="each of 6 inputs in one column"):
        replace(model(), columns=COLUMNS[1:])
    with pytest.raises(ModelConfigurationError, match="different column names"):
        replace(model(), columns=(replace(COLUMNS[0], name="size"), *COLUMNS[1:]))


def test_members_with_other_columns_do_not_average():
    other = replace(model(), columns=(*COLUMNS[:-1], Number("dose", 5, change="log2")))
    with pytest.raises(ModelConfigurationError, match="same columns in every member"):
        load([model(), other])


def test_names_for_a_model_that_knows_its_columns_are_refused():
    with pytest.raises(ValueError, match="no input names"):
        load(model(), input_names=list("abcdef"))


def test_the_command_line_takes_and_tells_levels(tmp_path, capsys):
    path, bounds = tmp_path / "model.npz", tmp_path / "bounds.toml"
    model().save(path)
    bounds.write_text(
        'count = [0, 2]\nsize = [0, 2]\ndose = [1, 50]\ngrade = ["32.5", "42.5"]\n',
        encoding="utf-8",
    )
    words = ["solve", str(path), "--bounds", str(bounds), "--quiet"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"]["grade"] == "42.5"
    assert main([*words, "--fix", "grade=52.5", "--fix", "kind=a"]) == 0
    told = capsys.readouterr().out
    assert "grade = 52.5" in told
    assert "kind  = a" in told
    for extra, message in [
        (["--fix", "grade=99"], "which is unknown. Known are"),
        (["--fix", "count=many"], "Expected a number, got 'many' at --fix count"),
        (["--constraint", 'grade == "42.5"'], "a category"),
    ]:
        assert main([*words, *extra]) == 2
        assert message in capsys.readouterr().err


def test_a_converted_file_records_bounds_and_levels(tmp_path, capsys):
    path, bounds = tmp_path / "model.npz", tmp_path / "bounds.toml"
    out = tmp_path / "out.npz"
    model().save(path)
    text = 'count = [0, 2]\nsize = [0, 2]\ndose = [1, 50]\nkind = "a"\n'
    bounds.write_text(text + 'grade = ["52.5", "32.5"]\n', encoding="utf-8")
    words = ["convert", str(path), str(out), "--bounds", str(bounds)]
    assert main(words) == 0
    result = maximize(out)
    assert (result.inputs["kind"], result.inputs["grade"]) == ("a", "52.5")
    assert maximize(out, {"grade": "42.5"}).inputs["dose"] == 50.0
    bounds.write_text(text + 'grade = ["32.5", "42.5"]\n', encoding="utf-8")
    assert main(words) == 2
    assert "a choice without '52.5' at category grade" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["[", "3", '[{"kind": "group"}]', '[{"kind": "number", "name": 3}]',
             '[{"kind": "number", "name": "a", "input": -1}]', '[{"kind": "x"}]',
             '[{"kind": "number", "name": "a", "input": 1}]'],
)  # fmt: skip
def test_a_file_with_damaged_columns_is_refused(tmp_path, text):
    arrays = {"net0.W0": np.ones((1, 1)), "net0.b0": np.zeros(1), "columns": text}
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(ModelConfigurationError, match=r"model\.npz"):
        load(tmp_path / "model.npz")
