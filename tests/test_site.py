"""The site builds without a warning, and its pages say what the tables say."""

import ast
import fnmatch
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ennopt

ROOT = Path(__file__).parents[1]
FIGURES = runpy.run_path(str(ROOT / "benchmarks" / "figures.py"))


def test_the_site_builds_without_warnings_or_dead_links(tmp_path):
    """All of it but the pictures of the gallery, which `make docs` makes."""
    pytest.importorskip("sphinx_gallery")
    source, site = tmp_path / "source", tmp_path / "site"
    ignored = shutil.ignore_patterns("gallery", "generated", "__pycache__")
    for folder in ("docs", "benchmarks", "examples"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, source)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-c", "docs", ".", str(site)]
    built = subprocess.run(
        command, cwd=source, capture_output=True, text=True,
        env=os.environ | {"ENNOPT_GALLERY": "0"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-3000:]
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {"index.html", "docs/tutorial.html", "benchmarks/engine.html"} <= pages
    for name in ennopt.__all__:
        assert f"docs/generated/ennopt.{name}.html" in pages


def test_the_reference_names_everything_public():
    named = (ROOT / "docs" / "reference.rst").read_text(encoding="utf-8").split()
    assert set(ennopt.__all__) <= set(named)


def test_every_page_of_docs_can_be_reached():
    """By the lists of the indices, from which the site makes its menus."""
    lists = "\n".join(
        block
        for page in (ROOT / "docs").glob("*.md")
        for block in re.findall(
            r"```\{toctree\}(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
        )
    )
    entries = [line.split("<")[-1].strip(" >") for line in lists.splitlines()]
    for page in (ROOT / "docs").glob("*.md"):
        if page.name != "index.md":
            listed = any(fnmatch.fnmatch(page.stem, entry) for entry in entries)
            assert listed, f"List {page.stem} in docs/guide.md."


def test_quoted_figures_are_those_of_the_tables():
    assert FIGURES["main"](["--check"]) == 0, "Run `make figures`."


def test_a_figure_that_disagrees_is_found_and_put_right():
    found, change = FIGURES["figures"](), FIGURES["with_figures"]
    page = "README.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    wrong = re.sub(rf"{found['paper_10']}(\s+optima)", r"7\1", text)
    assert wrong != text
    assert change(page, wrong, found) == text
    with pytest.raises(ValueError, match="got none like it at README"):
        change(page, text.replace("optima", "things"), found)
    with pytest.raises(ValueError, match="got 2 at README"):  # which one is it?
        change(page, text + text, found)


def test_the_citation_names_the_version():
    """And is of the form that readers of such files take."""
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == ennopt.__version__
    assert cited["references"][0]["type"] == "article"
    assert {"cff-version", "message", "title", "authors"} <= set(cited)


def test_examples_do_nothing_but_run():
    """No example hides its lines in functions that nobody calls."""
    for path in (ROOT / "examples").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                assert node.name in names, f"{path.name}: {node.name}"
