"""The example and docs/learning.md say what is the case.

That the code of the page runs is checked in tests/test_code_in_docs.py.
"""

import re
import runpy
import shutil
from pathlib import Path

import pytest

from ennopt.learn.instances import PROFILES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(ROOT / "examples" / "reactor.csv", tmp_path)
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "reactor.csv", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_ends_with_a_proof_in_original_units(folder, monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "agg")
    answer = runpy.run_path(str(ROOT / "examples" / "reactor.py"))["answer"]
    assert answer.proved
    assert 120 <= answer.by_name["temperature (C)"] <= 200
    assert 60 < answer.value < 90  # the best of the 300 runs yielded about 70%
    assert answer.value <= answer.bound <= answer.value * 1.001
    assert "pressure (bar)" in capsys.readouterr().out


def test_the_python_of_the_page_prints_what_the_page_says(folder, capsys):
    code, printed = blocks("python")[0], blocks("text")[0]
    exec(compile(code, "learning.md", "exec"), {})
    shown = capsys.readouterr().out
    names = re.findall(r"^  (\S.*?)\s+[\d.]+$", printed, flags=re.MULTILINE)
    assert names == re.findall(r"^  (\S.*?)\s+[\d.]+$", shown, flags=re.MULTILINE)
    told, found = (
        float(re.search(r"best predicted .*: ([\d.]+),", text)[1])
        for text in (printed, shown)
    )
    assert found == pytest.approx(told, abs=0.5)


def test_the_page_counts_the_profiles(folder):
    for name, specs in PROFILES.items():
        assert f"| `{name}` | {len(specs)} |" in PAGE
