"""A library of ensemble-optimization instances that anyone can make again.

An instance is an ensemble on inputs in [0, 1], to be maximized, in an ``.npz`` file.
A manifest beside the files records how each was made and the hash of its bytes. The
same command with the same versions makes the same bytes, whatever the number of jobs
and however often it was interrupted, on one kind of processor. Another processor adds
numbers in another order, and training carries the difference on; instances that others
should solve are therefore published, not made again.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ennopt.learn.datasets import DATASETS
from ennopt.learn.functions import function_named
from ennopt.learn.sampling import PROBLEMS, paper_count, problem_table
from ennopt.learn.selection import Submitter
from ennopt.learn.training import (
    Batched,
    Configuration,
    Order,
    Trained,
    train_all,
)
from ennopt.network import Ensemble, read_npz
from ennopt.version import VERSION

MANIFEST = "manifest.json"
"""Name of the manifest in a directory of instances."""

FORMAT = 1
"""Version of the manifest."""

ORIENTATIONS = ("one", "zero")
"""Where the best value of a function that is minimized lies: near one, as in the files,
or near zero, as in the paper. Wine and Concrete, which are maximized, have one only."""

Report: TypeAlias = Callable[[int, int], None]
"""Called with the number of instances that are done and their total."""


@dataclass(frozen=True, slots=True, order=True)
class Spec:
    """What an instance is.

    Parameters
    ----------
    problem
        One of the six problems, or a function family with its dimension.
    members, layers, width
        Shape of the ensemble.
    replica
        Number of the repetition; each has its own split, samples and weights.
    max_epochs
        Passes over the rows, at most.

    Examples
    --------
    >>> Spec("peaks", 3, 2, 20, 0).name
    'peaks_e3_L2_n20_r0'
    """

    problem: str
    members: int
    layers: int
    width: int
    replica: int
    max_epochs: int = Configuration().max_epochs

    @property
    def name(self) -> str:
        """Its name, and that of its file without the suffix."""
        return (
            f"{self.problem}_e{self.members}_L{self.layers}_n{self.width}"
            f"_r{self.replica}"
        )

    @property
    def configuration(self) -> Configuration:
        """How it is trained."""
        return Configuration(
            members=self.members,
            layers=self.layers,
            width=self.width,
            max_epochs=self.max_epochs,
        )

    def order(self, seed: int) -> Order:
        """What to train: the rows are the same for every replica."""
        digest = hashlib.sha256(self.name.encode()).digest()
        key = tuple(int.from_bytes(digest[i : i + 4], "big") for i in (0, 4, 8, 12))
        return Order(
            problem_table(self.problem, seed=seed),
            self.configuration,
            np.random.SeedSequence(seed, spawn_key=key),
            maximized=True,
        )


def _paper() -> Iterator[Spec]:
    for problem, e, layers, n, r in product(
        PROBLEMS, (3, 5), (2, 4), (20, 40), range(3)
    ):
        yield Spec(problem, e, layers, n, r)


def _single() -> Iterator[Spec]:
    for problem, layers, r in product(PROBLEMS, (2, 4), range(3)):
        yield Spec(problem, 1, layers, 50, r)


def _smoke() -> Iterator[Spec]:
    for problem in PROBLEMS:
        yield Spec(problem, 2, 2, 8, 0, max_epochs=20)


def _scaling() -> Iterator[Spec]:
    """One size grows at a time from the middle: d = 5, e = 5, L = 2, n = 40.

    Trained for fewer epochs: the largest has 20 networks of 400 neurons.
    """
    for family in ("styblinski", "rosenbrock"):
        shapes = {(5, 5, 2, 40)}
        shapes |= {(d, 5, 2, 40) for d in (2, 5, 10, 20, 30)}
        shapes |= {(5, e, 2, 40) for e in (1, 2, 5, 10, 20)}
        shapes |= {(5, 5, layers, 40) for layers in (1, 2, 3, 4)}
        shapes |= {(5, 5, 2, n) for n in (20, 40, 80, 120, 200)}
        shapes |= {(30, 20, 2, 200)}  # everything at its largest
        for d, e, layers, n in sorted(shapes):
            yield Spec(f"{family}{d}", e, layers, n, 0, max_epochs=100)


def _deep() -> Iterator[Spec]:
    """Deeper and wider than the paper's: what is hard for branching on inputs."""
    shapes = ((3, 6, 20), (3, 8, 20), (5, 6, 40), (3, 2, 128), (1, 2, 512))
    for problem, (e, layers, n) in product(
        ("spring", "concrete", "styblinski8"), shapes
    ):
        yield Spec(problem, e, layers, n, 0, max_epochs=100)


PROFILES: dict[str, tuple[Spec, ...]] = {
    "smoke": tuple(_smoke()),
    "paper": tuple(_paper()),
    "single": tuple(_single()),
    "scaling": tuple(_scaling()),
    "deep": tuple(_deep()),
}
"""The instances of each profile, by name."""


def make(
    directory: str | Path,
    specs: Sequence[Spec],
    *,
    seed: int = 0,
    executor: Submitter | None = None,
    report: Report | None = None,
) -> dict[str, dict[str, Any]]:
    """Train the instances that `directory` does not have yet.

    Parameters
    ----------
    directory
        Made if it does not exist. Other instances in it are left alone.
    specs
        The instances, for example ``PROFILES["paper"]``.
    seed
        Of everything random.
    executor
        Anything with ``submit``; ``None`` is serial. Same bytes either way.
    report
        Called with the number of instances that are done and their total.

    Returns
    -------
    dict
        The records of the manifest, by name.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = _opened(folder, seed)
    records: dict[str, dict[str, Any]] = manifest["instances"]
    missing = [spec for spec in specs if not _is_made(folder, records, spec)]
    done = len(specs) - len(missing)
    if report is not None:
        report(done, len(specs))
    for group, trained in _trained(_groups(missing), seed, executor):
        for spec, one in zip(group, trained, strict=True):
            records[spec.name] = _saved(folder, spec, one)
        _write(folder, manifest)
        done += len(group)
        if report is not None:
            report(done, len(specs))
    return {spec.name: records[spec.name] for spec in specs}


def _groups(specs: Sequence[Spec]) -> list[list[Spec]]:
    """Instances whose networks have one shape are trained together; long ones first."""
    groups: dict[tuple[Any, ...], list[Spec]] = {}
    for spec in specs:
        key = (spec.problem, spec.layers, spec.width, spec.max_epochs)
        groups.setdefault(key, []).append(spec)
    return sorted(groups.values(), key=lambda g: (-_work(g), g[0]))


def _work(group: Sequence[Spec]) -> float:
    first = group[0]
    inputs, rows = 10, 1500
    if first.problem not in DATASETS:
        inputs = function_named(first.problem).num_inputs
        rows = paper_count(inputs)
    weights = first.width * (inputs + first.width * (first.layers - 1) + 1)
    return float(rows * weights * sum(spec.members for spec in group))


def train_group(specs: Sequence[Spec], seed: int) -> list[Trained]:
    """Train instances together. Each comes out as if trained alone."""
    return train_all([spec.order(seed) for spec in specs], toolkit=Batched())


def _trained(
    groups: Sequence[list[Spec]], seed: int, executor: Submitter | None
) -> Iterator[tuple[list[Spec], list[Trained]]]:
    if executor is None:
        for group in groups:
            yield group, train_group(group, seed)
        return
    futures = [(g, executor.submit(train_group, g, seed)) for g in groups]
    try:
        for group, future in futures:
            yield group, future.result()
    finally:
        for _, future in futures:
            future.cancel()


def _saved(folder: Path, spec: Spec, trained: Trained) -> dict[str, Any]:
    """Write an instance and return its record."""
    file = folder / f"{spec.name}.npz"
    partial = file.with_suffix(".partial")
    trained.scaled.save(partial)
    partial.replace(file)
    scaling, c = trained.scaling, trained.configuration
    return {
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "problem": spec.problem,
        "replica": spec.replica,
        "configuration": asdict(c),
        "num_inputs": trained.scaled.num_inputs,
        "num_neurons": trained.scaled.num_neurons,
        "input_names": list(trained.scaled.input_names),
        "lower": scaling.lower.tolist(),
        "upper": scaling.upper.tolist(),
        "target_low": scaling.low,
        "target_high": scaling.high,
        "negated": scaling.negated,
        "data_sha256": trained.data_sha256,
        "rmse": trained.rmse,
        "member_rmse": list(trained.member_rmse),
        "epochs": list(trained.epochs),
    }


def _is_made(folder: Path, records: dict[str, dict[str, Any]], spec: Spec) -> bool:
    record = records.get(spec.name)
    if record is None or record["configuration"] != asdict(spec.configuration):
        return False
    file = folder / str(record["file"])
    if not file.is_file():
        return False
    return bool(hashlib.sha256(file.read_bytes()).hexdigest() == record["sha256"])


def ensemble_digest(ensemble: Ensemble) -> str:
    """Digest of the arrays of an ensemble and its box, however they were stored."""
    digest = hashlib.sha256()

    def add(array: Any) -> None:
        values = np.ascontiguousarray(array, dtype=np.float64)
        digest.update(f"{values.shape}".encode())
        digest.update(values.tobytes())

    for member in ensemble.members:
        for weights, biases in member.layers():
            add(weights)
            add(biases)
    add(ensemble.weights)
    for side in (ensemble.lower, ensemble.upper):
        if side is not None:
            add(side)
    return digest.hexdigest()


def publish(source: str | Path, target: str | Path) -> dict[str, dict[str, Any]]:
    """Copy a directory of instances into small files that belong in a repository.

    Training is in single precision, so its weights are stored in four bytes instead of
    eight, compressed; what is read back is the same, bit for bit. Instances that
    `target` has already stay as they are.

    Parameters
    ----------
    source
        Directory of instances, as `make` leaves it.
    target
        Made if it does not exist.

    Returns
    -------
    dict
        The records of the manifest in `target`, by name.
    """
    there, folder = Path(source), Path(target)
    manifest = read_manifest(there)
    folder.mkdir(parents=True, exist_ok=True)
    kept: dict[str, dict[str, Any]] = {}
    if (folder / MANIFEST).exists():
        kept = read_manifest(folder)["instances"]
    for name in manifest["instances"]:
        if name in kept:
            continue
        record = find(there, name)
        digest = ensemble_digest(read_npz(there / record["file"]))
        file = folder / record["file"]
        with np.load(there / record["file"], allow_pickle=False) as arrays:
            np.savez_compressed(file, **{key: _small(arrays[key]) for key in arrays})
        if ensemble_digest(read_npz(file)) != digest:
            raise RuntimeError(
                f"Expected the same ensemble again, got another: {name}."
            )
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        kept[name] = record | {"sha256": sha256, "digest": digest}
    _write(folder, {**manifest, "instances": kept})
    return kept


def _small(array: Any) -> Any:
    """The same numbers in single precision, where that holds them exactly."""
    if array.dtype != np.float64:
        return array
    single = array.astype(np.float32)
    return single if np.array_equal(single.astype(np.float64), array) else array


def published(directory: str | Path, specs: Sequence[Spec], seed: int) -> set[str]:
    """Names of those `specs` that a directory of published instances has.

    Parameters
    ----------
    directory
        Of the published instances.
    specs
        What is asked for.
    seed
        Of the training: instances of another seed are others.
    """
    manifest = read_manifest(directory)
    if manifest["seed"] != seed:
        return set()
    records = manifest["instances"]
    return {
        spec.name
        for spec in specs
        if spec.name in records
        and records[spec.name]["configuration"] == asdict(spec.configuration)
    }


def versions() -> dict[str, str]:
    """The versions that decide the bytes of an instance."""
    return {
        "ennopt": VERSION,
        "numpy": metadata.version("numpy"),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
    }


def _opened(folder: Path, seed: int) -> dict[str, Any]:
    """The manifest of `folder`, a new one if there is none."""
    expected = {"format": FORMAT, "seed": seed, "versions": versions()}
    if not (folder / MANIFEST).exists():
        return {**expected, "instances": {}}
    manifest = read_manifest(folder)
    for name, value in expected.items():
        if manifest[name] != value:
            raise ValueError(
                f"Expected instances made with {name} {value}, got {manifest[name]} at "
                f"{MANIFEST}. Choose another directory, or the same {name}."
            )
    return manifest


def _write(folder: Path, manifest: dict[str, Any]) -> None:
    ordered = {
        **manifest,
        "instances": dict(
            sorted(manifest["instances"].items(), key=lambda item: _natural(item[0]))
        ),
    }
    partial = folder / f"{MANIFEST}.partial"
    partial.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / MANIFEST)


def _natural(name: str) -> list[Any]:
    """Sort key that reads the numbers in a name as numbers."""
    return [(int(p), "") if p.isdecimal() else (0, p) for p in re.split(r"(\d+)", name)]


def read_manifest(directory: str | Path) -> dict[str, Any]:
    """The manifest of a directory of instances.

    Raises
    ------
    ValueError
        When there is none, or when it is damaged.
    """
    path = Path(directory) / MANIFEST
    if not path.is_file():
        raise ValueError(
            f"Expected a directory of instances, got no {MANIFEST} in {directory}. "
            "Make one: ennopt instances make DIR"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        complete = {"format", "seed", "versions", "instances"} <= set(manifest)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"Expected a manifest in JSON, got {error} in {path.name}."
        ) from error
    if not complete or manifest["format"] != FORMAT:
        raise ValueError(
            f"Expected a manifest of format {FORMAT}, got another in {path.name}."
        )
    return dict(manifest)


def find(directory: str | Path, name: str) -> dict[str, Any]:
    """The record of one instance; its file must have the recorded hash."""
    records = read_manifest(directory)["instances"]
    stem = name.removesuffix(".npz")
    if stem not in records:
        close = [other for other in records if other.startswith(stem.split("_")[0])]
        hint = f" There are {', '.join(close[:3])}, ..." if close else ""
        raise ValueError(f"Expected an instance in {MANIFEST}, got {name!r}.{hint}")
    record = dict(records[stem])
    file = Path(directory) / record["file"]
    if not file.is_file():
        raise ValueError(
            f"Expected the file {file.name}, got none. Make it again: ennopt "
            "instances make"
        )
    if hashlib.sha256(file.read_bytes()).hexdigest() != record["sha256"]:
        raise ValueError(
            f"Expected the bytes that the manifest records, got others at "
            f"{file.name}. Delete the file and make it again."
        )
    return record


def read_instance(
    directory: str | Path, name: str, orientation: str = "one"
) -> Ensemble:
    """The ensemble of an instance, to be maximized.

    Parameters
    ----------
    directory
        Of the instances.
    name
        With or without its suffix.
    orientation
        One of `ORIENTATIONS`.
    """
    record = find(directory, name)
    ensemble = read_npz(Path(directory) / record["file"])
    return oriented(ensemble, bool(record["negated"]), orientation)


def oriented(ensemble: Ensemble, negated: bool, orientation: str) -> Ensemble:
    """An ensemble of a file with its best value where `orientation` has it.

    The scaled target y of a function that is minimized is learned as ``1 - y``. Near
    zero the same maximizer has the value ``-y``: relative gaps become those of the
    paper, which minimizes y.

    Parameters
    ----------
    ensemble
        As in the file.
    negated
        Whether it predicts ``1 - y``, as the manifest tells.
    orientation
        One of `ORIENTATIONS`.

    Examples
    --------
    >>> from ennopt import Network
    >>> nets = Ensemble([Network([[[1.0]]], [[0.5]])])
    >>> float(oriented(nets, True, "zero")([[0.25]])[0, 0])
    -0.25
    """
    if orientation not in ORIENTATIONS:
        raise ValueError(
            f"Expected an orientation among {', '.join(ORIENTATIONS)}, got "
            f"{orientation!r}."
        )
    if orientation == "one" or not negated:
        return ensemble
    return ensemble.fold_output(1.0, -1.0)


def restrict(specs: Sequence[Spec], problems: Sequence[str]) -> tuple[Spec, ...]:
    """The specs of some problems only.

    Examples
    --------
    >>> len(restrict(PROFILES["paper"], ["wine"]))
    24
    """
    known = {spec.problem for spec in specs}
    for name in problems:
        if name not in known:
            raise ValueError(
                f"Expected one of {', '.join(sorted(known))}, got {name!r}."
            )
    return tuple(spec for spec in specs if spec.problem in problems)
