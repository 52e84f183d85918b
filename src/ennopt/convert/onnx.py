"""ONNX graphs, as torch, keras and skl2onnx export them.

Nodes whose inputs are all constants are computed by ONNX's own reference
implementation; the others are read by the table of operators.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np

from ennopt.convert.affine import ARRAY_COST, Room, Tensor, Value, inputs
from ennopt.convert.classes import Scores, is_sigmoid, read_by, to_scores
from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.onnx_operators import FOLDED, OPERATORS
from ennopt.convert.verify import NUM_POINTS, UNITS, Loaded, Original, verified
from ennopt.extras import require
from ennopt.network import (
    SIZE_LIMIT,
    Array,
    ModelConfigurationError,
    check_size,
    shown,
)

_INPUT_TYPES = {1: np.float32, 10: np.float16, 11: np.float64}  # TensorProto.DataType
_OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_RESHAPING = ("Flatten", "Reshape", "Squeeze")

_SHAPE_LENGTH = 128  # of what tells the shape of a result: NumPy knows 64 axes

NODE_LIMIT = 1_000_000
"""Nodes that a graph may have when the functions it calls are written out."""

FUNCTION_DEPTH = 100
"""How deep functions of a graph may call each other."""

NODE_RUNS = 250_000
"""Nodes that ONNX's reference implementation, at some 30 microseconds each, may run
to check a graph that takes one point at a time. Larger ones are checked on fewer
points."""


def load_file(path: Path, num_inputs: int | None = None) -> Loaded:
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
    asked, stored, files = 0, path.stat().st_size, set()
    for tensor in tensors:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
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
            size = target.stat().st_size
            stored += 0 if target in files else size
            files.add(target)
            asked += int(entries.get("length", size))
            check_size(asked // 4, stored // 4, f"tensor {tensor.name!r} of {path}")
            helper.load_external_data_for_tensor(tensor, str(folder))
        except ModelConfigurationError:
            raise
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


def load_model(model: Any, num_inputs: int | None = None) -> Loaded:
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
        _check_functions(model)
        model = require("onnx.inliner", "onnx").inline_local_functions(model)
    if len(model.graph.output) != 1:
        names = [output.name for output in model.graph.output]
        raise ModelConfigurationError(
            f"Expected one output, got {len(names)}: {names!r:.100}. Export the "
            "prediction alone."
        )
    shapes = _input_shapes(model, num_inputs)
    traced = [(1, *shape[1:]) if len(shape) > 1 else shape for shape in shapes.values()]
    constants = _constants(model, onnx)
    room = Room(sum(array.size for array in constants.values()))
    source, values = inputs(traced, room)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        known = constants | dict(zip(shapes, values, strict=True))
        ensemble = to_scores(_run(model, known, room, onnx), source, room)
    original, num_points = _original(model, shapes, _precision(constants, model))
    num_points = max(1, min(num_points, SIZE_LIMIT // max(room.elements, 1)))
    producer = model.producer_name or "ONNX"
    name = "onnx" if producer == "ONNX" else f"onnx by {shown(producer)}"
    return verified(
        ensemble, original, units=source.units, source=name, num_points=num_points
    )


def _check_functions(model: Any) -> None:
    """Refuse functions that call each other so often that the graph explodes."""
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Any, depth: int) -> int:
        """Nodes, with those of the functions that they call."""
        if depth > FUNCTION_DEPTH:
            raise ModelConfigurationError(
                f"Expected functions that call each other at most {FUNCTION_DEPTH} "
                "deep, got deeper ones or one that calls itself. Export the model "
                "without functions."
            )
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in bodies and key not in counts:
                counts[key] = count(bodies[key], depth + 1)
            total += counts.get(key, 1)
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    total += count(inner.node, depth + 1)
        return total

    if (total := count(model.graph.node, 0)) > NODE_LIMIT:
        raise ModelConfigurationError(
            f"Expected a graph of at most {NODE_LIMIT:,} nodes, got {total:,} when its "
            "functions are written out. A trained network takes far fewer."
        )


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


def _constants(model: Any, onnx: Any) -> dict[str, Any]:
    """The tensors that the graph stores, by name."""
    if model.graph.sparse_initializer:
        raise refuse("initializers", "sparse ones", ("dense tensors",))
    known: dict[str, Any] = {}
    for tensor in model.graph.initializer:
        try:
            known[tensor.name] = onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, MemoryError) as error:
            raise ModelConfigurationError(
                f"Expected a tensor of numbers, got {error!r:.150} in initializer "
                f"{tensor.name!r}."
            ) from error
    return known


def _run(model: Any, known: dict[str, Any], room: Room, onnx: Any) -> Tensor | Scores:
    """Walk the graph with symbolic values in place of its inputs.

    Parameters
    ----------
    model
        The model.
    known
        Constants and inputs by name; values are dropped after their last use.
    room
        Where what is computed is counted.
    onnx
        The package.
    """
    known = known | {"": None}
    versions = {entry.domain: entry.version for entry in model.opset_import}
    output = model.graph.output[0].name
    last_use = {
        name: i for i, node in enumerate(model.graph.node) for name in node.input
    }
    last_use |= {"": -1, output: -1}  # kept
    for i, node in enumerate(model.graph.node):
        room.where = f"node {node.name or ', '.join(map(str, node.output))!r}"
        missing = [name for name in node.input if name not in known]
        if missing:
            raise ModelConfigurationError(
                f"Expected every input to be computed before, got {missing[0]!r} at "
                f"{room.where}."
            )
        arguments = [known[name] for name in node.input]
        if node.domain not in _OWN_DOMAINS or any(
            a.type in (a.GRAPH, a.GRAPHS, a.SPARSE_TENSOR, a.SPARSE_TENSORS)
            for a in node.attribute
        ):
            raise _refused(node, room)
        if any(isinstance(a, Value | Scores) for a in arguments):
            results = _apply(node, arguments, room, onnx)
        else:
            results = _fold(node, arguments, versions, room, onnx)
        known |= zip(node.output, results, strict=False)
        for name in {*node.input, *node.output}:
            if last_use.get(name, i) == i:
                known.pop(name, None)
    if known.get(output) is None:
        raise ModelConfigurationError(
            f"Expected a node that computes the output {output!r}, got none."
        )
    result: Tensor | Scores = known[output]
    return result


def _refused(node: Any, room: Room) -> PredictorNotSupportedError:
    domain = f"{node.domain}." if node.domain else ""
    got = f"{domain}{node.op_type}"
    return refuse("an operator", got, OPERATORS, where=room.where)


def _apply(node: Any, arguments: list[Any], room: Room, onnx: Any) -> list[Any]:
    if node.op_type not in OPERATORS:
        raise _refused(node, room)
    try:
        attributes = {
            a.name: onnx.helper.get_attribute_value(a) for a in node.attribute
        }
        attributes["num_results"] = len(node.output)
        reshapes = node.op_type in _RESHAPING and is_sigmoid(arguments[0])
        if reshapes:
            arguments = [arguments[0].value, *arguments[1:]]  # still a sigmoid behind
        elif node.op_type not in ("Identity", "Cast"):
            arguments = read_by(node.op_type, arguments)
        result = OPERATORS[node.op_type](arguments, attributes)
    except ModelConfigurationError:
        raise
    except PredictorNotSupportedError as error:
        raise PredictorNotSupportedError(f"{error} At {room.where}.") from error
    except (
        ValueError, IndexError, KeyError, TypeError, ArithmeticError, MemoryError,
        AttributeError,
    ) as error:  # fmt: skip
        raise ModelConfigurationError(
            f"Expected an operator {node.op_type} with inputs that fit, got "
            f"{error} at {room.where}."
        ) from error
    if reshapes:
        result = Scores(result, "sigmoid")
    return result if isinstance(result, list) else [result]


def _fold(
    node: Any, arguments: list[Any], versions: dict[str, int], room: Room, onnx: Any
) -> list[Any]:
    """Compute a node of constants with ONNX's reference implementation."""
    if node.op_type == "Identity":  # exporters write many
        return arguments
    if node.op_type not in FOLDED:
        raise _refused(node, room)
    reference = require("onnx.reference", "onnx")
    names = dict(zip(node.input, arguments, strict=True))
    names.pop("", None)
    infos = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
    small = onnx.helper.make_graph([node], "constant", infos, outputs)
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in versions.items()]
    inference_error = onnx.shape_inference.InferenceError
    try:
        if node.op_type == "Constant":  # stored, not computed
            room.spend(ARRAY_COST)
        else:
            room.spend(_folded_size(node, names, versions, onnx))
        evaluator = reference.ReferenceEvaluator(
            onnx.helper.make_model(small, opset_imports=opsets)
        )
        results = list(evaluator.run(None, names))
    except ModelConfigurationError:
        raise
    except (NotImplementedError, onnx.defs.SchemaError) as error:
        raise _refused(node, room) from error
    except (
        ValueError, TypeError, IndexError, KeyError, RuntimeError, MemoryError,
        AttributeError, ArithmeticError, inference_error,
    ) as error:  # fmt: skip
        raise ModelConfigurationError(
            f"Expected constants that {node.op_type} can take, got "
            f"{str(error).partition(chr(10))[0]:.150} at {room.where}."
        ) from error
    if node.op_type == "Constant":
        room.stored += sum(np.size(result) for result in results)
    return results


def _folded_size(
    node: Any, known: dict[str, Any], versions: dict[str, int], onnx: Any
) -> int:
    """How many numbers the outputs of a node of constants have, before it runs."""
    helper = onnx.helper
    version = versions.get("", versions.get("ai.onnx", 1))
    types = {
        name: helper.make_tensor_type_proto(
            helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in known.items()
    }
    shapes = {
        name: onnx.numpy_helper.from_array(np.asarray(array), name)
        for name, array in known.items()
        if array.size <= _SHAPE_LENGTH
    }
    results = onnx.shape_inference.infer_node_outputs(
        onnx.defs.get_schema(node.op_type, version, ""), node, types, shapes,
        opset_imports=[helper.make_opsetid("", version)],
    )  # fmt: skip
    longest = sum(array.size for array in known.values())  # of an axis that is unknown
    size = ARRAY_COST
    for kind in (result.tensor_type for result in results.values()):
        if not kind.HasField("shape"):
            raise ValueError("a result of a size that nothing tells")
        size += math.prod(
            max(d.dim_value, 0) if d.WhichOneof("value") == "dim_value" else longest
            for d in kind.shape.dim
        )
    return size


def _precision(constants: dict[str, Any], model: Any) -> str:
    """The coarsest type that the graph computes in, by its inputs and constants."""
    types = {_INPUT_TYPES.get(i.type.tensor_type.elem_type) for i in model.graph.input}
    names = {np.dtype(t).name for t in types if t is not None}
    names |= {array.dtype.name for array in constants.values()}
    return max(names & UNITS.keys(), key=lambda name: UNITS[name])


def _original(
    model: Any, shapes: dict[str, tuple[int, ...]], precision: str
) -> tuple[Original, int]:
    """The model as an ONNX runtime computes it, and on how many points to check it.

    It is asked point by point when the graph wants that.
    """
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

    def predict_one_by_one(x: Array) -> Any:
        return np.stack([np.ravel(predict(point[None])) for point in x])

    if batched:
        return Original(predict, precision), NUM_POINTS
    num_points = NUM_POINTS
    if type(session).__module__.partition(".")[0] == "onnx":
        num_points = max(4, min(NUM_POINTS, NODE_RUNS // len(model.graph.node)))
    return Original(predict_one_by_one, precision), num_points


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
