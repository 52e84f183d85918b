"""A key changes when the result could, and only then."""

from dataclasses import replace

import numpy as np
import pytest

from ennopt.methods import METHODS, method_named
from ennopt.network import read_npz
from ennopt.study import plan
from ennopt.study.machine import (
    machine,
    source_digest,
    training_digest,
    versions,
)
from ennopt.study.plan import ensemble_digest, tasks_of
from ennopt.study.spec import study_from
from oracles import random_ensemble

BASE = {
    "items": ["table1"], "methods": {"big": "BigM()"},
    "instances": {"files": "*.npz"}, "limits": {"nodes": 10},
}  # fmt: skip


def keys(folder, **changes):
    study = study_from({"experiments": {"one": BASE | changes}}, folder=folder)
    return [task.key for task in tasks_of(study, folder / "instances")]


@pytest.fixture
def folder(tmp_path):
    for i in range(2):
        ensemble = random_ensemble(np.random.default_rng(i), 2, 2, (3,))
        boxed = replace(ensemble, lower=-np.ones(2), upper=np.ones(2))
        boxed.save(tmp_path / f"net{i}.npz")
    return tmp_path


def test_keys_differ_and_repeat(folder):
    first = keys(folder, seeds=[0, 1])
    assert len(set(first)) == 4
    assert keys(folder, seeds=[0, 1]) == first


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": {"big": "BigM(backend='scip')"}},
        {"limits": {"nodes": 11}},
        {"limits": {"nodes": 10, "gap": 1e-3}},
        {"seeds": [7]},
        {"threads": 2},
        {"instances": {"files": "*.npz", "sense": "min"}},
    ],
    ids=str,
)
def test_what_changes_a_result_changes_every_key(folder, changes):
    assert not set(keys(folder)) & set(keys(folder, **changes))


def test_a_method_written_in_another_way_keeps_its_key(folder):
    name = next(iter(METHODS))
    written_out = repr(method_named(name))
    one, two = (keys(folder, methods={"it": text}) for text in (name, written_out))
    assert one == two


def test_other_weights_change_the_key_of_that_instance_only(folder):
    before = keys(folder)
    ensemble = read_npz(folder / "net1.npz")
    ensemble.fold_output(1.0, 1e-12).save(folder / "net1.npz")
    after = keys(folder)
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_the_same_arrays_stored_again_keep_the_key(folder):
    before = keys(folder)
    read_npz(folder / "net0.npz").save(folder / "net0.npz")
    assert keys(folder) == before


def test_other_versions_change_every_key(folder, monkeypatch):
    before = keys(folder)
    monkeypatch.setattr(plan, "versions", lambda: versions() | {"numpy": "0"})
    assert not set(before) & set(keys(folder))


def test_the_digest_sees_a_change_of_the_box(folder):
    ensemble = read_npz(folder / "net0.npz")
    wider = replace(ensemble, upper=2 * np.ones(2))
    assert ensemble_digest(ensemble) != ensemble_digest(wider)


def test_a_pattern_without_files_is_refused(folder):
    with pytest.raises(ValueError, match="Expected files that match"):
        keys(folder, instances={"files": "*.onnx"})


def test_names_tell_the_sizes_of_instances(folder):
    (folder / "net0.npz").rename(folder / "peaks_e3_L2_n20_r1.npz")
    study = study_from({"experiments": {"one": BASE}}, folder=folder)
    subjects = [task.subject for task in tasks_of(study, folder)]
    told = {k: subjects[1][k] for k in ("problem", "members", "layers", "width")}
    assert told == {"problem": "peaks", "members": 3, "layers": 2, "width": 20}


def test_trained_instances_are_made_once_and_have_the_same_keys_again(tmp_path):
    library = {
        "problems": ["beale"], "members": [1], "layers": [1], "widths": [4],
        "replicas": 2, "max_epochs": 2,
    }  # fmt: skip
    said = []
    study = study_from({"experiments": {"one": BASE | {"instances": library}}})
    first = tasks_of(study, tmp_path / "a", report=said.append)
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "a").rglob("*.npz")}
    assert len(times) == 2 and said[-1] == "instances 2 of 2"
    again = tasks_of(study, tmp_path / "a")
    assert {p: p.stat().st_mtime_ns for p in times} == times
    elsewhere = tasks_of(study, tmp_path / "b")
    assert plan.keys(first) == plan.keys(again) == plan.keys(elsewhere)


def test_the_orientation_moves_minimized_functions_by_one(tmp_path):
    def ensembles(orientation):
        library = {
            "problems": ["beale"], "members": [2], "layers": [1], "widths": [4],
            "replicas": 1, "max_epochs": 2, "orientation": orientation,
        }  # fmt: skip
        study = study_from({"experiments": {"one": BASE | {"instances": library}}})
        (task,) = tasks_of(study, tmp_path)
        assert task.subject["orientation"] == orientation
        return task.key, task.work["ensemble"]

    (one_key, one), (zero_key, zero) = ensembles("one"), ensembles("zero")
    x = np.random.default_rng(0).random((50, 2))
    np.testing.assert_allclose(zero(x), one(x) - 1.0, atol=1e-12)
    assert one_key != zero_key
    assert len(list(tmp_path.rglob("*.npz"))) == 1  # trained once


def test_instances_trained_by_other_code_are_not_used(tmp_path, monkeypatch):
    library = {
        "problems": ["beale"], "members": [1], "layers": [1], "widths": [4],
        "replicas": 1, "max_epochs": 2,
    }  # fmt: skip
    study = study_from({"experiments": {"one": BASE | {"instances": library}}})
    tasks_of(study, tmp_path)
    monkeypatch.setattr(plan, "training_digest", lambda root: "other")
    tasks_of(study, tmp_path)
    assert len(list(tmp_path.rglob("*.npz"))) == 2


# What the versions tell.


def written(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "a.py").write_text(text)
    return source_digest(folder)


def test_comments_and_docstrings_do_not_change_the_source(tmp_path):
    one = written(tmp_path, "def f(x):\n    return x + 1\n")
    two = written(
        tmp_path, '"""Doc."""\ndef f(x):\n    "Adds."\n    return x + 1  # 1\n'
    )
    three = written(tmp_path, "def f(x):\n    return x + 2\n")
    assert one == two != three


def test_a_compiled_kernel_is_part_of_the_source_and_the_study_is_not(tmp_path):
    before = written(tmp_path, "x = 1\n")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "b.py").write_text("y = 2\n")
    assert source_digest(tmp_path) == before
    (tmp_path / "kernel.so").write_bytes(b"\x7fELF")
    assert source_digest(tmp_path) != before
    assert source_digest(tmp_path, compiled=False) == before


def test_training_depends_on_the_code_that_trains(tmp_path):
    (tmp_path / "learn").mkdir()
    (tmp_path / "network.py").write_text("x = 1\n")
    (tmp_path / "api.py").write_text("x = 1\n")
    (tmp_path / "learn" / "training.py").write_text("x = 1\n")
    before = training_digest(tmp_path)
    (tmp_path / "api.py").write_text("x = 2\n")
    assert training_digest(tmp_path) == before
    (tmp_path / "network.py").write_text("x = 2\n")
    between = training_digest(tmp_path)
    (tmp_path / "learn" / "training.py").write_text("x = 2\n")
    assert len({before, between, training_digest(tmp_path)}) == 3


def test_the_machine_is_described():
    assert machine()["cores"] >= 1
    assert versions()["ennopt"]
