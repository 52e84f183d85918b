"""PyTorch modules, traced with torch.fx.

The user's module is never touched: a copy on the CPU in eval mode is traced, so
dropout is the identity and batch norm uses its running statistics.
"""

from __future__ import annotations

import copy
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ennopt.convert.affine import Room, Tensor, Value, inputs
from ennopt.convert.classes import Scores, is_sigmoid, read_by, to_scores
from ennopt.convert.errors import PredictorNotSupportedError, refuse
from ennopt.convert.torch_functions import (
    FUNCTIONS,
    MODULES,
    apply_layer,
    function_table,
    knows_layer,
    method_table,
    numpy_of,
)
from ennopt.convert.verify import Loaded, Original, verified
from ennopt.extras import require
from ennopt.network import Array, ModelConfigurationError


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
        ensemble = to_scores(_run(traced, x, room, torch), source, room)
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
    for node in calls.nodes:
        if node.op == "call_module":
            layer = modules[node.target]
            if not knows_layer(layer, torch):
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
        if isinstance(layer, torch.nn.Unflatten):
            widths.append(math.prod(layer.unflattened_size))
        if node.target in ("view", "reshape", "unflatten"):  # into an image
            sizes = [n for n in _flat(node.args[1:]) if isinstance(n, int)]
            widths.append(math.prod(n for n in sizes if n > 0))
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


_RESHAPING = ("squeeze", "flatten", "view", "reshape")


def _reshapes_sigmoid(target: Any, args: list[Any]) -> bool:
    """Whether a step only changes the shape of a sigmoid."""
    name = getattr(target, "__name__", target)
    return name in _RESHAPING and bool(args) and is_sigmoid(args[0])


def _flat(arguments: Any) -> list[Any]:
    return [b for a in arguments for b in (a if isinstance(a, list | tuple) else [a])]


def _run(traced: Any, x: Value, room: Room, torch: Any) -> Tensor | Scores:
    """Walk the traced graph with symbolic values in place of tensors."""
    root, calls = traced
    modules = dict(root.named_modules())
    functions, methods = function_table(torch), method_table()
    values: dict[Any, Any] = {}  # dropped after their last use
    last_use = {used: node for node in calls.nodes for used in node.all_input_nodes}
    given = False

    def resolve(argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return values[argument]
        if isinstance(argument, torch.Tensor):
            return numpy_of(argument)
        if isinstance(argument, list | tuple):
            return type(argument)(resolve(a) for a in argument)
        if isinstance(argument, slice):
            return slice(*map(resolve, (argument.start, argument.stop, argument.step)))
        return argument

    for node in calls.nodes:
        room.where = repr(str(node.target) if node.op == "call_module" else node.name)
        args = [resolve(a) for a in node.args]
        options = {key: resolve(a) for key, a in node.kwargs.items()}
        reshapes = _reshapes_sigmoid(node.target, args)
        if reshapes:
            args[0] = args[0].value
        elif node.op != "output":
            args, options = read_by(node.name, args), read_by(node.name, options)
        if node.op == "placeholder":
            default = args[0] if args else None  # None for *args and **kwargs
            values[node] = default if given else x
            given = True
        elif node.op == "get_attr":
            values[node] = numpy_of(operator.attrgetter(node.target)(root))
        elif node.op == "output":
            result = args[0]
            if isinstance(result, Value | np.ndarray | Scores):
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
                lambda v, layer=layer, node=node: apply_layer(
                    layer, v, node.target, torch
                ),
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
        if reshapes:
            values[node] = Scores(values[node], "sigmoid")
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
    return numpy_of(result) if isinstance(result, torch.Tensor) else result
