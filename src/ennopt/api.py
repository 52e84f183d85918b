"""`maximize`, `minimize` and `solve`: a model or a problem in, a proved optimum out."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from ennopt.convert import load_with_original
from ennopt.convert.classes import choose_class
from ennopt.convert.verify import Original, rechecked
from ennopt.domain.data import Data
from ennopt.domain.extrapolation import Extrapolation
from ennopt.domain.reading import read_place
from ennopt.domain.where import Where
from ennopt.log import ProgressLog
from ennopt.methods import Method, method_of
from ennopt.problem import Output, Problem, Sense
from ennopt.result import MEMORY, Progress, Result, Status, reported
from ennopt.run import Callback, Tools

NOT_NEAR = (
    "Bounds and constraints do not seem to contradict each other, but nothing near the "
    "data meets them: try a larger trust region, such as "
    "trust=ennopt.Near(radius=...), or loosen them."
)
"""What is said if a trust region holds no feasible point."""


def maximize(
    model: Any,
    domain: Any = None,
    *,
    data: Any = None,
    target: Any = None,
    constraints: Any = None,
    fixed: Mapping[str, Any] | None = None,
    integers: Any = None,
    values: Mapping[str, Any] | None = None,
    categories: Mapping[str, Any] | None = None,
    trust: Any = None,
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
        ``{"grade": [32.5, 42.5, 52.5]}``         three or more values, no others
        ``{"grade": {32.5, 42.5}}``               a set of any number of values
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
        array (num_rows, num_inputs) or the path of a CSV file. With rows, here or as
        `domain`, the result says how far the answer is from them.
    target
        What was measured in each row of data, numbers or the name of a column. The
        result compares the prediction with their range.
    constraints
        Linear constraints on the inputs: a text such as ``"2*cement <= 900 + slag"``,
        a ``scipy.optimize.LinearConstraint`` or ``Bounds``, `Rows`, a tuple
        ``(matrix, least, most)``, or a list of these.
    fixed
        Inputs with a given value, by name: ``{"age": 28}``. They need no other bounds,
        and the value may lie outside of those. A category has a level:
        ``{"plant": "plant_B"}``.
    integers
        Inputs that take whole numbers only, names or positions: ``["age"]``.
    values
        Inputs that take the values of a list only: ``{"grade": [32.5, 42.5]}``. Values
        beyond other bounds of the input are left out.
    categories
        Inputs of zeros and ones that stand for one choice, by the name of the choice:
        ``{"plant": ["plant_A", "plant_B"]}``; exactly one of them is a one. Or by the
        name of each level: ``{"plant": {"A": "plant_A", "B": "plant_B", "C": None}}``;
        at level C, which has no input, all of them are zero.
    trust
        Stay where the rows of data, given as `domain` or `data`, say that the model may
        be believed: ``"near"`` (close to a row, see `Near` for how close),
        ``Near(radius=0.5, count=3)``, ``"box"`` (in the range of the rows), or a list
        of these.
    output
        Of a model with several outputs, the index of one or the coefficients of
        a linear combination. Of a classifier, the number or the name of a class; its
        log-odds are optimized, see `Result.probability`.
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
        `Result.original`. With rows of data, `Result.extrapolation` says how far the
        answer is from them.

    Examples
    --------
    >>> from ennopt import Ensemble, Network, maximize
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> answer = maximize(Ensemble([absolute]), [(-2, 1)])
    >>> answer.status.value, answer.x.tolist(), answer.value
    ('optimal', [-2.0], 2.0)
    >>> maximize(Ensemble([absolute]), [(-2, 1)], constraints="x0 >= -1.5").value
    1.5
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
    where = Where(
        domain=domain,
        data=data,
        target=target,
        constraints=constraints,
        fixed=fixed,
        integers=integers,
        values=values,
        categories=categories,
        trust=trust,
    )
    return _optimize(
        model, where, "max", output, method_of(method, backend), tools, verbose
    )


def minimize(
    model: Any,
    domain: Any = None,
    *,
    data: Any = None,
    target: Any = None,
    constraints: Any = None,
    fixed: Mapping[str, Any] | None = None,
    integers: Any = None,
    values: Mapping[str, Any] | None = None,
    categories: Mapping[str, Any] | None = None,
    trust: Any = None,
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
    where = Where(
        domain=domain,
        data=data,
        target=target,
        constraints=constraints,
        fixed=fixed,
        integers=integers,
        values=values,
        categories=categories,
        trust=trust,
    )
    return _optimize(
        model, where, "min", output, method_of(method, backend), tools, verbose
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
    data: Data | None = None,
) -> Result:
    """Solve a `Problem`; the keywords are those of `maximize`.

    `original` is the model that the ensemble was converted from, if there is one, as
    `ennopt.convert.load_with_original` gives it: it is asked at the answer. `data` are
    the rows that `ennopt.domain.reading.read_place` found: the result says how far the
    answer is from them.

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
    return _solve(problem, method_of(method, backend), tools, verbose, original, data)


def _optimize(
    model: Any,
    where: Where,
    sense: Sense,
    output: Output,
    method: Method,
    tools: Tools,
    verbose: bool,
) -> Result:
    """Solve for a model."""
    (ensemble, original), output = choose_class(load_with_original(model), output)
    place = read_place(where, ensemble)
    problem = Problem(ensemble, place.domain, sense, output)
    return _solve(problem, method, tools, verbose, original, place.data)


def _solve(
    problem: Problem,
    method: Method,
    tools: Tools,
    verbose: bool,
    original: Original | None,
    data: Data | None,
) -> Result:
    """Solve a problem of either sense; compare the answer with model and data."""
    if verbose:
        log = ProgressLog(f"{problem.ensemble!r}\n{problem.domain!r}\n{method!r}")
        tools = replace(tools, callback=_logging(log, tools.callback))
        try:
            return _solve(problem, method, tools, False, original, data)
        finally:
            log.close()
    result = reported(method.solve(problem, tools), problem.ensemble.target)
    if problem.ensemble.deviation is not None:
        origin = {"import_deviation": problem.ensemble.deviation}
        result = replace(result, details=result.details | origin)
    if result.status is Status.INFEASIBLE:
        from ennopt.milp.conflict import conflict  # HiGHS is loaded when it is needed

        reason = list(conflict(problem.domain))
        result = replace(result, details=result.details | {"conflict": reason})
        trusting = problem.domain.regions or problem.domain.convex
        if trusting and not reason:
            result = replace(result, notes=(*result.notes, NOT_NEAR))
    if result.x is not None and data is not None:
        if result.probability is not None:  # log-odds are nothing that was measured
            data = replace(data, target=None)
        away = Extrapolation.at(result.x, result.value, problem.domain, data)
        result = replace(result, extrapolation=away)
    return result if original is None else rechecked(result, problem, original)


def _logging(log: ProgressLog, callback: Callback | None) -> Callback:
    def logged(moment: Progress) -> Any:
        log(moment)
        return callback is not None and callback(moment)

    return logged
