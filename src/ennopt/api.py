"""`maximize`, `minimize` and `solve`: a model or a problem in, a proved optimum out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ennopt.checkpoint import Checkpoint
from ennopt.convert import load_with_original
from ennopt.convert.classes import choose_class
from ennopt.convert.verify import Original, rechecked
from ennopt.domain import Domain
from ennopt.domain.data import Data
from ennopt.domain.extrapolation import Extrapolation
from ennopt.domain.reading import read_place
from ennopt.domain.where import Where
from ennopt.expressions import Arithmetic, Decision, given, read_decision
from ennopt.log import ProgressLog
from ennopt.methods import Method, method_of
from ennopt.problem import Output, Problem, Sense
from ennopt.result import MEMORY, Asked, Progress, Result, Status, reported
from ennopt.run import Callback, Tools, matrix_threads
from ennopt.targets import Classes

if TYPE_CHECKING:
    from ennopt.certificate.checker import Checked, Verdict

NOT_NEAR = (
    "Bounds and constraints do not seem to contradict each other, but nothing near the "
    "data meets them: try a larger trust region, such as "
    "trust=ennopt.Near(radius=...), or loosen them."
)
"""What is said if a trust region holds no feasible point."""


ON_A_SOLVER = (
    "the point and its value; the bound rests on a MILP solver being right within its "
    "tolerances and cannot be certified"
)
"""What of a result others can verify, if its method has no certificates."""


NOT_REACHED = (
    "Bounds and constraints do not seem to contradict each other, but no input that "
    "meets them reaches every limit on predictions: loosen a limit."
)
"""What is said if limits on predictions cannot be met."""


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
    risk: Any = None,
    limits: Any = None,
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
    certificate: str | Path | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    threshold: float | None = None,
) -> Result:
    """Find the input with the largest prediction, and prove it.

    Parameters
    ----------
    model
        Anything `ennopt.load` takes: an `Ensemble`, a scikit-learn, PyTorch, Keras
        or ONNX model, a list of them, or the path of a file. Or what is to be optimized
        in terms of predictions and inputs: ``3 * Prediction(model) - Input("dose")``.
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
    risk
        How pessimistic the prediction of an ensemble is: ``"worst"`` (its worst
        member), ``Cvar(0.4)`` (the mean of the worst 40% of its members),
        ``MeanMinusStd(1.0)`` or ``MeanMinusMad(1.0)``.
    limits
        Conditions on predictions: comparisons such as ``strength >= 40``, where
        ``strength`` is a `Prediction`, or texts such as ``"prediction >= 40"`` on the
        prediction of `model` and the inputs.
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
    certificate
        Where to write what is needed to repeat the proof with `ennopt.verify`, for the
        search on boxes.
    checkpoint
        Where our own searches save their state every minute (`Checkpoint` for another
        interval) and at the end. If the file is there, the same call goes on from it,
        after a crash or a limit; `time_limit` is then that of the new call. What a
        checkpoint says is believed: a certificate is what others can check.
    threshold
        Stop as soon as it is known whether a prediction can reach this: when one is
        found, or when the bound excludes it. The status is then `threshold`, unless the
        optimum is proved as well.

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
        threshold=threshold,
        checkpoint=checkpoint,
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
        model, where, "max", output, risk, limits, method_of(method, backend), tools,
        verbose, certificate,
    )  # fmt: skip


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
    risk: Any = None,
    limits: Any = None,
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
    certificate: str | Path | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    threshold: float | None = None,
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
        threshold=threshold,
        checkpoint=checkpoint,
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
        model, where, "min", output, risk, limits, method_of(method, backend), tools,
        verbose, certificate,
    )  # fmt: skip


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
    certificate: str | Path | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    threshold: float | None = None,
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
        threshold=threshold,
        checkpoint=checkpoint,
    )
    return _solve(
        problem, method_of(method, backend), tools, verbose, original, data, certificate
    )


def _optimize(
    model: Any,
    where: Where,
    sense: Sense,
    output: Output,
    risk: Any,
    limits: Any,
    method: Method,
    tools: Tools,
    verbose: bool,
    certificate: str | Path | None,
) -> Result:
    """Solve for a model or an expression."""
    if not isinstance(model, Arithmetic) and risk is None and not given(limits):
        (ensemble, original), output = choose_class(load_with_original(model), output)
        place = read_place(where, ensemble)
        problem = Problem(ensemble, place.domain, sense, output)
        return _solve(
            problem, method, tools, verbose, original, place.data, certificate
        )
    decision = read_decision(model, output, risk, limits)
    place = read_place(where, decision.ensemble)
    problem = Problem(
        decision.ensemble, place.domain, sense, decision.output, decision.goal,
        decision.limits,
    )  # fmt: skip
    result = _solve(problem, method, tools, verbose, None, place.data, certificate)
    return asked_originals(result, problem, decision)


def asked_originals(result: Result, problem: Problem, decision: Decision) -> Result:
    """The result, with a note for each original model that disagrees there."""
    if result.x is None:
        return result
    for name, ensemble, output, original in decision.originals:
        alone = Problem(ensemble, problem.domain, "max", output)
        value = float(alone.values(result.x[None])[0])
        own = rechecked(replace(result, value=value, notes=()), alone, original)
        notes = tuple(f"{name}: {note}" for note in own.notes)
        result = replace(result, notes=(*result.notes, *notes))
    return result


def _solve(
    problem: Problem,
    method: Method,
    tools: Tools,
    verbose: bool,
    original: Original | None,
    data: Data | None,
    certificate: str | Path | None,
) -> Result:
    """Solve a problem of either sense; compare the answer with model and data."""
    if verbose:
        log = ProgressLog(heading(problem, method))
        tools = replace(tools, callback=_logging(log, tools.callback))
        try:
            return _solve(problem, method, tools, False, original, data, certificate)
        finally:
            log.close()
    result = _recorded(problem, method, tools, certificate)
    result = reported(result, problem.ensemble.target)
    if not getattr(method, "certifies", False):
        result = replace(result, details=result.details | {"verifiable": ON_A_SOLVER})
    if problem.ensemble.deviation is not None:
        origin = {"import_deviation": problem.ensemble.deviation}
        result = replace(result, details=result.details | origin)
    if result.status is Status.INFEASIBLE:
        from ennopt.milp.conflict import conflict  # HiGHS is loaded when it is needed

        reason = list(conflict(problem.domain))
        result = replace(result, details=result.details | {"conflict": reason})
        trusting = problem.domain.regions or problem.domain.convex
        if problem.limits and not reason:
            result = replace(result, notes=(*result.notes, NOT_REACHED))
        elif trusting and not reason:
            result = replace(result, notes=(*result.notes, NOT_NEAR))
    if result.x is not None and data is not None:
        if result.probability is not None or not problem.is_prediction:
            # Log-odds, and what is made of predictions, are nothing that was measured.
            data = replace(data, target=None)
        away = Extrapolation.at(result.x, result.value, problem.domain, data)
        result = replace(result, extrapolation=away)
    asked = Asked(
        problem, data, repr(method), tools.limits, tools.seed, tools.threads
    )  # fmt: skip
    result = replace(result, asked=asked)
    return result if original is None else rechecked(result, problem, original)


def heading(problem: Problem, method: Method) -> str:
    """What is solved and how: the lines above a log."""
    return f"{problem.ensemble!r}\n{problem.domain!r}\n{method!r}"


def _recorded(
    problem: Problem, method: Method, tools: Tools, certificate: str | Path | None
) -> Result:
    """Solve a problem, and write the certificate of its proof if one is asked for."""
    if certificate is None:
        return method.solve(problem, tools)
    from ennopt.certificate.writer import Recorder  # few runs ask for it

    recorder = Recorder(problem, certificate)
    result = method.solve(problem, replace(tools, recorder=recorder))
    made = recorder.write(result, tools.limits.gap)
    claim = {"certificate": str(certificate), "certified_bound": made.bound}
    return replace(result, details=result.details | claim)


def verify(
    certificate: str | Path,
    model: Any,
    about: Domain | Problem | None = None,
    *,
    others: Sequence[Any] = (),
    executor: Executor | None = None,
    workers: int = 1,
    progress: Callable[[Checked], Any] | None = None,
    most_pieces: float | None = None,
) -> Verdict:
    """Repeat the proof of a certificate, with a checker that shares no bounds with us.

    Parameters
    ----------
    certificate
        A file that ``maximize(..., certificate=...)`` wrote.
    model
        The model it is about: anything `ennopt.load` takes.
    about
        What it must be about: a feasible set, or a whole `Problem` with its objective
        and limits. Without it, these are what the certificate states: look at
        `Verdict.domain` and `Verdict.limits`.
    others
        Further models, if objective and limits have several.
    executor, workers
        Anything with ``submit``, and how many rounds of work it does at once.
    progress
        Called with how far the check is. Return True to give up.
    most_pieces
        Give up after so many pieces; by default in proportion to the certificate.

    Returns
    -------
    Verdict
        True if the claim is proved; its `reason` says what was proved, or what failed
        and where.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from ennopt import Network, maximize, verify
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "proof.cert")
    ...     answer = maximize(absolute, [(-2, 1)], certificate=file)
    ...     print(verify(file, absolute).reason)
    The point has the value 2, and no feasible input can exceed 2.0002.
    """
    from ennopt.certificate.checker import Verdict, check
    from ennopt.certificate.record import (
        Certificate,
        CertificateError,
        OtherModelError,
        difference,
    )

    ensembles = []
    for one in (model, *others):
        loaded = load_with_original(one)
        ensembles.append(loaded.ensemble)
        if isinstance(loaded.ensemble.target, Classes):
            names = range(len(loaded.ensemble.target.names))
            ensembles += [choose_class(loaded, k)[0].ensemble for k in names]
    try:
        claim = Certificate.read(certificate, ensembles)
    except OtherModelError as error:
        nan = float("nan")
        return Verdict(False, str(error), nan, nan, 0, 0, error.domain)
    if about is not None:
        other = difference(claim.problem, about)
        if other:
            raise CertificateError(
                f"Expected a certificate for your {other}, got one for another {other}."
            )
    with matrix_threads(1):  # its products are small, and threads are slower
        return check(
            claim, executor=executor, workers=workers, progress=progress,
            most_pieces=most_pieces,
        )  # fmt: skip


def _logging(log: ProgressLog, callback: Callback | None) -> Callback:
    def logged(moment: Progress) -> Any:
        log(moment)
        return callback is not None and callback(moment)

    return logged
