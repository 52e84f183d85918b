"""What README shows runs as it is printed."""

import contextlib
import io
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from ennopt.cli.main import build_parser
from test_code_in_docs import blocks_of, run_command

ROOT = Path(__file__).parents[1]
README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]\d+)?")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_first_snippet_runs_and_prints_what_readme_says(capsys):
    pytest.importorskip("sklearn")
    names = {}
    exec(compile(blocks("python")[0], "README.md", "exec"), names)
    shown = capsys.readouterr().out
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", blocks("text")[0])
    assert names["answer"].proved
    assert names["answer"].sense == "min"


def test_the_commands_are_understood():
    lines = [x for block in blocks("") for x in block.splitlines() if "ennopt " in x]
    assert lines
    for line in lines:
        if line.startswith("ennopt "):
            build_parser().parse_args(shlex.split(line, comments=True)[1:])


def test_a_newcomer_can_follow_readme_line_by_line(tmp_path, monkeypatch):
    """In a clone, with no file but those that README itself makes."""
    pytest.importorskip("sklearn")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    names, failures = {}, []
    for block in blocks_of(README):
        if block.reason is not None:
            continue
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.code, "README.md", "exec"), names)
        told = [(command, run_command(command, tmp_path)) for command in block.commands]
        failures += [one for one in told if one[1]]
    assert failures == []


@pytest.mark.parametrize("status", [0, 1, 2, 130])
def test_every_exit_status_is_explained(status):
    assert f"\n| {status} | " in README


def test_extras_of_users_pin_no_version_and_the_set_up_of_tests_does():
    """The data sets are those of the paper, so theirs is one of a version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    users = {name: needs for name, needs in extras.items() if name != "test"}
    pinned = {name for name, needs in users.items() if any("==" in n for n in needs)}
    assert pinned == {"datasets"}
    assert extras["torch"] == ["torch>=2.2"]
    assert '"torch==' in (ROOT / "Makefile").read_text()
