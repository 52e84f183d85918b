"""State dicts of PyTorch: networks rebuilt from the names and shapes of tensors.

A state dict does not hold activations. ReLU is taken to stand between any two affine
layers and nowhere else; whatever leaves room for another reading is refused.
"""

from __future__ import annotations

import math
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.torch import load_module
from ennopt.convert.verify import Loaded, combined
from ennopt.extras import require
from ennopt.network import ModelConfigurationError, check_size

NAME_DEPTH = 100
"""How many modules may stand inside each other in the name of a parameter."""


def load_state_file(path: Path) -> Loaded:
    """Read a file of one state dict or a list of them. Never runs code from it."""
    torch = require("torch", "torch")
    stored = path.stat().st_size // 2  # numbers of half precision
    size = 0
    try:  # the question alone may fail: an archive that says that it has several parts
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise _unreadable(error, path) from error
    check_size(size // 8, stored, str(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an error says it better
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (
        pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError,
        TypeError, AttributeError, OSError, MemoryError,
    ) as error:  # fmt: skip
        raise _unreadable(error, path) from error
    states = _states(content, str(path))
    # a tensor may be a view that is far larger than what is stored of it
    numbers = sum(math.prod(t.shape) for state in states for t in state.values())
    check_size(numbers, stored, str(path))
    return combined([load_state(state, str(path)) for state in states])


def _unreadable(error: Exception, path: Path) -> ModelConfigurationError:
    if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):
        got = "one that holds other objects or code"  # which torch says at length
    else:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        got = f"one that is damaged ({type(error).__name__}: {reason:.100})"
    return ModelConfigurationError(
        f"Expected a file of tensors alone (a state dict), got {got}: {path}. Save "
        "model.state_dict(), or load the module yourself and pass it."
    )


def _states(content: Any, where: str) -> list[Mapping[str, Any]]:
    """The state dicts of a file: one, a list of them, or one in a checkpoint."""
    entries = content if isinstance(content, list | tuple) else [content]
    states = []
    for entry in entries:
        state = entry
        for key in ("state_dict", "model_state_dict"):
            if isinstance(entry, Mapping) and key in entry:
                state = entry[key]
        if not is_state_dict(state):
            raise ModelConfigurationError(
                "Expected a state dict of tensors or a list of them, got "
                f"{type(state).__name__} in {where}. Save model.state_dict()."
            )
        states.append(state)
    return states


def is_state_dict(content: Any) -> bool:
    """Whether `content` maps names to tensors."""
    return (
        isinstance(content, Mapping)
        and len(content) > 0
        and all(_is_tensor(value) for value in content.values())
    )


def _is_tensor(value: Any) -> bool:
    kinds = {(c.__module__.partition(".")[0], c.__name__) for c in type(value).__mro__}
    return ("torch", "Tensor") in kinds


def load_state(state: Mapping[str, Any], where: str) -> Loaded:
    """Rebuild a network from a state dict: affine layers with ReLU between them."""
    return load_module(_rebuilt(state, where))


def _rebuilt(state: Mapping[str, Any], where: str) -> Any:
    """The sequential module that has this state, if only one comes to mind."""
    torch = require("torch", "torch")
    layers: dict[str, dict[str, Any]] = {}
    for key, tensor in state.items():
        prefix, _, leaf = str(key).rpartition(".")
        layers.setdefault(prefix, {})[leaf] = tensor
    _refuse_members(list(layers), where)
    modules: list[Any] = []
    previous = ""
    for name, tensors in layers.items():
        is_norm = "running_mean" in tensors
        _check_layer(name, tensors, is_norm, where)
        gap = _gap(previous, name)
        if modules:
            normed = is_norm or isinstance(modules[-1], torch.nn.BatchNorm1d)
            if gap == 1 and not normed:
                raise _ambiguous(
                    f"the layers {previous!r} and {name!r} leave no room for a ReLU "
                    "between them", where
                )  # fmt: skip
            if gap is None and normed:
                raise _ambiguous(
                    f"nothing tells on which side of the ReLU the batch norm next to "
                    f"{name!r} stands", where
                )  # fmt: skip
            if gap != 1 and not isinstance(modules[-1], torch.nn.ReLU):
                modules.append(torch.nn.ReLU())
        modules.append(
            _norm(tensors, torch) if is_norm else _affine(tensors, modules, name, where)
        )
        previous = name
    if not any(isinstance(m, torch.nn.Linear) for m in modules):
        raise ModelConfigurationError(
            f"Expected at least one affine layer, got none in {where}."
        )
    return torch.nn.Sequential(*modules)


def _ambiguous(what: str, where: str) -> PredictorNotSupportedError:
    return PredictorNotSupportedError(
        "Expected a state dict that leaves no doubt about the network (affine layers "
        f"with a ReLU between any two), but {what}, in {where}. Build the module, "
        "load the state into it and pass the module."
    )


def _gap(previous: str, name: str) -> int | None:
    """How far apart two layers of one nn.Sequential are."""
    left, _, i = previous.rpartition(".")
    right, _, j = name.rpartition(".")
    same = left == right and i.isdecimal() and j.isdecimal()
    return int(j) - int(i) if same else None


def _refuse_members(names: list[str], where: str) -> None:
    """A state dict of several networks does not say how they are combined."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name in names:
        parts = name.split(".")
        if len(parts) > NAME_DEPTH:
            raise ModelConfigurationError(
                f"Expected parameters at most {NAME_DEPTH} modules deep, got one "
                f"{len(parts)} deep in {where}."
            )
        for depth, part in enumerate(parts[:-1]):
            if part.isdecimal():
                rest = ".".join(parts[depth + 1 :])
                groups.setdefault(".".join(parts[:depth]), {}).setdefault(
                    part, []
                ).append(rest)
    for prefix, members in groups.items():
        same = len({tuple(rest) for rest in members.values()}) == 1
        if same and len(members) > 1 and all(len(r) > 1 for r in members.values()):
            raise _ambiguous(
                f"{prefix or 'it'!r} holds {len(members)} networks and not how they "
                "are combined (a list of state dicts is their mean)", where
            )  # fmt: skip


def _check_layer(name: str, tensors: dict[str, Any], is_norm: bool, where: str) -> None:
    known = {"weight", "bias"}
    if is_norm:
        known |= {"running_mean", "running_var", "num_batches_tracked"}
    unknown = sorted(set(tensors) - known)
    weight = tensors.get("weight")
    rank = 1 if is_norm else 2
    if unknown or (weight is None and not is_norm):
        got = unknown[0] if unknown else ", ".join(tensors)
        raise refuse(
            "parameters", repr(got), ("weight", "bias of Linear and BatchNorm1d"),
            where=f"{name!r} of {where}",
        )  # fmt: skip
    if weight is not None and weight.dim() != rank:
        raise refuse(
            "a weight", f"shape {tuple(weight.shape)}", ("a matrix of a Linear",),
            where=f"{name!r} of {where}",
        )  # fmt: skip


def _affine(tensors: dict[str, Any], modules: list[Any], name: str, where: str) -> Any:
    torch = require("torch", "torch")
    weight, bias = tensors["weight"], tensors.get("bias")
    outputs, inputs = weight.shape
    width = next(
        (m.out_features for m in reversed(modules) if hasattr(m, "out_features")),
        inputs,
    )
    if width != inputs or (bias is not None and tuple(bias.shape) != (outputs,)):
        raise ModelConfigurationError(
            f"Expected a layer with {width} inputs and a bias for each output, got "
            f"a weight of shape {tuple(weight.shape)} at {name!r} of {where}."
        )
    layer = torch.nn.Linear(inputs, outputs, bias=bias is not None, dtype=weight.dtype)
    layer.load_state_dict(tensors)
    return layer


def _norm(tensors: dict[str, Any], torch: Any) -> Any:
    mean = tensors["running_mean"]
    layer = torch.nn.BatchNorm1d(
        len(mean), affine="weight" in tensors, dtype=mean.dtype
    )
    layer.load_state_dict(tensors)
    return layer
