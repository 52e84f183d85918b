"""Foreign models in, ensembles out. Frameworks are imported only for their models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ennopt.convert.errors import PredictorNotSupportedError
from ennopt.convert.verify import combine
from ennopt.network import Ensemble, Network, read_npz

__all__ = ["PredictorNotSupportedError", "load"]

ACCEPTED = (
    "scikit-learn regressors, torch modules and state dicts, Keras models, ONNX "
    "models, ennopt networks and ensembles, files ending in .npz, .onnx, .keras, .pt "
    "or .pth, and lists of any of these"
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
    names = None if input_names is None else tuple(input_names)
    ensemble = _convert(model, None if names is None else len(names))
    return ensemble if names is None else replace(ensemble, input_names=names)


def _convert(model: Any, num_inputs: int | None) -> Ensemble:
    if isinstance(model, Ensemble):
        return model
    if isinstance(model, Network):
        return Ensemble((model,))
    if isinstance(model, str | os.PathLike):
        return _read(Path(model), num_inputs)
    if isinstance(model, list | tuple):
        return combine([_convert(m, num_inputs) for m in model])
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
    kind = type(model)
    name = kind.__name__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    raise PredictorNotSupportedError(
        f"Expected a trained model, got {name}. Accepted are {ACCEPTED}."
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


def _read(path: Path, num_inputs: int | None) -> Ensemble:
    suffix = path.suffix.lower()
    if not path.exists():
        raise FileNotFoundError(f"Expected the file of a model, got none at {path}.")
    if path.is_dir():
        raise PredictorNotSupportedError(
            f"Expected the file of a model, got a folder: {path}. Accepted are "
            "files ending in .npz, .onnx, .keras, .pt or .pth."
        )
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
    if suffix == ".npz":
        return read_npz(path)
    if suffix == ".onnx":
        from ennopt.convert import onnx

        return replace(onnx.load_file(path, num_inputs), source=path.name)
    if suffix == ".keras":
        from ennopt.convert import keras

        return replace(keras.load_file(path), source=path.name)
    if suffix in (".pt", ".pth"):
        from ennopt.convert import torch_state

        return replace(torch_state.load_state_file(path), source=path.name)
    raise PredictorNotSupportedError(
        f"Expected a file ending in .npz, .onnx, .keras, .pt or .pth, got "
        f"{path.name!r}. Rename the file, or load the model and pass the object."
    )
