"""Read a method back from its ``repr``: the language of methods in a study.

``BranchAndCut(tightening=LpTightening())`` means in a study what it means in Python.
Only constructors of the search, tightening, bounds and MILP rooms are known, with
plain values and each other as arguments; nothing else is evaluated.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import math
import pkgutil
from dataclasses import is_dataclass
from typing import Any

from ennopt.methods import METHODS, Method, method_named

ROOMS = ("ennopt.bounds", "ennopt.tightening", "ennopt.engine", "ennopt.paper")


def read_method(text: str) -> Method:
    """The method that `text` stands for: a name or an expression.

    Examples
    --------
    >>> read_method("BigM(backend='scip')").backend
    'scip'
    >>> read_method("BigM(backend=open('x'))")
    Traceback (most recent call last):
        ...
    ValueError: Expected a known constructor, got 'open' in "BigM(backend=open('x'))".
    It may be one of ...
    """
    if text in METHODS:
        return method_named(text)
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"Expected a method, got {text!r}: {error.msg}.") from error
    try:
        method = _build(tree.body)
    except (TypeError, ValueError) as error:
        # A constructor's own complaint: say where it came from.
        if isinstance(error, _UnreadableError):
            raise ValueError(f"{error.args[0]} in {text!r}.{error.args[1]}") from error
        raise ValueError(f"{str(error).rstrip('.')}, in {text!r}.") from error
    if not isinstance(method, Method):
        raise ValueError(f"Expected a method with a verb solve, got {text!r}.")
    return method


class _UnreadableError(ValueError):
    """Part of an expression has no meaning here."""


def _build(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return -_build(node.operand)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return -math.inf
        case ast.Name(id="inf"):
            return math.inf
        case ast.Tuple(elts=entries):
            return tuple(_build(entry) for entry in entries)
        case ast.List(elts=entries):
            return [_build(entry) for entry in entries]
        case ast.Call(func=function):
            if any(keyword.arg is None for keyword in node.keywords):
                raise _UnreadableError("Expected named arguments, got **", "")
            constructor = _constructor(function)
            positional = [_build(argument) for argument in node.args]
            named = {str(word.arg): _build(word.value) for word in node.keywords}
            return constructor(*positional, **named)
        case _:
            raise _UnreadableError(
                f"Expected a plain value, got {ast.unparse(node)!r}", ""
            )


def _constructor(node: ast.expr) -> Any:
    """A known class, or a class method of one such as ``TwoPhase.tuned``."""
    match node:
        case ast.Name(id=name) if name in vocabulary():
            return vocabulary()[name]
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            found = inspect.getattr_static(vocabulary().get(owner), name, None)
            if isinstance(found, classmethod) and not name.startswith("_"):
                return getattr(vocabulary()[owner], name)
    raise _UnreadableError(
        f"Expected a known constructor, got {ast.unparse(node)!r}",
        f" It may be one of {', '.join(sorted(vocabulary()))}.",
    )


@functools.cache
def vocabulary() -> dict[str, type]:
    """The constructors that an expression may use, by name."""
    return {
        name: thing
        for module in modules()
        for name, thing in vars(importlib.import_module(module)).items()
        if inspect.isclass(thing)
        and is_dataclass(thing)
        and thing.__module__ == module
        and not name.startswith("_")
    }


def modules() -> list[str]:
    """The modules whose constructors an expression may use."""
    return [
        "ennopt.paper.root_bound",
        *(
            entry.name
            for room in ROOMS
            for entry in pkgutil.iter_modules(
                importlib.import_module(room).__path__, f"{room}."
            )
        ),
    ]
