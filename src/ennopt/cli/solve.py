"""``ennopt solve``: optimize a model from the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ennopt.api import available_cores, solve
from ennopt.cli.bounds import add_bounds, read_domain
from ennopt.cli.log import ProgressLog
from ennopt.convert import load_with_original
from ennopt.methods import METHODS, method_named
from ennopt.problem import Problem
from ennopt.result import Limits, Status
from ennopt.run import Tools

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
    parser.add_argument("--sense", choices=("max", "min"), default="max")
    parser.add_argument(
        "--output-index",
        type=int,
        metavar="K",
        help="which output of a model with several",
    )
    parser.add_argument(
        "--method", default="auto", help=f"one of {', '.join(METHODS)} (default: auto)"
    )
    parser.add_argument(
        "--backend", help="MILP solver of the method: highs, scip or gurobi"
    )
    parser.add_argument(
        "--time-limit", type=float, default=float("inf"), metavar="SECONDS"
    )
    parser.add_argument("--node-limit", type=float, default=float("inf"), metavar="N")
    parser.add_argument(
        "--gap", type=float, default=1e-4, help="relative gap to prove (default: 1e-4)"
    )
    parser.add_argument("--threads", type=int, help="default: every core")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="also write the result as JSON"
    )
    parser.add_argument("--quiet", action="store_true", help="no log")
    parser.set_defaults(run=run_solve)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare the model and its bounds."""
    parser.add_argument(
        "model", metavar="MODEL", help="a .npz, .onnx, .keras or .pt file"
    )
    add_bounds(parser)


def run_solve(options: argparse.Namespace) -> int:
    """Solve, print the answer, return the exit status."""
    ensemble, original = load_with_original(options.model)
    domain = read_domain(options, ensemble)
    if domain is None:
        raise ValueError(
            f"Expected bounds for the {ensemble.num_inputs} inputs, got none, and the "
            "model records no box. Add --lower and --upper, or --bounds FILE."
        )
    problem = Problem(ensemble, domain, options.sense, options.output_index)
    method = method_named(options.method, options.backend)
    limits = Limits(
        seconds=options.time_limit, nodes=options.node_limit, gap=options.gap
    )
    threads = available_cores() if options.threads is None else options.threads
    if options.output is not None:  # find out now, not after an hour
        options.output.touch()
    log = None
    if not options.quiet:
        print(f"{ensemble!r}\n{domain!r}\n{method!r}", file=sys.stderr)
        log = ProgressLog()
    tools = Tools(limits, threads, options.seed, callback=log)
    try:
        result = solve(problem, method, tools, original)
    finally:
        if log is not None:
            log.close()
    if options.output is not None:
        options.output.write_text(result.to_json(indent=2) + "\n", encoding="utf-8")
    print(result.to_json() if options.json else result.summary())
    if result.status is Status.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_NO_ANSWER if result.x is None else 0
