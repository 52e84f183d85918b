"""`maximize` and `minimize`: any model in, a proved optimum out."""

from __future__ import annotations

import math
import os
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from ennopt.convert import load_with_original
from ennopt.convert.verify import Original, rechecked
from ennopt.domain import Domain
from ennopt.methods import Method, method_named
from ennopt.problem import Output, Problem, Sense
from ennopt.result import Limits, Progress, Result
from ennopt.run import Callback, Tools


def maximize(
    model: Any,
    domain: Any = None,
    *,
    method: str | Method = "auto",
    backend: str | None = None,
    output: Output = None,
    time_limit: float = math.inf,
    node_limit: float = math.inf,
    gap: float = 1e-4,
    threads: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    executor: Executor | None = None,
) -> Result:
    """Find the input with the largest prediction, and prove it.

    Parameters
    ----------
    model
        Anything `ennopt.load` takes: an `Ensemble`, a scikit-learn, PyTorch, Keras
        or ONNX model, a list of them, or the path of a file.
    domain
        Bounds of the inputs in original units, in any form that `Domain.of` reads;
        ``None`` takes the box recorded with the model.
    method
        A name (see ``ennopt methods``) or a method such as ``BigM(backend="scip")``.
    backend
        MILP solver of a method given by name: ``"highs"``, ``"scip"``, ``"gurobi"``.
    output
        Of a model with several outputs, the index of one or the coefficients of
        a linear combination.
    time_limit
        Wall-clock seconds.
    node_limit
        Search nodes, for runs that repeat exactly.
    gap
        The value counts as optimal when ``|bound - value| / max(|value|, 1e-10)``
        is at most this.
    threads
        ``None`` takes every core available.
    seed
        Of everything random.
    callback
        Called with a `Progress` now and then; a true answer stops the run.
    executor
        Anything like a ``concurrent.futures.Executor``, for work in parallel.

    Returns
    -------
    Result
        At a limit or after Ctrl-C, the best answer so far and the bound so far.
        A model of another framework is asked for its own prediction at the answer,
        `Result.original`.

    Examples
    --------
    >>> from ennopt import Ensemble, Network, maximize
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> answer = maximize(Ensemble([absolute]), [(-2, 1)])
    >>> answer.status.value, answer.x.tolist(), answer.value
    ('optimal', [-2.0], 2.0)
    """
    limits = Limits(seconds=time_limit, nodes=node_limit, gap=gap)
    tools = Tools(
        limits,
        available_cores() if threads is None else threads,
        seed,
        executor,
        callback,
    )
    return _optimize(model, domain, "max", output, method, backend, tools)


def minimize(
    model: Any,
    domain: Any = None,
    *,
    method: str | Method = "auto",
    backend: str | None = None,
    output: Output = None,
    time_limit: float = math.inf,
    node_limit: float = math.inf,
    gap: float = 1e-4,
    threads: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    executor: Executor | None = None,
) -> Result:
    """Find the input with the smallest prediction, and prove it.

    Takes what `maximize` takes; `bound` is then a lower bound.

    Examples
    --------
    >>> from ennopt import Network, minimize
    >>> minimize(Network([[[3.0]]], [[1.0]]), [(-1, 1)]).value
    -2.0
    """
    limits = Limits(seconds=time_limit, nodes=node_limit, gap=gap)
    tools = Tools(
        limits,
        available_cores() if threads is None else threads,
        seed,
        executor,
        callback,
    )
    return _optimize(model, domain, "min", output, method, backend, tools)


def solve(
    problem: Problem, method: Method, tools: Tools, original: Original | None = None
) -> Result:
    """Solve a problem of either sense: the one way in and out of a minimization.

    Parameters
    ----------
    problem
        What to optimize.
    method
        How.
    tools
        Limits, threads and the like.
    original
        The model that the ensemble was converted from, if there is one: it is asked
        for its own prediction at the answer.
    """
    if problem.sense == "min" and tools.callback is not None:
        tools = replace(tools, callback=_negating(tools.callback))
    result = method.solve(problem.maximized(), tools)
    if problem.ensemble.deviation is not None:
        origin = {"import_deviation": problem.ensemble.deviation}
        result = replace(result, details=result.details | origin)
    if problem.sense == "min":
        result = result.negated()
    return result if original is None else rechecked(result, problem, original)


def _optimize(
    model: Any,
    domain: Any,
    sense: Sense,
    output: Output,
    method: str | Method,
    backend: str | None,
    tools: Tools,
) -> Result:
    ensemble, original = load_with_original(model)
    problem = Problem(ensemble, Domain.of(domain, ensemble), sense, output)
    if isinstance(method, str):
        method = method_named(method, backend)
    elif backend is not None:
        raise ValueError(
            f"Expected no backend beside the method {method!r}, got {backend!r}. "
            "Give the method its backend."
        )
    elif not isinstance(method, Method):
        raise TypeError(f"Expected a method or its name, got {type(method).__name__}.")
    return solve(problem, method, tools, original)


def _negating(callback: Callback) -> Callback:
    def negated(moment: Progress) -> Any:
        return callback(replace(moment, value=-moment.value, bound=-moment.bound))

    return negated


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
