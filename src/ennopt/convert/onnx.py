"""ONNX graphs, as torch, keras and skl2onnx export them.

Nodes whose inputs are all constants are computed by ONNX's own reference
implementation; the others are read by the table of operators below.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ennopt.convert import graph
from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.lower import to_ensemble
from ennopt.convert.verify import verified
from ennopt.extras import require
from ennopt.network import Array, Ensemble, ModelConfigurationError

Attributes = dict[str, Any]
Operator = Callable[[list[Any], Attributes], Any]

_INPUT_TYPES = {1: np.float32, 10: np.float16, 11: np.float64}  # TensorProto.DataType
_OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def load_file(path: Path, num_inputs: int | None = None) -> Ensemble:
    """Read an ``.onnx`` file. External data must lie in the folder of the file."""
    onnx = require("onnx", "onnx")
    decode_error = require("google.protobuf.message", "onnx").DecodeError
    try:
        model = onnx.load(path, load_external_data=False)
    except (decode_error, ValueError, UnicodeDecodeError) as error:
        raise ModelConfigurationError(
            f"Expected an ONNX model, got a file that cannot be read as one "
            f"({error}): {path}."
        ) from error
    if not model.graph.output:
        raise ModelConfigurationError(
            f"Expected an ONNX model with an output, got none in {path}. "
            "The file is empty or is not an ONNX model."
        )
    _load_external(model, path, onnx)
    try:
        return load_model(model, num_inputs)
    except UnicodeDecodeError as error:  # names are decoded when they are read
        raise ModelConfigurationError(
            f"Expected names in UTF-8, got {error} in {path}. The file is damaged."
        ) from error


def _load_external(model: Any, path: Path, onnx: Any) -> None:
    """Read tensors kept in other files, if those lie beside the model."""
    folder = path.resolve().parent
    helper = onnx.external_data_helper
    tensors = [t for t in _tensors(model.graph) if helper.uses_external_data(t)]
    for tensor in tensors:
        location = {entry.key: entry.value for entry in tensor.external_data}.get(
            "location", ""
        )
        target = (folder / location).resolve()
        if not location or not target.is_relative_to(folder):
            raise ModelConfigurationError(
                f"Expected external data inside the folder of the model, got "
                f"{location!r} for tensor {tensor.name!r} of {path}."
            )
        if not target.is_file():
            raise ModelConfigurationError(
                f"Expected the external data file {location!r} beside {path}, got "
                "none. Copy it there."
            )
        try:
            helper.load_external_data_for_tensor(tensor, str(folder))
        except (ValueError, OSError, onnx.checker.ValidationError) as error:
            raise ModelConfigurationError(
                f"Expected readable external data for tensor {tensor.name!r}, got "
                f"{error} in {path}."
            ) from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _tensors(onnx_graph: Any) -> list[Any]:
    found = list(onnx_graph.initializer)
    for node in onnx_graph.node:
        for attribute in node.attribute:
            found += [attribute.t, *attribute.tensors]
    return found


def load_model(model: Any, num_inputs: int | None = None) -> Ensemble:
    """Convert an ``onnx.ModelProto`` and check it against an ONNX runtime.

    Parameters
    ----------
    model
        The model, with its tensors in memory.
    num_inputs
        Number of inputs, if known; needed only when the graph leaves it open.
    """
    onnx = require("onnx", "onnx")
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    if len(model.graph.output) != 1:
        names = [output.name for output in model.graph.output]
        raise ModelConfigurationError(
            f"Expected one output, got {len(names)}: {names!r:.100}. Export the "
            "prediction alone."
        )
    shapes = _input_shapes(model, num_inputs)
    traced = [(1, *shape[1:]) if len(shape) > 1 else shape for shape in shapes.values()]
    source, values = graph.inputs(traced)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        output = _run(model, dict(zip(shapes, values, strict=True)), onnx)
        ensemble = to_ensemble(output, source)
    predict = _predictor(model, shapes)
    producer = model.producer_name or "ONNX"
    name = "onnx" if producer == "ONNX" else f"onnx by {producer}"
    return verified(ensemble, predict, units=source.units, source=name)


def _input_shapes(model: Any, num_inputs: int | None) -> dict[str, tuple[int, ...]]:
    """Shape of each input of the graph; 0 for a batch axis of any length."""
    constants = {t.name for t in model.graph.initializer}
    given = [i for i in model.graph.input if i.name not in constants]
    if not given:
        raise ModelConfigurationError("Expected an input, got an ONNX graph with none.")
    shapes: dict[str, tuple[int, ...]] = {}
    for value in given:
        kind = value.type.tensor_type.elem_type
        if kind not in _INPUT_TYPES:
            raise ModelConfigurationError(
                f"Expected inputs of float, double or float16, got type number {kind} "
                f"for input {value.name!r}."
            )
        dims = [
            d.dim_value if d.WhichOneof("value") == "dim_value" else 0
            for d in value.type.tensor_type.shape.dim
        ]
        if not dims and num_inputs is not None and len(given) == 1:
            dims = [0, num_inputs]
        if len(dims) > 1:
            if dims[0] > 1:
                raise ModelConfigurationError(
                    f"Expected a batch of any size or of one, got {dims[0]} for input "
                    f"{value.name!r}. Export with a dynamic batch axis."
                )
            if dims[-1] == 0 and num_inputs is not None and len(given) == 1:
                dims[-1] = num_inputs
            open_axes = any(n == 0 for n in dims[1:])
        else:
            open_axes = not dims or dims[0] == 0
        if open_axes:
            raise ModelConfigurationError(
                f"Expected an input of a known size, got shape {dims} for "
                f"{value.name!r}. Pass input_names to say how many inputs there are."
            )
        shapes[value.name] = tuple(dims)
    return shapes


def _run(model: Any, values: dict[str, Any], onnx: Any) -> graph.Tensor:
    """Walk the graph with symbolic values in place of its inputs."""
    helper = onnx.numpy_helper
    known: dict[str, Any] = {"": None}
    for tensor in model.graph.initializer:
        try:
            known[tensor.name] = helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, MemoryError) as error:
            raise ModelConfigurationError(
                f"Expected a tensor of numbers, got {error!r:.150} in initializer "
                f"{tensor.name!r}."
            ) from error
    if model.graph.sparse_initializer:
        raise refuse("initializers", "sparse ones", ("dense tensors",))
    known |= values
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in model.graph.node:
        where = f"node {node.name or ', '.join(map(str, node.output))!r}"
        missing = [name for name in node.input if name not in known]
        if missing:
            raise ModelConfigurationError(
                f"Expected every input to be computed before, got {missing[0]!r} at "
                f"{where}."
            )
        arguments = [known[name] for name in node.input]
        if node.domain not in _OWN_DOMAINS or any(
            a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute
        ):
            raise _refused(node, where)
        if any(isinstance(a, graph.Value) for a in arguments):
            results = _apply(node, arguments, where, onnx)
        else:
            results = _fold(node, arguments, versions, where, onnx)
        known |= zip(node.output, results, strict=False)
    name = model.graph.output[0].name
    if known.get(name) is None:
        raise ModelConfigurationError(
            f"Expected a node that computes the output {name!r}, got none."
        )
    result: graph.Tensor = known[name]
    return result


def _refused(node: Any, where: str) -> PredictorNotSupportedError:
    domain = f"{node.domain}." if node.domain else ""
    return refuse("an operator", f"{domain}{node.op_type}", OPERATORS, where=where)


def _apply(node: Any, arguments: list[Any], where: str, onnx: Any) -> list[Any]:
    if node.op_type not in OPERATORS:
        raise _refused(node, where)
    try:
        attributes = {
            a.name: onnx.helper.get_attribute_value(a) for a in node.attribute
        }
        attributes["num_results"] = len(node.output)
        result = OPERATORS[node.op_type](arguments, attributes)
    except ModelConfigurationError:
        raise
    except PredictorNotSupportedError as error:
        raise PredictorNotSupportedError(f"{error} At {where}.") from error
    except (
        ValueError, IndexError, KeyError, TypeError, ArithmeticError, MemoryError,
        AttributeError,
    ) as error:  # fmt: skip
        raise ModelConfigurationError(
            f"Expected an operator {node.op_type} with inputs that fit, got "
            f"{error} at {where}."
        ) from error
    return result if isinstance(result, list) else [result]


def _fold(
    node: Any, arguments: list[Any], versions: dict[str, int], where: str, onnx: Any
) -> list[Any]:
    """Compute a node of constants with ONNX's reference implementation."""
    reference = require("onnx.reference", "onnx")
    names = dict(zip(node.input, arguments, strict=True))
    names.pop("", None)
    inputs = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
    small = onnx.helper.make_graph([node], "constant", inputs, outputs)
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in versions.items()]
    try:
        evaluator = reference.ReferenceEvaluator(
            onnx.helper.make_model(small, opset_imports=opsets)
        )
        return list(evaluator.run(None, names))
    except NotImplementedError as error:
        raise _refused(node, where) from error
    except (
        ValueError, TypeError, IndexError, KeyError, RuntimeError, MemoryError,
        AttributeError, ArithmeticError,
    ) as error:  # fmt: skip
        raise ModelConfigurationError(
            f"Expected constants that {node.op_type} can take, got "
            f"{str(error).partition(chr(10))[0]:.150} at {where}."
        ) from error


def _predictor(model: Any, shapes: dict[str, tuple[int, ...]]) -> Any:
    """Predictions of an ONNX runtime, point by point when the graph wants that."""
    batched = all(len(shape) > 1 and shape[0] == 0 for shape in shapes.values())
    session, errors = _session(model)
    types = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    sizes = [int(np.prod(s[1:] if len(s) > 1 else s)) for s in shapes.values()]
    ends = np.cumsum(sizes)[:-1]

    def predict(x: Array) -> Any:
        feeds = {}
        for (name, shape), block in zip(
            shapes.items(), np.split(x, ends, axis=1), strict=True
        ):
            target = (len(x), *shape[1:]) if len(shape) > 1 else shape
            feeds[name] = block.reshape(target).astype(_INPUT_TYPES[types[name]])
        try:
            return session.run(None, feeds)[0]
        except errors as error:
            raise ModelConfigurationError(
                f"Expected an ONNX model that runs, got {error!r:.150} from "
                f"{type(session).__name__}."
            ) from error

    if batched:
        return predict
    return lambda x: np.stack([np.ravel(predict(point[None])) for point in x])


def _session(model: Any) -> tuple[Any, tuple[type[Exception], ...]]:
    """What runs the model, and the errors it may raise.

    onnxruntime if it is installed and knows the opset, else ONNX's own reference.
    """
    if importlib.util.find_spec("onnxruntime") is not None:
        runtime = require("onnxruntime", "onnx")
        state = require("onnxruntime.capi.onnxruntime_pybind11_state", "onnx")
        kinds = [k for k in vars(state).values() if isinstance(k, type)]
        errors: tuple[type[Exception], ...] = (ValueError, RuntimeError)
        errors += tuple(k for k in kinds if issubclass(k, Exception))
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = runtime.InferenceSession(
                model.SerializeToString(), options,
                providers=["CPUExecutionProvider"],
                enable_fallback=0,  # it prints on stdout
            )  # fmt: skip
        except errors:
            pass  # older than the model: the reference decides whether it runs
        else:
            return session, errors
    reference = require("onnx.reference", "onnx")
    known = (
        ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError,
        ArithmeticError,
    )  # fmt: skip
    try:
        return reference.ReferenceEvaluator(model), known
    except known as error:
        raise ModelConfigurationError(
            f"Expected an ONNX model that runs, got {error!r:.150}."
        ) from error


def _ints(values: Any) -> list[int] | None:
    return None if values is None else [int(v) for v in np.ravel(values)]


def _axes(arguments: list[Any], attributes: Attributes) -> list[int] | None:
    """Axes from the second input (newer opsets) or the attribute (older ones)."""
    if len(arguments) > 1 and arguments[1] is not None:
        return _ints(arguments[1])
    return _ints(attributes.get("axes"))


def _gemm(arguments: list[Any], attributes: Attributes) -> Any:
    left, right, *rest = arguments
    if attributes.get("transA", 0):
        raise refuse("a Gemm", "transA=1", ("transA=0",))
    if attributes.get("transB", 0):
        right = graph.transpose(right)
    product = graph.matmul(left, right)
    if attributes.get("alpha", 1.0) != 1.0:
        product = graph.scale(product, attributes["alpha"])
    if rest and rest[0] is not None:
        beta = attributes.get("beta", 1.0)
        product = graph.add(product, graph.scale(graph.as_value(rest[0]), beta))
    return product


def _batch_normalization(arguments: list[Any], attributes: Attributes) -> Any:
    value, scale, bias, mean, variance = arguments
    if attributes.get("training_mode", 0):
        raise refuse("a BatchNormalization", "training_mode=1", ("training_mode=0",))
    factor = scale / np.sqrt(variance.astype(float) + attributes.get("epsilon", 1e-5))
    shape = (1, -1) + (1,) * (len(value.shape) - 2)
    shift = (bias - factor * mean).reshape(shape)
    return graph.add(graph.multiply(value, factor.reshape(shape)), shift)


def _reshape(arguments: list[Any], attributes: Attributes) -> Any:
    value, shape = arguments
    sizes = _ints(shape) or []
    if not attributes.get("allowzero", 0):
        sizes = [value.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return graph.reshape(value, sizes)


def _flatten(arguments: list[Any], attributes: Attributes) -> Any:
    value = arguments[0]
    axis = attributes.get("axis", 1)
    axis = axis + len(value.shape) if axis < 0 else axis
    rows = int(np.prod(value.shape[:axis]))
    return graph.reshape(value, (rows, -1))


def _dropout(arguments: list[Any], attributes: Attributes) -> Any:
    if len(arguments) > 2 and arguments[2] is not None and bool(arguments[2]):
        raise refuse("a Dropout", "training_mode=True", ("training_mode=False",))
    return arguments[0]


def _cast(arguments: list[Any], attributes: Attributes) -> Any:
    if attributes["to"] not in (1, 10, 11, 16):  # float, float16, double, bfloat16
        raise refuse("a Cast", f"type number {attributes['to']}",
                     ("float", "double", "float16", "bfloat16"))  # fmt: skip
    return arguments[0]


def _slice(arguments: list[Any], attributes: Attributes) -> Any:
    value = arguments[0]
    if len(arguments) > 1:
        starts, ends, axes, steps = (
            _ints(a) for a in (*arguments[1:], None, None)[:4]
        )  # fmt: skip
    else:
        keys = ("starts", "ends", "axes")
        starts, ends, axes = (_ints(attributes.get(key)) for key in keys)
        steps = None
    key = [slice(None)] * len(value.shape)
    for i, (start, end) in enumerate(zip(starts or (), ends or (), strict=True)):
        axis, step = axes[i] if axes else i, steps[i] if steps else 1
        stop = None if step < 0 and end < -value.shape[axis] else end
        key[axis] = slice(start, stop, step)
    return graph.index(value, tuple(key))


def _split(arguments: list[Any], attributes: Attributes) -> list[Any]:
    value, axis = arguments[0], attributes.get("axis", 0)
    length = value.shape[axis]
    given = arguments[1] if len(arguments) > 1 else attributes.get("split")
    sizes = _ints(given)
    if sizes is None:
        size = -(-length // attributes["num_results"])
        ends = list(range(size, length, size))
    else:
        ends = [int(n) for n in np.cumsum(sizes)[:-1]]
    return [graph.take(value, b, axis) for b in np.split(np.arange(length), ends)]


def _maximum(arguments: list[Any], attributes: Attributes) -> Any:
    values = [a for a in arguments if isinstance(a, graph.Value)]
    zeros = [a for a in arguments if not isinstance(a, graph.Value) and not np.any(a)]
    if len(values) != 1 or len(values) + len(zeros) != len(arguments):
        raise refuse("a Max", "a maximum of other values", ("a maximum with zero",))
    return graph.relu(values[0]) if zeros else values[0]


def _clip(arguments: list[Any], attributes: Attributes) -> Any:
    low, high = (*arguments[1:], None, None)[:2]
    low = attributes.get("min") if low is None else low
    high = attributes.get("max") if high is None else high
    if low is None or np.any(low) or high is not None:
        raise refuse("a Clip", f"min={low}, max={high}", ("min=0 without max",))
    return graph.relu(arguments[0])


def _scaler(arguments: list[Any], attributes: Attributes) -> Any:
    shift = np.asarray(attributes.get("offset", [0.0]))
    moved = graph.subtract(arguments[0], shift)
    return graph.multiply(moved, np.asarray(attributes.get("scale", [1.0])))


def _linear_regressor(arguments: list[Any], attributes: Attributes) -> Any:
    if attributes.get("post_transform", b"NONE") != b"NONE":
        raise refuse("a LinearRegressor", str(attributes["post_transform"]), ("NONE",))
    matrix = np.reshape(attributes["coefficients"], (attributes.get("targets", 1), -1))
    product = graph.matmul(arguments[0], matrix.T)
    if "intercepts" in attributes:
        return graph.add(product, np.asarray(attributes["intercepts"]))
    return product


def _reduced(reduce: Callable[..., Any]) -> Operator:
    def apply(arguments: list[Any], attributes: Attributes) -> Any:
        axes = _axes(arguments, attributes)
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return arguments[0]
        return reduce(arguments[0], axes or None, bool(attributes.get("keepdims", 1)))

    return apply


def _gather(arguments: list[Any], attributes: Attributes) -> Any:
    return graph.take(arguments[0], arguments[1], attributes.get("axis", 0))


def _extract(arguments: list[Any], attributes: Attributes) -> Any:
    value, positions = arguments
    return graph.take(value, np.ravel(positions), -1)


def _shape(arguments: list[Any], attributes: Attributes) -> Any:
    shape = np.array(arguments[0].shape, dtype=np.int64)
    return shape[attributes.get("start", 0) : attributes.get("end")]


def _expand(arguments: list[Any], attributes: Attributes) -> Any:
    value, shape = arguments
    target = np.broadcast_shapes(value.shape, tuple(_ints(shape) or ()))
    return graph.broadcast(value, target)


OPERATORS: dict[str, Operator] = {
    "Gemm": _gemm,
    "MatMul": lambda a, _: graph.matmul(*a),
    "Add": lambda a, _: graph.add(*a),
    "Sub": lambda a, _: graph.subtract(*a),
    "Mul": lambda a, _: graph.multiply(*a),
    "Div": lambda a, _: graph.divide(*a),
    "Neg": lambda a, _: graph.scale(a[0], -1.0),
    "Relu": lambda a, _: graph.relu(a[0]),
    "Max": _maximum,
    "Clip": _clip,
    "BatchNormalization": _batch_normalization,
    "Identity": lambda a, _: a[0],
    "Dropout": _dropout,
    "Cast": _cast,
    "CastLike": lambda a, _: a[0],
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": lambda a, k: graph.squeeze(a[0], _axes(a, k)),
    "Unsqueeze": lambda a, k: graph.unsqueeze(a[0], _axes(a, k) or []),
    "Transpose": lambda a, k: graph.transpose(a[0], k.get("perm")),
    "Expand": _expand,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Concat": lambda a, k: graph.concatenate(a, k["axis"]),
    "Mean": lambda a, _: graph.mean_of(a),
    "Sum": lambda a, _: graph.sum_of(a),
    "ReduceMean": _reduced(graph.mean),
    "ReduceSum": _reduced(graph.total),
    "Scaler": _scaler,
    "LinearRegressor": _linear_regressor,
    "ArrayFeatureExtractor": _extract,
    "FeatureVectorizer": lambda a, _: graph.concatenate(a, -1),
}
