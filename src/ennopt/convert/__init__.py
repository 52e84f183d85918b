"""Foreign models in, ensembles out. Frameworks are imported only for their models."""

from __future__ import annotations

import errno
import os
import stat
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.convert.verify import Loaded, combined
from ennopt.network import (
    Ensemble,
    ModelConfigurationError,
    Network,
    read_npz,
    shown,
)

__all__ = ["Loaded", "PredictorNotSupportedError", "load", "load_with_original"]

_SUFFIXES = ".npz, .onnx, .keras, .pt or .pth"
ACCEPTED_MODELS = (
    "scikit-learn regressors, torch modules and state dicts, Keras models, ONNX "
    "models, ennopt networks and ensembles, files ending in "
    f"{_SUFFIXES}, and lists of any of these"
)
_UNSAFE = {".joblib", ".pkl", ".pickle"}
_LEGACY = {".h5", ".hdf5"}


def load(model: Any, *, input_names: Sequence[str] | None = None) -> Ensemble:
    """Convert a trained model, or a list of models, to an ensemble.

    Parameters
    ----------
    model
        A scikit-learn regressor, a torch module, a Keras model, an ONNX model, a
        `Network`, an `Ensemble`, the path of a file (``.npz``, ``.onnx``, ``.keras``,
        ``.pt``, ``.pth``), or a list of any of these: their mean.
    input_names
        Name of each input; by default the names the model was trained with, if it
        kept them, or ``x0, x1, ...``.

    Returns
    -------
    Ensemble
        In the units of the original model: scalers are folded in. `deviation` is its
        largest distance from the original's own predictions on random points.

    Raises
    ------
    PredictorNotSupportedError
        When a layer, an operator or the model itself cannot be converted.
    ModelConfigurationError
        When the model is damaged, not fitted, or does not fit together.
    MissingExtraError
        When the package that reads this kind of model is not installed.

    Examples
    --------
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> load([absolute, absolute], input_names=["height"])
    Ensemble(2 x Network(1 -> 2 -> 1))
    """
    return load_with_original(model, input_names=input_names).ensemble


def load_with_original(
    model: Any, *, input_names: Sequence[str] | None = None
) -> Loaded:
    """What `load` returns and, beside it, the original to be asked again.

    An ensemble, a network and an ``.npz`` file are their own originals: there is
    nothing to ask.
    """
    if isinstance(input_names, str):
        raise TypeError(
            f"Expected a list of input names, got the text {input_names!r:.60}. "
            "Pass [name, name, ...]."
        )
    names = None if input_names is None else tuple(input_names)
    loaded = _convert(model, None if names is None else len(names))
    if names is None:
        return loaded
    if loaded.ensemble.columns is not None:
        raise ValueError(
            "Expected no input names for a model that knows its columns, got "
            f"{list(names)!r:.80}. Leave them out."
        )
    return loaded._replace(ensemble=replace(loaded.ensemble, input_names=names))


def _convert(model: Any, num_inputs: int | None) -> Loaded:
    if isinstance(model, Ensemble):
        return Loaded(model)
    if isinstance(model, Network):
        return Loaded(Ensemble((model,)))
    if isinstance(model, str | os.PathLike):
        return _read(Path(model), num_inputs)
    if isinstance(model, list | tuple):
        return combined([_convert(m, num_inputs) for m in model])
    if isinstance(model, dict):
        from ennopt.convert import torch_state

        if torch_state.is_state_dict(model):
            return torch_state.load_state(model, "the state dict")
    framework = _framework(model)
    if framework == "sklearn":
        from ennopt.convert import sklearn

        return sklearn.load_sklearn(model)
    if framework == "torch":
        from ennopt.convert import torch

        return torch.load_module(model, num_inputs)
    if framework == "keras":
        from ennopt.convert import keras

        return keras.load_model(model)
    if framework == "onnx":
        from ennopt.convert import onnx

        return onnx.load_model(getattr(model, "model_proto", model), num_inputs)
    if isinstance(model, type):
        raise PredictorNotSupportedError(
            f"Expected a trained model, got the class {model.__name__}. Make an "
            "instance, train it and pass that."
        )
    kind = type(model)
    name = kind.__name__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    raise PredictorNotSupportedError(
        f"Expected a trained model, got {name}. Accepted are {ACCEPTED_MODELS}."
    )


def _framework(model: Any) -> str | None:
    """The framework whose model this is, by the names of its classes alone."""
    kinds = {
        ("sklearn", "BaseEstimator"): "sklearn",
        ("torch", "Module"): "torch",
        ("keras", "Layer"): "keras",
        ("onnx", "ModelProto"): "onnx",
        ("torch", "ONNXProgram"): "onnx",  # what torch.onnx.export returns
    }
    # the most derived class decides: Keras layers on torch are torch modules too
    for kind in type(model).__mro__:
        package = kind.__module__.partition(".")[0]
        if framework := kinds.get((package, kind.__name__)):
            return framework
    return None


def _read(path: Path, num_inputs: int | None) -> Loaded:
    suffix = path.suffix.lower()
    content = _content(path)
    if suffix in _UNSAFE:
        raise PredictorNotSupportedError(
            f"Expected a file that can be read without running code from it, got a "
            f"pickle: {path}. If you trust it, load it yourself and pass the object."
        )
    if suffix in _LEGACY:
        raise PredictorNotSupportedError(
            f"Expected a .keras file, got the older format {suffix}: {path}. Save the "
            "model as .keras, or load it yourself and pass the object."
        )
    if content not in ("", suffix.replace(".pth", ".pt")):
        raise ModelConfigurationError(
            f"Expected a file that ends as its content does, in {content}, got "
            f"{path}. Rename it."
        )
    if suffix == ".npz":
        return Loaded(read_npz(path))
    if suffix == ".onnx":
        from ennopt.convert import onnx

        loaded = onnx.load_file(path, num_inputs)
    elif suffix == ".keras":
        from ennopt.convert import keras

        loaded = keras.load_file(path)
    elif suffix in (".pt", ".pth"):
        from ennopt.convert import torch_state

        loaded = torch_state.load_state_file(path)
    else:
        raise PredictorNotSupportedError(
            f"Expected a file ending in {_SUFFIXES}, got {path.name!r}. Export the "
            "model to ONNX, or load it yourself and pass the object."
        )
    return loaded._replace(ensemble=replace(loaded.ensemble, source=path.name))


def _content(path: Path) -> str:
    """The suffix that the content of a file goes by, or "" if it does not tell.

    Refuses what is no file or cannot be read.
    """
    try:
        head, names = _peek(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(
            f"Expected the file of a model, got none at "
            f"{shown(str(path.absolute()))}. Check the path."
        ) from error
    except IsADirectoryError as error:
        raise PredictorNotSupportedError(
            f"Expected the file of a model, got a folder: {path.absolute()}. Accepted "
            f"are files ending in {_SUFFIXES}."
        ) from error
    except OSError as error:
        raise type(error)(
            f"Expected a file that can be read, got {error.strerror or error}: "
            f"{shown(str(path))}."
        ) from error
    if "data.pkl" in names:
        return ".pt"
    if "config.json" in names:
        return ".keras"
    if any(name.endswith(".npy") for name in names):
        return ".npz"
    return ".h5" if head.startswith(b"\x89HDF") else ""


def _peek(path: Path) -> tuple[bytes, set[str]]:
    """The first bytes of a file and, if it is an archive, the names inside."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "a device or a pipe")
    with path.open("rb") as stream:
        head = stream.read(8)
    try:
        with zipfile.ZipFile(path) as archive:
            return head, {name.rpartition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return head, set()
