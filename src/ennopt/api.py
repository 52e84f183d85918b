"""`maximize`, `minimize` and `solve`: a model or a problem in, a proved optimum out."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from ennopt.convert import load_with_original
from ennopt.convert.verify import Original, rechecked
from ennopt.domain.reading import read_domain
from ennopt.log import ProgressLog
from ennopt.methods import Method, method_of
from ennopt.problem import Output, Problem, Sense
from ennopt.result import MEMORY, Progress, Result
from ennopt.run import Callback, Tools


def maximize(
    model: Any,
    domain: Any = None,
    *,
    data: Any = None,
    output: Output = None,
    method: str | Method = "auto",
    backend: str | None = None,
    time_limit: float | None = None,
    node_limit: float | None = None,
    memory_limit: float | None = MEMORY,
    gap: float = 1e-4,
    threads: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    executor: Executor | None = None,
    verbose: bool = False,
) -> Result:
    """Find the input with the largest prediction, and prove it.

    Parameters
    ----------
    model
        Anything `ennopt.load` takes: an `Ensemble`, a scikit-learn, PyTorch, Keras
        or ONNX model, a list of them, or the path of a file.
    domain
        Bounds of the inputs in original units, in one of these forms:

        ========================================  ====================================
        ``None``                                  range of `data`, or the recorded box
        ``{"age": (1, 28), "dose": 3}``           by name; a number fixes an input
        ``"bounds.toml"``, ``"bounds.csv"``       by name, from a file
        ``[(0, 1), (0, 5)]``, a list of pairs     one pair for each input, in order
        ``([0, 0], [1, 5])``, a tuple of two      lower bounds, then upper bounds
        ``(0, 1)``, a tuple of two numbers        the same for every input
        an object with ``lb`` and ``ub``          ``scipy.optimize.Bounds``
        a DataFrame of bounds, ``describe()``     ``lower, upper`` or ``min, max``
        a DataFrame or an array of rows           range of that data
        a `Domain`                                itself
        ========================================  ====================================

        Columns and names are matched by name. Bounds by name may leave inputs out:
        `data`, or else the recorded box, bounds those.
    data
        Rows whose ranges bound every input that `domain` leaves out: a DataFrame, an
        array (num_rows, num_inputs) or the path of a CSV file.
    output
        Of a model with several outputs, the index of one or the coefficients of
        a linear combination.
    method
        A name (see ``ennopt methods``) or a method such as ``BigM(backend="scip")``.
    backend
        MILP solver of a method given by name: ``"highs"``, ``"scip"``, ``"gurobi"``.
    time_limit
        Wall-clock seconds; ``None`` for no limit.
    node_limit
        Search nodes, for runs that repeat exactly; ``None`` for no limit.
    memory_limit
        Bytes for the open nodes of our own searches, which go depth-first once these
        are used up; ``None`` for no limit.
    gap
        The value counts as optimal when
        ``|bound - value| <= gap * max(|value|, 0.01 * min(1, S))``, where ``S`` bounds
        the magnitude of every prediction on the domain. So the gap is relative, except
        near zero, where it is absolute: 0.01 times `gap` if ``S`` is at least 1.
    threads
        ``None`` takes every core available.
    seed
        Of everything random.
    callback
        Called with a `Progress` now and then. Return True to stop the run.
    executor
        Anything like a ``concurrent.futures.Executor``, for work in parallel.
    verbose
        Write a log to standard error, as the command line does.

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
    tools = Tools.of(
        time_limit=time_limit,
        node_limit=node_limit,
        memory_limit=memory_limit,
        gap=gap,
        threads=threads,
        seed=seed,
        executor=executor,
        callback=callback,
    )
    return _optimize(
        model, domain, data, "max", output, method_of(method, backend), tools, verbose
    )


def minimize(
    model: Any,
    domain: Any = None,
    *,
    data: Any = None,
    output: Output = None,
    method: str | Method = "auto",
    backend: str | None = None,
    time_limit: float | None = None,
    node_limit: float | None = None,
    memory_limit: float | None = MEMORY,
    gap: float = 1e-4,
    threads: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    executor: Executor | None = None,
    verbose: bool = False,
) -> Result:
    """Find the input with the smallest prediction, and prove it.

    Takes what `maximize` takes; `bound` is then a lower bound.

    Examples
    --------
    >>> from ennopt import Network, minimize
    >>> minimize(Network([[[3.0]]], [[1.0]]), [(-1, 1)]).value
    -2.0
    """
    tools = Tools.of(
        time_limit=time_limit,
        node_limit=node_limit,
        memory_limit=memory_limit,
        gap=gap,
        threads=threads,
        seed=seed,
        executor=executor,
        callback=callback,
    )
    return _optimize(
        model, domain, data, "min", output, method_of(method, backend), tools, verbose
    )


def solve(
    problem: Problem,
    method: str | Method = "auto",
    *,
    backend: str | None = None,
    time_limit: float | None = None,
    node_limit: float | None = None,
    memory_limit: float | None = MEMORY,
    gap: float = 1e-4,
    threads: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    executor: Executor | None = None,
    verbose: bool = False,
    original: Original | None = None,
) -> Result:
    """Solve a `Problem`; the keywords are those of `maximize`.

    `original` is the model that the ensemble was converted from, if there is one, as
    `ennopt.convert.load_with_original` gives it: it is asked at the answer.

    Examples
    --------
    >>> from ennopt import Domain, Ensemble, Network, Problem, solve
    >>> line = Ensemble([Network([[[3.0]]], [[1.0]])])
    >>> solve(Problem(line, Domain([-1], [1]), "min"), time_limit=60).value
    -2.0
    """
    if not isinstance(problem, Problem):
        raise TypeError(
            f"Expected a Problem, got {type(problem).__name__}. Call maximize or "
            "minimize for a model."
        )
    tools = Tools.of(
        time_limit=time_limit,
        node_limit=node_limit,
        memory_limit=memory_limit,
        gap=gap,
        threads=threads,
        seed=seed,
        executor=executor,
        callback=callback,
    )
    return _solve(problem, method_of(method, backend), tools, verbose, original)


def _optimize(
    model: Any,
    domain: Any,
    data: Any,
    sense: Sense,
    output: Output,
    method: Method,
    tools: Tools,
    verbose: bool,
) -> Result:
    ensemble, original = load_with_original(model)
    problem = Problem(ensemble, read_domain(domain, ensemble, data), sense, output)
    return _solve(problem, method, tools, verbose, original)


def _solve(
    problem: Problem,
    method: Method,
    tools: Tools,
    verbose: bool,
    original: Original | None,
) -> Result:
    """Solve a problem of either sense, and ask the original model at the answer."""
    if verbose:
        log = ProgressLog(f"{problem.ensemble!r}\n{problem.domain!r}\n{method!r}")
        tools = replace(tools, callback=_logging(log, tools.callback))
        try:
            return _solve(problem, method, tools, False, original)
        finally:
            log.close()
    result = method.solve(problem, tools)
    if problem.ensemble.deviation is not None:
        origin = {"import_deviation": problem.ensemble.deviation}
        result = replace(result, details=result.details | origin)
    return result if original is None else rechecked(result, problem, original)


def _logging(log: ProgressLog, callback: Callback | None) -> Callback:
    def logged(moment: Progress) -> Any:
        log(moment)
        return callback is not None and callback(moment)

    return logged
