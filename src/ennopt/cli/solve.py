"""``ennopt solve``: optimize a model from the command line."""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from ennopt.api import asked_originals, heading, solve
from ennopt.checkpoint import INTERVAL, Checkpoint
from ennopt.cli.bounds import add_bounds, add_statements, given_place
from ennopt.convert import load_with_original
from ennopt.convert.classes import choose_class
from ennopt.expressions import Decision, read_decision
from ennopt.log import ProgressLog
from ennopt.methods import METHODS, method_named
from ennopt.network import Ensemble
from ennopt.options import check_place, gap, positive_number, whole_number
from ennopt.problem import Problem
from ennopt.result import MEMORY, Result, Status
from ennopt.risk import Cvar, MeanMinusMad, MeanMinusStd, Risk, Worst

EXIT_NO_ANSWER = 1
EXIT_INTERRUPTED = 130


def add_solve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "solve",
        help="find the best input of a model and prove it",
        description="Find the input that maximizes or minimizes a model's prediction, "
        "with a proof. The log goes to standard error, the answer to standard output.",
    )
    add_model(parser)
    add_statements(parser)
    parser.add_argument("--sense", choices=("max", "min"), default="max")
    parser.add_argument(
        "--output-index",
        type=whole_number(0),
        metavar="K",
        help="which output of a model with several, from 0 on",
    )
    parser.add_argument(
        "--output-coefficients",
        type=float,
        nargs="+",
        metavar="C",
        help="optimize a linear combination of the outputs: a number for each",
    )
    parser.add_argument(
        "--method", default="auto", help=f"one of {', '.join(METHODS)} (default: auto)"
    )
    parser.add_argument(
        "--backend", help="MILP solver of the method: highs, scip or gurobi"
    )
    parser.add_argument(
        "--time-limit",
        type=positive_number,
        metavar="SECONDS",
        help="wall-clock time (default: no limit)",
    )
    parser.add_argument(
        "--node-limit",
        type=positive_number,
        metavar="N",
        help="search nodes (default: no limit)",
    )
    parser.add_argument(
        "--memory-limit",
        type=positive_number,
        default=MEMORY,
        metavar="BYTES",
        help=f"memory for open nodes, such as 4e9 (default: {MEMORY:.3g})",
    )
    parser.add_argument(
        "--gap",
        type=gap,
        default=1e-4,
        help="relative gap to prove, absolute near zero (default: 1e-4)",
    )
    parser.add_argument(
        "--risk",
        type=risk_named,
        metavar="RISK",
        help="worst, cvar:0.4, std:1 or mad:1: a pessimistic prediction",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="TEXT",
        help='such as "prediction >= 40"; may be repeated',
    )
    parser.add_argument(
        "--threads", type=whole_number(1), metavar="N", help="default: every core"
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, metavar="N", help="default: 0"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="also write the result as JSON"
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE.html",
        help="also write the answer as one page for a browser",
    )
    parser.add_argument("--quiet", action="store_true", help="no log on standard error")
    parser.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="write the log, in lines, and the answer to a file",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="T",
        help="stop as soon as it is known whether a prediction can reach T",
    )
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="write what is needed to repeat the proof: see ennopt verify",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save the state of the search there, now and then; if the file is there, "
        "go on from it",
    )
    parser.add_argument(
        "--checkpoint-interval",
        type=positive_number,
        default=INTERVAL,
        metavar="SECONDS",
        help=f"time between two states that are saved (default: {INTERVAL:g})",
    )
    parser.set_defaults(run=run_solve)


def risk_named(text: str) -> Risk:
    """A risk from the command line.

    Examples
    --------
    >>> risk_named("cvar:0.4")
    Cvar(share=0.4)
    """
    name, _, number = text.partition(":")
    kinds: dict[str, Callable[[float], Risk]] = {
        "cvar": Cvar, "std": MeanMinusStd, "mad": MeanMinusMad,
    }  # fmt: skip
    if text == "worst":
        return Worst()
    try:
        return kinds[name](float(number))
    except (KeyError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"Expected worst, cvar:SHARE, std:KAPPA or mad:KAPPA, got {text!r}."
        ) from error


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare the model and its bounds."""
    parser.add_argument(
        "model", metavar="MODEL", help="a .npz, .onnx, .keras or .pt file"
    )
    add_bounds(parser)


def check_index(index: int | None, ensemble: Ensemble) -> None:
    """Refuse an index of no output, and several outputs without one."""
    last = ensemble.num_outputs - 1
    if index is None and last > 0:
        raise ValueError(
            f"Expected the output to optimize, got none for a model of {last + 1} "
            f"outputs. Add --output-index K, K from 0 to {last}."
        )
    if index is not None and index > last:
        raise ValueError(f"Expected --output-index from 0 to {last}, got {index}.")


def no_bounds(ensemble: Ensemble) -> ValueError:
    """What is said if neither the options nor the model bound the inputs."""
    return ValueError(
        f"Expected bounds for the {ensemble.num_inputs} inputs, got none, and the "
        "model records no box. Add --lower and --upper, --bounds FILE or --data "
        "FILE.csv."
    )


def asked_here(result: Result, given: Sequence[str]) -> Result:
    """The result with the line that asked for it."""
    if result.asked is None:
        return result
    line = shlex.join(["ennopt", *given])
    return replace(result, asked=replace(result.asked, command=line))


@contextmanager
def termination_like_ctrl_c() -> Iterator[None]:
    """Within it, SIGTERM ends a run as Ctrl-C does: best answer, true bound."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may listen to signals
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wanted_output(options: argparse.Namespace) -> Any:
    """The output or the combination of outputs that the options name."""
    if options.output_coefficients is None:
        return options.output_index
    if options.output_index is not None:
        raise ValueError(
            "Expected --output-index or --output-coefficients, got both. Leave one out."
        )
    return options.output_coefficients


def run_solve(options: argparse.Namespace) -> int:
    """Solve, print the answer, return the exit status."""
    method = method_named(options.method, options.backend)
    decision: Decision | None = None
    if options.risk is None and not options.limit:
        loaded = load_with_original(options.model)
        (ensemble, original), output = choose_class(loaded, _wanted_output(options))
    else:
        decision = read_decision(
            options.model, _wanted_output(options), options.risk, options.limit
        )
        ensemble, original, output = decision.ensemble, None, decision.output
    place = given_place(options, ensemble)
    if place is None:
        raise no_bounds(ensemble)
    if options.output_coefficients is None:
        check_index(output, ensemble)
    elif len(options.output_coefficients) != ensemble.num_outputs:
        raise ValueError(
            f"Expected {ensemble.num_outputs} numbers at --output-coefficients, one "
            f"for each output, got {len(options.output_coefficients)}."
        )
    problem = Problem(ensemble, place.domain, options.sense, output)
    if decision is not None:
        problem = replace(problem, goal=decision.goal, limits=decision.limits)
    for option in ("output", "report", "log_file"):
        path = getattr(options, option)
        if path is not None:
            check_place(path, f"--{option.replace('_', '-')}")
            path.touch()  # may we write there? Not after an hour of work
    checkpoint = None
    if options.checkpoint is not None:
        checkpoint = Checkpoint(options.checkpoint, options.checkpoint_interval)
    with ExitStack() as opened:
        opened.enter_context(termination_like_ctrl_c())
        log = None
        if options.log_file is not None:
            file = opened.enter_context(options.log_file.open("w", encoding="utf-8"))
            log = ProgressLog(heading(problem, method), file, live=False)
        result = solve(
            problem,
            method,
            time_limit=options.time_limit,
            node_limit=options.node_limit,
            memory_limit=options.memory_limit,
            gap=options.gap,
            threads=options.threads,
            seed=options.seed,
            callback=log,
            verbose=not options.quiet,
            certificate=options.certificate,
            checkpoint=checkpoint,
            threshold=options.threshold,
            original=original,
            data=place.data,
        )
        if decision is not None:
            result = asked_originals(result, problem, decision)
        if log is not None:
            file.write(result.summary() + "\n")
    if options.output is not None:
        options.output.write_text(result.to_json(indent=2) + "\n", encoding="utf-8")
    if options.report is not None:
        asked_here(result, options.given).report(options.report)
    print(result.to_json() if options.json else result.summary())
    if result.status is Status.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_NO_ANSWER if result.x is None else 0
