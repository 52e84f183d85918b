import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from ennopt.learn.functions import PEAKS
from ennopt.learn.instances import (
    MANIFEST,
    ORIENTATIONS,
    PROFILES,
    Spec,
    ensemble_digest,
    find,
    make,
    oriented,
    publish,
    published,
    read_instance,
    read_manifest,
    restrict,
)
from ennopt.network import read_npz

SPECS = restrict(PROFILES["smoke"], ["peaks", "beale", "perm", "spring"])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    make(folder, SPECS)
    return folder


def test_the_profiles_have_the_instances_of_the_paper():
    paper = PROFILES["paper"]
    assert len(paper) == 144 == len({spec.name for spec in paper})
    assert sum(spec.members for spec in paper) == 576
    by_problem = Counter(spec.problem for spec in paper)
    assert set(by_problem.values()) == {24} and len(by_problem) == 6
    single = PROFILES["single"]
    assert len(single) == 36 == len({spec.name for spec in single})
    assert {(s.members, s.layers, s.width) for s in single} == {(1, 2, 50), (1, 4, 50)}
    scaling = PROFILES["scaling"]
    assert max(spec.members for spec in scaling) == 20
    assert max(spec.width for spec in scaling) == 200
    assert any(spec.problem.endswith("30") for spec in scaling)


def test_the_same_command_makes_the_same_bytes(library, tmp_path):
    make(tmp_path, SPECS)
    assert contents(tmp_path) == contents(library)
    assert set(contents(library)) == {MANIFEST, *(f"{s.name}.npz" for s in SPECS)}


def test_published_files_are_smaller_and_hold_the_same_numbers(library, tmp_path):
    records = publish(library, tmp_path)
    assert set(records) == {spec.name for spec in SPECS}
    for name, record in records.items():
        before, after = (read_npz(f / record["file"]) for f in (library, tmp_path))
        assert ensemble_digest(before) == ensemble_digest(after) == record["digest"]
        x = np.random.default_rng(0).random((20, before.num_inputs))
        np.testing.assert_array_equal(before(x), after(x))
        sizes = [(f / record["file"]).stat().st_size for f in (library, tmp_path)]
        assert sizes[1] < sizes[0]
        assert find(tmp_path, name) == record  # its bytes have the recorded hash
    first = contents(tmp_path)
    assert publish(library, tmp_path) == records and contents(tmp_path) == first
    assert published(tmp_path, SPECS, 0) == set(records)
    assert published(tmp_path, SPECS, 1) == set()
    longer = [replace(spec, max_epochs=21) for spec in SPECS]
    assert published(tmp_path, longer, 0) == set()


def test_numbers_that_single_precision_cannot_hold_are_kept(library, tmp_path):
    spec = SPECS[0]
    make(tmp_path / "a", [spec])
    record = find(tmp_path / "a", spec.name)
    file = tmp_path / "a" / record["file"]
    read_npz(file).fold_output(1.0, 1e-12).save(file)
    manifest = json.loads((tmp_path / "a" / MANIFEST).read_text())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest["instances"][spec.name]["sha256"] = digest
    (tmp_path / "a" / MANIFEST).write_text(json.dumps(manifest))
    publish(tmp_path / "a", tmp_path / "b")
    again = read_npz(tmp_path / "b" / record["file"])
    assert ensemble_digest(again) == ensemble_digest(read_npz(file))


def test_an_executor_makes_the_same_bytes(library, tmp_path):
    with ThreadPoolExecutor(2) as executor:
        make(tmp_path, SPECS, executor=executor)
    assert contents(tmp_path) == contents(library)


def test_an_interrupted_library_is_finished_to_the_same_bytes(library, tmp_path):
    def stop(done, total):
        if done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, SPECS, report=stop)
    made = {name for name in contents(tmp_path) if name.endswith(".npz")}
    assert 0 < len(made) < len(SPECS)
    damaged = tmp_path / sorted(made)[0]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    counts = []
    make(tmp_path, SPECS, report=lambda *n: counts.append(n))
    assert counts[0][0] == len(made) - 1
    assert contents(tmp_path) == contents(library)


def test_a_replica_does_not_depend_on_the_others(tmp_path):
    specs = [Spec("beale", 2, 1, 6, r, max_epochs=2) for r in range(3)]
    records = make(tmp_path / "all", specs)
    alone = make(tmp_path / "one", specs[1:2])
    assert alone[specs[1].name] == records[specs[1].name]
    hashes = {record["sha256"] for record in records.values()}
    assert len(hashes) == 3
    assert len({record["data_sha256"] for record in records.values()}) == 1


def test_another_seed_in_the_same_directory_is_refused(library):
    with pytest.raises(ValueError, match="made with seed 1, got 0"):
        make(library, SPECS, seed=1)


def test_other_versions_are_refused(library, tmp_path):
    manifest = read_manifest(library)
    manifest["versions"]["numpy"] = "0.9"
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="Expected instances made with versions"):
        make(tmp_path, SPECS)


def test_instances_are_maximized_on_the_unit_box(library):
    record = find(library, "peaks_e2_L2_n8_r0")
    ensemble = read_npz(library / record["file"])
    assert ensemble.lower.tolist() == [0, 0] and ensemble.upper.tolist() == [1, 1]
    assert record["negated"]
    assert record["lower"] == [-3, -3]
    unit = np.random.default_rng(0).random((2000, 2))
    x = PEAKS.domain.lower + unit * PEAKS.domain.widths
    predicted = ensemble(unit)[:, 0]
    assert np.corrcoef(predicted, PEAKS(x))[0, 1] < -0.3  # low function, high value


def test_both_orientations_have_the_same_maximizer(library):
    unit = np.random.default_rng(0).random((200, 2))
    one, zero = (
        read_instance(library, "peaks_e2_L2_n8_r0", orientation)(unit)[:, 0]
        for orientation in ORIENTATIONS
    )
    np.testing.assert_allclose(zero, one - 1.0, atol=1e-12)
    assert one.argmax() == zero.argmax()
    ensemble = read_instance(library, "peaks_e2_L2_n8_r0")
    assert oriented(ensemble, False, "zero") is ensemble  # maximized from the start
    with pytest.raises(ValueError, match="orientation among one, zero"):
        oriented(ensemble, True, "down")


def test_the_manifest_records_the_error_of_each_instance(library):
    for record in read_manifest(library)["instances"].values():
        assert 0 < record["rmse"] < 1
        assert len(record["member_rmse"]) == record["configuration"]["members"]
        assert len(record["data_sha256"]) == 64


def test_a_damaged_or_unknown_instance_is_refused(library, tmp_path):
    with pytest.raises(ValueError, match=r"got 'peaks_e9'. There are peaks_e2"):
        find(library, "peaks_e9")
    with pytest.raises(ValueError, match=r"got no manifest.json"):
        find(tmp_path, "peaks_e9")
    make(tmp_path, SPECS[:1])
    file = tmp_path / f"{SPECS[0].name}.npz"
    file.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="Expected the bytes that the manifest"):
        find(tmp_path, file.name)
    file.unlink()
    with pytest.raises(ValueError, match="Expected the file"):
        find(tmp_path, SPECS[0].name)
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(ValueError, match="Expected a manifest"):
        read_manifest(tmp_path)


def test_an_unknown_problem_is_refused():
    with pytest.raises(ValueError, match=r"Expected one of beale, .* got 'rum'"):
        restrict(PROFILES["paper"], ["rum"])
