"""`maximize`, `minimize` and `solve`: a model or a problem in, a proved optimum out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ennopt.checkpoint import Checkpoint
from ennopt.convert import load_with_original
from ennopt.convert.classes import choose_class
from ennopt.convert.verify import Original
from ennopt.domain import Domain
from ennopt.domain.data import Data
from ennopt.domain.where import Where
from ennopt.expressions.joined import Model
from ennopt.methods import Method
from ennopt.network import Ensemble
from ennopt.problem import Output, Problem, Sense
from ennopt.question import (
    OneWords,
    Posed,
    Question,
    Running,
    SingleWords,
    check_words,
    read_start,
)
from ennopt.result import MEMORY, Result
from ennopt.run import Callback, matrix_threads
from ennopt.targets import Classes

if TYPE_CHECKING:
    from ennopt.certificate.checker import Checked, Verdict


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
    start: Any = None,
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
    start
        A point that is known: a dict by name, numbers in the order of the inputs, or
        the `Result` of another run. It must be feasible, and is the first value.

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
    return _optimized(
        model,
        domain,
        "max",
        data=data,
        target=target,
        constraints=constraints,
        fixed=fixed,
        integers=integers,
        values=values,
        categories=categories,
        trust=trust,
        output=output,
        risk=risk,
        limits=limits,
        method=method,
        backend=backend,
        time_limit=time_limit,
        node_limit=node_limit,
        memory_limit=memory_limit,
        gap=gap,
        threads=threads,
        seed=seed,
        callback=callback,
        executor=executor,
        verbose=verbose,
        certificate=certificate,
        checkpoint=checkpoint,
        threshold=threshold,
        start=start,
    )


def minimize(model: Any, domain: Any = None, **said: Unpack[OneWords]) -> Result:
    """Find the input with the smallest prediction, and prove it.

    Takes what `maximize` takes; `bound` is then a lower bound.

    Examples
    --------
    >>> from ennopt import Network, minimize
    >>> minimize(Network([[[3.0]]], [[1.0]]), [(-1, 1)]).value
    -2.0
    """
    return _optimized(model, domain, "min", **said)


minimize.__signature__ = inspect.signature(maximize)  # type: ignore[attr-defined]


def _optimized(
    model: Any, domain: Any, sense: Sense, **said: Unpack[OneWords]
) -> Result:
    question = Question.of([(model, sense)], domain, said, f"{sense}imize", single=True)
    return question.posed().solve(question.running)


def solve(
    problem: Problem,
    method: str | Method = "auto",
    *,
    original: Original | None = None,
    data: Data | None = None,
    start: Any = None,
    **said: Unpack[SingleWords],
) -> Result:
    """Solve a `Problem`; further keywords are those of `maximize` about the run.

    `original` is the model that the ensemble was converted from, if there is one, as
    `ennopt.convert.load_with_original` gives it: it is asked at the answer. `data` are
    the rows that `ennopt.domain.reading.read_place` found: the result says how far the
    answer is from them. `start` is a known point, as `maximize` takes it.

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
    check_words(said, tuple(SingleWords.__annotations__), "solve")
    running = Running.of({"method": method, **said})
    model = Model("prediction", problem.ensemble, problem.output, original)
    known = read_start(start, problem, Where())
    return Posed(problem, data, (model,), start=known, alone=True).solve(running)


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
        The model it is about: anything `ennopt.load` takes. Or a whole `Problem`, which
        it must be about then. Of a problem file that is
        ``read_problem(file).verify(certificate)``.
    about
        What it must be about: a feasible set, or a whole `Problem` with its objective
        and limits. Without it, these are what the certificate states: look at
        `Verdict.claim`.
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
        and where, and its `claim` says of what.

    Raises
    ------
    CertificateError
        When the file is damaged or no certificate; an `OtherClaimError` when it is
        about something else than `about`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from ennopt import Network, maximize, verify
    >>> absolute = Network([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "proof.cert")
    ...     answer = maximize(absolute, [(-2, 1)], certificate=file)
    ...     verdict = verify(file, absolute)
    >>> print(verdict.reason)
    The point has the value 2, and no feasible input can exceed 2.0002.
    >>> verdict.claim
    ('the maximum of model 1', 'where x0 in [-2, 1]')
    """
    from ennopt.certificate.record import ensembles_of

    named: list[tuple[str | None, Ensemble]] = []
    if isinstance(model, Problem):
        if about is not None:
            raise TypeError(
                "Expected one thing that the certificate must be about, got a problem "
                "and another. Leave one out."
            )
        about = model
        named = [(None, ensemble) for ensemble in ensembles_of(model)]
        given = list(others)
    else:
        given = [model, *others]
    for one in given:
        loaded = load_with_original(one)
        name = Path(one).name if isinstance(one, str | Path) else None
        named.append((name, loaded.ensemble))
        if isinstance(loaded.ensemble.target, Classes):
            for k, word in enumerate(loaded.ensemble.target.names):
                own = None if name is None else f"the log-odds of {word} by {name}"
                named.append((own, choose_class(loaded, k)[0].ensemble))
    return repeat_proof(
        certificate, named, about, executor=executor, workers=workers,
        progress=progress, most_pieces=most_pieces,
    )  # fmt: skip


def repeat_proof(
    certificate: str | Path,
    named: Sequence[tuple[str | None, Ensemble]],
    about: Domain | Problem | None,
    *,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Callable[[Checked], Any] | None = None,
    most_pieces: float | None = None,
) -> Verdict:
    """As `verify`, for models that are loaded, with what they are called."""
    from ennopt.certificate.checker import Verdict, check
    from ennopt.certificate.record import (
        Certificate,
        OtherClaimError,
        OtherModelError,
        difference,
        fingerprint,
    )
    from ennopt.certificate.words import set_words

    try:
        claim = Certificate.read(certificate, [ensemble for _, ensemble in named])
    except OtherModelError as error:
        nan = float("nan")
        words = set_words(error.domain)
        return Verdict(False, str(error), nan, nan, 0, 0, error.domain, words)
    if about is not None:
        other = difference(claim.problem, about)
        if other:
            raise OtherClaimError(other)
    names = {fingerprint(own): name for name, own in reversed(named) if name}
    with matrix_threads(1):  # its products are small, and threads are slower
        return check(
            claim, executor=executor, workers=workers, progress=progress,
            most_pieces=most_pieces, names=names,
        )  # fmt: skip
