"""PyTorch modules, traced with torch.fx.

The user's module is never touched: a copy on the CPU in eval mode is traced, so
dropout is the identity and batch norm uses its running statistics.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ennopt.convert import graph
from ennopt.convert.affine import Room, Tensor, Value, as_value, inputs
from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.lower import to_ensemble
from ennopt.convert.verify import Loaded, Original, verified
from ennopt.extras import require
from ennopt.network import Array, ModelConfigurationError

MODULES = (
    "Linear", "ReLU", "BatchNorm1d", "Dropout", "AlphaDropout", "Identity",
    "Flatten", "Unflatten", "Sequential",
)  # fmt: skip
FUNCTIONS = (
    "relu", "linear", "matmul", "bmm", "addmm", "+", "-", "*", "/ by a constant",
    "mean", "sum", "stack", "cat", "dropout", "flatten", "reshape", "view", "squeeze",
    "unsqueeze", "transpose", "permute", "indexing",
)  # fmt: skip
_UNTOUCHED = {"Dropout", "AlphaDropout", "FeatureAlphaDropout", "Dropout1d", "Identity"}


def load_module(module: Any, num_inputs: int | None = None) -> Loaded:
    """Convert an ``nn.Module`` and check it against its own forward pass.

    Parameters
    ----------
    module
        The trained module.
    num_inputs
        Number of inputs, if known; otherwise found from the first layer.
    """
    torch = require("torch", "torch")
    name = type(module).__name__
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    if isinstance(module, torch.jit.ScriptModule):
        raise refuse(
            "a module", f"TorchScript {name}", ("torch.nn.Module",),
            remedy="Pass the module that was scripted, or its state dict.",
        )  # fmt: skip
    _check_forward(module, torch)
    own = _evaluated_copy(module, torch)
    _check_hooks(own)
    # the CPU computes in half precision slowly or not at all
    is_half = any(p.dtype in (torch.float16, torch.bfloat16) for p in own.parameters())
    plain = copy.deepcopy(own).float() if is_half else own
    traced = _trace(plain, torch)
    _check_layers(traced, torch)
    width = _find_width(plain, traced, num_inputs, torch)
    room = Room(sum(t.numel() for t in plain.state_dict().values()))
    source, (x,) = inputs([(1, width)], room)
    with np.errstate(invalid="ignore", over="ignore"):
        ensemble = to_ensemble(_run(traced, x, room, torch), source, room)
    loaded = verified(
        ensemble, _original(plain, torch), units=source.units, source=f"torch {name}"
    )
    return loaded._replace(original=_original(own, torch)) if is_half else loaded


def _original(module: Any, torch: Any) -> Original:
    """The module as torch computes it."""
    dtype = next((p.dtype for p in module.parameters()), torch.float32)

    def predict(points: Array) -> Any:
        with torch.no_grad():
            return module(torch.tensor(points, dtype=dtype)).double().numpy()

    return Original(predict, str(dtype).removeprefix("torch."))


def _check_forward(module: Any, torch: Any) -> None:
    """Refuse modules that do not take one tensor, before torch speaks."""
    name = type(module).__name__
    if type(module).forward is torch.nn.Module.forward:
        if isinstance(module, torch.nn.ModuleList):
            remedy = "Pass list(modules) for the mean of its members."
        else:
            remedy = "Pass the module that uses it, or a list of modules: their mean."
        raise PredictorNotSupportedError(
            f"Expected a module with a forward pass, got {name}, which has none. "
            + remedy
        )
    arguments = [
        p.name
        for p in list(inspect.signature(type(module).forward).parameters.values())[1:]
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if len(arguments) > 1:
        raise PredictorNotSupportedError(
            f"Expected a forward pass with one argument, got {len(arguments)}: "
            f"{', '.join(arguments)}, in {name}. Wrap it in a module that takes one "
            "tensor (num_points, num_inputs) and cuts it into these."
        )


def _evaluated_copy(module: Any, torch: Any) -> Any:
    """Our own copy, in eval mode on the CPU."""
    try:
        plain = copy.deepcopy(module).cpu().eval()
    except (RuntimeError, ValueError) as error:  # lazy or non-leaf parameters
        raise ModelConfigurationError(
            f"Expected a module that can be copied, got {type(module).__name__} "
            f"({error}). Run it once on data, then pass it."
        ) from error
    for p in plain.parameters():
        if isinstance(p, torch.nn.parameter.UninitializedParameter):
            raise ModelConfigurationError(
                "Expected initialized parameters, got a lazy module. Run it once on "
                "data, then pass it."
            )
    return plain


def _check_hooks(module: Any) -> None:
    """Refuse hooks: tracing does not see them. Torch's own only set the weights."""
    for name, layer in module.named_modules():
        hooks = [*layer._forward_hooks.values(), *layer._forward_pre_hooks.values()]
        for hook in hooks:
            if not type(hook).__module__.startswith("torch.nn.utils."):
                where = f"'{name}'" if name else type(module).__name__
                raise PredictorNotSupportedError(
                    "Expected a module without forward hooks, got one at "
                    f"{where}. Remove it, or write what it does as a layer."
                )


def _trace(module: Any, torch: Any) -> Any:
    """The graph of calls that one forward pass makes."""
    leaves = (torch.nn.Linear, torch.nn.modules.batchnorm._BatchNorm)

    class Tracer(torch.fx.Tracer):  # type: ignore[misc]
        def is_leaf_module(self, m: Any, qualified_name: str) -> bool:
            kind = next((c for c in leaves if isinstance(m, c)), None)
            if kind is not None:  # subclasses too, unless they compute otherwise
                return bool(type(m).forward is kind.forward)
            return bool(super().is_leaf_module(m, qualified_name))

    root = module
    if isinstance(module, leaves):  # fx never treats the root as a leaf
        root = torch.nn.Sequential(module)
    try:
        return root, Tracer().trace(root)
    except (
        torch.fx.proxy.TraceError, TypeError, AttributeError, NameError, LookupError,
        ValueError, RuntimeError, AssertionError,
    ) as error:  # fmt: skip
        raise PredictorNotSupportedError(
            f"Expected a forward pass that torch.fx can trace, got "
            f"{type(error).__name__}: {error} in {type(module).__name__}. Remove "
            "branches and loops that depend on the data, or export the model to ONNX "
            "and load that."
        ) from error


def _check_layers(traced: Any, torch: Any) -> None:
    """Refuse unknown layers by name, before anything is computed."""
    root, calls = traced
    modules = dict(root.named_modules())
    nn = torch.nn
    for node in calls.nodes:
        if node.op == "call_module":
            layer = modules[node.target]
            known = isinstance(layer, nn.Linear | nn.BatchNorm1d) or (
                type(layer) in (nn.ReLU, nn.Flatten, nn.Unflatten)
                or type(layer).__name__ in _UNTOUCHED
            )
            if not known:
                name = type(layer).__name__
                raise refuse("a layer", name, MODULES, where=f"'{node.target}'")


def _find_width(module: Any, traced: Any, given: int | None, torch: Any) -> int:
    """Number of inputs: what the first layer asks for, or the only size that runs."""
    root, calls = traced
    modules = dict(root.named_modules())
    widths: list[int] = [] if given is None else [given]
    for node in calls.nodes:
        layer = modules.get(node.target) if node.op == "call_module" else None
        for attribute in ("in_features", "num_features"):
            if layer is not None and hasattr(layer, attribute):
                widths.append(int(getattr(layer, attribute)))
    widths += [int(n) for t in module.state_dict().values() for n in reversed(t.shape)]
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    reason = ""
    for width in dict.fromkeys(w for w in widths if w > 0):
        try:
            with torch.no_grad():
                module(torch.zeros((2, width), dtype=dtype))
        except (RuntimeError, LookupError, ValueError, TypeError) as error:
            reason = reason or f" ({type(error).__name__}: {error})"
            continue
        if given not in (None, width):
            raise ModelConfigurationError(
                f"Expected {width} input names, one for each input of "
                f"{type(module).__name__}, got {given}."
            )
        return width
    raise ModelConfigurationError(
        "Expected a module that takes an array (num_points, num_inputs), got "
        f"{type(module).__name__}, which runs with none of the widths of its layers"
        f"{reason:.200}. Pass input_names to say how many inputs it takes."
    )


def _run(traced: Any, x: Value, room: Room, torch: Any) -> Tensor:
    """Walk the traced graph with symbolic values in place of tensors."""
    root, calls = traced
    modules = dict(root.named_modules())
    functions, methods = _function_table(torch), _method_table()
    values: dict[Any, Any] = {}  # dropped after their last use
    last_use = {used: node for node in calls.nodes for used in node.all_input_nodes}
    given = False

    def resolve(argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return values[argument]
        if isinstance(argument, torch.Tensor):
            return _numpy(argument)
        if isinstance(argument, list | tuple):
            return type(argument)(resolve(a) for a in argument)
        if isinstance(argument, slice):
            return slice(*map(resolve, (argument.start, argument.stop, argument.step)))
        return argument

    for node in calls.nodes:
        room.where = repr(str(node.target) if node.op == "call_module" else node.name)
        args = [resolve(a) for a in node.args]
        options = {key: resolve(a) for key, a in node.kwargs.items()}
        if node.op == "placeholder":
            default = args[0] if args else None  # None for *args and **kwargs
            values[node] = default if given else x
            given = True
        elif node.op == "get_attr":
            values[node] = _numpy(operator.attrgetter(node.target)(root))
        elif node.op == "output":
            result = args[0]
            if isinstance(result, Value | np.ndarray):
                return result
            raise PredictorNotSupportedError(
                f"Expected a module that returns one tensor, got "
                f"{type(result).__name__}. Return the prediction alone."
            )
        elif node.op == "call_module":
            layer = modules[node.target]
            if options or len(args) != 1:
                raise refuse("a layer of one argument", type(layer).__name__, MODULES)
            values[node] = _checked(
                lambda v, layer=layer, node=node: _layer(layer, v, node.target, torch),
                args, {}, str(node.target),
            )  # fmt: skip
        elif _concrete(args) and _concrete(list(options.values())):
            values[node] = _checked(
                lambda *a, node=node, **o: _fold(node, a, o, torch),
                args, options, node.name,
            )  # fmt: skip
        else:
            table: dict[Any, Any] = functions if node.op == "call_function" else methods
            if node.target not in table:
                called = getattr(node.target, "__name__", str(node.target))
                raise refuse("a function", called, FUNCTIONS, where=f"'{node.name}'")
            values[node] = _checked(table[node.target], args, options, node.name)
        for used in node.all_input_nodes:
            if last_use[used] is node:
                del values[used]
    raise ModelConfigurationError("Expected a module with an output, got none.")


def _checked(
    call: Callable[..., Any], args: list[Any], options: dict[str, Any], where: str
) -> Any:
    """Call, and say where in the model shapes do not fit."""
    try:
        return call(*args, **options)
    except ModelConfigurationError:
        raise
    except (ValueError, LookupError, RuntimeError) as error:
        raise ModelConfigurationError(
            f"Expected shapes that fit, got {error} at {where!r}."
        ) from error
    except PredictorNotSupportedError as error:
        if f"'{where}'" in str(error):
            raise
        raise PredictorNotSupportedError(f"{error} At {where!r}.") from error
    except TypeError as error:
        raise PredictorNotSupportedError(
            f"Expected a call ennopt knows, got {error} at {where!r}. Accepted are "
            f"{', '.join(FUNCTIONS)}."
        ) from error


def _concrete(arguments: Sequence[Any]) -> bool:
    return not any(
        isinstance(a, Value) or (isinstance(a, list | tuple) and not _concrete(list(a)))
        for a in arguments
    )


def _fold(node: Any, args: Sequence[Any], options: dict[str, Any], torch: Any) -> Any:
    """Compute with constants, by torch itself."""

    def tensor(a: Any) -> Any:
        if isinstance(a, list | tuple):
            return type(a)(tensor(b) for b in a)
        return torch.as_tensor(a) if isinstance(a, np.ndarray) else a

    args = [tensor(a) for a in args]
    options = {key: tensor(a) for key, a in options.items()}
    with torch.no_grad():
        if node.op == "call_method":
            result = getattr(args[0], node.target)(*args[1:], **options)
        else:
            result = node.target(*args, **options)
    return _numpy(result) if isinstance(result, torch.Tensor) else result


def _numpy(tensor: Any) -> Any:
    array = tensor.detach().cpu()
    return (array.double() if array.is_floating_point() else array).numpy()


def _layer(layer: Any, value: Tensor, name: str, torch: Any) -> Any:
    nn = torch.nn
    if isinstance(layer, nn.Linear):
        bias = None if layer.bias is None else _numpy(layer.bias)
        return _linear(value, _numpy(layer.weight), bias)
    if type(layer) is nn.ReLU:
        return graph.relu(value)
    if isinstance(layer, nn.BatchNorm1d):
        return _batch_norm(layer, as_value(value), name)
    if type(layer) is nn.Flatten:
        return graph.flatten(value, layer.start_dim, layer.end_dim)
    if type(layer) is nn.Unflatten:
        return _unflatten(value, layer.dim, layer.unflattened_size)
    return value  # dropout in eval mode, identity


def _linear(value: Tensor, weight: Any, bias: Any = None) -> Any:
    product = graph.matmul(value, np.swapaxes(weight, -1, -2))
    return product if bias is None else graph.add(product, bias)


def _batch_norm(layer: Any, value: Value, name: str) -> Any:
    if layer.running_mean is None:
        raise PredictorNotSupportedError(
            "Expected a BatchNorm1d with running statistics, got "
            f"track_running_stats=False at '{name}'. Its prediction for one point "
            "depends on the other points of the batch."
        )
    if len(value.shape) > 2 and value.shape[2:] != (1,) * (len(value.shape) - 2):
        raise refuse("an input of BatchNorm1d", f"shape {value.shape}", ("(batch, "
                     "features)",), where=f"'{name}'")  # fmt: skip
    factor = 1.0 / np.sqrt(_numpy(layer.running_var) + layer.eps)
    if layer.weight is not None:
        factor = factor * _numpy(layer.weight)
    shift = -factor * _numpy(layer.running_mean)
    if layer.bias is not None:
        shift = shift + _numpy(layer.bias)
    shape = (1, -1) + (1,) * (len(value.shape) - 2)
    scaled = graph.multiply(value, factor.reshape(shape))
    return graph.add(scaled, shift.reshape(shape))


def _unflatten(value: Tensor, dim: int, sizes: Sequence[int]) -> Any:
    shape = as_value(value).shape
    dim %= len(shape)
    return graph.reshape(value, (*shape[:dim], *map(int, sizes), *shape[dim + 1 :]))


def _axes(dim: Any) -> list[int] | None:
    if dim is None:
        return None
    return [int(d) for d in dim] if isinstance(dim, list | tuple) else [int(dim)]


def _reshaped(value: Tensor, *shape: Any) -> Any:
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return graph.reshape(value, [int(n) for n in sizes])


def _permuted(value: Tensor, *dims: Any) -> Any:
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    return graph.transpose(value, order)


def _swapped(value: Tensor, dim0: int, dim1: int) -> Any:
    order = list(range(len(as_value(value).shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return graph.transpose(value, order)


def _clamped(value: Tensor, min: Any = None, max: Any = None) -> Any:
    if max is not None or min is None or float(min) != 0.0:
        raise refuse("a clamp", f"min={min}, max={max}", ("min=0, max=None",))
    return graph.relu(value)


def _size(value: Value, dim: int | None = None) -> Any:
    return value.shape if dim is None else value.shape[dim]


def _attribute(value: Value, name: str) -> Any:
    known: dict[str, Callable[[], Any]] = {
        "shape": lambda: value.shape,
        "T": lambda: graph.transpose(value),
        "mT": lambda: _swapped(value, -1, -2),
        "ndim": lambda: len(value.shape),
    }
    if name not in known:
        raise refuse("an attribute of a tensor", name, known)
    return known[name]()


def _dropout(
    value: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if training and p:
        raise PredictorNotSupportedError(
            "Expected dropout that follows the mode of its module, got dropout that "
            "is always on. Pass training=self.training to it."
        )
    return value


def _method_table() -> dict[str, Callable[..., Any]]:
    g = graph
    table: dict[str, Callable[..., Any]] = {
        "relu": lambda v, inplace=False: g.relu(v),
        "clamp": _clamped,
        "clamp_min": _clamped,
        "add": lambda v, w, alpha=1: g.add(v, g.scale(as_value(w), alpha)),
        "sub": lambda v, w, alpha=1: g.subtract(v, g.scale(as_value(w), alpha)),
        "mul": g.multiply,
        "div": lambda v, w: g.divide(v, w),
        "neg": lambda v: g.scale(v, -1.0),
        "matmul": g.matmul,
        "mean": lambda v, dim=None, keepdim=False: g.mean(v, _axes(dim), keepdim),
        "sum": lambda v, dim=None, keepdim=False: g.total(v, _axes(dim), keepdim),
        "flatten": lambda v, start_dim=0, end_dim=-1: g.flatten(v, start_dim, end_dim),
        "unflatten": _unflatten,
        "reshape": _reshaped,
        "view": _reshaped,
        "squeeze": lambda v, dim=None: _squeezed(v, dim),
        "unsqueeze": lambda v, dim: g.unsqueeze(v, [dim]),
        "transpose": _swapped,
        "permute": _permuted,
        "t": g.transpose,
        "size": _size,
        "dim": lambda v: len(v.shape),
        "expand": _expanded,
        "unbind": lambda v, dim=0: [
            g.take(v, i, dim) for i in range(as_value(v).shape[dim])
        ],
        "chunk": _chunked,
        "split": _split,
    }
    table |= {"mm": table["matmul"], "bmm": table["matmul"]}
    table |= {f"{name}_": table[name] for name in ("relu", "add", "sub", "mul", "div")}
    for name in ("detach", "contiguous", "clone", "float", "double", "to", "cpu"):
        table[name] = lambda v, *ignored, **options: v
    return table


def _squeezed(value: Tensor, dim: Any) -> Any:
    """As torch: an axis that is longer than one stays."""
    value = as_value(value)
    axes = _axes(dim)
    if axes is not None:
        axes = [a for a in axes if value.shape[a] == 1]
    return graph.squeeze(value, axes)


def _expanded(value: Value, *sizes: Any) -> Any:
    wanted = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    own = (1,) * (len(wanted) - len(value.shape)) + value.shape
    return graph.broadcast(
        value, [n if s == -1 else s for s, n in zip(wanted, own, strict=True)]
    )


def _split(value: Value, sizes: Any, dim: int = 0) -> list[Any]:
    length = value.shape[dim]
    if isinstance(sizes, int):
        ends = list(range(sizes, length, sizes))
    else:
        ends = [int(n) for n in np.cumsum(sizes)[:-1]]
    blocks = np.split(np.arange(length), ends)
    return [graph.take(value, block, dim) for block in blocks]


def _chunked(value: Value, chunks: int, dim: int = 0) -> list[Any]:
    return _split(value, -(-value.shape[dim] // chunks), dim)


def _function_table(torch: Any) -> dict[Any, Callable[..., Any]]:
    g, methods = graph, _method_table()
    functional = torch.nn.functional
    table: dict[Any, Callable[..., Any]] = {
        getattr(torch, name): methods[name]
        for name in (
            "relu", "clamp", "clamp_min", "add", "sub", "mul", "div", "neg", "matmul",
            "mm", "bmm", "mean", "sum", "flatten", "unflatten", "reshape", "squeeze",
            "unsqueeze", "transpose", "permute", "t", "unbind", "chunk", "split",
        )
    }  # fmt: skip
    return table | {
        torch.relu_: methods["relu"],
        torch.true_divide: methods["div"],
        torch.multiply: methods["mul"],
        torch.subtract: methods["sub"],
        torch.divide: methods["div"],
        torch.negative: methods["neg"],
        torch.stack: lambda tensors, dim=0: g.stack(tensors, dim),
        torch.cat: lambda tensors, dim=0: g.concatenate(tensors, dim),
        torch.concat: lambda tensors, dim=0: g.concatenate(tensors, dim),
        torch.hstack: lambda tensors: g.concatenate(tensors, 1),
        torch.addmm: lambda c, a, b: g.add(g.matmul(a, b), c),
        torch.baddbmm: lambda c, a, b: g.add(g.matmul(a, b), c),
        functional.relu: methods["relu"],
        functional.relu_: methods["relu"],
        functional.linear: lambda input, weight, bias=None: _linear(
            input, weight, bias
        ),
        functional.dropout: _dropout,
        functional.alpha_dropout: _dropout,
        operator.add: g.add,
        operator.sub: g.subtract,
        operator.mul: g.multiply,
        operator.truediv: g.divide,
        operator.neg: methods["neg"],
        operator.matmul: g.matmul,
        operator.getitem: _item,
        operator.iadd: g.add,
        operator.isub: g.subtract,
        operator.imul: g.multiply,
        operator.itruediv: g.divide,
        getattr: _attribute,
    }


def _item(value: Any, key: Any) -> Any:
    return graph.index(value, key) if isinstance(value, Value) else value[key]
