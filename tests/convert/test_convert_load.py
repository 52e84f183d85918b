"""What `load` recognises, and what it refuses, without any framework."""

import json
import os
import pickle
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ennopt.convert import PredictorNotSupportedError, load
from ennopt.extras import MissingExtraError, require
from ennopt.network import Ensemble, ModelConfigurationError, Network

NET = Network([[[1.0, 2.0], [-1.0, 0.5]], [[1.0, -3.0]]], [[0.1, 0.2], [0.3]])
LINE = Network([[[2.0, -1.0]]], [[0.5]])


def same(ours, theirs):
    return all(
        np.array_equal(a, b)
        for m, n in zip(ours.members, theirs.members, strict=True)
        for a, b in zip((*m.weights, *m.biases), (*n.weights, *n.biases), strict=True)
    ) and np.array_equal(ours.weights, theirs.weights)


def test_networks_and_ensembles_pass_through():
    ensemble = Ensemble((NET, LINE), weights=[0.3, 0.7])
    assert load(ensemble) is ensemble
    assert load(NET).members == (NET,)


def test_nested_lists_multiply_their_weights():
    ensemble = load([Ensemble((NET, LINE), weights=[0.3, 0.7]), (LINE, [NET, LINE])])
    assert ensemble.weights == pytest.approx([0.15, 0.35, 0.25, 0.125, 0.125])
    assert ensemble.members == (NET, LINE, LINE, NET, LINE)


def test_files_of_our_own_round_trip_exactly(tmp_path):
    ensemble = Ensemble(
        (NET, LINE), weights=[0.3, 0.7], input_names=("heat", "flow"),
        lower=[0.0, 0.1], upper=[1.0, 1e6 / 3],
    )  # fmt: skip
    ensemble.save(tmp_path / "model.npz")
    again = load(str(tmp_path / "model.npz"))
    assert same(again, ensemble)
    assert again.input_names == ensemble.input_names
    assert np.array_equal(again.lower, ensemble.lower)
    assert np.array_equal(again.upper, ensemble.upper)
    assert again.source == "model.npz"


def test_a_list_of_files_keeps_the_box_they_share(tmp_path):
    Ensemble((NET,), lower=[0, 0], upper=[1, 2]).save(tmp_path / "a.npz")
    Ensemble((LINE,), lower=[0, 0], upper=[1, 2]).save(tmp_path / "b.npz")
    ensemble = load([tmp_path / "a.npz", tmp_path / "b.npz"])
    assert ensemble.upper.tolist() == [1.0, 2.0]
    assert ensemble.source == "a.npz, b.npz"


class Trap:
    """Runs code when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


def arrays(**changes):
    base = {"net0.W0": np.ones((3, 2)), "net0.b0": np.ones(3),
            "net0.W1": np.ones((1, 3)), "net0.b1": np.ones(1)}  # fmt: skip
    base |= {key.replace("_", "."): value for key, value in changes.items()}
    return {key: value for key, value in base.items() if value is not None}


HOSTILE = {
    "a pickle": arrays(net0_W0=np.array([Trap()], dtype=object)),
    "NaN": arrays(net0_W0=np.full((3, 2), np.nan)),
    "infinity": arrays(net0_b1=np.array([np.inf])),
    "shapes that do not follow": arrays(net0_W1=np.ones((1, 4))),
    "a bias of another length": arrays(net0_b0=np.ones(2)),
    "no bias": arrays(net0_b0=None),
    "text": arrays(net0_b1=np.array(["a"])),
    "complex numbers": arrays(net0_b1=np.array([1j])),
    "no members": {"lower": np.zeros(2), "upper": np.ones(2)},
    "nothing": {},
    "a hole in the layers": arrays(net0_W2=np.ones((1, 1)), net0_W1=None),
    "members of other inputs": arrays(net1_W0=np.ones((1, 5)), net1_b0=np.ones(1)),
    "an unknown array": arrays(extra=np.ones(1)),
    "one weight too many": arrays() | {"member_weights": np.ones(2)},
    "names that repeat": arrays() | {"input_names": np.array(["a", "a"])},
    "half a box": arrays() | {"lower": np.zeros(2)},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_give_one_error(name, tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, **HOSTILE[name])
    with pytest.raises(ModelConfigurationError, match=r"Expected .*bad\.npz"):
        load(path)
    assert not Trap.sprung


@pytest.mark.parametrize("content", ["cut", "text", "empty", "pickle", "array"])
def test_damaged_archives_give_one_error(content, tmp_path):
    path = tmp_path / "bad.npz"
    Ensemble((NET,)).save(path)
    whole = path.read_bytes()
    if content == "array":
        with path.open("wb") as stream:
            np.save(stream, np.ones(3))
    else:
        data = {"cut": whole[: len(whole) // 2], "text": b"not a model", "empty": b"",
                "pickle": pickle.dumps(Trap())}  # fmt: skip
        path.write_bytes(data[content])
    with pytest.raises(ModelConfigurationError, match=r"bad\.npz"):
        load(path)
    assert not Trap.sprung


def test_an_archive_cut_anywhere_gives_one_error(tmp_path):
    path = tmp_path / "bad.npz"
    Ensemble((NET,)).save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelConfigurationError, match=r"bad\.npz"):
            load(path)


@pytest.mark.parametrize("suffix", [".pkl", ".joblib", ".pickle"])
def test_pickles_are_never_opened(suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(PredictorNotSupportedError, match="load it yourself"):
        load(path)
    assert not Trap.sprung


def test_other_files_are_refused_with_what_is_accepted(tmp_path):
    for name in ("model.csv", "model", "model.h5", "model.tflite"):
        (tmp_path / name).write_text("x")
        with pytest.raises(PredictorNotSupportedError, match=r"\.keras"):
            load(tmp_path / name)


@pytest.mark.parametrize(
    "suffix", [".npz", ".onnx", ".keras", ".pt", ".h5", ".txt", ""]
)
def test_what_is_not_there_or_cannot_be_read_is_told_in_a_sentence(suffix, tmp_path):
    missing = tmp_path / f"missing{suffix}"
    with pytest.raises(FileNotFoundError, match=f"got none at {missing}. Check"):
        load(missing)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError, match="got none at"):
        load(tmp_path / "file" / f"inside{suffix}")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(PredictorNotSupportedError, match=f"got a folder: {folder}"):
        load(folder)
    unreadable = tmp_path / f"unreadable{suffix}"
    unreadable.symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match=r"^Expected a file .* got Input/output error: "):
        load(unreadable)
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)  # nobody writes to it: opening it would wait for ever
    with pytest.raises(OSError, match="got a device or a pipe"):
        load(pipe)


@pytest.mark.parametrize("suffix", [".onnx", ".keras", ".pt", ".txt"])
def test_a_file_with_the_suffix_of_another_kind_is_told_its_own(suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    Ensemble((NET,)).save(path)
    with pytest.raises(ModelConfigurationError, match=r"in \.npz, got .* Rename it"):
        load(path)


@pytest.mark.parametrize("content", ["pickle", "objects", "text"])
def test_no_advice_of_numpy_is_passed_on(content, tmp_path):
    path = tmp_path / "model.npz"
    {
        "pickle": lambda: path.write_bytes(pickle.dumps([1, 2])),
        "objects": lambda: np.savez(path, a=np.array([{}], dtype=object)),
        "text": lambda: path.write_text("hello"),
    }[content]()
    with pytest.raises(ModelConfigurationError, match=r"Ensemble\.save") as caught:
        load(path)
    assert "pickle" not in str(caught.value)


@pytest.mark.parametrize(
    "model", [3, None, object(), {}, {"a": 1}, {"a": NET}, np.ones(3), b"model.npz"]
)
def test_what_is_no_model_is_refused_with_what_is_accepted(model):
    with pytest.raises(PredictorNotSupportedError, match="Accepted are scikit-learn"):
        load(model)


def test_a_class_is_no_model():
    with pytest.raises(PredictorNotSupportedError, match="got the class Network"):
        load(Network)


def test_a_text_is_no_list_of_names():
    with pytest.raises(TypeError, match="got the text 'ab'"):
        load(NET, input_names="ab")


def test_no_models_are_no_ensemble():
    with pytest.raises(ModelConfigurationError, match="at least one member"):
        load([])


def test_members_with_different_input_counts_are_refused():
    other = Network([[[1.0]]], [[0.0]])
    with pytest.raises(
        ModelConfigurationError, match=r"num_inputs 2.*got 1 at member 2"
    ):
        load([NET, other])


def test_a_missing_package_names_the_line_that_installs_it():
    with pytest.raises(
        MissingExtraError, match=r'pip install "ennopt\[onnx\]"'
    ) as caught:
        require("no_such_package.inner", "onnx")
    assert isinstance(caught.value, ImportError)
    assert caught.value.name == "no_such_package"


HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("suffix", "extra"), [("onnx", "onnx"), ("keras", "keras"), ("pt", "torch")]
)
def test_each_missing_framework_names_its_extra(suffix, extra, tmp_path):
    path = tmp_path / f"model.{suffix}"
    if suffix == "keras":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", json.dumps({"class_name": "Sequential"}))
    else:
        path.write_bytes(b"x")
    code = HIDE.format(hidden=["onnx", "keras", "torch"]) + (
        "from ennopt.convert import load\n"
        f"try:\n    load({str(path)!r})\n"
        "except ImportError as error:\n    print(error)\n"
    )
    assert f'pip install "ennopt[{extra}]"' in run(code)


def test_each_model_imports_its_own_framework_alone(tmp_path):
    Ensemble((NET,)).save(tmp_path / "model.npz")
    code = f"""
import sys
from ennopt.convert import load
def show():
    heavy = {{"torch", "keras", "onnx", "onnxruntime", "sklearn", "tensorflow"}}
    print("loaded:", *sorted(heavy & set(sys.modules)))
load({str(tmp_path / "model.npz")!r})
show()
from sklearn.linear_model import Ridge
load(Ridge().fit([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0.0, 1.0, 2.0]))
show()
"""
    assert run(code).splitlines() == ["loaded:", "loaded: sklearn"]


def test_torch_is_pinned_for_our_own_tests_only():
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["torch"] == ["torch>=2.2"]
    set_up = (root / "Makefile").read_text()
    pin = re.search(r'pip install --quiet "torch==[\d.]+"', set_up)
    assert pin.start() < set_up.index('".[test]"')
