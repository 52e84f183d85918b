"""Ensembles in ``.npz`` files: what `Ensemble.save` writes and `ennopt.load` reads.

A file holds arrays ``net{i}.W{k}`` (outputs, inputs), ``net{i}.b{k}``,
``member_weights``, ``input_names`` and, if known, ``lower`` and ``upper``,
``target_range`` (the smallest and the largest target trained on), ``columns`` as the
text that `ennopt.columns.to_text` writes and ``classes`` likewise. A member whose
hidden layers are not all ReLU has their names in ``net{i}.activations``.

A file may come from anywhere: nothing of it is unpickled, and no array is made before
its header was found to fit the bytes that are there.
"""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ennopt.columns import from_text, to_text
from ennopt.network import (
    Array,
    Ensemble,
    ModelConfigurationError,
    Network,
    check_size,
    shown,
)
from ennopt.targets import Classes

# What zipfile, zlib and the reader of headers raise on damaged archives, found by
# flipping bytes.
_UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    RuntimeError,
    SyntaxError,
    TypeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def write(ensemble: Ensemble, path: Path) -> None:
    """Write an ensemble; see `Ensemble.save`."""
    arrays: dict[str, Any] = {
        "member_weights": ensemble.weights,
        "input_names": np.array(ensemble.input_names, dtype=np.str_),
    }
    if ensemble.lower is not None:
        arrays |= {"lower": ensemble.lower, "upper": ensemble.upper}
    if ensemble.target_range is not None:
        arrays["target_range"] = np.array(ensemble.target_range)
    if ensemble.columns is not None:
        arrays["columns"] = np.array(to_text(ensemble.columns), dtype=np.str_)
    if isinstance(ensemble.target, Classes):
        arrays["classes"] = np.array(ensemble.target.to_text(), dtype=np.str_)
    elif ensemble.target is not None:
        raise ModelConfigurationError(
            "Expected an ensemble whose outputs a file can describe, got one with "
            "a function of its outputs. Keep the original model."
        )
    for i, member in enumerate(ensemble.members):
        for k, (w, b) in enumerate(member.layers()):
            arrays |= {f"net{i}.W{k}": w, f"net{i}.b{k}": b}
        if not member.is_relu:
            names = [kind.name for kind in member.activations]
            arrays[f"net{i}.activations"] = np.array(names, dtype=np.str_)
    with path.open("wb") as stream:  # np.savez would append a suffix
        np.savez(stream, **arrays)


def read(path: Path) -> Ensemble:
    """Read an ensemble; see `ennopt.network.read_npz`."""
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected an .npz file, got none at {shown(str(path))}."
        )
    try:
        arrays = _read_arrays(path)
    except ModelConfigurationError:
        raise
    except _UNREADABLE as error:
        raise ModelConfigurationError(
            "Expected an .npz archive of plain arrays, got a file that cannot be "
            f"read as one ({error}): {path}. Write it with Ensemble.save."
        ) from error
    return _ensemble_of(arrays, path)


def _read_arrays(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        if stream.read(6) == b"\x93NUMPY":
            raise ValueError("it holds a single array")
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            check_size(size // 8, path.stat().st_size // 8, str(path))
            return {
                entry.filename.removesuffix(".npy"): _read_array(archive, entry)
                for entry in entries
            }


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Any:
    """One array, made only after its header was found to fit the bytes there are."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{entry.filename!r} is compressed in an unusual way")
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        if version not in readers:
            raise ValueError(f"{entry.filename!r} is of an unknown version {version}")
        shape, by_column, dtype = readers[version](member)
        if dtype.hasobject:
            raise ValueError(f"{entry.filename!r} holds Python objects, not numbers")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or size != entry.file_size - member.tell():
            raise ValueError(
                f"{entry.filename!r} declares {size:,} bytes and holds "
                f"{entry.file_size - member.tell():,}"
            )
        order: Literal["C", "F"] = "F" if by_column else "C"
        return np.ndarray(shape, dtype, member.read(), order=order)


def _ensemble_of(arrays: dict[str, Any], path: Path) -> Ensemble:
    members: list[Network] = []
    used = {
        "lower", "upper", "target_range", "member_weights", "input_names", "columns",
        "classes",
    }  # fmt: skip
    while f"net{len(members)}.W0" in arrays:
        i = len(members)
        ws: list[Array] = []
        bs: list[Array] = []
        while (name := f"net{i}.W{len(ws)}") in arrays:
            bias = f"net{i}.b{len(ws)}"
            if bias not in arrays:
                raise ModelConfigurationError(
                    f"Expected an array {bias} beside {name}, got none in {path}."
                )
            used |= {name, bias}
            ws.append(_numbers(arrays[name], name, path))
            bs.append(_numbers(arrays[bias], bias, path))
        names = arrays.get(f"net{i}.activations")
        used |= {f"net{i}.activations"}
        kinds = None if names is None else tuple(map(str, np.ravel(names)))
        try:
            members.append(Network(tuple(ws), tuple(bs), kinds))  # type: ignore[arg-type]
        except ValueError as error:  # of its arrays, or the name of an activation
            raise ModelConfigurationError(f"{error} In net{i} of {path}.") from error
    if unknown := sorted(set(arrays) - used):
        raise ModelConfigurationError(
            "Expected arrays net{i}.W{k}, net{i}.b{k} and net{i}.activations numbered "
            "from 0 without holes, lower, upper, target_range, member_weights, "
            f"input_names, columns and classes, got {unknown[0]!r} in {path}."
        )
    if not members:
        raise ModelConfigurationError(
            f"Expected at least one member (net0.W0, net0.b0), got none in {path}."
        )
    optional: dict[str, Any] = {
        name: _numbers(arrays[key], key, path)
        for name, key in (
            ("lower", "lower"), ("upper", "upper"), ("weights", "member_weights"),
            ("target_range", "target_range"),
        )
        if key in arrays
    }  # fmt: skip
    names = arrays.get("input_names")
    try:
        if "columns" in arrays:
            optional["columns"] = from_text(str(arrays["columns"]))
        if "classes" in arrays:
            optional["target"] = Classes.from_text(str(arrays["classes"]))
    except ValueError as error:
        raise ModelConfigurationError(f"{error} In {path}.") from error
    try:
        return Ensemble(
            tuple(members),
            input_names=None if names is None else tuple(map(str, np.ravel(names))),  # type: ignore[arg-type]
            source=path.name,
            **optional,
        )
    except ModelConfigurationError as error:
        raise ModelConfigurationError(f"{error} In {path}.") from error


def _numbers(array: Any, name: str, path: Path) -> Array:
    if array.dtype.kind not in "fiu":
        raise ModelConfigurationError(
            f"Expected real numbers, got {array.dtype} in array {name} of {path}."
        )
    return np.asarray(array, dtype=np.float64)
