"""Keras 3 models: Sequential and functional graphs of dense layers."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ennopt.activations import GELU, GELUTanh, SiLU, Tanh
from ennopt.convert import graph
from ennopt.convert import piecewise as pw
from ennopt.convert.affine import Room, Tensor, Value, as_value, inputs
from ennopt.convert.classes import Scores, is_sigmoid, read_by, softmax, to_scores
from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.verify import UNITS, Loaded, Original, verified
from ennopt.extras import MissingExtraError, require
from ennopt.network import Array, ModelConfigurationError, check_size

ACTIVATIONS = (
    "linear", "relu", "leaky_relu", "relu6", "hard_sigmoid", "hard_tanh", "tanh",
    "softplus", "elu", "silu", "gelu", "sigmoid", "softmax",
)  # fmt: skip
LAYERS = (
    f"Dense ({', '.join(ACTIVATIONS)})", "Activation (the same)", "ReLU", "LeakyReLU",
    "PReLU", "ELU", "Conv1D to 3D", "MaxPooling and AveragePooling 1D to 3D",
    "GlobalMaxPooling and GlobalAveragePooling 1D to 3D", "Maximum", "Minimum",
    "Normalization", "Rescaling", "BatchNormalization", "Dropout", "Flatten", "Reshape",
    "Concatenate", "Average", "Add", "Subtract", "InputLayer",
    "Softmax as the last step", "Sequential and functional models",
)  # fmt: skip
_PLACES = ("1D", "2D", "3D")
_POOLS = {
    f"{kind}Pooling{n}"
    for kind in ("Max", "Average", "GlobalMax", "GlobalAverage")
    for n in _PLACES
}
_CONVOLUTIONS = {f"Conv{n}" for n in _PLACES}
_UNTOUCHED = {
    "InputLayer", "Dropout", "GaussianDropout", "GaussianNoise", "AlphaDropout",
    "ActivityRegularization", "Identity", "SpatialDropout1D", "SpatialDropout2D",
    "SpatialDropout3D",
}  # fmt: skip
_BUILT = {"Dense", "PReLU", *_CONVOLUTIONS}
_CONVERTED = {
    "Activation", "Add", "Average", "BatchNormalization", "Concatenate", "ELU",
    "Flatten", "LeakyReLU", "Maximum", "Minimum", "Normalization", "ReLU", "Rescaling",
    "Reshape", "Softmax", "Subtract", *_BUILT, *_POOLS,
}  # fmt: skip
_FILE_MODULES = {
    None, "builtins", "keras", "keras.layers", "keras.models", "keras.initializers",
    "keras.regularizers", "keras.constraints", "keras.dtype_policies",
    "keras.optimizers", "keras.losses", "keras.metrics", "keras.src.models.functional",
}  # fmt: skip


CALL_LIMIT = 10_000
"""Calls of layers that a file may ask for beyond four for each layer it holds."""


def load_file(path: Path) -> Loaded:
    """Read a ``.keras`` file. Files that name code of their own are refused."""
    _check_file(path)
    keras = _require_keras()
    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except (
        ValueError, TypeError, KeyError, OSError, AttributeError, RuntimeError,
        IndexError, EOFError,
    ) as error:  # fmt: skip
        reason = str(error).partition("\n")[0]
        raise ModelConfigurationError(
            f"Expected a saved Keras model, got a file that Keras cannot read "
            f"({reason:.150}): {path}."
        ) from error
    return load_model(model)


def _require_keras() -> Any:
    try:
        return require("keras", "keras")
    except ModuleNotFoundError as error:
        if isinstance(error, MissingExtraError):
            raise
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
        raise MissingExtraError(
            f"Expected the backend of Keras to be installed, got no {backend}. "
            'Run: pip install "ennopt[keras,torch]" and set KERAS_BACKEND=torch',
            name=error.name,
        ) from error


def _check_file(path: Path) -> None:
    """Refuse archives that are damaged, that reach for code, or that would explode.

    Keras allocates the layers of the configuration before it looks at the weights.
    """
    stored = path.stat().st_size // 2  # numbers of half precision
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            check_size(size // 4, stored, str(path))
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} is damaged")
            config = json.loads(archive.read("config.json"))
            layers = _checked_layers(config, str(path))
            check_size(sum(map(_layer_size, layers)), stored, str(path))
            check_size(_weights_size(archive), stored, str(path))
            calls, limit = _calls(config), CALL_LIMIT + 4 * len(layers)
    except (ModelConfigurationError, PredictorNotSupportedError, MissingExtraError):
        raise
    except (
        zipfile.BadZipFile, zlib.error, LookupError, ValueError, EOFError, OSError,
        RuntimeError, TypeError, AttributeError,
    ) as error:  # fmt: skip
        raise ModelConfigurationError(
            f"Expected a .keras archive with a config.json, got a file that cannot be "
            f"read as one ({error}): {path}. Save the model again with model.save."
        ) from error
    if calls > limit:
        raise ModelConfigurationError(
            f"Expected a model of {len(layers)} layers to call them at most "
            f"{limit:,} times, got {calls:,} in {path}. A trained network takes far "
            "fewer."
        )


def _weights_size(archive: zipfile.ZipFile) -> int:
    """How many numbers the weights declare."""
    if "model.weights.h5" not in archive.namelist():
        return 0
    h5py = require("h5py", "keras")
    sizes: list[int] = []
    with h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r") as weights:
        weights.visititems(lambda _, item: sizes.append(getattr(item, "size", 0) or 0))
    return sum(sizes)


def _checked_layers(config: Any, where: str) -> list[dict[str, Any]]:
    """The layers in the configuration of a model, none of which brings code."""
    layers, queue = [], [config]
    while queue:
        entry = queue.pop()
        if isinstance(entry, list):
            queue.extend(entry)
        if not isinstance(entry, dict):
            continue
        queue.extend(entry.values())
        if "class_name" not in entry:
            continue
        module, name = entry.get("module"), str(entry["class_name"])
        plain = module in _FILE_MODULES or str(module).startswith("keras.src.ops.")
        if not plain or name in ("Lambda", "function"):
            raise refuse(
                "a layer", name, LAYERS, where=where,
                remedy="It would run code from the file. If you trust it, load the "
                "model yourself and pass it.",
            )  # fmt: skip
        if module == "keras.layers":
            place = f"{entry['config'].get('name', name)!r} of {where}"
            if name not in _CONVERTED | _UNTOUCHED:
                raise refuse("a layer", name, LAYERS, where=place)
            if name in _BUILT and not (entry.get("build_config") or {}).get(
                "input_shape"
            ):
                raise ModelConfigurationError(
                    f"Expected layers that were built before they were saved, got one "
                    f"that was not at {place}. Call the model on data, then save it."
                )
            layers.append(entry)
    return layers


def _layer_size(entry: dict[str, Any]) -> int:
    """About as many numbers as Keras allocates to build a layer."""
    config, build = entry["config"], entry.get("build_config") or {}
    shape = config.get("batch_shape") or build.get("input_shape") or []
    sizes = [n for part in shape for n in (part if isinstance(part, list) else [part])]
    if "filters" in config:
        window = config["kernel_size"]
        window = window if isinstance(window, list) else [window] * 3
        weights = math.prod(map(int, window)) * int(config["filters"])
        return max(int(n) for n in sizes if n is not None) * weights
    units = int(config.get("units", 1))
    return math.prod(int(n) for n in sizes if n is not None) * max(1, units)


def _calls(entry: dict[str, Any]) -> int:
    """How often layers are called, those of a model within as often as it is."""
    layers = entry.get("config", {}).get("layers")
    inside = 1 if layers is None else sum(_calls(layer) for layer in layers)
    return max(1, len(entry.get("inbound_nodes", ()))) * inside


def load_model(model: Any) -> Loaded:
    """Convert a Keras model and check it against `model.predict`."""
    keras = _require_keras()
    if not isinstance(model, keras.Model):
        raise refuse("a Keras model", type(model).__name__, LAYERS)
    if isinstance(model, keras.Sequential) and not model.built:
        raise ModelConfigurationError(
            "Expected a model that knows its inputs, got a Sequential that was not "
            "built. Call it on data, or start it with keras.Input."
        )
    name = type(model).__name__
    if not hasattr(model, "inputs") or not model.inputs:
        raise refuse(
            "a Keras model", f"the subclass {name}", LAYERS,
            remedy="Its graph is hidden in Python code: build it with the functional "
            "interface, or export it to ONNX and load that.",
        )  # fmt: skip
    if len(model.outputs) != 1:
        raise ModelConfigurationError(
            f"Expected a model with one output tensor, got {len(model.outputs)}. "
            "Make a keras.Model with the one to optimize."
        )
    shapes = [tuple(1 if n is None else n for n in t.shape[1:]) for t in model.inputs]
    for tensor in model.inputs:
        if any(n is None for n in tensor.shape[1:]):
            raise ModelConfigurationError(
                f"Expected inputs of a known size, got shape {tuple(tensor.shape)}."
            )
    room = Room(int(model.count_params()))
    source, values = inputs([(1, *shape) for shape in shapes], room)
    with np.errstate(invalid="ignore", over="ignore"):
        output = _Reader(keras, room).model(model, values)
        ensemble = to_scores(output, source, room)
    original = _original(model, shapes, keras)
    return verified(ensemble, original, units=source.units, source=f"keras {name}")


def _original(model: Any, shapes: list[tuple[int, ...]], keras: Any) -> Original:
    """The model as Keras computes it."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    types = [
        np.float64 if tensor.dtype == "float64" else np.float32
        for tensor in model.inputs
    ]

    def predict(x: Array) -> Any:
        parts = zip(np.split(x, ends, axis=1), shapes, types, strict=True)
        blocks = [block.reshape(-1, *shape).astype(t) for block, shape, t in parts]
        given = blocks if len(blocks) > 1 else blocks[0]
        return keras.ops.convert_to_numpy(model(given, training=False))

    names = {str(layer.compute_dtype) for layer in model._flatten_layers()}
    coarsest = max(names & UNITS.keys(), key=lambda name: UNITS[name])
    return Original(predict, coarsest)


class _Reader:
    """Walks the graph of a model backwards from its output."""

    def __init__(self, keras: Any, room: Room) -> None:
        self.keras = keras
        self.room = room
        self.layers = self._layer_table()

    def model(self, model: Any, values: Sequence[Tensor]) -> Tensor | Scores:
        """Output of a model, maybe nested in another, for the values of its inputs."""
        if isinstance(model, self.keras.Sequential):
            value: Tensor | Scores = values[0]
            for layer in model.layers:
                value = self.call(layer, [value])
            return value
        known = {id(t): v for t, v in zip(model.inputs, values, strict=True)}
        order: list[Any] = list(model.outputs)
        while order:  # an explicit stack: deep models must not exhaust Python's
            tensor = order[-1]
            if id(tensor) in known:
                order.pop()
                continue
            operation, node_index, _ = tensor._keras_history
            node = operation._inbound_nodes[node_index]
            missing = [t for t in node.input_tensors if id(t) not in known]
            if missing:
                order.extend(missing)
                continue
            if len(node.output_tensors) != 1:
                raise refuse("a layer", type(operation).__name__, LAYERS,
                             where=f"'{operation.name}'")  # fmt: skip
            known[id(tensor)] = self._apply(operation, node, known)
        return known[id(model.outputs[0])]

    def _apply(self, operation: Any, node: Any, known: dict[int, Any]) -> Any:
        """Output of one node; constants among its arguments stay in their places."""
        if isinstance(operation, self.keras.layers.Layer):
            return self.call(operation, [known[id(t)] for t in node.input_tensors])
        self.room.where = f"'{operation.name}'"
        name = type(operation).__name__
        functions = _function_table()
        if name not in functions:
            raise refuse("an operation", name, (*LAYERS, *functions))
        args = [self._argument(a, known) for a in node.arguments.args]
        args = read_by(name, args)
        given = node.arguments.kwargs.items()
        options = {key: self._argument(a, known) for key, a in given}
        options = read_by(name, options)
        attributes = {
            key: getattr(operation, key)
            for key in (
                "axis",
                "keepdims",
                "newshape",
                "negative_slope",
                "alpha",
                "approximate",
            )
            if hasattr(operation, key)
        }
        if name == "Clip":
            attributes = {"low": operation.x_min, "high": operation.x_max}
        try:
            return functions[name](*args, **options, **attributes)
        except ModelConfigurationError:
            raise
        except (ValueError, IndexError) as error:
            raise ModelConfigurationError(
                f"Expected shapes that fit, got {error} at '{operation.name}'."
            ) from error

    def _argument(self, argument: Any, known: dict[int, Any]) -> Any:
        if id(argument) in known:
            return known[id(argument)]
        if isinstance(argument, list | tuple):
            return [self._argument(a, known) for a in argument]
        if isinstance(argument, int | float | np.ndarray) or argument is None:
            return argument
        return self._numpy(argument)

    def _numpy(self, tensor: Any) -> Array:
        array = self.keras.ops.convert_to_numpy(tensor)
        return np.asarray(array, dtype=np.float64)

    def call(self, layer: Any, values: list[Any]) -> Tensor | Scores:
        """Output of one layer."""
        if isinstance(layer, self.keras.Model):
            if not getattr(layer, "inputs", None):
                raise refuse("a layer", f"the subclassed model {type(layer).__name__}",
                             LAYERS, where=f"'{layer.name}'")  # fmt: skip
            return self.model(layer, values)
        self.room.where = f"'{layer.name}'"
        name = type(layer).__name__
        is_own = type(layer).__module__.partition(".")[0] == "keras"
        result: Tensor | Scores = values[0]
        if is_own and name in _UNTOUCHED:
            return result
        if not is_own or name not in self.layers:
            raise refuse("a layer", name, LAYERS, where=f"'{layer.name}'")
        if name in ("Flatten", "Reshape") and is_sigmoid(result):
            return Scores(self.layers[name](layer, [result.value]), "sigmoid")
        values = read_by(name, values)
        try:
            result = self.layers[name](layer, values)
        except ModelConfigurationError:
            raise
        except (ValueError, IndexError) as error:
            raise ModelConfigurationError(
                f"Expected shapes that fit, got {error} at '{layer.name}'."
            ) from error
        return result

    def _layer_table(self) -> dict[str, Callable[[Any, list[Any]], Any]]:
        return {
            "Dense": self._dense,
            "ReLU": self._relu,
            "ELU": lambda layer, v: graph.elu(v[0], float(layer.alpha)),
            "Activation": lambda layer, v: self._activated(layer, v[0]),
            "Normalization": self._normalization,
            "Rescaling": self._rescaling,
            "BatchNormalization": self._batch_normalization,
            "Flatten": lambda layer, v: graph.flatten(v[0], 1),
            "Reshape": lambda layer, v: graph.reshape(v[0], (1, *layer.target_shape)),
            "Concatenate": lambda layer, v: graph.concatenate(v, layer.axis),
            "Average": lambda layer, v: graph.mean_of(v),
            "Add": lambda layer, v: graph.sum_of(v),
            "Subtract": lambda layer, v: graph.subtract(*v),
            "Softmax": lambda layer, v: softmax(v[0], layer.axis),
            "Maximum": lambda layer, v: pw.maximum_of(v),
            "Minimum": lambda layer, v: pw.minimum_of(v),
            "LeakyReLU": lambda layer, v: pw.leaky(v[0], layer.negative_slope),
            "PReLU": lambda layer, v: pw.leaky(v[0], self._numpy(layer.alpha)),
            **dict.fromkeys(_CONVOLUTIONS, self._convolution),
            **dict.fromkeys(_POOLS, self._pooled),
        }

    def _activated(self, layer: Any, value: Tensor) -> Tensor | Scores:
        activations = self.keras.activations
        if layer.activation in (None, activations.linear):
            return value
        table: dict[Any, Callable[[Tensor], Tensor | Scores]] = {
            activations.relu: graph.relu,
            activations.leaky_relu: lambda v: pw.leaky(v, 0.2),
            activations.relu6: lambda v: pw.clip(v, 0.0, 6.0),
            activations.hard_sigmoid: pw.hard_sigmoid,
            activations.hard_tanh: lambda v: pw.clip(v, -1.0, 1.0),
            activations.tanh: lambda v: graph.activate(v, Tanh()),
            activations.softplus: graph.softplus,
            activations.elu: graph.elu,
            activations.silu: lambda v: graph.activate(v, SiLU()),
            activations.gelu: lambda v: graph.activate(v, GELU()),
            activations.sigmoid: lambda v: Scores(v, "sigmoid"),
            activations.softmax: lambda v: softmax(v, -1),
        }
        if layer.activation in table:
            return table[layer.activation](value)
        name = getattr(layer.activation, "__name__", type(layer.activation).__name__)
        raise refuse("an activation", name, ACTIVATIONS, where=f"'{layer.name}'")

    def _dense(self, layer: Any, values: list[Any]) -> Tensor | Scores:
        value: Tensor = graph.matmul(values[0], self._numpy(layer.kernel))
        if layer.bias is not None:
            value = graph.add(value, self._numpy(layer.bias))
        return self._activated(layer, value)

    def _relu(self, layer: Any, values: list[Any]) -> Tensor:
        if layer.threshold:
            raise refuse("a ReLU", f"threshold={layer.threshold}", ("threshold=0",),
                         where=f"'{layer.name}'",
                         remedy="It jumps there.")  # fmt: skip
        value = values[0]
        if layer.max_value is not None and layer.negative_slope:
            value = pw.clip(value, None, float(layer.max_value))
        elif layer.max_value is not None:
            return pw.clip(value, 0.0, float(layer.max_value))
        slope = float(layer.negative_slope or 0.0)
        return pw.leaky(value, slope) if slope else graph.relu(value)

    def _convolution(self, layer: Any, values: list[Any]) -> Tensor | Scores:
        rank = layer.rank
        kernel = self._numpy(layer.kernel)  # (*sizes, channels, outputs)
        value = self._channels_first(layer, values[0])
        pads = self._pads(layer, value, layer.kernel_size, layer.dilation_rate)
        result: Tensor = pw.convolve(
            value, np.moveaxis(kernel, (-1, -2), (0, 1)),
            None if layer.bias is None else self._numpy(layer.bias),
            strides=_each(layer.strides, rank), pads=pads,
            dilations=_each(layer.dilation_rate, rank), groups=layer.groups,
        )  # fmt: skip
        return self._activated(layer, self._channels_back(layer, result))

    def _pooled(self, layer: Any, values: list[Any]) -> Tensor:
        value = self._channels_first(layer, values[0])
        rank = len(value.shape) - 2
        result: Tensor
        if type(layer).__name__.startswith("Global"):
            reduce = pw.largest if "Max" in type(layer).__name__ else graph.mean
            result = reduce(value, list(range(2, rank + 2)), layer.keepdims)
            return self._channels_back(layer, result) if layer.keepdims else result
        sizes, strides = _each(layer.pool_size, rank), _each(layer.strides, rank)
        pads = self._pads(layer, value, sizes, [1] * rank)
        if "Max" in type(layer).__name__:
            result = pw.max_pool(
                value, sizes, strides=strides, pads=pads, dilations=[1] * rank
            )
        else:
            result = pw.average_pool(
                value, sizes, strides=strides, pads=pads, count_pads=False
            )
        return self._channels_back(layer, result)

    def _channels_first(self, layer: Any, value: Tensor) -> Value:
        """An image as ``(batch, channels, *places)``."""
        value = as_value(value)
        if layer.data_format == "channels_first":
            return value
        rank = len(value.shape)
        return graph.transpose(value, [0, rank - 1, *range(1, rank - 1)])

    def _channels_back(self, layer: Any, value: Tensor) -> Tensor:
        if layer.data_format == "channels_first":
            return value
        rank = len(as_value(value).shape)
        return graph.transpose(value, [0, *range(2, rank), 1])

    def _pads(
        self, layer: Any, value: Value, sizes: Any, dilations: Any
    ) -> list[tuple[int, int]]:
        places = value.shape[2:]
        rank = len(places)
        if layer.padding == "valid":
            return [(0, 0)] * rank
        if layer.padding != "same":
            raise refuse("a padding of", layer.padding, ("valid", "same"),
                         where=f"'{layer.name}'")  # fmt: skip
        pads = []
        settings = (sizes, layer.strides, dilations)
        for n, k, s, d in zip(places, *(_each(e, rank) for e in settings), strict=True):
            total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
            pads.append((total // 2, total - total // 2))
        return pads

    def _normalization(self, layer: Any, values: list[Any]) -> Tensor:
        if layer.mean is None or layer.variance is None:
            raise ModelConfigurationError(
                f"Expected an adapted Normalization, got one that is not at "
                f"'{layer.name}'. Call adapt first."
            )
        mean = self._numpy(layer.mean)
        spread = np.maximum(
            np.sqrt(self._numpy(layer.variance)), self.keras.backend.epsilon()
        )
        if layer.invert:
            return graph.add(graph.multiply(values[0], spread), mean)
        return graph.divide(graph.subtract(values[0], mean), spread)

    def _rescaling(self, layer: Any, values: list[Any]) -> Tensor:
        scaled = graph.multiply(values[0], np.asarray(layer.scale, dtype=np.float64))
        return graph.add(scaled, np.asarray(layer.offset, dtype=np.float64))

    def _batch_normalization(self, layer: Any, values: list[Any]) -> Tensor:
        value = as_value(values[0])
        rank = len(value.shape)
        axis = layer.axis if isinstance(layer.axis, int) else layer.axis[0]
        if axis % rank != rank - 1:
            raise refuse("a BatchNormalization", f"axis={axis}", ("the last axis",),
                         where=f"'{layer.name}'")  # fmt: skip
        factor = 1.0 / np.sqrt(self._numpy(layer.moving_variance) + layer.epsilon)
        if layer.scale:
            factor = factor * self._numpy(layer.gamma)
        shift = -factor * self._numpy(layer.moving_mean)
        if layer.center:
            shift = shift + self._numpy(layer.beta)
        return graph.add(graph.multiply(value, factor), shift)


def _each(setting: Any, rank: int) -> list[int]:
    """A setting for each axis of places; one number stands for all."""
    return (
        [int(setting)] * rank if isinstance(setting, int) else list(map(int, setting))
    )


def _function_table() -> dict[str, Callable[..., Any]]:
    """Functions of keras.ops, by the name of their operation."""
    g = graph

    def axes(axis: Any) -> list[int] | None:
        if axis is None:
            return None
        return [int(a) for a in np.atleast_1d(axis)]

    return {
        "Add": g.add,
        "Subtract": g.subtract,
        "Multiply": g.multiply,
        "Divide": g.divide,
        "TrueDivide": g.divide,
        "Negative": lambda x: g.scale(x, -1.0),
        "Matmul": g.matmul,
        "Relu": lambda x: g.relu(x),
        "Tanh": lambda x: g.activate(x, Tanh()),
        "Sigmoid": lambda x: Scores(x, "sigmoid"),
        "Softmax": lambda x, axis=-1: softmax(x, axis),
        "Softplus": lambda x: g.softplus(x),
        "Elu": lambda x, alpha=1.0: g.elu(x, alpha),
        "Silu": lambda x: g.activate(x, SiLU()),
        "Gelu": lambda x, approximate=True: g.activate(
            x, GELUTanh() if approximate else GELU()
        ),
        "Maximum": pw.maximum,
        "Minimum": pw.minimum,
        "Max": lambda x, axis=None, keepdims=False: pw.largest(x, axes(axis), keepdims),
        "Min": lambda x, axis=None, keepdims=False: pw.smallest(
            x, axes(axis), keepdims
        ),
        "LeakyRelu": lambda x, negative_slope: pw.leaky(x, negative_slope),
        "Relu6": lambda x: pw.clip(x, 0.0, 6.0),
        "HardSigmoid": lambda x: pw.hard_sigmoid(x),
        "HardTanh": lambda x: pw.clip(x, -1.0, 1.0),
        "Absolute": lambda x: pw.leaky(x, -1.0),
        "Abs": lambda x: pw.leaky(x, -1.0),
        "Clip": pw.clip,
        "Mean": lambda x, axis=None, keepdims=False: g.mean(x, axes(axis), keepdims),
        "Sum": lambda x, axis=None, keepdims=False: g.total(x, axes(axis), keepdims),
        "Stack": lambda x, axis=0: g.stack(x, axis),
        "Concatenate": lambda xs, axis=-1: g.concatenate(xs, axis),
        "Squeeze": lambda x, axis=None: g.squeeze(x, axes(axis)),
        "ExpandDims": lambda x, axis: g.unsqueeze(x, axes(axis) or [0]),
        "Reshape": lambda x, newshape: g.reshape(
            x, [1 if i == 0 and n is None else n for i, n in enumerate(newshape)]
        ),
    }
