"""A key changes when the result could, and only then."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ennopt
from ennopt.learn.instances import (
    ensemble_digest,
    publish,
    published,
    read_instance,
    read_manifest,
)
from ennopt.methods import METHODS, method_named
from ennopt.network import read_npz
from ennopt.study import plan
from ennopt.study.expression import read_method
from ennopt.study.machine import (
    code_digest,
    machine,
    source_digest,
    training_digest,
    versions,
)
from ennopt.study.plan import longest, modules_of, specs_of, tasks_of
from ennopt.study.spec import Solve, read_study, study_from
from oracles import random_ensemble

ROOT = Path(__file__).parents[2]
PACKAGE_ROOT = Path(ennopt.__file__).parent

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


def test_published_instances_are_read_and_the_others_trained(tmp_path):
    shape = {"problems": ["beale"], "members": [2], "layers": [1], "widths": [4],
             "max_epochs": 2}  # fmt: skip

    def tasks(replicas, **more):
        library = shape | {"replicas": replicas} | more
        tables = {"experiments": {"one": BASE | {"instances": library}}}
        return tasks_of(study_from(tables, folder=tmp_path), tmp_path / "made")

    (first,) = tasks(1)
    (made,) = (tmp_path / "made").iterdir()
    publish(made, tmp_path / "ready")
    two = tasks(2, published="ready")
    assert [task.subject["published"] for task in two] == [True, False]
    assert two[0].key == first.key  # the same arrays, wherever they come from
    np.testing.assert_array_equal(
        two[0].work["ensemble"].members[1].weights[0],
        first.work["ensemble"].members[1].weights[0],
    )
    (other,) = tasks(1, published="ready", seed=7)
    assert not other.subject["published"] and other.key != first.key
    file = tmp_path / "ready" / f"{first.subject['name']}.npz"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="Expected the bytes that the manifest"):
        tasks(1, published="ready")


def test_the_evening_has_every_size_and_all_configurations():
    study = read_study(ROOT / "experiments" / "paper.toml", "evening")
    compare, bounds, rows, models, _ = study.experiments
    assert [len(specs_of(e.instances)) for e in (compare, bounds, rows)] == [48, 12, 12]
    assert [e.limits.seconds for e in (compare, rows)] == [120.0, 30.0]
    assert [label for label, _ in compare.methods] == [
        "B&C", "E-NN", "E-NN tuned", "ennopt"
    ]  # fmt: skip
    assert compare.threads == 1
    assert {e.instances.orientation for e in (compare, bounds)} == {"zero"}
    assert {spec.layers for spec in specs_of(bounds.instances)} == {2, 4}
    assert (models.singles, models.ensembles, models.replicas) == (4, 4, 5)


def test_the_instances_of_the_evening_are_published():
    study = read_study(ROOT / "experiments" / "paper.toml", "evening")
    ready = ROOT / "experiments" / "instances"
    records = read_manifest(ready)["instances"]
    for experiment in study.experiments:
        if isinstance(experiment, Solve):
            specs = specs_of(experiment.instances)
            assert len(published(ready, specs, 0)) == len(specs)
    for name in ("wine_e5_L4_n40_r0", "beale_e1_L4_n50_r0"):
        assert ensemble_digest(read_instance(ready, name)) == records[name]["digest"]


# What the versions tell.


PACKAGE = {
    "__init__.py": "", "api.py": "from ennopt.report import show\n",
    "report.py": "show = 1\n", "engine/__init__.py": "",
    "engine/search.py": "def f():\n    from ennopt.engine import node\n",
    "engine/node.py": "import importlib\nimportlib.import_module('ennopt._kernel')\n",
    "engine/other.py": "x = 1\n", "_kernel.so": "elf",
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "matters"),
    [("engine/search.py", True), ("engine/node.py", True), ("engine/__init__.py", True),
     ("api.py", True), ("_kernel.so", True), ("engine/other.py", False),
     ("report.py", False)],
)  # fmt: skip
def test_a_key_depends_on_the_code_behind_its_method_only(tmp_path, file, matters):
    digests = []
    for number, text in enumerate((PACKAGE[file], PACKAGE[file] + "y = 2\n")):
        root = tmp_path / str(number) / "ennopt"
        for name, content in (PACKAGE | {file: text}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        digests.append(code_digest(root, ["ennopt.engine.search"]))
    assert (digests[0] != digests[1]) == matters


def test_the_code_of_each_method_is_its_own():
    methods = [read_method(text) for text in ("BoxSearch()", "BranchAndCut()")]
    box, cut = (code_digest(PACKAGE_ROOT, modules_of(method)) for method in methods)
    assert box != cut
    assert "ennopt.tightening.lp" in modules_of(methods[1])


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


def test_the_longest_time_counts_limits_and_slots(folder):
    study = study_from(
        {"experiments": {"one": BASE | {"limits": {"seconds": 30}}}}, folder=folder
    )
    assert longest(tasks_of(study, folder), 2) == 30.0


def test_the_machine_is_described():
    assert machine()["cores"] >= 1
    assert versions()["ennopt"]
